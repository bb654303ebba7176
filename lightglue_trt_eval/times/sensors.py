"""Temperatures, clocks and power of a board, while something runs on it: what Linux and the driver tell."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SYSTEM = Path('/sys')
ASKED = {'temperature.gpu': 'GPU, °C', 'clocks.sm': 'GPU clock, MHz', 'power.draw': 'GPU power, W'}  # of nvidia-smi


@contextmanager
def sampled() -> Iterator[dict[str, list[float]]]:
    """The values of each sensor, once a second until the end; none where nothing can be read."""
    values: dict[str, list[float]] = {}
    over = threading.Event()

    def read() -> None:
        while True:
            for name, value in {**of_system(), **of_driver()}.items():
                values.setdefault(name, []).append(value)
            if over.wait(1.0):
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield values
    finally:
        over.set()
        thread.join()


def of_system(system: Path = SYSTEM) -> dict[str, float]:
    """Thermal zones, °C, and the clocks of GPUs that the kernel scales, MHz, as on a Jetson."""
    found = {}
    for zone in sorted(system.glob('class/thermal/thermal_zone*')):
        found[f'{_text(zone / "type") or zone.name}, °C'] = _number(zone / 'temp', 1e-3)
    for scaled in sorted(system.glob('class/devfreq/*')):
        if any(word in scaled.name for word in ('gpu', 'ga10b', 'gv11b')):
            found[f'{scaled.name}, MHz'] = _number(scaled / 'cur_freq', 1e-6)
    return {name: value for name, value in found.items() if value is not None}


def of_driver() -> dict[str, float]:
    """What nvidia-smi tells; nothing where there is none, as on a Jetson."""
    answer = _output('nvidia-smi', f'--query-gpu={",".join(ASKED)}', '--format=csv,noheader,nounits')
    found = {}
    for name, word in zip(ASKED.values(), answer.partition('\n')[0].split(','), strict=False):
        try:
            found[name] = float(word)
        except ValueError:
            continue  # [N/A]
    return found


def power_mode() -> str:
    """The power mode of a Jetson; empty elsewhere."""
    return ' '.join(_output('nvpmodel', '-q').split())


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ''


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding='utf-8').strip()
    except (OSError, UnicodeError):
        return ''


def _number(path: Path, scale: float) -> float | None:
    try:
        return round(int(_text(path)) * scale, 3)
    except ValueError:
        return None
