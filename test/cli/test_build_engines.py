"""One build from its command to its engine set: with a builder that returns at once or hangs, and with the real TensorRT-RTX."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.instant_builder import HEIGHT, SIZE, WIDTH, InstantBuilder, K
from support.networks import Remembered, ours, photo
from support.random_pairs import random_pair, write_pair
from support.written_engines import ADA, EARLY_EXITS, files_of, networks_of

from lightglue_trt_ros.backends import onnxruntime
from lightglue_trt_ros.backends import tensorrt as tensorrt_backend
from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.cli import build_engines
from lightglue_trt_ros.core.config import SHIPPED_MODELS, EngineSpec, MatcherConfig
from lightglue_trt_ros.core.early_exit import LAYERS, EarlyExits
from lightglue_trt_ros.core.geometry import resize_gray, to_original
from lightglue_trt_ros.core.refinement import Pyramid, Refined, refine_points
from lightglue_trt_ros.core.score_calibration import UNCALIBRATED
from lightglue_trt_ros.core.types import HostFeatures
from lightglue_trt_ros.datasets.sequence import RIGHT_TOPIC
from lightglue_trt_ros.engines import selection
from lightglue_trt_ros.engines.engine_store import drafting, open_artifact
from lightglue_trt_ros.engines.manifest import FAILED, GRAPH, MANIFEST, PASSED, TENSORS, Artifact, Identity
from lightglue_trt_ros.engines.tensorrt_api import open_tensorrt
from lightglue_trt_ros.networks import lightglue, superpoint
from lightglue_trt_ros.networks.fp8_calibration import Calibration, linear_members
from lightglue_trt_ros.networks.models import identify_model, load_model
from lightglue_trt_ros.networks.typed_onnx import read_stamp
from lightglue_trt_ros.utils.commands import INTERRUPTED
from lightglue_trt_ros.utils.errors import EngineError, EngineMismatchError

pytestmark = pytest.mark.networks

NETWORKS, ATTENDED = len(networks_of(EARLY_EXITS)), len(networks_of(EARLY_EXITS, own_attention=True))
NAME = f'ours-{HEIGHT}x{WIDTH}-k{K}'


class Network:
    """An ONNX Runtime backend whose sessions serve all tests; when it is closed, `closed` has it."""

    refines = True

    def __init__(self, spec, early_exits, closed):
        self.inner, self.early_exits, self.closed = sessions(spec, early_exits), early_exits, closed
        self.shift, self.silent_after, self.moved = 0.0, None, 0.0

    def extract(self, image):
        features = self.inner.extract(image)
        return type(features)(features.keypoints + np.float32(self.shift), features.scores, features.descriptors)

    def match(self, reference, current, thresholds):
        return self.inner.match(reference, current, thresholds)

    def match_exits(self, reference, current, thresholds):
        return [replace(each, indices=np.full_like(each.indices, -1)) if each.layers == self.silent_after else each
                for each in self.inner.match_exits(reference, current, thresholds)]

    def extract_frame(self, image):
        """As a RefiningBackend: by the host, and off by `moved` pixels."""
        features = self.extract(resize_gray(image, (HEIGHT, WIDTH)))
        return FrameFeatures(features, Pyramid(image, image.shape[0] / HEIGHT), image.shape)

    def match_and_refine(self, reference, current, thresholds, points):
        found = self.match(reference.features, current.features, thresholds)
        rows = np.flatnonzero(found.indices >= 0)
        start = to_original(current.keypoints, (HEIGHT, WIDTH), current.size)[found.indices[rows]]
        placed = Refined(points.copy(), np.zeros((len(points), 2, 2), np.float32))
        placed.points[rows], placed.covariances[rows] = refine_points(reference.pyramid, current.pyramid, points[rows], start)
        return found, placed._replace(points=placed.points + np.float32(self.moved))

    def close(self):
        self.closed.append(self)


@dataclass
class FrameFeatures:
    features: HostFeatures
    pyramid: Pyramid
    size: tuple[int, int]

    @property
    def keypoints(self):
        return self.features.keypoints


@cache
def sessions(spec, early_exits):
    """Every build is checked on the same frames."""
    return Remembered(OnnxRuntimeBackend(spec, ours(), early_exits=early_exits))


class Robot(InstantBuilder):
    """A machine with a GPU and TensorRT, both of which only look so.

    Its engines give what ONNX Runtime gives in the spec's precision, with keypoints off by `shift` pixels, no match at the exit
    after `silent_after` layers, and placed points off by `moved` pixels.
    """

    def __init__(self):
        super().__init__()
        self.gpu, self.closed = ADA, []
        self.shift, self.silent_after, self.moved = 0.0, None, 0.0

    def network(self, spec, pair=None, early_exits=EARLY_EXITS):
        """Stands for OnnxRuntimeBackend."""
        return Network(spec, early_exits, self.closed)

    def engines(self, tensorrt, spec, early_exits, plans, description, score_calibration=UNCALIBRATED):
        """Stands for TensorRTBackend."""
        assert tuple(plans) in (networks_of(early_exits), networks_of(early_exits, own_attention=True))
        assert len(set(plans.values())) == len(plans)
        network = self.network(replace(spec, precision='fp16') if spec.precision == 'fp8' else spec, early_exits=early_exits)
        network.shift, network.silent_after, network.moved = self.shift, self.silent_after, self.moved
        network.spec, network.description, network.score_calibration = spec, description, score_calibration
        return network


def kept(write, graphs):
    """`write`, which writes a graph that is asked for again once; the last eight are kept."""
    def written(spec, weights, *early_exits, **options):
        calibration = options.get('calibration')
        key = spec, weights.sha256, early_exits, calibration and calibration.sha256, options.get('own_attention')
        if key not in graphs:
            graphs[key] = write(spec, weights, *early_exits, **options)
        for oldest in list(graphs)[:-8]:
            del graphs[oldest]
        return graphs[key]

    return written


EXTRACTORS, STAGES = {}, {}


@pytest.fixture
def machine(monkeypatch):
    robot = Robot()
    monkeypatch.setattr(superpoint, 'superpoint_maps', kept(superpoint.superpoint_maps, EXTRACTORS))
    monkeypatch.setattr(lightglue, 'lightglue_engines', kept(lightglue.lightglue_engines, STAGES))
    monkeypatch.setattr(build_engines, 'probe', lambda: robot.gpu)
    monkeypatch.setattr(build_engines, 'open_tensorrt', lambda flavour: robot)
    monkeypatch.setattr(tensorrt_backend, 'TensorRTBackend', robot.engines)
    monkeypatch.setattr(onnxruntime, 'OnnxRuntimeBackend', robot.network)
    monkeypatch.setattr(build_engines, 'FRAMES', 4)
    monkeypatch.setattr(build_engines, 'load_model', lambda choice: ours() if choice == 'ours' else load_model(choice))
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None if name == 'skimage' else real(name))
    return robot


@pytest.fixture
def built(tmp_path, capsys):
    """A function that builds into `folder`, by default the test's own, and returns what is printed."""
    def build(*words, folder=tmp_path):
        assert build_engines.main([*SIZE, '--engine-dir', str(folder), *map(str, words)]) == 0
        return capsys.readouterr().out

    return build


