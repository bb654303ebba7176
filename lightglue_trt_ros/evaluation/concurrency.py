"""Work that goes on side by side, and stands still where something is timed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

T = TypeVar('T')


class Floor:
    """Many may work at a time, or one alone: who waits to be alone goes before those who come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working, self._waiting, self._alone = 0, 0, False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Work beside others; nobody who is in here may ask for it again, or to be alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Work while all others rest."""
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._alone and not self._working)
            finally:  # also when Ctrl-C ends the waiting
                self._waiting -= 1
                self._changed.notify_all()
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


@contextmanager
def ahead(source: Generator[T, None, None], count: int, floor: Floor) -> Iterator[Iterator[T]]:
    """The items of `source`, which a thread takes from it, `count` of them at most before they are asked for.

    What `source` raises is raised where the item is asked for. At the end of the block the thread ends, wherever it is.
    """
    items: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(count)
    ended = threading.Event()

    def put(item: T | None, error: BaseException | None) -> None:
        while not ended.is_set():
            try:
                return items.put((item, error), timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            with closing(source):  # by this thread: a database wants that
                while not ended.is_set():
                    with floor.shared():
                        item = next(source)
                    put(item, None)
        except BaseException as error:
            put(None, error)

    def taken() -> Iterator[T]:
        while True:
            item, error = items.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]

    thread = threading.Thread(target=work, name='ahead', daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        ended.set()
        thread.join()
