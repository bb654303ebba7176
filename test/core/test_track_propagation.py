"""Points that go on without a match: which of them, where, under which id, and for how long."""

from __future__ import annotations

import dataclasses

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.networks import photo

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.core.refinement import Refined
from lightglue_trt_ros.core.refinement.variance_factor import VarianceFactor
from lightglue_trt_ros.core.track_propagation import MAX_SIGMA_PX, propagate
from lightglue_trt_ros.core.types import HostFeatures, Matches
from lightglue_trt_ros.utils.errors import FrameError

K = 60
SPEC = EngineSpec(240, 320, K)
SCENE = photo('coffee', 480, 640)
SIDEWAYS = np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0]], float)  # a camera that moves to the right: lines are rows of the image


def view(frame: int, step: int = 3) -> np.ndarray:
    """A window of 320x240 on the scene, which moves to the right by `step` pixels a frame."""
    return np.ascontiguousarray(SCENE[100:340, 60 + step * frame:380 + step * frame])


CORNERS = cv2.goodFeaturesToTrack(view(0), K, 0.005, 9, mask=np.pad(np.full((180, 220), 255, np.uint8), ((30, 30), (70, 30))))[:, 0]


class SeeingBackend(NullBackend):
    """Row i of every frame is corner i of the scene, where the window has it; `unseen[n]` are the rows that fire elsewhere there.

    Those stand in the image's first row, and match nothing, as the rows of `unmatched[n]` do that fire.
    """

    def __init__(self, unseen=None, unmatched=None, step: int = 3) -> None:
        super().__init__(SPEC)
        self.step, self.frame = step, -1
        self.unseen, self.unmatched = unseen or {}, unmatched or {}

    def extract(self, image, mask=None):
        self.frame += 1
        keypoints = (CORNERS - np.float32([self.step * self.frame, 0])).astype(np.float32)
        gone = list(self.unseen.get(self.frame, ()))
        keypoints[gone] = np.stack([np.asarray(gone) * 5.0, np.zeros(len(gone))], 1)
        return HostFeatures(keypoints, np.full(K, 0.5, np.float32), np.full((K, 1), self.frame, np.float32))

    def match(self, reference, current, thresholds):
        first, second = int(reference.descriptors[0, 0]), int(current.descriptors[0, 0])
        without = {row for frame in (first, second) for row in (*self.unseen.get(frame, ()), *self.unmatched.get(frame, ()))}
        indices = np.array([-1 if row in without else row for row in range(K)], np.int32)
        return Matches(indices, np.where(indices >= 0, np.float32(0.9), np.float32(0)), 9)


def matcher(unseen=None, unmatched=None, step: int = 3, **changes) -> FrameMatcher:
    config = MatcherConfig(image_height=240, image_width=320, max_keypoints=K, **changes)
    return FrameMatcher(SeeingBackend(unseen, unmatched, step), config)


def results(frames: FrameMatcher, count: int, step: int = 3):
    found = [frames.process(view(frame, step), 0.1 * frame) for frame in range(count)]
    assert found[0] is None
    return found[1:]


LOST = range(20, 40)


def test_the_corners_are_there():
    assert len(CORNERS) == K


def test_unmatched_points_are_propagated_and_keep_their_track_ids():
    found = results(matcher({2: LOST, 3: LOST}), 5)
    before, carried, after = found[0], found[1], found[2]
    lost = dict(zip(before.track_ids[LOST], CORNERS[LOST], strict=True))
    rows = np.flatnonzero(carried.carried)
    assert len(carried) == K
    assert len(rows) >= 18
    assert set(carried.track_ids[rows]) <= set(lost)
    assert (carried.carried[rows] == 1).all()
    assert not carried.scores[rows].any()
    assert (rows >= K - len(LOST)).all(), 'they come after the matches'
    truth = np.array([lost[track] for track in carried.track_ids[rows]]) - [6, 0]
    assert np.median(np.linalg.norm(carried.keypoints[rows] - truth, axis=1)) < 0.1
    np.testing.assert_array_equal(carried.track_lengths[rows], 3)
    again = {track: index for index, track in enumerate(after.track_ids.tolist())}
    for row in rows:
        index = again[int(carried.track_ids[row])]
        assert after.carried[index] == 2
        assert after.track_lengths[index] == 4
        np.testing.assert_array_equal(after.reference_keypoints[index], carried.keypoints[row])


def test_keypoint_continues_propagated_track():
    found = results(matcher({2: LOST}), 6)
    names = set(found[0].track_ids.tolist())
    assert all(len(set(each.track_ids.tolist())) == len(each) for each in found)
    missed = [np.bincount(each.carried, minlength=3)[:3].tolist() for each in found]
    assert missed[1][1] >= 18
    assert missed[2][2] >= 17, 'they fire in frame 3'
    assert missed[3][0] == K, 'and match in frame 4'
    assert len(set(found[4].track_ids.tolist()) & names) >= K - 3, 'ids outlive it'


