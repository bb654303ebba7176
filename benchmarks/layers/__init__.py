"""Layers that recorded pairs need: matches and poses after each, exits of rules and oracles, and why points are unsure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.layers.observation import Bools, PairLayers, observe
from benchmarks.real_images import find_sequences
from benchmarks.recorded_pairs import add_pair_options
from lightglue_trt_eval.score.metrics import summary_of, table_of
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.early_exit import EarlyExits, stops
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import EngineError

DATA = 'any recording, or the folder of several'
CONFIDENCES = (0.95, 0.9, 0.85)  # other values of depth_confidence
UNMATCHABLE = (0.1, 0.2)  # matchability below which a rule ignores a point
LEAST_F1 = (0.95, 0.97, 0.98, 0.99)  # of the oracles
CAUSES = ('outside the other view', 'no partner', 'low texture', 'two alike', 'other')
COLUMNS = {'layers': 2, 'agreement_f1': 1, 'pose_auc@10': 1, 'precision@1': 1, 'matches': 0}  # of METRICS: digits
HEADER = ('layers', 'F1 %', 'AUC@10', '@1 px %', 'matches')

Rule = Callable[[PairLayers, int], Bools]  # the points (2, K) that are confident after a layer, counted from 0


add_options = add_pair_options


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Print and return the figures of each recording at each stride. Raises BagError, EngineError."""
    if config.backend == 'tensorrt':
        raise EngineError('layers is measured with ONNX Runtime: leave out --backend tensorrt')
    return {'recordings': [
        {'sequence': name, 'stride': stride, **_report(f'{name}, every {stride}. frame, {len(pairs)} pairs', pairs, config)}
        for name, path in find_sequences(args.data).items()
        for stride, pairs in observe(path, config, args.strides, args.pairs, args.image_topic)]}


def _report(title: str, pairs: Sequence[PairLayers], config: MatcherConfig) -> dict[str, Any]:
    """Print the tables of a recording at a stride, and give their figures."""
    layers = len(pairs[0].results)
    ends = EarlyExits.of(layers).after_layers
    chosen = choices(pairs, ends, config.depth_confidence)
    figures = {'after each layer': {f'{end}': summary(pairs, [end] * len(pairs)) for end in range(1, layers + 1)},
               'exits': {name: summary(pairs, exits) for name, exits in chosen.items()}}
    for name, rows in figures.items():
        print_table(f'{title}: {name}, against all layers', [name, *HEADER], [
            (row, *(f'{found[key]:.{digits}f}' if key in found else '-' for key, digits in COLUMNS.items()))
            for row, found in rows.items()], left=1)
    causes = unsure_points(pairs, chosen[_named(config.depth_confidence)], ends)
    share = causes['unsure'].sum() / max(1, causes['all'].sum())
    print_table(f'{title}: the {100 * share:.1f} % of points that are unsure at the exit before the one taken, %',
                ['points', *CAUSES], [(name, *(f'{100 * part:.1f}' for part in counts / max(1, counts.sum())))
                                      for name, counts in causes.items()], left=1)
    return figures | {
        'causes': {name: dict(zip(CAUSES, counts.tolist(), strict=True)) for name, counts in causes.items()},
        'pairs': [{'frames': pair.results[0].frames, 'f1': pair.f1, 'layers': {name: exits[row] for name, exits in chosen.items()}}
                  for row, pair in enumerate(pairs)]}


