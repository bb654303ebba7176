"""A place for one item of each source, between threads: the newest one stays, and the sources take turns."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar('T')


class NewestSlots(Generic[T]):
    """Sources offer, one thread takes; an item that nobody took gives way to the next of its source."""

    def __init__(self, sources: int = 1) -> None:
        self._change = threading.Condition()
        self._items: dict[int, T] = {}
        self._turns = list(range(sources))  # first who was served longest ago: a fast source never starves a slow one
        self._closed = False

    def offer(self, item: T, source: int = 0) -> bool:
        """Put an item, without waiting for anybody; true when it replaced one."""
        with self._change:
            replaced = source in self._items
            if not self._closed:
                self._items[source] = item
            self._change.notify()
            return replaced

    def take(self) -> tuple[int, T] | None:
        """Wait for an item, and whose it is; None once this is closed."""
        with self._change:
            while not self._items and not self._closed:
                self._change.wait()
            for source in self._turns:
                if source in self._items:
                    self._turns.remove(source)
                    self._turns.append(source)
                    return source, self._items.pop(source)
            return None

    def close(self) -> None:
        """Drop what waits and let the taker go. Safe to call twice."""
        with self._change:
            self._closed = True
            self._items.clear()
            self._change.notify()
