"""One thread that works on the newest item only. It owns what it opens (a CUDA context belongs to its thread)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar('T')


class LatestWorker(Generic[T]):
    """Runs `open()`, then `handle(item)` for the newest item offered, then `close()`, all in one thread.

    Items that arrive while one is in flight replace each other in a slot of one; `replaced` counts those lost.
    `handle` must not raise: whatever it lets through ends the thread, and `failure` holds it.
    """

    def __init__(self, open: Callable[[], None], handle: Callable[[T], None], close: Callable[[], None]) -> None:
        self._open, self._handle, self._close = open, handle, close
        self._change = threading.Condition()
        self._slot: T | None = None
        self._stopping = False
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._run, name='inference', daemon=True)
        self.failure: BaseException | None = None
        self.replaced = 0

    def start(self, keep_waiting: Callable[[], bool] = lambda: True) -> None:
        """Start the thread and wait until `open` has returned; raises what it raised.

        Returns early, without a verdict, once `keep_waiting()` is false.
        """
        self._thread.start()
        while not self._opened.wait(0.05) and keep_waiting():
            pass
        if self.failure is not None:
            raise self.failure

    def offer(self, item: T) -> None:
        """Hand over an item; never blocks on the work itself."""
        with self._change:
            self.replaced += self._slot is not None
            self._slot = item
            self._change.notify()

    def stop(self, timeout: float | None = None) -> bool:
        """Drop what waits, finish what runs, close. False when the thread is still busy after `timeout` seconds."""
        with self._change:
            self._stopping, self._slot = True, None
            self._change.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._open()
            self._opened.set()
            while (item := self._next()) is not None:
                self._handle(item)
        except BaseException as error:
            self.failure = error
        finally:
            self._close()
            self._opened.set()

    def _next(self) -> T | None:
        with self._change:
            while self._slot is None and not self._stopping:
                self._change.wait()
            item, self._slot = self._slot, None
            return item
