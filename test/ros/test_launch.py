"""The launch file: what it makes of its arguments, against stand-ins for launch, and against launch_ros where it is installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.utils.errors import ConfigError
from lightglue_trt_ros.utils.processes import FASTDDS_CHOICES

pytestmark = [pytest.mark.ros, pytest.mark.release]

REPOSITORY = Path(__file__).resolve().parents[2]
LAUNCH_FILE = REPOSITORY / 'launch' / 'matcher.launch.py'
PROFILE = str(REPOSITORY / 'config' / 'fastdds_large_images.xml')
DEFAULTS = {
    'image_topic': '/camera/image_raw', 'mask_topic': '', 'params_file': str(REPOSITORY / 'config' / 'matcher.yaml'),
    'namespace': '', 'cameras': '', 'log_level': 'info', 'autostart': '', 'backend': '', 'image_transport': '',
    'use_fastdds_profile': 'true', 'rviz': 'false', 'stereo': '', 'right_image_topic': '/camera_right/image_raw', 'depth': '',
    'depth_transport': '', 'max_wait_s': '', 'depth_topic': '/camera/depth/image_raw', 'rviz_frame': 'camera',
    'keyframes': ''}


class Recorded(SimpleNamespace):
    """Stands in for an action or a substitution: keeps what it was made of."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(arguments=arguments, **named)

    def perform(self, context: dict[str, str]) -> str:
        return context[self.arguments[0]]


class Context(dict[str, str]):
    """Stands in for a launch context."""

    @property
    def launch_configurations(self) -> dict[str, str]:
        return self


