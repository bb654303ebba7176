"""The demo's truth must be true: depth and poses against the pixels that were rendered from them."""

import importlib.util
import itertools

import cv2
import numpy as np
import pytest
from support.flight_truth import transferred

from lightglue_trt_eval.demo import flight as flight_module
from lightglue_trt_eval.demo.flight import Flight, rasterize
from lightglue_trt_ros.utils.errors import ConfigError, LightglueTrtError

pytest.importorskip('skimage', reason='the flight shows photographs of scikit-image')


@pytest.fixture(scope='module')
def plain():
    """A flight without blur, light or noise."""
    return Flight(blur=False, light=False, noise=False)


@pytest.fixture(scope='module')
def pair(plain):
    """Two frames a third of a second apart, with boxes in view."""
    return plain.frame(27), plain.frame(30)


def grid(frame, step=4):
    height, width = frame.image.shape
    v, u = np.mgrid[0:height:step, 0:width:step]
    return np.stack([u.ravel(), v.ravel()], axis=1).astype(np.float64)


def test_frames_are_what_they_promise(plain):
    frame = plain.frame(5)
    assert frame.stamp_ns == 1_500_000_000
    assert (frame.image.shape, frame.image.dtype) == ((480, 640), np.uint8)
    assert (frame.depth.shape, frame.depth.dtype) == ((480, 640), np.float32)
    assert 2 < frame.depth.min() < frame.depth.max() < 15
    assert frame.image.std() > 30
    rotation = frame.pose[:3, :3]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1)
    np.testing.assert_array_equal(frame.pose[3], [0, 0, 0, 1])
    assert plain.intrinsics[0, 0] == 500


def test_warping_by_depth_and_pose_gives_the_other_frame(plain, pair):
    first, second = pair
    points = grid(first, 1)
    moved, visible = transferred(first, second, points, plain.intrinsics)
    target = moved.reshape(480, 640, 2).astype(np.float32)
    warped = cv2.remap(second.image, target[..., 0], target[..., 1], cv2.INTER_LINEAR)
    error = np.abs(warped.astype(float) - first.image)[visible.reshape(480, 640)]
    shuffled = np.abs(second.image.astype(float) - first.image).mean()
    assert visible.mean() > 0.5
    assert error.mean() < 4  # gray levels: what resampling twice costs
    assert np.median(error) < 3
    assert shuffled > 10 * error.mean()


def displacement(image0, points0, image1, points1, sigma0=1.0, sigma1=1.0):
    """By how much the content at points1 is off that at points0, (2,) pixels: the vertex of the photometric cost's parabola."""
    inside = ((points1 > 2) & (points1 < (637, 477))).all(axis=1)
    u, v = points0[inside].astype(int).T
    expected = cv2.GaussianBlur(image0, (0, 0), sigma0).astype(float)[v, u]
    smooth = cv2.GaussianBlur(image1, (0, 0), sigma1).astype(np.float32)

    def cost(shift):
        at = (points1[inside] + shift).astype(np.float32)
        error = cv2.remap(smooth, at[None, :, 0], at[None, :, 1], cv2.INTER_CUBIC)[0] - expected
        return np.square(error[np.abs(error) < 25]).mean()  # without the edges between planes

    costs = np.array([[cost(shift * axis) for shift in (-0.5, 0, 0.5)] for axis in np.eye(2)])
    return 0.25 * (costs[:, 0] - costs[:, 2]) / (costs[:, 0] - 2 * costs[:, 1] + costs[:, 2])


def test_truth_has_no_subpixel_offset(plain, pair):
    first, second = pair
    moved, visible = transferred(first, second, grid(first), plain.intrinsics)
    assert np.abs(displacement(first.image, grid(first)[visible], second.image, moved[visible])).max() < 0.02


def test_texels_stand_where_opencv_projects_them(plain):
    """The ground's texels, put into the world and projected by cv2.projectPoints, meet their own gray in the image."""
    frame, ground = plain.frame(10), flight_module._town()[0]
    height, width = ground.texture.shape
    texels = np.stack(np.meshgrid(np.arange(20, width - 20, 9), np.arange(20, height - 20, 9)), axis=-1).reshape(-1, 2)
    s, t = ((texels + 0.5) / (width, height)).T
    world = ground.origin + s[:, None] * ground.right + t[:, None] * ground.down
    camera = np.linalg.inv(frame.pose)
    depth = (world @ camera[:3, :3].T + camera[:3, 3])[:, 2]
    world, texels, depth = world[depth > 1], texels[depth > 1], depth[depth > 1]
    pixels = cv2.projectPoints(world, cv2.Rodrigues(camera[:3, :3])[0], camera[:3, 3], plain.intrinsics, None)[0].reshape(-1, 2)
    inside = ((pixels > 3) & (pixels < (636, 476))).all(axis=1)
    pixels, texels, depth = pixels[inside], texels[inside], depth[inside]
    u, v = np.rint(pixels).astype(int).T
    seen = np.abs(frame.depth[v, u] / depth - 1) < 0.01
    assert seen.sum() > 10_000
    offset = displacement(ground.texture, texels[seen], frame.image, pixels[seen], 4.0, 1.8)  # 2.2 texels per pixel
    assert np.abs(offset).max() < 0.05


