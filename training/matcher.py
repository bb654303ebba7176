"""Trains the matcher on the features of a trained extractor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .losses.matcher import MatcherLoss, true_matches
from .networks.keypoints import refine, sample_descriptors, score_map, strongest, suppress_non_maxima
from .networks.lightglue import LightGlue, normalize_positions
from .networks.superpoint import FoldedSuperPoint
from .processes import Processes
from .run import Run, load_tensors, read_tensors, write_whole
from .scenes.random import scene_seed
from .scenes.views import Scenes, TwoViews
from .schedule import Schedule


@dataclass(frozen=True)
class MatcherSettings:
    height: int = 384
    width: int = 512
    pairs: int = 56  # a process and step
    keypoints: int = 640  # as dense as 1,024 in 480 x 640
    learning_rate: float = 3e-4
    layers: int = 9
    state: int = 256  # width of the layers
    ease: float = 1.5  # of the scenes: consecutive frames are most of what a robot matches,
    reach: float = 1.5  # and four or eight frames apart, views differ by more than the extractor's pairs do


def train_matcher(photographs: NDArray[np.uint8], folder: Path, group: Processes, schedule: Schedule, seed: int,
                  settings: MatcherSettings, initial: Path | None = None, log_every: int = 100) -> bool:
    """Train until `schedule` ends, from the file `initial` (safetensors, or another training's
    matcher.weights.pt) or from nothing; whether that is done.

    Then matcher.weights.pt is in `folder`, beside the extractor.weights.pt that it takes. Of an `initial` of more layers than
    `settings` has, the first ones are taken: LightGlue is trained to match after each.
    """
    torch.manual_seed(seed)
    tensors = torch.load(folder / 'extractor.weights.pt', map_location='cpu', weights_only=True)
    network = LightGlue(settings.state, settings.layers, tensors['convDb.weight'].shape[0]).to(group.device)
    if initial is not None:
        load_tensors(network, first_layers(read_tensors(initial), settings.layers), initial)
    optimizer = torch.optim.AdamW([
        {'params': list(network.input_proj.parameters()), 'lr': 3 * settings.learning_rate},
        {'params': [p for name, p in network.named_parameters() if not name.startswith('input_proj')]},
    ], lr=settings.learning_rate, weight_decay=1e-3, fused=group.on_gpu)
    run = Run('matcher', folder, group, schedule, network, optimizer, log_every)
    scenes = Scenes(torch.from_numpy(photographs).to(group.device), settings.height, settings.width,
                    scene_seed(seed, group.rank, schedule.step), ease=settings.ease, reach=settings.reach)
    extractor = FoldedSuperPoint(tensors).to(group.device, memory_format=torch.channels_last)
    done = run.train(_Step(network, extractor, scenes, group, settings))
    if done and group.first:
        write_whole(folder / 'matcher.weights.pt', {name: tensor.float().cpu() for name, tensor in run.average.items()})
    return done


def first_layers(tensors: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """A LightGlue of so many layers, out of the tensors of one that may have more."""
    def kept(name: str) -> bool:
        block, number, *_ = name.split('.')
        return not number.isdigit() or int(number) < layers - (block == 'token_confidence')  # the last layer needs no confidence
    return {name: tensor for name, tensor in tensors.items() if kept(name)}


class _Step:
    def __init__(self, network: LightGlue, extractor: FoldedSuperPoint, scenes: Scenes, group: Processes,
                 settings: MatcherSettings) -> None:
        self.scenes, self.group, self.settings = scenes, group, settings
        loss = MatcherLoss(network)
        self.extract, self.true_matches, self.keypoints = extractor, true_matches, _keypoints
        if group.on_gpu:
            loss.compile()
            self.extract, self.true_matches, self.keypoints = (
                torch.compile(f, dynamic=False) for f in (extractor, true_matches, _keypoints))
        self.loss = group.shared(loss)

    def __call__(self, progress: float) -> dict[str, Tensor]:
        settings = self.settings
        views = self.scenes.draw(settings.pairs)
        points, descriptors = self._features(views)
        truth = self.true_matches(points, views)
        positions = normalize_positions(points, settings.height, settings.width)
        with self.group.mixed_precision():
            loss, figures = self.loss(positions, descriptors, truth.partners, truth.alone)
        names = ('assignment', 'precision', 'recall', 'matches', 'agreement')
        return {'loss': loss} | dict(zip(names, figures, strict=True))

    @torch.no_grad()
    def _features(self, views: TwoViews) -> tuple[Tensor, Tensor]:
        with self.group.mixed_precision():
            logits, dense = self.extract(views.images.to(memory_format=torch.channels_last))
        return self.keypoints(logits, dense, self.settings.keypoints)


def _keypoints(logits: Tensor, dense: Tensor, count: int) -> tuple[Tensor, Tensor]:
    scores = score_map(logits)
    pixels, _ = strongest(suppress_non_maxima(scores), count)
    return refine(scores, pixels), sample_descriptors(dense, pixels.float())
