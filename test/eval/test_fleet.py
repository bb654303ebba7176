"""The parts of a fleet that need no cluster: what is found, what it is kept under, what is compared, and what is shown."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest

for name in ('distributed', 'fsspec', 'pyarrow'):
    pytest.importorskip(name, reason=f'{name} is not installed: fleets are not tested (setup.py, extra fleet)')

from support.executables import environment
from support.fleets import copy_of, make_flight
from support.full_disks import small_disk
from support.pages import Page

from lightglue_trt_eval.fleet import plan as plan_module
from lightglue_trt_eval.fleet.comparison import (
    AUC,
    INLIERS,
    PRECISION,
    Comparison,
    compare,
    holm,
    over_recordings,
    verdict_of,
)
from lightglue_trt_eval.fleet.discovery import RecordingRef, find_recordings, fingerprint, is_recording
from lightglue_trt_eval.fleet.fleet_json import FleetReport, read_baseline, write_fleet_document
from lightglue_trt_eval.fleet.fleet_page import render_fleet, worst_first
from lightglue_trt_eval.fleet.plan import Installation, installation, make_plan
from lightglue_trt_eval.fleet.result_store import (
    EVALUATED,
    FAILED,
    REPEATED,
    WAITING,
    FleetRow,
    ResultStore,
    facts_of,
    pairs_of,
    read_pairs,
    write_pairs,
)
from lightglue_trt_eval.report.json_report import KEPT
from lightglue_trt_eval.score.confidence import mean_difference
from lightglue_trt_eval.score.metrics import Table
from lightglue_trt_ros import __version__
from lightglue_trt_ros.networks.models import shipped_folder
from lightglue_trt_ros.utils.errors import LightglueTrtError

HERE = Installation('0.1.0-12345678', 'ours', 'a' * 64, 'b' * 64)


@pytest.fixture(scope='module')
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/monday/flight, runs/tuesday/flight, runs/tuesday/bag.mcap and things that are none."""
    folder = tmp_path_factory.mktemp('runs')
    make_flight(folder / 'monday' / 'flight', seed=1, frames=3)
    make_flight(folder / 'tuesday' / 'flight', seed=2, frames=3)
    (folder / 'tuesday' / 'bag.mcap').write_bytes(b'\x89MCAP0\r\n')
    (folder / 'notes.md').write_text('windy')
    (folder / '.hidden' / 'images').mkdir(parents=True)
    return folder


