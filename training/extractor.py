"""Trains the extractor, from nothing or from another one's weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .losses.descriptors import descriptor_loss
from .losses.detector import detector_loss, detector_targets
from .losses.imitation import imitation_loss
from .losses.placement import find_returns, placement_loss
from .losses.reliability import reliability_loss
from .networks.keypoints import refine, score_map, strongest, suppress_non_maxima
from .networks.superpoint import WIDTHS, FoldedSuperPoint, SuperPoint
from .processes import Processes
from .run import Run, write_whole
from .scenes.geometry import Mixture
from .scenes.random import scene_seed
from .scenes.rendering import Scorer
from .scenes.views import Scenes
from .schedule import Schedule

EASY = Mixture(ease=2.0)  # keypoints are placed in consecutive frames above all
FURTHER = 0.5  # of the learning rate, where a trained network is trained further


@dataclass(frozen=True)
class ExtractorSettings:
    height: int = 288
    width: int = 384
    pairs: int = 64  # a process and step
    keypoints: int = 400
    learning_rate: float = 2e-3
    widths: tuple[int, ...] = WIDTHS
    stem: bool = False  # the first convolution halves the image
    mixture: Mixture = EASY
    descriptor_weight: float = 0.5
    placement_weight: float = 1.0
    reliability_weight: float = 0.15
    imitation_weight: float = 1.0


class Extractor(nn.Module):
    """The network, and the temperature of its descriptors' softmax."""

    def __init__(self, settings: ExtractorSettings) -> None:
        super().__init__()
        self.superpoint = SuperPoint(settings.widths, stem=settings.stem)
        self.log_scale = nn.Parameter(torch.tensor(math.log(12.0)))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, descriptors = self.superpoint(images)
        return logits.float(), descriptors.float(), self.log_scale.exp()


def train_extractor(photographs: NDArray[np.uint8], scorer: Scorer, folder: Path, group: Processes, schedule: Schedule, seed: int,
                    settings: ExtractorSettings, wide: dict[str, Tensor] | None = None, log_every: int = 100,
                    initial: dict[str, Tensor] | None = None) -> bool:
    """Train until `schedule` ends, taught by `scorer`; whether it is done, and then extractor.weights.pt is in `folder`.

    `wide` is an extractor's exported tensors, which this one is to imitate, `initial` those that it begins with.
    """
    torch.manual_seed(seed)
    network = Extractor(settings).to(group.device, memory_format=torch.channels_last)
    device_photographs = torch.from_numpy(photographs).to(group.device)
    if initial is not None:
        network.superpoint.take(initial, _first_images(device_photographs, settings, seed))
    rate = settings.learning_rate * (1 if initial is None else FURTHER)
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-4, fused=group.on_gpu)
    run = Run('extractor', folder, group, schedule, network, optimizer, log_every)
    torch.manual_seed(seed + 1000 * group.rank + schedule.step)
    scenes = Scenes(device_photographs, settings.height, settings.width, scene_seed(seed, group.rank, schedule.step), scorer,
                    settings.mixture)
    done = run.train(_Step(network, scenes, group, settings, wide))
    if done and group.first:
        network.load_state_dict(run.average)
        write_whole(folder / 'extractor.weights.pt', network.superpoint.exported())
    group.wait()
    return done


def _first_images(photographs: Tensor, settings: ExtractorSettings, seed: int) -> Tensor:
    scenes = Scenes(photographs[:64], settings.height, settings.width, seed, mixture=settings.mixture)
    return scenes.draw(min(32, settings.pairs)).images.contiguous(memory_format=torch.channels_last)


class _Step:
    def __init__(self, network: Extractor, scenes: Scenes, group: Processes, settings: ExtractorSettings,
                 wide: dict[str, Tensor] | None) -> None:
        self.scenes, self.group, self.settings = scenes, group, settings
        compiled = torch.compile if group.on_gpu else _as_it_is
        self.network = group.shared(compiled(network))
        self.imitated: nn.Module | None = None
        if wide is not None:
            self.imitated = compiled(FoldedSuperPoint(wide).to(group.device, memory_format=torch.channels_last))
        self.targets, self.local_maxima = compiled(detector_targets), compiled(suppress_non_maxima)

    def __call__(self, progress: float) -> dict[str, Tensor]:
        settings = self.settings
        views = self.scenes.draw(settings.pairs)
        targets = self.targets(views, settings.keypoints)
        images = views.images.to(memory_format=torch.channels_last)
        with self.group.mixed_precision():
            logits, descriptors, scale = self.network(images)
        dense = score_map(logits)
        with torch.no_grad():
            pixels, _ = strongest(self.local_maxima(dense.detach()), settings.keypoints)
        points = refine(dense, pixels)
        returns = find_returns(points.detach(), views)
        detector = detector_loss(logits, targets)
        placement = placement_loss(points, views, returns)
        descriptor, distinct = descriptor_loss(descriptors, pixels, returns, views, scale)
        reliability = reliability_loss(dense, pixels, returns, distinct)
        ramp = min(1.0, max(0.0, progress * 8 - 0.5))  # where the network finds nothing yet, there is nothing to place
        loss = (detector + settings.descriptor_weight * descriptor
                + ramp * (settings.placement_weight * placement + settings.reliability_weight * reliability))
        seen = returns.visible.sum().clamp_min(1)
        if self.imitated is not None:
            wide = self._wide(self.imitated, views.plain)
            loss = loss + settings.imitation_weight * imitation_loss(logits, descriptors, wide[0], wide[1], views.foreign)
        return {'loss': loss, 'detector': detector, 'placement': placement, 'descriptor': descriptor, 'reliability': reliability,
                'repeatability': returns.same.sum() / seen, 'distinct': (returns.same & distinct).sum() / seen,
                'error': (returns.distance * returns.same).sum() / returns.same.sum().clamp_min(1), 'scale': scale}

    @torch.no_grad()
    def _wide(self, network: nn.Module, plain: Tensor) -> tuple[Tensor, Tensor]:
        """What the wide network says of the same without what stands still in the images."""
        images = plain.to(memory_format=torch.channels_last)
        with self.group.mixed_precision():
            logits, descriptors = network(images)
        return logits, descriptors


def _as_it_is(module: Any) -> Any:
    return module
