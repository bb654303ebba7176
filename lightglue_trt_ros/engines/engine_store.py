"""The store: engines of one shape, and FP8 calibrations, each in a folder with a manifest.

An artifact appears whole or not at all: it is written next to its place, under a lock that the kernel releases when its holder
dies, and renamed. Only an equal one is opened: every field of its identity and every file's checksum is compared.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..utils.errors import EngineError, EngineMismatchError
from ..utils.files import locked
from .manifest import CALIBRATION, ENGINES, FAILED, MANIFEST, NOUNS, TENSORS, TIMING_CACHE, Artifact, Identity, graphs_of

Content = TypeVar('Content')
logger = logging.getLogger(__name__)


def open_artifact(engine_dir: Path, wanted: Identity) -> Artifact:
    """The wanted artifact in `engine_dir`. Files are checked as they are read.

    Raises EngineMismatchError, naming each field that differs, and EngineError where it is missing, cannot be used, or failed its
    acceptance check; all give the command that makes it.
    """
    place, noun, command = engine_dir / wanted.name, NOUNS[wanted.kind], wanted.command(engine_dir)
    try:
        for path in (place, _retired(place), place):  # a successor may be taking its place just now, or have died doing so
            with suppress(FileNotFoundError, NotADirectoryError):
                artifact = Artifact.of_folder(path)
                break
        else:
            others = sorted(other.parent.name for other in engine_dir.glob(f'[!.]*/{MANIFEST}'))
            cause = f'it has no {MANIFEST}' if place.is_dir() else f'there are {", ".join(others)}' if others else 'nor another one'
            if wanted.former_name in others:
                cause = f'{wanted.former_name} there is of an earlier version and is never used: remove it'
            raise EngineError(f'there is no {noun} in {place} ({cause})', f'; make it:\n{command}')
    except OSError as error:
        raise EngineError(f'{path / MANIFEST} cannot be read ({error.strerror}): check its owner and permissions') from error
    except ValueError as error:  # JSON's and Unicode's too
        remedy = f'; make it again, or update the package:\n{command}'
        raise EngineError(f'{path / MANIFEST} cannot be used: {error}', remedy) from error
    if differences := artifact.identity.differences(wanted):
        failed = artifact.identity.gate_verdict == FAILED and len(differences) == 1
        advice = f' (its {MANIFEST} has the figures): use fp16, or calibrate on more of what the robot sees' \
            if failed and wanted.kind == CALIBRATION else '; make it again'
        raise (EngineError if failed else EngineMismatchError)(
            f'the {noun} in {path} {"did not pass its acceptance check" if failed else "is not the one needed"}: '
            f'{"; ".join(differences)}', f'{advice}:\n{command}')
    return artifact


def read_artifact(engine_dir: Path, wanted: Identity, read: Callable[[Artifact], Content]) -> tuple[Artifact, Content]:
    """`open_artifact`, and what `read` reads of it: of a successor where one takes its place meanwhile. Raises EngineError."""
    while True:
        artifact = open_artifact(engine_dir, wanted)
        try:
            return artifact, read(artifact)
        except EngineError:
            if open_artifact(engine_dir, wanted) == artifact:
                raise


@dataclass
class Draft:
    """An artifact that is being written, in a directory of its own next to its place. Raises EngineError when the disk fails."""

    place: Path
    scratch: Path
    files: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, data: bytes) -> None:
        """Write one of the files, down to the disk."""
        self.files[name] = hashlib.sha256(data).hexdigest()
        self._write(name, data)

    def publish(self, identity: Identity, acceptance: dict[str, Any], record: dict[str, Any]) -> Artifact:
        """Add the manifest, with the checksums of what was written, and put all of it into its place.

        Between the two renames the one before lies next to its place: `open_artifact` finds it, the next draft puts it back.
        """
        graphs = graphs_of(self.files) if identity.kind == ENGINES else {}
        tensors = self.files.get(TENSORS, identity.calibration_sha256)
        identity = dataclasses.replace(identity, graphs=graphs, calibration_sha256=tensors)
        text = Artifact(self.place, identity, self.files, acceptance, record).to_json()
        self._write(MANIFEST, text.encode())
        with _disk(self.place.parent):
            _sync(self.scratch)
            if self.place.exists():
                os.rename(self.place, _retired(self.place))
            os.rename(self.scratch, self.place)
            _sync(self.place.parent)
        shutil.rmtree(_retired(self.place), ignore_errors=True)
        return Artifact.of_json(self.place, text)  # as it will be read

    def _write(self, name: str, data: bytes) -> None:
        with _disk(self.place.parent), (self.scratch / name).open('wb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def drafting(engine_dir: Path, name: str) -> Iterator[Draft]:
    """Hold the lock of the artifact `name` and give a draft of it; what is not published is removed.

    Waits, and logs a line, where another process holds the lock. Tidies up after killed ones. Raises EngineError when `engine_dir`
    cannot be written.
    """
    place = engine_dir / name
    with ExitStack() as held:
        with _disk(engine_dir):
            engine_dir.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(engine_dir / f'.lock-{name}',
                                      lambda: logger.info(f'another process is making {name}: waiting for it')))
            if not place.exists() and _retired(place).exists():
                os.rename(_retired(place), place)  # somebody was killed between the renames
            for left in engine_dir.glob(f'.{name}.*'):
                shutil.rmtree(left)
            scratch = engine_dir / f'.{name}.{uuid.uuid4().hex}.tmp'
            scratch.mkdir()
        try:
            yield Draft(place, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def find_timing_cache(engine_dir: Path, wanted: Identity) -> bytes:
    """The newest timing cache that the same TensorRT wrote for the same GPU, for any shape; empty where there is none."""
    names = ('kind', 'tensorrt', 'tensorrt_version', 'compute_capability', 'gpu', 'multiprocessors')
    for path in sorted(engine_dir.glob(f'[!.]*/{MANIFEST}'), key=os.path.getmtime, reverse=True):
        try:
            artifact = Artifact.of_folder(path.parent)
            if all(getattr(artifact.identity, name) == getattr(wanted, name) for name in names):
                return artifact.read(TIMING_CACHE)
        except (OSError, ValueError, EngineError):
            continue
    return b''


def _retired(place: Path) -> Path:
    """Where an artifact lies between the two renames of its successor."""
    return place.with_name(f'.{place.name}.old')


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _disk(engine_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = 'free some space' if error.errno in (errno.ENOSPC, errno.EDQUOT) else 'make it writable'
        raise EngineError(f'{engine_dir} cannot be written ({error.strerror}): {advice}, '
                          'or choose another folder with --engine-dir') from error
