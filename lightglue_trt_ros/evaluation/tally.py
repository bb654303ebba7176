"""One matcher's results while the pairs go by: a pair leaves a record of a few numbers, the worst ones what is drawn of them."""

from __future__ import annotations

import dataclasses
import heapq

import numpy as np

from ..core.types import Float32, Float64, UInt8
from ..odometry.two_view import PoseEstimator
from .baselines import Correspondences
from .costs import Cost
from .failures import causes
from .methods import Sighting
from .metrics import PairResult
from .motion_observability import Motion
from .results import DEVIATION_EDGES, ERROR_EDGES_PX, DrawnPair, MatcherResult
from .scene import SECOND, Scene
from .score import Agreement, Scored, agreement, agreement_of_rows, score_pair
from .track_lengths import TrackLengths
from .two_view_odometry import Odometry

WORST = 5  # pairs that are kept


class Tally:
    """Takes pair after pair of one matcher; `finish` gives the MatcherResult."""

    def __init__(self, name: str, description: str, ours: bool, scene: Scene, estimator: PoseEstimator, drawn: bool = True) -> None:
        """`drawn`: the images of its worst pairs are asked for."""
        self.result, self._drawn = MatcherResult(name, description, ours), drawn
        self._scene, self._estimator = scene, estimator
        self._tracks, self._odometry = TrackLengths(), Odometry('unit' if scene.poses is None else 'truth')
        self._chain: list[int] = []  # frames that the pairs of stride 1 joined
        self._worst: list[tuple[float, int, DrawnPair]] = []
        self._count = 0

    def add(self, stride: int, frames: tuple[int, int], sighting: Sighting, *, images: tuple[UInt8, UInt8] | None = None,
            motion: Motion | None = None, first: Sighting | None = None) -> PairResult:
        """Score what was seen in one pair; `first` is what the first matcher saw in it, to be compared with."""
        points = sighting.points
        straight = self._scene.straight(frames, points)
        scored = self._score(frames, straight, points.covariances, motion or self._scene.motion(frames))
        known: dict[str, object] = {'matches': len(points.reference), 'layers': sighting.layers}
        if first is not None:
            known |= zip(('retention', 'agreement_f1', 'count_ratio'), _compared(first, sighting), strict=True)
        if stride == 1:
            known['track_survival'] = self._follow(frames, sighting.followed or points, scored)
        pair = dataclasses.replace(scored.pair, **known)  # type: ignore[arg-type]
        self.result.pairs.setdefault(stride, []).append(pair)
        if stride == 1 and images is not None:
            self._keep_worst(frames, pair, images, points, straight, scored)
        return pair

    def time(self, sighting: Sighting, cost: Cost) -> None:
        """Count what a frame of stride 1 took."""
        for name, value in (sighting.stage_ms | {'frame': cost.wall_ms}).items():
            self.result.stage_ms.setdefault(name, []).append(value)
        for name, value in (('cpu_ms', cost.cpu_ms), ('gpu_ms', cost.gpu_ms)):
            self.result.cost_ms.setdefault(name, []).append(value)

    def _score(self, frames: tuple[int, int], straight: tuple[Float64, Float64], covariances: Float32 | None,
               motion: Motion | None) -> Scored:
        """Score what can be undistorted; `errors_px` has a row for every match, infinite for the others."""
        scene = self._scene
        usable = np.asarray(np.isfinite(np.hstack(straight)).all(axis=1), np.bool_)
        scored = score_pair(scene.numbers(frames), scene.timeline.seconds(frames[1]), (straight[0][usable], straight[1][usable]),
                            scene.camera(frames), scene.pose(frames[0]), scene.pose(frames[1]), estimator=self._estimator,
                            motion=motion, covariances=None if covariances is None else covariances[usable])
        if scored.errors_px is None or usable.all():
            return scored
        errors = np.full(len(usable), np.inf)
        errors[usable] = scored.errors_px
        return scored._replace(errors_px=errors)

    def finish(self) -> MatcherResult:
        """The result, with the tracks and the trajectory that need the last pair."""
        self.result.track_lengths, self.result.tracks_ended = self._tracks.histogram(), self._tracks.ended()
        scene, chain = self._scene, np.asarray(self._chain, np.int64)
        if len(chain) and scene.intrinsics is not None:
            self.result.odometry = self._odometry.result(
                scene.timeline.numbers[chain].tolist(), scene.timeline.stamps_ns[chain] / SECOND,
                None if scene.poses is None else scene.poses[chain])
        self.result.worst_pairs = [drawn for _, _, drawn in sorted(self._worst, key=lambda entry: (-entry[0], entry[1]))]
        return self.result

    def _follow(self, frames: tuple[int, int], points: Correspondences, scored: Scored) -> float | None:
        """Errors, tracks and trajectory; the share of the last frame's points that were matched again."""
        if scored.errors_px is not None:
            counts = np.histogram(scored.errors_px, ERROR_EDGES_PX)[0]
            known = self.result.error_histogram
            self.result.error_histogram = counts if known is None else known + counts
        if scored.deviations is not None:
            counts = np.histogram(np.abs(scored.deviations), DEVIATION_EDGES)[0]
            before = self.result.deviation_histogram
            self.result.deviation_histogram = counts if before is None else before + counts
        if not self._chain:
            self._chain = [frames[0]]
        elif self._chain[-1] != frames[0]:  # nothing joins these two: the motion before goes on
            self._tracks.add(None)
            self._odometry.add(None, self._scene.step_m((self._chain[-1], frames[0])))
            self._chain.append(frames[0])
        self._odometry.add(scored.estimate, self._scene.step_m(frames))
        self._chain.append(frames[1])
        return self._tracks.add(points)

    def _keep_worst(self, frames: tuple[int, int], pair: PairResult, images: tuple[UInt8, UInt8], points: Correspondences,
                    straight: tuple[Float64, Float64], scored: Scored) -> None:
        badness = pair.rotation_deg if pair.pose_error_deg is None else pair.pose_error_deg
        if badness is None:
            if not pair.model and pair.matches:
                return  # nothing is known about it
            badness = 1 - pair.inlier_ratio
        self._count += 1
        entry = (badness, -self._count)  # of equals the first stays
        if len(self._worst) < WORST or entry > self._worst[0][:2]:
            scene = self._scene
            usable = np.isfinite(np.hstack(straight)).all(axis=1)
            why = causes(pair, (straight[0][usable], straight[1][usable]), scene.camera(frames), scene.pose(frames[0]),
                         scene.pose(frames[1]), scored.estimate)
            drawn = DrawnPair(pair.frames, images if self._drawn else None, points, scored.errors_px, badness, why)
            (heapq.heappush if len(self._worst) < WORST else heapq.heapreplace)(self._worst, (*entry, drawn))


def _compared(first: Sighting, other: Sighting) -> Agreement:
    """By the rows where both matched the same features, however they were placed; else by positions."""
    if first.matched is not None and other.matched is not None and first.matched.features is other.matched.features:
        return agreement_of_rows(first.matched.rows, other.matched.rows)
    return agreement(first.points, other.points)
