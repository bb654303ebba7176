"""How the odometry's covariances are measured: on a short drive, and on tracks whose errors are known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.moving_camera import CAMERA, poses_of, steps, with_depth

from benchmarks.pose_covariances import PoseCalibration, errors_of, measure_recording, recordings, shares
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.utils.errors import BagError

pytestmark = pytest.mark.networks


def test_errors_are_in_deviations_of_metres_or_of_the_first_step():
    true, rng = poses_of(12), np.random.default_rng(0)
    matches = [with_depth(step, 0.0025, rng) for step in steps(true, noise_px=0.3)]
    metres = errors_of(matches, true, CAMERA, True)
    own = errors_of(matches, true, CAMERA, False)
    assert [len(each) for each in metres] == [11, 11]
    assert 8 <= len(own[0]) <= 11
    for errors in (*metres, *own):
        assert shares(errors)[1] > 80
    moved = true.copy()
    moved[1:, 0, 3] += np.arange(1, 12) * 0.5  # other metres than the true ones
    assert shares(errors_of(matches, moved, CAMERA, True)[0])[1] < shares(metres[0])[1]
    assert shares(np.full((3, 6), np.nan)) == pytest.approx((np.nan, np.nan), nan_ok=True)


def test_a_real_drive_has_figures_with_stereo_and_without(shared_data, tmp_path):
    folder, source = tmp_path / 'drive', shared_data / 'kitti_short_1'
    for name, count in (('images', 18), ('images_right', 18)):
        (folder / name).mkdir(parents=True)
        for each in sorted((source / name).iterdir())[:count]:
            (folder / name / each.name).symlink_to(each)
    for name in ('calib.yaml', 'calib_right.yaml'):
        (folder / name).symlink_to(source / name)
    for name in ('timestamps.txt', 'groundtruth.txt'):
        lines = [line for line in (source / name).read_text().splitlines() if line and not line.startswith('#')]
        (folder / name).write_text('\n'.join(lines[:18]) + '\n')
    assert recordings(tmp_path) == [folder]
    config = MatcherConfig(backend='onnxruntime', weights='ours_light', max_keypoints=256, image_height=96, image_width=320)
    found = list(measure_recording(folder, config))
    assert [(each.recording, each.metres, each.frames) for each in found] == [('drive', True, 17), ('drive', False, 17)]
    for field in dataclasses.fields(PoseCalibration)[3:]:
        one, two = getattr(found[0], field.name)
        assert 0 < one <= two <= 100


def test_recordings_without_depth_and_right_images_are_refused(tmp_path):
    with pytest.raises(BagError, match='holds no recording with images_right/ or depth/: name the folder above with --data'):
        recordings(tmp_path)
