"""From the bytes of one image file to its packed crops with their measures, or to why it is refused."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import cv2

from training.data import decoding, filters, packing
from training.data.fetching import images_of
from training.data.sources import DataError, Source


@dataclass(frozen=True)
class Candidate:
    """One crop that may be packed."""

    member: str
    sha256: str  # of the original file
    pixels: int  # of the original
    number: int  # of the crop
    crop: tuple[int, int, int, int]
    jpeg: bytes
    measure: filters.Measure
    hashes: tuple[int, ...]  # of the original and of its central cuts; for one of several crops, of the crop alone


@dataclass(frozen=True)
class Refusal:
    """One image, and why it is not packed."""

    member: str
    reason: str


def examine(member: str, data: bytes, crops: int) -> list[Candidate] | Refusal:
    """The crops of one file. Measures are judged later, so that thresholds can be moved without decoding again."""
    cv2.setNumThreads(1)
    try:
        image = decoding.decode(data)
    except DataError as error:
        return Refusal(member, str(error))
    reason = filters.refuse_size(*image.shape[:2]) or filters.refuse_alpha(image) or filters.refuse_colours(image)
    if reason:
        return Refusal(member, reason)
    gray = packing.to_gray(image)
    digest = hashlib.sha256(data).hexdigest()
    whole = filters.hashes_of(gray)
    found = []
    for number, cut in enumerate(packing.cuts_of(gray, crops)):
        hashes = whole if number == 0 else ()
        if (cut.width, cut.height) != gray.shape[::-1]:  # one of several
            hashes = (filters.perceptual_hash(cut.gray), *hashes)
        crop = (cut.left, cut.top, cut.width, cut.height)
        measure = filters.measure(cut.gray)
        found.append(Candidate(member, digest, gray.size, number, crop, packing.encode(cut.gray), measure, hashes))
    return found


def _examine(task: tuple[str, bytes, int]) -> list[Candidate] | Refusal:
    return examine(*task)


def _code() -> str:
    files = [Path(__file__), *(Path(str(module.__file__)) for module in (decoding, filters, packing))]
    return hashlib.sha256(b''.join(path.read_bytes() for path in files)).hexdigest()


def examine_source(source: Source, path: Path, workers: int) -> tuple[list[Candidate], list[Refusal]]:
    """The candidates of one source, in the order of their members, and what was refused before its pixels were judged."""
    candidates: list[Candidate] = []
    refusals: list[Refusal] = []

    def tasks() -> Iterator[tuple[str, bytes, int]]:
        for member, data in images_of(source, path):
            if not source.includes(member):
                continue
            if reason := filters.refuse_name(member):
                refusals.append(Refusal(member, reason))
            else:
                yield member, data, source.crops

    waiting = tasks()
    with ProcessPoolExecutor(workers) as pool:
        while batch := list(islice(waiting, 16 * workers)):
            for result in pool.map(_examine, batch, chunksize=4):
                if isinstance(result, Refusal):
                    refusals.append(result)
                else:
                    candidates += result
    candidates.sort(key=lambda c: (c.member, c.number))
    refusals.sort(key=lambda r: (r.member, r.reason))
    return candidates, refusals


def examine_once(source: Source, path: Path, workers: int, folder: Path) -> tuple[list[Candidate], list[Refusal]]:
    """The same, kept in `folder` for the next run with the same source and code. The folder is one's own: pickles are trusted."""
    key = hashlib.sha256(f'{source.digest} {source.crops} {source.include} {_code()}'.encode()).hexdigest()[:16]
    kept = folder / f'{source.name.replace("/", "+")}.{key}.pkl'
    if source.kind != 'folder' and kept.exists():
        found: tuple[list[Candidate], list[Refusal]] = pickle.loads(kept.read_bytes())
        return found
    found = examine_source(source, path, workers)
    if source.kind != 'folder':
        folder.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_suffix('.tmp')
        temporary.write_bytes(pickle.dumps(found))
        temporary.replace(kept)
    return found
