"""The tests' own ROS environment, set before anything imports rclpy: no topic comes in from, or goes out to, a real robot."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partialmethod
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from support.domains import claim_domain

os.environ['LIGHTGLUE_TRT_KEPT_GRAPHS'] = '32'  # read at the import below
for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):  # of PyTorch and NumPy: waiting threads keep cores busy
    os.environ.setdefault(name, '1')
os.environ.setdefault('LIGHTGLUE_TRT_THREADS', '1')  # of ONNX Runtime: the networks here are small, and cores are for all workers

from lightglue_trt_ros.backends.onnxruntime import FLOAT8
from lightglue_trt_ros.networks import graph_cache
from lightglue_trt_ros.networks.weight_store import CACHE_VARIABLE, cache_dir
from lightglue_trt_ros.utils.errors import EngineError
from lightglue_trt_ros.utils.processes import FASTDDS_VARIABLES, fastdds_variable

REPOSITORY = Path(__file__).resolve().parents[1]
LOG_DIR = Path(tempfile.mkdtemp(prefix='lightglue_trt_ros-'))

WORKER = 'PYTEST_XDIST_WORKER' in os.environ
RUN = os.getppid() if WORKER else os.getpid()  # the same for all workers, each of which has a domain of its own
if not WORKER:  # workers share this cache: a graph is written once
    CACHE = Path(tempfile.mkdtemp(prefix='lightglue_trt_ros-cache-'))  # of the user's own, only fetched weights are used
    if (cache_dir() / 'weights').is_dir():
        (CACHE / 'weights').symlink_to(cache_dir() / 'weights')
    os.environ[CACHE_VARIABLE] = str(CACHE)
DOMAIN, CLAIM = claim_domain(RUN + 13 * int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:]))  # until this process ends
for name in (*FASTDDS_VARIABLES, 'COLUMNS'):  # pytest-xdist's workers have the terminal's width, the commands write to a pipe
    os.environ.pop(name, None)
os.environ.update({
    'ROS_DOMAIN_ID': str(DOMAIN),
    'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
    'ROS_LOG_DIR': str(LOG_DIR),
    fastdds_variable(): str(REPOSITORY / 'config' / 'fastdds_large_images.xml'),
})
if os.environ.get('ROS_DISTRO') == 'humble':  # it knows no discovery range; later releases warn about this one
    os.environ['ROS_LOCALHOST_ONLY'] = '1'

with contextlib.suppress(ImportError):
    from hypothesis import settings

    # no deadline: the first example pays for imports and for graphs that are built
    settings.register_profile('lightglue_trt_ros', deadline=None, max_examples=50)
    settings.load_profile('lightglue_trt_ros')


def pytest_report_header() -> str:
    versions = [f'Python {platform.python_version()}', f'ROS 2 {os.environ.get("ROS_DISTRO", "unnamed")}']
    for name in ('numpy', 'opencv-python-headless', 'onnxruntime', 'onnx', 'transformers', 'torch'):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f'{name} {metadata.version(name)}')
    return ', '.join(versions)


# folders and files; of others, single tests are marked
NETWORKS = ('networks', 'training', 'test_quantization', 'test_quantize', 'test_graph_costs')
UNTRACED = ('benchmarks', 'package', 'training')  # folders of tests that cover nothing of the package that others do not
LONGEST = (  # a file is one worker's: those that take longest come first, so that no worker is alone at the end
    'test_build_engines', 'test_training', 'test_evaluate_fleet', 'test_commands_with_nodes', 'test_play_bag', 'test_evaluate_bag',
    'test_shared_networks', 'test_report', 'test_executables', 'test_real_images', 'test_rtx', 'test_quantize', 'test_signals',
    'test_evaluate_live', 'test_graphs', 'test_without_ros', 'test_stereo_accuracy', 'test_static_structure_live',
    'test_failing_callbacks', 'test_depth_node')
CRASHED: set[str] = set()


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark by folder, put long files first, and leave out what this machine cannot run.

    Coverage is not traced where the same lines are reached elsewhere.

    What emulates FP8 is left out where ONNX Runtime cannot: the last one for Humble's NumPy is 1.12.

    What speaks over DDS is tried once more, and the summary says so: processes find each other within no bound of time, so on a
    busy machine a first message may come before its reader.
    """
    for item in items:
        if {item.path.parent.name, item.path.stem} & {*NETWORKS}:
            item.add_marker(pytest.mark.networks)
        if hasattr(item.module, 'rclpy'):
            item.add_marker(pytest.mark.ros)
        if item.path.parent.name in UNTRACED or getattr(item.obj, 'is_hypothesis_test', False):
            item.add_marker(pytest.mark.no_cover)  # tracing takes most of their time, and up to Python 3.11 four times as much
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))
    with contextlib.suppress(metadata.PackageNotFoundError):
        metadata.version('pytest-rerunfailures')
        for item in items:
            if hasattr(item.module, 'rclpy'):
                item.add_marker(pytest.mark.flaky(reruns=1))
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version('onnxruntime')
        if tuple(map(int, version.split('.')[:2])) < FLOAT8:
            skip = pytest.mark.skip(reason=f'ONNX Runtime {version} cannot emulate FP8: 1.18 or later can')
            for item in items:
                if item.get_closest_marker('float8'):
                    item.add_marker(skip)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which a robot need not have
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """A worker that ended or hung in a test that speaks over DDS: the next one tries it once more, and the summary says so."""
    if crashitem not in CRASHED and 'rclpy' in (REPOSITORY / crashitem.partition('::')[0]).read_text():
        CRASHED.add(crashitem)
        report.outcome = 'rerun'  # type: ignore[assignment]  # of pytest-rerunfailures


