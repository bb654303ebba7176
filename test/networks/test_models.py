"""Pairs of extractor and matcher: which one a setting names, what their files say, and what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file
from support.networks import magicleap
from support.random_pairs import TINY, random_extractor, random_matcher, random_pair, write_pair

from lightglue_trt_ros.core.config import FETCHED_MODELS, SHIPPED_MODELS, EngineSpec
from lightglue_trt_ros.core.score_calibration import UNCALIBRATED, ScoreCalibration
from lightglue_trt_ros.networks import models as pairs
from lightglue_trt_ros.networks.lightglue import lightglue
from lightglue_trt_ros.networks.models import SCORES, ModelIdentity, identify_model, load_model, shipped_folder
from lightglue_trt_ros.networks.superpoint import superpoint
from lightglue_trt_ros.networks.weight_store import REGISTRY, sources_of
from lightglue_trt_ros.networks.weights import content_sha256
from lightglue_trt_ros.utils.errors import ConfigError, WeightsError
from training.weight_files import write_network

FILES = ('extractor.safetensors', 'matcher.safetensors')


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return write_pair(tmp_path / 'folder')


def metadata(path: Path) -> dict[str, str]:
    data = path.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], 'little')])['__metadata__']


# Which one

@pytest.mark.parametrize('name', SHIPPED_MODELS)
def test_a_shipped_pair_is_there_without_fetching_and_says_what_it_is(name, tmp_path, monkeypatch):
    monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', str(tmp_path))
    pair = load_model(name)
    assert (pair.name, pair.choice, str(pair.identity)) == (name, name, name)
    assert identify_model(name) == pair.identity
    for network, weights in (('extractor', pair.extractor), ('matcher', pair.matcher)):
        assert weights.path == shipped_folder(name) / f'{network}.safetensors'
        assert weights.sha256 == hashlib.sha256(weights.path.read_bytes()).hexdigest()
        said = metadata(weights.path)
        assert said == {'pair': name, 'network': network, 'licence': 'Apache-2.0',
                        'content_sha256': content_sha256(weights.tensors)}
        assert {tensor.dtype for tensor in weights.tensors.values()} == {np.dtype(np.float16)}
    assert list(tmp_path.iterdir()) == []


def test_every_folder_of_shipped_weights_is_registered():
    assert {path.parent.name for path in shipped_folder('x').parent.glob('*/*')} == set(SHIPPED_MODELS)
    assert {source.model for source in REGISTRY.values()} == set(FETCHED_MODELS)


def test_the_default_has_the_published_widths_and_six_layers():
    pair = load_model()
    assert pair.choice == SHIPPED_MODELS[0]
    assert pair.layers == 6
    assert pair.extractor.tensors['conv4b.weight'].shape == (128, 128, 3, 3)
    assert pair.matcher.tensors['transformers.5.self_attn.Wqkv.weight'].shape == (768, 256)


def test_loading_imports_neither_pytorch_nor_touches_the_network():
    code = ('import sys, socket\n'
            'def refuse(*a, **k): raise AssertionError("network")\n'
            'socket.create_connection = socket.getaddrinfo = refuse\n'
            'from lightglue_trt_ros.networks.models import load_model\n'
            'load_model()\n'
            'assert "torch" not in sys.modules\n')
    subprocess.run([sys.executable, '-c', code], check=True, cwd=Path(pairs.__file__).parents[2])


def test_magicleap_that_was_fetched_is_whole():
    pair = magicleap()
    assert pair.identity == identify_model('magicleap')
    assert pair.extractor.tensors['conv1a.weight'].dtype == np.float32


def test_unfetched_magicleap_raises_with_command_but_has_identity(tmp_path, monkeypatch):
    monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', str(tmp_path))
    with pytest.raises(WeightsError, match='ros2 run lightglue_trt_ros fetch_weights magicleap'):
        load_model('magicleap')
    extractor, matcher = (each.sha256 for each in sources_of('magicleap'))
    assert identify_model('magicleap') == ModelIdentity('magicleap', extractor, matcher, 'magicleap')


def test_own_folder_is_a_model_under_the_name_in_its_files(mine, monkeypatch):
    pair = load_model(str(mine))
    assert (pair.name, pair.choice, str(pair.identity)) == ('mine', str(mine), f'mine of {mine}')
    assert pair.identity == identify_model(str(mine))
    written = random_pair(**TINY).extractor.tensors['conv1a.weight'].astype(np.float16)
    assert pair.extractor.tensors['conv1a.weight'].dtype == written.dtype
    np.testing.assert_array_equal(pair.extractor.tensors['conv1a.weight'], written)
    moved = mine.rename(mine.with_name('elsewhere'))
    assert load_model(str(moved)).identity == pair.identity, 'where it lies does not matter'
    monkeypatch.chdir(moved.parent)
    for way in ('elsewhere', './elsewhere'):
        assert load_model(way).choice == str(moved)
    monkeypatch.setenv('HOME', str(moved.parent))
    assert load_model('~/elsewhere').choice == str(moved)


def test_folder_without_metadata_is_a_model_under_its_own_name(mine):
    for name in FILES:
        save_file(load_file(mine / name), mine / name)
    assert (load_model(str(mine)).name, load_model(str(mine)).extractor.name) == ('folder', 'folder extractor')


@pytest.mark.parametrize(('choice', 'words'), [
    ('our', r"weights is 'our': did you mean ours\? There are ours, ours_light, magicleap, or a folder"),
    ('auto', 'There are ours, ours_light, magicleap'),
    ('', "weights is ''"), ('homography', 'extractor.safetensors and matcher.safetensors')])
def test_unknown_model_is_refused_with_what_there_is(choice, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for load in (load_model, identify_model):
        with pytest.raises(ConfigError, match=words):
            load(choice)


# Scores

def test_a_model_has_the_calibration_in_its_folder(mine):
    assert load_model(str(mine)).score_calibration == UNCALIBRATED
    content = {'a': 0.25, 'b': 0.5, 'matcher_sha256': load_model(str(mine)).matcher.sha256}
    (mine / SCORES).write_text(json.dumps(content))
    for found in (load_model(str(mine)), identify_model(str(mine))):
        assert found.score_calibration == ScoreCalibration(0.25, 0.5)
    identity = load_model(str(mine)).identity
    assert identity == dataclasses.replace(identity, score_calibration=UNCALIBRATED), 'engines stay as they are'
    (mine / SCORES).write_text(json.dumps(content | {'exits': {'0': {'a': 2.0, 'b': 3.0}, '3': {'a': 4.0, 'b': 5.0}}}))
    found = load_model(str(mine)).score_calibration
    assert [found.after(layers) for layers in (0, 3, 4)] == [ScoreCalibration(2.0, 3.0), ScoreCalibration(4.0, 5.0), found]
    for before, exits in ((None, {}), ({'a': 2.0, 'b': 3.0}, {0: ScoreCalibration(2.0, 3.0)})):  # as earlier files have it
        (mine / SCORES).write_text(json.dumps(content | {'before_layers': before}))
        assert load_model(str(mine)).score_calibration == ScoreCalibration(0.25, 0.5, exits)


@pytest.mark.parametrize(('change', 'words'), [
    ({'a': 0.0}, 'damaged'), ({'b': math.inf}, 'damaged'), ({'a': 'one'}, 'damaged'), ({'matcher_sha256': 'f' * 64}, 'fitted to'),
    ({'exits': {'0': {'a': 1.0}}}, 'damaged'), ({'exits': {'0': {'a': 1.0, 'b': -1.0}}}, 'damaged'),
    ({'exits': {'none': {'a': 1.0, 'b': 1.0}}}, 'damaged'), ({'exits': 0.3}, 'damaged'),
    ({'before_layers': {'a': 1.0}}, 'damaged'), ({'before_layers': {'a': 1.0, 'b': -1.0}}, 'damaged'),
    ({'before_layers': 0.3}, 'damaged')])
def test_a_calibration_that_is_damaged_or_of_another_matcher_is_refused(mine, change, words):
    content = {'a': 0.25, 'b': 0.5, 'matcher_sha256': load_model(str(mine)).matcher.sha256, **change}
    (mine / SCORES).write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=rf'scores\.json .*{words}.*training\.scores'):
        load_model(str(mine))
    for text in ('[1, 2]', '{', '{}'):
        (mine / SCORES).write_text(text)
        with pytest.raises(WeightsError, match=r'scores\.json is damaged'):
            load_model(str(mine))


# Bad files

@pytest.mark.parametrize('gone', FILES)
def test_a_folder_with_a_missing_file_names_it(mine, gone):
    (mine / gone).unlink()
    with pytest.raises(WeightsError, match=f'folder has no {gone}: the folder of a model holds both networks'):
        load_model(str(mine))


def test_a_folder_that_is_not_there_names_both(tmp_path):
    with pytest.raises(WeightsError, match=r'nowhere has no extractor\.safetensors and no matcher\.safetensors'):
        load_model(str(tmp_path / 'nowhere'))


def test_extractor_and_matcher_of_different_models_are_refused(mine, tmp_path):
    other = write_pair(tmp_path / 'other', 'theirs')
    shutil.copy(other / FILES[1], mine / FILES[1])
    with pytest.raises(WeightsError, match=r'extractor of mine, .* the matcher of theirs: they were not trained together'):
        load_model(str(mine))
    save_file(load_file(other / FILES[1]), mine / FILES[1])
    with pytest.raises(WeightsError, match=r'extractor of mine, .* the matcher of no model that it names'):
        load_model(str(mine))


def test_a_matcher_of_other_descriptors_is_refused_even_without_names(mine):
    save_file(load_file(mine / FILES[0]), mine / FILES[0])
    save_file(random_matcher(0, 48, 64, 2), mine / FILES[1])
    with pytest.raises(WeightsError, match=r'descriptors of 32 numbers .* takes 48 '):
        load_model(str(mine))


def test_files_that_are_exchanged_are_told_apart(mine):
    os.rename(mine / FILES[0], mine / 'x')
    os.rename(mine / FILES[1], mine / FILES[0])
    os.rename(mine / 'x', mine / FILES[1])
    with pytest.raises(WeightsError, match=r'extractor\.safetensors is the matcher of a model'):
        load_model(str(mine))


CHANGES = {
    'missing': lambda tensors: tensors.pop('convDa.weight'),
    'shape': lambda tensors: tensors.update({'conv2a.weight': tensors['conv2a.weight'][:, :4].copy()}),
    'stem': lambda tensors: tensors.update({'conv1a.weight': np.zeros((8, 1, 5, 5), np.float32)}),
    'rank': lambda tensors: tensors.update({'conv2a.bias': tensors['conv2a.bias'][:, None]}),
    'classes': lambda tensors: tensors.update({'convPb.weight': tensors['convPb.weight'][:64].copy()}),
    'NaN': lambda tensors: tensors['convPb.bias'].__setitem__(slice(2), np.nan),
    'infinity': lambda tensors: tensors['conv3b.weight'].__setitem__((0, 0, 0, 0), -np.inf),
    'type': lambda tensors: tensors.update({'conv1a.bias': tensors['conv1a.bias'].astype(np.int32)}),
}
WORDS = {
    'missing': 'has no tensor convDa.weight', 'shape': r'conv2a.weight has shape \(8, 4, 3, 3\) where \(\*, 8, 3, 3\) is expected',
    'stem': r'conv1a.weight has shape \(8, 1, 5, 5\) where \(\*, 1, 3, 3\) is expected',
    'rank': r'conv2a.bias has shape \(8, 1\) where \(8,\) is expected',
    'classes': r'convPb.weight has shape \(64, 32, 1, 1\) where \(65, 32, 1, 1\) is expected',
    'NaN': 'convPb.bias has 2 values that are NaN or infinite, of 65', 'infinity': 'conv3b.weight has 1 values that are NaN',
    'type': 'conv1a.bias is int32: float32 and float16 can be used',
}


@pytest.mark.parametrize('change', CHANGES)
def test_a_tensor_that_cannot_be_is_named(mine, change):
    tensors = load_file(mine / FILES[0])
    CHANGES[change](tensors)
    save_file(tensors, mine / FILES[0], {'pair': 'mine'})
    with pytest.raises(WeightsError, match=rf'extractor\.safetensors:? {WORDS[change]}'):
        load_model(str(mine))


@pytest.mark.parametrize('name', sorted(random_matcher(0, 32, 64, 2)))
def test_every_tensor_of_the_matcher_is_missed_and_its_shape_compared(name):
    tensors = random_matcher(0, 32, 64, 2)
    short = tensors | {name: tensors[name][:-1].copy()}
    with pytest.raises(WeightsError, match=r'has shape \(.*\) where \(.*\) is expected'):
        write_network(Path('/nowhere'), short, pair='mine', network='matcher', licence='')
    del tensors[name]
    if name == 'input_proj.weight':  # then it takes descriptors as wide as itself
        return
    with pytest.raises(WeightsError, match=f'has no tensor {name}: ' if name != 'input_proj.bias' else 'has no tensor input_proj'):
        write_network(Path('/nowhere'), tensors, pair='mine', network='matcher', licence='')


HEAD = {'final_proj.weight': (64, 32), 'final_proj.bias': (64,), 'matchability.weight': (1, 32), 'matchability.bias': (1,)}


@pytest.mark.parametrize('name', HEAD)
def test_incomplete_descriptor_assignment_head_is_refused(tmp_path, name):
    head = {f'descriptor_assignment.{part}': np.zeros(shape, np.float32) for part, shape in HEAD.items()}
    whole, wrong = random_matcher(0, 32, 64, 2) | head, f'descriptor_assignment.{name}'
    write_network(tmp_path / 'matcher.safetensors', whole, pair='mine', network='matcher', licence='')
    with pytest.raises(WeightsError, match=rf'{wrong} has shape \(.*\) where \(.*\) is expected'):
        write_network(Path('/nowhere'), whole | {wrong: head[wrong][..., :-1].copy()}, pair='mine', network='matcher', licence='')
    del whole[wrong]
    with pytest.raises(WeightsError, match=f'has no tensor {wrong}: '):
        write_network(Path('/nowhere'), whole, pair='mine', network='matcher', licence='')


def test_a_matcher_without_whole_heads_is_refused():
    with pytest.raises(WeightsError, match='a matcher 96 channels wide has no whole number of heads of 64'):
        write_network(Path('/nowhere'), random_matcher(0, 32, 96, 1), pair='mine', network='matcher', licence='')


def test_damage_is_found_wherever_it_is(mine):
    good = (mine / FILES[0]).read_bytes()
    start = 8 + int.from_bytes(good[:8], 'little')
    for position in (0, 12, start, (start + len(good)) // 2, len(good) - 1):
        (mine / FILES[0]).write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1:])
        with pytest.raises(WeightsError, match=r'extractor\.safetensors is damaged.*replace it'):
            load_model(str(mine))
    for end in (0, 4, 100, len(good) - 1):
        (mine / FILES[0]).write_bytes(good[:end])
        with pytest.raises(WeightsError, match='is damaged, or no safetensors file'):
            load_model(str(mine))


def test_shipped_files_that_were_changed_are_refused(mine, monkeypatch):
    monkeypatch.setattr(pairs, 'shipped_folder', lambda name: mine)
    with pytest.raises(WeightsError, match='is of the model mine, with a checksum of its content: install the package again'):
        load_model('ours')
    write_pair(mine, 'ours')
    assert load_model('ours').name == 'ours'
    for name in FILES:
        save_file(load_file(mine / name), mine / name, {'pair': 'ours'})
    with pytest.raises(WeightsError, match='with no checksum of its content: install the package again'):
        load_model('ours')
    (mine / FILES[1]).unlink()
    with pytest.raises(WeightsError, match=r'has no matcher\.safetensors: install the package again'):
        load_model('ours')


# Writing

def test_the_same_tensors_give_the_same_file_in_whatever_order(tmp_path):
    tensors = random_extractor(0, TINY['encoder'], 32)
    said = {'pair': 'mine', 'network': 'extractor', 'licence': 'CC0'}
    first = write_network(tmp_path / 'a', tensors, **said)
    second = write_network(tmp_path / 'b', dict(reversed(tensors.items())), **said)
    data = (tmp_path / 'a').read_bytes()
    assert first == second == hashlib.sha256(data).hexdigest()
    assert data == (tmp_path / 'b').read_bytes()
    assert metadata(tmp_path / 'a') == {**said, 'content_sha256': content_sha256(load_file(tmp_path / 'a'))}
    assert {tensor.dtype for tensor in load_file(tmp_path / 'a').values()} == {np.dtype(np.float16)}
    write_network(tmp_path / 'c', tensors, **said, half=False)
    for name, tensor in load_file(tmp_path / 'c').items():
        assert tensor.dtype == tensors[name].dtype
        np.testing.assert_array_equal(tensor, tensors[name])
    assert sorted(os.listdir(tmp_path)) == ['a', 'b', 'c']


def test_what_fp16_cannot_hold_is_named_and_nothing_is_written(tmp_path):
    tensors = random_extractor(0, TINY['encoder'], 32)
    tensors['convPb.bias'][0] = 1e5
    with pytest.raises(WeightsError, match=r'the extractor of mine in float16: convPb\.bias has 1 values that are NaN or infinite'):
        write_network(tmp_path / 'a', tensors, pair='mine', network='extractor', licence='')
    assert os.listdir(tmp_path) == []
    write_network(tmp_path / 'a', tensors, pair='mine', network='extractor', licence='', half=False)


def test_the_light_model_takes_less_than_half_of_the_arithmetic():
    """Multiplications of convolutions and matrix products, counted in the graphs of 640x480 and 1,024 keypoints, all layers."""
    spec = EngineSpec(480, 640, 1024, 'fp32')
    large, light = (sum(map(products, (superpoint(spec, pair.extractor), lightglue(spec, pair.matcher))))
                    for pair in map(load_model, SHIPPED_MODELS))
    assert large == pytest.approx(44.7e9, rel=0.01)
    assert light < large / 2


def products(model):
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
              for value in (*graph.value_info, *graph.input, *graph.output)}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    shapes |= {node.output[0]: list(node.attribute[0].t.dims) for node in graph.node if node.op_type == 'Constant'}
    inner = {'MatMul': lambda node: shapes[node.input[0]][-1], 'Conv': lambda node: math.prod(shapes[node.input[1]][1:])}
    return sum(math.prod(shapes[node.output[0]]) * inner[node.op_type](node) for node in graph.node if node.op_type in inner)
