"""A smaller cut of `benchmark accuracy`: real sequences and image pairs, the shipped weights, against SIFT in the same run."""

from __future__ import annotations

import pytest
from networks import weights

from lightglue_trt_ros.benchmarks.study import ESTIMATORS, Settings, load_sequence, study_homographies, study_sequence
from lightglue_trt_ros.errors import BagError

SETTINGS = Settings(lightglue='homography')


@pytest.mark.parametrize('name', ['kitti_short_1', 'kitti_short_2', 'hololens'])
def test_matches_obey_the_true_epipolar_geometry(shared_data, name):
    weights('superpoint')
    scores = list(study_sequence(load_sequence(shared_data / name, frames=7), SETTINGS))
    assert [(estimator, score.matcher.split()[0]) for estimator, score in scores] == [
        (estimator, matcher) for matcher in ('ours,', 'SIFT') for estimator in ESTIMATORS]
    for _, ours in scores[:2]:
        assert len(ours.pairs) == 6
        assert ours.precision[1] >= 0.75
        assert ours.mean_matches > 300
        assert ours.failures == 0
    if name.startswith('kitti'):
        magsac, sift = scores[0][1], scores[2][1]
        assert magsac.auc[2] >= sift.auc[2] - 0.03


def test_matches_follow_the_true_homographies(shared_data):
    weights('superpoint')
    scores = {score.pair: score for score in study_homographies(shared_data / 'oxford_affine', SETTINGS._replace(sift=False))}
    assert len(scores) == 8
    assert scores['graf 1-2'].within >= 0.80
    for pair in ('boat 1-2', 'leuven 1-3', 'bikes 1-2'):
        assert scores[pair].within >= 0.85, pair
    assert all(score.matches > 50 for score in scores.values())


def test_a_recording_without_truth_is_refused(tmp_path, shared_data):
    (tmp_path / 'images').symlink_to(shared_data / 'hololens' / 'images')
    (tmp_path / 'timestamps.txt').symlink_to(shared_data / 'hololens' / 'timestamps.txt')
    with pytest.raises(BagError, match='ground truth'):
        load_sequence(tmp_path)
