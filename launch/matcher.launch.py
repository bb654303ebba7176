"""ros2 launch lightglue_trt_ros matcher.launch.py image_topic:=/camera/image_raw; add -s to list the arguments."""

import os
import re
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction, SetEnvironmentVariable
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode, Node

from lightglue_trt_ros.core.config import check_cameras
from lightglue_trt_ros.ros.launch_arguments import left_out, undeclared, value_of
from lightglue_trt_ros.ros.parameters import FIELDS
from lightglue_trt_ros.utils.processes import FASTDDS_CHOICES, fastdds_variable

CONFIG = Path(get_package_share_directory('lightglue_trt_ros')) / 'config'
CHATTY = ('rcl', 'rclpy', 'rmw_fastrtps_cpp', 'rmw_cyclonedds_cpp')  # loggers that bury the node's lines at debug
PASSED = ('backend', 'image_transport', 'depth_transport', 'autostart', 'stereo', 'depth', 'keyframes', 'max_wait_s')
ODOMETRY = ('odom_frame', 'base_frame', 'publish_tf', 'matcher')  # arguments of the file that includes this one


def generate_launch_description():
    return LaunchDescription([*arguments(), OpaqueFunction(function=start_matcher)])


def arguments():
    """Those that `-s` lists. On the command line each other parameter of the node may be given, too, as weights:=ours_light."""
    return [
        DeclareLaunchArgument('image_topic', default_value='/camera/image_raw',
                              description='Images to match; with cameras, {camera} in it stands for the name: /{camera}/image_raw'),
        DeclareLaunchArgument('right_image_topic', default_value='/camera_right/image_raw',
                              description='Right images, for stereo; CameraInfo comes next to both topics'),
        DeclareLaunchArgument('depth_topic', default_value='/camera/depth/image_raw',
                              description='Depth images that are registered to image_topic, for depth; {camera} in it as above'),
        DeclareLaunchArgument('mask_topic', default_value='', description='Masks, mono8, {camera} in it as above; empty: mask'),
        DeclareLaunchArgument('cameras', default_value='',
                              description='Names of several cameras with commas between them; empty: as params_file says'),
        DeclareLaunchArgument('params_file', default_value=str(CONFIG / 'matcher.yaml'), description='Parameters of the node'),
        DeclareLaunchArgument('namespace', default_value='', description='Namespace of the node'),
        DeclareLaunchArgument('log_level', default_value='info', choices=['debug', 'info', 'warn', 'error', 'fatal'],
                              description='Of the node and of what it uses; debug: of the node, without the lines of ROS itself'),
        # PASSED: empty leaves the parameter to params_file.
        DeclareLaunchArgument('autostart', default_value='', choices=['true', 'false', ''],
                              description='Configure and activate at once; false leaves that to a lifecycle manager; '
                                          'empty: as params_file says'),
        DeclareLaunchArgument('backend', default_value='', choices=['auto', 'tensorrt', 'onnxruntime', ''],
                              description='What runs the networks; empty: as params_file says'),
        DeclareLaunchArgument('image_transport', default_value='', choices=['raw', 'compressed', ''],
                              description='compressed subscribes to <image_topic>/compressed; empty: as params_file says'),
        DeclareLaunchArgument('stereo', default_value='', choices=['true', 'false', ''],
                              description='Also match every frame with the right image of its pair; empty: as params_file says'),
        DeclareLaunchArgument('depth', default_value='', choices=['true', 'false', ''],
                              description='Give points x, y, z by depth images; empty: as params_file says'),
        DeclareLaunchArgument('depth_transport', default_value='', choices=['raw', 'compressedDepth', ''],
                              description='compressedDepth takes <depth_topic>/compressedDepth; empty: as params_file says'),
        DeclareLaunchArgument('keyframes', default_value='',
                              description='Keyframes that are kept, published and matched on request; empty: as params_file says'),
        DeclareLaunchArgument('max_wait_s', default_value='',
                              description='A frame waits so many seconds for its right or depth image; empty: as params_file says'),
        DeclareLaunchArgument('use_fastdds_profile', default_value='true', choices=['true', 'false'],
                              description='Configure Fast DDS for large images, unless the environment has a profile already; '
                                          'a camera driver started elsewhere also needs config/fastdds_large_images.xml'),
        DeclareLaunchArgument('rviz', default_value='false', choices=['true', 'false'],
                              description='Open RViz on the debug image (config/matcher.rviz); with stereo:=true or depth:=true on '
                                          'also the points in space (config/matcher_points.rviz)'),
        DeclareLaunchArgument('rviz_frame', default_value='camera', description="RViz's fixed frame: the frame_id of the images"),
    ]


