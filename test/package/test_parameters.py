"""config/matcher.yaml and the parameter table of docs/parameters.md are what `make params` writes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

pytest.importorskip('rclpy', reason='rclpy is not installed', exc_type=ImportError)

from lightglue_trt_ros.ros.parameters import FIELDS
from tools import params


def test_params_file_and_table_are_written_from_the_settings() -> None:
    assert params.PARAMS_FILE.read_text() == params.params_file(), 'run make params'
    text = params.PAGE.read_text()
    assert text == params.page(text), 'run make params'


def test_links_of_the_table_belong_to_parameters() -> None:
    assert params.LINKS.keys() <= FIELDS.keys()


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match=r'parameters\.md must have the two lines'):
        params.page('# Interface\n')


def test_row_has_name_default_values_and_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {'doc': 'Size, see <name>/image', 'detail': 'Or more', 'low': 0.5, 'high': 2.0, 'choices': (), 'dynamic': True}
    field: Any = dataclasses.field(default=1.0, metadata=metadata)
    field.name = 'size'
    monkeypatch.setattr(params, 'FIELDS', {field.name: field})
    monkeypatch.setattr(params, 'LINKS', {'size': 'page.md#how-large'})
    row = '| `size` * | 1 | 0.5 to 2 | Size, see `<name>/image`. Or more. See [how large](page.md#how-large) |'
    assert params.table().splitlines()[2] == row
    assert params.params_file().splitlines()[-1] == '    size: 1.0 # * Size, see <name>/image'