def test_finds_ros1_and_compressed_bags_and_skips_hidden_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = ['a/x.bag', 'a/y_1.bag', 'a/y_2.bag', 'b/rec_0.mcap.zst', 'c/rec_0.db3.zstd', 'c/rec_1.db3']
    for name in (*names, 'a/._x.bag', 'b/._rec_0.mcap'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b'x')
    found = [Path(each.url).relative_to(tmp_path).as_posix() for each in find_recordings([str(tmp_path)])]
    assert found == ['a/x.bag', 'a/y_1.bag', 'a/y_2.bag', 'b/rec_0.mcap.zst', 'c']
    caplog.set_level(logging.INFO, 'lightglue_trt_eval')
    (tmp_path / 'd').symlink_to(tmp_path / 'c')
    (tmp_path / 'gone').symlink_to(tmp_path / 'nowhere')
    for name in ('a/loop', 'e/back'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(tmp_path)
    linked = [Path(each.url).relative_to(tmp_path).as_posix() for each in find_recordings([str(tmp_path)])]
    assert linked == [*found, 'd']
    assert caplog.messages == [f'{tmp_path / name} is a link to {what}: it is passed over' for name, what in (
        ('a/loop', 'a folder above it'), ('e/back', 'a folder above it'), ('gone', 'nothing'))]


def test_folders_globs_lists_and_single_ones(flights: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    everything = find_recordings([str(flights)])
    assert [listed.name for listed in everything] == ['monday/flight', 'bag.mcap', 'tuesday/flight']
    assert all(listed.size and listed.stamp and listed.local for listed in everything)
    assert [listed.url for listed in find_recordings([f'{flights}/*/flight'])] == [str(flights / day / 'flight')
                                                                               for day in ('monday', 'tuesday')]
    shutil.copytree(flights / 'monday', tmp_path / 'near')
    (tmp_path / 'list.txt').write_text(f'# this week\n{flights}/tuesday\n\nnear/flight  # beside the list\n/nowhere/run\n')
    listed = find_recordings([str(tmp_path / 'list.txt')])
    assert [each.url for each in listed] == [str(flights / 'tuesday' / 'bag.mcap'), str(flights / 'tuesday' / 'flight'),
                                             str(tmp_path / 'near' / 'flight'), '/nowhere/run']
    assert listed[3].reason == 'it does not exist'
    caplog.set_level(logging.INFO, 'lightglue_trt_eval')
    assert len(find_recordings([str(flights / 'monday'), f'{flights}/*'])) == 3
    assert caplog.messages == [f'{flights / "monday" / "flight"} is named more than once: it is evaluated once']


def test_what_leads_to_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'empty' / 'deep').mkdir(parents=True)
    (tmp_path / 'list.txt').write_text('# nothing\n')
    for word, words in ((tmp_path / 'empty', 'holds no recording'), (f'{tmp_path}/*.mcap', 'matches no recording'),
                        (tmp_path / 'list.txt', 'lists no recording'), ('nosuch://bucket/run', 'cannot be opened')):
        with pytest.raises(LightglueTrtError, match=words):
            find_recordings([str(word)])


def test_parts_of_one_bag_are_one_recording_and_several_bags_are_several(tmp_path: Path) -> None:
    for name in ('split/run_0.db3', 'split/run_1.db3', 'singles/a.mcap', 'singles/b.mcap', 'whole/metadata.yaml', 'whole/x.db3'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    assert [each.name for each in find_recordings([str(tmp_path)])] == ['a.mcap', 'b.mcap', 'split', 'whole']
    assert is_recording({'mav0'})
    assert is_recording({'image_0', 'times.txt'})
    assert not is_recording({'images', 'README.md'})
    assert not is_recording({'images', 'images.txt', 'cameras.txt'}), 'COLMAP'


def test_folders_of_images_are_found_in_each_layout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, 'lightglue_trt_eval')
    for name in ('by_names/images/1403636579.763555.png', 'by_names/images/1403636579.863555.png', 'docs/images/logo.png',
                 'mono/images/0.jpg', 'mono/times.txt', 'events/images/0.png', 'events/images.txt', 'icl/associations.txt',
                 'fpv/left_images.txt', 'loris/color.txt', 'drive/image_02/data/0.png', 'drive/image_02/timestamps.txt'):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(name.encode())
    names = [each.name for each in find_recordings([str(tmp_path)])]
    assert names == ['by_names', 'drive', 'events', 'fpv', 'icl', 'loris', 'mono']
    assert caplog.messages == [f'{tmp_path}/docs/images has 1 image without stamps: it is passed over']


def test_folder_of_images_named_by_stamps_is_found_where_it_is_named(tmp_path: Path) -> None:
    for name in ('stereo/centre/1403636579763555.png', 'stereo/centre/1403636579863555.png', 'docs/1.png'):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(name.encode())
    (listed,) = find_recordings([str(tmp_path / 'stereo' / 'centre')])
    assert (listed.name, listed.size) == ('centre', 2 * len('stereo/centre/1403636579763555.png'))
    for folder in (tmp_path, tmp_path / 'docs'):
        with pytest.raises(LightglueTrtError, match='holds no recording'):
            find_recordings([str(folder)])


def test_what_fsspec_opens_is_found(flights: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / 'all.zip', 'w') as archive:
        for file in (flights / 'monday').rglob('*'):
            archive.write(file, Path('week') / file.relative_to(flights / 'monday'))
    (listed,) = find_recordings([f'zip://week::file://{tmp_path}/all.zip'])
    assert listed.url == f'zip://week/flight::file://{tmp_path}/all.zip'
    assert not listed.local
    assert listed.name == 'flight'
    assert fingerprint(listed) == listed.stamp, 'it is not read for that'


def test_a_fingerprint_is_of_what_is_in_a_recording(flights: Path, tmp_path: Path) -> None:
    def of(path: Path) -> str:
        return fingerprint(find_recordings([str(path)])[0])

    original = of(flights / 'monday' / 'flight')
    again = copy_of(flights / 'monday' / 'flight', tmp_path / 'renamed')
    assert of(again) == original
    assert of(flights / 'tuesday' / 'flight') != original
    (again / 'groundtruth.txt').write_text((again / 'groundtruth.txt').read_text().replace('1', '2', 1))
    assert of(again) != original


def test_a_key_knows_weights_settings_and_files_by_what_is_in_them(tmp_path: Path) -> None:
    camera = tmp_path / 'calib.yaml'
    camera.write_text('fx: 1')
    settings: dict[str, Any] = {'strides': (1, 2), 'weights': 'ours', 'camera': str(camera), 'backend': 'onnxruntime',
                                'compare': None}
    plan = make_plan(settings, HERE)
    assert plan.words == ['--strides=1,2', '--weights=ours', f'--camera={camera}', '--backend=onnxruntime']
    keys = {plan.key('one'), plan.key('two'), make_plan({**settings, 'strides': (1,)}, HERE).key('one')}
    keys |= {make_plan(settings, HERE._replace(**{field: 'other'})).key('one') for field in
             ('build', 'extractor_sha256', 'matcher_sha256', 'libraries', 'gpu')}
    moved = tmp_path / 'moved.yaml'
    shutil.copy(camera, moved)
    copy = shutil.copytree(shipped_folder('ours'), tmp_path / 'copy')
    assert make_plan({**settings, 'camera': str(moved), 'weights': str(copy)}, HERE).key('one') == plan.key('one')
    camera.write_text('fx: 2')
    assert len(keys | {make_plan(settings, HERE).key('one')}) == 9
    chosen = [make_plan({**settings, 'camera': f'{camera}:cam{number}'}, HERE) for number in range(2)]
    assert len({make_plan(settings, HERE).key('one'), *(each.key('one') for each in chosen)}) == 3, 'a camera of a file'
    assert f'--camera={camera}:cam1' in chosen[1].words
    with pytest.raises(LightglueTrtError, match=r'--camera .* cannot be read'):
        make_plan({'camera': '/nowhere.yaml'}, HERE)
    light = make_plan({'compare': 'weights=ours_light', 'backend': 'onnxruntime'}, HERE).contents
    assert set(light) == {'weights=ours_light'}
    assert light['weights=ours_light'].startswith(' '.join(installation('ours_light')[2:4]))
    assert installation('ours').build.startswith(f'{__version__}-')


def test_a_key_knows_every_file_of_a_model(tmp_path: Path) -> None:
    weights = tmp_path / 'mine'
    shutil.copytree(shipped_folder('ours_light'), weights)

    def plan() -> plan_module.EvaluationPlan:
        settings = {'weights': str(weights), 'compare': f'weights={weights}', 'backend': 'onnxruntime'}
        return make_plan(settings, installation(str(weights), 'onnxruntime'))

    before = plan()
    scores = json.loads((weights / 'scores.json').read_text())
    (weights / 'scores.json').write_text(json.dumps({**scores, 'a': 2 * scores['a']}))
    after = plan()
    assert before.key('one') != after.key('one')
    assert any(line.startswith('scores.json of the weights ') for line in before.differences(after))
    (weights / 'scores.json').unlink()
    assert len({before.key('one'), after.key('one'), plan().key('one')}) == 3
    bare = plan()
    (weights / '.directory').write_text('of a file manager')
    assert plan().key('one') == bare.key('one')


def test_an_installation_has_the_versions_of_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan({'backend': 'onnxruntime'}, here := installation('ours', 'onnxruntime'))
    assert here.libraries == f'OpenCV {cv2.__version__}, NumPy {np.__version__}, ONNX Runtime {onnxruntime.__version__} (CPU)'
    there = here.libraries.replace(cv2.__version__, '4.5.4')
    monkeypatch.setattr(cv2, '__version__', '4.5.4')
    monkeypatch.setattr(plan_module, '_libraries', plan_module._libraries.__wrapped__)
    now = dataclasses.replace(plan, installed=installation('ours', 'onnxruntime'))
    assert plan.differences(now) == [f'libraries {there}, not {here.libraries}']


def test_copy_of_packages_is_another_build_when_any_code_differs(tmp_path: Path) -> None:
    for package in plan_module.PACKAGES:
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns('*.safetensors', '__pycache__'))
    changes = ('lightglue_trt_ros/backends/kernels/refinement.ptx', 'lightglue_trt_ros/backends/kernels/refinement.cu',
               'lightglue_trt_eval/fleet/sorting.js', 'lightglue_trt_eval/fleet/fleet.html.jinja',
               'lightglue_trt_ros/core/masks.py', 'lightglue_trt_ros/networks/data/ours/scores.json')
    script = """if True:
        import sys
        from pathlib import Path
        from lightglue_trt_eval.fleet import plan
        print(plan.build())
        for path in map(Path, sys.argv[1:]):
            before = path.read_bytes()
            path.write_bytes(before + b'\\n')
            plan.build.cache_clear()
            print(plan.build())
            path.write_bytes(before)
    """
    done = subprocess.run([sys.executable, '-c', script, *changes], cwd=tmp_path, env=environment(tmp_path), capture_output=True,
                          text=True, check=True)
    same, *others = done.stdout.split()
    assert same == plan_module.build()
    assert len({same, *others}) == 1 + len(changes)


