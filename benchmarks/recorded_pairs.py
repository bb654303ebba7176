"""Which pairs of recorded frames a measurement takes."""

from __future__ import annotations

import argparse

import numpy as np

from lightglue_trt_ros.evaluation.scene import Timeline
from lightglue_trt_ros.utils.arguments import number, numbers


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
