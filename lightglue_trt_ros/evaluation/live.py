"""The live part of an evaluation: the recording played into the node over DDS, what comes back scored as the offline pass does."""

from __future__ import annotations

import dataclasses
import pickle
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from ..core.config import MatcherConfig
from ..core.types import FrameMatches
from ..datasets.sequence import Recording
from ..odometry.two_view import PoseEstimator
from ..ros.replay import replay
from ..utils.errors import LightglueTrtError
from .method_score import MethodScore
from .methods import Prediction, correspondences
from .metrics import MatcherResult
from .scene import Scene

Cloud = tuple[float, float, Prediction]  # stamps of the reference, NaN for an empty cloud, and of the current image; its points


def evaluate_live(recording: Recording, config: MatcherConfig, scene: Scene, estimator: PoseEstimator, rate: float,
                  offline: MatcherResult, stopped: Callable[[], bool], tell: Callable[[str], None],
                  mask: Path | None = None) -> MatcherResult:
    """Play the recording at `rate` times its pace, and score every cloud as the pair of frames that it is; `tell` gets notes.

    A dropped frame is counted, and in no pair. Raises LightglueTrtError when the node does not start, or when nothing came.
    """
    settings = dataclasses.replace(config, max_gap_s=scene.timeline.max_gap_s)
    with tempfile.TemporaryFile() as file:  # a long recording must not fill the memory
        def keep(matches: FrameMatches) -> None:
            prediction = Prediction(correspondences(matches.matched()), {}, tracked=correspondences(matches))
            pickle.dump((matches.reference_stamp, matches.stamp, prediction), file)

        got = replay(recording.path, settings, rate=rate, image_topic=recording.image_topic, mask=mask, keep=keep, stopped=stopped,
                     max_frames=int(scene.timeline.numbers[-1]) + 1)  # which may be the first of many
        if not got.arrivals:
            raise LightglueTrtError('the node published nothing: its log above says why')
        file.seek(0)
        backend = got.diagnostics.get('backend', 'unknown')
        description = f'the node over DDS at {rate:g} times the recorded pace: {backend}'
        score = MethodScore('ours live', description, True, scene, estimator)
        shared = _score((pickle.load(file) for _ in got.arrivals), score, scene, offline)
    result = score.finish()
    result.latency_ms = [value for value in got.latency_ms if np.isfinite(value)]
    result.figures = {'dropped': float(max(0, len(offline.pairs.get(1, [])) - len(got.arrivals)))}  # the others have no reference
    tell(f'live: {len(got.sent)} frames sent, {len(got.arrivals)} clouds received, {result.figures["dropped"]:.0f} frames dropped')
    if shared:
        live, before = np.mean(shared, axis=0)
        equal = sum(a == b for a, b in shared)
        tell(f'live: {len(shared)} pairs are the same as offline, {equal} of them with the same number of matches '
             f'(mean {live:.1f} live, {before:.1f} offline)')
    return result


def _score(clouds: Iterable[Cloud], score: MethodScore, scene: Scene, offline: MatcherResult) -> list[tuple[int, int]]:
    """Score every cloud; matches live and offline of the pairs that both saw."""
    known = {pair.frames: pair.matches for pair in offline.pairs.get(1, [])}
    previous, shared = None, []
    for reference_stamp, stamp, prediction in clouds:
        current = scene.timeline.nearest(stamp)
        reference = scene.timeline.nearest(reference_stamp) if np.isfinite(reference_stamp) else previous
        previous = current
        if reference is None:
            continue  # an empty cloud, the first of all: nobody knows what it was matched with
        pair = score.add(1, (reference, current), prediction)
        if pair.frames in known:
            shared.append((pair.matches, known[pair.frames]))
    return shared
