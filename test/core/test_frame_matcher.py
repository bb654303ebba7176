"""FrameMatcher's per-frame story, on a backend whose answers are known, and once on the real networks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.networks import SMALL, moved, ours, photo

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.cameras import Intrinsics, StereoRig
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.depth import DepthImage
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.core.stereo import RightImage
from lightglue_trt_ros.core.types import HostFeatures, Matches
from lightglue_trt_ros.engines.selection import Opened
from lightglue_trt_ros.utils.errors import BagError, ConfigError, FrameError

SPEC = EngineSpec(64, 80, 8)
IMAGE = np.zeros((128, 160), np.uint8)


class ScriptedBackend(NullBackend):
    """Keypoint row i of frame n stands at (i, n); `script[n]` says which row of the reference each row of frame n matches."""

    def __init__(self, script: dict[int, list[int]] | None = None) -> None:
        super().__init__(SPEC)
        self.script = script or {}
        self.extracted: list[np.ndarray] = []
        self.pairs: list[tuple[int, int]] = []
        self.thresholds: list = []

    def extract(self, image, mask=None):
        self.extracted.append(image)
        frame = len(self.extracted) - 1
        keypoints = np.stack([np.arange(8), np.full(8, frame)], 1).astype(np.float32)
        return HostFeatures(keypoints, np.full(8, 0.5, np.float32), np.full((8, 256), frame, np.float32))

    def match(self, reference, current, thresholds):
        first, second = int(reference.keypoints[0, 1]), int(current.keypoints[0, 1])
        self.pairs.append((first, second))
        self.thresholds.append(thresholds)
        indices = np.array(self.script.get(second, list(range(8))), np.int32)
        return Matches(indices, np.where(indices >= 0, 0.9, 0).astype(np.float32), 9)


def matcher(script=None, backend=None, **settings) -> tuple[FrameMatcher, ScriptedBackend]:
    backend = backend or ScriptedBackend(script)
    config = MatcherConfig(image_height=64, image_width=80, max_keypoints=8, **settings)
    return FrameMatcher(backend, config), backend


def lens(k1: float, source: str = '') -> Intrinsics:
    return Intrinsics(160, 128, np.array([[100.0, 0, 80], [0, 100, 64], [0, 0, 1]]), 'plumb_bob', np.array([k1, 0, 0, 0, 0]),
                      source=source)


def rig(camera: Intrinsics) -> StereoRig:
    return StereoRig(camera, dataclasses.replace(camera, shift_m=0.1))


def depth_image(shape: tuple[int, int] = IMAGE.shape) -> DepthImage:
    return DepthImage(np.full(shape, 2, np.float32), 1.0, lens(0))


def test_depth_that_comes_late_is_waited_for_when_the_frame_is_matched():
    frames, backend = matcher(refinement='none')
    frames.process(IMAGE, 0.0, depth=depth_image)
    asked: list[int] = []

    def late() -> DepthImage:
        asked.append(len(backend.pairs))
        return depth_image()

    matches = frames.process(IMAGE, 0.1, depth=late)
    assert asked == [1], 'after the match of the pair'
    np.testing.assert_array_equal(matches.xyz[:, 2], 2)
    assert frames.process(IMAGE, 0.2, depth=lambda: None).xyz is None, 'none came'


def test_each_frame_is_extracted_exactly_once_and_features_are_reused():
    frames, backend = matcher()
    results = [frames.process(IMAGE, 0.1 * i) for i in range(20)]
    assert results[0] is None
    assert all(result is not None for result in results[1:])
    assert len(backend.extracted) == 20
    assert backend.pairs == [(i, i + 1) for i in range(19)]
    assert all(image.shape == (64, 80) for image in backend.extracted)


def test_coordinates_come_back_in_pixels_of_the_original_image():
    frames, _ = matcher()
    frames.process(IMAGE, 0.0)
    result = frames.process(IMAGE, 0.1)
    np.testing.assert_allclose(result.keypoints[3], [(3 + 0.5) * 2 - 0.5, (1 + 0.5) * 2 - 0.5])
    np.testing.assert_allclose(result.reference_keypoints[3], [(3 + 0.5) * 2 - 0.5, (0 + 0.5) * 2 - 0.5])
    assert (result.stamp, result.reference_stamp) == (0.1, 0.0)
    assert set(result.stage_ms) == {'resize', 'extract', 'match', 'track', 'place'}


def test_track_ids_follow_points_and_new_points_get_new_ids():
    frames, _ = matcher({1: [1, 0, -1, -1, -1, -1, -1, -1],  # row 0 -> 1, row 1 -> 0
                         2: [5, 6, 7, -1, -1, -1, -1, -1],   # rows 0 and 1 go on, row 2 is new
                         3: [-1] * 8,
                         4: [0, 1, 2, 3, 4, 5, 6, 7]})
    frames.process(IMAGE, 0.0)
    first, second, third, fourth = (frames.process(IMAGE, 0.1 * i) for i in range(1, 5))
    assert dict(zip(first.reference_keypoints[:, 0] // 2, first.track_ids, strict=True)) == {0: 0, 1: 1}
    np.testing.assert_array_equal(second.track_ids, [1, 0, 2])
    np.testing.assert_array_equal(second.track_lengths, [3, 3, 2])
    assert len(third) == 0
    assert third.track_ids.dtype == np.uint32
    np.testing.assert_array_equal(fourth.track_ids, range(3, 11))
    np.testing.assert_array_equal(fourth.track_lengths, [2] * 8)


def test_keyframe_is_kept_until_too_little_of_it_is_matched():
    half = [0, 1, 2, 3, -1, -1, -1, -1]
    frames, backend = matcher({1: half, 2: [0, -1, -1, -1, -1, -1, -1, -1], 3: half}, reference='keyframe', keyframe_min_ratio=0.4)
    results = [frames.process(IMAGE, 0.1 * i) for i in range(5)]
    assert backend.pairs == [(0, 1), (0, 2), (2, 3), (2, 4)]
    np.testing.assert_array_equal(results[1].track_ids, [0, 1, 2, 3])
    np.testing.assert_array_equal(results[2].track_ids, [0])
    np.testing.assert_array_equal(results[2].track_lengths, [3])
    assert results[3].track_ids[0] == 0, 'a point that is seen again keeps its id across keyframes'
    assert results[3].track_lengths[0] == 4
    for least, pairs in ((0.5, [(0, 1), (0, 2)]), (0.51, [(0, 1), (1, 2)])):
        frames, backend = matcher({1: half}, reference='keyframe', keyframe_min_ratio=least)
        for i in range(3):
            frames.process(IMAGE, 0.1 * i)
        assert backend.pairs == pairs, 'half of its keypoints are matched'


@pytest.mark.parametrize('settings', [{'max_sigma_px': 0.01}, {'mask': True}], ids=str)
def test_what_is_not_published_was_matched_all_the_same(settings):
    mask = Mask(np.zeros((64, 80), np.uint8)) if settings.pop('mask', False) else None
    frames, backend = matcher(reference='keyframe', **settings)
    results = [frames.process(IMAGE, 0.1 * i, mask=mask) for i in range(5)]
    assert [len(result) for result in results[1:]] == [0] * 4
    assert backend.pairs == [(0, number) for number in range(1, 5)], 'one keyframe'


@pytest.mark.parametrize('reference', ['previous', 'keyframe'])
def test_refinement_that_is_switched_on_needs_one_frame_to_take_effect(reference):
    frames, _ = matcher(reference=reference, refinement='none')
    image, refined = np.random.default_rng(0).integers(0, 256, IMAGE.shape, np.uint8), []
    for number in range(6):
        if number == 3:
            frames.config = dataclasses.replace(frames.config, refinement='patches')
        result = frames.process(image, 0.1 * number)
        refined.append(result is not None and len(np.unique(result.covariances, axis=0)) > 1)
    assert refined == [False] * 4 + [True] * 2


@pytest.mark.parametrize('refinement', ['none', 'patches'])
def test_a_match_of_a_low_score_has_a_larger_covariance(refinement):
    image = np.random.default_rng(0).integers(0, 256, IMAGE.shape, np.uint8)
    covariances = []
    for score in (1.0, 0.75, 0.5):
        frames, backend = matcher(refinement=refinement)
        match = backend.match
        backend.match = lambda *args, match=match, score=score: dataclasses.replace(
            match(*args), scores=np.array([1.0] * 7 + [score], np.float32))
        frames.process(image, 0.0)
        covariances.append(frames.process(image, 0.1).covariances)
    surest, doubtful, least = covariances
    np.testing.assert_array_equal(doubtful[:-1], surest[:-1])
    np.testing.assert_allclose(least[-1] - surest[-1], 2 * (doubtful[-1] - surest[-1]), rtol=1e-5)
    assert (np.linalg.eigvalsh(doubtful[-1]) > 2 * np.linalg.eigvalsh(surest[-1])).all()


@pytest.mark.networks
@pytest.mark.parametrize('level', [0, 128, 255])
def test_a_frame_without_content_does_not_stay_the_keyframe(level):
    """A lens that was covered at the start: a gray frame has no keypoints, of which no share can ever be missing."""
    backend = OnnxRuntimeBackend(SMALL, ours(), threads=2)
    frames = FrameMatcher(backend, MatcherConfig(image_height=240, image_width=328, max_keypoints=256, reference='keyframe'))
    image = photo('coffee', 240, 328)
    empty = np.full_like(image, level)
    found = [frames.process(seen, 0.1 * i) for i, seen in enumerate((empty, empty, image, moved(image)[0]))]
    assert [each if each is None else len(each) > 50 for each in found] == [None, False, False, True]


@pytest.mark.parametrize(('second', 'reason'), [
    ((IMAGE, 1.6), 'gap of 1.600 s'), ((IMAGE, -0.5), 'went back by 0.500 s'),
    ((IMAGE[:, :100], 0.1), '160x128 to 100x128: do several cameras publish')])
def test_interruptions_reset_and_say_why(second, reason):
    frames, backend = matcher()
    frames.process(IMAGE, 0.0)
    assert frames.process(*second) is None
    assert reason in frames.last_reset
    assert frames.resets == 1
    assert frames.process(second[0], second[1] + 0.1) is not None
    assert backend.pairs == [(1, 2)]


def test_reset_on_request_keeps_counting_ids():
    frames, _ = matcher()
    frames.process(IMAGE, 0.0)
    first = frames.process(IMAGE, 0.1)
    frames.reset()
    assert frames.process(IMAGE, 0.2) is None
    again = frames.process(IMAGE, 0.3)
    assert not set(first.track_ids) & set(again.track_ids)


@pytest.mark.parametrize(('image', 'stamp', 'words'), [
    (IMAGE, 0.1, 'stands still'), (IMAGE, float('nan'), 'stamp is nan'), (IMAGE.astype(np.float32), 0.2, 'float32'),
    (IMAGE, '0.2', "the stamp is '0.2': it must be seconds"), (IMAGE, None, 'stamp is None'),
    (IMAGE, np.array([0.2]), 'stamp is array'),
    (None, 0.2, 'the image is no array but NoneType: FrameMatcher takes gray uint8'), (IMAGE.tolist(), 0.2, 'no array but list'),
    (np.zeros((4, 4, 3), np.uint8), 0.2, r'\(4, 4, 3\)'), (np.zeros((0, 4), np.uint8), 0.2, r'\(0, 4\)')])
def test_a_bad_frame_is_refused_and_nothing_is_forgotten(image, stamp, words):
    frames, backend = matcher()
    frames.process(IMAGE, 0.0)
    frames.process(IMAGE, 0.1)
    with pytest.raises(FrameError, match=words):
        frames.process(image, stamp)
    assert frames.process(IMAGE, 0.3) is not None
    assert backend.pairs == [(0, 1), (1, 2)]


def test_thresholds_of_the_moment_reach_the_matcher():
    frames, backend = matcher(match_threshold=0.2)
    frames.process(IMAGE, 0.0)
    frames.process(IMAGE, 0.1)
    frames.config = dataclasses.replace(frames.config, match_threshold=0.7, detection_threshold=0.01)
    frames.process(IMAGE, 0.2)
    assert [(t.match, t.detection) for t in backend.thresholds] == [(pytest.approx(0.2), 0.0005), (pytest.approx(0.7), 0.01)]


@pytest.mark.parametrize('refinement', ['none', 'patches'])
@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_a_network_that_gives_no_numbers_costs_the_points_that_have_none(value, refinement):
    """One NaN was every later point's, and nothing was said."""
    class Hostile(ScriptedBackend):
        def extract(self, image, mask=None):
            found = super().extract(image, mask)
            if len(self.extracted) == 3:
                found.keypoints[2], found.keypoints[5, 0] = value, value
            return found

    frames, _ = matcher(backend=Hostile(), refinement=refinement)
    image = np.random.default_rng(0).integers(0, 256, IMAGE.shape, np.uint8)
    results = [frames.process(image, 0.1 * number) for number in range(6)][1:]
    assert [int(np.count_nonzero(result.carried == 0)) for result in results] == [8, 6, 6, 8, 8]
    for result in results:
        for name in ('keypoints', 'reference_keypoints', 'covariances', 'scores'):
            assert np.isfinite(getattr(result, name)).all(), name
    assert ['2 of 8 matches are not finite' in result.note for result in results] == [False, True, True, False, False]


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_right_keypoints_and_scores_that_are_no_numbers_are_no_matches(value):
    """In a flat image: a point that was not matched is known nowhere."""
    class Pair(ScriptedBackend):
        def extract(self, image, mask=None):
            found = super().extract(image, mask)
            if len(self.extracted) == 3:  # the first right image, a pixel of the networks' input to the left
                found.keypoints[:] -= [1, 1]
                found.keypoints[2], found.keypoints[5, 0] = value, value
            return found

        def match(self, *given):
            found = super().match(*given)
            if len(self.pairs) == 2:  # with the right image
                found.scores[4] = value
            return found

    frames, _ = matcher(backend=Pair())
    frames.process(IMAGE, 0.0)
    found = frames.process(IMAGE, 0.1, RightImage(IMAGE, rig(lens(0))))
    for values in (found.right_keypoints, found.xyz, found.sigma_z[:, None]):
        np.testing.assert_array_equal(np.isfinite(values).all(axis=1), [row not in (2, 4, 5) for row in range(8)])
        assert not np.isinf(values).any()


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(-1, 7), min_size=8, max_size=8), min_size=1, max_size=12),
       st.sampled_from(['previous', 'keyframe']))
