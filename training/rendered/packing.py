"""Packs of views: views.NN.tar with SCENE/NNNN.jpg, SCENE/NNNN.depth.png and SCENE/views.csv."""

from __future__ import annotations

import csv
import io
import tarfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from training.rendered.check import View
from training.rendered.raycast import Camera
from training.rendered.sources import RenderError

PART_BYTES = 28 * 1024 * 1024
QUALITY = 92
COLUMNS = ('name', 'cluster', 'focal', 'tx', 'ty', 'tz', 'qx', 'qy', 'qz', 'qw')
STEPS = ((2000, 2), (4000, 8), (8000, 16))  # from this depth, depth is rounded to this step, millimetres each


def millimetres(depth: NDArray[Any]) -> NDArray[np.uint16]:
    """uint16 (H, W) of metres (H, W), rounded the more the farther: by at most 0.1 pixels of parallax. Beyond 65 m it is 0."""
    fine = np.where(depth < 65, depth, 0) * 1000.0
    step = np.ones_like(fine)
    for start, width in STEPS:
        step[fine >= start] = width
    return (np.rint(fine / step) * step).astype(np.uint16)


def encode(view: View) -> tuple[bytes, bytes]:
    """The JPEG of the image and the PNG of the depth."""
    image_done, image = cv2.imencode('.jpg', view.image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1])
    depth_done, depth = cv2.imencode('.png', view.depth, [cv2.IMWRITE_PNG_COMPRESSION, 9])
    assert image_done
    assert depth_done
    return image.tobytes(), depth.tobytes()


class Pack:
    """Writes parts of at most 28 MiB under temporary names; `finish` names them and removes the parts of an earlier pack."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: list[Path] = []
        self._members: list[tuple[str, bytes]] = []
        self._rows: dict[str, list[str]] = {}
        self._size = 0
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, scene: str, cluster: list[View]) -> None:
        """Add the views of one cluster, all into one part."""
        members, rows = [], []
        for view in cluster:
            image, depth = encode(view)
            members += [(f'{scene}/{view.name}.jpg', image), (f'{scene}/{view.name}.depth.png', depth)]
            rows.append(_row(view))
        size = sum(512 + (len(data) + 511) // 512 * 512 for _, data in members) + 1024 * len(rows)
        if self._size + size > PART_BYTES - 256 * 1024:
            self._write()
        self._members += members
        self._rows.setdefault(scene, []).extend(rows)
        self._size += size

    def _write(self) -> None:
        if not self._members:
            return
        self.parts.append(self.folder / f'views.{len(self.parts):02d}.tar')
        heads = [(f'{scene}/views.csv', '\n'.join([','.join(COLUMNS), *rows, '']).encode()) for scene, rows in self._rows.items()]
        with tarfile.open(self.parts[-1].with_suffix('.tmp'), 'w', format=tarfile.USTAR_FORMAT) as archive:
            for name, data in heads + self._members:
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        self._members, self._rows, self._size = [], {}, 0

    def finish(self) -> list[Path]:
        """Close the last part and give all parts their names. Returns them."""
        self._write()
        for old in self.folder.glob('views.*.tar'):
            old.unlink()
        for part in self.parts:
            part.with_suffix('.tmp').replace(part)
        return self.parts


def _row(view: View) -> str:
    pose = view.camera.pose
    values = [*pose[:3, 3], *Rotation.from_matrix(pose[:3, :3]).as_quat()]
    return ','.join([view.name, str(view.cluster), f'{view.camera.focal:.4f}', *(f'{value:.7f}' for value in values)])


def read_pack(folder: Path) -> dict[str, list[View]]:
    """The views of each scene, in the order of the pack. Raises RenderError for a pack that is not whole."""
    scenes: dict[str, list[View]] = {}
    for path in sorted(folder.glob('views.*.tar')):
        with tarfile.open(path) as archive:
            members = {entry.name: archive.extractfile(entry) for entry in archive}
            files = {name: stream.read() for name, stream in members.items() if stream}
        for head in [name for name in files if name.endswith('/views.csv')]:
            scene = head.rpartition('/')[0]
            for row in csv.DictReader(io.StringIO(files[head].decode())):
                try:
                    scenes.setdefault(scene, []).append(_view(scene, row, files))
                except (KeyError, ValueError, TypeError, cv2.error) as error:
                    raise RenderError(f'{path}: {scene}/{row.get("name")}: {error!r}') from error
    return scenes


def _view(scene: str, row: dict[str, str], files: dict[str, bytes]) -> View:
    image = cv2.imdecode(np.frombuffer(files[f'{scene}/{row["name"]}.jpg'], np.uint8), cv2.IMREAD_GRAYSCALE)
    depth = cv2.imdecode(np.frombuffer(files[f'{scene}/{row["name"]}.depth.png'], np.uint8), cv2.IMREAD_UNCHANGED)
    if image is None or depth is None:
        raise ValueError('the image or the depth cannot be decoded')
    pose = np.eye(4)
    pose[:3, 3] = [float(row[key]) for key in ('tx', 'ty', 'tz')]
    pose[:3, :3] = Rotation.from_quat([float(row[key]) for key in ('qx', 'qy', 'qz', 'qw')]).as_matrix()
    camera = Camera(pose, float(row['focal']), image.shape[1], image.shape[0])
    return View(row['name'], int(row['cluster']), camera, np.asarray(image, np.uint8), np.asarray(depth, np.uint16))
