"""Scores that say what a keypoint is worth: high where it returns and matches, low where it does not."""

from __future__ import annotations

import torch
from torch import Tensor

from ..scenes.views import flat_index
from .placement import Returns

RIGHT = 1.5  # pixels: a keypoint that returns this near is a good one


def reliability_loss(scores: Tensor, pixels: Tensor, returns: Returns, distinct: Tensor) -> Tensor:
    """Binary cross entropy of the score map (2B, 1, H, W) at keypoints (2B, M, 2) that the other view sees, or that are foreign.

    Good: found again within RIGHT pixels and distinct. Bad: not found again, or foreign. Between them nothing is asked.
    """
    height, width = scores.shape[-2:]
    here = scores.flatten(1).gather(1, flat_index(pixels, height, width)).clamp(1e-6, 1 - 1e-6)
    good = returns.same & distinct & (returns.distance < RIGHT)
    bad = (returns.visible & ~returns.same) | returns.foreign
    gain = torch.where(good, here.log(), torch.where(bad, (-here).log1p(), torch.zeros_like(here)))
    return -gain.sum() / (returns.visible | returns.foreign).sum().clamp_min(1)
