"""What fleets need beside the package, imported where it is used: setup.py's extra `fleet`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...utils.errors import LightglueTrtError

PIP_LINE = 'pip install dask distributed fsspec pyarrow'


def fleet_module(name: str) -> Any:
    """The module `name`, e.g. pyarrow.parquet. Raises LightglueTrtError with the pip line where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise LightglueTrtError(f'evaluate_fleet needs the Python package {name.partition(".")[0]} ({error}): {PIP_LINE}') from None
