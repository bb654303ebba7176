"""The measurement of the decision about exit 0: which pairs limits accept, and what that does to the poses."""

from __future__ import annotations

import json

import pytest
from support.image_recordings import image_folder, pinhole
from support.networks import photo

from benchmarks.__main__ import main
from benchmarks.exit_zero import OTHERS, Tried, other_limits, row_of, with_limits
from lightglue_trt_ros.core.depth_zero import Evidence, Limits

SURE = Evidence(inliers=0.95, standing=0.0, covered=0.9, change=0.05)


def tried(at_zero=1.0, by_layers=1.0, matches=500, **changes):
    return Tried(matches, 900, 1024, SURE._replace(**changes), at_zero, by_layers)


def test_limits_accept_by_numbers_and_by_what_matches_show():
    assert tried().accepted(Limits())
    assert not tried(matches=300).accepted(Limits())
    assert tried(matches=300).accepted(Limits(of_keypoints=0.3))
    assert not tried(inliers=0.8).accepted(Limits())
    assert tried(inliers=0.8).accepted(Limits(inliers=0.8))
    assert not Tried(4, 900, 1024, None, 1.0, 1.0).accepted(Limits(matches=0, of_keypoints=0))


def test_poses_by_the_decision_are_of_exit_0_where_it_accepts():
    pairs = [tried(at_zero=20, by_layers=0), tried(at_zero=20, by_layers=0, inliers=0.5)]
    row = row_of(pairs, Limits())
    assert row == (50, pytest.approx(50), 0, pytest.approx(100))
    assert row_of(pairs, Limits(inliers=0)).by_rule == 0
    found = with_limits([pairs, [tried(at_zero=0, by_layers=0)]], Limits())
    assert found == pytest.approx({'accepted': 75, 'by_rule': 75, 'loses': 50})


def test_other_limits_differ_in_one_value():
    present, *others = (limits for _, limits in other_limits())
    assert present == Limits()
    assert len(others) == sum(map(len, OTHERS.values()))
    assert all(sum(a != b for a, b in zip(each, present, strict=True)) == 1 for each in others)


@pytest.mark.networks
@pytest.mark.slow
def test_pairs_of_a_recording_are_matched_before_and_after_the_layers(tmp_path, capsys):
    picture = photo('coffee', 192, 320)
    folder = image_folder(tmp_path / 'walk', [picture[:, 8 * number:8 * number + 256] for number in range(4)],
                          calibration=pinhole(256, 192, 200))
    (folder / 'groundtruth.txt').write_text(''.join(f'{1 + number / 10} {number / 10} 0 0 0 0 0 1\n' for number in range(4)))
    small = ['--backend', 'onnxruntime', '--weights', 'ours_light', '--height', '192', '--width', '256',
             '--max-keypoints', '200']
    assert main(['zero', '--data', str(folder), *small, '--strides', '1', '--json', str(tmp_path / 'found.json')]) == 0
    found = json.loads((tmp_path / 'found.json').read_text())['zero']
    (name, pairs), = found['pairs'].items()
    assert name == 'walk, 1'
    assert len(pairs) == 3
    assert set(found['rows'][name]) == {'accepted', 'by_rule', 'at_zero', 'by_layers'}
    assert found['limits']['as they are']['accepted'] == found['rows'][name]['accepted']
    (folder / 'groundtruth.txt').unlink()
    assert main(['zero', '--data', str(folder), *small, '--strides', '1']) == 1
    assert 'no pair of frames has a true pose' in capsys.readouterr().err
