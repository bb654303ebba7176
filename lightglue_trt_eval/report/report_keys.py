"""The keys of report.json: `make schemas` writes report.schema.json from these classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .documents import OTHERS, entry, schema_of


class FiguresKeys(dict[str, float | None]):
    """Figures by the names of `metrics`, each in its unit there; what cannot be known is missing."""


class VerdictKeys(str):
    """ahead or behind where the interval excludes 0 and there are ten pairs or more (of the mean over recordings: six
    recordings)."""


@dataclass
class IntervalKeys:
    """Where a figure lies with a probability of `bootstrap.level`, in the unit of the figure."""

    low: float | None = entry('Lower end.')
    high: float | None = entry('Upper end; null: open, as too few frames tell it.')
    over: int = entry('How many pairs of frames, timed frames, segments or tracks the figure rests on.')


@dataclass
class MetricKeys:
    """A figure: what it is called and how it is judged."""

    label: str = entry('For people.')
    unit: str = entry('Of the figure; empty for a number.')
    higher_is_better: bool = entry('Whether more of it is better.')


@dataclass
class BootstrapKeys:
    """Level of the intervals (docs/metrics.md); that of the ATE is a moving-block bootstrap."""

    resamples: int = entry('Trajectories drawn for the interval of the ATE.')
    level: float = entry('Probability that an interval holds the true value.')
    seed: int = entry('Of their random numbers.')


@dataclass
class DifferenceKeys:
    """Of a figure."""

    stride: int = entry('Frames between the two of a pair.')
    metric: str = entry('Name in `metrics`.')
    difference: float = entry('Points of a percentage; above 0: better.')
    low: float | None = entry('Lower end of its interval, points.')
    high: float | None = entry('Upper end, points.')
    pairs: int = entry('Pairs that both have (of the fleet as a whole: recordings).')
    freedom: float = entry('About how many independent pairs these are worth, less one.')
    verdict: VerdictKeys = entry('')


@dataclass
class PairsKeys:
    """Columns (P,) of pairs."""

    reference_frame: list[int | None] = entry('Number of the reference in the recording, from 0.')
    frame: list[int | None] = entry('Number of the current frame.')
    stamp: list[float | None] = entry('Of the current frame, seconds.')
    matches: list[int | None] = entry('Correspondences.')
    inliers: list[int | None] = entry('Of them, of the two-view model that explains more.')
    model: list[str] = entry('That model: essential, fundamental, homography, or empty where none was found.')
    precision_1: list[float | None] = entry(
        'Share in [0, 1] of the matches within 1 px of the true epipolar line; null without ground truth.', 'precision@1')
    precision_2: list[float | None] = entry(
        'Share in [0, 1] of the matches within 2 px of the true epipolar line; null without ground truth.', 'precision@2')
    precision_3: list[float | None] = entry(
        'Share in [0, 1] of the matches within 3 px of the true epipolar line; null without ground truth.', 'precision@3')
    error_median_px: list[float | None] = entry(
        'Median distance to the true epipolar line, pixels; null without ground truth or matches.')
    rotation_deg: list[float | None] = entry(
        'Error of the estimated rotation, degrees; null without ground truth, and where no pose was found '
        '(`pose_found`).')
    translation_deg: list[float | None] = entry(
        'Error of the estimated direction, degrees; null as above, and where the motion is too small for it.')
    within_1_sigma: list[float | None] = entry(
        'Share in [0, 1] of the matches within one standard deviation of the estimated epipolar line, without wrong '
        'ones (further than 4 px and than four deviations); null without covariances or pose.')
    within_2_sigma: list[float | None] = entry('The same within two standard deviations.')
    step_m: list[float | None] = entry('True distance between the two cameras, metres; null without ground truth.')
    step_per_depth: list[float | None] = entry('That distance over the median depth of the scene; null where it is unknown.')
    track_survival: list[float | None] = entry(
        "Share in [0, 1] of the reference's tracked points that were matched again; null where none was tracked.")
    retention: list[float | None] = entry(
        "Share in [0, 1] of the first matcher's matches that this one has; null for the first and for baselines.")
    agreement_f1: list[float | None] = entry('F1 in [0, 1] against the first matcher; null likewise.')
    count_ratio: list[float | None] = entry("Matches over the first matcher's; null likewise.")
    layers: list[int | None] = entry('Layers of LightGlue that ran; null for others.')
    pose_found: list[bool | None] = entry('Whether a pose was found; null where there is no ground truth to compare it with.')
    others: list[Any] = entry('', OTHERS)


@dataclass
class EngineKeys:
    """That ran the networks, and its shape; null of baselines, and live."""

    backend: Any = entry('As the setting backend names it.', enum=['onnxruntime', 'tensorrt'])
    image_height: int = entry('Pixels.', minimum=1)
    image_width: int = entry('Pixels.', minimum=1)
    max_keypoints: int = entry('K.', minimum=1)


@dataclass
class MatcherSummaryKeys:
    """What ran, and its figures."""

    name: str = entry('Short.')
    description: str = entry('What ran, with which settings.')
    ours: bool = entry('Whether it is this package, no baseline.')
    engine: EngineKeys | None = entry('')
    summary: dict[str, FiguresKeys] = entry(
        'By stride (frames between the two of a pair), as text: the figures over all its pairs.')


@dataclass
class StageTimesKeys:
    """Of one stage."""

    p50: float = entry('50th percentile, ms.', optional=True)
    p95: float = entry('95th percentile, ms.', optional=True)
    p99: float = entry('99th percentile, ms.', optional=True)
    values: list[float] = entry('(K,) of each timed frame, in order, ms.')


@dataclass
class OdometryKeys:
    """The trajectory that the two-view poses give, chained, N frames; null without intrinsics."""

    frames: list[int] = entry('(N,) numbers of the frames.')
    stamps: list[float] = entry('(N,) seconds.')
    poses: list[list[float | None]] = entry(
        '(N, 12) poses; after alignment by a similarity with the ground truth, where there is one.',
        items='3x4 matrix, row by row, world from camera, metres.', each={'minItems': 12, 'maxItems': 12})
    true_poses: list[list[float | None]] | None = entry(
        '(N, 12) true poses; null without ground truth, and null entries where it is unknown.',
        items='3x4 matrix, row by row, world from camera, metres.', each={'minItems': 12, 'maxItems': 12})
    scale: str = entry('Where the length of each step comes from.', enum=['truth', 'unit'])
    figures: FiguresKeys = entry('')
    segments_m: list[float] = entry('Lengths of the segments that the drift is averaged over, metres.')


@dataclass
class WorstPairKeys:
    """A pair."""

    frames: list[int] = entry('Reference and current frame.', minItems=2, maxItems=2)
    badness: float | None = entry(
        'Pose error, degrees (null: no pose), or without ground truth the share in [0, 1] that are no inliers.')
    matches: int = entry('Correspondences.')
    why: str = entry('What there is to see, for people.')


@dataclass
class MatcherKeys(MatcherSummaryKeys):
    """A matcher; the first one is what comparisons and requirements are about."""

    intervals: dict[str, dict[str, IntervalKeys]] = entry(
        'By stride (frames between the two of a pair), as text: the interval of each figure, by its name.')
    stage_ms: dict[str, StageTimesKeys] = entry('By stage (`frame` is all of it): wall time of timed frames.')
    cost_ms: dict[str, list[float]] = entry('cpu_ms (all threads) and gpu_ms: (K,) of each timed frame, ms.')
    track_lengths: dict[str, int] = entry('Frames, as text -> number of tracks that were seen in so many.')
    error_histogram: list[int] | None = entry(
        '(B,) matches of stride 1 by distance to the true epipolar line, between error_edges_px; null without ground '
        'truth.')
    deviation_histogram: list[int] | None = entry(
        '(D,) inliers of stride 1 by distance to the estimated epipolar line over its standard deviation: 80 bins of '
        '0.05 up to 4, and the rest; null without covariances.')
    forward_backward: float | None = entry(
        'Share in [0, 1] of the matches that come back when matched backwards; null where not measured.')
    odometry: OdometryKeys | None = entry('')
    worst: list[WorstPairKeys] = entry('The worst pairs, worst first.')
    pairs: dict[str, PairsKeys] = entry(
        'By stride (frames between the two of a pair), as text: columns (P,) with an entry for each pair, in order of'
        ' frames.')


@dataclass
class RecordingKeys:
    """The recording."""

    path: str = entry('Of the recording, as it was given (a fleet: where it came from).')
    topic: str = entry('Of the images.')
    frames: int = entry('Frames of the recording that can be evaluated.')
    recorded_frames: int = entry('All frames of the recording; only where --max-frames leaves some out.', optional=True)
    duration_s: float = entry('From the first to the last of them, seconds.')
    rate_hz: float = entry('Frames per second, by the median time from one to the next: a pause changes nothing.', optional=True)
    width: int = entry('Of an image, pixels.')
    height: int = entry('Of an image, pixels.')
    sha256: str = entry(
        "Fingerprint of the recording's files, by which evaluate_fleet --against knows it; left out with --max-frames"
        ' and after Ctrl-C.', optional=True)
    degraded: str = entry('Names of --degrade, joined by commas in their order; left out without it.', optional=True)
    camera: str | None = entry('Distortion model and focal lengths (pixels), for people; null without intrinsics.')
    calibration_source: str | None = entry(
        'Where the intrinsics come from, for people: a CameraInfo topic or a file; null without intrinsics.', optional=True)
    truth: str | None = entry('Where the true poses come from, for people; null without.')
    truth_as_camera: bool = entry("Whether the poses are taken as the camera's own as they were recorded.", optional=True)
    left_out: list[str] = entry('Why poses, or poses and odometry, were left out: a reason for people each.', optional=True)
    mask: str = entry('File and share of the image that may have keypoints, for people; only where there is a mask.', optional=True)
    depth: str = entry('Topic and number of the depth images, for people; only with --depth.', optional=True)
    depth_median_m: float = entry('Median depth of the first depth images, metres; only with --depth.', optional=True)
    image_bits: int = entry('Used bits of images of 16 bits, by --image-bits; left out without it.', optional=True)
    others: Any = entry('', OTHERS)

@dataclass
class ContestKeys(DifferenceKeys):
    """One of them."""

    other: str = entry("The other one's name.")


@dataclass
class ReportKeys:
    """Of one recording."""

    schema: Any = entry('Version of this schema. It grows when a key changes its meaning or goes, not when one is added.', const=2)
    package: str = entry('lightglue_trt_ros', const='lightglue_trt_ros')
    interrupted: bool = entry('Whether Ctrl-C or a failure ended it early: figures are over what was done until then.')
    recording: RecordingKeys = entry('')
    machine: str = entry('Processor, cores and Python.')
    covered: int | None = entry('Frames that were evaluated, where it was interrupted; null: all.')
    notes: list[str] = entry('What was left out or lost, and why, a line each.')
    estimator: str = entry('How poses were estimated.')
    strides: list[int] = entry('Strides that were asked for.', each={'minimum': 1})
    wall_s: dict[str, float] = entry('Where the time went (reading, inference, baselines, estimating, report ...), seconds.')
    peak_memory_mib: float = entry('Largest resident memory, MiB.')
    metrics: dict[str, MetricKeys] = entry('Every figure that there is, by name.')
    error_edges_px: list[float | None] = entry("(B + 1,) edges of error_histogram's bins, pixels; the last one is null: no end.")
    bootstrap: BootstrapKeys = entry('')
    contests: list[ContestKeys] = entry("The first matcher's figure less another's, over the pairs that both have.")
    matchers: list[MatcherKeys] = entry('Every matcher, the first one ours.')


@dataclass
class CameraMatcherKeys:
    """A matcher."""

    name: str = entry('Short.')
    summary: dict[str, FiguresKeys] = entry(
        'By stride (frames between the two of a pair), as text: the figures over all its pairs.')
    intervals: dict[str, dict[str, IntervalKeys]] = entry(
        'By stride (frames between the two of a pair), as text: the interval of each figure, by its name.')


@dataclass
class CameraKeys:
    """A camera."""

    report: str | None = entry('Its own report.json, relative to this file; null where it could not be evaluated.')
    recording: dict[str, Any] = entry('As in its own report; empty where it could not be evaluated.')
    interrupted: bool = entry('Whether Ctrl-C or a failure ended it early: figures are over what was done until then.')
    notes: list[str] = entry('What was left out, a line each.')
    failures: list[str] = entry('What went wrong, and requirements that are not met.')
    matchers: list[CameraMatcherKeys] = entry('Every matcher.')


@dataclass
class CamerasReportKeys:
    """Of several cameras."""

    schema: Any = entry('Version of this schema. It grows when a key changes its meaning or goes, not when one is added.', const=2)
    package: str = entry('lightglue_trt_ros', const='lightglue_trt_ros')
    interrupted: bool = entry('Whether Ctrl-C or a failure ended it early: figures are over what was done until then.')
    cameras: dict[str, CameraKeys] = entry('Cameras of a bag, by name.')


SHARED = (FiguresKeys, IntervalKeys, MetricKeys, BootstrapKeys, VerdictKeys, PairsKeys, MatcherKeys, RecordingKeys)


TEXT = ('Of one recording, or with --cameras of several cameras. Shapes are in parentheses; shares in `summary` and '
        '`intervals` are in percent, those of single pairs in [0, 1]. There is no NaN and no infinity: both are null.')


def report_schema() -> dict[str, Any]:
    """The schema of report.json."""
    return schema_of('report.json of evaluate_bag', TEXT, ReportKeys, CamerasReportKeys, shared=SHARED)
