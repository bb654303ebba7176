"""The cost of work counts every thread."""

from __future__ import annotations

import threading
import time

from lightglue_trt_eval.predict.shared_networks import Meter


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