@pytest.fixture
def refused(tmp_path, capsys):
    """A function that asks for a build into `folder`, by default the test's own, which fails: what is printed, and the error."""
    def build(*words, folder=tmp_path):
        assert build_engines.main([*SIZE, '--engine-dir', str(folder), *map(str, words)]) == 1
        return capsys.readouterr()

    return build


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith('.lock-')} if folder.exists() else set()


def test_an_engine_set_is_built_checked_and_used(machine, tmp_path, built):
    out = built('--opt-level', 2, '--workspace-mib', 512)
    assert 'GPU: NVIDIA RTX 2000 Ada, compute capability 8.9' in out
    assert 'builder: tensorrt 10.3.0' in out
    assert 'precision: extractor fp16, matcher fp16 (' in out
    assert 'building cross-4 fp16' in out
    assert 'keypoint overlap' in out
    last = shlex.split(out.splitlines()[-1])
    assert last[:4] == ['ros2', 'run', 'lightglue_trt_ros', 'matcher']
    for setting in ('backend:=tensorrt', f'engine_dir:={tmp_path}', f'image_height:={HEIGHT}', f'max_keypoints:={K}'):
        assert setting in last
    assert not any(word.startswith('precision') for word in last), 'auto is the default'

    assert [precision for precision, _ in machine.builds] == ['fp16'] * ATTENDED
    assert all((options.opt_level, options.workspace_mib, options.target_sm) == (2, 512, None) for _, options in machine.builds)
    assert [options.timing_cache.data for _, options in machine.builds[:2]] == [b'', b'timings 1'], 'each profits'
    assert visible(tmp_path) == {f'{NAME}-fp16'}
    assert {path.name for path in (tmp_path / f'{NAME}-fp16').iterdir()} == {*files_of(EarlyExits(), True), MANIFEST}
    manifest = json.loads((tmp_path / f'{NAME}-fp16' / MANIFEST).read_text())
    assert manifest['identity']['gate_verdict'] == PASSED
    assert manifest['gate']['frames'].startswith('rendered views of a procedural texture')
    assert [each['layers'] for each in manifest['gate']['exits']] == [0, 3, 4, 6]
    assert all(each['match_agreement'] >= 0.97 for each in manifest['gate']['exits'])
    assert manifest['gate']['thresholds']['match_agreement'] == 0.97
    assert manifest['record']['layers']['self-1'] == {'fp16': 2}
    assert manifest['record']['build_seconds'] == dict.fromkeys(networks_of(EarlyExits(), True), 1.25)
    assert len(machine.closed) == 2, 'engines and reference'


