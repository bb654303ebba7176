"""Gazebo worlds and models (SDF) as textured triangles.

Meshes are read by trimesh. As Gazebo does, the reader applies a mesh's unit and ignores its `up_axis`.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from trimesh.resolvers import FilePathResolver

from training.rendered.sources import RenderError

Floats = NDArray[np.float64]
PLAIN = 6.0  # gray levels: a texture whose standard deviation is below counts as plain
PLANE = 10.0  # metres: an SDF plane has no end; this much of it is kept
OPAQUE = 0.6  # surfaces of less alpha are left out


@dataclass
class Surface:
    """Triangles of one material.

    `triangles` is (N, 3, 3) in metres, world frame; `uv` is (N, 3, 2) with v upwards; `texture` is uint8 (H, W) gray.
    """

    triangles: Floats
    uv: Floats
    texture: NDArray[np.uint8]

    @property
    def plain(self) -> bool:
        """Whether the texture has no pattern."""
        return float(self.texture.std()) < PLAIN

    @property
    def areas(self) -> Floats:
        """Square metres of each triangle (N,)."""
        edges = self.triangles[:, 1:] - self.triangles[:, :1]
        return np.asarray(np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1) / 2)


@dataclass
class World:
    """The surfaces of a world, and the names of the models and meshes that could not be read."""

    surfaces: list[Surface] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of triangles."""
        return sum(len(surface.triangles) for surface in self.surfaces)


def load_world(name: str, path: Path, models: list[Path]) -> World:
    """Read an SDF world or model.

    Args:
        name: of the scene, for messages.
        path: the .world, .sdf or .xacro file. xacro conditions are not evaluated: `if` is skipped and `unless` is read.
        models: folders that `model://` and `file://` URIs refer to.

    Raises:
        RenderError: the file cannot be read, or has no mesh that can be read.

    """
    world = World()
    try:
        root = ET.parse(path).getroot()
    except (OSError, ET.ParseError) as error:
        raise RenderError(f'{name}: {path} cannot be read: {error}') from error
    _place(root.find('world') if root.find('world') is not None else root, np.eye(4), models, world)
    if not world.count:
        raise RenderError(f'{name}: {path} has no mesh that can be read (missing: {", ".join(sorted(set(world.missing)))}).')
    world.surfaces = _without_duplicates(world.surfaces)
    return world


def require_texture(name: str, world: World) -> None:
    """Raise RenderError if all surfaces are plain."""
    if all(surface.plain for surface in world.surfaces):
        raise RenderError(f'{name}: none of its {len(world.surfaces)} surfaces has a texture: give --photographs.')


def pose_of(text: str | None) -> Floats:
    """The (4, 4) matrix of an SDF pose: x y z roll pitch yaw."""
    values = [float(value) for value in (text or '').split()] or [0.0] * 6
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler('xyz', values[3:6]).as_matrix()
    matrix[:3, 3] = values[:3]
    return matrix


def _place(element: Any, pose: Floats, models: list[Path], world: World) -> None:
    """Add what an SDF element contains, in its order."""
    for child in element:
        if child.tag in ('model', 'link'):
            _place(child, pose @ pose_of(child.findtext('pose')), models, world)
        elif child.tag == 'include':
            _include(child, pose, models, world)
        elif child.tag.endswith('}unless'):
            _place(child, pose, models, world)
        elif child.tag == 'visual':
            _visual(child, pose @ pose_of(child.findtext('pose')), models, world)


def _include(element: Any, pose: Floats, models: list[Path], world: World) -> None:
    uri = (element.findtext('uri') or next((found.text for found in element.iter('uri')), '') or '').strip()
    folder = _find(uri, models)
    files = sorted(folder.glob('model*.sdf')) if folder else []
    if not files:
        world.missing.append(uri)
        return
    own = element.findtext('pose')
    for model in ET.parse(files[-1]).getroot().iter('model'):
        _place(model, pose @ pose_of(own or model.findtext('pose')), models, world)
        break


def _find(uri: str, models: list[Path]) -> Path | None:
    """The file or folder of a URI of model://, file:// or no scheme."""
    path = uri.partition('://')[2] or uri
    tried = (folder / part for folder in models for part in (path, path.removeprefix('models/')))
    return next((found for found in tried if path and found.exists()), None)


def _visual(element: Any, pose: Floats, models: list[Path], world: World) -> None:
    geometry = element.find('geometry')
    shape = geometry[0] if geometry is not None and len(geometry) else None
    if shape is None:
        return
    if shape.tag == 'mesh':
        uri = (shape.findtext('uri') or '').strip()
        path = _find(uri, models)
        surfaces = load_mesh(path) if path else None
        if surfaces is None:
            world.missing.append(uri)
            return
        scale = np.array([float(value) for value in (shape.findtext('scale') or '1 1 1').split()])
    else:
        surfaces, scale = _primitive(shape), np.ones(3)
    for surface in surfaces:
        triangles = (surface.triangles * scale) @ pose[:3, :3].T + pose[:3, 3]
        world.surfaces.append(Surface(triangles, surface.uv, surface.texture))


