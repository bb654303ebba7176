"""A calibration from the first frame to the files: read, extract, calibrate, judge, search where that fails, write."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lightglue_trt_ros import __version__

from .. import e4m3
from ..calibration import Calibration, attention_members, linear_members
from ..config import EngineSpec
from ..engines.artifacts import FAILED, GRAPH, PASSED, PLOT, TENSORS, Artifact, Identity, drafting, read_manifest
from ..errors import EngineError
from ..features import Int32, UInt8
from ..graphs.rounding import check_width
from ..weights.pairs import WeightsPair
from . import report
from .footage import Footage, extract, frame_count, read_footage
from .gate import Gate, Held, Score, answer_references, chance, check_motion, choose_held_out, geometry, judge
from .pairs import HELD_OUT, STRIDES, Pair, mixed
from .running import WholeMatcher, open_matcher
from .search import Point, Search, share
from .statistics import calibrate, measure_peaks, saturated, steps

MOST_PAIRS = 100  # that are calibrated on: neighbours resemble each other
SATURATION_PAIRS = 8  # held-out ones of each set, whose peaks are compared with the scales


class Terminal(Protocol):
    """Who hears how it goes."""

    def say(self, line: str) -> None:
        """A line for people."""

    def progress(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A bar that is told how much of `total` is done."""


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    recordings: tuple[Path, ...]
    spec: EngineSpec  # fp8
    pair: WeightsPair
    engine_dir: Path
    held_out: tuple[Path, ...] = ()
    frames: int = 300
    gate: Gate = field(default_factory=Gate)
    attention: bool = False  # its products in FP8 too
    share: float = HELD_OUT  # of each recording that is held out, without held_out recordings
    image_topic: str | None = None
    peers: bool = False
    force: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    calibration: Artifact
    made: bool  # now; else an equal one was there


def quantize(order: Order, decode: Callable[[Any], UInt8], terminal: Terminal) -> Outcome:
    """Calibrate, judge, and write; an equal calibration that is there already is left as it is, unless forced.

    `decode` makes gray uint8 (H, W) of a message. What does not pass leaves its figures without a calibration. Raises
    LightglueTrtError where nothing can be calibrated or judged; nothing is written then, nor when it is interrupted.
    """
    if order.peers:
        from .peers import require_modelopt
        require_modelopt()
    check_width(order.pair.matcher.tensors)  # before minutes are spent
    footage = read_footage(order.recordings, order.held_out, order.frames, order.spec, decode, terminal.say,
                           image_topic=order.image_topic, share=order.share)
    identity = Identity.of_calibration(order.spec, order.pair.identity, gate_verdict='')
    settings = _settings(order, footage)
    if not order.force and not order.peers and (there := _find_equal(order.engine_dir, identity, settings)):
        return Outcome(there, False)
    _extract(order, footage, terminal)
    return _Work(order, footage, identity, settings, terminal).run()


