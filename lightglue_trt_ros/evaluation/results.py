"""What an evaluation found: of each matcher on the recording, and of all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.timing import PERCENTILES
from ..core.types import Float64, UInt8
from .baselines import Correspondences
from .confidence import Interval, Spread, mean_spread, percentile_spreads, ratio_spread
from .metrics import CONTESTED, HEADLINES, PairResult, mean, paired_differences, spreads_of, summary_of
from .metrics import METRICS as METRICS  # with what they are of

DEVIATION_EDGES = np.concatenate([np.linspace(0, 4, 81), [np.inf]])  # bins of distances over their standard deviations
ERROR_EDGES_PX = np.concatenate([[0], np.geomspace(0.05, 50, 121), [np.inf]])  # bins of the epipolar errors' histogram


@dataclass(frozen=True, eq=False)
class DrawnPair:
    """A pair worth looking at, with what is needed to draw it."""

    frames: tuple[int, int]
    images: tuple[UInt8, UInt8] | None  # gray (H, W): reference, current; kept of the first matcher's pairs, which are drawn
    points: Correspondences  # pixels of those images
    errors_px: Float64 | None  # (M,) distance to the true epipolar line; None without truth
    badness: float  # larger is worse: pose error in degrees, else the share that are no inliers
    why: str = ''  # what there is to see, in words: the true motion, a plane, few matches


@dataclass(eq=False)
class OdometryResult:
    """The trajectory that chained two-view poses give, N frames, and how far it is from the truth."""

    frames: NDArray[np.int64]  # (N,) numbers of the frames
    stamps: Float64  # (N,) seconds
    poses: Float64  # (N, 4, 4) world from camera; after Sim(3) alignment with the truth where there is one
    true_poses: Float64 | None  # (N, 4, 4); None without truth
    scale: str  # where each step's length comes from: 'truth' or 'unit'
    figures: dict[str, float] = field(default_factory=dict)  # those of METRICS that apply: ate_m, rpe_m, drift_percent ...
    segments_m: tuple[float, ...] = ()  # lengths of the segments that the drift is averaged over
    spreads: dict[str, Spread] = field(default_factory=dict)  # of the figures


@dataclass(eq=False)
class MatcherResult:
    """One matcher on the recording."""

    name: str  # short, for legends: 'ours fp16', 'SIFT'
    description: str  # one line: what ran, with which settings
    ours: bool
    pairs: dict[int, list[PairResult]] = field(default_factory=dict)  # by stride, in order of frames
    stage_ms: dict[str, list[float]] = field(default_factory=dict)  # of timed frames, by stage; 'frame' is all of it
    track_lengths: dict[int, int] = field(default_factory=dict)  # frames -> number of tracks that were that long
    error_histogram: NDArray[np.int64] | None = None  # stride 1: counts between ERROR_EDGES_PX; None without truth
    forward_backward: list[float] = field(default_factory=list)  # shares, one for each pair that was matched both ways
    odometry: OdometryResult | None = None
    worst_pairs: list[DrawnPair] = field(default_factory=list)  # worst first
    cost_ms: dict[str, list[float]] = field(default_factory=dict)  # of timed frames: cpu_ms, over all threads, and gpu_ms
    latency_ms: list[float] = field(default_factory=list)  # live: image sent to cloud received
    figures: dict[str, float] = field(default_factory=dict)  # more of METRICS: dropped
    deviation_histogram: NDArray[np.int64] | None = None  # stride 1: counts between DEVIATION_EDGES; None without covariances
    tracks_ended: list[tuple[int, int]] = field(default_factory=list)  # by pair in time: the sum of their lengths, their number
    _spreads: dict[tuple[int, int], dict[str, Spread]] = field(default_factory=dict, repr=False)

    def summary(self, stride: int = 1) -> dict[str, float]:
        """METRICS over the pairs of a stride; what cannot be known is missing. Shares are in percent."""
        found = {**summary_of(self.pairs.get(stride, []))}
        if stride == 1:
            if self.forward_backward:
                found['forward_backward'] = 100 * (sum(self.forward_backward) / len(self.forward_backward))
            if total := sum(self.track_lengths.values()):
                found['track_length'] = sum(length * count for length, count in self.track_lengths.items()) / total
            if times := self.stage_ms.get('frame'):
                found |= {f'frame_ms_p{p}': float(np.percentile(times, p)) for p in PERCENTILES}
                found['fps'] = 1e3 / max(float(np.median(times)), 1e-9)
            if self.latency_ms:
                found |= {f'latency_ms_p{p}': float(np.percentile(self.latency_ms, p)) for p in PERCENTILES}
            found |= {name: mean(values) for name, values in self.cost_ms.items() if values}
            if self.odometry is not None:
                found |= self.odometry.figures
            found |= self.figures
        return {name: found[name] for name in METRICS if name in found}

    def spreads(self, stride: int = 1) -> dict[str, Spread]:
        """The 95 % intervals of `summary`, and what each figure rests on; missing where there is none, as of a single pair."""
        pairs = self.pairs.get(stride, [])
        key = stride, len(pairs)
        if key not in self._spreads:
            self._spreads[key] = self._measure_spreads(stride, pairs)
        return self._spreads[key]

    def _measure_spreads(self, stride: int, pairs: list[PairResult]) -> dict[str, Spread]:
        found = spreads_of(pairs)
        if stride == 1:
            if self.forward_backward:
                found['forward_backward'] = mean_spread(self.forward_backward).scaled(100)
            if self.tracks_ended:
                found['track_length'] = ratio_spread(*zip(*self.tracks_ended, strict=True))
            for name, times in (('frame_ms', self.stage_ms.get('frame')), ('latency_ms', self.latency_ms)):
                if times:
                    parts = percentile_spreads(times, PERCENTILES)
                    found |= {f'{name}_p{p}': part for p, part in zip(PERCENTILES, parts, strict=True)}
            if 'frame_ms_p50' in found:
                low, high, size = found['frame_ms_p50']
                found['fps'] = Spread(1e3 / max(high, 1e-9), 1e3 / max(low, 1e-9), size)
            found |= {name: mean_spread(values) for name, values in self.cost_ms.items() if values}
            if self.odometry is not None:
                found |= self.odometry.spreads
        return {name: spread for name, spread in found.items() if spread.size > 1 and math.isfinite(spread.low)}


class Contest(NamedTuple):
    """A figure of the first matcher beside another's, over the pairs that both have."""

    stride: int
    other: str
    metric: str  # in CONTESTED
    interval: Interval  # of the first's less the other's, points of a percentage


