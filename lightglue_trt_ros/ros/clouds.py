"""~/matches on the wire: matches to a point cloud; `cloud_reader` has the way back. No ROS here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.keyframes import Keyframe
from ..core.types import FrameMatches

_COLUMNS = {'u': '<f4', 'v': '<f4', 'u_ref': '<f4', 'v_ref': '<f4', 'score': '<f4', 'track_id': '<u4', 'track_length': '<u4',
            't_ref': '<f4', 'cov_uu': '<f4', 'cov_uv': '<f4', 'cov_vv': '<f4', 'carried': '|u1'}
NAMES, RIGHT, SIZE = tuple(_COLUMNS), ('u_right', 'v_right'), ('image_width', 'image_height')
XYZ, SIGMA = ('x', 'y', 'z'), 'sigma_z'


def _layout(first: tuple[str, ...] = (), *more: str) -> np.dtype[Any]:
    """The layout of a point: fields of 4 bytes, then the image's size in two fields of 2."""
    names = (*first, *NAMES, *more)
    width = 4 * len(names)
    return np.dtype({'names': [*names, *SIZE], 'formats': [*(_COLUMNS.get(name, '<f4') for name in names), '<u2', '<u2'],
                     'offsets': [*range(0, width, 4), width, width + 2], 'itemsize': width + 4})


KEYFRAME_DTYPE = np.dtype([*((name, '<f4') for name in (*XYZ, 'u', 'v', 'score')), ('track_id', '<u4'), (SIGMA, '<f4'),
                           ('descriptor', '<u2', (256,))])  # a point of ~/keyframe; the descriptor is float16 in 16-bit words
# Of one camera, of one with depth, and of a stereo pair. Where points are known in space, x, y, z come first, for PCL.
LAYOUTS = MATCH_DTYPE, DEPTH_DTYPE, STEREO_DTYPE = _layout(), _layout(XYZ, SIGMA), _layout(XYZ, *RIGHT, SIGMA)
FORMATS = {1: 'i1', 2: 'u1', 3: 'i2', 4: 'u2', 5: 'i4', 6: 'u4', 7: 'f4', 8: 'f8'}  # by sensor_msgs/PointField's datatypes
_DATATYPES = {kind: number for number, kind in FORMATS.items()}


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
        points[SIGMA] = matches.sigma_z
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
    points['score'], points['track_id'], points[SIGMA] = scores[rows], keyframe.track_ids[rows], keyframe.sigma_z[rows]
    points['descriptor'] = np.ascontiguousarray(keyframe.descriptors[rows]).view(np.uint16)
    return fill_points(msg, points, dense=False)


def fill_points(msg: Any, points: NDArray[Any], dense: bool) -> Any:
    """Fill a PointCloud2, which has header and fields, with structured `points` (M,)."""
    msg.height, msg.width, msg.point_step, msg.row_step = 1, len(points), points.itemsize, points.nbytes
    msg.is_bigendian, msg.is_dense = False, dense
    msg.data.frombytes(points.view(np.uint8))
    return msg
