"""Graphs in the cache: no start imports spox or onnx, the second needs neither; damage, other inputs and other code are seen."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.executables import ROOT, environment
from support.random_pairs import TINY, random_pair

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.networks import graph_cache as cache
from lightglue_trt_ros.utils.processes import called_elsewhere

PACKAGE = Path(cache.__file__).parents[1]
SPEC = EngineSpec(96, 128, 64)
START = '''
import resource, sys
import numpy as np
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.engines.selection import open_backend
config = MatcherConfig(image_height=96, image_width=128, max_keypoints=64, backend='onnxruntime')
frames = FrameMatcher(open_backend(config).backend, config)
for number in range(2):
    found = frames.process(np.random.default_rng(number).integers(0, 256, (96, 128), np.uint8), float(number))
peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print('started', 'spox' in sys.modules, 'onnx' in sys.modules, peak_mib, len(found))
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', str(tmp_path))
    return tmp_path / 'graphs'


@pytest.fixture
def written_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are written in a process of their own, as users have it."""
    monkeypatch.setattr(cache, 'called_elsewhere', called_elsewhere)


@pytest.fixture
def without_spox(tmp_path: Path) -> str:
    """A folder for PYTHONPATH in which spox and onnx cannot be imported, in child processes neither."""
    missing = tmp_path / 'missing'
    missing.mkdir()
    for name in ('spox', 'onnx'):
        (missing / f'{name}.py').write_text(f'raise ImportError("{name} is not here")')
    return str(missing)


def start(*path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, '-c', START], env=environment(ROOT, *path), capture_output=True, text=True, timeout=60)


def test_no_start_imports_spox_or_onnx_and_the_second_needs_neither(folder: Path, without_spox: str) -> None:
    refused = start(without_spox).stderr
    assert 'EngineError: a first start with new settings writes graphs, and cannot (' in refused, 'which needs them'
    assert 'is not here): pip install' in refused
    first = start()
    assert first.stdout.startswith('started False False'), first.stderr
    second = start(without_spox)
    assert second.stdout.startswith('started False False'), second.stderr
    assert second.stdout.split()[-1] == first.stdout.split()[-1]
    assert float(first.stdout.split()[-2]) < float(second.stdout.split()[-2]) + 50, 'MiB: written in this process they take 110'
    assert [path.suffix for path in folder.iterdir()] == ['.zip'], 'one file, and nothing temporary'


@pytest.mark.usefixtures('written_elsewhere')
def test_what_is_read_is_what_was_written(folder: Path) -> None:
    pair = random_pair(**TINY)
    early_exits = EarlyExits.of(pair.layers)
    first = cache.written_graphs(SPEC, pair, early_exits)
    assert set(first) == {'extractor', *early_exits.graphs()}
    assert cache.write_graphs(SPEC, pair, early_exits) == first, 'as in the process of the tests'
    assert cache.written_graphs(SPEC, pair, early_exits) == first
    assert len(list(folder.iterdir())) == 1
    image = np.random.default_rng(1).integers(0, 256, (96, 128), np.uint8)
    features = [OnnxRuntimeBackend(SPEC, pair).extract(image) for _ in range(2)]
    assert np.array_equal(features[0].descriptors, features[1].descriptors)


def test_everything_that_graphs_are_made_from_is_in_the_name(folder: Path) -> None:
    pair, other = random_pair(**TINY), random_pair(seed=1, **TINY)
    early_exits = EarlyExits.of(pair.layers)
    cache.written_graphs(SPEC, pair, early_exits)
    cache.written_graphs(EngineSpec(96, 128, 32), pair, early_exits)
    cache.written_graphs(EngineSpec(96, 128, 64, 'fp16'), pair, early_exits)
    cache.written_graphs(SPEC, pair, EarlyExits((pair.layers,)))
    cache.written_graphs(SPEC, other, early_exits)
    assert len(list(folder.iterdir())) == 5


WRITTEN_BY_ANOTHER_VERSION = """
from support.random_pairs import TINY, random_pair
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.networks import graph_cache
pair = random_pair(**TINY)
graph_cache.written_graphs(EngineSpec(96, 128, 64), pair, EarlyExits.of(pair.layers))
"""


