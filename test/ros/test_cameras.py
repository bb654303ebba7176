"""Several cameras on one node, over real DDS: each has its turns, its tracks and its diagnostics, whatever the others do."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest

rclpy = pytest.importorskip('rclpy', reason='rclpy is not installed: the node is not tested')
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import CameraInfo, Image, PointCloud, PointCloud2
from std_msgs.msg import Bool, Header
from std_srvs.srv import Trigger
from support.ros_helpers import SECOND, SMALL, header, image_message, matcher_node, opens, spun, started, uniform_image
from support.waiting import wait_for

from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.ros.cloud_reader import matches_from_cloud
from lightglue_trt_ros.ros.matcher.node import MatcherNode
from lightglue_trt_ros.ros.matcher.subscription import wanted_images
from lightglue_trt_ros.ros.parameters import NodeConfig
from lightglue_trt_ros.utils.errors import ConfigError, EngineError

pytestmark = pytest.mark.usefixtures('ros')

NAMES = ['front', 'rear', 'left']


class SlowBackend(NullBackend):
    """Takes `frame_s` for every frame, or as long as `gate` is closed; `turns` are the cameras of the frames, `opened` counts."""

    opened = 0
    fails = False

    def __init__(self, spec, frame_s: float = 0.0) -> None:
        super().__init__(spec)
        SlowBackend.opened += 1
        self.frame_s, self.camera = frame_s, -1
        self.turns: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def select_camera(self, camera):
        self.camera = camera

    def extract(self, image, mask=None):
        self.turns.append(self.camera)
        time.sleep(self.frame_s)
        self.gate.wait(10)
        if self.fails and self.camera == 1:
            raise EngineError('of the rear camera alone')
        return super().extract(image)


class Rig:
    """A node of several cameras and a publisher for each, in this process; what the node publishes is kept by camera."""

    def __init__(self, ends: ExitStack, frame_s: float = 0.0, names: list[str] = NAMES, **parameters) -> None:
        self.backends: list[SlowBackend] = []
        node = matcher_node(opens(lambda spec: SlowBackend(spec, frame_s), self.backends), SMALL, cameras=names, **parameters)
        started(ends, node)
        self.node, self.peer = node, Node('rig')
        self.clouds: dict[str, list[PointCloud2]] = {name: [] for name in names}
        self.reports: list[DiagnosticArray] = []
        self.images = {name: self.peer.create_publisher(Image, f'/{name}/image', 10) for name in names}
        for name in names:
            self.peer.create_subscription(PointCloud2, f'/matcher/{name}/matches', self.clouds[name].append, 10)
        self.peer.create_subscription(DiagnosticArray, '/diagnostics', self.reports.append, 10)
        ends.enter_context(spun(self.peer))
        wait_for(lambda: all(each.get_subscription_count() for each in self.images.values()))
        wait_for(lambda: all(self.peer.count_publishers(f'/matcher/{name}/matches') for name in names))
        wait_for(lambda: self.status(names[0])[1] not in ('', 'opening the networks'))

    @property
    def backend(self) -> SlowBackend:
        """The one that is open."""
        return self.backends[-1]

    def status(self, name: str) -> tuple[bytes, str, dict[str, str]]:
        """Level, message and figures of a camera, the last ones."""
        for each in self.reports[-1].status if self.reports else ():
            if each.name == f'matcher: {name}':
                return each.level, each.message, {value.key: value.value for value in each.values}
        return b'', '', {}

    def send(self, name: str, stamp: float, size: tuple[int, int] = (48, 64), clouds: int = 0) -> None:
        """Publish a frame, and wait for as many more clouds of the camera."""
        before = len(self.clouds[name])
        self.images[name].publish(image_message(round(stamp * SECOND), uniform_image(round(stamp * SECOND), size)))
        wait_for(lambda: len(self.clouds[name]) >= before + clouds)

    def pair(self, name: str, stamp: float, size: tuple[int, int] = (48, 64)) -> set[int]:
        """Two frames, the first with a reference or none; track ids of the second."""
        taken = len(self.backend.turns)
        self.send(name, stamp, size)
        wait_for(lambda: len(self.backend.turns) > taken)
        time.sleep(0.1)
        self.send(name, stamp + 0.1, size, clouds=1)
        return set(matches_from_cloud(self.clouds[name][-1]).track_ids.tolist())


@pytest.fixture
def rig():
    """A function that makes a Rig; all end with the test."""
    with ExitStack() as ends:
        yield lambda *arguments, **named: Rig(ends, *arguments, **named)


@pytest.mark.release
def test_cameras_share_one_backend_but_no_topics_or_track_ids(rig):
    opened = SlowBackend.opened
    run = rig()
    ids = {name: run.pair(name, 10.0 + number) for number, name in enumerate(NAMES)}
    assert all(len(found) == 50 for found in ids.values())
    assert len(set().union(*ids.values())) == 150, 'no id is on two cameras'
    for number, name in enumerate(NAMES):
        run.send(name, 10.2 + number, clouds=1)
        assert set(matches_from_cloud(run.clouds[name][-1]).track_ids.tolist()) == ids[name], 'tracks go on, whatever came between'
        assert run.clouds[name][-1].header.stamp.sec == 10 + number
    assert SlowBackend.opened == opened + 1
    assert sorted(run.backend.turns) == [0, 0, 0, 1, 1, 1, 2, 2, 2], 'each frame is extracted once'
    for name in NAMES:
        wait_for(lambda name=name: run.node.count_publishers(f'/matcher/{name}/debug_image'))
    assert not any(map(run.node.count_publishers, ('/matcher/matches', '/matcher/debug_image')))


def test_a_silent_camera_is_named_and_the_others_go_on(rig):
    run, stamp = rig(), 10.0
    run.pair('front', stamp)
    deadline = time.monotonic() + 15
    while run.status('rear')[1].find('no image on /rear/image') < 0 or run.status('front')[1] != 'matching':
        assert time.monotonic() < deadline, (run.status('front'), run.status('rear'))
        stamp += 0.2
        run.send('front', stamp, clouds=1)
        time.sleep(0.1)
    assert run.status('front')[0] == DiagnosticStatus.OK
    assert run.status('rear')[0] == DiagnosticStatus.WARN
    assert run.status('rear')[2]['frames received'] == '0'
    assert 'null' in run.status('rear')[2]['backend']
    late = run.pair('rear', 3.0)  # it begins late, by a clock of its own
    assert not late & set(matches_from_cloud(run.clouds['front'][-1]).track_ids.tolist())
    wait_for(lambda: run.status('rear')[1] == 'matching')
    assert run.status('front')[2]['resets'] == '0'


@pytest.mark.parametrize(('names', 'setting'), [(('front', 'rear'), 'image_transport of all cameras'), (('',), 'image_transport')])
def test_the_remedy_for_another_transport_is_that_of_all_cameras(names, setting):
    assert wanted_images(None, 'image', NodeConfig(cameras=names), None, 0, 0).setting == setting


def test_a_camera_that_is_twice_as_fast_starves_none(rig):
    """While each frame is matched, two of one camera come and one of each other: all have their turns."""
    run, matched = rig(), threading.Semaphore(0)
    run.backend.gate.wait = lambda timeout: matched.acquire(timeout=timeout)
    counts = [camera.statistics for camera in run.node._pipeline.inputs]
    run.send('front', 10.0)
    wait_for(lambda: run.backend.turns == [0])
    for number in range(180):
        run.send(('front', 'rear', 'left', 'front')[number % 4], 10.1 + number / 40)
        wait_for(lambda number=number: sum(each.count.received for each in counts) == number + 2)
        if number % 4 == 3:
            matched.release()
            wait_for(lambda turns=number // 4 + 2: len(run.backend.turns) == turns)
    wait_for(lambda: 'slower than the camera' in run.status('front')[1])
    matched.release(200)
    assert run.backend.turns[:46] == [0] + 15 * [1, 2, 0]


def test_waiting_cameras_take_turns(rig):
    run = rig()
    run.backend.gate.clear()
    run.send('front', 10.0)
    wait_for(lambda: run.backend.turns == [0])
    counts = [camera.statistics for camera in run.node._pipeline.inputs]
    for number, name in enumerate(('left', 'front', 'front', 'rear')):
        run.send(name, 10.1 + 0.1 * number)
        wait_for(lambda number=number: sum(each.count.received for each in counts) == number + 2)
    run.backend.gate.set()
    wait_for(lambda: len(run.backend.turns) == 4)
    assert run.backend.turns == [0, 1, 2, 0], 'who was served last waits for the others'


def test_another_size_is_that_camera_s_alone(rig):
    run = rig()
    before = {name: run.pair(name, 10.0) for name in NAMES}
    changed = run.pair('rear', 10.2, (40, 64))
    assert not changed & set().union(*before.values())
    wait_for(lambda: 'size changed' in run.status('rear')[2]['resets'])
    for name in ('front', 'left'):
        run.send(name, 10.2, clouds=1)
        assert set(matches_from_cloud(run.clouds[name][-1]).track_ids.tolist()) == before[name]
        assert run.status(name)[2]['resets'] == '0'


def test_reset_forgets_all(rig):
    run = rig()
    before = {name: run.pair(name, 10.0) for name in NAMES}
    client = run.peer.create_client(Trigger, '/matcher/reset')
    assert client.wait_for_service(10)
    future = client.call_async(Trigger.Request())
    wait_for(future.done)
    for name in NAMES:
        assert not run.pair(name, 10.2) & before[name]


def test_frames_that_fail_are_the_camera_s_and_do_not_end_the_others(rig, capfd):
    run = rig()
    run.pair('front', 10.0)
    run.backend.fails = True
    for number in range(15):
        run.send('rear', 10.0 + 0.1 * number)
        run.send('front', 10.2 + 0.1 * number, clouds=1)
    wait_for(lambda: run.status('rear')[2]['last error'].endswith(' s ago: EngineError: of the rear camera alone'))
    assert run.status('front')[2]['last error'] == ''
    assert '[matcher.rear]: frame dropped, EngineError: of the rear camera alone' in capfd.readouterr().err


def test_each_camera_has_the_calibration_of_its_own_topic(rig):
    run = rig(names=['front', 'rear'])
    info = run.peer.create_publisher(CameraInfo, '/rear/camera_info', 10)
    wait_for(info.get_subscription_count)
    k = [60.0, 0, 31.5, 0, 60.0, 23.5, 0, 0, 1]
    info.publish(CameraInfo(header=header(SECOND), width=64, height=48, distortion_model='plumb_bob', d=[0.0] * 5, k=k))
    wait_for(lambda: run.node._cameras[1]._calibration._infos)
    for name in ('front', 'rear'):
        run.pair(name, 10.0)
    calibration = 'CameraInfo on /rear/camera_info, no distortion, fx 60.0, fy 60.0, 64x48, cx 31.5, cy 23.5'
    wait_for(lambda: run.status('rear')[2].get('calibration') == calibration)
    assert run.status('front')[2]['calibration'] == 'none: no CameraInfo on /front/camera_info'
    assert run.status('front')[1] == run.status('rear')[1] == 'matching'
    other = run.peer.create_publisher(CameraInfo, '/front/camera_info', 10)
    wait_for(other.get_subscription_count)
    other.publish(CameraInfo(header=Header(frame_id='rear'), width=64, height=48, distortion_model='plumb_bob', k=k))
    wait_for(lambda: run.node._cameras[0]._calibration._infos)
    run.pair('front', 11.0)
    wait_for(lambda: 'remap front/camera_info to the topic of this camera' in run.status('front')[2]['calibration'])


@pytest.mark.parametrize('channels', [5, 9])
def test_vins_gets_the_cameras_apart(rig, channels):
    run = rig(names=['front', 'rear'], tracks_format='vins', vins_channels=channels)
    infos = {name: run.peer.create_publisher(CameraInfo, f'/{name}/camera_info', 10) for name in ('front', 'rear')}
    features: dict[str, list[PointCloud]] = {name: [] for name in infos}
    restarts: dict[str, list[Bool]] = {name: [] for name in infos}
    for name, publisher in infos.items():
        run.peer.create_subscription(PointCloud, f'/matcher/{name}/feature', features[name].append, 10)
        run.peer.create_subscription(Bool, f'/matcher/{name}/restart', restarts[name].append, 10)
        wait_for(lambda publisher=publisher: publisher.get_subscription_count())
        wait_for(lambda name=name: run.peer.count_publishers(f'/matcher/{name}/feature'))
        k = [60.0, 0, 31.5, 0, 60.0, 23.5, 0, 0, 1]
        publisher.publish(CameraInfo(header=header(SECOND), width=64, height=48, distortion_model='plumb_bob', d=[0.0] * 5, k=k))
    time.sleep(0.2)
    for camera, name in enumerate(infos):
        run.pair(name, 10.0)
        wait_for(lambda name=name: features[name])
        values = {channel.name: np.array(channel.values) for channel in features[name][0].channels}
        assert set(values['id'] % 2) == {camera}
        assert channels == 5 or set(values['camera']) == {0}, 'each is camera 0 of its estimator'
    run.send('rear', 30.0)  # a gap
    wait_for(lambda: restarts['rear'])
    assert not restarts['front']


@pytest.mark.parametrize(('names', 'words'), [
    (['front', 'rear', 'front'], "cameras has 'front' 2 times"), (['front', '1st'], "cameras has '1st': a name is part of topics"),
    (['front', 'a/b'], "cameras has 'a/b'"), (['front', ''], "cameras has ''"), ([1, 2], 'cameras has 1: a name'),
    ('front', "cameras is 'front' .str.: it must be a list of names")])
def test_bad_names_refuse_to_start_with_a_reason(names, words):
    with pytest.raises(ConfigError, match=words):
        MatcherNode(parameter_overrides=[Parameter('cameras', value=names)])


def test_stereo_is_of_one_pair():
    overrides = [Parameter('cameras', value=['left', 'right']), Parameter('stereo', value=True)]
    with pytest.raises(ConfigError, match='stereo is of one pair, and cameras has left, right: run a node for each pair'):
        MatcherNode(parameter_overrides=overrides)


@pytest.mark.parametrize('names', [None, [''], []])
def test_without_names_there_is_one_camera_as_ever(names):
    overrides = [] if names is None else [Parameter('cameras', Parameter.Type.STRING_ARRAY, names)]
    node = MatcherNode(parameter_overrides=overrides)
    try:
        assert node.get_parameter('cameras').type_ == Parameter.Type.STRING_ARRAY
        node.trigger_configure()
        for topic in ('/matcher/matches', '/matcher/debug_image'):
            wait_for(lambda topic=topic: node.count_publishers(topic))
        wait_for(lambda: node.count_subscribers('/image'))
        assert [each.name for each in node._cameras] == ['']
    finally:
        node.destroy_node()


@pytest.mark.release
def test_an_empty_list_on_the_command_line_is_one_line():
    with pytest.raises(ConfigError, match="a parameter: an empty list, for which ROS has no type"):
        MatcherNode(cli_args=['--ros-args', '-p', 'cameras:=[]'])
