"""One thread opens, owns and closes: what is released when, what a failure leaves, and what two pipelines share. No ROS."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import pytest
from support.waiting import wait_for

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.tracks import TrackCounter
from lightglue_trt_ros.core.types import HostFeatures
from lightglue_trt_ros.engines import selection
from lightglue_trt_ros.engines.selection import Opened
from lightglue_trt_ros.ros.frame_statistics import FrameStatistics
from lightglue_trt_ros.ros.matcher.pipeline import MAX_FAILURES, QUESTIONS, Input, LatestQueue, Pipeline, Question, State
from lightglue_trt_ros.utils import processes
from lightglue_trt_ros.utils.errors import DeviceMemoryError, EngineError, FrameError

CONFIG = MatcherConfig(image_height=48, image_width=64, max_keypoints=50)
IMAGE = np.zeros((48, 64), np.uint8)


class Buffer:
    """Stands for what lies on a device: nobody may hold it when the backend closes."""


class Backend(NullBackend):
    """Features and arguments of a run hold buffers; `gate` holds a run up, `failures` are raised one by one."""

    def __init__(self) -> None:
        super().__init__(CONFIG.engine_spec('fp32'))
        self.gate, self.busy = threading.Event(), threading.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.buffers: list[weakref.ref[Buffer]] = []
        self.held_at_close: int | None = None
        self.threads: set[int] = set()

    def buffer(self) -> Buffer:
        made = Buffer()
        self.buffers.append(weakref.ref(made))
        return made

    def extract(self, image, mask=None):
        self.threads.add(threading.get_ident())
        self.busy.set()
        self.gate.wait(10)
        local = self.buffer()
        if self.failures:
            raise self.failures.pop(0)
        return Features(self._features.keypoints, self._features.scores, self._features.descriptors, local)

    def close(self):
        assert self.held_at_close is None, 'closed once'
        self.threads.add(threading.get_ident())
        self.held_at_close = sum(each() is not None for each in self.buffers)


@dataclass(frozen=True)
class Features(HostFeatures):
    """With a buffer."""

    buffer: Buffer


class Handler:
    """Items are stamps; keeps all calls, those of the pipeline's ends too."""

    def __init__(self) -> None:
        self.published, self.calls = [], []

    def decode(self, item):
        if item < 0:
            raise FrameError('a bad frame')
        return Input(IMAGE, item, item)

    def publish(self, frame, matches):
        self.published.append(matches)

    def show(self, frame, matches):
        self.calls.append('shown')

    def tracks_restarted(self, reason):
        self.calls.append(reason)

    def rejected(self, error, details):
        self.calls.append(error)

    def opened(self, opened):
        self.calls.append('opened')

    def ended(self):
        self.calls.append('ended')


class Run:
    """A pipeline on one Backend."""

    def __init__(self, counter: TrackCounter | None = None, opener=None) -> None:
        self.backend, self.handler = Backend(), Handler()
        self.pipeline = Pipeline(CONFIG, opener or (lambda config, *, cancelled: Opened(self.backend, 'test')),
                                 [self.handler], counter or TrackCounter(), self.handler.opened, self.handler.ended)
        self.input, self.statistics = self.pipeline.inputs[0], self.pipeline.inputs[0].statistics
        self.pipeline.start()

    def feed(self, *stamps: float) -> None:
        for stamp in stamps:
            calls = len(self.handler.calls)
            self.input.offer(stamp)
            wait_for(lambda calls=calls: len(self.handler.calls) > calls or self.pipeline.state is State.ENDED)
        wait_for(lambda: self.statistics.count.processed + self.statistics.count.rejected >= len(stamps)
                 or self.pipeline.state is State.ENDED)


def test_it_opens_works_and_closes_in_one_thread_and_start_does_not_wait():
    release = threading.Event()
    backend = Backend()

    def opener(config, *, cancelled):
        backend.threads.add(threading.get_ident())
        release.wait(5)
        return Opened(backend, 'test')

    run = Run(opener=opener)
    assert run.pipeline.state is State.OPENING
    run.input.offer(1.0)
    release.set()
    wait_for(lambda: run.statistics.count.processed == 1)
    assert run.pipeline.state is State.RUNNING
    assert 'null' in run.pipeline.backend
    assert run.pipeline.stop(5)
    assert backend.held_at_close == 0, 'features are gone before the backend'
    assert len(backend.threads) == 1
    assert threading.get_ident() not in backend.threads
    assert run.pipeline.state is State.ENDED
    assert run.pipeline.failure == ''
    assert 'ended' not in run.handler.calls, 'it was asked to'