class _Work:
    """What follows once there are features."""

    def __init__(self, order: Order, footage: Sequence[Footage], identity: Identity, settings: dict[str, Any],
                 terminal: Terminal) -> None:
        self.order, self.footage, self.identity, self.settings = order, footage, identity, settings
        self.weights = order.pair.matcher
        self.terminal, self.points, self.peers = terminal, list[Point](), list[report.Candidate]()
        self.layers = order.pair.layers

    def run(self) -> Outcome:
        terminal, footage, order = self.terminal, self.footage, self.order
        fp32 = open_matcher(order.spec, self.weights)
        check_motion(footage, fp32, STRIDES, terminal.say)
        held = choose_held_out(footage, fp32, terminal.say)
        with terminal.progress('matching held-out pairs in FP32', sum(len(each.pairs) for each in held)) as tell:
            answer_references(held, footage, fp32, tell)
        pairs = mixed([[pair for number, each in enumerate(footage) for pair in each.pairs(number, stride, False)]
                       for stride in STRIDES], MOST_PAIRS)
        with terminal.progress(f'calibrating on {len(pairs)} pairs', steps(pairs)) as tell:
            calibration = calibrate(order.spec, self.weights, footage, pairs, self._provenance(pairs), tell)
        calibration = dataclasses.replace(calibration, fp8=self._wanted())
        self._check_saturation(calibration, held)
        candidates = [self._candidate(self._name(), calibration, held)]
        calibration, passed = self._decide(calibration, held, candidates)
        reference = report.Candidate('FP32', 0, [], {(each.name, each.level): geometry(each, footage, each.reference, self._size())
                                                     for each in held})
        chances = {(each.name, each.level): chance(each, footage, score, self._size())
                   for each, score in zip(held, candidates[-1].scores, strict=True)}
        if order.peers:
            candidates.append(self._peers(pairs, held))
        report.print_gate(candidates, order.gate)
        report.print_figures(reference, candidates, chances)
        for line in verdicts(candidates[-1 - order.peers].scores, order.gate):
            terminal.say(line)
        return self._write(calibration, passed, reference, candidates, chances)

    def _decide(self, calibration: Calibration, held: Sequence[Held],
                candidates: list[report.Candidate]) -> tuple[Calibration, bool]:
        """As it is where it passes, else what a search leaves of it, which joins the candidates."""
        order, terminal = self.order, self.terminal
        if order.gate.passed(candidates[0].scores):
            return calibration, True
        terminal.say('below the gate: searching for the parts that must stay in FP16')
        search = Search(order.spec, self.weights, calibration, self.footage, held, order.gate)
        with terminal.progress('trying parts in FP8', search.steps) as tell:
            found = search.run(tell)
        self.points = [*found.points, search.point('all', calibration.fp8, candidates[0].scores)]
        report.print_search(self.points)
        if found.fp8 is None:
            return calibration, False
        calibration = dataclasses.replace(calibration, fp8=found.fp8)
        part = share(found.fp8, self.layers, order.spec.max_keypoints)
        candidates.append(self._with_figures('the part that passes', part, held, found.scores, found.answers))
        return calibration, True

    def _candidate(self, name: str, calibration: Calibration, held: Sequence[Held]) -> report.Candidate:
        part = share(calibration.fp8, self.layers, self.order.spec.max_keypoints)
        return self._judged(name, part, open_matcher(self.order.spec, self.weights, calibration), held)

    def _judged(self, name: str, part: float, matcher: WholeMatcher, held: Sequence[Held]) -> report.Candidate:
        with self.terminal.progress(f'judging {name}', sum(len(each.pairs) for each in held)) as tell:
            scores, found = judge(held, self.footage, matcher, tell)
        return self._with_figures(name, part, held, scores, found)

    def _with_figures(self, name: str, part: float, held: Sequence[Held], scores: Sequence[Score],
                      answers: Sequence[Sequence[Int32]]) -> report.Candidate:
        figures = {(each.name, each.level): geometry(each, self.footage, found, self._size())
                   for each, found in zip(held, answers, strict=True)}
        return report.Candidate(name, part, scores, figures)

    def _peers(self, pairs: Sequence[Pair], held: Sequence[Held]) -> report.Candidate:
        from .peers import PAIRS, quantised
        self.terminal.say(f"quantising as published deployments do: ModelOpt, entropy, {2 * PAIRS} images")
        model, part = quantised(self.order.spec, self.weights, self.footage, pairs)
        return self._judged('peers', part, WholeMatcher(model), held)

    def _check_saturation(self, calibration: Calibration, held: Sequence[Held]) -> None:
        matcher = open_matcher(self.order.spec, self.weights, calibration, observe=True)
        pairs = [pair for each in held for pair in each.part(SATURATION_PAIRS).pairs]
        with self.terminal.progress('comparing held-out peaks with the scales', len(pairs)) as tell:
            lines = saturated(calibration, measure_peaks(matcher, self.footage, pairs, tell))
        for line in lines:
            self.terminal.say(f'warning: on held-out frames {line}')

    def _wanted(self) -> frozenset[str]:
        attention = attention_members(self.layers) if self.order.attention else ()
        return frozenset((*linear_members(self.layers), *attention))

    def _name(self) -> str:
        return 'linears and attention' if self.order.attention else 'all linears'

    def _size(self) -> tuple[int, int]:
        return self.order.spec.image_height, self.order.spec.image_width

    def _provenance(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        spec = self.order.spec
        pair = self.order.pair
        return {'weights': pair.name, 'weights_sha256': pair.matcher.sha256, 'extractor_sha256': pair.extractor.sha256,
                'image_height': spec.image_height, 'image_width': spec.image_width, 'max_keypoints': spec.max_keypoints,
                'recordings': self.settings['recordings'],
                'strides': sorted({pair.stride for pair in pairs}), 'pairs': len(pairs), 'package_version': __version__}

    def _write(self, calibration: Calibration, passed: bool, reference: report.Candidate, candidates: Sequence[report.Candidate],
               chances: report.Chances) -> Outcome:
        order = self.order
        files: dict[str, bytes] = {}
        if passed:
            from ..graphs.lightglue import lightglue
            files[GRAPH] = lightglue(order.spec, self.weights, calibration=calibration).SerializeToString()
            files[TENSORS] = calibration.content()
        if self.points:
            files[PLOT] = report.draw_frontier(self.points, order.gate)
        scales = {name: {'peak': round(peak, 6), 'scale': e4m3.scale_of(peak)} for name, peak in calibration.peaks.items()}
        gate = {'f1': order.gate.f1, 'fp32': [
                    {'name': name, 'level': level, **figures, 'by_chance': chances[name, level]}
                    for (name, level), figures in reference.figures.items()],
                'candidates': [report.plain(each, order.gate) for each in candidates]}
        provenance = {**calibration.provenance, 'versions': _versions(), 'scales': scales,
                      'fp8': sorted(calibration.fp8) if passed else []}
        record = {'settings': self.settings, 'provenance': provenance, 'frontier': report.plain_points(self.points),
                  'flops_share': share(calibration.fp8, self.layers, order.spec.max_keypoints) if passed else 0.0}
        identity = dataclasses.replace(self.identity, gate_verdict=PASSED if passed else FAILED)
        with drafting(order.engine_dir, identity.name, self.terminal.say) as draft:
            for name, data in files.items():
                draft.write(name, data)
            return Outcome(draft.publish(identity, gate, record), True)


def verdicts(scores: Sequence[Score], gate: Gate) -> list[str]:
    """A line for each level."""
    lines = []
    for level, label in report.LEVELS.items():
        mine = [score for score in scores if score.level == level]
        if mine:
            word = 'passed' if gate.verdict(scores, level) else 'failed'
            figures = ', '.join(f'{score.name} F1 {score.f1:.3f}, count ratio {score.count_ratio:.3f}' for score in mine)
            lines.append(f'gate on {label}: {word} ({figures}; needed {gate.least(level):.3f}, 0.97 to 1.03)')
    return lines


def _find_equal(engine_dir: Path, identity: Identity, settings: dict[str, Any]) -> Artifact | None:
    """What the same order has made already, whether it passed or not."""
    try:
        there = Artifact(engine_dir / identity.name, read_manifest(engine_dir / identity.name))
        there.verify()
    except (OSError, ValueError, EngineError):
        return None
    return there if there.identity.kind == identity.kind and there.manifest.record['settings'] == settings \
        and not there.identity.differences(identity) else None


def _extract(order: Order, footage: Sequence[Footage], terminal: Terminal) -> None:
    from ..backends.onnxruntime import OnnxRuntimeBackend
    from ..depth import Depth
    spec = dataclasses.replace(order.spec, precision='fp32')
    backend = OnnxRuntimeBackend(spec, order.pair, depth=Depth((order.pair.layers,)))
    try:
        with terminal.progress('extracting features', frame_count(footage)) as tell:
            extract(footage, backend, terminal.say, tell)
    finally:
        backend.close()


def _settings(order: Order, footage: Sequence[Footage]) -> dict[str, Any]:
    recordings = [{'name': each.name, 'sha256': each.sha256,
                   **{part: [[run.start, run.stop] for run in getattr(each.split, part)] for part in ('calibration', 'held_out')}}
                  for each in footage]
    found = {'recordings': recordings, 'gate': order.gate.f1, 'attention': order.attention}
    return dict(json.loads(json.dumps(found)))


def _versions() -> dict[str, str]:
    import numpy as np

    from ..backends.onnxruntime import import_runtime
    return {'lightglue_trt_ros': __version__, 'numpy': np.__version__, 'onnxruntime': str(import_runtime().__version__)}
