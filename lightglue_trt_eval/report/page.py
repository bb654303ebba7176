"""A report's folder, and its page report.html with everything inside, which needs no network and no scripts."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from lightglue_trt_ros.core.timing import PERCENTILES
from lightglue_trt_ros.utils.files import written_together

from ..score.metrics import METRICS, Evaluation
from .json_report import as_text, document
from .plots import draw_all
from .style import Picture
from .summary import CONTEST_HEADS, INTERVAL, UNKNOWN, contests, coverage, grouped, table, verdict

REPORT = Path(__file__).with_name('report.html.jinja')
JPEG_QUALITY = 88
OTHER_FOLDER = 'choose another output folder'
WORDS = {'path': 'recording', 'topic': 'image topic', 'recorded_frames': 'frames recorded', 'duration_s': 'duration, s',
         'rate_hz': 'frames per second', 'width': 'width, px', 'height': 'height, px', 'camera': 'camera',
         'calibration_source': 'calibration from', 'truth': 'ground truth', 'mask': 'mask', 'image_bits': 'used bits of 16',
         'depth': 'depth images', 'depth_median_m': 'median depth, m'}
FOR_CODE = ('truth_as_camera', 'left_out')  # facts of a recording that its words and notes have for people
NEEDED = {'matplotlib': 'no pictures', 'jinja2': 'no report.html'}
PICTURES = ('matches', 'trajectory', 'matches_over_time', 'pose_errors', 'epipolar_errors', 'deviations', 'strides',
            'track_lengths', 'stage_times', 'worst_pair_?')


def write_report(folder: Path, evaluation: Evaluation) -> list[Path]:
    """Write report.json, report.html and the pictures into `folder`, which is made, all or none; the paths, in this order.

    The time that this takes is added to `evaluation.wall_s`. Pictures and page of an earlier report there that this one does not
    have are removed. Where matplotlib or Jinja2 is not installed, what needs it is left out, and a note that says so is added to
    `evaluation.notes`.
    Raises LightglueTrtError where `folder` cannot be written.
    """
    missing = {name: what for name, what in NEEDED.items() if find_spec(name) is None}
    for name, what in missing.items():
        note = f'{what}: {name} is not installed (pip install {name})'
        if note not in evaluation.notes:
            evaluation.notes.append(note)
    started = time.perf_counter()
    pictures = [] if 'matplotlib' in missing else draw_all(evaluation)
    page = {} if 'jinja2' in missing else {'report.html': render(evaluation, pictures).encode('utf-8', 'replace')}
    evaluation.wall_s['report'] = time.perf_counter() - started
    files = {'report.json': as_text(document(evaluation)), **page, **{f'{picture.name}.png': picture.png for picture in pictures}}
    return write_files(folder, files)


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write a report's files into `folder`, all or none, and remove page and pictures of an earlier one that it has not.

    Raises LightglueTrtError.
    """
    with written_together(folder, OTHER_FOLDER) as scratch:
        for name, data in files.items():
            (scratch / name).write_bytes(data)
    written = [folder / name for name in files]
    with suppress(OSError):
        for name in ('report.html', *(f'{picture}.png' for picture in PICTURES)):
            for stale in set(folder.glob(name)).difference(written):
                stale.unlink()
    return written


def render(evaluation: Evaluation, pictures: Sequence[Picture]) -> str:
    """The page, with its pictures embedded. Every value is escaped."""
    name = str(evaluation.recording.get('path', '')).rstrip('/').rsplit('/', 1)[-1] or 'recording'
    rows = table(evaluation.matchers)
    return rendered(
        REPORT, name=name, evaluation=evaluation, verdict=verdict(evaluation), groups=grouped(rows),
        unknown=UNKNOWN if any(cell.text == UNKNOWN for row in rows for cell in row.cells) else '',
        pictures=[(picture, embedded(picture)) for picture in pictures],
        strides=[(stride, table(evaluation.matchers, stride)) for stride in evaluation.strides if stride != 1],
        contests=contests(evaluation), contest_heads=CONTEST_HEADS, interval=INTERVAL, coverage=coverage(evaluation),
        headline=METRICS[evaluation.headline].label if evaluation.headline else '', comparison=_comparison(evaluation),
        stages=_stages(evaluation), percentiles=PERCENTILES, words=WORDS, for_code=FOR_CODE, em_dash=UNKNOWN)


def rendered(template: Path, **values: Any) -> str:
    """The page of a Jinja2 template, which extends `layout.html.jinja`, with every value escaped."""
    return str(_templates(template.parent).get_template(template.name).render(**values))


@cache
def _templates(folder: Path) -> Any:
    """The environment of the templates in `folder`, which keeps them compiled."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    return Environment(loader=FileSystemLoader([folder, REPORT.parent]), autoescape=True, trim_blocks=True, lstrip_blocks=True,
                       undefined=StrictUndefined)


def embedded(picture: Picture) -> str:
    """The picture as the address of an image, with all of its data."""
    kind, data = 'png', picture.png
    if picture.photo:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        kind, data = 'jpeg', cv2.imencode('.jpg', np.asarray(image), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1].tobytes()
    return f'data:image/{kind};base64,{base64.b64encode(data).decode()}'


def _comparison(evaluation: Evaluation) -> dict[str, Any] | None:
    """Matchers that are compared with the first: each metric, and how far it is from the first's."""
    compared = [*evaluation.matchers[:1], *(matcher for matcher in evaluation.matchers[1:] if matcher.ours)]
    if len(compared) < 2:
        return None
    summaries = [matcher.summary() for matcher in compared]
    rows = []
    for row in table(compared):
        digits, own = METRICS[row.name].digits, summaries[0].get(row.name)
        gaps = ['' if own is None or row.name not in summary else
                f' ({round(summary[row.name], digits) - round(own, digits):+.{digits}f})' for summary in summaries[1:]]
        first, *texts = (cell.text for cell in row.cells)
        rows.append((row.label, row.unit, row.meaning, first, [text + gap for text, gap in zip(texts, gaps, strict=True)]))
    return {'first': compared[0].name, 'others': [matcher.name for matcher in compared[1:]], 'rows': rows}


def _stages(evaluation: Evaluation) -> list[tuple[str, str, list[float]]]:
    return [(matcher.name, 'the whole frame' if stage == 'frame' else stage,
             np.percentile(times, PERCENTILES).tolist())
            for matcher in evaluation.matchers for stage, times in matcher.stage_ms.items() if times]