def test_a_question_is_refused_at_once_while_the_networks_open():
    release = threading.Event()

    def opener(config, *, cancelled):
        release.wait(5)
        return Opened(Backend(), 'test')

    run = Run(opener=opener)
    with pytest.raises(EngineError, match='the networks still open'):
        run.input.ask(lambda matcher: pytest.fail('there is no matcher yet'))
    release.set()
    wait_for(lambda: run.pipeline.state is State.RUNNING)
    assert run.input.ask(lambda matcher: matcher.config).result(5) is CONFIG
    run.pipeline.stop(5)


@pytest.mark.parametrize(('error', 'words'), [
    (EngineError('no engine: build one'), 'no engine: build one'),
    (ModuleNotFoundError("No module named 'spox'"), "ModuleNotFoundError: No module named 'spox'")])
def test_error_while_opening_is_the_failure_and_the_last_error(error, words):
    def opener(config, *, cancelled):
        raise error

    run = Run(opener=opener)
    wait_for(lambda: run.handler.calls == ['ended'])
    assert (run.pipeline.state, run.pipeline.failure, run.pipeline.was_open) == (State.ENDED, words, False)
    assert run.pipeline.figures(run.input)['last error'] == words


def test_exhausted_device_memory_ends_it_and_nothing_outlives_the_backend():
    run = Run()
    run.feed(1.0, 1.1)
    run.backend.failures.append(DeviceMemoryError('device memory is exhausted'))
    run.input.offer(1.2)
    wait_for(lambda: 'ended' in run.handler.calls)
    assert run.backend.held_at_close == 0, "a traceback's frames hold nothing"
    assert run.pipeline.failure == 'device memory is exhausted'
    assert run.pipeline.backend == 'none'


def test_pipeline_ends_after_repeated_failures_unless_it_recovers():
    run = Run()
    for again in (0.0, 20.0):
        run.backend.failures = [EngineError('an illegal memory access was encountered')] * (MAX_FAILURES - 1)
        run.feed(*np.arange(again, again + MAX_FAILURES - 1))
        run.feed(*np.arange(again + MAX_FAILURES, again + MAX_FAILURES + 2))
        assert run.pipeline.state is State.RUNNING, 'not so many in a row'
    run.backend.failures = [EngineError('an illegal memory access was encountered')] * 1000
    run.feed(*np.arange(40.0, 40.0 + MAX_FAILURES))
    wait_for(lambda: 'ended' in run.handler.calls)
    assert run.pipeline.failure == f'{MAX_FAILURES} frames in a row failed, the last with: an illegal memory access was encountered'
    assert run.backend.held_at_close == 0


def test_bad_frames_never_end_it():
    run = Run()
    run.feed(*[-1.0] * (2 * MAX_FAILURES))
    assert run.pipeline.state is State.RUNNING
    assert run.statistics.count.rejected == 2 * MAX_FAILURES
    assert run.pipeline.stop(5)


def test_abandoned_pipeline_closes_its_backend_and_publishes_nothing():
    counter = TrackCounter()
    first = Run(counter)
    first.feed(1.0)
    first.backend.gate.clear()
    first.backend.busy.clear()
    first.input.offer(1.1)
    assert first.backend.busy.wait(5)
    assert not first.pipeline.stop(0.05), 'a long frame'
    second = Run(counter)
    second.feed(2.0, 2.1)
    first.backend.gate.set()
    wait_for(lambda: first.pipeline.state is State.ENDED)
    assert first.backend.held_at_close == 0
    assert second.backend.held_at_close is None, "the successor's backend stays open"
    assert not first.handler.published
    second.feed(2.2)
    assert len(second.handler.published) == 2
    assert second.pipeline.stop(5)


def test_track_ids_go_on_in_the_next_one():
    counter, ids = TrackCounter(), []
    for _ in range(2):
        run = Run(counter)
        run.feed(1.0, 1.1)
        ids.append(set(run.handler.published[0].track_ids.tolist()))
        assert run.pipeline.stop(5)
    assert not ids[0] & ids[1]


