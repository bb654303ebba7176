"""ros2 run lightglue_trt_ros odometry: where the camera went, from ~/matches."""

from __future__ import annotations

import argparse
import sys

from ..errors import LightglueTrtError

EPILOG = """it reads matcher/matches and, beside the topic image, its CameraInfo, e.g.
  odometry --ros-args -r image:=/camera/image_raw -p odom_frame:=odom -p publish_tf:=true"""


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when a signal ended it, 1 with a message when a parameter is refused, 2 for the command line."""
    import rclpy
    from rclpy.exceptions import InvalidParameterTypeException

    from ..odometry_node import OdometryNode
    from ..spinning import ended_by_signals, spin, start_ros
    parser = argparse.ArgumentParser(prog='odometry', description='Poses from the tracks of a matcher: Odometry, Path and TF of '
                                     'one camera, in a unit of its own. Ends with SIGINT or SIGTERM.', epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, usage='odometry [-h] [--ros-args ...]')
    if not start_ros(parser, argv):
        return 2
    with ended_by_signals():
        try:
            node = OdometryNode()
        except (LightglueTrtError, InvalidParameterTypeException) as error:
            print(f'odometry: {error}', file=sys.stderr)
            rclpy.try_shutdown()
            return 1
        spin(node, lambda: True, lambda: None)
    return 0


if __name__ == '__main__':
    sys.exit(main())
