"""Bundles: the engines of a shape in one directory, with a manifest that says what they are and where they run.

A bundle appears whole or not at all: it is written beside its place, under a lock that the kernel releases when its holder
dies, and renamed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shlex
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import EngineError, EngineMismatchError
from ..weights.store import cache_dir
from .manifest import Identity, Manifest, files_of, networks_of

MANIFEST = 'manifest.json'


@dataclass(frozen=True)
class Bundle:
    """A bundle whose manifest was read, and fits."""

    path: Path
    manifest: Manifest

    def read(self, name: str) -> bytes:
        """One of its files, its checksum compared. Raises EngineError."""
        path = self.path / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise self._damaged(f'{path} cannot be read ({error.strerror})') from error
        if (found := hashlib.sha256(data).hexdigest()) != self.manifest.files[name]:
            raise self._damaged(f'{path} is damaged: {len(data)} bytes of sha256 {found} where the manifest has '
                                f'{self.manifest.files[name]}')
        return data

    def verify(self) -> None:
        """Read every file. Raises EngineError."""
        for name in files_of(self.manifest.depth):
            self.read(name)

    def plans(self) -> dict[str, bytes]:
        """All plans by network. Raises EngineError."""
        return {network: self.read(f'{network}.plan') for network in networks_of(self.manifest.depth)}

    def _damaged(self, what: str) -> EngineError:
        return EngineError(f'{what}; build the bundle again:\n{build_command(self.path.parent, self.manifest.identity)}')


def default_engine_dir() -> Path:
    """`engines` in the cache that also holds the weights."""
    return cache_dir() / 'engines'


def engine_dir_of(setting: str) -> Path:
    """The folder that the setting `engine_dir` names; empty is the default."""
    return Path(setting).expanduser() if setting else default_engine_dir()


def build_command(engine_dir: Path, wanted: Identity) -> str:
    """The command that builds what is wanted."""
    words = ['ros2', 'run', 'lightglue_trt_ros', 'build_engines', '--height', wanted.image_height, '--width', wanted.image_width,
             '--max-keypoints', wanted.max_keypoints, '--precision', wanted.matcher_precision,
             '--weights', wanted.weights_choice]
    if engine_dir != default_engine_dir():
        words += ['--engine-dir', engine_dir]
    if wanted.tensorrt == 'tensorrt_rtx':
        words += ['--flavour', 'rtx']
    if not wanted.multiprocessors:
        words += ['--target-sm', wanted.compute_capability.replace('.', '')]
    return shlex.join(map(str, words))


def open_bundle(engine_dir: Path, wanted: Identity) -> Bundle:
    """The bundle in `engine_dir` that is the wanted one.

    Raises EngineMismatchError, naming each field that differs, and EngineError where the bundle is missing or damaged; both
    give the command that builds it. Files are checked as they are read.
    """
    path, rebuild = engine_dir / wanted.spec.name, build_command(engine_dir, wanted)
    try:
        manifest = Manifest.from_json((path / MANIFEST).read_text(encoding='utf-8'))
    except (FileNotFoundError, NotADirectoryError):
        if path.is_dir():
            raise EngineError(f'{path} has no {MANIFEST}: it is no whole bundle; build it:\n{rebuild}') from None
        others = sorted(other.parent.name for other in engine_dir.glob(f'superpoint-*/{MANIFEST}'))
        found = f'there are {", ".join(others)}' if others else 'there are no others'
        raise EngineError(f'no engines in {path} ({found}); build them:\n{rebuild}') from None
    except OSError as error:
        raise EngineError(f'{path / MANIFEST} cannot be read ({error.strerror}): check its owner and permissions') from error
    except ValueError as error:  # JSON's and Unicode's too
        raise EngineError(f'{path / MANIFEST} cannot be used: {error};\nupdate the package, or build the bundle again:\n'
                          f'{rebuild}') from error
    if differences := manifest.identity.differences(wanted):
        raise EngineMismatchError('\n  '.join([f'the engines in {path} are not the ones needed:', *differences])
                                  + f'\nbuild them again:\n{rebuild}')
    return Bundle(path, manifest)


@dataclass
class Draft:
    """A bundle that is being written, in a directory of its own beside its place. Raises EngineError when the disk fails."""

    place: Path
    scratch: Path
    files: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, data: bytes) -> None:
        """Write one of the files, down to the disk."""
        self.files[name] = hashlib.sha256(data).hexdigest()
        self._write(name, data)

    def publish(self, manifest: Manifest) -> Bundle:
        """Add the manifest, which has this draft's `files`, and put the bundle into its place."""
        self._write(MANIFEST, manifest.to_json().encode())
        retired = self.scratch.with_name(f'{self.scratch.name}.old')
        with _disk(self.place.parent):
            _sync(self.scratch)
            if self.place.exists():
                os.rename(self.place, retired)
            os.rename(self.scratch, self.place)
            _sync(self.place.parent)
        shutil.rmtree(retired, ignore_errors=True)
        return Bundle(self.place, manifest)

    def _write(self, name: str, data: bytes) -> None:
        with _disk(self.place.parent), (self.scratch / name).open('wb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def drafting(engine_dir: Path, name: str, say: Callable[[str], None]) -> Iterator[Draft]:
    """Hold the lock of the bundle `name` and give a draft of it; what is not published is removed.

    Where another process holds the lock, says so and waits. Removes what killed builders left. Raises EngineError when
    `engine_dir` cannot be written.
    """
    with _disk(engine_dir):
        engine_dir.mkdir(parents=True, exist_ok=True)
        lock = (engine_dir / f'.lock-{name}').open('ab')
    with lock:
        with _disk(engine_dir):
            _acquire(lock.fileno(), lambda: say(f'another process is building {name}: waiting for it'))
            for left in engine_dir.glob(f'.{name}.*.tmp*'):
                shutil.rmtree(left)
            scratch = engine_dir / f'.{name}.{uuid.uuid4().hex}.tmp'
            scratch.mkdir()
        try:
            yield Draft(engine_dir / name, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def find_timing_cache(engine_dir: Path, wanted: Identity) -> bytes:
    """The newest timing cache that the same TensorRT wrote for the same GPU, for any shape; empty where there is none."""
    def key(identity: Identity) -> tuple[str | int, ...]:
        return identity.tensorrt, identity.tensorrt_version, identity.compute_capability, identity.gpu, identity.multiprocessors

    for path in sorted(engine_dir.glob(f'[!.]*/{MANIFEST}'), key=os.path.getmtime, reverse=True):
        try:
            bundle = Bundle(path.parent, Manifest.from_json(path.read_text(encoding='utf-8')))
            if key(bundle.manifest.identity) == key(wanted):
                return bundle.read('timing.cache')
        except (OSError, ValueError, EngineError):
            continue
    return b''


def _acquire(descriptor: int, waiting: Callable[[], None]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        fcntl.flock(descriptor, fcntl.LOCK_EX)


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
