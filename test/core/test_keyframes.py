"""Keyframes: which frames become one, what they hold, and matches between any two of them without an extraction."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from support.counted_backend import CountedBackend
from support.matches import frame_matches
from support.networks import light, photo

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.depth import DepthImage
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.keyframes import NO_TRACK, Keyframes, match_keyframes
from lightglue_trt_ros.core.refinement import unrefined
from lightglue_trt_ros.utils.errors import FrameError

pytestmark = pytest.mark.networks
HEIGHT, WIDTH, STEP, FRAMES = 192, 256, 12, 14
CONFIG = MatcherConfig(backend='onnxruntime', image_height=HEIGHT, image_width=WIDTH, max_keypoints=400, keyframes=2)
CAMERA = Intrinsics(WIDTH, HEIGHT, np.array([[220.0, 0, 128], [0, 220, 96], [0, 0, 1]]), 'plumb_bob', np.zeros(5))


@pytest.fixture(scope='module')
def backend():
    return CountedBackend(CONFIG.engine_spec('fp32'), light(), threads=1)


def forth_and_back() -> list[np.ndarray]:
    """A camera that goes along a photograph and returns: the last frame is the first one."""
    wall = photo('coffee', HEIGHT, WIDTH + STEP * FRAMES)
    there = [wall[:, x:x + WIDTH].copy() for x in range(0, STEP * FRAMES, STEP)]
    return there + there[-2::-1]


@pytest.fixture(scope='module')
def flown(backend):
    """A matcher that has seen the frames, the stamps of its keyframes, and the tracks of each frame by stamp."""
    frames, stamps, tracks = FrameMatcher(backend, CONFIG), [], {}
    depth = DepthImage(np.full((HEIGHT, WIDTH), 3000, np.uint16), 1e-3, CAMERA)
    before = len(backend.extracted)
    for number, image in enumerate(images := forth_and_back()):
        matches = frames.process(image, 0.1 * number, depth=depth)
        if matches is not None:
            tracks[matches.stamp] = matches.track_ids
        newest = frames.keyframes.newest
        if newest is not None and newest.stamp not in stamps:
            stamps.append(newest.stamp)
    assert len(backend.extracted) - before == len(images)
    return frames, stamps, tracks


def test_keyframes_are_the_first_matches_and_where_few_tracks_go_on(flown):
    _, stamps, tracks = flown
    assert stamps[0] == min(tracks) == pytest.approx(0.1), 'the first one with matches'
    assert CONFIG.keyframes < len(stamps) <= 12
    assert np.diff(stamps).min() > 0.15, 'not every frame'
    newest = tracks.pop(stamps[0])
    for stamp, ids in tracks.items():
        assert (np.isin(newest, ids).mean() < CONFIG.keyframe_min_ratio) == (stamp in stamps), stamp
        newest = ids if stamp in stamps else newest


def test_a_keyframe_has_refined_points_with_tracks_and_all_with_depth(flown):
    frames, *_ = flown
    keyframe = frames.keyframes.newest
    count = len(keyframe.features.scores)
    assert keyframe.keypoints.shape == (count, 2)
    assert keyframe.descriptors.shape == (count, 256)
    assert keyframe.descriptors.dtype == np.float16
    np.testing.assert_allclose(np.linalg.norm(keyframe.descriptors.astype(np.float32), axis=1)[:50], 1, atol=1e-2)
    tracked = keyframe.track_ids != NO_TRACK
    assert 0.2 < tracked.mean() <= 1
    detected = keyframe.features.scores > CONFIG.detection_threshold
    assert np.count_nonzero(detected & ~tracked) > 5
    np.testing.assert_allclose(keyframe.xyz[detected, 2], 3.0, rtol=1e-4, err_msg='with a track or without')
    rays = np.c_[(keyframe.keypoints - CAMERA.k[:2, 2]) / CAMERA.k[[0, 1], [0, 1]], np.ones(count)]
    np.testing.assert_allclose(keyframe.xyz[detected], 3 * rays[detected], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(keyframe.sigma_z[detected], 0.0025 * 9, rtol=1e-3)
    assert np.mean(keyframe.keypoints[tracked] % 1 != 0) > 0.9, 'refined, between pixels of the extractor'


def test_two_keyframes_are_matched_by_one_inference_and_no_extraction(flown, backend):
    """The last one against the oldest that is kept: both are views of one wall, whose shift is known."""
    frames, stamps, _ = flown
    first, last = stamps[-CONFIG.keyframes], stamps[-1]
    before = len(backend.extracted), backend.matched
    matches = frames.matches_between(first, last)
    assert (len(backend.extracted), backend.matched) == (before[0], before[1] + 1)
    places = [min(round(10 * stamp), 2 * (FRAMES - 1) - round(10 * stamp)) * STEP for stamp in (first, last)]
    shift = matches.keypoints - matches.reference_keypoints
    right = np.linalg.norm(shift - [places[0] - places[1], 0], axis=1) < 1
    assert np.count_nonzero(right) >= 60
    assert right.mean() > 0.8
    assert (matches.reference_stamp, matches.stamp) == (first, last)
    assert np.isfinite(matches.covariances).all()
    distance = np.abs(shift[right, 0] - (places[0] - places[1])) / np.sqrt(matches.covariances[right, 0, 0])
    assert np.mean(distance < 2) > 0.75, 'of a pair 132 pixels apart'
    np.testing.assert_allclose(matches.xyz[np.isfinite(matches.xyz[:, 2]), 2], 3.0, rtol=1e-4)


def test_keypoints_that_are_no_numbers_are_in_no_match(flown, backend):
    frames, stamps, _ = flown
    first, last = (frames.keyframes.of(stamp) for stamp in stamps[-2:])
    whole, hostile = match_keyframes(backend, CONFIG, first, last), dataclasses.replace(last, keypoints=last.keypoints.copy())
    hostile.keypoints[::3] = np.nan
    found = match_keyframes(backend, CONFIG, first, hostile)
    assert 20 < len(found) < len(whole)
    assert 'matches are not finite' in found.note
    for name in ('keypoints', 'reference_keypoints', 'covariances', 'scores'):
        assert np.isfinite(getattr(found, name)).all(), name


def test_keyframe_matches_take_xyz_of_second_and_scale_covariances(flown, backend):
    frames, stamps, _ = flown
    first, last = (frames.keyframes.of(stamp) for stamp in stamps[-2:])
    count, config = len(last.features.scores), dataclasses.replace(CONFIG, refinement='none')
    last = dataclasses.replace(last, xyz=np.arange(3 * count, dtype=np.float32).reshape(count, 3),
                               sigma_z=np.arange(count, dtype=np.float32))
    found = match_keyframes(backend, config, first, last)
    rows = [int(np.flatnonzero((last.keypoints == point).all(axis=1))[0]) for point in found.keypoints]
    np.testing.assert_array_equal(found.xyz, last.xyz[rows])
    np.testing.assert_array_equal(found.sigma_z, last.sigma_z[rows])

    larger = [dataclasses.replace(each, image=np.kron(each.image, np.ones((2, 2), np.uint8)), keypoints=2 * each.keypoints,
                                  camera=None) for each in (first, last)]
    twice = match_keyframes(backend, config, *larger)
    once = match_keyframes(backend, config, *(dataclasses.replace(each, camera=None) for each in (first, last)))
    np.testing.assert_allclose(twice.covariances, 4 * once.covariances, rtol=0.05)


def test_self_matched_keyframe_has_small_covariances_calibrated_scores(flown, backend):
    frames, stamps, _ = flown
    keyframe = frames.keyframes.of(stamps[-1])
    found = match_keyframes(backend, dataclasses.replace(CONFIG, refinement='none'), keyframe, keyframe)
    assert np.abs(found.keypoints - found.reference_keypoints).max() == 0
    assert found.covariances[:, 0, 0].min() < 0.5 * unrefined(1)[0, 0, 0], 'the scale of the covariances is that of the errors'
    raw = backend.match(keyframe.features, keyframe.features, CONFIG.thresholds(backend.score_calibration))
    np.testing.assert_allclose(found.scores, backend.score_calibration.after(raw.layers).probability(raw.scores[raw.indices >= 0]))
    assert not np.allclose(found.scores, raw.scores[raw.indices >= 0])


def test_keyframe_takes_match_depths_and_counts_propagated_tracks(flown, backend):
    frames, stamps, _ = flown
    keyframe, kept = frames.keyframes.of(stamps[-1]), Keyframes(2)
    count = len(keyframe.features.scores)
    rows = np.array([3, 5, count, count + 7])  # two matches of its keypoints, two propagated points
    points = np.full((4, 2), 50, np.float32)
    matches = frame_matches(points, points, 9.0, track_ids=np.array([21, 22, 23, 24], np.uint32),
                            carried=np.array([0, 0, 1, 1], np.uint8), xyz=np.full((4, 3), 2.5, np.float32),
                            sigma_z=np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    kept.take(backend, keyframe.image, keyframe.keypoints, keyframe.features, matches, rows,
              DepthImage(np.full((HEIGHT, WIDTH), 3000, np.uint16), 1e-3, CAMERA))
    np.testing.assert_array_equal(kept.newest.sigma_z[[3, 5]], np.float32([0.1, 0.2]))
    np.testing.assert_array_equal(kept.newest.xyz[[3, 5], 2], 2.5)
    np.testing.assert_allclose(kept.newest.xyz[4, 2], 3.0, rtol=1e-5)
    assert not kept.wants(matches.only(matches.carried > 0), 0.5), 'half of its tracks go on'
    assert kept.wants(matches.only(matches.carried > 0), 0.51)


def test_keyframes_a_few_milliseconds_apart_are_two(flown):
    frames, stamps, _ = flown
    kept, newest = Keyframes(2), frames.keyframes.of(stamps[-1])
    kept._kept.extend(dataclasses.replace(newest, stamp=stamp) for stamp in (1.0, 1.005))
    assert [kept.of(stamp).stamp for stamp in (1.0, 1.005)] == [1.0, 1.005]


def test_any_two_of_the_last_ones_and_no_others(flown):
    frames, stamps, _ = flown
    for first, second in itertools.permutations(stamps[-CONFIG.keyframes:], 2):
        assert len(frames.matches_between(first, second)) > 20
    with pytest.raises(FrameError, match=r'no keyframe has the stamp 0\.100000: kept are 2 from '):
        frames.matches_between(stamps[0], stamps[-1])
    with pytest.raises(FrameError, match='no keyframe has the stamp'):
        frames.matches_between(stamps[-1], 77.0)
    frames.reset()
    assert frames.keyframes.newest.stamp == stamps[-1], 'a reset forgets tracks, not places'


def test_the_newest_keyframe_of_a_stamp_answers_after_time_goes_back(backend):
    config = dataclasses.replace(CONFIG, keyframes=20)
    frames, seen = FrameMatcher(backend, config), {}
    for name, step in (('coffee', STEP), ('astronaut', 2 * STEP)):
        wall = photo(name, HEIGHT, WIDTH + 6 * step)
        for number in range(6):
            image = wall[:, number * step:number * step + WIDTH].copy()
            frames.process(image, 0.1 * number)
            newest = frames.keyframes.newest
            if newest is not None and newest.stamp == 0.1 * number:
                seen.setdefault(0.1 * number, []).append(image)
    repeated = [stamp for stamp, images in seen.items() if len(images) == 2]
    assert repeated
    for stamp in repeated:
        np.testing.assert_array_equal(frames.keyframes.of(stamp).image, seen[stamp][1])
    own = frames.matches_between(repeated[0], repeated[0])
    assert len(own) > 50
    assert np.abs(own.keypoints - own.reference_keypoints).max() < 1
    with pytest.raises(FrameError, match=r'kept are \d+ from 0\.100000 to 0\.\d+, at most 20'):
        frames.matches_between(9.0, repeated[0])


def test_without_the_setting_nothing_is_kept(backend):
    frames = FrameMatcher(backend, MatcherConfig(**{**vars(CONFIG), 'keyframes': 0}))
    assert frames.keyframes is None
    with pytest.raises(FrameError, match='set keyframes'):
        frames.matches_between(0.0, 1.0)
