"""The slot of one and its thread."""

import threading

import pytest

from lightglue_trt_ros.worker import LatestWorker


class Job:
    """Records what happens and in which thread; `gate` holds the first item."""

    def __init__(self) -> None:
        self.gate, self.busy = threading.Event(), threading.Event()
        self.events: list[tuple[str, int]] = []
        self.handled: list[int] = []

    def open(self) -> None:
        self.events.append(('open', threading.get_ident()))

    def handle(self, item: int) -> None:
        self.busy.set()
        self.gate.wait(5)
        self.handled.append(item)
        self.events.append(('handle', threading.get_ident()))

    def close(self) -> None:
        self.events.append(('close', threading.get_ident()))


def test_only_the_newest_of_the_waiting_items_is_handled_and_the_others_are_counted():
    job = Job()
    worker = LatestWorker(job.open, job.handle, job.close)
    worker.start()
    worker.offer(1)
    assert job.busy.wait(5)
    for item in (2, 3, 4):
        worker.offer(item)
    job.gate.set()
    while len(job.handled) < 2:
        pass
    assert worker.stop(5)
    assert job.handled == [1, 4]
    assert worker.replaced == 2
    assert [name for name, _ in job.events] == ['open', 'handle', 'handle', 'close']
    assert len({thread for _, thread in job.events}) == 1
    assert job.events[0][1] != threading.get_ident()


def test_stop_drops_what_waits():
    job = Job()
    worker = LatestWorker(job.open, job.handle, job.close)
    worker.start()
    worker.offer(1)
    assert job.busy.wait(5)
    worker.offer(2)
    assert not worker.stop(0.05)
    job.gate.set()
    assert worker.stop(5)
    assert job.handled == [1]


def test_a_failing_open_is_raised_by_start_and_still_closed():
    job = Job()

    def fail() -> None:
        raise ValueError('no engine')

    worker = LatestWorker(fail, job.handle, job.close)
    with pytest.raises(ValueError, match='no engine'):
        worker.start()
    assert worker.stop(5)
    assert [name for name, _ in job.events] == ['close']


def test_start_gives_up_waiting_when_told():
    release = threading.Event()
    job = Job()
    worker = LatestWorker(lambda: release.wait(5) and None, job.handle, job.close)
    worker.start(keep_waiting=lambda: False)
    assert worker.alive
    release.set()
    assert worker.stop(5)


def test_an_escaping_error_ends_the_thread_and_is_kept():
    job = Job()

    def fail(item: int) -> None:
        raise RuntimeError('unexpected')

    worker = LatestWorker(job.open, fail, job.close)
    worker.start()
    worker.offer(1)
    while worker.alive:
        pass
    assert worker.stop(5)
    assert isinstance(worker.failure, RuntimeError)
    assert job.events[-1][0] == 'close'
