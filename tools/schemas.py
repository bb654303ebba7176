"""Write report.schema.json and fleet.schema.json from the classes that describe the keys of both documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightglue_trt_eval.fleet.fleet_keys import fleet_schema
from lightglue_trt_eval.report.json_report import as_text
from lightglue_trt_eval.report.report_keys import report_schema

WORKBENCH = Path(__file__).resolve().parents[1] / 'lightglue_trt_eval'


def schemas() -> dict[Path, dict[str, Any]]:
    """Each schema by its file."""
    return {WORKBENCH / 'report' / 'report.schema.json': report_schema(), WORKBENCH / 'fleet' / 'fleet.schema.json': fleet_schema()}


def main() -> None:
    """Write both files."""
    for path, schema in schemas().items():
        path.write_bytes(as_text(schema))
        print(path)


if __name__ == '__main__':
    main()
