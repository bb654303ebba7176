"""Layers: decisions are those of the graphs, oracles take the fewest layers, each unsure point has a cause."""

from __future__ import annotations

import itertools
import json

import cv2
import numpy as np
import pytest
from support.image_recordings import image_folder
from support.networks import photo

from benchmarks.__main__ import main
from benchmarks.layers import CAUSES, choices, confident, exits_by, fewest_layers, unsure_points
from benchmarks.layers.observation import (
    CONTRAST,
    LayerBackend,
    LayerDecision,
    PairLayers,
    contrasts,
    in_other_view,
    observe_pair,
)
from benchmarks.recorded_pairs import sample_pairs
from lightglue_trt_eval.predict.scene import Scene, Timeline
from lightglue_trt_eval.score.metrics import PairResult
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.depth import DepthImage
from lightglue_trt_ros.core.types import Thresholds
from lightglue_trt_ros.networks.models import load_model

SMALL = MatcherConfig(image_height=192, image_width=256, max_keypoints=200, weights='ours_light', backend='onnxruntime')


def timeline(count, breaks=()):
    segments = np.cumsum([number in breaks for number in range(count)])
    return Timeline(np.arange(count), np.arange(count) * 10**8, segments, 1.0)


def pair_layers(f1, share, **points):
    """Ten keypoints in each image, of which a share is confident after each layer but the last; `points` replace masks."""
    masks = {name: np.ones((2, 10), bool) for name in ('valid', 'matched', 'visible', 'textured')} | points
    decisions = [LayerDecision(np.tile(np.arange(10) < 10 * each, (2, 1)), np.full((2, 10), 0.9, np.float32),
                               np.zeros((2, 10), bool)) for each in share]
    results = [PairResult((0, 1), 0.1, 100, layers=number + 1, agreement_f1=each) for number, each in enumerate(f1)]
    return PairLayers(results, decisions, **masks)


@pytest.mark.networks
def test_decisions_are_those_of_the_graphs():
    image = photo('coffee', 192, 256)
    turned = cv2.warpAffine(image, cv2.getRotationMatrix2D((128, 96), 25, 0.8), (256, 192))
    backend = LayerBackend(SMALL)
    features = backend.extract(image), backend.extract(turned)
    assert backend.extract(image.copy()) is features[0]  # not extracted again
    thresholds = Thresholds(SMALL.match_threshold, SMALL.detection_threshold)
    exits, decisions = list(backend.match_exits(*features, thresholds)), list(backend.decisions(*features, thresholds))
    assert [each.layers for each in exits] == [1, 2, 3, 4]
    valid = np.stack([each.scores > SMALL.detection_threshold for each in features])
    shares = [decision.confident[valid].mean() for decision in decisions]
    np.testing.assert_allclose(shares, [each.confident for each in exits[:-1]], atol=1e-6)
    assert 0 < min(shares) < max(shares) < 1
    for decision in decisions:
        assert ((decision.matchability > 0) & (decision.matchability < 1)).all()
        assert 0 < decision.alike[valid].mean() < 0.5
    whole = OnnxRuntimeBackend(SMALL.engine_spec('fp32'), load_model('ours_light'))
    masks = dict.fromkeys(('matched', 'visible', 'textured'), np.ones_like(valid))
    pair = PairLayers([], decisions, valid, **masks)
    for depth_confidence in (0.3, *(float(share) + each for share in shares for each in (-0.01, 0.01))):
        asked = Thresholds(SMALL.match_threshold, SMALL.detection_threshold, depth_confidence)
        expected = whole.match(*features, asked).layers
        assert exits_by(confident, [pair], whole.early_exits.after_layers, depth_confidence) == [expected]


