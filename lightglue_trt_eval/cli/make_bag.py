"""make_bag: write a rosbag2 from an image folder, or from one camera of a bag as it would be in bad light."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.cameras import camera_info_topic, without_transport
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.datasets.bag_recording import BagRecording
from lightglue_trt_ros.datasets.bag_writer import COMPRESSIONS, STORAGES, VERSIONS, write_bag
from lightglue_trt_ros.datasets.folder_recordings import FolderRecording
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.poses import Trajectory
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import DEPTH_TOPIC, IMAGE_TOPIC, POSE_TOPIC, RIGHT_TOPIC, Recording, readable_frames
from lightglue_trt_ros.datasets.units import median_depth
from lightglue_trt_ros.utils.arguments import HelpInLines, add_depth_scale, add_image_bits, some_of
from lightglue_trt_ros.utils.commands import command, log
from lightglue_trt_ros.utils.console import progress
from lightglue_trt_ros.utils.errors import BagError

from ..images.degradation import DEGRADATIONS, camera_stands, degraded_frames, description_of, in_lines
from ..options import notes_of

TOPIC = re.compile(r'(/|\b)[A-Za-z_]\w*(/[A-Za-z_]\w*)*', re.ASCII)


@command('make_bag', interrupted='interrupted; nothing was written')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when the bag is written, 1 with a message when it is not."""
    parser, args = _parse(argv)
    recording = open_recording(args.folder, args.image_topic, image_bits=args.image_bits, depth_scale=args.depth_scale)
    folder = recording if isinstance(recording, FolderRecording) else None
    if folder is not None and args.image_topic and not TOPIC.fullmatch(args.image_topic):
        parser.error(f'--image-topic {args.image_topic!r} cannot be the name of a ROS topic: give one such as {IMAGE_TOPIC}')
    if folder is None and not args.degrade:
        raise BagError(f'{args.folder} is a bag already: make_bag reads image folders, and bags only with --degrade')
    right = folder.right if folder is not None and args.stereo else None
    if args.stereo and right is None:
        raise BagError(f'{args.folder} has no right images')
    depth = None if args.no_depth else _depth(recording, args.degrade)
    if args.depth_scale and depth is None:
        parser.error(f'--depth-scale is of depth images: {args.folder} has none, or they are left out')
    for line in notes_of(recording):
        log.info(line)
    median_m = None if depth is None else median_depth(depth, log.info)
    stamps = [frame.stamp_ns for frame in readable_frames(recording, log.info)] if folder is None else folder.stamps_ns
    intrinsics, ground_truth = recording.intrinsics, _ground_truth(recording, args.degrade, stamps)
    topic = recording.image_topic if folder is not None else without_transport(recording.image_topic)
    _check_topics(parser, topic, right is not None, depth is not None)
    frame_id = args.frame_id or (recording.frame_id if isinstance(recording, BagRecording) else '') or 'camera'
    for name in args.degrade:
        log.info(f'every frame is degraded, {name}: {description_of(name)}')
    with progress('writing frames', len(recording)) as advance:
        count = write_bag(args.out, _images(recording, args.degrade), intrinsics, ground_truth, image_topic=topic,
                          frame_id=frame_id, storage=args.storage, version=args.version, compressed=args.compressed,
                          force=args.force, progress=advance, right=None if right is None else (right.images(), right.intrinsics),
                          depth=None if depth is None else depth.images())
    size = sum(file.stat().st_size for file in args.out.iterdir())
    poses = 'no poses' if ground_truth is None else f'{len(ground_truth)} poses'
    info = 'with CameraInfo' if intrinsics else 'no CameraInfo'
    depths = '' if median_m is None else f', depth with a median of {median_m:.3g} m'
    print(f'{args.out}: {count} frames over {(stamps[-1] - stamps[0]) / 1e9:.1f} s, {info}, {poses}{depths}, {size / 1e6:.1f} MB, '
          f'{args.storage}')
    known = intrinsics is not None and (right is None or right.intrinsics is not None)
    _show_commands(args.out, topic, '/compressed' * bool(args.compressed), right is not None, depth is not None, known)
    return 0


