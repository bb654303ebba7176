"""One matcher's results while the pairs go by: a pair leaves a record of a few numbers behind, and the worst ones their images."""

from __future__ import annotations

import dataclasses
import heapq

import numpy as np

from ..features import UInt8
from .baselines import Correspondences
from .odometry import Odometry
from .results import ERROR_EDGES_PX, DrawnPair, MatcherResult, PairResult
from .scene import SECOND, Scene
from .scoring import Scored, agreement, score_pair
from .track_lengths import TrackLengths
from .twoview import PoseEstimator

WORST = 5  # pairs that are kept with their images


class Tally:
    """Takes pair after pair of one matcher; `finish` gives the MatcherResult."""

    def __init__(self, name: str, description: str, ours: bool, scene: Scene, estimator: PoseEstimator) -> None:
        self.result = MatcherResult(name, description, ours)
        self._scene, self._estimator = scene, estimator
        self._tracks, self._odometry = TrackLengths(), Odometry('unit' if scene.poses is None else 'truth')
        self._chain: list[int] = []  # frames that the pairs of stride 1 joined
        self._worst: list[tuple[float, int, DrawnPair]] = []
        self._count = 0

    def add(self, stride: int, frames: tuple[int, int], points: Correspondences, *,
            images: tuple[UInt8, UInt8] | None = None, stage_ms: dict[str, float] | None = None, layers: int | None = None,
            first: Correspondences | None = None) -> PairResult:
        """Score the correspondences of one pair; `first` are the first matcher's on the same pair, to be compared with."""
        scored = self._score(frames, points)
        known: dict[str, object] = {'matches': len(points.reference), 'layers': layers}
        if first is not None:
            known |= zip(('retention', 'agreement_f1', 'count_ratio'), agreement(first, points), strict=True)
        if stride == 1:
            known['track_survival'] = self._follow(frames, points, scored)
        pair = dataclasses.replace(scored.pair, **known)  # type: ignore[arg-type]
        self.result.pairs.setdefault(stride, []).append(pair)
        if stride == 1:
            for name, value in (stage_ms or {}).items():
                self.result.stage_ms.setdefault(name, []).append(value)
            if images is not None:
                self._keep_worst(pair, images, points, scored)
        return pair

    def _score(self, frames: tuple[int, int], points: Correspondences) -> Scored:
        """Score what can be undistorted; `errors_px` has a row for every match, infinite for the others."""
        scene = self._scene
        straight = scene.straight(frames, points)
        usable = np.asarray(np.isfinite(np.hstack(straight)).all(axis=1), np.bool_)
        scored = score_pair(scene.numbers(frames), scene.timeline.seconds(frames[1]), (straight[0][usable], straight[1][usable]),
                            scene.camera(frames), scene.pose(frames[0]), scene.pose(frames[1]), estimator=self._estimator)
        if scored.errors_px is None or usable.all():
            return scored
        errors = np.full(len(usable), np.inf)
        errors[usable] = scored.errors_px
        return scored._replace(errors_px=errors)

    def finish(self) -> MatcherResult:
        """The result, with the tracks and the trajectory that need the last pair."""
        self.result.track_lengths = self._tracks.histogram()
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
        if not self._chain:
            self._chain = [frames[0]]
        elif self._chain[-1] != frames[0]:  # nothing joins these two: the motion before goes on
            self._tracks.add(None)
            self._odometry.add(None, self._scene.step_m((self._chain[-1], frames[0])))
            self._chain.append(frames[0])
        self._odometry.add(scored.estimate, self._scene.step_m(frames))
        self._chain.append(frames[1])
        return self._tracks.add(points)

    def _keep_worst(self, pair: PairResult, images: tuple[UInt8, UInt8], points: Correspondences, scored: Scored) -> None:
        if (badness := pair.pose_error_deg) is None:
            if not pair.model and pair.matches:
                return  # nothing is known about it
            badness = 1 - pair.inliers / pair.matches if pair.matches else 1.0
        self._count += 1
        entry = (badness, -self._count)  # of equals the first stays
        if len(self._worst) < WORST or entry > self._worst[0][:2]:
            drawn = DrawnPair(pair.frames, images, points, scored.errors_px, badness)
            (heapq.heappush if len(self._worst) < WORST else heapq.heapreplace)(self._worst, (*entry, drawn))
