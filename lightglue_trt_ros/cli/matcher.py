"""ros2 run lightglue_trt_ros matcher: the node."""

from __future__ import annotations

import sys

from ..errors import LightglueTrtError


def main(argv: list[str] | None = None) -> int:
    import rclpy

    from ..node import MatcherNode, ended_by_signals, run
    rclpy.init(args=argv)
    with ended_by_signals():
        try:
            node = MatcherNode()
        except LightglueTrtError as error:
            print(f'matcher: {error}', file=sys.stderr)
            rclpy.try_shutdown()
            return 1
        run(node)
    return 0


if __name__ == '__main__':
    sys.exit(main())