def test_an_equal_engine_set_is_not_built_again_unless_forced(machine, built):
    built('--precision', 'fp32')
    assert 'is there already, and equal: nothing to build' in built('--precision', 'fp32')
    assert len(machine.builds) == NETWORKS
    built('--precision', 'fp32', '--force')
    assert len(machine.builds) == 2 * NETWORKS
    timed = machine.builds[NETWORKS][1].timing_cache.data
    assert timed == f'timings {NETWORKS}'.encode(), 'a second build starts from what the first one timed'


def test_matcher_of_one_stage_is_another_engine_set(machine, tmp_path, built):
    words = '--precision', 'fp16', '--attention', 'tensorrt'
    built(*words, '--stages', 6)
    place = tmp_path / f'{NAME}-fp16'
    assert {path.name for path in place.iterdir()} == {*files_of(EarlyExits((6,))), MANIFEST}
    assert json.loads((place / MANIFEST).read_text())['identity']['ends'] == [6]
    told = built(*words)
    assert 'ends: the engine set has (6,), needed is (0, 3, 4, 6); graphs: the engine set has another matcher-1-3 and' in told
    assert {path.name for path in place.iterdir()} == {*files_of(EarlyExits()), MANIFEST}


@pytest.mark.parametrize(('options', 'own'), [
    (['--precision', 'fp16', '--attention', 'kernel'], True), (['--precision', 'fp32'], False)])
def test_engines_end_where_layers_attend_in_fp16_unless_asked_otherwise(machine, tmp_path, built, options, own):
    built(*options)
    place, = (tmp_path / name for name in visible(tmp_path))
    assert {path.name for path in place.iterdir()} == {*files_of(EarlyExits(), own), MANIFEST}
    identity = json.loads((place / MANIFEST).read_text())['identity']
    assert set(identity['graphs']) == set(networks_of(EarlyExits(), own))


def test_without_tensor_cores_of_ampere_tensorrt_attends(machine, tmp_path, built, refused):
    machine.gpu = replace(ADA, compute_capability=(7, 5))
    told = refused('--precision', 'fp16', '--attention', 'kernel').err
    assert '--attention kernel is for fp16 from compute capability 8.0 on, not for fp16 on 7.5' in told
    built('--precision', 'fp16')
    assert {path.name for path in (tmp_path / f'{NAME}-fp16').iterdir()} == {*files_of(EarlyExits()), MANIFEST}


@pytest.mark.parametrize(('words', 'complaint'), [
    (['--stages', '5,3,9'], "'5,3,9': "),
    (['--stages', '3,,9'], "'3,,9': write numbers of layers with commas between them"),
    (['--stages', 'all'], "'all': write numbers of layers"),
    (['--workspace-mib', 'all'], "invalid int value: 'all'"),
    (['--workspace-mib', '0'], '0 must be at least 1'),
    (['--matcher-onnx', 'graph', '--precision', 'fp16'], '--matcher-onnx is one FP8 graph of all layers'),
    (['--matcher-onnx', 'graph', '--stages', '6'], '--matcher-onnx is one FP8 graph of all layers'),
    (['--matcher-onnx', 'graph', '--attention', 'kernel'], '--matcher-onnx is one FP8 graph of all layers'),
    (['--target-sm', '89', '--frames', 'bag'], '--frames is for the parity check, which --target-sm leaves out')])
def test_options_that_would_have_no_effect_are_usage_errors(words, complaint, tmp_path, usage_error):
    assert complaint in usage_error(build_engines.main, '--engine-dir', tmp_path, *words)