def test_a_reset_that_is_asked_for_while_another_is_taken_is_not_lost(monkeypatch):
    run, forget = Run(), FrameMatcher.reset

    def slowly(frames, reason):
        forget(frames, reason)
        if reason == 'first':
            run.pipeline.reset('second')

    monkeypatch.setattr(FrameMatcher, 'reset', slowly)
    run.feed(1.0, 1.1)
    run.pipeline.reset('first')
    run.feed(1.2, 1.3)
    assert [words for words in run.handler.calls if words in ('first', 'second')] == ['first', 'second']
    assert run.statistics.count.resets == 2
    assert run.pipeline.stop(5)


def test_newest_waiting_item_is_matched_and_others_count_as_dropped():
    run = Run()
    run.backend.gate.clear()
    run.input.offer(1.0)
    assert run.backend.busy.wait(5)
    for stamp in (1.1, 1.2, 1.3):
        run.input.offer(stamp)
    run.backend.gate.set()
    wait_for(lambda: len(run.handler.published) == 1)
    assert run.handler.published[0].stamp == 1.3
    assert run.statistics.report()['frames dropped'] == '2'
    assert run.pipeline.stop(5)


def test_the_report_has_percentiles_of_stages_and_the_median_of_matches():
    statistics = FrameStatistics()
    for milliseconds in range(11):
        statistics.finished({'match': float(milliseconds)}, 100 + milliseconds, 4)
    report = statistics.report()
    assert report['match ms (p50 / p95 / p99)'] == '5.00 / 9.50 / 9.90'
    assert report['matches (last, median)'] == '110, 105'


def test_stopping_ends_the_engines_builder(monkeypatch):
    """build_on_start: minutes, in a process of its own, which must not outlive the node."""
    builders = []

    def start(*words):
        builders.append(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']))
        return builders[0]

    monkeypatch.setattr(selection, 'start', start)
    run = Run(opener=lambda config, *, cancelled: selection._build(config, CONFIG.engine_dir, 'fp16', cancelled))
    wait_for(lambda: builders)
    started = time.monotonic()
    assert run.pipeline.stop(5)
    assert time.monotonic() - started < 4
    assert builders[0].poll() is not None
    assert run.pipeline.failure == ''


def test_a_process_is_waited_for():
    process = subprocess.Popen([sys.executable, '-c', 'raise SystemExit(3)'])
    assert processes.wait(process, lambda: False) == 3


def test_the_newest_item_replaces_the_one_that_waits():
    slot = LatestQueue()
    assert [slot.offer(item) for item in (1, 2, 3)] == [False, True, True]
    assert slot.take() == (0, 3)
    assert not slot.offer(4)
    assert slot.take() == (0, 4)


def test_a_source_that_offers_at_once_again_waits_for_the_others():
    slots, served = LatestQueue(range(3)), []
    for source in range(3):
        slots.offer('first', source)
    for _ in range(6):
        source, _ = slots.take()
        slots.offer('again', source)
        served.append(source)
    assert served == [0, 1, 2, 0, 1, 2]


def test_many_questions_hold_up_no_frame_and_are_answered_in_their_order():
    slots, served = LatestQueue(range(2)), []
    slots.accepts = True
    questions = [Question(0, str, Future()) for _ in range(4)]
    for question in questions:
        slots.ask(question)
    for _ in range(6):
        slots.offer('frame', 1)
        served.append(slots.take())
    assert [item for source, item in served if source == QUESTIONS] == questions[:3]
    assert [source for source, _ in served] == [1, QUESTIONS] * 3
    slots.close('the node was deactivated')
    with pytest.raises(EngineError, match='not answered: the node was deactivated'):
        questions[3].answer.result(0)
    with pytest.raises(EngineError, match='the node is not active'):
        slots.ask(questions[3])


def test_take_waits_and_close_lets_it_go():
    slot, taken = LatestQueue(), []

    def work() -> None:
        while (item := slot.take()) is not None:
            taken.append(item)

    thread = threading.Thread(target=work)
    thread.start()
    slot.offer('a')
    while not taken:
        pass
    slot.close()
    thread.join(5)
    assert not thread.is_alive()
    assert taken == [(0, 'a')]


def test_a_closed_slot_holds_nothing():
    slot = LatestQueue()
    slot.offer(1)
    slot.close()
    slot.close()
    assert not slot.offer(2)
    assert slot.take() is None