def test_a_result_of_the_cpu_is_not_kept_for_a_gpu_with_engines(tmp_path: Path) -> None:
    """A GPU that came is another key; one that was busy is the same, and what ran says what it was."""
    cpu = {'backend': 'onnxruntime', 'image_height': 480, 'image_width': 640, 'max_keypoints': 1024}
    settings = {'backend': 'auto', 'engine_dir': str(tmp_path)}
    assert make_plan(settings, HERE).key('one') != make_plan(settings, HERE._replace(gpu='NVIDIA L4')).key('one')
    for engine_set, again in (('ours-480x640-k1024-calibration', False), ('ours-240x320-k1024-fp16', False),
                          ('ours-480x640-k1024-fp16', True)):
        (tmp_path / engine_set).mkdir()
        (tmp_path / engine_set / 'manifest.json').write_text('{}')
        plan = make_plan(settings, HERE._replace(gpu='NVIDIA L4'))
        assert plan.fell_back([cpu, None]) is again
    assert not plan.fell_back([{**cpu, 'backend': 'tensorrt'}, None])
    assert not make_plan(settings, HERE).fell_back([cpu])
    assert not make_plan({**settings, 'backend': 'tensorrt'}, HERE._replace(gpu='NVIDIA L4')).fell_back([cpu])


