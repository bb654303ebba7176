"""How the keys of a JSON document are described: a dataclass for each object, from which `make schemas` writes its schema."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Union, get_args, get_origin, get_type_hints

DRAFT = 'https://json-schema.org/draft/2020-12/schema'
OTHERS = '*'  # the key of a field that stands for all keys without a field of their own
_SCALARS = {str: 'string', int: 'integer', float: 'number', bool: 'boolean', dict: 'object', types.NoneType: 'null'}


def entry(text: str, name: str = '', *, optional: bool = False, items: str = '', each: dict[str, int] | None = None,
          **limits: Any) -> Any:
    """A field of a document with its description; `name` is the key where it is no name in Python.

    `items` describes the items of a list or the values of a dict; `limits` are further words of JSON Schema, and `each` such words
    of the items.
    """
    return dataclasses.field(metadata={'text': text, 'name': name, 'optional': optional, 'items': items, 'each': each or {},
                                       'limits': limits})


def schema_of(title: str, text: str, *documents: type, shared: tuple[type, ...]) -> dict[str, Any]:
    """The JSON schema of a file that holds one of `documents`; `text` describes several of them.

    `shared` classes are described once, and referred to.
    """
    bodies = [_object(document, shared) for document in documents]
    body = {'description': text, 'anyOf': bodies} if len(bodies) > 1 else bodies[0]
    return {'$schema': DRAFT, 'title': title, **body, '$defs': {_name(each): _described(each, shared) for each in shared}}


def _name(shared: type) -> str:
    return shared.__name__.removesuffix('Keys').lower()


def _described(kind: type, shared: tuple[type, ...]) -> dict[str, Any]:
    if dataclasses.is_dataclass(kind):
        return _object(kind, shared)
    (base,) = getattr(kind, '__orig_bases__', kind.__bases__)
    return {'description': _text(kind), **_type(base, shared, '')}


def _text(kind: type) -> str:
    return ' '.join(str(kind.__doc__).split())


def _object(document: type, shared: tuple[type, ...]) -> dict[str, Any]:
    hints, properties, required = get_type_hints(document), dict[str, Any](), list[str]()
    others: dict[str, Any] | bool = False
    for field in dataclasses.fields(document):
        meta = field.metadata
        name, described = meta['name'] or field.name, _field(hints[field.name], meta, shared)
        if name == OTHERS:
            others = described or True
            continue
        properties[name] = described
        required += [] if meta['optional'] else [name]
    return {'description': _text(document), 'type': 'object', 'properties': properties,
            **({'required': required} if required else {}), 'additionalProperties': others}


def _field(kind: Any, meta: Any, shared: tuple[type, ...]) -> dict[str, Any]:
    described: dict[str, Any] = {'description': meta['text']} if meta['text'] else {}
    found = {**described, **_type(kind, shared, meta['items']), **meta['limits']}
    if meta['each']:
        found['items'] |= meta['each']
    return found


def _type(kind: Any, shared: tuple[type, ...], items: str) -> dict[str, Any]:
    """The words of JSON Schema for a type; none for Any."""
    if kind is Any:
        return {}
    if kind in shared:
        return {'$ref': f'#/$defs/{_name(kind)}'}
    if get_origin(kind) in (Union, types.UnionType):
        first, *rest = get_args(kind)
        described = _type(first, shared, items)
        names = described['type'] if isinstance(described['type'], list) else [described['type']]
        return {**described, 'type': [*names, *(_SCALARS[each] for each in rest)]}
    inner = {'description': items} if items else {}
    if get_origin(kind) is list:
        values = {**inner, **_type(get_args(kind)[0], shared, '')}
        return {'type': 'array', **({'items': values} if values else {})}
    if get_origin(kind) is dict:
        values = {**inner, **_type(get_args(kind)[1], shared, '')}
        return {'type': 'object', **({'additionalProperties': values} if values else {})}
    if dataclasses.is_dataclass(kind):
        return _object(typing.cast(type, kind), shared)
    return {'type': _SCALARS[kind]}
