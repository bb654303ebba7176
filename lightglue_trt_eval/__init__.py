"""The workbench: how good and how fast correspondences are on recordings, and FP8 calibration. It imports lightglue_trt_ros.

The names that users import; deeper paths may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .evaluate import evaluate_recording
    from .options import EvaluationOptions
    from .quantization.workflow import CalibrationOrder, quantize
    from .report.page import write_report

__all__ = ['CalibrationOrder', 'EvaluationOptions', 'evaluate_recording', 'quantize', 'write_report']
_MODULES = {'CalibrationOrder': 'quantization.workflow', 'EvaluationOptions': 'options', 'evaluate_recording': 'evaluate',
            'quantize': 'quantization.workflow', 'write_report': 'report.page'}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for, as lightglue_trt_ros does (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'.{_MODULES[name]}', __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
