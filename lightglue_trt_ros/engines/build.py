"""The story of one build: decide, export, build, audit, compare with the reference, publish. Nothing is kept of a failed one."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.config import EngineSpec
from ..core.early_exit import EarlyExits
from ..core.types import UInt8
from ..networks.architecture import EXTRACTOR
from ..networks.engine_tensors import DENSE, LOGITS
from ..networks.models import Model
from ..networks.weights import Weights
from ..utils.console import print_table, progress
from ..utils.errors import EngineError, EngineMismatchError
from .engine_store import Draft, drafting, find_timing_cache, open_artifact
from .gpu_info import Decision, Machine, decide
from .manifest import NOT_RUN, PASSED, TIMING_CACHE, Artifact, Identity
from .parity import LIMITS, REFINED_SHARE, failures, parity, refined_as_on_the_host, rows
from .precision_check import Plan, TimingCache, audit
from .tensorrt_api import BuildOptions, TensorRT

ATTENTIONS = ('auto', 'kernel', 'tensorrt')  # who computes it; auto: our kernel in FP16 where the GPU can run it
KERNEL_SINCE = (8, 0)  # compute capability
FrameSource = Callable[[], tuple[list[UInt8], str]]  # gray frames of the engines' size, and what they are

_MIB = 1 << 20
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuildOrder:
    """An engine set to build."""

    spec: EngineSpec  # its shapes
    precision: str  # auto, fp32, fp16 or fp8
    model: Model
    engine_dir: Path
    options: BuildOptions
    force: bool = False  # build although an equal engine set is there
    matcher_onnx: Path | None = None  # somebody else's FP8 graph of the matcher, all layers; None: FP8 as `quantize` calibrated it
    early_exits: EarlyExits | None = None  # the matcher's stages, None: the usual ones; a given file is one of all layers
    attention: str = 'auto'  # of ATTENTIONS


@dataclass(frozen=True)
class _Job:
    """An order, once everything about it is known."""

    order: BuildOrder
    machine: Machine
    tensorrt: TensorRT
    decision: Decision
    spec: EngineSpec
    early_exits: EarlyExits
    graphs: dict[str, bytes]  # by network
    fp8: frozenset[str]  # the networks with parts in FP8
    calibration_sha256: str  # that these were written with; empty: none

    @property
    def identity(self) -> Identity:
        graphs = {name: hashlib.sha256(data).hexdigest() for name, data in self.graphs.items()}
        return Identity.of_engines(self.spec, self.order.model.identity, self.tensorrt, self.machine, ends=self.early_exits.ends,
                                   graphs=graphs, calibration_sha256=self.calibration_sha256)

    def precision_of(self, network: str) -> str:
        """Beside a network with parts in FP8 the others are FP16, as the extractor is."""
        if network in self.fp8:
            return 'fp8'
        return self.decision.extractor if network == EXTRACTOR or self.fp8 else self.decision.matcher


def build_engine_set(order: BuildOrder, machine: Machine, tensorrt: TensorRT, frames: FrameSource) -> Artifact:
    """The engine set that `order` asks for: the one that is there, else a new one.

    `frames` is called only when the parity check will run. Raises ConfigError, WeightsError, and EngineError when the precision is
    refused, a graph does not build, comes out in another precision or fails its parity check, memory does not suffice, or
    `engine_dir` cannot be written.
    """
    decision, calibration = _decide(order, machine, tensorrt)
    logger.info(f'precision: extractor {decision.extractor}, matcher {decision.matcher} ({decision.reason})')
    if machine.present and order.options.workspace_mib > machine.free_mib:
        raise EngineError(f'--workspace-mib {order.options.workspace_mib} is more than the {machine.free_mib} MiB that are free on '
                          f'{machine.gpu}: ask for less, or end what uses its memory')
    job = _prepare(order, machine, tensorrt, decision, calibration)
    equal, why = _find_equal(job)
    if equal is not None:
        logger.info(why)
        return equal
    if machine.present and importlib.util.find_spec('onnxruntime') is None:  # before minutes of building, not after them
        raise EngineError('the parity check needs ONNX Runtime, which is not installed: pip install onnxruntime')
    images, source = frames() if machine.present else ([], '')
    with drafting(order.engine_dir, job.identity.name) as draft:
        equal, why = _find_equal(job)  # another process may have built it meanwhile
        if why:
            logger.info(why)
        if equal is not None:
            return equal
        plans = _build_plans(job, draft)
        acceptance: dict[str, Any] = {'frames': 'none: built for SM{}{} on another machine'.format(*machine.compute_capability)}
        if machine.present:
            acceptance = _check_parity(job, plans, images, source)
        return draft.publish(
            replace(job.identity, gate_verdict=PASSED if machine.present else NOT_RUN), acceptance,
            {'build_seconds': {network: round(plan.seconds, 2) for network, plan in plans.items()},
             'layers': {network: dict(Counter(layer.precision for layer in plan.layers)) for network, plan in plans.items()}})


def _decide(order: BuildOrder, machine: Machine, tensorrt: TensorRT) -> tuple[Decision, Artifact | None]:
    """The precisions, and the calibration that FP8 takes."""
    calibration, uncalibrated, stale = None, '', False
    if order.matcher_onnx is None:
        try:
            calibration = open_artifact(order.engine_dir, Identity.of_calibration(order.spec, order.model.identity))
        except EngineError as error:
            uncalibrated = str(error)
            stale = isinstance(error, EngineMismatchError)  # of an earlier version, say
    where = machine.compute_capability, tensorrt.version, tensorrt.name
    if stale and order.precision == 'auto' and decide('auto', *where).matcher == 'fp8':
        logger.warning(uncalibrated)
    return decide(order.precision, *where, uncalibrated), calibration


def _prepare(order: BuildOrder, machine: Machine, tensorrt: TensorRT, decision: Decision, calibration: Artifact | None) -> _Job:
    from ..networks.lightglue import lightglue_engines
    from ..networks.superpoint import superpoint_maps
    from ..networks.typed_onnx import read_stamp

    model, spec, calibration_sha256 = order.model, replace(order.spec, precision=decision.matcher), ''
    extractor = superpoint_maps(replace(order.spec, precision=decision.extractor), model.extractor)
    if decision.matcher == 'fp8' and order.matcher_onnx is not None:
        early_exits = EarlyExits((model.layers,))
        graphs = {'matcher': _read_given(order.matcher_onnx, type(extractor), spec, model.matcher)}
        fp8 = frozenset(graphs)
    else:
        early_exits = order.early_exits or EarlyExits.of(model.layers)
        measured = None
        if decision.matcher == 'fp8' and calibration is not None:
            measured, calibration_sha256 = calibration.calibration(), calibration.identity.calibration_sha256
        own_attention = _attends_itself(order.attention, decision.matcher, machine)
        written = lightglue_engines(spec, model.matcher, early_exits, calibration=measured, own_attention=own_attention)
        graphs = {name: graph.SerializeToString() for name, graph in written.items()}
        fp8 = frozenset(name for name, graph in written.items() if read_stamp(graph)['precision'] == 'fp8')
    return _Job(order, machine, tensorrt, decision, spec, early_exits,
                {EXTRACTOR: extractor.SerializeToString(), **graphs}, fp8, calibration_sha256)


def _attends_itself(attention: str, precision: str, machine: Machine) -> bool:
    """Whether layers are cut for our attention. Raises EngineError where it is asked for and cannot be."""
    can = precision == 'fp16' and machine.compute_capability >= KERNEL_SINCE
    if attention == 'kernel' and not can:
        since, actual = ('{}.{}'.format(*capability) for capability in (KERNEL_SINCE, machine.compute_capability))
        raise EngineError(f'--attention kernel is for fp16 from compute capability {since} on, not for {precision} on {actual}')
    return can and attention != 'tensorrt'


def _read_given(path: Path, model: Any, spec: EngineSpec, weights: Weights) -> bytes:
    """A quantised graph, as it was given; what its stamp says must not contradict the order."""
    from ..networks.typed_onnx import read_stamp
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


def _find_equal(job: _Job) -> tuple[Artifact | None, str]:
    """The engine set that is there already and need not be built again, and a sentence that says what was found, if anything."""
    path = job.order.engine_dir / job.identity.name
    if not path.exists():
        former = path.with_name(job.identity.former_name)
        return None, f'{former} is of an earlier version and is never used: remove it' if former.exists() else ''
    if job.order.force:
        return None, ''
    try:
        engine_set = open_artifact(job.order.engine_dir, job.identity)
        engine_set.verify()
    except EngineError as error:
        return None, f'building again: {error.reason}'  # the remedy is the command that runs
    if job.machine.present and engine_set.identity.gate_verdict == NOT_RUN:
        return None, f'building again: the parity check of {path} was not run'
    return engine_set, f'{path} is there already, and equal: nothing to build (--force builds it again)'


def _build_plans(job: _Job, draft: Draft) -> dict[str, Plan]:
    for network, graph in job.graphs.items():
        draft.write(f'{network}.onnx', graph)
    plans = {}
    cache = TimingCache(find_timing_cache(job.order.engine_dir, job.identity))
    target = None if job.machine.present else int('{}{}'.format(*job.machine.compute_capability))
    for network, graph in job.graphs.items():
        precision = job.precision_of(network)
        maps = (LOGITS, DENSE) if network == EXTRACTOR and precision == 'fp16' else ()
        options = replace(job.order.options, target_sm=target, timing_cache=cache, channels_last=maps)
        logger.info(f'building {network} {precision}')
        with progress(f'building {network} {precision}') as bar:
            plan = job.tensorrt.build(graph, precision, options, lambda phase, done, total: bar(done, total, phase))
        logger.info(f'{network}: {len(plan.data) / _MIB:.1f} MiB, built in {plan.seconds:.1f} s; {audit(plan, precision)}')
        cache = plan.timing_cache if plan.timing_cache.data else cache
        draft.write(f'{network}.plan', plan.data)
        plans[network] = plan
    draft.write(TIMING_CACHE, cache.data)
    return plans


def _check_parity(job: _Job, plans: dict[str, Plan], images: list[UInt8], source: str) -> dict[str, Any]:
    from ..backends.onnxruntime import OnnxRuntimeBackend
    from ..backends.tensorrt import TensorRTBackend
    logger.info(f'comparing with ONNX Runtime in FP32 on {len(images)} frames: {source}')
    data, spec = {network: plan.data for network, plan in plans.items()}, replace(job.spec, precision='fp32')
    name = f'new {job.decision.matcher} engines'
    with closing(OnnxRuntimeBackend(spec, job.order.model, early_exits=job.early_exits)) as reference, \
            closing(TensorRTBackend(job.tensorrt, job.spec, job.early_exits, data, name)) as candidate:
        result = parity(candidate, reference, images)
        refined = refined_as_on_the_host(candidate, images)
    precision = job.decision.matcher
    table = rows(result, precision)
    table.append(('points refined as on the host', f'{refined:.4f}', f'>= {REFINED_SHARE}'))
    print_table(f'Parity of {precision} engines with ONNX Runtime in FP32', ['figure', 'value', 'needed'], table, left=1)
    failed = failures(result, precision)
    advice = '' if precision == 'fp32' or not failed else f'\nbuild them in {"fp32" if precision == "fp16" else "fp16"} instead'
    if not refined >= REFINED_SHARE:
        failed.append(f'points refined as on the host are {refined:.4f}, at least {REFINED_SHARE} is needed')
    if failed:
        raise EngineError(f'the {precision} engines failed the parity check, and were not kept',
                          '\n  '.join([':', *failed]) + advice)
    thresholds = vars(LIMITS[precision]) | {'placed': REFINED_SHARE}
    return {'frames': source, **result.as_dict(), 'placed': refined, 'thresholds': thresholds}
