"""The node with a backend that computes nothing (python -m lightglue_trt_ros.benchmarks.null_node)."""

from __future__ import annotations

from collections.abc import Callable

import rclpy

from ..backends.null import NullBackend
from ..config import MatcherConfig
from ..node import MatcherNode, run
from ..selection import Opened


def open_null(config: MatcherConfig, *, cancelled: Callable[[], bool]) -> Opened:
    """As `selection.open_backend`."""
    backend = NullBackend(config.engine_spec('fp32'))
    return Opened(backend, backend.description)


if __name__ == '__main__':
    rclpy.init()
    run(MatcherNode(open_null))