@pytest.mark.parametrize(('changed', 'files'), [('networks/lightglue.py', 2), ('ros/matcher/node.py', 1)])
def test_graphs_that_other_code_has_written_are_written_anew(folder: Path, tmp_path: Path, changed: str, files: int) -> None:
    pair = random_pair(**TINY)
    cache.written_graphs(SPEC, pair, EarlyExits.of(pair.layers))
    shutil.copytree(PACKAGE, tmp_path / 'update' / PACKAGE.name, ignore=shutil.ignore_patterns('data', '__pycache__'))
    with (tmp_path / 'update' / PACKAGE.name / changed).open('a') as file:
        file.write('\nCHANGED = True\n')
    subprocess.run([sys.executable, '-c', WRITTEN_BY_ANOTHER_VERSION], check=True, cwd=tmp_path, timeout=60,
                   env=environment(tmp_path / 'update', ROOT / 'test', ROOT))  # of training, its helpers
    assert len(list(folder.iterdir())) == files


def test_each_calibration_has_graphs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(function: Any, spec: EngineSpec, pair: Any, early_exits: EarlyExits, calibration: Any) -> dict[str, bytes]:
        return dict.fromkeys(('extractor', *early_exits.graphs()), calibration.sha256.encode())

    monkeypatch.setattr(cache, 'called_elsewhere', write)
    pair = random_pair(**TINY)
    for sha256 in ('one', 'other', 'one'):
        found = cache.written_graphs(SPEC, pair, EarlyExits.of(pair.layers), SimpleNamespace(sha256=sha256))
        assert set(found.values()) == {sha256.encode()}


def test_the_code_that_writes_graphs_is_all_in_the_hash() -> None:
    """Modules of the package that those hashed import, but for those that hold no figure of a graph."""
    hashed = {str(path.relative_to(PACKAGE)) for path in cache.CODE}
    used = set()
    for path in cache.CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                home = path.parents[node.level - 1]
                names = [node.module] if node.module else [alias.name for alias in node.names]
                used |= {str(home.joinpath(*name.split('.')).relative_to(PACKAGE)) + '.py' for name in names}
    assert used - hashed <= {'core/config.py', 'core/types.py', 'utils/errors.py', 'utils/files.py', 'utils/processes.py',
                             'networks/weights.py', 'networks/models.py', 'networks/weight_store.py'}


@pytest.mark.parametrize('damage', [
    lambda data: data[:len(data) // 2], lambda data: b'', lambda data: data.replace(b'Conv', b'Covn')])
def test_a_damaged_file_is_written_anew(folder: Path, damage: object) -> None:
    pair = random_pair(**TINY)
    whole = cache.written_graphs(SPEC, pair, EarlyExits.of(pair.layers))
    file = next(folder.iterdir())
    before = file.read_bytes()
    file.write_bytes(damage(before))
    assert cache.written_graphs(SPEC, pair, EarlyExits.of(pair.layers)) == whole
    assert len(file.read_bytes()) == len(before)


def test_only_the_last_used_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, 'KEEP', 2)
    pair = random_pair(**TINY)
    early_exits = EarlyExits.of(pair.layers)
    for number in range(cache.KEEP):
        cache.written_graphs(EngineSpec(96, 128, 16 + number), pair, early_exits)
    oldest, *_ = files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for age, path in enumerate(files):
        os.utime(path, (1000 + age, 1000 + age))
    cache.written_graphs(EngineSpec(96, 128, 16), pair, early_exits)  # used, so it is not the oldest any more
    cache.written_graphs(EngineSpec(96, 128, 99), pair, early_exits)
    assert len(list(folder.iterdir())) == cache.KEEP
    assert oldest.exists()
    assert not files[1].exists()


@pytest.mark.usefixtures('written_elsewhere')
def test_a_cache_that_cannot_be_written_is_done_without_and_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                  caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / 'file').touch()
    monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', str(tmp_path / 'file' / 'cache'))
    pair = random_pair(**TINY)
    assert cache.written_graphs(SPEC, pair, EarlyExits.of(pair.layers))
    warning, = (record.getMessage() for record in caplog.records if record.levelname == 'WARNING')
    assert warning.startswith(f'{tmp_path}/file/cache/graphs cannot be written (Not a directory): each start writes ')
    assert 'set LIGHTGLUE_TRT_CACHE to another folder' in warning
