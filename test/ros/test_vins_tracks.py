"""Tracks for VINS: ids, velocities, rays, and who is chosen, against an estimator's own reading of them."""

from __future__ import annotations

import dataclasses
import itertools

import cv2
import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the topics of VINS are not tested')
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.cameras import BARREL, FISHEYE, RATIONAL, K
from support.matches import frame_matches

from lightglue_trt_ros.core.cameras import Intrinsics, normalised
from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.ros.matcher.vins import LARGEST_ID, VinsPoints, VinsTracks, bucketed, channels
from lightglue_trt_ros.utils.errors import BagError

SIZE = (480, 752)
PINHOLE = Intrinsics(SIZE[1], SIZE[0], K, 'plumb_bob', np.zeros(5))


def frame(stamp, tracks, now, before=None, *, reference=None) -> FrameMatches:
    now = np.reshape(now, (-1, 2))
    before = now if before is None else np.reshape(before, (-1, 2))
    return frame_matches(now, before, stamp, track_ids=np.asarray(tracks, np.uint32),
                         **({} if reference is None else {'reference_stamp': reference}))


@pytest.mark.parametrize(('model', 'd'), [
    ('plumb_bob', []), ('plumb_bob', BARREL), ('rational_polynomial', RATIONAL), ('equidistant', FISHEYE)])
def test_points_and_velocities_are_those_of_the_rays(model, d):
    rays0 = np.stack(np.meshgrid(np.linspace(-0.4, 0.4, 9), np.linspace(-0.3, 0.3, 7)), axis=-1).reshape(-1, 2)
    rays1 = rays0 + [0.01, -0.02] + 0.05 * rays0[:, ::-1]

    def pixels(rays):
        points, zero = np.c_[rays, np.ones(len(rays))][:, None], np.zeros(3)
        project = cv2.fisheye.projectPoints if model == 'equidistant' else cv2.projectPoints
        return project(points, zero, zero, K, np.asarray(d or np.zeros(4)))[0].reshape(-1, 2)

    camera = Intrinsics(SIZE[1], SIZE[0], K, model, np.asarray(d, np.float64))
    found = VinsTracks(100).update(frame(7.05, np.arange(63), pixels(rays1), pixels(rays0), reference=7.0), camera)
    order = np.lexsort(found.pixels.T)
    wanted = np.lexsort(pixels(rays1).astype(np.float32).T)
    np.testing.assert_allclose(found.points[order], rays1[wanted], atol=2e-6)
    np.testing.assert_allclose(found.velocities[order], ((rays1 - rays0) / 0.05)[wanted], atol=1e-4)


def test_an_unknown_model_is_refused_with_its_name():
    with pytest.raises(BagError, match="'omni'"):
        normalised([[1, 2]], Intrinsics(64, 48, K, 'omni', np.array([0.1])))


def test_a_pixel_that_the_model_cannot_reach_is_no_track():
    fold = Intrinsics(SIZE[1], SIZE[0], K, 'plumb_bob', np.array([-1.5, 0, 0, 0, 0]))
    found = VinsTracks(10).update(frame(1.0, [5, 6], [[370, 250], [750, 470]]), fold)
    assert found.pixels.tolist() == [[370, 250]]


def test_track_id_persists_across_messages_and_is_new_after_a_gap():
    tracks = VinsTracks(10)
    points = [[100, 100], [300, 100], [500, 300]]
    first = dict(zip([7, 8, 9], ids_of(tracks.update(frame(1.0, [7, 8, 9], points), PINHOLE), points), strict=True))
    second = ids_of(tracks.update(frame(1.1, [7, 9], [points[0], points[2]]), PINHOLE), [points[0], points[2]])
    assert second == [first[7], first[9]]
    third = ids_of(tracks.update(frame(1.2, [7, 8, 9], points), PINHOLE), points)  # a keyframe's matcher has found 8 again
    assert (third[0], third[2]) == (first[7], first[9])
    assert third[1] not in first.values()


def ids_of(found, points):
    """The ids of the given pixels, in their order."""
    return [int(found.ids[np.flatnonzero((found.pixels == point).all(axis=1))[0]]) for point in points]


def test_velocity_is_since_last_frame_even_with_an_older_keyframe():
    tracks = VinsTracks(10)
    tracks.update(frame(1.1, [3], [[310, 200]], [[300, 200]], reference=1.0), PINHOLE)
    found = tracks.update(frame(1.2, [3], [[330, 200]], [[300, 200]], reference=1.0), PINHOLE)
    np.testing.assert_allclose(found.velocities, [[20 / K[0, 0] / 0.1, 0]], rtol=1e-5)


def test_ids_stay_where_float32_tells_them_apart():
    tracks = VinsTracks(2)
    tracks._numbers = itertools.count(LARGEST_ID - 1)
    found = tracks.update(frame(1.0, [1, 2], [[100, 100], [300, 100]]), PINHOLE)
    assert sorted(found.ids) == [0, LARGEST_ID - 1]
    assert channels(found, 5)['id'].astype(np.int64).tolist() == found.ids.tolist()