@pytest.mark.parametrize('damage', ['plan', 'other TensorRT', 'other graph', 'no gate'])
def test_damaged_or_outdated_engine_set_is_rebuilt_with_the_reason(machine, tmp_path, built, damage):
    built('--precision', 'fp16')
    place = tmp_path / f'{NAME}-fp16'
    manifest = json.loads((place / MANIFEST).read_text())
    if damage == 'plan':
        (place / 'self-2.plan').write_bytes((place / 'self-2.plan').read_bytes()[:-1])
    elif damage == 'other TensorRT':
        machine.version = '10.16.0'
    elif damage == 'other graph':
        (place / 'extractor.onnx').write_bytes(b'graph of an older version')
        older = hashlib.sha256(b'graph of an older version').hexdigest()
        manifest['files']['extractor.onnx'] = manifest['identity']['graphs']['extractor'] = older
    else:
        manifest['identity']['gate_verdict'] = 'not run'
    (place / MANIFEST).write_text(json.dumps(manifest))
    said, = (line for line in built('--precision', 'fp16').split('build_engines: ') if line.startswith('building again: '))
    assert {'plan': 'self-2.plan is damaged', 'no gate': 'gate verdict: the engine set has not run',
            'other TensorRT': 'tensorrt version: the engine set has 10.3.0, needed is 10.16.0',
            'other graph': 'the engine set has another extractor'}[damage] in said
    assert len(machine.builds) == 2 * ATTENDED
    wanted = Identity.of_engines(EngineSpec(HEIGHT, WIDTH, K, 'fp16'), ours().identity, machine, ADA)
    open_artifact(tmp_path, wanted).verify()


def test_own_light_model_is_built_and_retraining_adds_an_engine_set(machine, tmp_path, built):
    light = {'encoder': (32, 32, 64, 64), 'descriptors': 256, 'width': 128, 'layers': 5}
    folder, engines = write_pair(tmp_path / 'light', 'featherweight', random_pair(**light)), tmp_path / 'e'
    words = '--weights', folder, '--target-sm', 89, '--flavour', 'tensorrt'
    built(*words, folder=engines)
    pair = load_model(str(folder))
    place = engines / f'{pair.identity.label}-{HEIGHT}x{WIDTH}-k{K}-fp16'
    manifest = json.loads((place / MANIFEST).read_text())
    assert manifest['identity']['ends'] == [0, 2, 3, 5]
    assert {name: manifest['identity'][name] for name in ('weights', 'extractor_sha256', 'matcher_sha256', 'weights_choice')} == {
        'weights': 'featherweight', 'extractor_sha256': pair.extractor.sha256, 'matcher_sha256': pair.matcher.sha256,
        'weights_choice': str(folder)}
    assert 'nothing to build' in built(*words, folder=engines)
    write_pair(folder, 'featherweight', random_pair(7, **light))
    built(*words, folder=engines)
    retrained = load_model(str(folder)).identity.label
    assert visible(engines) == {place.name, place.name.replace(pair.identity.label, retrained)}


def test_failed_parity_check_leaves_no_engine_set(machine, tmp_path, refused):
    machine.shift = 3.0
    captured = refused()
    assert 'failed the parity check, and were not kept' in captured.err
    assert 'keypoint overlap is' in captured.err
    assert 'build them in fp32 instead' in captured.err
    assert 'Parity of fp16 engines' in captured.out, 'the figures are shown all the same'
    assert visible(tmp_path) == set()
    assert len(machine.closed) == 2, 'engines and reference'


@pytest.mark.parametrize('precision', ['fp16', 'fp8'])
def test_engines_whose_early_exits_match_nothing_are_not_kept(machine, tmp_path, refused, precision):
    """All layers together are as good as ever."""
    machine.silent_after = 4
    put_calibration(tmp_path)
    err = refused('--precision', precision).err
    assert f'the {precision} engines failed the parity check, and were not kept' in err
    assert 'match agreement after 4 layers is 0.0000' in err
    assert 'after 6 layers' not in err
    assert visible(tmp_path) == {CALIBRATION}


def test_gpu_that_refines_points_differently_gets_no_engines(machine, tmp_path, refused):
    machine.moved = 0.06
    told = refused().err
    assert re.search(r'points refined as on the host are 0.0\d+, at least 0.9 is needed', told)
    assert 'instead' not in told, 'another precision would place them no better'
    assert visible(tmp_path) == set()


