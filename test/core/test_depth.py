"""Depth images: what messages hold, and where points are in space."""

from __future__ import annotations

import itertools
import struct
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.depth import DepthImage, depth_from_compressed, depth_from_image, locate
from lightglue_trt_ros.utils.compressed_depth import decode_rvl
from lightglue_trt_ros.utils.errors import FrameError

CAMERA = Intrinsics(64, 48, np.array([[60, 0, 32], [0, 60, 24], [0, 0, 1.0]]), 'plumb_bob', np.zeros(5))


def message(pixels: np.ndarray, encoding: str, big: bool = False, padding: int = 0) -> SimpleNamespace:
    rows = np.pad(np.ascontiguousarray(pixels).view(np.uint8), ((0, 0), (0, padding)))
    return SimpleNamespace(height=pixels.shape[0], width=pixels.shape[1], encoding=encoding, is_bigendian=big, step=rows.shape[1],
                           data=rows.tobytes())


def plane(slope_x: float = 0.4, slope_y: float = -0.2, distance: float = 3.0) -> np.ndarray:
    """Depth in metres (48, 64) of the plane z = distance + slope_x x + slope_y y."""
    u, v = np.meshgrid(np.arange(64), np.arange(48))
    return (distance / (1 - slope_x * (u - 32) / 60 - slope_y * (v - 24) / 60)).astype(np.float32)


def none(count: int) -> np.ndarray:
    return np.zeros((count, 2, 2), np.float32)


def test_points_on_a_slanted_plane_are_where_it_is():
    points = np.random.default_rng(0).uniform([0, 0], [63, 47], (200, 2)).astype(np.float32)
    positions = locate(DepthImage(plane(), 1.0, CAMERA), points, none(200))
    x, y, z = positions.xyz.T
    np.testing.assert_allclose(z, 3.0 + 0.4 * x - 0.2 * y, rtol=1e-5)
    np.testing.assert_allclose(np.c_[x, y] / z[:, None] * 60 + [32, 24], points, atol=1e-3)
    np.testing.assert_allclose(positions.sigma_z, 0.0025 * z * z, rtol=1e-4)


def test_the_lens_bends_the_ray_and_not_the_depth():
    bent = Intrinsics(64, 48, CAMERA.k, 'plumb_bob', np.array([-0.2, 0, 0, 0, 0]))
    position = locate(DepthImage(np.full((48, 64), 2, np.float32), 1.0, bent), np.array([[60, 40]], np.float32), none(1)).xyz[0]
    assert position[2] == pytest.approx(2.0)
    back = cv2.projectPoints(position[None].astype(float), np.zeros(3), np.zeros(3), bent.k, bent.d)[0].ravel()
    np.testing.assert_allclose(back, [60, 40], atol=1e-3)


def test_the_deviation_of_a_depth_has_that_of_its_point_along_the_slope():
    """A thousand points about one place, on a steep plane without noise: their depths spread as it says."""
    rng, covariance = np.random.default_rng(1), np.array([[0.4, 0.1], [0.1, 0.2]], np.float32)
    points = rng.multivariate_normal([30.3, 20.7], covariance, 1000).astype(np.float32)
    spread = locate(DepthImage(plane(1.2, 0.4), 1.0, CAMERA, 0.0), points, none(1000)).xyz[:, 2].std()
    claimed = locate(DepthImage(plane(1.2, 0.4), 1.0, CAMERA, 0.0), np.array([[30.3, 20.7]], np.float32), covariance[None]).sigma_z
    assert claimed[0] == pytest.approx(spread, rel=0.1)


def test_depth_near_holes_is_of_nearest_pixel_and_unknown_at_a_step():
    pixels = np.full((48, 64), 2.0, np.float32)
    pixels[:, 20:] = 3.0  # a step between columns 19 and 20
    pixels[30, 40] = np.nan
    points = np.array([[19.4, 10], [18.9, 10], [20.1, 10], [40.4, 30.4], [39.4, 30], [41, 30]], np.float32)
    z = locate(DepthImage(pixels, 1.0, CAMERA), points, none(6)).xyz[:, 2]
    np.testing.assert_array_equal(z, np.array([np.nan, 2, 3, np.nan, 3, 3], np.float32))


def test_the_nearest_pixel_is_that_of_both_axes():
    pixels = np.full((48, 64), 2.0, np.float32)
    pixels[21, 10], pixels[20, 11], pixels[21, 11] = np.nan, 2.02, 2.01
    points = np.array([[10.7, 20.2], [10.8, 20.9], [10.1, 20.3]], np.float32)
    positions = locate(DepthImage(pixels, 1.0, CAMERA), points, np.tile(np.eye(2, dtype=np.float32), (3, 1, 1)))
    np.testing.assert_allclose(positions.xyz[:, 2], [2.02, 2.01, 2.0], rtol=1e-6)
    np.testing.assert_allclose(positions.sigma_z, 0.0025 * positions.xyz[:, 2]**2, rtol=1e-5)  # no slope where one is unknown


