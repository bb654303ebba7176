"""What calibration, gate and search found, as tables and a figure for people, and as plain values for the manifest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..pictures import GRAY
from ..tables import print_table
from .gate import COUNT_TOLERANCE, DRAWS, FIGURES, Gate, Score
from .search import Point

LEVELS = {'easy': 'consecutive frames', 'hard': 'hard pairs'}
CHANCE = 'FP32 by chance'
COLOURS = {'easy': '#0072b2', 'hard': '#d55e00'}


Chances = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]  # by (recording, level)


@dataclass(frozen=True)
class Candidate:
    """One way to FP8 and how it did; `figures` by (recording, level), and FP32's beside them."""

    name: str
    share: float  # of the matcher's FLOPs in FP8
    scores: Sequence[Score]
    figures: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)


def print_gate(candidates: Sequence[Candidate], gate: Gate) -> None:
    """F1 and counts of each candidate on each set."""
    rows = [(each.name, f'{100 * each.share:.0f} %', score.name, f'{LEVELS[score.level]}, {score.stride} apart', str(score.pairs),
             f'{score.matches / score.pairs:.0f}', f'{score.f1:.3f}', f'{gate.least(score.level):.3f}', f'{score.count_ratio:.3f}',
             'passed' if gate.passes(score) else 'failed')
            for each in candidates for score in each.scores]
    header = ['matcher', 'of FLOPs', 'recording', 'pairs', 'number', 'FP32 matches', 'F1', 'needed', 'count ratio', 'gate']
    print_table(f'Quality gate: FP8 against FP32 on frames held out from calibration (count ratio within {COUNT_TOLERANCE:.0%} '
                'of 1)', header, rows, 4)


def print_figures(reference: Candidate, candidates: Sequence[Candidate], chances: Chances) -> None:
    """Epipolar precision and pose AUC, where there is a truth; and what chance does to them."""
    rows = []
    for (recording, level), figures in reference.figures.items():
        for each in (reference, *candidates):
            if mine := each.figures.get((recording, level)):
                rows.append((recording, LEVELS[level], each.name, *(_percent(mine.get(name)) for name in FIGURES)))
        if figures:
            ranges = chances[recording, level]
            rows.append((recording, LEVELS[level], CHANCE, *(' to '.join(map(_percent, ranges[name])) for name in FIGURES)))
    if rows:
        title = f'Against the truth, percent ({CHANCE}: without as many of its matches as FP8 gets wrong, {DRAWS} times)'
        print_table(title, ['recording', 'pairs', 'matcher', *(_label(name) for name in FIGURES)], rows, 3)


def print_search(points: Sequence[Point]) -> None:
    """The sensitivities, then the frontier."""
    alone = sorted((point for point in points if point.alone), key=lambda point: point.easy + point.hard)
    print_table('Sensitivity: one group alone in FP8', _HEADER, [_row(point) for point in alone], 1)
    print_table('Frontier: all but the worst groups in FP8', _HEADER, [_row(point) for point in frontier(points)], 1)


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that are choices, most FP8 first."""
    return sorted((point for point in points if not point.alone), key=lambda point: -point.share)


def draw_frontier(points: Sequence[Point], gate: Gate) -> bytes:
    """F1 against the share of FLOPs in FP8, PNG."""
    from matplotlib import rc_context

    from ..reports.style import RC, finish, new_figure
    with rc_context(RC):
        figure, (axes,) = new_figure(height=4.6)
        for level, label in LEVELS.items():
            chosen = [(0.0, 1.0), *((100 * point.share, getattr(point, level)) for point in reversed(frontier(points)))]
            shares, f1 = zip(*chosen, strict=True)
            axes.plot(shares, f1, color=COLOURS[level], lw=2.6, marker='o', ms=8, label=label, zorder=4)
            alone = [(100 * point.share, getattr(point, level)) for point in points if point.alone]
            if alone:
                axes.plot(*zip(*alone, strict=True), ls='none', marker='x', ms=7, mew=2, color=COLOURS[level], alpha=0.6,
                          zorder=3)
            axes.axhline(gate.least(level), color=COLOURS[level], lw=1.6, ls=(0, (4, 3)), zorder=2)
        if any(point.alone for point in points):
            axes.plot([], [], ls='none', marker='x', ms=7, mew=2, color=GRAY, label='one group alone')
        axes.plot([], [], color=GRAY, lw=1.6, ls=(0, (4, 3)), label='gate')
        axes.set_title('F1 of the matches against FP32')
        axes.set_xlabel("share of the matcher's FLOPs in FP8, %")
        lowest = min([gate.least('hard'), *(value for point in points for value in (point.easy, point.hard))])
        axes.set_ylim(lowest - 0.01, 1.002)
        axes.set_xlim(-1, max(20.0, *(100 * point.share for point in points)) * 1.04)
        return finish(figure, axes)


def plain(candidate: Candidate, gate: Gate) -> dict[str, Any]:
    """For JSON."""
    sets = [{**dataclasses.asdict(score), 'needed_f1': gate.least(score.level), 'passed': gate.passes(score),
             **candidate.figures.get((score.name, score.level), {})} for score in candidate.scores]
    return {'name': candidate.name, 'flops_share': _short(candidate.share),
            'sets': [{name: _short(value) for name, value in each.items()} for each in sets]}


def plain_points(points: Sequence[Point]) -> list[dict[str, Any]]:
    return [{name: _short(value) for name, value in dataclasses.asdict(point).items()} for point in points]


_HEADER = ['in FP8', 'of FLOPs', 'pairs', 'F1 easy', 'F1 hard', 'count ratio', 'gate']


def _row(point: Point) -> tuple[str, ...]:
    verdict = '' if point.alone else 'passed' if point.passed else 'failed'
    figures = (f'{value:.3f}' for value in (point.easy, point.hard, point.count_ratio))
    return point.name, f'{100 * point.share:.1f} %', str(point.pairs), *figures, verdict


def _label(name: str) -> str:
    what, limit = name.split('@')
    return f'{"within" if what == "precision" else "AUC"} {limit} {"px" if what == "precision" else "deg"}'


def _percent(value: float | None) -> str:
    return '' if value is None else f'{value:.1f}'


def _short(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value