def test_tracks_stay_consistent_whatever_matches(rows, reference):
    """Ids are unique within a frame, lengths grow by one per re-observation, no id ever comes back to another point."""
    script = {}
    for frame, row in enumerate(rows, 1):
        seen: set[int] = set()
        script[frame] = [value if value < 0 or not (value in seen or seen.add(value)) else -1 for value in row]
    frames, _ = matcher(script, reference=reference)
    frames.process(IMAGE, 0.0)
    lengths: dict[int, int] = {}
    for frame in range(1, len(rows) + 1):
        result = frames.process(IMAGE, 0.1 * frame)
        assert len(result) == sum(value >= 0 for value in script[frame])
        assert len(set(result.track_ids)) == len(result)
        for track_id, length in zip(result.track_ids, result.track_lengths, strict=True):
            assert length == lengths.get(track_id, 1) + 1
            lengths[track_id] = length


@pytest.mark.networks
def test_real_networks_track_a_real_photograph():
    backend = OnnxRuntimeBackend(SMALL, ours())
    frames = FrameMatcher(backend, MatcherConfig(image_height=240, image_width=328, max_keypoints=256))
    image = photo('coffee', 480, 656)
    view, homography = moved(image)
    assert frames.process(image, 0.0) is None
    matches = frames.process(view, 0.1)
    projected = np.c_[matches.reference_keypoints, np.ones(len(matches))] @ homography.T
    error = np.linalg.norm(projected[:, :2] - matches.keypoints, axis=1)
    assert len(matches) > 80
    assert np.median(error) < 0.1
    assert np.mean(error < 4) > 0.85
    again = frames.process(image, 0.2)
    place = dict(zip(matches.track_ids.tolist(), map(tuple, matches.keypoints), strict=True))
    went_on = zip(again.track_ids.tolist(), map(tuple, again.reference_keypoints), strict=True)
    assert all(place[track] == point for track, point in went_on if track in place), 'a track goes on from where it was'
    assert len(set(again.track_ids) & set(matches.track_ids)) > 40
    assert again.track_lengths.max() == 3
    frames.config = dataclasses.replace(frames.config, refinement='none')
    frames.reset()
    frames.process(image, 0.3)
    plain = frames.process(view, 0.4)
    assert 'place' not in plain.stage_ms
    projected = np.c_[plain.reference_keypoints, np.ones(len(plain))] @ homography.T
    assert np.median(np.linalg.norm(projected[:, :2] - plain.keypoints, axis=1)) > 0.3