def test_points_beside_the_image_have_no_depth():
    points = np.array([[64.2, 20], [20, 48.2], [-0.8, 20], [20, -0.8], [63.4, 20], [20, 47.4]], np.float32)
    z = locate(DepthImage(plane(), 1.0, CAMERA), points, none(6)).xyz[:, 2]
    np.testing.assert_array_equal(np.isfinite(z), [False] * 4 + [True] * 2)


def test_the_slope_is_that_at_the_point_with_all_of_its_covariance():
    """Inverse depth rises in the lower row alone: by 0.01 a pixel there, and by 0.009 nine tenths down."""
    pixels = np.full((48, 64), 2.0, np.float32)
    pixels[21, 11] = 1 / 0.51
    covariance = np.array([[0.04, 0.03], [0.03, 0.05]], np.float32)
    positions = locate(DepthImage(pixels, 1.0, CAMERA, 0.0), np.array([[10.3, 20.9]], np.float32), covariance[None])
    inverse, slope = 0.5 + 0.01 * 0.3 * 0.9, np.array([0.01 * 0.9, 0.01 * 0.3])
    assert positions.xyz[0, 2] == pytest.approx(1 / inverse, rel=1e-5)
    assert positions.sigma_z[0] == pytest.approx(np.sqrt(slope @ covariance @ slope) / inverse**2, rel=1e-3)


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('unknown', [0.0, -1.0, np.nan, np.inf, -np.inf, 1e-45, 1e-30, 3e38])  # the last: memory without a value
def test_what_is_no_depth_is_unknown_and_nothing_is_half_known(unknown):
    pixels = np.full((48, 64), unknown, np.float32)
    pixels[10:20, 10:20] = 1.5
    points = np.array([[15, 15], [40, 40], [-3, 5], [63.4, 47.4], [np.nan, 5], [1e9, 5]], np.float32)
    positions = locate(DepthImage(pixels, 1.0, CAMERA), points, none(6))
    known = np.isfinite(positions.xyz)
    np.testing.assert_array_equal(known.all(axis=1), [True, False, False, False, False, False])
    np.testing.assert_array_equal(known.any(axis=1), known.all(axis=1))
    np.testing.assert_array_equal(np.isfinite(positions.sigma_z), known.all(axis=1))


def test_no_point_at_all_is_no_matter():
    positions = locate(DepthImage(plane(), 1.0, CAMERA), np.zeros((0, 2), np.float32), none(0))
    assert positions.xyz.shape == (0, 3)
    assert positions.sigma_z.shape == (0,)


def test_millimetres_that_are_called_metres_are_refused_with_the_remedy():
    with pytest.raises(FrameError, match=r'median is 2\d\d\d m: it must be in metres .*divide by 1000.*scale'):
        depth_from_image(message(1000 * plane(), '32FC1'))


@pytest.mark.parametrize('big', [False, True])
@pytest.mark.parametrize('padding', [0, 6])
def test_images_are_read_in_their_unit_byte_order_and_step(big, padding):
    metres, order = plane(), '>' if big else '<'
    pixels, unit_m = depth_from_image(message(metres.astype(order + 'f4'), '32FC1', big, padding))
    np.testing.assert_array_equal(pixels * unit_m, metres)
    millimetres = np.round(metres * 1000)
    pixels, unit_m = depth_from_image(message(millimetres.astype(order + 'u2'), '16UC1', big, padding))
    np.testing.assert_allclose(pixels * unit_m, metres, atol=6e-4)
    position = locate(DepthImage(pixels, unit_m, CAMERA), np.array([[12.5, 9]], np.float32), none(1)).xyz[0]
    assert position[2] == pytest.approx(metres[9, 12:14].mean(), abs=1e-3)


@pytest.mark.parametrize(('change', 'told'), [
    ({'encoding': 'rgb8'}, "'rgb8': depth is 16UC1 in millimetres or 32FC1 in metres"), ({'width': 0}, 'it has no pixels'),
    ({'data': b'123'}, r"64x48 '32FC1', step 256, 3 bytes: 12285 bytes are missing"), ({'step': 64}, 'one row needs 256 bytes')])
def test_what_is_no_depth_image_is_refused(change, told):
    broken = message(plane(), '32FC1')
    vars(broken).update(change)
    with pytest.raises(FrameError, match=told):
        depth_from_image(broken)


def compressed(pixels: np.ndarray, form: str, header: bytes = bytes(12)) -> SimpleNamespace:
    return SimpleNamespace(format=form, data=header + cv2.imencode('.png', pixels)[1].tobytes())


