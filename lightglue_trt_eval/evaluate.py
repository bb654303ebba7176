"""The evaluation of a recording: open, predict with times, score, and what the report needs besides."""

from __future__ import annotations

import dataclasses
import logging
import resource
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.odometry.two_view import ESTIMATOR_LABELS, ESTIMATORS
from lightglue_trt_ros.utils.errors import LightglueTrtError
from lightglue_trt_ros.utils.processes import describe_machine

from .inputs import Inputs, open_inputs
from .live import evaluate_live
from .options import KEEP, USE, EvaluationOptions
from .predict.frames import Frames, WallTime
from .predict.predictions import Predictions
from .predict.run import predict
from .score.method_score import score
from .score.metrics import DrawnPair, Evaluation, MatcherResult

logger = logging.getLogger(__name__)
FOLDER = 'predictions'  # in the one of the report


class Notes(list[str]):
    """Lines about an evaluation, each logged when it comes, and once."""

    def __call__(self, text: str) -> None:
        if text not in self:
            self.append(text)
            logger.info(text)


def evaluate_recording(recording: Recording, options: EvaluationOptions, folder: Path,
                       stopped: Callable[[], bool]) -> tuple[Evaluation, list[str]]:
    """Predict and score; the failures are those in spite of which there is a report. `folder` has room for predictions.

    Raises LightglueTrtError where nothing can be evaluated.
    """
    notes, wall, estimator = Notes(), WallTime(), ESTIMATORS[options.estimator]
    with wall.spent('reading'):
        inputs = open_inputs(recording, options, notes)
    frames = inputs.frames(wall, stopped, notes)
    with ExitStack() as stack:
        predictions = _predictions(inputs, frames, folder, notes, stack)
        with wall.spent('estimating'):
            results, lines = score(predictions, inputs.scene, estimator, inputs.depth is not None,
                                   None if inputs.stereo is None else inputs.stereo.rig)
    for line in lines:
        notes(line)
    interrupted, failures = predictions.interrupted, [predictions.failure] if predictions.failure else []
    _note_empty_strides(inputs, results, interrupted, notes)
    if options.live and not interrupted:
        try:
            with wall.spent('live'):
                results.append(evaluate_live(inputs, estimator, results[0], stopped, notes))
        except LightglueTrtError as error:
            if not stopped():  # else the node ended because it was told to
                failures.append(f'live: {error}')
        interrupted = stopped()
    results[0].worst_pairs = with_images(results[0].worst_pairs, frames)
    results[0].middle_pair = with_images(results[0].middle_pair, frames)
    for failure in failures:
        notes(failure)
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Evaluation(inputs.facts, describe_machine(), results, inputs.strides, list(notes), interrupted,
                      predictions.covered if predictions.interrupted else None, wall.seconds, memory_mib,
                      ESTIMATOR_LABELS[options.estimator]), failures


def _predictions(inputs: Inputs, frames: Frames, folder: Path, notes: Notes, stack: ExitStack) -> Predictions:
    """Those of an earlier run where the options ask for them; else new ones, which `stack` removes unless they are to be kept."""
    options = inputs.options
    if options.predictions == USE:
        found = Predictions.read(folder / FOLDER, inputs.predicted_with)
        for note in found.notes:
            notes(note)
        return found
    for stale in folder.glob(f'.{FOLDER}-*'):  # of a run that was killed
        shutil.rmtree(stale, ignore_errors=True)
    place = Path(tempfile.mkdtemp(dir=folder, prefix=f'.{FOLDER}-'))
    stack.callback(shutil.rmtree, place, ignore_errors=True)
    predictions, before = Predictions(place, inputs.predicted_with if options.predictions else {}), len(notes)
    predict(inputs.configs, inputs.baselines, frames, inputs.strides, predictions, inputs.mask)
    predictions.notes = notes[before:]
    if options.predictions == KEEP:
        predictions.write_index()
        predictions.folder = folder / FOLDER
        shutil.rmtree(predictions.folder, ignore_errors=True)
        place.rename(predictions.folder)
        size = sum(path.stat().st_size for path in predictions.folder.iterdir())
        logger.info(f'predictions: {size / 2**20:.0f} MiB in {predictions.folder}')
    return predictions


def _note_empty_strides(inputs: Inputs, results: Sequence[MatcherResult], interrupted: bool, notes: Notes) -> None:
    """Raises LightglueTrtError where no stride has a pair."""
    if interrupted:
        return
    for stride in inputs.strides:
        if not results[0].count(stride):
            notes(f'stride {stride} has no pairs: no two of {len(inputs.scene.timeline)} frames are that far apart without a break')
    if not any(result.pairs for result in results):
        raise LightglueTrtError(f'{inputs.recording.path}: not one pair of frames could be matched; {"; ".join(notes)}')


def with_images(pairs: Sequence[DrawnPair], frames: Frames) -> list[DrawnPair]:
    """The same pairs with their images, which are read once more."""
    rows = {number: row for row, number in enumerate(frames.scene.timeline.numbers.tolist())}
    images = {shown.number: shown.image for shown in frames.read({rows[number] for pair in pairs for number in pair.frames})}
    return [dataclasses.replace(pair, images=(images[first], images[second])) for pair in pairs
            for first, second in [(rows[pair.frames[0]], rows[pair.frames[1]])] if first in images and second in images]
