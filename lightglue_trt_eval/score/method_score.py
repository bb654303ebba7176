"""Predictions to results: a row for each pair, the tracks, the trajectory, and the worst pairs of each method."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.cameras import Intrinsics, StereoRig
from lightglue_trt_ros.core.geometry import fitting_size, unit_of
from lightglue_trt_ros.core.refinement import SMALL
from lightglue_trt_ros.core.types import Float32, Float64
from lightglue_trt_ros.odometry.two_view import PoseEstimator

from ..baselines import MatchedPoints
from ..predict.predictions import FramePredictions, Predicted, Prediction, Predictions
from ..predict.scene import SECOND, Scene
from .agreement_check import disagreement, misfit
from .depth_accuracy import DepthScore
from .match_check import MatchCheck
from .metrics import DEVIATION_EDGES, ERROR_EDGES_PX, DrawnPair, MatcherResult, PairResult, table_of
from .pair_score import Agreement, PairScore, agreement, agreement_of_rows, failure_reasons, returning_share, score_points
from .shutter_check import exposure_doubts
from .standing_check import StandingCheck
from .stereo_accuracy import StereoScore
from .trajectory import TwoViewOdometry
from .truth_check import TruthCheck
from .zoom_check import zoom_doubts

WORST = 5  # pairs that are kept


def score(predictions: Predictions, scene: Scene, estimator: PoseEstimator, depth: bool = False,
          rig: StereoRig | None = None) -> tuple[list[MatcherResult], list[str]]:
    """The results of all methods, and lines about them; `depth`: also those of depth images, and the first's by a stereo `rig`."""
    scene.measured = predictions.measured
    first, scores = predictions.methods[0], []
    for method in predictions.methods:
        by_depth = DepthScore(scene.intrinsics) if depth and method.ours and scene.intrinsics is not None else None
        scores.append(MethodScore(method, scene, estimator, by_depth, StereoScore(rig) if rig and method is first else None))

    def scored(own: MethodScore) -> MatcherResult:
        compared = predictions.of(first) if own.method.ours and own.method is not first else repeat(None)
        return own.all_of(predictions.of(own.method), compared, bool(first.networks) and own.method.networks == first.networks)

    with ThreadPoolExecutor(len(scores), 'score') as threads:
        results = list(threads.map(scored, scores))
    lines = [f'{name}: {advice}' for name, each in (('stereo', scores[0].stereo), ('depth', scores[0].depth))
             if each is not None and (advice := each.advice)]
    doubts = next((doubts for each in scores if (doubts := each.doubts)), []) or scores[0].misfit
    return results, [*lines, *doubts]


