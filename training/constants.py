"""Small tensors of fixed numbers, made once a device: making them anew waits for it each time."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

Numbers = tuple[float, ...] | tuple[tuple[float, ...], ...]


@functools.cache
def constant(numbers: Numbers, device: torch.device) -> Tensor:
    """float32; not to be written to."""
    return torch.tensor(numbers, dtype=torch.float32, device=device)
