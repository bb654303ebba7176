"""Models between two: their matchers, with all layers or the first ones."""

import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.networks import light

from lightglue_trt_ros.networks.models import load_model, shipped_folder
from lightglue_trt_ros.utils.errors import WeightsError
from training.between import MATCHER, between, main
from training.weight_files import first_layers, write_network


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """The light model, and one whose matcher has twice its weights."""
    former, trained = (tmp_path_factory.mktemp(name) for name in ('former', 'trained'))
    shutil.copytree(shipped_folder('ours_light'), former, dirs_exist_ok=True)
    shutil.copytree(shipped_folder('ours_light'), trained, dirs_exist_ok=True)
    doubled = {name: 2 * tensor for name, tensor in light().matcher.tensors.items()}
    write_network(trained / MATCHER, doubled, pair='ours_light', network='matcher', licence='Apache-2.0')
    return former, trained


def test_share_moves_the_weights_from_the_former_to_the_trained_matcher(folders, tmp_path):
    former, trained = folders
    assert main([str(former), str(trained), '--share', '0.25', '--out', str(tmp_path), '--pair', 'ours_light']) == 0
    was, found = load_file(former / MATCHER), load_file(tmp_path / MATCHER)
    assert was.keys() == found.keys()
    for name, tensor in was.items():
        np.testing.assert_allclose(found[name], 1.25 * tensor.astype(np.float32), rtol=2e-3, atol=1e-4)
    assert load_model(str(tmp_path)).layers == 4


def test_first_layers_are_a_whole_matcher(folders, tmp_path):
    former, trained = (str(folder) for folder in folders)
    assert main([former, trained, '--share', '1', '--layers', '2', '--out', str(tmp_path), '--pair', 'ours_light']) == 0
    model = load_model(str(tmp_path))
    assert model.layers == 2
    assert {name for name in model.matcher.tensors if name.startswith('token_confidence')} == {
        'token_confidence.0.token.0.weight', 'token_confidence.0.token.0.bias'}


def test_matchers_of_other_layers_have_nothing_between():
    matcher = light().matcher.tensors
    with pytest.raises(WeightsError, match='is not alike in both matchers'):
        between(matcher, first_layers(matcher, 3), 0.5)


def test_a_folder_that_is_not_there_is_named(folders, tmp_path, capsys):
    assert main([str(tmp_path / 'none'), str(folders[1]), '--share', '0.5', '--out', str(tmp_path), '--pair', 'x']) == 1
    assert 'none/matcher.safetensors' in capsys.readouterr().err
