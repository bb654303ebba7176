"""The sweep: real graphs on the CPU, stand-ins where a GPU would be; what is missing is said, never filled in."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from support.networks import moved, ours, photo

from benchmarks.__main__ import main
from benchmarks.real_images import find_sequences
from benchmarks.sweep import load_pairs, runners
from benchmarks.sweep.cells import ImagePair, Missing, sweep
from benchmarks.sweep.report import HEADER, commands, draw_sweep, markdown, notes, table_rows
from benchmarks.sweep.runners import Engines, Graphs, HostBench, TargetEngines, UnavailableError, check_fp8
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.early_exit import LAYERS
from lightglue_trt_ros.core.types import HostFeatures, Matches
from lightglue_trt_ros.engines.engine_store import drafting
from lightglue_trt_ros.engines.gpu_info import target
from lightglue_trt_ros.engines.manifest import FAILED, GRAPH, PASSED, TENSORS, Identity
from lightglue_trt_ros.networks.fp8_calibration import Calibration, linear_members
from lightglue_trt_ros.utils.errors import BagError, EngineError

pytestmark = pytest.mark.networks

HOST = MatcherConfig(backend='onnxruntime')
K = 64


class DeviceFeatures:
    def __init__(self, keypoints, scores, descriptors):
        self.keypoints, self.scores = keypoints, scores


class FakeBackend:
    """Finds the same K points everywhere and matches each to itself, but for the last `lost`; takes `ms` of a GPU's time."""

    slots, on_device = 9, False

    def __init__(self, spec, ms, lost=0, fails=False):
        self.spec, self.ms, self.lost, self.fails, self.closed = spec, ms, lost, fails, False
        self.held = []  # features that somebody has

    def extract(self, image):
        assert image.shape == (self.spec.image_height, self.spec.image_width)
        grid = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(-1, 2)[:self.spec.max_keypoints]
        scores = np.full(len(grid), 0.5, np.float32)
        scores[-4:] = 0
        make = DeviceFeatures if self.on_device else HostFeatures
        features = make(8 * grid.astype(np.float32), scores, np.zeros((len(grid), 256), np.float32))
        self.held = [*(there for there in self.held if there() is not None), weakref.ref(features)]
        assert len(self.held) <= self.slots
        return features

    def match(self, reference, current, thresholds):
        if self.fails:
            raise EngineError('the GPU is lost\nreboot')
        indices = np.arange(len(reference.scores), dtype=np.int32)
        indices[len(indices) - self.lost:] = -1
        return Matches(indices, np.ones(len(indices), np.float32), 9)

    def device_ms(self):
        return {'match': self.ms}

    def close(self):
        self.closed = True


class FakeBench:
    name = 'stand-in'

    def __init__(self, *, ms, lost=None, fails=(), ends=None, emulated=()):
        self.ms, self.lost, self.fails, self.ends, self.emulated, self.made = ms, lost or {}, fails, ends or {}, emulated, []

    def open(self, spec):
        name = spec.precision
        if name in self.emulated:
            assert all(backend.closed for backend in self.made)  # their memory is needed
        elif name not in self.ms:
            raise UnavailableError('no engines', f'build them:\nros2 run build {spec.name}')
        self.made.append(FakeBackend(spec, self.ms.get(name, math.nan), self.lost.get(name, 0), name in self.fails))
        return self.made[-1]

    def engines(self, spec):
        if spec.precision not in self.ms:
            raise UnavailableError('no engines', f'build them:\nros2 run build {spec.name}')
        return Engines({'fp32': 100.0, 'fp16': 50.0, 'fp8': 30.0}[spec.precision], self.ends.get(spec.precision, (9,)))


class FakeGraphs:
    def matcher(self, spec):
        if spec.precision == 'fp8':
            raise UnavailableError('no calibration', 'calibrate')
        return bytes({'fp32': 4 << 20, 'fp16': 2 << 20}[spec.precision])


PAIRS = {'easy': ImagePair('one', np.zeros((80, 100), np.uint8), np.zeros((80, 100), np.uint8)),
         'hard': ImagePair('two', np.zeros((80, 100), np.uint8), np.zeros((80, 100), np.uint8))}


