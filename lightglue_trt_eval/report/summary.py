"""The table of an evaluation, the verdict in words, and both on the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lightglue_trt_ros.utils.console import print_table

from ..predict.scene import MIN_BASELINE_M, MIN_STEP_PER_DEPTH
from ..score.confidence import AHEAD, BEHIND, LEVEL, MIN_PAIRS, ConfidenceInterval, Difference
from ..score.metrics import METRICS, Evaluation, MatcherResult

LEAST_M = 1e-9  # shorter lengths are rounding
UNKNOWN = '\N{EM DASH}'
INTERVAL = f'{100 * LEVEL:g} % interval'
CONTEST_HEADS = ('stride', 'against', 'difference', INTERVAL, 'pairs', 'verdict')
AGAINST_FIRST = ('retention', 'agreement_f1', 'count_ratio')  # no contest: they say how close, not how good
NO_CONTEST = (*AGAINST_FIRST, 'layers', 'within_1_sigma', 'within_2_sigma', 'true_within_1_sigma', 'true_within_2_sigma',
              'depth_within_1_sigma', 'depth_within_2_sigma')
TELLING = ('matches', 'inlier_ratio', 'pose_auc@10', 'rotation_auc@2', 'pose_failures', 'within_1_sigma', 'within_2_sigma')
GROUPS = {
    'Correspondences': ('matches', 'inlier_ratio', 'precision@', 'forward_backward', 'within_', 'true_within_'),
    'Relative pose': ('pose_', 'rotation_'),
    'Tracks': ('track_',),
    'Two-view odometry': ('ate_', 'rpe_', 'drift_'),
    'Stereo': ('stereo_',),
    'Depth': ('depth_',),
    'Time': ('frame_ms', 'fps', 'cpu_ms', 'gpu_ms', 'layers'),
    'Agreement with the first': AGAINST_FIRST,
    'Live': ('dropped', 'latency_'),
}


class TableCell(NamedTuple):
    """A figure as it is written."""

    text: str
    best: bool
    span: str = ''  # its 95 % interval; empty: none
    around: str = ''  # how far the further end of that is off, or the lower one where the upper one is open


class TableRow(NamedTuple):
    """A metric of every matcher."""

    name: str  # in METRICS
    label: str
    unit: str
    cells: list[TableCell]
    over: str = ''  # how many pairs, frames or tracks the figures rest on

    @property
    def meaning(self) -> str:
        return METRICS[self.name].meaning


def written(name: str, value: float | None, unit: bool = False) -> str:
    """A metric's value with its digits, and with its unit where asked; an em dash for what cannot be known."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    metric = METRICS[name]
    text = f'{round(value, metric.digits) + 0.0:.{metric.digits}f}'  # + 0.0: no negative zero
    if metric.unit == 'm' and value > LEAST_M and not float(text):  # of a small reconstruction
        text = f'{value:.1g}'
    return f'{text} {metric.unit}' if unit and metric.unit else text


def table(matchers: Sequence[MatcherResult], stride: int = 1) -> list[TableRow]:
    """The metrics that at least one matcher has at this stride, in the order of METRICS; the best that intervals tell is marked."""
    summaries = [matcher.summary(stride) for matcher in matchers]
    intervals = [matcher.intervals(stride) for matcher in matchers]
    rows = []
    for name, metric in METRICS.items():
        values = [summary.get(name) for summary in summaries]
        known = [round(value, metric.digits) for value in values if value is not None and math.isfinite(value)]
        if not known:
            continue
        spans = [by_metric.get(name) for by_metric in intervals]
        best = (max if metric.higher_is_better else min)(known)
        contest = len(known) > 1 and name not in NO_CONTEST
        cells = [_cell(name, value, spans[number], contest and written(name, value) == written(name, best)
                       and stands_out(number, values, spans)) for number, value in enumerate(values)]
        sizes = sorted({by_metric[name].size for by_metric in intervals if name in by_metric})
        over = f'{sizes[0]:,}' + (f' to {sizes[-1]:,}' if len(sizes) > 1 else '') if sizes else ''
        rows.append(TableRow(name, metric.label, metric.unit, cells, over))
    return rows


def stands_out(number: int, values: Sequence[float | None], spans: Sequence[ConfidenceInterval | None]) -> bool:
    """Whether a matcher's figure and those of the others are outside of each other's intervals."""
    mine, around = values[number], spans[number]
    others = [each for other, each in enumerate(zip(values, spans, strict=True)) if other != number and each[0] is not None]
    return mine is not None and around is not None and not any(
        value is None or span is None or around.holds(value) or span.holds(mine) for value, span in others)