def test_first_calibration_keeps_tracks_and_another_one_starts_anew():
    frames, _ = matcher(refinement='none')
    frames.process(IMAGE, 0.0)
    before = frames.process(IMAGE, 0.1)
    first = frames.process(IMAGE, 0.2, camera=lens(-0.2, 'a file'))
    assert first is not None
    np.testing.assert_array_equal(first.track_ids, before.track_ids)
    again = frames.process(IMAGE, 0.3, camera=lens(-0.2, 'CameraInfo'))  # the same values from elsewhere
    assert again is not None
    assert frames.resets == 0
    assert frames.process(IMAGE, 0.4, camera=lens(-0.3)) is None
    assert frames.resets == 1
    assert frames.last_reset.startswith('the calibration changed from plumb_bob, fx 100.0')
    after = frames.process(IMAGE, 0.5, camera=lens(-0.3))
    assert not set(after.track_ids) & set(again.track_ids)
    assert frames.process(IMAGE, 0.6) is not None, 'a calibration that is refused now: matching goes on without'
    assert frames.resets == 1


def test_calibration_of_another_size_or_model_drops_the_frame():
    frames, _ = matcher(refinement='none')
    frames.process(IMAGE, 0.0, camera=lens(-0.2))
    with pytest.raises(FrameError, match='for 160x128 pixels, the image has 80x64'):
        frames.process(IMAGE[::2, ::2].copy(), 0.1, camera=lens(-0.2))
    unknown = Intrinsics(160, 128, lens(0).k, 'double_sphere', np.array([0.1, 0.2]))
    with pytest.raises(BagError, match='double_sphere'):
        frames.process(IMAGE, 0.2, camera=unknown)
    assert frames.process(IMAGE, 0.3, camera=lens(-0.2)) is not None, 'the reference is still there'


