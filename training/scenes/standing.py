"""What stands still in the image: parts of the robot, dirt, a projector's dots, a sensor's pattern, a link's blocks.

Both views of a pair get the same pattern at the same pixels, however the camera moves. A point of it has no partner: where the
pattern hides the scene, `foreign` says so, and elsewhere the true motion does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .random import Random

Views = tuple[Tensor, Tensor | None]  # images (2P, 1, H, W) and bool alike: pixels that hide the scene; None: no pixel does
Kind = Callable[[Random, Tensor, Tensor], Views]

TWICE = 0.25  # share of those pairs with anything that have two kinds
JPEG_TABLE = (  # of luminance, quality 50: ITU-T T.81, table K.1
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112,
    100, 103, 99)


def stand(random: Random, images: Tensor, photographs: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Put something that stands still into `share` of the pairs of `images` (2B, 1, H, W) in [0, 1].

    `photographs` uint8 (N, height, width) give parts of the robot their texture. Returns the images, in steps of 1 / 255, and bool
    (2B, H, W): pixels that do not show the scene.
    """
    foreign = torch.zeros_like(images, dtype=torch.bool)
    if not share:
        return images, foreign[:, 0]
    pairs, images = len(images) // 2, images.clone()
    shares = torch.tensor([part for part, _ in KINDS], device=images.device).cumsum(0)
    first, second = (torch.bucketize(random.uniform(pairs, high=float(shares[-1])), shares).clamp(max=len(KINDS) - 1)
                     for _ in range(2))
    first = torch.where(random.happens(share, pairs), first, -1)
    second = torch.where((first >= 0) & random.happens(TWICE, pairs), second, -1)
    for number, (_, kind) in enumerate(KINDS):
        rows = torch.nonzero((first == number) | (second == number))[:, 0]
        if not len(rows):
            continue
        both = torch.cat([rows, rows + pairs])
        seen, hidden = kind(random, images[both], photographs)
        images[both] = (seen.clamp(0, 1) * 255).round() / 255
        if hidden is not None:
            foreign[both] |= hidden
    return images, foreign[:, 0]


def _lamp(random: Random, images: Tensor, _: Tensor) -> Views:
    """A lamp on the robot, and dark around what it lights."""
    x, y = _coordinates(images)
    pairs = len(images) // 2
    middle, size = _each(random, pairs, -0.3, 0.3, 2), _each(random, pairs, 0.3, 0.9, 2)
    light = torch.exp(-(((x - middle[:, :1]) / size[:, :1])**2 + ((y - middle[:, 1:]) / size[:, 1:])**2) / 2)
    gain, noise = _each(random, pairs, 0.6, 1.4), _each(random, pairs, 0, 0.015)
    return images * _twice(light * gain) + _noise(random, images) * _twice(noise), None