def test_engine_of_another_precision_leaves_no_engine_set(machine, tmp_path, refused):
    machine.comes_out = 'fp32'
    assert 'fp16' in refused().err
    assert visible(tmp_path) == set()


@pytest.mark.parametrize(('arguments', 'complaint'), [
    (['--workspace-mib', '6001'], '6001 is more than the 6000 MiB that are free'),
    (['--max-keypoints', '4096'], 'max_keypoints is 4096'),
    (['--height', '161'], 'image_height is 161'),
    (['--precision', 'fp8'], 'there is no FP8 calibration in'),
    (['--frames', 'nowhere'], 'nowhere does not exist'),
])
def test_what_cannot_be_built_is_refused_before_building(machine, tmp_path, refused, arguments, complaint):
    if '--frames' in arguments:
        pytest.importorskip('rclpy', reason='recordings are decoded with ROS')
    assert complaint in refused(*arguments, folder=tmp_path / 'engines').err
    assert machine.builds == []
    assert visible(tmp_path / 'engines') == set()


def test_without_a_gpu_the_error_says_how_to_build_for_another(monkeypatch, refused):
    def no_gpu():
        raise EngineError('no usable GPU: none')
    monkeypatch.setattr(build_engines, 'probe', no_gpu)
    assert '--target-sm 89' in refused().err


def test_acceptance_check_can_run_on_a_recording(machine, tmp_path, built, shared_data):
    pytest.importorskip('rclpy', reason='recordings are decoded with ROS')
    built('--frames', shared_data / 'kitti_short_1')
    gate = json.loads((tmp_path / f'{NAME}-fp16' / MANIFEST).read_text())['gate']
    assert gate['frames'] == 'kitti_short_1, frames 23 to 26'
    assert gate['pairs'] == 3


def test_image_topic_selects_camera_for_acceptance_and_calibration(machine, tmp_path, capsys, monkeypatch):
    for module in ('rclpy', 'rosbags'):
        pytest.importorskip(module, reason=f'{module} is not installed: bags are not read')
    from lightglue_trt_eval.quantization import workflow
    from lightglue_trt_ros.datasets.bag_writer import write_bag
    scene = photo('coffee', 200, 260)
    images = [(10**8 * number, np.ascontiguousarray(scene[2 * number:2 * number + 160, 3 * number:3 * number + 216]))
              for number in range(1, 7)]
    write_bag(tmp_path / 'bag', images, right=(images[:5], None))
    arguments = [*SIZE, '--engine-dir', str(tmp_path / 'engines'), '--frames', str(tmp_path / 'bag')]
    assert build_engines.main(arguments) == 1
    assert 'choose one (--image-topic)' in capsys.readouterr().err
    ordered, outcomes = [], [KeyboardInterrupt, EngineError('below the gate'), None]

    def quantize(order):
        ordered.append(order)
        if error := outcomes[len(ordered) - 1]:
            raise error

    monkeypatch.setattr(workflow, 'quantize', quantize)
    arguments += ['--image-topic', RIGHT_TOPIC, '--calibration', str(tmp_path / 'bag')]
    assert build_engines.main(arguments) == INTERRUPTED
    assert build_engines.main(arguments) == 1
    assert 'build_engines: below the gate' in capsys.readouterr().err
    assert build_engines.main(arguments) == 0
    gate = json.loads((tmp_path / 'engines' / f'{NAME}-fp16' / MANIFEST).read_text())['gate']
    assert gate['frames'] == 'bag, frames 0 to 3'
    assert ordered[0].image_topic == RIGHT_TOPIC
    assert ordered[0].recordings == (tmp_path / 'bag',)
    assert (ordered[0].engine_dir, ordered[0].force) == (tmp_path / 'engines', False)


def test_frames_of_the_acceptance_check_are_the_flight_by_default():
    pytest.importorskip('skimage', reason='the flight shows its photographs')
    images, source = build_engines._frames(build_engines._parse(SIZE))()
    assert [image.shape for image in images] == [(HEIGHT, WIDTH)] * 9
    assert source.startswith("the demo's flight")


