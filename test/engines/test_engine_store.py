"""Engines and calibrations on a real disk: whole or not at all, and refused with reasons when they do not fit or are damaged."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.executables import ROOT, environment
from support.full_disks import small_disk
from support.written_engines import (
    ADA,
    CALIBRATION,
    EARLY_EXITS,
    FILES,
    GATE,
    OURS,
    RECORD,
    SPEC,
    TENSORRT,
    WANTED,
    put,
    put_calibration,
)

import lightglue_trt_ros
from lightglue_trt_ros.cli import build_engines
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.engines.engine_store import drafting, find_timing_cache, open_artifact, read_artifact
from lightglue_trt_ros.engines.gpu_info import Machine, target
from lightglue_trt_ros.engines.manifest import FAILED, GRAPH, MANIFEST, NOT_RUN, TENSORS, Artifact, Identity
from lightglue_trt_ros.networks.models import identify_model
from lightglue_trt_ros.utils.errors import EngineError, EngineMismatchError

TESTS = ROOT / 'test' / 'engines', ROOT / 'test'


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith('.lock-')}


def test_what_was_written_is_opened_again(tmp_path):
    written = put(tmp_path / 'engines')
    opened = open_artifact(tmp_path / 'engines', WANTED)
    assert opened == written
    assert opened.path == tmp_path / 'engines' / 'ours-480x640-k1024-fp16'
    assert opened.read('matcher-1-3.plan') == b'content of matcher-1-3.plan' * 100
    opened.verify()
    assert left_in(tmp_path / 'engines') == {WANTED.name}
    assert left_in(opened.path) == {*FILES, MANIFEST}
    assert next(iter(json.loads((opened.path / MANIFEST).read_text()))) == 'schema'


COMPARED = [field for field in dataclasses.fields(Identity)
            if field.compare and field.name not in ('kind', 'ends', 'graphs', 'gate_verdict')]


@pytest.mark.parametrize('field', COMPARED, ids=lambda field: field.name)
def test_each_difference_is_named_with_both_values_and_the_command(tmp_path, field):
    other = {'image_height': 240, 'image_width': 320, 'max_keypoints': 512, 'matcher_precision': 'fp32', 'gpu': 'NVIDIA L4',
             'extractor_precision': 'fp32', 'weights': 'magicleap', 'multiprocessors': 58}.get(field.name, 'other')
    wanted = dataclasses.replace(WANTED, calibration_sha256='c' * 64)
    mine = dataclasses.replace(WANTED, **{field.name: other})
    place = put(tmp_path, mine).path
    if place.name != WANTED.name:
        place.rename(tmp_path / WANTED.name)
    with pytest.raises(EngineMismatchError) as caught:
        open_artifact(tmp_path, wanted)
    told, command = str(caught.value).splitlines()
    version = lightglue_trt_ros.__version__
    difference = {'package_version': f'it was made by version other, this is {version}',
                  'graph_code': f'it was made by other code of version {version}'}.get(
        field.name, f'{field.name.replace("_", " ")}: the engine set has {other}, needed is {getattr(wanted, field.name)}')
    assert told == f'the engine set in {tmp_path / WANTED.name} is not the one needed: {difference}; make it again:'
    assert command.startswith('ros2 run lightglue_trt_ros build_engines ')


def test_own_weights_may_move_and_the_error_names_their_local_path(tmp_path):
    mine = dataclasses.replace(OURS, name='mine', choice='/builder/my weights')
    put(tmp_path, Identity.of_engines(SPEC, mine, TENSORRT, ADA, ends=EARLY_EXITS.ends))
    here = dataclasses.replace(mine, choice='/robot/my weights')
    open_artifact(tmp_path, Identity.of_engines(SPEC, here, TENSORRT, ADA)).verify()
    retrained = Identity.of_engines(SPEC, dataclasses.replace(here, extractor_sha256='f' * 64), TENSORRT, ADA)
    with pytest.raises(EngineError, match=r'no engine set in .*mine-\w{8}-480x640-k1024-fp16 \(there are mine-') as caught:
        open_artifact(tmp_path, retrained)
    assert build_engines._parse(shlex.split(str(caught.value).splitlines()[-1])[4:]).weights == '/robot/my weights'


@pytest.mark.parametrize('machine', [ADA, target(89)], ids=['this machine', 'another'])
@pytest.mark.parametrize('flavour', ['tensorrt', 'tensorrt_rtx'])
def test_the_command_asks_for_exactly_what_is_wanted(tmp_path, machine, flavour):
    tensorrt = SimpleNamespace(name=flavour, version='1')
    wanted = Identity.of_engines(EngineSpec(240, 328, 77, 'fp32'), identify_model('magicleap'), tensorrt, machine)
    words = shlex.split(wanted.command(tmp_path / 'my engines'))
    args = build_engines._parse(words[4:])
    assert words[:4] == ['ros2', 'run', 'lightglue_trt_ros', 'build_engines']
    assert (args.height, args.width, args.max_keypoints, args.precision) == (240, 328, 77, 'fp32')
    assert (args.weights, args.engine_dir) == ('magicleap', tmp_path / 'my engines')
    assert args.flavour == ('rtx' if flavour == 'tensorrt_rtx' else 'auto')
    assert args.target_sm == (None if machine.present else 89)


def test_an_engine_set_for_a_compute_capability_fits_every_gpu_of_it(tmp_path):
    put(tmp_path, Identity.of_engines(SPEC, OURS, TENSORRT, target(89), ends=EARLY_EXITS.ends))
    open_artifact(tmp_path, WANTED).verify()
    orin = Machine('Orin', (8, 7), 8, 4000, 7600, '12.6', True)
    with pytest.raises(EngineMismatchError, match=r'compute capability: the engine set has 8\.9, needed is 8\.7') as caught:
        open_artifact(tmp_path, Identity.of_engines(SPEC, OURS, TENSORRT, orin))
    assert 'gpu' not in str(caught.value)


def test_fp8_is_the_matchers_alone():
    identity = Identity.of_engines(EngineSpec(precision='fp8'), OURS, TENSORRT, ADA)
    assert (identity.extractor_precision, identity.matcher_precision) == ('fp16', 'fp8')
    assert identity.spec == EngineSpec(precision='fp8')


def test_a_missing_engine_set_names_those_that_are_there(tmp_path):
    with pytest.raises(EngineError, match=r'no engine set in .*nor another one.*make it:\nros2 run'):
        open_artifact(tmp_path / 'nowhere', WANTED)
    put(tmp_path, dataclasses.replace(WANTED, max_keypoints=512))
    with pytest.raises(EngineError, match='there are ours-480x640-k512-fp16'):
        open_artifact(tmp_path, WANTED)


def altered(text: str = '', **changes) -> str:
    """A manifest in which some entries are others, or (None) not there; those of its identity and record by their names."""
    graphs = {name.removesuffix('.onnx'): 'x' for name in FILES if name.endswith('.onnx')}
    identity = dataclasses.replace(WANTED, graphs=graphs)
    values = json.loads(text or Artifact(Path(), identity, dict.fromkeys(FILES, 'x'), GATE, RECORD).to_json())
    for key, value in changes.items():
        part = next((values[name] for name in ('identity', 'record') if key in values[name]), values)
        part[key] = value
        if value is None:
            del part[key]
    return json.dumps(values)


@pytest.mark.parametrize(('text', 'complaint'), [
    ('', 'Expecting value'), ('{"schema": 1', 'Expecting'), ('[1]', 'no schema'), ('{}', 'no schema'),
    ('{"schema": "1"}', 'no schema'),
    (b'\xff\xfe', 'decode'), (altered(schema=8), 'a newer version of this package'), (altered(schema=6), 'an older version'),
    (altered(extractor_sha256=None), 'extractor_sha256: missing'), (altered(package_version=None), 'package_version: missing'),
    (altered(gate_verdict=None), 'gate_verdict: missing'), (altered(gate_verdict='fine'), "verdict 'fine'"),
    (altered(kind='song'), "of 'song'"), (altered(layers=None), 'layers: missing'),
    (altered(gate=None), 'gate: missing'), (altered(files=7), 'files: missing'), (altered(surplus=1), 'surplus'),
    (altered(identity={'gpu': 'x'}), 'image_height'), (altered(gpu=5), 'gpu'), (altered(image_height=True), 'image_height'),
    (altered(ends=[3, 3, 9]), 'ends: .*ascending'), (altered(ends=['3', 9]), 'ends'), (altered(ends=9), 'ends: missing'),
    (altered(files=dict.fromkeys(FILES[1:], 'x')), f'no checksum of {FILES[0]}'),
    (altered(graphs={'extractor': 'y'}), 'its graphs are not those of its files'),
])
def test_a_manifest_that_cannot_be_used_is_refused_with_the_reason(tmp_path, text, complaint):
    path = put(tmp_path).path / MANIFEST
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(EngineError, match=complaint) as caught:
        open_artifact(tmp_path, WANTED)
    assert 'ros2 run lightglue_trt_ros build_engines' in str(caught.value)


@pytest.mark.parametrize('field', ['identity', 'files', 'gate', 'record', 'weights', 'gate_verdict', 'package_version',
                                   'calibration_sha256', 'settings', 'flops_share', 'provenance', 'frontier'])
def test_a_calibrations_manifest_without_a_field_names_it(tmp_path, field):
    path = put_calibration(tmp_path).path / MANIFEST
    path.write_text(altered(path.read_text(), **{field: None}))
    with pytest.raises(EngineError, match=rf'manifest\.json cannot be used: {field}: missing.*\nros2 run .* quantize'):
        open_artifact(tmp_path, CALIBRATION)


@pytest.mark.parametrize('made', [put, put_calibration])
def test_old_version_and_failed_acceptance_are_refused_in_two_lines(tmp_path, made):
    """Both opened once: an engine set of package 0.0.1 whose gate had failed."""
    path = made(tmp_path).path / MANIFEST
    good, wanted = path.read_text(), WANTED if made is put else CALIBRATION
    open_artifact(tmp_path, wanted)
    for changes, told in (({'package_version': '0.0.1'}, r'it was made by version 0\.0\.1, this is \d\S+; make it again:'),
                          ({'gate_verdict': FAILED}, 'did not pass its acceptance check: gate verdict: .*failed, needed is passed'),
                          ({'gate_verdict': FAILED, 'package_version': '0.0.1'}, 'made by version.*gate verdict'),
                          ({'gate_verdict': NOT_RUN}, 'gate verdict: .* has not run')):
        path.write_text(altered(good, **changes))
        with pytest.raises(EngineError, match=told) as caught:
            open_artifact(tmp_path, wanted)
        assert str(caught.value).count('\n') == 1
        assert str(caught.value).splitlines()[-1].startswith('ros2 run lightglue_trt_ros ')


def test_engines_built_elsewhere_open_without_an_acceptance_check(tmp_path):
    identity = Identity.of_engines(SPEC, OURS, TENSORRT, target(89), ends=EARLY_EXITS.ends)
    put(tmp_path, dataclasses.replace(identity, gate_verdict=NOT_RUN))
    open_artifact(tmp_path, WANTED).verify()


def test_graphs_and_calibration_are_compared_where_they_are_known(tmp_path):
    made = put(tmp_path, dataclasses.replace(WANTED, calibration_sha256='c' * 64))
    graphs = made.identity.graphs
    assert graphs['extractor'] == hashlib.sha256(b'content of extractor.onnx' * 100).hexdigest()
    open_artifact(tmp_path, dataclasses.replace(WANTED, graphs=graphs, calibration_sha256='c' * 64))
    with pytest.raises(EngineMismatchError, match='graphs: the engine set has another extractor'):
        open_artifact(tmp_path, dataclasses.replace(WANTED, graphs=graphs | {'extractor': 'y'}))
    with pytest.raises(EngineMismatchError, match='calibration sha256: the engine set has ccc'):
        open_artifact(tmp_path, dataclasses.replace(WANTED, calibration_sha256='d' * 64))
    (made.path / 'extractor.onnx').write_bytes(b'another')
    with pytest.raises(EngineError, match=r'extractor\.onnx is damaged'):
        made.plans()
    calibration = put_calibration(tmp_path / 'calibrations')
    assert calibration.identity.calibration_sha256 == calibration.files[TENSORS] != calibration.files[GRAPH]


def test_an_engine_set_without_manifest_is_none(tmp_path):
    (put(tmp_path).path / MANIFEST).unlink()
    with pytest.raises(EngineError, match=r'no engine set in .*it has no manifest\.json'):
        open_artifact(tmp_path, WANTED)


@pytest.mark.parametrize('name', FILES)
@pytest.mark.parametrize('damage', ['truncated', 'one bit', 'gone'])
def test_damage_is_found_by_the_checksum(tmp_path, name, damage):
    path = put(tmp_path, cache=b'0123456789').path / name
    data = bytearray(path.read_bytes())
    if damage == 'gone':
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data if damage == 'one bit' else data[:-1])
    opened = open_artifact(tmp_path, WANTED)
    with pytest.raises(EngineError, match=f'{name} (is damaged|cannot be read)') as caught:
        opened.read(name)
    assert 'make it again:\nros2 run' in str(caught.value)
    with pytest.raises(EngineError, match=name):
        opened.verify()


def test_a_new_engine_set_takes_the_place_of_the_old_one(tmp_path):
    put(tmp_path, cache=b'old')
    put(tmp_path, cache=b'new')
    assert open_artifact(tmp_path, WANTED).read('timing.cache') == b'new'
    assert left_in(tmp_path) == {WANTED.name}


def fail_halfway(folder: Path) -> None:
    def fail() -> None:
        with drafting(folder, WANTED.name) as draft:
            draft.write('extractor.onnx', b'half')
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()


def test_what_fails_halfway_leaves_the_old_engine_set_and_nothing_else(tmp_path):
    put(tmp_path, cache=b'old')
    fail_halfway(tmp_path)
    assert left_in(tmp_path) == {WANTED.name}
    assert open_artifact(tmp_path, WANTED).read('timing.cache') == b'old'


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    real = os.fsync

    def full(descriptor):
        if os.readlink(f'/proc/self/fd/{descriptor}').endswith('matcher-1-3.plan'):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(EngineError, match=r'No space left on device\): free some space'):
        put(tmp_path)
    assert left_in(tmp_path) == set()


def test_a_file_system_that_is_really_full(tmp_path):
    with small_disk(tmp_path) as disk:
        with pytest.raises(EngineError, match='No space left on device'):
            put(disk, cache=bytes(200_000))
        assert left_in(disk) == set()
        assert put(disk).read('timing.cache') == b'timings'


def test_a_read_only_folder_is_refused_before_anything_is_built(tmp_path, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, 'mkdir', refuse)
    with pytest.raises(EngineError, match=r'Read-only file system\): make it writable, or choose another folder'):
        put(tmp_path / 'engines')
    monkeypatch.undo()
    (tmp_path / 'a file').write_text('')
    with pytest.raises(EngineError, match='cannot be written'):
        put(tmp_path / 'a file')


def test_removes_leftovers_of_dead_builders_only_of_its_engine_set(tmp_path):
    dead, other = tmp_path / f'.{WANTED.name}.123.tmp', tmp_path / '.ours-480x640-k512-fp16.123.tmp'
    put(tmp_path)
    for folder in (dead, tmp_path / f'.{WANTED.name}.old', other):
        folder.mkdir(parents=True)
        (folder / 'extractor.onnx').write_bytes(b'half')
    put(tmp_path)
    assert left_in(tmp_path) == {WANTED.name, other.name}


KILLED = """
import os, signal, sys
from pathlib import Path
from support.written_engines import put
from lightglue_trt_ros.engines import engine_store

