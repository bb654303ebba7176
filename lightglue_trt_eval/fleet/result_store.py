"""Results of a fleet: a folder for each under its key, the row of each recording, and one table of all pairs (Parquet)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lightglue_trt_ros.utils.errors import LightglueTrtError
from lightglue_trt_ros.utils.files import write_whole, written_together

from ..report.json_report import KEPT
from ..score.metrics import Table
from .discovery import RecordingRef, fleet_module

EVALUATED, FAILED, REPEATED, WAITING = 'evaluated', 'failed', 'repeated', 'waiting'
FACTS = 'facts.json'  # a result without it is none
GOES_ON = 'what was written before is kept, and a run with the same --out goes on from there'
COLUMNS = ('reference_frame', 'frame', 'matches', 'inliers', 'precision@1', 'rotation_deg', 'translation_deg',
           'pose_found')  # of a report.json, that fleets compare
LETTERS = 24  # of a key, in the name of a folder


@dataclass
class FleetRow:
    """A recording. One that was not evaluated has only the reason."""

    name: str
    url: str
    status: str  # one of the four above
    reason: str = ''
    sha256: str = ''  # the recording's fingerprint
    key: str = ''  # of the result
    report: str = ''  # its page, relative to the fleet's folder
    facts: dict[str, Any] = field(default_factory=dict)  # as `facts_of` gives them

    @classmethod
    def of(cls, listed: RecordingRef, status: str, reason: str = '', **known: Any) -> FleetRow:
        return cls(listed.name, listed.url, status, reason, **known)

    @property
    def first(self) -> dict[str, Any]:
        """The matcher that the fleet is about; empty where nothing was evaluated."""
        return next(iter(self.facts.get('matchers', [])), {})

    def figure(self, metric: str, stride: int = 1, matcher: str | None = None) -> float | None:
        """A metric of a matcher, of the first by default; None where it is not known."""
        matchers = [each for each in self.facts.get('matchers', []) if matcher in (None, each['name'])]
        value = matchers[0]['summary'].get(str(stride), {}).get(metric) if matchers else None
        return None if value is None else float(value)


def facts_of(report: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Figures of an evaluation for a row, from its report.json: plain values."""
    return {'recording': {name: value for name, value in report['recording'].items() if name != 'path'},
            'strides': report['strides'], 'notes': report['notes'], 'seconds': round(seconds, 1),
            'matchers': [{'name': matcher['name'], 'description': matcher['description'], 'ours': matcher['ours'],
                          'engine': matcher.get('engine'), 'summary': matcher['summary'],
                          'pairs': {stride: len(columns['frame']) for stride, columns in matcher['pairs'].items()}}
                         for matcher in report['matchers']]}


class ResultStore:
    """`folder` is the fleet's own. Raises LightglueTrtError where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, list[str]] = _read(folder / 'fingerprints.json') or {}

    def place(self, key: str) -> Path:
        """Where the result with this key is, or would be."""
        return self.folder / 'recordings' / key[:LETTERS]

    def get(self, key: str) -> dict[str, Any] | None:
        """The facts stored with a result; None where there is none, or not a whole one."""
        place = self.place(key)
        facts = _read(place / FACTS)
        if facts is None or facts.get('key') != key or not all((place / name).is_file() for name in facts.get('files', [])):
            return None
        return facts

    def put(self, key: str, facts: dict[str, Any], files: dict[str, bytes]) -> None:
        """Keep a result."""
        place = self.place(key)
        with written_together(place, GOES_ON) as scratch:
            for name, data in {**files, FACTS: json.dumps({**facts, 'key': key, 'files': list(files)}).encode()}.items():
                (scratch / name).write_bytes(data)

    def fingerprint(self, listed: RecordingRef) -> str | None:
        """The fingerprint of a recording none of whose files have changed since it was taken."""
        stamp, sha256 = self._known.get(listed.url, ('', ''))
        return sha256 if stamp and stamp == listed.stamp else None

    def learn(self, fingerprints: Mapping[RecordingRef, str]) -> None:
        """Keep fingerprints: without them the next run reads every recording again, and that is all."""
        self._known |= {listed.url: [listed.stamp, sha256] for listed, sha256 in fingerprints.items()}
        try:
            write_whole(self.folder / 'fingerprints.json', json.dumps(self._known).encode())
        except OSError as error:
            raise LightglueTrtError(f'cannot write {self.folder}: {error.strerror}') from error


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def pairs_of(matcher: dict[str, Any]) -> dict[int, Table]:
    """The pairs of a matcher of a report.json, by stride."""
    return {int(stride): _table(columns) for stride, columns in matcher['pairs'].items() if columns['frame']}


def _table(columns: dict[str, Any]) -> Table:
    """Columns of report.json, which has null for all that is not finite, as a table."""
    table = {name: np.array(columns[name], np.float64) for name in COLUMNS}
    error = np.maximum(table['rotation_deg'], table['translation_deg'])
    return {'reference_frame': table['reference_frame'].astype(np.int64), 'frame': table['frame'].astype(np.int64),
            'pose_error_deg': np.where(table['pose_found'] == 0, np.inf, error), 'precision@1': table['precision@1'],
            'inlier_ratio': table['inliers'] / np.maximum(table['matches'], 1)}


def write_pairs(path: Path, results: Iterable[tuple[str, str, Path]]) -> None:
    """One file of all pairs: (recording's name, its fingerprint, its report.json). Raises OSError."""
    pyarrow, parquet = fleet_module('pyarrow'), fleet_module('pyarrow.parquet')
    kinds = {'recording': pyarrow.string(), 'sha256': pyarrow.string(), 'matcher': pyarrow.string(), 'stride': pyarrow.int64(),
             'model': pyarrow.string(), 'pose_found': pyarrow.bool_(),
             **dict.fromkeys(('reference_frame', 'frame', 'matches', 'inliers', 'layers'), pyarrow.int64()),
             **dict.fromkeys(('stamp', *KEPT, 'pose_error_deg'), pyarrow.float64())}
    schema = pyarrow.schema(list(kinds.items()))
    with parquet.ParquetWriter(path, schema) as writer:
        for name, sha256, report in results:
            for matcher in json.loads(report.read_bytes())['matchers']:
                for stride, columns in matcher['pairs'].items():
                    count = len(columns['frame'])
                    known = {'recording': name, 'sha256': sha256, 'matcher': matcher['name'], 'stride': int(stride)}
                    writer.write_table(pyarrow.table({
                        **{each: [value] * count for each, value in known.items()}, **columns,
                        'pose_error_deg': pyarrow.array(_table(columns)['pose_error_deg'], from_pandas=True)}, schema))


def read_pairs(source: Path, matchers: dict[str, str]) -> dict[str, dict[int, Table]]:
    """By fingerprint the pairs of the matcher that `matchers` names for it, by stride, of what `write_pairs` wrote.

    Raises OSError and ValueError (pyarrow's are among them) where it cannot be read.
    """
    table, field = fleet_module('pyarrow.dataset').dataset(source), fleet_module('pyarrow.dataset').field
    if missing := {'sha256', 'matcher', 'stride', *COLUMNS}.difference(table.schema.names):
        raise ValueError(f'it has no column {min(missing)}')
    found: dict[str, dict[int, Table]] = {}
    for sha256, name in matchers.items():
        columns = table.to_table(['stride', *COLUMNS], filter=(field('sha256') == sha256) & (field('matcher') == name))
        strides = columns['stride'].to_numpy()
        found[sha256] = {stride: _table(columns.filter(strides == stride).to_pydict()) for stride in np.unique(strides).tolist()}
    return found
