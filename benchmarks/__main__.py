"""Measurements of a checkout: homographies, in-plane rotation, early exits, odometry of stereo tracks, precisions."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lightglue_trt_ros.cli.benchmark import opened, percentiles
from lightglue_trt_ros.core.config import PRECISIONS, MatcherConfig
from lightglue_trt_ros.core.early_exit import ALL_LAYERS, Depth
from lightglue_trt_ros.core.options import add_settings, numbers, settings_of, some_of
from lightglue_trt_ros.datasets.bag import gray_images
from lightglue_trt_ros.utils.commands import command, log
from lightglue_trt_ros.utils.console import print_table, progress
from lightglue_trt_ros.utils.errors import BagError, EngineError
from lightglue_trt_ros.utils.files import make_output_folder, write_output, written_together
from lightglue_trt_ros.utils.processes import describe_machine

from .homographies import WITHIN_PX, mean_shares
from .sweep import EXACT, Cell, ImagePair, load_pairs, sweep
from .sweep_plots import HEADER, LEFT, TITLE, commands, draw_sweep, markdown, notes, table_rows
from .sweep_runners import Graphs, TargetEngines, open_bench


@command('benchmarks')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when all was measured, 1 with a message otherwise."""
    args = _parse(argv)
    report: dict[str, Any] = {'machine': describe_machine()}
    log.info(report['machine'])
    config = MatcherConfig(**settings_of(args))
    for part in args.parts:
        report[part] = _MEASURES[part](args, config)
    if args.json:
        write_output(args.json, json.dumps(report, indent=1).encode())
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m benchmarks', description=__doc__)
    parser.add_argument('parts', nargs='+', metavar='NAME', help=f'of {", ".join(_MEASURES)}')
    add_settings(parser, 'backend', 'engine_dir', 'precision', 'weights', 'image_height', 'image_width', 'max_keypoints',
                 'refinement')
    parser.add_argument('--data', type=Path, default=Path('../shared/data'), help='folder of recordings: oxford_affine for '
                        'homographies, those with right images for odometry; any recording for depth and sweep, any folder of '
                        'images for turns; default: %(default)s')
    parser.add_argument('--image-topic', metavar='TOPIC', help='of --data, where a bag has several with images')
    parser.add_argument('--strides', type=numbers, default='1', metavar='N,…',
                        help='frames from one to the next, for depth, default: %(default)s')
    parser.add_argument('--whole-engine-dir', default='', metavar='DIR', help='engines of build_engines --stages 9, for depth')
    parser.add_argument('--json', type=Path, help='write the figures there as well')
    group = parser.add_argument_group('sweep', 'the matcher in each precision over sizes of image and numbers of keypoints; images '
                                      'of --data, or rendered ones')
    group.add_argument('--frames', type=int, default=30, help='rounds at most, default: %(default)s')
    group.add_argument('--sizes', type=numbers, default='512,1024', metavar='N,…',
                       help='sides of square images, default: %(default)s')
    group.add_argument('--keypoints', type=numbers, default='512,1024,2048,3840', metavar='K,…', help='default: %(default)s')
    group.add_argument('--precisions', type=some_of(PRECISIONS), default=','.join(PRECISIONS), metavar='NAME,…',
                       help=f'{EXACT} is always among them; default: %(default)s')
    group.add_argument('--target-sm', type=int, metavar='SM', help='engine sizes of what TensorRT-RTX builds for this compute '
                       'capability (89 is 8.9), also without a GPU; default: of the engines that run here')
    group.add_argument('--out', type=Path, default=Path('build/sweep'), help='folder of table and pictures, default: %(default)s')
    args = parser.parse_args(argv)
    if unknown := set(args.parts).difference(_MEASURES):
        parser.error(f'nothing is called {unknown.pop()}: there are {", ".join(_MEASURES)}')
    if args.frames < 3:
        parser.error('--frames must be at least 3')
    return args


