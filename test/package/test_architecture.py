"""The rooms: imports go downwards, heavy or optional libraries have one place each, and what runs on a robot stays small."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support.ros_modules import ROS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / 'lightglue_trt_ros'
ROOMS = ('utils', 'core', 'networks', 'backends', 'engines', 'datasets', 'odometry', 'ros', 'evaluation', 'quantization', 'cli')
RUNTIME = ('core', 'backends', 'ros/matcher')  # what runs for each frame on a robot, with what it shares in ros/
SHARED = ('parameters', 'clouds', 'camera_info', 'executor', 'diagnostics', 'qos')
RUNTIME_LINES = 8190  # 5,300 of them without depth cameras, keyframes, lenses, static structure and the GPU's own kernels
ONLY_IN = {'cv_bridge': ('core/images',), 'rosbags': ('datasets',), 'onnxruntime': ('backends/onnxruntime',), 'spox': ('networks',),
           'onnx': ('networks', 'engines', 'quantization'), 'pycuda': ('backends/cuda',), 'cuda': ('backends/cuda',),
           'tensorrt': ('engines/tensorrt_api',), 'safetensors': ('networks',),
           'matplotlib': ('evaluation/report', 'evaluation/fleet', 'quantization'),
           'jinja2': ('evaluation/report', 'evaluation/fleet'),
           'skimage': ('datasets/flight',), 'scipy': ('datasets', 'odometry', 'evaluation'), 'rich': ('utils',),
           **dict.fromkeys(('dask', 'distributed', 'pyarrow', 'fsspec'), ('evaluation/fleet',)),
           **dict.fromkeys(ROS, ('ros',)), 'torch': (), 'tinygrad': ()}
NOT_ON_A_ROBOT = ('lightglue_trt_ros.datasets', 'lightglue_trt_ros.odometry', 'lightglue_trt_ros.evaluation',
                  'lightglue_trt_ros.quantization', 'lightglue_trt_ros.engines.build', 'lightglue_trt_ros.engines.parity',
                  'lightglue_trt_ros.engines.precision_check',
                  'matplotlib', 'jinja2', 'rosbags', 'scipy', 'onnx', 'spox')
OF_CORE = {*sys.stdlib_module_names, 'lightglue_trt_ros', 'numpy', 'cv2', 'cv_bridge'}  # the last where ROS is installed
FILES = sorted(path for path in PACKAGE.rglob('*.py') if path.parent != PACKAGE)


def imports(path: Path) -> set[str]:
    """Absolute names of all that a file imports, also inside functions."""
    parts = ['lightglue_trt_ros', *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = '.'.join(parts[:len(parts) - node.level + 1] + ([node.module] if node.module else []))
            found |= {base} if node.module else {f'{base}.{alias.name}' for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def test_there_are_twelve_names_at_the_top() -> None:
    assert {path.name for path in PACKAGE.iterdir() if path.name != '__pycache__'} == {'__init__.py', *ROOMS}


@pytest.mark.parametrize('path', FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downwards_and_libraries_have_their_places(path: Path) -> None:
    place = path.relative_to(PACKAGE).with_suffix('').as_posix()
    room = place.partition('/')[0]
    for name in imports(path):
        top, *rest = name.split('.')
        if top == 'lightglue_trt_ros' and rest and rest[0] in ROOMS:
            assert ROOMS.index(rest[0]) <= ROOMS.index(room), f'{room}/ stands below {rest[0]}/'
            assert rest[0] != 'cli' or room != 'cli', 'no command imports another'
        places = ONLY_IN.get(top)
        assert places is None or any(f'{place}/'.startswith(f'{allowed}/') for allowed in places), f'{name} does not belong here'
        assert top not in ('benchmarks', 'training'), 'these folders are not installed'
        assert room != 'core' or top in OF_CORE, f'{name}: core/ has NumPy and OpenCV'


@pytest.mark.parametrize('path', [*FILES, *(
    path for folder in ('benchmarks', 'training') for path in sorted((ROOT / folder).rglob('*.py')))],
    ids=lambda path: str(path.relative_to(ROOT)))
def test_names_say_what_they_hold(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.arg):
            assert node.arg not in ('say', 'tell', 'note'), f'line {node.lineno}: use logging, or name the event'
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ''
        assert name not in ('everything', 'beside', 'there', 'met', 'told'), f'line {getattr(node, "lineno", 0)}: {name} of what?'


def test_what_runs_on_a_robot_is_small() -> None:
    files = [*(path for room in RUNTIME for path in (PACKAGE / room).rglob('*.py')),
             *(PACKAGE / 'ros' / f'{name}.py' for name in SHARED)]
    lines = sum(len(path.read_text().splitlines()) for path in files)
    assert lines <= RUNTIME_LINES


@pytest.mark.ros
def test_the_matcher_node_loads_what_a_robot_needs_alone() -> None:
    script = ('import sys\n'
              'import lightglue_trt_ros.ros.matcher.node\n'
              'print(*sys.modules, sep="\\n")')
    loaded = subprocess.run([sys.executable, '-c', script], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert not [name for name in loaded if f'{name}.'.startswith(tuple(f'{name}.' for name in NOT_ON_A_ROBOT))]


def test_public_names_are_there_and_an_import_of_the_package_is_light() -> None:
    import lightglue_trt_ros
    for name in lightglue_trt_ros.__all__:
        assert getattr(lightglue_trt_ros, name).__name__ == name
    assert not hasattr(lightglue_trt_ros, 'nothing_of_that_name')
    script = 'import sys, lightglue_trt_ros; print(*sys.modules, sep="\\n")'
    loaded = subprocess.run([sys.executable, '-c', script], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert not {'numpy', 'cv2', 'rclpy', 'onnxruntime'}.intersection(loaded)
