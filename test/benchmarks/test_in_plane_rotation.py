"""In-plane rotation: the homography of the view, the shares, the pictures, the table."""

import json

import cv2
import numpy as np
import pytest
from support.networks import photo

from benchmarks.__main__ import main
from benchmarks.in_plane_rotation import ROTATIONS_DEG, RotationScore, find_pictures, mean_shares, rotated, score_rotations
from lightglue_trt_eval.baselines import MatchedPoints, SiftMatcher
from lightglue_trt_ros.utils.errors import BagError


@pytest.mark.parametrize('shape', [(480, 640), (50, 30), (33, 33)])
@pytest.mark.parametrize('degrees', ROTATIONS_DEG)
def test_pixels_go_where_the_homography_sends_them(shape, degrees):
    image = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 255, shape, np.uint8), None, 3)
    view, homography = rotated(image, degrees)
    assert view.shape == shape
    middle = np.array([(shape[1] - 1) // 2, (shape[0] - 1) // 2])
    points = middle + np.random.default_rng(1).integers(-9, 10, (60, 2))  # inside every octagon
    there = cv2.perspectiveTransform(points[:, None].astype(np.float64), homography).astype(np.float32)
    seen = cv2.remap(view, there, None, cv2.INTER_LINEAR).ravel().astype(int)
    assert np.abs(seen - image[points[:, 1], points[:, 0]]).max() <= 4


def test_quarter_rotations_move_whole_pixels():
    image = np.random.default_rng(0).integers(0, 255, (40, 60), np.uint8)
    square = image[:, 10:50]
    for degrees, rotation in ((0, 0), (90, 3), (180, 2)):  # clockwise
        view, _ = rotated(image, degrees)
        np.testing.assert_array_equal(view[:, 10:50], np.rot90(square, rotation))
        assert not view[:, :10].any()
        assert not view[:, 50:].any()
    corner = rotated(np.full((40, 60), 200, np.uint8), 45)[0]
    assert (corner[0, 10], corner[20, 30]) == (0, 200)


def test_sift_keeps_its_matches():
    score, = score_rotations([('camera', photo('camera', 480, 640))], SiftMatcher(800).match, 'SIFT', rotations=(90, 180))
    assert list(score.correct) == [0, 90, 180]
    assert score.correct[0] > 200
    assert min(score.shares.values()) > 0.85
    assert score.as_dict() == {'picture': 'camera', 'matcher': 'SIFT', 'within_3px': score.correct}


def test_matches_that_do_not_follow_the_rotation_do_not_count():
    points = np.stack(np.meshgrid(np.arange(80.0, 560), np.arange(480.0)), axis=-1).reshape(-1, 2)[::97].astype(np.float32)
    still = MatchedPoints(points, points)
    score, = score_rotations([('any', np.zeros((480, 640), np.uint8))], lambda first, second: still, 'still')
    assert score.correct[0] == len(points)
    assert score.correct[180] <= 2  # within 1.5 px of the centre


def test_pictures_without_matches_are_left_out_of_the_mean():
    scores = [RotationScore('a', 'm', {0: 100, 90: 50}),
              RotationScore('b', 'm', {0: 10, 90: 9}), RotationScore('flat', 'm', {0: 0, 90: 0})]
    assert scores[2].shares == {0: None, 90: None}
    assert mean_shares(scores) == pytest.approx({0: 1.0, 90: 0.7})
    assert mean_shares(scores[2:]) == {0: None, 90: None}
    assert mean_shares([]) == {}


def test_pictures_are_found(tmp_path):
    with pytest.raises(BagError, match='--data'):
        find_pictures(tmp_path / 'nowhere')
    (tmp_path / 'notes.txt').touch()
    with pytest.raises(BagError, match='holds no image'):
        find_pictures(tmp_path)
    for number in range(20):
        (tmp_path / f'{number}.png').touch()
    assert list(find_pictures(tmp_path)) == ['0.png', '3.png', '6.png', '10.png', '13.png', '16.png', '19.png']
    for place in ('oxford_affine/boat', 'hololens/images', 'hololens/images_right'):
        (tmp_path / place).mkdir(parents=True)
        for name in ('img1.png', 'img2.png'):
            (tmp_path / place / name).touch()
    boat, hololens = (tmp_path / place / 'img1.png' for place in ('oxford_affine/boat', 'hololens/images'))
    assert find_pictures(tmp_path) == {'boat': boat, 'hololens': hololens}
    assert list(find_pictures(tmp_path / 'hololens')) == ['img1.png', 'img2.png']


@pytest.mark.networks
def test_the_benchmark_prints_turns(tmp_path, capsys):
    cv2.imwrite(str(tmp_path / 'camera.png'), photo('camera', 240, 320))
    cv2.imwrite(str(tmp_path / 'flat.png'), np.full((240, 320), 90, np.uint8))
    assert main(['turns', '--data', str(tmp_path), '--height', '240', '--width', '320', '--max-keypoints', '256',
                 '--backend', 'onnxruntime', '--weights', 'ours_light', '--json', str(tmp_path / 'found.json')]) == 0
    text = capsys.readouterr().out
    assert '180 deg' in text
    found = json.loads((tmp_path / 'found.json').read_text())['turns']
    assert [(each['picture'], each['matcher'][:4]) for each in found['pictures']] == [
        ('camera.png', 'ours'), ('flat.png', 'ours'), ('camera.png', 'SIFT'), ('flat.png', 'SIFT')]
    assert found['pictures'][0]['within_3px']['0'] > 100
    assert found['mean']['ours']['30'] > 0.4
    assert found['mean']['SIFT 4000, ratio 0.8']['180'] > 0.8
    assert main(['turns', '--data', str(tmp_path / 'nowhere')]) == 1
    assert 'name a folder of images' in capsys.readouterr().err
