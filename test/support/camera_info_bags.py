"""Bags of images and CameraInfo with any fields, as drivers record them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

K = np.array([[80.0, 0, 47.5], [0, 80, 35.5], [0, 0, 1]])
WIDTH, HEIGHT = 96, 72
IMAGE, COMPRESSED, CAMERA_INFO = (f'sensor_msgs/msg/{name}' for name in ('Image', 'CompressedImage', 'CameraInfo'))


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
    from rosbags.rosbag2 import Writer
    from rosbags.typesys import Stores, get_typestore
    store = get_typestore(Stores.ROS2_HUMBLE)

    def image(images: Images, number: int) -> tuple[str, Any]:
        frame_ids = images.frame_id.split(',')
        array, header = images.arrays[number], made(frame_ids[number % len(frame_ids)], number)
        if images.png:
            data = cv2.imencode('.png', array)[1].reshape(-1)
            return COMPRESSED, store.types[COMPRESSED](header, 'mono8; png compressed mono8', data)
        encoding = images.encoding or {1: 'mono8', 2: 'mono16'}[array.itemsize]
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        return IMAGE, store.types[IMAGE](header, *array.shape, encoding, 0, array.shape[1] * array.itemsize, raw)

    def info(given: Info, number: int) -> tuple[str, Any]:
        p = np.column_stack([given.k, np.zeros(3)]) if given.p is None else given.p
        region = store.types['sensor_msgs/msg/RegionOfInterest'](*given.roi, False)
        return CAMERA_INFO, store.types[CAMERA_INFO](
            made(given.frame_id, number), given.height, given.width, given.model, np.array(given.d, np.float64), given.k.ravel(),
            given.r.ravel(), p.ravel(), *given.binning, region)

    def made(frame_id: str, number: int) -> Any:
        time = store.types['builtin_interfaces/msg/Time'](1, number * 10**8)
        return store.types['std_msgs/msg/Header'](time, frame_id)

    with Writer(path, version=9) as writer:
        for name, given in topics.items():
            count = len(given.arrays) if isinstance(given, Images) else len(given)
            messages = [image(given, number) if isinstance(given, Images) else info(given[number], number)
                        for number in range(count)]
            connection = writer.add_connection(name, messages[0][0], typestore=store)
            for number, (kind, message) in enumerate(messages):
                writer.write(connection, 10**9 + number * 10**8, store.serialize_cdr(message, kind))
    return path
