"""Pairs of rendered views with depth, and where a point of one is in the other: true parallax and occlusion.

`python -m training.rendered.make` writes the packs that are read here.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..constants import constant
from ..photographs import NoPhotographsError
from .photometry import photometric
from .random import Random
from .standing import stand
from .views import flat_index, other, show_the_scene

FAR = 1000.0  # metres: where a view shows nothing
OVERLAP = 0.15  # least share of each view that the other one sees
TOLERANCE, CLOSEST = 0.03, 0.05  # of the depth, for a point that is not hidden; metres, for one that is before the camera
UPSIDE_DOWN = 0.15  # share of pairs whose second camera is
ROLL = 4.0  # degrees, standard deviation; ten at most


@dataclass
class Pack:
    """N views, each with the cluster that it is near others of."""

    images: NDArray[np.uint8]  # (N, H, W)
    depths: NDArray[np.float32]  # (N, H, W), metres along the optical axis, FAR where nothing is
    cameras: NDArray[np.float32]  # (N, 3, 3), intrinsics
    poses: NDArray[np.float32]  # (N, 4, 4), world from camera
    clusters: list[str]


def load_views(folder: Path) -> Pack:
    """Every view of the tar files in `folder`. Raises NoPhotographsError where there is none."""
    paths = sorted(folder.glob('views.*.tar'))
    rows = [row for path in paths for row in _rows(path)]
    if not rows:
        raise NoPhotographsError(f'{folder} holds no views.NN.tar with views: python -m training.rendered.make writes them')
    images, depths, cameras, poses, clusters = zip(*rows, strict=True)
    return Pack(np.stack(images), np.stack(depths), np.stack(cameras), np.stack(poses), list(clusters))


def _rows(path: Path) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], str]]:
    with tarfile.open(path) as pack:
        read = {member.name: pack.extractfile(member).read() for member in pack if member.isfile()}  # type: ignore[union-attr]
    for table in sorted(name for name in read if name.endswith('/views.csv')):
        scene = table.rsplit('/', 1)[0]
        for row in csv.DictReader(io.StringIO(read[table].decode())):
            image = cv2.imdecode(np.frombuffer(read[f'{scene}/{row["name"]}.jpg'], np.uint8), cv2.IMREAD_GRAYSCALE)
            depth = cv2.imdecode(np.frombuffer(read[f'{scene}/{row["name"]}.depth.png'], np.uint8), cv2.IMREAD_UNCHANGED)
            assert image is not None
            assert depth is not None
            height, width = image.shape
            focal = float(row['focal'])
            camera = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1]], np.float32)
            metres = np.where(depth > 0, depth / 1000, FAR).astype(np.float32)
            yield np.asarray(image, np.uint8), metres, camera, _pose(row), f'{scene}/{row["cluster"]}'


def _pose(row: dict[str, str]) -> NDArray[np.float32]:
    """(4, 4), world from camera, of a unit quaternion and a position."""
    x, y, z, w = (float(row[name]) for name in ('qx', 'qy', 'qz', 'qw'))
    pose = np.eye(4, dtype=np.float32)
    pose[:3, :3] = [[1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                    [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                    [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]]
    pose[:3, 3] = [float(row[name]) for name in ('tx', 'ty', 'tz')]
    return pose


@dataclass
class RenderedViews:
    """B pairs, in rows as TwoViews has them."""

    images: Tensor  # (2B, 1, H, W), as a camera sees them
    foreign: Tensor  # bool (2B, H, W): pixels that do not show the scene
    depths: Tensor  # (2B, H, W), metres
    rays: Tensor  # (2B, 3, 3): pixel -> its ray, of a depth of 1
    cameras: Tensor  # (2B, 3, 3): the inverse of `rays`
    across: Tensor  # (2B, 3, 4): from a view's camera to the other view's

    def transfer(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """As TwoViews.transfer."""
        height, width = self.depths.shape[1:]
        depth = self.depths.flatten(1).gather(1, flat_index(points, height, width))[..., None]
        positions = depth * (F.pad(points, (0, 1), value=1.0) @ self.rays.transpose(1, 2))
        positions = positions @ self.across[..., :3].transpose(1, 2) + self.across[:, None, :, 3]
        z = positions[..., 2]
        ahead = z > CLOSEST
        projected = positions @ other(self.cameras).transpose(1, 2)
        transferred = projected[..., :2] / z.clamp_min(CLOSEST)[..., None]
        transferred = torch.where(ahead[..., None], transferred.clamp(-1e5, 1e5), -1e5)
        whole = transferred.round()
        inside = ahead & (whole >= 0).all(-1) & (whole[..., 0] < width) & (whole[..., 1] < height)
        surface = other(self.depths).flatten(1).gather(1, flat_index(transferred, height, width))
        return transferred, inside & ((surface - z).abs() < TOLERANCE * z) & show_the_scene(self.foreign, points, transferred)


class RenderedScenes:
    """Pairs out of a pack's clusters, scaled to (height, width), on `device`. A random motion in the image plane is added.

    `standing` is the share of pairs with something that stands still in the image.
    """

    def __init__(self, pack: Pack, height: int, width: int, seed: int, device: torch.device, standing: float = 0.0) -> None:
        self.random, self.size, self.standing = Random(seed, device), (height, width), standing
        scale = width / pack.images.shape[2], height / pack.images.shape[1]
        resized = np.stack([cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA) for image in pack.images])
        depths = np.stack([cv2.resize(depth, (width, height), interpolation=cv2.INTER_NEAREST) for depth in pack.depths])
        self.images = torch.from_numpy(resized).to(device)
        depths = torch.from_numpy(depths).to(device)[:, None]
        self.depths = -F.max_pool2d(-depths, 3, 1, 1)[:, 0]  # a corner on an outline belongs to what is before
        to_size = np.array([[scale[0], 0, (scale[0] - 1) / 2], [0, scale[1], (scale[1] - 1) / 2], [0, 0, 1]], np.float32)
        self.cameras = torch.from_numpy(to_size @ pack.cameras).to(device)
        self.poses = torch.from_numpy(pack.poses).to(device)
        self.pairs = self._overlapping(_within_clusters(pack.clusters))

    @torch.no_grad()
    def draw(self, pairs: int) -> RenderedViews:
        chosen = self.pairs[self.random.integers(len(self.pairs), pairs)]
        swapped = self.random.happens(0.5, pairs)[:, None]
        views = torch.where(swapped, chosen.flip(1), chosen).T.flatten()
        motion = self._motion(pairs)
        found = self._views(views, motion)
        found.images, found.foreign = stand(self.random, photometric(self.random, found.images), self.images, self.standing)
        return found

    def _motion(self, pairs: int) -> Tensor:
        """(2B, 3, 3): pixel of a view as it was rendered -> pixel as it is drawn; nothing beyond the rendered view is shown."""
        height, width = self.size
        angle = (self.random.normal(2 * pairs) * ROLL).clamp(-10, 10) * (math.pi / 180)
        zoom = self.random.uniform(pairs, low=1.0, high=1.3).repeat(2)
        zoom = zoom * (angle.cos() + max(height, width) / min(height, width) * angle.sin().abs())
        upside_down = self.random.happens(UPSIDE_DOWN, pairs)
        angle = angle + math.pi * torch.cat([torch.zeros_like(upside_down), upside_down])
        mirrored = torch.where(self.random.happens(0.5, pairs), -1.0, 1.0).repeat(2)
        cos, sin, zero = zoom * angle.cos(), zoom * angle.sin(), torch.zeros_like(angle)
        x, y = (width - 1) / 2, (height - 1) / 2
        return torch.stack([cos * mirrored, -sin, x - cos * mirrored * x + sin * y,
                            sin * mirrored, cos, y - sin * mirrored * x - cos * y, zero, zero, zero + 1], -1).reshape(-1, 3, 3)

    def _views(self, views: Tensor, motion: Tensor) -> RenderedViews:
        height, width = self.size
        back = torch.linalg.inv(motion)
        y, x = torch.meshgrid(torch.arange(height, device=back.device), torch.arange(width, device=back.device), indexing='ij')
        pixels = torch.stack([x, y, torch.ones_like(x)], -1).reshape(-1, 3).float()
        source = (pixels @ back.transpose(1, 2))[..., :2]
        grid = (source / constant(((width - 1) / 2, (height - 1) / 2), back.device) - 1).reshape(-1, height, width, 2)
        images = F.grid_sample(self.images[views][:, None].float() / 255, grid, align_corners=True, padding_mode='border')
        depths = self.depths[views].flatten(1).gather(1, flat_index(source, height, width)).reshape(-1, height, width)
        cameras, poses = motion @ self.cameras[views], self.poses[views]
        nothing = torch.zeros_like(depths, dtype=torch.bool)
        return RenderedViews(images, nothing, depths, torch.linalg.inv(cameras), cameras,
                             (torch.linalg.inv(other(poses)) @ poses)[:, :3])

    @torch.no_grad()
    def _overlapping(self, pairs: list[tuple[int, int]]) -> Tensor:
        device, (height, width) = self.images.device, self.size
        y, x = torch.meshgrid(torch.arange(8, height, 16), torch.arange(8, width, 16), indexing='ij')
        points = torch.stack([x, y], -1).reshape(1, -1, 2).float().to(device)
        kept = []
        for part in torch.tensor(pairs, device=device).split(64):
            still = torch.eye(3, device=device).expand(2 * len(part), 3, 3)
            _, visible = self._views(part.T.flatten(), still).transfer(points.expand(2 * len(part), -1, -1))
            shares = visible.float().mean(1).reshape(2, -1)
            kept.append(part[(shares > OVERLAP).all(0)])
        found = torch.cat(kept)
        if not len(found):
            raise NoPhotographsError(f'no two of {len(self.images)} rendered views see {OVERLAP:.0%} of each other: render others')
        return found


def _within_clusters(clusters: list[str]) -> list[tuple[int, int]]:
    members = defaultdict(list)
    for view, cluster in enumerate(clusters):
        members[cluster].append(view)
    return [pair for views in members.values() for pair in itertools.combinations(views, 2)]
