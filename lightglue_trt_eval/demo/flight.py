"""A short flight over a small town of photographs, rendered with exact poses and depth: images and ground truth of the demo.

Ground, roofs and walls are textured planes, so every pixel's colour is one homography away from a photograph and every pixel's
depth is known in closed form (Hartley and Zisserman, Multiple View Geometry, chapter 13). The photographs are files of the
scikit-image wheel; nothing is fetched. World: metres, z up. Camera: x right, y down, z forward (the optical frame of REP 103).
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import cv2
import numpy as np

from lightglue_trt_ros.core.types import Float32, Float64, UInt8
from lightglue_trt_ros.utils.errors import BagError, ConfigError, LightglueTrtError

EPOCH_NS = 1_000_000_000  # stamp of frame 0: zero would mean "unset" to many readers
# A frame is the mean of eight renderings, spread over the pixel against aliasing and over the exposure for motion blur. Column
# and row of each in eighths; the sequence is point-symmetric about its middle, so neither shifts the picture.
SAMPLES = tuple(zip((2, 6, 0, 4, 3, 7, 1, 5), (5, 3, 6, 0, 7, 1, 4, 2), strict=True))
GROUND = (  # far to near; no photograph twice, because repeated texture would match itself
    ('retina.jpg', 'rocket.jpg', 'moon.png'),
    ('hubble_deep_field.jpg', 'astronaut.png', 'ihc.png'),
    ('camera.png', 'motorcycle_left.png', 'grass.png'),
    ('brick.png', 'coffee.png', 'gravel.png'),
)
CELL, TILE = 6.2, 512  # side of a ground photograph in metres and in pixels: about one texel per pixel of a 640x480 frame
GROUND_FAR = 16.4  # y of the ground's far edge, metres
BOXES = (  # photograph of the roof, of the walls (mirrored), centre x, y, size x, y, z in metres, rotation in degrees
    ('chelsea.png', 'brick.png', -1.9, 3.4, 3.4, 2.5, 2.2, 12.0),
    ('coins.png', 'gravel.png', 3.4, 1.4, 3.0, 2.5, 1.6, -17.0),
    ('page.png', 'ihc.png', 2.6, 8.2, 3.6, 1.9, 2.6, 8.0),
    ('text.png', 'grass.png', -5.3, 7.6, 4.2, 1.9, 1.9, -10.0),
    ('cell.png', 'moon.png', -2.4, 11.8, 2.2, 2.4, 2.4, 24.0),
)
Sinusoid = tuple[float, float, float]  # amplitude, frequency in Hz, phase in radians
WAVES: dict[str, tuple[float, tuple[Sinusoid, ...]]] = {  # mean, and the oscillations about it, over time
    'x': (0.0, ((1.5, 0.10, 0.0), (0.25, 0.50, 1.0))),  # metres
    'y': (0.0, ((5.0, 0.08, -1.6), (0.20, 0.40, 0.0))),
    'z': (6.6, ((1.1, 0.20, 0.5), (0.20, 0.60, 2.0))),
    'yaw': (0.0, ((10.0, 0.27, 0.3), (3.0, 0.75, 0.0))),  # degrees
    'pitch': (-70.0, ((4.0, 0.23, 1.0), (1.5, 0.85, 0.0))),
    'roll': (0.0, ((6.0, 0.21, 2.0), (2.0, 0.65, 0.5))),
    'exposure': (0.010, ((0.007, 0.17, 4.0),)),  # seconds
    'gain': (0.92, ((0.22, 0.31, 0.0), (0.05, 1.7, 0.0))),
    'gamma': (1.0, ((0.15, 0.13, 1.0),)),
    'vignette': (0.25, ((0.10, 0.20, 2.0),)),  # share of the light that the corners lose
}


@dataclass(frozen=True)
class FlightFrame:
    """One rendered frame with its ground truth, both of the middle of the exposure."""

    stamp_ns: int
    image: UInt8  # (H, W) gray
    pose: Float64  # (4, 4) world from camera, metres
    depth: Float32  # (H, W) metres along the optical axis, at the centres of the pixels


@dataclass(frozen=True)
class Plane:
    """A textured parallelogram: the share (s, t) of the texture's width and height stands at origin + s right + t down."""

    texture: UInt8  # (h, w)
    origin: Float64  # (3,) metres, world
    right: Float64  # (3,)
    down: Float64  # (3,)


