"""A folder for the PYTHONPATH of a process: its reports have no pictures, which take seconds to draw."""

from __future__ import annotations

from pathlib import Path

NO_PICTURES = str(Path(__file__).with_name('without_matplotlib'))
