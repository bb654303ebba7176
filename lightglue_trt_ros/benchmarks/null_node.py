"""The node with a backend that computes nothing (python -m lightglue_trt_ros.benchmarks.null_node)."""

from __future__ import annotations

import rclpy

from ..backends.null import open_null
from ..node import MatcherNode, run

if __name__ == '__main__':
    rclpy.init()
    run(MatcherNode(open_null))
