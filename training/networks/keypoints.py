"""Score maps -> keypoints -> descriptors, as the package's extractor graph has them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..constants import constant

CELL, BORDER, NMS_RADIUS, REFINE_RADIUS, BLOCK = 8, 4, 4, 2, 4


def score_map(logits: Tensor) -> Tensor:
    """(B, 65, h, w) -> how much each pixel is a keypoint, (B, 1, 8 h, 8 w)."""
    return F.pixel_shuffle(torch.softmax(logits.float(), 1)[:, :-1], CELL)


def suppress_non_maxima(scores: Tensor) -> Tensor:
    """(B, 1, H, W) -> zero but at local maxima: maxima first, then twice the maxima among what they leave."""
    maxima = scores == _local_max(scores)
    for _ in range(2):
        suppressed = _local_max(maxima.float()) > 0
        rest = torch.where(suppressed, 0.0, scores)
        maxima = maxima | ((rest == _local_max(rest)) & ~suppressed)
    return torch.where(maxima, scores, 0.0)


def _local_max(x: Tensor) -> Tensor:
    size = 2 * NMS_RADIUS + 1
    x = F.max_pool2d(x, (1, size), 1, (0, NMS_RADIUS))
    return F.max_pool2d(x, (size, 1), 1, (NMS_RADIUS, 0))


def strongest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """After suppression: pixels int64 (B, count, 2) as (u, v) and their scores (B, count), falling.

    At most one stands in each block of 4 x 4, so blocks are sorted, not pixels.
    """
    inner = F.pad(scores[..., BORDER:-BORDER, BORDER:-BORDER], (BORDER,) * 4)
    width = scores.shape[-1] // BLOCK
    best, place = F.pixel_unshuffle(inner, BLOCK).max(1)
    top, index = best.flatten(1).topk(count)
    place = place.flatten(1).gather(1, index)
    return torch.stack([index % width * BLOCK + place % BLOCK, index // width * BLOCK + place // BLOCK], -1), top


def refine(scores: Tensor, pixels: Tensor) -> Tensor:
    """Mean position under the scores (B, 1, H, W) of the 5 x 5 pixels around each of (B, M, 2), a local soft-argmax: (B, M, 2)."""
    height, width = scores.shape[-2:]
    reach = torch.arange(-REFINE_RADIUS, REFINE_RADIUS + 1, device=scores.device)
    shifts = torch.stack(torch.meshgrid(reach, reach, indexing='xy'), -1).reshape(-1, 2)
    around = pixels[:, :, None] + shifts
    index = around[..., 1].clamp(0, height - 1) * width + around[..., 0].clamp(0, width - 1)
    weights = scores.flatten(1).gather(1, index.flatten(1)).reshape(index.shape)
    return pixels + (weights[..., None] * shifts).sum(2) / (weights.sum(-1, keepdim=True) + 1e-9)


def sample_descriptors(dense: Tensor, points: Tensor) -> Tensor:
    """(B, C, h, w) at (B, M, 2) pixels of the image -> (B, M, C) of unit length, on the released model's grid."""
    size = constant((dense.shape[-1], dense.shape[-2]), dense.device) * CELL
    grid = (points - (CELL / 2 - 0.5)) / (size - (CELL / 2 + 0.5)) * 2 - 1
    sampled = F.grid_sample(F.normalize(dense.float(), dim=1), grid[:, None], mode='bilinear', align_corners=True)
    return F.normalize(sampled[:, :, 0].transpose(1, 2), dim=-1)
