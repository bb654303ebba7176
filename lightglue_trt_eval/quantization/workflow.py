"""A calibration from the first frame to the files: read, extract, calibrate, judge, search where that fails, write."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from lightglue_trt_ros import __version__
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend, import_runtime
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.engines.engine_store import drafting
from lightglue_trt_ros.engines.manifest import FAILED, GRAPH, PASSED, PLOT, TENSORS, Artifact, Identity
from lightglue_trt_ros.networks import e4m3
from lightglue_trt_ros.networks.fp8_calibration import Calibration, linear_members
from lightglue_trt_ros.networks.fp8_rounding import check_width
from lightglue_trt_ros.networks.models import Model
from lightglue_trt_ros.utils.console import progress
from lightglue_trt_ros.utils.errors import EngineError

from . import quality
from .measurement import calibrate, measure_peaks, observations, saturated, steps
from .quality import LEVELS, AcceptanceCheck, HeldOutSet, Score, Trial
from .samples import HELD_OUT, STRIDES, RecordingSample, extract, mixed, read_samples
from .search import Search, draw_frontier, plain_trials, print_search, share

MOST_PAIRS = 100  # that are calibrated on: neighbours resemble each other
SATURATION_PAIRS = 8  # held-out ones of each set, whose peaks are compared with the scales

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CalibrationOrder:
    """A calibration that is asked for."""

    recordings: tuple[Path, ...]
    spec: EngineSpec  # fp8
    model: Model
    engine_dir: Path
    held_out: tuple[Path, ...] = ()
    frames: int = 300
    acceptance_check: AcceptanceCheck = field(default_factory=AcceptanceCheck)
    share: float = HELD_OUT  # of each recording that is held out, without held_out recordings
    image_topic: str | None = None
    force: bool = False
    image_bits: int = 16  # that the camera fills, of images of 16 bits


def quantize(order: CalibrationOrder) -> Artifact:
    """Calibrate, judge, and write; an equal calibration that is there already is left as it is, unless forced.

    Raises EngineError where no choice of parts passes the acceptance check: its figures are written without a calibration. Raises
    LightglueTrtError where nothing can be calibrated or judged; nothing is written then, nor when it is interrupted.
    """
    check_width(order.model.matcher.tensors)  # before minutes are spent
    samples = read_samples(order.recordings, order.held_out, order.frames, order.spec, image_topic=order.image_topic,
                           share=order.share, image_bits=order.image_bits)
    identity = Identity.of_calibration(order.spec, order.model.identity, gate_verdict='')
    settings = _settings(order, samples)
    calibration = None if order.force else _find_equal(order.engine_dir, identity, settings)
    if calibration is not None:
        logger.info(f'an equal calibration is there already, and {calibration.identity.gate_verdict} its acceptance check '
                    '(--force makes it anew)')
    else:
        _extract(order, samples)
        calibration = _make(order, samples, identity, settings)
    if calibration.identity.gate_verdict != PASSED:
        raise EngineError('no choice of parts in FP8 passes the acceptance check, and the matcher stays in FP16: '
                          f'{calibration.path} has the figures and no calibration.',
                          '\nCalibrate on more of what the robot sees, or allow a larger loss with --gate')
    return calibration


def _make(order: CalibrationOrder, samples: Sequence[RecordingSample], identity: Identity, settings: dict[str, Any]) -> Artifact:
    """The steps after the features are extracted."""
    spec, weights, check = order.spec, order.model.matcher, order.acceptance_check
    size, fp32 = spec.size, quality.open_matcher(spec, weights)
    quality.check_motion(samples, fp32, STRIDES)
    held_out = quality.choose_held_out(samples, fp32)
    held_out_pairs = sum(len(each.pairs) for each in held_out)
    with progress('matching held-out pairs in FP32', held_out_pairs) as bar:
        quality.answer_references(held_out, fp32, bar)
    pairs = mixed([[pair for each in samples for pair in each.pairs(stride, False)] for stride in STRIDES], MOST_PAIRS)
    provenance = {'weights': order.model.name, 'weights_sha256': weights.sha256, 'extractor_sha256': order.model.extractor.sha256,
                  'image_height': spec.image_height, 'image_width': spec.image_width, 'max_keypoints': spec.max_keypoints,
                  'recordings': settings['recordings'], 'package_version': __version__,
                  'strides': sorted({pair.stride for pair in pairs}), 'pairs': len(pairs)}
    with progress(f'calibrating on {len(pairs)} pairs', steps(pairs)) as bar:
        calibration = calibrate(spec, weights, pairs, provenance, bar)
    calibration = dataclasses.replace(calibration, fp8=frozenset(linear_members(order.model.layers)))
    _check_saturation(order, calibration, held_out)
    search = Search(spec, weights, calibration, held_out, check)
    candidates = _judge(search, calibration, check, held_out_pairs)
    decided = candidates[-1].scores
    fp32_figures = quality.figures_of(held_out, [each.reference for each in held_out], size)
    figures = [quality.figures_of(held_out, candidate.answers, size) for candidate in candidates]
    chances = {(each.name, each.level): quality.chance(each, score, size) for each, score in zip(held_out, decided, strict=True)}
    quality.print_acceptance_check(candidates, check)
    names = ['FP32', *(each.name for each in candidates)]
    quality.print_figures(dict(zip(names, [fp32_figures, *figures], strict=True)), chances)
    for line in verdicts(decided, check):
        logger.info(line)
    record = {'f1': check.f1,
              'candidates': [quality.plain(each, its, check) for each, its in zip(candidates, figures, strict=True)],
              'fp32': [{'name': name, 'level': level, **values, 'by_chance': chances[name, level]}
                       for (name, level), values in fp32_figures.items()]}
    calibration = dataclasses.replace(calibration, fp8=candidates[-1].fp8 if check.passed(decided) else frozenset())
    return _write(order, calibration, search.trials, identity, record, settings)


def _judge(search: Search, calibration: Calibration, check: AcceptanceCheck, held_out_pairs: int) -> list[Trial]:
    """All linears in FP8 and, where those fail, the parts that pass, if any do."""
    with progress('judging all linears', held_out_pairs) as bar:
        all_linears = search.evaluate('all linears', calibration.fp8, whole=True, bar=bar)
    if check.passed(all_linears.scores):
        return [all_linears]
    logger.info('the acceptance check failed: searching for the parts that must stay in FP16')
    with progress('trying parts in FP8', search.steps) as bar:
        chosen = search.run(bar)
    search.trials.append(dataclasses.replace(all_linears, name='all'))
    print_search(search.trials, check)
    return [all_linears, *([dataclasses.replace(chosen, name='the part that passes')] if chosen else [])]


def _check_saturation(order: CalibrationOrder, calibration: Calibration, held_out: Sequence[HeldOutSet]) -> None:
    pairs = [pair for each in held_out for pair in each.part(SATURATION_PAIRS).pairs]
    with progress('comparing held-out peaks with the scales', len(pairs)) as bar:
        peaks = measure_peaks(observations(order.spec, order.model.matcher, pairs, calibration, bar))
    for tensor in saturated(calibration, peaks):
        logger.warning(f'on held-out frames {tensor}')


def _write(order: CalibrationOrder, calibration: Calibration, trials: Sequence[Trial], identity: Identity,
           check_record: dict[str, Any], settings: dict[str, Any]) -> Artifact:
    from lightglue_trt_ros.networks.lightglue import lightglue
    scales = {name: {'peak': round(peak, 6), 'scale': e4m3.scale_of(peak)} for name, peak in calibration.peaks.items()}
    versions = {'lightglue_trt_ros': __version__, 'numpy': np.__version__, 'onnxruntime': str(import_runtime().__version__)}
    provenance = {**calibration.provenance, 'versions': versions, 'scales': scales, 'fp8': sorted(calibration.fp8)}
    record = {'settings': settings, 'flops_share': float(share(calibration.fp8, order.model.layers, order.spec.max_keypoints)),
              'provenance': provenance, 'frontier': plain_trials(trials, order.acceptance_check)}
    identity = dataclasses.replace(identity, gate_verdict=PASSED if calibration.fp8 else FAILED)
    with drafting(order.engine_dir, identity.name) as draft:
        if calibration.fp8:
            draft.write(GRAPH, lightglue(order.spec, order.model.matcher, calibration=calibration).SerializeToString())
            draft.write(TENSORS, calibration.content())
        if trials and find_spec('matplotlib') is not None:
            draft.write(PLOT, draw_frontier(trials, order.acceptance_check))
        elif trials:
            logger.info(f'no {PLOT}: matplotlib is not installed (pip install matplotlib)')
        return draft.publish(identity, check_record, record)


def verdicts(scores: Sequence[Score], check: AcceptanceCheck) -> list[str]:
    """A line for each level."""
    lines = []
    for level, label in LEVELS.items():
        mine = [score for score in scores if score.level == level]
        if mine:
            word = 'passed' if check.passed(mine) else 'failed'
            figures = ', '.join(f'{score.name} F1 {score.f1:.3f}, count ratio {score.count_ratio:.3f}' for score in mine)
            lines.append(f'acceptance check on {label}: {word} ({figures}; needed {check.least(level):.3f}, 0.97 to 1.03)')
    return lines


def _find_equal(engine_dir: Path, identity: Identity, settings: dict[str, Any]) -> Artifact | None:
    """The artifact of an equal earlier order, whether it passed or not."""
    try:
        artifact = Artifact.of_folder(engine_dir / identity.name)
        artifact.verify()
    except (OSError, ValueError, EngineError):
        return None
    return artifact if artifact.identity.kind == identity.kind and artifact.record['settings'] == settings \
        and not artifact.identity.differences(identity) else None


def _extract(order: CalibrationOrder, samples: Sequence[RecordingSample]) -> None:
    spec = dataclasses.replace(order.spec, precision='fp32')
    with closing(OnnxRuntimeBackend(spec, order.model, early_exits=EarlyExits((order.model.layers,)))) as backend, \
            progress('extracting features', sum(len(each.images) for each in samples)) as bar:
        extract(samples, backend, bar)


def _settings(order: CalibrationOrder, samples: Sequence[RecordingSample]) -> dict[str, Any]:
    """The order, and content hashes of the recordings: equal ones give an equal calibration."""
    recordings = [{'name': each.name, 'sha256': each.sha256,
                   **{part: [[run.start, run.stop] for run in getattr(each.split, part)] for part in ('calibration', 'held_out')}}
                  for each in samples]
    return {'recordings': recordings, 'gate': order.acceptance_check.f1}
