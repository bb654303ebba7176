"""Measure a calibration on pairs of frames: moments of what the layers read, the bases and weights that round best, then the peaks.

E4M3 errs by a share of each value, so rounding x puts noise of variance ~ sum_i E[x_i^2] |W_:i|^2 onto W x. An invertible T changes
that sum (x' = T x, W' = W T^-1) and nothing else: to sum_i (T C T')_ii (T^-T G T^-1)_ii with C = cov(x), G = W' W. With one reader
of x it is least where both Gramians are equal and their diagonals level; with many, gradient descent goes on from there.
Weights are rounded with what is known of their inputs: each makes up for the errors of those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lightglue_trt_ros.backends.onnxruntime import OnnxMatcher, matcher_inputs
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.types import Float32, Float64, Int32, Thresholds
from lightglue_trt_ros.networks import e4m3
from lightglue_trt_ros.networks.architecture import HEAD_DIM, layers_of
from lightglue_trt_ros.networks.fp8_calibration import BLOCKS, Calibration, RoundedWeights, linear_members, member
from lightglue_trt_ros.networks.weight_folding import DIM, HEADS, Array, Block, Folded, diagonal, fold, rebased
from lightglue_trt_ros.networks.weights import Weights
from lightglue_trt_ros.utils.console import Bar
from lightglue_trt_ros.utils.errors import EngineError

from .samples import FramePair

OBSERVED = 'inputs.'  # in front of the names of outputs
HEADROOM = 2.0  # frames that were not seen may go beyond the peaks; a floating-point format pays nothing for it
PEAKS_EVERY = 2  # pairs of which one is looked at for peaks: they have headroom
SQUARED = ('.hidden', '.update')  # the projections read the states that .hidden reads
EVERY = 4  # rows of which one goes into the covariances, another with each pair
LEADING = 32  # of 256 inputs of a linear, those that are compensated
STEPS = 250
RATE = 2e-3  # of Adam (Kingma & Ba, ICLR 2015), whose other settings are the paper's
MAX_CONDITION = 32.0  # FP16 rounds what is computed in a basis 2^-11 times this coarsely at worst
DAMPING = 1e-2  # of the mean variance, added to each: directions that were never seen still count


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

    def add(self, inputs: Mapping[str, Float32]) -> None:
        """Take one pair: (2, K, inputs) by name."""
        offset = self.pairs % EVERY
        for name in self.names:
            values = inputs[name].reshape(-1, inputs[name].shape[-1])
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


def observations(spec: EngineSpec, weights: Weights, pairs: Sequence[FramePair], calibration: Calibration | None = None,
                 bar: Bar | None = None) -> Iterator[dict[str, Float32]]:
    """For each pair what the FP32 matcher's linears read, (2, K, inputs) by name. Raises EngineError.

    With a calibration in its bases and around its centres: what would be rounded.
    """
    from lightglue_trt_ros.networks.lightglue import lightglue
    graph = lightglue(replace(spec, precision='fp32'), weights, calibration=calibration, observe=True)
    matcher = OnnxMatcher({'matcher': graph}, EarlyExits((layers_of(weights.tensors),)))
    for pair in (bar or Bar()).each(pairs):
        outputs = matcher.run('matcher', matcher_inputs(*pair.features, Thresholds()))
        yield {name.removeprefix(OBSERVED): value.numpy() for name, value in outputs.items() if name.startswith(OBSERVED)}


def steps(pairs: Sequence[FramePair]) -> int:
    """How often `calibrate` runs the network."""
    return len(pairs) + len(pairs[::PEAKS_EVERY])


def calibrate(spec: EngineSpec, weights: Weights, pairs: Sequence[FramePair], provenance: Mapping[str, Any],
              bar: Bar | None = None) -> Calibration:
    """Measure on the pairs: moments in one pass, in another the peaks that remain of what they make. Nothing is in FP8 yet.

    `bar` makes `steps(pairs)` steps. Raises EngineError, naming the tensor, where a peak is zero or not finite.
    """
    net = fold(weights.tensors)
    moments, bar = Moments(linear_members(net.layers)), bar or Bar()
    for inputs in observations(spec, weights, pairs, bar=bar):
        moments.add(inputs)
    _check_finite({name: float(np.abs(values).max()) for name, values in moments.sums.items()}, zero=True)
    calibration = design(net, moments, provenance)
    peaks = measure_peaks(observations(spec, weights, pairs[::PEAKS_EVERY], calibration, bar))
    _check_finite(peaks)
    return replace(calibration, peaks={name: HEADROOM * peak for name, peak in peaks.items()})


def measure_peaks(observed: Iterable[Mapping[str, Float32]]) -> dict[str, float]:
    """The greatest magnitude of each tensor that may be rounded, sorted by name; NaN where one is NaN."""
    peaks: dict[str, float] = {}
    for inputs in observed:
        for name, values in inputs.items():
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
    calibration = Calibration(residual, bases, _centres(net, moments, residual, bases), {}, frozenset(),
                              provenance=dict(provenance))
    compensated, weights = dict[str, Int32](), dict[str, RoundedWeights]()
    for (layer, name), block in rebased(net, calibration).blocks.items():
        basis = diagonal(residual, *bases[layer, BLOCKS.index(name)])
        hidden = basis @ moments.covariance(member(layer, name, 'hidden')) @ basis.T
        update = moments.covariance(member(layer, name, 'update'))
        costs = np.diag(update) * (block.update.weight.astype(np.float64) ** 2).sum(axis=0)
        values = DIM + HEAD_DIM * np.arange(HEADS)[:, None] + np.arange(LEADING // HEADS)
        for part, weight, covariance, inputs in (
                ('project', _projections(block), hidden[:DIM, :DIM], np.arange(LEADING)),
                ('hidden', block.hidden.weight, hidden, np.concatenate([np.arange(LEADING), values.ravel()])),
                ('update', block.update.weight, update, np.sort(np.argsort(-costs, kind='stable')[:2 * LEADING]))):
            compensated[member(layer, name, part)] = inputs.astype(np.int32)
            weights[member(layer, name, part)] = rounded_weights(weight, covariance)
    return replace(calibration, compensated=compensated, weights=weights)


def _readers(net: Folded, moments: Moments) -> Iterator[Reader]:
    """Matrices that each block multiplies the state by."""
    for (layer, name), block in net.blocks.items():
        covariance = moments.covariance(member(layer, name, 'hidden'))
        hidden, project = block.hidden.weight.astype(np.float64), _projections(block).astype(np.float64)
        state, energy = covariance[:DIM, :DIM], max(float(np.sum((hidden @ covariance) * hidden)), 1e-30)
        gramian = project.T @ project / max(float(np.sum((project @ state) * project)), 1e-30)
        yield Reader(state, gramian + hidden[:, :DIM].T @ hidden[:, :DIM] / energy)


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
        contexts = [basis @ part for basis, part in zip(bases[layer, BLOCKS.index(name)], np.split(context, HEADS), strict=True)]
        centres[member(layer, name, 'project')] = residual @ moments.mean(member(layer, name, 'project'))
        centres[member(layer, name, 'hidden')] = np.concatenate([residual @ state, *contexts])
        centres[member(layer, name, 'update')] = moments.mean(member(layer, name, 'update'))
    return {name: mean.astype(np.float32) for name, mean in centres.items()}


def _projections(block: Block) -> Array:
    """(outputs, 256) of all layers that read the state next to the FFN."""
    return np.concatenate([part.weight for part in (block.query, block.key, block.value) if part is not None])


def _check_finite(peaks: Mapping[str, float], zero: bool = False) -> None:
    wrong = [f'{name} ({peak:g})' for name, peak in peaks.items() if not np.isfinite(peak) or (peak <= 0 and not zero)]
    if wrong:
        shown = ', '.join(wrong[:8]) + (', …' if len(wrong) > 8 else '')
        raise EngineError(f'no scale can be found for {len(wrong)} tensors, whose peaks vanish or are not finite: {shown}; check '
                          'the weights (fetch_weights) and the frames')


@dataclass(frozen=True)
class Reader:
    """Matrix that a state of n values is multiplied by: its covariance (n, n), and W' W (n, n) over the energy of the product."""

    covariance: Float64
    gramian: Float64


