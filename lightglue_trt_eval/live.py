"""The recording, played into the running node: every cloud that it publishes is scored as the pair of frames that it is."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.odometry.two_view import PoseEstimator
from lightglue_trt_ros.utils.errors import LightglueTrtError

from .inputs import Inputs
from .predict.methods import correspondences
from .predict.predictions import FramePredictions, Predicted, Prediction, all_of, keep
from .predict.scene import Timeline
from .score.depth_accuracy import DepthScore
from .score.method_score import MethodScore
from .score.metrics import MatcherResult

logger = logging.getLogger(__name__)
HEADROOM = 0.6  # share of the measured frame rate at which frames are sent: the player needs time too


def evaluate_live(inputs: Inputs, estimator: PoseEstimator, offline: MatcherResult, stopped: Callable[[], bool],
                  on_note: Callable[[str], None]) -> MatcherResult:
    """Play the recording at the pace of the options, and score every cloud as the pair of frames that it is.

    A dropped frame is counted, and in no pair. Raises LightglueTrtError when the node does not start, or when nothing came.
    """
    from .replay import replay
    recording, options, scene, config = inputs.recording, inputs.options, inputs.scene, next(iter(inputs.configs.values()))
    hz = HEADROOM * offline.summary().get('fps', 0.0) if options.hz == 0 else options.hz
    pace = f'{hz:.3g} frames per second' if hz else f'{options.rate:g} times the recorded pace'
    if inputs.stereo is not None:
        on_note('live: the node gets no right images, and has no stereo figures')
    if options.camera is not None:
        on_note(f'live: the node has the recorded calibration; {options.camera} counts where its matches are scored')
    logger.info(f'playing {recording.path} into the node at {pace}')
    settings = dataclasses.replace(config, max_gap_s=scene.timeline.max_gap_s)
    with tempfile.TemporaryFile() as file:  # a long recording must not fill the memory
        got = replay(recording.path, settings, hz or None, rate=options.rate, image_topic=recording.image_topic, mask=options.mask,
                     stopped=stopped, keep=lambda matches: keep(matches, file),
                     depth_topic=None if inputs.depth is None else inputs.depth.image_topic, image_bits=recording.bits,
                     max_frames=int(scene.timeline.numbers[-1]) + 1)  # which may be the first of many
        if not got.arrivals:
            raise LightglueTrtError('the node published nothing: its log above says why')
        file.seek(0)
        backend = got.diagnostics.get('backend', 'unknown')
        node = Predicted(f'{offline.name} live', f'the node over DDS at {pace}: {backend}', True)
        depth = None if inputs.depth is None or scene.intrinsics is None else DepthScore(scene.intrinsics)
        result = MethodScore(node, scene, estimator, depth).all_of(as_predictions(all_of(file), scene.timeline))
    result.latency_ms = [value for value in got.latency_ms if np.isfinite(value)]
    dropped = max(0, offline.count() - len(got.arrivals))  # the others have no reference
    result.figures |= {'dropped': float(dropped)}
    on_note(f'live: {len(got.sent)} frames sent, {len(got.arrivals)} clouds received, '
            f'{dropped} frame{"s" * (dropped != 1)} dropped')
    live, known = _match_counts(result), _match_counts(offline)
    if shared := [(live[pair], known[pair]) for pair in live if pair in known]:
        mine, before = np.mean(shared, axis=0)
        equal = sum(a == b for a, b in shared)
        on_note(f'live: {len(shared)} pairs are the same as offline, {equal} of them with the same number of matches '
                f'(mean {mine:.1f} live, {before:.1f} offline)')
    return result


def _match_counts(result: MatcherResult) -> dict[tuple[int, int], int]:
    """Matches of each pair, by the numbers of its frames."""
    table = result.table()
    frames = zip(table['reference_frame'].tolist(), table['frame'].tolist(), strict=True)
    return dict(zip(frames, table['matches'].tolist(), strict=True))


def as_predictions(clouds: Iterable[FrameMatches], timeline: Timeline) -> Iterator[FramePredictions]:
    """What clouds are predictions of: frames are found by their stamps."""
    previous = None
    for matches in clouds:
        current = timeline.nearest(matches.stamp)
        reference = timeline.nearest(matches.reference_stamp) if np.isfinite(matches.reference_stamp) else previous
        previous = current
        if reference is not None:  # else an empty cloud, the first of all: nobody knows what it was matched with
            prediction = Prediction(correspondences(matches.matched()), tracked=correspondences(matches), published=matches)
            yield FramePredictions(current, {1: reference}, {1: prediction})
