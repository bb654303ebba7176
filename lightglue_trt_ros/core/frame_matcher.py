"""Frame in, correspondences out. No ROS and no GPU here: a backend does the arithmetic."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from ..utils.errors import FrameError
from .backend import Backend, RefiningBackend, refining_backend
from .cameras import StereoRig
from .config import MatcherConfig
from .epipolar_check import RightImage, StereoMatches, check_epipolar
from .geometry import Size, resize_gray, size_of, to_original
from .masks import Mask
from .refinement import Pyramid, Refined, refine_all, unrefined
from .refinement.variance_factor import VarianceFactor
from .timing import Stopwatch
from .track_propagation import MAX_SIGMA_PX, Candidates, propagate
from .tracks import TrackCounter, Tracks
from .types import Features, Float32, FrameMatches, Matches, Rows, Thresholds, UInt8, largest_sigmas


@dataclass
class _Frame:
    """A frame that later ones may be matched against: its features stay where the backend left them."""

    stamp: float
    size: Size
    features: Features
    tracks: Tracks
    pyramid: Pyramid | None  # of its image; None where points are not placed, or the backend has it
    placer: RefiningBackend | None  # the backend, where that has it
    mask: Mask | None
    points: Float32 | None = None  # (K + C, 2) pixels of the image: the features', finer where matched, then what is carried

    @property
    def can_be_refined(self) -> bool:
        """Whether its image was kept, so that points can be refined in it."""
        return self.pyramid is not None or self.placer is not None


class FrameMatcher:
    """Matches every frame with its reference, extracting each frame once.

        matcher = FrameMatcher(open_backend(config).backend, config)
        for stamp, image in camera:
            matches = matcher.process(image, stamp)
    """

    def __init__(self, backend: Backend, config: MatcherConfig, counter: TrackCounter | None = None) -> None:
        """With the `counter` of a matcher before this one, track ids go on from there."""
        self.backend, self.config = backend, config
        self.last_reset = ''  # why the reference was forgotten last; empty while it never was
        self.resets = 0
        self._reference: _Frame | None = None
        self._last_stamp: float | None = None
        self._counter = counter or TrackCounter()
        self._variance_factor = VarianceFactor()
        self._placer = refining_backend(backend)

    def process(self, image: UInt8, stamp: float, right: RightImage | None = None, *,
                mask: Mask | None = None) -> FrameMatches | None:
        """Match a gray image, uint8 (H, W), taken at `stamp` seconds, with its reference, and with its `right` image.

        No point is where `mask` is 0. None for a frame that has no reference: the first one, and the first after a reset; its right
        image is not looked at.
        Raises FrameError for an image that is not gray uint8, a mask of another size or a stamp that stands still (the frame is
        dropped, nothing is forgotten), EngineError when the backend fails.
        """
        _check(image, stamp, self._last_stamp)
        if mask is not None:
            mask.check(size_of(image), self._engine_size)
        if right is not None and (right.image.shape != image.shape or right.image.dtype != np.uint8):
            raise FrameError(f'the right image is {right.image.dtype} {right.image.shape}, the left one {image.dtype} '
                             f'{image.shape}: they must be alike')
        self._reset_if_interrupted(image, stamp)
        self._last_stamp = stamp

        clock = Stopwatch()
        current = self._extract(image, stamp, clock, mask)
        reference = self._reference
        if reference is None:
            self._reference = current
            return None
        beside = None
        if right is not None:
            beside = self._extract(right.image, stamp, Stopwatch())  # before the host waits for matches: a GPU goes on meanwhile
            clock.lap('extract right')
        matches, rows = self._match(reference, current, clock)
        if right is not None and beside is not None:
            across = self._match_across(current, beside, right.rig, rows)
            clock.lap('match right')
            matches = dataclasses.replace(matches, right_keypoints=across.points,
                                          note='; '.join(filter(None, (matches.note, across.note))))
        if self._is_next_reference(reference, current, matches):
            self._reference = current
        if mask is not None:  # at its edge matches may be placed behind it
            matches = matches.only(mask.allows(matches.keypoints, current.size))
        if self.config.max_sigma_px:
            matches = matches.well_known(self.config.max_sigma_px)
        return matches

    def reset(self, reason: str = 'requested') -> None:
        """Forget reference and tracks: the next frame starts anew. Track ids go on counting."""
        self.last_reset = reason
        self.resets += self._reference is not None
        self._reference, self._last_stamp = None, None

    def _reset_if_interrupted(self, image: UInt8, stamp: float) -> None:
        reference, last = self._reference, self._last_stamp
        if last is not None and stamp < last:
            self.reset(f'time went back by {last - stamp:.3f} s: a recording began again, or the stamps are wrong')
        elif last is not None and stamp - last > self.config.max_gap_s:
            self.reset(f'a gap of {stamp - last:.3f} s, more than max_gap_s = {self.config.max_gap_s}: check the stamps, or '
                       'raise it')
        elif reference is not None and reference.size != image.shape:
            self.reset(f'the image size changed from {_text(reference.size)} to {_text(image.shape)}: does one camera '
                       'alone publish?')

    def _extract(self, image: UInt8, stamp: float, clock: Stopwatch, mask: Mask | None = None) -> _Frame:
        """A frame's features, and what points are placed by: in the backend, where that takes the camera's own frames."""
        size, tracks = size_of(image), Tracks.empty(self.backend.spec.max_keypoints)
        placed, placer = self.config.refinement != 'none', self._placer
        allowed = None if mask is None else mask.resized(self._engine_size)
        if placed and placer is not None:
            features = placer.extract_frame(image, allowed)
            clock.lap('extract')
            return _Frame(stamp, size, features, tracks, None, placer, mask)
        resized = resize_gray(image, self._engine_size)
        pyramid = Pyramid(image, self._unit(size)) if placed else None
        clock.lap('resize')
        features = self.backend.extract(resized, allowed)
        clock.lap('extract')
        return _Frame(stamp, size, features, tracks, pyramid, None, mask)

    def _match(self, reference: _Frame, current: _Frame, clock: Stopwatch) -> tuple[FrameMatches, Rows]:
        """The matches, and the current frame's rows that they are of, both (M,)."""
        found, everything = self._compare(reference, current)
        clock.lap('match')
        rows = np.flatnonzero(found.indices >= 0)
        current_rows = found.indices.take(rows).astype(np.intp)
        current.tracks = reference.tracks.follow(rows, current_rows, len(found.indices), self._counter)
        clock.lap('track')
        placed, candidates = self._place(reference, current, rows, current_rows, everything)
        self._points(current)[current_rows] = placed.points  # the next frame goes on from there
        if current.mask is not None:  # what goes behind it ends there
            candidates = candidates.only(current.mask.allows(candidates.placed.points, current.size))
        carried = propagate(candidates, self._points(current), current_rows, current.size, self._variance_factor.fundamental,
                        self._unit(current.size))
        reference.tracks.propagate(current.tracks, carried.rows, carried.next_rows)
        current.points = carried.among(self._points(current))
        if current.can_be_refined:
            clock.lap('place')
        scores = np.concatenate([found.scores.take(rows), np.zeros(len(carried.rows), np.float32)])
        rows, current_rows = np.concatenate([rows, carried.rows]), np.concatenate([current_rows, carried.next_rows])
        covariances = np.concatenate([placed.covariances, carried.placed.covariances])
        covariances *= np.float32(self._variance_factor.value)
        matches = FrameMatches(
            current.stamp, reference.stamp, current.points.take(current_rows, axis=0), self._points(reference).take(rows, axis=0),
            scores, *current.tracks.published(current_rows), covariances,
            current.tracks.missed.take(current_rows).astype(np.uint8), clock.laps, found.layers, found.note)
        return matches, current_rows

    def _match_across(self, left: _Frame, right: _Frame, rig: StereoRig, rows: Rows) -> StereoMatches:
        """Where the left frame's points `rows` (M,) are in the right image.

        Those that match there are placed from their matches on; the others are looked for where the matches around them went, and
        must be known as well as what is carried.
        """
        found, everything = self._compare(left, right)
        there, unit = found.indices[np.minimum(rows, len(found.indices) - 1)], max(1.0, self._unit(left.size))
        matched = (rows < len(found.indices)) & (there >= 0)
        points = np.full((len(rows), 2), np.nan, np.float32)
        points[matched] = self._points(right)[there[matched]]
        looked = self._points(left)[rows]
        if everything is not None:
            placed = everything.of(rows)
        elif left.pyramid is not None and right.pyramid is not None and matched.any():
            placed = Refined(np.empty_like(points), np.empty((len(rows), 2, 2), np.float32))
            for group, part in zip((matched, ~matched), refine_all(left.pyramid, right.pyramid, looked[matched], points[matched],
                                                                  looked[~matched]), strict=True):
                placed.points[group], placed.covariances[group] = part
        else:
            return check_epipolar(rig, looked, points, unit)
        known = matched | (largest_sigmas(placed.covariances) < MAX_SIGMA_PX * unit)
        return check_epipolar(rig, looked, np.where(known[:, None], placed.points, points), unit)

    def _compare(self, reference: _Frame, current: _Frame) -> tuple[Matches, Refined | None]:
        """What LightGlue finds, and where everything of the reference is in the current frame if the backend places points."""
        thresholds = Thresholds(self.config.match_threshold, self.config.detection_threshold, self.config.depth_confidence)
        placer = current.placer if reference.placer else None
        if placer is not None:
            found, everything = placer.match_and_refine(reference.features, current.features, thresholds, self._points(reference))
        else:
            found, everything = self.backend.match(reference.features, current.features, thresholds), None
        return found.finite(self._points(reference), self._points(current)), everything

    def _place(self, reference: _Frame, current: _Frame, rows: Rows, current_rows: Rows,
               everything: Refined | None) -> tuple[Refined, Candidates]:
        """Where the current frame's matched points are, and where those may be that are on a track and were not matched.

        The backend may have placed everything already. A reference from before points were placed has nothing to compare with;
        without matches nothing says where to look.
        """
        points, every_point = self._points(current).take(current_rows, axis=0), self._points(reference)
        unit = max(1.0, self._unit(current.size))
        lost = reference.tracks.missed_at_most(self.config.carry_frames if len(rows) else 0)
        reference_points, lost_points = every_point.take(rows, axis=0), every_point.take(lost, axis=0)
        if everything is not None:
            placed = everything.of(rows).with_fallback(points, unit)
            candidates = Candidates(lost, lost_points, everything.of(lost))
        elif reference.pyramid is not None and current.pyramid is not None:
            placed, others = refine_all(reference.pyramid, current.pyramid, reference_points, points, lost_points)
            candidates = Candidates(lost, lost_points, others)
        else:
            placed, candidates = Refined(points, unrefined(len(points), unit)), Candidates.none()
        self._variance_factor.update(reference_points, placed.points, placed.covariances, unit)
        return placed, candidates

    def _unit(self, size: Size) -> float:
        """Pixels of the camera's image that one of the engine's is."""
        return max(whole / part for whole, part in zip(size, self._engine_size, strict=True))

    @property
    def _engine_size(self) -> Size:
        return self.backend.spec.image_height, self.backend.spec.image_width

    def _points(self, frame: _Frame) -> Float32:
        """(K + C, 2) pixels of the frame's own image."""
        if frame.points is None:
            frame.points = to_original(frame.features.keypoints, self._engine_size, frame.size)
        return frame.points

    def _is_next_reference(self, reference: _Frame, current: _Frame, matches: FrameMatches) -> bool:
        """By all that matched, published or not."""
        if self.config.reference == 'previous' or (current.can_be_refined and not reference.can_be_refined):
            return True
        detected = int(np.count_nonzero(reference.features.scores > self.config.detection_threshold))
        matched = int(np.count_nonzero(matches.carried == 0))
        return not detected or matched < self.config.keyframe_min_ratio * detected  # without any it would stay forever


def _check(image: UInt8, stamp: float, last: float | None) -> None:
    if image.ndim != 2 or image.dtype != np.uint8 or not image.size:
        raise FrameError(f'the image is {image.dtype} {image.shape}: FrameMatcher takes gray uint8 (H, W)')
    if not np.isfinite(stamp):
        raise FrameError(f'the stamp is {stamp}: it must be seconds')
    if stamp == last:
        raise FrameError(f'the stamp {stamp:.6f} s stands still: the camera repeats a frame or does not stamp its images')


def _text(size: Size) -> str:
    return f'{size[1]}x{size[0]}'