class MethodScore:
    """Scores frame after frame of one method; `finish` gives its MatcherResult."""

    def __init__(self, method: Predicted, scene: Scene, estimator: PoseEstimator, depth: DepthScore | None = None,
                 stereo: StereoScore | None = None) -> None:
        """The figures of `depth` and `stereo` join the others."""
        self.method, self.depth, self.stereo = method, depth, stereo
        self.result = MatcherResult(method.name, method.description, method.ours, engine=method.engine, stage_ms=method.stage_ms,
                                    cost_ms=method.cost_ms)
        self._scene, self._estimator, self._truth_check, self._match_check = scene, estimator, TruthCheck(scene), MatchCheck(scene)
        self._standing_check, self._unit = StandingCheck(), _pixels_of(scene.intrinsics, method.engine)
        self._tracks, self._odometry = TrackLengths(), TwoViewOdometry('unit' if scene.poses is None else 'truth')
        self._chain: list[int] = []  # frames that the pairs of stride 1 joined
        self._rows: dict[int, list[PairResult]] = {}  # by stride
        self._worst: list[DrawnPair] = []  # the worst last; of equals the first last

    def all_of(self, predictions: Iterable[FramePredictions], first: Iterable[FramePredictions | None] = repeat(None),
               same_features: bool = False) -> MatcherResult:
        """The result of all predictions; compared with those of the `first` method, by rows where both have the `same_features`."""
        for own, others in zip(predictions, first, strict=False):
            self.add(own, others, same_features)
        return self.finish()

    def add(self, own: FramePredictions, first: FramePredictions | None = None, same_features: bool = False) -> None:
        """Score the predictions for a frame."""
        for stride, prediction in own.by_stride.items():
            compared = None if first is None else first.by_stride.get(stride)
            agreed = None if compared is None else _compared(compared, prediction, same_features)
            self._add_pair(stride, (own.references[stride], own.frame), prediction, agreed)
        matched, reference = own.by_stride.get(1), own.references.get(1)
        published = None if matched is None else matched.published
        poses = None if reference is None else self._scene.pose(reference), self._scene.pose(own.frame)
        if self.depth is not None:
            self.depth.add(published, own.reference_depth, *poses)
        if self.stereo is not None:
            self.stereo.add(published, *poses)
        if matched is not None and own.backward is not None:
            share = returning_share(matched.points, own.backward)
            self.result.forward_backward += [] if share is None else [share]

    def _add_pair(self, stride: int, frames: tuple[int, int], prediction: Prediction, agreed: Agreement | None) -> None:
        points = prediction.points
        motion, camera = self._scene.motion(frames), self._scene.camera(frames)
        focal_px = 0.0 if camera is None else float(camera[0, 0])
        scored, straight = score_points(self._scene, frames, points, motion, estimator=self._estimator)
        poses = None if scored.errors_px is None or self._scene.poses is None else self._scene.poses[list(frames)]
        self._standing_check.add(stride, points, scored.errors_px, self._unit, motion, focal_px, poses)
        known: dict[str, Any] = {'layers': prediction.layers}
        if agreed is not None:
            known |= zip(('retention', 'agreement_f1', 'count_ratio'), agreed, strict=True)
        if stride == 1:
            known['track_survival'] = self._follow(frames, prediction.tracked or points, scored)
        pair = dataclasses.replace(scored.pair, **known)
        self._rows.setdefault(stride, []).append(pair)
        if stride == 1:
            self._match_check.add(frames, points, straight)
            self._keep_worst(frames, pair, points, straight.points, scored)
            if not self.result.middle_pair and frames[1] >= len(self._scene.timeline) // 2:
                self.result.middle_pair = [DrawnPair(pair.frames, None, points, scored.errors_px)]

    @property
    def doubts(self) -> list[str]:
        """Lines about calibration and ground truth; rotations show most mistakes, and matches those that are left."""
        if one_picture := self._standing_check.one_picture:
            return one_picture
        of_rotations, (of_matches, are_surer) = self._truth_check.doubts, self._match_check.doubts
        named = of_matches if are_surer else of_rotations or self._standing_check.doubts or of_matches
        sample = self._match_check.sample
        return named or zoom_doubts(self._scene.intrinsics, sample) or exposure_doubts(self._scene, sample) or \
            disagreement(self.result.table(), self.result.table(2))

    @property
    def misfit(self) -> list[str]:
        """A line where matches fit no motion well. A baseline's may be imprecise in a recording that has nothing wrong."""
        return misfit(self.result.table(), self.result.forward_backward, self._scene.timeline.period_s, self._native_size())

    def _native_size(self) -> str:
        """How to match images that are much enlarged at their own size: noise in them becomes texture."""
        camera, engine = self._scene.intrinsics, self.method.engine
        if camera is None or engine is None:
            return ''
        own = fitting_size(camera.size, camera.width * camera.height)
        if self._unit > SMALL:
            return ''
        return (f'; images are enlarged from {camera.width}x{camera.height} to {engine["image_width"]}x{engine["image_height"]}, '
                f'and noise with them: try --height {own[0]} --width {own[1]}')

    def finish(self) -> MatcherResult:
        """The result, with tracks and trajectory, which are known after the last pair."""
        self.result.pairs = {stride: table_of(rows) for stride, rows in self._rows.items()}
        self.result.track_lengths, self.result.tracks_ended = self._tracks.histogram(), self._tracks.ended()
        scene, chain = self._scene, np.asarray(self._chain, np.int64)
        if len(chain) and scene.intrinsics is not None:
            self.result.odometry = self._odometry.result(
                scene.timeline.numbers[chain].tolist(), scene.timeline.stamps_ns[chain] / SECOND,
                None if scene.poses is None else scene.poses[chain])
        for metric in (self.depth, self.stereo):
            self.result.figures |= {} if metric is None else metric.figures()
        self.result.worst_pairs = sorted(self._worst, key=lambda pair: -pair.badness)
        return self.result

    def _follow(self, frames: tuple[int, int], points: MatchedPoints, scored: PairScore) -> float | None:
        """Errors, tracks and trajectory; the share of the last frame's points that were matched again."""
        if scored.errors_px is not None:
            self.result.error_histogram = _counted(self.result.error_histogram, scored.errors_px, ERROR_EDGES_PX)
        if scored.deviations is not None:
            self.result.deviation_histogram = _counted(self.result.deviation_histogram, np.abs(scored.deviations), DEVIATION_EDGES)
        if not self._chain:
            self._chain = [frames[0]]
        elif self._chain[-1] != frames[0]:  # nothing joins these two: the motion before goes on
            self._tracks.add(None)
            self._odometry.add(None, self._scene.step_m((self._chain[-1], frames[0])))
            self._chain.append(frames[0])
        self._odometry.add(scored.estimate, self._scene.step_m(frames))
        if scored.estimate is not None:
            self._truth_check.add(frames, scored.estimate.rotation)
        self._chain.append(frames[1])
        return self._tracks.add(points)

    def _keep_worst(self, frames: tuple[int, int], pair: PairResult, points: MatchedPoints,
                    undistorted: tuple[Float64, Float64], scored: PairScore) -> None:
        badness = pair.rotation_deg if pair.pose_error_deg is None else pair.pose_error_deg
        if badness is None:
            if not pair.model and pair.matches:
                return  # nothing is known about it
            badness = 1 - pair.inlier_ratio
        if len(self._worst) < WORST or badness > self._worst[0].badness:  # of equals the first stays
            scene = self._scene
            why = failure_reasons(pair, undistorted, scene.camera(frames), scene.pose(frames[0]), scene.pose(frames[1]),
                                  scored.estimate)
            drawn = DrawnPair(pair.frames, None, points, scored.errors_px, badness, why)
            self._worst = sorted([drawn, *self._worst], key=lambda each: each.badness)[-WORST:]


