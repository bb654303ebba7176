"""Where the planes of a scene lie, and how two cameras see them.

Three kinds of scene: one photograph under two strong homographies; planes in layers, before one another; rooms and roads, seen
from inside. A plane n . X = d induces the homography K (R + t n^T / d) K^-1 between two views (Hartley and Zisserman, Multiple
View Geometry, 13.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..constants import constant
from .matrices import inverse, rotation, translation, turn
from .random import Random

PLANES = 6
DEGREE = math.pi / 180
FLAT, LAYERED = 0.35, 0.33  # shares of the kinds of scene; the rest are rooms


@dataclass(frozen=True)
class Mixture:
    """Which pairs are drawn, and how often."""

    ease: float = 1.0  # power of how far apart two cameras are: above 1, more pairs are near each other
    reach: float = 1.0  # multiplies that distance and the angle between them
    turned: float = 0.3  # share of pairs whose second camera is turned about its axis by any angle
    standing: float = 0.0  # share with something that stands still in the image
    still: float = 0.0  # share that a standing camera sees


EVEN = Mixture()


@dataclass
class Geometry:
    """B pairs of views of up to PLANES planes each."""

    textures: Tensor  # (2B, PLANES, 3, 3): pixel of the view -> pixel of the plane's photograph
    across: Tensor  # (2B, PLANES, 3, 3): pixel of the view -> pixel of the other view
    nearness: Tensor  # (2B, PLANES, 3): inverse depth is its product with (u, v, 1); not positive where the plane is not seen
    pieces: Tensor  # bool (B, PLANES): a piece of a plane, with an outline of its own
    still: Tensor  # bool (B,): of a camera that stands


def draw_geometry(random: Random, pairs: int, height: int, width: int, photo_height: int, photo_width: int,
                  mixture: Mixture = EVEN) -> Geometry:
    """Random scenes; the first B rows of the views are seen by the first camera, the others by the second.

    Homographies of one photograph do not depend on the mixture's `reach`.
    """
    apart = random.uniform(pairs) ** mixture.ease  # how far apart the two views are
    hard = mixture.reach * apart
    turned = random.happens(mixture.turned, pairs)
    roll = torch.where(turned, random.uniform(pairs, low=-math.pi, high=math.pi), torch.zeros(pairs, device=random.device))
    stands = random.happens(mixture.still, pairs) if mixture.still else torch.zeros(pairs, device=random.device, dtype=torch.bool)
    moves = (~stands).float()
    kind = random.uniform(pairs)
    flat, room = kind < FLAT, kind > FLAT + LAYERED
    camera = _intrinsics(random, pairs, height, width)
    normals, distances, exists, pieces, scale = _planes(random, pairs, room)
    spread = torch.stack([0.7 + 7 * hard, 1.0 + 10 * hard, 0.5 + 8 * hard], 1)
    roll = roll * moves
    r = turn(roll) @ rotation(random.normal(pairs, 3) * (spread * moves[:, None]) * DEGREE)
    forward = torch.where(random.happens(0.5, pairs), 3.0, 0.7)
    direction = random.normal(pairs, 3)
    direction = F.normalize(torch.cat([direction[:, :2], direction[:, 2:] * forward[:, None]], 1), dim=1)
    t = direction * (moves * scale * (0.006 + 0.3 * hard * random.uniform(pairs)))[:, None]

    back = inverse(camera)[:, None]
    over = normals / distances[..., None]
    across = camera[:, None] @ (r[:, None] + t[:, None, :, None] * over[..., None, :]) @ back
    near0 = (over[..., None, :] @ back)[..., 0, :]
    normals1 = (r[:, None] @ normals[..., None])[..., 0]
    distances1 = distances + (normals1 * t[:, None]).sum(-1)
    near1 = ((normals1 / distances1[..., None])[..., None, :] @ back)[..., 0, :]
    textures = _textures(random, normals, distances, camera, photo_height, photo_width, width) @ back

    size = random.uniform(pairs, low=0.8, high=1.25)  # of what both views show
    texture0, texture1 = (_photograph(random, apart * share, size, height, width, photo_height, photo_width)
                          for share in (0.7, 1.0))
    shift = random.normal(pairs, 2) * constant((width, height), random.device) * (0.01 + 0.15 * apart)[:, None]
    middle = constant((photo_width, photo_height), random.device) * (0.5 + 0.15 * random.normal(pairs, 2))
    texture1 = torch.where(stands[:, None, None], texture0, texture1)
    texture0 = translation(middle) @ texture0
    texture1 = translation(middle + shift * moves[:, None]) @ texture1 @ _about_centre(turn(roll), height, width)
    everywhere = constant((0.0, 0.0, 1.0), random.device)
    alone = flat[:, None, None]
    textures[:, 0] = torch.where(alone, texture0, textures[:, 0])
    across[:, 0] = torch.where(alone, inverse(texture1) @ texture0, across[:, 0])
    near0[:, 0] = torch.where(flat[:, None], everywhere, near0[:, 0])
    near1[:, 0] = torch.where(flat[:, None], everywhere, near1[:, 0])
    exists[:, 1:] &= ~flat[:, None]
    nearness = torch.cat([torch.where(exists[..., None], near, -everywhere) for near in (near0, near1)])
    backwards = inverse(across)
    return Geometry(torch.cat([textures, textures @ backwards]), torch.cat([across, backwards]), nearness, pieces, stands)


def _intrinsics(random: Random, pairs: int, height: int, width: int) -> Tensor:
    focal = width * random.uniform(pairs, low=0.55, high=1.25)
    camera = torch.eye(3, device=random.device).repeat(pairs, 1, 1)
    camera[:, 0, 0] = camera[:, 1, 1] = focal
    camera[:, 0, 2], camera[:, 1, 2] = (width - 1) / 2, (height - 1) / 2
    return camera


def _planes(random: Random, pairs: int, room: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Normals (B, PLANES, 3), distances, which are there, which are pieces (all (B, PLANES)), and the scene's scale (B,)."""
    tilt = random.normal(pairs, PLANES, 2) * 0.45
    tilt[:, 0] *= 0.6
    depth = random.uniform(pairs, PLANES, low=1.5, high=6)
    depth[:, 0] = random.uniform(pairs, low=6, high=12)
    normals = F.normalize(F.pad(tilt, (0, 1), value=1.0), dim=-1)
    distances = normals[..., 2] * depth
    exists = random.happens(0.7, pairs, PLANES)
    exists[:, 0] = True
    pieces = torch.ones(pairs, PLANES, device=random.device, dtype=torch.bool)
    pieces[:, 0] = False

    walls = constant(((0, 0, 1), (0, 1, 0), (-1, 0, 0), (1, 0, 0), (0, -1, 0)), random.device)
    walls = F.normalize(walls + random.normal(pairs, 5, 3) * 0.08, dim=-1)
    view = rotation(random.normal(pairs, 3) * constant((8.0, 25.0, 6.0), random.device) * DEGREE)
    walls = walls @ view.transpose(1, 2)
    bounds = constant(((4, 25), (0.7, 2), (1, 6), (1, 6), (1, 4)), random.device)  # back, floor, left, right, ceiling
    away = bounds[:, 0] + random.uniform(pairs, 5) * (bounds[:, 1] - bounds[:, 0])
    seen = random.uniform(pairs, 5) < constant((1.0, 0.95, 0.6, 0.6, 0.4), random.device)
    normals[:, :5] = torch.where(room[:, None, None], walls, normals[:, :5])
    distances[:, :5] = torch.where(room[:, None], away, distances[:, :5])
    exists[:, :5] = torch.where(room[:, None], seen, exists[:, :5])
    pieces[:, :5] &= ~room[:, None]
    return normals, distances, exists, pieces, torch.where(room, away[:, 1] * 3, depth[:, 0] * 0.5)


