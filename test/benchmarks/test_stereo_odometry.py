"""Tracks of stereo recordings: rows, columns and ids, and the drift that the odometry has on real ones."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from support.networks import photo
from support.stereo_pairs import plain_rig

from benchmarks.stereo_odometry import (
    StereoPair,
    drift_of_tracks,
    klt_tracks,
    measure_drift,
    our_tracks,
    sift_tracks,
    stereo_folders,
    stereo_pairs,
)
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.stereo_and_depth import stereo_recording
from lightglue_trt_ros.utils.errors import BagError

pytestmark = pytest.mark.networks

SHIFT, DISPARITY = 3, 7  # pixels, from frame to frame and from left to right
TRACKS = {
    'ours': lambda pairs: our_tracks(pairs, MatcherConfig(image_height=192, image_width=256, max_keypoints=200,
                                                          backend='onnxruntime'), plain_rig()),
    'SIFT': lambda pairs: sift_tracks(pairs, 300), 'KLT': lambda pairs: klt_tracks(pairs, 300)}


@pytest.mark.parametrize('name', TRACKS)
def test_tracks_go_on_and_their_right_columns_are_a_disparity_away(name):
    wall = photo('coffee', 192, 400)
    pairs = (StereoPair(1.0 + number, wall[:, x:x + 256], wall[:, x + DISPARITY:x + DISPARITY + 256])
             for number, x in enumerate(range(0, 4 * SHIFT, SHIFT)))
    found = list(TRACKS[name](pairs))
    assert len(found) == 3
    for each in found:
        right = each.right_keypoints[:, 0]
        known = np.isfinite(right)
        assert known.sum() > 0.6 * len(each.track_ids) > 30
        assert np.median(np.abs(each.keypoints[known, 0] - right[known] - DISPARITY)) < 0.1
        assert np.median(np.abs(each.reference_keypoints - each.keypoints - [SHIFT, 0])) < 0.1
    for before, after in itertools.pairwise(found):
        common, rows, later = np.intersect1d(before.track_ids, after.track_ids, return_indices=True)
        assert len(common) > 0.5 * len(after)
        np.testing.assert_allclose(before.keypoints[rows], after.reference_keypoints[later], atol=1e-4)
    everywhere = set.intersection(*(set(each.track_ids.tolist()) for each in found))
    assert len(everywhere) > 20


def test_corners_on_a_real_stereo_recording_give_metres(shared_data):
    folder = shared_data / 'kitti_short_1'
    rig, truth = stereo_recording(open_recording(folder)).rig, load_ground_truth(open_recording(folder)).poses
    pairs = itertools.islice(stereo_pairs(folder), 26)
    row, poses = drift_of_tracks('kitti_short_1', 'KLT', list(klt_tracks(pairs, 1024)), rig, truth[:26])
    assert poses.shape == (26, 4, 4)
    assert row.percent < 1.5
    assert row.end_percent < 1.5
    assert row.right > 300
    assert abs(row.offset_px) < 0.5


def test_what_is_no_stereo_recording_is_refused(tmp_path: Path):
    with pytest.raises(BagError, match='holds no stereo recording'):
        stereo_folders(tmp_path)
    folder = tmp_path / 'one'
    (folder / 'images').mkdir(parents=True)
    (folder / 'calib_right.yaml').write_text('baseline: 3\n')
    assert stereo_folders(tmp_path) == [folder]
    with pytest.raises(BagError):
        next(measure_drift(folder, MatcherConfig()))
