"""Where keypoints of a photograph belong, whichever way up it is seen.

Scores of ALIKED-n16, at the exact places of corners. ALIKED alone teaches no network that turns: its peaks
stand 1.8 pixels to the right of and below what they mark, and are others in a turned view. So it looks at each photograph four
times, a quarter turned each time, and its offset is taken off before the four are averaged. Photographs are scored once, and the
scores carried into the views with them: what both views see has the same scores by construction.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from .networks.aliked import SIDES, AlikedScores
from .scenes.corners import blurred, corner_scores

ALIKED = Path(__file__).parent / 'aliked' / 'aliked-n16.pth'
OFFSET = 2  # pixels, right and down: where ALIKED's peaks stand
BLUR = 1.0  # pixels: what is left of the offsets' scatter


class Teacher:
    """uint8 (N, H, W) -> float16 (N, H, W)."""

    def __init__(self, device: torch.device, weights: Path = ALIKED) -> None:
        self.aliked = AlikedScores(weights).to(device)

    @torch.no_grad()
    def __call__(self, photographs: Tensor) -> Tensor:
        worth = self._turned_mean(photographs[:, None].float() / 255)[:, 0]
        return (worth * corner_scores(photographs).float().sqrt()).half()

    def _turned_mean(self, images: Tensor) -> Tensor:
        turned = [self._centred(images.rot90(turn, (2, 3))).rot90(-turn, (2, 3)) for turn in range(4)]
        return blurred(torch.stack(turned).mean(0), BLUR)

    def _centred(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        whole = F.pad(images, (0, -width % SIDES, 0, -height % SIDES), mode='reflect')
        return self.aliked(whole)[..., :height, :width].roll((-OFFSET, -OFFSET), (2, 3))
