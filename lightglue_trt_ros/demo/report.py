"""The demo's figures: one row per received cloud, their medians, and how they are printed and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_whole
from ..processes import describe_machine
from ..replay import Reception
from .truth import NoTruth

CORRECT_PX = 3.0
FORMATS = {'within_3px': '{:.1%}', 'error_median_px': '{:.2f}', 'error_p95_px': '{:.2f}'}  # others: whole numbers
SUMMARY = {'matches': 'matches per frame', 'error_median_px': 'error, median, px', 'error_p95_px': 'error, 95th percentile, px',
           'within_3px': f'matches within {CORRECT_PX:g} px', 'track_length': 'track length, frames', 'latency_ms': 'latency, ms'}


def make_report(got: Reception, truth: NoTruth, published: int, hz: float) -> dict[str, Any]:
    """Plain values for JSON, the table and the plot."""
    rows = [_row(matches, latency, truth.errors(matches)) for matches, latency in zip(got.matches, got.latency_ms, strict=True)]
    for row in rows:
        row['time_s'] -= got.matches[0].reference_stamp
    return {'schema': 1, 'machine': describe_machine(),
            'backend': got.diagnostics.get('backend', 'none'), 'truth': truth.kind, 'correct_px': CORRECT_PX,
            'frames_published': published, 'rate_hz': hz, 'period_ms': 1e3 / hz, 'clouds_received': len(rows),
            'frames_dropped': published - 1 - len(rows), 'summary': {name: _median(rows, name) for name in SUMMARY},
            'diagnostics': got.diagnostics, 'per_frame': rows}


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    write_whole(path, json.dumps(report, indent=1).encode())


def table_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """What the table shows: names and values."""
    rows = [('backend', report['backend']), ('frames published', f'{report["frames_published"]} at {report["rate_hz"]:.2f} Hz'),
            ('clouds received', f'{report["clouds_received"]} (the first frame has no reference)'),
            ('frames dropped', str(report['frames_dropped'])), ('error against', report['truth'])]
    for name, label in SUMMARY.items():
        value = report['summary'][name]
        if value is not None:
            rows.append((label, FORMATS.get(name, '{:.0f}').format(value)))
    return rows


def _row(matches: Any, latency_ms: float, errors: Any) -> dict[str, Any]:
    known = errors[np.isfinite(errors)]
    row: dict[str, Any] = {'time_s': matches.stamp, 'matches': len(matches),
                           'latency_ms': latency_ms if np.isfinite(latency_ms) else None,
                           'track_length': float(np.median(matches.track_lengths)) if len(matches) else None}
    if len(known):
        within = float(np.mean(known <= CORRECT_PX))
        row |= {'within_3px': within, 'correct': within * len(matches), 'error_median_px': float(np.median(known)),
                'error_p95_px': float(np.percentile(known, 95))}
    return row


def _median(rows: list[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return float(np.median(values)) if values else None
