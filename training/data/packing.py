"""Crops of one size, and tar parts of them in a shuffled order."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 800, 600
LARGE = 2400  # pixels: a photograph of more gives several crops
ENLARGEMENT = 1.25  # of small textures; the rest is mirrored at the sides
QUALITY = 88
PART_BYTES = 28 * 1024 * 1024


@dataclass(frozen=True)
class Cut:
    """One crop: where it lies in the original (left, top, width, height, pixels), and its gray pixels (600, 800)."""

    left: int
    top: int
    width: int
    height: int
    gray: NDArray[np.uint8]


def to_gray(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Gray (H, W) of (H, W), (H, W, 2), (H, W, 3) BGR or (H, W, 4)."""
    if image.ndim == 2:
        return image
    if image.shape[2] == 2:
        return np.ascontiguousarray(image[..., 0])
    return cv2.cvtColor(np.ascontiguousarray(image[..., :3]), cv2.COLOR_BGR2GRAY).astype(np.uint8, copy=False)


def _cut(gray: NDArray[np.uint8], left: int, top: int, width: int, height: int) -> Cut:
    """The central 4:3 piece of a window, scaled to the packed size."""
    piece: NDArray[Any] = gray[top : top + height, left : left + width]
    scale = min(max(WIDTH / width, HEIGHT / height), ENLARGEMENT)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    if scale != 1:
        piece = cv2.resize(piece, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    wide, high = max(WIDTH - piece.shape[1], 0), max(HEIGHT - piece.shape[0], 0)
    if wide or high:
        piece = cv2.copyMakeBorder(piece, high // 2, high - high // 2, wide // 2, wide - wide // 2, cv2.BORDER_REFLECT_101)
    y, x = (piece.shape[0] - HEIGHT) // 2, (piece.shape[1] - WIDTH) // 2
    return Cut(left, top, width, height, np.ascontiguousarray(piece[y : y + HEIGHT, x : x + WIDTH]).astype(np.uint8, copy=False))


def cuts_of(gray: NDArray[np.uint8], most: int = 1) -> list[Cut]:
    """The crops of an image (H, W): one, or up to `most` (4) that do not overlap where it is larger than 2400 pixels."""
    height, width = gray.shape
    columns = 2 if most > 1 and width > LARGE else 1
    rows = 2 if (most >= 2 * columns) and height > LARGE * HEIGHT / WIDTH * (1 if columns > 1 else 4 / 3) else 1
    wide, high = width // columns, height // rows
    return [_cut(gray, column * wide, row * high, wide, high) for row in range(rows) for column in range(columns)][:most]


def encode(gray: NDArray[np.uint8]) -> bytes:
    """A gray JPEG of the packed quality."""
    options = [cv2.IMWRITE_JPEG_QUALITY, QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1, cv2.IMWRITE_JPEG_PROGRESSIVE, 1]
    done, data = cv2.imencode('.jpg', gray, options)
    assert done
    return bytes(data)


def digest_of(items: Iterable[tuple[str, bytes]]) -> str:
    """The sha256 over the names and contents of a pack, in the order of names: the same however the parts are cut."""
    whole = hashlib.sha256()
    for name, data in sorted(items):
        whole.update(f'{name} {hashlib.sha256(data).hexdigest()}\n'.encode())
    return whole.hexdigest()


def write_parts(items: list[tuple[str, bytes]], folder: Path, seed: int) -> list[Path]:
    """Write photographs.NN.tar in a shuffled order, each at most 28 MiB, each under a temporary name first. Returns the parts."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(items))
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[tuple[Path, Path]] = []
    archive: tarfile.TarFile | None = None
    size = 0
    for index in order:
        name, data = items[index]
        needed = 512 + (len(data) + 511) // 512 * 512
        if archive is None or size + needed > PART_BYTES - tarfile.RECORDSIZE:
            if archive is not None:
                archive.close()
            final = folder / f'photographs.{len(parts):02d}.tar'
            parts.append((final.with_suffix('.tmp'), final))
            archive = tarfile.open(parts[-1][0], 'w', format=tarfile.USTAR_FORMAT)  # noqa: SIM115
            size = 0
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
        size += needed
    if archive is not None:
        archive.close()
    for old in folder.glob('photographs.*.tar'):
        old.unlink()
    for temporary, final in parts:
        temporary.replace(final)
    return [final for _, final in parts]


def read_parts(folder: Path) -> dict[str, bytes]:
    """Every packed file of the parts in a folder, by name."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.glob('photographs.*.tar')):
        with tarfile.open(path) as archive:
            for member in archive:
                stream = archive.extractfile(member)
                if stream is not None:
                    found[member.name] = stream.read()
    return found