def test_covariances_of_all_points_have_the_stream_s_factor(monkeypatch):
    plain = results(matcher({2: LOST}), 3)[-1]
    monkeypatch.setattr(VarianceFactor, 'value', 4.5)
    larger = results(matcher({2: LOST}), 3)[-1]
    assert plain.carried.any()
    ratios = np.linalg.det(larger.covariances) / np.linalg.det(plain.covariances)
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-3)
    assert ratios[0] > 1.2, 'none is over 4'


def test_only_for_so_many_frames_and_the_setting_may_change():
    always = dict.fromkeys(range(2, 12), LOST)
    count = [int(np.count_nonzero(each.carried)) for each in results(matcher(always, carry_frames=3), 8)]
    assert min(count[1:4]) >= 15
    assert not any(count[4:])
    assert not any(each.carried.any() for each in results(matcher(always, carry_frames=0), 6))
    frames = matcher(always)
    assert results(frames, 4)[-1].carried.any()
    frames.config = dataclasses.replace(frames.config, carry_frames=0)
    assert not frames.process(view(4), 0.4).carried.any()
    frames.config = dataclasses.replace(frames.config, carry_frames=5)
    assert not frames.process(view(5), 0.5).carried.any(), 'what was given up does not return'


def test_no_propagation_without_refinement_or_matches_or_after_reset():
    assert not any(each.carried.any() for each in results(matcher({2: LOST}, refinement='none'), 4))
    frames = matcher({2: LOST})
    results(frames, 3)
    frames.reset()
    assert frames.process(view(3), 0.3) is None
    assert not frames.process(view(4), 0.4).carried.any()
    assert len(results(matcher({2: range(K)}), 3)[-1]) == 0


def test_a_keyframe_carries_its_own_points():
    found = results(matcher({2: LOST, 3: LOST}, reference='keyframe', keyframe_min_ratio=0.1), 6)
    assert [each.reference_stamp for each in found] == [0.0] * 5
    assert [int(each.carried.max()) for each in found] == [0, 1, 2, 0, 0]
    rows = found[2].carried == 2
    truth = found[0].reference_keypoints
    assert rows.sum() >= 15
    assert all(np.linalg.norm(truth - point, axis=1).min() == 0 for point in found[2].reference_keypoints[rows])
    assert set(found[3].track_ids.tolist()) == set(found[0].track_ids.tolist())


def test_carried_points_do_not_keep_a_keyframe():
    found = results(matcher({2: range(10, K), 3: range(10, K)}, reference='keyframe', keyframe_min_ratio=0.5), 4)
    assert len(found[1]) > 30
    assert found[2].reference_stamp == 0.2, 'ten matches of sixty are too few, whatever is carried'


def test_points_that_leave_the_image_end():
    found = results(matcher(dict.fromkeys(range(2, 9), LOST), step=25, carry_frames=100), 9, step=25)
    for each in found:
        assert (each.keypoints[each.carried > 0] >= 0).all()
    assert np.count_nonzero(found[-1].carried) < np.count_nonzero(found[1].carried) / 2


