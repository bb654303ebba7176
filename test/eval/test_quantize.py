"""quantize as users run it: a recording in, a calibration out or none, what it says, exit codes, bad input, interruptions."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from support.executables import ROOT, environment
from support.image_recordings import image_folder, pinhole
from support.networks import LAYERS, ours, photo, shallow
from support.random_pairs import write_pair

from lightglue_trt_eval.cli import quantize
from lightglue_trt_eval.quantization import measurement, search, workflow
from lightglue_trt_eval.quantization.measurement import shared
from lightglue_trt_eval.quantization.quality import AcceptanceCheck
from lightglue_trt_eval.quantization.search import groups
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.engines.engine_store import open_artifact
from lightglue_trt_ros.engines.manifest import GRAPH, PLOT, TENSORS, Artifact, Identity
from lightglue_trt_ros.networks import lightglue
from lightglue_trt_ros.networks.fp8_calibration import Calibration, linear_members
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.networks.typed_onnx import read_stamp
from lightglue_trt_ros.networks.weights import Weights
from lightglue_trt_ros.utils.commands import INTERRUPTED
from lightglue_trt_ros.utils.errors import EngineError

pytestmark = pytest.mark.float8

HEIGHT, WIDTH, K = 128, 160, 96
SPEC = EngineSpec(HEIGHT, WIDTH, K)
NAME = f'ours-{HEIGHT}x{WIDTH}-k{K}-calibration'
SIZE = ['--height', str(HEIGHT), '--width', str(WIDTH), '--max-keypoints', str(K)]

Run = Callable[..., tuple[int, str, str]]


def fp32_graphs_once(write: Callable[..., Any]) -> Callable[..., Any]:
    """`write`, which writes the same graph once where no calibration is in it; the weights are always shallow()."""
    @cache
    def fp32(spec: EngineSpec, *early_exits: Any, **options: Any) -> Any:
        return write(spec, shallow(), *early_exits, **options)

    def written(spec: EngineSpec, weights: Weights, *early_exits: Any, calibration: Calibration | None = None,
                **options: Any) -> Any:
        if calibration is None and weights is shallow():
            graphs = fp32(spec, *early_exits, **options)
            return dict(graphs) if isinstance(graphs, dict) else graphs  # a matcher empties what it is given
        return write(spec, weights, *early_exits, calibration=calibration, **options)

    return written


@pytest.fixture(autouse=True, scope='module')
def shallow_network() -> Iterator[None]:
    """The real SuperPoint, two layers of the real LightGlue, whose FP32 graphs are written once, and a short descent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantize, 'load_model', lambda choice: replace(ours(), matcher=shallow()))
        patch.setattr(measurement, 'shared', partial(shared, steps=5))
        for name in ('lightglue', 'lightglue_stages'):
            patch.setattr(lightglue, name, fp32_graphs_once(getattr(lightglue, name)))
        yield


def record(folder: Path, count: int = 22, *, step: float = 4.0, size: tuple[int, int] = (HEIGHT, WIDTH), truth: bool = True,
           black: range = range(0)) -> Path:
    """An image folder: a photograph on a wall 2 m away, past which the camera goes sideways, `step` pixels a frame."""
    height, width = size
    scene = photo('coffee', 2 * height, 2 * width)

    def view(number: int) -> np.ndarray:
        if number in black:
            return np.zeros(size, np.uint8)
        shift = np.float32([[1, 0, -10 - step * number], [0, 1, -40]])
        return cv2.warpAffine(scene, shift, (width, height), flags=cv2.INTER_LINEAR)

    stamps = [f'{0.1 * number:.6f}' for number in range(count)]
    image_folder(folder, map(view, range(count)), stamps, calibration=pinhole(width, height, 200) if truth else '')
    if truth:
        poses = [f'{stamp} {2 * step * number / 200:.9f} 0 0 0 0 0 1' for number, stamp in enumerate(stamps)]
        (folder / 'groundtruth.txt').write_text('\n'.join(poses) + '\n')
    return folder


