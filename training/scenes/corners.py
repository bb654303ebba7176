"""How much a pixel is a corner (Shi and Tomasi, Good Features to Track, CVPR 1994), whichever way up it is seen."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

GRADIENT, WINDOW = 0.8, 1.5  # standard deviations, pixels, of the derivatives and of the window that they are collected in
REACH = 5


def corner_scores(images: Tensor) -> Tensor:
    """uint8 (N, H, W) -> float16 (N, H, W): root of the smaller eigenvalue of the structure tensor, gray levels per pixel."""
    x = images[:, None].float()
    smooth, slope = _gaussian(GRADIENT, x), _slope(GRADIENT, x)
    du, dv = _separable(x, slope, smooth), _separable(x, smooth, slope)
    window = _gaussian(WINDOW, x)
    uu, vv, uv = (_separable(product, window, window) for product in (du * du, dv * dv, du * dv))
    smaller = (uu + vv) / 2 - torch.sqrt(((uu - vv) / 2) ** 2 + uv ** 2)
    return smaller.clamp_min(0).sqrt()[:, 0].half()


def blurred(images: Tensor, sigma: float) -> Tensor:
    """(N, 1, H, W) under a Gaussian of `sigma` pixels."""
    kernel = _gaussian(sigma, images)
    return _separable(images, kernel, kernel)


def _gaussian(sigma: float, like: Tensor) -> Tensor:
    x = torch.arange(-REACH, REACH + 1, device=like.device, dtype=like.dtype)
    kernel = torch.exp(-(x / sigma) ** 2 / 2)
    return kernel / kernel.sum()


def _slope(sigma: float, like: Tensor) -> Tensor:
    x = torch.arange(-REACH, REACH + 1, device=like.device, dtype=like.dtype)
    kernel = x * _gaussian(sigma, like)
    return kernel / (kernel * x).sum()


def _separable(x: Tensor, along_u: Tensor, along_v: Tensor) -> Tensor:
    padded = F.pad(x, (REACH,) * 4, mode='replicate')
    return F.conv2d(F.conv2d(padded, along_u[None, None, None]), along_v[None, None, :, None])
