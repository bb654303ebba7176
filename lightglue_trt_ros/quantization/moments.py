"""Means and covariances of what the layers read, over real pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..calibration import assignment, attention_members, linear_members
from ..features import Float32
from ..graphs.folding import DIM
from .bases import Float64

SQUARED = ('.hidden', '.update')  # the projections read the states that .hidden reads
EVERY = 4  # rows of which one goes into the covariances, another with each pair


def names_for(layers: int) -> tuple[str, ...]:
    """What a calibration has a centre of."""
    sides = (f'{name}.{side}' for name in attention_members(layers) for side in 'kv')
    return (*linear_members(layers), assignment(layers), *sides)


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
        """Take one pair: by name (2, K, inputs) of a linear or (2, heads, K, 64) of an attention."""
        offset = self.pairs % EVERY
        for name in self.names:
            values = seen[name] if seen[name].ndim == 3 else seen[name].transpose(0, 2, 1, 3).reshape(2, -1, DIM)
            values = values.reshape(-1, values.shape[-1])
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
