"""From LightGlue's raw scores to the probability that a match is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .types import Float32


@dataclass(frozen=True)
class ScoreCalibration:
    """A match of raw score s is right with probability 1 - (1 - s^a)^b, Kumaraswamy's distribution. The default changes nothing."""

    a: float = 1.0
    b: float = 1.0
    exits: Mapping[int, ScoreCalibration] = field(default_factory=dict)  # of matches after so many layers, where it is another one

    def after(self, layers: int) -> ScoreCalibration:
        """The calibration of matches after so many layers."""
        return self.exits.get(layers, self)

    def probability(self, raw: Float32) -> Float32:
        """Of raw scores in [0, 1]; 0, which propagated points have, stays 0."""
        return np.asarray(1 - (1 - np.minimum(raw, 1, dtype=np.float64)**self.a)**self.b, np.float32)

    def raw(self, probability: float) -> float:
        """The inverse, for a threshold."""
        return float((1 - (1 - probability)**(1 / self.b))**(1 / self.a))


UNCALIBRATED = ScoreCalibration()