@dataclass(eq=False)
class Evaluation:
    """Everything that a report shows."""

    recording: dict[str, Any]  # path, topic, frames, duration_s, width, height, camera, truth: plain values for people
    machine: str
    matchers: list[MatcherResult]  # ours first; comparisons are against the first
    strides: tuple[int, ...]
    notes: list[str] = field(default_factory=list)  # what was left out or lost, and why: one line each
    interrupted: bool = False  # Ctrl-C: the figures are over what was done until then
    covered: int | None = None  # frames of the recording that were evaluated; None: all
    wall_s: dict[str, float] = field(default_factory=dict)  # where the time went: inference, baselines, reading, estimating, report
    peak_memory_mib: float = 0.0
    estimator: str = ''  # how poses were estimated
    _differences: dict[tuple[str | int, ...], dict[str, Interval]] = field(default_factory=dict, repr=False)

    @property
    def headline(self) -> str:
        """What the first matcher is judged by: the first of HEADLINES that it has; empty without any."""
        found = self.matchers[0].summary() if self.matchers else {}
        return next((name for name in HEADLINES if name in found), '')

    def contests(self, metrics: Sequence[str] = CONTESTED) -> list[Contest]:
        """The first matcher against each other one, by stride and metric, over the pairs of which both know it."""
        found = []
        for stride in self.strides:
            for matcher in self.matchers[1:]:
                mine, theirs = (each.pairs.get(stride, []) for each in (self.matchers[0], matcher))
                key = stride, matcher.name, len(mine), len(theirs)
                if key not in self._differences:
                    self._differences[key] = paired_differences(mine, theirs)
                found += [Contest(stride, matcher.name, metric, interval.scaled(100))
                          for metric, interval in self._differences[key].items() if metric in metrics]
        return found
