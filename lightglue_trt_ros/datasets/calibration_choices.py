"""The cameras of a calibration file, and which of them a path names: camchain.yaml:cam1, or two of a pair.

`calibration_values` has what a file says, `calibration_forms` what each form means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.cameras import Intrinsics
from ..core.types import Float64
from ..utils.errors import BagError, first_of, naming
from .calibration_exports import as_chain
from .calibration_forms import DescribedCamera, described, of_size, sized
from .calibration_lens import doubt_of_lens
from .calibration_values import READ, values_of

LEAST_SCALE, ALIKE = 0.2, 0.1  # of a principal point over the middle: of images of another size, and what may differ
MOST_NAMED = 8  # of a file's cameras or keys in a message: COLMAP may have a camera for each image


class Choice(NamedTuple):
    """A camera of a file."""

    file: Path
    name: str  # of the camera in the file; empty: the file has one, without a name
    camera: DescribedCamera
    note: str = ''  # for people, on what the file leaves open

    @property
    def words(self) -> str:
        return f'{self.file}, {self.name}' if self.name else str(self.file)

    @property
    def label(self) -> str:
        return self.name or self.file.name

    def read(self, rectified: bool) -> Intrinsics:
        """Its intrinsics. Raises BagError, as the others."""
        with self.naming():
            camera = self.camera.intrinsics(rectified)
            if doubt := doubt_of_size(camera):
                raise ValueError(f'{doubt}: give K of this size, or the size of that K; of cropped images, subtract what was cut '
                                 'at the left and the top from cx and cy')
            return replace(camera, source=', '.join(filter(None, (self.words, camera.source, self.note, doubt_of_lens(camera)))))

    def in_body(self) -> Float64 | None:
        with self.naming():
            return self.camera.in_body()

    def has_pose(self) -> bool:
        with self.naming():
            return any(pose is not None for pose in (self.camera.in_left(), self.camera.in_body(), self.camera.in_rig(False)))

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Errors name the file and the camera."""
        try:
            yield
        except KeyError as error:
            keys = first_of(self.camera.keys, MOST_NAMED)
            raise BagError(f'{self.words} has no {error.args[0]}' + (f', it has {keys}' if keys else '')
                           + f'; {_named_file(self.file) or READ}') from None
        except (ValueError, TypeError, BagError) as error:
            raise BagError(f'{self.words}: {error}') from None


def doubt_of_size(camera: Intrinsics) -> str:
    """That K is of other images, by a principal point that is the middle of these; empty where it may be of those of its size."""
    size = np.array([camera.width, camera.height])
    across, swapped = (2 * camera.k[:2, 2] + 1) / size, (2 * camera.k[:2, 2] + 1) / size[::-1]
    point = f'its principal point {camera.k[0, 2]:g}, {camera.k[1, 2]:g}'
    if np.abs(across).max() < ALIKE:
        return f'{point} is next to the first pixel of its {camera.width}x{camera.height}, as where it is counted from the middle'
    if np.abs(swapped - 1).max() < ALIKE and np.abs(across - 1).min() > ALIKE:
        return f'{point} is the middle of images of {camera.height}x{camera.width}, as of rotated ones'
    if np.abs(across - 1).min() > LEAST_SCALE and np.ptp(across) < ALIKE * across.max():
        return f'{point} is the middle of images {across.mean():.2f} times as large as its {camera.width}x{camera.height}'
    return ''


def split_choice(path: Path) -> tuple[Path, str]:
    """The file and the name of the camera in FILE:NAME; an empty name where `path` is a file."""
    file, colon, name = str(path).rpartition(':')
    return (Path(file), name) if colon and not path.exists() and Path(file).is_file() else (path, '')


def two_of(path: Path) -> tuple[Path, str]:
    """What FILE:LEFT,RIGHT or FILE,FILE names; the second is empty where it names one. Raises BagError."""
    if path.exists() or ',' not in str(path):
        return path, ''
    pairs = [(Path(str(path)[:comma.start()]), str(path)[comma.end():].strip()) for comma in re.finditer(',', str(path))]
    found = [(first, second) for first, second in pairs if split_choice(first)[0].is_file()]
    first, second = found[0] if found else (path, '')
    if found and (len(found) > 1 or second in ('', str(first), split_choice(first)[1])):
        raise BagError(f'{path} names no pair: give the left and the right camera, as FILE:cam0,cam1 or LEFT.yaml,RIGHT.yaml')
    return first, second


def chosen(path: Path, size: Callable[[], tuple[int, int]] | None = None) -> Choice:
    """The only camera of a file, or the one that `path` names. Raises BagError."""
    if two_of(path)[1]:
        raise BagError(f'{path} names two cameras, which --stereo and --right-topic take: name one')
    file, name = split_choice(path)
    cameras = choices(file, size)
    if name and list(cameras) == ['']:
        raise BagError(f'{file} describes one camera without a name: leave out :{name}')
    if name:
        return named_camera(file, name, cameras)
    if len(cameras) > 1:
        one_an_image = 'if COLMAP has estimated one for each image, run it with --ImageReader.single_camera 1; else '
        raise BagError(f'{file} describes the cameras {first_of(cameras, MOST_NAMED)}: {one_an_image * (len(cameras) > MOST_NAMED)}'
                       f'choose one, as {file}:{next(iter(cameras))}')
    return next(iter(cameras.values()))


def named_camera(file: Path, name: str, cameras: dict[str, Choice]) -> Choice:
    """Raises BagError where there is none of this name."""
    if name not in cameras:
        raise BagError(f'{file} has no camera {name}: it has {first_of(cameras, MOST_NAMED)}')
    return cameras[name]


def choices(file: Path, size: Callable[[], tuple[int, int]] | None) -> dict[str, Choice]:
    """The cameras of a file by name, for images of this `size`. Raises BagError."""
    pose = _extrinsics_beside(file)
    values = {**values_of(file), **pose}
    with naming(file):
        said = as_chain(values)
    try:
        whole = of_size(said, size)
        values, added = (whole, False) if size is None else sized(whole, size)
        cameras = described(values, lambda name: values_of(file.parent / name))
    except (KeyError, ValueError) as error:
        raise BagError(f'{file}: {error}') from None
    notes = ['which has no size: that of the images is taken'] * added + ['with R and T of the file of extrinsics'] * bool(pose)
    note = ', '.join(notes)
    return {name: Choice(file, name, camera, getattr(said.get(name), 'remark', note)) for name, camera in cameras.items()}


def _extrinsics_beside(file: Path) -> dict[str, Any]:
    """R and T of extrinsics.yml next to intrinsics.yml, as OpenCV's stereo_calib writes both; else empty."""
    other = file.with_name(file.name.replace('intrinsic', 'extrinsic'))
    with suppress(BagError):  # of other tools: ScanNet's extrinsic_color.txt is a matrix alone
        values = values_of(other) if other != file and other.is_file() else {}
        return {name: values[name] for name in 'RT'} if {'R', 'T'} <= values.keys() else {}
    return {}


def _named_file(path: Path) -> str:
    """Advice where a value of a file is the name of that of the cameras, as in settings of MINS and D2SLAM; else empty."""
    named = {key: path.parent / value for key, value in values_of(path).items() if isinstance(value, str)}
    for key, other in named.items():
        if other.suffix in ('.yaml', '.yml', '.json') and other.is_file():
            with suppress(BagError, KeyError, TypeError, ValueError):  # of a file without a camera
                if all(each.camera.intrinsics(False) for each in choices(other, None).values()):
                    return f'its {key} names {other}: give that file'
    return ''