@pytest.fixture
def launch_file(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The launch file as a module, with stand-ins for what it imports and no Fast DDS settings around it."""
    def module(name: str, **attributes: Any) -> None:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules[name].__dict__.update(attributes)

    module('ament_index_python')
    module('ament_index_python.packages', get_package_share_directory=lambda name: str(REPOSITORY), PackageNotFoundError=KeyError)
    module('launch', LaunchDescription=Recorded)
    for name in ('DeclareLaunchArgument', 'IncludeLaunchDescription', 'LogInfo', 'OpaqueFunction', 'RegisterEventHandler',
                 'SetEnvironmentVariable', 'Shutdown'):
        monkeypatch.setattr(sys.modules['launch'], name, type(name, (Recorded,), {}), raising=False)
    sys.modules['launch'].DeclareLaunchArgument.name = property(lambda argument: argument.arguments[0])
    module('launch.actions', **vars(sys.modules['launch']))
    module('launch.event_handlers', OnProcessExit=Recorded)
    module('launch.launch_description_sources', PythonLaunchDescriptionSource=Recorded)
    module('launch.substitutions', LaunchConfiguration=Recorded)
    module('launch_ros')
    module('launch_ros.actions', LifecycleNode=type('LifecycleNode', (Recorded,), {}), Node=SimpleNamespace)
    for name in FASTDDS_CHOICES:
        monkeypatch.delenv(name, raising=False)
    return load()


def load(file: Path = LAUNCH_FILE) -> Any:
    spec = importlib.util.spec_from_file_location(file.name.replace('.', '_'), file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def actions(launch_file: Any, **arguments: str) -> tuple[dict[str, str], Any]:
    """Environment variables set, and the node started, for the given launch arguments."""
    *settings, node = launch_file.start_matcher(Context(DEFAULTS, **arguments))
    assert {type(action).__name__ for action in settings} <= {'SetEnvironmentVariable'}
    return dict(action.arguments for action in settings), node


def test_arguments_and_defaults(launch_file: Any) -> None:
    entities = launch_file.generate_launch_description().arguments[0]
    declared = {entity.arguments[0]: entity for entity in entities if type(entity).__name__ == 'DeclareLaunchArgument'}
    assert {name: argument.default_value for name, argument in declared.items()} == DEFAULTS
    assert all(argument.description for argument in declared.values())
    assert entities[-1].function is launch_file.start_matcher


def test_the_docs_name_every_argument() -> None:
    text = (REPOSITORY / 'docs' / 'interface.md').read_text()
    missing = [name for name in DEFAULTS if f'`{name}`' not in text and f'{name}:=' not in text]
    assert not missing, f'docs/interface.md does not name these arguments of {LAUNCH_FILE.name}: {", ".join(missing)}'


def test_the_backends_are_those_of_the_settings(launch_file: Any) -> None:
    entities = launch_file.generate_launch_description().arguments[0]
    (choices,) = (entity.choices for entity in entities if entity.arguments[:1] == ('backend',))
    assert set(choices) == {*MatcherConfig.__dataclass_fields__['backend'].metadata['choices'], ''}


def test_the_node(launch_file: Any) -> None:
    _, node = actions(launch_file, image_topic='/left/image_raw', right_image_topic='/right/image_raw', namespace='robot',
                      log_level='debug')
    assert (node.package, node.executable, node.name, node.namespace) == ('lightglue_trt_ros', 'matcher', 'matcher', 'robot')
    assert dict(node.remappings) == {
        'image': '/left/image_raw', 'image/compressed': '/left/image_raw/compressed',
        'right/image': '/right/image_raw', 'right/image/compressed': '/right/image_raw/compressed',
        'depth': '/camera/depth/image_raw', 'depth/compressedDepth': '/camera/depth/image_raw/compressedDepth'}
    levels = ('debug', 'rcl:=info', 'rclpy:=info', 'rmw_fastrtps_cpp:=info', 'rmw_cyclonedds_cpp:=info')
    assert node.ros_arguments == [word for level in levels for word in ('--log-level', level)]
    assert actions(launch_file)[1].ros_arguments == ['--log-level', 'info']
    assert dict(actions(launch_file, mask_topic='/people/mask')[1].remappings)['mask'] == '/people/mask'
    assert node.parameters == [DEFAULTS['params_file']]
    _, node = actions(launch_file, depth='true', depth_topic='/aligned', depth_transport='compressedDepth',
                      max_wait_s='1')
    assert dict(node.remappings)['depth'] == '/aligned'
    assert node.parameters[1] == {'depth': True, 'depth_transport': 'compressedDepth', 'max_wait_s': 1.0}


def test_each_camera_has_its_topic(launch_file: Any) -> None:
    with pytest.raises(ConfigError, match="cameras has 'rear-left': a name is part of topics"):
        actions(launch_file, cameras='front,rear-left', image_topic='/{camera}/image_raw')
    _, node = actions(launch_file, cameras='[front, rear]', image_topic='/{camera}/image_raw')
    assert node.parameters[1] == {'cameras': ['front', 'rear']}
    assert dict(node.remappings) == {
        'front/image': '/front/image_raw', 'front/image/compressed': '/front/image_raw/compressed',
        'rear/image': '/rear/image_raw', 'rear/image/compressed': '/rear/image_raw/compressed'}
    wanted = {**DEFAULTS, 'rviz': 'true', 'cameras': 'front,rear', 'image_topic': '/{camera}/image_raw'}
    rviz = launch_file.start_matcher(Context(wanted))[-1]
    assert dict(rviz.remappings) == {'/matcher/debug_image': 'matcher/front/debug_image', '/camera/image_raw': '/front/image_raw',
                                     '/matcher/matches': 'matcher/front/matches'}
    with pytest.raises(ValueError, match=r'is one topic for 2 cameras: write \{camera\}'):
        actions(launch_file, cameras='front,rear')
    both = {'cameras': 'front,rear', 'image_topic': '/{camera}/image_raw', 'depth': 'true'}
    with pytest.raises(ValueError, match=r'depth_topic:=/camera/depth/image_raw is one topic for 2 cameras'):
        actions(launch_file, **both)
    _, node = actions(launch_file, **both, depth_topic='/{camera}/depth')
    assert dict(node.remappings)['rear/depth'] == '/rear/depth'


def test_empty_arguments_leave_the_parameters_to_the_file(launch_file: Any, tmp_path: Path) -> None:
    mine = tmp_path / 'mine.yaml'
    mine.write_text('/**: {ros__parameters: {autostart: false}}')
    _, node = actions(launch_file, params_file=str(mine))
    assert node.parameters == [str(mine)], 'launch says nothing of autostart'
    _, node = actions(launch_file, autostart='false', backend='onnxruntime', image_transport='compressed', stereo='true')
    assert node.parameters[1] == {'autostart': False, 'backend': 'onnxruntime', 'image_transport': 'compressed', 'stereo': True}


def test_keyframes_are_a_number(launch_file: Any) -> None:
    assert actions(launch_file, keyframes='20')[1].parameters[1] == {'keyframes': 20}
    with pytest.raises(ValueError, match='keyframes:=many is no whole number: Keyframes that are kept'):
        actions(launch_file, keyframes='many')


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def give(file: str, *words: str) -> None:
        monkeypatch.setattr(sys, 'argv', ['/opt/ros/bin/ros2', 'launch', 'lightglue_trt_ros', file, *words])
    return give


@pytest.mark.parametrize('file', ['matcher.launch.py', 'odometry.launch.py'])
def test_each_parameter_may_be_an_argument_of_the_command_line(launch_file: Any, command: Callable[..., None], file: str) -> None:
    command(file, 'weights:=ours_light', 'max_keypoints:=512', 'match_threshold:=1', 'draw_covariances:=True', 'publish_tf:=false',
            'mask_file:=a:=b.png', 'image_topic:=/left')
    assert actions(launch_file, keyframes='5')[1].parameters[1] == {
        'keyframes': 5, 'weights': 'ours_light', 'max_keypoints': 512, 'match_threshold': 1.0, 'draw_covariances': True,
        'mask_file': 'a:=b.png'}
    for word, line in (('imagetopic:=/left', 'there is no argument imagetopic: did you mean image_topic'),
                       ('image:=/left', 'no argument image: did you mean image_topic'),
                       ('max_keypoint:=9', 'did you mean max_keypoints'), ('yolo:=1', 'no argument yolo: add -s for a list'),
                       ('max_keypoints:=1e3', 'max_keypoints:=1e3 is no whole number'),
                       ('draw_covariances:=yes', 'is neither true nor false'), ('max_gap_s:=long', 'is no number')):
        command(file, word)
        with pytest.raises(ValueError, match=line):
            actions(launch_file)


def test_arguments_of_another_launch_file_have_their_own_meaning(launch_file: Any, command: Callable[..., None]) -> None:
    command('robot.launch.py', 'weights:=yolo', 'imagetopic:=/left', 'image_width:=1280')
    line, *_, node = launch_file.start_matcher(Context(DEFAULTS, weights='yolo', image_width='1280', imagetopic='/left'))
    assert node.parameters == [DEFAULTS['params_file']]
    assert 'are not given to it: weights, image_width. If they are meant for it, write them into its params_file' in line.msg


def test_all_arguments_of_the_odometry_are_known_to_the_matcher(launch_file: Any) -> None:
    declared = load(REPOSITORY / 'launch' / 'odometry.launch.py').generate_launch_description().arguments[0]
    assert {entity.name for entity in declared if hasattr(entity, 'default_value')} - set(DEFAULTS) == set(launch_file.ODOMETRY)
    assert [name for name in launch_file.PASSED if name not in DEFAULTS] == []


def test_an_unknown_argument_of_the_evaluation_is_refused(launch_file: Any, command: Callable[..., None]) -> None:
    command('evaluate.launch.py', 'bag:=/bags/1', 'weights:=ours_light')
    with pytest.raises(ValueError, match='there is no argument weights: options:="…" takes more of evaluate_bag'):
        evaluation()
    command('evaluate.launch.py', 'bag:=/bags/1', 'baselines:=sift')
    assert evaluation(baselines='sift').arguments == ['/bags/1', '--baselines', 'sift']


def test_a_params_file_that_is_not_there_is_refused(launch_file: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r'params_file /nowhere\.yaml is not there'):
        actions(launch_file, params_file='/nowhere.yaml')


def test_rviz_is_opened_on_the_topics_of_this_launch(launch_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {**DEFAULTS, 'rviz': 'true', 'namespace': '/robot', 'image_topic': '/left/image_raw'}
    node, rviz = launch_file.start_matcher(Context(wanted))[-2:]
    assert (node.package, rviz.package, rviz.executable) == ('lightglue_trt_ros', 'rviz2', 'rviz2')
    assert rviz.arguments == ['-d', str(REPOSITORY / 'config' / 'matcher.rviz'), '-f', 'camera']
    deep = launch_file.start_matcher(Context(DEFAULTS, rviz='true', depth='true', rviz_frame='optical'))[-1]
    assert deep.arguments == ['-d', str(REPOSITORY / 'config' / 'matcher_points.rviz'), '-f', 'optical']
    assert rviz.namespace == node.namespace
    assert dict(rviz.remappings) == {'/matcher/debug_image': 'matcher/debug_image', '/camera/image_raw': '/left/image_raw',
                                     '/matcher/matches': 'matcher/matches'}

    def missing(name: str) -> None:
        raise launch_file.PackageNotFoundError(name)
    monkeypatch.setattr(launch_file, 'get_package_share_directory', missing)
    with pytest.raises(RuntimeError, match=r'rviz2 is not installed: apt install ros-\w+-rviz2'):
        launch_file.start_matcher(Context(wanted))


@pytest.mark.parametrize(('distro', 'variable'), [
    ('humble', FASTDDS_CHOICES[0]), ('jazzy', FASTDDS_CHOICES[0]), ('kilted', FASTDDS_CHOICES[1])])
def test_the_profile_under_the_name_that_the_release_knows(
        launch_file: Any, monkeypatch: pytest.MonkeyPatch, distro: str, variable: str) -> None:
    monkeypatch.setenv('ROS_DISTRO', distro)
    assert actions(launch_file)[0] == {variable: PROFILE}
    assert actions(launch_file, use_fastdds_profile='false')[0] == {}


@pytest.mark.parametrize('chosen', FASTDDS_CHOICES)
def test_the_profile_gives_way_to_the_users_choice(launch_file: Any, monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    assert len(actions(launch_file)[0]) == 1
    monkeypatch.setenv(chosen, 'of the user')
    assert actions(launch_file)[0] == {}


def odometry(**arguments: str) -> list[Any]:
    file = load(REPOSITORY / 'launch' / 'odometry.launch.py')
    defaults = {'image_topic': '/camera/image_raw', 'right_image_topic': '/camera_right/image_raw', 'stereo': '', 'depth': '',
                'depth_topic': '/camera/depth/image_raw',
                'params_file': DEFAULTS['params_file'], 'namespace': '', 'odom_frame': 'odom', 'base_frame': '',
                'publish_tf': 'true', 'matcher': 'true', 'rviz': 'false'}
    declared = {entity.arguments[0] for entity in file.generate_launch_description().arguments[0]
                if type(entity).__name__ == 'DeclareLaunchArgument'}
    assert declared == set(defaults)
    return list(file.start_odometry(Context(defaults, **arguments)))


def test_the_odometry_is_launched_with_a_matcher_of_the_same_camera(launch_file: Any) -> None:
    matcher, _, node = odometry(image_topic='/left/image_raw', right_image_topic='/right/image_raw', stereo='true',
                                namespace='/robot', publish_tf='false', depth='true', depth_topic='/depth')
    assert matcher.arguments[0].arguments == (str(REPOSITORY / 'launch' / 'matcher.launch.py'),)
    passed = dict(matcher.launch_arguments)
    assert passed == {'image_topic': '/left/image_raw', 'right_image_topic': '/right/image_raw', 'stereo': 'true',
                      'depth': 'true', 'depth_topic': '/depth', 'namespace': '/robot', 'params_file': DEFAULTS['params_file'],
                      'rviz': 'false'}
    assert set(passed) <= set(DEFAULTS)
    assert (node.package, node.executable, node.namespace) == ('lightglue_trt_ros', 'odometry', '/robot')
    assert node.parameters == [{'odom_frame': 'odom', 'base_frame': '', 'publish_tf': False}]
    assert node.remappings == [('image', '/left/image_raw'), ('right/image', '/right/image_raw')]
    assert [action.executable for action in odometry(matcher='false')] == ['odometry']
    with pytest.raises(ValueError, match='cameras:=a,b: the odometry is of one camera'):
        odometry(cameras='a,b')


def test_the_odometry_ends_with_its_matcher(launch_file: Any) -> None:
    handler = next(action for action in odometry() if type(action).__name__ == 'RegisterEventHandler')
    on_exit, running = handler.arguments[0].on_exit, SimpleNamespace(is_shutdown=False)
    line, shutdown = on_exit(SimpleNamespace(process_name='matcher-1', returncode=1), running)
    assert 'the matcher has ended with exit code 1' in line.msg
    assert type(shutdown).__name__ == 'Shutdown'
    assert on_exit(SimpleNamespace(process_name='odometry-2', returncode=1), running) == []
    assert on_exit(SimpleNamespace(process_name='matcher-1', returncode=0), SimpleNamespace(is_shutdown=True)) == []


def test_rviz_shows_the_odometry_of_this_launch(launch_file: Any) -> None:
    *_, rviz = odometry(rviz='true', namespace='/robot')
    assert rviz.arguments == ['-d', str(REPOSITORY / 'config' / 'odometry.rviz')]
    text = (REPOSITORY / 'config' / 'odometry.rviz').read_text()
    shown = {topic for topic, _ in rviz.remappings}
    assert shown == set(re.findall(r'Value: (/\S+)', text))
    assert all(name == topic.removeprefix('/') for topic, name in rviz.remappings)


def evaluation(**arguments: str) -> Any:
    file = load(REPOSITORY / 'launch' / 'evaluate.launch.py')
    defaults = {'bag': '/bags/1', 'live': 'false', 'options': '', **dict.fromkeys(file.OPTIONS, '')}
    node, handler = file.start_evaluation({**defaults, **arguments})
    assert handler.arguments[0].target_action is node
    node.conclude = handler.arguments[0].on_exit
    return node


def test_launch_fails_with_the_evaluation(launch_file: Any) -> None:
    node = evaluation()
    (shutdown,) = node.conclude(SimpleNamespace(returncode=0), {})
    assert type(shutdown).__name__ == 'Shutdown'
    for returned, code in ((2, 2), (130, 130), (-9, 137)):
        with pytest.raises(SystemExit) as ended:
            node.conclude(SimpleNamespace(returncode=returned), {})
        assert ended.value.code == code


def test_real_launch_ends_with_the_evaluation_s_exit_code(tmp_path: Path) -> None:
    pytest.importorskip('launch_ros', reason='launch_ros is not installed (no wheels): checked against stand-ins alone')
    packages = pytest.importorskip('ament_index_python.packages')
    try:
        packages.get_package_prefix('lightglue_trt_ros')
    except packages.PackageNotFoundError:
        pytest.skip('the package is not installed: ros2 launch does not find evaluate_bag')
    for arguments, code in ((['bag:=/nowhere'], 1), ([f'bag:={tmp_path}', 'strides:=0'], 2)):
        done = subprocess.run(['ros2', 'launch', str(REPOSITORY / 'launch' / 'evaluate.launch.py'), *arguments],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        assert 'Caught exception' not in done.stdout + done.stderr


def test_an_evaluation_is_launched_with_what_was_given(launch_file: Any) -> None:
    assert evaluation().arguments == ['/bags/1']
    more = '--fail-under pose_auc@10=40 --truth-kind "tum"'
    node = evaluation(live='true', baselines='sift,klt', max_keypoints='512', options=more)
    assert (node.package, node.executable) == ('lightglue_trt_ros', 'evaluate_bag')
    assert node.arguments == ['/bags/1', '--baselines', 'sift,klt', '--max-keypoints', '512', '--live', '--fail-under',
                              'pose_auc@10=40', '--truth-kind', 'tum']
    assert float(node.sigterm_timeout) >= 30, 'Ctrl-C leaves time for the report'


def test_the_evaluation_offers_what_the_command_has(launch_file: Any) -> None:
    pytest.importorskip('rclpy', reason='rclpy is not installed: the command is not read')
    from lightglue_trt_eval.cli.evaluate_bag import _parse
    file = load(REPOSITORY / 'launch' / 'evaluate.launch.py')
    entities = file.generate_launch_description().arguments[0]
    declared = [entity.arguments[0] for entity in entities if type(entity).__name__ == 'DeclareLaunchArgument']
    assert declared == ['bag', 'live', *file.OPTIONS, 'options']
    args, options = _parse(['bag'])
    assert not [name for name in file.OPTIONS if not (hasattr(args, name) or hasattr(options, name))]


def test_with_launch_ros(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip('launch_ros', reason='launch_ros is not installed (no wheels): checked against stand-ins alone')
    packages = pytest.importorskip('ament_index_python.packages')
    import launch

    monkeypatch.setattr(packages, 'get_package_share_directory', lambda name: str(REPOSITORY))
    description = load().generate_launch_description()
    assert {argument.name for argument in description.get_launch_arguments()} == set(DEFAULTS)
    context = launch.LaunchContext()
    made = [action for entity in description.entities for action in entity.visit(context) or ()]
    assert sum(type(action).__name__ == 'LifecycleNode' for action in made) == 1