@pytest.mark.filterwarnings('error')
def test_compressed_depth_is_read_as_its_transport_writes_it():
    """compressed_depth_image_transport: millimetres as they are, metres as 16 bits of inverse depth with two parameters."""
    metres = plane()
    millimetres = np.round(metres * 1000).astype(np.uint16)
    pixels, unit_m = depth_from_compressed(compressed(millimetres, '16UC1; compressedDepth png'))
    np.testing.assert_array_equal(pixels, millimetres)
    assert unit_m == 1e-3
    scale = 100.0 * (100.0 + 1)  # depth_quantization and depth_max as by default
    shift = 1 - scale / 100.0
    coded = (scale / metres + shift).astype(np.uint16)
    coded[0, 0] = 0
    pixels, unit_m = depth_from_compressed(compressed(coded, '32FC1; compressedDepth', struct.pack('<iff', 0, scale, shift)))
    assert np.isnan(pixels[0, 0])
    assert unit_m == 1.0
    np.testing.assert_allclose(pixels.ravel()[1:], metres.ravel()[1:], rtol=2e-3)
    nothing = struct.pack('<iff', 0, 0.0, 5.0)  # a header of zeros, and pixels as its shift
    assert np.isnan(depth_from_compressed(compressed(np.full((4, 4), 5, np.uint16), '32FC1; compressedDepth', nothing))[0]).all()


def rvl(pixels: np.ndarray) -> bytes:
    """The codes one by one, as the paper has them."""
    nibbles: list[int] = []

    def write(number: int) -> None:
        while number > 7:
            nibbles.append(number & 7 | 8)
            number >>= 3
        nibbles.append(number)

    values, at, before = pixels.ravel().tolist(), 0, 0
    while at < len(values):
        run = {}
        for known in (False, True):
            run[known] = len(list(itertools.takewhile(lambda value, known=known: bool(value) is known, values[at:])))
            write(run[known])
            at += run[known]
        for value in values[at - run[True]:at]:
            write(2 * (value - before) if value >= before else 2 * (before - value) - 1)
            before = value
    nibbles += [0] * (-len(nibbles) % 8)
    words = [sum(nibble << 28 - 4 * place for place, nibble in enumerate(nibbles[i:i + 8])) for i in range(0, len(nibbles), 8)]
    return struct.pack(f'<II{len(words)}I', pixels.shape[1], pixels.shape[0], *words)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 0.9, 1.0]), st.sampled_from([1, 40, 65536]))
def test_rvl_has_the_pixels_that_were_packed(seed, zeros, most):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, most, rng.integers(1, 20, 2)).astype(np.uint16)
    pixels[rng.random(pixels.shape) < zeros] = 0
    np.testing.assert_array_equal(decode_rvl(rvl(pixels)), pixels)


def test_compressed_depth_with_rvl_is_as_with_png():
    millimetres = np.round(plane() * 1000).astype(np.uint16)
    millimetres[3:9, 2:7] = 0
    packed = SimpleNamespace(format='16UC1; compressedDepth rvl', data=bytes(12) + rvl(millimetres))
    np.testing.assert_array_equal(depth_from_compressed(packed)[0], millimetres)
    header = struct.pack('<iff', 0, 10100.0, -100.0)
    coded = (10100.0 / np.maximum(plane(), 1) - 100).astype(np.uint16)
    packed = SimpleNamespace(format='32FC1; compressedDepth rvl', data=header + rvl(coded))
    np.testing.assert_array_equal(depth_from_compressed(packed)[0],
                                  depth_from_compressed(compressed(coded, '32FC1; compressedDepth png', header))[0])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 30), st.integers(0, 30))
def test_damaged_rvl_is_no_image_or_one_of_its_size(data, columns, rows):
    found = decode_rvl(struct.pack('<II', columns, rows) + data)
    assert found is None or (found.size and found.shape == (rows, columns))


@pytest.mark.parametrize(('form', 'data', 'told'), [
    ('jpeg', b'', "'jpeg': compressedDepth with PNG"), ('16UC1; compressedDepth rvl', bytes(40), 'no image of 16 bits'),
    ('16UC1; compressedDepth rvl', bytes(9), 'no image'),
    ('16UC1; compressedDepth rvl', bytes(12) + b'\xff\xff\0\0' * 2 + bytes(8), '65535x65535 pixels, 4295 megapixels'),
    ('16UC1; compressedDepth', b'', 'no image'), ('16UC1; compressedDepth', bytes(40), 'no image'),
    ('16UC1; compressedDepth', bytes(12) + cv2.imencode('.png', np.zeros((4, 4), np.uint8))[1].tobytes(), 'no image of 16 bits')])
def test_what_is_no_compressed_depth_is_refused(form, data, told):
    with pytest.raises(FrameError, match=told):
        depth_from_compressed(SimpleNamespace(format=form, data=data))
