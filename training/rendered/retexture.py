"""Photographs on plain surfaces, and objects on tables and floors: another room of the same shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from training.rendered.gazebo import Surface, World, load_world
from training.rendered.raycast import Scene
from training.rendered.sources import RenderError

Floats = NDArray[Any]
LARGE, FEW = 6.0, 400  # square metres and triangles: walls and floors are larger, of fewer triangles
METRES = (0.8, 2.5)  # what the width of a photograph covers
BIN = 1.0  # metres: walls farther apart than this get photographs of their own
SUPPORT = 1.3  # metres above the floor: objects stand no higher
KINDS = 30  # of objects in one world
GROUP = 7  # objects that stand together
SMALLEST = 0.07  # metres: smaller objects are not used
DOWN = np.array([0, 0, -1], np.float32)
LEVEL = 0.012  # metres: what an object stands on is as flat as this


def retexture(world: World, photographs: NDArray[np.uint8], share: float, random: np.random.Generator) -> World:
    """A world with photographs on plain surfaces and on some walls and floors, mapped along the dominant axis of the normals.

    Args:
        world: stays as it is.
        photographs: uint8 (N, H, W) gray.
        share: of the pieces that get a photograph, 0 to 1. Half that share of the textured walls and floors is treated so.
        random: the source of chance.

    """
    if not share or not len(photographs):
        return world
    pool = [_wallpaper(photograph, random) for photograph in photographs]
    surfaces: list[Surface] = []
    for surface in world.surfaces:
        treated = surface.plain or _replaced(surface, share, random)
        surfaces += _pieces(surface, pool, share, random) if treated else [surface]
    return World(surfaces, world.missing)


def _replaced(surface: Surface, share: float, random: np.random.Generator) -> bool:
    """Whether a textured surface is a wall or a floor, and half that share of chance takes it."""
    return bool(random.random() < share / 2 and len(surface.triangles) < FEW and surface.areas.sum() > LARGE)


def _wallpaper(photograph: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
    """A photograph of another contrast and brightness, mirrored so that it repeats without an edge."""
    level, gain = random.uniform(90, 190), random.uniform(0.35, 1.0)
    changed = np.clip(level + gain * (photograph.astype(np.float32) - photograph.mean()), 0, 255).astype(np.uint8)
    wide = np.concatenate([changed, changed[:, ::-1]], 1)
    return np.concatenate([wide, wide[::-1]], 0)


def _pieces(surface: Surface, pool: list[NDArray[np.uint8]], share: float, random: np.random.Generator) -> list[Surface]:
    """A plain surface cut by the direction and the offset of its triangles."""
    triangles = surface.triangles
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    axis = np.abs(normals).argmax(1)
    rows = np.arange(len(triangles))
    offset = np.floor(triangles.mean(1)[rows, axis] / BIN)
    _, piece = np.unique(np.stack([axis, np.sign(normals[rows, axis]), offset], 1), axis=0, return_inverse=True)
    pieces = []
    for index in range(int(piece.max()) + 1):
        chosen = piece.reshape(-1) == index
        if random.random() >= share:
            pieces.append(Surface(triangles[chosen], surface.uv[chosen], surface.texture))
            continue
        image = pool[random.integers(len(pool))]
        across, up = [(1, 2), (0, 2), (0, 1)][int(axis[chosen][0])]
        metres = random.uniform(*METRES) * 2  # the mirrored image is two photographs wide
        uv = triangles[chosen][..., [across, up]] / (metres, metres * image.shape[0] / image.shape[1]) + random.random(2)
        pieces.append(Surface(triangles[chosen], uv, image))
    return pieces


def put_objects(world: World, box: tuple[Floats, Floats], models: Path, count: int,
                random: np.random.Generator) -> tuple[World, Floats]:
    """Stand objects on level surfaces, in groups, mostly on tables.

    Args:
        world: stays as it is.
        box: the lower and the upper corner of the world, (3,) each; the lower one is on the floor.
        models: the folder of models; those whose name begins with ycb_ are used.
        count: of objects; fewer are put where too little space is found.
        random: the source of chance.

    Returns:
        The world with objects, and the centres of the groups (G, 3).

    """
    folders = sorted(models.glob('ycb_*'))
    objects = [item for i in random.permutation(len(folders))[:KINDS] if (item := _object(folders[i]))]
    scene, (low, high) = Scene(world), box
    start = np.column_stack([random.uniform(low[:2], high[:2], (20_000, 2)), np.full(20_000, low[2] + SUPPORT + 0.5)])
    hits = scene.cast(start, np.broadcast_to(DOWN, start.shape))
    level = np.abs(scene.normals[hits.triangle, 2]) > 0.98
    spots = (start[hits.ray] + DOWN * hits.distance[:, None])[level]
    spots = spots[(spots[:, 2] > low[2] - 0.1) & (spots[:, 2] < low[2] + SUPPORT)]
    if not len(spots) or not objects:
        return world, np.zeros((0, 3))
    raised = spots[:, 2] > low[2] + 0.3
    weight = np.where(raised, 0.75 / max(raised.sum(), 1), 0.25 / max((~raised).sum(), 1))
    surfaces, groups, put = list(world.surfaces), [], 0
    for centre in spots[random.choice(len(spots), count, p=weight / weight.sum())]:
        taken: list[tuple[Floats, float]] = []
        for _ in range(3 * GROUP):
            item = objects[random.integers(len(objects))]
            at = centre[:2] + random.normal(0, 0.18, 2)
            if len(taken) < GROUP and (foot := _stand(scene, item, at, centre[2], taken)) is not None:
                turn = Rotation.from_euler('z', random.uniform(-np.pi, np.pi)).as_matrix()
                surfaces += [Surface(s.triangles @ turn.T + foot, s.uv, s.texture) for s in item]
                put += 1
        if taken:
            groups.append(centre - 0.08 * DOWN)
        if put >= count:
            break
    return World(surfaces, world.missing), np.array(groups).reshape(-1, 3)


def _object(folder: Path) -> list[Surface]:
    """The surfaces of a model whose lowest point is at z = 0 and whose centre is above the origin; empty if it cannot be used."""
    try:
        surfaces = load_world(folder.name, max(folder.glob('model*.sdf')), [folder.parent]).surfaces
    except (RenderError, ValueError):
        return []
    corners = np.concatenate([surface.triangles.reshape(-1, 3) for surface in surfaces])
    low, high = corners.min(0), corners.max(0)
    if (high - low).max() < SMALLEST:
        return []
    foot = np.append((low + high)[:2] / 2, low[2])
    return [Surface(surface.triangles - foot, surface.uv, surface.texture) for surface in surfaces]


def _stand(scene: Scene, item: list[Surface], at: Floats, height: float, taken: list[tuple[Floats, float]]) -> Floats | None:
    """Where the object's foot is (3,) if the place is level and free; it is added to `taken` then."""
    corners = np.concatenate([surface.triangles.reshape(-1, 3) for surface in item])
    radius = 0.8 * float(np.linalg.norm(corners[:, :2], axis=1).max())
    if any(np.linalg.norm(at - other) < radius + reach for other, reach in taken):
        return None
    above = height + corners[:, 2].max() + 0.03
    around = [[x, y] for x in (-radius, 0, radius) for y in (-radius, 0, radius)]
    start = np.column_stack([at + around, np.full(9, above)])
    found = above - scene.distances(start, np.broadcast_to(DOWN, start.shape))
    if not np.isfinite(found).all() or np.ptp(found) > LEVEL or abs(found[4] - height) > LEVEL:
        return None
    taken.append((at, radius))
    return np.append(at, found.max())
