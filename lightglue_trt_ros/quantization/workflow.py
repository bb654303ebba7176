"""A calibration from the first frame to the files: read, extract, calibrate, judge, search where that fails, write."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..core.config import EngineSpec
from ..core.types import Int32
from ..engines.engine_store import FAILED, GRAPH, PASSED, PLOT, TENSORS, Artifact, Identity, drafting, read_manifest
from ..networks import e4m3
from ..networks.fp8_calibration import Calibration, linear_members
from ..networks.fp8_rounding import check_width
from ..networks.models import Model
from ..utils.console import progress
from ..utils.errors import EngineError
from .matchers import HostMatcher, open_matcher
from .measurement import calibrate, measure_peaks, saturated, steps
from .quality import (
    LEVELS,
    Candidate,
    HeldOutSet,
    QualityGate,
    Score,
    answer_references,
    chance,
    check_motion,
    choose_held_out,
    geometry,
    judge,
    plain,
    print_figures,
    print_gate,
)
from .samples import HELD_OUT, STRIDES, RecordingSample, extract, frame_count, mixed, read_samples
from .search import Members, Search, TriedParts, draw_frontier, plain_tried, print_search, share

MOST_PAIRS = 100  # that are calibrated on: neighbours resemble each other
SATURATION_PAIRS = 8  # held-out ones of each set, whose peaks are compared with the scales

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CalibrationOrder:
    """What is asked for."""

    recordings: tuple[Path, ...]
    spec: EngineSpec  # fp8
    model: Model
    engine_dir: Path
    held_out: tuple[Path, ...] = ()
    frames: int = 300
    gate: QualityGate = field(default_factory=QualityGate)
    share: float = HELD_OUT  # of each recording that is held out, without held_out recordings
    image_topic: str | None = None
    force: bool = False


def quantize(order: CalibrationOrder) -> Artifact:
    """Calibrate, judge, and write; an equal calibration that is there already is left as it is, unless forced.

    Raises EngineError where no choice of parts passes the gate: its figures are written without a calibration. Raises
    LightglueTrtError where nothing can be calibrated or judged; nothing is written then, nor when it is interrupted.
    """
    check_width(order.model.matcher.tensors)  # before minutes are spent
    samples = read_samples(order.recordings, order.held_out, order.frames, order.spec, image_topic=order.image_topic,
                           share=order.share)
    identity = Identity.of_calibration(order.spec, order.model.identity, gate_verdict='')
    settings = _settings(order, samples)
    calibration = None if order.force else _find_equal(order.engine_dir, identity, settings)
    if calibration is not None:
        logger.info(f'an equal calibration is there already, and {calibration.identity.gate_verdict} its gate (--force makes it '
                    'anew)')
    else:
        _extract(order, samples)
        calibration = _Work(order, samples).run(identity, settings)
    if calibration.identity.gate_verdict != PASSED:
        raise EngineError(f'no choice of parts in FP8 passes the gate, and the matcher stays in FP16: {calibration.path} has the '
                          'figures and no calibration.\nCalibrate on more of what the robot sees, or say with --gate how much may '
                          'be lost')
    return calibration


class _Work:
    """What follows once there are features."""

    def __init__(self, order: CalibrationOrder, samples: Sequence[RecordingSample]) -> None:
        self.order, self.samples = order, samples
        self.spec, self.weights, self.layers = order.spec, order.model.matcher, order.model.layers
        self.size = order.spec.image_height, order.spec.image_width
        self.tried: list[TriedParts] = []

    def run(self, identity: Identity, settings: dict[str, Any]) -> Artifact:
        samples, order = self.samples, self.order
        fp32 = open_matcher(self.spec, self.weights)
        check_motion(samples, fp32, STRIDES)
        held_out = choose_held_out(samples, fp32)
        with progress('matching held-out pairs in FP32', sum(len(each.pairs) for each in held_out)) as bar:
            answer_references(held_out, samples, fp32, bar)
        pairs = mixed([[pair for number, each in enumerate(samples) for pair in each.pairs(number, stride, False)]
                       for stride in STRIDES], MOST_PAIRS)
        provenance = {**_provenance(order, settings), 'strides': sorted({pair.stride for pair in pairs}), 'pairs': len(pairs)}
        with progress(f'calibrating on {len(pairs)} pairs', steps(pairs)) as bar:
            calibration = calibrate(self.spec, self.weights, samples, pairs, provenance, bar)
        calibration = dataclasses.replace(calibration, fp8=frozenset(linear_members(self.layers)))
        self._check_saturation(calibration, held_out)
        matcher = open_matcher(self.spec, self.weights, calibration)
        candidates = [self._judged('all linears', self._share(calibration.fp8), matcher, held_out)]
        fp8 = calibration.fp8 if order.gate.passed(candidates[0].scores) else self._search(calibration, held_out, candidates)
        decided = candidates[-1].scores
        reference = Candidate('FP32', 0, [], {(each.name, each.level): geometry(each, samples, each.reference, self.size)
                                              for each in held_out})
        chances = {(each.name, each.level): chance(each, samples, score, self.size)
                   for each, score in zip(held_out, decided, strict=True)}
        print_gate(candidates, order.gate)
        print_figures(reference, candidates, chances)
        for line in verdicts(decided, order.gate):
            logger.info(line)
        gate = {'f1': order.gate.f1, 'candidates': [plain(each, order.gate) for each in candidates],
                'fp32': [{'name': name, 'level': level, **figures, 'by_chance': chances[name, level]}
                         for (name, level), figures in reference.figures.items()]}
        return self._write(dataclasses.replace(calibration, fp8=fp8 or frozenset()), identity, gate, settings)

    def _search(self, calibration: Calibration, held_out: Sequence[HeldOutSet], candidates: list[Candidate]) -> Members | None:
        """What a search leaves of a calibration that failed, which joins the candidates; None: nothing."""
        logger.info('below the gate: searching for the parts that must stay in FP16')
        search = Search(self.spec, self.weights, calibration, self.samples, held_out, self.order.gate)
        with progress('trying parts in FP8', search.steps) as bar:
            found = search.run(bar)
        self.tried = [*found.tried, search.tried('all', calibration.fp8, candidates[0].scores)]
        print_search(self.tried)
        if found.fp8 is not None:
            candidates.append(self._with_figures('the part that passes', self._share(found.fp8), held_out, found.scores,
                                                 found.answers))
        return found.fp8

    def _judged(self, name: str, part: float, matcher: HostMatcher, held_out: Sequence[HeldOutSet]) -> Candidate:
        with progress(f'judging {name}', sum(len(each.pairs) for each in held_out)) as bar:
            return self._with_figures(name, part, held_out, *judge(held_out, self.samples, matcher, bar))

    def _with_figures(self, name: str, part: float, held_out: Sequence[HeldOutSet], scores: Sequence[Score],
                      found: Sequence[Sequence[Int32]]) -> Candidate:
        return Candidate(name, part, scores, {(each.name, each.level): geometry(each, self.samples, answers, self.size)
                                              for each, answers in zip(held_out, found, strict=True)})

    def _check_saturation(self, calibration: Calibration, held_out: Sequence[HeldOutSet]) -> None:
        matcher = open_matcher(self.spec, self.weights, calibration, observe=True)
        pairs = [pair for each in held_out for pair in each.part(SATURATION_PAIRS).pairs]
        with progress('comparing held-out peaks with the scales', len(pairs)) as bar:
            beyond = saturated(calibration, measure_peaks(matcher, self.samples, pairs, bar))
        for tensor in beyond:
            logger.warning(f'on held-out frames {tensor}')

    def _share(self, fp8: Members) -> float:
        return share(fp8, self.layers, self.spec.max_keypoints)

    def _write(self, calibration: Calibration, identity: Identity, gate: dict[str, Any],
               settings: dict[str, Any]) -> Artifact:
        from ..networks.lightglue import lightglue
        passed, scales = bool(calibration.fp8), {name: {'peak': round(peak, 6), 'scale': e4m3.scale_of(peak)}
                                                 for name, peak in calibration.peaks.items()}
        provenance = {**calibration.provenance, 'versions': _versions(), 'scales': scales, 'fp8': sorted(calibration.fp8)}
        record = {'settings': settings, 'flops_share': float(self._share(calibration.fp8)), 'provenance': provenance,
                  'frontier': plain_tried(self.tried)}
        identity = dataclasses.replace(identity, gate_verdict=PASSED if passed else FAILED)
        with drafting(self.order.engine_dir, identity.name) as draft:
            if passed:
                draft.write(GRAPH, lightglue(self.spec, self.weights, calibration=calibration).SerializeToString())
                draft.write(TENSORS, calibration.content())
            if self.tried:
                draft.write(PLOT, draw_frontier(self.tried, self.order.gate))
            return draft.publish(identity, gate, record)


def verdicts(scores: Sequence[Score], gate: QualityGate) -> list[str]:
    """A line for each level."""
    found = []
    for level, label in LEVELS.items():
        mine = [score for score in scores if score.level == level]
        if mine:
            word = 'passed' if gate.verdict(scores, level) else 'failed'
            figures = ', '.join(f'{score.name} F1 {score.f1:.3f}, count ratio {score.count_ratio:.3f}' for score in mine)
            found.append(f'gate on {label}: {word} ({figures}; needed {gate.least(level):.3f}, 0.97 to 1.03)')
    return found


def _find_equal(engine_dir: Path, identity: Identity, settings: dict[str, Any]) -> Artifact | None:
    """What the same order has made already, whether it passed or not."""
    try:
        there = Artifact(engine_dir / identity.name, read_manifest(engine_dir / identity.name))
        there.verify()
    except (OSError, ValueError, EngineError):
        return None
    return there if there.identity.kind == identity.kind and there.manifest.record['settings'] == settings \
        and not there.identity.differences(identity) else None


def _extract(order: CalibrationOrder, samples: Sequence[RecordingSample]) -> None:
    from ..backends.onnxruntime import OnnxRuntimeBackend
    from ..core.early_exit import Depth
    spec = dataclasses.replace(order.spec, precision='fp32')
    backend = OnnxRuntimeBackend(spec, order.model, depth=Depth((order.model.layers,)))
    try:
        with progress('extracting features', frame_count(samples)) as bar:
            extract(samples, backend, bar)
    finally:
        backend.close()


def _settings(order: CalibrationOrder, samples: Sequence[RecordingSample]) -> dict[str, Any]:
    """What was asked for, and content hashes of the recordings: equal ones give an equal calibration."""
    recordings = [{'name': each.name, 'sha256': each.sha256,
                   **{part: [[run.start, run.stop] for run in getattr(each.split, part)] for part in ('calibration', 'held_out')}}
                  for each in samples]
    return {'recordings': recordings, 'gate': order.gate.f1}


def _provenance(order: CalibrationOrder, settings: dict[str, Any]) -> dict[str, Any]:
    model, spec = order.model, order.spec
    return {'weights': model.name, 'weights_sha256': model.matcher.sha256, 'extractor_sha256': model.extractor.sha256,
            'image_height': spec.image_height, 'image_width': spec.image_width, 'max_keypoints': spec.max_keypoints,
            'recordings': settings['recordings'], 'package_version': __version__}


def _versions() -> dict[str, str]:
    import numpy as np

    from ..backends.onnxruntime import import_runtime
    return {'lightglue_trt_ros': __version__, 'numpy': np.__version__, 'onnxruntime': str(import_runtime().__version__)}
