"""The story of one build: decide, export, build, audit, compare with the reference, publish. Nothing is kept of a failed one."""

from __future__ import annotations

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..backends import Backend
from ..config import EngineSpec
from ..depth import Depth
from ..errors import EngineError
from ..features import UInt8
from ..weights.networks import Weights
from ..weights.pairs import WeightsPair
from .adapter import BuildOptions, Plan, TensorRT, audit
from .bundle import Bundle, Draft, drafting, find_timing_cache, open_bundle
from .calibrations import StoredCalibration, find_calibration
from .check import GATES, failures, parity, rows
from .machine import Machine
from .manifest import Identity, Manifest
from .precision import Decision, decide

Progress = Callable[[str, int, int], None]  # (phase, steps done, steps in all)
FrameSource = Callable[[], tuple[list[UInt8], str]]  # gray frames of the engines' size, and what they are

_MIB = 1 << 20


class Reporter(Protocol):
    """Whoever watches a build."""

    def say(self, line: str) -> None: ...

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None: ...

    def progress(self, what: str) -> AbstractContextManager[Progress]: ...


@dataclass(frozen=True)
class Order:
    """What is to be built."""

    image_height: int
    image_width: int
    max_keypoints: int
    precision: str  # auto, fp32, fp16 or fp8
    pair: WeightsPair
    engine_dir: Path
    workspace_mib: int = 1024
    opt_level: int | None = None
    force: bool = False  # build although an equal bundle is there
    matcher_onnx: Path | None = None  # somebody else's FP8 graph of the matcher, all layers; None: FP8 as `quantize` calibrated it
    tactic_sources: tuple[str, ...] | None = None  # only these of TensorRT's; None: its own choice
    depth: Depth | None = None  # the matcher's stages, None: the usual ones; a given file is one of all layers


@dataclass(frozen=True)
class _Job:
    """An order, once everything about it is known."""

    order: Order
    machine: Machine
    tensorrt: TensorRT
    decision: Decision
    spec: EngineSpec
    depth: Depth
    graphs: dict[str, bytes]  # by network
    fp8: frozenset[str]  # the networks with parts in FP8
    out: Reporter

    @property
    def identity(self) -> Identity:
        return Identity.of(self.spec, self.order.pair.identity, self.tensorrt, self.machine)

    def precision_of(self, network: str) -> str:
        """Beside a network with parts in FP8 the others are FP16, as the extractor is."""
        if network in self.fp8:
            return 'fp8'
        return self.decision.extractor if network == 'extractor' or self.fp8 else self.decision.matcher


def build_bundle(order: Order, machine: Machine, tensorrt: TensorRT, frames: FrameSource, out: Reporter) -> Bundle:
    """The bundle that `order` asks for: the one that is there, else a new one.

    `frames` is asked only when a gate will run. Raises EngineError when the precision is refused, a graph does not build, comes
    out in another precision or fails its gate, memory does not suffice, or `engine_dir` cannot be written; ConfigError,
    WeightsError.
    """
    decision, stored = _decide(order, machine, tensorrt)
    out.say(f'precision: extractor {decision.extractor}, matcher {decision.matcher} ({decision.reason})')
    if machine.present and order.workspace_mib > machine.free_mib:
        raise EngineError(f'--workspace-mib {order.workspace_mib} is more than the {machine.free_mib} MiB that are free on '
                          f'{machine.gpu}: ask for less, or end what uses its memory')
    job = _prepare(order, machine, tensorrt, decision, stored, out)
    found, why = _find_equal(job)
    if found is not None:
        out.say(why)
        return found
    if machine.present:
        _check_gate_can_run()
    images, source = frames() if machine.present else ([], '')
    with drafting(order.engine_dir, job.spec.name, out.say) as draft:
        found, why = _find_equal(job)  # another process may have built it meanwhile
        if why:
            out.say(why)
        if found is not None:
            return found
        plans = _build_plans(job, draft)
        gate: dict[str, Any] = {'verdict': 'not run: built for SM{}{} on another machine'.format(*machine.compute_capability)}
        if machine.present:
            gate = _run_gate(job, plans, images, source)
        return draft.publish(Manifest(
            identity=job.identity, files=draft.files, gate=gate, ends=job.depth.ends,
            build_seconds={network: round(plan.seconds, 2) for network, plan in plans.items()},
            layers={network: dict(Counter(layer.precision for layer in plan.layers)) for network, plan in plans.items()}))


