"""Where the numbers of a measurement come from: machine, version, command, date."""

from __future__ import annotations

import datetime
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lightglue_trt_ros import __version__
from lightglue_trt_ros.engines.gpu_info import has_gpu, probe
from lightglue_trt_ros.utils.errors import EngineError
from lightglue_trt_ros.utils.processes import describe_machine


def provenance(command: str, words: Sequence[str]) -> dict[str, str]:
    """The keys with which a JSON of measurements begins; `words` are the options that the command was given."""
    return {'machine': machine(), 'version': version(), 'command': shlex.join([*command.split(), *words]),
            'date': str(datetime.date.today())}


def machine() -> str:
    """The GPU where CUDA finds one, processor, cores and Python."""
    if not has_gpu():
        return describe_machine()
    try:
        gpu = probe()
    except EngineError:
        return describe_machine()
    return f'{gpu.gpu}, {gpu.multiprocessors} multiprocessors, {describe_machine()}'


def version() -> str:
    """Of the package; of a checkout also its commit."""
    try:
        asked = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=Path(__file__).parent, capture_output=True, text=True,
                               check=True)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f'{__version__}, {asked.stdout.strip()}'
