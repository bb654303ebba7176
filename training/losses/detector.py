"""Where keypoints belong: at the teacher's peaks that are found again in the other view."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..networks.keypoints import CELL, strongest, suppress_non_maxima
from ..scenes.views import TwoViews, flat_index, other

LEAST_SCORE = 0.02  # of a teacher's peak
WITHIN = 2  # pixels from where it should be, for a peak that is found again
NO_KEYPOINT = CELL * CELL  # the class of a cell without one


@torch.no_grad()
def detector_targets(teacher_scores: Tensor, views: TwoViews, count: int) -> Tensor:
    """The class of each cell, int64 (2B, H / 8, W / 8): the pixel of its best peak, or NO_KEYPOINT.

    Of the teacher's `count` strongest peaks those count that return within WITHIN pixels in the other view, or that leave it.
    """
    height, width = teacher_scores.shape[-2:]
    peaks = suppress_non_maxima(teacher_scores)
    pixels, scores = strongest(peaks, count)
    there, visible = views.transfer(pixels.float())
    near = F.max_pool2d((peaks > LEAST_SCORE).float(), 2 * WITHIN + 1, 1, WITHIN)
    returns = other(near).flatten(1).gather(1, flat_index(there, height, width)) > 0
    kept = (~visible | returns) & (scores > LEAST_SCORE)
    labels = torch.zeros_like(teacher_scores).flatten(1)
    labels = labels.scatter(1, flat_index(pixels, height, width), torch.where(kept, scores, 0.0))
    best, place = F.pixel_unshuffle(labels.reshape(teacher_scores.shape), CELL).max(1)
    return torch.where(best > 0, place, NO_KEYPOINT)


def detector_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy over the 65 classes of each cell (DeTone et al., SuperPoint, section 3.4)."""
    return F.cross_entropy(logits, targets)
