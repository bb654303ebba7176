"""Processes that end with the one that started them, however that ends: it holds the other end of their standard input."""

from __future__ import annotations

import os
import threading


def end_with_parent() -> None:
    """From now on this process ends, at once and without a word, when its standard input does."""
    threading.Thread(target=_wait, daemon=True).start()


def wait_for_parent() -> None:
    """Block until standard input ends."""
    while os.read(0, 1):
        pass


def _wait() -> None:
    wait_for_parent()
    os._exit(1)
