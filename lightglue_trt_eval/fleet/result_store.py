"""Results of a fleet: a folder for each under its key, the row of each recording, and one table of all pairs (Parquet)."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lightglue_trt_ros.utils.errors import LightglueTrtError
from lightglue_trt_ros.utils.files import write_whole, written_together

from .comparison import COLUMNS, PairColumns
from .discovery import RecordingRef, fleet_module

EVALUATED, FAILED, REPEATED, WAITING = 'evaluated', 'failed', 'repeated', 'waiting'
FACTS = 'facts.json'  # a result without it is none
GOES_ON = 'what was written before is kept, and a run with the same --out goes on from there'
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


def parquet_of(report: dict[str, Any]) -> bytes:
    """The pairs of one evaluation, from its report.json: a row per matcher, stride and pair."""
    pyarrow = fleet_module('pyarrow')
    tables = [pyarrow.table({'matcher': [matcher['name']] * len(columns['frame']), 'stride': [int(stride)] * len(columns['frame']),
                             **columns, 'pose_error_deg': pose_errors(columns)})
              for matcher in report['matchers'] for stride, columns in matcher['pairs'].items() if columns['frame']]
    table = pyarrow.concat_tables(tables, promote_options='permissive') if tables else pyarrow.table({})
    file = io.BytesIO()
    fleet_module('pyarrow.parquet').write_table(table, file)
    return file.getvalue()


def pose_errors(columns: dict[str, list[Any]]) -> list[float | None]:
    """Of each pair the larger of the rotation's and the direction's error, degrees; infinite where no pose was found.

    None where the ground truth does not say: without one, or where it has no direction to compare with.
    """
    angles = zip(columns['pose_found'], columns['rotation_deg'], columns['translation_deg'], strict=True)
    return [math.inf if pose_found is False else None if None in (pose_found, rotation, direction) else max(rotation, direction)
            for pose_found, rotation, direction in angles]


def write_pairs(path: Path, results: Iterable[tuple[str, str, Path]]) -> None:
    """One file of all pairs: (recording's name, its fingerprint, Parquet of its pairs). Raises OSError."""
    pyarrow, parquet = fleet_module('pyarrow'), fleet_module('pyarrow.parquet')
    sources = [each for each in results if parquet.read_schema(each[2]).names]
    own = pyarrow.schema([('recording', pyarrow.string()), ('sha256', pyarrow.string())])
    schema = pyarrow.unify_schemas([own, *(parquet.read_schema(file) for _, _, file in sources)], promote_options='permissive')
    schema = pyarrow.schema([field if field.type != pyarrow.null() else field.with_type(pyarrow.float64()) for field in schema])
    with parquet.ParquetWriter(path, schema) as writer:
        for name, sha256, file in sources:
            table = parquet.read_table(file)
            for column, value in (('recording', name), ('sha256', sha256)):
                table = table.append_column(column, pyarrow.array([value] * len(table), pyarrow.string()))
            writer.write_table(pyarrow.concat_tables([schema.empty_table(), table], promote_options='permissive').cast(schema))


def read_pairs(source: Path, matchers: dict[str, str]) -> dict[str, PairColumns]:
    """By fingerprint the pairs of the matcher that `matchers` names for it, of what `write_pairs` wrote.

    Raises OSError and ValueError (pyarrow's are among them) where it cannot be read.
    """
    if not fleet_module('pyarrow.parquet').read_metadata(source).num_rows:
        return {}
    table, field = fleet_module('pyarrow.dataset').dataset(source), fleet_module('pyarrow.dataset').field
    if missing := {'sha256', 'matcher', *COLUMNS}.difference(table.schema.names):
        raise ValueError(f'it has no column {min(missing)}')
    return {sha256: _columns(table.to_table(list(COLUMNS), filter=(field('sha256') == sha256) & (field('matcher') == name)))
            for sha256, name in matchers.items()}


def pairs_of(report: dict[str, Any]) -> PairColumns:
    """The pairs of a report's first matcher."""
    first = {**report, 'matchers': report['matchers'][:1]}
    return _columns(fleet_module('pyarrow.parquet').read_table(io.BytesIO(parquet_of(first))))


def _columns(table: Any) -> PairColumns:
    columns = [table[name].to_numpy() if len(table) else np.zeros(0) for name in COLUMNS]
    stride, reference, frame = (column.astype(np.int64) for column in columns[:3])
    errors, precision, inliers, matches = (column.astype(np.float64) for column in columns[3:])
    return PairColumns(stride, reference, frame, errors, precision, inliers / np.maximum(matches, 1))