def cells_of(bench, *, graphs=None, sizes=None, sides=(64,), keypoints=(K,), precisions=('fp32', 'fp16', 'fp8'), rounds=6):
    cells = list(itertools.chain(*sweep(bench, graphs or FakeGraphs(), sizes, PAIRS, sides, keypoints, precisions, rounds)))
    assert all(getattr(backend, 'closed', True) for backend in getattr(bench, 'made', ()))
    return cells


def reason(cell, figure):
    return cell.missing[figure].reason


def test_ratios_are_to_fp32_of_the_same_rounds():
    exact, half, eighth = cells_of(FakeBench(ms={'fp32': 6.0, 'fp16': 3.0, 'fp8': 2.0}, lost={'fp16': 1, 'fp8': 16}))
    assert [cell.speedup for cell in (exact, half, eighth)] == [[1.0] * 6, [2.0] * 6, [3.0] * 6]
    assert half.match_ms == [3.0] * 6
    assert [cell.engine_ratio for cell in (exact, half, eighth)] == [1.0, 0.5, 0.3]
    assert [half.onnx_mib, half.onnx_ratio] == [2, 0.5]
    assert reason(eighth, 'onnx_ratio') == 'no calibration'
    assert eighth.matches == {'easy': K - 16, 'hard': K - 16}
    assert eighth.agreement['hard'].count_ratio == 0.75
    assert eighth.agreement['hard'].f1 == pytest.approx(2 * 48 / (48 + 64))
    assert exact.keypoints == {'easy': K - 4, 'hard': K - 4}
    assert f'64x64, K = {K}' in notes([exact])[0]


def test_a_gpu_has_room_for_three_frames(monkeypatch):
    monkeypatch.setattr(FakeBackend, 'slots', 3)
    monkeypatch.setattr(FakeBackend, 'on_device', True)
    bench = FakeBench(ms={'fp32': 6.0, 'fp16': 3.0})
    assert cells_of(bench)[1].agreement['hard'].f1 == 1.0


def test_what_is_missing_stays_missing_and_says_how_to_get_it():
    cells = cells_of(FakeBench(ms={'fp32': 6.0, 'fp16': 3.0}), sides=(64, 96))
    missing = [cell for cell in cells if cell.precision == 'fp8']
    for cell in missing:
        assert set(cell.missing) == {
            'match_ms', 'speedup', 'engine_mib', 'engine_ratio', 'onnx_mib', 'onnx_ratio', 'matches', 'agreement'}
    assert table_rows(missing)[0][3:] == ['no engines'] * 3 + ['no calibration'] + ['no engines'] * 2
    assert commands(cells) == ['ros2 run build 64x64-k64-fp8', 'ros2 run build 96x96-k64-fp8']
    assert [line for line in notes(cells) if 'no engines' in line] == [f'no engines: build them: {commands(cells)[0]}']
    plain = json.loads(json.dumps([cell.as_dict() for cell in cells], allow_nan=False))
    assert [plain[2]['match_ms'], plain[2]['engine_mib'], plain[2]['missing']['match_ms']] == [[], None, 'no engines']
    assert plain[1]['agreement']['easy']['f1'] == 1.0


def test_an_emulation_brings_matches_and_no_time():
    eighth = cells_of(FakeBench(ms={'fp32': 6.0, 'fp16': 3.0}, lost={'fp8': 32}, emulated=('fp8',)))[-1]
    assert eighth.emulated
    assert eighth.agreement['easy'].count_ratio == 0.5
    assert not eighth.match_ms
    assert reason(eighth, 'match_ms') == reason(eighth, 'speedup') == 'TensorRT only'
    assert table_rows([eighth])[0][-1] == '0.500, 0.667 (e)'
    assert any('(e)' in line for line in notes([eighth]))


def test_without_fp32_there_is_nothing_to_compare_with():
    exact, half, _ = cells_of(FakeBench(ms={'fp16': 3.0}))
    assert reason(exact, 'match_ms') == 'no engines'
    assert half.match_ms == [3.0] * 6
    assert {reason(half, figure) for figure in ('speedup', 'agreement', 'engine_ratio')} == {'no FP32 here'}
    assert half.matches == {'easy': K, 'hard': K}


def test_engines_of_other_stages_are_not_compared():
    _, half, _ = cells_of(FakeBench(ms={'fp32': 6.0, 'fp16': 3.0}, ends={'fp16': (4, 9)}))
    assert half.match_ms == [3.0] * 6
    assert reason(half, 'speedup') == reason(half, 'engine_ratio') == 'other stages'


