"""Descriptors that tell a point from all others: dual softmax with a learned temperature (as in Sun et al., LoFTR, CVPR 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..constants import constant
from ..networks.keypoints import sample_descriptors
from ..scenes.views import TwoViews, other
from .placement import Returns, distances

NEIGHBOURHOOD = 5.0  # pixels: points nearer to each other than this are not told apart
HIGHEST_SCALE = 60.0


def descriptor_loss(dense: Tensor, pixels: Tensor, returns: Returns, views: TwoViews, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and bool (2B, M): points that are told from all others with more than even odds.

    `dense` (2B, C, h, w); whole `pixels` (2B, M, 2) of the keypoints, where the package samples. In the other view a point is
    described at its own keypoint there, or a little beside its true place where there is none.
    """
    size = constant((views.images.shape[-1], views.images.shape[-2]), dense.device)
    partner = other(pixels).gather(1, returns.nearest[..., None].expand(-1, -1, 2)).float()
    nearby = returns.transferred + 0.5 * torch.randn_like(returns.transferred)
    target = torch.where(returns.same[..., None], partner, nearby).clamp(min=torch.zeros_like(size), max=size - 1)
    described, partners = sample_descriptors(dense, pixels.float()), sample_descriptors(other(dense), target)
    likeness = (described @ partners.transpose(1, 2)) * scale.clamp(max=HIGHEST_SCALE)
    own = torch.eye(pixels.shape[1], dtype=torch.bool, device=dense.device)
    visible = returns.visible
    blocked = (distances(returns.transferred, returns.transferred) < NEIGHBOURHOOD) | ~visible[:, None, :] | ~visible[:, :, None]
    likeness = likeness.masked_fill(blocked & ~own, -1e4)
    right = likeness.diagonal(dim1=1, dim2=2)
    log_odds = 2 * right - likeness.logsumexp(1) - likeness.logsumexp(2)
    loss = -0.5 * (log_odds * visible).sum() / visible.sum().clamp_min(1)
    return loss, (log_odds.detach().exp() > 0.5) & visible
