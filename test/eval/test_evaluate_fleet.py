"""evaluate_fleet as teams run it: a real Dask cluster of processes, real recordings, the real networks; kills, Ctrl-C, the gate."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

distributed = pytest.importorskip('distributed', reason='distributed is not installed: fleets are not tested (extra fleet)')
parquet = pytest.importorskip('pyarrow.parquet', reason='pyarrow is not installed: fleets are not tested (extra fleet)')

from support.executables import ROOT, environment
from support.fleets import HEIGHT, KEYPOINTS, SMALL, WIDTH, copy_of, make_flight
from support.full_disks import FULL, room_for
from support.networks import light
from support.no_pictures import NO_PICTURES
from support.schemas import violations
from support.waiting import wait_for

from lightglue_trt_eval.cli.evaluate_fleet import main
from lightglue_trt_eval.fleet import cluster as cluster_module
from lightglue_trt_eval.fleet.cluster import agreed
from lightglue_trt_eval.fleet.plan import build, installation, make_plan
from lightglue_trt_ros import __version__
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.networks.graph_cache import written_graphs
from lightglue_trt_ros.networks.models import SCORES, shipped_folder
from lightglue_trt_ros.utils.errors import LightglueTrtError
from training.weight_files import write_network

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture(scope='module')
def cluster() -> Iterator[str]:
    """The address of a scheduler with two worker processes, whose reports have no pictures."""
    written_graphs(EngineSpec(HEIGHT, WIDTH, KEYPOINTS), light(), EarlyExits.of(light().layers))  # or each worker writes them
    command = [sys.executable, '-m', 'support.dask_cluster', '2']
    variables = environment(ROOT, ROOT / 'test', NO_PICTURES, DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED='False')
    with subprocess.Popen(command, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        assert process.wait(20) == 0


@pytest.fixture(scope='module')
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two flights, one of them twice, one without truth, and one that cannot be read."""
    folder = tmp_path_factory.mktemp('runs')
    make_flight(folder / 'east', seed=1)
    make_flight(folder / 'blind', seed=2, truth=False)
    copy_of(folder / 'east', folder / 'twin')
    (copy_of(folder / 'east', folder / 'torn') / 'timestamps.txt').write_text('1.0\n')
    return folder


@pytest.fixture(scope='module')
def out(tmp_path_factory: pytest.TempPathFactory, cluster: str, runs: Path) -> Path:
    """The evaluation of all runs."""
    folder = tmp_path_factory.mktemp('fleet')
    assert main([*SMALL, str(runs), '--out', str(folder), '--scheduler', cluster]) == 0
    return folder


