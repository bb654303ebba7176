"""The house of the README: imports go one way only, and heavy or optional things are imported where they may be."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / 'lightglue_trt_ros'
ROS = {'rclpy', 'sensor_msgs', 'std_msgs', 'std_srvs', 'diagnostic_msgs', 'geometry_msgs', 'rcl_interfaces', 'lifecycle_msgs',
       'nav_msgs', 'tf2_msgs', 'builtin_interfaces', 'launch', 'launch_ros', 'ament_index_python'}
ONLY_IN = {'cv_bridge': {'images'}, 'rosbags': {'recordings'}, 'onnxruntime': {'backends'}, 'spox': {'graphs'},
           'onnx': {'graphs', 'engines', 'quantization'}, 'pycuda': {'backends'}, 'cuda': {'backends'}, 'tensorrt': {'engines'},
           'safetensors': {'weights', 'calibration'},
           'matplotlib': {'reports', 'quantization', 'demo', 'benchmarks'}, 'jinja2': {'reports', 'fleet'}, 'skimage': {'demo'},
           'scipy': {'recordings', 'evaluation', 'benchmarks'}, 'dask': {'fleet'}, 'distributed': {'fleet'}, 'pyarrow': {'fleet'},
           'fsspec': {'fleet'}, 'torch': set(), 'tinygrad': set()}


def house() -> list[tuple[str, bool]]:
    """The rooms in the README's order, and whether ROS may be imported there."""
    text = (ROOT / 'README.md').read_text()
    block = re.search(r'## Architecture.*?```\n(.*?)```', text, re.S).group(1)
    rooms = re.finditer(r'^([R ]) ([a-z_0-9]+(?:\.py|/))', block, re.M)
    return [(match[2].rstrip('/').removesuffix('.py'), match[1] == 'R') for match in rooms]


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix('.py')


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


FILES = sorted(path for path in PACKAGE.rglob('*.py') if path.name != '__init__.py' or path.parent != PACKAGE)


def test_the_readme_names_every_room():
    assert [name for name, _ in house()] == list(dict.fromkeys(name for name, _ in house()))
    assert {name for name, _ in house()} == {room(path) for path in FILES}


@pytest.mark.parametrize('path', FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way_and_stay_where_they_may(path):
    order = {name: number for number, (name, _) in enumerate(house())}
    ros = {name for name, allowed in house() if allowed}
    for name in imports(path):
        top, *rest = name.split('.')
        if top == 'lightglue_trt_ros' and rest:
            assert order[rest[0]] <= order[room(path)], f'{name} stands below {room(path)} in the house'
        assert top not in ROS or room(path) in ros, f'{name}: no ROS here'
        assert room(path) in ONLY_IN.get(top, {room(path)}), f'{name} does not belong here'


MODULES = [path for path in FILES if path.name != '__init__.py' and path.parent.name != 'cli']  # there, files are named as commands


def test_no_two_modules_have_one_name():
    assert not [name for name, count in Counter(path.stem for path in MODULES).items() if count > 1]


def test_no_two_public_classes_have_one_name():
    names = Counter(node.name for path in MODULES for node in ast.walk(ast.parse(path.read_text()))
                    if isinstance(node, ast.ClassDef) and not node.name.startswith('_'))
    assert not [name for name, count in names.items() if count > 1]
