"""The part of benchmark that runs the sweep: its options, its image pairs, what it prints and writes."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from ..benchmarks.sweep import EXACT, KEYPOINTS, SIDES, Cell, Pair, load_pairs, sweep
from ..benchmarks.sweep_plots import HEADER, LEFT, TITLE, commands, draw_sweep, markdown, notes, table_rows
from ..benchmarks.sweep_runners import Graphs, TargetPlans, open_bench
from ..config import PRECISIONS, MatcherConfig
from ..engines.parity import rendered_frames
from ..errors import LightglueTrtError
from ..files import write_whole
from ..processes import describe_machine
from ..progress import progress
from ..tables import print_table


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group('sweep', 'the matcher in each precision over sizes of image and numbers of keypoints; images '
                                      'of --data, or rendered ones')
    group.add_argument('--sweep', action='store_true', help='the same as the part sweep')
    group.add_argument('--sizes', type=_numbers, default=SIDES, metavar='N,…',
                       help=f'sides of square images, default: {_text(SIDES)}')
    group.add_argument('--keypoints', type=_numbers, default=KEYPOINTS, metavar='K,…', help=f'default: {_text(KEYPOINTS)}')
    group.add_argument('--precisions', type=_precisions, default=PRECISIONS, metavar='NAME,…',
                       help=f'{EXACT} is always among them; default: {_text(PRECISIONS)}')
    group.add_argument('--target-sm', type=int, metavar='SM', help='engine sizes of what TensorRT-RTX builds for this compute '
                       'capability (89 is 8.9), also without a GPU; default: of the engines that run here')
    group.add_argument('--out', type=Path, default=Path('build/sweep'), help='folder of table and pictures, default: %(default)s')


def run_sweep(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Measure, print and write. Raises LightglueTrtError."""
    graphs = Graphs(config)
    bench, instead = open_bench(config, graphs)
    sizes = None if args.target_sm is None else TargetPlans(graphs, args.target_sm)
    pairs = load_pairs(args.data) or _rendered(max(args.sizes))
    _make(args.out)
    about = [f'matcher of all layers, weights {graphs.pair.identity}, {bench.name}',
             *(f'{kind} pair: {pair.name}' for kind, pair in pairs.items()),
             *([f'engine sizes: {sizes.name}'] if sizes else [])]
    for line in [*([instead] if instead else []), *about]:
        print(f'benchmark: {line}', flush=True)
    cells: list[Cell] = []
    shapes = len(args.sizes) * len(args.keypoints)
    with progress('shapes', shapes, lambda line: print(f'benchmark: {line}', flush=True)) as tell:
        for found in sweep(bench, graphs, sizes, pairs, args.sizes, args.keypoints, args.precisions, args.frames):
            cells += found
            tell(len({(cell.side, cell.max_keypoints) for cell in cells}))
    print_table(TITLE, HEADER, table_rows(cells), left=LEFT)
    for line in notes(cells):
        print(line)
    if wanted := commands(cells):
        print('\n  '.join(['what is missing:', *wanted]))
    _write(args.out / 'sweep.md', markdown([describe_machine(), *about], cells).encode())
    for picture in draw_sweep(cells):
        _write(args.out / f'{picture.name}.png', picture.png)
    print(f'benchmark: table and pictures are in {args.out}')
    return {'about': about, 'notes': notes(cells), 'cells': [cell.as_dict() for cell in cells]}


def _rendered(side: int) -> dict[str, Pair]:
    """Two frames of the demo's flight one after the other, and two far apart; of a procedural texture without scikit-image."""
    if importlib.util.find_spec('skimage') is not None:
        from ..demo.flight import Flight
        flight = Flight(height=side, width=side)
        first, second, far = (flight.frame(index).image for index in (10, 11, 22))
        what = "the demo's flight, frames"
    else:
        images = list(rendered_frames(13, side, side))
        first, second, far, what = images[0], images[1], images[12], 'procedural texture, views'
    return {'easy': Pair(f'{what} 1 apart', first, second), 'hard': Pair(f'{what} 12 apart', first, far)}


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(word) for word in text.split(',')}))
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r}: write whole numbers with commas between them') from None


def _precisions(text: str) -> tuple[str, ...]:
    names = tuple(text.lower().split(','))
    if unknown := [name for name in names if name not in PRECISIONS]:
        raise argparse.ArgumentTypeError(f'{unknown[0]!r} is no precision: there are {", ".join(PRECISIONS)}')
    return names


def _text(values: tuple[Any, ...]) -> str:
    return ','.join(map(str, values))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LightglueTrtError(f'cannot make {folder} ({error.strerror}): choose another folder with --out') from error


def _write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise LightglueTrtError(f'cannot write {path} ({error.strerror}): choose another folder with --out') from error
