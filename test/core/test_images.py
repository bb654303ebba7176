"""Images: every encoding against an independent computation, and what malformed input does."""

from __future__ import annotations

import array
import contextlib
import struct
import sys
import types

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip('sensor_msgs', reason='ROS 2 message packages are not installed')

from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from lightglue_trt_ros.core.images import LAYOUTS, fill_image, gray_from_compressed, gray_from_image, view_image
from lightglue_trt_ros.utils.errors import ConfigError, ImageEncodingError

pytestmark = [pytest.mark.ros, pytest.mark.release]

SIZES = [(24, 32), (7, 9), (3, 3)]
MOSAIC = {'r': 0, 'g': 1, 'b': 2}


def scene(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A smooth random RGB image, uint8 (height, width, 3), so that demosaicing can be compared with the truth."""
    noise = np.random.default_rng(seed).uniform(0, 255, (height, width, 3))
    return cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 4), None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


def luma(rgb: np.ndarray) -> np.ndarray:
    """ITU-R BT.601 luma, float, written out here so that OpenCV's colour order is not trusted."""
    return rgb.astype(np.float64) @ [0.299, 0.587, 0.114]


def message(rows: np.ndarray, height: int, width: int, encoding: str, *, padding: int = 0, big: bool = False) -> Image:
    """An Image from its rows of bytes, (rows, bytes per row) uint8, each followed by `padding` bytes of 0xa5."""
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=0xa5)
    msg = Image(height=height, width=width, encoding=encoding, step=rows.shape[1], is_bigendian=int(big))
    msg.data.frombytes(rows.tobytes())
    return msg


def byte_rows(samples: np.ndarray, *, big: bool = False) -> np.ndarray:
    """(H, W[, C]) uint8 or uint16 to (H, bytes) in the byte order asked for."""
    wide = samples.astype(samples.dtype.newbyteorder('>' if big else '<'))
    return np.frombuffer(wide.tobytes(), np.uint8).reshape(len(samples), -1)


def mosaic(rgb: np.ndarray, pattern: str) -> np.ndarray:
    """What a sensor behind the colour filter `pattern` (top-left 2x2 pixels, row by row) sees of `rgb`."""
    raw = np.empty(rgb.shape[:2], rgb.dtype)
    for index, colour in enumerate(pattern):
        row, column = divmod(index, 2)
        raw[row::2, column::2] = rgb[row::2, column::2, MOSAIC[colour]]
    return raw


@pytest.mark.parametrize('padding', [0, 1, 5])
@pytest.mark.parametrize('size', [*SIZES, (1, 1), (1, 5)])
@pytest.mark.parametrize('encoding', ['mono8', '8UC1'])
def test_mono8_is_a_view_of_the_message(encoding, size, padding):
    gray = scene(*size)[..., 0]
    msg = message(gray, *size, encoding, padding=padding)
    out = gray_from_image(msg)
    assert out.dtype == np.uint8
    np.testing.assert_array_equal(out, gray)
    assert np.shares_memory(out, np.frombuffer(msg.data, np.uint8))
    assert out.flags.c_contiguous or padding


def test_data_longer_than_declared_is_refused_as_in_cv_bridge():
    """Of a driver that pads rows or planes, and does not say so: the picture would be sheared."""
    gray = scene(24, 32)[..., 0]
    for encoding, rows in (('mono8', gray), ('nv12', np.vstack([gray, gray[:12]])), ('bayer_rggb8', gray)):
        msg = message(rows, 24, 32, encoding)
        msg.data.frombytes(bytes(7))
        with pytest.raises(ImageEncodingError, match=r'\b7 bytes more than step x \d+ rows.* must set step to the full row length'):
            gray_from_image(msg)