done, real = 0, os.rename

def rename(source, target):
    global done
    if done == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    real(source, target)
    done += 1

os.rename = rename
engine_store.shutil.rmtree = lambda *arguments, **settings: os.kill(os.getpid(), signal.SIGKILL)
put(Path(sys.argv[1]), cache=b'new')
"""


@pytest.mark.parametrize('renames', [0, 1, 2])
@pytest.mark.parametrize('there', [True, False], ids=['old', 'first'])
def test_a_kill_between_the_renames_loses_nothing(tmp_path, there, renames):
    """SIGKILL before each rename, and before what was retired is removed; then a builder that fails, and one more."""
    if there:
        put(tmp_path, cache=b'old')
    done = subprocess.run([sys.executable, '-c', KILLED, str(tmp_path), str(renames)], env=environment(*TESTS, ROOT),
                          stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    renamed = renames >= (2 if there else 1)
    expected = b'new' if renamed else b'old' if there else None

    def found() -> bytes | None:
        try:
            artifact = open_artifact(tmp_path, WANTED)
        except EngineError:
            return None
        artifact.verify()
        return artifact.read('timing.cache')

    assert found() == expected, 'as the kill left it'
    fail_halfway(tmp_path)
    assert found() == expected, 'the next builder has failed'
    assert left_in(tmp_path) == ({WANTED.name} if expected else set())
    put(tmp_path, cache=b'newest')
    assert found() == b'newest'
    assert left_in(tmp_path) == {WANTED.name}


HOLDER = """
import sys, time
from pathlib import Path
from lightglue_trt_ros.engines.engine_store import drafting
with drafting(Path(sys.argv[1]), sys.argv[2]) as draft:
    draft.write('extractor.onnx', b'half')
    print('holding', flush=True)
    time.sleep(float(sys.argv[3]))
