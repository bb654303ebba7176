"""Fetching sources, and reading their images one by one without unpacking them to disk."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from training.data.sources import DataError, Source

IMAGES = ('.jpg', '.jpeg', '.png', '.webp', '.dds', '.tga', '.bmp', '.tif', '.tiff')
ARCHIVES = ('.zip', '.pk3', '.pk4')
WHEEL = ('--python-version', '3.11', '--implementation', 'cp', '--platform', 'manylinux2014_x86_64')  # one file for everybody
SECONDS = 600  # the most that one download may take


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open('rb') as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f'{" ".join(command)}: {error}') from error
    if done.returncode:
        raise DataError(f'{" ".join(command)}: exit status {done.returncode}: {done.stderr.strip()[-300:]}')


def _downloaded(folder: Path, pattern: str, command: list[str]) -> Path:
    """The file of that pattern, after the command where it is not there yet."""
    if not (found := sorted(folder.glob(pattern))):
        _run(command, folder)
        found = sorted(folder.glob(pattern))
    if not found:
        raise DataError(f'{" ".join(command)}: gave no {pattern} in {folder}.')
    return found[-1]


def fetch(source: Source, folder: Path) -> Path:
    """Bring a source into `folder`, unless it is there: the .deb, the wheel or a bare repository. Raises DataError."""
    folder.mkdir(parents=True, exist_ok=True)
    if source.kind == 'debian':
        command = ['apt-get', 'download', f'{source.name}={source.version}']
        return _downloaded(folder, f'{source.name}_*.deb', command)
    if source.kind == 'python':
        pip = [sys.executable, '-m', 'pip', 'download', '--no-deps', '--only-binary', ':all:', *WHEEL]
        pattern = f'{source.name.replace("-", "_")}-{source.version}-*.whl'
        return _downloaded(folder, pattern, [*pip, f'{source.name}=={source.version}'])
    if source.kind == 'git':
        repository = folder / f'{source.name.replace("/", "+")}.git'
        if not (repository / 'HEAD').exists():
            half = repository.with_suffix('.tmp')
            shutil.rmtree(half, ignore_errors=True)
            _run(['git', 'init', '--bare', '--quiet', half.name], folder)
            _run(['git', '-C', half.name, 'fetch', '--quiet', '--depth', '1', source.url, source.digest], folder)
            half.replace(repository)
        return repository
    return Path(source.url)


def check_digest(source: Source, path: Path) -> None:
    """Raise DataError where the fetched file is not the one that the list names; a repository's commit is checked as it is read."""
    if source.kind in ('debian', 'python'):
        digest = sha256_of(path)
        if digest != source.digest:
            raise DataError(
                f'{source.name}: {path.name} has sha256 {digest}, the list says {source.digest}. Another version? '
                'Fetch the listed one, or correct sources.yaml after reading the licence of the new one.'
            )


def _of_zip(stream: IO[bytes], prefix: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            if info.filename.lower().endswith(IMAGES):
                yield f'{prefix}{info.filename}', archive.read(info)


def _of_deb(path: Path) -> Iterator[tuple[str, bytes]]:
    with subprocess.Popen(['dpkg-deb', '--fsys-tarfile', str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode='r|') as archive:
            for member in archive:
                name = member.name.removeprefix('./')
                if not member.isfile() or not name.lower().endswith(IMAGES + ARCHIVES):
                    continue
                stream = archive.extractfile(member)
                assert stream is not None
                if not name.lower().endswith(ARCHIVES):
                    yield name, stream.read()
                    continue
                with tempfile.TemporaryFile() as whole:
                    while block := stream.read(1 << 20):
                        whole.write(block)
                    yield from _of_zip(whole, f'{name}/')


def _of_git(repository: Path, commit: str) -> Iterator[tuple[str, bytes]]:
    git = ['git', '-C', str(repository)]
    listed = subprocess.run([*git, 'ls-tree', '-r', '-z', '--name-only', commit], capture_output=True, check=False)
    if listed.returncode:
        raise DataError(f'{repository}: commit {commit} is not in it: {listed.stderr.decode(errors="replace").strip()[-200:]}')
    for name in listed.stdout.decode().split('\0'):
        if name.lower().endswith(IMAGES):
            blob = subprocess.run([*git, 'cat-file', 'blob', f'{commit}:{name}'], capture_output=True, check=False)
            yield name, blob.stdout  # empty where this copy of the repository lacks it, which decoding refuses


def _of_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob('*')):
        if path.is_file() and path.suffix.lower() in IMAGES:
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def images_of(source: Source, path: Path) -> Iterator[tuple[str, bytes]]:
    """Each image file of a fetched source: its path in there, and its bytes. Raises DataError for a source that is not there."""
    if not path.exists():
        raise DataError(f'{source.name}: {path} is not there.')
    if path.suffix == '.deb':
        yield from _of_deb(path)
    elif path.suffix == '.whl':
        with path.open('rb') as stream:
            yield from _of_zip(stream, '')
    elif (path / 'HEAD').exists():
        yield from _of_git(path, source.digest)
    else:
        yield from _of_folder(path)
