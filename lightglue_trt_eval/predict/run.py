"""Recording to predictions: every method sees every frame once, with the frame before it at each stride, and is timed afterwards.

One extractor and matcher are open at a time. Each pass over the recording has the methods that share them, the first pass also the
baselines: so memory does not grow with the number of variants that are compared.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import numpy as np

from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.depth import Positions, locate
from lightglue_trt_ros.core.image_check import TEXTURE, same_pixels, texture_of
from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.core.types import Standing
from lightglue_trt_ros.utils.console import progress
from lightglue_trt_ros.utils.errors import EngineError

from ..images.interlacing import is_interlaced
from ..images.layout import Layout
from ..images.moving_frames import Alternation, Exposures, small_of
from .frames import Frames, ShownDepth, ShownFrame
from .methods import Alone, Method, by_networks, open_methods
from .predictions import FramePredictions, Predicted, Prediction, Predictions, keep
from .scene import Scene

BACKWARD_PAIRS = 20  # that are matched backwards as well, at most

logger = logging.getLogger(__name__)


def predict(configs: dict[str, MatcherConfig], baselines: Sequence[Method], frames: Frames, strides: Sequence[int],
            kept: Predictions, mask: Mask | None = None) -> None:
    """Match and time all variants and baselines, until a pass is interrupted or fails; what is unavailable is noted.

    `kept` gets the methods in the order of `configs`, then of `baselines`. Raises EngineError if none of `configs` is available.
    """
    groups, others, several = by_networks(configs), list(baselines), len(by_networks(configs)) > 1
    unavailable = EngineError('nothing was asked for')
    while groups and not kept.interrupted:
        group = groups.pop(0)
        names = ', '.join(group)
        try:
            with frames.wall.spent('opening'):
                ours, warning = open_methods(group, mask)
        except EngineError as error:
            unavailable = error
            frames.on_note(f'{names} {"is" if len(group) == 1 else "are"} unavailable: {error}')
            continue
        if warning:
            frames.on_note(warning)
        methods, others = [*ours, *others], []
        for method in methods:
            logger.info(f'{method.name}: {method.description}')
        try:
            with progress(f'evaluating frames{f" with {names}" if several else ""}', len(frames)) as advance:
                predict_together(methods, frames, strides, kept, advance)
        finally:
            for method in methods:
                method.close()
    if not kept.methods:
        raise unavailable
    if groups:
        frames.on_note(f'{", ".join(name for group in groups for name in group)}: not begun')
    order = [*configs, *(each.name for each in baselines)]
    kept.methods.sort(key=lambda method: order.index(method.name))


def predict_together(methods: Sequence[Method], frames: Frames, strides: Sequence[int], kept: Predictions,
                     advance: Callable[[int], None] = lambda done: None) -> None:
    """Match and time methods in one pass; of a part of the recording if it was interrupted, or a backend failed."""
    first = not kept.methods  # the first method gets the right images
    predicted = [Predicted(each.name, each.description, each.ours, each.engine, each.networks) for each in methods]
    kept.methods += predicted
    kept.covered = 0
    try:
        _match(methods, frames, strides, kept, advance, first)
        with frames.wall.spent('timing'):
            time_methods(methods, predicted, frames)
    except EngineError as error:
        kept.failure = str(error)
    kept.interrupted = bool(kept.failure) or frames.stopped()
    kept.measured = frames.scene.measured


def _match(methods: Sequence[Method], frames: Frames, strides: Sequence[int], kept: Predictions, advance: Callable[[int], None],
           first: bool) -> None:
    """Every method on every frame: ours in this thread, each baseline in another one meanwhile."""
    standing, depth_before, untextured, interlaced, layout = None, None, 0, 0, Layout()
    metric = frames.depths is not None or frames.stereo is not None
    backward = {second for _, second in frames.scene.timeline.pairs(min(BACKWARD_PAIRS, frames.sampled))}
    runs = [_MethodRun(method, strides, frames) for method in methods]
    with ExitStack() as stack:
        files = [stack.enter_context(kept.file(method.name, 'wb')) for method in methods]
        threads = stack.enter_context(ThreadPoolExecutor(len(methods), 'method'))
        for shown, references in with_references(frames, strides):
            if frames.stopped():
                break
            given = [shown if first and run is runs[0] else shown._replace(right=None) for run in runs]
            work = [partial(run.match, each, references, shown.number in backward, depth_before)
                    for run, each in zip(runs, given, strict=True)]
            started = [None if run.method.ours else threads.submit(each) for run, each in zip(runs, work, strict=True)]
            predictions = [each() if future is None else future.result() for each, future in zip(work, started, strict=True)]
            with frames.wall.spent('estimating'):
                _estimate(frames.scene, shown, references, predictions)
            standing = _more(standing, predictions[0])
            untextured += texture_of(shown.image) < TEXTURE
            interlaced += is_interlaced(shown.image)
            layout.add(shown.image)
            for file, each in zip(files, predictions, strict=True):
                keep(each if metric else each.without_published(), file)
            depth_before = shown.depth
            kept.covered += 1
            advance(shown.number + 1)
    if first and untextured > kept.covered / 10:
        frames.on_note(f'{untextured} of {kept.covered} images are black, white or without texture: check the lens cap, the '
                       'exposure, and whether the camera needs --image-bits')
    for doubt in layout.doubts if first else ():
        frames.on_note(doubt)
    if first and interlaced > kept.covered / 10:
        frames.on_note(f'{interlaced} of {kept.covered} images are interlaced, rows of two moments: no motion fits their matches; '
                       'record progressive video, or keep every second row')
    elif standing is not None:
        frames.on_note(f'{methods[0].name}: {standing.in_words}')


def _estimate(scene: Scene, shown: ShownFrame, references: dict[int, ShownFrame | None],
              predictions: Sequence[FramePredictions]) -> None:
    """Have the scene estimate the motion of each pair, by the first method that has matches of it."""
    for stride, reference in references.items():
        points = next((each.by_stride[stride].points for each in predictions if stride in each.by_stride), None)
        if reference is not None and points is not None:
            scene.motion((reference.number, shown.number), (reference.image, shown.image), points)


def with_references(frames: Frames, strides: Sequence[int]) -> Iterator[tuple[ShownFrame, dict[int, ShownFrame | None]]]:
    """Every frame, and by stride the frame before that it is matched with; None: a sequence starts."""
    segments, resized, repeated = frames.scene.timeline.segments, list[str](), 0
    alternation, exposures = Alternation(), Exposures()
    before: dict[int, ShownFrame] = {}
    for shown in frames.read():
        if 1 in before and before[1].image.shape != shown.image.shape:
            height, width = shown.image.shape
            resized.append(f'to {width}x{height} with frame {frames.scene.timeline.numbers[shown.number]}')
        repeated += 1 in before and same_pixels(before[1].image, shown.image) and texture_of(shown.image) >= TEXTURE
        alternation.add(shown.image, small_of(shown.image))
        exposures.add(shown.image)
        references: dict[int, ShownFrame | None] = {}
        for stride in strides:
            if shown.number % stride == 0:
                previous = before.get(stride)
                joined = (previous is not None and previous.image.shape == shown.image.shape
                          and segments[previous.number] == segments[shown.number])
                references[stride] = previous if joined else None
                before[stride] = shown
        yield shown, references
    if resized:
        times = 'once' if len(resized) == 1 else f'{len(resized)} times, first'
        known = '' if frames.scene.intrinsics is None else \
            ', and only frames of the size that the intrinsics are for have a geometry'
        frames.on_note(f'the images change their size {times} {resized[0]}: the sequence starts anew there{known}')
    if repeated:
        frames.on_note(f'{repeated} of {len(frames)} frames have the picture of the frame before under a new stamp: record what '
                       'the camera sends, without copies')
    for doubt in filter(None, (alternation.doubt, exposures.doubt)):
        frames.on_note(doubt)


class _MethodRun:
    """A method on one recording: a stream for each stride, and one for matching backwards."""

    def __init__(self, method: Method, strides: Sequence[int], frames: Frames) -> None:
        self.method = method
        self._streams = {stride: method.stream(number) for number, stride in enumerate(strides)}
        self._backward = method.stream(0)  # of the images of stride 1
        self._wall, self._kind = frames.wall, 'inference' if method.ours else 'baselines'

    def match(self, shown: ShownFrame, references: dict[int, ShownFrame | None], backward: bool,
              depth_before: ShownDepth | None) -> FramePredictions:
        """The correspondences with the references, and of stride 1 back to the reference where asked for."""
        by_stride, back = dict[int, Prediction](), None
        with self._wall.spent(self._kind):
            for stride, reference in references.items():
                if reference is None:
                    self._streams[stride].reset()
                given = shown if stride == 1 else shown._replace(depth=None, right=None)
                prediction = self._streams[stride].process(given)
                if prediction is not None:
                    by_stride[stride] = prediction
            if backward and (reference := references.get(1)) is not None:
                self._backward.reset()
                for stamp, each in enumerate((shown, reference)):
                    prediction = self._backward.process(ShownFrame(each.number, float(stamp), each.image, shown.camera))
                back = None if prediction is None else prediction.points
        return FramePredictions(shown.number, {stride: each.number for stride, each in references.items() if each is not None},
                                by_stride, back, located_before(by_stride.get(1), depth_before))


def located_before(prediction: Prediction | None, depth: ShownDepth | None) -> Positions | None:
    """Positions of a frame's published points, in the depth image of its reference, as exact as their pixels."""
    if prediction is None or prediction.published is None or depth is None:
        return None
    matches = prediction.published
    return locate(depth.recorded, matches.reference_keypoints, np.zeros_like(matches.covariances))


