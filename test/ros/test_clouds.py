"""Clouds: the layout on the wire, other layouts read by name, and what malformed input does."""

from __future__ import annotations

import array
import dataclasses
import struct

import numpy as np
import pytest

pytest.importorskip('sensor_msgs', reason='ROS 2 message packages are not installed')

from sensor_msgs.msg import PointCloud2, PointField
from std_msgs.msg import Header

from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.ros.clouds import MATCH_DTYPE, fill_cloud, layout_of, point_fields, stamp_seconds
from lightglue_trt_ros.utils.errors import FrameError


def header() -> Header:
    made = Header(frame_id='camera_optical')
    made.stamp.sec, made.stamp.nanosec = 1_700_000_000, 250_000_000
    return made


def frame_matches(count: int, seed: int = 0) -> FrameMatches:
    rng = np.random.default_rng(seed)
    stamp = stamp_seconds(header())
    return FrameMatches(
        stamp=stamp, reference_stamp=stamp - 0.125,
        keypoints=rng.uniform(-0.5, 640, (count, 2)).astype(np.float32),
        reference_keypoints=rng.uniform(-0.5, 640, (count, 2)).astype(np.float32),
        scores=rng.uniform(0.1, 1, count).astype(np.float32),
        track_ids=rng.integers(2 ** 31, 2 ** 32, count, dtype=np.uint32),
        track_lengths=rng.integers(2, 1000, count, dtype=np.uint32), covariances=symmetric(rng, count),
        carried=rng.integers(0, 6, count, dtype=np.uint8), image_size=(480, 640))


def symmetric(rng, count):
    half = rng.normal(0, 0.3, (count, 2, 2)).astype(np.float32)
    return half @ half.transpose(0, 2, 1)


def cloud_of(matches: FrameMatches) -> PointCloud2:
    return fill_cloud(PointCloud2(header=header(), fields=point_fields(PointField, layout_of(matches))), matches)


def assert_same(read: FrameMatches, written: FrameMatches) -> None:
    for name in ('keypoints', 'reference_keypoints', 'scores', 'track_ids', 'track_lengths', 'covariances', 'carried'):
        mine, theirs = getattr(read, name), getattr(written, name)
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    assert read.stamp == written.stamp


def test_stamp_of_a_header_and_of_a_time():
    assert stamp_seconds(header()) == stamp_seconds(header().stamp) == 1_700_000_000.25


@pytest.mark.parametrize('count', [0, 1, 1024])
def test_cloud_round_trip(count):
    matches = frame_matches(count)
    cloud = cloud_of(matches)
    assert (cloud.height, cloud.width, cloud.point_step, cloud.row_step) == (1, count, 52, 52 * count)
    assert cloud.is_dense
    assert not cloud.is_bigendian
    assert len(cloud.data) == 52 * count
    assert cloud.header == header()
    read = matches_from_cloud(cloud)
    assert_same(read, matches)
    assert read.right_keypoints is None
    assert read.image_size == ((480, 640) if count else None)
    assert np.isnan(read.reference_stamp) if count == 0 else read.reference_stamp == matches.reference_stamp


@pytest.mark.parametrize('count', [0, 3])
def test_a_stereo_cloud_has_six_fields_more_and_reads_as_what_it_was(count):
    matches = frame_matches(count)
    right = np.random.default_rng(1).uniform(0, 640, (count, 2)).astype(np.float32)
    right[:1] = np.nan
    matches = dataclasses.replace(matches, right_keypoints=right)
    cloud = cloud_of(matches)
    assert (cloud.point_step, len(cloud.data), cloud.is_dense) == (76, 76 * count, False)
    assert [(field.name, field.offset) for field in cloud.fields[-6:]] == [
        ('carried', 56), ('u_right', 60), ('v_right', 64), ('sigma_z', 68), ('image_width', 72), ('image_height', 74)]
    assert np.isnan(matches_from_cloud(cloud).xyz).all(), 'not triangulated'
    read = matches_from_cloud(cloud)
    assert_same(read, matches)
    np.testing.assert_array_equal(read.right_keypoints, right)
    if count:
        assert struct.unpack_from('<2f', cloud.data, 2 * 76 + 60) == tuple(right[2])
        np.testing.assert_array_equal(read.well_known(0.3).right_keypoints, right[read.sigmas <= 0.3])


@pytest.mark.parametrize('count', [0, 3])
def test_a_cloud_with_depth_begins_with_x_y_z_as_pcl_wants_it(count):
    rng = np.random.default_rng(2)
    xyz, sigma_z = rng.uniform(-1, 5, (count, 3)).astype(np.float32), rng.uniform(0, 0.1, count).astype(np.float32)
    xyz[:1] = np.nan
    matches = dataclasses.replace(frame_matches(count), xyz=xyz, sigma_z=sigma_z)
    cloud = cloud_of(matches)
    assert (cloud.point_step, len(cloud.data), cloud.is_dense) == (68, 68 * count, False)
    float32 = PointField.FLOAT32
    assert [(field.name, field.offset, field.datatype) for field in cloud.fields[:4]] == [
        ('x', 0, float32), ('y', 4, float32), ('z', 8, float32), ('u', 12, float32)]
    assert [(field.name, field.offset) for field in cloud.fields[-3:]] == [
        ('sigma_z', 60), ('image_width', 64), ('image_height', 66)]
    read = matches_from_cloud(cloud)
    assert_same(read, matches)
    np.testing.assert_array_equal(read.xyz, xyz)
    np.testing.assert_array_equal(read.sigma_z, sigma_z)
    assert read.right_keypoints is None
    if count:
        assert struct.unpack_from('<3f', cloud.data, 2 * 68) == tuple(xyz[2])
        np.testing.assert_array_equal(read.well_known(0.3).xyz, xyz[read.sigmas <= 0.3])


