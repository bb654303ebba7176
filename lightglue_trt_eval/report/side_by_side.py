"""Results of an evaluation of several cameras: their figures side by side; each camera's own report is in a folder of its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..score.metrics import Evaluation, KeptFigures
from .json_report import SCHEMA, as_text, intervals_of
from .page import rendered, write_files
from .summary import INTERVAL, coverage, grouped, print_figures, table, terminal_rows, verdict

TEMPLATE = Path(__file__).with_name('side_by_side.html.jinja')


@dataclass(frozen=True)
class CameraReport:
    """Figures of a camera's evaluation, after its own report is written. A camera that failed has no matchers."""

    name: str
    recording: dict[str, Any] = field(default_factory=dict)  # as Evaluation has it
    strides: tuple[int, ...] = ()
    matchers: list[KeptFigures] = field(default_factory=list)
    verdict: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    failures: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, evaluation: Evaluation, failures: list[str]) -> CameraReport:
        matchers = [KeptFigures(matcher.name, {stride: matcher.summary(stride) for stride in evaluation.strides},
                                {stride: matcher.intervals(stride) for stride in evaluation.strides})
                    for matcher in evaluation.matchers]
        covered = [coverage(evaluation)] if evaluation.interrupted else []
        return cls(name, evaluation.recording, evaluation.strides, matchers, verdict(evaluation), [*covered, *evaluation.notes],
                   evaluation.interrupted, failures)


def write_side_by_side(folder: Path, cameras: Sequence[CameraReport]) -> list[Path]:
    """Write report.json, and report.html where Jinja2 is installed, into `folder`; the paths. Raises LightglueTrtError."""
    page = {} if find_spec('jinja2') is None else {'report.html': _page(cameras).encode('utf-8', 'replace')}
    return write_files(folder, {'report.json': as_text(_document(cameras)), **page})


def print_side_by_side(cameras: Sequence[CameraReport]) -> None:
    """The first matcher's figures, a column for each camera; what others made of it, and why something is missing, is above."""
    done = [camera for camera in cameras if camera.matchers]
    firsts = [camera.matchers[0] for camera in done]
    rows = [row._replace(cells=[cell._replace(best=False) for cell in row.cells])
            for stride in (done[0].strides if done else ()) for row in terminal_rows(firsts, stride)]
    if rows:
        print_figures(f'{firsts[0].name}, every camera by itself', [camera.name for camera in done], rows)


def _document(cameras: Sequence[CameraReport]) -> dict[str, Any]:
    return {'schema': SCHEMA, 'package': 'lightglue_trt_ros', 'interrupted': any(camera.interrupted for camera in cameras),
            'cameras': {camera.name: {
                'report': f'{camera.name}/report.json' if camera.matchers else None, 'recording': camera.recording,
                'interrupted': camera.interrupted, 'notes': camera.notes, 'failures': camera.failures,
                'matchers': [{'name': each.name, 'summary': {str(stride): figures for stride, figures in each.summaries.items()},
                              'intervals': {str(stride): intervals_of(intervals)
                                            for stride, intervals in each.intervals_by_stride.items()}}
                             for each in camera.matchers]}
                for camera in cameras}}


def _page(cameras: Sequence[CameraReport]) -> str:
    """Every matcher on every camera, a column each. Every value is escaped."""
    done = [camera for camera in cameras if camera.matchers]
    columns = [matcher for camera in done for matcher in camera.matchers]
    name = next((str(camera.recording['path']) for camera in done), '').rstrip('/').rsplit('/', 1)[-1]
    return rendered(
        TEMPLATE, name=name, cameras=cameras, done=done, columns=columns, interval=INTERVAL,
        tables=[(stride, grouped(table(columns, stride))) for stride in (done[0].strides if done else ())])
