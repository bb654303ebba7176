"""ros2 run lightglue_trt_ros odometry: poses of the camera from ~/matches."""

from __future__ import annotations

import argparse
import sys

from ..utils.commands import Ending, node_command

EPILOG = """it reads matcher/matches and the CameraInfo of the topic image, e.g.
  odometry --ros-args -r image:=/camera/image_raw -p odom_frame:=odom -p publish_tf:=true"""


@node_command('odometry')
def main(argv: list[str] | None, ending: Ending) -> int:
    """Exit code 0 when a signal ended it, 1 with a message when a parameter is refused or it fails, 2 for the command line."""
    from ..ros.executor import ros_started, spin
    from ..ros.launch_arguments import misplaced
    from ..ros.odometry_node import PARAMETERS, OdometryNode
    parser = argparse.ArgumentParser(prog='odometry', description='Poses from the tracks of a matcher: Odometry, Path and TF, in '
                                     'metres with stereo or depth. Ends with SIGINT or SIGTERM.', epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, usage='odometry [-h] [--ros-args ...]')
    for line in misplaced(sys.argv[1:] if argv is None else argv, [name for name, _, _ in PARAMETERS]):
        parser.error(line)
    with ros_started(parser, argv, ending):
        spin(OdometryNode(), ending)
    return 0


if __name__ == '__main__':
    sys.exit(main())
