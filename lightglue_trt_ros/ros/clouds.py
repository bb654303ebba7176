"""~/matches on the wire: matches to a point cloud, and back by the names of its fields. No ROS here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.keyframes import Keyframe
from ..core.types import Float32, FrameMatches
from ..utils.errors import FrameError

_COLUMNS = {'u': '<f4', 'v': '<f4', 'u_ref': '<f4', 'v_ref': '<f4', 'score': '<f4', 'track_id': '<u4', 'track_length': '<u4',
            't_ref': '<f4', 'cov_uu': '<f4', 'cov_uv': '<f4', 'cov_vv': '<f4', 'carried': '|u1'}
_NAMES, _RIGHT, _SIZE = tuple(_COLUMNS), ('u_right', 'v_right'), ('image_width', 'image_height')
_XYZ, _SIGMA = ('x', 'y', 'z'), 'sigma_z'


def _layout(first: tuple[str, ...] = (), *more: str) -> np.dtype[Any]:
    """The layout of a point: fields of 4 bytes, then the image's size in two fields of 2."""
    names = (*first, *_NAMES, *more)
    width = 4 * len(names)
    return np.dtype({'names': [*names, *_SIZE], 'formats': [*(_COLUMNS.get(name, '<f4') for name in names), '<u2', '<u2'],
                     'offsets': [*range(0, width, 4), width, width + 2], 'itemsize': width + 4})


KEYFRAME_DTYPE = np.dtype([*((name, '<f4') for name in (*_XYZ, 'u', 'v', 'score')), ('track_id', '<u4'), (_SIGMA, '<f4'),
                           ('descriptor', '<u2', (256,))])  # a point of ~/keyframe; the descriptor is float16 in 16-bit words
# Of one camera, of one with depth, and of a stereo pair. Where points are known in space, x, y, z come first, for PCL.
LAYOUTS = MATCH_DTYPE, DEPTH_DTYPE, STEREO_DTYPE = _layout(), _layout(_XYZ, _SIGMA), _layout(_XYZ, *_RIGHT, _SIGMA)
_OPTIONAL = dict.fromkeys(('cov_uu', 'cov_uv', 'cov_vv'), np.nan) | {'carried': 0}  # absent in clouds of former versions
_FORMATS = {1: 'i1', 2: 'u1', 3: 'i2', 4: 'u2', 5: 'i4', 6: 'u4', 7: 'f4', 8: 'f8'}  # by sensor_msgs/PointField's datatypes
_DATATYPES = {kind: number for number, kind in _FORMATS.items()}


def stamp_seconds(header_or_stamp: Any) -> float:
    """Seconds of a std_msgs/Header or a builtin_interfaces/Time as float64 (good to about 0.2 microseconds today)."""
    stamp = getattr(header_or_stamp, 'stamp', header_or_stamp)
    return float(stamp.sec + stamp.nanosec * 1e-9)


def point_fields(kind: Any, layout: np.dtype[Any] = MATCH_DTYPE) -> list[Any]:
    """The fields of a layout of ~/matches as messages of `kind`, which is sensor_msgs.msg.PointField."""
    return [kind(name=name, offset=offset, datatype=_DATATYPES[form.base.str[1:]], count=math.prod(form.shape))
            for name, (form, offset, *_) in (layout.fields or {}).items()]


def layout_of(matches: FrameMatches) -> np.dtype[Any]:
    """The layout of these matches' cloud."""
    if matches.right_keypoints is not None:
        return STEREO_DTYPE
    return MATCH_DTYPE if matches.xyz is None else DEPTH_DTYPE


def fill_cloud(msg: Any, matches: FrameMatches) -> Any:
    """Fill a PointCloud2, which has header and the `point_fields` of `layout_of(matches)`, with a point per correspondence."""
    if matches.right_keypoints is not None and matches.xyz is None:
        matches = matches.without_depth()
    points = np.zeros(len(matches), layout_of(matches))
    points['u'], points['v'] = matches.keypoints.T
    points['u_ref'], points['v_ref'] = matches.reference_keypoints.T
    points['score'] = matches.scores
    points['track_id'], points['track_length'] = matches.track_ids, matches.track_lengths
    points['t_ref'] = matches.reference_stamp - matches.stamp
    points['cov_uu'], points['cov_uv'], points['cov_vv'] = matches.covariances.reshape(-1, 4).T[[0, 1, 3]]
    points['carried'] = matches.carried
    if matches.right_keypoints is not None:
        points['u_right'], points['v_right'] = matches.right_keypoints.T
    if matches.xyz is not None:
        points['x'], points['y'], points['z'] = matches.xyz.T
        points[_SIGMA] = matches.sigma_z
    points['image_height'], points['image_width'] = matches.image_size or (0, 0)
    return fill_points(msg, points, dense=matches.xyz is None)  # NaN: not known in space, no right point


