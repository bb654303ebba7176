"""A frame that fails after it was matched changes nothing: tracks and what stands still go on as if it had never come."""

from __future__ import annotations

import numpy as np
import pytest
from support.stereo_pairs import camera

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.core.cameras import Intrinsics, StereoRig
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.depth import DepthImage
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.stereo import RightImage
from lightglue_trt_ros.core.types import HostFeatures, Matches
from lightglue_trt_ros.utils.errors import EngineError, FrameError

SIZE, WORLD, DOTS = (480, 640), 180, 60
COUNT = WORLD + DOTS
CAMERA = Intrinsics(SIZE[1], SIZE[0], np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]), 'plumb_bob', np.zeros(5))


class ShuffledBackend(NullBackend):
    """The world moves by 2 pixels a frame, dots stand; rows are in another order in each frame, and each frame lacks one match."""

    def __init__(self):
        super().__init__(EngineSpec(*SIZE, COUNT))
        self.points = np.random.default_rng(5).uniform((60, 20), (620, 460), (COUNT, 2)).astype(np.float32)
        self.fails = ''

    def order(self, frame):
        return np.random.default_rng(100 + frame).permutation(COUNT)

    def extract(self, image, mask=None):
        frame = int(image[0, 0])
        points = self.points.copy()
        points[:WORLD, 0] -= 2 * frame
        return HostFeatures(points[self.order(frame)], np.full(COUNT, 0.5, np.float32), np.full((COUNT, 256), frame, np.float32))

    def match(self, reference, current, thresholds):
        first, second = (int(each.descriptors[0, 0]) for each in (reference, current))
        if first == second and self.fails == 'right match':
            raise EngineError('the right match failed')
        indices = np.argsort(self.order(second))[self.order(first)].astype(np.int32)
        indices[self.order(first) == second % WORLD] = -1
        return Matches(indices, np.full(COUNT, 0.9, np.float32), 9)

    def keep(self, features):
        if self.fails == 'keyframe':
            raise EngineError('the keyframe could not be kept')
        return features


def raising():
    raise EngineError('the depth image could not be read')


def process(frames, number, stamp, fails=''):
    rig = StereoRig(camera(size=SIZE), camera(size=SIZE, shift_m=0.1))
    image = np.full(SIZE, number, np.uint8)
    given = {'depth of another size': {'depth': lambda: DepthImage(np.ones((10, 10), np.float32), 1.0, CAMERA)},
             'depth that raises': {'depth': raising}, 'right match': {'right': RightImage(image, rig)}}
    frames.backend.fails = fails
    return frames.process(image, stamp, **given.get(fails, {}))


def published(fails='', **settings):
    config = MatcherConfig(max_keypoints=COUNT, refinement='none', keyframes=3, **{'keyframe_min_ratio': 1.0, **settings})
    frames, results = FrameMatcher(ShuffledBackend(), config), []
    for number in range(14):
        if fails and number > 2:
            for attempt in range(2):
                with pytest.raises((EngineError, FrameError)):
                    process(frames, number, 0.1 * number - 0.05 + 0.01 * attempt, fails)
        results.append(process(frames, number, 0.1 * number))
    return [each for each in results if each is not None]


@pytest.mark.parametrize(('reference', 'fails'), [
    (reference, fails) for reference in ('previous', 'keyframe', 'alternate')
    for fails in ('depth of another size', 'depth that raises', 'right match', 'keyframe')
    if (reference, fails) != ('alternate', 'right match')])  # which has no right images
def test_a_frame_that_fails_after_its_match_leaves_tracks_as_they_were(reference, fails):
    settings = {'reference': reference, 'keyframe_min_ratio': 1.0 if fails == 'keyframe' or reference != 'keyframe' else 0.2}
    expected, found = published(**settings), published(fails, **settings)
    assert any(len(each) < COUNT - 1 for each in expected) or reference == 'keyframe', 'dots are dropped'
    for right, each in zip(expected, found, strict=True):
        np.testing.assert_array_equal(each.track_lengths, right.track_lengths)
        np.testing.assert_array_equal(each.carried, right.carried)
        np.testing.assert_array_equal(each.keypoints, right.keypoints)
        assert each.standing == right.standing
