"""ros2 launch lightglue_trt_ros evaluate.launch.py bag:=PATH live:=true baselines:=sift,orb,klt; add -s to list the arguments."""

import shlex
import shutil

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, RegisterEventHandler, Shutdown
from launch.event_handlers import OnProcessExit
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from lightglue_trt_ros.ros.launch_arguments import undeclared

PREFIX = '[evaluate_bag-1] '  # that launch writes before each line
OPTIONS = {  # of evaluate_bag, by launch argument; empty leaves the command's default
    'image_topic': 'Topic of the images, where the bag has several',
    'cameras': 'Names of several cameras, with commas; {camera} stands for the name in topics and files below and above',
    'camera': 'YAML with intrinsics, instead of the recorded ones',
    'mask': 'PNG of one channel: no keypoint is where it is 0',
    'truth_topic': 'Topic of the true poses',
    'truth': 'File of the true poses (TUM, KITTI, EuRoC)',
    'strides': 'As 1,2,4',
    'baselines': 'Of sift,orb,klt',
    'compare': "Precisions, numbers of keypoints, SETTING=VALUE, or engine sets, with commas",
    'rate': 'Of the recorded pace, for live',
    'out': 'Folder of the report',
    'backend': 'auto, tensorrt or onnxruntime',
    'max_keypoints': 'Per frame',
}


def generate_launch_description():
    return LaunchDescription([
        DeclareLaunchArgument('bag', description='The rosbag2 or image folder to evaluate'),
        DeclareLaunchArgument('live', default_value='false', choices=['true', 'false'],
                              description='Also play the bag over DDS into the node; evaluate_bag starts the node itself'),
        *(DeclareLaunchArgument(name, default_value='', description=f'{text}; empty: as evaluate_bag has it')
          for name, text in OPTIONS.items()),
        DeclareLaunchArgument('options', default_value='',
                              description='More options of evaluate_bag, e.g. "--fail-under pose_auc@10=40 --max-frames 200"'),
        OpaqueFunction(function=start_evaluation),
    ])


def start_evaluation(context):
    def argument(name):
        return LaunchConfiguration(name).perform(context)

    undeclared(['bag', 'live', *OPTIONS, 'options'], ['evaluate.launch.py'], advice='options:="…" takes more of evaluate_bag')
    given = [word for name in OPTIONS if argument(name) for word in (f'--{name.replace("_", "-")}', argument(name))]
    live = ['--live'] if argument('live') == 'true' else []
    evaluation = Node(
        package='lightglue_trt_ros', executable='evaluate_bag',
        arguments=[argument('bag'), *given, *live, *shlex.split(argument('options'))],
        sigterm_timeout='60',  # after Ctrl-C it writes the report of what was done
        output='screen', additional_env={'PYTHONUNBUFFERED': '1',  # no terminal: launch holds a bar back, not lines
                                         'COLUMNS': str(shutil.get_terminal_size((177, 24)).columns - len(PREFIX))})
    return [evaluation, RegisterEventHandler(OnProcessExit(target_action=evaluation, on_exit=conclude))]


def conclude(event, context):
    """End with the evaluation, by its exit code: it is all that this file starts, and launch itself knows only 0 and 1."""
    if event.returncode:
        raise SystemExit(event.returncode if event.returncode > 0 else 128 - event.returncode)  # below 0: a signal's number
    return [Shutdown(reason='evaluated')]
