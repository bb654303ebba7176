"""From recordings to rows: fingerprints, then an evaluation for each new recording, wherever a worker is free.

A worker evaluates in a process of its own: a crash of a decoder, or memory that runs out, costs that recording and not the
worker. The process ends when its worker does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import queue
import secrets
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import cv2

from lightglue_trt_ros.backends.onnxruntime import THREADS_VARIABLE
from lightglue_trt_ros.utils.console import progress
from lightglue_trt_ros.utils.errors import LightglueTrtError, in_words
from lightglue_trt_ros.utils.processes import give_memory_back, given_up, run_elsewhere

from ..evaluate import evaluate_recording
from ..options import EvaluationOptions, add_evaluation_options
from ..report.page import write_report
from .discovery import RecordingRef, fingerprint, storage_of
from .plan import EvaluationPlan, plan_here
from .result_store import EVALUATED, FAILED, REPEATED, WAITING, FleetRow, ResultStore, facts_of

LISTEN_S = 0.2  # between two looks whether an end was asked for
GONE_S = 30.0  # without its scheduler a run ends
NOT_YET = 'interrupted'

logger = logging.getLogger(__name__)

Item = TypeVar('Item')
PAGES = ('report.html', 'report.json')  # of an evaluation; report.html contains its pictures

_ended: set[str] = set()  # fleets whose evaluations in this worker are to end


class FleetRun:
    """`client` is a distributed.Client, `stopped` is asked several times a second.

    Afterwards `lost` says why the run ended early, where it was not asked to.
    """

    def __init__(self, client: Any, plan: EvaluationPlan, store: ResultStore, threads: int, *, stopped: Callable[[], bool]) -> None:
        self._client, self._plan, self._store, self._threads = client, plan, store, threads
        self._stopped, self._name = stopped, secrets.token_hex(8)
        self.lost = ''

    def rows(self, listed: Sequence[RecordingRef]) -> list[FleetRow]:
        """A row for each recording, in this order. Raises LightglueTrtError where results cannot be kept."""
        done = {each.url: FleetRow.of(each, FAILED, each.reason) for each in listed if each.reason}
        by_print = self._fingerprints([each for each in listed if each.url not in done], done)
        new: dict[str, RecordingRef] = {}  # by fingerprint
        for sha256, (first, *others) in by_print.items():
            facts = self._store.get(self._plan.key(sha256))
            if facts is not None and not self._plan.fell_back(each.get('engine') for each in facts['matchers']):
                done[first.url] = self._row(first, sha256, facts)
            else:
                new[sha256] = first
            reason = f'the same recording as {first.name}'
            done |= {other.url: FleetRow.of(other, REPEATED, reason, sha256=sha256) for other in others}
        kept = sum(row.status == EVALUATED for row in done.values())
        logger.info(f'{len(listed)} recordings: {len(new)} to evaluate, {kept} evaluated before'
                  + f', {len(listed) - len(new) - kept} repeated or not to be read' * (len(listed) > len(new) + kept))
        self._evaluate(new, done)
        return [done.get(each.url) or FleetRow.of(each, WAITING, self.lost or NOT_YET) for each in listed]

    def _fingerprints(self, listed: Sequence[RecordingRef], done: dict[str, FleetRow]) -> dict[str, list[RecordingRef]]:
        """Recordings by what is in them; `done` gets those that cannot be read."""
        known = {each: sha256 for each in listed if (sha256 := self._store.fingerprint(each)) is not None}
        futures = {self._submit(fingerprint, each): each for each in listed if each not in known}
        for each, sha256, error in self._results('reading recordings', futures, lambda each: each.size):
            if error is not None:
                done[each.url] = FleetRow.of(each, FAILED, in_words(error))
            else:
                known[each] = sha256
        self._store.learn(known)
        by_print: dict[str, list[RecordingRef]] = {}
        for each in listed:
            if each in known:
                by_print.setdefault(known[each], []).append(each)
        return by_print

    def _evaluate(self, new: dict[str, RecordingRef], done: dict[str, FleetRow]) -> None:
        """Evaluate recordings, by fingerprint; `done` gets their rows."""
        plan = self._plan
        order = sorted(new, key=lambda sha256: -new[sha256].size)  # a long one that comes last would run alone
        futures = {self._submit(evaluate, new[sha256], plan, self._threads, self._name, sha256): sha256 for sha256 in order}
        bounded = 'max_frames' in plan.settings
        with closing(self._results('evaluating recordings', futures, lambda sha256: 1 if bounded else new[sha256].size)) as results:
            for sha256, outcome, error in results:
                each = new[sha256]
                if error is not None:
                    done[each.url] = FleetRow.of(each, FAILED, _why(error), sha256=sha256)
                    continue
                files, seconds = outcome
                facts = facts_of(json.loads(files['report.json']), seconds)
                self._store.put(plan.key(sha256), facts, files)
                done[each.url] = self._row(each, sha256, facts)

    def _submit(self, function: Callable[..., Any], listed: RecordingRef, *more: Any) -> Any:
        return self._client.submit(answer, function, listed, *more, key=f'{function.__name__}-{self._name}-{listed.url}')

    def _results(self, title: str, futures: dict[Any, Item],
                 size: Callable[[Item], int]) -> Generator[tuple[Item, Any, BaseException | None], None, None]:
        """Each item with what its future gives, or its error, until all are done, an end is asked for, or the scheduler is lost."""
        if not futures:
            return
        ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for future in futures:
            future.add_done_callback(ready.put)
        total, started = len(futures), time.monotonic()
        size_done, size_in_all = 0, sum(map(size, futures.values()))
        try:
            with progress(title, total) as bar:
                while futures and (future := self._next(ready)) is not None:
                    if future.status in ('cancelled', 'lost'):  # the scheduler is another one, or gone
                        raise ConnectionError
                    error = future.exception()
                    result = None if error is not None else future.result()
                    if isinstance(result, Exception):
                        result, error = None, result
                    item = futures.pop(future)
                    future.release()
                    yield item, result, error
                    size_done += size(item)
                    left = time_left(time.monotonic() - started, size_done, size_in_all)
                    bar(total - len(futures), phase=f'({left})')
        except (OSError, CancelledError, asyncio.CancelledError):
            self.lost = f'the scheduler was lost after {total - len(futures)} of {total}'
        finally:
            if futures:
                self._end(list(futures))

    def _next(self, ready: queue.SimpleQueue[Any]) -> Any:
        """The next future that is done, None where an end is asked for. Raises ConnectionError where the scheduler is lost."""
        last_connected = time.monotonic()
        while not self._stopped():
            with suppress(queue.Empty):
                return ready.get(timeout=LISTEN_S)
            if self._client.status == 'running':
                last_connected = time.monotonic()
            elif self._client.status == 'closed' or time.monotonic() - last_connected > GONE_S:
                raise ConnectionError
        return None

    def _end(self, futures: list[Any]) -> None:
        """Nothing more starts, and what runs is ended."""
        try:
            self._client.cancel(futures, force=True)
            self._client.run(end_all, self._name, on_error='ignore')
        except (OSError, TimeoutError, RuntimeError):
            pass  # there is nobody to tell

    def _row(self, listed: RecordingRef, sha256: str, facts: dict[str, Any]) -> FleetRow:
        key = self._plan.key(sha256)
        page = self._store.place(key) / 'report.html'
        report = page.relative_to(self._store.folder).as_posix() if page.is_file() else ''
        return FleetRow.of(listed, EVALUATED, sha256=sha256, key=key, report=report, facts=facts)


def time_left(seconds: float, done: int, total: int) -> str:
    """How long the rest takes, coarsely, after `done` bytes (or recordings) of `total` took `seconds`."""
    if not done:
        return 'no telling how long'
    left = seconds * (total - done) / done
    if left < 95:
        return 'seconds left' if left < 15 else f'about {10 * round(left / 10)} s left'
    return f'about {left / 60:.0f} min left' if left < 5700 else f'about {left / 3600:.1f} h left'


def _why(error: BaseException) -> str:
    if type(error).__name__ == 'KilledWorker':
        return 'every worker that evaluated it died: its memory was probably exhausted, or somebody ends workers'
    return ' '.join(in_words(error).splitlines())


def answer(function: Callable[..., Any], listed: RecordingRef, *more: Any) -> Any:
    """What the function returns of a recording, or the error that it raises for that: Dask would log a traceback of it."""
    try:
        return function(listed, *more)
    except (LightglueTrtError, OSError) as error:
        return error


def evaluate(listed: RecordingRef, plan: EvaluationPlan, threads: int, fleet: str, sha256: str) -> tuple[dict[str, bytes], float]:
    """Evaluate a recording on `threads`: the files PAGES by name, and its seconds.

    `plan` is what the workers agreed on, and has to be the same here; `end_all` of the `fleet` ends it.
    Raises LightglueTrtError and OSError for whatever goes wrong with this recording.
    """
    started = time.monotonic()
    if differences := plan.differences(plan_here(plan.settings)):
        raise LightglueTrtError(f'the worker {os.uname().nodename} has {", ".join(differences)}: install what the others have')
    pools = dict.fromkeys(('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS', THREADS_VARIABLE), str(threads))
    before = given_up.set(lambda: fleet in _ended)
    try:
        with tempfile.TemporaryDirectory(prefix='lightglue_trt_ros-') as scratch, _here(listed, Path(scratch)) as path:
            out = Path(scratch) / 'evaluation'
            run_elsewhere(partial(evaluate_into, path, out, plan.words, threads, sha256), pools)
            files = {name: (out / name).read_bytes() for name in PAGES if (out / name).is_file()}
    finally:
        given_up.reset(before)
    return files, time.monotonic() - started


def evaluate_into(path: Path, out: Path, words: list[str], threads: int, sha256: str) -> None:
    """Evaluate a recording with the options `words`, and write its report with its fingerprint into `out`.

    Raises LightglueTrtError.
    """
    cv2.setNumThreads(threads)
    give_memory_back()
    parser = argparse.ArgumentParser()
    add_evaluation_options(parser)
    options = EvaluationOptions.of(parser.parse_args(words), parser)
    out.mkdir()
    evaluation, failures = evaluate_recording(options.open(path), options, out, lambda: False)
    if failures:
        raise LightglueTrtError('; '.join(failures))
    evaluation.recording['sha256'] = sha256
    write_report(out, evaluation)


def end_all(fleet: str) -> None:
    """End every evaluation of a fleet in this worker."""
    _ended.add(fleet)


@contextmanager
def _here(listed: RecordingRef, scratch: Path) -> Iterator[Path]:
    """The recording as a local path; what is elsewhere is fetched for as long as it takes."""
    if listed.local:
        yield Path(listed.url)
        return
    system, path = storage_of(listed.url)
    target = scratch / Path(path.rstrip('/')).name
    system.get(path.rstrip('/'), str(target), recursive=not system.isfile(path))
    yield target
