"""The table that sums an evaluation up, the verdict in words, and both on the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...utils.console import print_table
from ..confidence import AHEAD, BEHIND, LEVEL, MIN_PAIRS, Interval, Spread
from ..metrics import METRICS
from ..motion_observability import MIN_BASELINE_M, MIN_STEP_PER_DEPTH
from ..results import Evaluation, MatcherResult

UNKNOWN = '\N{EM DASH}'
INTERVAL = f'{100 * LEVEL:g} % interval'
CONTEST_HEADS = ('stride', 'against', 'difference', INTERVAL, 'pairs', 'verdict')
AGAINST_FIRST = ('retention', 'agreement_f1', 'count_ratio')  # no contest: they say how close, not how good
NO_CONTEST = (*AGAINST_FIRST, 'layers', 'within_1_sigma', 'within_2_sigma', 'true_within_1_sigma', 'true_within_2_sigma')
TELLING = ('matches', 'inlier_ratio', 'pose_auc@10', 'rotation_auc@2', 'pose_failures', 'within_1_sigma', 'within_2_sigma')
GROUPS = {
    'Correspondences': ('matches', 'inlier_ratio', 'precision@', 'forward_backward', 'within_', 'true_within_'),
    'Relative pose': ('pose_', 'rotation_'),
    'Tracks': ('track_',),
    'Two-view odometry': ('ate_', 'rpe_', 'drift_'),
    'Stereo': ('stereo_',),
    'Time': ('frame_ms', 'fps', 'cpu_ms', 'gpu_ms', 'layers'),
    'Agreement with the first': AGAINST_FIRST,
    'Live': ('dropped', 'latency_'),
}


class TableCell(NamedTuple):
    """A figure as it is written."""

    text: str
    best: bool
    span: str = ''  # its 95 % interval; empty: none
    around: str = ''  # how far the further end of that is off


class TableRow(NamedTuple):
    """A metric of every matcher."""

    name: str  # in METRICS
    label: str
    unit: str
    cells: list[TableCell]
    over: str = ''  # how many pairs, frames or tracks the figures rest on


class TerminalRow(NamedTuple):
    """A figure of every matcher, as the terminal shows it."""

    name: str
    over: str
    cells: list[TableCell]


class Judged(Protocol):
    """What has figures, as MatcherResult."""

    def summary(self, stride: int = 1) -> dict[str, float]: ...

    def spreads(self, stride: int = 1) -> dict[str, Spread]: ...


def written(name: str, value: float | None, unit: bool = False) -> str:
    """A metric's value with its digits, and with its unit where asked; an em dash for what cannot be known."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    metric = METRICS[name]
    text = f'{round(value, metric.digits) + 0.0:.{metric.digits}f}'  # + 0.0: no negative zero
    return f'{text} {metric.unit}' if unit and metric.unit else text


def table(evaluation: Evaluation, stride: int = 1) -> list[TableRow]:
    """The metrics that at least one matcher has at this stride, in the order of METRICS; the best of each row is marked."""
    return table_of(evaluation.matchers, stride)


def table_of(matchers: Sequence[Judged], stride: int = 1) -> list[TableRow]:
    """The same of any matchers."""
    summaries = [matcher.summary(stride) for matcher in matchers]
    spreads = [matcher.spreads(stride) for matcher in matchers]
    rows = []
    for name, metric in METRICS.items():
        values = [found.get(name) for found in summaries]
        known = [round(value, metric.digits) for value in values if value is not None and math.isfinite(value)]
        if not known:
            continue
        best = (max if metric.higher_is_better else min)(known)
        contest = len(known) > 1 and name not in NO_CONTEST and len(set(known)) > 1
        cells = [_cell(name, value, found.get(name), contest and written(name, value) == written(name, best))
                 for value, found in zip(values, spreads, strict=True)]
        sizes = sorted({found[name].size for found in spreads if name in found})
        over = f'{sizes[0]:,}' + (f' to {sizes[-1]:,}' if len(sizes) > 1 else '') if sizes else ''
        rows.append(TableRow(name, metric.label, metric.unit, cells, over))
    return rows


def _cell(name: str, value: float | None, spread: Spread | None, best: bool) -> TableCell:
    text = written(name, value)
    if spread is None or value is None or text == UNKNOWN:
        return TableCell(text, best)
    around = written(name, max(value - spread.low, spread.high - value, 0.0))
    return TableCell(text, best, f'{written(name, spread.low)} to {written(name, spread.high)}', f'\N{PLUS-MINUS SIGN}{around}')


