"""One pass over a recording: every method sees every frame once, with the frame before it at each stride, and is scored.

Of one frame, our networks and each baseline run in parallel, then the scoring of each; nothing else runs while a frame is timed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.types import Standing, UInt8
from lightglue_trt_ros.datasets.sequence import Frame
from lightglue_trt_ros.odometry.two_view import PoseEstimator
from lightglue_trt_ros.utils.errors import BagError, EngineError, FrameError

from .predict.baselines import MatchedPoints
from .predict.methods import Method, Prediction
from .predict.scene import Motion, Scene
from .score.depth_accuracy import DepthImages, DepthScore, ShownDepth
from .score.method_score import MethodScore
from .score.metrics import MatcherResult
from .score.pair_score import returning_share

First = Callable[[int, tuple[int, int], Prediction], Prediction]

BACKWARD_PAIRS = 20  # that are matched backwards as well
TIMED_PAIRS = 30  # whose second frame is timed


class WallTime:
    """Seconds by what they were spent on, from any thread: what goes on side by side counts on each side."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        """Count the time of a block as `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


class ShownFrame(NamedTuple):
    """A frame as every method sees it."""

    number: int  # in the timeline
    seconds: float
    image: UInt8
    references: dict[int, tuple[int, UInt8] | None]  # by stride: number and image of the frame before; None: a sequence starts
    timed: bool  # at stride 1
    depth: ShownDepth | None  # None: it has none of its moment and size, or was not asked for
    reference_depth: ShownDepth | None  # of the reference at stride 1
    camera: Intrinsics | None = None  # None: unknown


class FramePrediction(NamedTuple):
    """The predictions of one method for a frame."""

    by_stride: dict[int, Prediction]  # where there is a reference
    backward: MatchedPoints | None  # of stride 1, from the frame to its reference, where that was asked for


class MethodRun:
    """A method on one recording: a stream for each stride, and one for matching backwards."""

    def __init__(self, method: Method, strides: Sequence[int], wall: WallTime) -> None:
        self.ours = method.ours
        self._streams = {stride: method.stream(number) for number, stride in enumerate(strides)}
        self._backward = method.stream(0)  # of the images of stride 1
        self._wall, self._kind = wall, 'inference' if method.ours else 'baselines'

    def match(self, shown: ShownFrame, strides: Iterable[int]) -> dict[int, Prediction]:
        """The correspondences with the references at `strides`."""
        predictions = {}
        with self._wall.spent(self._kind):
            for stride in strides:
                if shown.references[stride] is None:
                    self._streams[stride].reset()
                depth = shown.depth.given if shown.depth is not None and stride == 1 else None
                prediction = self._streams[stride].process(shown.image, shown.seconds, timed=shown.timed and stride == 1,
                                                           depth=depth, camera=shown.camera)
                if prediction is not None:
                    predictions[stride] = prediction
        return predictions

    def match_back(self, shown: ShownFrame, reference: UInt8) -> MatchedPoints | None:
        """The correspondences from the frame to its reference."""
        with self._wall.spent(self._kind):
            self._backward.reset()
            self._backward.process(shown.image, 0.0, camera=shown.camera)
            prediction = self._backward.process(reference, 1.0, camera=shown.camera)
            return None if prediction is None else prediction.points


def _more(standing: Standing | None, prediction: FramePrediction) -> Standing | None:
    """What stands in more of the image, or of the matches: so far, or in a frame and the one before."""
    published = prediction.by_stride[1].published if 1 in prediction.by_stride else None
    found = [each for each in (standing, None if published is None else published.standing) if each is not None]
    return max(found, key=lambda each: (each.blocked, each.share), default=None)


class RecordingPass:
    """Passes over a recording, each with other methods.

    `frames` opens the recording anew and gives the frames of the scene's timeline, `decode` makes gray uint8 (H, W) of what one
    loads, `stopped` is asked between frames, `on_note` gets a line about frames that are lost or change their size. Our
    methods get the images of `depths`, if there are any.
    """

    def __init__(self, frames: Callable[[], Iterable[Frame]], decode: Callable[[Any], UInt8], scene: Scene,
                 estimator: PoseEstimator, *, wall: WallTime | None = None, stopped: Callable[[], bool] = lambda: False,
                 on_note: Callable[[str], None] = lambda line: None, depths: DepthImages | None = None) -> None:
        self.wall, self.on_note = wall or WallTime(), on_note
        self._frames, self._decode, self._stopped = frames, decode, stopped
        self._scene, self._estimator, self._depths = scene, estimator, depths
        self._backward = {pair[1] for pair in scene.timeline.pairs(BACKWARD_PAIRS)}
        self._timed = {pair[1] for pair in scene.timeline.pairs(TIMED_PAIRS)}
        self.covered = 0  # frames that were evaluated in the last pass
        self.interrupted = False
        self.failure = ''  # why the last pass ended early

    def __len__(self) -> int:
        return len(self._scene.timeline)

    def run(self, methods: Sequence[Method], strides: Sequence[int], progress: Callable[[int], None] = lambda done: None,
            first: First | None = None) -> list[MatcherResult]:
        """The results of one pass of all methods, of a part of the recording if `stopped` or a failing backend ended it.

        `progress` gets the number of frames that are done; `first` gets stride, pair and prediction of the first method, and gives
        the prediction that our other methods are compared with.
        """
        self.covered = 0
        results = [MatcherResult(each.name, each.description, each.ours, engine=each.engine) for each in methods]
        scores = [MethodScore(result, self._scene, self._estimator, drawn=number == 0,
                              depth=None if self._depths is None or not result.ours else DepthScore(self._depths.camera))
                  for number, result in enumerate(results)]
        runs = [MethodRun(method, strides, self.wall) for method in methods]
        standing: Standing | None = None
        with ThreadPoolExecutor(len(runs), 'method') as threads, closing(self._shown_frames(strides)) as shown_frames:
            try:
                for shown in shown_frames:
                    predicted = self._predict(runs, shown, threads)
                    self._score(scores, shown, predicted, threads, first)
                    standing = _more(standing, predicted[0])
                    progress(shown.number + 1)
            except EngineError as error:
                self.failure, self.interrupted = str(error), True
        if standing is not None:
            self.on_note(f'{methods[0].name}: {standing.in_words}')
        return [score.finish() for score in scores]

    def _shown_frames(self, strides: Sequence[int]) -> Generator[ShownFrame, None, None]:
        """Every frame of the timeline that can be decoded, with its references."""
        timeline, resized = self._scene.timeline, list[str]()
        before: dict[int, tuple[int, UInt8]] = {}  # by stride
        depth_before: ShownDepth | None = None
        for number, frame, image, depth in self._read():
            if self._stopped():
                self.interrupted = True
                return
            if isinstance(image, Exception):
                self.on_note(f'frame {frame.number} cannot be decoded: {image}')
                continue
            self._scene.see(number, image.shape)
            if 1 in before and before[1][1].shape != image.shape:
                resized.append(f'to {image.shape[1]}x{image.shape[0]} with frame {frame.number}')
            references: dict[int, tuple[int, UInt8] | None] = {}
            for stride in strides:
                if number % stride == 0:
                    previous = before.get(stride)
                    joined = (previous is not None and previous[1].shape == image.shape
                              and timeline.segments[previous[0]] == timeline.segments[number])
                    references[stride] = previous if joined else None
                    before[stride] = number, image
            timed = references.get(1) is not None and number in self._timed
            if depth is not None and depth.given.pixels.shape != image.shape:
                depth = None
            yield ShownFrame(number, timeline.seconds(number), image, references, timed, depth, depth_before,
                             self._scene.camera_of(number))
            depth_before = depth
        if resized:
            self.on_note(f'the images change their size {len(resized)} times, first {resized[0]}: the sequence starts anew there, '
                       'and only frames of the size that the intrinsics are for have a geometry')

    def _predict(self, runs: Sequence[MethodRun], shown: ShownFrame, threads: ThreadPoolExecutor) -> list[FramePrediction]:
        """The predictions of all methods: ours in this thread, each baseline in one of `threads` meanwhile."""
        timed: list[dict[int, Prediction]] = [{} for _ in runs]
        if shown.timed:
            timed = [run.match(shown, [1]) for run in runs]
        reference = shown.references.get(1) if shown.number in self._backward else None
        strides = sorted(shown.references.keys() - ({1} if shown.timed else set()))

        def predicted(run: MethodRun, before: dict[int, Prediction]) -> FramePrediction:
            by_stride = before | run.match(shown, strides)
            return FramePrediction(by_stride, None if reference is None else run.match_back(shown, reference[1]))

        started = [None if run.ours else threads.submit(predicted, run, before) for run, before in zip(runs, timed, strict=True)]
        return [predicted(run, before) if future is None else future.result()
                for run, before, future in zip(runs, timed, started, strict=True)]

    def _read(self) -> Generator[tuple[int, Frame, UInt8 | Exception, ShownDepth | None], None, None]:
        """Every frame of the timeline with its image, or with the error that its decoding raises, and its depth image."""
        frames = self._frames()
        source = enumerate(((frame, None) for frame in frames) if self._depths is None else self._depths.of_frames(frames))
        while True:
            with self.wall.spent('reading'):
                entry = next(source, None)
                if entry is None:
                    return
                number, (frame, depth) = entry
                try:
                    image: UInt8 | Exception = self._decode(frame.load())
                except (BagError, FrameError) as error:
                    image = error
            yield number, frame, image, depth

    def _score(self, scores: Sequence[MethodScore], shown: ShownFrame, predicted: Sequence[FramePrediction],
               threads: ThreadPoolExecutor, compared_with: First | None) -> None:
        """Score the predictions of all methods for a frame."""
        with self.wall.spent('estimating'):
            pairs: dict[int, tuple[tuple[int, int], tuple[UInt8, UInt8], Motion | None, Prediction]] = {}
            for stride, reference in shown.references.items():
                first = next((each.by_stride[stride] for each in predicted if stride in each.by_stride), None)
                if reference is not None and first is not None:
                    pair, images = (reference[0], shown.number), (reference[1], shown.image)
                    motion = self._scene.motion(pair, images, first.points)
                    pairs[stride] = pair, images, motion, compared_with(stride, pair, first) if compared_with else first

            def score_method(score: MethodScore, predictions: FramePrediction) -> None:
                for stride, prediction in predictions.by_stride.items():
                    pair, images, motion, first = pairs[stride]
                    score.add(stride, pair, prediction, images=images, motion=motion,
                              first=first if score.result.ours and prediction is not first else None)
                if score.depth is not None:
                    published = predictions.by_stride[1].published if 1 in predictions.by_stride else None
                    before = shown.reference_depth if published is not None else None
                    reference = shown.references[1]
                    score.depth.add(published, None if before is None else before.recorded,
                                    None if reference is None else self._scene.pose(reference[0]), self._scene.pose(shown.number))
                if 1 not in predictions.by_stride:
                    return
                if shown.timed:
                    score.time(predictions.by_stride[1])
                if predictions.backward is not None and (
                        share := returning_share(predictions.by_stride[1].points, predictions.backward)) is not None:
                    score.result.forward_backward.append(share)

            list(threads.map(score_method, scores, predicted))
        self.covered += 1
