"""Batches of two views, and where a point of one is in the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .geometry import EVEN, Mixture, draw_geometry
from .photometry import photometric
from .random import Random
from .rendering import Renderer, Scorer, Surfaces
from .standing import stand


@dataclass
class TwoViews:
    """B pairs: rows 0 to B - 1 are the first views, rows B to 2B - 1 the second ones, in the same order."""

    clean: Tensor  # (2B, 1, H, W) in [0, 1]: what is there
    plain: Tensor  # the same in the light and noise of its moment
    images: Tensor  # the same as a camera sees it, with what stands still in the image
    foreign: Tensor  # bool (2B, H, W): pixels that do not show the scene
    scores: Tensor  # (2B, 1, H, W): how much each pixel of what is there is a keypoint, as the teacher sees it
    planes: Tensor  # (2B, H, W): which plane a pixel shows
    across: Tensor  # (2B, PLANES, 3, 3): pixel of a view -> pixel of the other one, plane by plane

    def transfer(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """(2B, M, 2) pixels of each view -> pixels of the other one, and bool (2B, M): seen there. Gradients pass."""
        height, width = self.planes.shape[1:]
        plane = self.planes.flatten(1).gather(1, flat_index(points.detach(), height, width))
        m = self.across.flatten(2).gather(1, plane[..., None].expand(-1, -1, 9))
        x, y = points.unbind(-1)
        z = m[..., 6] * x + m[..., 7] * y + m[..., 8]
        ahead = z > 1e-6
        z = torch.where(ahead, z, torch.ones_like(z))
        transferred = torch.stack([(m[..., 0] * x + m[..., 1] * y + m[..., 2]) / z,
                                   (m[..., 3] * x + m[..., 4] * y + m[..., 5]) / z], -1)
        transferred = torch.where(ahead[..., None], transferred.clamp(-1e5, 1e5), -1e5)
        whole = transferred.detach().round()
        inside = ahead & (whole >= 0).all(-1) & (whole[..., 0] < width) & (whole[..., 1] < height)
        same = other(self.planes).flatten(1).gather(1, flat_index(transferred.detach(), height, width)) == plane
        return transferred, inside & same & show_the_scene(self.foreign, points, transferred)


class Scenes:
    """An endless supply of views of `photographs`, uint8 (N, height, width) on the device that is to make them."""

    def __init__(self, photographs: Tensor, height: int, width: int, seed: int, scorer: Scorer | None = None,
                 mixture: Mixture = EVEN) -> None:
        self.random = Random(seed, photographs.device)
        self.mixture, self.photographs = mixture, photographs
        self.renderer = Renderer(photographs, height, width, scorer)

    @torch.no_grad()
    def draw(self, pairs: int) -> TwoViews:
        renderer, pyramid = self.renderer, self.renderer.pyramid
        geometry = draw_geometry(self.random, pairs, renderer.height, renderer.width, pyramid.height, pyramid.width,
                                 self.mixture)
        clean, scores, planes = renderer.render(geometry, Surfaces(self.random, pairs, pyramid.count))
        plain = photometric(self.random, clean)
        images, foreign = stand(self.random, plain, self.photographs, self.mixture.standing)
        foreign &= ~geometry.still.repeat(2)[:, None, None]  # before a standing camera all stands still, and has its partner
        return TwoViews(clean, plain, images, foreign, scores, planes, geometry.across)


def show_the_scene(foreign: Tensor, points: Tensor, transferred: Tensor) -> Tensor:
    """bool (2B, M): neither a pixel nor the pixel of the other view that it is transferred to is `foreign` (2B, H, W)."""
    height, width = foreign.shape[1:]
    here = foreign.flatten(1).gather(1, flat_index(points.detach(), height, width))
    across = other(foreign).flatten(1).gather(1, flat_index(transferred.detach(), height, width))
    return ~here & ~across


def other(rows: Tensor) -> Tensor:
    """(2B, ...) -> what belongs to the other view of each row's pair."""
    return rows.roll(len(rows) // 2, 0)


def flat_index(points: Tensor, height: int, width: int) -> Tensor:
    """(..., 2) -> index of the nearest pixel in a flattened image, at its border for points outside."""
    whole = points.round().long()
    return whole[..., 1].clamp(0, height - 1) * width + whole[..., 0].clamp(0, width - 1)
