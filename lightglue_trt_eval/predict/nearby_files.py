"""Files in the folder of a recording that may be its calibration or ground truth: they are named, and not taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from numpy.typing import ArrayLike

from lightglue_trt_ros.datasets.calibration_files import camera_names, check_size, load_intrinsics
from lightglue_trt_ros.datasets.folder_recordings import is_hidden, natural
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth, poses_at
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.utils.errors import BagError, first_of

SUFFIXES = ('.yaml', '.yml', '.json', '.xml', '.txt', '.csv', '.log', '.tum', '.conf', '.bin')
FOLDERS, MOST_OF_FOLDER, MOST_BYTES = ('', '*/', '*/*/'), 16, 5_000_000  # where files are tried, and how many and large
MOST_NAMED = 4
MOST_CAMERAS = 8  # of a file: of more, as COLMAP estimates one for each image, none is right for all images


def calibrations_near(folder: Path, size: tuple[int, int]) -> str:
    """Advice for people: the calibrations in a folder that fit images of `size` (H, W); empty where there is none."""
    return _advice([each for path in _files(folder) for each in _cameras(path, size)])


def ground_truths_near(recording: Recording, stamps_ns: ArrayLike, max_difference_s: float) -> str:
    """Advice for people: the ground truths in the recording's folder that have a pose at one of `stamps_ns` (N,); or empty."""
    found = []
    for path in (*_files(recording.path), *_folders(recording.path)):
        with suppress(BagError):
            truth = load_ground_truth(recording, file=path)
            if truth is not None:
                poses_at(truth, stamps_ns, max_difference_s)
                found.append(path)
    return _advice(found)


def _advice(found: list[Path]) -> str:
    return f', perhaps {first_of(found, MOST_NAMED)}' if found else ''


def _cameras(path: Path, size: tuple[int, int]) -> Iterator[Path]:
    """What load_intrinsics takes for each camera of a file that has images of this size."""
    height, width = size
    names: list[str] = []
    with suppress(BagError):
        names = camera_names(path, lambda: (width, height))
    for name in names if len(names) <= MOST_CAMERAS else ():
        named = Path(f'{path}:{name}') if len(names) > 1 else path
        with suppress(BagError):
            check_size(load_intrinsics(named, size=lambda: (width, height)), height, width)
            yield named


def _files(folder: Path) -> Iterator[Path]:
    """Small files of a folder and of those in it, the nearest first; the first ones of a folder that has many, as one a frame."""
    for places in FOLDERS:
        for place in sorted({path.parent for path in folder.glob(f'{places}*') if path.suffix.lower() in SUFFIXES}):
            files = sorted((path for path in place.glob('*') if path.suffix.lower() in SUFFIXES and path.is_file()
                            and not is_hidden(path.name) and path.stat().st_size <= MOST_BYTES), key=natural)
            yield from files[:MOST_OF_FOLDER]


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob('*') if path.is_dir() and not is_hidden(path.name))
