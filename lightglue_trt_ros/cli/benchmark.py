"""benchmark: what a frame costs, what cache and early exits save, what the node costs, where a GPU's time goes, precisions."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..backends import Backend
from ..benchmarks.stages import forth_and_back, measure_caching, measure_stages, textured_frames
from ..benchmarks.sweep import EXACT, Cell, ImagePair, load_pairs, sweep
from ..benchmarks.sweep_plots import HEADER, LEFT, TITLE, commands, draw_sweep, markdown, notes, table_rows
from ..benchmarks.sweep_runners import Graphs, TargetEngines, open_bench
from ..commands import command
from ..config import PRECISIONS, MatcherConfig
from ..depth import ALL_LAYERS, Depth
from ..errors import BagError, EngineError
from ..features import UInt8
from ..files import make_output_folder, write_output, written_together
from ..options import add_settings, numbers, positive, settings_of, some_of
from ..processes import describe_machine
from ..progress import progress
from ..selection import open_backend
from ..tables import print_table
from ..telemetry import PERCENTILES

PARTS = ('stages', 'caching', 'node', 'cameras', 'batch', 'homographies', 'turns', 'depth', 'odometry', 'device', 'profile',
         'sweep')  # the first three where none is named


@command('benchmark')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when all was measured, 1 with a message otherwise."""
    args = _parse(argv)
    report: dict[str, Any] = {'machine': describe_machine()}
    print(f'benchmark: {report["machine"]}')
    config = MatcherConfig(**settings_of(args))
    for part in [*args.parts, *['sweep'] * args.sweep] or PARTS[:3]:
        report[part] = _MEASURES[part](args, config)
    if args.json:
        write_output(args.json, json.dumps(report, indent=1).encode())
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='benchmark', description=__doc__)
    parser.add_argument('parts', nargs='*', metavar='PART', help=f'of {", ".join(PARTS)}; default: {", ".join(PARTS[:3])}')
    add_settings(parser, 'backend', 'engine_dir', 'precision', 'weights', 'image_height', 'image_width', 'max_keypoints',
                 'refinement')
    parser.add_argument('--frames', type=int, default=30, help='for stages and caching, pairs for batch, rounds at most for '
                        'sweep, default: %(default)s')
    parser.add_argument('--recording', type=Path, metavar='BAG', help='its frames for stages, caching and device, forth and '
                        'back until there are --frames; default: a drifting texture of the size of the engine')
    parser.add_argument('--image-topic', metavar='TOPIC', help='of --recording and --data, where a bag has several with images')
    parser.add_argument('--node-frames', type=int, default=1000, help='for node, default: %(default)s')
    parser.add_argument('--node-hz', type=positive, default=100.0, help='for node, default: %(default)s')
    parser.add_argument('--cameras', type=int, default=4, help='how many, for cameras, default: %(default)s')
    parser.add_argument('--camera-hz', type=positive, default=10.0, help='of each, for cameras, default: %(default)s')
    parser.add_argument('--seconds', type=positive, default=10.0, help='of each round, for cameras, default: %(default)s')
    parser.add_argument('--rounds', type=int, default=2, help='in which both ways take turns, for cameras, default: %(default)s')
    parser.add_argument('--data', type=Path, default=Path('../shared/data'), help='folder of kitti_short_1, kitti_short_2, '
                        'hololens and oxford_affine, for homographies, turns, depth, odometry and sweep; any recording for depth '
                        'and sweep, any folder of images for turns; default: %(default)s')
    parser.add_argument('--strides', type=numbers, default='1', metavar='N,…',
                        help='frames from one to the next, for depth, default: %(default)s')
    parser.add_argument('--whole-engine-dir', default='', metavar='DIR', help='engines of build_engines --stages 9, for depth')
    parser.add_argument('--json', type=Path, help='write the figures there as well')
    group = parser.add_argument_group('sweep', 'the matcher in each precision over sizes of image and numbers of keypoints; images '
                                      'of --data, or rendered ones')
    group.add_argument('--sweep', action='store_true', help='the same as the part sweep')
    group.add_argument('--sizes', type=numbers, default='512,1024', metavar='N,…',
                       help='sides of square images, default: %(default)s')
    group.add_argument('--keypoints', type=numbers, default='512,1024,2048,3840', metavar='K,…', help='default: %(default)s')
    group.add_argument('--precisions', type=some_of(PRECISIONS), default=','.join(PRECISIONS), metavar='NAME,…',
                       help=f'{EXACT} is always among them; default: %(default)s')
    group.add_argument('--target-sm', type=int, metavar='SM', help='engine sizes of what TensorRT-RTX builds for this compute '
                       'capability (89 is 8.9), also without a GPU; default: of the engines that run here')
    group.add_argument('--out', type=Path, default=Path('build/sweep'), help='folder of table and pictures, default: %(default)s')
    args = parser.parse_args(argv)
    if unknown := set(args.parts).difference(PARTS):
        parser.error(f'no part is called {unknown.pop()}: there are {", ".join(PARTS)}')
    if args.frames < 3 or args.node_frames < 20:
        parser.error('--frames must be at least 3, --node-frames at least 20')
    if args.cameras < 1 or args.rounds < 1:
        parser.error('--cameras and --rounds must be at least 1')
    return args


