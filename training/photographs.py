"""Training images: photographs from a pack or a folder, and drawings made here."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH = 600, 800
SUFFIXES = ('.jpg', '.jpeg', '.png', '.webp')

Image = NDArray[np.uint8]


class NoPhotographsError(Exception):
    """There is nothing to train on."""


def load_photographs(folder: Path) -> tuple[Image, list[str]]:
    """uint8 (N, HEIGHT, WIDTH) of every image in the tar files and in the folder itself, by name, and a line for each refused one.

    Images are brought to HEIGHT x WIDTH where they are larger. Raises NoPhotographsError when none is left.
    """
    with ThreadPoolExecutor() as pool:
        read = list(pool.map(lambda item: (item[0], *_usable(item[1])), _files(folder)))
    images = [image for _, image, _ in read if image is not None]
    refused = [f'{name}: {why}' for name, image, why in read if image is None]
    if not images:
        raise NoPhotographsError(f'{folder} holds no usable image ({len(refused)} refused): give a folder of photographs.NN.tar or '
                                 f'of images of at least {WIDTH}x{HEIGHT}\n' + '\n'.join(refused[:5]))
    return np.stack(images), refused


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        raise NoPhotographsError(f'{folder} is not a folder: python -m training.data.gather makes one')
    for path in sorted(folder.iterdir()):
        if path.suffix == '.tar':
            with tarfile.open(path) as pack:
                for member in pack:
                    if member.isfile() and member.name.lower().endswith(SUFFIXES):
                        extracted = pack.extractfile(member)
                        assert extracted is not None
                        yield f'{path.name}/{member.name}', extracted.read()
        elif path.suffix.lower() in SUFFIXES:
            yield path.name, path.read_bytes()


def _usable(data: bytes) -> tuple[Image | None, str]:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE) if data else None
    if image is None:
        return None, 'not an image'
    height, width = image.shape
    if height < HEIGHT or width < WIDTH:
        return None, f'{width}x{height} is smaller than {WIDTH}x{HEIGHT}'
    if (spread := float(image.std())) < 4:
        return None, f'flat: its gray levels spread by {spread:.1f}, at least 4 are needed'
    if (height, width) != (HEIGHT, WIDTH):
        scale = max(HEIGHT / height, WIDTH / width)
        size = max(WIDTH, round(width * scale)), max(HEIGHT, round(height * scale))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        top, left = (image.shape[0] - HEIGHT) // 2, (image.shape[1] - WIDTH) // 2
        image = image[top:top + HEIGHT, left:left + WIDTH]
    return np.ascontiguousarray(image, np.uint8), ''


def drawings(count: int, seed: int) -> Image:
    """uint8 (count, HEIGHT, WIDTH): boxes, lines and writing over one another, as indoor scenes without texture have them."""
    with ThreadPoolExecutor() as pool:
        drawn = list(pool.map(lambda i: _drawing(np.random.default_rng([seed, i])), range(count)))
    return np.stack(drawn) if drawn else np.zeros((0, HEIGHT, WIDTH), np.uint8)


def _drawing(random: np.random.Generator) -> Image:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    slope = random.normal(0, 0.05, 2)
    image = np.clip(random.uniform(40, 215) + slope[0] * (x - WIDTH / 2) + slope[1] * (y - HEIGHT / 2), 0, 255).astype(np.uint8)
    for _ in range(random.integers(8, 60)):
        shade = float(random.uniform(0, 255))
        centre, size = random.uniform(0, 1, 2) * (WIDTH, HEIGHT), np.exp(random.uniform(np.log(8), np.log(260)))
        kind = random.integers(5)
        if kind == 0:
            cv2.ellipse(image, centre.astype(int).tolist(), (int(size / 2) + 1, int(size * random.uniform(0.2, 0.5)) + 1),
                        random.uniform(0, 180), 0, 360, shade, -1, cv2.LINE_AA)
        elif kind == 1:
            cv2.line(image, centre.astype(int).tolist(), (centre + random.normal(0, size * 2, 2)).astype(int).tolist(), shade,
                     int(random.integers(1, 9)), cv2.LINE_AA)
        elif kind == 2:
            text = ''.join(map(chr, random.integers(33, 127, random.integers(1, 9))))
            cv2.putText(image, text, centre.astype(int).tolist(), int(random.integers(0, 8)), size / 60, shade,
                        int(random.integers(1, 5)), cv2.LINE_AA)
        else:
            turn, sides = random.uniform(0, np.pi), random.uniform(0.3, 1, 2) * size / 2
            axes = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]) if random.random() < 0.4 else np.eye(2)
            corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * sides + random.normal(0, size * 0.05, (4, 2)) * (kind == 4)
            cv2.fillPoly(image, [(corners @ axes + centre).astype(np.int32)], shade, cv2.LINE_AA)
    grain = cv2.GaussianBlur(random.normal(0, 1, (HEIGHT, WIDTH)).astype(np.float32), (0, 0), float(random.uniform(0.7, 3)))
    soft = cv2.GaussianBlur(image, (0, 0), float(random.uniform(0.5, 1.2))).astype(np.float32)
    drawn: Image = np.clip(soft + grain * random.uniform(0, 8), 0, 255).astype(np.uint8)
    return drawn