def pytest_collection_finish() -> None:
    """Thousands of tests and all their modules stay: the garbage collector need not look at them again and again."""
    gc.freeze()


def pytest_unconfigure() -> None:
    shutil.rmtree(LOG_DIR, ignore_errors=True)
    if not WORKER:
        shutil.rmtree(CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def signals_are_heard() -> None:
    """SIGINT, SIGTERM and SIGHUP have Python's handlers in each test, and so in the processes that it starts.

    A shell's background job ignores SIGINT, and so does a process in which a node's `main` has ended.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope='session')
def graphs_are_written_here() -> Iterator[None]:
    """Graphs are written in the tests' own process, which takes a third of the time, and spox infers the types of a node once.

    It does so when the node is made, and again, knowing the values of constants, when its outputs are asked for.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_cache, 'called_elsewhere', lambda function, *arguments: function(*arguments))
        if nodes := sys.modules.get('spox._node'):
            patch.setattr(nodes.Node, '__init__', partialmethod(nodes.Node.__init__, infer_types=False))
        yield


@pytest.fixture
def usage_error(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that runs a command's main on words that it refuses, and returns what it says."""
    def refused(main: Callable[[list[str]], int], *words: object) -> str:
        with pytest.raises(SystemExit) as usage:
            main([*map(str, words)])
        assert usage.value.code == 2
        return capfd.readouterr().err

    return refused


@pytest.fixture(scope='session')
def shared_data() -> Path:
    """The folder of real sequences: hololens, kitti_short_1, kitti_short_2, oxford_affine."""
    path = Path(os.environ.get('LIGHTGLUE_TRT_ROS_DATA', REPOSITORY.parent / 'shared' / 'data'))
    if not path.is_dir():
        pytest.skip(f'no real sequences: {path} does not exist (LIGHTGLUE_TRT_ROS_DATA names another folder)')
    return path


@pytest.fixture(scope='module')
def rtx() -> Any:
    """The real TensorRT-RTX, whose wheels build for a named compute capability on any x86-64 machine."""
    from lightglue_trt_ros.engines.tensorrt_api import open_tensorrt
    try:
        return open_tensorrt('rtx')
    except EngineError as error:
        pytest.skip(f'no real builds: {error}')


@pytest.fixture(scope='module')
def ros() -> Iterator[None]:
    """A context of rclpy for the module's tests."""
    import rclpy
    rclpy.init()
    yield
    rclpy.try_shutdown()


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """What ends with the test, before a context of rclpy of its own."""
    import rclpy
    rclpy.init()
    with contextlib.ExitStack() as ends:
        yield ends
    rclpy.try_shutdown()


@pytest.fixture
def peer(stack: contextlib.ExitStack) -> Any:
    """A participant for each test: a second try does not meet what Fast DDS kept of all the processes before it."""
    from support.ros_helpers import Peer
    peer = Peer()
    stack.callback(peer.close)
    return peer