def test_blur_keeps_the_truth_in_the_middle_of_the_exposure(plain):
    blurred = Flight(light=False, noise=False)
    index = max(range(60), key=lambda index: blurred._wave('exposure', index / 10))
    soft, sharp = blurred.frame(index), plain.frame(index)
    points = grid(sharp)
    assert np.abs(displacement(sharp.image, points, soft.image, points, 3.0, 3.0)).max() < 0.03
    assert cv2.Laplacian(soft.image, cv2.CV_64F).var() < 0.7 * cv2.Laplacian(sharp.image, cv2.CV_64F).var()
    np.testing.assert_array_equal(soft.depth, sharp.depth)


@pytest.mark.parametrize('centre', [(-0.5, -3.5, 1.3), (1.3, 0.9, 1.3)], ids=['far', 'a wall reaches behind the camera'])
def test_the_nearest_face_is_seen(centre):
    """From among the boxes, where they hide one another and the horizon shows: depth against rays cut with every plane."""
    flight = Flight(height=60, width=80)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = [[1, 0, 0], [0, 0, 1], [0, -1, 0]], centre
    inverse = rasterize(pose, flight.intrinsics, (60, 80))[1]
    v, u = (axis.ravel() for axis in np.mgrid[0:60, 0:80])
    rays = np.stack([u, v, np.ones(4800)], axis=1) @ np.linalg.inv(flight.intrinsics).T @ pose[:3, :3].T
    expected = np.zeros(4800)
    for number, plane in enumerate(flight_module._town()):
        # the plane's point (s, t) at depth d on a ray: origin + s right + t down = centre + d ray
        systems = np.stack([np.tile(plane.right, (4800, 1)), np.tile(plane.down, (4800, 1)), -rays], axis=2)
        s, t, depth = np.linalg.solve(systems, np.tile(pose[:3, 3] - plane.origin, (4800, 1))[..., None])[..., 0].T
        inside = (number == 0) | ((s >= 0) & (s <= 1) & (t >= 0) & (t <= 1))
        expected = np.where(inside & (depth > 0), np.maximum(expected, 1 / depth), expected)
    assert (expected == 0).sum() > 500
    assert np.mean(np.abs(inverse.ravel() - expected) < 1e-5) > 0.998  # all but pixels that an edge cuts in half


def test_the_seed_decides_every_pixel():
    one, same, other = (Flight(height=96, width=128, seed=seed).frame(9) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.image, same.image)
    np.testing.assert_array_equal(one.depth, same.depth)
    assert (one.image != other.image).mean() > 0.5
    rendered = list(Flight(frames=2, height=96, width=128, seed=3).render())
    np.testing.assert_array_equal(rendered[1].image, Flight(height=96, width=128, seed=3).frame(1).image)
    assert [frame.stamp_ns for frame in rendered] == [1_000_000_000, 1_100_000_000]


@pytest.mark.parametrize('seed', [0, 7, 123])
def test_the_ground_fills_every_view_and_the_motion_is_lively(seed):
    flight = Flight(seed=seed)
    corners = np.array([[0, 0, 1], [639, 0, 1], [0, 479, 1], [639, 479, 1.0]]) @ np.linalg.inv(flight.intrinsics).T
    ground = flight_module._town()[0]
    poses = [flight.pose(index / 10) for index in range(60)]
    for pose in poses:
        rays = corners @ pose[:3, :3].T
        hits = pose[:3, 3] - rays * (pose[2, 3] / rays[:, 2:])
        share = (hits - ground.origin)[:, :2] / (ground.right + ground.down)[:2]
        assert rays[:, 2].max() < 0
        assert share.min() > -0.02
        assert share.max() < 1.02
    turns = [np.degrees(np.linalg.norm(cv2.Rodrigues(a[:3, :3].T @ b[:3, :3])[0])) for a, b in itertools.pairwise(poses)]
    assert 1.5 < max(turns) < 5
    steps = [np.linalg.norm(a[:3, 3] - b[:3, 3]) for a, b in itertools.pairwise(poses)]
    assert 0.2 < max(steps) < 0.6  # metres


def test_light_and_noise_do_something():
    clean = Flight(height=96, width=128, light=False, noise=False).frame(0).image.astype(float)
    lit = [Flight(height=96, width=128, noise=False).frame(index).image.mean() for index in (0, 12, 30)]
    noisy = Flight(height=96, width=128, light=False).frame(0).image - clean
    assert max(lit) / min(lit) > 1.1
    assert 1 < noisy.std() < 4
    assert abs(noisy.mean()) < 0.2


def test_depth_does_not_depend_on_the_size():
    small = Flight(height=240, width=320)
    inverse = rasterize(small.pose(2.0), small.intrinsics, (240, 320))[1]
    large = Flight().frame(20).depth
    # the centre of the small image lies between the four middle pixels of both
    np.testing.assert_allclose(1 / inverse[119:121, 159:161].mean(), large[239:241, 319:321].mean(), rtol=2e-3)


@pytest.mark.parametrize('wrong', [{'frames': 0}, {'height': 8}, {'width': 0}, {'rate_hz': 0.0}])
def test_sizes_that_cannot_be_rendered(wrong):
    with pytest.raises(ConfigError, match='cannot be rendered'):
        Flight(**wrong)


def test_missing_photographs_name_the_package(monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda _: None)
    with pytest.raises(LightglueTrtError, match='pip install scikit-image'):
        flight_module._photograph('astronaut.png', 1.0)
