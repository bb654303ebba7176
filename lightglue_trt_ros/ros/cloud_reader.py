"""~/matches read back: matches of a point cloud, by the names of its fields. No ROS here."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    missing = [name for name in NAMES if name not in fields and name not in _OPTIONAL]
    if missing:
        raise FrameError(f'cloud lacks {", ".join(missing)} (it has {", ".join(fields) or "no fields"}): subscribe to ~/matches')
    stereo = all(name in fields for name in RIGHT)
    sized = all(name in fields for name in SIZE)
    spatial = all(name in fields for name in (*XYZ, SIGMA))
    names = [name for name in (*NAMES, *(RIGHT if stereo else ()), *((*XYZ, SIGMA) if spatial else ()),
                               *(SIZE if sized else ())) if name in fields]
    points = np.empty(0, STEREO_DTYPE)
    if msg.height and msg.width:
        row = msg.point_step * msg.width
        needed = msg.row_step * (msg.height - 1) + row
        if len(msg.data) < needed or (msg.height > 1 and msg.row_step < row):
            raise FrameError(f'cloud of {msg.width}x{msg.height} points, point_step {msg.point_step}, row_step {msg.row_step} '
                             f'needs {max(needed, row * msg.height)} bytes and holds {len(msg.data)}: check its writer')
        order, formats = '>' if msg.is_bigendian else '<', []
        for name in names:
            kind = FORMATS.get(fields[name].datatype)
            if kind is None or fields[name].offset + int(kind[1]) > msg.point_step:
                raise FrameError(f'cloud field {name} has datatype {fields[name].datatype} at offset {fields[name].offset}, '
                                 f'point_step is {msg.point_step}: check its writer')
            formats.append(order + kind)
        layout = np.dtype({'names': names, 'formats': formats, 'itemsize': msg.point_step,
                           'offsets': [fields[name].offset for name in names]})
        shape, strides = (msg.height, msg.width), (msg.row_step if msg.height > 1 else row, msg.point_step)
        points = np.ndarray(shape, layout, msg.data, 0, strides).reshape(-1)
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
