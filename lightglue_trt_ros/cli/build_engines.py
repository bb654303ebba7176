"""build_engines: build the TensorRT engines of both networks for this machine's GPU, and check them before they are kept."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

from ..core.config import EngineSpec, MatcherConfig
from ..core.early_exit import EarlyExits
from ..core.geometry import resize_gray
from ..core.images import gray_of
from ..core.types import UInt8
from ..engines.build import ATTENTIONS, BuildOrder, FrameSource, build_engine_set
from ..engines.gpu_info import Machine, decide, probe, target
from ..engines.manifest import Artifact, engine_dir_of
from ..engines.parity import FRAMES, RENDERED, rendered_frames
from ..engines.tensorrt_api import BuildOptions, open_tensorrt
from ..networks.models import load_model
from ..utils.arguments import add_image_bits, add_settings, check_owned, number
from ..utils.commands import command, log
from ..utils.console import print_table
from ..utils.errors import BagError, ConfigError, EngineError


@command('build_engines', interrupted='interrupted, and nothing was kept')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when the engine set is there, built now or before; 1 with a message otherwise, which leaves nothing behind."""
    args = _parse(argv)
    order, flavour = _order(args), args.flavour
    if args.target_sm is not None and flavour == 'auto':
        flavour = 'rtx'  # the only one that builds for another GPU
    machine = _this_gpu() if args.target_sm is None else target(args.target_sm)
    log.info(f'{"GPU" if machine.present else "target"}: {machine}')
    tensorrt = open_tensorrt(flavour)
    log.info(f'builder: {tensorrt.name} {tensorrt.version}')
    log.info(f'{args.width}x{args.height}, K = {args.max_keypoints}, into {order.engine_dir}, workspace {args.workspace_mib} MiB')
    if args.calibration:
        decide('fp8', machine.compute_capability, tensorrt.version, tensorrt.name)  # before minutes are spent
        workflow = _of_workbench('quantization.workflow')
        workflow.quantize(workflow.CalibrationOrder(
            tuple(args.calibration), replace(order.spec, precision='fp8'), order.model, order.engine_dir,
            image_topic=args.image_topic, force=order.force, image_bits=args.image_bits))
    engine_set = build_engine_set(order, machine, tensorrt, _frames(args))
    _summarise(engine_set)
    log.info('to use it:' if machine.present else f'to use it, copy it into the engine directory of a machine with {machine}, '
                  'and there:')
    print(_use(engine_set, args.precision))
    return 0


def _of_workbench(module: str) -> ModuleType:
    """A module of lightglue_trt_eval, found at the call: the robot's package imports nothing of the workbench."""
    return importlib.import_module(f'lightglue_trt_eval.{module}')


def _parse(argv: list[str] | None) -> argparse.Namespace:
    default = MatcherConfig()
    parser = argparse.ArgumentParser(prog='build_engines', description=__doc__)
    add_settings(parser, MatcherConfig, 'image_height', 'image_width', 'max_keypoints', 'weights')
    parser.add_argument('--precision', choices=('auto', 'fp32', 'fp16', 'fp8'), default=default.precision,
                        help='auto is fp16, and fp8 for the matcher where the GPU and a calibrated graph allow it; default: auto')
    parser.add_argument('--engine-dir', type=Path, default=engine_dir_of(), help='folder of engine sets, default: %(default)s')
    parser.add_argument('--workspace-mib', type=number(int, 1), default=1024,
                        help="memory for TensorRT's trials, default: %(default)s")
    parser.add_argument('--opt-level', type=int, choices=range(6), help="TensorRT's effort, 0 to 5; default: its own")
    parser.add_argument('--flavour', choices=('auto', 'tensorrt', 'rtx'), default='auto', help='which TensorRT, default: auto')
    parser.add_argument('--target-sm', type=int, metavar='SM', help='build for another machine, whose GPUs have this compute '
                        'capability (89 is 8.9): needs no GPU, and leaves the parity check out')
    parser.add_argument('--frames', type=Path, metavar='PATH', help='check the engines on this recording: a rosbag2 or an image '
                        'folder; default: rendered frames')
    parser.add_argument('--calibration', type=Path, nargs='+', default=[], metavar='BAG', help='calibrate the FP8 matcher on these '
                        'recordings first, as quantize does; without it, fp8 takes what quantize left in --engine-dir')
    parser.add_argument('--image-topic', metavar='TOPIC', help='of these recordings, where a bag has several with images')
    add_image_bits(parser)
    parser.add_argument('--matcher-onnx', type=Path, metavar='FILE',
                        help='an FP8 graph of the matcher that something else quantised')
    parser.add_argument('--tactic-sources', metavar='NAMES', help="only these of TensorRT's, comma separated: "
                        'EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS where cuBLAS and cuDNN are missing')
    parser.add_argument('--stages', type=_early_exits, metavar='LAYERS', help='layers after which the matcher may stop early, '
                        'comma separated, the last one being all, 0: before the first; only that: never; default: 0,3,4,6 of '
                        'six layers, else in proportion')
    parser.add_argument('--attention', choices=ATTENTIONS, default='auto', help="what computes the matcher's attention: a kernel "
                        'of this package, or TensorRT; auto: the kernel in fp16 from compute capability 8.0 on')
    parser.add_argument('--force', action='store_true', help='build although an equal engine set is there')
    args = parser.parse_args(argv)
    check_owned(parser, args, ['frames', 'calibration'], 'image_topic', 'image_bits')
    if args.calibration and (args.precision not in ('auto', 'fp8') or args.matcher_onnx):
        parser.error('--calibration is for --precision fp8 or auto, without --matcher-onnx')
    if args.matcher_onnx and (args.precision not in ('auto', 'fp8') or args.stages or args.attention != 'auto'):
        parser.error('--matcher-onnx is one FP8 graph of all layers: leave out --stages, --attention, and another --precision')
    if args.frames and args.target_sm is not None:
        parser.error('--frames is for the parity check, which --target-sm leaves out: leave out either')
    return args