def noise(basis: Float64, readers: Sequence[Reader], leading: int = 0) -> float:
    """Mean over the readers of what rounding in `basis` (n, n) adds, in units of the E4M3 error's variance: lower is better.

    The `leading` rows, whose errors are compensated, add nothing.
    """
    inverse: Float64 = np.asarray(np.linalg.inv(basis), np.float64)
    return float(np.mean([_diagonal(basis @ reader.covariance, basis.T)[leading:]
                          @ _diagonal(inverse.T @ reader.gramian, inverse)[leading:] for reader in readers]))


def balanced(covariance: Float64, gramian: Float64, leading: int = 0, ridge: float = 1e-3) -> Float64:
    """The basis (n, n) that is best for one reader, its `leading` rows being compensated.

    T C T' = T^-T G T^-1, diagonal (as in balanced truncation: Moore, IEEE TAC 1981): the greatest come first and are compensated;
    Hartley's rotation levels the others. `ridge`, a share of the mean variance, is added to both, so that directions never seen
    keep a bounded scale.
    """
    size = len(covariance)
    covariance, gramian = (matrix + ridge * max(float(np.trace(matrix)), 1e-30) / size * np.eye(size)
                           for matrix in (covariance, gramian))
    factor = np.linalg.cholesky(covariance)
    squares, vectors = (part[..., ::-1] for part in np.linalg.eigh(factor.T @ gramian @ factor))
    scales = np.maximum(squares, 1e-300) ** 0.25
    basis = scales[:, None] * np.linalg.solve(factor.T, vectors).T
    basis[leading:] = hartley(size - leading) @ basis[leading:]
    return bounded(_of_energy(basis, covariance))


