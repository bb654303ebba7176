"""What the tests of evaluations share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lightglue_trt_eval.predict import methods
from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.engines.selection import Opened


class Evaluated(NamedTuple):
    """All that evaluate_bag printed, and report.json."""

    text: str
    report: dict[str, Any]


@pytest.fixture
def null(monkeypatch: pytest.MonkeyPatch) -> None:
    """No networks: what is not about matching is fast."""
    monkeypatch.setattr(methods, 'open_backend', lambda config: Opened(NullBackend(config.engine_spec('fp32')), 'null'))


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], null: None) -> Callable[..., tuple[int, str, dict[str, Any]]]:
    """A function that runs evaluate_bag: exit code, all that it printed, report.json or nothing."""
    from support.evaluated_bags import SMALL, no_pictures

    from lightglue_trt_eval.cli.evaluate_bag import main

    def evaluate(*arguments: str | Path, pictures: bool = False) -> tuple[int, str, dict[str, Any]]:
        out = tmp_path / 'out'
        shutil.rmtree(out, ignore_errors=True)
        with nullcontext() if pictures else no_pictures():
            code = main([*SMALL, *map(str, arguments), '--out', str(out)])
        captured = capfd.readouterr()
        assert 'Traceback' not in captured.err
        report = out / 'report.json'
        return code, captured.out + captured.err, json.loads(report.read_text()) if report.exists() else {}

    return evaluate


@pytest.fixture
def evaluated(run: Callable[..., tuple[int, str, dict[str, Any]]]) -> Callable[..., Evaluated]:
    """A function that runs evaluate_bag, which succeeds."""
    def evaluate(*arguments: str | Path, **options: bool) -> Evaluated:
        code, text, report = run(*arguments, **options)
        assert code == 0, text
        return Evaluated(text, report)

    return evaluate


@pytest.fixture
def refused(run: Callable[..., tuple[int, str, dict[str, Any]]]) -> Callable[..., str]:
    """A function that runs evaluate_bag, which fails without a report, and returns all that it printed."""
    def evaluate(*arguments: str | Path) -> str:
        code, text, report = run(*arguments)
        assert (code, report) == (1, {})
        return text

    return evaluate
