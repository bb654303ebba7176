"""The recording, played into the running node: every cloud that it publishes is scored as the pair of frames that it is."""

from __future__ import annotations

import dataclasses
import pickle
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.odometry.two_view import PoseEstimator
from lightglue_trt_ros.utils.errors import LightglueTrtError

from .predict.methods import Prediction, correspondences
from .predict.scene import Scene
from .score.depth_accuracy import DepthScore
from .score.method_score import MethodScore
from .score.metrics import MatcherResult


def evaluate_live(recording: Recording, config: MatcherConfig, scene: Scene, estimator: PoseEstimator, rate: float,
                  offline: MatcherResult, stopped: Callable[[], bool], on_note: Callable[[str], None],
                  mask: Path | None = None, depth: Recording | None = None) -> MatcherResult:
    """Play the recording at `rate` times its pace, and score every cloud as the pair of frames that it is; `on_note` gets a line.

    A dropped frame is counted, and in no pair. Raises LightglueTrtError when the node does not start, or when nothing came.
    """
    from .replay import replay
    settings = dataclasses.replace(config, max_gap_s=scene.timeline.max_gap_s)
    with tempfile.TemporaryFile() as file:  # a long recording must not fill the memory
        got = replay(recording.path, settings, rate=rate, image_topic=recording.image_topic, mask=mask, stopped=stopped,
                     keep=partial(pickle.dump, file=file), depth_topic=None if depth is None else depth.image_topic,
                     image_bits=recording.bits,
                     max_frames=int(scene.timeline.numbers[-1]) + 1)  # which may be the first of many
        if not got.arrivals:
            raise LightglueTrtError('the node published nothing: its log above says why')
        file.seek(0)
        backend = got.diagnostics.get('backend', 'unknown')
        description = f'the node over DDS at {rate:g} times the recorded pace: {backend}'
        depth_score = None if depth is None or scene.intrinsics is None else DepthScore(scene.intrinsics)
        score = MethodScore(MatcherResult('ours live', description, True), scene, estimator, depth=depth_score)
        shared = _score_clouds((pickle.load(file) for _ in got.arrivals), score, scene, offline)
    result = score.finish()
    result.latency_ms = [value for value in got.latency_ms if np.isfinite(value)]
    result.figures |= {'dropped': float(max(0, len(offline.pairs.get(1, [])) - len(got.arrivals)))}  # the others have no reference
    on_note(f'live: {len(got.sent)} frames sent, {len(got.arrivals)} clouds received, '
            f'{result.figures["dropped"]:.0f} frames dropped')
    if shared:
        live, before = np.mean(shared, axis=0)
        equal = sum(a == b for a, b in shared)
        on_note(f'live: {len(shared)} pairs are the same as offline, {equal} of them with the same number of matches '
             f'(mean {live:.1f} live, {before:.1f} offline)')
    return result


def _score_clouds(clouds: Iterable[FrameMatches], score: MethodScore, scene: Scene,
                  offline: MatcherResult) -> list[tuple[int, int]]:
    """Score every cloud; matches live and offline of the pairs that both saw."""
    known = {pair.frames: pair.matches for pair in offline.pairs.get(1, [])}
    previous, shared = None, []
    for matches in clouds:
        current = scene.timeline.nearest(matches.stamp)
        reference = scene.timeline.nearest(matches.reference_stamp) if np.isfinite(matches.reference_stamp) else previous
        previous = current
        if reference is None:
            continue  # an empty cloud, the first of all: nobody knows what it was matched with
        prediction = Prediction(correspondences(matches.matched()), {}, tracked=correspondences(matches))
        pair = score.add(1, (reference, current), prediction)
        if score.depth is not None:
            score.depth.add(matches, None, None, scene.pose(current))
        if pair.frames in known:
            shared.append((pair.matches, known[pair.frames]))
    return shared