def shared(readers: Sequence[Reader], leading: int = 0, steps: int = STEPS) -> Float64:
    """The basis (n, n) that is good for all readers together, its `leading` rows being compensated. Deterministic.

    Adam on `noise`, whose gradient is 2 (diag(g) T C - S' G S diag(c) S') for each reader, S = T^-1, c and g the two diagonals
    without the leading rows.
    """
    weights = [1 / max(float(np.trace(reader.covariance)), 1e-30) for reader in readers]
    covariance = np.mean([weight * reader.covariance for weight, reader in zip(weights, readers, strict=True)], axis=0)
    start = balanced(covariance, np.mean([reader.gramian for reader in readers], axis=0), leading, 1e-2)
    covariances, gramians = (np.hstack([getattr(reader, name) for reader in readers]) for name in ('covariance', 'gramian'))
    basis, best, least = start, start, noise(start, readers, leading)
    first, second = np.zeros_like(basis), np.zeros_like(basis)
    rate = RATE * float(np.sqrt(np.mean(start ** 2)) * np.sqrt(len(start)))  # steps relative to the size of the entries
    for step in range(1, steps + 1):
        slope, value = _slope(basis, covariances, gramians, leading)
        if value < least:
            best, least = basis, value
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope ** 2
        basis = basis - rate * (first / (1 - 0.9 ** step)) / (np.sqrt(second / (1 - 0.999 ** step)) + 1e-12)
    basis = basis if noise(basis, readers, leading) < least else best
    return bounded(_of_energy(basis, covariance))


def bounded(basis: Float64, condition: float = MAX_CONDITION) -> Float64:
    """The same basis, its singular values drawn together where the largest is more than `condition` times the smallest."""
    left, values, right = np.linalg.svd(basis)
    middle = float(np.exp(np.mean(np.log(np.maximum(values, 1e-30)))))
    if values[-1] * condition >= values[0]:
        return basis
    return np.asarray(left * np.clip(values, middle / condition ** 0.5, middle * condition ** 0.5) @ right, np.float64)


def hartley(size: int) -> Float64:
    """An orthogonal matrix (size, size) without large entries: the discrete Hartley transform."""
    angles = 2 * np.pi / size * np.outer(np.arange(size), np.arange(size))
    return np.asarray((np.cos(angles) + np.sin(angles)) / np.sqrt(size), np.float64)


def rounded_weights(weight: Float32, covariance: Float64) -> RoundedWeights:
    """Of weights (outputs, inputs): those on E4M3's grid that change products least.

    Frantar et al.: GPTQ, ICLR 2023, after Hassibi and Stork's Optimal Brain Surgeon, on a floating-point grid in place of integers.

    `covariance` (inputs, inputs) is that of the inputs around their centre, whose product is exact.
    """
    size, scales = len(covariance), e4m3.scales_of(weight)
    damped = covariance + DAMPING * max(float(np.trace(covariance)), 1e-30) / size * np.eye(size)
    order = np.argsort(-np.diag(damped), kind='stable')  # the greatest first, while there are others to make up for them
    factor = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T  # upper: its rows say how errors spread
    left = np.ascontiguousarray((weight / scales[:, None]).T[order], np.float64)  # (inputs, outputs)
    for row in range(size):
        exact = left[row].copy()
        left[row] = e4m3.rounded(exact)
        left[row + 1:] -= np.outer(factor[row, row + 1:], (exact - left[row]) / factor[row, row])
    rounded = np.empty_like(left)
    rounded[order] = left
    return RoundedWeights(e4m3.encoded(rounded.T), scales)


def _slope(basis: Float64, covariances: Float64, gramians: Float64, leading: int) -> tuple[Float64, float]:
    """Gradient of `noise`, and its value; of readers side by side, (n, readers * n) each: few large products."""
    size, count = len(basis), covariances.shape[1] // len(basis)
    inverse = np.linalg.inv(basis)
    moved = (basis @ covariances).reshape(size, count, size)
    half = (inverse.T @ gramians).reshape(size, count, size)  # S' G of each
    transformed = (half.reshape(size * count, size) @ inverse).reshape(size, count, size)
    c, g = np.einsum('irk,ik->ri', moved, basis), np.einsum('iri->ri', transformed).copy()
    c[:, :leading] = g[:, :leading] = 0
    slope = np.einsum('ri,irk->ik', g, moved) - np.einsum('irk,rk->ik', transformed, c) @ inverse.T
    return 2 * slope / count, float(np.sum(c * g)) / count


def _of_energy(basis: Float64, covariance: Float64) -> Float64:
    """Scaled so that the state is as large in this basis as before: a factor changes nothing else."""
    energy = float(np.sum(_diagonal(basis @ covariance, basis.T)))
    return np.asarray(basis * np.sqrt(np.trace(covariance) / max(energy, 1e-300)), np.float64)


def _diagonal(left: Float64, right: Float64) -> Float64:
    """Diagonal of a product."""
    return np.asarray(np.einsum('ij,ji->i', left, right), np.float64)