@pytest.mark.parametrize('ends', [(1, 2, 3, 4), (2, 4), (4,)])
@pytest.mark.parametrize('least', [0.5, 0.8, 0.95, 1.0])
def test_an_oracle_takes_the_fewest_layers(ends, least):
    f1 = np.sort(np.random.default_rng(0).uniform(0.3, 1, (5, 4)), axis=1)
    f1[:, -1] = 1
    f1[1] = f1[1, [1, 0, 2, 3]]  # more layers need not be better
    best = min(sum(exits) for exits in itertools.product(ends, repeat=5)
               if np.mean([row[end - 1] for row, end in zip(f1, exits, strict=True)]) >= least - 1e-9)
    found = fewest_layers(f1, ends, least)
    assert set(found) <= set(ends)
    assert sum(found) == best
    assert np.mean([row[end - 1] for row, end in zip(f1, found, strict=True)]) >= least - 1e-9


def test_rules_stop_where_enough_points_are_confident():
    pairs = [pair_layers((0.9, 0.97, 0.99, 1), (0.5, 0.8, 0.9)), pair_layers((0.98, 0.98, 0.99, 1), (1, 1, 1))]
    found = choices(pairs, (2, 3, 4), 0.85)
    assert found['depth_confidence 0.85'] == [3, 2]
    assert found['depth_confidence 0.95'] == [4, 2]
    assert found['oracle: each F1 0.98, these exits'] == [3, 2]
    assert found['oracle: each F1 0.98, any layer'] == [3, 1]
    assert found['oracle: mean F1 0.95, any layer'] == [2, 1]
    assert found['oracle: the F1 of 0.85, any layer'] == [3, 1]
    pairs[0].decisions[1].matchability[:, 8:] = 0.05
    assert choices(pairs, (2, 3, 4), 0.85)['ignoring matchability < 0.1'] == [2, 2]
    pairs[0].valid[:, 8:] = False
    assert choices(pairs, (2, 3, 4), 0.85)['depth_confidence 0.85'] == [2, 2]
    pairs[0].valid[:] = False  # nothing to wait for, as in the graph
    assert choices(pairs, (2, 3, 4), 0.85)['depth_confidence 0.85'] == [2, 2]


def test_points_without_a_partner_are_ignored_by_an_oracle():
    unmatched = np.ones((2, 10), bool)
    unmatched[:, 8:] = False
    found = choices([pair_layers((0.9, 0.97, 0.99, 1), (0.5, 0.8, 0.9), matched=unmatched)], (2, 3, 4), 0.95)
    assert found['oracle: ignoring points without a partner'] == [2]
    assert found['depth_confidence 0.95'] == [4]


def test_each_unsure_point_has_one_cause():
    masks = {name: np.ones((2, 10), bool) for name in ('matched', 'visible', 'textured')}
    masks['visible'][0, 6] = masks['matched'][0, 6:8] = masks['textured'][0, 6:9] = False
    masks['matched'][1, 2] = False  # of a confident point
    pair = pair_layers((0.9, 0.97, 0.99, 1), (0.2, 0.6, 0.8), **masks)
    pair.decisions[1].alike[0, 6:] = True
    pair.valid[1, 9] = False
    counts = unsure_points([pair, pair], [3, 2], (2, 3, 4))  # the second one stops at the first exit
    assert dict(zip(CAUSES, counts['unsure'].tolist(), strict=True)) == {
        'outside the other view': 1, 'no partner': 1, 'low texture': 1, 'two alike': 1, 'other': 3}
    assert counts['all'].sum() == 19
    assert counts['all'][CAUSES.index('no partner')] == 2


