"""The results in a fleet's folder: a folder for each under its key, and the fingerprints of what was read before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...utils.errors import LightglueTrtError
from ...utils.files import write_whole, written_together
from .discovery import Listed

FACTS = 'facts.json'  # a result without it is none
GOES_ON = 'what was written before is kept, and a run with the same --out goes on from there'
LETTERS = 24  # of a key, in the name of a folder


class Kept:
    """`folder` is the fleet's own. Raises LightglueTrtError where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, list[str]] = _read(folder / 'fingerprints.json') or {}

    def place(self, key: str) -> Path:
        """Where the result with this key is, or would be."""
        return self.folder / 'recordings' / key[:LETTERS]

    def get(self, key: str) -> dict[str, Any] | None:
        """What was kept with a result; None where there is none, or not a whole one."""
        place = self.place(key)
        facts = _read(place / FACTS)
        if facts is None or facts.get('key') != key or not all((place / name).is_file() for name in facts.get('files', [])):
            return None
        return facts

    def put(self, key: str, facts: dict[str, Any], files: dict[str, bytes]) -> None:
        """Keep a result."""
        place = self.place(key)
        with written_together(place, GOES_ON) as scratch:
            for name, data in {**files, FACTS: json.dumps({**facts, 'key': key, 'files': list(files)}).encode()}.items():
                (scratch / name).write_bytes(data)

    def fingerprint(self, listed: Listed) -> str | None:
        """The fingerprint of a recording none of whose files have changed since it was taken."""
        stamp, sha256 = self._known.get(listed.url, ('', ''))
        return sha256 if stamp and stamp == listed.stamp else None

    def learn(self, listed: Listed, sha256: str) -> None:
        """Remember a fingerprint, for `save`."""
        self._known[listed.url] = [listed.stamp, sha256]

    def save(self) -> None:
        """Write the fingerprints: without them the next run reads every recording again, and that is all."""
        try:
            write_whole(self.folder / 'fingerprints.json', json.dumps(self._known).encode())
        except OSError as error:
            raise LightglueTrtError(f'cannot write {self.folder}: {error.strerror}') from error


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