def span(interval: Interval) -> str:
    """The interval of a difference in points, with signs."""
    return f'{interval.low:+.1f} to {interval.high:+.1f}'


def contests(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """CONTEST_HEADS for the first matcher's headline figure and each other one's."""
    return [(str(found.stride), found.other, f'{found.interval.difference:+.1f}', span(found.interval), str(found.interval.pairs),
             found.interval.verdict) for found in evaluation.contests([evaluation.headline])] if evaluation.headline else []


def grouped(rows: list[TableRow]) -> dict[str, list[TableRow]]:
    """Rows under the headings of GROUPS, empty ones left out."""
    groups = {title: [row for row in rows if row.name.startswith(names)] for title, names in GROUPS.items()}
    placed = [row for found in groups.values() for row in found]
    return {title: found for title, found in {**groups, 'More': [row for row in rows if row not in placed]}.items() if found}


def verdict(evaluation: Evaluation) -> list[str]:
    """What the first matcher is worth on this recording: a few sentences, the most important first."""
    if not evaluation.matchers or not any(matcher.summary() for matcher in evaluation.matchers):
        return ['Nothing could be evaluated: no pair of frames was matched.']
    first, rivals = evaluation.matchers[0], [matcher for matcher in evaluation.matchers[1:] if not matcher.ours]
    found = first.summary()
    sentences = [line for line in (_against(evaluation, rivals), resolved(evaluation), _counts(first), _odometry(first)) if line]
    if 'frame_ms_p50' in found:
        line = (f'A frame takes {written("frame_ms_p50", found["frame_ms_p50"], True)} '
                f'(p95 {written("frame_ms_p95", found.get("frame_ms_p95"), True)}) by itself, over '
                f'{len(first.stage_ms.get("frame", []))} frames')
        frames, seconds = evaluation.recording.get('frames'), evaluation.recording.get('duration_s')
        if isinstance(frames, (int, float)) and isinstance(seconds, (int, float)) and frames > 1 and seconds > 0:
            rate = (frames - 1) / seconds
            pace = 'fast enough' if found['fps'] >= rate else 'too slow'
            line += f", {pace} for this recording's {rate:.1f} frames per second"
        sentences.append(f'{line}.')
    return sentences


def _against(evaluation: Evaluation, rivals: list[MatcherResult]) -> str:
    """The first matcher's headline figure beside the best baseline's, and one verdict."""
    name, first = evaluation.headline, evaluation.matchers[0]
    if not name:
        return ''
    own, spread = first.summary()[name], first.spreads().get(name)
    rests = (f'{INTERVAL} {written(name, spread.low)} to {written(name, spread.high)}, {spread.size} pairs' if spread else
             'of one pair')
    line = f'{first.name}: {METRICS[name].label} {written(name, own, True)} ({rests})'
    known = {rival.name: value for rival in rivals if (value := rival.summary().get(name)) is not None}
    if not known:
        return f'{line}.'
    best = max(known, key=lambda rival: known[rival])
    found = next(each.interval for each in evaluation.contests([name]) if (each.stride, each.other) == (1, best))
    line += f'; the best baseline, {best}, has {written(name, known[best], True)}'
    return f'{line}: {found.verdict} ({found.difference:+.1f} points, {span(found)}, over {found.pairs} pairs of both).'


def resolved(evaluation: Evaluation) -> str:
    """On how many pairs the direction of the step is scored, by stride; empty where it is on all, or nothing is known."""
    parts, least = [], 0
    for stride in evaluation.strides:
        pairs = [pair for pair in evaluation.matchers[0].pairs.get(stride, []) if pair.rotation_deg is not None]
        count = sum(pair.translation_deg is not None for pair in pairs)
        least += len(pairs) - count
        if pairs:
            parts.append(f'{count} of {len(pairs)}' + (f' pairs {stride} apart' if stride > 1 else ' consecutive pairs'))
    if not least:
        return ''
    return (f'The pose AUC is over {", ".join(parts)}: in the others the camera moved less than {100 * MIN_STEP_PER_DEPTH:.0f} % '
            f"of the scene's depth, or {1e3 * MIN_BASELINE_M:.0f} mm, and the truth tells no direction. "
            'The rotation AUC is over all of them.')


def coverage(evaluation: Evaluation) -> str:
    """What an interrupted evaluation covers; empty for a whole one."""
    if not evaluation.interrupted:
        return ''
    frames, done = evaluation.recording.get('frames'), evaluation.covered
    if done is None or not frames:
        return 'Interrupted: the figures are over what was done until then.'
    fewest = min((len(matcher.pairs.get(1, [])) for matcher in evaluation.matchers), default=0)
    last = [each for each in evaluation.matchers if len(each.pairs.get(1, [])) == fewest]  # the others had their turn before
    whose = '' if len(last) == len(evaluation.matchers) else f' of {", ".join(each.name for each in last)}'
    pairs = ', '.join(f'{len(last[0].pairs.get(stride, [])) if last else 0} of stride {stride}' for stride in evaluation.strides)
    return (f'Interrupted: the figures{whose} cover the first {done} of {frames} frames ({100 * done / frames:.0f} %), pairs: '
            f'{pairs}; what follows is not in them.')


def _counts(first: MatcherResult) -> str:
    found = first.summary()
    if 'matches' not in found:
        return ''
    line = f'{written("matches", found["matches"])} matches per frame'
    if 'precision@3' in found:
        line += f', {written("precision@3", found["precision@3"], True)} of them within 3 px of the true epipolar line'
    elif 'inlier_ratio' in found and 'pose_auc@10' in found:  # without a pose, the sentence before has said it
        line += f', {written("inlier_ratio", found["inlier_ratio"], True)} of them inliers'
    return f'{line}.'


def _odometry(first: MatcherResult) -> str:
    found = first.summary()
    if 'drift_percent' in found:
        return f'Two-view odometry drifts by {written("drift_percent", found["drift_percent"], True)} of the way.'
    if 'ate_m' in found:
        return f'Two-view odometry ends up {written("ate_m", found["ate_m"], True)} off the true trajectory (ATE).'
    return ''


def short_name(row: TableRow, stride: int) -> str:
    """A figure's name as requirements have it, which mostly says its unit: stride4.pose_auc@10."""
    return row.name if stride == 1 else f'stride{stride}.{row.name}'


def print_figures(title: str, names: Sequence[str], rows: Sequence[TerminalRow]) -> None:
    """Print figures, a column for each of `names`: with their intervals and sizes where the terminal is wide enough."""
    if not rows:
        return

    def cells(row: TerminalRow, around: bool) -> list[str]:
        return [(f'{cell.text} {cell.around}'.rstrip() if around else cell.text) + ('*' if cell.best else '\N{NO-BREAK SPACE}')
                for cell in row.cells]

    with_sizes, plain = ['', 'over', *names], ['', *names]
    print_table(title, with_sizes, [[row.name, row.over, *cells(row, True)] for row in rows], 1,
                (with_sizes, [[row.name, row.over, *cells(row, False)] for row in rows]),
                (plain, [[row.name, *cells(row, False)] for row in rows]))
    print(f'* the best; {UNKNOWN} cannot be known; over: pairs, frames or tracks\n'
          f'\N{PLUS-MINUS SIGN}: the further end of the {INTERVAL}, in a wide terminal')


def print_summary(evaluation: Evaluation) -> None:
    """Print the table, metrics as rows and matchers as columns (* marks the best), the notes that say what is missing in it, the
    differences, then the verdict. Of strides beyond 1 the most telling rows are printed; the report has them all.
    """
    rows = []
    for stride in evaluation.strides:
        found = table(evaluation, stride)
        for row in found:
            if stride != 1 and row.name not in TELLING:
                continue
            rows.append(TerminalRow(short_name(row, stride), row.over, row.cells))
        if not found and evaluation.matchers:
            rows.append(TerminalRow(f'stride {stride}: no pairs', '', [TableCell('', False)] * len(evaluation.matchers)))
    print_figures(str(evaluation.recording.get('path', 'evaluation')), [matcher.name for matcher in evaluation.matchers], rows)
    for note in dict.fromkeys(evaluation.notes):
        print(f'note: {note}')
    if found_contests := contests(evaluation):
        print_table(f'{METRICS[evaluation.headline].label}: {evaluation.matchers[0].name} less the others, points', CONTEST_HEADS,
                    found_contests)
        print(f'{AHEAD} and {BEHIND}: the interval excludes 0, over {MIN_PAIRS} pairs or more')
    if covered := coverage(evaluation):
        print(covered)
    for line in verdict(evaluation):
        print(line)