"""


def hold(folder: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that holds the lock of the engine set, with a half-written draft."""
    command = [sys.executable, '-c', HOLDER, str(folder), WANTED.name, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == 'holding\n'
    return process


def test_a_second_builder_says_that_it_waits(tmp_path, caplog):
    caplog.set_level(logging.INFO, 'lightglue_trt_ros')
    process = hold(tmp_path, 0.7)
    started = time.monotonic()
    with process, drafting(tmp_path, WANTED.name) as draft:
        assert time.monotonic() - started > 0.2
        assert left_in(tmp_path) == {draft.scratch.name}, 'the first one has tidied up'
    assert caplog.messages == [f'another process is making {WANTED.name}: waiting for it']


def test_a_killed_builder_blocks_nobody(tmp_path):
    with hold(tmp_path, 60) as process:
        assert len(left_in(tmp_path)) == 1
        process.send_signal(signal.SIGKILL)
    put(tmp_path)
    assert left_in(tmp_path) == {WANTED.name}


def test_another_engine_set_is_built_at_the_same_time(tmp_path):
    with hold(tmp_path, 60) as process:
        put(tmp_path, dataclasses.replace(WANTED, max_keypoints=512))
        assert process.poll() is None, 'nobody waited for it'
        process.kill()


def test_timing_cache_is_of_the_newest_engine_set_of_same_machine(tmp_path):
    assert find_timing_cache(tmp_path, WANTED) == b''
    for number, (k, changes) in enumerate([(64, {}), (128, {}), (256, {'gpu': 'another'}), (512, {'tensorrt_version': '11'})]):
        made = put(tmp_path, dataclasses.replace(WANTED, max_keypoints=k, **changes), cache=f'cache {k}'.encode())
        os.utime(made.path / MANIFEST, (1e9 + number, 1e9 + number))
    assert find_timing_cache(tmp_path, WANTED) == b'cache 128'
    (tmp_path / 'ours-480x640-k128-fp16' / 'timing.cache').write_bytes(b'damaged')
    assert find_timing_cache(tmp_path, WANTED) == b'cache 64'
    (tmp_path / 'ours-480x640-k64-fp16' / MANIFEST).write_text('{')
    assert find_timing_cache(tmp_path, WANTED) == b''


def test_each_weights_have_engines_and_calibrations_of_their_own(tmp_path):
    light = dataclasses.replace(OURS, name='ours_light', choice='ours_light', matcher_sha256='b' * 64)
    own = dataclasses.replace(light, name='ours / night', choice='/robot/ours')
    retrained = dataclasses.replace(own, matcher_sha256='c' * 64)
    made = []
    for pair in (OURS, light, own, retrained):
        engines = Identity.of_engines(SPEC, pair, TENSORRT, ADA, ends=EARLY_EXITS.ends)
        made += [(engines, put(tmp_path, engines)), (calibration := Identity.of_calibration(SPEC, pair), put_calibration(
            tmp_path, calibration))]
    for wanted, artifact in made:
        assert open_artifact(tmp_path, wanted) == artifact
    names = left_in(tmp_path)
    assert len(names) == 8
    shipped = {f'{pair}-480x640-k1024-{kind}' for pair in ('ours', 'ours_light') for kind in ('calibration', 'fp16')}
    assert all(re.fullmatch(r'ours___night-[0-9a-f]{8}-480x640-k1024-(fp16|calibration)', name) for name in names - shipped)


@pytest.mark.parametrize(('wanted', 'former'), [(WANTED, 'superpoint-480x640-k1024-fp16'),
                                                (CALIBRATION, 'calibration-480x640-k1024')])
def test_folder_of_an_earlier_version_is_refused_with_build_command(tmp_path, wanted, former):
    (put if wanted is WANTED else put_calibration)(tmp_path).path.rename(tmp_path / former)
    with pytest.raises(EngineError, match=rf'there is no .*/{wanted.name} \({former} there is of an earlier version') as caught:
        open_artifact(tmp_path, wanted)
    assert str(caught.value).splitlines()[1:] == [wanted.command(tmp_path)]


OPENED_BY_ANOTHER_VERSION = """
import sys
from pathlib import Path
from support.written_engines import CALIBRATION, WANTED
from lightglue_trt_ros.engines.engine_store import open_artifact
from lightglue_trt_ros.utils.errors import EngineMismatchError
for wanted in (WANTED, CALIBRATION):
    try:
        open_artifact(Path(sys.argv[1]), wanted)
    except EngineMismatchError as error:
        print(error)
"""


@pytest.mark.parametrize('changed', ['networks/lightglue.py', 'core/early_exit.py', 'networks/e4m3.py',
                                     'networks/fp8_calibration.py', 'networks/architecture.py', 'ros/matcher/node.py'])
def test_what_other_code_has_written_is_refused_in_two_lines(tmp_path, changed):
    """A copy of the package in which one file has a line more, as after an update: what writes graphs counts, the node does not."""
    shutil.copytree(Path(lightglue_trt_ros.__file__).parent, tmp_path / 'update' / 'lightglue_trt_ros',
                    ignore=shutil.ignore_patterns('data', '__pycache__'))
    with (tmp_path / 'update' / 'lightglue_trt_ros' / changed).open('a') as file:
        file.write('\nCHANGED = True\n')
    put(tmp_path / 'engines')
    put_calibration(tmp_path / 'engines')
    done = subprocess.run([sys.executable, '-c', OPENED_BY_ANOTHER_VERSION, 'engines'], capture_output=True, text=True,
                          env=environment(tmp_path / 'update', *TESTS), check=True, cwd=tmp_path)
    told = done.stdout.splitlines()
    assert len(told) == (0 if changed == 'ros/matcher/node.py' else 4)
    for line, noun in zip(told[::2], ('engine set', 'FP8 calibration')):  # noqa: B905 Python 3.10
        assert re.fullmatch(rf'the {noun} in \S+ is not the one needed: it was made by other code of version \S+; '
                            'make it again:', line)
    assert all(line.startswith('ros2 run lightglue_trt_ros ') for line in told[1::2])


def test_what_is_replaced_while_it_is_read_is_read_of_the_successor(tmp_path):
    put(tmp_path, cache=b'old')
    tries = []

    def read(artifact: Artifact) -> bytes:
        tries.append(artifact)
        if len(tries) == 1:
            put(tmp_path, cache=b'new')
        return artifact.read('timing.cache')

    assert read_artifact(tmp_path, WANTED, read) == (open_artifact(tmp_path, WANTED), b'new')
    shutil.rmtree(tries[0].path)
    with pytest.raises(EngineError, match='there is no engine set'):
        read_artifact(tmp_path, WANTED, read)


def test_reading_a_retired_engine_set_fails_without_a_successor(tmp_path):
    place, retired = put(tmp_path).path, tmp_path / f'.{WANTED.name}.old'
    place.rename(retired)
    (retired / 'matcher-1-3.plan').unlink()

    def read(artifact: Artifact) -> bytes:
        if has_successor and artifact.path == retired:
            put(tmp_path / 'elsewhere').path.rename(place)
        return artifact.read('matcher-1-3.plan')

    has_successor = False
    with pytest.raises(EngineError, match=r'matcher-1-3\.plan cannot be read'):
        read_artifact(tmp_path, WANTED, read)
    has_successor = True
    assert read_artifact(tmp_path, WANTED, read)[0].path == place


PUBLISHER = """
import itertools, os, sys
from pathlib import Path
from support.written_engines import put
os.fsync = lambda descriptor: None
for number in itertools.count():
    put(Path(sys.argv[1]), cache=str(number).encode())
"""


@pytest.mark.slow
def test_reading_while_engines_are_published_gives_one_engine_set(tmp_path):
    """Against a process that does nothing but publish."""
    put(tmp_path)
    process = subprocess.Popen([sys.executable, '-c', PUBLISHER, str(tmp_path)], env=environment(*TESTS, ROOT))
    found, until = set(), time.monotonic() + 5
    try:
        while time.monotonic() < until and len(found) < 60:
            artifact, (cache, _) = read_artifact(tmp_path, WANTED, lambda each: (each.read('timing.cache'), each.plans()))
            assert hashlib.sha256(cache).hexdigest() == artifact.files['timing.cache']
            found.add(cache)
    finally:
        process.kill()
        process.wait()
    assert len(found) > 2, 'it was replaced meanwhile'


def test_selection_may_import_the_store_cheaply():
    code = ('import sys, lightglue_trt_ros.engines.engine_store\n'
            'heavy = {"onnx", "spox", "onnxruntime", "cv2", "matplotlib", "rosbags", "tensorrt"} & set(sys.modules)\n'
            'assert not heavy, heavy')
    subprocess.run([sys.executable, '-c', code], check=True, cwd=Path(__file__).parents[2])
