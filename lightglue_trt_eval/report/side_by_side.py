"""Results of an evaluation of several cameras: their figures side by side; each camera's own report is in a folder of its name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ..score.metrics import Evaluation
from .json_report import SCHEMA, as_text, intervals_of
from .page import rendered, write_files
from .summary import INTERVAL, coverage, grouped, print_figures, table, terminal_rows, verdict

TEMPLATE = Path(__file__).with_name('side_by_side.html.jinja')


class CameraReport(NamedTuple):
    """A camera's evaluation, after its own report is written. One that failed, or did not begin, has no matchers."""

    name: str
    evaluation: Evaluation
    failures: list[str]

    @property
    def notes(self) -> list[str]:
        """With what an interrupted evaluation covers."""
        found = self.evaluation
        return [coverage(found)] * bool(found.interrupted and found.matchers) + found.notes


def not_evaluated(name: str, notes: list[str], failures: list[str], interrupted: bool = False) -> CameraReport:
    return CameraReport(name, Evaluation({}, '', [], (), notes, interrupted), failures)


def write_side_by_side(folder: Path, cameras: Sequence[CameraReport]) -> list[Path]:
    """Write report.json, and report.html where Jinja2 is installed, into `folder`; the paths. Raises LightglueTrtError."""
    page = {} if find_spec('jinja2') is None else {'report.html': _page(cameras).encode('utf-8', 'replace')}
    return write_files(folder, {'report.json': as_text(_document(cameras)), **page})


def print_side_by_side(cameras: Sequence[CameraReport]) -> None:
    """The first matcher's figures, a column for each camera; what others made of it, and why something is missing, is above."""
    done = [camera for camera in cameras if camera.evaluation.matchers]
    firsts = [camera.evaluation.matchers[0] for camera in done]
    rows = [row._replace(cells=[cell._replace(best=False) for cell in row.cells])
            for stride in (done[0].evaluation.strides if done else ()) for row in terminal_rows(firsts, stride)]
    if rows:
        print_figures(f'{firsts[0].name}, every camera by itself', [camera.name for camera in done], rows)


def _document(cameras: Sequence[CameraReport]) -> dict[str, Any]:
    return {'schema': SCHEMA, 'package': 'lightglue_trt_ros', 'interrupted': any(each.evaluation.interrupted for each in cameras),
            'cameras': {camera.name: _camera(camera, camera.evaluation) for camera in cameras}}


def _camera(camera: CameraReport, found: Evaluation) -> dict[str, Any]:
    return {'report': f'{camera.name}/report.json' if found.matchers else None, 'recording': found.recording,
            'interrupted': found.interrupted, 'notes': camera.notes, 'failures': camera.failures,
            'matchers': [{'name': each.name, 'summary': {str(stride): each.summary(stride) for stride in found.strides},
                          'intervals': {str(stride): intervals_of(each.intervals(stride)) for stride in found.strides}}
                         for each in found.matchers]}


def _page(cameras: Sequence[CameraReport]) -> str:
    """Every matcher on every camera, a column each. Every value is escaped."""
    done = [camera for camera in cameras if camera.evaluation.matchers]
    columns = [matcher for camera in done for matcher in camera.evaluation.matchers]
    name = next((str(camera.evaluation.recording['path']) for camera in done), '').rstrip('/').rsplit('/', 1)[-1]
    return rendered(
        TEMPLATE, name=name, cameras=[(camera, verdict(camera.evaluation) if camera in done else []) for camera in cameras],
        done=done, columns=columns, interval=INTERVAL,
        tables=[(stride, grouped(table(columns, stride))) for stride in (done[0].evaluation.strides if done else ())])
