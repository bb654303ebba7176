"""Pairs of a recording after each of LightGlue's layers: matches and poses, and what is known about each point."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.recorded_pairs import load_images, open_recorded, sample_pairs
from lightglue_trt_eval.predict.methods import correspondences
from lightglue_trt_eval.predict.scene import Scene
from lightglue_trt_eval.score.metrics import PairResult
from lightglue_trt_eval.score.pair_score import agreement_of_rows, score_points
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend, matcher_inputs
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.depth import DepthImage, locate
from lightglue_trt_ros.core.early_exit import ALL_LAYERS, EarlyExits, confidence_threshold
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.geometry import Size, resize_gray, size_of, to_original
from lightglue_trt_ros.core.types import Features, Float32, HostFeatures, Int32, Matches, Thresholds, UInt8
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.networks.weight_folding import Linear, fold
from lightglue_trt_ros.odometry.two_view import relative_pose
from lightglue_trt_ros.utils.console import progress
from lightglue_trt_ros.utils.errors import BagError

PATCH, CONTRAST = 9, 5.0  # side in the engine's pixels; standard deviation in gray levels, below which texture is low
ALIKE = math.log(2)  # difference of similarity below which two points are alike: one is at most twice as probable
NEAREST = 2.0  # steps of the camera: a point of unknown depth is not nearer

Bools = NDArray[np.bool_]


class LayerDecision(NamedTuple):
    """State of the K keypoints of both images after a layer before the last, (2, K) each."""

    confident: Bools
    matchability: Float32
    alike: Bools  # the second best partner is ALIKE to the best


@dataclasses.dataclass(frozen=True, eq=False)
class PairLayers:
    """A pair of frames after each of L layers, and its points, (2, K) each."""

    results: list[PairResult]  # (L,) with F1 against the last one's matches
    decisions: list[LayerDecision]  # (L - 1,)
    valid: Bools  # keypoints, not padding
    matched: Bools  # by the last layer
    visible: Bools  # in the other view
    textured: Bools

    @property
    def f1(self) -> list[float]:
        """(L,) against the matches of the last layer."""
        return [result.agreement_f1 or 0.0 for result in self.results]


class LayerBackend(OnnxRuntimeBackend):
    """ONNX Runtime with an exit after each layer; `match` gives `answer`, so that FrameMatcher refines any exit's matches."""

    def __init__(self, config: MatcherConfig) -> None:
        model = load_model(config.weights)
        super().__init__(config.engine_spec('fp32'), model, early_exits=EarlyExits(tuple(range(1, model.layers + 1))))
        self._heads = fold(model.matcher.tensors).heads
        self._extracted: dict[bytes, HostFeatures] = {}  # of the last two images
        self.answer: Matches | None = None

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> HostFeatures:
        key = image.tobytes()
        if key not in self._extracted:
            self._extracted = dict([*self._extracted.items()][-1:]) | {key: super().extract(image, mask)}
        return self._extracted[key]

    def match(self, reference: Features, current: Features, thresholds: Thresholds) -> Matches:
        assert self.answer is not None
        return self.answer

    def decisions(self, reference: Features, current: Features, thresholds: Thresholds) -> Iterator[LayerDecision]:
        """After each layer but the last. Padding is confident or not, as it happens."""
        tensors = matcher_inputs(reference, current, thresholds)
        for layer, stage in enumerate(self.early_exits.stages[:-1]):
            tensors |= self.run(stage, tensors)
            tensors['state'] = tensors['next_state']
            state, head = tensors['state'].numpy(), self._heads[layer]
            assert head.confidence is not None
            final = _applied(head.final, state)
            similarity = final[0] @ final[1].T
            two = np.stack([np.partition(each, -2, axis=1)[:, -2:] for each in (similarity, similarity.T)])
            yield LayerDecision(_probability(head.confidence, state) >= confidence_threshold(layer, len(self._heads)),
                           _probability(head.matchability, state), two[..., 1] - two[..., 0] < ALIKE)


def observe(path: Path, config: MatcherConfig, strides: Sequence[int], count: int,
            image_topic: str | None = None) -> Iterator[tuple[int, list[PairLayers]]]:
    """At most `count` pairs by stride, at the images' aspect ratio and the area of the configuration. Raises BagError."""
    recording, scene, config = open_recorded(path, image_topic, config)
    with closing(LayerBackend(config)) as backend:
        for stride in strides:
            pairs = sample_pairs(scene.timeline, stride, count)
            if not pairs:
                raise BagError(f'{path}: no two frames are {stride} apart; give smaller --strides or a longer recording')
            images = load_images(recording, scene, set(itertools.chain(*pairs)), depth=True)
            with progress(f'{path.name}, stride {stride}', len(pairs)) as bar:
                yield stride, [observe_pair(backend, config, scene, pair, *zip(*(images[frame] for frame in pair), strict=True))
                               for pair in bar.each(pairs)]


