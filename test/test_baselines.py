"""Baselines on warped photographs, and the accuracy study that scores any matcher."""

from __future__ import annotations

import functools
import itertools
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from lightglue_trt_ros.errors import BagError, ConfigError, FrameError
from lightglue_trt_ros.evaluation import accuracy
from lightglue_trt_ros.evaluation.accuracy import (
    FrontendStream,
    PairStream,
    evaluate_homographies,
    evaluate_sequence,
    print_scores,
)
from lightglue_trt_ros.evaluation.baselines import SiftMatcher
from lightglue_trt_ros.evaluation.twoview import estimate_relative_pose, homography_errors
from lightglue_trt_ros.recordings.sequence import FolderRecording

DATA = Path(__file__).resolve().parents[2] / 'shared' / 'data'
WARP = np.array([[0.92, 0.12, 20], [-0.1, 0.95, 45], [1e-4, -5e-5, 1]])
CAMERA = np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])
BLANK = np.zeros((240, 320), np.uint8)


@pytest.fixture(scope='module')
def photographs():
    skimage_data = pytest.importorskip('skimage.data', reason='the photograph is one of scikit-image')
    image = skimage_data.camera()
    return image, cv2.warpPerspective(image, WARP, image.shape[::-1])


def positions(count):
    poses = np.tile(np.eye(4), (count, 1, 1))
    poses[:, :3, 3] = np.arange(count)[:, None] * [0.3, 0.05, 0.1]
    return poses