def _order(args: argparse.Namespace) -> BuildOrder:
    spec, model = EngineSpec(args.height, args.width, args.max_keypoints), load_model(args.weights)
    log.info(f'weights: {model.identity}')
    sources = tuple(args.tactic_sources.split(',')) if args.tactic_sources else None
    options = BuildOptions(args.workspace_mib, args.opt_level, tactic_sources=sources)
    return BuildOrder(spec, args.precision, model, args.engine_dir.expanduser().absolute(), options, args.force,
                      args.matcher_onnx, args.stages, args.attention)


def _early_exits(text: str) -> EarlyExits:
    try:
        return EarlyExits(tuple(int(layer) for layer in text.split(',')))
    except (ValueError, ConfigError) as error:
        why = error if isinstance(error, ConfigError) else 'write numbers of layers with commas between them'
        raise argparse.ArgumentTypeError(f'{text!r}: {why}') from None


def _this_gpu() -> Machine:
    try:
        return probe()
    except EngineError as error:
        raise EngineError(error.reason, ';\nengines for another machine need no GPU: --target-sm 89 --flavour rtx') from error


def _frames(args: argparse.Namespace) -> FrameSource:
    size = (args.height, args.width)
    if args.frames is not None:
        return partial(_recorded_frames, args.frames, args.image_topic, args.image_bits, size)
    if importlib.util.find_spec('skimage') is not None:
        return partial(_flight_frames, size)
    return lambda: (list(rendered_frames(FRAMES, *size)), f'{RENDERED} (real ones: --frames PATH)')


def _recorded_frames(path: Path, image_topic: str | None, image_bits: int, size: tuple[int, int]) -> tuple[list[UInt8], str]:
    """The middle of a recording: its ends often show a robot that stands."""
    from ..datasets.recordings import open_recording
    recording = open_recording(path, image_topic)
    first = max(0, (len(recording) - FRAMES) // 2)
    images = [resize_gray(gray_of(frame.load(), image_bits), size)
              for frame in itertools.islice(recording.frames(), first, first + FRAMES)]
    if len(images) < 2:
        raise BagError(f'{path} has {len(recording)} images: the parity check needs at least 2 consecutive ones')
    return images, f'{path.name}, frames {first} to {first + len(images) - 1}'


def _flight_frames(size: tuple[int, int]) -> tuple[list[UInt8], str]:
    flight = _of_workbench('demo.flight').Flight(frames=FRAMES, height=size[0], width=size[1])
    return [frame.image for frame in flight.render()], "the demo's flight over photographs (real ones: --frames PATH)"


def _summarise(engine_set: Artifact) -> None:
    identity, check_record, record = engine_set.identity, engine_set.gate, engine_set.record
    rows = [(network, precision, str(count)) for network, layers in record['layers'].items() for precision, count in layers.items()]
    if rows:
        print_table('Layers by precision', ['network', 'precision', 'layers'], rows)
    log.info(f'parity check: {identity.gate_verdict}, on {check_record["frames"]}')
    log.info(f'{engine_set.path}, built with {identity.tensorrt} {identity.tensorrt_version} in '
                  f'{sum(record["build_seconds"].values()):.0f} s')


def _use(engine_set: Artifact, precision: str) -> str:
    """The command that starts the node on these engines; a launch file's arguments where it has them."""
    default, identity = MatcherConfig(), engine_set.identity
    wanted = {'image_height': identity.image_height, 'image_width': identity.image_width, 'max_keypoints': identity.max_keypoints,
              'precision': precision, 'weights': identity.weights_choice}
    settings = {name: value for name, value in wanted.items() if value != getattr(default, name)}
    if identity.multiprocessors and engine_set.path.parent != engine_dir_of():
        settings['engine_dir'] = str(engine_set.path.parent)
    if not settings:
        return 'ros2 launch lightglue_trt_ros matcher.launch.py backend:=tensorrt image_topic:=/camera/image_raw'
    words = ['ros2', 'run', 'lightglue_trt_ros', 'matcher', '--ros-args', '-r', 'image:=/camera/image_raw']
    for name, value in {'backend': 'tensorrt', **settings}.items():
        words += ['-p', f'{name}:={value}']
    return shlex.join(words)


if __name__ == '__main__':
    sys.exit(main())