def _decide(order: Order, machine: Machine, tensorrt: TensorRT) -> tuple[Decision, StoredCalibration | None]:
    """The precisions, and the calibration that FP8 takes; why there is none is told where FP8 was asked for and could be had."""
    spec = EngineSpec(order.image_height, order.image_width, order.max_keypoints)
    stored, missing = None, EngineError('')
    try:
        stored = find_calibration(order.engine_dir, spec, order.pair.identity) if order.matcher_onnx is None else None
    except EngineError as error:
        missing = error
    calibrated = stored is not None or order.matcher_onnx is not None
    decision = decide(order.precision, machine.compute_capability, tensorrt.version, tensorrt.name,
                      calibrated or order.precision == 'fp8')
    if decision.matcher == 'fp8' and not calibrated:
        raise missing
    return decision, stored


def _prepare(order: Order, machine: Machine, tensorrt: TensorRT, decision: Decision, stored: StoredCalibration | None,
             out: Reporter) -> _Job:
    from ..graphs.lightglue import lightglue_stages
    from ..graphs.precision import read_stamp
    from ..graphs.superpoint import superpoint

    def shapes(precision: str) -> EngineSpec:
        return EngineSpec(order.image_height, order.image_width, order.max_keypoints, precision)

    pair = order.pair
    extractor = superpoint(shapes(decision.extractor), pair.extractor)
    if decision.matcher == 'fp8' and order.matcher_onnx is not None:
        depth = Depth((pair.layers,))
        graphs = {'matcher': _read_given(order.matcher_onnx, type(extractor), shapes('fp8'), pair.matcher)}
        fp8 = frozenset(graphs)
    else:
        depth = order.depth or Depth.of(pair.layers)
        calibration = stored.load() if decision.matcher == 'fp8' and stored is not None else None
        models = lightglue_stages(shapes(decision.matcher), pair.matcher, depth, calibration=calibration)
        graphs = {name: model.SerializeToString() for name, model in models.items()}
        fp8 = frozenset(name for name, model in models.items() if read_stamp(model)['precision'] == 'fp8')
    return _Job(order, machine, tensorrt, decision, shapes(decision.matcher), depth,
                {'extractor': extractor.SerializeToString(), **graphs}, fp8, out)


def _read_given(path: Path, model: Any, spec: EngineSpec, weights: Weights) -> bytes:
    """A quantised graph, as it was given; what its stamp says must not contradict the order."""
    from ..graphs.precision import read_stamp
    try:
        data = path.read_bytes()
        stamp = read_stamp(model.FromString(data))
    except OSError as error:
        raise EngineError(f'{path} cannot be read ({error.strerror}): --matcher-onnx names an ONNX file') from error
    except Exception as error:  # protobuf's DecodeError, without a dependency on its module
        raise EngineError(f'{path} is not an ONNX file ({error})') from error
    wanted = {'network': 'lightglue', 'image_height': spec.image_height, 'image_width': spec.image_width,
              'max_keypoints': spec.max_keypoints, 'weights_sha256': weights.sha256}
    for name, value in wanted.items():
        if stamp.get(name, str(value)) != str(value):
            raise EngineError(f'{path} was made for {name} {stamp[name]}, where {value} is asked for: quantise the graph of this '
                              'shape and these weights')
    return data


