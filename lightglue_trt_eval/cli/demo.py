"""demo: evaluate_bag --live on a rendered flight with exact ground truth, or on a recording, with a short table."""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.poses import Trajectory
from lightglue_trt_ros.utils.arguments import add_image_bits, add_settings, check_owned, positive
from lightglue_trt_ros.utils.commands import INTERRUPTED, command, log
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.files import own_output_folder
from lightglue_trt_ros.utils.processes import stop_on_signal

from ..demo.flight import Flight
from ..evaluate import evaluate_recording
from ..options import OWN_DEPTH_IMAGES, EvaluationOptions
from ..report.page import write_report
from ..report.summary import coverage, written
from ..score.metrics import METRICS, MatcherResult

SAMPLED_PAIRS = 2  # enough to settle on a rate
FLIGHT_HZ = 7.0  # so that few frames go far enough for a figure of the drift
FIGURES = ('matches', 'inlier_ratio', 'precision@1', 'precision@3', 'track_length', 'depth_drift_percent', 'latency_ms_p50',
           'dropped')


@command('demo', interrupted='interrupted; no report was written')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when clouds were received, 1 with a message otherwise, 130 when interrupted."""
    args = _parse(argv)
    with own_output_folder(args.out), stop_on_signal() as stop:
        path = args.sequence or _render(args.out / 'flight', args.frames)
        options = EvaluationOptions(
            image_topic=args.image_topic, image_bits=args.image_bits, strides=(1,), live=True, hz=args.hz,
            sampled_pairs=SAMPLED_PAIRS, depth_topic=None if args.sequence else OWN_DEPTH_IMAGES,
            matcher={'weights': args.weights})
        evaluation, failures = evaluate_recording(options.open(path), options, args.out, stop.is_set)
        files = write_report(args.out, evaluation)
    if len(evaluation.matchers) > 1:
        print_table(f'The node on {path}', ['figure', 'value'], _rows(evaluation.matchers[-1]))
    shown = [args.out / name for name in ('report.html', 'matches.png', 'trajectory.png', 'report.json')]
    log.info(f'see {", ".join(str(file) for file in shown if file in files)}')
    for failure in filter(None, [coverage(evaluation), *failures]):
        print(f'demo: {failure}', file=sys.stderr)
    return 1 if failures else INTERRUPTED if evaluation.interrupted else 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='demo', description=__doc__)
    parser.add_argument('--out', type=Path, default=Path('build/demo'), help='default: %(default)s')
    parser.add_argument('--sequence', type=Path, help='a rosbag2 or an image folder, instead of the rendered flight')
    parser.add_argument('--image-topic', metavar='TOPIC', help='of the recording, where a bag has several with images')
    add_image_bits(parser)
    parser.add_argument('--frames', type=int, default=20, help='of the rendered flight, default: %(default)s')
    add_settings(parser, MatcherConfig, 'weights')
    parser.add_argument('--hz', type=positive, default=0.0, help='frames per second, default: what this machine keeps')
    args = parser.parse_args(argv)
    check_owned(parser, args, ['sequence'], 'image_topic', 'image_bits')
    if args.sequence and args.frames != parser.get_default('frames'):
        parser.error('--frames is of the rendered flight: leave out --sequence or --frames')
    if find_spec('rclpy') is None:
        parser.error('the demo runs the node, which needs ROS 2: source its setup.bash')
    return args


def _render(path: Path, frames: int) -> Path:
    """Render the flight into a rosbag2 with exact poses and depth."""
    flight, started = Flight(frames=frames, rate_hz=FLIGHT_HZ), time.perf_counter()
    rendered = list(flight.render())
    camera = Intrinsics(flight.width, flight.height, flight.intrinsics, 'plumb_bob', np.zeros(5))
    stamps = np.array([frame.stamp_ns for frame in rendered], np.int64)
    write_bag(path, ((frame.stamp_ns, frame.image) for frame in rendered), camera,
              Trajectory(stamps, np.stack([frame.pose for frame in rendered])), force=True,
              depth=((frame.stamp_ns, frame.depth) for frame in rendered))
    log.info(f'rendered a flight of {frames} frames into {path}, {time.perf_counter() - started:.1f} s')
    return path


def _rows(node: MatcherResult) -> list[list[str]]:
    """A few figures in words."""
    summary, errors = node.summary(), node.table()['error_median_px']
    rows = [[METRICS[name].label, written(name, summary[name], True)] for name in FIGURES if name in summary]
    if np.isfinite(errors).any():
        rows.insert(1, ['error, median', f'{np.nanmedian(errors):.2f} px from the true epipolar line'])
    if node.odometry is not None and node.odometry.true_poses is not None and 'ate_m' in summary:
        way = np.linalg.norm(np.diff(node.odometry.true_poses[:, :3, 3], axis=0), axis=1).sum()
        rows.append(['two-view odometry', f'{summary["ate_m"]:.2g} m off the true path of {way:.1f} m (ATE, true step lengths)'])
    return rows


if __name__ == '__main__':
    sys.exit(main())
