"""Track ids, handed out to several threads."""

from __future__ import annotations

import threading
from contextlib import suppress

from lightglue_trt_ros.core.tracks import TrackCounter


class Meeting(int):
    """A count whose addition waits until another thread is as far."""

    barrier: threading.Barrier

    def __radd__(self, first):
        with suppress(threading.BrokenBarrierError):
            self.barrier.wait(0.2)
        return first + int(self)


def test_no_id_is_handed_out_twice_whichever_threads_ask_at_once():
    """A pipeline that was left behind goes on beside its successor."""
    counter, taken, Meeting.barrier = TrackCounter(), [], threading.Barrier(2)
    threads = [threading.Thread(target=lambda: taken.append(counter.take(Meeting(50)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert sorted(number for ids in taken for number in ids.tolist()) == list(range(100))
