"""Work side by side: nothing beside what is timed, no item lost, no thread left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from lightglue_trt_ros.evaluation.concurrency import Floor, ahead
from lightglue_trt_ros.evaluation.costs import Cost, Meter


def test_alone_is_alone_and_comes_first() -> None:
    floor, working, seen, stop = Floor(), [0], [], threading.Event()
    lock = threading.Lock()

    def work() -> None:
        while not stop.is_set():
            with floor.shared():
                with lock:
                    working[0] += 1
                time.sleep(0.001)
                with lock:
                    working[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    most = 0
    for _ in range(20):
        with floor.alone():  # though others ask without a break
            seen.append(working[0])
            time.sleep(0.002)
            seen.append(working[0])
        time.sleep(0.002)
        most = max(most, working[0])
    stop.set()
    for thread in threads:
        thread.join(5)
    assert seen == [0] * 40
    assert most > 1, 'the others do work side by side'


def test_items_come_in_order_and_no_more_than_asked_for() -> None:
    taken: list[int] = []

    def source() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    with ahead(source(), 3, Floor()) as items:
        assert next(items) == 0
        time.sleep(0.2)
        assert len(taken) <= 1 + 3 + 1
        assert list(items) == list(range(1, 50))


def test_the_end_of_the_block_ends_the_source_in_its_own_thread() -> None:
    ended: list[str] = []

    def source() -> Iterator[int]:
        try:
            while True:
                yield 0
        finally:
            ended.append(threading.current_thread().name)

    before = threading.active_count()
    with ahead(source(), 2, Floor()) as items:
        next(items)
    assert ended == ['ahead']
    assert threading.active_count() == before


def test_an_error_is_raised_where_the_item_is_asked_for() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError('torn')

    with ahead(source(), 2, Floor()) as items:
        assert next(items) == 1
        with pytest.raises(ValueError, match='torn'):
            next(items)


def test_costs_count_every_thread() -> None:
    def burn() -> None:
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass

    meter = Meter()
    threads = [threading.Thread(target=burn) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.cost.cpu_ms >= 190
    assert Cost(1, 2, 3).plus(Cost(10, 10, 10), -1) == (-9, -8, -7)
