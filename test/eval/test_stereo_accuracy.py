"""The figures of stereo: exact tracks give none of the errors, and errors that are put in come out."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from support.evaluated_bags import no_pictures
from support.image_recordings import image_folder, pinhole
from support.matches import frame_matches
from support.moving_camera import BASELINE, FOCAL, SIZE, poses_of, steps
from support.stereo_pairs import BASELINE as WALL_BASELINE
from support.stereo_pairs import DISPARITY, camera_info, wall_pairs
from support.stereo_pairs import FOCAL as WALL_FOCAL

from lightglue_trt_eval.cli.evaluate_bag import main as evaluate_bag
from lightglue_trt_eval.predict.frames import Frames
from lightglue_trt_eval.predict.scene import SECOND, Scene, Timeline
from lightglue_trt_eval.score.stereo_accuracy import StereoScore
from lightglue_trt_ros.core.cameras import StereoRig, intrinsics_of
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.datasets.sequence import Frame, ImageRecord
from lightglue_trt_ros.datasets.stereo_and_depth import StereoRecording

K = np.array([[FOCAL, 0, SIZE[0] / 2], [0, FOCAL, SIZE[1] / 2], [0, 0, 1]])


def rig() -> StereoRig:
    left, right = (intrinsics_of(camera_info(k=K, size=SIZE[::-1], shift_m=shift), 'image') for shift in (0.0, BASELINE))
    return StereoRig(left, right)


def tally(frames: int = 30, *, offset_px: float = 0.0, rows_px: float = 0.0, wrong: float = 0.0, hidden: int = 4,
          scale: float = 1.0, shown: float = 1.0, lost_from: int = 99, bend: float = 0.0,
          rows_noise_px: float = 0.0) -> StereoScore:
    poses, rng, found = poses_of(frames), np.random.default_rng(0), StereoScore(rig())
    found.add(None, None, _scaled(poses[0], scale))
    for number, step in enumerate(steps(poses), 1):
        pixels, before, right = (np.asarray(points * FOCAL + K[:2, 2], np.float32) for points in (
            step.points, step.reference_points, np.column_stack([step.right_x, step.points[:, 1]])))
        right = pixels + np.float32(shown) * (right - pixels) + np.array([offset_px, rows_px], np.float32)
        apart = right - np.float32(K[:2, 2])
        right += bend * apart * np.sum(apart**2, axis=1, keepdims=True) / FOCAL**2
        if rows_noise_px:
            right[:, 1] += rng.normal(0, rows_noise_px, len(right))
        bad = rng.random(len(right)) < wrong
        right[bad, 0] = pixels[bad, 0] - rng.uniform(1, 120, bad.sum())
        right[::hidden if number < lost_from else 1] = np.nan
        matches = frame_matches(pixels, before, step.stamp, track_ids=step.ids.astype(np.uint32), right_keypoints=right)
        found.add(matches, _scaled(poses[number - 1], scale), _scaled(poses[number], scale))
    return found


def _frames(images: list[np.ndarray]) -> list[Frame]:
    return [Frame(k * SECOND // 10, 0, partial(ImageRecord.from_array, image), number=k) for k, image in enumerate(images)]


def _scaled(pose: np.ndarray, scale: float) -> np.ndarray:
    scaled = pose.copy()
    scaled[:3, 3] *= scale
    return scaled


@pytest.mark.slow
def test_exact_points_have_no_errors():
    figures = tally().figures()
    assert figures['stereo_points'] == pytest.approx(75, abs=0.5)
    assert figures['stereo_row_px'] < 1e-3
    assert figures['stereo_disparity_px'] < 1e-2
    assert figures['stereo_consistent'] == 100
    assert figures['stereo_drift_percent'] < 0.05
    assert figures['stereo_drift_deg_per_m'] < 0.01
    assert tally().advice == ''


@pytest.mark.slow
def test_errors_come_out_as_they_were_put_in():
    off = tally(offset_px=1.5, rows_px=0.4)
    assert off.figures()['stereo_disparity_px'] == pytest.approx(1.5, abs=0.05)
    assert off.figures()['stereo_row_px'] == pytest.approx(0.4, abs=1e-3)
    assert re.search(r'disparities are -1.50 px from .* calibration \(odometry estimates -1.[45]. px\)$', off.advice)
    assert tally(4, offset_px=40).advice.endswith(' px): calibrate anew')
    wrong = tally(wrong=0.3).figures()
    assert 60 < wrong['stereo_consistent'] < 85
    assert wrong['stereo_disparity_px'] < 0.05, 'a median'
    scaled = tally(scale=1.1)  # a truth that is ten percent larger than the baseline says
    assert scaled.advice.startswith('the baseline is 0.909 times as long as by the true motion: check it')
    assert tally(scale=0.1).advice.startswith('the baseline is 10 times as long as by the true motion: check it')
    larger = scaled.figures()
    assert larger['stereo_drift_percent'] == pytest.approx(100 * (1 - 1 / 1.1), abs=1)


@pytest.mark.slow
def test_right_images_of_other_moments_or_sides_are_no_rotated_camera():
    assert re.match(r'rows of left .* are rotated, and by 0.[0-9]+ where one has another lens: check', tally(bend=-0.1).advice)
    assert 'rows of' not in tally(rows_px=0.4).advice
    assert re.match(r'rows of left .* px, whichever way the cameras are rotated: check', tally(rows_noise_px=1.5).advice)
    assert 'check that left and right images are of one moment, in focus and not mirrored' in tally(wrong=0.8).advice
    assert tally(12, lost_from=8).advice.startswith('in 4 of 11 frames, first in frame 8, fewer than 5 % of the points')
    assert 'disparities are near 0, and ' in tally(shown=1e-3).advice, 'the left camera, once more'
    assert tally(hidden=1).advice.startswith('0.0 % of the points have a right pixel: check that left and right are not swapped')


def test_right_images_that_cannot_be_are_counted_with_the_reason() -> None:
    left, right = (list(each) for each in zip(*wall_pairs(6), strict=True))
    right[1], right[2], right[5] = right[1][:-8], left[2], right[4]
    notes = list[str]()
    timeline = Timeline.of(_frames(left), 1.0)
    right_images: Any = SimpleNamespace(bits=8, frames=lambda _: iter(_frames(right)))
    stereo = StereoRecording(right_images, right_images, rig())
    frames = Frames(lambda: _frames(left), gray_of, Scene(timeline), on_note=notes.append, stereo=stereo)
    assert [shown.right is not None for shown in frames.read()] == [True, False, False, True, True, True]
    assert [note[:note.find(',')] for note in notes] == [
        'stereo: 2 of 6 frames have no right image of their stamp and size; the first that cannot be used: it has 256x184 pixels',
        'stereo: 1 of 6 right images have the picture of the one before under a new stamp']


def test_without_truth_there_is_less_to_say():
    found, (step, *_) = StereoScore(rig()), steps(poses_of(3))
    found.add(None, None, None)
    pixels = np.asarray(step.points * FOCAL + K[:2, 2], np.float32)
    matches = frame_matches(pixels, pixels, step.stamp, track_ids=step.ids.astype(np.uint32),
                            right_keypoints=pixels - np.float32([20, 0]))
    found.add(matches, None, None)
    assert set(found.figures()) == {'stereo_points', 'stereo_row_px'}
    found.add(None, None, None)
    assert found.figures()['stereo_points'] == 100
    alone = StereoScore(rig())  # no frame has a right image, which has a line of its own
    alone.add(frame_matches(pixels, pixels, step.stamp, track_ids=step.ids.astype(np.uint32)), None, None)
    assert (alone.figures()['stereo_points'], alone.advice) == (0, '')


@pytest.mark.slow
def test_evaluate_bag_has_the_figures_of_a_stereo_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """A camera that goes along a wall, three pixels a frame."""
    step_m = 3 * WALL_BASELINE / DISPARITY
    left, right = zip(*wall_pairs(5), strict=True)
    image_folder(tmp_path, left, calibration=pinhole(256, 192, WALL_FOCAL, (127.5, 95.5)), baseline_m=WALL_BASELINE,
                 images_right=right)
    (tmp_path / 'groundtruth.txt').write_text(''.join(f'{1 + number / 10} {number * step_m} 0 0 0 0 0 1\n' for number in range(5)))
    options = ['--strides', '1', '--max-keypoints', '150', '--height', '192', '--width', '256', '--backend', 'onnxruntime',
               '--weights', 'ours_light', '--estimator', 'magsac']
    out = tmp_path / 'report'

    def evaluated(*more: str) -> int:
        with no_pictures():
            return evaluate_bag([str(tmp_path), '--stereo', '--out', str(out), *options, *more])

    assert evaluated('--fail-under', 'stereo_points=80') == 0
    found = json.loads((out / 'report.json').read_text())['matchers'][0]['summary']['1']
    assert found['stereo_row_px'] < 0.1
    assert found['stereo_disparity_px'] < 0.15
    assert found['stereo_consistent'] > 95
    assert 'stereo_points' in capsys.readouterr().out
    masked, add = list[float](), StereoScore.add

    def seen(score: StereoScore, matches: Any, *rest: Any) -> None:
        masked.append(0.0 if matches is None else float(np.min(matches.keypoints[:, 0])))
        add(score, matches, *rest)

    monkeypatch.setattr(StereoScore, 'add', seen)
    right_half = np.zeros((192, 256), np.uint8)
    right_half[:, 128:] = 255
    assert cv2.imwrite(str(tmp_path / 'right_half.png'), right_half)
    assert evaluated('--mask', str(tmp_path / 'right_half.png')) == 0
    assert min(masked[1:]) > 127, 'no point of a stereo frame is under the mask'
    (tmp_path / 'calib_right.yaml').unlink()
    assert evaluated() == 1
    assert 'stereo needs that of both cameras' in capsys.readouterr().err