def test_points_go_where_poses_and_depth_send_them():
    camera = Intrinsics(200, 100, np.array([[100.0, 0, 99.5], [0, 100, 49.5], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
    poses = np.stack([np.eye(4)] * 3)
    poses[1, 0, 3] = 1.0  # a metre to the right
    poses[2, :3, :3] = [[0, 0, 1], [0, 1, 0], [-1, 0, 0]]  # a quarter to the right
    scene = Scene(timeline(3), camera, poses)
    points = np.array([[50, 50], [150, 50], [10, 50]], np.float32)
    near, far = (DepthImage(np.full((100, 200), metres, np.float32), 1.0, camera) for metres in (1.0, 50.0))
    assert in_other_view(scene, (0, 1), points, near, (100, 200)).tolist() == [False, True, False]  # 100 pixels to the left
    assert in_other_view(scene, (0, 1), points, far, (100, 200)).all()
    assert in_other_view(scene, (0, 1), points, None, (100, 200)).all()  # from infinity on
    assert in_other_view(scene, (1, 0), points, near, (100, 200)).tolist() == [True, False, True]
    assert not in_other_view(scene, (0, 2), points, far, (100, 200)).any()
    assert in_other_view(Scene(timeline(3)), (0, 2), points, far, (100, 200)).all()


@pytest.mark.networks
def test_a_pair_is_observed_from_both_sides():
    wall = photo('coffee', 192, 316)
    camera = Intrinsics(256, 192, np.array([[60.0, 0, 127.5], [0, 60, 95.5], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
    images = wall[:, :256], wall[:, 60:]
    poses = np.stack([np.eye(4)] * 2)
    poses[1, 0, 3] = 1.0  # 60 pixels at a metre
    depth = DepthImage(np.ones((192, 256), np.float32), 1.0, camera)
    backend = LayerBackend(SMALL)
    pair = observe_pair(backend, SMALL, Scene(timeline(2), camera, poses), (0, 1), images, (depth, depth))
    first, second = (backend.extract(image).keypoints[:, 0] for image in images)
    np.testing.assert_array_equal(pair.visible, [first > 59.5, second < 195.5])
    assert pair.matched[0].sum() == pair.matched[1].sum() == pair.results[-1].matches > 50
    assert (pair.visible & pair.matched).sum() > 0.9 * pair.matched.sum()
    assert [result.layers for result in pair.results] == [1, 2, 3, 4]
    assert pair.f1[-1] == 1 > pair.f1[0] > 0.3
    assert pair.results[-1].precision[0] > 0.9


def test_texture_is_judged_where_the_points_are():
    image = np.full((40, 60), 90, np.uint8)
    image[::2, 30:] = 160
    found = contrasts(image, np.array([[5.4, 20.2], [50, 20], [59.4, 39.4]], np.float32))
    assert (found > CONTRAST).tolist() == [False, True, True]
    assert found[1] == pytest.approx(35, abs=1)


def test_pairs_are_evenly_sampled_from_those_of_an_evaluation():
    assert sample_pairs(timeline(9), 4, 10) == [(0, 4), (4, 8)]
    assert sample_pairs(timeline(9), 1, 3) == [(0, 1), (4, 5), (7, 8)]
    assert sample_pairs(timeline(6, breaks=(3,)), 2, 10) == [(0, 2)]
    assert sample_pairs(timeline(3), 4, 10) == []


@pytest.mark.networks
def test_the_benchmark_prints_layers(tmp_path, capsys):
    picture = photo('coffee', 192, 300)
    image_folder(tmp_path, [picture[:, 10 * number:10 * number + 256] for number in range(3)])
    asked = ['layers', '--data', str(tmp_path), '--height', '192', '--width', '256', '--max-keypoints', '200', '--weights',
             'ours_light']
    assert main([*asked, '--strides', '1,2', '--json', str(tmp_path / 'found.json')]) == 0
    text = capsys.readouterr().out
    assert 'unsure at the exit before the one taken' in text
    once, twice = json.loads((tmp_path / 'found.json').read_text())['layers']['recordings']
    assert (once['stride'], len(once['pairs']), twice['stride'], len(twice['pairs'])) == (1, 2, 2, 1)
    after = once['after each layer']
    assert [after[str(layers)]['layers'] for layers in range(1, 5)] == [1, 2, 3, 4]
    assert after['4']['agreement_f1'] == 100
    assert 30 < after['1']['agreement_f1'] < 100
    assert 'pose_auc@10' not in after['4']  # without ground truth
    for pair in once['pairs']:
        assert pair['f1'][-1] == 1
        assert pair['layers']['oracle: each F1 0.95, any layer'] == next(n for n, f1 in enumerate(pair['f1'], 1) if f1 >= 0.95)
    assert main([*asked, '--strides', '9']) == 1
    assert 'no two frames are 9 apart' in capsys.readouterr().err
    assert main([*asked, '--backend', 'tensorrt']) == 1
    assert 'leave out --backend tensorrt' in capsys.readouterr().err
