"""Real sequences and image pairs with the shipped weights: the matches obey what is known of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.homographies import score_scenes
from benchmarks.real_images import SCENES, pair_matchers
from lightglue_trt_eval.score.pair_score import score_pair
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.geometry import fitting_size
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.engines.selection import open_backend

pytestmark = pytest.mark.networks


def scores_of(path, config, frames):
    """score_pair of FrameMatcher on consecutive frames."""
    recording = open_recording(path)
    images = [gray_of(frame.load()) for frame in itertools.islice(recording.frames(), frames)]
    height, width = fitting_size(images[0].shape)
    matcher = FrameMatcher(open_backend(MatcherConfig(image_height=height, image_width=width, **config)).backend,
                           MatcherConfig(**config))
    camera, poses, pairs = recording.intrinsics.k, load_ground_truth(recording).poses, []
    for row, image in enumerate(images):
        found = matcher.process(image, 0.1 * row)
        if found is not None:
            pairs.append(score_pair((row - 1, row), 0.1 * row, (found.reference_keypoints, found.keypoints), camera,
                                    poses[row - 1], poses[row]).pair)
    return pairs


@pytest.mark.parametrize(('name', 'weights'), [
    ('kitti_short_1', 'ours_light'), ('kitti_short_2', 'ours'), ('hololens', 'ours_light')])
def test_matches_obey_the_true_epipolar_geometry(shared_data, name, weights):
    pairs = scores_of(shared_data / name, {'max_keypoints': 512, 'weights': weights}, 4)
    assert len(pairs) == 3
    assert np.mean([pair.precision[1] for pair in pairs]) >= 0.75
    assert np.mean([pair.matches for pair in pairs]) > 300
    assert all(np.isfinite(pair.pose_error_deg) for pair in pairs)
    if name.startswith('kitti'):
        assert np.median([pair.pose_error_deg for pair in pairs]) < 2


def test_matches_follow_the_true_homographies(shared_data):
    scores = [score for name, match in pair_matchers(MatcherConfig(max_keypoints=512))
              for score in score_scenes(shared_data / 'oxford_affine', match, name, SCENES if name == 'ours' else SCENES[:1])]
    ours = {score.pair: score for score in scores if score.matcher == 'ours'}
    assert len(ours) == 8
    assert len(scores) == 10, 'SIFT takes its time'
    assert ours['graf 1-2'].within >= 0.80
    for pair in ('boat 1-2', 'leuven 1-3', 'bikes 1-2'):
        assert ours[pair].within >= 0.85, pair
    assert all(score.matches > 50 for score in ours.values())