@pytest.fixture
def call(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command into tmp_path/engines: exit code, stdout, stderr."""
    def command(*arguments: str | Path, gate: str = '0.6') -> tuple[int, str, str]:
        code = quantize.main([*SIZE, '--engine-dir', str(tmp_path / 'engines'), '--gate', gate, *map(str, arguments)])
        captured = capfd.readouterr()
        assert 'Traceback' not in captured.err
        return code, captured.out, captured.err
    return command


def find(engine_dir: Path) -> Artifact:
    return open_artifact(engine_dir, Identity.of_calibration(SPEC, ours().identity))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.is_dir() else {}


def test_a_recording_becomes_a_calibration_the_same_each_time(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recording, place = record(tmp_path / 'walk', 16), tmp_path / 'engines' / NAME
    code, out, err = call('--calibration', recording, '--frames', '15')
    assert (code, err) == (0, '')
    assert 'warning' not in out
    assert 'calibration on 11 frames (0 to 10), held out 4 frames (12 to 15)' in out
    assert 'acceptance check on consecutive frames: passed (walk F1 ' in out
    assert 'acceptance check on hard pairs: passed' in out
    assert 'Against the ground truth' in out
    last = out.strip().splitlines()[-1]
    assert last.startswith('ros2 run lightglue_trt_ros build_engines --height 128')
    assert ' --precision fp8 ' in last
    made = files(place)
    assert set(made) == {GRAPH, TENSORS, 'manifest.json'}
    found = find(tmp_path / 'engines')
    calibration = found.calibration()
    assert calibration.fp8 == frozenset(linear_members(LAYERS))
    graph = onnx.load_model_from_string(made[GRAPH])
    assert read_stamp(graph)['precision'] == 'fp8'
    assert any(tensor.data_type == onnx.TensorProto.FLOAT8E4M3FN for tensor in graph.graph.initializer)
    manifest = json.loads(made['manifest.json'])
    entry = manifest['record']['provenance']['recordings'][0]
    assert (entry['name'], entry['calibration'], entry['held_out']) == ('walk', [[0, 11]], [[12, 16]])
    assert manifest['record']['provenance']['scales']['layers.0.self.project']['scale'] > 0
    sets = manifest['gate']['candidates'][0]['sets']
    assert [(each['level'], each['stride'], each['pairs']) for each in sets] == [('easy', 1, 3), ('hard', 3, 1)]
    assert sets[0]['precision@3'] > 80, 'the truth is used'
    assert 'FP32 by chance' in out
    low, high = manifest['gate']['fp32'][0]['by_chance']['pose_auc@10']
    assert 0 <= low <= high <= 100
    assert calibration.provenance['recordings'] == manifest['record']['provenance']['recordings']
    assert calibration.provenance['recordings'][0]['calibration'] == [[0, 11]], 'none that is held out'
    assert calibration.provenance['strides'] == [1, 2, 4]

    code, out, _ = call('--calibration', recording, '--frames', '15')
    assert code == 0
    assert 'an equal calibration is there already, and passed its acceptance check' in out
    code, _, _ = call('--calibration', recording, '--frames', '15', '--force')
    assert code == 0
    assert files(place) == made, 'the same input gives the same bytes'

    monkeypatch.setattr(workflow, 'calibrate', lambda *arguments: replace(calibration, fp8=frozenset()))  # the same once more
    monkeypatch.setattr(AcceptanceCheck, 'passes', lambda self, score: False)
    monkeypatch.setattr(search, 'groups', lambda layers, fp8: dict(islice(groups(layers, fp8).items(), 2)))
    code, out, err = call('--calibration', recording, '--frames', '15', gate='1.0')
    assert code == 1
    assert 'Sensitivity' in out
    assert 'Frontier' in out
    assert 'the matcher stays in FP16' in err
    assert set(files(place)) == {PLOT, 'manifest.json'}, 'what passed a lower gate is gone'
    with pytest.raises(EngineError, match='did not pass its acceptance check'):
        find(tmp_path / 'engines')
    code, out, err = call('--calibration', recording, '--frames', '15', gate='1.0')
    assert code == 1
    assert 'and failed its acceptance check' in out


def test_recordings_that_are_held_out_are_not_calibrated_on(call: Run, tmp_path: Path):
    pytest.importorskip('rosbags', reason='bags need the Python package rosbags')
    walk, other = record(tmp_path / 'walk', 12), tmp_path / 'other'
    images = sorted(record(tmp_path / 'images', 12, step=5).glob('images/*'))
    write_bag(other, [(10**8 * (1 + number), cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)) for number, path in enumerate(images)])
    code, out, _ = call('--calibration', walk, '--held-out', other, '--frames', '20', '--held-out-share', '0.6')
    assert code == 0
    assert 'walk: 12 frames, calibration on 12 frames (0 to 11)\n' in out
    assert 'other: 12 frames, held out 12 frames (0 to 11)\n' in out
    assert 'other: no intrinsics' in out
    assert '20 frames were asked for, the recordings give 12' in out
    assert 'acceptance check on consecutive frames: passed (other F1' in out
    assert find(tmp_path / 'engines').calibration().fp8 == frozenset(linear_members(LAYERS))


@pytest.mark.parametrize(('arguments', 'made', 'told'), [
    ({'black': range(0, 14)}, 18, '13 of 17 frames are black, uniform or without a keypoint'),
    ({}, 9, 'there are 8 frames to calibrate on, at least 10 are needed'),
    ({}, 6, '6 frames are too few')])
def test_recordings_that_cannot_be_calibrated_on_are_refused(call: Run, tmp_path: Path, arguments: dict[str, range], made: int,
                                                             told: str):
    code, _, err = call('--calibration', record(tmp_path / 'walk', made, **arguments))
    assert code == 1
    assert told in err
    assert not list((tmp_path / 'engines').glob('*'))


def test_a_matcher_of_another_width_is_refused_before_anything_is_read(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write_pair(tmp_path / 'light')
    monkeypatch.setattr(quantize, 'load_model', load_model)
    code, _, err = call('--calibration', tmp_path / 'nowhere', '--weights', folder)
    assert code == 1
    assert 'FP8 is for matchers 256 channels wide, 512 in their FFN: these weights have 64 and 128; use fp16' in err


def test_odd_recordings_are_warned_of(call: Run, tmp_path: Path):
    still = record(tmp_path / 'still', 16, step=0.02, size=(160, 320), black=range(2))
    code, out, _ = call('--calibration', still)
    assert code == 0
    assert 'warning: nothing moves' in out
    assert 'have 320x160 pixels and are squeezed into 160x128' in out
    assert '2 of 15 frames show nothing, or have no keypoint above the detection threshold' in out
    assert '300 frames were asked for, the recordings give 15' in out


def test_wrong_orders_are_refused_at_once(call: Run, tmp_path: Path, usage_error: Callable[..., str]):
    walk = record(tmp_path / 'walk', 12)
    assert 'named twice' in call('--calibration', walk, '--held-out', walk)[2]
    assert 'does not exist' in call('--calibration', tmp_path / 'nowhere')[2]
    assert 'max_keypoints is 9999' in call('--calibration', walk, '--max-keypoints', '9999')[2]
    for words in (['--frames', '5'], ['--gate', '1.5'], ['--held-out-share', '0'], []):
        usage_error(quantize.main, *SIZE, *(['--calibration', walk] if words else []), *words)


def test_ctrl_c_in_the_middle(tmp_path: Path):
    # what is imported on the way comes first: an import that is interrupted fails in its own words
    code = ('import sys\nfrom dataclasses import replace\nfrom support.networks import ours, shallow\n'
            'from lightglue_trt_eval.cli import quantize\nfrom lightglue_trt_ros.networks import lightglue\n'
            'from lightglue_trt_ros.utils import console\n'
            'quantize.load_model = lambda choice: replace(ours(), matcher=shallow())\n'
            'console.LINES_S = 0.0\nsys.exit(quantize.main())')
    command = [sys.executable, '-c', code, *SIZE, '--engine-dir', str(tmp_path / 'engines'),
               '--calibration', str(record(tmp_path / 'walk', 14))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment(ROOT, ROOT / 'test')) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if 'calibrating on' in line:  # all is imported: some imports swallow an interrupt
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=150)
    # Python ends itself by the signal where it came in the middle of an exec(); shells see no difference
    assert process.returncode in (INTERRUPTED, -signal.SIGINT), err
    assert 'nothing was kept' in err
    assert 'Traceback' not in err
    assert not list((tmp_path / 'engines').glob('*'))