def columns(errors: list[float | None], good: float = 0.8, **changes: Any) -> dict[str, list[Any]]:
    """Pairs of consecutive frames as report.json has them."""
    count, known = len(errors), [error is not None for error in errors]
    finite = [error if error is not None and math.isfinite(error) else None for error in errors]
    return {**{name: [None] * count for name in KEPT}, 'reference_frame': list(range(count)),
            'frame': list(range(1, count + 1)), 'stamp': [0.1 * k for k in range(count)],
            'matches': [100] * count, 'inliers': [round(100 * good)] * count, 'model': ['essential'] * count,
            'precision@1': [good if told else None for told in known], 'rotation_deg': finite, 'translation_deg': finite,
            'layers': [None] * count, **changes,
            'pose_found': [None if error is None else math.isfinite(error) for error in errors]}


def report(errors: list[float | None], path: str = '/runs/a', good: float = 0.8, **more: dict[str, list[Any]]) -> dict[str, Any]:
    """report.json of one evaluation, as far as fleets read it."""
    summary: dict[str, Any] = {'matches': 100.0, 'inlier_ratio': 100 * good}
    if errors and None not in errors:
        summary[AUC] = 100 * float(np.mean([max(0.0, 10 - error) / 10 for error in errors if error is not None]))
    return {'recording': {'path': path, 'frames': len(errors) + 1}, 'strides': [1], 'notes': ['<i>noted</i>'],
            'matchers': [{'name': 'ours', 'description': 'ours', 'ours': True, 'summary': {'1': summary},
                          'pairs': {'1': columns(errors, good), **more}}]}


def pairs(document: dict[str, Any]) -> dict[int, Table]:
    return pairs_of(document['matchers'][0])


def test_differences_of_poses_precision_and_inliers() -> None:
    before, worse = pairs(report([1.0] * 10)), pairs(report([5.0] * 10, good=0.5))
    changes = compare(worse, before)
    assert list(changes) == [(1, AUC), (1, PRECISION)]
    auc, precision = changes.values()
    assert auc.difference == pytest.approx(-100 * 4 / 10, abs=3)
    assert precision.difference == pytest.approx(-30)
    assert verdict_of(auc) == 'behind'
    assert auc.chance_above(-1.0) == 0
    assert auc.chance_above(-60.0) == 1
    assert set(map(verdict_of, compare(before, before).values())) == {'the same'}
    ((key, inliers),) = compare(pairs(report([None] * 10, good=0.9)), pairs(report([None] * 10))).items()
    assert (key, verdict_of(inliers)) == ((1, INLIERS), 'ahead')
    assert inliers.difference == pytest.approx(10)
    assert compare(before, pairs(report([]))) == {}


def test_only_pairs_that_both_have_are_compared() -> None:
    one, other = pairs(report([1.0] * 10)), pairs(report([1.0] * 10))
    for name in ('reference_frame', 'frame'):
        other[1][name] += 4
    assert compare(one, other)[1, AUC].pairs == 6


def test_few_pairs_are_no_reason_to_fail() -> None:
    few = compare(pairs(report([9.0] * 4)), pairs(report([1.0] * 4)))[1, AUC]
    assert few.difference < -50
    assert Comparison('before', [], {'few': {(1, AUC): few}}).failures(1.0) == []


