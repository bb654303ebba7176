"""A board's check: what it writes of shapes that run, of one that cannot, and of engines that differ."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from lightglue_trt_eval.cli import benchmark, check_board, demo
from lightglue_trt_eval.report.board_page import board_page, board_text, notes, verdict
from lightglue_trt_eval.times import sensors
from lightglue_trt_eval.times.board_check import ShapeCheck, check_node, levels
from lightglue_trt_ros.cli import build_engines
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.utils.commands import command
from lightglue_trt_ros.utils.errors import EngineError, LightglueTrtError
from lightglue_trt_ros.utils.processes import describe_machine

SMALL = ('--backend', 'onnxruntime', '--weights', 'ours_light', '--frames', '10', '--seconds', '0')
TIMES = {'frame': [20.0, 22.0, 30.0, 31.0], 'gpu': [9.0, 9.5, 9.9, 12.0]}
SHAPE = ShapeCheck('480x640-k1024-fp16', 'TensorRT 10.3, fp16', 160.5, 1.2, 99.0, [], 0.4, TIMES,
                   {stage: [2.0, 2.1, 2.2, 2.3] for stage in ('extract', 'match', 'place', 'together')})


def board(*shapes: ShapeCheck, **more: object) -> dict[str, object]:
    return {'name': 'Orin', 'machine': 'Orin, 8 multiprocessors', 'version': '0.2.0', 'date': '2026-11-27', 'weights': 'ours',
            'power_mode': 'MAXN', 'frames': 500, 'source': 'flight', 'hz': 30.0, 'main': 0, 'left_out': [], 'node': None,
            'node_reason': 'ROS 2 is not sourced', 'prediction': {},
            'shapes': [dataclasses.asdict(shape) for shape in shapes or (SHAPE,)], **more}


@pytest.mark.networks
def test_writes_page_json_and_text_of_shapes_that_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_board.main([*SMALL, '--shapes', '96x128:128,96x128:5000', '--out', str(tmp_path / 'board')]) == 0
    printed = capsys.readouterr().out
    assert '96x128-k128-fp32' in printed
    found = json.loads((tmp_path / 'board' / 'board.json').read_text())
    assert [shape['name'] for shape in found['shapes']] == ['96x128-k128-fp32']
    assert found['left_out'][0]['name'] == '96x128, K = 5000'
    assert len(found['shapes'][0]['stages_ms']['frame']) == 4
    page = (tmp_path / 'board' / 'board.html').read_text()
    assert f'<h1>{describe_machine()}' in page
    assert 'K = 5000 was not run' in page
    assert '96x128-k128-fp32' in (tmp_path / 'board' / 'board.md').read_text()


@pytest.mark.networks
def test_ends_with_reason_when_no_shape_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_board.main([*SMALL, '--shapes', '96x128:5000', '--out', str(tmp_path / 'board')]) == 1
    assert 'no shape ran: ' in capsys.readouterr().err
    assert not list((tmp_path / 'board').iterdir())


def test_folder_that_cannot_be_written_is_named_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                        capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'file').write_text('')
    monkeypatch.setattr(check_board, '_build', lambda *_: pytest.fail('engines were built'))
    assert check_board.main([*SMALL, '--out', str(tmp_path / 'file' / 'board')]) == 1
    assert 'cannot write to' in capsys.readouterr().err


@pytest.mark.parametrize('words', [('--seconds', 'nan'), ('--seconds', 'inf'), ('--seconds', '-5'), ('--hz', '1e9')])
def test_times_that_no_node_can_run_are_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match='2'):
        check_board.main([*SMALL, *words])
    assert words[0] in capsys.readouterr().err


def test_without_gpu_one_line_says_so_and_names_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise EngineError('no usable GPU: none')

    monkeypatch.setattr(check_board, 'probe', fail)
    assert check_board.main(['--out', str(tmp_path / 'board')]) == 1
    assert capsys.readouterr().err == 'check_board: no usable GPU: none;\n--backend onnxruntime times the CPU\n'


def test_engines_that_do_not_build_are_named_with_the_reason_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                  capsys: pytest.CaptureFixture[str]) -> None:
    def fail(words: list[str]) -> int:
        raise EngineError('the workspace is too small', ': raise it\nwith --workspace-mib')

    monkeypatch.setattr(check_board, 'probe', lambda: None)
    monkeypatch.setattr(build_engines, 'main', command('build_engines')(fail))
    assert check_board.main(['--shapes', '96x128:128', '--out', str(tmp_path / 'board')]) == 1
    printed = capsys.readouterr()
    assert printed.err == 'check_board: no shape ran: the workspace is too small\n'
    assert printed.out.count('the workspace is too small') == 1


@pytest.mark.parametrize('given', ['480', '480x640', 'x:1', '480x640:1024,'])
def test_refuses_shapes_that_are_none(given: str, usage_error: Callable[..., str]) -> None:
    assert 'HEIGHTxWIDTH:KEYPOINTS' in usage_error(check_board.main, '--shapes', given)
    for words in (('--opt-level', '2'), ('--tactic-sources', 'CUBLAS')):
        assert words[0] in usage_error(check_board.main, '--backend', 'onnxruntime', *words).splitlines()[-1]


@pytest.mark.parametrize(('main', 'owner'), [(benchmark.main, '--recording'), (check_board.main, '--recording'),
                                             (demo.main, '--sequence'), (build_engines.main, '--frames or --calibration')])
def test_options_of_a_recording_are_refused_without_one(main: Callable[[list[str]], int], owner: str,
                                                        usage_error: Callable[..., str]) -> None:
    for words in (('--image-topic', '/x'), ('--image-bits', '12')):
        assert f'{words[0]} is of {owner}: give {owner}, or leave it out' in usage_error(main, *words)


def test_demo_of_a_recording_refuses_frames_of_a_flight(usage_error: Callable[..., str]) -> None:
    assert '--frames is of the rendered flight' in usage_error(demo.main, '--sequence', 'bag', '--frames', '5')


def test_node_that_does_not_run_is_named_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise LightglueTrtError('the node did not come up within 20 s')

    monkeypatch.setattr(check_board, 'check_shape', lambda *given: SHAPE)
    monkeypatch.setattr(check_board, 'check_node', fail)
    words = ['--backend', 'onnxruntime', '--shapes', '480x640:1024', '--seconds', '60', '--out', str(tmp_path)]
    assert check_board.main(words) == 0
    assert 'The node was not run: the node did not come up within 20 s' in (tmp_path / 'board.md').read_text()


def test_node_without_a_cloud_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    node_costs = types.ModuleType('node_costs')
    node_costs.measure_matcher = lambda *_: types.SimpleNamespace(latency_ms=([], []))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'lightglue_trt_eval.times.node_costs', node_costs)
    with pytest.raises(LightglueTrtError, match=r'no cloud in 2 s at 30 Hz'):
        check_node(MatcherConfig(), 30.0, 2.0)


def test_engines_are_built_with_the_options_of_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[list[str]] = []
    monkeypatch.setattr(build_engines, 'main', built.append)
    args, words = check_board._parse(['--image-bits', '12', '--recording', str(tmp_path), '--name', 'Orin'])
    check_board._build(MatcherConfig(), args)
    assert words[-2:] == ['--name', 'Orin']
    assert built[0][built[0].index('--image-bits') + 1] == '12'


def test_engines_that_differ_are_named_first_and_end_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(SHAPE, disagreements=['matches agree is 0.71, at least 0.9 is needed'])
    monkeypatch.setattr(check_board, 'check_shape', lambda *given: wrong)
    words = ['--backend', 'onnxruntime', '--shapes', '480x640:1024', '--seconds', '0', '--out', str(tmp_path)]
    assert check_board.main(words) == 1
    assert 'do not use them' in verdict(board(wrong))
    assert '0.71' in notes(board(wrong))[0]
    assert '0.71' in (tmp_path / 'board.html').read_text()


def test_verdict_compares_p99_with_the_cameras_period() -> None:
    assert 'keeps up with 30 Hz' in verdict(board())
    assert 'is too slow for 60 Hz' in verdict(board(hz=60.0))


def test_page_and_text_have_node_sensors_and_prediction() -> None:
    node = {'hz': 30.0, 'seconds': 60.0, 'lost': 7, 'latency_ms': [21.0, 25.0, 30.0, 44.0], 'cpu_ms': 6.0, 'memory_mib': 400.0,
            'device_mib': 120.0, 'sensors': {'gpu-thermal, °C': (41.0, 63.5)}}
    predicted = {'AGX Orin 64 GB': {stage: {'bound_ms': 1.0, 'estimate_ms': 2.5} for stage in ('extract', 'match', 'place',
                                                                                              'together')}}
    full = board(node=node, node_reason='', prediction=predicted)
    page, text = board_page(full).decode(), board_text(full).decode()
    for words in ('63.5', 'AGX Orin 64 GB', 'predicted', 'this board', 'lost 7 of 1800'):
        assert words in page
    assert 'lost 7 of 1800' in text
    assert '| 480x640-k1024-fp16 | 20.0 | 30.0 | 9.0 | 0.4 | 160.5 | 99.0 |' in text


def test_reads_temperatures_and_gpu_clock_of_a_jetson(tmp_path: Path) -> None:
    for path, content in {'class/thermal/thermal_zone0/type': 'gpu-thermal', 'class/thermal/thermal_zone0/temp': '48250',
                          'class/thermal/thermal_zone1/type': 'cv0-thermal', 'class/thermal/thermal_zone1/temp': '',
                          'class/devfreq/17000000.ga10b/cur_freq': '918000000',
                          'class/devfreq/15340000.vic/cur_freq': '115200000'}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f'{content}\n')
    assert sensors.of_system(tmp_path) == {'gpu-thermal, °C': 48.25, '17000000.ga10b, MHz': 918.0}


def test_levels_are_percentiles_and_the_largest() -> None:
    assert levels([1.0, 2.0, 3.0, 4.0, 100.0])[0::3] == [3.0, 100.0]
    assert levels([]) == []
