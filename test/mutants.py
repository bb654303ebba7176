"""Faults that would hurt users, put one at a time into a copy of the repository: the tests named beside each must fail.

    python test/mutants.py [WORD ...]    those whose file or description has one of the words; all without
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import yaml

Loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)  # in C, where there is one: ten times as fast
REPOSITORY = Path(__file__).resolve().parents[1]
PASSED, FAILED = 0, 1  # of pytest's exit codes, those that say something about a mutant
PATIENCE, PATIENCE_S = 4, 60  # a mutant hangs that takes so many times what the tests take, and so much longer


class Mutant(NamedTuple):
    """A fault: `before`, which is once in `file`, becomes `after`, and then `tests` (pytest's arguments) fail.

    `survives` is why no test can fail, for the few where that is so.
    """

    breaks: str
    file: str
    before: str
    after: str
    tests: str
    survives: str = ''

    def planted(self, source: str) -> str:
        """`source` with the fault. Raises ValueError where its text is not there once."""
        if source.count(self.before) != 1:
            raise ValueError(f'{self.file} has {source.count(self.before)} times, not once: {self.before}')
        return source.replace(self.before, self.after)


def mutants() -> list[Mutant]:
    return [Mutant(**entry) for entry in yaml.load((REPOSITORY / 'test' / 'mutants.yaml').read_text(), Loader)]


class Copy:
    """The working tree in a temporary folder, and its tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=REPOSITORY, check=True,
                               capture_output=True, text=True).stdout.split('\0')
        for name in filter(None, files):
            if (REPOSITORY / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, folder / name)
        self._environment = os.environ | {'PYTHONPATH': str(folder), 'PYTHONDONTWRITEBYTECODE': '1'}
        place = self._run(60, '-c', 'import lightglue_trt_ros as package; print(package.__file__)').stdout.strip()
        assert Path(place).is_relative_to(folder), f'the tests would import {place}'

    def passes(self, tests: str, timeout_s: float) -> bool:
        """Whether the tests pass in time. Raises RuntimeError where they say nothing: none was run, or not begun."""
        try:
            found = self._run(timeout_s, '-m', 'pytest', '-qx', '-p', 'no:cacheprovider', *shlex.split(tests))
        except subprocess.TimeoutExpired:
            return False
        if found.returncode not in (PASSED, FAILED) or (found.returncode == PASSED and ' passed' not in found.stdout):
            raise RuntimeError(f'{found.stdout[-2000:]}\n{found.stderr[-500:]}\npytest {tests} ended with {found.returncode}')
        return found.returncode == PASSED

    def _run(self, timeout_s: float, *arguments: str) -> subprocess.CompletedProcess[str]:
        with subprocess.Popen([sys.executable, *arguments], cwd=self.folder, env=self._environment, start_new_session=True,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                output = process.communicate(timeout=timeout_s)
            finally:
                with suppress(ProcessLookupError):  # what it started too, where a mutant makes a node hang
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(process.args, process.returncode, *output)


def main(words: list[str]) -> int:
    """The exit code: 0 where each mutant was killed, but for those that are explained."""
    os.nice(5)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests must not inherit what a shell's background jobs ignore
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    chosen = [each for each in mutants() if not words or any(word in f'{each.file} {each.breaks}' for word in words)]
    if not chosen:
        sys.exit(f'no mutant of test/mutants.yaml has {" or ".join(words)} in its file or description')
    begun, bounds, killed, wrong = time.monotonic(), dict[str, float](), 0, 0
    with tempfile.TemporaryDirectory(prefix='lightglue_trt_ros-mutants-') as folder:
        copy = Copy(Path(folder).resolve())
        for mutant in chosen:
            file, since = copy.folder / mutant.file, time.monotonic()
            source = file.read_text()
            try:
                if mutant.tests not in bounds:
                    if not copy.passes(mutant.tests, 600):
                        raise RuntimeError(f'pytest {mutant.tests} fails without any mutant')
                    bounds[mutant.tests] = PATIENCE_S + PATIENCE * (time.monotonic() - since)
                    since = time.monotonic()
                file.write_text(mutant.planted(source))
                survived = copy.passes(mutant.tests, bounds[mutant.tests])
            except (RuntimeError, ValueError) as error:
                verdict, wrong = f'NOT RUN  {error}', wrong + 1
            else:
                verdict = 'survived' if survived else 'killed  '
                if survived != bool(mutant.survives):
                    verdict, wrong = verdict.upper(), wrong + 1
                killed += not survived
            file.write_text(source)
            print(f'{verdict} {time.monotonic() - since:5.0f} s  {mutant.file}: {mutant.breaks}')
            if mutant.survives:
                print(f'                  {mutant.survives}')
    print(f'{len(chosen)} mutants in {time.monotonic() - begun:.0f} s: {killed} killed, {wrong} not as expected (in capitals)')
    return bool(wrong)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
