"""The schemas of what programs read, and documents held to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

WORKBENCH = Path(__file__).resolve().parents[2] / 'lightglue_trt_eval'
SCHEMAS = {name: WORKBENCH / name / f'{name}.schema.json' for name in ('report', 'fleet')}


def violations(name: str, document: dict[str, Any]) -> list[str]:
    """Where a document is not what the schema `name` says."""
    jsonschema = pytest.importorskip('jsonschema', reason='jsonschema is not installed: documents are held to no schema')
    schema = json.loads(SCHEMAS[name].read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    if name == 'report':  # of the two kinds the one that it is meant to be: its violations are told by their place
        schema = {'$defs': schema['$defs'], **schema['anyOf']['cameras' in document]}
    return [f'{"/".join(map(str, error.absolute_path))}: {error.message[:200]}'
            for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]
