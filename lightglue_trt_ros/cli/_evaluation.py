"""An evaluation put together: recording, camera, truth and contestants from the command line, the passes, what they leave out."""

from __future__ import annotations

import argparse
import itertools
import resource
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..config import MatcherConfig
from ..errors import BagError, FrameError, LightglueTrtError
from ..evaluation.contestants import Baseline, Contestant, open_frontends, variants
from ..evaluation.results import Evaluation, MatcherResult
from ..evaluation.run import Evaluator, WallTime
from ..evaluation.scene import Scene, Timeline
from ..evaluation.twoview import ESTIMATOR_LABELS, ESTIMATORS
from ..geometry import fitting_size
from ..images import gray_of
from ..processes import describe_machine
from ..progress import progress
from ..recordings.bag import open_recording
from ..recordings.camera import check_size, distortion_model, load_camera_in_body, load_intrinsics
from ..recordings.poses import Float64
from ..recordings.salvage import readable_frames
from ..recordings.sequence import Frame, Intrinsics, Recording
from ..recordings.truth import load_truth, poses_at

AREA = 640 * 480  # pixels that images are resized to, keeping their aspect ratio, unless asked otherwise
POSES = 'epipolar precision, pose errors, drift'  # what a truth is needed for


class Outcome(NamedTuple):
    """What was found, and what went wrong although there is a report."""

    evaluation: Evaluation
    failures: list[str]


class Known(NamedTuple):
    """What is known about the recording, and notes on what is not."""

    scene: Scene
    size: tuple[int, int]  # of the first image: height, width
    facts: dict[str, Any]


def evaluate(args: argparse.Namespace, stopped: Callable[[], bool], say: Callable[[str], None]) -> Outcome:
    """All passes. Raises LightglueTrtError where nothing can be evaluated."""
    notes: list[str] = []

    def note(text: str) -> None:
        if text not in notes:
            notes.append(text)
            say(text)

    wall = WallTime()
    recording = open_recording(args.bag, args.image_topic)
    with wall.spent('reading'):
        known = _survey(args, recording, note)
    config, estimator = _config(args, known.size), ESTIMATORS[args.estimator]
    with wall.spent('opening'):
        contestants = _contestants(args, config, note)
    for contestant in contestants:
        say(f'{contestant.name}: {contestant.description}')
    evaluator = Evaluator(partial(_usable, recording, known.scene.timeline), gray_of, known.scene, contestants, estimator,
                          wall=wall, stopped=stopped, tell=note)
    try:
        with progress('evaluating frames', evaluator.work(args.strides), say) as tell:
            results = evaluator.run(args.strides, tell)
    finally:
        for contestant in contestants:
            contestant.close()
    interrupted, failures = evaluator.interrupted, [evaluator.failure] if evaluator.failure else []
    if not any(result.pairs for result in results) and not interrupted:
        raise LightglueTrtError(f'{recording.path}: not one pair of frames could be matched; {"; ".join(notes)}')
    if args.live and not interrupted:
        say(f'playing {recording.path} at {args.rate:g} times its pace into the node')
        try:
            with wall.spent('live'):
                results.append(_live(args, recording, config, known.scene, results[0], stopped, note))
        except LightglueTrtError as error:
            failures.append(f'live: {error}')
        interrupted = stopped()
    for failure in failures:
        note(failure)
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Outcome(Evaluation(known.facts, describe_machine(), results, tuple(args.strides), notes, interrupted, wall.seconds,
                              memory_mib, ESTIMATOR_LABELS[args.estimator]), failures)


def _live(args: argparse.Namespace, recording: Recording, config: MatcherConfig, scene: Scene, offline: MatcherResult,
          stopped: Callable[[], bool], note: Callable[[str], None]) -> MatcherResult:
    from ._live import evaluate_live
    first = next(iter(variants(config, args.compare).values()))
    result, notes = evaluate_live(recording, first, scene, ESTIMATORS[args.estimator], args.rate, offline, stopped)
    for text in notes:
        note(text)
    return result