def test_acceptance_check_corrects_for_the_number_of_recordings() -> None:
    """Nothing changed, and each of two hundred recordings has its figures: a gate without correction fails nearly always."""
    def failures(shift: float) -> list[str]:
        rng = np.random.default_rng(0)
        found = Comparison('before', [], {str(number): {(1, AUC): mean_difference(rng.normal(shift * (not number), 5, 50))}
                                          for number in range(200)})
        assert sum(each.verdict == 'behind' for changes in found.recordings.values() for each in changes.values()) > 1
        return found.failures(1e-9)
    assert failures(0.0) == []
    (line,) = failures(-12.0)
    assert line.startswith('0: pose_auc@10 at stride 1 -')


@pytest.mark.parametrize(('pairs', 'correlation'), [(25, 0.0), (25, 0.5), (25, 0.8), (50, 0.8)])
def test_fleets_that_did_not_change_do_not_fail(pairs: int, correlation: float) -> None:
    """2.5 % is right; 50 fleets of that fail more than five times with a chance of 0.2 %."""
    rng, failed = np.random.default_rng(0), 0
    for _ in range(50):
        found = Comparison('before', [])
        for number in range(20):
            found.recordings[str(number)] = {(1, metric): mean_difference(resembling(rng, pairs, correlation)).scaled(10)
                                             for metric in (AUC, PRECISION)}
        found.together = over_recordings(found.recordings.values())
        failed += bool(found.failures(0.0))
    assert failed <= 5


def resembling(rng: np.random.Generator, count: int, correlation: float) -> list[float]:
    """Gaussian values of mean 0 whose neighbours are correlated so much."""
    values = [rng.standard_normal()]
    for noise in math.sqrt(1 - correlation**2) * rng.standard_normal(count - 1):
        values.append(correlation * values[-1] + noise)
    return values


def test_acceptance_check_detects_the_losses_that_it_names() -> None:
    """Of the losses that it names it finds as many as it says."""
    rng, told, of_all = np.random.default_rng(1), 0, 0
    for _ in range(30):
        changes = [rng.standard_normal(25) for _ in range(20)]
        named = next(loss for loss in gate(changes).detectable() if loss.metric == AUC)
        assert named.together is not None
        assert named.recording is not None
        assert named.together < 0.5 < named.recording
        told += any(line.startswith('all recordings: ') for line in gate([each - named.together for each in changes]).failures(0.0))
        of_all += any(line.startswith('0: ') for line in gate([changes[0] - named.recording, *changes[1:]]).failures(0.0))
    assert 0.65 < told / 30 < 0.95
    assert of_all / 30 > 0.65


def gate(changes: list[Any]) -> Comparison:
    """A fleet with these changes of pose AUC, one array for each recording."""
    found = Comparison('before', [], {str(number): {(1, AUC): mean_difference(each)} for number, each in enumerate(changes)})
    found.together = over_recordings(found.recordings.values())
    return found


def test_holm_is_as_in_the_paper() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]  # 0.005 * 4, 0.01 * 3, 0.03 * 2 > 0.05
    assert holm([], 0.05) == []
    assert holm([0.02, 1.0], 0.05) == [True, False]
    assert holm([0.02, 0.03, 0.03], 0.05, [0.5, 0.25, 0.25]) == [True, False, False]
    assert holm([0.02, 0.03, 0.02], 0.05, [0.8, 0.1, 0.1]) == [True, True, True]  # the first's share is for the others then


def test_the_mean_over_recordings_is_of_recordings() -> None:
    rng = np.random.default_rng(0)
    changes = [compare(pairs(report((3 + rng.random(10)).tolist())), pairs(report((1 + rng.random(10)).tolist())))
               for _ in range(8)]
    key, auc = next(iter(over_recordings(changes).items()))
    assert (key, auc.pairs, verdict_of(auc)) == ((1, AUC), 8, 'behind')
    assert auc.difference == pytest.approx(np.mean([each[1, AUC].difference for each in changes]))
    assert over_recordings(changes[:1]) == {}


def test_pose_error_is_infinite_without_pose_nan_without_ground_truth() -> None:
    found = pairs(report([1.0, math.inf, None]))[1]['pose_error_deg']
    np.testing.assert_array_equal(found, [1.0, math.inf, math.nan])
    unscored = columns([1.0, 2.0], translation_deg=[None, 2.0])
    found = pairs_of({'name': 'ours', 'pairs': {'1': unscored}})[1]['pose_error_deg']
    assert np.isnan(found).tolist() == [True, False]


