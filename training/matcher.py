"""Trains the matcher on the features of a trained extractor."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .losses.distillation import SoftAssignment, soft_assignment
from .losses.matcher import MatcherLoss, true_matches
from .networks.keypoints import refine, sample_descriptors, score_map, strongest, suppress_non_maxima
from .networks.lightglue import LightGlue, normalize_positions
from .networks.superpoint import FoldedSuperPoint
from .processes import Processes
from .run import Run, load_tensors, read_tensors, write_whole
from .scenes.geometry import Mixture
from .scenes.mixed_views import MixedScenes, MixedViews
from .scenes.random import scene_seed
from .scenes.rendered_views import RenderedScenes, load_views
from .scenes.views import Scenes, TwoViews
from .schedule import Schedule
from .weight_files import first_layers, with_descriptor_assignment

FAR = Mixture(ease=1.5, reach=1.5)  # consecutive frames are most of what a robot matches, and four or eight apart views differ much


@dataclass(frozen=True)
class MatcherSettings:
    height: int = 384
    width: int = 512
    pairs: int = 56  # a process and step
    keypoints: tuple[int, ...] = (640,)  # by turns; as dense as 1,024 in 480 x 640
    learning_rate: float = 3e-4
    layers: int = 9
    state: int = 256  # width of the layers
    mixture: Mixture = FAR
    rendered: float = 0.3  # share of the pairs, where there are rendered views


@dataclass(frozen=True)
class MatcherSources:
    """Files that a matcher learns from beside the photographs."""

    initial: Path | None = None  # its first weights, of as many layers or more: safetensors, or another training's weights.pt
    deep: Path | None = None  # a matcher that it imitates, likewise
    views: Path | None = None  # folder of rendered views


def train_matcher(photographs: NDArray[np.uint8], folder: Path, group: Processes, schedule: Schedule, seed: int,
                  settings: MatcherSettings, sources: MatcherSources | None = None, log_every: int = 100) -> bool:
    """Train until `schedule` ends, from the weights in `sources` or from nothing; whether that is done.

    Then matcher.weights.pt is in `folder`, beside the extractor.weights.pt that it takes. Of first weights with more layers than
    `settings` has, the first ones are taken: LightGlue is trained to match after each.
    """
    sources = sources or MatcherSources()
    torch.manual_seed(seed)
    tensors = torch.load(folder / 'extractor.weights.pt', map_location='cpu', weights_only=True)
    network = LightGlue(settings.state, settings.layers, tensors['convDb.weight'].shape[0]).to(group.device)
    if sources.initial is not None:
        initial = first_layers(read_tensors(sources.initial), settings.layers)
        load_tensors(network, with_descriptor_assignment(network.state_dict(), initial), sources.initial)
    deep = None if sources.deep is None else _matcher(sources.deep).to(group.device)
    optimizer = torch.optim.AdamW([
        {'params': list(network.input_proj.parameters()), 'lr': 3 * settings.learning_rate},
        {'params': [p for name, p in network.named_parameters() if not name.startswith('input_proj')]},
    ], lr=settings.learning_rate, weight_decay=1e-3, fused=group.on_gpu)
    run = Run('matcher', folder, group, schedule, network, optimizer, log_every)
    scene = scene_seed(seed, group.rank, schedule.step)
    planes = Scenes(
        torch.from_numpy(photographs).to(group.device), settings.height, settings.width, scene, mixture=settings.mixture)
    scenes: Scenes | MixedScenes = planes
    if sources.views is not None:
        rendered = RenderedScenes(load_views(sources.views), settings.height, settings.width, scene, group.device,
                                  settings.mixture.standing)
        group.say(f'{len(rendered.images)} rendered views, {len(rendered.pairs)} pairs of them')
        scenes = MixedScenes(planes, rendered, settings.rendered)
    extractor = FoldedSuperPoint(tensors).to(group.device, memory_format=torch.channels_last)
    done = run.train(_Step(network, extractor, scenes, group, settings, deep))
    if done and group.first:
        write_whole(folder / 'matcher.weights.pt', {name: tensor.float().cpu() for name, tensor in run.average.items()})
    return done


def _matcher(path: Path) -> LightGlue:
    """A trained matcher from its file, not to be trained."""
    tensors = read_tensors(path)
    state, descriptor = tensors['input_proj.weight'].shape
    network = LightGlue(state, sum(name.endswith('.final_proj.bias') for name in tensors), descriptor)
    load_tensors(network, with_descriptor_assignment(network.state_dict(), tensors), path)
    network.requires_grad_(False)
    return network


class _Step:
    def __init__(self, network: LightGlue, extractor: FoldedSuperPoint, scenes: Scenes | MixedScenes, group: Processes,
                 settings: MatcherSettings, deep: LightGlue | None) -> None:
        self.scenes, self.group, self.settings, self.deep = scenes, group, settings, deep
        self.counts = itertools.cycle(settings.keypoints)
        loss = MatcherLoss(network)
        self.extract, self.true_matches, self.keypoints = extractor, true_matches, _keypoints
        if group.on_gpu:
            loss.compile()
            self.extract, self.true_matches, self.keypoints = (
                torch.compile(f, dynamic=False) for f in (extractor, true_matches, _keypoints))
            if deep is not None:
                deep.compile_layers()
        self.loss = group.shared(loss)

    def __call__(self, progress: float) -> dict[str, Tensor]:
        settings = self.settings
        views = self.scenes.draw(settings.pairs)
        points, descriptors = self._features(views)
        truth = self.true_matches(points, views)
        positions = normalize_positions(points, settings.height, settings.width)
        with self.group.mixed_precision():
            soft = self._soft(positions, descriptors)
            loss, figures = self.loss(positions, descriptors, truth.partners, truth.alone, soft)
        names = ('assignment', 'precision', 'recall', 'matches', 'agreement')
        return {'loss': loss} | dict(zip(names, figures, strict=True))

    @torch.no_grad()
    def _soft(self, positions: Tensor, descriptors: Tensor) -> SoftAssignment | None:
        return None if self.deep is None else soft_assignment(*self.deep(positions, descriptors))

    @torch.no_grad()
    def _features(self, views: TwoViews | MixedViews) -> tuple[Tensor, Tensor]:
        with self.group.mixed_precision():
            logits, dense = self.extract(views.images.to(memory_format=torch.channels_last))
        return self.keypoints(logits, dense, next(self.counts))


def _keypoints(logits: Tensor, dense: Tensor, count: int) -> tuple[Tensor, Tensor]:
    scores = score_map(logits)
    pixels, _ = strongest(suppress_non_maxima(scores), count)
    return refine(scores, pixels), sample_descriptors(dense, pixels.float())
