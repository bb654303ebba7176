"""Frames that are read ahead: none lost, none beyond the limit, no thread left; and the cost of work."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from lightglue_trt_ros.datasets.sequence import read_ahead
from lightglue_trt_ros.evaluation.shared_networks import Meter


def test_items_come_in_order_and_no_more_than_asked_for() -> None:
    taken: list[int] = []

    def source() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    with closing(read_ahead(source(), 3)) as items:
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
    with closing(read_ahead(source(), 2)) as items:
        next(items)
    assert ended == ['reading_0']
    assert threading.active_count() == before


def test_an_error_is_raised_where_the_item_is_asked_for() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError('torn')

    with closing(read_ahead(source(), 2)) as items:
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
