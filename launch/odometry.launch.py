"""ros2 launch lightglue_trt_ros odometry.launch.py image_topic:=/camera/image_raw: the matcher, and an odometry to watch."""

import os
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, LogInfo, OpaqueFunction, RegisterEventHandler, Shutdown
from launch.event_handlers import OnProcessExit
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

SHARE = Path(get_package_share_directory('lightglue_trt_ros'))


def generate_launch_description():
    return LaunchDescription([
        DeclareLaunchArgument('image_topic', default_value='/camera/image_raw', description='Images, with CameraInfo next to them'),
        DeclareLaunchArgument('right_image_topic', default_value='/camera_right/image_raw',
                              description='Right images, for stereo; CameraInfo comes next to both topics'),
        DeclareLaunchArgument('stereo', default_value='', choices=['true', 'false', ''],
                              description='Let the matcher also match right images: poses are in metres then; '
                                          'empty: as params_file says'),
        DeclareLaunchArgument('depth_topic', default_value='/camera/depth/image_raw',
                              description='Depth images that are registered to image_topic, for depth'),
        DeclareLaunchArgument('depth', default_value='', choices=['true', 'false', ''],
                              description='Let the matcher give points their depth: poses are in metres then; '
                                          'empty: as params_file says'),
        DeclareLaunchArgument('params_file', default_value=str(SHARE / 'config' / 'matcher.yaml'),
                              description='Parameters of the matcher'),
        DeclareLaunchArgument('namespace', default_value='', description='Namespace of both nodes'),
        DeclareLaunchArgument('odom_frame', default_value='odom', description='Frame of the poses'),
        DeclareLaunchArgument('base_frame', default_value='',
                              description='Frame of the robot whose poses are published, found by TF; empty: that of the camera'),
        DeclareLaunchArgument('publish_tf', default_value='true', choices=['true', 'false'],
                              description='Publish the transform from odom_frame to base_frame, or to the camera'),
        DeclareLaunchArgument('matcher', default_value='true', choices=['true', 'false'],
                              description='Also start the matcher; false where one runs already'),
        DeclareLaunchArgument('rviz', default_value='false', choices=['true', 'false'],
                              description='Open RViz on the path (config/odometry.rviz)'),
        OpaqueFunction(function=start_odometry),
    ])


def start_odometry(context):
    def argument(name):
        return LaunchConfiguration(name).perform(context)

    if cameras := context.launch_configurations.get('cameras'):
        raise ValueError(f'cameras:={cameras}: the odometry is of one camera. Start matcher.launch.py with cameras, and for each '
                         'NAME an odometry: ros2 run lightglue_trt_ros odometry --ros-args -r __node:=odometry_NAME '
                         '-r matcher/matches:=matcher/NAME/matches -r image:=TOPIC_OF_NAME')
    topic, namespace = argument('image_topic'), argument('namespace')
    node = Node(package='lightglue_trt_ros', executable='odometry', name='odometry', namespace=namespace,
                parameters=[{'odom_frame': argument('odom_frame'), 'base_frame': argument('base_frame'),
                             'publish_tf': argument('publish_tf') == 'true'}],
                remappings=[('image', topic), ('right/image', argument('right_image_topic'))], output='screen', emulate_tty=True)
    passed = {name: argument(name) for name in ('image_topic', 'right_image_topic', 'stereo', 'depth_topic', 'depth', 'params_file',
                                                'namespace')}
    matcher = IncludeLaunchDescription(PythonLaunchDescriptionSource(str(SHARE / 'launch' / 'matcher.launch.py')),
                                       launch_arguments=[*passed.items(), ('rviz', 'false')])
    viewer = rviz(namespace) if argument('rviz') == 'true' else []
    together = [matcher, RegisterEventHandler(OnProcessExit(on_exit=end_with_matcher))] if argument('matcher') == 'true' else []
    return [*together, node, *viewer]


def end_with_matcher(event, context):
    """The odometry waits for tracks for ever where the matcher of this launch has ended, as on a parameter that it refuses."""
    if not event.process_name.startswith('matcher') or context.is_shutdown:
        return []
    return [LogInfo(msg=f'the matcher has ended with exit code {event.returncode}: its lines above say why; the odometry ends'),
            Shutdown(reason='the matcher has ended')]


def rviz(namespace):
    """RViz in the nodes' namespace; its configuration has the topics' names as they are by default."""
    try:
        get_package_share_directory('rviz2')
    except PackageNotFoundError:
        distro = os.environ.get('ROS_DISTRO', 'DISTRO')
        raise RuntimeError(f'rviz:=true, and rviz2 is not installed: apt install ros-{distro}-rviz2, or leave it out') from None
    topics = ('odometry/path', 'odometry/odometry', 'matcher/debug_image')
    return [Node(package='rviz2', executable='rviz2', namespace=namespace,
                 arguments=['-d', str(SHARE / 'config' / 'odometry.rviz')],
                 remappings=[(f'/{topic}', topic) for topic in topics])]