def _homographies(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from .real_images import score_homographies
    scores = list(score_homographies(args.data / 'oxford_affine', config))
    print_table('Homographies', ['pair', 'matcher', 'matches', f'within {WITHIN_PX} px'], [
        [score.pair, score.matcher, str(score.matches), f'{score.within:.3f}'] for score in scores])
    return {'pairs': [score.as_dict() for score in scores]}


def _turns(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from .real_images import score_turns
    scores = list(score_turns(args.data, config))
    rows, means = [], {}
    for matcher in dict.fromkeys(score.matcher for score in scores):
        mine = [score for score in scores if score.matcher == matcher]
        means[matcher] = mean_shares(mine)
        rows += [(score.picture, matcher, str(score.right[0]), *_percent(score.shares)) for score in mine]
        rows.append(('mean', matcher, '', *_percent(means[matcher])))
    print_table(f'Turns in the image plane: matches within {WITHIN_PX} px, % of those of the upright middle; refinement none',
                ['picture', 'matcher', 'upright', *(f'{turn} deg' for turn in scores[0].right if turn)], rows)
    return {'pictures': [score.as_dict() for score in scores], 'mean': means}


def _percent(shares: dict[int, float | None]) -> list[str]:
    return ['-' if share is None else f'{100 * share:.0f}' for turn, share in shares.items() if turn]


def _depth(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from .early_exits import FRAME, MATCHER, measure_depth
    from .real_images import find_recordings
    whole_config = dataclasses.replace(config, engine_dir=args.whole_engine_dir or config.engine_dir, depth_confidence=ALL_LAYERS)
    report = []
    with opened(config) as staged, opened(whole_config, Depth((staged.depth.ends[-1],))) as whole:
        if len(whole.depth.ends) > 1:
            raise EngineError('depth compares with engines of one stage: build them with --stages 9, and name --whole-engine-dir')
        for (name, path), stride in itertools.product(find_recordings(args.data).items(), args.strides):
            found = measure_depth(staged, whole, config.depth_confidence, gray_images(path, args.image_topic), name, stride)
            if not found.layers:
                raise BagError(f'{path}: no two frames are {stride} apart; give smaller --strides or a longer recording')
            report.append(dataclasses.asdict(found))
            rows = [(what, *percentiles(times), f'{max(times):.2f}', f'{np.median(reference[first]) / np.median(times):.2f}')
                    for reference, first in ((found.match_ms, MATCHER[0]), (found.frame_ms, FRAME[0]))
                    for what, times in reference.items()]
            print_table(f'{name}, every {stride}. frame, depth_confidence {config.depth_confidence:g}: mean '
                        f'{np.mean(found.layers):.2f} layers ({found.histogram}); wall ms over {len(found.layers)} pairs',
                        ['matcher alone; whole frame', 'median', 'p95', 'p99', 'worst', 'times faster'], rows, left=1)
    return {'pairs': report}


def _odometry(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from .stereo_drift import measure_drift, stereo_folders
    found = [each for folder in stereo_folders(args.data) for each in measure_drift(folder, config)]
    print_table('Odometry of stereo tracks, whose right columns are off by as many pixels as it finds; of the left images alone, '
                'after the alignment of scale',
                ['recording', 'tracks', 'matches', 'right', 'drift %', 'deg/m', 'at the end %', 'deg/m', 'off px', 'left alone %',
                 'deg/m from ours', 'ms'],
                [(each.recording, each.tracks, f'{each.matches:.0f}', f'{each.right:.0f}', f'{each.percent:.2f}',
                  f'{each.deg_per_m:.4f}', f'{each.end_percent:.2f}', f'{each.end_deg_per_m:.4f}', f'{each.offset_px:.2f}',
                  f'{each.mono_percent:.2f}',
                  '-' if each.beside_ours_deg_per_m is None else f'{each.beside_ours_deg_per_m:.4f}', f'{each.ms:.0f}')
                 for each in found])
    return {'recordings': [dataclasses.asdict(each) for each in found]}


def _sweep(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Measure, print and write. Raises LightglueTrtError."""
    graphs = Graphs(config)
    bench, instead = open_bench(config, graphs)
    sizes = None if args.target_sm is None else TargetEngines(graphs, args.target_sm)
    pairs = load_pairs(args.data, args.image_topic)
    if pairs is None:
        log.info(f"{args.data} is not there: the pairs are of the demo's flight instead")
        pairs = _rendered(max(args.sizes))
    make_output_folder(args.out)
    about = [f'matcher of all layers, weights {graphs.pair.identity}, {bench.name}',
             *(f'{kind} pair: {pair.name}' for kind, pair in pairs.items()),
             *([f'engine sizes: {sizes.name}'] if sizes else [])]
    for line in filter(None, [instead, *about]):
        log.info(line)
    cells: list[Cell] = []
    with progress('shapes', len(args.sizes) * len(args.keypoints)) as tell:
        shapes = sweep(bench, graphs, sizes, pairs, args.sizes, args.keypoints, args.precisions, args.frames)
        for number, found in enumerate(shapes, 1):
            cells += found
            tell(number)
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


def _rendered(side: int) -> dict[str, ImagePair]:
    """Two frames of the demo's flight one after the other, and two far apart. Raises LightglueTrtError without scikit-image."""
    from lightglue_trt_ros.datasets.flight import Flight
    flight = Flight(height=side, width=side)
    first, second, far = (flight.frame(index).image for index in (10, 11, 22))
    return {'easy': ImagePair("the demo's flight, frames 1 apart", first, second),
            'hard': ImagePair("the demo's flight, frames 12 apart", first, far)}


_MEASURES = {'homographies': _homographies, 'turns': _turns, 'depth': _depth, 'odometry': _odometry, 'sweep': _sweep}

if __name__ == '__main__':
    sys.exit(main())