def test_a_failure_costs_its_shape_alone_and_impossible_shapes_are_named():
    exact, half, _ = cells_of(FakeBench(ms={'fp32': 6.0, 'fp16': 3.0}, fails=('fp16',)))
    assert half.missing['agreement'] == half.missing['match_ms'] == Missing('failed', 'the GPU is lost\nreboot')
    assert not exact.matches
    assert exact.engine_mib == 100
    large = cells_of(FakeBench(ms={'fp32': 6.0}), sides=(16, 20), keypoints=(2048,))
    assert {reason(cell, figure) for cell in large for figure in ('match_ms', 'engine_mib')} == {'no such shape'}
    assert '1 to 4' in large[0].missing['match_ms'].text
    assert 'multiple' in large[3].missing['match_ms'].text


def test_rounds_end_when_their_time_is_over(monkeypatch):
    monkeypatch.setattr('benchmarks.sweep.cells.SECONDS', -1.0)
    assert len(cells_of(FakeBench(ms={'fp32': 6.0}), rounds=100)[0].match_ms) == 5
    assert len(cells_of(FakeBench(ms={'fp32': 6.0}), rounds=3)[0].match_ms) == 3


def test_fp32_is_always_measured():
    assert [cell.precision for cell in cells_of(FakeBench(ms={'fp32': 6.0, 'fp16': 3.0}), precisions=('fp16',))] == ['fp32', 'fp16']


@pytest.mark.parametrize(('sm', 'version', 'flavour', 'message'), [
    (87, '10.3.0', 'tensorrt', 'compute capability 8.7'), (89, '8.6.1', 'tensorrt', 'TensorRT 8.6.1'),
    (86, '1.7.1', 'tensorrt_rtx', 'compute capability 8.6'), (89, '10.3.0', 'tensorrt', None), (89, '1.7.1', 'tensorrt_rtx', None)])
def test_what_keeps_a_gpu_from_fp8(sm, version, flavour, message):
    with nullcontext() if message is None else pytest.raises(UnavailableError, match=message):
        check_fp8(EngineSpec(64, 64, 64, 'fp8'), target(sm), SimpleNamespace(name=flavour, version=version))


def test_an_old_gpu_gets_no_fp8_and_engines_that_are_not_there_are_named(tmp_path, monkeypatch):
    machine = target(87)
    monkeypatch.setattr(runners, 'probe', lambda: machine)
    tensorrt = SimpleNamespace(name='tensorrt', version='10.3.0', title='TensorRT 10.3.0')
    monkeypatch.setattr(runners, 'open_tensorrt', lambda: tensorrt)
    config = MatcherConfig(engine_dir=str(tmp_path))
    bench, why = runners.open_bench(config, Graphs(config))
    assert why == ''
    for measure in (bench.open, bench.engines):
        with pytest.raises(UnavailableError, match=r'compute capability 8\.7') as caught:
            measure(EngineSpec(512, 512, 512, 'fp8'))
        assert caught.value.reason == 'no FP8 here'
        with pytest.raises(UnavailableError) as caught:
            measure(EngineSpec(512, 512, 512, 'fp16'))
        assert caught.value.reason == 'no engines'
        command = str(caught.value).splitlines()[-1]
        assert '--max-keypoints 512 --precision fp16' in command
        assert str(tmp_path) in command


def test_without_a_gpu_auto_is_onnx_runtime_and_says_why(monkeypatch):

    def nothing():
        raise EngineError('no usable GPU: none', '\nadvice')

    monkeypatch.setattr(runners, 'probe', nothing)
    bench, why = runners.open_bench(MatcherConfig(), Graphs(HOST))
    assert isinstance(bench, HostBench)
    assert why == 'no usable GPU: none'
    with pytest.raises(EngineError, match='no usable GPU'):
        runners.open_bench(MatcherConfig(backend='tensorrt'), Graphs(HOST))


