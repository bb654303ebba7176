"""Batches of pairs on planes and of rendered pairs with depth."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .rendered_views import RenderedScenes, RenderedViews
from .views import Scenes, TwoViews


@dataclass
class MixedViews:
    """B pairs: those on planes first. Rows are the first views of all, then the second ones."""

    planes: TwoViews
    rendered: RenderedViews

    @property
    def images(self) -> Tensor:
        """(2B, 1, H, W)."""
        return _joined(self.planes.images, self.rendered.images)

    def transfer(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """As TwoViews.transfer."""
        count = len(self.planes.images) // 2
        first, second = points.chunk(2)
        parts = (views.transfer(torch.cat([first[rows], second[rows]]))
                 for views, rows in ((self.planes, slice(count)), (self.rendered, slice(count, None))))
        (planes, on_planes), (rendered, on_rendered) = parts
        return _joined(planes, rendered), _joined(on_planes, on_rendered)


class MixedScenes:
    """`share` of the pairs are rendered ones."""

    def __init__(self, planes: Scenes, rendered: RenderedScenes, share: float) -> None:
        self.planes, self.rendered, self.share = planes, rendered, share

    def draw(self, pairs: int) -> MixedViews:
        rendered = min(pairs - 1, max(1, round(pairs * self.share)))
        return MixedViews(self.planes.draw(pairs - rendered), self.rendered.draw(rendered))


def _joined(planes: Tensor, rendered: Tensor) -> Tensor:
    """Rows of both, in the order that TwoViews has."""
    (first, second), (more_first, more_second) = planes.chunk(2), rendered.chunk(2)
    return torch.cat([first, more_first, second, more_second])