def observe_pair(backend: LayerBackend, config: MatcherConfig, scene: Scene, pair: tuple[int, int], images: tuple[UInt8, UInt8],
                 depths: tuple[DepthImage | None, DepthImage | None]) -> PairLayers:
    """Gray images (H, W) of both frames, matched, refined and scored after each layer, the pair by itself."""
    small = [resize_gray(image, (config.image_height, config.image_width)) for image in images]
    reference, current = (backend.extract(image) for image in small)
    thresholds = dataclasses.replace(config.thresholds(backend.score_calibration), depth_confidence=ALL_LAYERS)
    exits = list(backend.match_exits(reference, current, thresholds))
    last = _rows(exits[-1])
    results: list[PairResult] = []
    for matches in reversed(exits):  # the last one's points tell the depth of a scene where corners do not
        backend.answer, frames = matches, FrameMatcher(backend, config)
        frames.process(images[0], 0.0)
        found = frames.process(images[1], 0.1)
        assert found is not None
        points = correspondences(found.matched())
        scored, _ = score_points(scene, pair, points, scene.motion(pair, images, points))
        f1 = agreement_of_rows(last, _rows(matches)).f1
        results.insert(0, dataclasses.replace(scored.pair, layers=matches.layers, agreement_f1=f1))
    matched = np.zeros((2, config.max_keypoints), np.bool_)
    matched[0, last[:, 0]] = matched[1, last[:, 1]] = True
    pixels = [to_original(each.keypoints, size_of(small[0]), size_of(images[0])) for each in (reference, current)]
    views = zip((pair, pair[::-1]), pixels, depths, strict=True)
    return PairLayers(
        results, list(backend.decisions(reference, current, thresholds)),
        np.stack([each.scores > config.detection_threshold for each in (reference, current)]), matched,
        np.stack([in_other_view(scene, frames, points, depth, size_of(images[0])) for frames, points, depth in views]),
        np.stack([contrasts(image, each.keypoints) >= CONTRAST for image, each in zip(small, (reference, current), strict=True)]))


def in_other_view(scene: Scene, frames: tuple[int, int], points: Float32, depth: DepthImage | None, size: Size) -> Bools:
    """Which of the first frame's points (K, 2) lie in the second one's image (H, W), by true poses; without these all do.

    A point of unknown depth does where a part of its epipolar line does, from NEAREST steps of the camera to infinity.
    """
    pose0, pose1, camera = scene.pose(frames[0]), scene.pose(frames[1]), scene.camera(frames)
    if pose0 is None or pose1 is None or camera is None:
        return np.ones(len(points), np.bool_)
    rotation, translation = relative_pose(pose0, pose1)
    z = np.full(len(points), np.nan)
    if depth is not None:
        z = locate(depth, points, np.zeros((len(points), 2, 2), np.float32)).xyz[:, 2].astype(np.float64)
    inverse = np.linspace(1e-6, 1 / max(NEAREST * float(np.linalg.norm(translation)), 1e-3), 64)  # 1 / metres
    depths = np.where(np.isfinite(z)[:, None], z[:, None], 1 / inverse)  # (K, 64)
    rays = np.column_stack([points, np.ones(len(points))]) @ np.linalg.inv(camera).T
    in_other = (rays[:, None] * depths[..., None]) @ (camera @ rotation).T + camera @ translation
    with np.errstate(divide='ignore', invalid='ignore'):
        pixels = in_other[..., :2] / in_other[..., 2:]
    inside = (in_other[..., 2] > 0) & (pixels > -0.5).all(axis=-1) & (pixels < (size[1] - 0.5, size[0] - 0.5)).all(axis=-1)
    return np.asarray(inside.any(axis=1))


def contrasts(image: UInt8, points: Float32) -> Float32:
    """Standard deviation (K,) of the gray levels around points (K, 2) of an image (H, W)."""
    gray, side = image.astype(np.float32), (PATCH, PATCH)
    deviation = np.sqrt(np.maximum(cv2.blur(gray * gray, side) - cv2.blur(gray, side)**2, 0))
    columns, rows = np.clip(points.round().astype(int), 0, (image.shape[1] - 1, image.shape[0] - 1)).T
    return np.asarray(deviation[rows, columns], np.float32)


def _rows(matches: Matches) -> Int32:
    """(M, 2) of the reference and of the current frame."""
    rows = np.flatnonzero(matches.indices >= 0)
    return np.column_stack([rows, matches.indices[rows]]).astype(np.int32)


def _applied(linear: Linear, state: Float32) -> Float32:
    return np.asarray(state @ linear.weight.T + linear.bias, np.float32)


def _probability(linear: Linear, state: Float32) -> Float32:
    """Of a state (2, K, width) through a layer of one output: (2, K)."""
    return np.asarray(1 / (1 + np.exp(-_applied(linear, state)[..., 0])), np.float32)