def start_matcher(context):
    def argument(name):
        return LaunchConfiguration(name).perform(context)

    declared = [*(each.name for each in arguments()), *ODOMETRY]
    given = {name: argument(name) for name in PASSED if argument(name)}
    files = 'matcher.launch.py', 'odometry.launch.py'
    given |= undeclared(declared, files, FIELDS)
    left = left_out(context.launch_configurations, declared, files)
    overrides = {name: value_of(name, text) for name, text in given.items()}
    if not Path(argument('params_file')).is_file():  # launch_ros warns, and starts the node on its defaults
        raise FileNotFoundError(f'params_file {argument("params_file")} is not there: give the path of a YAML file')
    cameras = [name for name in re.split(r'[\[\],\s]+', argument('cameras')) if name]  # as a,b or, as the parameter, [a, b]
    check_cameras(cameras)
    topics = named_topics('image', argument('image_topic'), cameras)
    depths = {}
    if not cameras or '{camera}' in argument('depth_topic') or argument('depth') == 'true':  # else its default would be refused
        depths = named_topics('depth', argument('depth_topic'), cameras)
    masks = named_topics('mask', argument('mask_topic'), cameras) if argument('mask_topic') else {}
    if cameras:
        overrides['cameras'] = cameras
    pair = {} if cameras else {'right/image': argument('right_image_topic')}  # among several, right is a camera like any other
    images = [(name + suffix, topic + suffix) for name, topic in {**topics, **pair}.items() for suffix in ('', '/compressed')]
    images += [(name + suffix, topic + suffix) for name, topic in depths.items() for suffix in ('', '/compressedDepth')]
    node = LifecycleNode(
        package='lightglue_trt_ros', executable='matcher', name='matcher', namespace=argument('namespace'),
        parameters=[argument('params_file'), *([overrides] if overrides else [])],
        remappings=[*images, *masks.items()],
        ros_arguments=log_arguments(argument('log_level')),
        output='screen', emulate_tty=True)
    viewer = []
    if argument('rviz') == 'true':
        config = 'matcher_points.rviz' if 'true' in (argument('depth'), argument('stereo')) else 'matcher.rviz'
        viewer = rviz(config, argument('rviz_frame'), next(iter(topics.values())), argument('namespace'), *cameras[:1])
    lines = [LogInfo(msg=left)] if left else []
    return [*lines, *fastdds_profile(argument('use_fastdds_profile') == 'true'), node, *viewer]


def log_arguments(level):
    chatty = CHATTY if level == 'debug' else ()
    return ['--log-level', level, *(word for logger in chatty for word in ('--log-level', f'{logger}:=info'))]


def named_topics(what, topic, cameras):
    """The node's topics of a kind, image or mask, and what each is remapped to."""
    if cameras and '{camera}' not in topic:
        raise ValueError(f'{what}_topic:={topic} is one topic for {len(cameras)} cameras: write {{camera}} where a name stands, '
                         f'e.g. /{{camera}}/{what}_raw')
    return {f'{name}/{what}': topic.replace('{camera}', name) for name in cameras} or {what: topic}


def rviz(config, frame, topic, namespace, camera=''):
    """RViz on the (first) camera, in the node's namespace; its configuration has the topics' names as they are by default."""
    try:
        get_package_share_directory('rviz2')
    except PackageNotFoundError:
        distro = os.environ.get('ROS_DISTRO', 'DISTRO')
        raise RuntimeError(f'rviz:=true, and rviz2 is not installed: apt install ros-{distro}-rviz2, or leave it out') from None
    own = [(f'/matcher/{name}', '/'.join(filter(None, ('matcher', camera, name)))) for name in ('debug_image', 'matches')]
    return [Node(package='rviz2', executable='rviz2', namespace=namespace, arguments=['-d', str(CONFIG / config), '-f', frame],
                 remappings=[*own, ('/camera/image_raw', topic)])]


def fastdds_profile(wanted):
    """Nothing where the user has chosen transports already."""
    if not wanted or any(os.environ.get(name) for name in FASTDDS_CHOICES):
        return []
    return [SetEnvironmentVariable(fastdds_variable(), str(CONFIG / 'fastdds_large_images.xml'))]