def test_keyframes_of_one_lens_share_their_camera_whatever_object_came():
    """Only so their matches are fitted behind it: with an Intrinsics made for each frame they counted as a pinhole's."""
    frames, _ = matcher({2: [0, 1, *[-1] * 6]}, refinement='none', keyframes=2)
    for number in range(3):
        frames.process(IMAGE, 0.1 * number, camera=lens(-0.2))
    assert frames.keyframes.of(0.1).camera is frames.keyframes.of(0.2).camera is not None


def test_results_compare_as_the_objects_they_are():
    """As arrays they raised NumPy's ValueError, in `in` and `remove` of lists too."""
    frames, _ = matcher(refinement='none')
    first, second, third = (frames.process(IMAGE, 0.1 * number) for number in range(3))
    assert first is None
    assert third in [second, third]
    assert second != third


def test_what_open_backend_returns_is_refused_with_the_name_of_its_backend():
    with pytest.raises(ConfigError, match=r'^Opened is no backend: give FrameMatcher open_backend\(config\).backend$'):
        FrameMatcher(Opened(ScriptedBackend(), 'asked for'), MatcherConfig())


HALF = dataclasses.replace(lens(0), width=80, height=64)


@pytest.mark.parametrize(('given', 'words'), [
    ({'right': RightImage(IMAGE[:, :-1], rig(lens(0)))}, r'the right image is \(128, 159\), the left one \(128, 160\)'),
    ({'right': RightImage(IMAGE, rig(HALF))}, 'the calibration is for 80x64 pixels, the image has 160x128'),
    ({'right': RightImage(IMAGE, StereoRig(lens(0), dataclasses.replace(HALF, shift_m=0.1)))}, 'for 80x64 pixels'),
    ({'depth': DepthImage(np.ones(IMAGE.shape), 1.0, HALF)}, 'for 80x64 pixels'),
    ({'depth': lambda: DepthImage(np.ones(IMAGE.shape), 1.0, HALF)}, 'for 80x64 pixels'),
    ({'depth': depth_image((64, 80))}, r'the depth image is float32 \(64, 80\) of 1.0 m, the image \(128, 160\): register'),
    ({'depth': lambda: depth_image((64, 80))}, r'the depth image is float32 \(64, 80\) of 1.0 m'),
    ({'depth': DepthImage(np.ones(IMAGE.shape), 0.0, lens(0))}, r'\(128, 160\) of 0.0 m, .*set unit_m'),
    ({'depth': DepthImage(IMAGE, 0.001, lens(0))}, r'uint8 \(128, 160\) of 0.001 m, .*read 16 bits or more'),
    ({'depth': DepthImage(np.full(IMAGE.shape, 1500, np.uint16), 1.0, lens(0))}, 'its median is 1500 m: its unit, 1 m, must'),
    ({'depth': DepthImage(np.ones(IMAGE.shape).tolist(), 1.0, lens(0))}, 'list is given where process takes ndarray'),
    ({'depth': np.ones(IMAGE.shape)}, 'ndarray is given where process takes DepthImage'),
    ({'depth': DepthImage(np.ones(IMAGE.shape), 1.0, lens(0).k)}, 'ndarray is given where process takes Intrinsics'),
    ({'camera': lens(0).k}, 'ndarray is given where process takes Intrinsics'),
    ({'right': IMAGE}, 'ndarray is given where process takes RightImage'),
    ({'right': RightImage(None, rig(lens(0)))}, 'the right image is no array but NoneType'),
    ({'right': RightImage(IMAGE, None)}, 'NoneType is given where process takes StereoRig'),
    ({'mask': IMAGE}, 'ndarray is given where process takes Mask')])
