"""What a calibration is made of: means, covariances and peaks of what the layers read, over real pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import e4m3
from ..calibration import BLOCKS, Calibration, attention_members, linear_members, member
from ..config import EngineSpec
from ..errors import EngineError
from ..features import Float32
from ..graphs.folding import DIM, HEAD_DIM, HEADS, Folded, fold
from ..weights.store import Weights
from .bases import Float64, Reader, balanced, shared
from .footage import Footage
from .pairs import Pair
from .running import Tell, WholeMatcher, features_of, open_matcher

HEADROOM = 2.0  # frames that were not seen may go beyond the peaks; a floating-point format pays nothing for it
EVERY = 4  # rows of which one goes into the covariances, another with each pair


@dataclass
class Moments:
    """Means of what linears and attentions read, and covariances of the FFNs' inputs (state and context together)."""

    rows: int = 0
    sums: dict[str, Float64] = field(default_factory=dict)
    sampled: int = 0
    squares: dict[str, Float64] = field(default_factory=dict)
    sampled_sums: dict[str, Float64] = field(default_factory=dict)

    def add(self, seen: Mapping[str, Float32], names: Sequence[str], number: int) -> None:
        """Take one pair, the `number`th: of `names`, (2, K, inputs) of a linear or (2, heads, K, 64) of an attention."""
        for name in names:
            values = seen[name] if seen[name].ndim == 3 else seen[name].transpose(0, 2, 1, 3).reshape(2, -1, DIM)
            values = values.reshape(-1, values.shape[-1])
            _add(self.sums, name, values.sum(axis=0, dtype=np.float64))
            if name.endswith('.hidden'):
                part = np.ascontiguousarray(values[number % EVERY::EVERY])
                _add(self.squares, name, (part.T @ part).astype(np.float64))
                _add(self.sampled_sums, name, part.sum(axis=0, dtype=np.float64))
        self.rows += len(values)
        self.sampled += len(part)

    def mean(self, name: str) -> Float64:
        return self.sums[name] / self.rows

    def covariance(self, name: str) -> Float64:
        """(inputs, inputs) of a linear called .hidden."""
        mean = self.sampled_sums[name] / self.sampled
        return np.asarray(self.squares[name] / self.sampled - np.outer(mean, mean), np.float64)


def calibrate(spec: EngineSpec, weights: Weights, footage: Sequence[Footage], pairs: Sequence[Pair], provenance: Mapping[str, Any],
              tell: Tell = lambda done: None) -> Calibration:
    """Measure on the pairs: bases and centres in one pass, the peaks that remain in another. Nothing is in FP8 yet.

    `tell` hears how many of 2 len(pairs) are done. Raises EngineError, naming the tensor, where a peak is zero or not finite.
    """
    net, moments = fold(weights.tensors), Moments()
    names = (*linear_members(net.layers), assignment(net.layers),
             *(f'{name}.{side}' for name in attention_members(net.layers) for side in 'kv'))
    matcher = open_matcher(spec, weights, observe=True)
    for number, pair in enumerate(pairs):
        moments.add(matcher.observe(*features_of(footage, pair)), names, number)
        tell(number + 1)
    del matcher
    _check_finite({name: float(np.abs(values).max()) for name, values in moments.sums.items()}, zero=True)
    found = assembled(net, moments, provenance)
    matcher = open_matcher(spec, weights, found, observe=True)
    peaks = measure_peaks(matcher, footage, pairs, lambda done: tell(len(pairs) + done))
    _check_finite(peaks)
    return replace(found, peaks={name: HEADROOM * peak for name, peak in peaks.items()})


