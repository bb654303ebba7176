"""LightGlue's attention on the GPU: launches the kernels of `kernels/attention.cu` between two matrix products."""

from __future__ import annotations

from pathlib import Path

from ..utils.errors import EngineError
from .cuda import THREADS, Addressed, Cuda

PTX = Path(__file__).parent / 'kernels' / 'attention.ptx'
HEAD, TILE, BLOCK = 64, 64, 128  # as the kernels have them: channels of a head; queries and threads of a block
PIECES = 4  # of a head: one thread rotates each


class GpuAttention:
    """The kernels; they have no memory of their own, so that all layers can use one.

    All arrays are FP16: projected (2, count, columns) is what the matrix product leaves, state (2, count, width) is its input, and
    attended (2, count, 2 width) becomes the next product's: [state | context].
    """

    def __init__(self, cuda: Cuda, count: int, width: int) -> None:
        """For `count` rows of each image. Raises EngineError, for a GPU before Ampere as well."""
        if width % HEAD:
            raise EngineError(f'the kernels take heads of {HEAD} channels, not a width of {width}')
        cuda.load_kernels(PTX.read_bytes())
        self._cuda, self._count, self._width, self._heads = cuda, count, width, width // HEAD

    def enqueue_self(self, projected: Addressed, cosines: Addressed, sines: Addressed, state: Addressed,
                     attended: Addressed) -> None:
        """Each image attends to itself. Raises EngineError.

        projected has queries, keys and values; queries and keys are rotated in place by cosines and sines (2, 1, count, 64).
        """
        blocks, columns = -(-2 * self._count * 2 * self._heads * PIECES // THREADS), 3 * self._width
        self._cuda.launch('rotate', blocks, (THREADS, 1), self._count, self._width, columns, projected, cosines, sines)
        self._attend(columns, self._width, False, projected, state, attended)

    def enqueue_cross(self, projected: Addressed, state: Addressed, attended: Addressed) -> None:
        """Each image attends to the other; projected has what is query and key in one, and values. Raises EngineError."""
        self._attend(2 * self._width, 0, True, projected, state, attended)

    def _attend(self, columns: int, key_at: int, swap: bool, *arrays: Addressed) -> None:
        blocks = 2 * self._heads * -(-self._count // TILE)
        self._cuda.launch('attend', blocks, (BLOCK, 1), self._count, self._width, columns, key_at, columns - self._width, int(swap),
                          *arrays)
