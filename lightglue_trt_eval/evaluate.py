"""The evaluation of a recording in five steps: open, match, right images, live, and what all of it makes.

One extractor and matcher are open at a time. Each pass over the recording has the methods that share them, the first pass also the
baselines: so memory does not grow with the number of variants that are compared.
"""

from __future__ import annotations

import logging
import os
import pickle
import resource
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.odometry.two_view import ESTIMATOR_LABELS, ESTIMATORS
from lightglue_trt_ros.utils.console import progress
from lightglue_trt_ros.utils.errors import EngineError, LightglueTrtError
from lightglue_trt_ros.utils.processes import describe_machine

from .inputs import Inputs, open_inputs
from .live import evaluate_live
from .options import EvaluationOptions
from .predict.baselines import MatchedPoints
from .predict.methods import Method, Prediction, by_networks, open_methods
from .recording_pass import RecordingPass, WallTime
from .score.metrics import Evaluation, MatcherResult
from .score.stereo_accuracy import evaluate_stereo

logger = logging.getLogger(__name__)


class Notes(list[str]):
    """Lines about an evaluation, each logged when it comes, and once."""

    def __call__(self, text: str) -> None:
        if text not in self:
            self.append(text)
            logger.info(text)


def evaluate_recording(recording: Recording, options: EvaluationOptions, folder: Path,
                       stopped: Callable[[], bool]) -> tuple[Evaluation, list[str]]:
    """Run all passes; the failures are those in spite of which there is a report. `folder` has room for temporary files.

    Raises LightglueTrtError where nothing can be evaluated.
    """
    notes, wall = Notes(), WallTime()
    with wall.spent('reading'):
        inputs = open_inputs(recording, options, notes)
    evaluator = RecordingPass(inputs.frames, inputs.decode, inputs.scene, ESTIMATORS[options.estimator], wall=wall, stopped=stopped,
                              on_note=notes, depths=inputs.depth_images)
    results = evaluate_variants(inputs.configs, inputs.baselines, evaluator, inputs.strides, folder, inputs.mask)
    interrupted, failures = evaluator.interrupted, [evaluator.failure] if evaluator.failure else []
    covered = evaluator.covered if interrupted else None
    _note_empty_strides(inputs, results, interrupted, notes)
    for name, wanted, step in (('stereo', inputs.stereo is not None, _evaluate_right), ('live', options.live, _play)):
        if wanted and not interrupted:
            try:
                with wall.spent(name):
                    step(inputs, results, stopped, notes)
            except LightglueTrtError as error:
                failures.append(f'{name}: {error}')
            interrupted = stopped()
    for failure in failures:
        notes(failure)
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Evaluation(inputs.facts, describe_machine(), results, inputs.strides, list(notes), interrupted, covered, wall.seconds,
                      memory_mib, ESTIMATOR_LABELS[options.estimator]), failures


def _note_empty_strides(inputs: Inputs, results: Sequence[MatcherResult], interrupted: bool, notes: Notes) -> None:
    """Raises LightglueTrtError where no stride has a pair."""
    if interrupted:
        return
    for stride in inputs.strides:
        if not results[0].pairs.get(stride):
            notes(f'stride {stride} has no pairs: no two of {len(inputs.scene.timeline)} frames are that far apart without a break')
    if not any(result.pairs for result in results):
        raise LightglueTrtError(f'{inputs.recording.path}: not one pair of frames could be matched; {"; ".join(notes)}')


def _evaluate_right(inputs: Inputs, results: Sequence[MatcherResult], stopped: Callable[[], bool], notes: Notes) -> None:
    """The figures of the right images, for the first method."""
    assert inputs.stereo is not None
    first = next(iter(inputs.configs.values()))
    with progress('evaluating right images', len(inputs.scene.timeline)) as advance:
        results[0].figures |= evaluate_stereo(inputs.stereo, first, inputs.scene, advance, stopped, notes, inputs.mask)


def _play(inputs: Inputs, results: list[MatcherResult], stopped: Callable[[], bool], notes: Notes) -> None:
    """One more result, of the node to which the recording is played."""
    options, first = inputs.options, next(iter(inputs.configs.values()))
    logger.info(f'playing {inputs.recording.path} at {options.rate:g} times its pace into the node')
    results.append(evaluate_live(inputs.recording, first, inputs.scene, ESTIMATORS[options.estimator], options.rate, results[0],
                                 stopped, notes, options.mask, inputs.depth))


def evaluate_variants(configs: dict[str, MatcherConfig], baselines: Sequence[Method], evaluator: RecordingPass,
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
                return Prediction(MatchedPoints(*pickle.load(self._file)), {})
            self._offsets[stride, pair] = self._file.seek(0, os.SEEK_END)
            pickle.dump(prediction.points[:2], self._file)
            self._file.flush()
        except OSError as error:
            raise LightglueTrtError(f'the matches that others are compared with cannot be kept: {error.strerror or error}; make '
                                    'room, or choose another --out') from error
        return prediction
