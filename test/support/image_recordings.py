"""Recordings of images: folders of any, and a few random ones as a folder and as a bag of two cameras."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest


def image_folder(path: Path, images: Iterable[np.ndarray], stamps: Sequence[object] = (), *, calibration: str = '',
                 baseline_m: float = 0.0, first: int = 0, suffix: str = '.png', **others: Iterable[np.ndarray]) -> Path:
    """images/ with files named by numbers from `first` on, and timestamps.txt: from 1 s on, each 0.1 s, unless given.

    `calibration` is calib.yaml, and with a baseline the right camera's as well. `others` are further folders of images, by name.
    """
    for name, each in {'images': images, **others}.items():
        (path / name).mkdir(parents=True)
        for number, image in enumerate(each, first):
            assert cv2.imwrite(str(path / name / f'{number}{suffix}'), image)
    stamps = stamps or [f'{1 + number / 10:.1f}' for number in range(len(list((path / 'images').iterdir())))]
    (path / 'timestamps.txt').write_text(''.join(f'{stamp}\n' for stamp in stamps))
    if calibration:
        (path / 'calib.yaml').write_text(calibration)
    if baseline_m:
        (path / 'calib_right.yaml').write_text(f'{calibration}baseline_m: {baseline_m}\n')
    return path


def pinhole(width: int, height: int, focal: float, centre: tuple[float, float] | None = None) -> str:
    """calib.yaml of a camera without distortion."""
    cx, cy = centre or (width / 2, height / 2)
    return f'model: pinhole\nwidth: {width}\nheight: {height}\nfx: {focal}\nfy: {focal}\ncx: {cx}\ncy: {cy}\ndist: []\n'


def _random_image(seed: int) -> np.ndarray:
    """Gray, 100x70."""
    return np.random.default_rng(seed).integers(0, 256, (70, 100), np.uint8)


def folder_of_images(path: Path, count: int) -> Path:
    return image_folder(path, map(_random_image, range(count)))


def bag_of_two_cameras(path: Path) -> Path:
    """Four images of each."""
    for module in ('rclpy', 'rosbags'):
        pytest.importorskip(module, reason=f'{module} is not installed: bags are not read')
    from lightglue_trt_ros.datasets.bag_writer import write_bag
    images = [(10**8 * number, _random_image(number)) for number in range(1, 5)]
    write_bag(path, images, right=(images, None))
    return path