@dataclass(frozen=True)
class Flight:
    """A camera that flies, rotates and climbs over the town; the same seed gives the same pixels.

    `blur`, `light` and `noise` switch motion blur, the change of gain, gamma and vignette, and the sensor's noise.
    Raises ConfigError for sizes that cannot be rendered.
    """

    frames: int = 60
    height: int = 480
    width: int = 640
    seed: int = 7
    rate_hz: float = 10.0
    blur: bool = True
    light: bool = True
    noise: bool = True

    def __post_init__(self) -> None:
        if self.frames < 1 or min(self.height, self.width) < 16 or self.rate_hz <= 0:
            raise ConfigError(f'{self.frames} frames of {self.width}x{self.height} at {self.rate_hz} Hz cannot be rendered: '
                              'use at least one frame, 16 pixels a side and a positive rate')

    @cached_property
    def intrinsics(self) -> Float64:
        """K, (3, 3) in pixels, without distortion: 500 px of focal length at 640x480, no wider a view at any other size."""
        focal = 500 / 640 * max(self.width, self.height * 4 / 3)
        return np.array([[focal, 0, (self.width - 1) / 2], [0, focal, (self.height - 1) / 2], [0, 0, 1]])

    def render(self) -> Iterator[FlightFrame]:
        """All frames in order. Raises LightglueTrtError where scikit-image's photographs are missing."""
        return (self.frame(index) for index in range(self.frames))

    def frame(self, index: int) -> FlightFrame:
        """The frame at index / rate_hz seconds; its pixels do not depend on what was rendered before."""
        time = index / self.rate_hz
        exposure = self._wave('exposure', time) if self.blur else 0.0
        total = np.zeros((self.height, self.width), np.float32)
        for k, (column, row) in enumerate(SAMPLES):
            camera = self.intrinsics.copy()
            camera[:2, 2] -= (column - 3.5) / 8, (row - 3.5) / 8
            instant = time + (k - 3.5) / 8 * exposure
            cv2.accumulate(rasterize(self.pose(instant), camera, total.shape)[0], total)
        pose = self.pose(time)
        inverse_depth = rasterize(pose, self.intrinsics, total.shape)[1]
        image = self._develop(total / np.float32(len(SAMPLES)), index)
        return FlightFrame(EPOCH_NS + round(time * 1e9), image, pose, np.reciprocal(inverse_depth))

    def pose(self, time: float) -> Float64:
        """(4, 4) world from camera at `time` seconds after the first frame."""
        yaw, pitch, roll = (np.radians(self._wave(axis, time)) for axis in ('yaw', 'pitch', 'roll'))
        level = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])  # looks along the world's y
        pose = np.eye(4)
        pose[:3, :3] = _rotation(0, 0, yaw) @ level @ _rotation(pitch, 0, 0) @ _rotation(0, 0, roll)
        pose[:3, 3] = [self._wave(axis, time) for axis in 'xyz']
        return pose

    def _wave(self, name: str, time: float) -> float:
        mean, sinusoids = WAVES[name]
        return mean + sum(size * amplitude * math.sin(2 * math.pi * hertz * time + phase + shift)
                          for (amplitude, hertz, phase), (size, shift) in zip(sinusoids, self._variation[name], strict=True))

    @cached_property
    def _variation(self) -> dict[str, list[list[float]]]:
        """Variation by the seed: of each sinusoid's amplitude by up to a tenth and of its phase by up to 0.3 radians."""
        rng = np.random.default_rng(self.seed)
        low, high = (0.9, -0.3), (1.1, 0.3)
        return {name: rng.uniform(low, high, (len(sinusoids), 2)).tolist() for name, (_, sinusoids) in WAVES.items()}

    def _develop(self, image: Float32, index: int) -> UInt8:
        """Apply light and noise to a float image of [0, 255]."""
        time = index / self.rate_hz
        if self.light:
            v, u = np.ogrid[-1:1:self.height * 1j, -1:1:self.width * 1j]
            shade = (self._wave('gain', time) * (1 - self._wave('vignette', time) * (u * u + v * v) / 2)).astype(np.float32)
            image = cv2.pow(image / 255 * shade, self._wave('gamma', time)) * 255
        if self.noise:  # of the photons and of reading out
            rng = np.random.default_rng([self.seed, index])
            image = image + rng.standard_normal(image.shape, np.float32) * np.sqrt(0.03 * image + 1.5)
        return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def rasterize(pose: Float64, intrinsics: Float64, shape: tuple[int, ...]) -> tuple[UInt8, Float32]:
    """One sample per pixel of the town: gray uint8 (H, W) and inverse depth float32 (H, W) in 1/metres."""
    height, width = shape[:2]
    image, nearest = np.zeros(shape, np.uint8), np.zeros(shape, np.float32)
    for number, plane in enumerate(_town()):
        relative = np.stack([plane.right, plane.down, plane.origin - pose[:3, 3]], axis=1)
        if np.linalg.det(relative) <= 1e-9:  # seen from behind
            continue
        forward = intrinsics @ pose[:3, :3].T @ relative  # (s, t, 1) -> depth * pixel
        left, top, right, bottom = (0, 0, width, height) if number == 0 else _bounds(forward, height, width)
        if left >= right or top >= bottom:
            continue
        backward = np.linalg.inv(forward) @ np.array([[1.0, 0, left], [0, 1, top], [0, 0, 1]])  # pixel -> (s, t, 1) / depth
        u, v = np.arange(right - left), np.arange(bottom - top)[:, None]
        across, along, inverse_depth = ((row[0] * u + (row[1] * v + row[2])).astype(np.float32) for row in backward)
        h, w = plane.texture.shape
        texel = np.array([[w, 0, -0.5], [0, h, -0.5], [0, 0, 1]]) @ backward
        colour = cv2.warpPerspective(plane.texture, texel, (right - left, bottom - top), borderMode=cv2.BORDER_REFLECT,
                                     flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        region = np.s_[top:bottom, left:right]
        visible = inverse_depth > nearest[region]
        if number:  # the ground has no edge
            visible &= (across >= 0) & (across <= inverse_depth) & (along >= 0) & (along <= inverse_depth)
        image[region][visible] = colour[visible]
        nearest[region][visible] = inverse_depth[visible]
    return image, nearest


def _rotation(x: float, y: float, z: float) -> Float64:
    return np.asarray(cv2.Rodrigues(np.array([x, y, z], np.float64))[0], np.float64)


def _bounds(forward: Float64, height: int, width: int) -> tuple[int, int, int, int]:
    """The pixels that a plane may cover: left, top and the first column and row beyond."""
    corners = forward @ np.array([[0.0, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
    if corners[2].min() < 0.05:
        return 0, 0, width, height
    corners = corners[:2] / corners[2]
    left, top = np.clip(np.floor(corners.min(axis=1)), 0, (width, height)).astype(int)
    right, bottom = np.clip(np.ceil(corners.max(axis=1)) + 1, 0, (width, height)).astype(int)
    return left, top, right, bottom


@lru_cache(maxsize=1)
def _town() -> tuple[Plane, ...]:
    """The ground, then every face of every box."""
    ground = np.vstack([np.hstack([_photograph(name, 1.0, TILE) for name in row]) for row in GROUND])
    rows, columns = len(GROUND), len(GROUND[0])
    planes = [Plane(_enlarged(ground), np.array([-columns * CELL / 2, GROUND_FAR, 0]), np.array([columns * CELL, 0, 0]),
                    np.array([0, -rows * CELL, 0]))]
    for roof, wall, x, y, *size, rotation in BOXES:
        axes = _rotation(0, 0, np.radians(rotation)) * size  # columns: the box's edges
        middle, (a, b, up) = np.array([x, y, 0.0]), axes.T
        planes.append(Plane(_enlarged(_photograph(roof, size[0] / size[1])), middle - a / 2 + b / 2 + up, a, -b))
        photo = _photograph(wall, size[0] / size[2], TILE)[:, ::-1]
        quarters = [quarter for half in np.vsplit(photo, 2) for quarter in np.hsplit(half, 2)]
        for texture, (out, along) in zip(quarters, ((-b, a), (a, b), (b, -a), (-a, -b)), strict=True):
            planes.append(Plane(_enlarged(texture), middle + out / 2 - along / 2 + up, along, -up))
    return tuple(planes)


def _photograph(name: str, aspect: float, width: int | None = None) -> UInt8:
    """A photograph's middle, gray, its contrast stretched, cut to width / height = `aspect`, `width` pixels wide if given."""
    package = importlib.util.find_spec('skimage')
    path = Path(next(iter(package.submodule_search_locations or []), '') if package else 'skimage', 'data', name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LightglueTrtError(f'{path} is missing: the flight shows its photographs; pip install scikit-image') from error
    profile = data[:200].find(b'iCCP')  # a malformed one, which libpng would complain about on stderr
    if profile > 0:
        data = data[:profile - 4] + data[profile + 8 + int.from_bytes(data[profile - 4:profile], 'big'):]
    photo = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    if photo is None:
        raise LightglueTrtError(f'{path} is not an image that OpenCV decodes; pip install --force-reinstall scikit-image')
    h, w = min(photo.shape[0], round(photo.shape[1] / aspect)), min(photo.shape[1], round(photo.shape[0] * aspect))
    top, left = (photo.shape[0] - h) // 2, (photo.shape[1] - w) // 2
    photo = photo[top:top + h, left:left + w]
    if width is not None:
        height = 2 * round(width / aspect / 2)
        photo = cv2.resize(photo, (width, height), interpolation=cv2.INTER_AREA if width < w else cv2.INTER_CUBIC)
    low, high = np.percentile(photo, (1, 99.5))
    return np.asarray(np.clip((photo - low) * (235 / (high - low)) + 10, 0, 255), np.uint8)


def _enlarged(texture: UInt8) -> UInt8:
    """Twice the size with a sharp filter, once, so that bilinear sampling of it blurs little."""
    return np.asarray(cv2.resize(texture, None, fx=2, fy=2, interpolation=cv2.INTER_LANCZOS4), np.uint8)


def textured_frames(count: int, height: int, width: int) -> Iterator[UInt8]:
    """A drifting texture, gray (H, W). Shapes are fixed, so the content of the image does not change the times."""
    rng = np.random.default_rng(0)
    texture = cv2.GaussianBlur(rng.random((height + 64, width + 64), np.float32), (0, 0), 2)
    canvas = cv2.normalize(texture, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)  # type: ignore[call-overload]
    for i in range(count):
        u, v = 2 * i % 64, i % 64
        yield np.ascontiguousarray(canvas[v:v + height, u:u + width])


def forth_and_back(images: Iterator[UInt8], count: int) -> Iterator[UInt8]:
    """`count` frames of a recording, forth and back, so that each has a recorded neighbour; at most `count` are in memory.

    All are decoded before the first is returned, so that decoding costs no measured time. Raises BagError for fewer than two.
    """
    held = list(itertools.islice(images, count))
    if len(held) < 2:
        raise BagError(f'the recording has {len(held)} frames: each is matched with the one before, so give one of two at least')
    return itertools.islice(itertools.cycle([*held, *held[-2:0:-1]]), count)
