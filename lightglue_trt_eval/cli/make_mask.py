"""make_mask: from a recording of a moving camera, the mask of what stands still in its images."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from lightglue_trt_ros.core.cameras import same_frame
from lightglue_trt_ros.core.geometry import size_of, size_text
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import Recording, readable_frames
from lightglue_trt_ros.utils.arguments import add_image_bits, number
from lightglue_trt_ros.utils.commands import command, log
from lightglue_trt_ros.utils.console import progress
from lightglue_trt_ros.utils.errors import BagError, LightglueTrtError
from lightglue_trt_ros.utils.files import written_together

from ..images.standing import StandingMask, find_standing
from ..options import add_cameras, check_camera_options, check_topics, notes_of

MOST_READ = 800  # frames, from all over the recording
RUN = 16  # consecutive frames: whether cameras take turns is told by these
RED = (0, 0, 255)


@command('make_mask', interrupted='interrupted; nothing more was written')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when every mask is written, 1 with a message when one is not."""
    args = _parse(argv)
    several, failures = bool(args.cameras) or args.stereo, list[str]()
    for name, recording in _recordings(args, failures).items():
        path = Path(str(args.out).replace('{camera}', name))
        try:
            _make(recording, path, args.max_frames)
        except LightglueTrtError as error:
            if not several:
                raise
            failures.append(f'{name}: {error}')
    if not failures:
        mask = f'{args.out.resolve()}'
        print('then give the node mask_file:='
              + (mask.replace('{camera}', 'left') + ', which masks left images only' if args.stereo else mask))
    for failure in failures:
        print(f'make_mask: {failure}', file=sys.stderr)
    return 1 if failures else 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make_mask', description='Find what stands still in the images of a moving camera: the border of a fisheye, a bonnet '
        'or gripper, burnt-in text, the dots of a projector, hot pixels, dirt on the lens. Write it as the mask that the parameter '
        'mask_file and evaluate_bag --mask take, and a picture of it over a frame.')
    parser.add_argument('recording', type=Path, help='rosbag2 (sqlite3 or mcap), or an image folder in TUM, KITTI or EuRoC layout, '
                        'of a camera that moves: rotate it, and pass near and far things')
    parser.add_argument('--image-topic', metavar='TOPIC', help='image topic, if the bag has several')
    add_cameras(parser, 'a mask for each of several cameras of a bag')
    parser.add_argument('--stereo', action='store_true', help='a mask for the left and one for the right images of a folder')
    parser.add_argument('--out', type=Path, metavar='PNG', help='the mask to write; of several cameras with {camera} in place of '
                        'the name; default: mask.png, or mask_{camera}.png')
    parser.add_argument('--max-frames', type=number(int, 2), metavar='N', help='take only the first N frames')
    add_image_bits(parser)
    args = parser.parse_args(argv)
    several = bool(args.cameras) or args.stereo
    args.out = args.out or Path('mask_{camera}.png' if several else 'mask.png')
    if args.cameras:
        check_camera_options(parser, args.cameras, args.image_topic)
    if args.cameras and args.stereo:
        parser.error('--stereo is of one pair: leave out --cameras')
    if several and '{camera}' not in str(args.out):
        parser.error(f'--out {args.out} is one file for several cameras: write {{camera}} where a name stands, e.g. '
                     'mask_{camera}.png')
    if args.out.suffix.lower() != '.png':
        parser.error(f'--out {args.out}: the mask is a PNG, as mask_file takes it; give a name that ends in .png')
    return args


def _recordings(args: argparse.Namespace, failures: list[str]) -> dict[str, Recording]:
    """The recordings of the cameras by name; a single one has none. `failures` gets a line for each camera that has no images."""
    if args.cameras:
        found = dict[str, Recording]()
        for name in args.cameras:
            try:
                found[name] = open_recording(args.recording, args.image_topic and args.image_topic.replace('{camera}', name), name,
                                             image_bits=args.image_bits)
            except BagError as error:
                failures.append(f'{name}: {error}')
        check_topics(args.recording, found)
        return found
    recording = open_recording(args.recording, args.image_topic, image_bits=args.image_bits)
    if not args.stereo:
        return {'': recording}
    if recording.right is None:
        raise BagError(f'{args.recording} has no right images of its own: make a mask for each topic with --image-topic')
    return {'left': recording, 'right': recording.right}


def _make(recording: Recording, path: Path, most: int | None) -> None:
    for line in notes_of(recording):
        print(line)
    found = find_standing(_frames(recording, most), f'{recording.path}, {recording.image_topic}')
    picture = path.with_name(f'{path.stem}_over_frame.png')
    with written_together(path.parent, 'name another place with --out') as scratch:
        for file, image in ((path, found.allowed), (picture, _over_frame(found))):
            (scratch / file.name).write_bytes(cv2.imencode('.png', image)[1].tobytes())
    share, size = f'{100 * found.share:.1f}', size_text(size_of(found.allowed))
    print(f'{path}: ' + ('nothing stands still, and nothing is masked' if not found.share else
                         f'{share} % of {size} stands still and is masked' if float(share) else
                         f'{np.count_nonzero(found.allowed == 0)} pixels of {size} stand still and are masked: specks, no border')
          + f' ({found.frames} frames compared)')
    print(f'look at {picture}')


def _frames(recording: Recording, most: int | None) -> Iterator[UInt8]:
    """Gray frames in recorded order: runs of consecutive ones from all over the recording.

    Raises BagError where all are bad, and where they are of two cameras by their frame_id.
    """
    count = len(recording) if most is None else min(most, len(recording))
    every, taken, bad, camera = -(-count // MOST_READ), 0, list[str](), ''
    with progress('reading frames', count) as advance:
        for place, frame in enumerate(readable_frames(recording, log.info)):
            if most is not None and place >= most:
                break
            advance(place + 1)
            if place // RUN % every:
                continue
            try:
                message = frame.load()
                image = gray_of(message, recording.bits)
            except LightglueTrtError as error:
                bad.append(f'frame {frame.number}: {error}')
                continue
            of = message.header.frame_id if hasattr(message, 'header') else ''
            if not same_frame(camera, of):
                raise BagError(f'{recording.path}, {recording.image_topic}: frame {frame.number} is of {of!r}, those before are of '
                               f'{camera!r}, by their frame_id: several cameras publish on this topic. Record each on its own')
            taken, camera = taken + 1, camera or of
            yield image
    if bad:
        log.info(f'{len(bad)} of {taken + len(bad)} frames could not be read and are left out; the first is {bad[0]}')
    if bad and not taken:
        raise BagError(f'{recording.path}: not one frame of {recording.image_topic} can be read; the first is {bad[0]}')


def _over_frame(found: StandingMask) -> UInt8:
    """The frame, BGR (H, W, 3), red where the mask hides it."""
    colour = cv2.cvtColor(found.image, cv2.COLOR_GRAY2BGR)
    hidden = found.allowed == 0
    colour[hidden] = (colour[hidden] // 2 + np.array(RED) // 2).astype(np.uint8)
    return np.asarray(colour, np.uint8)


if __name__ == '__main__':
    sys.exit(main())