def _cell(name: str, value: float | None, interval: ConfidenceInterval | None, best: bool) -> TableCell:
    text = written(name, value)
    if interval is None or value is None or text == UNKNOWN:
        return TableCell(text, best)
    low = written(name, interval.low)
    if math.isinf(interval.high):
        return TableCell(text, best, f'{low} or more', f'\N{GREATER-THAN OR EQUAL TO}{low}')
    around = written(name, max(value - interval.low, interval.high - value, 0.0))
    return TableCell(text, best, f'{low} to {written(name, interval.high)}', f'\N{PLUS-MINUS SIGN}{around}')


def span(interval: Difference) -> str:
    """The interval of a difference in points, with signs."""
    return f'{interval.low:+.1f} to {interval.high:+.1f}'


def contests(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """CONTEST_HEADS for the first matcher's headline figure and each other one's."""
    return [(str(stride), other, f'{contest.difference:+.1f}', span(contest), str(contest.pairs), contest.verdict)
            for (stride, other, metric), contest in evaluation.contests.items() if metric == evaluation.headline]


def grouped(rows: list[TableRow]) -> dict[str, list[TableRow]]:
    """Rows under the headings of GROUPS, empty ones left out."""
    groups = {title: [row for row in rows if row.name.startswith(names)] for title, names in GROUPS.items()}
    placed = [row for group in groups.values() for row in group]
    return {title: group for title, group in {**groups, 'More': [row for row in rows if row not in placed]}.items() if group}


def verdict(evaluation: Evaluation) -> list[str]:
    """Verdict on the first matcher for this recording: a few sentences, the most important first."""
    if not evaluation.matchers or not any(matcher.summary() for matcher in evaluation.matchers):
        return ['Nothing could be evaluated: no pair of frames was matched.']
    first, rivals = evaluation.matchers[0], [matcher for matcher in evaluation.matchers[1:] if not matcher.ours]
    figures = first.summary()
    sentences = [line for line in (_against(evaluation, rivals), resolved(evaluation), _counts(first), _odometry(first)) if line]
    if 'frame_ms_p50' in figures:
        timed = len(first.stage_ms.get('frame', []))
        line = (f'A frame takes {written("frame_ms_p50", figures["frame_ms_p50"], True)} '
                f'(p95 {written("frame_ms_p95", figures.get("frame_ms_p95"), True)}) by itself, over '
                f'{timed} frame{"s" * (timed != 1)}')
        if rate := evaluation.recording.get('rate_hz'):
            pace = 'fast enough' if figures['fps'] >= rate else 'too slow'
            line += f", {pace} for this recording's {rate:.1f} frames per second"
        sentences.append(f'{line}.')
    return sentences


def _against(evaluation: Evaluation, rivals: list[MatcherResult]) -> str:
    """The first matcher's headline figure next to the best baseline's, and one verdict."""
    name, first = evaluation.headline, evaluation.matchers[0]
    if not name:
        return ''
    own, interval = first.summary()[name], first.intervals().get(name)
    rests = (f'{INTERVAL} {written(name, interval.low)} to {written(name, interval.high)}, {interval.size} pairs' if interval else
             'of one pair')
    line = f'{first.name}: {METRICS[name].label} {written(name, own, True)} ({rests})'
    known = {rival.name: value for rival in rivals if (value := rival.summary().get(name)) is not None}
    if not known:
        return f'{line}.'
    best = max(known, key=lambda rival: known[rival])
    contest = evaluation.contests[1, best, name]
    line += f'; the best baseline, {best}, has {written(name, known[best], True)}'
    return (f'{line}: {contest.verdict} ({contest.difference:+.1f} points, {span(contest)}, over {contest.pairs} '
            f'pair{"s" * (contest.pairs != 1)} of both).')


def resolved(evaluation: Evaluation) -> str:
    """On how many pairs the direction of the step is scored, by stride; empty where it is on all, or nothing is known."""
    parts, least, scored = [], 0, 0
    for stride in evaluation.strides:
        table = evaluation.matchers[0].table(stride)
        known, count = (int(np.count_nonzero(~np.isnan(table[name]))) for name in ('rotation_deg', 'pose_error_deg'))
        least, scored = least + known - count, scored + count
        if known:
            parts.append(f'{count} of {known}' + (f' pairs {stride} apart' if stride > 1 else ' consecutive pairs'))
    if not least:
        return ''
    subject = f'The pose AUC is over {", ".join(parts)}: in the others' if scored else 'There is no pose AUC: in all pairs'
    return (f'{subject} the ground truth moves less than '
            f"{100 * MIN_STEP_PER_DEPTH:.0f} % of the scene's depth, or {1e3 * MIN_BASELINE_M:.0f} mm, and has no direction. "
            'The rotation AUC is over all of them.')


def coverage(evaluation: Evaluation) -> str:
    """The part of a recording that an interrupted evaluation covers; empty for a whole one."""
    if not evaluation.interrupted:
        return ''
    frames, done = evaluation.recording.get('frames'), evaluation.covered
    if done is None or not frames:
        return 'Interrupted: the figures are over what was done until then.'
    fewest = min((matcher.count() for matcher in evaluation.matchers), default=0)
    last = [each for each in evaluation.matchers if each.count() == fewest]  # the others had their turn before
    whose = '' if len(last) == len(evaluation.matchers) else f' of {", ".join(each.name for each in last)}'
    pairs = ', '.join(f'{last[0].count(stride) if last else 0} of stride {stride}' for stride in evaluation.strides)
    return (f'Interrupted: the figures{whose} cover the first {done} of {frames} frames ({100 * done / frames:.0f} %), pairs: '
            f'{pairs}; what follows is not in them.')


def _counts(first: MatcherResult) -> str:
    figures = first.summary()
    if 'matches' not in figures:
        return ''
    line = f'{written("matches", figures["matches"])} matches per frame'
    if 'precision@3' in figures:
        line += f', {written("precision@3", figures["precision@3"], True)} of them within 3 px of the true epipolar line'
    elif 'inlier_ratio' in figures and 'pose_auc@10' in figures:  # without a pose, the sentence before has said it
        line += f', {written("inlier_ratio", figures["inlier_ratio"], True)} of them inliers'
    return f'{line}.'


def _odometry(first: MatcherResult) -> str:
    figures = first.summary()
    if 'drift_percent' in figures:
        return f'Two-view odometry drifts by {written("drift_percent", figures["drift_percent"], True)} of the way.'
    path = 0.0 if first.odometry is None else first.odometry.true_path_m
    if 'ate_m' in figures and first.odometry is not None and path > MIN_BASELINE_M:
        guessed = first.odometry.guessed_steps
        return (f'Two-view odometry ends up {written("ate_m", figures["ate_m"], True)} off the true trajectory of {path:.2g} m '
                '(ATE)' + (f', with {guessed} step{"s" * (guessed > 1)} whose true length is unknown and taken from the step before'
                   if guessed else '') + '.')
    return ''


def terminal_rows(matchers: Sequence[MatcherResult], stride: int) -> list[TableRow]:
    """The rows that the terminal shows, named as requirements have them: stride4.pose_auc@10. Of strides beyond 1 only TELLING."""
    rows = table(matchers, stride)
    return rows if stride == 1 else [row._replace(name=f'stride{stride}.{row.name}') for row in rows if row.name in TELLING]


def print_figures(title: str, names: Sequence[str], rows: Sequence[TableRow]) -> None:
    """Print figures, a column for each of `names`: with their intervals and sizes where the terminal is wide enough."""
    if not rows:
        return

    def cells(row: TableRow, around: bool) -> list[str]:
        return [(f'{cell.text} {cell.around}'.rstrip() if around else cell.text) + ('*' if cell.best else '\N{NO-BREAK SPACE}')
                for cell in row.cells]

    with_sizes, plain = ['', 'over', *names], ['', *names]
    print_table(title, with_sizes, [[row.name, row.over, *cells(row, True)] for row in rows], 1,
                (with_sizes, [[row.name, row.over, *cells(row, False)] for row in rows]),
                (plain, [[row.name, *cells(row, False)] for row in rows]))
    print(f'* the best, where the intervals tell it; {UNKNOWN} cannot be known; over: pairs, frames or tracks\n'
          f'\N{PLUS-MINUS SIGN}: the further end of the {INTERVAL}, in a wide terminal\n'
          '\N{GREATER-THAN OR EQUAL TO}: its lower end; the upper one is open, as too few frames tell it')


def print_summary(evaluation: Evaluation) -> None:
    """Print the table, metrics as rows and matchers as columns (* marks the best, where intervals tell it), the notes that say what
    is missing in it, the differences, then the verdict. Of strides beyond 1 the most telling rows are printed.
    """
    rows = []
    for stride in evaluation.strides:
        rows += terminal_rows(evaluation.matchers, stride)
        if evaluation.matchers and not table(evaluation.matchers, stride):
            rows.append(TableRow(f'stride {stride}: no pairs', '', '', [TableCell('', False)] * len(evaluation.matchers)))
    print_figures(str(evaluation.recording.get('path', 'evaluation')), [matcher.name for matcher in evaluation.matchers], rows)
    for note in dict.fromkeys(evaluation.notes):
        print(f'note: {note}')
    if contest_rows := contests(evaluation):
        print_table(f'{METRICS[evaluation.headline].label}: {evaluation.matchers[0].name} minus the others, points', CONTEST_HEADS,
                    contest_rows)
        print(f'{AHEAD}, {BEHIND}: the interval excludes 0, over {MIN_PAIRS} pairs or more')
    if covered := coverage(evaluation):
        print(covered)
    for line in verdict(evaluation):
        print(line)
