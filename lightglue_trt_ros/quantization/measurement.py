"""A calibration from real pairs: what its layers read on average decides what it folds in, then its peaks are measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.config import EngineSpec
from ..core.types import Float32, Int32
from ..networks import e4m3
from ..networks.architecture import HEAD_DIM
from ..networks.fp8_calibration import BLOCKS, Calibration, RoundedWeights, linear_members, member
from ..networks.weight_folding import DIM, HEADS, Array, Block, Folded, diagonal, fold, rebased
from ..networks.weights import Weights
from ..utils.console import Bar
from ..utils.errors import EngineError
from .matchers import HostMatcher, features_of, open_matcher
from .noise import Float64, Reader, balanced, rounded_weights, shared
from .samples import FramePair, RecordingSample

HEADROOM = 2.0  # frames that were not seen may go beyond the peaks; a floating-point format pays nothing for it
PEAKS_EVERY = 2  # pairs of which one is looked at for peaks: they have headroom
SQUARED = ('.hidden', '.update')  # the projections read the states that .hidden reads
EVERY = 4  # rows of which one goes into the covariances, another with each pair
LEADING = 32  # of 256 inputs of a linear, those that are compensated


@dataclass
class Moments:
    """Means of what the `names` read, and covariances of what the FFNs' linears do: of state and context, and of what is hidden."""

    names: Sequence[str]
    pairs: int = 0
    rows: int = 0
    sums: dict[str, Float64] = field(default_factory=dict)
    sampled: int = 0
    squares: dict[str, Float64] = field(default_factory=dict)
    sampled_sums: dict[str, Float64] = field(default_factory=dict)

    def add(self, seen: Mapping[str, Float32]) -> None:
        """Take one pair: (2, K, inputs) by name."""
        offset = self.pairs % EVERY
        for name in self.names:
            values = seen[name].reshape(-1, seen[name].shape[-1])
            self.sums[name] = self.sums.get(name, 0.0) + values.sum(axis=0, dtype=np.float64)
            if name.endswith(SQUARED):
                part = np.ascontiguousarray(values[offset::EVERY])
                self.squares[name] = self.squares.get(name, 0.0) + (part.T @ part).astype(np.float64)
                self.sampled_sums[name] = self.sampled_sums.get(name, 0.0) + part.sum(axis=0, dtype=np.float64)
        self.rows += len(values)
        self.sampled += len(part)
        self.pairs += 1

    def mean(self, name: str) -> Float64:
        return self.sums[name] / self.rows

    def covariance(self, name: str) -> Float64:
        """(inputs, inputs) of a linear called .hidden or .update."""
        mean = self.sampled_sums[name] / self.sampled
        return np.asarray(self.squares[name] / self.sampled - np.outer(mean, mean), np.float64)


def steps(pairs: Sequence[FramePair]) -> int:
    """How often `calibrate` runs the network."""
    return len(pairs) + len(pairs[::PEAKS_EVERY])


def calibrate(spec: EngineSpec, weights: Weights, samples: Sequence[RecordingSample], pairs: Sequence[FramePair],
              provenance: Mapping[str, Any], bar: Bar | None = None) -> Calibration:
    """Measure on the pairs: moments in one pass, in another the peaks that remain of what they make. Nothing is in FP8 yet.

    `bar` makes `steps(pairs)` steps. Raises EngineError, naming the tensor, where a peak is zero or not finite.
    """
    net = fold(weights.tensors)
    moments = Moments(linear_members(net.layers))
    matcher = open_matcher(spec, weights, observe=True)
    bar = bar or Bar()
    for pair in bar.each(pairs):
        moments.add(matcher.observe(*features_of(samples, pair)))
    del matcher
    _check_finite({name: float(np.abs(values).max()) for name, values in moments.sums.items()}, zero=True)
    found = design(net, moments, provenance)
    matcher = open_matcher(spec, weights, found, observe=True)
    peaks = measure_peaks(matcher, samples, pairs[::PEAKS_EVERY], bar)
    _check_finite(peaks)
    return replace(found, peaks={name: HEADROOM * peak for name, peak in peaks.items()})


def measure_peaks(matcher: HostMatcher, samples: Sequence[RecordingSample], pairs: Sequence[FramePair],
                  bar: Bar | None = None) -> dict[str, float]:
    """The greatest magnitude of each tensor that may be rounded, sorted by name; NaN where one is NaN."""
    peaks: dict[str, float] = {}
    for pair in (bar or Bar()).each(pairs):
        for name, values in matcher.observe(*features_of(samples, pair)).items():
            peaks[name] = float(np.maximum(peaks.get(name, 0.0), max(values.max(), -values.min())))  # NaN prevails
    return dict(sorted(peaks.items()))


