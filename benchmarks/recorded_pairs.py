"""Which pairs of recorded frames a measurement takes, and their images."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection
from pathlib import Path

import numpy as np

from lightglue_trt_eval.images.degradation import DEGRADATIONS
from lightglue_trt_eval.options import EvaluationOptions
from lightglue_trt_eval.predict.frames import DepthImages, Frames
from lightglue_trt_eval.predict.recorded_scene import open_scene, usable_frames
from lightglue_trt_eval.predict.scene import Scene, Timeline
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.depth import DepthImage
from lightglue_trt_ros.core.geometry import Size, fitting_size
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.utils.arguments import number, numbers, some_of
from lightglue_trt_ros.utils.commands import log

AS_RECORDED = 'none'  # of the kinds of degradation


def add_stride_options(parser: argparse.ArgumentParser, strides: str = '1,4') -> None:
    """Which frames."""
    parser.add_argument('--image-topic', metavar='TOPIC', help='of --data, where a bag has several with images')
    parser.add_argument('--strides', type=numbers, default=strides, metavar='N,…',
                        help='frames from one to the next, default: %(default)s')


def add_kind_options(parser: argparse.ArgumentParser, strides: str, kinds: tuple[str, ...]) -> None:
    """Which frames, and as which cameras see them."""
    add_stride_options(parser, strides)
    parser.add_argument('--frames', type=number(int, 2), default=60, help='of the recording, default: %(default)s')
    parser.add_argument('--kinds', type=some_of((AS_RECORDED, *DEGRADATIONS)), default=','.join(kinds), metavar='NAME,…',
                        help=f'of --degrade; {AS_RECORDED}: as recorded; default: %(default)s')


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    """Which frames, and how many pairs of them."""
    add_stride_options(parser)
    parser.add_argument('--pairs', type=number(int, 1), default=40, help='of each recording and stride, default: %(default)s')


def sized(config: MatcherConfig, image: Size) -> MatcherConfig:
    """The configuration at the aspect ratio of the images (height, width) and its own area."""
    height, width = fitting_size(image, config.image_height * config.image_width)
    return dataclasses.replace(config, image_height=height, image_width=width)


def open_recorded(path: Path, image_topic: str | None, config: MatcherConfig) -> tuple[Recording, Scene, MatcherConfig]:
    """A recording, what is known about it, and the configuration `sized` for its images. Raises BagError."""
    recording = open_recording(path, image_topic)
    scene, facts = open_scene(recording, EvaluationOptions(image_topic=image_topic), log.info)
    return recording, scene, sized(config, (facts['height'], facts['width']))


def sample_pairs(timeline: Timeline, stride: int, count: int) -> list[tuple[int, int]]:
    """At most `count` of the pairs of frames that an evaluation has at this stride, evenly sampled."""
    starts = [row for row in range(0, len(timeline) - stride, stride) if timeline.segments[row] == timeline.segments[row + stride]]
    rows = np.unique(np.linspace(0, max(0, len(starts) - 1), min(count, len(starts))).round().astype(int))
    return [(starts[row], starts[row] + stride) for row in rows]


def load_images(recording: Recording, scene: Scene, wanted: Collection[int], *,
                depth: bool) -> dict[int, tuple[UInt8, DepthImage | None]]:
    """Gray images (H, W) of the wanted rows of the timeline, with their depth images where asked for and recorded."""
    depths = None
    if depth and recording.depth is not None and scene.intrinsics is not None:
        depths = DepthImages(recording.depth, scene.intrinsics)
    frames = Frames(lambda: usable_frames(recording, scene.timeline.numbers), gray_of, scene, depths=depths)
    return {shown.number: (shown.image, None if shown.depth is None else shown.depth.recorded) for shown in frames.read(wanted)}