def _find_equal(job: _Job) -> tuple[Bundle | None, str]:
    """The bundle that is there already and need not be built again, and a sentence that says what was found, if anything."""
    path = job.order.engine_dir / job.spec.name
    if job.order.force or not path.exists():
        return None, ''
    try:
        bundle = open_bundle(job.order.engine_dir, job.identity)
        bundle.verify()
    except EngineError as error:
        return None, f'building again: {str(error).rpartition(chr(10))[0]}'  # the last line is the command that runs already
    changed = [name for name, data in job.graphs.items()
               if hashlib.sha256(data).hexdigest() != bundle.manifest.files.get(f'{name}.onnx')]
    if changed:
        return None, f'building again: the graph of the {" and of the ".join(changed)} is not the one in {path}'
    verdict = bundle.manifest.gate.get('verdict')
    if job.machine.present and verdict != 'passed':
        return None, f'building again: the parity gate of {path} was {verdict}'
    return bundle, f'{path} is there already, and equal: nothing to build (--force builds it again)'


def _check_gate_can_run() -> None:
    """Before minutes of building, not after them."""
    if importlib.util.find_spec('onnxruntime') is None:
        raise EngineError('the parity gate compares the engines with ONNX Runtime, which is not installed: pip install onnxruntime')
    _engines_backend()


def _build_plans(job: _Job, draft: Draft) -> dict[str, Plan]:
    for network, graph in job.graphs.items():
        draft.write(f'{network}.onnx', graph)
    plans = {}
    cache = find_timing_cache(job.order.engine_dir, job.identity)
    target = None if job.machine.present else int('{}{}'.format(*job.machine.compute_capability))
    for network, graph in job.graphs.items():
        precision = job.precision_of(network)
        options = BuildOptions(workspace_mib=job.order.workspace_mib, opt_level=job.order.opt_level, target_sm=target,
                               timing_cache=cache, tactic_sources=job.order.tactic_sources)
        with job.out.progress(f'{network} {precision}') as progress:
            plan = job.tensorrt.build(graph, precision, options, progress)
        job.out.say(f'{network}: {len(plan.data) / _MIB:.1f} MiB, built in {plan.seconds:.1f} s; {audit(plan, precision)}')
        cache = plan.timing_cache or cache
        draft.write(f'{network}.plan', plan.data)
        plans[network] = plan
    draft.write('timing.cache', cache)
    return plans


def _run_gate(job: _Job, plans: dict[str, Plan], images: list[UInt8], source: str) -> dict[str, Any]:
    from ..backends.onnxruntime import OnnxRuntimeBackend
    job.out.say(f'comparing with ONNX Runtime in FP32 on {len(images)} frames: {source}')
    reference = OnnxRuntimeBackend(EngineSpec(job.spec.image_height, job.spec.image_width, job.spec.max_keypoints), job.order.pair)
    try:
        candidate = _open_engines(job, plans)
        try:
            found = parity(candidate, reference, images)
        finally:
            candidate.close()
    finally:
        reference.close()
    precision = job.decision.matcher
    job.out.table(f'Parity of {precision} engines with ONNX Runtime in FP32', ['figure', 'value', 'needed'], rows(found, precision))
    if failed := failures(found, precision):
        raise EngineError('\n  '.join([f'the {precision} engines failed the parity gate, and were not kept:', *failed])
                          + ('' if precision == 'fp32' else f'\nbuild them in {"fp32" if precision == "fp16" else "fp16"} instead'))
    return {'verdict': 'passed', 'frames': source, **found.as_dict(), 'thresholds': vars(GATES[precision])}


def _open_engines(job: _Job, plans: dict[str, Plan]) -> Backend:
    data = {network: plan.data for network, plan in plans.items()}
    backend: Backend = _engines_backend()(job.tensorrt, job.spec, job.depth, data, f'new {job.decision.matcher} engines')
    return backend


def _engines_backend() -> Any:
    try:
        from ..backends.tensorrt import TensorRTBackend
    except ImportError as error:
        raise EngineError(f'engines cannot be run here, so the parity gate cannot judge them ({error}): '
                          'pip install pycuda') from error
    return TensorRTBackend
