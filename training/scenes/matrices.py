"""Batches of small matrices in closed form: neither waits for the device, as the general solvers do."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def inverse(m: Tensor) -> Tensor:
    """(..., 3, 3) -> its inverse by the adjugate, computed in float64: homographies in pixels span many magnitudes."""
    a, b, c = m.double().unbind(-2)
    adjugate = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], -1)
    determinant = (a * adjugate[..., :, 0]).sum(-1)
    return (adjugate / determinant[..., None, None]).to(m.dtype)


def rotation(vector: Tensor) -> Tensor:
    """(..., 3) axis times angle, radians -> (..., 3, 3), by Rodrigues' formula."""
    angle = vector.norm(dim=-1, keepdim=True).clamp_min(1e-9)
    x, y, z = (vector / angle).unbind(-1)
    zero = torch.zeros_like(x)
    k = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))
    sin, cos = torch.sin(angle)[..., None], torch.cos(angle)[..., None]
    return torch.eye(3, device=vector.device) + sin * k + (1 - cos) * (k @ k)


def turn(angle: Tensor) -> Tensor:
    """(...) radians about the optical axis -> (..., 3, 3)."""
    return rotation(F.pad(angle[..., None], (2, 0)))


def translation(shift: Tensor) -> Tensor:
    """(..., 2) -> the homography (..., 3, 3) that adds it."""
    m = torch.eye(3, device=shift.device).expand(*shift.shape[:-1], 3, 3).clone()
    m[..., :2, 2] = shift
    return m
