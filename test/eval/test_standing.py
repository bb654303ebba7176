"""Masks of what stands still: each kind is found, the world is not, and recordings that tell nothing are refused."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
import pytest

from lightglue_trt_eval.images.degradation import degraded
from lightglue_trt_eval.images.moving_frames import MIN_FRAMES
from lightglue_trt_eval.images.standing import find_standing
from lightglue_trt_ros.utils.errors import BagError

HEIGHT, WIDTH, COUNT = 240, 320, 36
V, U = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)


@cache
def scenery(seed=0, side=1400):
    """A picture with structure of every size, bare parts among it."""
    rng = np.random.default_rng(seed)
    picture = np.zeros((side, side), np.float32)
    for cell in (3, 8, 20, 60, 200):
        coarse = rng.uniform(-1, 1, (side // cell + 2,) * 2).astype(np.float32)
        picture += cv2.resize(coarse, None, fx=cell, fy=cell, interpolation=cv2.INTER_CUBIC)[:side, :side] * 22
    for _ in range(12):
        x, y = rng.integers(0, side - 200, 2)
        picture[y:y + rng.integers(60, 200), x:x + rng.integers(60, 200)] = rng.uniform(-60, 60)
    return np.clip(picture + 120, 5, 250)


def flight(count=COUNT, seed=0, speed=1.0):
    """Frames of a camera that moves and rotates over the scenery, float (H, W)."""
    return list(_flight(count, seed, speed))


@cache
def _flight(count, seed, speed):
    picture, frames = scenery(seed), []
    for number in range(count):
        time = number * speed
        angle, zoom = 0.3 * np.sin(time / 9), 1 + 0.25 * np.sin(time / 13)
        matrix = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0]]) * zoom
        matrix[:, 2] = 300 + 9 * time + 20 * np.sin(time / 5), 420 + 130 * np.sin(time / 11)
        frames.append(cv2.warpAffine(picture, matrix, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                                     borderMode=cv2.BORDER_REFLECT))
        frames[-1].flags.writeable = False  # all tests share them
    return frames


def recorded(frames, noise=1.5, seed=1):
    rng = np.random.default_rng(seed)
    return [np.clip(frame + rng.normal(0, noise, frame.shape) + 0.5, 0, 255).astype(np.uint8) for frame in frames]


def jpeg(frames, quality=30):
    return [cv2.imdecode(cv2.imencode('.jpg', frame, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_GRAYSCALE)
            for frame in frames]


CIRCLE = np.hypot(U - 160, V - 120) < 150
BONNET = V > 190 + 25 * ((U - 160) / 160) ** 2
TEXTURE = cv2.GaussianBlur(np.random.default_rng(3).uniform(0, 255, (HEIGHT, WIDTH)).astype(np.float32), (0, 0), 2) * 5 - 520


def hidden(frames):
    return find_standing(frames, 'the recording').allowed == 0


def exposed(frames):
    """As an automatic exposure has it, which follows a lamp."""
    return [frame * (0.8 + 0.35 * np.sin(number / 4)) for number, frame in enumerate(frames)]


def bracketed(frames):
    return [frame * (0.5, 1.2)[number % 2] for number, frame in enumerate(frames)]


@pytest.mark.parametrize('seen', [
    lambda frames: recorded(frames), lambda frames: recorded(frames, 6), lambda frames: jpeg(recorded(frames)),
    lambda frames: recorded(exposed(frames)), lambda frames: recorded(bracketed(frames))],
    ids=['clean', 'noisy', 'jpeg', 'exposed', 'bracketed'])
class TestOpaque:
    def test_finds_the_black_border_of_a_lens(self, seen):
        found = hidden(seen([np.where(CIRCLE, frame, 0) for frame in flight()]))
        assert np.mean(found[~CIRCLE]) > 0.97
        assert np.mean(found[np.hypot(U - 160, V - 120) < 138]) < 0.01

    def test_finds_a_bonnet_with_texture(self, seen):
        found = hidden(seen([np.where(BONNET, np.clip(TEXTURE, 20, 200), frame) for frame in flight()]))
        assert np.mean(found[BONNET]) > 0.95
        assert np.mean(found[~cv2.dilate(BONNET.astype(np.uint8), np.ones((25, 25))).astype(bool)]) < 0.01

    def test_masks_nothing_of_the_world(self, seen):
        assert np.mean(hidden(seen(flight()))) < 0.005


def test_finds_a_plain_bonnet():
    found = hidden(recorded([np.where(BONNET, 70, frame) for frame in flight()]))
    assert np.mean(found[BONNET]) > 0.95
    assert np.mean(found[:180]) < 0.01


def test_finds_a_plain_gripper_of_the_brightness_of_the_world():
    frames = [np.where(BONNET, 120, frame) for frame in flight()]
    for seen in (frames, exposed(frames)):
        found = hidden(recorded(seen))
        assert np.mean(found[BONNET]) > 0.95
        assert np.mean(found[:180]) < 0.01


def test_finds_burnt_in_text_and_the_digits_of_its_clock():
    frames, ink = [], np.zeros((HEIGHT, WIDTH), np.uint8)
    for number, frame in enumerate(flight()):
        letters = np.zeros((HEIGHT, WIDTH), np.uint8)
        cv2.putText(letters, f'CAM 2 12:{number // 8:02d}:{7 * number % 60:02d}', (12, 28), cv2.FONT_HERSHEY_SIMPLEX, 0.7, 255, 2)
        frames.append(np.where(letters > 0, 245, frame))
        ink |= letters
    found = hidden(recorded(frames))
    near = cv2.dilate(ink, np.ones((21, 21))) > 0
    within = cv2.dilate(found.astype(np.uint8), np.ones((9, 9))) > 0  # mask_margin reaches as far
    assert np.mean(within[ink > 0]) > 0.97
    assert np.mean(found[~near]) < 0.005


def test_finds_projected_dots_and_leaves_what_is_between():
    rng, dots = np.random.default_rng(4), np.zeros((HEIGHT, WIDTH), np.float32)
    for x, y in rng.uniform(0, 1, (500, 2)) * (WIDTH, HEIGHT):
        cv2.circle(dots, (int(16 * x), int(16 * y)), 19, 1.0, -1, cv2.LINE_AA, 4)
    dots = cv2.GaussianBlur(dots, (0, 0), 0.7)
    found = hidden(recorded([0.6 * frame + 50 * dots * (0.3 + frame / 255) for frame in flight()]))
    assert np.mean(found[dots > 0.6]) > 0.9
    assert np.mean(found[dots < 0.02]) < 0.03


def test_finds_hot_pixels_in_the_dark_over_fixed_pattern_noise():
    rng = np.random.default_rng(5)
    hot, fixed = np.zeros((HEIGHT, WIDTH), np.float32), rng.normal(0, 3, (HEIGHT, WIDTH))
    hot[rng.integers(2, HEIGHT - 2, 150), rng.integers(2, WIDTH - 2, 150)] = 120
    found = hidden(recorded([0.3 * frame + hot + fixed for frame in flight(48)], 3))
    assert np.mean(found[hot > 0]) > 0.97
    assert np.mean(found) < 0.04


def test_finds_dirt_on_the_lens():
    dirt = np.ones((HEIGHT, WIDTH), np.float32)
    for x, y in ((60, 60), (200, 90), (150, 200), (280, 180)):
        cv2.circle(dirt, (x, y), 7, 0.4, -1)
    dirt = cv2.GaussianBlur(dirt, (0, 0), 2)
    found = hidden(recorded([frame * dirt for frame in flight()]))
    assert np.mean(found[dirt < 0.6]) > 0.7
    assert np.mean(found[dirt > 0.97]) < 0.01


@pytest.mark.parametrize('gray', [60, 120])
def test_finds_the_thin_wires_of_a_mesh(gray):
    wires = np.zeros((HEIGHT, WIDTH), np.float32)
    for x in range(-HEIGHT, WIDTH + HEIGHT, 45):
        for top, bottom in ((0, HEIGHT), (HEIGHT, 0)):
            cv2.line(wires, (x, top), (x + HEIGHT, bottom), 1, 3, cv2.LINE_AA)
    found = hidden(recorded([frame + wires * (gray - frame) for frame in flight()]))
    assert np.mean(found[wires > 0.9]) > 0.9
    assert np.mean(found[cv2.dilate(wires, np.ones((9, 9))) == 0]) < 0.005


def test_a_sky_over_a_horizon_that_rocks_is_the_world():
    frames = [np.where(80 + 12 * np.sin(number / 3) + 0.1 * (U - 160) * np.sin(number / 7) > V, 255, frame)
              for number, frame in enumerate(flight())]
    assert np.mean(hidden(recorded(frames))) < 0.005


def driven(pitch_px):
    """Frames of a camera that drives on a plain under a bare sky, and pitches."""
    ground, frames, rng = scenery(2), [], np.random.default_rng(6)
    for number in range(COUNT):
        depth = 1 / np.maximum(V - 100 - rng.normal(0, pitch_px), 1e-3)
        far = cv2.remap(ground, (700 + (U - 160) * depth * 60) % 1399, (4000 * depth + 25 * number) % 1399, cv2.INTER_LINEAR)
        frames.append(np.where(depth > 1, 215, far))
    return frames


@pytest.mark.parametrize('pitch_px', [1.5, 4])
def test_the_sky_over_the_horizon_of_a_driving_camera_is_the_world(pitch_px):
    found = hidden(recorded(driven(pitch_px)))
    assert np.mean(found[:90]) < 0.01
    assert np.mean(found) < 0.02


def test_walls_that_are_bare_for_most_of_the_time_are_the_world():
    frames = [np.where(np.abs(U - 160) < 140, 180 + 0.05 * V, frame) if 8 < number < 40 else frame
              for number, frame in enumerate(flight())]
    assert np.mean(hidden(recorded(frames))) < 0.03


def test_a_vignette_is_no_border():
    shade = 1 - 0.8 * np.hypot(U - 160, V - 120) ** 2 / 200 ** 2
    assert np.mean(hidden(recorded([frame * shade for frame in flight()]))) < 0.005


@pytest.mark.slow
def test_a_mask_has_the_size_of_large_images():
    frames = [np.where(CIRCLE, frame, 0) for frame in flight(18, speed=2)]
    found = find_standing((cv2.resize(frame, (1610, 1200)) for frame in recorded(frames)), 'the recording')
    assert found.allowed.shape == found.image.shape == (1200, 1610)
    assert set(np.unique(found.allowed)) == {0, 255}
    assert found.share == pytest.approx(1 - CIRCLE.mean(), abs=0.02)


def standing(count=COUNT):
    return [flight(1)[0]] * count


def with_person(frames):
    return [np.where((np.abs(U - 20 - 5 * number) < 16) & (V > 60), 30 + 3 * number, frame) for number, frame in enumerate(frames)]


def under_flickering_light(frames):
    """Dark bands, a third of a period further down in each frame."""
    return [np.where(np.sin(V / 12 + 2.1 * number) > 0.2, 0.4 * frame, frame) for number, frame in enumerate(frames)]


def taking_turns(*turns):
    """Frames of two cameras, of which one sends so many, then the other."""
    views = [iter(flight(48, seed, speed=0.5)) for seed in (0, 9)]
    return [next(views[place % 2]) for place in range(96 // sum(turns)) for _ in range(turns[place % 2])]


def past_posts():
    """Frames of a camera that passes posts, of which two thirds of the distance lie between frames."""
    wall = scenery(5, 2400)
    return [np.where((U + 60 * number) % 90 < 30, 0.3, 1) * wall[400:, 60 * number:][:HEIGHT, :WIDTH] for number in range(30)]


def with_walker(frames):
    """A person, near, walks to and fro: each frame differs, and in most of the image some do."""
    return [degraded(frame.astype(np.uint8), 'person', number=number) for number, frame in enumerate(frames)]


@pytest.mark.parametrize(('frames', 'words'), [
    (lambda: recorded(standing()), 'the camera stands or hardly moves: 1 of 36 frames'),
    (lambda: recorded(exposed(standing())), 'the camera stands'),
    (lambda: recorded(with_person(standing())), 'the camera stands'),
    (lambda: with_walker(standing(2 * COUNT)), 'the camera stands'),
    (lambda: recorded([0 * frame for frame in flight()], 1), r'the frames are black, no brighter than \d'),
    (lambda: recorded(flight(MIN_FRAMES - 1)), '15 frames are too few: a mask takes 16 or more'),
    (lambda: [], '0 frames are too few'),
    (lambda: recorded([*standing(1), *flight(MIN_FRAMES - 1, speed=4)]),
     '15 of 16 frames differ from those before, and a mask takes 16 or more: record for longer'),
    (lambda: recorded(taking_turns(1, 1)), 'do several cameras share this topic or folder'),
    (lambda: recorded(taking_turns(3, 1)), 'do several cameras share this topic or folder'),
    (lambda: recorded(taking_turns(2, 3)), 'do several cameras share this topic or folder'),
    (lambda: recorded(under_flickering_light(flight())), 'does light flicker, or does the scene repeat'),
    (lambda: [*recorded(flight(20)), np.zeros((60, 80), np.uint8)], 'frame 20 is 80x60, those before are 320x240'),
    (lambda: recorded([np.where(U < 60, frame, TEXTURE) for frame in flight()]), 'stands still while|the camera stands'),
], ids=['stands', 'exposure', 'person', 'walker', 'black', 'few', 'none', 'repeated', 'turns', 'unequal', 'longer', 'flicker',
        'sizes', 'little'])
def test_recordings_that_tell_nothing_are_refused_in_one_line(frames, words):
    with pytest.raises(BagError, match=rf'^the recording: .*({words})[^\n]*$'):
        find_standing(frames(), 'the recording')


def test_posts_that_a_camera_passes_are_not_several_cameras():
    assert np.mean(hidden(recorded(past_posts()))) < 0.05


def test_a_camera_that_stands_for_a_while_and_then_drives_is_taken():
    frames = [*standing(60), *flight()]
    found = find_standing(recorded([np.where(BONNET, TEXTURE, frame) for frame in frames]), 'the recording')
    assert found.frames <= COUNT + 1
    assert np.mean((found.allowed == 0)[BONNET]) > 0.95
    assert np.mean((found.allowed == 0)[:170]) < 0.01
