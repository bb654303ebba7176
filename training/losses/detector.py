"""Where keypoints belong: at the teacher's peaks that are found again in the other view."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..networks.keypoints import CELL, strongest, suppress_non_maxima
from ..scenes.views import TwoViews, flat_index, other

LEAST_SCORE = 0.01  # of a peak
WITHIN = 2  # pixels from where it should be, for a peak that is found again
NO_KEYPOINT = CELL * CELL  # the class of a cell without one


@torch.no_grad()
def detector_targets(views: TwoViews, count: int) -> Tensor:
    """The class of each cell, int64 (2B, H / 8, W / 8): the pixel of its best peak, or NO_KEYPOINT.

    Of the `count` strongest peaks those count that return within WITHIN pixels in the other view, or that leave it; none does on a
    foreign pixel. Where another plane begins next to a maximum, the cut has made it.
    """
    height, width = views.scores.shape[-2:]
    peaks = torch.where(_inside_a_plane(views.planes)[:, None], suppress_non_maxima(views.scores), 0.0)
    pixels, scores = strongest(peaks, count)
    transferred, visible = views.transfer(pixels.float())
    near = F.max_pool2d((peaks > LEAST_SCORE).float(), 2 * WITHIN + 1, 1, WITHIN)
    returns = other(near).flatten(1).gather(1, flat_index(transferred, height, width)) > 0
    foreign = views.foreign.flatten(1).gather(1, flat_index(pixels, height, width))
    kept = (~visible | returns) & ~foreign & (scores > LEAST_SCORE)
    labels = torch.zeros_like(peaks).flatten(1)
    labels = labels.scatter(1, flat_index(pixels, height, width), torch.where(kept, scores, 0.0))
    best, place = F.pixel_unshuffle(labels.reshape(peaks.shape), CELL).max(1)
    return torch.where(best > 0, place, NO_KEYPOINT)


def _inside_a_plane(planes: Tensor) -> Tensor:
    """bool (2B, H, W): all eight neighbours show the same plane."""
    index = planes[:, None].float()
    return (F.max_pool2d(index, 3, 1, 1) == -F.max_pool2d(-index, 3, 1, 1))[:, 0]


def detector_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy over the 65 classes of each cell (DeTone et al., SuperPoint, section 3.4)."""
    return F.cross_entropy(logits, targets)
