"""The loss of LightGlue: the true assignment after every layer, and knowing when a layer's answer is final."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightglue_trt_ros.core.early_exit import EarlyExits

from ..networks.lightglue import MATCH_SCORE, LightGlue
from ..scenes.views import TwoViews, other
from .distillation import SoftAssignment, distillation_loss
from .placement import distances

WITHIN, BEYOND = 2.0, 4.0  # pixels: nearer is a match, no keypoint within the other is none; between them nothing is asked
LAST, EXIT, BETWEEN = 2.0, 1.0, 0.25  # weights of the layers' losses: the last one's, an early exit's, any other's


@dataclass
class Truth:
    """Ground truth of the keypoints of B pairs."""

    partners: Tensor  # int64 (2B, K): row of the other view, or -1
    alone: Tensor  # bool (2B, K): certainly without a partner


@torch.no_grad()
def true_matches(points: Tensor, views: TwoViews) -> Truth:
    """Of keypoints (2B, K, 2), pixels: matches are mutually nearest and agree in both directions."""
    transferred, visible = views.transfer(points)
    far = torch.full((), 1e4, device=points.device)
    gap = torch.where(visible[..., None], distances(transferred, other(points)), far)  # (2B, K, K)
    back = other(gap).transpose(1, 2)
    worse, better = torch.maximum(gap, back), torch.minimum(gap, back)
    nearest, index = worse.min(2)
    mutual = worse.argmin(1).gather(1, index) == torch.arange(points.shape[1], device=points.device)
    partners = torch.where(mutual & (nearest < WITHIN), index, -1)
    return Truth(partners, (better.min(2).values > BEYOND) & (partners < 0))


class MatcherLoss(nn.Module):
    """Runs the network over descriptors (2B, K, C) and normalised positions (2B, K, 2)."""

    def __init__(self, network: LightGlue) -> None:
        super().__init__()
        self.network = network
        self.judge, self.imitate = assignment_loss, distillation_loss
        count = len(network.transformers)
        exits = EarlyExits.of(count).ends
        self.weights = [LAST if end == count else EXIT if end in exits else BETWEEN for end in range(1, count + 1)]

    def compile(self) -> MatcherLoss:
        """Its parts, see LightGlue.compile_layers."""
        self.network.compile_layers()
        self.judge, self.imitate = (torch.compile(f, dynamic=False) for f in (assignment_loss, distillation_loss))
        return self

    def forward(self, positions: Tensor, descriptors: Tensor, partners: Tensor, alone: Tensor,
                soft: SoftAssignment | None = None) -> tuple[Tensor, Tensor]:
        """The loss, and for people (5,): that of the layers, precision, recall, true matches, agreement of layer 4.

        With a deep matcher's answer `soft`, each layer learns it beside the ground truth.
        """
        network = self.network
        states = network.states(positions, descriptors)
        loss, last = self._judged(states[-1], network.log_assignment[-1], partners, alone, soft)
        loss = loss * self.weights[-1]
        early_partners, early_alone = earlier_targets(last, partners, alone)
        found = []
        for state, assignment, weight in zip(states[:-1], network.log_assignment, self.weights, strict=False):
            part, matches = self._judged(state, assignment, early_partners, early_alone, soft)
            loss = loss + part * weight
            found.append(matches)
        found.append(last)
        loss = loss / sum(self.weights)
        before, _ = self._judged(descriptors, network.descriptor_assignment, partners, alone, None)  # shares no weight with layers
        confidence = torch.zeros((), device=loss.device)
        for head, state, matches in zip(network.token_confidence, states, found, strict=False):
            logit = head.token[0](state.detach())[..., 0].float()
            confidence = confidence + 2 * F.binary_cross_entropy_with_logits(logit, (matches == found[-1]).float())
        return loss + before + 0.02 * confidence, torch.cat([loss.detach()[None], _figures(found, partners, alone)])

    def _judged(self, state: Tensor, assignment: nn.Module, partners: Tensor, alone: Tensor,
                soft: SoftAssignment | None) -> tuple[Tensor, Tensor]:
        similarity, logits = assignment(state)
        loss, matches = self.judge(similarity, logits, partners, alone)
        return loss if soft is None else (loss + self.imitate(similarity, logits, soft)) / 2, matches


@torch.no_grad()
def earlier_targets(last: Tensor, partners: Tensor, alone: Tensor) -> tuple[Tensor, Tensor]:
    """Targets of the earlier layers: the ground truth, and the last layer's answer where the ground truth asks nothing.

    So an early exit learns the matches of all layers. `last` (2B, K) are the last layer's matches: rows, or -1 for none.
    Returns `partners` and `alone` (2B, K), as Truth has them.
    """
    mutual = other(last).gather(1, last.clamp_min(0)) == torch.arange(last.shape[1], device=last.device)
    matched = (last >= 0) & mutual
    asked = (partners >= 0) | alone
    free = ~asked & ~other(asked).gather(1, last.clamp_min(0))  # neither the point nor its match has a truth to keep
    return torch.where(free & matched, last, partners), alone | (~asked & ~matched)


def assignment_loss(similarity: Tensor, logits: Tensor, partners: Tensor, alone: Tensor) -> tuple[Tensor, Tensor]:
    """Negative log likelihood of the true assignment (LightGlue, equation 11), and the matches found, (2B, K) rows or -1.

    `similarity` (B, K, K), `logits` (2B, K) of having a partner. The assignment itself is never formed where only its value at the
    true matches is asked for.
    """
    pairs = len(similarity)
    rows, columns = similarity.logsumexp(2), similarity.logsumexp(1)
    sure0, sure1 = F.logsigmoid(logits).chunk(2)
    row = partners[:pairs]
    matched, row = row >= 0, row.clamp_min(0)
    value = 2 * similarity.gather(2, row[..., None])[..., 0] - rows - columns.gather(1, row) + sure0 + sure1.gather(1, row)
    wrong = -(value * matched).sum(1) / matched.sum(1).clamp_min(1)
    lonely = (F.softplus(logits) * alone).sum(1) / alone.sum(1).clamp_min(1)
    loss = (wrong + 0.5 * (lonely[:pairs] + lonely[pairs:])).mean()
    with torch.no_grad():
        best0, index0 = (2 * similarity + (sure1 - columns)[:, None]).max(2)
        best1, index1 = (2 * similarity + (sure0 - rows)[:, :, None]).max(1)
        scores = torch.cat([best0 - rows + sure0, best1 - columns + sure1]).exp()
        return loss, torch.where(scores > MATCH_SCORE, torch.cat([index0, index1]), -1)


@torch.no_grad()
def _figures(found: list[Tensor], partners: Tensor, alone: Tensor) -> Tensor:
    last = found[-1]
    mutual = other(last).gather(1, last.clamp_min(0)) == torch.arange(last.shape[1], device=last.device)
    given = mutual & (last >= 0)
    right, true = (given & (last == partners)).sum(), (partners >= 0).sum()
    judged = (given & ((partners >= 0) | alone)).sum()
    early = found[min(3, len(found) - 1)]
    precision, recall = right / judged.clamp_min(1), right / true.clamp_min(1)
    return torch.stack([precision, recall, true / len(partners), (early == last).float().mean()])
