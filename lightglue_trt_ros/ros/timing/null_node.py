"""The node with a backend that computes nothing (python -m lightglue_trt_ros.ros.timing.null_node)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from ...core.config import MatcherConfig
from ...engines.selection import Opened
from ...utils.commands import Ending, node_command
from ..executor import ros_started
from ..matcher.node import MatcherNode, run
from .null_backend import NullBackend


def open_null(config: MatcherConfig, *, cancelled: Callable[[], bool]) -> Opened:
    """As `selection.open_backend`."""
    backend = NullBackend(config.engine_spec('fp32'))
    return Opened(backend, backend.description)


@node_command('null_node')
def main(argv: list[str] | None, ending: Ending) -> int:
    """Until a signal ends it."""
    with ros_started(argparse.ArgumentParser(prog='null_node'), argv, ending):
        run(MatcherNode(open_null), ending)
    return 0


if __name__ == '__main__':
    sys.exit(main())