def test_the_defaults_are_used_through_the_launch_file(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(build_engines, 'engine_dir_of', lambda: tmp_path)
    identity = Identity.of_engines(EngineSpec(precision='fp16'), ours().identity, machine, ADA)
    engine_set = Artifact(tmp_path / identity.name, identity, {}, {}, {})
    assert build_engines._use(engine_set, 'auto').startswith('ros2 launch lightglue_trt_ros matcher.launch.py backend:=tensorrt')
    assert build_engines._use(engine_set, 'fp16').endswith('-p precision:=fp16')
    own = replace(identity, weights_choice='/robot/weights')
    engine_set = Artifact(tmp_path / own.name, own, {}, {}, {})
    assert build_engines._use(engine_set, 'auto').endswith('-p weights:=/robot/weights')


@pytest.fixture
def fp8_graph(tmp_path):
    def put(k):
        path = tmp_path / 'matcher_fp8.onnx'
        path.write_bytes(lightglue.lightglue(EngineSpec(HEIGHT, WIDTH, k, 'fp16'), ours().matcher).SerializeToString())
        return path
    return put


def test_a_given_fp8_graph_is_built_as_it_is(machine, tmp_path, built, fp8_graph):
    path = fp8_graph(K)
    built('--matcher-onnx', path)
    assert [precision for precision, _ in machine.builds] == ['fp16', 'fp8']
    assert (tmp_path / f'{NAME}-fp8' / 'matcher.onnx').read_bytes() == path.read_bytes()


CALIBRATION = f'{NAME}-calibration'


def put_calibration(folder: Path, verdict: str = PASSED, peak: float = 64.0) -> Artifact:
    """What quantize leaves: a calibration that turns no basis and moves no centre."""
    spec = EngineSpec(HEIGHT, WIDTH, K)
    identity = Identity.of_calibration(spec, ours().identity, gate_verdict=verdict)
    with drafting(folder, identity.name) as draft:
        if verdict == PASSED:
            draft.write(TENSORS, untouched(spec, peak).content())
            draft.write(GRAPH, b'graph')
        return draft.publish(identity, {}, {'settings': {}, 'flops_share': 0.5, 'provenance': {}, 'frontier': []})


def untouched(spec, peak):
    weights, linears = ours().matcher, linear_members(LAYERS)
    provenance = {'weights_sha256': weights.sha256, 'image_height': spec.image_height, 'image_width': spec.image_width,
                  'max_keypoints': spec.max_keypoints}
    bases = np.tile(np.eye(64, dtype=np.float32), (LAYERS, 2, 4, 1, 1))
    return Calibration(np.eye(256, dtype=np.float32), bases, {}, dict.fromkeys(linears, peak), frozenset(linears), provenance)


def test_fp8_takes_what_quantize_left_and_builds_every_stage_with_it(machine, tmp_path, built, refused):
    assert 'there is no FP8 calibration in' in refused('--precision', 'fp8').err
    calibration = put_calibration(tmp_path).calibration()
    built('--precision', 'fp8')
    early_exits = EarlyExits()
    stages, heads = len(early_exits.stages), len(early_exits.heads)
    assert [precision for precision, _ in machine.builds] == ['fp16', *['fp8'] * stages, *['fp16'] * heads]
    place = tmp_path / f'{NAME}-fp8'
    stamps = [read_stamp(onnx.load(place / f'{name}.onnx')) for name in early_exits.graphs()]
    assert {stamp['calibration_sha256'] for stamp in stamps} == {calibration.sha256}
    identity = json.loads((place / MANIFEST).read_text())['identity']
    assert (identity['ends'], identity['calibration_sha256']) == (list(early_exits.ends), calibration.sha256)
    builds = len(machine.builds)
    built()  # auto finds it too, and builds nothing again
    assert len(machine.builds) == builds


def test_calibration_that_failed_acceptance_is_not_used_for_fp8(machine, tmp_path, built, refused):
    put_calibration(tmp_path, FAILED)
    assert 'did not pass its acceptance check' in refused('--precision', 'fp8').err
    built()
    assert {precision for precision, _ in machine.builds} == {'fp16'}


def test_gpu_without_fp8_is_refused_before_calibration(machine, tmp_path, refused):
    machine.gpu = replace(ADA, compute_capability=(8, 7))
    told = refused('--precision', 'fp8', '--calibration', tmp_path / 'no').err
    assert 'compute capability 8.7 is below 8.9' in told


def test_a_given_graph_of_another_shape_is_refused(machine, tmp_path, fp8_graph, refused):
    assert f'was made for max_keypoints 64, where {K} is asked for' in refused('--matcher-onnx', fp8_graph(64)).err
    (tmp_path / 'text').write_text('no graph at all')
    assert 'is not an ONNX file' in refused('--matcher-onnx', tmp_path / 'text').err
    assert machine.builds == []


@pytest.fixture
def on_ada(machine, monkeypatch, tmp_path):
    """The node's choice on that machine: a function of `precision` and what else is set; engines built at start are built here."""
    monkeypatch.setattr('lightglue_trt_ros.engines.gpu_info.probe', lambda: ADA)
    monkeypatch.setattr('lightglue_trt_ros.engines.tensorrt_api.open_tensorrt', lambda: machine)
    monkeypatch.setattr(selection, 'start', lambda module, *arguments: build_engines.main(list(arguments)))
    monkeypatch.setattr(selection, 'wait', lambda status, cancelled: status)

    def choose(precision, **settings):
        return selection.open_backend(MatcherConfig(
            image_height=HEIGHT, image_width=WIDTH, max_keypoints=K, backend='tensorrt', precision=precision,
            engine_dir=str(tmp_path), **settings))
    return choose


def test_a_calibration_that_passed_is_enough_to_build_fp8_at_the_start(machine, on_ada, tmp_path):
    put_calibration(tmp_path)
    opened = on_ada('fp8', build_on_start=True)
    assert opened.backend.spec.precision == 'fp8'
    assert 'fp8' in {precision for precision, _ in machine.builds}
    builds = len(machine.builds)
    assert on_ada('auto', build_on_start=True).backend.spec.precision == 'fp8'
    assert len(machine.builds) == builds, 'they fit: nothing is built again'


def test_an_empty_folder_shadows_nothing(machine, on_ada, built, tmp_path):
    built()
    (tmp_path / f'{NAME}-fp8').mkdir()
    opened = on_ada('auto')
    assert (opened.backend.spec.precision, opened.warning) == ('fp16', '')
    assert opened.backend.score_calibration == ours().score_calibration
    with pytest.raises(EngineError, match='fp8 was asked for, but there is no FP8 calibration in'):
        on_ada('fp8')


def test_fp16_engines_serve_until_those_of_a_calibration_are_built(machine, on_ada, built, tmp_path):
    built()
    put_calibration(tmp_path, FAILED)
    assert on_ada('auto').backend.spec.precision == 'fp16'
    with pytest.raises(EngineError, match='did not pass its acceptance check'):
        on_ada('fp8', build_on_start=True)
    put_calibration(tmp_path)
    opened = on_ada('auto')
    assert opened.backend.spec.precision == 'fp16'
    assert opened.warning.startswith('running in fp16, not in fp8: there is no engine set in')
    assert '--precision fp8' in opened.warning
    built()
    assert on_ada('auto').backend.spec.precision == 'fp8'
    (tmp_path / f'{NAME}-fp8' / 'matcher-4.plan').write_bytes(b'half')
    opened = on_ada('auto')
    assert opened.backend.spec.precision == 'fp16'
    assert 'matcher-4.plan is damaged' in opened.warning
    assert on_ada('auto', build_on_start=True).backend.spec.precision == 'fp8', 'built again'


def test_fp8_engines_belong_to_their_calibration_and_need_it_no_more(machine, on_ada, built, tmp_path):
    put_calibration(tmp_path)
    built()
    put_calibration(tmp_path, peak=32.0)
    with pytest.raises(EngineMismatchError, match='calibration sha256: the engine set has'):
        on_ada('fp8')
    shutil.rmtree(tmp_path / CALIBRATION)
    assert on_ada('fp8').backend.spec.precision == on_ada('auto').backend.spec.precision == 'fp8', 'as copied from elsewhere'


SLOW_BUILDER = textwrap.dedent("""
    import pathlib, sys, time
    sys.path[:0] = {tests!r}
    from support.instant_builder import SIZE, InstantBuilder
    from lightglue_trt_ros.cli import build_engines

    class Slow(InstantBuilder):
        name = 'tensorrt_rtx'

        def build(self, onnx, precision, options, progress=None):
            print('BUILDING', flush=True)
            end = time.monotonic() + {seconds}
            while time.monotonic() < end and not pathlib.Path({folder!r} + '.go').exists():
                time.sleep(0.1)  # a signal that comes just before a sleep does not end it
            return super().build(onnx, precision, options, progress)

    build_engines.open_tensorrt = lambda flavour: Slow()
    sys.exit(build_engines.main([*SIZE, '--weights', 'ours_light', '--target-sm', '89', '--engine-dir', {folder!r}]))
""")


BUILT_SLOWLY = f'ours_light-{HEIGHT}x{WIDTH}-k{K}-fp16'


def start_builder(folder: Path, seconds: float) -> subprocess.Popen[str]:
    script = SLOW_BUILDER.format(tests=[str(folder) for folder in Path(__file__).parents[:2]], seconds=seconds, folder=str(folder))
    return subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=os.environ | {'PYTHONUNBUFFERED': '1'}, cwd=Path(__file__).parents[2])


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f'the builder ended with {process.wait()} and never said {text!r}')


