"""Effects of light, lens and sensor on a view."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .random import Random

REACH = 4  # pixels of blur on either side


def photometric(random: Random, images: Tensor) -> Tensor:
    """(V, 1, H, W) in [0, 1] -> the same under another exposure, shading, blur and noise, in steps of 1 / 255."""
    images = _expose(random, images.clamp(0, 1))
    images = _shade(random, images)
    images = _blur(random, images)
    return (_noise(random, images).clamp(0, 1) * 255).round() / 255


def _each(random: Random, images: Tensor, low: float, high: float) -> Tensor:
    return random.uniform(len(images), 1, 1, 1, low=low, high=high)


def _expose(random: Random, images: Tensor) -> Tensor:
    images = images ** torch.exp(random.normal(len(images), 1, 1, 1) * 0.3)
    dark = random.happens(0.08, len(images), 1, 1, 1)  # at night: little light, and the noise that comes with it
    gain = torch.where(dark, _each(random, images, 0.12, 0.4), _each(random, images, 0.5, 1.3))
    offset = torch.where(dark, gain / 2, 0.5 + _each(random, images, -0.2, 0.2))
    return (images - 0.5) * gain + offset


def _shade(random: Random, images: Tensor) -> Tensor:
    n, _, height, width = images.shape
    light = F.interpolate(random.normal(n, 1, 4, 5), size=(height, width), mode='bicubic', align_corners=False)
    return images * (1 + light * (0.2 * random.happens(0.5, n, 1, 1, 1)))


def _blur(random: Random, images: Tensor) -> Tensor:
    """Gaussian, stretched along a direction where the camera moves."""
    n, _, height, width = images.shape
    angle = random.uniform(n, high=math.pi)
    length = random.uniform(n, high=3.0) * random.happens(0.3, n)
    sigma = 0.35 + random.uniform(n) * random.happens(0.4, n)
    offsets = torch.arange(-REACH, REACH + 1, device=images.device).float()
    y, x = torch.meshgrid(offsets, offsets, indexing='ij')
    cos, sin = torch.cos(angle)[:, None, None], torch.sin(angle)[:, None, None]
    along, across = (x * cos + y * sin) / (sigma + length)[:, None, None], (y * cos - x * sin) / sigma[:, None, None]
    kernel = torch.exp(-(along ** 2 + across ** 2) / 2)
    kernel = kernel / kernel.sum((1, 2), keepdim=True)
    padded = F.pad(images, (REACH,) * 4, mode='replicate').reshape(1, n, height + 2 * REACH, width + 2 * REACH)
    return F.conv2d(padded, kernel[:, None], groups=n).reshape(n, 1, height, width)


def _noise(random: Random, images: Tensor) -> Tensor:
    return images + random.normal(*images.shape) * (0.035 * _each(random, images, 0, 1) ** 2)
