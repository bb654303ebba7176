"""Files that appear whole or not at all."""

from __future__ import annotations

import secrets
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write under a temporary name beside `path`, and rename. Raises OSError, and leaves nothing behind then."""
    temporary = path.with_name(f'.{path.name}.{secrets.token_hex(4)}.tmp')  # containers that share a folder share process ids
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
