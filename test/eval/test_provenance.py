"""Where a measurement says that its numbers come from."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from lightglue_trt_eval.times import provenance
from lightglue_trt_ros import __version__
from lightglue_trt_ros.utils.errors import EngineError
from lightglue_trt_ros.utils.processes import describe_machine


def test_provenance_has_machine_version_command_and_date() -> None:
    origin = provenance.provenance('benchmark', ['stages', '--recording', 'my bag'])
    assert list(origin) == ['machine', 'version', 'command', 'date']
    assert origin['version'].startswith(__version__)
    assert origin['command'] == "benchmark stages --recording 'my bag'"
    assert re.fullmatch(r'\d{4}-\d\d-\d\d', origin['date'])


def test_machine_begins_with_its_gpu_where_cuda_finds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, 'has_gpu', lambda: True)
    monkeypatch.setattr(provenance, 'probe', lambda: SimpleNamespace(gpu='NVIDIA H200', multiprocessors=132))
    assert provenance.machine().startswith('NVIDIA H200, 132 multiprocessors, ')


def test_machine_is_the_processor_where_the_gpu_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise EngineError('no driver')
    monkeypatch.setattr(provenance, 'has_gpu', lambda: True)
    monkeypatch.setattr(provenance, 'probe', refuse)
    assert provenance.machine() == describe_machine()


def test_version_of_an_installed_package_has_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PATH', '')
    assert provenance.version() == __version__
