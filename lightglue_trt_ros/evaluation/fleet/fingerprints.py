"""What a recording is, whatever it is called and wherever it lies: a hash of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .discovery import Listed

CHUNK = 1 << 20  # bytes


def fingerprint(listed: Listed) -> str:
    """sha256 of the names in the recording and of what stands in its files, hexadecimal.

    What is not local is not read: there it is of names, sizes, and the storage's own tags of the contents. Raises OSError.
    """
    if not listed.local:
        return listed.stamp
    path, total = Path(listed.url), hashlib.sha256()
    files = [path] if path.is_file() else sorted(each for each in path.rglob('*') if each.is_file())
    for file in [*files, *_truth_elsewhere(path)]:
        inside = file.relative_to(path).as_posix() if file.is_relative_to(path) else file.name
        total.update(f'{inside}\0{file.stat().st_size}\0'.encode())
        with file.open('rb') as content:
            while chunk := content.read(CHUNK):
                total.update(chunk)
    return total.hexdigest()


def _truth_elsewhere(path: Path) -> list[Path]:
    """KITTI's sequences have their poses two folders up."""
    here = path.resolve()
    poses = here.parent.parent / 'poses' / f'{here.name}.txt'
    return [poses] if (path / 'times.txt').is_file() and poses.is_file() else []
