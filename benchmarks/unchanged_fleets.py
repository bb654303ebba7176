"""How often the acceptance check of a fleet fails where nothing changed, and which loss it detects, by simulation."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightglue_trt_eval.fleet.comparison import AUC, PRECISION, Comparison, DetectableLoss, over_recordings
from lightglue_trt_eval.score.confidence import OPEN, mean_difference
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.utils.console import print_table

DATA = 'not used: the differences are drawn'
RECORDINGS, PAIRS, CORRELATIONS = 20, (10, 25, 50, 100), (0.0, 0.2, 0.33, 0.5, 0.8)
SCALE = 10.0  # points, of a pair's difference


@dataclass(frozen=True)
class Unchanged:
    """Fleets of RECORDINGS recordings, two figures each, in percent of the fleets or of the verdicts."""

    pairs: int
    correlation: float  # of neighbouring pairs
    failed: float  # fleets that the acceptance check fails
    as_a_whole: float  # of these, by the means over recordings
    verdicts: float  # ahead or behind, of single figures
    detects_as_a_whole: float  # loss of the mean over recordings, in standard deviations of a pair's difference; median of fleets
    detects_recording: float  # loss of a single recording, likewise


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--fleets', type=int, default=1000, help='fleets of each kind; default: %(default)s')


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Draw the differences of unchanged fleets, and count what is said of them."""
    rows = [simulated(pairs, correlation, args.fleets) for pairs in PAIRS for correlation in CORRELATIONS]
    print_table(f'{args.fleets} fleets of {RECORDINGS} recordings in which nothing changed, %',
                ['pairs', 'correlation', 'fails', 'as a whole', 'ahead or behind', 'detects as a whole', 'of a recording'],
                [(str(each.pairs), f'{each.correlation:g}', f'{each.failed:.1f}', f'{each.as_a_whole:.1f}', f'{each.verdicts:.1f}',
                  f'{each.detects_as_a_whole:.2f} sd', f'{each.detects_recording:.1f} sd') for each in rows])
    return {'fleets': args.fleets, 'rows': [
        {'pairs': pairs, **{field.name: [getattr(each, field.name) for each in rows if each.pairs == pairs]
                            for field in dataclasses.fields(Unchanged) if field.name != 'pairs'}} for pairs in PAIRS]}


def simulated(pairs: int, correlation: float, fleets: int) -> Unchanged:
    """One kind of fleet."""
    rng, failed, whole, verdicts, losses = np.random.default_rng(0), 0, 0, 0, list[DetectableLoss]()
    for _ in range(fleets):
        found = Comparison('before', [], {str(number): {
            (1, metric): mean_difference(resembling(rng, pairs, correlation)).scaled(SCALE) for metric in (AUC, PRECISION)}
            for number in range(RECORDINGS)})
        found.together = over_recordings(found.recordings.values())
        lines = found.failures(0.0)
        failed, whole = failed + bool(lines), whole + any(line.startswith('all recordings: ') for line in lines)
        losses += found.detectable()
        verdicts += sum(each.verdict != OPEN for changes in found.recordings.values() for each in changes.values())
    return Unchanged(pairs, correlation, 100 * failed / fleets, 100 * whole / fleets, 100 * verdicts / fleets / RECORDINGS / 2,
                     *(float(np.median([getattr(loss, of) for loss in losses])) / SCALE for of in ('together', 'recording')))


def resembling(rng: np.random.Generator, count: int, correlation: float) -> Float64:
    """Normal values (N,) of mean 0 whose neighbours are correlated so much."""
    values = rng.standard_normal(count)
    values[1:] *= np.sqrt(1 - correlation**2)
    for number in range(1, count):
        values[number] += correlation * values[number - 1]
    return values
