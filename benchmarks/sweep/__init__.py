"""Precisions of the matcher over image sizes and numbers of keypoints: speed, size of engines, agreement with FP32.

A case that a machine cannot run is missing, with the reason: nothing is estimated, and no figure comes from another machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.images import read_gray
from benchmarks.sweep.cells import EXACT, Cell, ImagePair, sweep
from benchmarks.sweep.report import HEADER, LEFT, TITLE, commands, draw_sweep, markdown, notes, table_rows
from benchmarks.sweep.runners import Graphs, TargetEngines, open_bench
from lightglue_trt_ros.core.config import PRECISIONS, MatcherConfig
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.utils.arguments import numbers, some_of
from lightglue_trt_ros.utils.commands import log
from lightglue_trt_ros.utils.console import print_table, progress
from lightglue_trt_ros.utils.errors import BagError
from lightglue_trt_ros.utils.files import make_output_folder, written_together
from lightglue_trt_ros.utils.processes import describe_machine

DATA = "folder with kitti_short_2/ and oxford_affine/, or any recording; without it frames of the demo's flight are rendered"
APART = 12  # frames, of the hard pair of a recording


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which shapes and precisions, and where table and figures go."""
    parser.add_argument('--image-topic', metavar='TOPIC', help='of --data, where a bag has several with images')
    parser.add_argument('--frames', type=_rounds, default=30, help='rounds at most, default: %(default)s')
    parser.add_argument('--sizes', type=numbers, default='512,1024', metavar='N,…',
                        help='sides of square images, default: %(default)s')
    parser.add_argument('--keypoints', type=numbers, default='512,1024,2048,3840', metavar='K,…', help='default: %(default)s')
    parser.add_argument('--precisions', type=some_of(PRECISIONS), default=','.join(PRECISIONS), metavar='NAME,…',
                        help=f'{EXACT} is always among them; default: %(default)s')
    parser.add_argument('--target-sm', type=int, metavar='SM', help='engine sizes of what TensorRT-RTX builds for this compute '
                        'capability (89 is 8.9), also without a GPU; default: of the engines that run here')
    parser.add_argument('--out', type=Path, default=Path('build/sweep'), help='folder of table and pictures, default: %(default)s')


def _rounds(text: str) -> int:
    if int(text) < 3:
        raise argparse.ArgumentTypeError(f'{text}, must be at least 3')
    return int(text)


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Measure, print and write. Raises LightglueTrtError."""
    graphs = Graphs(config)
    bench, instead = open_bench(config, graphs)
    sizes = None if args.target_sm is None else TargetEngines(graphs, args.target_sm)
    pairs = load_pairs(args.data, args.image_topic)
    if pairs is None:
        log.info(f"{args.data} is not there: the pairs are of the demo's flight instead")
        pairs = _rendered(max(args.sizes))
    make_output_folder(args.out)
    about = [f'matcher of all layers, weights {graphs.model.identity}, {bench.name}',
             *(f'{kind} pair: {pair.name}' for kind, pair in pairs.items()),
             *([f'engine sizes: {sizes.name}'] if sizes else [])]
    for line in filter(None, [instead, *about]):
        log.info(line)
    cells: list[Cell] = []
    with progress('shapes', len(args.sizes) * len(args.keypoints)) as bar:
        for of_shape in bar.each(sweep(bench, graphs, sizes, pairs, args.sizes, args.keypoints, args.precisions, args.frames)):
            cells += of_shape
    print_table(TITLE, HEADER, table_rows(cells), left=LEFT)
    print('\n'.join(notes(cells)))
    if wanted := commands(cells):
        print('\n  '.join(['what is missing:', *wanted]))
    with written_together(args.out) as scratch:
        (scratch / 'sweep.md').write_bytes(markdown([describe_machine(), *about], cells).encode())
        for picture in draw_sweep(cells):
            (scratch / f'{picture.name}.png').write_bytes(picture.png)
    log.info(f'table and pictures are in {args.out}')
    return {'about': about, 'notes': notes(cells), 'cells': [cell.as_dict() for cell in cells]}


def load_pairs(data: Path, image_topic: str | None = None) -> dict[str, ImagePair] | None:
    """The easy pair, two consecutive frames of driving, and the hard one, a wall under a large change of view; None without `data`.

    Of any other recording two consecutive frames in its middle, and two that are APART frames apart, or as far as there are.
    Raises BagError when it is none, has no two frames, or a file is damaged.
    """
    drive, wall = data / 'kitti_short_2' / 'images', data / 'oxford_affine' / 'graf'
    if not data.exists():
        return None
    if not drive.is_dir() or not wall.is_dir():
        return _recorded_pairs(data, image_topic)
    frames = sorted(drive.iterdir())[25:27]
    return {'easy': ImagePair('kitti_short_2, frames 25 and 26', *map(read_gray, frames)),
            'hard': ImagePair('graf 1-3', read_gray(wall / 'img1.png'), read_gray(wall / 'img3.png'))}


def _recorded_pairs(data: Path, image_topic: str | None) -> dict[str, ImagePair]:
    recording = open_recording(data, image_topic)
    if len(recording) < 2:
        raise BagError(f'{data} has {len(recording)} frames: the sweep matches two')
    first = max(0, min(len(recording) // 2, len(recording) - 1 - APART))
    wanted = (first, first + 1, min(first + APART, len(recording) - 1))
    images = {number: gray_of(frame.load()) for number, frame in zip(range(wanted[-1] + 1), recording.frames(), strict=False)
              if number in wanted}
    return {kind: ImagePair(f'{data.name}, frames {first} and {second}', images[first], images[second])
            for kind, second in zip(('easy', 'hard'), wanted[1:], strict=True)}


def _rendered(side: int) -> dict[str, ImagePair]:
    """Two frames of the demo's flight one after the other, and two far apart. Raises LightglueTrtError without scikit-image."""
    from lightglue_trt_eval.demo.flight import Flight
    flight = Flight(height=side, width=side)
    first, second, far = (flight.frame(index).image for index in (10, 11, 22))
    return {'easy': ImagePair("the demo's flight, frames 1 apart", first, second),
            'hard': ImagePair("the demo's flight, frames 12 apart", first, far)}
