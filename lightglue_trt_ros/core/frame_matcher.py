"""FrameMatcher: camera frames in, correspondences out. A backend runs the networks; no ROS here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from ..utils.errors import ConfigError, FrameError
from .backend import Backend, refining_backend
from .cameras import Intrinsics, StereoRig
from .cells import per_cell
from .config import MatcherConfig
from .correspondences import Correspondences, Sought
from .depth import DepthImage, check_unit, locate
from .depth_zero import DepthZero, evidence_of
from .frame_pair import TrackedFrame, TrackedPair
from .geometry import resize_gray, size_of, size_text, unit_of
from .images import check_gray
from .keyframes import Keyframes, match_keyframes
from .masks import Mask
from .refinement import Pyramid
from .refinement.variance_factor import VarianceFactor
from .static_points import Judged, StaticPoints
from .stereo import RightImage, check_epipolar
from .timing import Stopwatch
from .track_propagation import MAX_SIGMA_PX
from .tracks import TrackCounter, Tracks
from .types import FrameMatches, Matches, Rows, UInt8, largest_sigmas


class _Found(NamedTuple):
    """A frame's correspondences with its reference."""

    answer: Matches
    correspondences: Correspondences
    judged: Judged


class FrameMatcher:
    """Matches every frame with its reference, extracting each frame once.

    ```python
    matcher = FrameMatcher(open_backend(config).backend, config)
    for stamp, image in camera:
        matches = matcher.process(image, stamp)
    ```
    """

    def __init__(self, backend: Backend, config: MatcherConfig, counter: TrackCounter | None = None) -> None:
        """`counter` gives out track ids: share one to continue the ids of an earlier matcher."""
        if not hasattr(backend, 'extract'):
            raise ConfigError(f'{type(backend).__name__} is no backend: give FrameMatcher open_backend(config).backend')
        self.backend, self.config = backend, config
        self.last_reset = ''  # reason of the last reset; empty before the first
        self.resets = 0
        self._reference: TrackedFrame | None = None
        self._between: TrackedFrame | None = None  # of the other kind, where two kinds of frames alternate
        self._last_stamp: float | None = None
        self._counter = counter or TrackCounter()
        self._variance_factor = VarianceFactor()
        self.depth_zero = DepthZero()
        self._camera: Intrinsics | None = None
        self._refiner = refining_backend(backend)
        self.static_points, self._static_between = (StaticPoints(backend.spec.size, config.static_points) for _ in range(2))
        self.keyframes = Keyframes(config.keyframes) if config.keyframes else None

    def process(self, image: UInt8, stamp: float, right: RightImage | None = None, *, mask: Mask | None = None,
                depth: DepthImage | Callable[[], DepthImage | None] | None = None,
                camera: Intrinsics | None = None) -> FrameMatches | None:
        """Match a frame with its reference, and with its right image; with that, or with `depth`, points get positions.

        Args:
            image: gray uint8 (H, W).
            stamp: seconds.
            right: right image of a stereo pair, of the same size.
            mask: no point is where it is 0, and no keypoint within `mask_margin` of there.
            depth: registered to the image, of its size; or a function that is asked for it once the frame is matched.
            camera: that took the image. Its lens then counts in covariances and checks; without, that of `right` or `depth` counts,
                else the image is a pinhole's. Another one than that of the frame before starts anew.

        Returns:
            None for a frame without a reference: the first one, and the first after a reset. Its right image is not used.

        Raises:
            FrameError: the image is not gray uint8, mask, depth or camera have another size, the stamp repeats, or a right image
                comes while `reference` is alternate. The frame is dropped.
            BagError: the camera's distortion model is unknown.
            EngineError: the backend failed.
        """
        self._check(image, stamp, right, mask)
        camera = _check_others(image, right, None if callable(depth) else depth, camera)
        self._reset_if_interrupted(image, stamp)
        self._use(camera)
        self._last_stamp = stamp

        clock, reference = Stopwatch(), self._reference
        recorded, image = image, self.static_points.corrected(image)
        current = self._extract(image, stamp, clock, mask)
        if reference is None:
            self._take(current)
            return None
        right_frame = None
        if right is not None:  # before the host waits for matches: a GPU goes on meanwhile
            right_frame = self._extract(right.image, stamp, Stopwatch(), of_right=True)
            clock.lap('extract right')
        matches, rows, of_reference, judged = self._match(TrackedPair(self.backend, reference, current), clock)
        if right is not None and right_frame is not None:
            matches = self._match_right(matches, TrackedPair(self.backend, current, right_frame), right.rig, rows)
            clock.lap('match right')
        if callable(depth):
            depth = depth()
            _check_others(image, None, depth)
        if depth is not None:
            matches = dataclasses.replace(matches, **locate(depth, matches.keypoints, matches.covariances)._asdict())
            clock.lap('depth')
        if self.keyframes is not None and self.keyframes.wants(matches, self.config.keyframe_min_ratio):
            self.keyframes.take(self.backend, image, current.points, current.features, matches, rows, depth, self._camera)
        reference.tracks = of_reference  # from here on nothing fails: a frame that is dropped has changed no tracks
        self.static_points.learn(recorded, judged)
        if (standing := self.static_points.standing) is not None:
            matches = dataclasses.replace(matches, standing=standing)
        if self._is_next_reference(reference, current, matches):
            self._take(current)
        return self._published(matches, mask, current)

    def matches_between(self, keyframe_a: float, keyframe_b: float) -> FrameMatches:
        """Match two of the last keyframes, named by their stamps in seconds: the reference, and the current one.

        Both are kept in the backend: nothing is extracted. Raises FrameError for a stamp that no keyframe has, EngineError.
        """
        if self.keyframes is None:
            raise FrameError('no keyframes are kept: set keyframes to their number')
        return match_keyframes(self.backend, self.config, self.keyframes.of(keyframe_a), self.keyframes.of(keyframe_b))

    def reset(self, reason: str = 'requested') -> None:
        """Forget reference and tracks: the next frame starts anew. Track ids go on counting, and keyframes stay."""
        self.last_reset = reason
        self.resets += self._reference is not None
        self._reference = self._between = self._last_stamp = None
        for points in (self.static_points, self._static_between):
            points.forget_tracks()

    def _check(self, image: UInt8, stamp: float, right: RightImage | None, mask: Mask | None) -> None:
        check_gray(image, 'the image')
        if not isinstance(stamp, Real) or not math.isfinite(stamp):
            raise FrameError(f'the stamp is {stamp!r}: it must be seconds')
        if stamp == self._last_stamp:
            raise FrameError(f'the stamp {stamp:.6f} s stands still: the camera repeats a frame or does not stamp its images')
        if right is not None and self.config.reference == 'alternate':
            raise FrameError('reference is alternate, which a stereo pair cannot have: set it to previous')
        if mask is not None:
            _of_kind(mask, Mask).check(size_of(image), self.backend.spec.size)

    def _reset_if_interrupted(self, image: UInt8, stamp: float) -> None:
        reference, last = self._reference, self._last_stamp
        if last is not None and stamp < last:
            self.reset(f'time went back by {last - stamp:.3f} s: a recording began again, or the stamps are wrong')
        elif last is not None and stamp - last > self.config.max_gap_s:
            self.reset(f'a gap of {stamp - last:.3f} s, more than max_gap_s = {self.config.max_gap_s}: check the stamps and '
                       'the dropped frames, or raise max_gap_s')
        elif reference is not None and reference.size != image.shape:
            self.reset(f'the image size changed from {size_text(reference.size)} to {size_text(size_of(image))}: do several '
                       'cameras publish on this topic?')

    def _use(self, camera: Intrinsics | None) -> None:
        """Take the calibration of the frame's camera. The first one changes no pixel, so tracks go on; the factor begins anew."""
        before = self._camera
        if camera is not before and not (camera and before and camera.lens.same_as(before.lens)):  # another object may be as it
            if camera is not None:
                _ = camera.lens  # raises for an unknown model, before anything has changed
                if before is not None:
                    self.reset(f'the calibration changed from {before} to {camera}')
            self._camera, self._variance_factor = camera, VarianceFactor()

    def _extract(self, image: UInt8, stamp: float, clock: Stopwatch, mask: Mask | None = None, *,
                 of_right: bool = False) -> TrackedFrame:
        """Extract features, and keep the image for refinement: in the backend where that refines, else as a pyramid."""
        refine, pyramid, spec, size = self.config.refinement != 'none', None, self.backend.spec, size_of(image)
        refiner = self._refiner if refine else None
        allowed = None if mask is None else mask.grown(spec.size, self.config.mask_margin)
        if not of_right:
            allowed = self.static_points.pixels.allowed(allowed)
        if refiner is not None:
            features = refiner.extract_frame(image, allowed)
        else:
            resized = resize_gray(image, spec.size)
            pyramid = Pyramid(image, unit_of(size, spec.size)) if refine else None
            clock.lap('resize')
            features = self.backend.extract(resized, allowed)
        clock.lap('extract')
        return TrackedFrame(stamp, size, spec.size, features, Tracks.empty(spec.max_keypoints), mask, pyramid, refiner)

    def _match(self, pair: TrackedPair, clock: Stopwatch) -> tuple[FrameMatches, Rows, Tracks, Judged]:
        """Match, refine, propagate. Returns M matches, their rows (M,) in the current frame, and what is kept when it is used.

        That is the reference's tracks, and what the static points judged.
        """
        reference, current = pair.reference, pair.current
        sought = Sought(reference.points, reference.tracks.may_miss(self.config.carry_frames), current.mask,
                        self._variance_factor.fit_limit, self._camera)
        found, refused = self._find_at_zero(pair, sought, clock)
        if found is None:
            tried = pair.match(self.config.thresholds(self.backend.score_calibration), sought)
            clock.lap('match')
            found = self._complete(pair, sought, *tried, clock)
        answer, correspondences, judged = found
        if judged.foreign is not None and self.config.static_points != 'keep':
            correspondences = correspondences.without(judged.foreign)
        rows, next_rows = correspondences.rows, correspondences.next_rows
        of_reference, tracks = reference.tracks.follow(rows, next_rows, correspondences.matched, len(answer.indices), self._counter)
        current.tracks = tracks
        clock.lap('track')
        current.points = correspondences.merged_into(current.points)  # the next frame starts from there
        self._variance_factor.add(correspondences.quantile, correspondences.inliers, correspondences.second_quantile,
                                  by_layers=answer.layers > 0)
        matches = FrameMatches(
            current.stamp, reference.stamp, correspondences.points, correspondences.reference_points,
            self.backend.score_calibration.after(answer.layers).probability(correspondences.scores),
            tracks.ids.take(next_rows).astype(np.uint32), tracks.lengths.take(next_rows).astype(np.uint32),
            correspondences.covariances * np.float32(self._variance_factor.value), tracks.missed.take(next_rows).astype(np.uint8),
            clock.laps, answer.layers, '; '.join(filter(None, (refused, answer.note))))
        return matches, next_rows, of_reference, judged

    def _find_at_zero(self, pair: TrackedPair, sought: Sought, clock: Stopwatch) -> tuple[_Found | None, str]:
        """Match before the first layer; None where that is not tried or not enough, and the note of its answer then.

        The fit may be an unlikely one: it is not tried again from samples, which takes long, as its few inliers refuse it.
        """
        if not (self.backend.early_exits.at_zero and self.config.depth_confidence >= 0 and self.depth_zero.due()):
            return None, ''
        found, thresholds = None, self.config.thresholds(self.backend.score_calibration.after(0), at_zero=True)
        sought = sought._replace(fit_limit=math.inf)
        detected = int(np.count_nonzero(pair.reference.features.scores > thresholds.detection))
        keypoints = per_cell(pair.reference.points[:detected], pair.reference.size)  # a GPU extracts meanwhile
        answer, correspondences = pair.match(thresholds, sought)
        clock.lap('match')
        fewer = min(detected, int(np.count_nonzero(pair.current.features.scores > thresholds.detection)))
        if self.depth_zero.enough(int(np.count_nonzero(answer.indices >= 0)), fewer, len(answer.indices)):
            found = self._complete(pair, sought, answer, correspondences, clock)
            shown = evidence_of(found.correspondences, found.judged.foreign, keypoints, pair.current.size)
            found = found if self.depth_zero.is_sure(shown) else None
        self.depth_zero.learn(found is not None)
        return found, '' if found else answer.note

    def _complete(self, pair: TrackedPair, sought: Sought, answer: Matches, correspondences: Correspondences | None,
                  clock: Stopwatch) -> _Found:
        """Correspondences by the host, where the backend has found none, and what stands still among them."""
        if correspondences is None:
            answer, correspondences = pair.correspond(answer, sought)
        if pair.current.can_be_refined:
            clock.lap('place')
        if self.config.reference == 'keyframe':  # the rows before are always its own
            self.static_points.forget_tracks()
        judged = self.static_points.judge(correspondences.rows, correspondences.next_rows, correspondences.reference_points,
                                          correspondences.points, pair.current.size, pair.current.unit)
        return _Found(answer, correspondences, judged)

    def _match_right(self, matches: FrameMatches, pair: TrackedPair, rig: StereoRig, rows: Rows) -> FrameMatches:
        """Find the left frame's matches, whose points are its `rows` (M,), in the right image.

        Unmatched points need the covariances of propagated points.
        """
        left, unit = pair.reference.points, max(1.0, pair.reference.unit)
        points, refined = pair.matched_and_refined(rows, self.config.thresholds(self.backend.score_calibration))
        accepted = np.isfinite(points).all(axis=1) | (largest_sigmas(refined.covariances) < MAX_SIGMA_PX * unit)
        covariances = refined.covariances * np.float32(self._variance_factor.value)
        stereo = check_epipolar(rig, left[rows], np.where(accepted[:, None], refined.points, points), covariances, unit)
        note = '; '.join(filter(None, (matches.note, stereo.note)))
        return dataclasses.replace(matches, right_keypoints=stereo.points, note=note, **stereo.positions._asdict())

    def _take(self, current: TrackedFrame) -> None:
        """The frame is the next one's reference, or where two kinds of frames alternate, of the one after that."""
        if self.config.reference == 'alternate':
            self._reference, self._between = self._between, current
            self.static_points, self._static_between = self._static_between, self.static_points  # another pattern, other rows
        else:
            self._reference, self._between = current, None

    def _published(self, matches: FrameMatches, mask: Mask | None, current: TrackedFrame) -> FrameMatches:
        """Without points behind the mask, where refinement moves some that are near its edge, and without uncertain ones."""
        if mask is not None:
            matches = matches.only(mask.allows(matches.keypoints, current.size))
            if doubt := mask.doubt(self.backend.spec.size, self.config.mask_margin):
                matches = dataclasses.replace(matches, note='; '.join(filter(None, (matches.note, doubt))))
        return matches.well_known(self.config.max_sigma_px) if self.config.max_sigma_px else matches

    def _is_next_reference(self, reference: TrackedFrame, current: TrackedFrame, matches: FrameMatches) -> bool:
        """Whether the current frame becomes the reference, by all its matches, published or not."""
        if self.config.reference != 'keyframe' or (current.can_be_refined and not reference.can_be_refined):
            return True
        detected = int(np.count_nonzero(reference.features.scores > self.config.detection_threshold))
        matched = int(np.count_nonzero(matches.carried == 0))
        return not detected or matched < self.config.keyframe_min_ratio * detected  # an empty reference would stay forever