def choices(pairs: Sequence[PairLayers], ends: tuple[int, ...], depth_confidence: float) -> dict[str, list[int]]:
    """The layers after which each pair stops, by rules at the exits `ends`, and by oracles at these and at all layers."""
    by = partial(exits_by, pairs=pairs, ends=ends)
    found = {_named(share): by(confident, depth_confidence=share) for share in (depth_confidence, *CONFIDENCES)}
    for least in UNMATCHABLE:
        found[f'ignoring matchability < {least:g}'] = by(partial(confident, unmatchable=least), depth_confidence=depth_confidence)
    found['oracle: ignoring points without a partner'] = by(confident_or_unmatched, depth_confidence=depth_confidence)
    f1 = np.array([pair.f1 for pair in pairs])  # (N, L)
    same = summary(pairs, found[_named(depth_confidence)])['agreement_f1'] / 100
    for where, allowed in (('these exits', ends), ('any layer', tuple(range(1, f1.shape[1] + 1)))):
        found[f'oracle: the F1 of {depth_confidence:g}, {where}'] = fewest_layers(f1, allowed, same)
        for least in LEAST_F1:
            found[f'oracle: each F1 {least:g}, {where}'] = [next(end for end in allowed if row[end - 1] >= least) for row in f1]
            found[f'oracle: mean F1 {least:g}, {where}'] = fewest_layers(f1, allowed, least)
    return found


def exits_by(rule: Rule, pairs: Sequence[PairLayers], ends: tuple[int, ...], depth_confidence: float) -> list[int]:
    """The first of `ends` at which more than `depth_confidence` of a pair's keypoints are confident, else the last one."""
    def stops_at(pair: PairLayers, end: int) -> bool:
        unsure = pair.valid & ~rule(pair, end - 1)
        return stops(1 - unsure.sum() / max(1, pair.valid.sum()), depth_confidence)
    return [next((end for end in ends[:-1] if stops_at(pair, end)), ends[-1]) for pair in pairs]


def confident(pair: PairLayers, layer: int, unmatchable: float = 0.0) -> Bools:
    """By LightGlue's thresholds, or of a matchability below `unmatchable`."""
    decision = pair.decisions[layer]
    return decision.confident | (decision.matchability < unmatchable)


def confident_or_unmatched(pair: PairLayers, layer: int) -> Bools:
    """If it were known who has no partner: the most that ignoring such points can win."""
    return pair.decisions[layer].confident | ~pair.matched


def fewest_layers(f1: ArrayLike, ends: tuple[int, ...], least: float) -> list[int]:
    """The exits (N,) with the fewest layers in all whose mean F1 reaches `least`; f1 (N, L) is by pair and layer."""
    table = np.asarray(f1, np.float64)
    best = np.full(len(table) * ends[-1] + 1, -np.inf)  # the largest sum of F1, by the layers of the pairs so far
    best[0] = 0
    taken = []
    for row in table:
        sums = np.stack([np.concatenate([np.full(end, -np.inf), best[:-end] + row[end - 1]]) for end in ends])
        taken.append(np.asarray(ends)[sums.argmax(axis=0)])
        best = sums.max(axis=0)
    total = int(np.argmax(best >= least * len(table) - 1e-9))
    found: list[int] = []
    for exits in reversed(taken):
        found.insert(0, int(exits[total]))
        total -= found[0]
    return found


def summary(pairs: Sequence[PairLayers], exits: Sequence[int]) -> dict[str, float]:
    """Means of COLUMNS where the pairs stop after these layers."""
    found = summary_of(table_of([pair.results[end - 1] for pair, end in zip(pairs, exits, strict=True)]))
    return {name: found[name] for name in COLUMNS if name in found}


def unsure_points(pairs: Sequence[PairLayers], exits: Sequence[int], ends: tuple[int, ...]) -> dict[str, Any]:
    """Points by CAUSES, the first that holds: those unsure at the exit before the one taken, and all of these pairs."""
    counts = {'unsure': np.zeros(len(CAUSES), int), 'all': np.zeros(len(CAUSES), int)}
    for pair, taken in zip(pairs, exits, strict=True):
        if taken == ends[0]:
            continue
        layer = ends[ends.index(taken) - 1] - 1
        for name, points in (('unsure', pair.valid & ~confident(pair, layer)), ('all', pair.valid)):
            for number_of_cause, cause in enumerate((~pair.visible, ~pair.matched, ~pair.textured, pair.decisions[layer].alike,
                                                     np.ones_like(points))):
                counts[name][number_of_cause] += np.sum(points & cause)
                points = points & ~cause
    return counts


def _named(depth_confidence: float) -> str:
    return f'depth_confidence {depth_confidence:g}'
