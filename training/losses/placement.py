"""How exactly keypoints are placed: both views' soft positions must agree under the true motion."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..scenes.views import TwoViews, flat_index, other

SCALE = 0.5  # pixels: errors well above it are of other points, and pull less
WITHIN = 2.5  # pixels: a keypoint nearer than this to where another one should be is the same


@dataclass
class Returns:
    """Which keypoint of the other view each keypoint is."""

    transferred: Tensor  # (2B, M, 2): where it truly is in the other view
    visible: Tensor  # bool (2B, M)
    foreign: Tensor  # bool (2B, M): it is not of the scene
    nearest: Tensor  # int64 (2B, M): the keypoint of the other view that is nearest to it
    distance: Tensor  # (2B, M), pixels
    same: Tensor  # bool (2B, M): visible, mutually nearest and near enough


@torch.no_grad()
def find_returns(points: Tensor, views: TwoViews) -> Returns:
    """Keypoints (2B, M, 2) of all views, in pixels."""
    transferred, visible = views.transfer(points)
    gap = distances(transferred, other(points))
    distance, nearest = gap.min(2)
    nearest_back = gap.argmin(1)  # for each keypoint of the other view, the one whose place is nearest
    mutual = nearest_back.gather(1, nearest) == torch.arange(points.shape[1], device=points.device)
    foreign = views.foreign.flatten(1).gather(1, flat_index(points, *views.foreign.shape[1:]))
    return Returns(transferred, visible, foreign, nearest, distance, visible & mutual & (distance < WITHIN))


def placement_loss(points: Tensor, views: TwoViews, returns: Returns) -> Tensor:
    """Cauchy's loss of the reprojected positions (2B, M, 2), over keypoints that are found again; gradients reach both ends."""
    transferred, _ = views.transfer(points)
    partner = other(points).gather(1, returns.nearest[..., None].expand(-1, -1, 2))
    error = (transferred - partner).abs().sum(-1)
    error = torch.where(returns.same, error, torch.zeros_like(error))
    return torch.log1p((error / SCALE) ** 2).sum() / returns.same.sum().clamp_min(1)


def distances(a: Tensor, b: Tensor) -> Tensor:
    """(B, M, 2), (B, N, 2) -> (B, M, N). By differences: by products, as torch.cdist does it, TF32 is off by pixels."""
    return ((a[:, :, None] - b[:, None]) ** 2).sum(-1).sqrt()
