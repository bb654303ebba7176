"""Drawings of the rooms, of the way of a frame, of the node's topics and of the camera setups."""

from __future__ import annotations

from collections.abc import Sequence

from tools.svg import WIDTH, Svg

# Rows from the top to the bottom: a room imports only rooms of lower rows; test/package/test_architecture.py compares.
WORKBENCH_ROWS = (('cli',), ('times', 'quantization', 'fleet'), ('report', 'evaluate'), ('score',), ('predict',),
                  ('images', 'demo', 'replay'))
ROBOT_ROWS = (('cli',), ('ros',), ('odometry', 'engines'), ('datasets', 'backends'), ('networks',), ('core',), ('utils',))


def rooms() -> str:
    """Rooms of both packages; each imports only what is below it."""
    svg = Svg('Rooms of the two packages: each imports only rooms below it', 610)
    svg.text(14, 22, 'Each room imports only rooms below it.', 'small soft')
    svg.text(14, 46, 'lightglue_trt_eval', 'bold')
    svg.text(WIDTH - 14, 46, 'the workbench', 'small soft', 'end')
    y = _layers(svg, 56, WORKBENCH_ROWS, ())
    svg.text(14, y + 26, 'lightglue_trt_ros', 'bold')
    svg.text(WIDTH - 14, y + 26, 'green: for each frame', 'small soft', 'end')
    svg.arrow(WIDTH / 2, y, WIDTH / 2, y + 36)
    _layers(svg, y + 36, ROBOT_ROWS, ('ros', 'backends', 'core'))
    return str(svg)


def _layers(svg: Svg, y: float, layers: Sequence[Sequence[str]], green: tuple[str, ...]) -> float:
    """Rows of boxes from the top to the bottom; the height where they end."""
    for number, names in enumerate(layers):
        width = (WIDTH - 28 - 8 * (len(names) - 1)) / len(names)
        for column, name in enumerate(names):
            svg.box(14 + (width + 8) * column, y, width, 28, name, 'gpu' if name in green else 'box')
        if number + 1 < len(layers):
            svg.arrow(WIDTH / 2, y + 28, WIDTH / 2, y + 40)
        y += 40
    return y - 12


def frame() -> str:
    """From the image to the cloud; what stays on the GPU is green."""
    svg = Svg('The way of a frame from the image to the cloud; green steps stay on the GPU', 596)
    svg.text(14, 22, 'green: on the GPU, where TensorRT runs', 'small soft')
    steps = [('Image', 'box'), ('newest frame only, decoded\none worker thread, gray uint8', 'box'),
             ('resize\nto the size of the engine', 'gpu'), ('extractor: SuperPoint\nmask, then the best K keypoints', 'gpu'),
             ('matcher: LightGlue\nuntil enough points are confident', 'gpu'),
             ('refinement\nin the full image, with covariances', 'gpu'),
             ('epipolar fit, track propagation\nfirst pairs: on the host', 'gpu'), ('track ids, scale of covariances', 'box'),
             ('~/matches\npoints, covariances, tracks', 'box')]
    y = 34.0
    for number, (text, kind) in enumerate(steps):
        height = 34 if '\n' not in text else 48
        svg.box(14, y, 270, height, text, kind)
        if number + 1 < len(steps):
            svg.arrow(149, y + height, 149, y + height + 18)
        if text.startswith('extractor'):
            extractor = y + height / 2
        if text.startswith('matcher'):
            matcher = y + height / 2
        y += height + 18
    svg.box(312, extractor - 34, 96, 68, 'features\nof the\nreference', 'gpu')
    svg.arrow(284, extractor, 312, extractor)
    svg.arrow(360, extractor + 34, 360, matcher, 284, matcher)
    return str(svg)


def topics() -> str:
    """What the node subscribes to, publishes and answers."""
    svg = Svg('Topics and services of the matcher node', 374)
    svg.box(150, 60, 112, 280, 'matcher\nnode')
    inputs = ['image', 'camera_info', 'mask', 'right/image', 'depth']
    for number, name in enumerate(inputs):
        y = 84 + 56 * number
        svg.text(10, y - 8, name, 'bold' if name == 'image' else '')
        svg.text(10, y + 8, '' if name == 'image' else 'optional', 'small soft')
        svg.arrow(98, y, 150, y)
    for number, (name, note) in enumerate([('~/matches', 'points'), ('~/debug_image', 'drawing'), ('~/keyframe', 'loop closure'),
                                           ('~/feature', 'VINS'), ('/diagnostics', '1 Hz')]):
        y = 84 + 56 * number
        svg.arrow(262, y, 296, y)
        svg.text(302, y - 8, name, 'bold' if number == 0 else '')
        svg.text(302, y + 10, note, 'small soft')
    svg.text(10, 24, 'services: ~/reset, ~/match_keyframes', 'small soft')
    svg.text(10, 44, 'in', 'small soft')
    svg.text(302, 44, 'out', 'small soft')
    svg.text(10, 362, 'With cameras:=front,rear each camera has its own topics.', 'small soft')
    return str(svg)


def setups() -> str:
    """A stereo pair, a depth camera, several cameras."""
    svg = Svg('Three setups: a stereo pair, a depth camera, and several cameras on one node', 450)
    for y, title, parameter, cameras, result in (
            (14, 'Stereo', 'stereo:=true', ['image', 'right/image'], '~/matches\nu_right, v_right\nx, y, z in metres'),
            (160, 'Depth camera', 'depth:=true', ['image', 'depth'], '~/matches\nx, y, z in metres'),
            (306, 'Several cameras', 'cameras:=front,rear', ['front/image', 'rear/image'], '~/front/matches\n~/rear/matches')):
        svg.text(14, y + 14, title, 'bold')
        svg.text(WIDTH - 14, y + 14, parameter, 'small soft', 'end')
        for number, camera in enumerate(cameras):
            svg.box(14, y + 26 + 52 * number, 104, 40, camera)
            svg.arrow(118, y + 46 + 52 * number, 146, y + 72)
        svg.box(146, y + 46, 104, 52, 'node\none engine set')
        svg.arrow(250, y + 72, 270, y + 72)
        svg.box(270, y + 40, 140, 64, result)
        svg.line(14, y + 136, WIDTH - 14, y + 136, 'grid')
    return str(svg)
