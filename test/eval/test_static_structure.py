"""Structure that is no part of the scene: what stands still does, what changes follows the frame's number, and poses are right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.image_recordings import image_folder, pinhole
from support.networks import photo

from lightglue_trt_eval.images.degradation import (
    DEGRADATIONS,
    camera_stands,
    degraded,
    degraded_frames,
    description_of,
    in_lines,
)
from lightglue_trt_eval.images.static_structure import STRUCTURES
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.datasets.sequence import Frame, ImageRecord
from lightglue_trt_ros.utils.errors import BagError

FIXED = ('border', 'bonnet', 'dots', 'dots35', 'hot', 'fixed', 'dirt', 'spot')  # the same pattern in every frame
CHANGING = ('text', 'rain', 'screen', 'person')  # by the frame's number
HEIGHT, WIDTH = 120, 160


def flat(level: int = 128, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    return np.full((height, width), level, np.uint8)


def pattern(name: str, number: int = 0, seed: int = 0, level: int = 128) -> np.ndarray:
    """The mean of ten images of one gray level, so that noise is low."""
    images = [flat(level) for _ in range(10)]
    for order, image in enumerate(images):
        image[0, 0] = order  # another noise
    return np.mean([degraded(image, name, seed, number=number).astype(float) for image in images], axis=0)[1:]


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def test_every_kind_is_in_a_group_of_these_tests() -> None:
    assert {*FIXED, *CHANGING, 'alternating', 'jpeg30', 'jpeg10', 'interlace'} == set(STRUCTURES)


@pytest.mark.parametrize('name', STRUCTURES)
@pytest.mark.parametrize('shape', [(120, 160), (1, 1), (2, 3), (7, 5), (37, 61), (33, 200), (90, 20)])
def test_images_of_any_size_stay_gray_and_the_same_in_every_run(name: str, shape: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    before = np.roll(image, 1)
    for number in (0, 1, 57):
        found = degraded(image, name, number=number, before=lambda: before)
        assert (found.dtype, found.shape) == (np.uint8, shape)
        np.testing.assert_array_equal(found, degraded(image.copy(), name, number=number, before=lambda: before))
    np.testing.assert_array_equal(image, np.random.default_rng(0).integers(0, 256, shape, np.uint8))


@pytest.mark.parametrize('name', FIXED)
def test_a_pattern_stands_still_under_any_content_and_number(name: str) -> None:
    found = pattern(name)
    assert correlation(found, pattern(name, number=40)) > 0.9
    assert correlation(found, pattern(name, level=160)) > 0.85
    if name not in ('border', 'spot'):  # of which seeds move the middle at most
        assert correlation(found, pattern(name, seed=1)) < 0.8


@pytest.mark.parametrize('name', [*FIXED, 'alternating', 'screen', 'person'])
def test_images_that_are_the_same_have_noise_of_their_own(name: str) -> None:
    one, other = (degraded(flat(), name, number=number).astype(float)[1:] - pattern(name, number) for number in (1, 3))
    still = (np.abs(one) < 15) & (np.abs(other) < 15)
    assert abs(correlation(one[still], other[still])) < 0.2
    assert one[still].std() > 0.5


@pytest.mark.parametrize('name', CHANGING)
def test_what_changes_follows_the_number_of_the_frame(name: str) -> None:
    now, later = pattern(name, 0), pattern(name, 1)
    assert np.abs(now - later).max() > 20
    if name == 'rain':  # slowly
        assert correlation(now, later) > 0.9 > correlation(now, pattern(name, 300))


def test_a_border_hides_a_tenth_of_any_image_and_nothing_else() -> None:
    for height, width in ((120, 160), (60, 200), (100, 100)):
        image = flat(200, height, width)
        dark = degraded(image, 'border') < 100
        assert dark.mean() == pytest.approx(0.1, abs=0.02)
        assert dark[[0, 0, -1, -1], [0, -1, 0, -1]].all()
        assert not dark[height // 4:-height // 4, width // 3:-width // 3].any()


def test_a_bonnet_is_opaque_textured_and_a_sixth_of_the_image() -> None:
    dark, bright = (degraded(flat(level), 'bonnet').astype(float) for level in (20, 220))
    hidden = np.abs(bright - dark) < 60
    assert hidden.mean() == pytest.approx(1 / 6, abs=0.03)
    assert not hidden[:HEIGHT * 3 // 4].any()
    assert dark[hidden].std() > 15
    assert cv2.connectedComponents(hidden[-HEIGHT // 12:].astype(np.uint8))[0] == 2


def test_digits_of_a_clock_change_and_the_rest_of_the_text_stands() -> None:
    images = [degraded(flat(128, 240, 320), 'text', number=number).astype(float) for number in range(12)]
    assert all(np.abs(one - other).max() > 100 for one, other in itertools.pairwise(images))
    written = np.abs(images[0] - 128) > 60
    stands = np.ptp(images, axis=0)[written] < 5
    assert 0.5 < stands.mean() < 0.98
    assert written.mean() < 0.1


@pytest.mark.parametrize(('name', 'power'), [('dots', 70), ('dots35', 35)])
def test_dots_are_reflected_light_and_many(name: str, power: float) -> None:
    plain, lit = flat(255, 240, 320), degraded(flat(255, 240, 320), name).astype(float)
    peaks = (lit == cv2.dilate(lit, np.ones((5, 5)))) & (lit > 0.55 * plain + 0.25 * power)
    assert 0.006 < peaks.mean() < 0.009
    assert power * 0.7 < np.percentile(lit, 99.9) - 0.55 * 255 < power * 1.3
    reflected = [(degraded(flat(level), name).astype(float) - 0.55 * level).max() for level in (40, 200)]
    assert reflected[1] > 1.8 * reflected[0]


def test_alternating_dots_are_in_every_second_frame_and_as_the_dots_are() -> None:
    on, off, again = (pattern('alternating', number) for number in (0, 1, 2))
    assert on.std() > 4 > 1 > off.std()
    assert correlation(on, again) > 0.97
    assert correlation(on, pattern('dots')) > 0.97
    assert abs(np.median(on) - np.median(off)) < 6


@pytest.mark.parametrize(('name', 'least'), [('jpeg30', 2), ('jpeg10', 4)])
def test_the_grid_of_jpeg_is_at_every_eighth_pixel(name: str, least: float) -> None:
    image = photo('coffee', HEIGHT, WIDTH)
    image = cv2.GaussianBlur(image, (0, 0), 3)
    steps = np.abs(np.diff(degraded(image, name).astype(float), axis=1)).mean(axis=0)
    assert steps[7::8].mean() > least / 2 * np.delete(steps, np.s_[7::8]).mean()
    assert np.abs(degraded(image, name).astype(float) - image).mean() < 12


def test_hot_pixels_are_dark_frames_with_as_many_as_are_said() -> None:
    hot = pattern('hot', level=40)
    assert np.median(hot) == pytest.approx(10, abs=2)
    assert np.count_nonzero(hot > 50) == pytest.approx(HEIGHT * WIDTH / 768, abs=3)
    assert pattern('fixed', level=120).std() == pytest.approx(6, rel=0.1)
    assert pattern('fixed', level=120).mean(axis=0).std() == pytest.approx(2, rel=0.3)


def test_dirt_takes_light_and_a_lamp_lights_the_middle() -> None:
    dirt = pattern('dirt', level=200)
    assert 0.01 < np.mean(dirt < 180) < 0.3
    assert dirt.max() < 203
    assert dirt.min() < 160
    spot = pattern('spot', level=200)
    assert spot[HEIGHT // 2, WIDTH // 2] > 180
    assert spot[[0, 0, -1, -1], [0, -1, 0, -1]].max() < 25


@pytest.mark.parametrize('shift', [4, -6])
def test_every_second_row_of_interlaced_video_is_half_a_frame_older(shift: int) -> None:
    scene = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (128, 300)).astype(np.float32), (0, 0), 3) * 4 - 380
    scene = np.clip(scene, 0, 255).astype(np.uint8)
    before, now, between = (scene[:, 50 - by:250 - by] for by in (0, shift, shift // 2))
    found = degraded(now, 'interlace', before=lambda: before)
    np.testing.assert_array_equal(found[::2], now[::2])
    inner = np.s_[1::2, 10:-10]
    assert np.abs(found[inner].astype(float) - between[inner]).mean() < 4 < np.abs(found[inner].astype(float) - now[inner]).mean()
    np.testing.assert_array_equal(degraded(now, 'interlace'), now)
    np.testing.assert_array_equal(degraded(now, 'interlace', before=lambda: now[:64]), now)
    assert np.abs(degraded(now, 'interlace', before=lambda: now).astype(float) - now).max() <= 2


@pytest.mark.parametrize(('height', 'width'), [(120, 160), (60, 200), (160, 120)])
def test_a_person_is_a_connected_tenth_of_the_image_that_moves(height: int, width: int) -> None:
    image = flat(250, height, width)
    middles = []
    for number in range(0, 120, 7):
        found = cv2.medianBlur(degraded(image, 'person', number=number), 3)
        mask = (np.abs(found.astype(float) - 250) > 12).astype(np.uint8)
        count, _, figures, centres = cv2.connectedComponentsWithStats(cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((3, 3))))
        largest = 1 + int(np.argmax(figures[1:, cv2.CC_STAT_AREA])) if count > 1 else 0
        assert figures[largest, cv2.CC_STAT_AREA] / image.size == pytest.approx(0.1, abs=0.03)
        middles.append(centres[largest, 0])
    assert np.ptp(middles) > 0.5 * width
    assert (np.abs(np.diff(middles)) > 0.01 * width).mean() > 0.8


def test_a_screen_is_in_one_place_and_its_film_pans_and_cuts() -> None:
    images = [pattern('screen', number) for number in (0, 1, 2, 41)]
    outside = np.ptp(images, axis=0) < 3
    assert 0.8 < outside.mean() < 0.9
    rows, columns = np.nonzero(~outside)
    assert (~outside)[rows.min():rows.max() + 1, columns.min():columns.max() + 1].mean() > 0.8
    inside = [image[~outside] for image in images]
    assert correlation(inside[0], inside[1]) > correlation(inside[0], inside[3])


def test_kinds_have_a_line_of_help_and_a_description_with_figures() -> None:
    lines = in_lines(DEGRADATIONS).splitlines()
    assert [line.partition(':')[0] for line in lines] == list(DEGRADATIONS)
    assert all(10 < len(line) < 110 for line in lines)
    assert description_of('rain').startswith('Drops on the lens, which change slowly. 40 drops')
    assert 'text: Burnt-in text with a running clock.' in lines


# recordings

def recording(count: int = 6, broken: tuple[int, ...] = ()) -> list[Frame]:
    """Frames of different gray levels."""
    def load(number: int) -> ImageRecord:
        if number in broken:
            raise BagError(f'frame {number} is no image')
        return ImageRecord.from_array(np.dstack([flat(40 + 20 * number)] * 3))
    return [Frame(10**9 + number, 10**9 + number, partial(load, number), b'raw', number) for number in range(count)]


def seen(frames: list[Frame], *names: str) -> list[np.ndarray]:
    return [gray_of(frame.load()) for frame in degraded_frames(frames, names)]


def test_frames_keep_stamps_and_numbers_and_become_gray() -> None:
    frames = list(degraded_frames(recording(), ('dots',)))
    assert [(frame.stamp_ns, frame.number, frame.raw) for frame in frames] == [
        (frame.stamp_ns, frame.number, None) for frame in recording()]
    assert frames[0].load().encoding == 'mono8'
    np.testing.assert_array_equal(gray_of(frames[3].load()), degraded(flat(100), 'dots', number=3))
    assert list(degraded_frames(iter(recording()), ())) != []
    np.testing.assert_array_equal(seen(recording(), 'depth_noise')[2], flat(80))


def test_degradations_compose_and_see_the_previous_degraded_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setitem(DEGRADATIONS, 'dim', lambda gray, shot: gray / 2)
    monkeypatch.setitem(DEGRADATIONS, 'fog', lambda gray, shot: given.append(shot.before()) or gray + 1)
    images = seen(recording(3), 'dim', 'fog')
    assert [int(image[0, 0]) for image in images] == [21, 31, 41]
    assert given[0] is None
    assert [int(before[0, 0]) for before in given[1:]] == [20, 30]


def test_a_standing_camera_shows_its_first_frame_that_can_be_decoded() -> None:
    assert camera_stands(('dots', 'person'))
    assert not camera_stands(('dots', 'rain', 'screen'))
    frames = list(degraded_frames(recording(broken=(0, 3)), ('dim', 'person')))
    with pytest.raises(BagError):
        frames[0].load()
    images = [gray_of(frame.load()).astype(float) for frame in frames[1:]]
    assert len(images) == 5
    assert all(np.median(image) == pytest.approx(18, abs=2) for image in images)
    assert all(np.abs(one - other).max() > 3 for one, other in itertools.pairwise(images))


def test_a_frame_before_that_is_no_image_counts_as_none() -> None:
    frames = list(degraded_frames(recording(broken=(1,)), ('interlace',)))
    np.testing.assert_array_equal(gray_of(frames[2].load()), flat(80))


@pytest.fixture
def sequence(tmp_path: Path) -> Path:
    """An image folder with colours, poses, a camera and depth."""
    colours = np.dstack([photo('coffee', 48, 64)] * 3)
    folder = image_folder(tmp_path / 'sequence', [np.roll(colours, number, 1) for number in range(4)],
                          calibration=pinhole(64, 48, 60), depth=[np.full((48, 64), 2000, np.uint16)] * 4)
    (folder / 'groundtruth.txt').write_text(''.join(f'{1 + number / 10} {number / 50} 0 0 0 0 0 1\n' for number in range(4)))
    return folder


@pytest.mark.slow
def test_make_bag_writes_what_evaluate_bag_shows(sequence: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                  usage_error: Callable[..., str]) -> None:
    pytest.importorskip('rosbags', reason='bags need the Python package rosbags')
    from lightglue_trt_eval.cli.make_bag import main as make_bag
    from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
    from lightglue_trt_ros.datasets.recordings import open_recording
    bag, again, stands = tmp_path / 'bag', tmp_path / 'again', tmp_path / 'stands'
    assert make_bag([str(sequence), str(bag), '--degrade', 'dots,border']) == 0
    assert 'every frame is degraded, border: A fisheye' in capfd.readouterr().out
    written, source = open_recording(bag), open_recording(sequence)
    expected = seen(list(source.frames()), 'dots', 'border')
    for frame, image in zip(written.frames(), expected, strict=True):
        np.testing.assert_array_equal(gray_of(frame.load()), image)
    assert written.depth is not None
    truth = load_ground_truth(written)
    assert truth is not None
    np.testing.assert_allclose(truth.poses[:, 0, 3], np.arange(4) / 50)
    assert written.intrinsics is not None

    assert make_bag([str(bag), str(again)]) == 1
    assert 'bags only with --degrade' in capfd.readouterr().err
    assert make_bag([str(bag), str(again), '--degrade', 'text']) == 0
    assert 'depth images are left out: they are of a bag' in capfd.readouterr().out
    copy = open_recording(again)
    assert (copy.image_topic, copy.depth, copy.intrinsics.k.tolist()) == (
        written.image_topic, None, written.intrinsics.k.tolist())
    np.testing.assert_allclose(load_ground_truth(copy).poses, truth.poses)
    for frame, image in zip(copy.frames(), expected, strict=True):
        np.testing.assert_array_equal(gray_of(frame.load()), degraded(image, 'text', number=frame.number))

    assert make_bag([str(sequence), str(stands), '--degrade', 'person']) == 0
    poses = load_ground_truth(open_recording(stands)).poses
    assert len(poses) == 4
    assert not np.ptp(poses, axis=0).any()
    assert 'leave out --stereo' in usage_error(make_bag, sequence, bag, '--degrade', 'dots', '--stereo')