class Truth:
    """Correspondences from known depths, as a matcher that looks at no pixel."""

    name = 'truth'

    def __init__(self, poses, step=1, noise=0.0):
        self.rng = np.random.default_rng(0)
        rays = np.column_stack([self.rng.uniform(-0.5, 0.5, 200), self.rng.uniform(-0.4, 0.4, 200), np.ones(200)])
        points = rays * self.rng.uniform(4, 20, (200, 1)) + poses[len(poses) // 2][:3, 3]
        self.views = [self.project(points - pose[:3, 3]) + self.rng.normal(0, noise, (200, 2)) for pose in poses[::step]]
        self.reset()

    @staticmethod
    def project(local):
        pixels = local @ CAMERA.T
        return (pixels[:, :2] / pixels[:, 2:]).astype(np.float32)

    def process(self, image):
        self.row += 1
        return (self.views[self.row - 1], self.views[self.row]) if self.row else None

    def reset(self):
        self.row = -1


def test_sift_finds_the_warp_of_a_photograph(photographs):
    points0, points1 = SiftMatcher(1000).match(*photographs)
    assert points0.dtype == points1.dtype == np.float32
    assert points0.shape == points1.shape
    assert len(points0) > 150
    assert np.mean(homography_errors(points0, points1, WARP) < 2) > 0.85


def test_mutual_neighbours_are_fewer_and_one_to_one(photographs):
    plain, mutual = (SiftMatcher(1000, 0.9, mutual=mutual).match(*photographs) for mutual in (False, True))
    assert 0 < len(mutual[0]) < len(plain[0])
    assert np.mean(homography_errors(*mutual, WARP) < 2) > np.mean(homography_errors(*plain, WARP) < 2)


def test_a_stream_matches_as_pairs_do_and_describes_each_frame_once(photographs):
    matcher = SiftMatcher(500)
    calls = []
    detector = matcher.detector
    matcher.detector = SimpleNamespace(detectAndCompute=lambda *args: calls.append(1) or detector.detectAndCompute(*args))
    frames = [*photographs, photographs[0]]
    found = [matcher.process(frame) for frame in frames]
    assert found[0] is None
    assert len(calls) == 3
    for pair, streamed in zip(itertools.pairwise(frames), found[1:], strict=True):
        for expected, points in zip(SiftMatcher(500).match(*pair), streamed, strict=True):
            np.testing.assert_array_equal(points, expected)
    matcher.reset()
    assert matcher.process(frames[0]) is None


def test_images_without_features_give_no_matches(photographs):
    for pair in itertools.product([BLANK, photographs[0]], [BLANK]):
        assert [points.shape for points in SiftMatcher(100).match(*pair)] == [(0, 2), (0, 2)]
    assert len(SiftMatcher(100).match(BLANK, photographs[0])[0]) == 0


def test_what_sift_cannot_take_is_refused():
    with pytest.raises(FrameError, match='gray uint8'):
        SiftMatcher().process(np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(ConfigError, match='ratio'):
        SiftMatcher(ratio=0)
    with pytest.raises(ConfigError, match='0 features'):
        SiftMatcher(0)


@pytest.mark.parametrize('stride', [1, 2])
def test_the_truth_scores_full_marks(stride):
    poses = positions(7)
    score = evaluate_sequence([BLANK] * 7, CAMERA, poses, Truth(poses, stride), stride=stride, sequence='made up')
    assert [pair.frames for pair in score.pairs] == [(row, row + stride) for row in range(0, 6, stride)]
    assert score.matcher == 'truth'
    assert score.precision == (1, 1, 1)
    assert min(score.auc) > 0.99
    assert (score.failures, score.mean_matches) == (0, 200)
    assert score.pairs[0].baseline == pytest.approx(stride * np.linalg.norm([0.3, 0.05, 0.1]))


def test_half_a_pixel_of_noise_costs_little():
    poses = positions(9)
    assert evaluate_sequence([BLANK] * 9, CAMERA, poses, Truth(poses, noise=0.35)).auc[1] > 0.85


def test_pairs_without_matches_are_failures_that_count():
    poses = positions(5)
    truth = Truth(poses)

    def sometimes(image):
        found = truth.process(image)
        return None if truth.row == 2 else (np.zeros((0, 2), np.float32),) * 2 if truth.row == 3 else found

    score = evaluate_sequence([BLANK] * 5, CAMERA, poses, SimpleNamespace(process=sometimes, reset=truth.reset), name='gaps')
    assert score.failures == 2
    assert score.precision == (0.5, 0.5, 0.5)
    assert max(score.auc) <= 0.5
    plain = json.loads(json.dumps(score.as_dict(), allow_nan=False))
    assert plain['pairs'][1]['rotation_deg'] is None
    assert plain['failures'] == 2


def test_a_standing_camera_is_scored_by_its_rotation():
    poses = np.tile(np.eye(4), (2, 1, 1))
    poses[1, :3, :3] = cv2.Rodrigues(np.array([0.0, 0.05, 0]))[0]
    rng = np.random.default_rng(1)
    points0 = rng.uniform([40, 20], [280, 220], (150, 2))
    mapped = np.column_stack([points0, np.ones(150)]) @ (CAMERA @ poses[1, :3, :3].T @ np.linalg.inv(CAMERA)).T
    points1 = mapped[:, :2] / mapped[:, 2:]
    points1[:30] += 7
    score = evaluate_sequence([BLANK] * 2, CAMERA, poses, PairStream(lambda *_: (points0, points1)))
    assert score.precision == (0.8, 0.8, 0.8)
    assert score.pairs[0].translation_deg == 0


def test_another_estimator_may_stand_in():
    poses = positions(4)
    plain = functools.partial(estimate_relative_pose, refine_px=0.0, method=cv2.USAC_MAGSAC)
    scores = [evaluate_sequence([BLANK] * 4, CAMERA, poses, Truth(poses, noise=0.35), **settings).pairs
              for settings in ({}, {'estimator': plain})]
    assert scores[0][0].error_deg != scores[1][0].error_deg


@pytest.mark.parametrize(('frames', 'poses', 'stride'), [(3, 4, 1), (4, 3, 1), (1, 1, 1), (0, 0, 1), (3, 3, 3)])
def test_frames_and_poses_must_fit(frames, poses, stride):
    blind = PairStream(lambda *_: (np.zeros((0, 2), np.float32),) * 2)
    with pytest.raises(BagError, match=f'{frames} frames and {poses} poses'):
        evaluate_sequence([BLANK] * frames, CAMERA, positions(poses), blind, stride=stride)


def test_the_frontend_as_a_stream():
    class Frontend:
        stamps: list[float] = []  # noqa: RUF012
        back = 1

        def process(self, image, stamp):
            self.stamps.append(stamp)
            if len(self.stamps) == 1:
                return None
            return SimpleNamespace(reference_stamp=self.stamps[-1 - self.back], reference_keypoints='there', keypoints='here')

        def reset(self):
            self.stamps.clear()

    frontend = Frontend()
    stream = FrontendStream(frontend)
    for _ in range(2):
        stream.reset()
        assert [stream.process(BLANK) for _ in range(3)] == [None, ('there', 'here'), ('there', 'here')]
    frontend.back = 2
    with pytest.raises(ConfigError, match='reference to previous'):
        stream.process(BLANK)


def test_homographies(photographs, tmp_path):
    scene = tmp_path / 'camera'
    scene.mkdir()
    for number, image in ((1, photographs[0]), (2, photographs[1]), (3, cv2.cvtColor(photographs[0], cv2.COLOR_GRAY2BGR))):
        cv2.imwrite(str(scene / f'img{number}.png'), image)
    np.savetxt(scene / 'H1to2p', WARP)
    np.savetxt(scene / 'H1to3p', np.eye(3))
    scores = evaluate_homographies(tmp_path, SiftMatcher(500), scenes=['camera'])
    assert [score.pair for score in scores] == ['camera 1-2', 'camera 1-3']
    assert scores[0].within > 0.8
    assert scores[1].within > 0.98
    assert scores[0].as_dict()['within_3px'] == scores[0].within
    (scene / 'H1to3p').write_text('1 2 3')
    with pytest.raises(BagError, match='3 x 3'):
        evaluate_homographies(tmp_path, SiftMatcher(500), scenes=['camera'])
    with pytest.raises(BagError, match='img1'):
        evaluate_homographies(tmp_path, SiftMatcher(500), scenes=['nowhere'])


@pytest.mark.parametrize('rich', [True, False])
def test_tables_with_and_without_rich(rich, monkeypatch, capsys):
    monkeypatch.setenv('COLUMNS', '160')
    if rich:
        pytest.importorskip('rich', reason='rich is optional')
    else:
        monkeypatch.setitem(sys.modules, 'rich.console', None)
    poses = positions(3)
    score = evaluate_sequence([BLANK] * 3, CAMERA, poses, Truth(poses), sequence='made up')
    print_scores([score], [accuracy.HomographyScore('graf 1-2', 'truth', 12, 0.75)])
    printed = capsys.readouterr().out
    for text in ('made up', 'AUC@5', 'P@2px', '1.000', 'graf 1-2', '0.750'):
        assert text in printed


def test_sift_on_a_drive():
    folder = DATA / 'kitti_short_2'
    if not folder.is_dir():
        pytest.skip(f'no recordings beside the repository ({folder.name})')
    recording = FolderRecording(folder)
    intrinsics, trajectory = recording.intrinsics, recording.trajectory
    frames = [image for _, image in itertools.islice(recording.images(), 5)]
    score = evaluate_sequence(frames, intrinsics.k, trajectory.poses[:5], SiftMatcher(2000), sequence=folder.name)
    assert score.failures == 0
    assert score.auc[0] > 0.8
    assert score.precision[1] > 0.85
    assert all(math.isfinite(pair.error_deg) for pair in score.pairs)
