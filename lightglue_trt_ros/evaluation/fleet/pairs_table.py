"""Every pair of every matcher as a table, for those who ask further: Parquet."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .comparison import COLUMNS, PairColumns
from .extra import fleet_module


def parquet_of(report: dict[str, Any]) -> bytes:
    """The pairs of one evaluation, from its report.json: a row per matcher, stride and pair."""
    pyarrow = fleet_module('pyarrow')
    tables = [pyarrow.table({'matcher': [matcher['name']] * len(columns['frame']), 'stride': [int(stride)] * len(columns['frame']),
                             **columns, 'pose_error_deg': pose_errors(columns)})
              for matcher in report['matchers'] for stride, columns in matcher['pairs'].items() if columns['frame']]
    found = pyarrow.concat_tables(tables, promote_options='permissive') if tables else pyarrow.table({})
    file = io.BytesIO()
    fleet_module('pyarrow.parquet').write_table(found, file)
    return file.getvalue()


def pose_errors(columns: dict[str, list[Any]]) -> list[float | None]:
    """Of each pair the larger of the rotation's and the direction's error, degrees; infinite where no pose was found.

    None where the truth does not say: without one, or where it has no direction to compare with.
    """
    angles = zip(columns['pose_found'], columns['rotation_deg'], columns['translation_deg'], strict=True)
    return [math.inf if found is False else None if None in (found, turn, direction) else max(turn, direction)
            for found, turn, direction in angles]


def write_pairs(path: Path, results: Iterable[tuple[str, str, Path]]) -> None:
    """One file of all pairs: (recording's name, its fingerprint, Parquet of its pairs). Raises OSError; whole or not at all."""
    pyarrow, parquet = fleet_module('pyarrow'), fleet_module('pyarrow.parquet')
    sources = [each for each in results if parquet.read_schema(each[2]).names]
    own = pyarrow.schema([('recording', pyarrow.string()), ('sha256', pyarrow.string())])
    schema = pyarrow.unify_schemas([own, *(parquet.read_schema(file) for _, _, file in sources)], promote_options='permissive')
    schema = pyarrow.schema([field if field.type != pyarrow.null() else field.with_type(pyarrow.float64()) for field in schema])
    temporary = path.with_name(f'.{path.name}.tmp')
    try:
        with parquet.ParquetWriter(temporary, schema) as writer:
            for name, sha256, file in sources:
                table = parquet.read_table(file)
                for column, value in (('recording', name), ('sha256', sha256)):
                    table = table.append_column(column, pyarrow.array([value] * len(table), pyarrow.string()))
                writer.write_table(pyarrow.concat_tables([schema.empty_table(), table], promote_options='permissive').cast(schema))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_pairs(source: Path, matchers: dict[str, str]) -> dict[str, PairColumns]:
    """By fingerprint the pairs of the matcher that `matchers` names for it, of what `write_pairs` wrote.

    Raises OSError and ValueError (pyarrow's are among them) where it cannot be read.
    """
    parquet = fleet_module('pyarrow.parquet')
    if not parquet.read_metadata(source).num_rows:
        return {}
    names = parquet.read_schema(source).names
    if missing := {'sha256', 'matcher', *COLUMNS}.difference(names):
        raise ValueError(f'it has no column {min(missing)}')
    table = parquet.read_table(source, columns=['sha256', 'matcher', *COLUMNS])
    recordings, kinds = (table[name].combine_chunks().dictionary_encode() for name in ('sha256', 'matcher'))
    codes, matcher = (np.asarray(column.indices) for column in (recordings, kinds))
    columns, wanted = _columns(table), kinds.dictionary.to_pylist()
    order = np.argsort(codes, kind='stable')
    starts = np.searchsorted(codes[order], np.arange(len(recordings.dictionary) + 1))
    found = {}
    for number, sha256 in enumerate(recordings.dictionary.to_pylist()):
        rows = order[starts[number]:starts[number + 1]]
        rows = rows[matcher[rows] == wanted.index(matchers[sha256])] if matchers.get(sha256) in wanted else rows[:0]
        found[sha256] = columns.rows(rows)
    return found


def pairs_of(report: dict[str, Any]) -> PairColumns:
    """The pairs of a report's first matcher."""
    first = {**report, 'matchers': report['matchers'][:1]}
    return _columns(fleet_module('pyarrow.parquet').read_table(io.BytesIO(parquet_of(first))))


def _columns(table: Any) -> PairColumns:
    if not len(table):
        return PairColumns.none()
    stride, reference, frame = (table[name].to_numpy().astype(np.int64) for name in COLUMNS[:3])
    errors, precision, inliers, matches = (table[name].to_numpy().astype(np.float64) for name in COLUMNS[3:])
    return PairColumns(stride, reference, frame, errors, precision, inliers, matches)