def test_all_pairs_in_one_file(tmp_path: Path) -> None:
    for name, errors in (('a', [1.0] * 3), ('b', [None] * 2), ('c', [])):
        (tmp_path / name).write_text(json.dumps(report(errors)))
    write_pairs(tmp_path / 'all.parquet', [(name, name * 64, tmp_path / name) for name in 'abc'])
    found = read_pairs(tmp_path / 'all.parquet', {'a' * 64: 'ours', 'b' * 64: 'SIFT'})
    assert {key[0]: {stride: len(table['frame']) for stride, table in each.items()} for key, each in found.items()} == {
        'a': {1: 3}, 'b': {}}
    np.testing.assert_equal(found['a' * 64], pairs(report([1.0] * 3)), 'as report.json has them')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a', 'all.parquet', 'b', 'c']
    write_pairs(tmp_path / 'none.parquet', [])
    assert read_pairs(tmp_path / 'none.parquet', {}) == {}


def fleet(tmp_path: Path, errors: dict[str, list[float | None]]) -> FleetReport:
    """A fleet's folder under `tmp_path`, made without evaluating anything."""
    rows = []
    for name, values in errors.items():
        (tmp_path / name).write_text(json.dumps(report(values)))
        rows.append(FleetRow(name, f'/runs/{name}', EVALUATED, sha256=name * 64, key='k', report=f'{name}/report.html',
                             facts=facts_of(report(values), 1.0)))
    write_pairs(tmp_path / 'pairs.parquet', [(row.name, row.sha256, tmp_path / row.name) for row in rows])
    found = FleetReport(rows, make_plan({'weights': 'ours', 'backend': 'onnxruntime'}, HERE))
    write_fleet_document(tmp_path / 'fleet.json', found)
    return found


def compared(tmp_path: Path, errors: dict[str, list[float | None]], extra: tuple[FleetRow, ...] = ()) -> FleetReport:
    """The fleet of today, beside the one that `tmp_path` holds."""
    before = read_baseline(tmp_path)
    today = tmp_path / 'today'
    today.mkdir()
    found = fleet(today, errors)
    found.plan = make_plan({'weights': 'ours', 'backend': 'onnxruntime', 'max_keypoints': 512},
                           HERE._replace(matcher_sha256='c' * 64))
    found.rows += extra
    both = read_pairs(today / 'pairs.parquet', {row.sha256: 'ours' for row in found.evaluated})
    found.comparison = before.compared(found.rows, found.plan, both)
    found.limit, found.failures = 1.0, found.comparison.failures(1.0)
    return found


def test_a_fleet_beside_the_one_before(tmp_path: Path) -> None:
    fleet(tmp_path, {'a': [1.0] * 12, 'b': [1.0] * 12, 'c': [1.0] * 12, 'd': [1.0] * 12})
    lost = FleetRow('c', '/runs/c', FAILED, 'it is damaged', sha256='c' * 64)
    found = compared(tmp_path, {'a': [6.0] * 12, 'b': [1.0] * 12, 'e': [1.0] * 12}, (lost,)).comparison
    assert found is not None
    assert found.causes == ['max_keypoints: default before, 512 now', 'the matcher of the weights: ours (bbbbbbbbbbbb) before, '
                            'ours (cccccccccccc) now']
    assert (found.missing, found.unread, found.added) == (['d'], ['c'], ['e'])
    failures = found.failures(1.0)
    assert failures[0].startswith('a: pose_auc@10 at stride 1 -47.9 points')
    assert failures[1:] == ['c: it was evaluated before and cannot be now']
    assert [line[:2] for line in found.failures(90.0)] == ['c:'], 'nothing else lost as much'


def test_fleet_without_a_shared_recording_fails_acceptance_check(tmp_path: Path) -> None:
    fleet(tmp_path, {'a': [1.0] * 12})
    found = compared(tmp_path, {'b': [1.0] * 12})
    assert found.failures == [f'nothing can be compared with {tmp_path / "fleet.json"}: no recording, or no stride, is the same']


