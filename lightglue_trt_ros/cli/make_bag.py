"""make_bag: write a rosbag2 from an image folder."""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
from pathlib import Path

from ..datasets.bag import open_recording
from ..datasets.bag_writer import COMPRESSIONS, STORAGES, VERSIONS, write_bag
from ..datasets.image_folders import FolderRecording
from ..datasets.sequence import DEPTH_TOPIC, IMAGE_TOPIC, RIGHT_TOPIC
from ..datasets.units import JUDGED_IMAGES, bits_note, median_depth
from ..utils.arguments import add_depth_scale, add_image_bits
from ..utils.commands import command, log
from ..utils.console import progress
from ..utils.errors import BagError


@command('make_bag', interrupted='interrupted; nothing was written')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when the bag is written, 1 with a message when it is not."""
    parser = argparse.ArgumentParser(
        prog='make_bag', description='Write a rosbag2 with images, CameraInfo and ground truth (poses of the camera) from an '
        'image folder: images/, timestamps.txt (seconds, one per image), and where they exist groundtruth.txt (TUM), calib.yaml, '
        'depth/ (PNGs of 16 bits in millimetres, one per image); '
        'or a sequence of TUM RGB-D, KITTI odometry or EuRoC as it is unpacked.')
    parser.add_argument('folder', type=Path)
    parser.add_argument('out', type=Path, help='directory to write; it appears under this name once it is whole')
    parser.add_argument('--storage', choices=STORAGES, default='sqlite3', help='default: %(default)s, which every ROS 2 reads')
    parser.add_argument('--compressed', choices=COMPRESSIONS, help='record CompressedImage on TOPIC/compressed instead of Image')
    parser.add_argument('--image-topic', default=IMAGE_TOPIC, metavar='TOPIC', help='default: %(default)s')
    parser.add_argument('--frame-id', default='camera', help='header.frame_id of the images, default: %(default)s')
    parser.add_argument('--version', type=int, choices=VERSIONS, default=9, help='of metadata.yaml: 8 for Humble (default: 9)')
    parser.add_argument('--stereo', action='store_true', help=f'also record the right images, on {RIGHT_TOPIC}')
    parser.add_argument('--no-depth', action='store_true', help=f'leave out the depth images, which are recorded on {DEPTH_TOPIC}')
    add_image_bits(parser)
    add_depth_scale(parser)
    parser.add_argument('--force', action='store_true', help='replace OUT where it is a bag')
    args = parser.parse_args(argv)
    recording = open_recording(args.folder, image_bits=args.image_bits, depth_scale=args.depth_scale)
    if not isinstance(recording, FolderRecording):
        raise BagError(f'{args.folder} is a bag already: make_bag reads image folders')
    ground_truth, right = recording.ground_truth(), recording.right if args.stereo else None
    if args.stereo and right is None:
        raise BagError(f'{args.folder} has no right images')
    depth = None if args.no_depth else recording.depth
    if args.depth_scale and depth is None:
        parser.error(f'--depth-scale is of depth images: {args.folder} has none, or --no-depth leaves them out')
    some = itertools.islice(recording.frames(), 0, None, max(1, len(recording) // JUDGED_IMAGES))
    if note := bits_note(some, recording.bits):
        log.info(note)
    median_m = None if depth is None else median_depth(depth, log.info)
    with progress('writing frames', len(recording)) as advance:
        count = write_bag(args.out, recording.images(), recording.intrinsics, ground_truth,
                          image_topic=args.image_topic, frame_id=args.frame_id, storage=args.storage, version=args.version,
                          compressed=args.compressed, force=args.force, progress=advance,
                          right=None if right is None else (right.images(), right.intrinsics),
                          depth=None if depth is None else depth.images())
    size = sum(file.stat().st_size for file in args.out.iterdir())
    poses = 'no poses' if ground_truth is None else f'{len(ground_truth)} poses'
    seconds = (recording.stamps_ns[-1] - recording.stamps_ns[0]) / 1e9
    info = 'with CameraInfo' if recording.intrinsics else 'no CameraInfo'
    depths = '' if median_m is None else f', depth with a median of {median_m:.3g} m'
    print(f'{args.out}: {count} frames over {seconds:.1f} s, {info}, {poses}{depths}, {size / 1e6:.1f} MB, {args.storage}')
    ending = '/compressed' * bool(args.compressed)
    options = [f'--image-topic {args.image_topic}{ending} --right-topic {RIGHT_TOPIC}{ending}'] if right is not None else []
    options += ['--depth'] if depth is not None else []
    if options:
        for program in ('play_bag', 'evaluate_bag'):
            print(f'ros2 run lightglue_trt_ros {program} {shlex.quote(str(args.out))} {" ".join(options)}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