def _check_others(image: UInt8, right: RightImage | None, depth: Any, camera: Intrinsics | None = None) -> Intrinsics | None:
    cameras = [] if camera is None else [_of_kind(camera, Intrinsics)]
    if right is not None:
        check_gray(_of_kind(right, RightImage).image, 'the right image')
        if right.image.shape != image.shape:
            raise FrameError(f'the right image is {right.image.shape}, the left one {image.shape}: they must be alike')
        cameras += [_of_kind(right.rig, StereoRig).left, right.rig.right]
    if depth is not None:
        pixels = _of_kind(_of_kind(depth, DepthImage).pixels, np.ndarray)
        if pixels.shape != image.shape or pixels.dtype.itemsize < 2 or not 0 < depth.unit_m < math.inf:
            raise FrameError(f'the depth image is {pixels.dtype} {pixels.shape} of {depth.unit_m} m, the image {image.shape}: '
                             'register it to the image, read 16 bits or more, and set unit_m')
        check_unit(pixels, depth.unit_m)
        cameras += [_of_kind(depth.camera, Intrinsics)]
    for each in cameras:
        if each.size != image.shape:
            raise FrameError(f'the calibration is for {each.width}x{each.height} pixels, the image has '
                             f'{size_text(size_of(image))}: give that of these images')
    return camera or next((each for each in cameras[:1] if each.lens.distorts), None)


def _of_kind(given: Any, kind: type) -> Any:
    if not isinstance(given, kind):
        raise FrameError(f'{type(given).__name__} is given where process takes {kind.__name__}, see docs/python.md')
    return given
