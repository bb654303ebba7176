"""Structure that is no part of the scene: borders, dots, dirt, text, hot pixels, and things that move by themselves.

Most of it stands still in the image. Its pattern depends on seed and size only; where it changes with time, on the number of the
frame as well. Noise belongs to the frame. Sizes in docstrings are of 640x480 and follow the size of the image.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.geometry import Size
from lightglue_trt_ros.core.types import Float32, UInt8

PIXELS_PER_HOT = 768  # 400 hot pixels in 640x480
DOT_PITCH_PX = 11  # 2,500 cells of one dot in 640x480
SPOTS, DROPS = 30, 40
FIGURE = (400, 200)  # height and width that a person is drawn at
FIGURE_SHARE = 0.1  # of the image
CUT_FRAMES = 40  # of the film on a screen


@dataclass(frozen=True)
class Shot:
    """A frame as a degradation knows it, besides its image."""

    rng: np.random.Generator  # of the frame: no two frames share their noise
    seed: int = 0  # of patterns
    number: int = 0  # of the frame in the recording
    before: Callable[[], UInt8 | None] = lambda: None  # the image of the frame before, where there is one


Degradation = Callable[[Float32, Shot], Float32]


def blurred(gray: Float32, sigma_px: float) -> Float32:
    """An image after a Gaussian filter."""
    return np.asarray(cv2.GaussianBlur(gray, (0, 0), sigma_px), np.float32)


def noisy(gray: Float32, rng: np.random.Generator, sigma: float) -> Float32:
    """An image with normal noise of `sigma` gray levels."""
    return np.asarray(gray + rng.standard_normal(gray.shape, np.float32) * np.float32(sigma), np.float32)


# Opaque: the scene is hidden

def _border(gray: Float32, shot: Shot) -> Float32:
    """A fisheye's circle, black outside.

    The tenth of the image outside of it is black, its edge is 3 px wide; noise of 1 gray level.
    """
    return noisy(gray * _circle(shot.seed, _size(gray)), shot.rng, 1.0)


def _bonnet(gray: Float32, shot: Shot) -> Float32:
    """A textured part of the vehicle at the bottom.

    Opaque, a sixth of the image; noise of 1 gray level.
    """
    cover, texture = _vehicle(shot.seed, _size(gray))
    return noisy(_over(gray, cover, texture), shot.rng, 1.0)


def _text(gray: Float32, shot: Shot) -> Float32:
    """Burnt-in text with a running clock.

    White with a black outline: a name, a date, a clock of 0.1 s a frame, and the number of the frame.
    """
    height, width = gray.shape
    tenths = 290_000 + shot.number + 36_000 * (shot.seed % 10)
    clock = f'{tenths // 36_000 % 24:02}:{tenths // 600 % 60:02}:{tenths // 10 % 60:02}.{tenths % 10}'
    scale = height / 480
    outline, letters = np.zeros(gray.shape, np.uint8), np.zeros(gray.shape, np.uint8)
    for words, left, bottom in ((f'CAM {shot.seed % 90 + 7:02} FRONT', 0.02, 0.07), (f'2026-03-14 {clock}', 0.02, 0.97),
                                (f'REC {shot.number:06}', 0.72, 0.07)):
        corner = round(left * width), round(bottom * height)
        for canvas, thickness in ((outline, max(3, round(5 * scale))), (letters, max(1, round(2 * scale)))):
            cv2.putText(canvas, words, corner, cv2.FONT_HERSHEY_SIMPLEX, 0.8 * scale, 255, thickness, cv2.LINE_AA)
    cover, ink = (np.asarray(canvas, np.float32) / np.float32(255) for canvas in (outline, letters))
    return _over(_over(gray, cover, np.float32(10)), ink, np.float32(240))


def _screen(gray: Float32, shot: Shot) -> Float32:
    """A screen that plays a film.

    A seventh of the image with a dark frame, fixed in the image. The film pans by up to 7 px a frame, with a cut each 40 frames.
    """
    height, width = gray.shape
    top, left, rows, columns = (round(share * side) for share, side in ((0.2, height), (0.52, width), (0.36, height), (0.4, width)))
    if min(rows, columns) < 4:
        return gray
    scene, time = divmod(shot.number, CUT_FRAMES)
    film = _film(shot.seed, scene, (rows, columns))
    spare = film.shape[0] - rows, film.shape[1] - columns
    down, right = (round(side * (0.5 + 0.5 * np.sin(rate * time))) for side, rate in zip(spare, (0.09, 0.04), strict=True))
    edge = max(1, round(0.01 * width))
    seen = gray.copy()
    seen[max(0, top - edge):top + rows + edge, max(0, left - edge):left + columns + edge] = 15
    seen[top:top + rows, left:left + columns] = film[down:down + rows, right:right + columns]
    return noisy(seen, shot.rng, 1.0)


def _person(gray: Float32, shot: Shot) -> Float32:
    """A person walks before a standing camera.

    A tenth of the image, to and fro by 2 % of its width a frame, before the first frame of the recording; noise of 1.5 gray levels.
    """
    height, width = gray.shape
    figure = _figure(shot.number)
    rows = max(1, round(0.8 * height))
    columns = min(width, max(1, round(FIGURE_SHARE * width * height / (rows * float(figure.mean())))))
    cover = cv2.resize(figure, (columns, rows), interpolation=cv2.INTER_AREA)
    clothes = cv2.resize(_clothes(shot.seed), (columns, rows), interpolation=cv2.INTER_AREA)
    way = width - columns
    left = round(abs((shot.number * 0.02 * width + way) % (2 * way) - way)) if way else 0
    top = (height - rows) // 2
    seen = gray.copy()
    region = np.s_[top:top + rows, left:left + columns]
    seen[region] = _over(gray[region], np.asarray(cover, np.float32), np.asarray(clothes, np.float32))
    return noisy(seen, shot.rng, 1.5)


# Light: projectors, lamps, lenses

def _dots(gray: Float32, shot: Shot) -> Float32:
    """Dots of an infrared projector.

    Up to 70 gray levels on white, 70 dots in 100x100 px; other light 0.55; noise of 1.5 gray levels.
    """
    return _projected(gray, shot, 70)


def _dots35(gray: Float32, shot: Shot) -> Float32:
    """The same dots with half the power.

    Up to 35 gray levels on white.
    """
    return _projected(gray, shot, 35)


def _alternating(gray: Float32, shot: Shot) -> Float32:
    """The dots in every second frame only.

    From frame 0 on, as a projector that alternates with the exposures.
    """
    return _projected(gray, shot, 0 if shot.number % 2 else 70)


def _projected(gray: Float32, shot: Shot, power: float) -> Float32:
    reflected = power * _dot_pattern(shot.seed, _size(gray)) * (0.25 + gray / 255)
    return noisy(np.asarray(0.55 * gray + reflected, np.float32), shot.rng, 1.5)


def _dirt(gray: Float32, shot: Shot) -> Float32:
    """Soft spots on the lens.

    30 spots, 10 to 40 px wide, take 30 to 70 % of the light and scatter some; noise of 1 gray level.
    """
    return noisy(_over(gray, _dirt_spots(shot.seed, _size(gray)), np.float32(50)), shot.rng, 1.0)


def _spot(gray: Float32, shot: Shot) -> Float32:
    """A lamp on the robot, dark around it.

    Full light below the middle, half of it 0.25 widths from there, 4 % in the corners; noise of 2.5 gray levels.
    """
    height, width = gray.shape
    v, u = np.ogrid[:height, :width]
    distance = ((u + 0.5) / width - 0.5)**2 / 0.21**2 + ((v + 0.5) / height - 0.55)**2 / 0.27**2
    return noisy(gray * np.asarray(0.04 + np.exp(-distance / 2), np.float32), shot.rng, 2.5)


def _rain(gray: Float32, shot: Shot) -> Float32:
    """Drops on the lens, which change slowly.

    40 drops, 10 to 45 px wide, show the scene upside down; they grow, slide, and go in 60 to 180 frames.
    """
    height, width = gray.shape
    unit = np.hypot(height, width) / 800
    v, u = np.mgrid[:height, :width].astype(np.float32)
    cover, light = np.zeros_like(gray), np.ones_like(gray)
    for drop in range(DROPS):
        rng = _rng(shot.seed, 'drop', drop)
        life = int(rng.integers(60, 180))
        generation, age = divmod(shot.number + int(rng.integers(0, life)), life)
        rng, progress = _rng(shot.seed, 'drop', drop, generation), age / life
        x, y = rng.uniform(0, width), rng.uniform(0, height) + 0.06 * height * progress**3
        radius = max(0.75, unit * rng.uniform(7, 22) * (0.7 + 0.3 * progress) * min(1.0, 0.2 + age / 5, 0.2 + (life - age) / 5))
        top, bottom, left, right = (int(np.clip(place, 0, limit)) for place, limit in (
            (y - radius - 2, height), (y + radius + 3, height), (x - radius - 2, width), (x + radius + 3, width)))
        region = np.s_[top:bottom, left:right]
        across, down = u[region] - np.float32(x), v[region] - np.float32(y)
        distance = np.hypot(across, down * np.float32(0.9))
        inside = np.clip(np.float32(radius + 0.5) - distance, 0, 1)
        wider = inside > cover[region]
        cover[region] = np.maximum(cover[region], inside)
        light[region] = np.where(wider, 1.1 - 0.5 * (distance / np.float32(radius))**4, light[region])
        u[region], v[region] = (np.where(wider, np.float32(middle) - 5 * offset, plain)
                                for middle, offset, plain in ((x, across, u[region]), (y, down, v[region])))
    through = cv2.remap(blurred(gray, 2.0), u, v, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    return noisy(_over(gray, cover, through * light), shot.rng, 1.0)


# Sensors and links

def _hot(gray: Float32, shot: Shot) -> Float32:
    """Hot pixels of a sensor in the dark.

    A quarter of the light, 400 hot pixels of 60 to 220 gray levels, a fixed pattern of 4, noise of 4.
    """
    size = _size(gray)
    return noisy(np.float32(0.25) * gray + _hot_pixels(shot.seed, size) + _fixed_pattern(shot.seed, size) * 4, shot.rng, 4.0)


def _fixed(gray: Float32, shot: Shot) -> Float32:
    """Fixed pattern of a sensor in the dark.

    A quarter of the light, a pattern of 6 gray levels, a third of it by columns, noise of 3.
    """
    return noisy(np.float32(0.25) * gray + _fixed_pattern(shot.seed, _size(gray)) * 6, shot.rng, 3.0)


def _jpeg30(gray: Float32, shot: Shot) -> Float32:
    """JPEG of quality 30: its grid stands still."""
    return _compressed(gray, 30)


def _jpeg10(gray: Float32, shot: Shot) -> Float32:
    """JPEG of quality 10."""
    return _compressed(gray, 10)


def _compressed(gray: Float32, quality: int) -> Float32:
    data = cv2.imencode('.jpg', gray.astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_GRAYSCALE), np.float32)


def _interlace(gray: Float32, shot: Shot) -> Float32:
    """Every second row is half a frame older.

    It is moved back by half of the shift from the frame before, by 4 % of the width at most.
    """
    before, (height, width) = shot.before(), gray.shape
    if before is None or before.shape != gray.shape or min(height, width) < 16:
        return gray
    window = cv2.createHanningWindow((width, height), cv2.CV_32F)
    (right, down), _ = cv2.phaseCorrelate(before.astype(np.float32), gray.copy(), window)  # OpenCV 5 writes to both
    if not np.isfinite([right, down]).all():
        return gray
    back = -np.clip(np.array([right, down]) / 2, -0.04 * width, 0.04 * width)
    moved = cv2.warpAffine(gray, np.array([[1, 0, back[0]], [0, 1, back[1]]]), (width, height), borderMode=cv2.BORDER_REPLICATE)
    seen = gray.copy()
    seen[1::2] = moved[1::2]
    return seen


# Patterns

def _rng(seed: int, name: str, *more: int) -> np.random.Generator:
    """The numbers of one pattern."""
    return np.random.default_rng([seed, zlib.crc32(name.encode()), *more])


def _size(gray: Float32) -> Size:
    return gray.shape[0], gray.shape[1]


def _over(gray: Float32, cover: Float32, upper: NDArray[np.float32] | np.float32) -> Float32:
    """`upper` over an image, where `cover` is 1."""
    return np.asarray(gray + cover * (upper - gray), np.float32)


def _cloud(rng: np.random.Generator, size: Size, sigma_px: float) -> Float32:
    """Noise of standard deviation 1 with structure of `sigma_px`."""
    noise = blurred(rng.standard_normal(size, np.float32), sigma_px)
    return np.asarray((noise - noise.mean()) / max(float(noise.std()), 1e-6), np.float32)


@lru_cache(4)
def _circle(seed: int, size: Size) -> Float32:
    x, y = _rng(seed, 'circle').uniform(0.49, 0.51, 2)
    v, u = np.ogrid[:size[0], :size[1]]
    distance = np.hypot(u + 0.5 - x * size[1], v + 0.5 - y * size[0])
    return np.asarray(np.clip((np.quantile(distance, 0.9) - distance) / 3 + 0.5, 0, 1), np.float32)


@lru_cache(4)
def _vehicle(seed: int, size: Size) -> tuple[Float32, Float32]:
    """Cover and texture: paint with wear, seams and bolts."""
    (height, width), rng = size, _rng(seed, 'vehicle')
    v, u = np.ogrid[:height, :width]
    edge = height * (0.8 + 0.1 * ((u + 0.5) / width * 2 - 1)**2)
    texture = 95 + 25 * _cloud(rng, size, max(1.0, width / 30)) + 18 * _cloud(rng, size, 1.2)
    for share in rng.uniform(0.1, 0.9, 4):
        x = round(float(share) * width)
        cv2.line(texture, (x, 0), (width - x, height), 20, max(1, width // 200), cv2.LINE_AA)
    for x, y in zip(rng.uniform(0, width, 24), rng.uniform(0.82 * height, height, 24), strict=True):
        cv2.circle(texture, (round(x), round(y)), max(1, width // 110), 200, -1)
        cv2.circle(texture, (round(x), round(y)), max(1, width // 110), 30, 1)
    return np.clip(v + 1 - edge, 0, 1).astype(np.float32), np.clip(texture, 0, 255).astype(np.float32)


@lru_cache(4)
def _dot_pattern(seed: int, size: Size) -> Float32:
    """One dot of sigma 0.9 px in each cell of a grid, anywhere in it; one cell in seven is empty; weaker towards the corners."""
    (height, width), rng = size, _rng(seed, 'dots')
    v, u = np.mgrid[:height:DOT_PITCH_PX, :width:DOT_PITCH_PX].reshape(2, -1) + rng.uniform(0, DOT_PITCH_PX, (
        2, -(-height // DOT_PITCH_PX) * -(-width // DOT_PITCH_PX)))
    light = rng.uniform(0.6, 1, len(u)) * (rng.random(len(u)) > 1 / 7)
    light *= 1 - 0.4 * ((u / width - 0.5)**2 + (v / height - 0.5)**2) / 0.5
    pattern = np.zeros(size)
    for row in range(-3, 4):
        for column in range(-3, 4):
            y, x = np.floor(v).astype(int) + row, np.floor(u).astype(int) + column
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            share = np.exp(-((y - v)**2 + (x - u)**2) / (2 * 0.9**2))
            np.add.at(pattern, (y[inside], x[inside]), (light * share)[inside])
    return pattern.astype(np.float32)


@lru_cache(4)
def _dirt_spots(seed: int, size: Size) -> Float32:
    """Share of the light that is lost."""
    (height, width), rng, lost = size, _rng(seed, 'dirt'), np.zeros(size, np.float32)
    for _ in range(SPOTS):
        spot = np.zeros(size, np.float32)
        middle = round(rng.uniform(0, width)), round(rng.uniform(0, height))
        axes = [max(1, round(radius)) for radius in width / 640 * rng.uniform(5, 20, 2)]
        cv2.ellipse(spot, middle, axes, float(rng.uniform(0, 180)), 0, 360, float(rng.uniform(0.3, 0.7)), -1)
        lost = np.maximum(lost, spot)
    return blurred(lost, max(0.5, 3 * width / 640))


@lru_cache(4)
def _hot_pixels(seed: int, size: Size) -> Float32:
    rng, pixels = _rng(seed, 'hot'), np.zeros(size[0] * size[1], np.float32)
    chosen = rng.choice(pixels.size, max(1, pixels.size // PIXELS_PER_HOT), replace=False)
    pixels[chosen] = rng.uniform(60, 220, len(chosen))
    return pixels.reshape(size)


@lru_cache(4)
def _fixed_pattern(seed: int, size: Size) -> Float32:
    """Of standard deviation 1: of each pixel, and of its column."""
    rng = _rng(seed, 'fixed')
    columns = rng.standard_normal((1, size[1]), np.float32) * np.float32(1 / 3)
    return np.asarray(rng.standard_normal(size, np.float32) * np.float32(np.sqrt(8) / 3) + columns, np.float32)


@lru_cache(4)
def _film(seed: int, scene: int, size: Size) -> Float32:
    """A picture larger than the screen: soft shapes with sharp edges."""
    rng, larger = _rng(seed, 'film', scene), (size[0] * 2, size[1] * 2)
    shapes = _cloud(rng, larger, max(1.0, size[1] / 20))
    return np.clip(90 + 50 * np.sign(shapes) + 25 * _cloud(rng, larger, 1.5), 0, 255).astype(np.float32)


@lru_cache(4)
def _clothes(seed: int) -> Float32:
    rng = _rng(seed, 'clothes')
    v, u = np.mgrid[:FIGURE[0], :FIGURE[1]]
    checks = (v // 14 + u // 14) % 2 * 60 * (v > 70) * (v < 230)
    return np.asarray(np.clip(70 + checks + 25 * _cloud(rng, FIGURE, 2.0) + 20 * _cloud(rng, FIGURE, 8.0), 0, 255), np.float32)


def _figure(number: int) -> Float32:
    """Where a person is, whose legs and arms swing: (400, 200), 1 or 0."""
    figure, stride = np.zeros(FIGURE, np.float32), round(45 * np.sin(0.5 * number))
    cv2.circle(figure, (100, 40), 34, 1.0, -1)
    cv2.ellipse(figure, (100, 150), (46, 88), 0, 0, 360, 1.0, -1)
    for swing in (stride, -stride):
        cv2.line(figure, (100, 110), (100 + swing, 225), 1.0, 26)
        cv2.line(figure, (100, 215), (100 + swing, 380), 1.0, 38)
    return figure


STRUCTURES: dict[str, Degradation] = {
    'border': _border, 'bonnet': _bonnet, 'text': _text, 'dots': _dots, 'dots35': _dots35, 'alternating': _alternating,
    'jpeg30': _jpeg30, 'jpeg10': _jpeg10, 'hot': _hot, 'fixed': _fixed, 'dirt': _dirt, 'rain': _rain, 'spot': _spot,
    'interlace': _interlace, 'screen': _screen, 'person': _person}
STANDING = frozenset({'person'})  # the camera stands: every frame shows the first one
