"""A shallow matcher that answers as a deep one.

Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network, 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class SoftAssignment:
    """The deep matcher's answer about B pairs, as probabilities."""

    matches: Tensor  # (B, K, K): two points belong together
    alone: Tensor  # (2B, K): a point has no partner


def log_assignment(similarity: Tensor, logits: Tensor) -> Tensor:
    """(B, K, K), (2B, K) -> (B, K, K): LightGlue's log assignment (equation 9)."""
    first, second = F.logsigmoid(logits).chunk(2)
    rows, columns = similarity.logsumexp(2, keepdim=True), similarity.logsumexp(1, keepdim=True)
    return 2 * similarity - rows - columns + first[:, :, None] + second[:, None]


@torch.no_grad()
def soft_assignment(similarity: Tensor, logits: Tensor) -> SoftAssignment:
    """Of the similarities (B, K, K) and logits of having a partner (2B, K) of the deep matcher's last layer."""
    return SoftAssignment(log_assignment(similarity, logits).exp(), torch.sigmoid(-logits))


def distillation_loss(similarity: Tensor, logits: Tensor, soft: SoftAssignment) -> Tensor:
    """LightGlue's loss (equation 11) under the deep matcher's probabilities instead of a ground truth."""
    pairs = len(similarity)
    matches = soft.matches
    matched = -(matches * log_assignment(similarity, logits)).sum((1, 2)) / matches.sum((1, 2)).clamp_min(1)
    lonely = (F.softplus(logits) * soft.alone).sum(1) / soft.alone.sum(1).clamp_min(1)
    return (matched + 0.5 * (lonely[:pairs] + lonely[pairs:])).mean()