def test_each_camera_has_ids_of_its_own_and_is_its_estimators_first():
    """VINS-Fusion asserts that the first observation of an id is of camera 0. Before, that of rear was of camera 1."""
    tracks = [VinsTracks(10, camera, 3) for camera in range(3)]
    found = [each.update(frame(stamp, [5, 6], [[30, 40], [300, 40]]), PINHOLE) for stamp in (1.0, 1.1) for each in tracks]
    assert [(set(each.ids % 3), set(each.cameras)) for each in found] == 2 * [({0}, {0}), ({1}, {0}), ({2}, {0})]
    assert max(each.ids.max() for each in found) < 3 * 3


def test_the_channels_of_both_estimators():
    found = VinsTracks(2).update(frame(1.0, [1], [[100, 50]], [[99, 50]]), PINHOLE)
    assert list(channels(found, 5)) == ['id', 'u', 'v', 'vx', 'vy']
    assert list(channels(found, 9)) == ['id', 'camera', 'u', 'v', 'vx', 'vy', 'gx', 'gy', 'gz']
    assert channels(found, 9)['u'] == 100
    assert not any(channels(found, 9)[name].any() for name in ('camera', 'gx', 'gy', 'gz'))


def test_right_observations_use_their_own_calibration_and_velocity():
    fisheye = Intrinsics(SIZE[1], SIZE[0], 0.5 * K + np.diag([0, 0, 0.5]), 'equidistant', np.asarray(FISHEYE))
    lefts = [[100, 100], [300, 100], [500, 300]]
    nothing = [np.nan, np.nan]
    tracks = VinsTracks(10)

    def update(stamp, rights, camera=fisheye):
        given = dataclasses.replace(frame(stamp, [7, 8, 9], lefts), right_keypoints=np.array(rights, np.float32))
        found = tracks.update(given, PINHOLE, camera)
        count = len(found.ids) - int(np.count_nonzero(found.cameras))
        assert found.cameras.tolist() == [0] * count + [1] * (len(found.ids) - count), 'of each id camera 0 first'
        numbers = dict(zip(ids_of(VinsPoints(*(column[:count] for column in found)), lefts), range(3), strict=True))
        return {numbers[int(number)]: (pixel.tolist(), point, speed) for number, pixel, point, speed in zip(
            found.ids[count:], found.pixels[count:], found.points[count:], found.velocities[count:], strict=True)}

    first = update(1.0, [[80, 110], nothing, [470, 310]])
    assert {row: pixel for row, (pixel, _, _) in first.items()} == {0: [80, 110], 2: [470, 310]}
    assert not any(speed.any() for _, _, speed in first.values()), 'as the estimator\'s own tracker has it'
    second = update(1.1, [[90, 110], [280, 90], nothing])
    assert second.keys() == {0, 1}
    before, now = normalised([[80, 110], [90, 110]], fisheye)
    np.testing.assert_allclose(second[0][1], now)
    np.testing.assert_allclose(second[0][2], (now - before) / 0.1, rtol=1e-6)
    assert not second[1][2].any()
    assert update(1.2, [[90, 110]] * 3, None) == {}, 'nobody asks for it'
    assert update(1.3, [nothing] * 3) == {}


def test_a_frame_without_matches_is_an_empty_message():
    found = VinsTracks(10).update(frame(1.0, [], []), PINHOLE)
    assert [len(values) for values in channels(found, 9).values()] == [0] * 9


@example(seed=477, amount=477, count=214)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**16), amount=st.integers(0, 600), count=st.integers(1, 300))
def test_bucketing_selects_the_allowed_count_evenly_over_cells(seed, amount, count):
    rng = np.random.default_rng(seed)
    pixels = (rng.random((amount, 2)) ** 3 * (SIZE[1], SIZE[0])).astype(np.float32)  # crowded in a corner
    lengths = rng.integers(2, 9, amount).astype(np.uint32)
    rows = bucketed(pixels, np.zeros(amount, np.bool_), lengths, rng.random(amount, np.float32), SIZE, count)
    assert len(rows) == len(set(rows.tolist())) == min(amount, count)
    side = (SIZE[0] * SIZE[1] / count) ** 0.5
    cells = [tuple(cell) for cell in (pixels.astype(np.float64) / side).astype(int)]  # float32 rounds a point into another cell
    if len(rows) < amount and len(rows):
        taken = [cells[row] for row in rows]
        crowd = max(map(taken.count, taken))
        assert all(taken.count(cell) >= min(crowd - 1, cells.count(cell)) for cell in set(cells))


def test_in_a_cell_the_kept_then_the_long_then_the_sure_come_first():
    pixels = np.full((4, 2), 10, np.float32)
    order = bucketed(pixels, np.array([False, False, False, True]), np.array([3, 5, 5, 2], np.uint32),
                   np.array([0.9, 0.2, 0.8, 0.1], np.float32), SIZE, 4)
    assert order.tolist() == [3, 2, 1, 0]
