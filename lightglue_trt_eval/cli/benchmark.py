"""benchmark: times of a frame's stages, of caching, of the node, of several cameras, and of a GPU's layers."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lightglue_trt_ros.backends.tensorrt import TensorRTBackend
from lightglue_trt_ros.core.backend import Backend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.timing import PERCENTILES
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.recordings import gray_images
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.utils.arguments import add_image_bits, add_settings, check_owned, number, positive, settings_of
from lightglue_trt_ros.utils.commands import command, log
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.files import write_output

from ..demo.flight import forth_and_back, textured_frames
from ..report.json_report import as_text
from ..times.board_prediction import STAGES, measured_ms, predict
from ..times.provenance import provenance
from ..times.stages import device_times, measure_caching, measure_stages, profile, shares

PARTS = ('stages', 'caching', 'node', 'cameras', 'device', 'profile')  # the first three where none is named
OF_PARTS = {'stages': ('skip', 'hz'), 'node': ('node_frames', 'node_hz'), 'cameras': ('cameras', 'camera_hz', 'seconds', 'rounds')}
OF_A_CHECKOUT = ('homographies', 'turns', 'depth', 'zero', 'layers', 'peers', 'scores', 'odometry', 'covariances', 'standing',
                 'structure', 'sweep', 'unchanged')


@command('benchmark')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when all was measured (device: or predicted, without a GPU), 1 with a message otherwise."""
    args = _parse(argv)
    report: dict[str, Any] = provenance('benchmark', sys.argv[1:] if argv is None else argv)
    log.info(report['machine'])
    config = MatcherConfig(**settings_of(args, MatcherConfig))
    for part in args.parts or PARTS[:3]:
        report[part] = _MEASURES[part](args, config)
    if args.json:
        write_output(args.json, as_text(report))
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='benchmark', description=__doc__)
    parser.add_argument('parts', nargs='*', metavar='PART', help=f'of {", ".join(PARTS)}; default: {", ".join(PARTS[:3])}')
    add_settings(parser, MatcherConfig, 'backend', 'engine_dir', 'precision', 'weights', 'image_height', 'image_width',
                 'max_keypoints', 'refinement', 'depth_confidence')
    parser.add_argument('--frames', type=number(int, 3), default=30, help='for stages and caching, default: %(default)s; of a '
                        "GPU's stages 500 tell p99 and the largest")
    parser.add_argument('--skip', type=number(int, 1), default=1, help='for stages: frames before them, default: %(default)s')
    parser.add_argument('--hz', type=positive, help='for stages: the rate of a camera; default: one frame after the other')
    parser.add_argument('--recording', type=Path, metavar='BAG', help='its frames for stages, caching and device, forth and '
                        'back until there are --frames; default: a drifting texture of the size of the engine')
    parser.add_argument('--image-topic', metavar='TOPIC', help='of --recording, where a bag has several with images')
    add_image_bits(parser)
    parser.add_argument('--node-frames', type=number(int, 20), default=1000, help='for node, default: %(default)s')
    parser.add_argument('--node-hz', type=positive, default=100.0, help='for node, default: %(default)s')
    parser.add_argument('--cameras', type=number(int, 1), default=4, help='how many, for cameras, default: %(default)s')
    parser.add_argument('--camera-hz', type=positive, default=10.0, help='of each, for cameras, default: %(default)s')
    parser.add_argument('--seconds', type=positive, default=10.0, help='of each round, for cameras, default: %(default)s')
    parser.add_argument('--rounds', type=number(int, 1), default=2,
                        help='for cameras: each measures both ways, default: %(default)s')
    parser.add_argument('--json', type=Path, help='also write the figures to this file')
    args = parser.parse_args(argv)
    check_owned(parser, args, ['recording'], 'image_topic', 'image_bits')
    if elsewhere := set(args.parts).intersection(OF_A_CHECKOUT):
        parser.error(f'{min(elsewhere)} is measured in a checkout of the repository: python -m benchmarks {min(elsewhere)}')
    if unknown := set(args.parts).difference(PARTS):
        parser.error(f'no part is called {unknown.pop()}: there are {", ".join(PARTS)}')
    for part in OF_PARTS.keys() - (args.parts or PARTS[:3]):
        for name in OF_PARTS[part]:
            if getattr(args, name) != parser.get_default(name):
                parser.error(f'--{name.replace("_", "-")} is of {part}, which is not asked for: name the part, or leave it out')
    return args


