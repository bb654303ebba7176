"""demo: a recording (by default a rendered flight with exact ground truth) through the real node, with a table and pictures."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.geometry import Size, fitting_size
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.bag import open_recording
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.poses import Trajectory
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.utils.arguments import add_image_bits, add_settings, positive
from lightglue_trt_ros.utils.commands import command, log
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import BagError, LightglueTrtError
from lightglue_trt_ros.utils.files import make_output_folder, written_together

from ..demo import report as demo_report
from ..demo.flight import Flight
from ..demo.report import Truth
from ..replay import Reception, replay
from ..report.plots import draw_pair
from ..times.stages import measure_stages

HEADROOM = 0.6  # share of the measured frame rate at which frames are sent: the player needs time too


@command('demo')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when clouds were received, 1 with a message otherwise."""
    args = _parse(argv)
    make_output_folder(args.out)
    path, truth = (args.sequence, None) if args.sequence else _render(args.out, args.frames)
    recording = open_recording(path, args.image_topic, image_bits=args.image_bits)
    poses, camera = load_ground_truth(recording), recording.intrinsics
    for line in filter(None, (*recording.notes, recording.calibration_note)):
        log.info(line)
    if truth is None and poses is not None and camera is not None:
        truth = demo_report.pose_truth(poses, camera)
    truth = truth or demo_report.NO_TRUTH
    config, hz = _settle(recording, args.hz, args.weights)
    log.info(f'{len(recording)} frames of {recording.image_topic} into the node at {hz:.2f} Hz')
    got = replay(path, config, hz, image_topic=recording.image_topic, image_bits=recording.bits)
    if not got.matches:
        raise LightglueTrtError('the node published nothing: its log above says why')
    report = demo_report.make_report(got, truth, len(recording), hz)
    pictures = {'matches.png': _picture(recording, got, truth), 'plot.png': demo_report.draw_plot(report)}
    if camera is not None and (path_drawn := demo_report.draw_odometry(got.matches, camera, poses)) is not None:
        report['path'], pictures['path.png'] = path_drawn
    with written_together(args.out) as scratch:
        for name, data in {'report.json': json.dumps(report, indent=1).encode(), **pictures}.items():
            (scratch / name).write_bytes(data)
    print_table('Demo', ['figure', 'value (medians over frames)'], demo_report.table_rows(report))
    log.info(f'see {", ".join(f"{args.out}/{name}" for name in pictures)} and {args.out}/report.json')
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='demo', description=__doc__)
    parser.add_argument('--out', type=Path, default=Path('build/demo'), help='default: %(default)s')
    parser.add_argument('--sequence', type=Path, help='a rosbag2 or an image folder, instead of the rendered flight')
    parser.add_argument('--image-topic', metavar='TOPIC', help='of the recording, where a bag has several with images')
    add_image_bits(parser)
    parser.add_argument('--frames', type=int, default=30, help='of the rendered flight, default: %(default)s')
    add_settings(parser, MatcherConfig, 'weights')
    parser.add_argument('--hz', type=positive, help='frames per second, default: what this machine keeps')
    return parser.parse_args(argv)


def _render(out: Path, frames: int) -> tuple[Path, Truth]:
    """Render the flight into a rosbag2 below `out`."""
    flight, started = Flight(frames=frames), time.perf_counter()
    rendered = list(flight.render())
    camera = Intrinsics(flight.width, flight.height, flight.intrinsics, 'plumb_bob', np.zeros(5))
    stamps = np.array([frame.stamp_ns for frame in rendered], np.int64)
    write_bag(out / 'flight', ((frame.stamp_ns, frame.image) for frame in rendered), camera,
              Trajectory(stamps, np.stack([frame.pose for frame in rendered])), force=True)
    log.info(f'rendered a flight of {frames} frames into {out}/flight, {time.perf_counter() - started:.1f} s')
    return out / 'flight', demo_report.flight_truth(rendered, flight.intrinsics)


def _settle(recording: Recording, hz: float | None, weights: str) -> tuple[MatcherConfig, float]:
    """Settings that fit the recording's images, and a rate that the machine keeps with them, from five frames."""
    images = [gray_of(frame.load(), recording.bits) for frame, _ in zip(recording.frames(), range(5), strict=False)]
    if len(images) < 2:
        raise BagError(f'{recording.path} has {len(recording)} frame: matching takes two')
    size: Size = (images[0].shape[0], images[0].shape[1])
    height, width = fitting_size(size)
    config = MatcherConfig(image_height=height, image_width=width, max_gap_s=3600.0, weights=weights)
    if hz is not None:
        return config, hz
    backend, reason, warning, without_gpu = open_backend(config)
    log.info(reason)
    if warning and not without_gpu:
        log.info(warning)
    fps = measure_stages(backend, config, iter(images)).fps
    backend.close()
    return config, HEADROOM * fps


def _picture(recording: Recording, got: Reception, truth: Truth) -> bytes:
    """The median frame: neither the best nor the worst."""
    median = sorted(got.matches, key=lambda matches: len(matches.matched()))[len(got.matches) // 2]
    chosen, propagated = median.matched(), median.only(median.carried > 0)
    errors = truth.errors(chosen)
    known = np.isfinite(errors)
    shown = known if known.any() else ~known
    images = _image_at(recording, chosen.reference_stamp), _image_at(recording, chosen.stamp)
    title = f'{len(chosen)} matches'
    if known.any():
        correct = np.mean(errors[known] <= demo_report.CORRECT_PX)
        title += f', {correct:.1%} within {demo_report.CORRECT_PX:g} px'
    since, step = chosen.stamp - got.matches[0].reference_stamp, chosen.stamp - chosen.reference_stamp
    rings = f'; rings: {len(propagated)} propagated' if len(propagated) else ''
    text = f'at {since:.2f} s, reference {step:.2f} s before{rings}'
    return draw_pair(images, (chosen.reference_keypoints[shown], chosen.keypoints[shown]),
                     errors[known] if known.any() else None, title, text, f'{truth.kind}, px',
                     (propagated.reference_keypoints, propagated.keypoints))


def _image_at(recording: Recording, stamp: float) -> UInt8:
    return next(gray_of(frame.load(), recording.bits) for frame in recording.frames() if abs(frame.stamp_ns * 1e-9 - stamp) < 1e-4)


if __name__ == '__main__':
    sys.exit(main())