def test_cloud_on_the_wire_is_what_the_documentation_says():
    """Unpacked with struct alone, as a C++ reader would."""
    matches = frame_matches(3)
    cloud = cloud_of(matches)
    kinds = {PointField.FLOAT32: 'f', PointField.UINT32: 'I', PointField.UINT8: 'B', PointField.UINT16: 'H'}
    assert [(field.name, field.offset, kinds[field.datatype], field.count) for field in cloud.fields] == [
        ('u', 0, 'f', 1), ('v', 4, 'f', 1), ('u_ref', 8, 'f', 1), ('v_ref', 12, 'f', 1), ('score', 16, 'f', 1),
        ('track_id', 20, 'I', 1), ('track_length', 24, 'I', 1), ('t_ref', 28, 'f', 1),
        ('cov_uu', 32, 'f', 1), ('cov_uv', 36, 'f', 1), ('cov_vv', 40, 'f', 1), ('carried', 44, 'B', 1),
        ('image_width', 48, 'H', 1), ('image_height', 50, 'H', 1)]
    assert MATCH_DTYPE.itemsize == 52
    row = struct.unpack_from('<5f2If3fB3x2H', cloud.data, 52)
    assert row == (*matches.keypoints[1], *matches.reference_keypoints[1], matches.scores[1],
                   matches.track_ids[1], matches.track_lengths[1], -0.125,
                   *matches.covariances[1].ravel()[[0, 1, 3]], matches.carried[1], 640, 480)


@pytest.mark.parametrize('order', ['<', '>'])
def test_cloud_with_another_layout_reads_by_name(order):
    """Other order, padding, an extra field, float64 coordinates, two rows with a row step, big endian, and no covariances yet."""
    matches, source = frame_matches(6), cloud_of(frame_matches(6))
    points = np.frombuffer(source.data, MATCH_DTYPE)
    formats = {'t_ref': 'f4', 'track_length': 'u2', 'u': 'f8', 'v': 'f8', 'u_ref': 'f4', 'v_ref': 'f4', 'score': 'f4',
               'track_id': 'u4', 'rgb': 'f4'}
    offsets = [3, 7, 9, 17, 25, 29, 33, 37, 41]
    other = np.dtype({'names': list(formats), 'formats': [order + kind for kind in formats.values()], 'offsets': offsets,
                      'itemsize': 51})
    rows = np.zeros((2, 3 * 51 + 10), np.uint8)
    for index, row in enumerate(rows):
        view = row[:153].view(other)
        for name in formats.keys() - {'rgb'}:
            view[name] = points[name][3 * index:3 * index + 3]
    codes = {'f4': PointField.FLOAT32, 'f8': PointField.FLOAT64, 'u4': PointField.UINT32, 'u2': PointField.UINT16}
    source.fields = [PointField(name=name, offset=offset, datatype=codes[kind], count=1)
                     for (name, kind), offset in zip(formats.items(), offsets, strict=True)]
    source.height, source.width, source.point_step, source.row_step = 2, 3, 51, 163
    source.is_bigendian, source.data = order == '>', array.array('B', rows.tobytes())
    read = matches_from_cloud(source)
    assert np.isnan(read.covariances).all()
    assert not read.carried.any()
    assert read.image_size is None
    assert_same(dataclasses.replace(read, covariances=matches.covariances, carried=matches.carried), matches)


@pytest.mark.parametrize(('spoil', 'told'), [
    (lambda cloud: cloud.fields.pop(5), 'lacks track_id'),
    (lambda cloud: cloud.fields.clear(), 'no fields'),
    (lambda cloud: cloud.data.pop(), 'needs 208 bytes and holds 207'),
    (lambda cloud: setattr(cloud, 'point_step', 0), 'offset 0'),
    (lambda cloud: setattr(cloud, 'point_step', 31), 't_ref'),
    (lambda cloud: setattr(cloud, 'width', 2 ** 32 - 1), 'holds 208'),
    (lambda cloud: (setattr(cloud, 'height', 4), setattr(cloud, 'width', 1), setattr(cloud, 'row_step', 0)), 'row_step 0')])
def test_a_cloud_that_is_not_ours_is_refused(spoil, told):
    cloud = cloud_of(frame_matches(4))
    spoil(cloud)
    with pytest.raises(FrameError, match=told):
        matches_from_cloud(cloud)


def test_a_field_of_unknown_datatype_is_refused():
    cloud = cloud_of(frame_matches(4))
    cloud.fields[2] = PointField(name='u_ref', offset=8, datatype=77, count=1)
    with pytest.raises(FrameError, match='u_ref has datatype 77'):
        matches_from_cloud(cloud)