def write_calibration(folder, spec, *, passed=True):
    """One that rounds everything and knows nothing of the network: no basis, no centre, the same range everywhere."""
    names = linear_members(LAYERS)
    calibration = Calibration(
        np.eye(256, dtype=np.float32), np.tile(np.eye(64, dtype=np.float32), (LAYERS, 2, 4, 1, 1)), {}, dict.fromkeys(names, 30.0),
        frozenset(names), {'weights_sha256': ours().matcher.sha256, 'image_height': spec.image_height,
                           'image_width': spec.image_width, 'max_keypoints': spec.max_keypoints})
    identity = Identity.of_calibration(spec, ours().identity, gate_verdict=PASSED if passed else FAILED)
    with drafting(folder, identity.name) as draft:
        draft.write(TENSORS, calibration.content())
        draft.write(GRAPH, b'graph')
        draft.publish(identity, {}, {'settings': {}, 'flops_share': 0.5, 'provenance': {}, 'frontier': []})


@pytest.mark.float8
def test_sweep_of_real_networks_scores_fp16_and_emulated_fp8(tmp_path, monkeypatch):
    write_calibration(tmp_path, EngineSpec(128, 128, 96))
    graphs = Graphs(dataclasses.replace(HOST, engine_dir=str(tmp_path)))
    image = photo('coffee', 256, 256)
    pairs = {'easy': ImagePair('easy', image, moved(image)[0]), 'hard': ImagePair('hard', image, moved(image, 60.0, 0.5)[0])}
    exact, half, eighth = next(sweep(HostBench(graphs), graphs, None, pairs, (128,), (96,), ('fp16', 'fp8'), 2))
    assert len(exact.match_ms) == len(half.match_ms) == 2
    assert 0.45 < half.onnx_ratio < 0.55
    assert reason(half, 'engine_mib') == reason(half, 'engine_ratio') == 'no GPU'
    assert half.agreement['easy'].f1 > 0.9  # the same features: the arithmetic of the matcher alone
    assert exact.agreement['hard'] == (1.0, 1.0, 1.0)
    assert exact.matches['easy'] > 30
    assert exact.matches['easy'] > exact.matches['hard']
    assert eighth.emulated
    assert 0.5 < eighth.agreement['easy'].f1 < half.agreement['easy'].f1
    assert reason(eighth, 'match_ms') == 'TensorRT only'


def test_calibration_that_failed_acceptance_or_is_damaged_is_not_used(tmp_path):
    graphs, spec = Graphs(dataclasses.replace(HOST, engine_dir=str(tmp_path))), EngineSpec(128, 128, 96, 'fp8')
    write_calibration(tmp_path, spec, passed=False)
    with pytest.raises(UnavailableError, match='did not pass its acceptance check') as caught:
        graphs.matcher(spec)
    assert str(caught.value).splitlines()[-1].startswith('ros2 run lightglue_trt_ros quantize')
    with pytest.raises(UnavailableError, match='there is no FP8 calibration'):
        graphs.matcher(EngineSpec(128, 128, 95, 'fp8'))
    write_calibration(tmp_path, spec)
    next(tmp_path.glob('*-calibration/calibration.safetensors')).write_bytes(b'')
    with pytest.raises(UnavailableError, match='is damaged'):
        graphs.matcher(spec)


def test_tensorrt_rtx_tells_engine_sizes_without_a_gpu(rtx):
    graphs = Graphs(HOST)
    spec = EngineSpec(128, 128, 128, 'fp16')
    size = len(graphs.matcher(spec))
    assert 0.9 * size < TargetEngines(graphs, 86).engines(spec).mib * 2**20 < size + 6e6


@pytest.mark.parametrize('bench', [
    FakeBench(ms={'fp32': 6.0, 'fp16': 3.0, 'fp8': 2.0}, lost={'fp8': 9}), FakeBench(ms={}),
    FakeBench(ms={'fp32': 6.0, 'fp16': 4.0})], ids=['all', 'nothing', 'no fp8'])
def test_pictures_and_tables_of_whatever_there_is(bench, recwarn):
    cells = cells_of(bench, sides=(64, 96), keypoints=(32, K))
    for picture in draw_sweep(cells):
        image = cv2.imdecode(np.frombuffer(picture.png, np.uint8), cv2.IMREAD_COLOR)
        assert image.shape[1] == 1200
        assert image.min() < 100
        for border in (image[:4], image[:, :4], image[:, -4:]):
            assert border.min() > 250, picture.name  # nothing is cut off
    assert not [warning for warning in recwarn if 'ayout' in str(warning.message)]
    lines = markdown(['here'], cells).splitlines()
    assert sum(line.startswith('|') for line in lines) == 2 + len(cells)
    assert {line.count('|') for line in lines if line.startswith('|')} == {len(HEADER) + 1}