def test_what_comes_with_a_frame_is_refused_in_other_size_or_kind(given, words):
    """A rig and a depth camera of another size gave positions in space that were wrong; other kinds raised AttributeError."""
    frames, _ = matcher(refinement='none')
    frames.process(IMAGE, 0.0)
    with pytest.raises(FrameError, match=words):
        frames.process(IMAGE, 0.1, **given)
    assert frames.process(IMAGE, 0.2) is not None, 'the reference is still there'


@pytest.mark.parametrize('of_lens', [lambda camera: {'right': RightImage(IMAGE, rig(camera))},
                                     lambda camera: {'depth': DepthImage(np.ones(IMAGE.shape), 1.0, camera)}])
def test_without_camera_the_lens_of_rig_or_depth_counts_if_it_distorts(of_lens):
    """Before, covariances were those of a pinhole. A change of the lens shows that it counts."""
    frames, _ = matcher(refinement='none')
    for number, k1 in enumerate((-0.2, -0.2, -0.3)):
        frames.process(IMAGE, 0.1 * number, **of_lens(lens(k1)))
    assert frames.last_reset.startswith('the calibration changed from plumb_bob, fx 100.0')
    frames.process(IMAGE, 0.4, camera=lens(-0.3), **of_lens(lens(-0.2)))
    assert frames.resets == 1, 'the camera that is given counts first'