def test_a_builder_killed_in_the_middle_leaves_no_engine_set_and_no_lock(tmp_path):
    with start_builder(tmp_path, 60) as process:
        wait_for(process, 'BUILDING')
        assert [name for name in visible(tmp_path) if not name.startswith('.')] == []
        process.send_signal(signal.SIGKILL)
    left = visible(tmp_path)
    assert all(name.startswith('.') for name in left), left
    with start_builder(tmp_path, 0) as process:
        out = process.communicate(timeout=60)[0]
    assert process.returncode == 0, out
    assert 'waiting' not in out
    assert visible(tmp_path) == {BUILT_SLOWLY}


def test_ctrl_c_ends_a_build_with_nothing_kept(tmp_path):
    with start_builder(tmp_path, 60) as process:
        wait_for(process, 'BUILDING')
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=60)[0]
    assert process.returncode == INTERRUPTED
    assert 'interrupted, and nothing was kept' in out
    assert visible(tmp_path) == set()


def test_second_of_two_builders_waits_and_finds_the_engine_set(tmp_path):
    with start_builder(tmp_path, 60) as first:
        wait_for(first, 'BUILDING')
        with start_builder(tmp_path, 60) as second:
            wait_for(second, f'another process is making {BUILT_SLOWLY}: waiting for it')
            Path(f'{tmp_path}.go').touch()
            first.communicate(timeout=60)
            started = time.monotonic()
            out = second.communicate(timeout=60)[0]
    assert (first.returncode, second.returncode) == (0, 0), out
    assert 'is there already, and equal' in out
    assert 'BUILDING' not in out
    assert time.monotonic() - started < 30


