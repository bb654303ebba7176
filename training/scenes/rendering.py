"""Geometry and photographs -> images and the plane that each pixel shows.

Every pixel is computed by itself, without a neighbour, so that the whole of it compiles into one kernel: the level of the mip
pyramid comes from the derivative of the plane's homography, not from differences between pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .geometry import PLANES, Geometry
from .random import Random

LEVELS = 4
OUTLINE = (384, 512)  # rows and columns of the maps that give pieces their outlines


Scorer = Callable[[Tensor], Tensor]  # photographs uint8 (N, H, W) -> how much each pixel is a keypoint, float16


class Pyramid:
    """Photographs uint8 (N, height, width) and their halves, and the scores of both, each flat in one tensor on the device."""

    def __init__(self, photographs: Tensor, scorer: Scorer | None) -> None:
        self.count, self.height, self.width = photographs.shape
        levels, offsets, sizes = [photographs], [0], [photographs.shape[1:]]
        for _ in range(1, LEVELS):
            last = levels[-1]
            halves = [F.avg_pool2d(part[:, None].float(), 2)[:, 0].round().to(torch.uint8) for part in last.split(64)]
            offsets.append(offsets[-1] + last.numel())
            levels.append(torch.cat(halves))
            sizes.append(levels[-1].shape[1:])
        self.pixels = torch.cat([level.reshape(-1) for level in levels])
        self.scores = None
        if scorer is not None:
            self.scores = torch.cat([scorer(part).reshape(-1) for level in levels for part in level.split(16)])
        self.layout = torch.tensor([(offset, *size) for offset, size in zip(offsets, sizes, strict=True)],
                                   device=photographs.device)  # (LEVELS, 3): where a level begins, its rows, its columns


class Surfaces:
    """Objects on the planes of B pairs: a photograph, its contrast, an outline. Both views show the same."""

    def __init__(self, random: Random, pairs: int, photographs: int) -> None:
        self.photographs = random.integers(photographs, pairs, PLANES)
        faint = random.happens(0.3, pairs, PLANES)
        contrast = random.uniform(pairs, PLANES, high=0.6)
        self.contrast = torch.where(faint, contrast, torch.ones_like(contrast))
        self.brightness = torch.where(faint, random.uniform(pairs, PLANES, low=0.15, high=0.85), 0.5)
        blobs = F.interpolate(random.normal(pairs, PLANES, 6, 8), size=OUTLINE, mode='bicubic', align_corners=True)
        y, x = (torch.linspace(-1, 1, size, device=random.device) for size in OUTLINE)
        sides = random.uniform(pairs, PLANES, 2, low=0.25, high=0.9)[..., None, None]
        boxes = torch.minimum(sides[:, :, 0] - y.abs()[:, None], sides[:, :, 1] - x.abs()) * 8
        straight = random.happens(0.5, pairs, PLANES)[..., None, None]
        threshold = random.uniform(pairs, PLANES, low=-0.3, high=0.9)[..., None, None]
        self.outlines = (torch.where(straight, boxes, blobs - threshold) > 0).reshape(-1)

    def twice(self, values: Tensor) -> Tensor:
        return torch.cat([values, values])


class Renderer:
    """Draws views of (height, width); their scores are zero without a scorer."""

    def __init__(self, photographs: Tensor, height: int, width: int, scorer: Scorer | None = None) -> None:
        self.pyramid, self.height, self.width = Pyramid(photographs, scorer), height, width
        self.draw = torch.compile(_draw, dynamic=False) if photographs.is_cuda else _draw

    def render(self, geometry: Geometry, surfaces: Surfaces) -> tuple[Tensor, Tensor, Tensor]:
        """Images (2B, 1, height, width) in [0, 1], their scores alike, the plane of each pixel (2B, height, width)."""
        pyramid, twice = self.pyramid, surfaces.twice
        image, scores, plane = self.draw(
            geometry.textures, geometry.nearness, twice(geometry.pieces), surfaces.outlines, twice(surfaces.photographs),
            twice(surfaces.contrast), twice(surfaces.brightness), pyramid.pixels, pyramid.scores, pyramid.layout,
            self.height, self.width)
        image, scores = (values.reshape(-1, 1, self.height, self.width) for values in (image, scores))
        return image, scores, plane.reshape(-1, self.height, self.width)


def _draw(textures: Tensor, nearness: Tensor, pieces: Tensor, outlines: Tensor, photographs: Tensor, contrast: Tensor,
          brightness: Tensor, pixels: Tensor, scores: Tensor | None, layout: Tensor, height: int,
          width: int) -> tuple[Tensor, Tensor, Tensor]:
    views, device = len(textures), textures.device
    index = torch.arange(height * width, device=device)
    x, y = (index % width).float(), (index // width).float()
    photo_height, photo_width = layout[0, 1], layout[0, 2]
    rows, columns = OUTLINE
    pair = (torch.arange(views, device=device) % (views // 2))[:, None]
    best = torch.zeros(views, height * width, device=device)
    plane = torch.zeros(views, height * width, dtype=torch.long, device=device)
    for i in range(PLANES):
        near = _row(nearness[:, i], x, y)
        u, v = _project(textures[:, i], x, y)
        column = (_fold(u, photo_width) / (photo_width - 1) * (columns - 1)).round().long().clamp(0, columns - 1)
        row = (_fold(v, photo_height) / (photo_height - 1) * (rows - 1)).round().long().clamp(0, rows - 1)
        inside = outlines[((pair * PLANES + i) * rows + row) * columns + column]
        wins = (near > 1e-4) & (near > best) & (~pieces[:, i:i + 1] | inside)
        best, plane = torch.where(wins, near, best), torch.where(wins, i, plane)
    m = textures.reshape(-1, 9)[torch.arange(views, device=device)[:, None] * PLANES + plane]
    m = [m[..., i] for i in range(9)]
    z = _away_from_zero(m[6] * x + m[7] * y + m[8])
    u, v = (m[0] * x + m[1] * y + m[2]) / z, (m[3] * x + m[4] * y + m[5]) / z
    across = torch.sqrt(((m[0] - u * m[6]) / z) ** 2 + ((m[3] - v * m[6]) / z) ** 2)
    along = torch.sqrt(((m[1] - u * m[7]) / z) ** 2 + ((m[4] - v * m[7]) / z) ** 2)
    level = torch.log2(torch.maximum(across, along).clamp(1e-3, 16)).round().clamp(0, LEVELS - 1)
    photograph, contrast = photographs.gather(1, plane), contrast.gather(1, plane)
    value = _sample(pixels, layout, photograph, level, u, v) / 255
    score = torch.zeros_like(value) if scores is None else _sample(scores, layout, photograph, level, u, v) * contrast
    return (brightness.gather(1, plane) + (value - 0.5) * contrast).clamp(0, 1), score, plane


def _sample(pixels: Tensor, layout: Tensor, photograph: Tensor, level: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Bilinear, mirrored at the photograph's edges."""
    shrink, level = torch.exp2(-level), level.long()
    offset, rows, columns = layout[level, 0], layout[level, 1], layout[level, 2]
    x = _fold((u.clamp(-1e5, 1e5) + 0.5) * shrink - 0.5, columns)
    y = _fold((v.clamp(-1e5, 1e5) + 0.5) * shrink - 0.5, rows)
    left, top = torch.minimum(x.floor().long(), columns - 2), torch.minimum(y.floor().long(), rows - 2)
    fx, fy = x - left, y - top
    at = offset + photograph * (rows * columns) + top * columns + left
    upper = pixels[at].float() * (1 - fx) + pixels[at + 1].float() * fx
    lower = pixels[at + columns].float() * (1 - fx) + pixels[at + columns + 1].float() * fx
    return upper * (1 - fy) + lower * fy


def _fold(x: Tensor, size: Tensor) -> Tensor:
    """Mirrored into [0, size - 1]."""
    last = (size - 1).float()
    x = torch.remainder(x.abs(), 2 * last)
    return torch.where(x > last, 2 * last - x, x)


def _row(m: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """(V, 3), (P,), (P,) -> (V, P): m . (x, y, 1)."""
    return m[:, 0:1] * x + m[:, 1:2] * y + m[:, 2:3]


def _project(m: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = _away_from_zero(_row(m[:, 2], x, y))
    return (_row(m[:, 0], x, y) / z).clamp(-1e5, 1e5), (_row(m[:, 1], x, y) / z).clamp(-1e5, 1e5)


def _away_from_zero(z: Tensor) -> Tensor:
    return torch.where(z.abs() < 1e-6, torch.full_like(z, 1e-6), z)