def saturated(calibration: Calibration, peaks: Mapping[str, float]) -> list[str]:
    """A line for each tensor of the FP8 members that other frames, with these `peaks`, take beyond what E4M3 holds."""
    beyond = []
    for name, peak in peaks.items():
        limit = e4m3.LARGEST * e4m3.scale_of(calibration.peaks[name])
        if peak > limit and name in calibration.fp8:
            beyond.append(f'{name} reaches {peak:.4g}, {peak / limit:.2f} times what its scale holds ({limit:.4g}; '
                          f'calibrated peak {calibration.peaks[name]:.4g})')
    return beyond


def design(net: Folded, moments: Moments, provenance: Mapping[str, Any]) -> Calibration:
    """Bases, centres, compensated inputs and rounded weights; no peaks yet, and nothing in FP8."""
    # as they are stored: the centres must lie in the bases that the graphs use
    bases: Float32 = _value_bases(net, moments).astype(np.float32)
    residual: Float32 = shared(list(_readers(net, moments)), LEADING).astype(np.float32)
    found = Calibration(residual, bases, _centres(net, moments, residual, bases), {}, frozenset(), provenance=dict(provenance))
    compensated, weights = dict[str, Int32](), dict[str, RoundedWeights]()
    for (layer, name), block in rebased(net, found).blocks.items():
        turn = diagonal(residual, *bases[layer, BLOCKS.index(name)])
        hidden = turn @ moments.covariance(member(layer, name, 'hidden')) @ turn.T
        update = moments.covariance(member(layer, name, 'update'))
        costs = np.diag(update) * (block.update.weight.astype(np.float64) ** 2).sum(axis=0)
        values = DIM + HEAD_DIM * np.arange(HEADS)[:, None] + np.arange(LEADING // HEADS)
        for part, weight, covariance, inputs in (
                ('project', _projections(block), hidden[:DIM, :DIM], np.arange(LEADING)),
                ('hidden', block.hidden.weight, hidden, np.concatenate([np.arange(LEADING), values.ravel()])),
                ('update', block.update.weight, update, np.sort(np.argsort(-costs, kind='stable')[:2 * LEADING]))):
            compensated[member(layer, name, part)] = inputs.astype(np.int32)
            weights[member(layer, name, part)] = rounded_weights(weight, covariance)
    return replace(found, compensated=compensated, weights=weights)


def _readers(net: Folded, moments: Moments) -> Iterator[Reader]:
    """What each block multiplies the state by."""
    for (layer, name), block in net.blocks.items():
        covariance = moments.covariance(member(layer, name, 'hidden'))
        hidden, project = block.hidden.weight.astype(np.float64), _projections(block).astype(np.float64)
        state, energy = covariance[:DIM, :DIM], float(np.sum((hidden @ covariance) * hidden))
        gramian = project.T @ project / _positive(float(np.sum((project @ state) * project)))
        yield Reader(state, gramian + hidden[:, :DIM].T @ hidden[:, :DIM] / _positive(energy))


def _value_bases(net: Folded, moments: Moments) -> Float64:
    values = np.empty((net.layers, len(BLOCKS), HEADS, HEAD_DIM, HEAD_DIM))
    for (layer, name), block in net.blocks.items():
        covariance = moments.covariance(member(layer, name, 'hidden'))
        for head in range(HEADS):
            columns = slice(DIM + HEAD_DIM * head, DIM + HEAD_DIM * (head + 1))
            weight = block.hidden.weight[:, columns].astype(np.float64)
            values[layer, BLOCKS.index(name), head] = balanced(covariance[columns, columns], weight.T @ weight, LEADING // HEADS)
    return values


def _centres(net: Folded, moments: Moments, residual: Float32, bases: Float32) -> dict[str, Float32]:
    centres = {}
    for layer, name in net.blocks:
        state, context = np.split(moments.mean(member(layer, name, 'hidden')), [DIM])
        turned = [basis @ part for basis, part in zip(bases[layer, BLOCKS.index(name)], np.split(context, HEADS), strict=True)]
        centres[member(layer, name, 'project')] = residual @ moments.mean(member(layer, name, 'project'))
        centres[member(layer, name, 'hidden')] = np.concatenate([residual @ state, *turned])
        centres[member(layer, name, 'update')] = moments.mean(member(layer, name, 'update'))
    return {name: mean.astype(np.float32) for name, mean in centres.items()}


def _projections(block: Block) -> Array:
    """(outputs, 256) of all layers that read the state beside the FFN."""
    return np.concatenate([part.weight for part in (block.query, block.key, block.value) if part is not None])


def _positive(value: float) -> float:
    return max(value, 1e-30)


def _check_finite(peaks: Mapping[str, float], zero: bool = False) -> None:
    wrong = [f'{name} ({peak:g})' for name, peak in peaks.items() if not np.isfinite(peak) or (peak <= 0 and not zero)]
    if wrong:
        shown = ', '.join(wrong[:8]) + (', …' if len(wrong) > 8 else '')
        raise EngineError(f'no scale can be found for {len(wrong)} tensors, whose peaks vanish or are not finite: {shown}; check '
                          'the weights (fetch_weights) and the frames')
