"""The methods of an evaluation: FrameMatcher with one or several settings, and the baselines."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.core.refinement import COARSE, FINE, Pyramid, refine_points
from lightglue_trt_ros.core.refinement.variance_factor import VarianceFactor, epipolar_residuals
from lightglue_trt_ros.core.types import Float32, FrameMatches, UInt8
from lightglue_trt_ros.engines.selection import open_backend

from ..baselines import BASELINES, Description, DescriptorMatcher, KltMatcher, MatchedPoints
from ..options import OF_MATCHERS, settings_in_words
from .frames import ShownFrame
from .predictions import Prediction
from .shared_networks import SharedNetworks

RECENT = 3  # images whose keypoints and descriptors a baseline keeps
GPU_STAGES = ('extract', 'match')
NEVER_S = 3600.0  # a gap that no recording has: the evaluation decides where a sequence breaks


class Alone(NamedTuple):
    """A method as it runs by itself, sharing nothing, to be timed."""

    process: Callable[[ShownFrame], dict[str, float]]  # the milliseconds of its stages, and gpu_ms
    reset: Callable[[], object]  # the next frame is a first one


def correspondences(matches: FrameMatches) -> MatchedPoints:
    """Of a frame, with their covariances."""
    return MatchedPoints(matches.reference_keypoints, matches.keypoints, matches.covariances)


class OurMethod:
    """FrameMatcher as the node runs it, each frame against the one before; several may share their networks.

    Used by the thread that made it.
    """

    ours = True

    def __init__(self, name: str, networks: SharedNetworks, config: MatcherConfig, mask: Mask | None = None) -> None:
        self.name, self._networks, self._mask = name, networks, mask
        self.networks = name  # the first method that shares them
        self._config = dataclasses.replace(config, reference='previous', max_gap_s=NEVER_S)
        self.description = f'{networks.description}, {settings_in_words(config)}, {_opencv()}'
        self.engine = {'backend': networks.backend_name, 'image_height': networks.spec.image_height,
                       'image_width': networks.spec.image_width, 'max_keypoints': networks.spec.max_keypoints}

    def stream(self, camera: int = 0) -> _OurStream:
        """A new sequence of frames; each stride has one. Only those of one `camera` share features where a backend has few."""
        return _OurStream(self._networks, FrameMatcher(self._networks, self._config), self._mask, camera)

    def alone(self) -> Alone:
        """The node's own FrameMatcher on the networks themselves."""
        backend = self._networks.backend
        frames = FrameMatcher(backend, self._config)
        device_ms: Callable[[], dict[str, float]] = getattr(backend, 'device_ms', dict)

        def process(shown: ShownFrame) -> dict[str, float]:
            matches = _processed(frames, shown, self._mask)
            return {} if matches is None else matches.stage_ms | {'gpu_ms': sum(device_ms().get(name, 0.0) for name in GPU_STAGES)}

        return Alone(process, frames.reset)

    def close(self) -> None:
        self._networks.close()


class _OurStream:
    def __init__(self, networks: SharedNetworks, frames: FrameMatcher, mask: Mask | None, camera: int) -> None:
        self._networks, self._frames, self._mask, self._camera = networks, frames, mask, camera

    def process(self, shown: ShownFrame) -> Prediction | None:
        """Match a frame with the one before; None for a first one."""
        self._networks.show(shown.image, self._camera)
        matches = _processed(self._frames, shown, self._mask)
        if matches is None:
            return None
        points, tracked = map(correspondences, (matches.matched(), matches))
        return Prediction(points, matches.layers, self._networks.rows, tracked, matches)

    def reset(self) -> None:
        self._frames.reset()


def _processed(frames: FrameMatcher, shown: ShownFrame, mask: Mask | None) -> FrameMatches | None:
    depth = None if shown.depth is None else shown.depth.given
    return frames.process(shown.image, shown.seconds, shown.right, mask=mask, depth=depth, camera=shown.camera)