def test_a_precision_without_figures_is_explained_in_the_picture(monkeypatch):
    drawn = []
    monkeypatch.setattr('benchmarks.sweep.report.draw_lines', lambda panels, *rest: drawn.extend(panels) or b'')
    cells = cells_of(FakeBench(ms={'fp32': 6.0, 'fp16': 3.0}), sides=(64, 96))
    draw_sweep(cells)
    assert drawn[0].remark == 'FP8: no engines'
    assert [series.label for series in drawn[0].series] == ['FP16, 64 px', 'FP16, 96 px', 'FP8, 64 px', 'FP8, 96 px']
    assert list(drawn[0].series[0].values) == [2.0]
    assert math.isnan(drawn[0].series[2].values[0])
    emulated = next(cell for cell in cells if cell.precision == 'fp8')
    emulated.emulated, emulated.agreement = True, cells[0].agreement
    del emulated.missing['agreement']
    half = [cell for cell in cells if cell.precision == 'fp16']
    half[0].missing['engine_mib'] = Missing('GPU memory full', '')
    drawn.clear()
    draw_sweep(cells)
    assert drawn[1].series[4].label == 'FP8, 64 px'  # its size is no emulation
    assert drawn[3].series[2].label == 'FP8, 64 px (emulated)'
    assert drawn[1].remark == '\N{MULTIPLICATION SIGN} FP16: GPU memory full; FP8: no engines'


def test_the_easy_and_the_hard_pair_are_real(shared_data, tmp_path):
    pairs = load_pairs(shared_data)
    assert list(pairs) == ['easy', 'hard']
    assert all(image.dtype == np.uint8 and image.ndim == 2 for pair in pairs.values() for image in pair[1:])
    assert not np.array_equal(pairs['easy'].first, pairs['easy'].second)
    assert load_pairs(tmp_path / 'nowhere') is None


def test_any_recording_has_pairs(shared_data, tmp_path):
    pairs = load_pairs(shared_data / 'kitti_short_1')
    assert [pair.name for pair in pairs.values()] == ['kitti_short_1, frames 25 and 26', 'kitti_short_1, frames 25 and 37']
    assert np.abs(pairs['easy'].first.astype(int) - pairs['hard'].first).max() == 0
    assert [find_sequences(shared_data / 'kitti_short_1'), len(find_sequences(shared_data))] == [
        {'kitti_short_1': shared_data / 'kitti_short_1'}, 4]
    with pytest.raises(BagError):
        load_pairs(tmp_path)


def test_the_command_without_any_data(tmp_path, capsys):
    pytest.importorskip('skimage', reason='scikit-image is not installed: the flight cannot be rendered')
    assert main(['sweep', '--backend', 'onnxruntime', '--sizes', '128', '--keypoints', '64,2048',
                 '--precisions', 'fp32,fp8', '--frames', '3', '--data', str(tmp_path / 'none'), '--engine-dir', str(tmp_path),
                 '--out', str(tmp_path / 'out'), '--json', str(tmp_path / 'r.json')]) == 0
    printed = capsys.readouterr().out
    for text in ("demo's flight", 'no calibration', 'quantize --height 128', 'no such shape', 'no GPU'):
        assert text in printed
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == ['agreement.png', 'size.png', 'speed.png', 'sweep.md']
    cells = json.loads((tmp_path / 'r.json').read_text())['sweep']['cells']
    assert [(cell['max_keypoints'], cell['precision']) for cell in cells] == list(itertools.product((64, 2048), ('fp32', 'fp8')))
    assert len(cells[0]['match_ms']) == 3
    assert cells[1]['missing']['match_ms'] == 'TensorRT only'


@pytest.mark.parametrize('arguments', [['--keypoints', '512;1024'], ['--precisions', 'int8'], ['--sizes', 'big']])
def test_wrong_options_are_refused(arguments, usage_error):
    assert arguments[1].split(',')[0] in usage_error(main, 'sweep', *arguments)


def test_a_folder_that_cannot_be_made_is_named_before_anything_runs(tmp_path, capsys):
    (tmp_path / 'file').write_text('')
    assert main(['sweep', '--backend', 'onnxruntime', '--out', str(tmp_path / 'file' / 'out')]) == 1
    assert '--out' in capsys.readouterr().err
