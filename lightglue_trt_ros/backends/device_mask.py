"""A mask of a camera's frames on the device."""

from __future__ import annotations

import numpy as np

from ..core.types import UInt8
from .cuda import Cuda


class DeviceMask:
    """Uploaded once for all frames that have it. `staged` stays where it is: captured graphs read the mask there."""

    def __init__(self, cuda: Cuda, shape: tuple[int, ...], *, shared: bool = False) -> None:
        """1 everywhere at first. `shared` as for `Cuda.staged`. Raises EngineError, DeviceMemoryError."""
        self.staged = cuda.staged(shape, np.uint8, shared=shared)
        self._cuda, self._sent = cuda, cuda.event()
        self._upload(None)

    def set(self, mask: UInt8 | None) -> None:
        """Upload the mask (H, W) of the next frame where it is another array; None: 1 everywhere. Raises EngineError."""
        if mask is not self._uploaded:
            self._upload(mask)

    def _upload(self, mask: UInt8 | None) -> None:
        self._cuda.wait(self._sent)  # the staging array may still be on its way
        np.copyto(self.staged.array, 1 if mask is None else mask)
        self._cuda.send(self.staged)
        self._cuda.mark(self._sent)
        self._uploaded = mask  # held, so that no other array has its identity
