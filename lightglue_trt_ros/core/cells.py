"""Cells of an image: how many points are in each, and in which part of the image most are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .geometry import Size
from .types import Float32, Float64

GRID = (6, 8)  # rows and columns of cells


def per_cell(points: Float32, size: Size, grid: Size = GRID) -> NDArray[np.intp]:
    """How many points (N, 2) are in each cell of `grid`, row by row."""
    return np.bincount(cell_of(points, size, grid), minlength=grid[0] * grid[1])


def cell_of(points: Float32, size: Size, grid: Size) -> NDArray[np.intp]:
    """The cell of each point (N, 2), as `per_cell` counts them; points outside count to the nearest."""
    columns, rows = ((points[:, axis] * (grid[1 - axis] / size[1 - axis])).astype(np.intp) for axis in (0, 1))
    columns, rows = (np.minimum(np.maximum(each, 0), last - 1) for each, last in ((columns, grid[1]), (rows, grid[0])))
    return np.asarray(rows * grid[1] + columns, np.intp)


def where(cells: Float64) -> str:
    """In which part of the image most of what was counted in the cells of GRID is, for people."""
    grid = cells.reshape(GRID)
    if not grid.any() or np.count_nonzero(grid > 0.1 * grid.max()) > grid.size / 2:
        return 'in all parts'
    down, across = (float(part @ np.arange(len(part)) / part.sum() / (len(part) - 1)) for part in (grid.sum(1), grid.sum(0)))
    vertical = 'at the top' if down < 0.35 else 'at the bottom' if down > 0.65 else ''
    horizontal = 'on the left' if across < 0.35 else 'on the right' if across > 0.65 else ''
    return ' '.join(filter(None, (vertical, horizontal))) or (
        'in the middle' if grid[1:-1, 2:-2].sum() > grid.sum() / 2 else 'at the edges')