def test_the_report_of_one_recording_can_be_compared_with(tmp_path: Path) -> None:
    """By its content: a recording of the same last name is another one, and one that was moved is the same."""
    document = report([1.0] * 12, '/elsewhere/bag')
    document['recording']['sha256'] = 'a' * 64
    (tmp_path / 'report.json').write_text(json.dumps(document))
    found = read_baseline(tmp_path / 'report.json')
    rows = [FleetRow('monday/bag', '/runs/monday/bag', EVALUATED, sha256='b' * 64),
            FleetRow('moved', '/runs/moved', EVALUATED, sha256='a' * 64)]
    both = {sha256: pairs(report([error] * 12)) for sha256, error in (('a' * 64, 1.0), ('b' * 64, 9.0))}
    comparison = found.compared(rows, make_plan({}, HERE), both)
    assert list(comparison.recordings) == ['moved']
    assert set(map(verdict_of, comparison.recordings['moved'].values())) == {'the same'}
    assert (comparison.added, comparison.missing, comparison.failures(0.0)) == (['monday/bag'], [], [])
    torn = found.compared([FleetRow('bag', '/elsewhere/bag', FAILED, 'torn')], make_plan({}, HERE), {})
    assert (torn.unread, torn.missing) == (['bag'], [])
    assert found.compared(rows[:1], make_plan({}, HERE), both).missing == ['bag']


def test_a_report_of_a_part_is_of_the_recording_that_it_names(flights: Path, tmp_path: Path) -> None:
    place = copy_of(flights / 'monday' / 'flight', tmp_path / 'bag')
    (tmp_path / 'report.json').write_text(json.dumps(report([1.0] * 12, str(place))))
    assert list(read_baseline(tmp_path / 'report.json').names) == [fingerprint(find_recordings([str(place)])[0])]
    place.rename(tmp_path / 'gone')
    with pytest.raises(LightglueTrtError, match=r'does not tell what is in its recording, and .*bag is gone; evaluate'):
        read_baseline(tmp_path / 'report.json')


def test_what_cannot_be_compared_with_is_told_before_anything_runs(tmp_path: Path) -> None:
    fleet(tmp_path, {'a': [1.0] * 12})
    whole = json.loads((tmp_path / 'fleet.json').read_text())
    cases = {'nothing.json': None, 'cut.json': '{"kind": "fl', 'list.json': '[]', 'other.json': '{"schema": 1}',
             'newer.json': json.dumps({**whole, 'schema': 2}), 'bare.json': json.dumps({'kind': 'fleet', 'schema': 1}),
             **{f'{name}.json': json.dumps({**whole, 'pairs': f'{name}.parquet'}) for name in ('alone', 'torn')}}
    (tmp_path / 'torn.parquet').write_bytes((tmp_path / 'pairs.parquet').read_bytes()[:400])
    words = {'nothing.json': 'No such file', 'list.json': 'no report of', 'other.json': 'no report of', 'newer.json': 'schema is 2',
             'bare.json': "lacks 'recordings'", 'alone.json': 'alone.parquet next to it', 'torn.json': 'torn.parquet'}
    for name, text in cases.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(LightglueTrtError, match=f'--against .*{name} cannot be .*{words.get(name, "")}'):
            read_baseline(tmp_path / name)


def test_what_is_kept_is_whole_and_found_again(tmp_path: Path) -> None:
    kept = ResultStore(tmp_path)
    assert kept.get('k' * 64) is None
    kept.put('k' * 64, {'seconds': 1.0}, {'report.json': b'{}'})
    assert ResultStore(tmp_path).get('k' * 64) == {'seconds': 1.0, 'key': 'k' * 64, 'files': ['report.json']}
    listed = RecordingRef('/runs/a', 'a', 3, 'stamp')
    kept.learn({listed: 'f' * 64})
    again = ResultStore(tmp_path)
    assert again.fingerprint(listed) == 'f' * 64
    assert again.fingerprint(RecordingRef('/runs/a', 'a', 3, 'changed')) is None
    (kept.place('k' * 64) / 'report.json').unlink()
    assert ResultStore(tmp_path).get('k' * 64) is None, 'somebody has tidied up'
    kept.put('k' * 64, {}, {})
    (kept.place('k' * 64) / 'facts.json').write_text('{"key"')
    (tmp_path / 'fingerprints.json').write_text('[')
    assert ResultStore(tmp_path).get('k' * 64) is None
    assert ResultStore(tmp_path).fingerprint(listed) is None