def _mosaic(random: Random, images: Tensor, _: Tensor) -> Views:
    """A Bayer mosaic that is taken for a gray image."""
    colours = 1 + 0.25 * _clouds(random, len(images) // 2, 3, images)
    x, y = _pixels(images)
    red, blue = (x % 2 == 0) & (y % 2 == 0), (x % 2 == 1) & (y % 2 == 1)
    gain = torch.where(red, colours[:, :1], torch.where(blue, colours[:, 1:2], colours[:, 2:]))
    return images * _twice(gain), None


def _dirt(random: Random, images: Tensor, _: Tensor) -> Views:
    """Soft spots on the lens, dark or bright."""
    pairs = len(images) // 2
    spots = _spots(random, images, 4, 60, 1.0, 7.0)
    spots = (spots * _each(random, pairs, 1, 6)).clamp(0, 1) * _each(random, pairs, 0.15, 0.8)
    haze = torch.where(random.happens(0.25, pairs, 1, 1, 1), _each(random, pairs, 0.4, 1.0), torch.zeros(1, device=images.device))
    return images + _twice(spots) * (_twice(haze) - images), None


def _dots(random: Random, images: Tensor, _: Tensor) -> Views:
    """An infrared projector's dots: they are brighter on brighter surfaces, and the scene is dimmer."""
    pairs, (height, width) = len(images) // 2, images.shape[2:]
    pattern = _spots(random, images, height * width / 400, height * width / 60, 0.5, 1.6, lattice=0.2).clamp(max=1.5)
    dim, gain, base = _each(random, pairs, 0.4, 1.0), _each(random, pairs, 0.03, 0.5), _each(random, pairs, 0.0, 0.6)
    seen = images * _twice(dim) + _twice(pattern * gain) * (_twice(base) + images)
    return seen + _noise(random, images) * _twice(_each(random, pairs, 0, 0.01)), None


def _sensor(random: Random, images: Tensor, _: Tensor) -> Views:
    """Little light on a sensor with hot pixels, a fixed pattern, stripes and noise."""
    pairs, (height, width) = len(images) // 2, images.shape[2:]
    light = torch.where(random.happens(0.7, pairs, 1, 1, 1), _each(random, pairs, 0.12, 0.5), _each(random, pairs, 0.5, 1.0))
    fixed = random.normal(pairs, 1, height, width) * _exponential(random, pairs, 0.002, 0.04)
    striped = random.happens(0.2, pairs, 1, 1, 1) * _each(random, pairs, 0, 0.02)
    fixed = fixed + striped * torch.where(random.happens(0.5, pairs, 1, 1, 1), random.normal(pairs, 1, height, 1),
                                          random.normal(pairs, 1, 1, width))
    share = torch.where(random.happens(0.6, pairs, 1, 1, 1), _exponential(random, pairs, 1e-4, 5e-3), torch.zeros_like(light))
    hot = random.happens(share, pairs, 1, height, width) * random.uniform(pairs, 1, height, width, low=0.05, high=0.9)
    return images * _twice(light) + _twice(fixed + hot) + _noise(random, images) * _twice(_each(random, pairs, 0, 0.025)), None


def _border(random: Random, images: Tensor, _: Tensor) -> Views:
    """The black surround of a wide or a straightened image: a circle, an ellipse or a rounded rectangle."""
    x, y = _coordinates(images)
    pairs = len(images) // 2
    power = _each(random, pairs, 2, 8)
    power = torch.where(random.happens(0.6, pairs, 1, 1, 1), torch.full_like(power, 2), power)
    middle, radius = _each(random, pairs, -0.08, 0.08, 2), _each(random, pairs, 0.75, 1.15, 1) * _each(random, pairs, 0.9, 1.1, 2)
    edge = ((x - middle[:, :1]).abs() / radius[:, :1])**power + ((y - middle[:, 1:]).abs() / radius[:, 1:])**power - 1
    sharp = _exponential(random, pairs, 20, 400)
    return _covered(random, images, torch.sigmoid(edge * sharp), _each(random, pairs, 0, 0.06))


def _part(random: Random, images: Tensor, photographs: Tensor) -> Views:
    """A bonnet, a gripper, a strut: something with a texture of its own that comes in from one side."""
    x, y = _coordinates(images)
    pairs, (height, width) = len(images) // 2, images.shape[2:]
    angle, reach = _each(random, pairs, -math.pi, math.pi), _each(random, pairs, 0.2, 0.9)
    ragged = _clouds(random, pairs, 1, images) * _each(random, pairs, 0.02, 0.3)
    edge = x * angle.cos() + y * angle.sin() - reach + ragged
    top, left = (int(random.integers(whole - side + 1, 1))
                 for whole, side in zip(photographs.shape[1:], images.shape[2:], strict=True))
    textures = photographs[random.integers(len(photographs), pairs), top:top + height, left:left + width][:, None].float() / 255
    contrast, shade = _each(random, pairs, 0.1, 1), _each(random, pairs, 0.1, 0.8)
    return _covered(random, images, torch.sigmoid(edge * 150), shade + (textures - 0.5) * contrast)


def _text(random: Random, images: Tensor, _: Tensor) -> Views:
    """Burnt-in writing, and digits that change from view to view."""
    pairs, (height, width) = len(images) // 2, images.shape[2:]
    lines = np.zeros((2 * pairs, 1, height, width), np.uint8)
    draws = random.uniform(pairs, 16).cpu().numpy()
    for pair, row in enumerate(draws):
        words = ''.join(chr(33 + int(part * 94)) for part in row[:10])
        size, place = 0.25 + 0.5 * row[10], (int(row[11] * width * 0.6), int(12 + row[12] * (height - 14)))
        changing = row[13] < 0.5
        for view in range(2):
            shown = f'{words}:{int(row[14 + view] * 60):02d}' if changing else words
            cv2.putText(lines[pair + view * pairs, 0], shown, place, int(row[13] * 997) % 4, size, 255, 1, cv2.LINE_AA)
    ink = torch.from_numpy(lines).to(images.device) / 255
    shade = torch.where(random.happens(0.7, pairs, 1, 1, 1), _each(random, pairs, 0.8, 1), _each(random, pairs, 0, 0.2))
    near = F.max_pool2d(ink, 5, 1, 2)
    boxed = random.happens(0.3, pairs, 1, 1, 1).repeat(2, 1, 1, 1)
    images = torch.where(boxed & (near > 0), 1 - _twice(shade), images)
    return images + ink * (_twice(shade) - images), near > 0.3


def _interlace(random: Random, images: Tensor, _: Tensor) -> Views:
    """Every second row is of another moment."""
    step = int(random.integers(13, 1)) - 6
    before = images.roll((int(random.integers(3, 1)) - 1, step), (2, 3))
    odd = _pixels(images)[1] % 2 == 1
    mixed = _each(random, len(images) // 2, 0.3, 1.0)
    return torch.where(odd, images + (before - images) * _twice(mixed), images), None


def _blocks(random: Random, images: Tensor, _: Tensor) -> Views:
    """JPEG of quality 8 to 60, as often in each octave: in a size that may not be the network's, on a grid of any phase."""
    pairs, (height, width) = len(images) // 2, images.shape[2:]
    scale = float(random.uniform(1, low=0.8, high=1.8)) if bool(random.happens(0.35, 1)) else 1.0
    sized = images if scale == 1 else F.interpolate(images, scale_factor=scale, mode='bilinear', align_corners=False,
                                                    antialias=scale < 1)
    rows, columns = sized.shape[2:]
    top, left = (int(random.integers(8, 1)) if bool(random.happens(0.5, 1)) else 0 for _ in range(2))
    padded = F.pad(sized, (left, -(left + columns) % 8, top, -(top + rows) % 8), mode='replicate')
    coded = jpeg(padded, _exponential(random, pairs, 8, 60).reshape(-1).repeat(2))[..., top:top + rows, left:left + columns]
    if scale != 1:
        coded = F.interpolate(coded, size=(height, width), mode='bilinear', align_corners=False, antialias=True)
    return coded, None


def jpeg(images: Tensor, quality: Tensor) -> Tensor:
    """Images (N, 1, H, W) in [0, 1] as a JPEG of each `quality` (N,) shows them; H and W are multiples of 8."""
    device, (height, width) = images.device, images.shape[2:]
    wave = torch.arange(8, device=device)
    basis = torch.cos((2 * wave[None] + 1) * wave[:, None] * math.pi / 16) * 0.5
    basis[0] /= math.sqrt(2)
    scale = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality)[:, None, None, None, None]
    table = torch.tensor(JPEG_TABLE, device=device, dtype=torch.float32).reshape(1, 1, 1, 8, 8)
    steps = ((table * scale + 50) / 100).floor().clamp(1, 255)
    blocks = (images[:, 0] * 255 - 128).reshape(-1, height // 8, 8, width // 8, 8).transpose(2, 3)
    waves = basis @ blocks @ basis.T
    blocks = basis.T @ ((waves / steps).round() * steps) @ basis
    return ((blocks.transpose(2, 3).reshape(-1, 1, height, width) + 128).round() / 255).clamp(0, 1)


KINDS: tuple[tuple[float, Kind], ...] = (  # how often, and what; light first, the link last
    (0.10, _lamp), (0.03, _mosaic), (0.18, _dirt), (0.18, _dots), (0.05, _border), (0.05, _part), (0.04, _text), (0.16, _sensor),
    (0.03, _interlace), (0.30, _blocks))


def _covered(random: Random, images: Tensor, cover: Tensor, content: Tensor) -> Views:
    """`content` (P, 1, ...) where `cover` (P, 1, H, W) is 1, with the noise that the scene has too."""
    cover, noise = _twice(cover), _noise(random, images) * _twice(_each(random, len(images) // 2, 0, 0.012))
    return images + cover * (_twice(content) - images) + cover * noise, cover > 0.3


def _spots(random: Random, images: Tensor, least: float, most: float, narrow: float, wide: float, lattice: float = 0.0) -> Tensor:
    """(P, 1, H, W): least to most spots of height 1, of a deviation of narrow to wide pixels; `lattice` of the pairs regular."""
    pairs, (height, width) = len(images) // 2, images.shape[2:]
    share = _exponential(random, pairs, least, most) / (4 * height * width)
    marks = random.happens(share, pairs, 1, 2 * height, 2 * width)  # twice as fine: spots stand between pixels too
    x, y = (torch.arange(2 * size, device=images.device) for size in (width, height))
    step = (share**-0.5).round().long()
    shift = random.integers(64, pairs, 1, 1, 1)
    regular = ((x + shift) % step == 0) & ((y[:, None] + shift) % step == 0)
    marks = torch.where(random.happens(lattice, pairs, 1, 1, 1), regular, marks).float()
    sigma = 2 * _exponential(random, pairs, narrow, wide).reshape(pairs, 1)
    reach = math.ceil(6 * wide)
    kernel = torch.exp(-(torch.arange(-reach, reach + 1, device=images.device) / sigma)**2 / 2)
    with torch.backends.cudnn.flags(benchmark=False):  # the number of pairs is another each time
        marks = F.conv2d(marks.transpose(0, 1), kernel[:, None, None], padding=(0, reach), groups=pairs)
        marks = F.conv2d(marks, kernel[:, None, :, None], padding=(reach, 0), groups=pairs).transpose(0, 1)
    return F.avg_pool2d(marks, 2)


def _clouds(random: Random, pairs: int, channels: int, images: Tensor) -> Tensor:
    """(P, channels, H, W), smooth, of deviation 1 or so."""
    return F.interpolate(random.normal(pairs, channels, 5, 7), size=images.shape[2:], mode='bicubic', align_corners=True)


def _each(random: Random, pairs: int, low: float, high: float, channels: int = 1) -> Tensor:
    return random.uniform(pairs, channels, 1, 1, low=low, high=high)


def _exponential(random: Random, pairs: int, low: float, high: float) -> Tensor:
    """(P, 1, 1, 1): as often in each octave."""
    return torch.exp(_each(random, pairs, math.log(low), math.log(high)))


def _noise(random: Random, images: Tensor) -> Tensor:
    return random.normal(*images.shape)


def _twice(pattern: Tensor) -> Tensor:
    """The same in both views."""
    return pattern.repeat(2, 1, 1, 1)


def _pixels(images: Tensor) -> tuple[Tensor, Tensor]:
    y, x = torch.meshgrid(*(torch.arange(size, device=images.device) for size in images.shape[2:]), indexing='ij')
    return x, y


def _coordinates(images: Tensor) -> tuple[Tensor, Tensor]:
    """x and y, -1 to 1 across the image."""
    y, x = torch.meshgrid(*(torch.linspace(-1, 1, size, device=images.device) for size in images.shape[2:]), indexing='ij')
    return x, y