def _primitive(shape: Any) -> tuple[Surface, ...]:
    """A box, a cylinder, a sphere or a plane of light gray."""
    if shape.tag == 'box':
        mesh = trimesh.creation.box([float(value) for value in shape.findtext('size').split()])
    elif shape.tag == 'cylinder':
        mesh = trimesh.creation.cylinder(float(shape.findtext('radius')), float(shape.findtext('length')))
    elif shape.tag == 'sphere':
        mesh = trimesh.creation.icosphere(3, float(shape.findtext('radius')))
    elif shape.tag == 'plane':
        mesh = trimesh.creation.box([PLANE, PLANE, 1e-3])
    else:
        return ()
    triangles = np.asarray(mesh.triangles, np.float64)
    return (Surface(triangles, np.zeros((*triangles.shape[:2], 2)), np.full((1, 1), 178, np.uint8)),)


class _ByName(FilePathResolver):
    """Finds a texture by its file name anywhere in the model's folder, as exporters' paths are often wrong."""

    def get(self, name: str) -> bytes:
        """The file's bytes. Raises FileNotFoundError."""
        base = name.replace('\\', '/').rpartition('/')[2].replace('%20', ' ').lower()
        for path in sorted(Path(self.parent).parent.rglob('*')):
            if path.name.lower() == base:
                return path.read_bytes()
        raise FileNotFoundError(name)


@cache
def load_mesh(path: Path) -> tuple[Surface, ...] | None:
    """The opaque surfaces of a mesh file in metres, in its own frame; None where it cannot be read."""
    try:
        scene = trimesh.load_scene(path, resolver=_ByName(str(path)), process=False)
        scale = trimesh.units.unit_conversion(scene.units, 'meters') if scene.units else 1.0
    except Exception:  # trimesh and pycollada raise errors of every kind for a broken file
        return None
    return tuple(_surfaces(scene, scale))


def _surfaces(scene: Any, scale: float) -> Iterator[Surface]:
    for node in scene.graph.nodes_geometry:
        pose, name = scene.graph[node]
        mesh = scene.geometry[name]
        if not isinstance(mesh, trimesh.Trimesh) or not len(mesh.faces):
            continue
        triangles = np.asarray(mesh.triangles @ pose[:3, :3].T + pose[:3, 3], np.float64) * scale
        material = getattr(mesh.visual, 'material', None)
        image = getattr(material, 'baseColorTexture', None) or getattr(material, 'image', None)
        uv = getattr(mesh.visual, 'uv', None)
        colour = np.asarray(getattr(material, 'main_color', [178, 178, 178, 255]), np.float64)
        if image is None or uv is None:
            if len(colour) > 3 and colour[3] < 255 * OPAQUE:
                continue
            level = float(colour[:3] @ [0.299, 0.587, 0.114])
            yield Surface(triangles, np.zeros((*triangles.shape[:2], 2)), np.full((1, 1), min(max(level, 25), 215), np.uint8))
        else:
            yield Surface(triangles, np.asarray(uv, np.float64)[mesh.faces], np.asarray(image.convert('L'), np.uint8))


def _without_duplicates(surfaces: list[Surface]) -> list[Surface]:
    """Drop degenerate triangles, and all but one of the triangles with the same corners; a textured one stays."""
    ordered = sorted(surfaces, key=lambda surface: surface.plain)
    triangles = np.concatenate([surface.triangles for surface in ordered])
    corners = np.round(triangles / 1e-4)
    key = np.concatenate([corners.sum(1), corners.min(1), corners.max(1)], 1)
    _, first = np.unique(key, axis=0, return_index=True)
    keep = np.zeros(len(triangles), bool)
    keep[first] = True
    keep &= np.concatenate([surface.areas for surface in ordered]) > 1e-10
    parts = np.split(keep, np.cumsum([len(surface.triangles) for surface in ordered])[:-1])
    return [Surface(surface.triangles[part], surface.uv[part], surface.texture)
            for surface, part in zip(ordered, parts, strict=True) if part.any()]


def bounds(world: World) -> tuple[Floats, Floats]:
    """The 1st and 99th percentiles of the triangles' centres, weighted by area, (3,) each."""
    triangles = np.concatenate([surface.triangles for surface in world.surfaces])
    area = np.concatenate([surface.areas for surface in world.surfaces])
    chosen = np.random.default_rng(0).choice(len(triangles), 20_000, p=area / area.sum())
    points = np.einsum('ni,nij->nj', np.random.default_rng(1).dirichlet(np.ones(3), 20_000), triangles[chosen])
    low, high = np.percentile(points, [1, 99], axis=0)
    return low, high
