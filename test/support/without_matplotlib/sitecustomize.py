"""On the PYTHONPATH of a process: Matplotlib looks as if it were not installed, so reports have no pictures, which take seconds."""

import sys

sys.modules['matplotlib'] = None
