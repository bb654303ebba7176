"""Bags of images and CameraInfo with any fields, as drivers record them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from support.bags import CAMERA_INFO, COMPRESSED, IMAGE, compressed_image, header, image, new, write_messages

K = np.array([[80.0, 0, 47.5], [0, 80, 35.5], [0, 0, 1]])
WIDTH, HEIGHT = 96, 72


@dataclass
class Info:
    """A CameraInfo; P is [K | 0] unless given."""

    k: np.ndarray = field(default_factory=K.copy)
    d: tuple[float, ...] = (0.0,) * 5
    p: np.ndarray | None = None
    r: np.ndarray = field(default_factory=lambda: np.eye(3))
    model: str = 'plumb_bob'
    frame_id: str = 'cam'
    width: int = WIDTH
    height: int = HEIGHT
    binning: tuple[int, int] = (0, 0)
    roi: tuple[int, int, int, int] = (0, 0, 0, 0)  # x_offset, y_offset, height, width


ZERO = Info(np.zeros((3, 3)))


@dataclass
class Images:
    """Gray images (H, W) of 8 or 16 bits, or depth images; with `png` as CompressedImage."""

    arrays: list[np.ndarray] = field(default_factory=lambda: [gray(number) for number in range(3)])
    frame_id: str = 'cam'  # with commas, of cameras that take turns
    encoding: str = ''  # mono8 or mono16 by the array
    png: bool = False


def gray(number: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Uint8 (H, W), random."""
    return np.random.default_rng(number).integers(0, 256, (height, width), np.uint8)


def camera_bag(path: Path, topics: dict[str, Images | list[Info]]) -> Path:
    """A bag with a message each 0.1 s on every topic."""
    def stamp(number: int) -> int:
        return 10**9 + number * 10**8

    def images(given: Images, number: int) -> Any:
        frame_ids, array = given.frame_id.split(','), given.arrays[number]
        frame_id = frame_ids[number % len(frame_ids)]
        if given.png:
            png = cv2.imencode('.png', array)[1].tobytes()
            return compressed_image(stamp(number), frame_id, 'mono8; png compressed mono8', png)
        return image(stamp(number), frame_id, array, given.encoding or {1: 'mono8', 2: 'mono16'}[array.itemsize])

    def info(given: Info, number: int) -> Any:
        p = np.column_stack([given.k, np.zeros(3)]) if given.p is None else given.p
        return new(CAMERA_INFO, header(stamp(number), given.frame_id), given.height, given.width, given.model,
                   np.array(given.d, np.float64), given.k.ravel(), given.r.ravel(), p.ravel(), *given.binning,
                   new('sensor_msgs/msg/RegionOfInterest', *given.roi, False))

    def messages(given: Images | list[Info]) -> tuple[str, list[tuple[int, Any]]]:
        if isinstance(given, Images):
            kind = COMPRESSED if given.png else IMAGE
            return kind, [(stamp(number), images(given, number)) for number in range(len(given.arrays))]
        return CAMERA_INFO, [(stamp(number), info(each, number)) for number, each in enumerate(given)]

    return write_messages(path, {name: messages(given) for name, given in topics.items()})
