"""The keys of fleet.json: `make schemas` writes fleet.schema.json from these classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..report.documents import entry, schema_of
from ..report.report_keys import (
    BootstrapKeys,
    DifferenceKeys,
    FiguresKeys,
    IntervalKeys,
    MatcherSummaryKeys,
    MetricKeys,
    VerdictKeys,
)


@dataclass
class InstalledKeys:
    """What results are made with: package and source, the pair of weights, checksums of both networks, libraries with their
    versions, the GPU."""

    build: str = entry('Version and hash of the source.')
    weights: str = entry("The pair's name.")
    extractor_sha256: str = entry('Of its tensors.')
    matcher_sha256: str = entry('Of its tensors.')
    libraries: str = entry('With their versions.')
    gpu: str = entry('And the TensorRT for it; empty without.')


@dataclass
class DetectableKeys:
    """Of one figure."""

    stride: int = entry('Frames between the two of a pair.')
    metric: str = entry('Name in `metrics`.')
    together: float | None = entry('In the mean over recordings.')
    recording: float | None = entry('In a single recording, whichever it is.')


@dataclass
class ChangeKeys(DifferenceKeys):
    """Now less before."""


@dataclass
class AgainstKeys:
    """The comparison with an earlier fleet; null without one."""

    path: str = entry('Of the earlier one.')
    causes: list[str] = entry('What was set or installed differently.')
    missing: list[str] = entry('Recordings evaluated then and not asked for now.')
    unread: list[str] = entry('Recordings evaluated then that could not be now.')
    added: list[str] = entry('Recordings not evaluated then.')
    limit: float | None = entry('--fail-under-worse, points; null: none.')
    failures: list[str] = entry('What got worse by more than that, a line for each recording.')
    together: list[ChangeKeys] = entry('Means over recordings, which are what `pairs` counts here.')
    detectable: list[DetectableKeys] = entry(
        'Losses that --fail-under-worse 0 detects with a probability of 0.8, points; null: too few recordings, or '
        'pairs.')
    recordings: dict[str, list[ChangeKeys]] = entry('By name.', items='By stride and metric.')


@dataclass
class FactsMatcherKeys(MatcherSummaryKeys):
    """A matcher."""

    pairs: dict[str, int] = entry('By stride (frames between the two of a pair), as text: number of pairs.')


@dataclass
class FactsKeys:
    """Empty where it was not evaluated."""

    recording: dict[str, Any] = entry('As in report.json, without its path.', optional=True)
    strides: list[int] = entry('Strides.', optional=True)
    notes: list[str] = entry('As in report.json.', optional=True)
    seconds: float = entry('That the evaluation took.', optional=True)
    matchers: list[FactsMatcherKeys] = entry('The first one is what the fleet is about.', optional=True)


@dataclass
class RowKeys:
    """A recording that was asked for."""

    name: str = entry('In the fleet.')
    url: str = entry('Where it is.')
    status: str = entry('What became of it.', enum=['evaluated', 'failed', 'repeated', 'waiting'])
    reason: str = entry('Why it is not evaluated; empty: it is.')
    sha256: str = entry("Of the recording's files; empty where they could not be read.")
    key: str = entry('Folder of its result in recordings/; empty without one.')
    report: str = entry('Its page, relative to this file; empty without one.')
    facts: FactsKeys = entry('')


@dataclass
class FleetKeys:
    """Every recording of a fleet, and what changed. Shares are in percent."""

    schema: Any = entry('Version of this schema.', const=1)
    kind: Any = entry('fleet', const='fleet')
    package: str = entry('lightglue_trt_ros', const='lightglue_trt_ros')
    installed: InstalledKeys = entry('')
    settings: dict[str, Any] = entry('Options of every evaluation, by name.')
    contents: dict[str, str] = entry('Checksums of the files that options name.')
    interrupted: str = entry('Why rows are missing; empty: none is.')
    seconds: float = entry('That the fleet took.')
    pairs: str = entry('File of all pairs (Parquet), relative to this one.')
    metrics: dict[str, MetricKeys] = entry('Every figure that there is, by name.')
    bootstrap: BootstrapKeys = entry('')
    against: AgainstKeys | None = entry('')
    recordings: list[RowKeys] = entry('As they were asked for.')


def fleet_schema() -> dict[str, Any]:
    """The schema of fleet.json."""
    return schema_of('fleet.json of evaluate_fleet', '', FleetKeys,
                     shared=(FiguresKeys, IntervalKeys, MetricKeys, BootstrapKeys, VerdictKeys))
