"""The JSON schemas are what `make schemas` writes."""

from __future__ import annotations

from dataclasses import dataclass

from lightglue_trt_eval.report.documents import OTHERS, entry, schema_of
from lightglue_trt_eval.report.json_report import as_text
from tools import schemas


def test_schemas_are_written_from_the_classes() -> None:
    for path, schema in schemas.schemas().items():
        assert path.read_bytes() == as_text(schema), 'run make schemas'


@dataclass
class UnitKeys:
    """A unit."""

    name: str = entry('Short.')


@dataclass
class SampleKeys:
    """A sample."""

    value: float | None = entry('In units.', 'value@1', minimum=0)
    unit: UnitKeys = entry('')
    rows: list[int] = entry('Rows.', optional=True, each={'minimum': 1})
    others: list[str] = entry('More.', OTHERS, items='A word.')


def test_schema_has_types_limits_references_and_other_keys() -> None:
    schema = schema_of('sample.json', '', SampleKeys, shared=(UnitKeys,))
    assert schema['properties'] == {
        'value@1': {'description': 'In units.', 'type': ['number', 'null'], 'minimum': 0}, 'unit': {'$ref': '#/$defs/unit'},
        'rows': {'description': 'Rows.', 'type': 'array', 'items': {'type': 'integer', 'minimum': 1}}}
    assert schema['required'] == ['value@1', 'unit']
    assert schema['additionalProperties'] == {'description': 'More.', 'type': 'array',
                                              'items': {'description': 'A word.', 'type': 'string'}}
    assert schema['$defs'] == {'unit': {'description': 'A unit.', 'type': 'object', 'additionalProperties': False,
                                        'properties': {'name': {'description': 'Short.', 'type': 'string'}}, 'required': ['name']}}
