"""What a calibration folds into the graphs, from the moments of what the layers read: where it rounds, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..calibration import BLOCKS, Calibration, RoundedWeights, assignment, member
from ..features import Float32, Int32
from ..graphs.folding import DIM, HEADS, Array, Block, Folded, diagonal, rebased
from ..weights.architecture import HEAD_DIM
from .bases import Float64, Reader, balanced, shared
from .moments import Moments
from .weights import rounded_weights

LEADING = 32  # of 256 inputs of a linear, those that are compensated


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
        attention, own = member(layer, name, 'attention'), bases[layer, BLOCKS.index(name)]
        centres[member(layer, name, 'project')] = residual @ moments.mean(member(layer, name, 'project'))
        centres[member(layer, name, 'hidden')] = np.concatenate([residual @ state, _turned(own, context)])
        centres[f'{attention}.k'] = moments.mean(f'{attention}.k')
        centres[f'{attention}.v'] = _turned(own, moments.mean(f'{attention}.v'))
        centres[member(layer, name, 'update')] = moments.mean(member(layer, name, 'update'))
    last = assignment(net.layers)
    centres[last] = residual @ moments.mean(last)
    return {name: mean.astype(np.float32) for name, mean in centres.items()}


def _turned(bases: Float32, values: Float64) -> Float64:
    """(256,), each head's in its basis."""
    return np.concatenate([basis @ part for basis, part in zip(bases, np.split(values, HEADS), strict=True)])


def _projections(block: Block) -> Array:
    """(outputs, 256) of all layers that read the state beside the FFN."""
    return np.concatenate([part.weight for part in (block.query, block.key, block.value) if part is not None])


def _positive(value: float) -> float:
    return max(value, 1e-30)
