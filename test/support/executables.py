"""Executables as users run them: processes of their own, whose log is what they print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SMALL = ['-p', 'image_height:=240', '-p', 'image_width:=328', '-p', 'max_keypoints:=256']


def environment(*folders: str | Path, **variables: str) -> dict[str, str]:
    """The environment of a process that imports this package, or what is in `folders`, with `variables` added."""
    path = [*map(str, folders or [ROOT]), os.environ.get('PYTHONPATH', '')]
    return {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, path)), **variables}


def launch(module: str, *arguments: str, package: str = 'lightglue_trt_ros', **variables: str) -> subprocess.Popen[str]:
    """Start `python -m <package>.<module>`; stdout and stderr go to one pipe."""
    return launch_python(['-m', f'{package}.{module}', *arguments], **variables)


def launch_code(code: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start Python on `code`; stdout and stderr go to one pipe."""
    return launch_python(['-c', code, *arguments], **variables)


def launch_python(words: list[str], stdout: Any = subprocess.PIPE, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *words], env=environment(**variables), text=True, stdout=stdout,
                            stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[str], timeout: float = 150) -> str:
    """The log, once the process has ended."""
    return process.communicate(timeout=timeout)[0]