def test_where_two_kinds_of_frames_alternate_each_is_matched_with_its_own():
    frames, backend = matcher(refinement='none', reference='alternate', carry_frames=0)
    published = [frames.process(IMAGE, 0.1 * number) for number in range(6)]
    assert published[:2] == [None, None]
    assert backend.pairs == [(0, 2), (1, 3), (2, 4), (3, 5)]
    assert [matches.reference_stamp for matches in published[2:]] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert published[4].track_ids.tolist() == published[2].track_ids.tolist()
    assert set(published[3].track_ids.tolist()).isdisjoint(published[2].track_ids.tolist())
    assert published[4].track_lengths.tolist() == [3] * 8
    forgotten = []
    for points in (frames.static_points, frames._static_between):
        points.forget_tracks = lambda points=points: forgotten.append(points)
    frames.reset()
    assert len(forgotten) == 2
    assert frames.process(IMAGE, 0.6) is None
    assert frames.process(IMAGE, 0.7) is None
    assert frames.process(IMAGE, 0.8) is not None


def test_frames_that_alternate_and_a_stereo_pair_do_not_go_together():
    frames, _ = matcher(refinement='none', reference='alternate')
    with pytest.raises(FrameError, match='alternate'):
        frames.process(IMAGE, 0.0, RightImage(IMAGE, rig(lens(0))))


def test_the_reference_may_change_while_frames_come():
    frames, backend = matcher(refinement='none')
    for number, reference in enumerate(['previous'] * 3 + ['alternate'] * 4 + ['previous'] * 2):
        frames.config = dataclasses.replace(frames.config, reference=reference)
        frames.process(IMAGE, 0.1 * number)
    assert backend.pairs == [(0, 1), (1, 2), (2, 3), (3, 5), (4, 6), (5, 7), (7, 8)]