@pytest.mark.parametrize('big', [False, True])
@pytest.mark.parametrize('padding', [0, 1, 4])
@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('encoding', ['mono16', '16UC1'])
def test_sixteen_bit_gives_its_top_byte(encoding, size, padding, big):
    wide = np.random.default_rng(1).integers(0, 65536, size, dtype=np.uint16)
    out = gray_from_image(message(byte_rows(wide, big=big), *size, encoding, padding=padding, big=big))
    np.testing.assert_array_equal(out, wide // 256)


@pytest.mark.parametrize('big', [False, True])
@pytest.mark.parametrize('padding', [0, 1, 4])  # an odd step puts 16-bit rows at odd addresses
@pytest.mark.parametrize('bits', [8, 10, 12, 14])
def test_low_aligned_bits_are_scaled_by_what_the_camera_has(bits, padding, big):
    wide = np.random.default_rng(2).integers(0, 2 ** bits, (7, 9), dtype=np.uint16)
    wide[0, 0], wide[0, 1] = 2 ** bits - 1, min(2 ** bits + 300, 65535)  # the brightest, and one beyond: both white
    out = gray_from_image(message(byte_rows(wide, big=big), 7, 9, 'mono16', padding=padding, big=big), bits)
    assert np.abs(out - np.minimum(wide / 2 ** (bits - 8), 255)).max() <= 0.5
    assert out[0, 0] == out[0, 1] == 255


def test_a_pixel_does_not_depend_on_the_rest_of_the_frame():
    """Descriptors of consecutive frames must stay comparable: no gain that follows the brightest pixel."""
    dark = np.full((5, 5), 1000, np.uint16)
    lit = dark.copy()
    lit[0, 0] = 65535
    for bits in (16, 12):
        first, second = (gray_from_image(message(byte_rows(image), 5, 5, 'mono16'), bits) for image in (dark, lit))
        np.testing.assert_array_equal(first.ravel()[1:], second.ravel()[1:])


@pytest.mark.parametrize('bits', [7, 17])
def test_impossible_bits_are_refused(bits):
    with pytest.raises(ConfigError, match=str(bits)):
        gray_from_image(message(byte_rows(np.zeros((4, 4), np.uint16)), 4, 4, 'mono16'), bits)


@pytest.mark.parametrize('padding', [0, 1, 7])
@pytest.mark.parametrize('size', [*SIZES, (1, 1), (1, 5)])
@pytest.mark.parametrize(('encoding', 'order'), [
    ('rgb8', 'rgb'), ('bgr8', 'bgr'), ('rgba8', 'rgba'), ('bgra8', 'bgra'), ('8UC3', 'bgr'), ('8UC4', 'bgra')])
def test_colour(encoding, order, size, padding):
    rgb = scene(*size)
    planes = np.dstack([rgb, np.full(size, 77, np.uint8)])[..., ['rgba'.index(name) for name in order]]
    out = gray_from_image(message(byte_rows(planes), *size, encoding, padding=padding))
    assert out.dtype == np.uint8
    assert out.shape == size
    assert np.abs(out - luma(rgb)).max() <= 1.0


@pytest.mark.parametrize('big', [False, True])
@pytest.mark.parametrize('bits', [16, 12])
@pytest.mark.parametrize(('encoding', 'order'), [
    ('rgb16', 'rgb'), ('bgr16', 'bgr'), ('rgba16', 'rgba'), ('bgra16', 'bgra'), ('16UC3', 'bgr'), ('16UC4', 'bgra')])
def test_colour_of_sixteen_bits(encoding, order, bits, big):
    rgb = scene(7, 9).astype(np.uint16) << (bits - 8)
    planes = np.dstack([rgb, np.full((7, 9), 77, np.uint16)])[..., ['rgba'.index(name) for name in order]]
    out = gray_from_image(message(byte_rows(planes, big=big), 7, 9, encoding, padding=3, big=big), bits)
    assert np.abs(out - luma(scene(7, 9))).max() <= 1.0


@pytest.mark.parametrize('big', [False, True])
@pytest.mark.parametrize('depth', [8, 16])
@pytest.mark.parametrize('pattern', ['rggb', 'bggr', 'gbrg', 'grbg'])
def test_bayer(pattern, depth, big):
    """Pure colours tell the order of the filter beyond doubt (red 76, green 150, blue 29); a smooth scene tells the rest."""
    for size in ((24, 32), (23, 31), (3, 3)):
        for channel, value in enumerate((76, 150, 29)):
            pure = np.zeros((*size, 3), np.uint8)
            pure[..., channel] = 255
            raw = mosaic(pure, pattern).astype(np.uint8 if depth == 8 else np.uint16) * (1 if depth == 8 else 256)
            out = gray_from_image(message(byte_rows(raw, big=big), *size, f'bayer_{pattern}{depth}', padding=3, big=big))
            assert out.shape == size
            assert np.abs(out[1:-1, 1:-1].astype(int) - value).max() <= 1
    rgb = scene(48, 64)
    raw = mosaic(rgb, pattern).astype(np.uint16) << (depth - 8)
    raw = raw.astype(np.uint8) if depth == 8 else raw
    out = gray_from_image(message(byte_rows(raw, big=big), 48, 64, f'bayer_{pattern}{depth}', big=big))
    assert np.abs(out - luma(rgb))[2:-2, 2:-2].mean() < 1.0


@pytest.mark.parametrize('size', [(1, 1), (2, 8), (8, 2)])
def test_a_mosaic_too_small_to_demosaic_is_refused(size):
    with pytest.raises(ImageEncodingError, match='3x3'):
        gray_from_image(message(np.full(size, 200, np.uint8), *size, 'bayer_rggb8'))


@pytest.mark.parametrize('padding', [0, 3])
@pytest.mark.parametrize('size', [*SIZES, (1, 1)])
@pytest.mark.parametrize(('encoding', 'first'), [('yuv422', 1), ('uyvy', 1), ('yuv422_yuy2', 0), ('yuyv', 0)])
def test_packed_yuv_gives_its_luma_untouched(encoding, first, size, padding):
    gray = scene(*size)[..., 0]
    packed = np.full((*size, 2), 128, np.uint8)
    packed[..., first] = gray
    msg = message(byte_rows(packed), *size, encoding, padding=padding)
    np.testing.assert_array_equal(gray_from_image(msg), gray)
    assert np.shares_memory(gray_from_image(msg), np.frombuffer(msg.data, np.uint8))


@pytest.mark.parametrize('padding', [0, 3])
@pytest.mark.parametrize('size', [(24, 32), (7, 9)])
@pytest.mark.parametrize('encoding', ['nv12', 'nv21', 'nv24'])
def test_planar_yuv_gives_its_luma_plane(encoding, size, padding):
    gray = scene(*size)[..., 0]
    rows = np.vstack([gray, np.full((2 * size[0] if encoding == 'nv24' else (size[0] + 1) // 2, size[1]), 99, np.uint8)])
    msg = message(rows, *size, encoding, padding=padding)
    np.testing.assert_array_equal(gray_from_image(msg), gray)
    del msg.data[-1]
    with pytest.raises(ImageEncodingError, match=r'\b1 bytes are missing'):  # a chroma byte: the message was cut
        gray_from_image(msg)


def test_every_supported_encoding_is_tested_above():
    tested = {'mono8', '8UC1', 'mono16', '16UC1', 'rgb8', 'bgr8', 'rgba8', 'bgra8', '8UC3', '8UC4', 'rgb16', 'bgr16', 'rgba16',
              'bgra16', '16UC3', '16UC4', 'yuv422', 'uyvy', 'yuv422_yuy2', 'yuyv', 'nv12', 'nv21', 'nv24'}
    tested |= {f'bayer_{name}{depth}' for name in ('rggb', 'bggr', 'gbrg', 'grbg') for depth in (8, 16)}
    assert tested == set(LAYOUTS)


NUMBERS = [f'{kind}C{channels}' for kind in ('8S', '16S', '32S', '32F', '64F') for channels in (1, 2, 3, 4)] + ['8UC2', '16UC2']


def test_every_encoding_of_sensor_msgs_is_read_or_refused_by_name():
    """Those of sensor_msgs/image_encodings.hpp; cv_bridge refuses to make gray of mere numbers."""
    of_colour = ['rgb8', 'rgba8', 'rgb16', 'rgba16', 'bgr8', 'bgra8', 'bgr16', 'bgra16', 'mono8', 'mono16', 'yuv422', 'uyvy',
                 'yuv422_yuy2', 'yuyv', 'nv21', 'nv24', *(f'bayer_{name}{bits}' for name in ('rggb', 'bggr', 'gbrg', 'grbg')
                                                          for bits in (8, 16))]
    numeric = [f'{kind}C{channels}' for kind in ('8U', '16U') for channels in (1, 3, 4)]
    for encoding in (*of_colour, *numeric):
        assert encoding in LAYOUTS
    for encoding in NUMBERS:
        assert encoding not in LAYOUTS
        with pytest.raises(ImageEncodingError, match=rf"^image encoding '{encoding}' is none of mono8, .* no brightness; set the"):
            gray_from_image(message(np.zeros((4, 6 * 32), np.uint8), 4, 6, encoding))
    with pytest.raises(ImageEncodingError, match=r'or give the images as depth$'):
        gray_from_image(message(np.zeros((4, 24), np.uint8), 4, 6, '32FC1'))


@pytest.mark.parametrize(('change', 'told'), [
    ({'width': 0}, 'no pixels'), ({'height': 0}, 'no pixels'),
    ({'step': 5}, 'one row needs 6 bytes'), ({'step': 0}, 'one row needs 6 bytes'),
    ({'height': 6}, '12 bytes are missing'),
    ({'width': 2 ** 32 - 1, 'step': 2 ** 32 - 1, 'height': 2 ** 32 - 1}, f'{(2 ** 32 - 1) ** 2 - 24} bytes are missing'),
    ({'encoding': 'bgr8'}, 'one row needs 18 bytes')])
def test_a_malformed_image_says_what_is_wrong(change, told):
    msg = message(scene(4, 6)[..., 0], 4, 6, 'mono8')
    for name, value in change.items():
        setattr(msg, name, value)
    with pytest.raises(ImageEncodingError, match=told):
        gray_from_image(msg)


def test_an_unknown_encoding_is_the_reason_whatever_its_bytes(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cv_bridge', None)
    for encoding in ('i420', 'NV12'):
        with pytest.raises(ImageEncodingError, match=f"encoding '{encoding}' is none of mono8"):
            gray_from_image(types.SimpleNamespace(height=4, width=4, encoding=encoding, step=4, data=bytes(24), is_bigendian=0))


def test_without_cv_bridge_an_unknown_encoding_names_the_ways_out(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cv_bridge', None)  # importing it now fails, also where it is installed
    with pytest.raises(ImageEncodingError) as caught:
        gray_from_image(message(np.zeros((4, 24), np.uint8), 4, 6, 'MONO8'))
    for part in ('MONO8', 'mono8', 'bayer_*8', 'install cv_bridge'):
        assert part in str(caught.value)


@pytest.mark.parametrize(('answer', 'told'), [
    (np.full((4, 6), 9, np.uint8), None), (np.zeros((4, 6), np.float32), 'float32'), (np.zeros((6, 4), np.uint8), r'\(6, 4\)'),
    (RuntimeError('[32FC1] is not a color format'), 'not a color format')])
def test_other_encodings_go_through_cv_bridge(monkeypatch, answer, told):
    class CvBridge:
        def imgmsg_to_cv2(self, msg, encoding):
            assert encoding == 'mono8'
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setitem(sys.modules, 'cv_bridge', types.SimpleNamespace(CvBridge=CvBridge))
    msg = message(np.zeros((4, 24), np.uint8), 4, 6, 'of_a_vendor')
    if told is None:
        np.testing.assert_array_equal(gray_from_image(msg), answer)
    else:
        with pytest.raises(ImageEncodingError, match=told):
            gray_from_image(msg)


small = st.integers(0, 12)
uint32 = st.one_of(small, small, st.integers(0, 2 ** 32 - 1))
encodings = st.one_of(st.sampled_from(sorted(LAYOUTS)), st.sampled_from(['', '32FC1', 'nv24', 'MONO8']), st.text(max_size=80))


@settings(max_examples=400, deadline=None)
@given(encoding=encodings, height=uint32, width=uint32, step=uint32, big=st.integers(0, 255), data=st.binary(max_size=700),
       bits=st.integers(8, 16))
@example(encoding='mono16', height=2, width=3, step=7, big=0, data=bytes(14), bits=12)
def test_malformed_images_give_an_array_or_an_image_encoding_error(encoding, height, width, step, big, data, bits):
    msg = Image(encoding=encoding, height=height, width=width, step=step, is_bigendian=big, data=array.array('B', data))
    with contextlib.suppress(ImageEncodingError):
        out = gray_from_image(msg, bits)
        assert out.dtype == np.uint8
        assert out.shape == (height, width)
        assert int(out.sum()) >= 0  # every byte can be read


@settings(max_examples=200, deadline=None)
@given(encoding=st.sampled_from(sorted(LAYOUTS)), height=st.integers(3, 9), width=st.integers(3, 9), padding=small,
       seed=st.integers(0, 99))
def test_well_formed_images_always_decode(encoding, height, width, padding, seed):
    chroma = {'nv12': (height + 1) // 2, 'nv21': (height + 1) // 2, 'nv24': 2 * height}
    step, rows = 8 * width + padding, height + chroma.get(encoding, 0)
    data = np.random.default_rng(seed).integers(0, 256, step * rows, dtype=np.uint8).tobytes()
    msg = Image(encoding=encoding, height=height, width=width, step=step, data=array.array('B', data))
    assert gray_from_image(msg).shape == (height, width)


def compressed(image: np.ndarray, kind: str = 'png', label: str | None = None, *options: int) -> CompressedImage:
    done, data = cv2.imencode(f'.{kind}', image, list(options))
    assert done
    msg = CompressedImage(format=label or kind)
    msg.data.frombytes(data.tobytes())
    return msg


def test_compressed_colour_and_gray():
    rgb = scene(40, 60)
    assert np.abs(gray_from_compressed(compressed(rgb[..., ::-1])) - luma(rgb)).max() <= 1.5  # libpng rounds down
    np.testing.assert_array_equal(gray_from_compressed(compressed(rgb[..., 0])), rgb[..., 0])
    jpeg = compressed(rgb[..., ::-1], 'jpg', 'rgb8; jpeg compressed bgr8', cv2.IMWRITE_JPEG_QUALITY, 95)
    assert np.abs(gray_from_compressed(jpeg) - luma(rgb)).mean() < 1.5


@pytest.mark.parametrize('bits', [16, 12])
def test_compressed_sixteen_bit_follows_the_rule_of_raw_images(bits):
    wide = np.random.default_rng(3).integers(0, 2 ** bits, (9, 11), dtype=np.uint16)
    out = gray_from_compressed(compressed(wide, 'png', 'mono16; png compressed mono16'), bits)
    np.testing.assert_array_equal(out, gray_from_image(message(byte_rows(wide), 9, 11, 'mono16'), bits))


def test_compressed_mosaic_is_demosaiced_only_when_it_is_still_one():
    raw = mosaic(scene(24, 32), 'gbrg')
    expected = gray_from_image(message(raw, 24, 32, 'bayer_gbrg8'))
    np.testing.assert_array_equal(gray_from_compressed(compressed(raw, 'png', 'bayer_gbrg8; png compressed ')), expected)
    np.testing.assert_array_equal(gray_from_compressed(compressed(raw, 'png', 'bayer_gbrg8; png compressed mono8')), raw)


def test_exif_orientation_is_ignored():
    """Calibration and odometry speak of the sensor's rows and columns."""
    jpeg = bytes(compressed(scene(16, 40), 'jpg').data)
    tiff = struct.pack('<2sHIHHHIHHI', b'II', 42, 8, 1, 0x0112, 3, 1, 6, 0, 0)  # orientation 6: turn by 90 degrees
    exif = b'\xff\xe1' + struct.pack('>H', len(tiff) + 8) + b'Exif\0\0' + tiff
    turned = jpeg[:2] + exif + jpeg[2:]
    assert cv2.imdecode(np.frombuffer(turned, np.uint8), cv2.IMREAD_GRAYSCALE).shape == (40, 16)  # the tag is understood
    assert gray_from_compressed(CompressedImage(format='jpeg', data=array.array('B', turned))).shape == (16, 40)


@pytest.mark.parametrize('kind', ['jpg', 'png'])
@pytest.mark.parametrize('keep', [0.0, 0.01, 0.3, 0.7, 0.95])
def test_truncated_files_are_refused_whatever_opencv_makes_of_them(kind, keep):
    msg = compressed(scene(64, 96), kind)
    del msg.data[int(len(msg.data) * keep):]
    with pytest.raises(ImageEncodingError, match=f'{len(msg.data)} bytes'):
        gray_from_compressed(msg)


def jpeg_of(image: np.ndarray, *options: int) -> bytes:
    return bytes(compressed(image, 'jpg', None, *options).data)


def decoded(data: bytes) -> np.ndarray:
    return gray_from_compressed(CompressedImage(format='jpeg', data=array.array('B', data)))


@pytest.mark.parametrize('options', [(), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1), (cv2.IMWRITE_JPEG_RST_INTERVAL, 2)])
def test_what_follows_the_end_of_a_jpeg_does_not_count(options):
    """Motion photos of telephones: a video, or more JPEGs, whose bytes look like markers."""
    jpeg = jpeg_of(scene(64, 96), *options)
    for trailer in (b'MotionPhoto' + bytes(range(256)) * 8, b'\xff\xda' * 3, b'\xff\xd8\xff\xe0' + jpeg[2:100], jpeg, bytes(4096)):
        np.testing.assert_array_equal(decoded(jpeg + trailer), decoded(jpeg))


@pytest.mark.parametrize('options', [(), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1), (cv2.IMWRITE_JPEG_RST_INTERVAL, 2)])
def test_a_jpeg_that_ends_within_its_pixels_is_refused_without_a_line(options, capfd):
    jpeg = jpeg_of(scene(64, 96), *options)
    for cut in range(4, len(jpeg) - 700, 7):
        for end in (b'', bytes(1000)):  # cameras hand out buffers of a fixed size
            with pytest.raises(ImageEncodingError, match=f'the JPEG is cut off after {len(jpeg) - cut + len(end)} bytes'):
                decoded(jpeg[:-cut] + end)
    assert capfd.readouterr().err == '', 'a camera may send many of them'


def test_a_jpeg_without_its_end_marker_has_all_its_pixels():
    """Some cameras leave it out."""
    jpeg = jpeg_of(scene(64, 96))
    for data in (jpeg[:-2], jpeg[:-1], jpeg[:-2] + bytes(50)):
        np.testing.assert_array_equal(decoded(data), decoded(jpeg))


def test_a_cut_jpeg_is_refused_despite_the_end_marker_of_its_thumbnail():
    jpeg, thumbnail = bytes(compressed(scene(64, 96), 'jpg').data), bytes(compressed(scene(8, 8), 'jpg').data)
    segment = b'\xff\xe1' + struct.pack('>H', len(thumbnail) + 2) + thumbnail
    whole = jpeg[:2] + segment + jpeg[2:] + bytes(5)  # zero padding behind the end, as V4L2 drivers leave it
    assert gray_from_compressed(CompressedImage(format='jpeg', data=array.array('B', whole))).shape == (64, 96)
    with pytest.raises(ImageEncodingError, match='cut off'):
        gray_from_compressed(CompressedImage(format='jpeg', data=array.array('B', whole[:-300])))


def test_compressed_depth_is_refused_by_name():
    with pytest.raises(ImageEncodingError, match='depth image'):
        gray_from_compressed(compressed(np.zeros((4, 4), np.uint16), 'png', '16UC1; compressedDepth png'))


PNG, JPEG = (bytes(compressed(scene(12, 16), kind).data) for kind in ('png', 'jpg'))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(base=st.sampled_from([b'', PNG, JPEG]), noise=st.binary(max_size=60), at=st.integers(0, 700), label=st.text(max_size=20))
@example(base=b'', noise=b'\xff\xd8\xff', at=0, label='jpeg')
@example(base=PNG, noise=struct.pack('>II', 2 ** 31 - 1, 2 ** 31 - 1), at=16, label='png')  # claims an absurd size
def test_random_files_give_an_array_or_an_image_encoding_error(base, noise, at, label):
    data = array.array('B', base[:at] + noise + base[at + len(noise):])
    with contextlib.suppress(ImageEncodingError):
        out = gray_from_compressed(CompressedImage(format=label, data=data))
        assert out.dtype == np.uint8
        assert out.ndim == 2
        assert out.size


@pytest.mark.parametrize('encoding', ['mono8', 'bgr8', 'rgb8'])
def test_image_round_trip(encoding):
    rgb = scene(7, 9)
    image = {'mono8': rgb[..., 0], 'rgb8': rgb, 'bgr8': rgb[..., ::-1]}[encoding]  # two of them are not contiguous
    header = Header(frame_id='camera_optical')
    msg = fill_image(Image(header=header), image, encoding)
    assert (msg.height, msg.width, msg.step, msg.encoding) == (7, 9, image[0].size, encoding)
    assert msg.header == header
    np.testing.assert_array_equal(np.frombuffer(msg.data, np.uint8).reshape(image.shape), image)
    assert np.abs(gray_from_image(msg) - (rgb[..., 0] if encoding == 'mono8' else luma(rgb))).max() <= 1.0


@pytest.mark.parametrize(('shape', 'dtype', 'encoding'), [
    ((4, 4), np.uint8, 'bgr8'), ((4, 4, 3), np.uint8, 'mono8'), ((4, 4), np.uint16, 'mono8'), ((4, 4), np.uint8, 'nv12'),
    ((4, 4), np.uint8, 'jpeg'), ((0, 4), np.uint8, 'mono8'), ((4,), np.uint8, 'mono8'), ((2, 4, 4, 1), np.uint8, 'mono8')])
def test_an_array_that_does_not_fit_its_encoding_is_refused(shape, dtype, encoding):
    with pytest.raises(ImageEncodingError, match=encoding):
        fill_image(Image(), np.zeros(shape, dtype), encoding)


@given(frame=st.text(st.characters(exclude_characters='\0', exclude_categories=['Cs']), max_size=9), encoding=st.sampled_from(
    ['', 'mono8', '16UC1', 'bayer_rggb8']), numbers=st.tuples(*[st.integers(0, 2**32 - 1)] * 3), big_endian=st.booleans(),
    data=st.binary(max_size=40))
def test_view_of_serialized_image_has_its_fields_and_copies_no_data(frame, encoding, numbers, big_endian, data):
    height, width, step = numbers
    message = Image(header=Header(frame_id=frame), height=height, width=width, encoding=encoding, step=step,
                    is_bigendian=big_endian, data=array.array('B', data))
    raw = bytes(serialize_message(message))
    view = view_image(raw)
    assert view is not None
    assert (view.height, view.width, view.encoding, view.is_bigendian, view.step) == (height, width, encoding, big_endian, step)
    assert (view.data.tobytes(), view.data.obj) == (data, raw)


def test_bytes_that_are_no_whole_image_have_no_view():
    message = Image(header=Header(frame_id='camera'), height=2, width=3, encoding='16UC1', step=6, data=array.array('B', bytes(12)))
    raw = bytes(serialize_message(message))
    whole = 64  # bytes; some implementations pad the end
    assert [length for length in range(len(raw) + 1) if view_image(raw[:length]) is not None] == list(range(whole, len(raw) + 1))
    assert view_image(b'\0\0' + raw[2:]) is None  # big-endian
    assert view_image(raw[:12] + b'\xff\xff\xff\xff' + raw[16:]) is None
    assert view_image(raw.replace(b'16UC1', b'\xff6UC1')) is None
