"""A narrow extractor that gives what a wide one gives.

Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network, 2015.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..networks.keypoints import CELL
from .detector import NO_KEYPOINT


def imitation_loss(logits: Tensor, descriptors: Tensor, wide_logits: Tensor, wide_descriptors: Tensor,
                   foreign: Tensor | None = None) -> Tensor:
    """Of logits (B, 65, h, w), the cross entropy under the wide network's odds; of descriptors (B, C, h, w), one minus the cosine.

    The descriptors so come to lie in the wide network's space, where either matcher reads them. The wide network may have seen the
    scene without what stands still before it: cells with a `foreign` pixel, bool (B, 8 h, 8 w), have no keypoint, and their
    descriptors are free.
    """
    odds = F.softmax(wide_logits.float(), 1)
    likeness = F.cosine_similarity(descriptors.float(), wide_descriptors.float(), dim=1)
    if foreign is not None:
        hidden = F.max_pool2d(foreign[:, None].float(), CELL) > 0
        none = (torch.arange(odds.shape[1], device=odds.device) == NO_KEYPOINT)[:, None, None]
        odds, likeness = torch.where(hidden, none.float(), odds), torch.where(hidden[:, 0], 1.0, likeness)
    detector = -(odds * F.log_softmax(logits.float(), 1)).sum(1).mean()
    return detector + (1 - likeness).mean()
