"""ros2 run lightglue_trt_ros matcher: the node."""

from __future__ import annotations

import argparse
import sys

from ..errors import LightglueTrtError

EPILOG = """settings are ROS parameters, e.g.
  matcher --ros-args -p backend:=onnxruntime -r image:=/camera/image_raw
  matcher --ros-args --params-file matcher.yaml --log-level debug
config/matcher.yaml lists them all; `ros2 param describe` explains them"""


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when a signal ended it, 1 with a message when a setting is refused, 2 for the command line."""
    import rclpy

    from ..node import MatcherNode, run
    from ..spinning import ended_by_signals, start_ros
    parser = argparse.ArgumentParser(prog='matcher', description='The ROS 2 node: camera frames in, correspondences out. Ends with '
                                     'SIGINT or SIGTERM.', epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage='matcher [-h] [--ros-args ...]')
    if not start_ros(parser, argv):
        return 2
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
