"""fleet.json: all rows of a fleet, and what is said of them, as plain values under a versioned schema; and the one of before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lightglue_trt_ros.utils.errors import LightglueTrtError

from ..report.json_report import definitions
from ..score.metrics import Table
from .comparison import Changes, Comparison, compare, over_recordings, verdict_of
from .discovery import RecordingRef, fingerprint
from .plan import EvaluationPlan, in_words, short
from .result_store import EVALUATED, FAILED, FleetRow, facts_of, pairs_of, read_pairs

SCHEMA, KIND = 1, 'fleet'
FILE, PAIRS = 'fleet.json', 'pairs.parquet'


@dataclass
class FleetReport:
    """Everything that a fleet's page and its fleet.json show."""

    rows: list[FleetRow]  # as they were asked for
    plan: EvaluationPlan
    interrupted: str = ''  # why rows are missing
    seconds: float = 0.0
    comparison: Comparison | None = None
    limit: float | None = None  # --fail-under-worse
    failures: list[str] = field(default_factory=list)  # of that gate

    @property
    def evaluated(self) -> list[FleetRow]:
        return [row for row in self.rows if row.status == EVALUATED]


def write_fleet_document(path: Path, report: FleetReport) -> None:
    """Write fleet.json. Raises OSError."""
    plan, comparison = report.plan, report.comparison
    against = None if comparison is None else {
        'path': comparison.path, 'causes': comparison.causes, 'missing': comparison.missing, 'unread': comparison.unread,
        'added': comparison.added, 'limit': report.limit, 'failures': report.failures, 'together': _plain(comparison.together),
        'detectable': [each._asdict() for each in comparison.detectable()],
        'recordings': {name: _plain(changes) for name, changes in comparison.recordings.items()}}
    document = {
        'schema': SCHEMA, 'kind': KIND, 'package': 'lightglue_trt_ros', 'installed': plan.installed._asdict(),
        'settings': plan.settings, 'contents': plan.contents, 'interrupted': report.interrupted,
        'seconds': round(report.seconds, 1), 'pairs': PAIRS,
        **definitions(), 'against': against, 'recordings': [asdict(row) for row in report.rows]}
    path.write_bytes((json.dumps(document, indent=1, allow_nan=False) + '\n').encode())


@dataclass(frozen=True)
class BaselineRun:
    """Results of an earlier fleet, or of the evaluation of one recording."""

    path: str
    document: dict[str, Any]  # of a fleet; empty of a single evaluation
    names: dict[str, str]  # of its evaluated recordings, by fingerprint
    pairs: dict[str, dict[int, Table]]  # likewise, by stride
    urls: dict[str, str] = field(default_factory=dict)  # likewise: where they were

    def compared(self, rows: Sequence[FleetRow], plan: EvaluationPlan, pairs: dict[str, dict[int, Table]]) -> Comparison:
        """Today's rows, and their pairs by fingerprint, against these."""
        comparison = Comparison(self.path, self._causes(plan))
        for row in rows:
            known = row.sha256 in self.names
            if row.status == EVALUATED and known:
                now, then = pairs.get(row.sha256), self.pairs.get(row.sha256)
                comparison.recordings[row.name] = compare(now, then) if now and then else {}
            elif row.status == FAILED and (known or row.url in self.urls.values()):  # what is damaged has another content
                comparison.unread.append(row.name)
            elif row.status == EVALUATED:
                comparison.added.append(row.name)
        asked = {row.sha256 for row in rows} | {row.url for row in rows if row.name in comparison.unread}
        comparison.missing = sorted(name for key, name in self.names.items() if asked.isdisjoint({key, self.urls.get(key)}))
        comparison.together = over_recordings(comparison.recordings.values())
        return comparison

    def _causes(self, plan: EvaluationPlan) -> list[str]:
        """Settings and installed versions that differ, one line each."""
        if not self.document:
            return []
        then, now = self.document['installed'], plan.installed._asdict()
        labels = {'build': 'package', 'libraries': 'libraries', 'gpu': 'GPU'}
        installed = ({label: each[name] for name, label in labels.items() if name in then} for each in (then, now))
        settings = in_words(self.document['settings']), in_words(plan.settings)
        sides = tuple(installed), settings, (self.document['contents'], plan.contents)
        causes = [f'{name}: {_or_default(before.get(name))} before, {_or_default(after.get(name))} now' for before, after in sides
                  for name in sorted({*before, *after}) if before.get(name) != after.get(name) and name != 'weights']
        for network in ('extractor', 'matcher'):
            before, after = then[f'{network}_sha256'], now[f'{network}_sha256']
            if before != after:
                causes.append(f'the {network} of the weights: {then["weights"]} ({before[:12]}) before, '
                              f'{now["weights"]} ({after[:12]}) now')
        return causes