@pytest.fixture
def run(cluster: str, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command on the cluster: exit code, all that it printed, fleet.json or nothing."""
    def evaluate(folder: Path, *words: str | Path) -> tuple[int, str, dict[str, Any]]:
        code = main([*SMALL, *map(str, words), '--out', str(folder), '--scheduler', cluster])
        captured = capfd.readouterr()
        assert 'Traceback' not in captured.err
        document = folder / 'fleet.json'
        return code, captured.out + captured.err, json.loads(document.read_text()) if document.exists() else {}

    return evaluate


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row['name']: row for row in document['recordings']}


def test_every_recording_is_a_row(runs: Path, out: Path) -> None:
    found = json.loads((out / 'fleet.json').read_text())
    rows = by_name(found)
    assert violations('fleet', found) == []
    assert {name: row['status'] for name, row in rows.items()} == {
        'blind': 'evaluated', 'east': 'evaluated', 'torn': 'failed', 'twin': 'repeated'}
    assert rows['torn']['reason'] == f'{runs / "torn"} has 1 stamps and 9 images: they must be as many'
    assert rows['twin']['reason'] == 'the same recording as east'
    first = rows['east']['facts']['matchers'][0]
    assert first['pairs'] == {'1': 8, '2': 4}
    assert first['summary']['1']['precision@1'] > 80
    assert 'pose_auc@10' not in rows['blind']['facts']['matchers'][0]['summary']['1']
    assert rows['blind']['facts']['recording']['left_out'] == ['no ground truth in the recording']
    page = (out / 'fleet.html').read_text()
    for name in ('east', 'blind'):
        assert f'href="{rows[name]["report"]}"' in page
        assert '<title>' in (out / rows[name]['report']).read_text()
    pairs = parquet.read_table(out / 'pairs.parquet')
    assert sorted(zip(pairs['recording'].to_pylist(), pairs['stride'].to_pylist(), strict=True)) == sorted(
        [('east', 1)] * 8 + [('east', 2)] * 4 + [('blind', 1)] * 8 + [('blind', 2)] * 4)
    report = json.loads((out / rows['east']['report']).with_name('report.json').read_text())
    assert report['recording']['frames'] == 9


def test_a_second_run_does_only_what_is_new(run: Run, runs: Path, out: Path, tmp_path: Path) -> None:
    kept = {path: path.stat().st_mtime_ns for path in out.glob('recordings/*/*')}
    make_flight(tmp_path / 'west', seed=3)
    archive = shutil.make_archive(str(tmp_path / 'all'), 'zip', tmp_path, 'west')  # elsewhere, for fsspec to fetch
    code, text, found = run(out, runs, f'zip://west::file://{archive}', '--against', out / 'fleet.json')
    assert code == 0, text
    assert '5 recordings: 2 to evaluate, 2 evaluated before, 1 repeated' in text  # what could not be read is tried again
    assert 'evaluated, 1 cannot be evaluated, 1 repeated' in text
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(found['recordings']) == 5
    west = found['recordings'][-1]
    assert (west['status'], west['url'], west['facts']['recording']['frames']) == ('evaluated', f'zip://west::file://{archive}', 9)
    against = found['against']
    assert {each['verdict'] for changes in against['recordings'].values() for each in changes} == {'the same'}
    assert against['added'] == ['west']
    assert against['causes'] == []
    code, text, found = run(out, runs, '--against', out / 'fleet.json')
    assert code == 0, text
    assert found['against']['missing'] == ['west']
    assert 'evaluated before, not asked for now: 1, west\n' in text


def test_results_of_an_earlier_version_are_named_once(run: Run, runs: Path, tmp_path: Path) -> None:
    (tmp_path / 'fleet.json').write_text('{"installed": {"build": "0.1.0-3f2a9c01"}}')
    line = f'evaluate_fleet: {tmp_path} has results of 0.1.0-3f2a9c01, this version is {build()}: all are evaluated again\n'
    assert line in run(tmp_path, runs / 'torn')[1]
    assert line not in run(tmp_path, runs / 'torn')[1]


def test_a_full_disk_leaves_no_half_report_and_keeps_what_was_evaluated(run: Run, runs: Path, out: Path, tmp_path: Path) -> None:
    shutil.copytree(out, tmp_path / 'out')
    together = [tmp_path / 'out' / name for name in ('fleet.html', 'fleet.json', 'pairs.parquet')]
    for path in together:
        path.unlink()
    with room_for(20_000):  # for pairs and fleet.json, and for no page
        code, text, _ = run(tmp_path / 'out', runs / 'east')
    assert code == 1
    assert f'out cannot be written ({FULL}), and nothing was: what was written before is kept' in text
    assert {path.name for path in (tmp_path / 'out').iterdir()} == {'recordings', 'fingerprints.json'}
    assert '1 recordings: 0 to evaluate, 1 evaluated before' in run(tmp_path / 'out', runs / 'east')[1]
    assert all(path.is_file() for path in together)


def test_what_cannot_be_evaluated_is_a_row_and_no_traceback(runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, str(runs / 'torn'), '--out', str(tmp_path)]) == 1
    captured = capfd.readouterr()
    assert 'has 1 stamps and 9 images: they must be as many' in captured.out.replace('\n', ' ')
    assert 'Traceback' not in captured.err
    assert 'distributed' not in captured.err


def test_mask_and_degradation_are_of_every_recording(run: Run, runs: Path, tmp_path: Path) -> None:
    allowed = np.zeros((96, 128), np.uint8)
    allowed[:, 64:] = 255
    cv2.imwrite(str(tmp_path / 'half.png'), allowed)
    cv2.imwrite(str(tmp_path / 'other.png'), allowed[:48])
    words = runs / 'east', '--max-frames', '3', '--degrade', 'dots,dim', '--mask'
    code, text, found = run(tmp_path / 'out', *words, tmp_path / 'half.png')
    assert code == 0, text
    (row,) = found['recordings']
    assert row['facts']['recording']['mask'] == f'{tmp_path}/half.png, 50.0 % of the image'
    assert row['facts']['recording']['degraded'] == 'dots,dim'
    assert 'dots,dim' in (tmp_path / 'out' / 'fleet.html').read_text()
    shutil.copy(tmp_path / 'half.png', tmp_path / 'again.png')
    assert '0 to evaluate, 1 evaluated before' in run(tmp_path / 'out', *words, tmp_path / 'again.png')[1], 'by what is in it'
    code, text, _ = run(tmp_path / 'out', *words, tmp_path / 'other.png')
    assert code == 1
    assert 'other.png is 128x48, the images are 128x96' in text


def noisy(folder: Path) -> Path:
    """The light weights with noise on one layer of the matcher."""
    folder.mkdir()
    shutil.copy(shipped_folder('ours_light') / 'extractor.safetensors', folder)
    tensors, name = dict(light().matcher.tensors), 'transformers.2.self_attn.Wqkv.weight'
    noise = np.random.default_rng(0).normal(0, 60 * tensors[name].std(), tensors[name].shape)
    tensors[name] = tensors[name] + noise.astype(np.float32)
    sha256 = write_network(folder / 'matcher.safetensors', tensors, pair='ours_light', network='matcher', licence='Apache-2.0')
    scores = dataclasses.asdict(light().score_calibration) | {'matcher_sha256': sha256}
    (folder / SCORES).write_text(json.dumps(scores))
    return folder


def test_noise_on_one_layer_is_found_and_named(run: Run, tmp_path: Path) -> None:
    east, layers = make_flight(tmp_path / 'east', seed=1, frames=48), ('--depth-confidence', '-1')  # a flight needs none
    assert run(tmp_path / 'before', east, *layers)[0] == 0
    code, text, found = run(tmp_path / 'noisy', east, *layers, '--weights', noisy(tmp_path / 'weights'),
                            '--against', tmp_path / 'before', '--fail-under-worse', '0.1')
    assert code == 1, text
    (line,) = (line for line in text.splitlines() if line.startswith('evaluate_fleet: east: '))
    assert ' at stride 1 -' in line
    assert violations('fleet', found) == []
    scores, cause = found['against']['causes']
    assert scores.startswith('scores.json of the weights: ')
    assert cause.startswith('the matcher of the weights: ours_light (')
    assert 'the acceptance check detects 80 % of losses of ' in text
    assert found['against']['failures']
    assert '<strong>Worse</strong>: east' in (tmp_path / 'noisy' / 'fleet.html').read_text()


def test_a_worker_that_is_killed_loses_nothing(run: Run, runs: Path, cluster: str, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill() -> None:
        with distributed.Client(cluster, set_as_default=False) as client:
            wait_for(lambda: evaluations(runs), 60)  # one is at it
            parent = int(Path(f'/proc/{evaluations(runs)[0]}/stat').read_text().rpartition(')')[2].split()[1])
            assert parent in client.run(os.getpid).values()
            os.kill(parent, signal.SIGKILL)
            killed.append(parent)

    killer = threading.Thread(target=kill)
    killer.start()
    code, text, found = run(tmp_path, runs / 'east', runs / 'blind', '--max-frames', '6')
    killer.join()
    assert killed
    assert code == 0, text
    assert {row['status'] for row in found['recordings']} == {'evaluated'}
    assert not evaluations(runs), 'what the killed worker had started has ended with it'


def evaluations(runs: Path) -> list[int]:
    """Processes that evaluate one of these recordings."""
    found = []
    for entry in Path('/proc').glob('[0-9]*'):
        try:
            words = (entry / 'cmdline').read_bytes().split(b'\0')
            state = (entry / 'stat').read_text().rpartition(')')[2].split()[0]
        except OSError:
            continue
        one_of_them = any(word.startswith(bytes(runs)) for word in words)
        if one_of_them and b'evaluate_into' in words and state != 'Z':
            found.append(int(entry.name))
    return found


def test_nobody_can_reach_the_cluster_on_this_machine(tmp_path: Path) -> None:
    """It opens no port, and runs what it is given."""
    script = ('import os\nfrom pathlib import Path\nfrom lightglue_trt_eval.fleet.cluster import connected\n'
              'from lightglue_trt_eval.fleet.plan import Installation\n'
              'with connected(None, 2, Installation("b", "w", "e", "m")) as client:\n'
              '    assert client.submit(sum, [1, 2]).result() == 3\n'
              '    own = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()}\n'
              '    rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]\n'
              '    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]\n'
              '    print("listening", listening)\n')
    command = [sys.executable, '-c', script]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == 'listening []\n', done.stderr
    assert 'Traceback' not in done.stderr


def test_ctrl_c_leaves_a_report_and_a_second_run_goes_on(runs: Path, tmp_path: Path) -> None:
    command = [sys.executable, '-m', 'lightglue_trt_eval.cli.evaluate_fleet', str(runs), '--out', str(tmp_path), '--workers', '1',
               '--max-frames', '5', *SMALL]
    with subprocess.Popen(command, env=environment(NO_PICTURES), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        wait_for(lambda: list(tmp_path.glob('recordings/*/facts.json')), 60)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the group
        log = process.communicate(timeout=150)[0]
    assert process.returncode == 130, log
    assert 'Traceback' not in log
    statuses = [row['status'] for row in json.loads((tmp_path / 'fleet.json').read_text())['recordings']]
    assert statuses.count('evaluated') == 1
    assert 'waiting' in statuses
    assert '<strong>Not complete</strong>: interrupted' in (tmp_path / 'fleet.html').read_text()
    wait_for(lambda: not evaluations(runs), 10)


def test_what_counts_is_what_the_workers_have(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines where the fleet is started are nobody's; a worker whose engines are others is refused, by name."""
    place = tmp_path / 'engines' / 'ours-480x640-k1024-fp16'
    place.mkdir(parents=True)
    (place / 'manifest.json').write_text('{}')
    monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', str(tmp_path))
    plan = make_plan({'backend': 'auto', 'weights': 'ours'}, installation('ours'))
    assert set(plan.contents) == {f'engines {place.name}', 'scores.json of the weights'}
    command = [sys.executable, '-m', 'distributed.cli.dask_worker', cluster, '--nthreads', '1', '--no-nanny', '--no-dashboard']
    refused = rf'the worker tcp://\S+ has engines {place.name} \w+, not \w+, as tcp://\S+ has: install the same on both'
    with distributed.Client(cluster, set_as_default=False) as client:
        there = agreed(client, plan)
        assert set(there.contents) == {'scores.json of the weights'}
        assert there.installed.libraries == plan.installed.libraries
        assert there.key('one') != plan.key('one')
        with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as other:  # with the folder of here
            try:
                client.wait_for_workers(3, timeout=60)
                with pytest.raises(LightglueTrtError, match=refused):
                    agreed(client, plan)
            finally:
                other.terminate()
        wait_for(lambda: len(client.scheduler_info(n_workers=-1)['workers']) == 2, 30)


def test_a_scheduler_that_is_not_there_is_told(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cluster_module, 'CONNECT_S', 0.5)
    for address in ('tcp://127.0.0.1:9', 'nonsense://x'):
        assert main([str(runs), '--out', str(tmp_path), '--scheduler', address]) == 1
        error = capfd.readouterr().err
        assert f'evaluate_fleet: there is no Dask scheduler at {address}' in error
        assert 'Traceback' not in error


def test_another_version_of_the_package_is_refused_with_both(runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / 'other' / 'lightglue_trt_ros'
    other.mkdir(parents=True)
    (other / '__init__.py').write_text("__version__ = '0.0.9'\n")
    script = ('import os\nfrom distributed import LocalCluster\n'
              'if __name__ == "__main__":\n'
              '    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:\n'
              '        print(cluster.scheduler_address, flush=True)\n        os.read(0, 1)\n')
    (tmp_path / 'start.py').write_text(script)
    with subprocess.Popen([sys.executable, str(tmp_path / 'start.py')], env=environment(other.parent),
                          cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        code = main([str(runs), '--out', str(tmp_path / 'out'), '--scheduler', process.stdout.readline().strip()])
        error = capfd.readouterr().err
        assert process.stdin is not None
        process.stdin.close()
    assert code == 1
    # an editable installation may find this source beside that package: the versions tell them apart then
    assert re.search(r'has lightglue_trt_ros 0\.0\.9\S*, here is ' + re.escape(__version__), error)


def test_usage(runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], usage_error: Callable[..., str]) -> None:
    for words in (['--fail-under-worse', '1.0'], ['--height', '96'], ['--workers', '0'], ['--max-frames', '1'],
                  ['--scheduler', 'tcp://x:1', '--workers', '2']):
        usage_error(main, runs, *words)
    (tmp_path / 'old.json').write_text('{')
    nobody = '--scheduler', 'nonsense://x'  # would be named, if anything were started before
    assert main([str(runs), '--out', str(tmp_path / 'out'), '--against', str(tmp_path / 'old.json'), *nobody]) == 1
    assert main([str(tmp_path / 'old'), '--out', str(tmp_path / 'out'), '--weights', 'nobodys', *nobody]) == 1
    assert main([str(runs), '--out', str(tmp_path / 'out'), '--mask', str(tmp_path / 'old.json')]) == 1
    assert main([str(runs), '--out', str(tmp_path / 'out'), '--compare', 'fp12']) == 1
    error = capfd.readouterr().err
    assert '--compare fp12: give precisions' in error
    assert 'old.json cannot be used' in error
    assert 'old.json is no image: 1 bytes: give an 8-bit gray PNG' in error
    assert "weights is 'nobodys'" in error
    assert 'nonsense' not in error
