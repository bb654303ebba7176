"""What a worker does: one recording through evaluate_bag, and what is kept of it. Nothing stays on the worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...backends.onnxruntime import THREADS_VARIABLE
from ...utils.errors import LightglueTrtError, in_words
from ...utils.processes import start
from .discovery import Listed, storage_of
from .pairs_table import parquet_of
from .plan import EvaluationPlan, plan_here

KEPT = ('report.html', 'report.json')  # of an evaluation; the page holds its pictures
REASON_LINES = 4
SPEAKER = 'evaluate_bag: '

_running: dict[str, set[subprocess.Popen[bytes]]] = {}  # by fleet, in this worker
_guard = threading.Lock()


@dataclass(frozen=True)
class Job:
    """A recording and how to evaluate it."""

    listed: Listed
    plan: EvaluationPlan  # as the workers agreed on: it has to be the same here
    threads: int  # that the evaluation may use
    fleet: str  # whose Ctrl-C ends it


@dataclass(frozen=True)
class Outcome:
    """What became of a job: files by name, or the reason why there are none."""

    reason: str = ''
    files: dict[str, bytes] = field(default_factory=dict)  # KEPT and pairs.parquet
    seconds: float = 0.0


def evaluate(job: Job) -> Outcome:
    """Run the evaluation in a process of its own. Whatever goes wrong with this recording is its reason."""
    started = time.monotonic()
    try:
        if differences := job.plan.differences(plan_here(job.plan.settings)):
            return Outcome(f'the worker {os.uname().nodename} has {", ".join(differences)}: install what the others have')
        with tempfile.TemporaryDirectory(prefix='lightglue_trt_ros-') as scratch, _here(job.listed, Path(scratch)) as path:
            return _evaluated(job, path, Path(scratch), started)
    except (LightglueTrtError, OSError) as error:
        return Outcome(in_words(error), seconds=time.monotonic() - started)


def end_all(fleet: str) -> None:
    """End every evaluation of a fleet in this worker."""
    with _guard:
        for process in _running.pop(fleet, set()):
            process.kill()


def _evaluated(job: Job, path: Path, scratch: Path, started: float) -> Outcome:
    out, log = scratch / 'evaluation', scratch / 'stderr'
    with log.open('wb') as stderr:
        status = _run(job, [str(path), '--out', str(out), *job.plan.words], stderr)
    if status:
        return Outcome(_reason(status, log.read_text(errors='replace')), seconds=time.monotonic() - started)
    files = {name: (out / name).read_bytes() for name in KEPT if (out / name).is_file()}
    report = json.loads(files['report.json'])
    report['recording']['path'] = job.listed.url  # where it came from, not where it was fetched to
    return Outcome('', files | {'pairs.parquet': parquet_of(report)}, time.monotonic() - started)


def _run(job: Job, words: list[str], stderr: Any) -> int:
    """The exit status of evaluate_bag; the process ends with this worker, whose end closes the pipe."""
    pools = dict.fromkeys(('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS', THREADS_VARIABLE), str(job.threads))
    process = start('evaluation.fleet.evaluation_process', str(job.threads), *words, environment=pools, stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, stderr=stderr)
    with _guard:
        _running.setdefault(job.fleet, set()).add(process)
    try:
        return process.wait()
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        with _guard:
            _running.get(job.fleet, set()).discard(process)


def _reason(status: int, log: str) -> str:
    """What evaluate_bag said at its end."""
    if status < 0:
        name = signal.Signals(-status).name
        return f'its evaluation was ended by {name}' + (': the memory was probably exhausted' if name == 'SIGKILL' else '')
    told = log[log.find(SPEAKER):].removeprefix(SPEAKER) if SPEAKER in log else log
    lines = [line.removeprefix(SPEAKER).strip() for line in told.splitlines() if line.strip()]
    return ' '.join(lines[-REASON_LINES:]) or f'its evaluation ended with exit status {status}'


@contextmanager
def _here(listed: Listed, scratch: Path) -> Iterator[Path]:
    """The recording as a local path; what is elsewhere is fetched for as long as it takes."""
    if listed.local:
        yield Path(listed.url)
        return
    system, path = storage_of(listed.url)
    target = scratch / Path(path.rstrip('/')).name
    system.get(path.rstrip('/'), str(target), recursive=not system.isfile(path))
    yield target
