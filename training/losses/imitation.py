"""A narrow extractor that gives what a wide one gives.

Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network, 2015.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def imitation_loss(logits: Tensor, descriptors: Tensor, wide_logits: Tensor, wide_descriptors: Tensor) -> Tensor:
    """Of logits (B, 65, h, w), the cross entropy under the wide network's odds; of descriptors (B, C, h, w), one minus the cosine.

    The descriptors so come to lie in the wide network's space, where either matcher reads them.
    """
    odds = F.softmax(wide_logits.float(), 1)
    detector = -(odds * F.log_softmax(logits.float(), 1)).sum(1).mean()
    return detector + (1 - F.cosine_similarity(descriptors.float(), wide_descriptors.float(), dim=1)).mean()
