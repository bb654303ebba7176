"""fleet.html: every recording a row, the worst first, what is distributed how, and what changed; one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..evaluation.results import METRICS
from ..files import write_whole
from ..reports.page import TEMPLATE as REPORT_TEMPLATE
from ..reports.summary import UNKNOWN, written
from .comparison import AUC_DEG, Comparison, Difference, told, worst
from .fleet_document import FleetReport
from .fleet_plots import draw_fleet
from .rows import EVALUATED, FAILED, REPEATED, WAITING, Row

TEMPLATE = Path(__file__).with_name('fleet.html.jinja')
SCRIPT = Path(__file__).with_name('sorting.js')
AUC = f'pose_auc@{AUC_DEG}'
COLUMNS = {'precision@1': '≤ 1 px, %', 'inlier_ratio': 'inliers, %', 'matches': 'matches', 'pose_failures': 'no pose',
           'frame_ms_p50': 'ms a frame'}
STATES = {FAILED: 'cannot be evaluated', WAITING: 'not evaluated', REPEATED: 'repeated'}


class Cell(NamedTuple):
    """What stands in the table, and the number that it is sorted by; None goes to the end either way."""

    text: str
    value: float | None = None
    kind: str = ''  # better, worse, or empty


def write_fleet_page(path: Path, report: FleetReport) -> list[str]:
    """Write the page; what it lacks, and why, one line each. Raises OSError."""
    if find_spec('jinja2') is None:
        return ['no fleet.html: jinja2 is not installed (pip install jinja2)']
    pictured = find_spec('matplotlib') is not None
    write_whole(path, render_fleet(report, pictured).encode('utf-8', 'replace'))
    return [] if pictured else ['no pictures in fleet.html: matplotlib is not installed (pip install matplotlib)']


def render_fleet(report: FleetReport, pictured: bool = True) -> str:
    """The page; every value is escaped."""
    from jinja2 import Environment, StrictUndefined
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined).from_string(
        TEMPLATE.read_text(encoding='utf-8'))
    style = re.findall(r'<style>\n(.*?)</style>', REPORT_TEMPLATE.read_text(encoding='utf-8'), re.S)  # one look for both pages
    script = SCRIPT.read_text(encoding='utf-8')
    heads, rows = _table(report)
    drawn = draw_fleet(report.evaluated, report.comparison) if pictured else []
    return template.render(
        report=report, style=''.join(style), script=script, heads=heads, rows=rows, states=STATES,
        script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(), verdict=verdict(report),
        means=_means(report.evaluated), pictures=[(picture, f'data:image/png;base64,{base64.b64encode(picture.png).decode()}')
                                                  for picture in drawn])


def verdict(report: FleetReport) -> list[str]:
    """What the fleet comes to, in a few sentences."""
    counts = {status: sum(row.status == status for row in report.rows) for status in (EVALUATED, FAILED, REPEATED, WAITING)}
    lines = [f'{counts[EVALUATED]} of {len(report.rows)} recordings evaluated'
             + ''.join(f', {counts[status]} {STATES[status]}' for status in (FAILED, REPEATED, WAITING) if counts[status]) + '.']
    if (found := report.comparison) is not None:
        for each in found.together:
            lines.append(f'Against before, {told(each)}, mean of {each.interval.pairs} recordings: {each.verdict}.')
        sides = [{each.verdict for each in differences} for differences in found.recordings.values()]
        lines.append(f'{len(sides)} recordings are compared: {sum("behind" in each for each in sides)} behind and '
                     f'{sum("ahead" in each for each in sides)} ahead of before at a stride or more, '
                     f'{sum(each == {"the same"} for each in sides)} the same.')
    return lines


def worst_first(rows: Sequence[Row], comparison: Comparison | None) -> list[Row]:
    """What cannot be evaluated, then what lost most, then what is lowest; at the end what is no result."""
    def rank(row: Row) -> tuple[float, ...]:
        change = worst(comparison.recordings.get(row.name, [])) if comparison else 0.0
        figure = row.figure(AUC)
        return ((FAILED, EVALUATED, WAITING, REPEATED).index(row.status), min(change, 0.0), figure is None,
                figure if figure is not None else row.figure('inlier_ratio') or 0.0)
    return sorted(rows, key=rank)


def _table(report: FleetReport) -> tuple[list[str], list[tuple[Row, list[Cell]]]]:
    strides = sorted({stride for row in report.evaluated for stride in row.facts['strides']})
    others = list(dict.fromkeys(each['name'] for row in report.evaluated for each in row.facts['matchers'][1:]))
    shown = {metric: head for metric, head in COLUMNS.items() if any(row.figure(metric) is not None for row in report.evaluated)}
    changes = [] if report.comparison is None else strides
    heads = [*(f'AUC@{AUC_DEG}, stride {stride}' for stride in strides), *(f'change, stride {stride}' for stride in changes),
             *(f'{name}: AUC@{AUC_DEG}' for name in others), *shown.values(), 'pairs', 'frames']
    rows = []
    for row in worst_first(report.rows, report.comparison):
        known = report.comparison.recordings.get(row.name, []) if report.comparison else []
        cells = [] if row.status != EVALUATED else [
            *(_figure(AUC, row.figure(AUC, stride)) for stride in strides),
            *(_change(next((each for each in known if each.stride == stride), None)) for stride in changes),
            *(_figure(AUC, row.figure(AUC, matcher=name)) for name in others),
            *(_figure(metric, row.figure(metric)) for metric in shown),
            _count(row.first['pairs'].get('1')), _count(row.facts['recording'].get('frames'))]
        rows.append((row, cells))
    return heads, rows


def _figure(metric: str, value: float | None) -> Cell:
    return Cell(written(metric, value), value)


def _count(value: Any) -> Cell:
    return Cell(UNKNOWN if value is None else str(value), value)


def _change(found: Difference | None) -> Cell:
    if found is None:
        return Cell(UNKNOWN)
    interval = found.interval
    kind = {'ahead': 'better', 'behind': 'worse'}.get(found.verdict, '')
    text = '0' if found.verdict == 'the same' else f'{interval.difference:+.1f} ({interval.low:+.1f} to {interval.high:+.1f})'
    return Cell(text, interval.difference, kind)


def _means(rows: Sequence[Row]) -> dict[str, Any]:
    """Means over recordings, every one counting once: matchers by metric and stride."""
    names = list(dict.fromkeys(each['name'] for row in rows for each in row.facts['matchers']))
    strides = sorted({stride for row in rows for stride in row.facts['strides']})
    wanted = [*((AUC, stride) for stride in strides), *((metric, 1) for metric in COLUMNS if metric != 'pose_failures')]
    lines = []
    for metric, stride in wanted:
        known = [[value for row in rows if (value := row.figure(metric, stride, name)) is not None] for name in names]
        if any(known):
            unit = f', {METRICS[metric].unit}' if METRICS[metric].unit else ''
            lines.append((f'{METRICS[metric].label}{unit}' + f', stride {stride}' * (stride > 1),
                          [written(metric, float(np.mean(values)) if values else None) for values in known],
                          max(map(len, known))))
    return {'names': names, 'lines': lines}