def _stages(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    with opened(config) as backend:
        times = measure_stages(backend, config, _frames(args, config, args.skip), args.skip, args.hz or 0.0)
    print_table(f'Stages of a frame, wall ms over {args.frames} frames: {times.fps:.2f} frames per second, '
                f'mean {np.mean(times.layers):.2f} layers, peak memory {times.peak_memory_mib:.0f} MiB',
                ['stage', 'median', 'p95', 'p99', 'max'],
                [(name, *percentiles(values), f'{max(values):.2f}') for name, values in times.stages.items()], left=1)
    return {**dataclasses.asdict(times), 'stages': _to_microseconds(times.stages), 'fps': times.fps}


def _caching(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    with opened(config) as backend:
        gain = measure_caching(backend, config, _frames(args, config))
    note = '' if config.backend == 'onnxruntime' else ' (a GPU works while the stages go on: use device for its own times)'
    print_table('Cached reference against extracting both frames, medians of one run, ms' + note,
                ['cached', 'both extracted', 'ratio', 'predicted by the stages'],
                [[f'{gain[name]:.2f}' for name in ('cached_ms', 'uncached_ms', 'ratio', 'predicted')]], left=0)
    return gain


def _node(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..times.node_costs import measure_node
    asked = args.node_frames, args.node_hz, config.image_height, config.image_width
    cost, with_depth, echo = measure_node(*asked), measure_node(*asked, depth=True), measure_node(*asked, echo=True)
    rows = [(what, str(each.published), str(each.lost), *percentiles(each.latency_ms), f'{each.cpu_ms:.2f}',
             f'{each.growth_mib:.2f}') for what, each in (('the matcher', cost), ('the matcher with depth', with_depth),
                               ('a node that answers at once', echo))]
    print_table(f"The node's own cost, {config.image_width}x{config.image_height} mono8 at {args.node_hz:g} Hz, two processes, "
                'no networks: image published to cloud received',
                ['', 'frames', 'lost', 'median ms', 'p95', 'p99', 'CPU ms each', 'memory growth MiB'], rows, left=1)
    return {**dataclasses.asdict(cost), 'depth': dataclasses.asdict(with_depth), 'echo': dataclasses.asdict(echo)}


def _cameras(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    from ..times.node_costs import measure_cameras
    costs = measure_cameras(config, args.cameras, args.camera_hz, args.seconds, args.rounds)
    rows = [(way, f'{cost.memory_mib:.0f}', f'{cost.device_mib:.0f}' if cost.device_mib else '-', f'{sum(cost.fps):.1f}',
             f'{min(cost.fps):.1f} to {max(cost.fps):.1f}',
             f'{cost.cpu_ms:.0f}', *percentiles(list(itertools.chain(*cost.latency_ms)), digits=0))
            for way, cost in costs.items()]
    print_table(f'{args.cameras} cameras of {config.image_width}x{config.image_height} at {args.camera_hz:g} Hz each, '
                f'K = {config.max_keypoints}: image published to cloud received',
                ['matched by', 'memory MiB', 'of the GPU', 'clouds a second', 'by camera', 'CPU ms each', 'median', 'p95', 'p99'],
                rows, left=1)
    return {way: {**dataclasses.asdict(cost), 'fps': cost.fps, 'cpu_ms': cost.cpu_ms} for way, cost in costs.items()}


def _device(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    with opened(config) as backend:
        times = device_times(backend, _frames(args, config)) if isinstance(backend, TensorRTBackend) else {}
    if times:
        print_table("The GPU's own time, copies included, ms", ['stage', 'median', 'p95', 'p99'],
                    [(name, *percentiles(values, digits=3)) for name, values in times.items()], left=1)
    else:
        print('\nNothing was measured: TensorRT on a GPU does not run here')
    medians = {name: float(np.median(values)) for name, values in times.items()}
    here = {f'this machine, {backend.spec.precision}': medians} if times else {}
    return {**_to_microseconds(times), 'prediction': _predicted(config, measured_ms(config) | here)}


def _predicted(config: MatcherConfig, measured: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Print and return what other GPUs should take, next to what was measured, by GPU and stage."""
    prediction = predict(config)
    print_table('Work of a frame in FP16, all layers (counted)', ['stage', 'GFLOP', 'GFLOP in FP32', 'MB'],
                [(stage, f'{work.matrix_flops / 1e9:.1f}', f'{work.flops / 1e9:.2f}', f'{work.bytes / 1e6:.0f}')
                 for stage, work in prediction.work.items()], left=1)
    rows = [(board, 'PREDICTED', *(f'{each.bound_ms:.2f} .. {each.estimate_ms:.1f}' for each in times.values()))
            for board, times in prediction.boards.items()]
    rows += [(name, 'measured', *(f'{times[stage]:.2f}' if stage in times else '-' for stage in (*STAGES, 'together')))
             for name, times in measured.items()]
    print_table(f'PREDICTION, bound .. estimate in ms, {config.engine_spec("fp16")}, all layers; nobody has measured these boards',
                ['GPU', '', *STAGES, 'together'], rows)
    return {**dataclasses.asdict(prediction), 'measured_ms': measured}


def _profile(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    with opened(config) as backend:
        layers = profile(backend)
    slowest = sorted(layers, key=lambda layer: -layer.ms)[:20]
    print_table('The slowest layers', ['network', 'layer', 'kind', 'precision', 'ms'],
                [(layer.network, layer.name[:70], layer.kind, layer.precision, f'{layer.ms:.4f}') for layer in slowest], left=4)
    for field in ('kind', 'precision'):
        print_table(f'Share of time by {field}', ['network', field, 'share'],
                    [(network, value, f'{share:.1%}') for network, value, share in shares(layers, field)])
    return {'layers': [dataclasses.asdict(layer) for layer in layers]}


@contextmanager
def opened(config: MatcherConfig, depth: EarlyExits | None = None) -> Iterator[Backend]:
    backend, reason, warning, _ = open_backend(config, depth=depth)
    log.info(reason)
    if warning:
        print(f'benchmark: {warning}', file=sys.stderr, flush=True)
    with closing(backend):
        yield backend


def _frames(args: argparse.Namespace, config: MatcherConfig, before: int = 0) -> Iterator[UInt8]:
    """`--frames`, and some `before` them."""
    count = args.frames + before
    if args.recording is None:
        return textured_frames(count, config.image_height, config.image_width)
    return forth_and_back(gray_images(args.recording, args.image_topic, args.image_bits), count)


def _to_microseconds(times: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Milliseconds as a file keeps them."""
    return {name: [round(value, 3) for value in values] for name, values in times.items()}


def percentiles(values: Sequence[float], digits: int = 2) -> list[str]:
    return [f'{value:.{digits}f}' for value in np.percentile(values, PERCENTILES)]


_MEASURES = {'stages': _stages, 'caching': _caching, 'node': _node, 'cameras': _cameras, 'device': _device, 'profile': _profile}

if __name__ == '__main__':
    sys.exit(main())
