"""The table that sums an evaluation up, the verdict in words, and both on the terminal."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..evaluation.bootstrap import LEVEL, OPEN, Interval
from ..evaluation.results import METRICS, Evaluation, MatcherResult
from ..tables import print_table

UNKNOWN = '\N{EM DASH}'
INTERVAL = f'{100 * LEVEL:g} % interval'
CONTEST_HEADS = ('stride', 'against', 'difference', INTERVAL, 'verdict')
AGAINST_FIRST = ('retention', 'agreement_f1', 'count_ratio')  # no contest: they say how close, not how good
NO_CONTEST = (*AGAINST_FIRST, 'layers')
TELLING = ('matches', 'inlier_ratio', 'pose_auc@10', 'pose_failures')
GROUPS = {
    'Correspondences': ('matches', 'inlier_ratio', 'precision@', 'forward_backward'),
    'Relative pose': ('pose_',),
    'Tracks': ('track_',),
    'Two-view odometry': ('ate_', 'rpe_', 'drift_'),
    'Time': ('frame_ms', 'fps', 'layers'),
    'Agreement with the first': AGAINST_FIRST,
    'Live': ('dropped', 'latency_'),
}


class TableCell(NamedTuple):
    """A figure as it is written."""

    text: str
    best: bool


class TableRow(NamedTuple):
    """A metric of every matcher."""

    name: str  # in METRICS
    label: str
    unit: str
    cells: list[TableCell]


def written(name: str, value: float | None, unit: bool = False) -> str:
    """A metric's value with its digits, and with its unit where asked; an em dash for what cannot be known."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    metric = METRICS[name]
    text = f'{round(value, metric.digits) + 0.0:.{metric.digits}f}'  # + 0.0: no negative zero
    return f'{text} {metric.unit}' if unit and metric.unit else text


def table(evaluation: Evaluation, stride: int = 1) -> list[TableRow]:
    """The metrics that at least one matcher has at this stride, in the order of METRICS; the best of each row is marked."""
    summaries = [matcher.summary(stride) for matcher in evaluation.matchers]
    rows = []
    for name, metric in METRICS.items():
        values = [found.get(name) for found in summaries]
        known = [round(value, metric.digits) for value in values if value is not None and math.isfinite(value)]
        if not known:
            continue
        best = (max if metric.higher_is_better else min)(known)
        contest = len(known) > 1 and name not in NO_CONTEST and len(set(known)) > 1
        cells = [TableCell(text := written(name, value), contest and text == written(name, best)) for value in values]
        rows.append(TableRow(name, metric.label, metric.unit, cells))
    return rows


def span(interval: Interval) -> str:
    """The interval of a difference in points, with signs."""
    return f'{interval.low:+.1f} to {interval.high:+.1f}'


def contests(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """CONTEST_HEADS for the first matcher's pose AUC at 10 degrees and each other one's."""
    return [(str(found.stride), found.other, f'{found.interval.difference:+.1f}', span(found.interval), found.interval.verdict)
            for found in evaluation.contests((10,))]


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
    sentences = [line for line in (_against(evaluation, rivals), _counts(first), _odometry(first)) if line]
    if 'frame_ms_p50' in found:
        line = (f'A frame takes {written("frame_ms_p50", found["frame_ms_p50"], True)} '
                f'(p95 {written("frame_ms_p95", found.get("frame_ms_p95"), True)})')
        frames, seconds = evaluation.recording.get('frames'), evaluation.recording.get('duration_s')
        if isinstance(frames, (int, float)) and isinstance(seconds, (int, float)) and frames > 1 and seconds > 0:
            rate = (frames - 1) / seconds
            pace = 'fast enough' if found['fps'] >= rate else 'too slow'
            line += f", {pace} for this recording's {rate:.1f} frames per second"
        sentences.append(f'{line}.')
    return sentences


def _against(evaluation: Evaluation, rivals: list[MatcherResult]) -> str:
    """The first matcher's poses, or inliers where there is no truth, beside the best baseline's."""
    first = evaluation.matchers[0]
    own = first.summary()
    name = next((name for name in ('pose_auc@10', 'inlier_ratio') if name in own), None)
    if name is None:
        return ''
    what = 'pose AUC up to 10 degrees' if name == 'pose_auc@10' else 'share of inliers'
    line = f'{first.name}: {what} {written(name, own[name], True)}'
    known = {rival.name: value for rival in rivals if (value := rival.summary().get(name)) is not None}
    if not known:
        return f'{line}.'
    best = max(known, key=lambda rival: known[rival])
    gap = round(own[name], METRICS[name].digits) - round(known[best], METRICS[name].digits)
    relation = 'ahead of' if gap > 0 else 'behind' if gap < 0 else 'level with'
    line += f', {relation} the best baseline ({best}: {written(name, known[best], True)})'
    contest = next((found for found in evaluation.contests((10,)) if (found.stride, found.other) == (1, best)), None)
    if contest is None or name != contest.metric:
        return f'{line}.'
    line += f'; {INTERVAL} of the difference {span(contest.interval)} points'
    return f'{line}: {OPEN}.' if contest.interval.verdict == OPEN else f'{line}.'


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


def print_summary(evaluation: Evaluation) -> None:
    """Print the table, metrics as rows and matchers as columns (* marks the best), the intervals, then the verdict and the notes.

    Of strides beyond 1 the most telling rows are printed; the report has them all.
    """
    rows = []
    for stride in evaluation.strides:
        for row in table(evaluation, stride):
            if stride != 1 and row.name not in TELLING:
                continue
            label = f'{row.label}, {row.unit}' if row.unit else row.label
            rows.append([label if stride == 1 else f'stride {stride}: {label}',
                         *(cell.text + ('*' if cell.best else '\N{NO-BREAK SPACE}') for cell in row.cells)])
    if rows:
        header = ['', *(matcher.name for matcher in evaluation.matchers)]
        print_table(str(evaluation.recording.get('path', 'evaluation')), header, rows, left=1)
    if found := contests(evaluation):
        print_table(f'{METRICS["pose_auc@10"].label}: {evaluation.matchers[0].name} less the others, points', CONTEST_HEADS, found)
    if evaluation.interrupted:
        print('Interrupted: the figures are over what was done until then.')
    for line in verdict(evaluation):
        print(line)
    for note in evaluation.notes:
        print(f'note: {note}')