@pytest.mark.parametrize('scale', [1, 2])
def test_matched_and_propagated_points_end_behind_a_mask(scale):
    """The mask, of the images' size or the engine's, hides the left half of every frame."""
    allowed = np.zeros((240, 320), np.uint8)
    allowed[:, 160:] = 255
    frames = matcher({2: LOST, 3: LOST})
    frames.backend.spec = EngineSpec(240 // scale, 320 // scale, K)
    mask = Mask(allowed[::scale, ::scale])
    if scale == 2:  # the script speaks of the engine's pixels
        frames.backend.extract = lambda image, mask, whole=frames.backend.extract: dataclasses.replace(
            found := whole(image), keypoints=(found.keypoints + np.float32(0.5)) / 2 - np.float32(0.5))
    found = [frames.process(view(frame), 0.1 * frame, mask=mask if frame != 3 else None) for frame in range(5)][1:]
    for number, each in enumerate(found):
        assert len(each) >= 12
        assert (each.keypoints[:, 0].min() > 159) == (number != 2)
    assert found[1].carried.any()
    assert found[2].keypoints[found[2].carried > 0][:, 0].min() > 150, 'they were no tracks in the masked half of the frame before'


def test_a_mask_of_another_size_costs_the_frame_and_says_so():
    frames = matcher()
    with pytest.raises(FrameError, match=r'^the mask is 160x240, the images are 320x240: a mask has their size, or the '
                       r"engine's 320x240$"):
        frames.process(view(0), 0.0, mask=Mask(np.ones((240, 160), np.uint8)))
    assert frames.process(view(0), 0.0) is None
    with pytest.raises(FrameError, match=r'the mask is float64 \(3, 3\): masks are uint8'):
        Mask(np.ones((3, 3)))


def test_matched_leaves_out_propagated_points():
    first, second = results(matcher({2: LOST}), 3)
    assert first.matched() is first
    assert len(second.matched()) == K - len(LOST)
    assert not second.matched().carried.any()


@settings(deadline=None, max_examples=15)
@given(st.lists(st.sets(st.integers(0, K - 1), max_size=45), min_size=3, max_size=6), st.sampled_from(['previous', 'keyframe']),
       st.booleans())
def test_tracks_stay_consistent_whatever_is_lost(lost, reference, fire):
    frames = matcher(None if fire else dict(enumerate(lost)), dict(enumerate(lost)), reference=reference)
    lengths: dict[int, int] = {}
    for each in results(frames, len(lost)):
        assert len(each.matched()) <= K
        assert len(each) <= 2 * K
        assert len(set(each.track_ids)) == len(each)
        assert np.isfinite(each.covariances).all()
        assert (np.diff((each.carried > 0).astype(int)) >= 0).all()
        for track_id, length in zip(each.track_ids.tolist(), each.track_lengths.tolist(), strict=True):
            assert length == lengths.get(track_id, 1) + 1
            lengths[track_id] = length


def candidates(points, sigma=0.1, before=None) -> tuple[np.ndarray, np.ndarray, Refined]:
    points = np.asarray(points, np.float32)
    sigmas = np.broadcast_to(np.asarray(sigma, np.float32), len(points))
    covariances = np.eye(2, dtype=np.float32) * (sigmas**2)[:, None, None]
    before = points if before is None else np.asarray(before, np.float32)
    return np.arange(100, 100 + len(points), dtype=np.int32), before, Refined(points, covariances)


KEYPOINTS = np.array([[10, 10], [50, 50], [90, 90], [10, 90]], np.float32)
NO_ROWS = np.zeros(0, np.int32)
SIZE = 100, 100


def test_rows_of_propagated_points():
    places = [[50.5, 50], [30, 30], [10, 11], [70, 70]]
    carried = propagate(*candidates(places, [0.1, 0.2, 0.3, 2 * MAX_SIGMA_PX]), KEYPOINTS, np.array([0], np.int32), SIZE)
    assert carried.rows.tolist() == [100, 101], 'one stands on a match, one is not known'
    assert carried.next_rows.tolist() == [1, 4]
    np.testing.assert_array_equal(carried.refined.points, [[50.5, 50], [30, 30]])


def test_two_that_meet_are_one_and_the_better_known_stays():
    carried = propagate(*candidates([[30, 30], [31, 30], [48.5, 50], [51.5, 50]], [0.3, 0.2, 0.4, 0.3]), KEYPOINTS, NO_ROWS, SIZE)
    assert carried.rows.tolist() == [101, 103]
    assert carried.next_rows.tolist() == [4, 1]


def test_of_two_keypoints_that_are_there_the_better_one_takes_the_track():
    keypoints = np.concatenate([KEYPOINTS, np.float32([[48.5, 50]])])
    for order in ([0, 1, 2, 3, 4], [0, 4, 2, 3, 1]):
        carried = propagate(*candidates([[49.5, 50]]), keypoints[order], NO_ROWS, SIZE)
        assert carried.next_rows.tolist() == [1], 'scores fall with the rows'


def test_no_more_points_are_propagated_than_there_are_keypoints():
    places, sigmas = [[20, 20], [30, 30], [40, 40], [20, 70], [40, 80]], [0.5, 0.2, 0.1, 0.3, 0.4]
    carried = propagate(*candidates(places, sigmas), KEYPOINTS, np.arange(4, dtype=np.int32), SIZE)
    assert carried.rows.tolist() == [102, 101, 103, 104]
    assert carried.next_rows.tolist() == [4, 5, 6, 7], 'beside all keypoints: twice as many rows at most'


def test_points_off_their_epipolar_line_are_not_propagated():
    found = candidates([[20, 20], [40, 30], [40, 50], [70, 33]], before=[[25, 20.5], [45, 33], [40, 50], [75, 30]])
    assert propagate(*found, KEYPOINTS, NO_ROWS, SIZE, SIDEWAYS).rows.tolist() == [100, 102], 'whichever side of it they are on'
    assert propagate(*found, KEYPOINTS, NO_ROWS, SIZE, SIDEWAYS, unit=2.0).rows.tolist() == [100, 101, 102, 103]


def test_points_that_leave_the_image_on_any_side_are_not_propagated():
    found = candidates([[-0.5, 40], [40, -0.5], [99.5, 40], [40, 99.5], [0, 60], [60, 0], [99, 60], [60, 99]])
    assert propagate(*found, KEYPOINTS, NO_ROWS, SIZE).rows.tolist() == [104, 105, 106, 107]


@pytest.mark.parametrize('level', [0, 255])
def test_nothing_is_propagated_into_an_image_without_content(level):
    frames = matcher({2: LOST})
    results(frames, 2)
    assert not frames.process(np.full_like(view(2), level), 0.2).carried.any()