def test_a_full_disk_is_told_and_keeps_what_was_written(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        kept = ResultStore(disk)
        kept.put('a' * 64, {}, {'report.json': bytes(1000)})
        with pytest.raises(LightglueTrtError, match=r'No space left on device\), and nothing was: what was written before is kept'):
            kept.put('b' * 64, {}, {'report.json': bytes(1000), 'report.html': bytes(300_000)})
        assert kept.get('a' * 64) is not None
        assert kept.get('b' * 64) is None
        assert not list(kept.place('b' * 64).iterdir())


def test_the_page_has_every_recording_the_worst_first(tmp_path: Path) -> None:
    fleet(tmp_path, {'a': [1.0] * 12, 'b': [1.0] * 12, 'c': [2.0] * 12})
    extra = (FleetRow('<b>', '/runs/<b>', FAILED, 'it is <damaged>'), FleetRow('later', '/runs/later', WAITING, 'interrupted'),
             FleetRow('twin', '/runs/twin', REPEATED, 'the same recording as a'))
    found = compared(tmp_path, {'a': [6.0] * 12, 'b': [1.0] * 12, 'c': [2.0] * 12}, extra)
    assert [row.name for row in worst_first(found.rows, found.comparison)] == ['<b>', 'a', 'c', 'b', 'later', 'twin']
    text = render_fleet(found)
    page = Page(text)
    assert page.links == ['a/report.html', 'c/report.html', 'b/report.html']
    table = [row for row in page.rows if row.startswith(('<b>', 'a', 'b', 'c', 'later', 'twin'))]
    assert [row.split()[0] for row in table][:6] == ['<b>', 'a', 'c', 'b', 'later', 'twin']
    assert 'cannot be evaluated : it is <damaged>' in table[0]
    assert '-47.9 (-47.9 to -47.9)' in table[1]
    assert '<strong>Worse</strong>: a: pose_auc@10 at stride 1' in text
    assert 'the matcher of the weights: ours (bbbbbbbbbbbb) before' in text
    assert text.count('data:image/png;base64,') >= 3
    assert '<i>noted' not in text
    assert "default-src 'none'" in text


def test_the_page_has_figures_of_depth_and_words_for_people(tmp_path: Path) -> None:
    found = fleet(tmp_path, {'a': [1.0] * 12, 'b': [1.0] * 12})
    assert 'error of z' not in render_fleet(found)
    found.plan = make_plan({'depth_topic': '--depth', 'degrade': ('dots', 'border')}, HERE)
    for number, row in enumerate(found.rows):
        row.first['summary']['1'] |= {'depth_points': 91.0, 'depth_error_p50': 0.5 + number, 'depth_drift_percent': 1.25}
    text = render_fleet(found)
    heads = re.findall('<button type="button">(.*?)</button>', text)
    assert {'with depth, %', 'error of z, %', 'drift by depth, %'} <= {*heads}
    assert re.search(r'>0\.50</td>', text)
    assert '--depth' not in text
    assert 'the recording&#39;s own depth images' in text
    assert 'Recordings by points with depth' in text
    assert 'dots,border' in text


def test_the_script_that_sorts_is_the_one_that_the_page_allows(tmp_path: Path) -> None:
    import base64
    import hashlib
    text = render_fleet(fleet(tmp_path, {'a': [1.0] * 12}), pictured=False)
    script = re.search('<script>(.*?)</script>', text, re.S)
    assert script is not None
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()}'" in text


def test_only_long_names_break_where_their_parts_do(tmp_path: Path) -> None:
    recordings = {'tartanair_hospital': [1.0], 'tartanair_hospital_afternoon': [1.0], 'x<b>': [1.0]}
    page = render_fleet(fleet(tmp_path, recordings), pictured=False)
    assert '>tartanair_hospital</a>' in page
    assert '>tartanair_<wbr>hospital_<wbr>afternoon</a>' in page
    assert '>x&lt;b&gt;</a>' in page
    assert 'overflow-wrap: anywhere' not in re.sub(r'(h1|code) \{.*?\}', '', page), 'no word of a table breaks'
    assert re.search(r'\.scroll \{ [^}]*var\(--shade\)', page), 'an edge shows that there is more'


def test_a_page_of_nothing() -> None:
    text = render_fleet(FleetReport([FleetRow('a', '/a', FAILED, 'gone')], make_plan({}, HERE)))
    assert '0 of 1 recordings evaluated, 1 cannot be evaluated.' in text


@pytest.mark.slow
def test_without_dask_the_pip_line_is_named(flights: Path, tmp_path: Path) -> None:
    for missing in ('distributed', 'pyarrow', 'fsspec'):
        code = (f'import sys; sys.modules["{missing}"] = None\n'
                'from lightglue_trt_eval.cli.evaluate_fleet import main\n'
                f'sys.exit(main([{str(flights / "monday")!r}, "--out", {str(tmp_path)!r}]))')
        done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert f'needs the Python package {missing}' in done.stderr
        assert 'pip install dask distributed fsspec pyarrow' in done.stderr
        assert 'Traceback' not in done.stderr
