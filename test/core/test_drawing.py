"""What is drawn stands where the matches say, quickly, and files appear whole or not at all."""

from __future__ import annotations

import dataclasses

import cv2
import numpy as np
import pytest
from support.matches import frame_matches

from lightglue_trt_eval.report.plots import draw_pair
from lightglue_trt_ros.core.drawing import draw_matches, shade
from lightglue_trt_ros.utils.errors import LightglueTrtError
from lightglue_trt_ros.utils.files import write_output


def some_matches(count, seed=0):
    rng = np.random.default_rng(seed)
    keypoints = rng.uniform((0, 0), (639, 479), (count, 2)).astype(np.float32)
    before = keypoints + rng.normal(0, 15, (count, 2)).astype(np.float32)
    return frame_matches(keypoints, before, 2.0, scores=rng.uniform(0.1, 1, count).astype(np.float32),
                         track_lengths=rng.integers(2, 50, count).astype(np.uint32))


def one_match(current, reference, length):
    return frame_matches([current], [reference], 2.0, track_lengths=np.array([length], np.uint32))


@pytest.fixture
def gray():
    return np.full((480, 640), 90, np.uint8)


def test_a_match_is_a_dot_and_a_line_to_where_it_came_from(gray):
    drawn = draw_matches(gray, one_match((300.25, 200.75), (340.0, 180.0), 5))
    assert (drawn.shape, drawn.dtype) == ((480, 640, 3), np.uint8)
    changed = (drawn[:440] != 90).any(axis=2)
    v, u = np.nonzero(changed)
    assert changed[201, 300]
    assert changed[180, 340]
    assert changed[190, 320]
    assert 297 <= u.min() < u.max() <= 341
    assert 179 <= v.min() < v.max() <= 204
    heavy = np.nonzero(changed[:, 297:304])
    assert (heavy[1].mean() + 297, heavy[0].mean()) == pytest.approx((300.25, 200.75), abs=0.7)
    assert (gray == 90).all()


def test_what_is_masked_is_dark(gray):
    allowed = np.zeros_like(gray)
    allowed[:, 10:] = 255
    shaded = shade(gray, allowed)
    assert shaded.dtype == np.uint8
    np.testing.assert_array_equal(shaded[:, 10:], gray[:, 10:])
    np.testing.assert_array_equal(shaded[:, :10], gray[:, :10] // 3)


def test_an_ellipse_shows_what_is_known_of_a_point(gray):
    across = dataclasses.replace(one_match((300, 200), (300, 200), 5), covariances=np.array([[[4, 0], [0, 0.01]]], np.float32))
    plain, drawn = draw_matches(gray, across), draw_matches(gray, across, True)
    v, u = np.nonzero((plain != drawn).any(axis=2))
    assert (u.min(), u.max()) == (pytest.approx(280, abs=2), pytest.approx(320, abs=2))
    assert v.max() - v.min() < 6
    unknown = dataclasses.replace(across, covariances=np.full((1, 2, 2), np.nan, np.float32))
    np.testing.assert_array_equal(draw_matches(gray, unknown, True), plain)


def test_the_colour_tells_the_age(gray):
    drawn = [draw_matches(gray, one_match((100, 100), (100, 100), length)) for length in (2, 15, 30, 4_000_000_000)]
    pixel = [image[100, 100].astype(int) for image in drawn]
    assert pixel[0][0] > pixel[0][2] + 100  # new: blue
    assert pixel[2][2] > pixel[2][0] + 100  # old: red
    assert abs(pixel[1] - pixel[0]).max() > 80
    np.testing.assert_array_equal(pixel[2], pixel[3])


@pytest.mark.parametrize('count', [0, 1, 1000])
@pytest.mark.parametrize('channels', [(), (3,)])
def test_any_number_of_matches_on_gray_and_colour(count, channels):
    image = np.zeros((480, 640, *channels), np.uint8)
    drawn = draw_matches(image, some_matches(count))
    assert drawn.shape == (480, 640, 3)
    assert drawn[450:].any()  # the line of text
    assert drawn[:450].any() == (count > 0)
    assert not image.any()


def test_positions_far_outside_or_not_finite_do_no_harm(gray):
    wild = [draw_matches(gray, one_match((320, 240), at, 3)) for at in ((1e30, -1e30), (np.nan, np.inf), (-5000, 240))]
    assert all((image[240, 320] != 90).any() for image in wild)
    assert (wild[2][240, :320] != 90).any(axis=1).all()


@pytest.fixture(autouse=True)
def _matplotlib(request):
    if 'tmp_path' in request.fixturenames or 'errors' in request.fixturenames:
        pytest.importorskip('matplotlib', reason='pictures in files are drawn with matplotlib')


def decoded(png):
    return cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)


@pytest.mark.parametrize('errors', [False, True])
def test_a_pair_is_drawn_side_by_side_in_the_colours_of_its_errors(gray, errors):
    matches = some_matches(400)
    errors_px = np.abs(np.random.default_rng(1).normal(0, 2, 400)) if errors else None
    image = decoded(draw_pair((gray, gray), (matches.reference_keypoints, matches.keypoints), errors_px, 'title', 'text', 'px'))
    assert image.shape[1] > 1.4 * image.shape[0]
    hue, saturation, _ = np.moveaxis(cv2.cvtColor(image, cv2.COLOR_BGR2HSV)[150:-200], 2, 0)
    assert (saturation > 60).sum() > 5000
    assert (((hue < 25) & (saturation > 150)).sum() > 500) == errors, 'red and orange are errors'


def test_a_pair_without_matches_and_of_two_sizes(gray):
    nothing = np.zeros((0, 2), np.float32)
    assert decoded(draw_pair((gray, gray[:300, :500]), (nothing, nothing), np.empty(0), '', '', '')) is not None


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / 'file').write_text('in the way')
    (tmp_path / 'taken.png').mkdir()
    for path in (tmp_path / 'file' / 'layers.png', tmp_path / 'taken.png'):
        with pytest.raises(LightglueTrtError, match=rf'{path.name} cannot be written'):
            write_output(path, b'png')
    write_output(tmp_path / 'new' / 'layers.png', b'png')
    assert (tmp_path / 'new' / 'layers.png').read_bytes() == b'png'
    assert sorted(file.name for file in tmp_path.iterdir()) == ['file', 'new', 'taken.png']
