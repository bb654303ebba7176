"""Views of a world by ray casting (embreex): gray images with point lights and shadows, and exact depth.

The optical frame has x right, y down, z forward. Pixel centres are at integers, the principal point is at ((W-1)/2, (H-1)/2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from embreex import rtcore_scene
from embreex.mesh_construction import TriangleMesh
from numpy.typing import NDArray

from training.rendered.gazebo import World

Floats = NDArray[Any]
OFFSET = 1e-3  # metres: shadow rays start this far from the surface
HAZE = 150.0  # the gray level of rays without a hit, before exposure
SHARPNESS = 0.7  # mip levels are chosen for this share of the footprint of a ray, as four rays are averaged


@dataclass(frozen=True)
class Camera:
    """A pinhole camera. `focal` is in pixels; `pose` (4, 4) is world from camera, in metres."""

    pose: Floats
    focal: float
    width: int
    height: int

    def rays(self, samples: int = 1) -> Floats:
        """float32 (H*samples * W*samples, 3) directions in the world frame whose depth along the optical axis is 1."""
        x = ((np.arange(self.width * samples) + 0.5) / samples - self.width / 2) / self.focal
        y = ((np.arange(self.height * samples) + 0.5) / samples - self.height / 2) / self.focal
        right, down, forward = self.pose[:3, :3].T.astype(np.float32)
        rows = y.astype(np.float32)[:, None, None] * down + forward
        return np.asarray(rows + x.astype(np.float32)[:, None] * right).reshape(-1, 3)

    def smaller(self, factor: int) -> Camera:
        """The same view with 1/factor of the pixels a side."""
        return Camera(self.pose, self.focal / factor, self.width // factor, self.height // factor)


@dataclass(frozen=True)
class Light:
    """A point light: `position` (3,) in metres, `power` at one metre."""

    position: Floats
    power: float


class Hits:
    """Where rays hit: `ray` (M,) indices of the rays with a hit, `triangle` (M,), `uv` (M, 2) barycentric, `distance` (M,)."""

    def __init__(self, found: dict[str, Floats], distance_scale: Floats) -> None:
        self.ray = np.flatnonzero(found['primID'] >= 0)
        self.triangle = found['primID'][self.ray]
        self.uv = np.stack([found['u'][self.ray], found['v'][self.ray]], 1)
        self.distance = (found['tfar'][self.ray] / distance_scale[self.ray]).astype(np.float32)


class Textures:
    """Gray textures with their mip levels, all in one array, so that one gather reads any of them."""

    LEVELS = 12

    def __init__(self, images: list[NDArray[np.uint8]]) -> None:
        self.size = np.ones((len(images), self.LEVELS, 2), np.int64)  # width, height
        self.start = np.zeros((len(images), self.LEVELS), np.int64)
        parts, total = [], 0
        for i, image in enumerate(images):
            level = np.ascontiguousarray(image)
            for j in range(self.LEVELS):
                self.size[i, j], self.start[i, j] = level.shape[::-1], total
                parts.append(level.ravel())
                total += level.size
                if level.size > 1:
                    half = (max(level.shape[1] // 2, 1), max(level.shape[0] // 2, 1))
                    level = np.asarray(cv2.resize(level, half, interpolation=cv2.INTER_AREA), np.uint8).reshape(half[::-1])
        self.texels = np.concatenate(parts)

    def read(self, texture: Floats, uv: Floats, footprint: Floats) -> Floats:
        """Gray levels float32 (M,) at uv (M, 2), bilinear in the mip level that the footprint (M,), in texels, asks for."""
        level = np.clip(np.rint(np.log2(np.maximum(footprint, 1))), 0, self.LEVELS - 1).astype(np.int64)
        size, start = self.size[texture, level], self.start[texture, level]
        x = uv[:, 0] * size[:, 0] - 0.5
        y = (1 - uv[:, 1]) * size[:, 1] - 0.5
        left, top = np.floor(x), np.floor(y)
        fx, fy = (x - left).astype(np.float32), (y - top).astype(np.float32)
        x0, y0 = left.astype(np.int64) % size[:, 0], top.astype(np.int64) % size[:, 1]
        x1, y1 = (x0 + 1) % size[:, 0], (y0 + 1) % size[:, 1]
        row0, row1 = start + y0 * size[:, 0], start + y1 * size[:, 0]
        upper = self.texels[row0 + x0] * (1 - fx) + self.texels[row0 + x1] * fx
        lower = self.texels[row1 + x0] * (1 - fx) + self.texels[row1 + x1] * fx
        return np.asarray(upper * (1 - fy) + lower * fy, np.float32)


class Scene:
    """A world that rays can be cast into."""

    def __init__(self, world: World) -> None:
        surfaces = world.surfaces
        self.triangles = np.concatenate([surface.triangles for surface in surfaces]).astype(np.float32)
        self.uv = np.concatenate([surface.uv for surface in surfaces]).astype(np.float32)
        images = {id(surface.texture): surface.texture for surface in surfaces}
        places = {key: i for i, key in enumerate(images)}
        self.textures = Textures(list(images.values()))
        self.texture = np.repeat([places[id(surface.texture)] for surface in surfaces], [len(s.triangles) for s in surfaces])
        normals = np.cross(self.triangles[:, 1] - self.triangles[:, 0], self.triangles[:, 2] - self.triangles[:, 0])
        area = np.linalg.norm(normals, axis=1)
        self.normals = (normals / np.maximum(area, 1e-12)[:, None]).astype(np.float32)
        a, b = self.uv[:, 1] - self.uv[:, 0], self.uv[:, 2] - self.uv[:, 0]
        size = self.textures.size[self.texture, 0]
        texels = np.abs(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]) * size[:, 0] * size[:, 1]
        self.density = np.sqrt(texels / np.maximum(area, 1e-12)).astype(np.float32)  # texels per metre
        self._embree = rtcore_scene.EmbreeScene()
        self._mesh = TriangleMesh(self._embree, np.ascontiguousarray(self.triangles))

    def cast(self, origins: Floats, directions: Floats) -> Hits:
        """The first hits of rays. `origins` (3,) or (N, 3), `directions` (N, 3) of any length, of which distances are multiples."""
        length = _length(directions)
        unit = np.ascontiguousarray(directions / length[:, None], np.float32)
        start = np.ascontiguousarray(np.broadcast_to(origins, directions.shape), np.float32)
        return Hits(self._embree.run(start, unit, output=1), length)

    def distances(self, origins: Floats, directions: Floats) -> Floats:
        """float32 (N,): distances to the first hits, in multiples of the directions; infinite without a hit."""
        hits = self.cast(origins, directions)
        distances = np.full(len(directions), np.inf, np.float32)
        distances[hits.ray] = hits.distance
        return distances

    def depth(self, camera: Camera) -> Floats:
        """float32 (H, W): metres along the optical axis at the pixels' centres, 0 without a hit."""
        distances = self.distances(camera.pose[:3, 3], camera.rays())
        return np.where(np.isfinite(distances), distances, 0).astype(np.float32).reshape(camera.height, camera.width)

    def radiance(self, camera: Camera, lights: list[Light], ambient: float, samples: int = 2) -> Floats:
        """float32 (H, W): gray levels before exposure, the mean of samples x samples rays a pixel."""
        origin = camera.pose[:3, 3].astype(np.float32)
        rays = camera.rays(samples)
        hits = self.cast(origin, rays)
        along = rays[hits.ray]
        points = origin + along * hits.distance[:, None]
        normals = self.normals[hits.triangle]
        facing = np.einsum('ij,ij->i', normals, along)
        normals = normals * -np.sign(facing)[:, None]
        corners = self.uv[hits.triangle]
        second, third = hits.uv[:, :1], hits.uv[:, 1:]
        uv = corners[:, 0] * (1 - second - third) + corners[:, 1] * second + corners[:, 2] * third
        slant = np.abs(facing) / _length(along)
        metres = SHARPNESS * hits.distance / (camera.focal * np.sqrt(np.maximum(slant, 0.05)))
        albedo = self.textures.read(self.texture[hits.triangle], uv, metres * self.density[hits.triangle])
        shade = ambient * (0.8 + 0.2 * normals[:, 2])
        row, column = np.divmod(hits.ray, camera.width * samples)
        turn = (row + column) % max(len(lights), 1)  # each ray looks at one of the lights: a pixel has rays for all of them
        for number, light in enumerate(lights):
            mine = np.flatnonzero(turn == number)
            shade[mine] += len(lights) * self._light(light, points[mine] + OFFSET * normals[mine], normals[mine])
        image = np.full(len(rays), HAZE, np.float32)
        image[hits.ray] = albedo * shade
        large = image.reshape(camera.height * samples, camera.width * samples)
        return np.asarray(cv2.resize(large, (camera.width, camera.height), interpolation=cv2.INTER_AREA), np.float32)

    def _light(self, light: Light, points: Floats, normals: Floats) -> Floats:
        to = light.position.astype(np.float32) - points
        square = np.einsum('ij,ij->i', to, to)
        shade = np.maximum(np.einsum('ij,ij->i', to, normals) / np.sqrt(square), 0) * light.power / (0.5 + 0.5 * square)
        lit = np.flatnonzero(shade > 1e-3)
        shade[lit[self.distances(points[lit], to[lit]) < 1]] = 0
        return np.asarray(shade, np.float32)


def _length(vectors: Floats) -> Floats:
    return np.asarray(np.sqrt(np.einsum('ij,ij->i', vectors, vectors)))


@dataclass(frozen=True)
class Exposure:
    """Gray levels are `gain` times radiance plus `offset`; those above 200 are compressed."""

    gain: float
    offset: float

    @classmethod
    def of(cls, radiance: Floats, mean: float, deviation: float) -> Exposure:
        """The exposure that gives radiance this mean, and where it is dull up to this standard deviation of gray levels."""
        gain = mean / max(float(radiance.mean()), 1e-3)
        gain *= float(np.clip(deviation / max(gain * float(radiance.std()), 1e-3), 1, 1.8))
        return cls(gain, mean - gain * float(radiance.mean()))


def exposed(radiance: Floats, exposure: Exposure) -> NDArray[np.uint8]:
    """uint8 (H, W) gray levels of radiance (H, W)."""
    level = radiance * exposure.gain + exposure.offset
    level = np.where(level > 200, 200 + 55 * np.tanh((level - 200) / 55), level)
    return np.clip(np.rint(level), 0, 255).astype(np.uint8)
