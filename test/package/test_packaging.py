"""What package.xml, setup.py and the files say of each other, and what colcon makes of them."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import yaml

import lightglue_trt_ros

REPOSITORY = Path(__file__).resolve().parents[2]
ROBOT, WORKBENCH = PACKAGES = REPOSITORY / 'lightglue_trt_ros', REPOSITORY / 'lightglue_trt_eval'
COMMANDS = {ROBOT: {'matcher', 'odometry', 'play_bag', 'build_engines', 'export_onnx', 'fetch_weights'},
            WORKBENCH: {'evaluate_bag', 'evaluate_fleet', 'quantize', 'benchmark', 'check_board', 'demo', 'make_bag', 'make_mask'}}
ROSDEP_KEYS = {'cv2': 'python3-opencv', 'PIL': 'python3-pil',
               **{name: f'python3-{name}'
                  for name in ('hypothesis', 'jinja2', 'jsonschema', 'matplotlib', 'numpy', 'pytest', 'rich', 'scipy', 'yaml')}}
PIP_NAMES = {'skimage': 'scikit-image'}
OF_CI = {'torch', 'transformers', 'ml_dtypes', 'tensorrt_rtx_libs'}  # tests skip without them, and say why
OF_THE_MACHINE = {'tensorrt', 'pycuda', 'cuda'}  # they come with JetPack or CUDA


@pytest.fixture(scope='module')
def setup_arguments() -> dict[str, Any]:
    """What setup.py hands to setuptools, which refuses to be imported where another test's library has brought in distutils."""
    script = ('import json, runpy, setuptools\n'
              'setuptools.setup = lambda **arguments: print(json.dumps(arguments))\n'
              'runpy.run_path("setup.py")')
    done = subprocess.run([sys.executable, '-c', script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    if "No module named 'setuptools'" in done.stderr:
        pytest.skip('setuptools is not installed')
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope='module')
def manifest() -> ElementTree.Element:
    return ElementTree.parse(REPOSITORY / 'package.xml').getroot()


def imported_modules(path: Path) -> set[str]:
    """Top-level names of the foreign modules that a file imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split('.')[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split('.')[0])
    return names - sys.stdlib_module_names - {package.name for package in PACKAGES}


def test_one_name_licence_and_maintainer(manifest: ElementTree.Element, setup_arguments: dict[str, Any]) -> None:
    for key in ('name', 'license', 'maintainer'):
        assert manifest.findtext(key) == setup_arguments[key]
    assert [element.get('email') for element in manifest.iter('maintainer')] == [setup_arguments['maintainer_email']]
    assert manifest.findtext('export/build_type') == 'ament_python'


def test_all_files_have_the_version_of_the_package(manifest: ElementTree.Element, setup_arguments: dict[str, Any]) -> None:
    version = lightglue_trt_ros.__version__
    citation = yaml.safe_load((REPOSITORY / 'CITATION.cff').read_text())
    assert (setup_arguments['version'], manifest.findtext('version'), citation['version']) == (version,) * 3
    assert re.search(rf'^## {re.escape(version)}(?: |$)', (REPOSITORY / 'CHANGELOG.md').read_text(), re.MULTILINE)


def test_every_import_is_a_declared_dependency(manifest: ElementTree.Element, setup_arguments: dict[str, Any]) -> None:
    declared = {element.text for element in manifest if element.tag in ('depend', 'exec_depend')}
    extras = setup_arguments['extras_require']
    from_pip = {re.split(r'[<>=]', line)[0] for line in extras['run'] + extras['demo'] + extras['fleet']}
    for package in PACKAGES:
        assert not undeclared(package, declared, from_pip), 'neither in package.xml nor in the extras run, demo, fleet of setup.py'


def test_every_import_of_the_tests_is_declared_too(manifest: ElementTree.Element, setup_arguments: dict[str, Any]) -> None:
    declared = {element.text for element in manifest if element.tag in ('depend', 'exec_depend', 'test_depend')}
    own = {path.stem for path in (REPOSITORY / 'test').rglob('*.py')} | {'support', 'training', 'benchmarks', 'tools'} | OF_CI
    extras = setup_arguments['extras_require']
    from_pip = {re.split(r'[<>=]', line)[0] for line in extras['run'] + extras['demo'] + extras['fleet']}
    assert undeclared(REPOSITORY / 'test', declared, from_pip).keys() <= own


def undeclared(folder: Path, declared: set[str | None], from_pip: set[str]) -> dict[str, str]:
    """What the files of a folder import, and one of those files; what has a rosdep key has to be declared by that."""
    return {module: path.name for path in folder.rglob('*.py') for module in imported_modules(path) - OF_THE_MACHINE
            if ROSDEP_KEYS.get(module, module) not in declared
            and (module in ROSDEP_KEYS or PIP_NAMES.get(module, module) not in from_pip)}


@pytest.mark.parametrize('release', ['humble', 'jazzy', 'kilted'])
def test_the_pip_line_installs_under_the_constraints_of_each_release(release: str, setup_arguments: dict[str, Any]) -> None:
    text = (REPOSITORY / 'constraints' / f'{release}.txt').read_text()
    if release == 'kilted':
        assert '-c jazzy.txt' in text
        text = (REPOSITORY / 'constraints' / 'jazzy.txt').read_text()
    pinned = dict(line.split('==') for line in text.splitlines() if '==' in line)
    assert pinned['numpy'] < '2'
    assert set(setup_arguments['extras_require']['run']) <= pinned.keys()
    line = next(line for line in (REPOSITORY / 'README.md').read_text().splitlines() if line.startswith('pip install -c'))
    assert 'constraints/$ROS_DISTRO.txt' in line
    assert set(setup_arguments['extras_require']['run']) == set(line.partition('#')[0].split()[4:])


def test_every_command_has_its_file_and_every_file_its_command(setup_arguments: dict[str, Any]) -> None:
    scripts = dict(line.split(' = ') for line in setup_arguments['entry_points']['console_scripts'])
    assert scripts == {name: f'{package.name}.cli.{name}:main' for package, names in COMMANDS.items() for name in names}
    for package, names in COMMANDS.items():
        assert {path.stem for path in (package / 'cli').glob('[a-z]*.py')} == names


def test_every_folder_of_code_is_installed(setup_arguments: dict[str, Any]) -> None:
    folders = {'.'.join(path.parent.relative_to(REPOSITORY).parts) for package in PACKAGES for path in package.rglob('*.py')}
    assert folders == set(setup_arguments['packages'])


def test_every_file_that_is_no_code_is_installed(setup_arguments: dict[str, Any]) -> None:
    for package in PACKAGES:
        installed = {path for pattern in setup_arguments['package_data'][package.name] for path in package.glob(pattern)}
        assert installed == {path for path in package.rglob('*') if path.is_file() and path.suffix not in ('.py', '.pyc')}


def test_the_fastdds_profile_holds_large_images_and_announces_each_second() -> None:
    dds = {'': 'http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles'}
    tree = ElementTree.parse(REPOSITORY / 'config' / 'fastdds_large_images.xml')
    types = {element.findtext('transport_id', '', dds): element.findtext('type', '', dds)
             for element in tree.iterfind('.//transport_descriptor', dds)}
    used = [types[element.text or ''] for element in tree.iterfind('.//userTransports/transport_id', dds)]
    assert sorted(used) == ['SHM', 'UDPv4']
    assert int(tree.findtext('.//segment_size', '', dds)) >= 4 * 1920 * 1080 * 3  # Full HD in colour, at a queue of four
    assert tree.findtext('.//leaseAnnouncement/sec', '', dds) == '1'  # a node that missed an answer finds the other after a second


@pytest.fixture(scope='module')
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The install space that colcon makes of this repository."""
    colcon = shutil.which('colcon', path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get('PATH', '')]))
    if colcon is None:
        pytest.skip('colcon is not installed')
    folder = tmp_path_factory.mktemp('colcon')
    environment = {key: value for key, value in os.environ.items() if not key.startswith('COLCON')}

    def run(*arguments: str) -> str:
        command = [colcon, '--log-base', str(folder / 'log'), *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run('list', '--paths', str(REPOSITORY)).split() == ['lightglue_trt_ros', str(REPOSITORY), '(ros.ament_python)']
    run('build', '--paths', str(REPOSITORY), '--build-base', str(folder / 'build'), '--install-base', str(folder / 'install'))
    return folder / 'install'


@pytest.mark.slow
def test_colcon_installs_commands_launch_and_config(installed: Path) -> None:
    prefix = installed / 'lightglue_trt_ros'
    share = prefix / 'share' / 'lightglue_trt_ros'
    executables = {path.name for path in (prefix / 'lib' / 'lightglue_trt_ros').iterdir() if os.access(path, os.X_OK)}
    assert executables == set().union(*COMMANDS.values())
    assert {path.name for path in (share / 'launch').iterdir()} >= {'matcher.launch.py', 'evaluate.launch.py'}
    assert {path.name for path in (share / 'config').iterdir()} == {
        'matcher.yaml', 'fastdds_large_images.xml', 'matcher.rviz', 'matcher_points.rviz', 'odometry.rviz', 'foxglove.json'}
    assert (share / 'examples' / 'loop_closure.py').is_file()
    assert (prefix / 'share/ament_index/resource_index/packages/lightglue_trt_ros').is_file()


@pytest.mark.slow
def test_an_installed_command_runs_with_the_shipped_weights(installed: Path) -> None:
    command = installed / 'lightglue_trt_ros' / 'lib' / 'lightglue_trt_ros' / 'fetch_weights'
    script = f'. "{installed}/local_setup.sh" && exec "{command}" ours'
    environment = {key: value for key, value in os.environ.items() if key != 'PYTHONPATH'}
    done = subprocess.run(['sh', '-c', script], cwd=installed.parent, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    shipped = next(installed.rglob('data/ours/matcher.safetensors'))
    assert str(shipped.parent) in done.stdout
