"""play_bag: publish the images of a rosbag2 or an image folder, with their CameraInfo, at the recorded or a chosen pace."""

from __future__ import annotations

import sys

from ..utils.commands import Ending, node_command


@node_command('play_bag')
def main(argv: list[str] | None, ending: Ending) -> int:
    """Exit code 0 when all was played or a signal ended it, 1 with a message when the recording cannot be played."""
    from ..ros.player import play
    play(argv, ending)
    return 0


if __name__ == '__main__':
    sys.exit(main())