def _textures(random: Random, normals: Tensor, distances: Tensor, camera: Tensor, photo_height: int, photo_width: int,
              width: int) -> Tensor:
    """(B, PLANES, 3, 3): a ray of the first camera -> pixel of the photograph on the plane; most photographs hang upright."""
    pairs = len(normals)
    down = constant((0.0, 1.0, 0.0), random.device) + 0.1 * random.normal(pairs, PLANES, 3)
    any_way = random.normal(pairs, PLANES, 3)
    up = F.normalize(torch.where(random.happens(0.6, pairs, PLANES, 1), down, any_way), dim=-1)
    right = F.normalize(torch.linalg.cross(up, normals), dim=-1)
    below = torch.linalg.cross(normals, right)
    pixels = camera[:, :1, 0] / distances.clamp_min(0.3) * torch.exp(random.uniform(pairs, PLANES, low=-0.7, high=0.4))
    pixels = pixels * (photo_width / max(width, 640))
    origin = random.uniform(pairs, PLANES, 2) * constant((photo_width, photo_height), random.device)
    scale = (pixels * distances)[..., None]
    return torch.stack([scale * right + origin[..., :1] * normals, scale * below + origin[..., 1:] * normals, normals], -2)


def _photograph(random: Random, hard: Tensor, size: Tensor, height: int, width: int, photo_height: int, photo_width: int) -> Tensor:
    """(B, 3, 3): pixel of a view -> pixel of the photograph about its middle, a strong homography where `hard` (B,) is near 1."""
    pairs = len(hard)
    zoom = torch.exp(random.uniform(pairs, low=-1, high=1) * (0.02 + 0.61 * hard)) * size
    zoom = zoom * min(1.0, 0.8 * min(photo_width / width, photo_height / height))
    shape = turn(random.normal(pairs) * (0.03 + 0.3 * hard))
    shape = shape * torch.stack([zoom, zoom, torch.ones_like(zoom)], -1)[:, :, None]
    shear = torch.eye(3, device=random.device).repeat(pairs, 1, 1)
    amount = random.normal(pairs, 2) * (0.02 + 0.12 * hard)[:, None]
    shear[:, 0, 1], shear[:, 1, 0] = amount[:, 0], amount[:, 1]
    perspective = torch.eye(3, device=random.device).repeat(pairs, 1, 1)
    perspective[:, 2, :2] = random.normal(pairs, 2).clamp(-2, 2) * (0.05 + 0.35 * hard)[:, None] / width
    centre = constant(((width - 1) / 2, (height - 1) / 2), random.device)
    return shape @ shear @ perspective @ translation(-centre)


def _about_centre(m: Tensor, height: int, width: int) -> Tensor:
    centre = constant(((width - 1) / 2, (height - 1) / 2), m.device)
    return translation(centre) @ m @ translation(-centre)