def _more(standing: Standing | None, predictions: FramePredictions) -> Standing | None:
    """What stands in more of the image, or of the matches: so far, or in a frame and the one before."""
    published = predictions.by_stride[1].published if 1 in predictions.by_stride else None
    found = [each for each in (standing, None if published is None else published.standing) if each is not None]
    return max(found, key=lambda each: (each.blocked, each.share), default=None)


def time_methods(methods: Sequence[Method], predicted: Sequence[Predicted], frames: Frames) -> None:
    """Time each method on pairs of consecutive frames that are spread over the recording, while nothing else runs."""
    pairs = dict(frames.scene.timeline.pairs(frames.sampled))
    runs, before = [method.alone() for method in methods], None
    for shown in frames.read({*pairs, *pairs.values()}):
        if frames.stopped():
            return
        if before is not None and pairs.get(before.number) == shown.number and before.image.shape == shown.image.shape:
            for run, times in zip(runs, predicted, strict=True):
                _time_pair(run, before, shown, times)
        before = shown


def _time_pair(method: Alone, before: ShownFrame, shown: ShownFrame, times: Predicted) -> None:
    """Match a frame with the one before, and add to `times` what that took."""
    method.process(before)
    wall, cpu = time.perf_counter(), time.process_time()
    stages = method.process(shown)
    frame_ms, cpu_ms = (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3
    method.reset()  # a GPU has no room for the frames of several
    gpu_ms = stages.pop('gpu_ms', 0.0)
    for kept, values in ((times.stage_ms, stages | {'frame': frame_ms}), (times.cost_ms, {'cpu_ms': cpu_ms, 'gpu_ms': gpu_ms})):
        for name, value in values.items():
            kept.setdefault(name, []).append(value)