def _stages(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    with _opened(config) as backend:
        times = measure_stages(backend, config, _frames(args, config))
    print_table(f'Stages of a frame, wall ms over {args.frames - 1} frames: {times.fps:.2f} frames per second, '
                f'mean {np.mean(times.layers):.2f} layers, peak memory {times.peak_memory_mib:.0f} MiB',
                ['stage', 'median', 'p95', 'p99'], [(name, *_percentiles(values)) for name, values in times.stages.items()], left=1)
    return {**dataclasses.asdict(times), 'fps': times.fps}


def _caching(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    with _opened(config) as backend:
        gain = measure_caching(backend, config, _frames(args, config))
    note = '' if config.backend == 'onnxruntime' else ' (a GPU works while the stages go on: use device for its own times)'
    print_table('Cached reference against extracting both frames, medians of one run, ms' + note,
                ['cached', 'both extracted', 'ratio', 'predicted by the stages'],
                [(f'{gain.cached_ms:.2f}', f'{gain.uncached_ms:.2f}', f'{gain.ratio:.2f}', f'{gain.predicted:.2f}')], left=0)
    return {**dataclasses.asdict(gain), 'ratio': gain.ratio, 'predicted': gain.predicted}


def _node(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..benchmarks.node_cost import measure_node
    asked = args.node_frames, args.node_hz, config.image_height, config.image_width
    cost, echo = measure_node(*asked), measure_node(*asked, echo=True)
    rows = [(what, str(each.published), str(each.lost), *_percentiles(each.latency_ms), f'{each.growth_mib:.2f}')
            for what, each in (('the matcher', cost), ('a node that answers at once', echo))]
    print_table(f"The node's own cost, {config.image_width}x{config.image_height} mono8 at {args.node_hz:g} Hz, two processes, "
                'no networks: image published to cloud received',
                ['', 'frames', 'lost', 'median ms', 'p95', 'p99', 'memory growth MiB'], rows, left=1)
    return {**dataclasses.asdict(cost), 'echo': dataclasses.asdict(echo)}


def _cameras(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..benchmarks.cameras import measure_cameras
    costs = measure_cameras(config, args.cameras, args.camera_hz, args.seconds, args.rounds)
    rows = [(way, f'{cost.memory_mib:.0f}', f'{cost.device_mib:.0f}' if cost.device_mib else '-', f'{sum(cost.fps):.1f}',
             f'{min(cost.fps):.1f} to {max(cost.fps):.1f}',
             f'{cost.cpu_ms:.0f}', *_percentiles(list(itertools.chain(*cost.latency_ms)), digits=0))
            for way, cost in costs.items()]
    print_table(f'{args.cameras} cameras of {config.image_width}x{config.image_height} at {args.camera_hz:g} Hz each, '
                f'K = {config.max_keypoints}: image published to cloud received',
                ['matched by', 'memory MiB', 'of the GPU', 'clouds a second', 'by camera', 'CPU ms each', 'median', 'p95', 'p99'],
                rows, left=1)
    return {way: {**dataclasses.asdict(cost), 'fps': cost.fps, 'cpu_ms': cost.cpu_ms} for way, cost in costs.items()}


def _homographies(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..benchmarks.real_images import score_homographies
    from ..evaluation.homographies import WITHIN_PX
    scores = list(score_homographies(args.data / 'oxford_affine', config))
    print_table('Homographies', ['pair', 'matcher', 'matches', f'within {WITHIN_PX} px'], [
        [score.pair, score.matcher, str(score.matches), f'{score.within:.3f}'] for score in scores])
    return {'pairs': [score.as_dict() for score in scores]}


def _turns(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..benchmarks.real_images import score_turns
    from ..evaluation.homographies import WITHIN_PX, mean_shares
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
    from ..benchmarks.early_exits import FRAME, MATCHER, measure_depth
    from ..benchmarks.real_images import find_recordings, gray_images
    whole_config = dataclasses.replace(config, engine_dir=args.whole_engine_dir or config.engine_dir, depth_confidence=ALL_LAYERS)
    report = []
    with _opened(config) as staged, _opened(whole_config, Depth((staged.depth.ends[-1],))) as whole:
        if len(whole.depth.ends) > 1:
            raise EngineError('depth compares with engines of one stage: build them with --stages 9, and name --whole-engine-dir')
        for (name, path), stride in itertools.product(find_recordings(args.data).items(), args.strides):
            found = measure_depth(staged, whole, config.depth_confidence, gray_images(path, args.image_topic), name, stride)
            if not found.layers:
                raise BagError(f'{path}: no two frames are {stride} apart; give smaller --strides or a longer recording')
            report.append(dataclasses.asdict(found))
            rows = [(what, *_percentiles(times), f'{max(times):.2f}', f'{np.median(reference[first]) / np.median(times):.2f}')
                    for reference, first in ((found.match_ms, MATCHER[0]), (found.frame_ms, FRAME[0]))
                    for what, times in reference.items()]
            print_table(f'{name}, every {stride}. frame, depth_confidence {config.depth_confidence:g}: mean '
                        f'{np.mean(found.layers):.2f} layers ({found.histogram}); wall ms over {len(found.layers)} pairs',
                        ['matcher alone; whole frame', 'median', 'p95', 'p99', 'worst', 'times faster'], rows, left=1)
    return {'pairs': report}


def _batch(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..benchmarks.batching import WARM, measure_batch
    images = textured_frames(2 * (args.frames + WARM), config.image_height, config.image_width)
    found = measure_batch(config, images)
    figures = dataclasses.asdict(found)
    medians = {name: float(np.median(values)) for name, values in figures.items()}
    pairs = [(what, medians[f'single_{key}'], medians[f'batch_{key}']) for what, key in (('wall', 'ms'), ('CPU', 'cpu_ms'))]
    print_table(f"Both images of a pair through the extractor's convolutions, FP32, medians over {len(found.batch_ms)} pairs, ms",
                ['ONNX Runtime', 'two runs', 'one of batch 2', 'batch / two'],
                [(what, f'{two:.1f}', f'{one:.1f}', f'{one / two:.2f}') for what, two, one in pairs], left=1)
    return figures


def _odometry(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..benchmarks.stereo_drift import measure_drift, stereo_folders
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


def _device(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..benchmarks.gpu import device_times
    with _opened(config) as backend:
        times = device_times(backend, _frames(args, config))
    print_table("The GPU's own time, copies included, ms", ['stage', 'median', 'p95', 'p99'],
                [(name, *_percentiles(values, digits=3)) for name, values in times.items()], left=1)
    return dict(times)


def _profile(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..benchmarks.gpu import profile, shares
    with _opened(config) as backend:
        layers = profile(backend)
    slowest = sorted(layers, key=lambda layer: -layer.ms)[:20]
    print_table('The slowest layers', ['network', 'layer', 'kind', 'precision', 'ms'],
                [(layer.network, layer.name[:70], layer.kind, layer.precision, f'{layer.ms:.4f}') for layer in slowest], left=4)
    for field in ('kind', 'precision'):
        print_table(f'Share of time by {field}', ['network', field, 'share'],
                    [(network, value, f'{share:.1%}') for network, value, share in shares(layers, field)])
    return {'layers': [dataclasses.asdict(layer) for layer in layers]}


def _sweep(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Measure, print and write. Raises LightglueTrtError."""
    graphs = Graphs(config)
    bench, instead = open_bench(config, graphs)
    sizes = None if args.target_sm is None else TargetEngines(graphs, args.target_sm)
    pairs = load_pairs(args.data, args.image_topic)
    if pairs is None:
        _say(f"{args.data} is not there: the pairs are of the demo's flight instead")
        pairs = _rendered(max(args.sizes))
    make_output_folder(args.out)
    about = [f'matcher of all layers, weights {graphs.pair.identity}, {bench.name}',
             *(f'{kind} pair: {pair.name}' for kind, pair in pairs.items()),
             *([f'engine sizes: {sizes.name}'] if sizes else [])]
    for line in filter(None, [instead, *about]):
        _say(line)
    cells: list[Cell] = []
    with progress('shapes', len(args.sizes) * len(args.keypoints), _say) as tell:
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
    _say(f'table and pictures are in {args.out}')
    return {'about': about, 'notes': notes(cells), 'cells': [cell.as_dict() for cell in cells]}


def _rendered(side: int) -> dict[str, ImagePair]:
    """Two frames of the demo's flight one after the other, and two far apart. Raises LightglueTrtError without scikit-image."""
    from ..demo.flight import Flight
    flight = Flight(height=side, width=side)
    first, second, far = (flight.frame(index).image for index in (10, 11, 22))
    return {'easy': ImagePair("the demo's flight, frames 1 apart", first, second),
            'hard': ImagePair("the demo's flight, frames 12 apart", first, far)}


@contextmanager
def _opened(config: MatcherConfig, depth: Depth | None = None) -> Iterator[Backend]:
    backend, reason, warning, _ = open_backend(config, depth=depth)
    _say(reason)
    if warning:
        print(f'benchmark: {warning}', file=sys.stderr, flush=True)
    with closing(backend):
        yield backend


def _frames(args: argparse.Namespace, config: MatcherConfig) -> Iterator[UInt8]:
    if args.recording is None:
        return textured_frames(args.frames, config.image_height, config.image_width)
    from ..benchmarks.real_images import gray_images
    return forth_and_back(gray_images(args.recording, args.image_topic), args.frames)


def _percentiles(values: Sequence[float], digits: int = 2) -> list[str]:
    return [f'{value:.{digits}f}' for value in np.percentile(values, PERCENTILES)]


def _say(text: str) -> None:
    print(f'benchmark: {text}', flush=True)


_MEASURES = {'stages': _stages, 'caching': _caching, 'node': _node, 'cameras': _cameras, 'batch': _batch,
             'homographies': _homographies, 'turns': _turns, 'depth': _depth, 'odometry': _odometry, 'device': _device,
             'profile': _profile, 'sweep': _sweep}

if __name__ == '__main__':
    sys.exit(main())
