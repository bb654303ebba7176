"""What tests need that wait, with ROS and without."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], Any], timeout: float = 15.0) -> Any:
    """The first true value of `condition`; an AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f'nothing after {timeout} s'
        time.sleep(0.01)
    return value