def _plain(changes: Changes) -> list[dict[str, Any]]:
    return [{'stride': stride, 'metric': metric, **each.plain(), 'verdict': verdict_of(each)}
            for (stride, metric), each in changes.items()]


def _or_default(value: Any) -> str:
    return 'default' if value is None else short(str(value))


def read_baseline(path: Path) -> BaselineRun:
    """The results that `--against` names: a fleet.json beside its pairs, the folder of one, or the report.json of one recording.

    Raises LightglueTrtError, with what is wrong with it.
    """
    if path.is_dir():
        path = path / FILE
    elif path.name == 'report.json' and not path.exists() and (path.parent / FILE).is_file():
        path = path.parent / FILE
    try:
        document = json.loads(path.read_bytes())
        if not isinstance(document, dict) or not ({'kind', 'matchers'} & document.keys()):
            raise ValueError('it is no report of evaluate_fleet or evaluate_bag')
        if document.get('kind') == KIND:
            if document['schema'] != SCHEMA:
                raise ValueError(f'its schema is {document["schema"]}, this version reads {SCHEMA}')
            return _of_fleet(path, document)
        facts_of(document, 0.0)
        place = Path(document['recording']['path']).absolute()
        sha256 = document['recording'].get('sha256') or _content_of(place)
        return BaselineRun(str(path), {}, {sha256: place.name}, {sha256: pairs_of(document['matchers'][0])}, {sha256: str(place)})
    except OSError as error:
        raise LightglueTrtError(f'--against {path} cannot be read: {error.strerror or error}') from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        damaged = isinstance(error, (json.JSONDecodeError, UnicodeDecodeError))
        text = f'it lacks {error}' if isinstance(error, KeyError) else f'it is no whole JSON ({error})' if damaged else str(error)
        raise LightglueTrtError(f'--against {path} cannot be used: {text}; evaluate what it was made of again') from None


def _content_of(place: Path) -> str:
    """The fingerprint of the recording of a report that does not have it, as of a part of a recording. Raises ValueError."""
    if not place.exists():
        raise ValueError(f'it does not tell what is in its recording, and {place} is gone')
    return fingerprint(RecordingRef(str(place), ''))


def build_of(path: Path) -> str:
    """The build of the package that wrote a fleet.json; empty where there is none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(path.read_bytes())['installed']['build'])
    return ''


def _of_fleet(path: Path, document: dict[str, Any]) -> BaselineRun:
    rows = [FleetRow(**row) for row in document['recordings']]
    done = [row for row in rows if row.status == EVALUATED]
    try:
        pairs = read_pairs(path.parent / document['pairs'], {row.sha256: row.first['name'] for row in done})
    except (OSError, ValueError) as error:
        raise ValueError(f'its pairs, {document["pairs"]} next to it, cannot be read ({error})') from None
    if missing := {'installed', 'settings', 'contents'} - document.keys():
        raise KeyError(min(missing))
    return BaselineRun(str(path), document, {row.sha256: row.name for row in done}, pairs)
