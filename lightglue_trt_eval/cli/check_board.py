"""check_board: builds the engines of a board, checks them, times them and the node, and writes one page."""

from __future__ import annotations

import argparse
import inspect
import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.geometry import resize_gray
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.recordings import gray_images
from lightglue_trt_ros.engines.gpu_info import probe
from lightglue_trt_ros.utils.arguments import add_image_bits, add_settings, check_owned, number, settings_of
from lightglue_trt_ros.utils.commands import command, log
from lightglue_trt_ros.utils.errors import EngineError, LightglueTrtError
from lightglue_trt_ros.utils.files import make_output_folder, write_output
from lightglue_trt_ros.utils.processes import describe_machine

from ..demo.flight import forth_and_back, textured_frames
from ..report.board_page import board_page, board_text, verdict
from ..report.json_report import as_text
from ..times.board_check import ShapeCheck, check_node, check_shape
from ..times.board_prediction import predict
from ..times.provenance import provenance
from ..times.sensors import power_mode

SIZES = ((240, 320), (480, 640), (720, 1280))  # height, width
KEYPOINTS = (512, 1024)
MAIN = EngineSpec(480, 640, 1024)  # the shape of the node and of the prediction
MOST = 120  # frames of a recording


@command('check_board', interrupted='interrupted, and no page was written; engines that were built stay')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when the page was written and all engines agree with the CPU; else 1."""
    args, words = _parse(argv)
    config = MatcherConfig(**settings_of(args, MatcherConfig))
    _check_gpu(config)
    make_output_folder(args.out)
    frames = _Frames(args.recording, args.image_topic, args.image_bits)
    checks: list[tuple[MatcherConfig, ShapeCheck]] = []
    left_out: list[dict[str, str]] = []
    for (height, width), keypoints in args.shapes:
        name = f'{height}x{width}, K = {keypoints}'
        try:
            shape = replace(config, image_height=height, image_width=width, max_keypoints=keypoints)
            if config.backend != 'onnxruntime':
                _build(shape, args)
            log.info(f'{name}: times of {args.frames} frames')
            checks.append((shape, check_shape(shape, frames, args.frames)))
        except LightglueTrtError as error:
            left_out.append({'name': name, 'reason': error.reason})
            log.warning(f'{name} is left out: {left_out[-1]["reason"]}')
    if not checks:
        raise EngineError(f'no shape ran: {left_out[0]["reason"]}')
    board = _document(args, words, config.weights, checks, left_out, frames.source)
    for file, data in (('board.json', as_text(board)), ('board.html', board_page(board)), ('board.md', board_text(board))):
        write_output(args.out / file, data)
    print(verdict(board))
    log.info(f'see {args.out / "board.html"}; for the issue "Times of a board": board.md and board.json')
    return int(any(check.disagreements for _, check in checks))


class _Frames:
    """Images of a recording, or of a texture, of any size."""

    def __init__(self, recording: Path | None, image_topic: str | None, image_bits: int) -> None:
        self.source = 'a drifting texture' if recording is None else recording.name
        self._images = [] if recording is None else list(itertools.islice(gray_images(recording, image_topic, image_bits), MOST))

    def __call__(self, count: int, height: int, width: int) -> Iterator[UInt8]:
        if not self._images:
            return textured_frames(count, height, width)
        return forth_and_back((resize_gray(image, (height, width)) for image in self._images), count)


def _parse(argv: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog='check_board', description=__doc__)
    add_settings(parser, MatcherConfig, 'backend', 'engine_dir', 'precision', 'weights')
    parser.add_argument('--name', default='', help='of the board, for the page; default: what the driver calls it')
    parser.add_argument('--recording', type=Path, metavar='BAG', help='frames of your camera, a rosbag2 or an image folder; '
                        'default: a drifting texture')
    parser.add_argument('--image-topic', metavar='TOPIC', help='of --recording, where a bag has several with images')
    add_image_bits(parser)
    parser.add_argument('--shapes', metavar='HxW:K,…', default=','.join(f'{h}x{w}:{k}' for h, w in SIZES for k in KEYPOINTS),
                        help='sizes and numbers of keypoints, default: %(default)s')
    parser.add_argument('--frames', type=number(int, 10), default=500, help='that are timed, default: %(default)s')
    parser.add_argument('--hz', type=number(float, 0.1, 1000), default=30.0, help='rate of the camera, default: %(default)s')
    parser.add_argument('--seconds', type=number(float, 0, 86400), default=60.0, help='how long the node runs, 0: not at all; '
                        'default: %(default)s')
    parser.add_argument('--opt-level', type=int, choices=range(6), help="TensorRT's effort, 0 to 5; default: its own")
    parser.add_argument('--tactic-sources', metavar='NAMES', help="only these of TensorRT's, comma separated")
    parser.add_argument('--out', type=Path, default=Path('board'), help='folder of board.html, board.json and board.md; '
                        'default: %(default)s')
    args = parser.parse_args(argv)
    check_owned(parser, args, ['recording'], 'image_topic', 'image_bits')
    if args.backend == 'onnxruntime' and (args.opt_level is not None or args.tactic_sources):
        parser.error('--opt-level and --tactic-sources are for engines of TensorRT, and --backend onnxruntime builds none: leave '
                     'them out')
    try:
        args.shapes = [_shape(text) for text in args.shapes.split(',')]
    except ValueError:
        parser.error(f'--shapes is {args.shapes!r}: give HEIGHTxWIDTH:KEYPOINTS, comma separated, as 480x640:1024')
    return args, sys.argv[1:] if argv is None else argv


def _shape(text: str) -> tuple[tuple[int, int], int]:
    size, _, keypoints = text.partition(':')
    height, width = map(int, size.split('x'))
    return (height, width), int(keypoints)


def _check_gpu(config: MatcherConfig) -> None:
    """Raises EngineError where engines are asked for and no GPU is there."""
    if config.backend != 'onnxruntime':
        try:
            probe()
        except EngineError as error:
            raise EngineError(error.reason, ';\n--backend onnxruntime times the CPU') from error


def _build(config: MatcherConfig, args: argparse.Namespace) -> None:
    """Build the engines that are not there. Raises EngineError."""
    from lightglue_trt_ros.cli.build_engines import main as build_engines
    words = ['--weights', config.weights, '--precision', config.precision, '--height', str(config.image_height), '--width',
             str(config.image_width), '--max-keypoints', str(config.max_keypoints)]
    for option, value in (('--engine-dir', config.engine_dir), ('--opt-level', args.opt_level),
                          ('--tactic-sources', args.tactic_sources), ('--frames', args.recording),
                          ('--image-topic', args.image_topic), ('--image-bits', args.image_bits)):
        words += [option, str(value)] if value not in (None, '') else []
    inspect.unwrap(build_engines)(words)  # its errors are this command's, and its lines are logged once


def _document(args: argparse.Namespace, words: list[str], weights: str, checks: list[tuple[MatcherConfig, ShapeCheck]],
              left_out: list[dict[str, str]], source: str) -> dict[str, Any]:
    """What board.json has."""
    main = next((row for row, (shape, _) in enumerate(checks) if shape.engine_spec(MAIN.precision) == MAIN), 0)
    shape, node, reason = checks[main][0], None, 'it was not asked for'
    if args.seconds > 0:
        log.info(f'the node at {args.hz:g} Hz for {args.seconds:g} s')
        try:
            node = check_node(shape, args.hz, args.seconds)
        except LightglueTrtError as error:
            reason = error.reason
            log.warning(f'the node was not measured: {reason}')
    return {'schema': 1, **provenance('check_board', words), 'name': args.name or _board(shape), 'weights': weights,
            'power_mode': power_mode(), 'frames': args.frames, 'source': source, 'hz': args.hz, 'main': main,
            'shapes': [asdict(check) for _, check in checks], 'left_out': left_out, 'node': None if node is None else asdict(node),
            'node_reason': '' if node is not None else reason, 'prediction': _prediction(shape)}


def _prediction(config: MatcherConfig) -> dict[str, Any]:
    try:
        return {board: {stage: asdict(each) for stage, each in times.items()} for board, times in predict(config).boards.items()}
    except LightglueTrtError as error:
        log.warning(f'no prediction: {error}')
        return {}


def _board(config: MatcherConfig) -> str:
    if config.backend == 'onnxruntime':
        return describe_machine()
    machine = probe()
    return f'{machine.gpu}, {machine.multiprocessors} multiprocessors'


if __name__ == '__main__':
    sys.exit(main())
