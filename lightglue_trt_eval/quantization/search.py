"""Which parts must stay in FP16 for FP8 to keep the matches: sensitivity group by group, then the worst ones left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.drawing import GRAY
from lightglue_trt_ros.networks.fp8_calibration import BLOCKS, PARTS, Calibration, member
from lightglue_trt_ros.networks.weight_folding import DIM
from lightglue_trt_ros.networks.weights import Weights
from lightglue_trt_ros.utils.console import Bar, print_table

from .quality import LEVELS, AcceptanceCheck, HeldOutSet, Members, Trial, answers, open_matcher, rounded_figures, score

SUBSET = 8  # pairs of each level that the search judges by
EXTRA = (0, 1, 3, 6)  # more groups left out, where all pairs fail what those few passed
COLOURS = {'easy': '#0072b2', 'hard': '#d55e00'}


def flops(layers: int, keypoints: int) -> dict[str, float]:
    """Floating-point operations of each member for a pair of images, from the shapes of the graph's products.

    `attention` and `other`, which stay in FP16: the latter is the projection of the descriptors (where weights have one) and the
    assignment's two products.
    """
    rows, operations = 2 * keypoints, dict[str, float]()
    for layer in range(layers):
        for block in BLOCKS:
            outputs = {'project': DIM * DIM * (3 if block == 'self' else 2), 'hidden': 4 * DIM * DIM, 'update': 2 * DIM * DIM}
            operations |= {member(layer, block, part): 2.0 * rows * weights for part, weights in outputs.items()}
    operations['attention'] = layers * len(BLOCKS) * 2 * 2.0 * rows * keypoints * DIM
    operations['other'] = 2 * 2.0 * rows * DIM * DIM + 2.0 * keypoints * keypoints * DIM
    return operations


def share(members: Iterable[str], layers: int, keypoints: int) -> float:
    """Of the matcher's operations."""
    each = flops(layers, keypoints)
    return sum(each[name] for name in members) / sum(each.values())


def groups(layers: int, fp8: Members) -> dict[str, Members]:
    """`fp8` by block and part, the first half of the layers and the second apart: groups that stay together, by name."""
    middle, by_name = (layers + 1) // 2, {}
    for half in (range(middle), range(middle, layers)):
        for block in BLOCKS:
            for part in PARTS:
                if chosen := frozenset(member(layer, block, part) for layer in half) & fp8:
                    by_name[f'{block} {part}, layers {half.start + 1} to {half.stop}'] = chosen
    return by_name


