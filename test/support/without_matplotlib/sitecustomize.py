"""Matplotlib looks as if it were not installed."""

import sys

sys.modules['matplotlib'] = None  # type: ignore[assignment]  # so that importing it fails
