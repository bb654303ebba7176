"""quantize: calibrate an FP8 matcher on recordings of what the robot sees, and keep it only where it keeps the matches."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.engines.manifest import ENGINES, engine_dir_of
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.utils.arguments import add_image_bits, add_settings, number
from lightglue_trt_ros.utils.commands import command, log

from ..quantization.quality import COUNT_TOLERANCE, F1, HARD_ALLOWANCE, AcceptanceCheck
from ..quantization.samples import HELD_OUT, LEAST_FRAMES
from ..quantization.workflow import CalibrationOrder, quantize


@command('quantize', interrupted='interrupted, and nothing was kept')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when a calibration passed its acceptance check, 1 with a message otherwise, 130 when interrupted."""
    calibration = quantize(_order(_parse(argv)))
    share = 100 * calibration.record['flops_share']
    log.info(f"{calibration.path}: {share:.0f} % of the matcher's FLOPs in FP8, on compute capability 8.9 and above. To build it "
             'there:')
    print(replace(calibration.identity, kind=ENGINES, matcher_precision='fp8').command(calibration.path.parent))
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='quantize', description='Calibrate an FP8 matcher on recordings of what the robot sees, compare it with FP32 on '
        'frames held out from them, and keep it only where it keeps the matches. Runs on the CPU, without TensorRT.')
    parser.add_argument('--calibration', type=Path, nargs='+', required=True, metavar='BAG', help='recordings to calibrate on: '
                        'rosbag2 (sqlite3 or mcap) or image folders')
    parser.add_argument('--held-out', type=Path, nargs='+', default=[], metavar='BAG', help='recordings to judge by; default: the '
                        f'last {HELD_OUT:.0%}% of each')
    parser.add_argument('--held-out-share', type=float, default=HELD_OUT, metavar='SHARE', help='how much of each recording is '
                        'held out; with --held-out, how many frames are taken of those, a share of --frames; default: %(default)s')
    parser.add_argument('--frames', type=number(int, LEAST_FRAMES), default=300, metavar='N',
                        help='of all recordings together, default: %(default)s')
    parser.add_argument('--gate', type=number(float, 0.5, 1), default=F1, metavar='F1',
                        help=f'that FP8 must reach against FP32 on consecutive frames, {HARD_ALLOWANCE:g} less on hard pairs, '
                        f'the number of matches within {COUNT_TOLERANCE:.0%}%; default: %(default)s')
    parser.add_argument('--image-topic', metavar='TOPIC', help='where a bag has several with images')
    add_image_bits(parser)
    add_settings(parser, MatcherConfig, 'image_height', 'image_width', 'max_keypoints', 'weights')
    parser.add_argument('--engine-dir', type=Path, default=engine_dir_of(), help='folder of engine sets, default: %(default)s')
    parser.add_argument('--force', action='store_true', help='calibrate although an equal calibration is there')
    args = parser.parse_args(argv)
    if not 0 < args.held_out_share <= 0.8:
        parser.error('--held-out-share must lie in (0, 0.8]')
    return args


def _order(args: argparse.Namespace) -> CalibrationOrder:
    model = load_model(args.weights)
    log.info(f'weights: {model.identity}')
    spec = EngineSpec(args.height, args.width, args.max_keypoints, 'fp8')
    folder = args.engine_dir.expanduser().absolute()
    return CalibrationOrder(tuple(args.calibration), spec, model, folder, tuple(args.held_out), args.frames,
                            AcceptanceCheck(args.gate), args.held_out_share, args.image_topic, args.force,
                            args.image_bits)


if __name__ == '__main__':
    sys.exit(main())
