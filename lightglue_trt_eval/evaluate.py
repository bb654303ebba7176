"""The evaluation of a recording: predict, score, and what is measured besides the matches of consecutive frames.

One extractor and matcher are open at a time. Each pass over the recording has the methods that share them, the first pass also the
baselines: so memory does not grow with the number of variants that are compared.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle
import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.geometry import fitting_size, unit_of
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.masks import Mask, load_mask
from lightglue_trt_ros.core.types import FrameMatches, UInt8
from lightglue_trt_ros.datasets.bag import depth_of, stereo_recording
from lightglue_trt_ros.datasets.sequence import Frame, Recording
from lightglue_trt_ros.datasets.units import median_depth
from lightglue_trt_ros.odometry.two_view import ESTIMATOR_LABELS, ESTIMATORS, PoseEstimator
from lightglue_trt_ros.utils.console import progress
from lightglue_trt_ros.utils.errors import BagError, EngineError, LightglueTrtError
from lightglue_trt_ros.utils.processes import describe_machine

from .images.degradation import DEPTH_DEGRADATIONS, degraded_frames, description_of
from .options import OWN_DEPTH_IMAGES, OWN_RIGHT_IMAGES, EvaluationOptions, variants
from .predict.baselines import Correspondences
from .predict.methods import Baseline, Method, Prediction, by_networks, correspondences, open_methods
from .predict.scene import Scene, named_pair, open_scene, usable_frames
from .recording_pass import Evaluator, WallTime
from .score.depth_accuracy import DepthImages, DepthScore, check_registered
from .score.method_score import MethodScore
from .score.metrics import Evaluation, MatcherResult
from .score.stereo_accuracy import evaluate_stereo

logger = logging.getLogger(__name__)


def evaluate_recording(recording: Recording, options: EvaluationOptions, folder: Path,
                       stopped: Callable[[], bool]) -> tuple[Evaluation, list[str]]:
    """Run all passes; the failures are those in spite of which there is a report. `folder` has room for temporary files.

    Raises LightglueTrtError where nothing can be evaluated.
    """
    notes: list[str] = []
    strides = tuple(sorted({1, *options.strides}))  # consecutive frames are always evaluated

    def on_note(text: str) -> None:
        if text not in notes:
            notes.append(text)
            logger.info(text)

    wall = WallTime()
    right_topic = None if options.right_topic == OWN_RIGHT_IMAGES else options.right_topic
    pair = named_pair(options, recording)
    stereo = stereo_recording(recording, right_topic, pair) if options.right_topic else None
    depth_topic = None if options.depth_topic == OWN_DEPTH_IMAGES else options.depth_topic
    depth = depth_of(recording, depth_topic) if options.depth_topic else None
    with wall.spent('reading'):
        scene, facts = open_scene(recording, options, on_note)
    if stereo is not None and pair is None and stereo.right.calibration_note:
        on_note(stereo.right.calibration_note)
    for other in filter(None, (None if stereo is None else stereo.right, depth)):
        for note in other.notes:
            on_note(note)
    logger.info(f"images: {facts['topic']}, {facts['frames']} frames of {facts['width']}x{facts['height']}")
    if facts['truth']:
        logger.info(f"ground truth: {facts['truth']}")
    if facts['camera']:
        logger.info(f"camera: {facts['camera']}; from {facts['calibration_source']}")
    image = (facts['height'], facts['width'])
    size = (options.height, options.width) if options.height and options.width else fitting_size(image)
    config = MatcherConfig(**options.matcher, image_height=size[0], image_width=size[1])
    mask = None if options.mask is None else load_mask(options.mask)
    if mask is not None:
        mask.check(image, size)
        facts['mask'] = f'{options.mask}, {100 * mask.share:.1f} % of the image'
        if doubt := mask.doubt(size, config.mask_margin):
            on_note(doubt)
    decode: Callable[[Any], UInt8] = partial(gray_of, bits=recording.bits)
    if recording.bits != 16:
        facts['image_bits'] = recording.bits
    if options.degrade:
        facts['degraded'] = ','.join(options.degrade)
    for name in options.degrade:
        on_note(f'every frame is degraded, {name}: {description_of(name)}')
    depths = None
    if depth is not None:
        if scene.intrinsics is None:
            raise BagError(f'{recording.path}: points with a depth need the intrinsics of the camera; give --camera')
        check_registered(depth, recording, scene.intrinsics)
        facts['depth'] = f'{depth.image_topic}, {len(depth)} images'
        if (median_m := median_depth(depth, on_note)) is not None:
            facts['depth_median_m'] = median_m
            logger.info(f"depth: {facts['depth']}, median {median_m:.3g} m")
        of_depth = next((name for name in options.degrade if name in DEPTH_DEGRADATIONS), '')
        depths = DepthImages(depth, scene.intrinsics, of_depth, on_note)
    estimator = ESTIMATORS[options.estimator]

    def shown_frames() -> Iterator[Frame]:
        return degraded_frames(usable_frames(recording, scene.timeline.numbers), options.degrade, recording.bits)

    evaluator = Evaluator(shown_frames, decode, scene, estimator, wall=wall, stopped=stopped, on_note=on_note, depths=depths)
    configs = variants(config, options.compare)
    margin = config.mask_margin * unit_of(image, size)
    baselines = [Baseline(name, config.max_keypoints, mask, margin) for name in options.baselines]
    results = evaluate_variants(configs, baselines, evaluator, strides, folder, mask)
    first = next(iter(configs.values()))
    interrupted, failures = evaluator.interrupted, [evaluator.failure] if evaluator.failure else []
    covered = evaluator.covered if interrupted else None
    for stride in strides if results else ():
        if not results[0].pairs.get(stride) and not interrupted:
            on_note(f'stride {stride} has no pairs: no two of {len(scene.timeline)} frames are that far apart without a break')
    if not any(result.pairs for result in results) and not interrupted:
        raise LightglueTrtError(f'{recording.path}: not one pair of frames could be matched; {"; ".join(notes)}')
    if stereo is not None and results and not interrupted:
        try:
            with wall.spent('stereo'), progress('evaluating right images', len(scene.timeline)) as advance:
                results[0].figures |= evaluate_stereo(stereo, first, scene, advance, stopped, on_note, mask)
        except LightglueTrtError as error:
            failures.append(f'stereo: {error}')
        interrupted = stopped()
    if options.live and not interrupted:
        logger.info(f'playing {recording.path} at {options.rate:g} times its pace into the node')
        try:
            with wall.spent('live'):
                results.append(evaluate_live(recording, first, scene, estimator, options.rate, results[0], stopped, on_note,
                                             options.mask, depth))
        except LightglueTrtError as error:
            failures.append(f'live: {error}')
        interrupted = stopped()
    for failure in failures:
        on_note(failure)
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Evaluation(facts, describe_machine(), results, strides, notes, interrupted, covered, wall.seconds, memory_mib,
                      ESTIMATOR_LABELS[options.estimator]), failures


def evaluate_variants(configs: dict[str, MatcherConfig], baselines: Sequence[Method], evaluator: Evaluator,
                      strides: Sequence[int], folder: Path, mask: Mask | None = None) -> list[MatcherResult]:
    """Evaluate all variants and baselines, in one pass for those that share their networks, until a pass is interrupted or fails.

    In `folder` there is room for a file; a variant that is unavailable is noted.
    Returns the results in the order of `configs`, then of `baselines`. Raises EngineError if none of `configs` is available.
    """
    groups, others, results = by_networks(configs), list(baselines), dict[str, MatcherResult]()
    several, on_note = len(groups) > 1, evaluator.on_note
    unavailable = EngineError('nothing was asked for')
    with tempfile.TemporaryFile(dir=folder) as file:
        first = FirstPredictions(file) if several else None
        while groups and not evaluator.interrupted:
            group = groups.pop(0)
            names = ', '.join(group)
            try:
                with evaluator.wall.spent('opening'):
                    ours, warning = open_methods(group, mask)
            except EngineError as error:
                unavailable = error
                on_note(f'{names} {"is" if len(group) == 1 else "are"} unavailable: {error}')
                continue
            if warning:
                on_note(warning)
            methods, others = [*ours, *others], []
            for method in methods:
                logger.info(f'{method.name}: {method.description}')
            try:
                with progress(f'evaluating frames{f" with {names}" if several else ""}', len(evaluator)) as advance:
                    results |= {result.name: result for result in evaluator.run(methods, strides, advance, first)}
            finally:
                for method in methods:
                    method.close()
    if not results:
        raise unavailable
    if groups:
        on_note(f'{", ".join(name for group in groups for name in group)}: not begun')
    order = [*configs, *(each.name for each in baselines)]
    return [results[name] for name in order if name in results]


class FirstPredictions:
    """The points of the first method in each pair, for the methods of later passes: in a file, since their number has no limit."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._offsets: dict[tuple[int, tuple[int, int]], int] = {}  # by stride and pair

    def __call__(self, stride: int, pair: tuple[int, int], prediction: Prediction) -> Prediction:
        """Keep `prediction` if the pair is new; the one that was kept for it. Raises LightglueTrtError on a full disk."""
        try:
            if (offset := self._offsets.get((stride, pair))) is not None:
                self._file.seek(offset)
                return Prediction(Correspondences(*pickle.load(self._file)), {})
            self._offsets[stride, pair] = self._file.seek(0, os.SEEK_END)
            pickle.dump(prediction.points[:2], self._file)
            self._file.flush()
        except OSError as error:
            raise LightglueTrtError(f'the matches that others are compared with cannot be kept: {error.strerror or error}; make '
                                    'room, or choose another --out') from error
        return prediction


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
        score = MethodScore('ours live', description, True, scene, estimator, depth=depth_score)
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
