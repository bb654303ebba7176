"""Which pairs of recorded frames a measurement takes, and their images."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from lightglue_trt_eval.predict.scene import Scene, Timeline, usable_frames
from lightglue_trt_eval.score.depth_accuracy import DepthImages
from lightglue_trt_ros.core.depth import DepthImage
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.utils.arguments import number, numbers
from lightglue_trt_ros.utils.commands import log


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    """Which frames."""
    parser.add_argument('--image-topic', metavar='TOPIC', help='of --data, where a bag has several with images')
    parser.add_argument('--strides', type=numbers, default='1,4', metavar='N,…',
                        help='frames from one to the next, default: %(default)s')
    parser.add_argument('--pairs', type=number(int, 1), default=40, help='of each recording and stride, default: %(default)s')


def sample_pairs(timeline: Timeline, stride: int, count: int) -> list[tuple[int, int]]:
    """At most `count` of the pairs of frames that an evaluation has at this stride, evenly sampled."""
    starts = [row for row in range(0, len(timeline) - stride, stride) if timeline.segments[row] == timeline.segments[row + stride]]
    rows = np.unique(np.linspace(0, max(0, len(starts) - 1), min(count, len(starts))).round().astype(int))
    return [(starts[row], starts[row] + stride) for row in rows]


def load_images(recording: Recording, scene: Scene, wanted: Collection[int], *,
                depth: bool) -> dict[int, tuple[UInt8, DepthImage | None]]:
    """Gray images (H, W) of the wanted rows of the timeline, with their depth images where asked for and recorded."""
    frames = usable_frames(recording, scene.timeline.numbers)
    entries: Iterator[Any] = ((frame, None) for frame in frames)
    if depth and recording.depth is not None and scene.intrinsics is not None:
        entries = DepthImages(recording.depth, scene.intrinsics, '', log.info).of_frames(frames)
    return {row: (gray_of(frame.load()), found.recorded if found else None)
            for row, (frame, found) in enumerate(entries) if row in wanted}
