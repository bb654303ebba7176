"""What the tests of evaluations share."""

from __future__ import annotations

import pytest

from lightglue_trt_eval.predict import methods
from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.engines.selection import Opened


@pytest.fixture
def null(monkeypatch: pytest.MonkeyPatch) -> None:
    """No networks: what is not about matching is fast."""
    monkeypatch.setattr(methods, 'open_backend', lambda config: Opened(NullBackend(config.engine_spec('fp32')), 'null'))