def _parse(argv: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(
        prog='make_bag', formatter_class=HelpInLines, description='Write a rosbag2 with images, CameraInfo and ground truth (poses '
        'of the camera) from an image folder: images/, timestamps.txt (seconds, one per image), and where they exist '
        'groundtruth.txt (TUM), calib.yaml, depth/ (PNGs of 16 bits in millimetres, one per image); or a sequence of TUM RGB-D, '
        'KITTI odometry or EuRoC as it is unpacked. With --degrade also from one camera of a bag.')
    parser.add_argument('folder', type=Path, help='an image folder; with --degrade also a bag')
    parser.add_argument('out', type=Path, help='directory to write; it appears under this name once it is whole')
    parser.add_argument('--storage', choices=STORAGES, default='sqlite3', help='default: %(default)s, which every ROS 2 reads')
    parser.add_argument('--compressed', choices=COMPRESSIONS, help='record CompressedImage on TOPIC/compressed instead of Image')
    parser.add_argument('--image-topic', metavar='TOPIC', help=f'default: {IMAGE_TOPIC}, or the one of the bag')
    parser.add_argument('--frame-id', default='', help='header.frame_id of the images, default: camera, or the one of the bag')
    parser.add_argument('--version', type=int, choices=VERSIONS, default=9, help='of metadata.yaml: 8 for Humble (default: 9)')
    parser.add_argument('--stereo', action='store_true', help=f'also record the right images, on {RIGHT_TOPIC}')
    parser.add_argument('--no-depth', action='store_true', help=f'leave out the depth images, which are recorded on {DEPTH_TOPIC}')
    add_image_bits(parser)
    add_depth_scale(parser)
    parser.add_argument('--degrade', type=some_of(DEGRADATIONS), default=(), metavar='NAME,…', help='write gray frames in bad '
                        'light or with structure that is no part of the scene; of several one after the other\n'
                        + in_lines(DEGRADATIONS))
    parser.add_argument('--force', action='store_true', help='replace OUT where it is a bag')
    args = parser.parse_args(argv)
    if args.degrade and args.stereo:
        parser.error('--degrade is of one camera: leave out --stereo')
    if args.out.resolve() == args.folder.resolve():
        parser.error(f'{args.out} is the recording itself: name another directory to write')
    return parser, args


def _check_topics(parser: argparse.ArgumentParser, topic: str, right: bool, depth: bool) -> None:
    """End the command with a usage error where two streams of the bag would have one name."""
    images = [topic, *[RIGHT_TOPIC] * right, *[DEPTH_TOPIC] * depth]
    names = [POSE_TOPIC, *images, *map(camera_info_topic, images)]
    if taken := [name for name in names if names.count(name) > 1]:
        parser.error(f'--image-topic {topic}: with it two streams would be written as {taken[0]}; give another one, such as '
                     f'{IMAGE_TOPIC}')


def _show_commands(out: Path, topic: str, ending: str, stereo: bool, depth: bool, known: bool) -> None:
    """The commands that read more than images of `topic` from the bag; `ending` is that of its transport.

    `known`: it has the calibration, which an evaluation of pairs and of depth needs.
    """
    options = [f'--image-topic {topic}{ending} --right-topic {RIGHT_TOPIC}{ending}'] if stereo else []
    options += ['--depth'] if depth else []
    if options:
        for program in ('play_bag', 'evaluate_bag'):
            camera = ' --camera CALIB.yaml' * (program == 'evaluate_bag' and not known)
            print(f'ros2 run lightglue_trt_ros {program} {shlex.quote(str(out))} {" ".join(options)}{camera}')


def _images(recording: Recording, names: Sequence[str]) -> Iterator[tuple[int, NDArray[Any]]]:
    """The frames to write with their stamps: as the files of a folder are, or gray under degradations. Raises BagError."""
    if isinstance(recording, FolderRecording) and not names:
        yield from recording.images()
        return
    for frame in degraded_frames(readable_frames(recording, lambda line: None), names, recording.bits):
        yield frame.stamp_ns, gray_of(frame.load())


def _depth(recording: Recording, names: Sequence[str]) -> FolderRecording | None:
    """The depth images of a folder whose camera does not stand by its degradations."""
    if isinstance(recording, FolderRecording) and not camera_stands(names):
        return recording.depth
    if names and recording.depth is not None:
        of_folder = isinstance(recording, FolderRecording)
        log.info(f'depth images are left out: they are of a {"camera that moves" if of_folder else "bag"}')
    return None


def _ground_truth(recording: Recording, names: Sequence[str], stamps: Sequence[int]) -> Trajectory | None:
    """Poses of the camera; of a bag those that it has by itself. One pose for all frames where the camera stands."""
    if camera_stands(names):
        return Trajectory(np.array(stamps, np.int64), np.tile(np.eye(4), (len(stamps), 1, 1)), 'the camera stands')
    if isinstance(recording, FolderRecording):
        return recording.ground_truth()
    try:
        return load_ground_truth(recording, on_note=log.info)
    except BagError as error:
        log.info(f'the ground truth of the bag is left out: {error}')
        return None


if __name__ == '__main__':
    sys.exit(main())
