"""Write config/matcher.yaml and the parameter table of docs/parameters.md from the fields of MatcherConfig and NodeConfig."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from lightglue_trt_ros.ros.parameters import FIELDS

REPOSITORY = Path(__file__).resolve().parents[1]
PARAMS_FILE, PAGE = REPOSITORY / 'config' / 'matcher.yaml', REPOSITORY / 'docs' / 'parameters.md'
BEGIN, END = '<!-- parameters: make params writes this table -->', '<!-- end of parameters -->'
HEAD = ('# Every parameter of the node, at its default. Those marked * may change while it runs (ros2 param set /matcher …).\n'
        '# `make params` writes this file; docs/parameters.md has ranges and more.\n/**:\n  ros__parameters:\n')
LINKS = {  # from a row of the table to the chapter about it
    'weights': 'models.md', 'depth_confidence': 'engines.md#early-exits', 'refinement': 'refinement.md',
    'carry_frames': 'refinement.md#track-propagation', 'mask_margin': 'camera-setups.md#masks',
    'static_points': 'static-structure.md', 'keyframes': 'keyframes.md', 'qos_reliability': 'interface.md#quality-of-service',
    'max_megapixels': 'interface.md#limits-on-input', 'tracks_format': 'vins.md', 'vins_channels': 'vins.md',
    'mask_file': 'camera-setups.md#masks', 'stereo': 'camera-setups.md#stereo', 'depth': 'camera-setups.md#depth-cameras',
    'max_wait_s': 'camera-setups.md#depth-cameras', 'autostart': 'interface.md#lifecycle'}
CODE = re.compile(r'~/[\w<>/]+|<\w+>/\w+|\{\w+\}|\b\w+\.safetensors|\b[a-z]+_\w+(?:/\w+)?|\[\'\']')  # topics, files, names


def params_file() -> str:
    """The text of config/matcher.yaml: each parameter with its default, choices and description."""
    lines = [f'{field.name}: {_as_yaml(field.default)}' for field in FIELDS.values()]
    width = max(map(len, lines))
    comments = [f'{"* " if field.metadata["dynamic"] else ""}{_in_yaml(field)}' for field in FIELDS.values()]
    return HEAD + ''.join(f'    {line:{width}} # {comment}\n' for line, comment in zip(lines, comments, strict=True))


def table() -> str:
    """The rows of docs/parameters.md: name, default, range or choices, meaning."""
    rows = [f'| `{field.name}`{" *" if field.metadata["dynamic"] else ""} | {_default(field.default)} | {_values(field)} | '
            f'{_meaning(field)} |' for field in FIELDS.values()]
    return '\n'.join(['| parameter | default | values | meaning |', '|---|---|---|---|', *rows])


def page(text: str) -> str:
    """The `text` of docs/parameters.md with the table between its marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f'{PAGE} must have the two lines {BEGIN} and {END}')
    return f'{head}{BEGIN}\n\n{table()}\n\n{END}{tail}'


def _as_yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value) if value == '' or not isinstance(value, str) else value


def _in_yaml(field: dataclasses.Field[Any]) -> str:
    choices = ' | '.join(map(str, field.metadata['choices']))
    return f'{choices}: {field.metadata["doc"]}' if choices else str(field.metadata['doc'])


def _default(value: Any) -> str:
    return '(empty)' if value == '' else f'{value:g}' if isinstance(value, float) else _as_yaml(value)


def _values(field: dataclasses.Field[Any]) -> str:
    meta = field.metadata
    if meta['choices'] or isinstance(field.default, bool):
        return ', '.join(map(str, meta['choices'] or ('true', 'false')))
    return '' if meta['low'] is None else f'{meta["low"]:g} to {meta["high"]:g}'


def _meaning(field: dataclasses.Field[Any]) -> str:
    texts = [CODE.sub(r'`\g<0>`', text) for text in (field.metadata['doc'], field.metadata['detail']) if text]
    if field.name in LINKS:
        name = LINKS[field.name].partition('#')
        texts.append(f'See [{(name[2] or name[0].removesuffix(".md")).replace("-", " ")}]({LINKS[field.name]})')
    return '. '.join(texts)


if __name__ == '__main__':
    PARAMS_FILE.write_text(params_file(), encoding='utf-8')
    PAGE.write_text(page(PAGE.read_text(encoding='utf-8')), encoding='utf-8')
