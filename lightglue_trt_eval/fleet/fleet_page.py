"""fleet.html: a row for each recording, the worst first, with distributions and changes; one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lightglue_trt_ros.core.drawing import GRAY, INK

from ..report.page import embedded, rendered
from ..report.style import Picture, draw_shares, finish, looks_of, new_figure, styled
from ..report.summary import INTERVAL, UNKNOWN, span, written
from ..score.confidence import AHEAD, BEHIND, POWER, Difference
from ..score.metrics import METRICS, MatcherResult
from .comparison import AUC, EQUAL, INLIERS, PRECISION, Changes, Comparison, main_change, verdict_of, worst
from .fleet_json import FleetReport
from .result_store import EVALUATED, FAILED, REPEATED, WAITING, FleetRow

TEMPLATE = Path(__file__).with_name('fleet.html.jinja')
SCRIPT = Path(__file__).with_name('sorting.js')
COLUMNS = {PRECISION: '≤ 1 px, %', INLIERS: 'inliers, %', 'matches': 'matches', 'pose_failures': 'no pose',
           'depth_points': 'with depth, %', 'depth_error_p50': 'error of z, %', 'depth_drift_percent': 'drift by depth, %',
           'frame_ms_p50': 'ms a frame'}
FAILURES = 20  # that are told one by one
STATES = {FAILED: 'cannot be evaluated', WAITING: 'not evaluated', REPEATED: 'repeated'}


TOGETHER = ('now less before, points', 'stride', 'mean', INTERVAL, 'recordings', 'verdict')
DISTRIBUTIONS = (AUC, PRECISION, INLIERS, 'matches', 'depth_points', 'depth_error_p50', 'depth_drift_percent', 'frame_ms_p50')
BETTER, WORSE = '#0072b2', '#d55e00'
MOST = 300  # recordings that are drawn one by one


class FleetCell(NamedTuple):
    """Text of a cell, and the number that it is sorted by; None goes to the end either way."""

    text: str
    value: float | None = None
    kind: str = ''  # better, worse, or empty


def write_fleet_page(path: Path, report: FleetReport) -> list[str]:
    """Write the page; what it lacks, and why, one line each. Raises OSError."""
    if find_spec('jinja2') is None:
        return ['no fleet.html: jinja2 is not installed (pip install jinja2)']
    pictured = find_spec('matplotlib') is not None
    path.write_bytes(render_fleet(report, pictured).encode('utf-8', 'replace'))
    return [] if pictured else ['no pictures in fleet.html: matplotlib is not installed (pip install matplotlib)']


def render_fleet(report: FleetReport, pictured: bool = True) -> str:
    """The page; every value is escaped."""
    script = SCRIPT.read_text(encoding='utf-8')
    heads, rows = _table(report)
    drawn = draw_fleet(report.evaluated, report.comparison) if pictured else []
    return rendered(
        TEMPLATE, report=report, verdict=verdict(report), together_heads=TOGETHER, together=together(report.comparison),
        heads=heads, rows=rows, states=STATES, most=FAILURES, means=_means(report.evaluated),
        pictures=[(picture, embedded(picture)) for picture in drawn],
        script=script, script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode())


def verdict(report: FleetReport) -> list[str]:
    """The result of the fleet, in a few sentences."""
    counts = {status: sum(row.status == status for row in report.rows) for status in (EVALUATED, FAILED, REPEATED, WAITING)}
    lines = [f'{counts[EVALUATED]} of {len(report.rows)} recordings evaluated'
             + ''.join(f', {counts[status]} {STATES[status]}' for status in (FAILED, REPEATED, WAITING) if counts[status]) + '.']
    if (comparison := report.comparison) is not None:
        sides = [{verdict_of(each) for each in changes.values()} for changes in comparison.recordings.values() if changes]
        lines.append(f'{len(sides)} recordings are compared: {sum(BEHIND in each for each in sides)} behind and '
                     f'{sum(AHEAD in each for each in sides)} ahead of the earlier run in at least one figure, '
                     f'{sum(each == {EQUAL} for each in sides)} the same.')
    return lines + detectable(report)


def detectable(report: FleetReport) -> list[str]:
    """How large a loss has to be for the acceptance check, a sentence for each figure that it judges."""
    if report.limit is None or report.comparison is None:
        return []
    lines = []
    for stride, metric, fleet, single in report.comparison.detectable():
        losses = [f'of {report.limit + loss:.1f} points in {where}'
                  for loss, where in ((fleet, 'the mean over recordings'), (single, 'a single recording')) if loss is not None]
        lines.append(f'{METRICS[metric].label}, stride {stride}: the acceptance check detects {100 * POWER:.0f} % of losses '
                     f'{" and ".join(losses)}.')
    return lines


def together(comparison: Comparison | None) -> list[tuple[str, ...]]:
    """TOGETHER for each mean over recordings."""
    return [] if comparison is None else [
        (METRICS[metric].label, str(stride), f'{each.difference:+.1f}', span(each), str(each.pairs),
         verdict_of(each).replace('pairs', 'recordings')) for (stride, metric), each in comparison.together.items()]


def worst_first(rows: Sequence[FleetRow], comparison: Comparison | None) -> list[FleetRow]:
    """Recordings that failed, then those that lost most for sure, then the lowest; at the end what is no result."""
    def rank(row: FleetRow) -> tuple[float, ...]:
        change = worst(comparison.recordings.get(row.name, {})) if comparison else 0.0
        figure = row.figure(AUC)
        return ((FAILED, EVALUATED, WAITING, REPEATED).index(row.status), change, figure is None,
                figure if figure is not None else row.figure(INLIERS) or 0.0)
    return sorted(rows, key=rank)


def _table(report: FleetReport) -> tuple[list[str], list[tuple[FleetRow, list[FleetCell]]]]:
    strides = sorted({stride for row in report.evaluated for stride in row.facts['strides']})
    others = list(dict.fromkeys(each['name'] for row in report.evaluated for each in row.facts['matchers'][1:]))
    shown = {metric: head for metric, head in COLUMNS.items() if any(row.figure(metric) is not None for row in report.evaluated)}
    changes = [] if report.comparison is None else [*((stride, '') for stride in strides), (1, PRECISION)]
    heads = [*(f'AUC@10, stride {stride}' for stride in strides),
             *(f'change of {COLUMNS[metric]}' if metric else f'change, stride {stride}' for stride, metric in changes),
             *(f'{name}: AUC@10' for name in others), *shown.values(), 'pairs', 'frames']
    rows = []
    for row in worst_first(report.rows, report.comparison):
        known = report.comparison.recordings.get(row.name, {}) if report.comparison else {}
        cells = [] if row.status != EVALUATED else [
            *(_figure(AUC, row.figure(AUC, stride)) for stride in strides),
            *(_change(known.get((stride, metric)) if metric else main_change(known, stride)) for stride, metric in changes),
            *(_figure(AUC, row.figure(AUC, matcher=name)) for name in others),
            *(_figure(metric, row.figure(metric)) for metric in shown),
            _count(row.first['pairs'].get('1')), _count(row.facts['recording'].get('frames'))]
        rows.append((row, cells))
    return heads, rows


def _figure(metric: str, value: float | None) -> FleetCell:
    return FleetCell(written(metric, value), value)


def _count(value: Any) -> FleetCell:
    return FleetCell(UNKNOWN if value is None else str(value), value)


def _change(change: Difference | None) -> FleetCell:
    if change is None:
        return FleetCell(UNKNOWN)
    text = '0' if verdict_of(change) == EQUAL else f'{change.difference:+.1f} ({span(change)})'
    return FleetCell(text, change.difference, {AHEAD: 'better', BEHIND: 'worse'}.get(change.verdict, ''))


def _means(rows: Sequence[FleetRow]) -> dict[str, Any]:
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


@styled()
def draw_fleet(rows: Sequence[FleetRow], comparison: Comparison | None) -> list[Picture]:
    """Every picture that there is something for. `rows` are evaluated ones."""
    recordings = [] if comparison is None else list(comparison.recordings.values())
    strides = sorted({stride for changes in recordings for stride, _ in changes})
    drawn = [*(_changes(recordings, stride) for stride in strides), *(_distribution(rows, metric) for metric in DISTRIBUTIONS)]
    return [picture for picture in drawn if picture is not None]


def _distribution(rows: Sequence[FleetRow], metric: str) -> Picture | None:
    """Share of the recordings up to a value, a curve for each matcher."""
    named = {each['name']: each['ours'] for row in rows for each in row.facts['matchers']}
    matchers = [MatcherResult(name, '', ours) for name, ours in named.items()]
    known = []
    for matcher, look in zip(matchers, looks_of(matchers), strict=True):
        figures = [value for row in rows if (value := row.figure(metric, matcher=matcher.name)) is not None]
        if figures:
            known.append((np.sort(figures), look))
    if not known:
        return None
    curves = [([values[0], *values], 100 * np.arange(len(values) + 1) / len(values), {**look, 'drawstyle': 'steps-post'})
              for values, look in known]
    png = draw_shares(curves, 'Recordings up to …', _label(metric) + (f', {METRICS[metric].unit}' if METRICS[metric].unit else ''))
    better, end = ('right', 'begins') if METRICS[metric].higher_is_better else ('left', 'ends')
    return Picture(metric, f'Recordings by {_label(metric)}', 'Of consecutive frames: a curve '
                   f'further to the {better} is better, and where it {end} are the recordings to look at.', png)


def _label(metric: str) -> str:
    short = {AUC: 'pose AUC@10', PRECISION: 'matches within 1 px', INLIERS: 'share of inliers',
             'frame_ms_p50': 'median time of a frame'}
    return short.get(metric, METRICS[metric].label)


def _changes(recordings: Sequence[Changes], stride: int) -> Picture | None:
    """Every recording's difference with its interval, the worst first."""
    every = [main_change(changes, stride) for changes in recordings]
    differences = sorted((each for each in every if each is not None), key=lambda each: each.difference)
    if not differences or all(each.difference == 0 for each in differences):
        return None
    if len(differences) > MOST:
        differences = differences[:MOST // 2] + differences[-(MOST // 2):]
    figure, (axes,) = new_figure()
    for place, each in enumerate(differences):
        colour = {AHEAD: BETTER, BEHIND: WORSE}.get(each.verdict, GRAY)
        axes.plot([place, place], [each.low, each.high], color=colour, lw=2, solid_capstyle='butt')
        axes.plot(place, each.difference, 'o', color=colour, ms=6)
    axes.axhline(0, color=INK, lw=1)
    axes.set_title(f'Change at stride {stride}, points')
    axes.set_xticks([])
    axes.set_xlabel('recordings, the worst first' + f' (the {MOST // 2} at either end)' * (len(differences) == MOST))
    caption = (f'Each recording now less before, with its 95 % interval, pairs {stride} frames apart: orange is worse, blue '
               'better, gray cannot be told from its pairs.')
    return Picture(f'changes_{stride}', f'Change at stride {stride}', caption, finish(figure))