def assembled(net: Folded, moments: Moments, provenance: Mapping[str, Any]) -> Calibration:
    """Bases and centres from the moments; no peaks yet."""
    readers, values = [], np.empty((net.layers, len(BLOCKS), HEADS, HEAD_DIM, HEAD_DIM))
    for (layer, name), block in net.blocks.items():
        covariance = moments.covariance(member(layer, name, 'hidden'))
        hidden = block.hidden.weight.astype(np.float64)
        projected = [part.weight for part in (block.query, block.key, block.value) if part is not None]
        project = np.concatenate(projected).astype(np.float64)
        state, energy = covariance[:DIM, :DIM], float(np.sum((hidden @ covariance) * hidden))
        gramian = project.T @ project / _positive(float(np.sum((project @ state) * project)))
        readers.append(Reader(state, gramian + hidden[:, :DIM].T @ hidden[:, :DIM] / _positive(energy)))
        for head in range(HEADS):
            columns = slice(DIM + HEAD_DIM * head, DIM + HEAD_DIM * (head + 1))
            weight = hidden[:, columns]
            values[layer, BLOCKS.index(name), head] = balanced(covariance[columns, columns], weight.T @ weight)
    # as they are stored: the centres must lie in the bases that the graphs use
    residual: Float32 = shared(readers).astype(np.float32)
    bases: Float32 = values.astype(np.float32)
    centres = {}
    for layer, name in net.blocks:
        state, context = np.split(moments.mean(member(layer, name, 'hidden')), [DIM])
        attention, own = member(layer, name, 'attention'), bases[layer, BLOCKS.index(name)]
        centres[member(layer, name, 'project')] = residual @ moments.mean(member(layer, name, 'project'))
        centres[member(layer, name, 'hidden')] = np.concatenate([residual @ state, _turned(own, context)])
        centres[f'{attention}.k'] = moments.mean(f'{attention}.k')
        centres[f'{attention}.v'] = _turned(own, moments.mean(f'{attention}.v'))
        centres[member(layer, name, 'update')] = moments.mean(member(layer, name, 'update'))
    last = assignment(net.layers)
    centres[last] = residual @ moments.mean(last)
    return Calibration(residual, bases, {name: mean.astype(np.float32) for name, mean in centres.items()}, {}, frozenset(),
                       dict(provenance))


def _turned(bases: Float32, values: Float64) -> Float64:
    """(256,), each head's in its basis."""
    return np.concatenate([basis @ part for basis, part in zip(bases, np.split(values, HEADS), strict=True)])


def assignment(layers: int) -> str:
    """The member of the last layer's assignment."""
    return f'assignment.{layers}'


def measure_peaks(matcher: WholeMatcher, footage: Sequence[Footage], pairs: Sequence[Pair],
                  tell: Tell = lambda done: None) -> dict[str, float]:
    """The greatest magnitude of each tensor that may be rounded, sorted by name; NaN where one is NaN."""
    peaks: dict[str, float] = {}
    for done, pair in enumerate(pairs, 1):
        for name, values in matcher.observe(*features_of(footage, pair)).items():
            peaks[name] = float(np.maximum(peaks.get(name, 0.0), max(values.max(), -values.min())))  # NaN prevails
        tell(done)
    return dict(sorted(peaks.items()))


def saturated(calibration: Calibration, peaks: Mapping[str, float]) -> list[str]:
    """A line for each tensor of the FP8 members that other frames, with these `peaks`, take beyond what E4M3 holds."""
    lines = []
    for name, peak in peaks.items():
        limit = e4m3.LARGEST * e4m3.scale_of(calibration.peaks[name])
        if peak > limit and _belongs(name, calibration.fp8):
            lines.append(f'{name} reaches {peak:.4g}, {peak / limit:.2f} times what its scale holds ({limit:.4g}; '
                         f'calibrated peak {calibration.peaks[name]:.4g})')
    return lines


def _belongs(name: str, members: frozenset[str]) -> bool:
    return name in members or name.rpartition('.')[0] in members


def _check_finite(peaks: Mapping[str, float], zero: bool = False) -> None:
    wrong = [f'{name} ({peak:g})' for name, peak in peaks.items() if not np.isfinite(peak) or (peak <= 0 and not zero)]
    if wrong:
        shown = ', '.join(wrong[:8]) + (', …' if len(wrong) > 8 else '')
        raise EngineError(f'no scale can be found for {len(wrong)} tensors, whose peaks vanish or are not finite: {shown}; check '
                          'the weights (fetch_weights) and the frames')


def _add(sums: dict[str, Float64], name: str, values: Any) -> None:
    sums[name] = sums[name] + values if name in sums else values


def _positive(value: float) -> float:
    return max(value, 1e-30)
