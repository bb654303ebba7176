"""ros2 run lightglue_trt_ros matcher: the node."""

from __future__ import annotations

import argparse
import sys

from ..utils.commands import Ending, node_command

EPILOG = """settings are ROS parameters, e.g.
  matcher --ros-args -p backend:=onnxruntime -r image:=/camera/image_raw
  matcher --ros-args --params-file matcher.yaml --log-level debug
config/matcher.yaml lists them all; `ros2 param describe` explains them"""


@node_command('matcher')
def main(argv: list[str] | None, ending: Ending) -> int:
    """Exit code 0 when a signal ended it, 1 with a message when a setting is refused or it fails, 2 for the command line."""
    from ..ros.executor import ros_started
    from ..ros.launch_arguments import misplaced
    from ..ros.matcher.node import MatcherNode, run
    from ..ros.parameters import FIELDS
    parser = argparse.ArgumentParser(prog='matcher', description='The ROS 2 node: camera frames in, correspondences out. Ends with '
                                     'SIGINT or SIGTERM.', epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage='matcher [-h] [--ros-args ...]')
    words = sys.argv[1:] if argv is None else argv
    for line in misplaced(words, FIELDS):
        parser.error(line)
    with ros_started(parser, argv, ending):
        run(MatcherNode(), ending)
    return 0


if __name__ == '__main__':
    sys.exit(main())