def _pixels_of(camera: Intrinsics | None, engine: dict[str, Any] | None) -> float:
    """Pixels of an image to one of the engine's, of a baseline to one of ours."""
    if camera is None:
        return 1.0
    size = fitting_size(camera.size) if engine is None else (engine['image_height'], engine['image_width'])
    return unit_of(camera.size, size)


def _counted(histogram: NDArray[np.int64] | None, values: Float64, edges: Float64) -> NDArray[np.int64]:
    counts = np.histogram(values, edges)[0]
    return counts if histogram is None else histogram + counts


def _compared(first: Prediction, other: Prediction, same_features: bool) -> Agreement:
    """By rows if both matched the same features, refined or not; else by positions."""
    if same_features and first.rows is not None and other.rows is not None:
        return agreement_of_rows(first.rows, other.rows)
    return agreement(first.points, other.points)


class TrackLengths:
    """How long points are matched on, over pairs of consecutive frames: (0, 1), (1, 2) ...

    A pair's reference point goes on with the track whose current point in the pair before has the very same coordinates: so give
    the points as the matcher found them. Where several matches end in one point the longest track goes on, and where a point
    has several matches the first one does: one point is one track. Of a pair two numbers are kept.
    """

    def __init__(self) -> None:
        self._ended: Counter[int] = Counter()
        self._by_pair: list[tuple[int, int]] = []
        self._keys, self._lengths = _no_tracks()

    def add(self, matches: MatchedPoints | None) -> float | None:
        """Follow the tracks through a pair's points (M, 2): the share of the reference's tracked points that were matched again.

        Points are tracked from the pair before. None where there are none: in the first pair, and after one without matches.
        A pair of None (nothing was matched, or the matcher was reset) ends every track.
        """
        tracked = len(self._keys)
        self._by_pair.append((0, 0))
        if matches is None or not len(matches[0]):
            self._end(self._lengths)
            self._keys, self._lengths = _no_tracks()
            return 0.0 if matches is not None and tracked else None
        reference, first = np.unique(_keys(matches[0]), return_index=True)
        lengths = np.full(len(reference), 2, np.int64)
        _, before, now = np.intersect1d(self._keys, reference, assume_unique=True, return_indices=True)
        lengths[now] = self._lengths[before] + 1
        self._end(np.delete(self._lengths, before))
        current = _keys(matches[1])[first]
        longest_first = np.argsort(-lengths, kind='stable')
        self._keys, kept = np.unique(current[longest_first], return_index=True)
        kept = longest_first[kept]
        self._end(np.delete(lengths, kept))
        self._lengths = lengths[kept]
        return len(before) / tracked if tracked else None

    def histogram(self) -> dict[int, int]:
        """Number of tracks by length in frames, at least 2; those that still go on count with the length that they have."""
        return dict(sorted((self._ended + Counter(self._lengths.tolist())).items()))

    def ended(self) -> list[tuple[int, int]]:
        """The sum of lengths, and the number, of the tracks that ended with each pair; at the end of those that still go on."""
        return [*self._by_pair, (int(self._lengths.sum()), len(self._lengths))]

    def _end(self, lengths: NDArray[np.int64]) -> None:
        self._ended.update(lengths.tolist())
        total, count = self._by_pair[-1]
        self._by_pair[-1] = total + int(lengths.sum()), count + len(lengths)


def _no_tracks() -> tuple[NDArray[Any], NDArray[np.int64]]:
    return np.zeros(0, np.uint64), np.zeros(0, np.int64)


def _keys(points: Float32) -> NDArray[Any]:
    """A number (M,) per point (M, 2), equal for equal coordinates."""
    plain = np.ascontiguousarray(points, np.float32) + np.float32(0)  # -0 becomes 0
    return plain.view(np.uint64).ravel()
