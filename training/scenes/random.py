"""Random numbers of one seed, on one device."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor


class Random:
    """Draws from a generator of its own, so that a seed gives the same scenes whatever else draws."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(seed)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return torch.rand(*shape, device=self.device, generator=self.generator) * (high - low) + low

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device, generator=self.generator)

    def integers(self, bound: int, *shape: int) -> Tensor:
        return torch.randint(0, bound, shape, device=self.device, generator=self.generator)

    def happens(self, probability: float | Tensor, *shape: int) -> Tensor:
        """Bool of the given shape, True with the given probability."""
        return self.uniform(*shape) < probability


def scene_seed(*parts: int) -> int:
    """One seed from several: of the training, the process and the step it goes on from."""
    return int(numpy.random.SeedSequence(parts).generate_state(1)[0])
