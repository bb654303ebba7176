"""Recordings of a few small random images: a folder, and a bag of two cameras."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest


def _random_image(seed: int) -> np.ndarray:
    """Gray, 100x70."""
    return np.random.default_rng(seed).integers(0, 256, (70, 100), np.uint8)


def folder_of_images(path: Path, count: int) -> Path:
    """images/ with `count` images, and timestamps.txt."""
    (path / 'images').mkdir(parents=True)
    for number in range(count):
        assert cv2.imwrite(str(path / 'images' / f'{number:06}.png'), _random_image(number))
    (path / 'timestamps.txt').write_text('\n'.join(str(0.1 * number) for number in range(count)) + '\n')
    return path


def bag_of_two_cameras(path: Path) -> Path:
    """Four images of each."""
    for module in ('rclpy', 'rosbags'):
        pytest.importorskip(module, reason=f'{module} is not installed: bags are not read')
    from lightglue_trt_ros.datasets.bag_writer import write_bag
    images = [(10**8 * number, _random_image(number)) for number in range(1, 5)]
    write_bag(path, images, right=(images, None))
    return path