REAL = '--target-sm', '86', '--flavour', 'rtx'


@pytest.fixture(scope='module')
def engine_dir(rtx, tmp_path_factory):
    """A folder with the engine set of 'ours' for SM86, of the real TensorRT-RTX."""
    folder = tmp_path_factory.mktemp('engines')
    assert build_engines.main([*SIZE, '--engine-dir', str(folder), *REAL]) == 0
    return folder


def test_real_engines_for_another_machine(engine_dir, built):
    place = engine_dir / f'{NAME}-fp16'
    manifest = json.loads((place / MANIFEST).read_text())
    assert manifest['gate'] == {'frames': 'none: built for SM86 on another machine'}
    assert manifest['identity']['gate_verdict'] == 'not run'
    assert manifest['identity']['compute_capability'] == '8.6'
    assert 2 ** 20 < (place / 'extractor.plan').stat().st_size < 10 * 2 ** 20
    blocks = sum((place / f'{block}.plan').stat().st_size for block in EarlyExits().blocks)
    assert 15 * 2 ** 20 < blocks < 35 * 2 ** 20, 'FP16 weights, not FP32'
    assert all(0 < (place / f'{head}.plan').stat().st_size < 2 ** 21 for head in EarlyExits().heads)
    assert 'nothing to build' in built(*REAL, folder=engine_dir)


def test_real_engines_of_two_pairs_stand_side_by_side(engine_dir, built):
    """As the node asks for them: once the second is built, the first is still found."""
    built(*REAL, '--weights', 'ours_light', folder=engine_dir)
    assert visible(engine_dir) == {f'{weights}-{HEIGHT}x{WIDTH}-k{K}-fp16' for weights in SHIPPED_MODELS}
    spec, tensorrt, ampere = EngineSpec(HEIGHT, WIDTH, K, 'fp16'), open_tensorrt('rtx'), replace(ADA, compute_capability=(8, 6))
    for weights in SHIPPED_MODELS:
        found = open_artifact(engine_dir, Identity.of_engines(spec, identify_model(weights), tensorrt, ampere))
        assert found.identity.weights == weights
        found.verify()


def test_real_fp8_is_refused_below_ada(rtx, refused):
    assert 'compute capability 8.6 is below 8.9' in refused('--target-sm', 86, '--precision', 'fp8').err