def fill_keyframe(msg: Any, keyframe: Keyframe, least_score: float) -> Any:
    """Fill a PointCloud2, which has header and the `point_fields` of KEYFRAME_DTYPE, with a keyframe's points.

    Padding, whose score is `least_score` at most, is left out.
    """
    scores = keyframe.features.scores
    rows = np.flatnonzero(scores > least_score)
    points = np.zeros(len(rows), KEYFRAME_DTYPE)
    points['x'], points['y'], points['z'] = keyframe.xyz[rows].T
    points['u'], points['v'] = keyframe.keypoints[rows].T
    points['score'], points['track_id'], points[_SIGMA] = scores[rows], keyframe.track_ids[rows], keyframe.sigma_z[rows]
    points['descriptor'] = np.ascontiguousarray(keyframe.descriptors[rows]).view(np.uint16)
    return fill_points(msg, points, dense=False)


def fill_points(msg: Any, points: NDArray[Any], dense: bool) -> Any:
    """Fill a PointCloud2, which has header and fields, with structured `points` (M,)."""
    msg.height, msg.width, msg.point_step, msg.row_step = 1, len(points), points.itemsize, points.nbytes
    msg.is_bigendian, msg.is_dense = False, dense
    msg.data.frombytes(points.view(np.uint8))
    return msg


def matches_from_cloud(msg: Any) -> FrameMatches:
    """The correspondences of a cloud of ~/matches, read by field name with any offsets, padding, types and byte order.

    Without points, `reference_stamp` is NaN and `image_size` None; `stage_ms` is empty. Clouds of former versions may have NaN
    covariances and no `image_size`; `right_keypoints` are None without stereo, `xyz` and `sigma_z` also without depth.
    Raises FrameError when fields are missing or the data does not fit the declared layout.
    """
    fields = {field.name: field for field in msg.fields}
    missing = [name for name in _NAMES if name not in fields and name not in _OPTIONAL]
    if missing:
        raise FrameError(f'cloud lacks {", ".join(missing)} (it has {", ".join(fields) or "no fields"}): subscribe to ~/matches')
    stereo = all(name in fields for name in _RIGHT)
    sized = all(name in fields for name in _SIZE)
    spatial = all(name in fields for name in (*_XYZ, _SIGMA))
    names = [name for name in (*_NAMES, *(_RIGHT if stereo else ()), *((*_XYZ, _SIGMA) if spatial else ()),
                               *(_SIZE if sized else ())) if name in fields]
    points = np.empty(0, STEREO_DTYPE)
    if msg.height and msg.width:
        row = msg.point_step * msg.width
        needed = msg.row_step * (msg.height - 1) + row
        if len(msg.data) < needed or (msg.height > 1 and msg.row_step < row):
            raise FrameError(f'cloud of {msg.width}x{msg.height} points, point_step {msg.point_step}, row_step {msg.row_step} '
                             f'needs {max(needed, row * msg.height)} bytes and holds {len(msg.data)}: check its writer')
        order, formats = '>' if msg.is_bigendian else '<', []
        for name in names:
            kind = _FORMATS.get(fields[name].datatype)
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

    size = tuple(int(points[name][0]) for name in reversed(_SIZE)) if sized and len(points) else (0, 0)
    return FrameMatches(
        stamp=stamp, image_size=(size[0], size[1]) if all(size) else None,
        reference_stamp=stamp + float(points['t_ref'][0]) if len(points) else float('nan'),
        keypoints=column('u', 'v'), reference_keypoints=column('u_ref', 'v_ref'), scores=column('score')[:, 0],
        track_ids=points['track_id'].astype(np.uint32), track_lengths=points['track_length'].astype(np.uint32),
        covariances=column('cov_uu', 'cov_uv', 'cov_uv', 'cov_vv').reshape(-1, 2, 2),
        carried=column('carried')[:, 0].astype(np.uint8), right_keypoints=column(*_RIGHT) if stereo else None,
        xyz=column(*_XYZ) if spatial else None, sigma_z=column(_SIGMA)[:, 0] if spatial else None)