class Baseline:
    """One of BASELINES with as many keypoints as ours, under the same mask; each frame is described once.

    The mask is grown by `mask_margin` pixels of the image. Used by one thread at a time.
    """

    ours, engine, networks = False, None, ''

    def __init__(self, key: str, features: int, mask: Mask | None = None, mask_margin: float = 0.0) -> None:
        self._key, self._features, self._mask, self._mask_margin = key, features, mask, mask_margin
        self._described: deque[tuple[UInt8, Description]] = deque(maxlen=RECENT)
        self.name = key.upper()
        self.description = f'{getattr(BASELINES[key](features), "name", key)}, {_opencv()}'

    def stream(self, camera: int = 0) -> _BaselineStream:
        matcher = self._matcher()
        if isinstance(matcher, DescriptorMatcher):
            matcher.described = self._described
        return _BaselineStream(matcher)

    def alone(self) -> Alone:
        """Without covariances, which are not its own."""
        matcher = self._matcher()

        def process(shown: ShownFrame) -> dict[str, float]:
            matcher.process(shown.image)
            return {}

        return Alone(process, matcher.reset)

    def _matcher(self) -> DescriptorMatcher | KltMatcher:
        matcher = BASELINES[self._key](self._features)
        matcher.mask, matcher.mask_margin = self._mask, self._mask_margin
        return matcher

    def close(self) -> None:
        """Nothing is held."""


class _BaselineStream:
    """Points of a baseline get covariances from their patches, as ours do, so that the comparison is fair."""

    def __init__(self, matcher: DescriptorMatcher | KltMatcher) -> None:
        self._matcher, self._variance_factor = matcher, VarianceFactor()
        self._previous: UInt8 | None = None

    def process(self, shown: ShownFrame) -> Prediction | None:
        image, points = shown.image, self._matcher.process(shown.image)
        previous, self._previous = self._previous, image
        if points is None or previous is None or previous.shape != image.shape:
            return None if points is None else Prediction(points)
        covariances = covariances_at(Pyramid(previous), Pyramid(image), points.reference, points.current)  # one a stride
        factor = np.float32(updated(self._variance_factor, points.reference, points.current, covariances, shown.camera))
        return Prediction(points._replace(covariances=covariances * factor))

    def reset(self) -> None:
        self._matcher.reset()
        self._previous = None


def updated(factor: VarianceFactor, before: Float32, after: Float32, covariances: Float32,
            camera: Intrinsics | None = None) -> float:
    """The factor after M matches of images as large as the extractor's, as `epipolar_residuals` takes them."""
    measured = epipolar_residuals(before, after, covariances, 1.0, factor.fit_limit, camera)
    factor.add(measured.quantile, measured.inliers, measured.second_quantile)
    return factor.value


Method = OurMethod | Baseline


def by_networks(wanted: dict[str, MatcherConfig]) -> list[dict[str, MatcherConfig]]:
    """Groups of variants that share their networks: they differ only in settings that are of no backend.

    Not in `mask_margin`, by which a frame's features differ.
    """
    groups: dict[MatcherConfig, dict[str, MatcherConfig]] = {}
    defaults = {name: getattr(MatcherConfig(), name) for name in OF_MATCHERS if name != 'mask_margin'}
    for name, config in wanted.items():
        groups.setdefault(dataclasses.replace(config, **defaults), {})[name] = config
    return list(groups.values())


def open_methods(group: dict[str, MatcherConfig], mask: Mask | None = None) -> tuple[list[OurMethod], str]:
    """The methods of one of the groups of `by_networks`, and a warning if they run otherwise than asked.

    A missing GPU gives no warning, unless it was asked for. Raises EngineError.
    """
    first, *others = group
    opened = open_backend(group[first])
    networks = SharedNetworks(opened.backend, group.values())
    methods = [OurMethod(name, networks, config, mask) for name, config in group.items()]
    for method, name in zip(methods[1:], others, strict=True):
        method.networks = first
        method.description = f'as {first}, but {settings_in_words(group[name], group[first])}'
    return methods, f'{", ".join(group)}: {opened.warning}' if opened.warning and not opened.without_gpu else ''


def _opencv() -> str:
    count = cv2.getNumThreads()
    return f'OpenCV with {count} thread{"s" * (count != 1)}'


def covariances_at(reference: Pyramid, current: Pyramid, reference_points: Float32, current_points: Float32) -> Float32:
    """Covariances (M, 2, 2), pixels squared, of points of another method, by the patches at these points."""
    still = COARSE._replace(steps=0), FINE._replace(steps=0)
    return refine_points(reference, current, reference_points, current_points, still).covariances