def _survey(args: argparse.Namespace, recording: Recording, note: Callable[[str], None]) -> Known:
    timeline = Timeline.of(itertools.islice(readable_frames(recording, note), args.max_frames), MatcherConfig().max_gap_s)
    for text in timeline.notes:
        note(text)
    size = _first_size(recording, timeline)
    intrinsics = _intrinsics(args, recording, size, note)
    poses, truth = _poses(args, recording, timeline, note)
    camera = None if intrinsics is None else \
        f'{intrinsics.distortion_model or "no distortion"}, fx {intrinsics.k[0, 0]:.1f}, fy {intrinsics.k[1, 1]:.1f}'
    stamps = timeline.stamps_ns
    return Known(Scene(timeline, intrinsics, poses), size, {
        'path': str(recording.path), 'topic': recording.image_topic, 'frames': len(timeline),
        'duration_s': float(stamps[-1] - stamps[0]) * 1e-9, 'width': size[1], 'height': size[0], 'camera': camera, 'truth': truth})


def _usable(recording: Recording, timeline: Timeline) -> Iterator[Frame]:
    """The timeline's frames once more; what is damaged was told when they were counted."""
    wanted = set(timeline.numbers.tolist())
    frames = recording.frames(lambda number, error: None)
    while wanted:
        try:
            frame = next(frames, None)
        except BagError:
            return
        if frame is None:
            return
        if frame.number in wanted:
            wanted.remove(frame.number)
            yield frame


def _first_size(recording: Recording, timeline: Timeline) -> tuple[int, int]:
    reason = ''
    for frame in _usable(recording, timeline):
        try:
            height, width = gray_of(frame.load()).shape
            return height, width
        except (BagError, FrameError) as error:
            reason = reason or str(error)
    raise BagError(f'{recording.path}: no image can be decoded; the first: {reason}')


def _intrinsics(args: argparse.Namespace, recording: Recording, size: tuple[int, int],
                note: Callable[[str], None]) -> Intrinsics | None:
    """What was asked for must be usable; what was merely recorded need not be."""
    try:
        found = load_intrinsics(args.camera) if args.camera else recording.intrinsics
        if found is not None:
            distortion_model(found)
            check_size(found, *size)
            return found
        reason = 'no intrinsics in the recording; give --camera'
    except BagError as error:
        if args.camera:
            raise
        reason = f'the recorded intrinsics cannot be used: {error}'
    note(f'{reason}. Left out: {POSES}, odometry')
    return None


def _poses(args: argparse.Namespace, recording: Recording, timeline: Timeline,
           note: Callable[[str], None]) -> tuple[Float64 | None, str | None]:
    """The truth at each frame, and in words."""
    asked = args.truth_topic or args.truth or args.truth_child_frame
    try:
        mounting = load_camera_in_body(args.camera_in_body) if args.camera_in_body else None
        truth = load_truth(recording, topic=args.truth_topic, file=args.truth, kind=args.truth_kind,
                           child_frame=args.truth_child_frame, camera_in_body=mounting, tell=note)
        if truth is not None:
            poses = poses_at(truth, timeline.stamps_ns, args.max_time_difference)
            if missing := int(np.isnan(poses).any(axis=(1, 2)).sum()):
                note(f'{missing} of {len(poses)} frames have no true pose within {args.max_time_difference:g} s')
            return poses, f'{truth.source}, {len(truth)} poses'
        reason = 'no ground truth in the recording; --truth-topic or --truth names one'
    except BagError as error:
        if asked:
            raise
        reason = f'the recorded ground truth cannot be used: {error}'
    note(f'{reason}. Left out: {POSES}')
    return None, None


def _config(args: argparse.Namespace, size: tuple[int, int]) -> MatcherConfig:
    height, width = (args.height, args.width) if args.height else fitting_size(size, AREA)
    same = ('backend', 'engine_dir', 'precision', 'max_keypoints', 'match_threshold', 'depth_confidence', 'refinement')
    return MatcherConfig(image_height=height, image_width=width, weights=args.weights,
                         **{name: getattr(args, name) for name in same})


def _contestants(args: argparse.Namespace, config: MatcherConfig, note: Callable[[str], None]) -> list[Contestant]:
    frontends, notes = open_frontends(variants(config, args.compare))
    for text in notes:
        note(text)
    return [*frontends, *(Baseline(name, config.max_keypoints) for name in args.baselines)]
