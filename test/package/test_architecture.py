"""The packages and rooms: imports go downwards, heavy libraries have one place each, and what runs on a robot stays small."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.ros_modules import ROS

from tools import diagrams

ROOT = Path(__file__).parents[2]
ROBOT, WORKBENCH = ROOT / 'lightglue_trt_ros', ROOT / 'lightglue_trt_eval'
ROOMS = {  # rooms and files at the top, from below
    ROBOT: ('utils', 'core', 'networks', 'backends', 'engines', 'datasets', 'odometry', 'ros', 'cli'),
    WORKBENCH: ('replay', 'images', 'baselines', 'options', 'predict', 'score', 'inputs', 'live', 'evaluate', 'report',
                'fleet', 'quantization', 'demo', 'times', 'cli')}
RUNTIME = ('core', 'backends', 'ros/matcher')  # what runs for each frame on a robot, with what it shares in ros/
SHARED = ('parameters', 'clouds', 'camera_info', 'executor', 'diagnostics', 'qos', 'fading_log', 'frame_statistics')
RUNTIME_LINES = 8716  # 5,300 of them without depth cameras, keyframes, lenses, static structure and the GPU's own kernels
PICTURES, CLUSTER = ('matplotlib', 'jinja2'), ('dask', 'distributed', 'pyarrow', 'fsspec')
OF_ROBOT = ('cv_bridge', 'rosbags', 'onnxruntime', 'spox', 'pycuda', 'cuda', 'tensorrt', 'safetensors', 'rich')
ONLY_IN = {
    ROBOT: {'cv_bridge': ('core/images',), 'rosbags': ('datasets',), 'onnxruntime': ('backends/onnxruntime',),
            'spox': ('networks',), 'onnx': ('networks', 'engines'), 'pycuda': ('backends/cuda',), 'cuda': ('backends/cuda',),
            'tensorrt': ('engines/tensorrt_api',), 'safetensors': ('networks',), 'rich': ('utils',), **dict.fromkeys(ROS, ('ros',)),
            **dict.fromkeys((*PICTURES, *CLUSTER, 'skimage', 'scipy', 'pandas'), ())},
    WORKBENCH: {'onnx': ('quantization', 'times/graph_costs'), 'matplotlib': ('report', 'fleet', 'quantization'),
                'jinja2': ('report', 'fleet'), 'skimage': ('demo/flight',), 'scipy': ('score',),
                **dict.fromkeys(CLUSTER, ('fleet',)),
                **dict.fromkeys(ROS, ('replay', 'times/nodes', 'times/node_costs')),
                **dict.fromkeys(OF_ROBOT, ())}}
NOWHERE = ('torch', 'tinygrad', 'benchmarks', 'training')  # the last two are not installed
NOT_ON_A_ROBOT = ('lightglue_trt_eval', 'lightglue_trt_ros.datasets', 'lightglue_trt_ros.odometry',
                  *(f'lightglue_trt_ros.engines.{name}' for name in ('build', 'parity', 'precision_check')),
                  'matplotlib', 'jinja2', 'rosbags', 'scipy', 'onnx', 'spox')
OF_CORE = {*sys.stdlib_module_names, 'lightglue_trt_ros', 'numpy', 'cv2', 'cv_bridge'}  # the last where ROS is installed
FILES = {package: sorted(path for path in package.rglob('*.py') if path != package / '__init__.py') for package in ROOMS}
EVERY_FILE = [path for files in FILES.values() for path in files]


def imports(path: Path) -> set[str]:
    """Absolute names of all that a file imports, also inside functions."""
    parts = path.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = '.'.join((*parts[:len(parts) - node.level + 1], *([node.module] if node.module else [])))
            found |= {base} if node.module else {f'{base}.{alias.name}' for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def test_each_name_at_the_top_of_a_package_is_a_room_or_a_step() -> None:
    for package, rooms in ROOMS.items():
        assert {path.stem for path in package.iterdir() if path.name != '__pycache__'} == {'__init__', *rooms}


@pytest.mark.parametrize(('package', 'path'), [(package, path) for package, files in FILES.items() for path in files],
                         ids=lambda value: str(value.relative_to(ROOT)))
def test_imports_go_downwards_and_libraries_have_their_places(package: Path, path: Path) -> None:
    place = path.relative_to(package).with_suffix('').as_posix()
    room, rooms = place.partition('/')[0], ROOMS[package]
    for name in imports(path):
        top, _, inner = name.partition('.')
        below = inner.partition('.')[0]
        if top == package.name and below in rooms:
            assert rooms.index(below) <= rooms.index(room), f'{room}/ stands below {below}/'
            assert below != 'cli' or room != 'cli', 'no command imports another'
        places = ONLY_IN[package].get(top)
        assert places is None or any(f'{place}/'.startswith(f'{allowed}/') for allowed in places), f'{name} does not belong here'
        assert top not in NOWHERE
        assert package != ROBOT or room != 'core' or top in OF_CORE, f'{name}: core/ has NumPy and OpenCV'


@pytest.mark.parametrize(('package', 'rows'), [(ROBOT, diagrams.ROBOT_ROWS), (WORKBENCH, diagrams.WORKBENCH_ROWS)])
def test_drawing_has_each_folder_above_what_it_imports(package: Path, rows: tuple[tuple[str, ...], ...]) -> None:
    row_of = {room: number for number, rooms in enumerate(rows) for room in rooms}
    assert row_of.keys() >= {path.name for path in package.iterdir() if path.is_dir() and path.name != '__pycache__'}
    for path in FILES[package]:
        room = path.relative_to(package).parts[0].removesuffix('.py')
        for top, _, inner in (name.partition('.') for name in imports(path)):
            below = inner.partition('.')[0]
            if top == package.name and room in row_of and below in row_of and below != room:
                assert row_of[below] > row_of[room], f'{room} imports {below}'


def test_the_robot_imports_nothing_of_the_workbench() -> None:
    for path in [ROBOT / '__init__.py', *FILES[ROBOT]]:
        assert not [name for name in imports(path) if name.partition('.')[0] == WORKBENCH.name], path
    named = {path.relative_to(ROBOT).as_posix() for path in FILES[ROBOT] for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.Constant) and re.match(rf'{WORKBENCH.name}\b', str(node.value))}
    assert named == {'cli/build_engines.py', 'utils/commands.py'}, 'found by name at the call, and its log'


@pytest.mark.parametrize('path', [*EVERY_FILE, *(
    path for folder in ('benchmarks', 'training') for path in sorted((ROOT / folder).rglob('*.py')))],
    ids=lambda path: str(path.relative_to(ROOT)))
def test_names_say_what_they_hold(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.arg):
            assert node.arg not in ('say', 'tell', 'note'), f'line {node.lineno}: use logging, or name the event'
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ''
        assert name not in ('everything', 'beside', 'there', 'met', 'told'), f'line {getattr(node, "lineno", 0)}: {name} of what?'


def test_names_of_tests_have_at_most_70_letters() -> None:
    names = [(path.name, name) for path in sorted((ROOT / 'test').rglob('*.py'))
             for name in re.findall(r'^ *(?:async )?def (test_\w+)', path.read_text(), re.MULTILINE)]
    assert ('test_architecture.py', 'test_names_of_tests_have_at_most_70_letters') in names
    assert not [(file, name) for file, name in names if len(name) > 70], 'a name says subject, condition, result'


def test_what_runs_on_a_robot_is_small() -> None:
    files = [*(path for room in RUNTIME for path in (ROBOT / room).rglob('*.py')),
             *(ROBOT / 'ros' / f'{name}.py' for name in SHARED)]
    lines = sum(len(path.read_text().splitlines()) for path in files)
    assert lines <= RUNTIME_LINES


@pytest.mark.ros
def test_the_matcher_node_loads_what_a_robot_needs_alone() -> None:
    script = ('import sys\n'
              'import lightglue_trt_ros.ros.matcher.node\n'
              'print(*sys.modules, sep="\\n")')
    loaded = subprocess.run([sys.executable, '-c', script], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert not [name for name in loaded if f'{name}.'.startswith(tuple(f'{name}.' for name in NOT_ON_A_ROBOT))]


@pytest.mark.parametrize('package', [ROBOT.name, WORKBENCH.name])
def test_public_names_are_there_and_an_import_of_the_package_is_light(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name).__name__ == name
    assert not hasattr(module, 'nothing_of_that_name')
    script = f'import sys, {package}; print(*sys.modules, sep="\\n")'
    loaded = subprocess.run([sys.executable, '-c', script], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert not {'numpy', 'cv2', 'rclpy', 'onnxruntime'}.intersection(loaded)


def test_no_two_classes_have_one_name() -> None:
    """Those of benchmarks/ count too: who searches for a name finds one class."""
    classes = [(node.name, path.relative_to(ROOT).as_posix())
               for path in [*EVERY_FILE, *sorted((ROOT / 'benchmarks').rglob('*.py'))]
               for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    named = Counter(name for name, _ in classes)
    assert not [each for each in classes if named[each[0]] > 1]