class Search:
    """Judges choices of parts by emulating them."""

    def __init__(self, spec: EngineSpec, weights: Weights, calibration: Calibration, held_out: Sequence[HeldOutSet],
                 check: AcceptanceCheck) -> None:
        """`calibration.fp8` is what would be in FP8 if it could; `held_out` has FP32's answers."""
        self._spec, self._weights, self._calibration = spec, weights, calibration
        self._held_out, self._check = held_out, check
        counts = {level: sum(each.level == level for each in held_out) for level in LEVELS}
        self._subset = [each.part(-(-SUBSET // counts[each.level])) for each in held_out]
        self._layers = calibration.value_bases.shape[0]
        self._groups = groups(self._layers, calibration.fp8)
        self.steps = len(self._groups) + 1 + len(self._groups).bit_length()  # evaluations, about
        self.trials: list[Trial] = []

    def evaluate(self, name: str, fp8: Members, *, whole: bool = False, one_group: bool = False, bar: Bar | None = None) -> Trial:
        """One choice, on all pairs or on the search's; `bar` makes a step for each pair. Raises EngineError."""
        matcher = open_matcher(self._spec, self._weights, replace(self._calibration, fp8=fp8))
        held_out = self._held_out if whole else self._subset
        answers_by_set = [answers(matcher, each.pairs, bar) for each in held_out]
        scores = [score(each, its_answers) for each, its_answers in zip(held_out, answers_by_set, strict=True)]
        return Trial(name, fp8, share(fp8, self._layers, self._spec.max_keypoints), scores, answers_by_set, one_group)

    def run(self, bar: Bar | None = None) -> Trial | None:
        """Groups one at a time, then all without the worst ones until the acceptance check holds on all pairs; None: it never does.

        For all of them it does not. `trials` has what was tried; `bar` makes about `steps` steps. Raises EngineError.
        """
        bar, all_parts, cost = bar or Bar(), self._calibration.fp8, dict[str, float]()

        def evaluate(name: str, fp8: Members, *, whole: bool = False, one_group: bool = False) -> Trial:
            self.trials.append(self.evaluate(name, fp8, whole=whole, one_group=one_group))
            bar(min(len(self.trials), self.steps))
            return self.trials[-1]

        for name, members in self._groups.items():
            trial = evaluate(name, members, one_group=True)
            cost[name] = (2 - trial.f1('easy') - trial.f1('hard')) / max(trial.share, 1e-9)
        order = sorted(self._groups, key=lambda name: -cost[name])

        def without(number: int) -> tuple[str, Members]:
            name = 'all' if not number else f'without {order[number - 1]}' + (f' and {number - 1} more' if number > 1 else '')
            return name, all_parts.difference(*(self._groups[name] for name in order[:number]))

        low, high = 0, len(order)  # so many left out fail; so many pass, for nothing is left then
        while high - low > 1:
            middle = (low + high) // 2
            passed = self._check.passed(evaluate(*without(middle)).scores)
            low, high = (low, middle) if passed else (middle, high)
        for number in (high + extra for extra in EXTRA):
            if number >= len(order):
                break
            name, fp8 = without(number)
            self.trials = [each for each in self.trials if each.name != name]  # those on some of the pairs
            if self._check.passed(evaluate(name, fp8, whole=True).scores):
                return self.trials[-1]
        return None


def print_search(trials: Sequence[Trial], check: AcceptanceCheck) -> None:
    """The sensitivities, then the frontier."""
    singles = sorted((one for one in trials if one.one_group), key=lambda one: one.f1('easy') + one.f1('hard'))
    for title, chosen in (('Sensitivity: only one group in FP8', singles),
                          ('Frontier: all but the worst groups in FP8', frontier(trials))):
        rows = [(one.name, f'{100 * one.share:.1f} %', str(one.pairs),
                 *(f'{value:.3f}' for value in (one.f1('easy'), one.f1('hard'), one.count_ratio)),
                 '' if one.one_group else 'passed' if check.passed(one.scores) else 'failed') for one in chosen]
        print_table(title, ['in FP8', 'of FLOPs', 'pairs', 'F1 easy', 'F1 hard', 'count ratio', 'gate'], rows, 1)


def frontier(trials: Sequence[Trial]) -> list[Trial]:
    """Calibrations that leave some members out, most FP8 first."""
    return sorted((one for one in trials if not one.one_group), key=lambda one: -one.share)


def draw_frontier(trials: Sequence[Trial], check: AcceptanceCheck) -> bytes:
    """F1 against the share of FLOPs in FP8, PNG."""
    from ..report.style import finish, new_figure, styled
    singles = [one for one in trials if one.one_group]
    with styled():
        figure, (axes,) = new_figure(height=4.6)
        for level, label in LEVELS.items():
            chosen = [(0.0, 1.0), *((100 * one.share, one.f1(level)) for one in reversed(frontier(trials)))]
            axes.plot(*zip(*chosen, strict=True), color=COLOURS[level], lw=2.6, marker='o', ms=8, label=label, zorder=4)
            axes.plot([100 * one.share for one in singles], [one.f1(level) for one in singles], ls='none', marker='x', ms=7, mew=2,
                      color=COLOURS[level], alpha=0.6, zorder=3)
            axes.axhline(check.least(level), color=COLOURS[level], lw=1.6, ls=(0, (4, 3)), zorder=2)
        if singles:
            axes.plot([], [], ls='none', marker='x', ms=7, mew=2, color=GRAY, label='only one group')
        axes.plot([], [], color=GRAY, lw=1.6, ls=(0, (4, 3)), label='acceptance check')
        axes.set_title('F1 of the matches against FP32')
        axes.set_xlabel("share of the matcher's FLOPs in FP8, %")
        lowest = min([check.least('hard'), *(one.f1(level) for one in trials for level in LEVELS)])
        axes.set_ylim(lowest - 0.01, 1.002)
        axes.set_xlim(-1, max(20.0, *(100 * one.share for one in trials)) * 1.04)
        return finish(figure, axes)


def plain_trials(trials: Sequence[Trial], check: AcceptanceCheck) -> list[dict[str, Any]]:
    """For JSON."""
    return [rounded_figures({'name': one.name, 'share': one.share, 'easy': one.f1('easy'), 'hard': one.f1('hard'),
                             'count_ratio': one.count_ratio, 'passed': check.passed(one.scores), 'alone': one.one_group,
                             'pairs': one.pairs}) for one in trials]
