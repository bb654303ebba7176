"""Memory for what is needed for a moment, used again the next time: fresh pages cost more than what is done with them."""

from __future__ import annotations

import math
import threading

import numpy as np

from ..types import Float32


class _Kept(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, Float32] = {}


_kept = _Kept()


def scratch(name: str, *shape: int) -> Float32:
    """An array of any values; in one thread it is the same memory each time for one name."""
    size, flat = math.prod(shape), _kept.by_name.get(name)
    if flat is None or len(flat) < size:
        flat = _kept.by_name[name] = np.empty(size, np.float32)
    return flat[:size].reshape(shape)
