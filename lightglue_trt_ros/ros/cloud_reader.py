"""~/matches read back: matches of a point cloud, by the names of its fields. No ROS here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Float32, FrameMatches
from ..utils.errors import FrameError
from .clouds import FORMATS, NAMES, RIGHT, SIGMA, SIZE, STEREO_DTYPE, XYZ, stamp_seconds

_OPTIONAL = dict.fromkeys(('cov_uu', 'cov_uv', 'cov_vv'), np.nan) | {'carried': 0}  # absent in clouds of former versions


def matches_from_cloud(msg: Any) -> FrameMatches:
    """The correspondences of a cloud of ~/matches, read by field name with any offsets, padding, types and byte order.

    Without points, `reference_stamp` is NaN and `image_size` None; `stage_ms` is empty. Clouds of former versions may have NaN
    covariances and no `image_size`; `right_keypoints` are None without stereo, `xyz` and `sigma_z` also without depth.
    Raises FrameError when fields are missing or the data does not fit the declared layout.
    """
    fields = {field.name: field for field in msg.fields}
    names = _names_of(fields)
    stereo, spatial, sized = (name in names for name in ('u_right', SIGMA, 'image_width'))
    points = _points_of(msg, [fields[name] for name in names]) if msg.height and msg.width else np.empty(0, STEREO_DTYPE)
    stamp = stamp_seconds(msg.header)

    def column(*parts: str) -> Float32:
        known = points.dtype.names or ()
        return np.stack([points[part].astype(np.float32) if part in known else np.full(len(points), _OPTIONAL[part], np.float32)
                         for part in parts], axis=1)

    size = tuple(int(points[name][0]) for name in reversed(SIZE)) if sized and len(points) else (0, 0)
    return FrameMatches(
        stamp=stamp, image_size=(size[0], size[1]) if all(size) else None,
        reference_stamp=stamp + float(points['t_ref'][0]) if len(points) else float('nan'),
        keypoints=column('u', 'v'), reference_keypoints=column('u_ref', 'v_ref'), scores=column('score')[:, 0],
        track_ids=points['track_id'].astype(np.uint32), track_lengths=points['track_length'].astype(np.uint32),
        covariances=column('cov_uu', 'cov_uv', 'cov_uv', 'cov_vv').reshape(-1, 2, 2),
        carried=column('carried')[:, 0].astype(np.uint8), right_keypoints=column(*RIGHT) if stereo else None,
        xyz=column(*XYZ) if spatial else None, sigma_z=column(SIGMA)[:, 0] if spatial else None)


def _names_of(fields: Mapping[str, Any]) -> list[str]:
    """The fields to read: right points, positions and the image's size only where all of theirs are there. Raises FrameError."""
    missing = [name for name in NAMES if name not in fields and name not in _OPTIONAL]
    if missing:
        raise FrameError(f'cloud lacks {", ".join(missing)} (it has {", ".join(fields) or "no fields"}): subscribe to ~/matches')
    complete = [group for group in (RIGHT, (*XYZ, SIGMA), SIZE) if all(name in fields for name in group)]
    return [name for name in (*NAMES, *chain.from_iterable(complete)) if name in fields]


def _points_of(msg: Any, fields: Sequence[Any]) -> NDArray[Any]:
    """A view of a cloud's points (M,) with these PointFields. Raises FrameError where they do not fit its data."""
    row = msg.point_step * msg.width
    needed = msg.row_step * (msg.height - 1) + row
    if len(msg.data) < needed or (msg.height > 1 and msg.row_step < row):
        raise FrameError(f'cloud of {msg.width}x{msg.height} points, point_step {msg.point_step}, row_step {msg.row_step} '
                         f'needs {max(needed, row * msg.height)} bytes and holds {len(msg.data)}: check its writer')
    layout = np.dtype({'names': [field.name for field in fields], 'formats': [_format_of(msg, field) for field in fields],
                       'itemsize': msg.point_step, 'offsets': [field.offset for field in fields]})
    shape, strides = (msg.height, msg.width), (msg.row_step if msg.height > 1 else row, msg.point_step)
    return np.ndarray(shape, layout, msg.data, 0, strides).reshape(-1)


def _format_of(msg: Any, field: Any) -> str:
    """NumPy's name for the type of a field, which must lie within a point. Raises FrameError."""
    kind = FORMATS.get(field.datatype)
    if kind is None or field.offset + int(kind[1]) > msg.point_step:
        raise FrameError(f'cloud field {field.name} has datatype {field.datatype} at offset {field.offset}, '
                         f'point_step is {msg.point_step}: check its writer')
    return ('>' if msg.is_bigendian else '<') + kind
