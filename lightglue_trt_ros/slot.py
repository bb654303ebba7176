"""A place for one item between two threads: the newest one stays."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar('T')


class NewestSlot(Generic[T]):
    """One thread offers, another takes; an item that nobody took gives way to the next."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._item: T | None = None
        self._closed = False

    def offer(self, item: T) -> bool:
        """Put an item, without waiting for anybody; true when it replaced one."""
        with self._change:
            replaced = self._item is not None
            self._item = None if self._closed else item
            self._change.notify()
            return replaced

    def take(self) -> T | None:
        """Wait for an item; None once the slot is closed."""
        with self._change:
            while self._item is None and not self._closed:
                self._change.wait()
            item, self._item = self._item, None
            return item

    def close(self) -> None:
        """Drop what waits and let the taker go. Safe to call twice."""
        with self._change:
            self._closed, self._item = True, None
            self._change.notify()
