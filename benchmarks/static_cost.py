"""What static points cost on the host: FrameMatcher.process without networks on ordinary frames, and learning a pattern."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from lightglue_trt_eval.demo.flight import textured_frames
from lightglue_trt_eval.images.degradation import degraded
from lightglue_trt_eval.times.null_backend import NullBackend
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.static_pixels import StaticPixels
from lightglue_trt_ros.core.static_points import NOTHING
from lightglue_trt_ros.core.types import HostFeatures, UInt8
from lightglue_trt_ros.utils.console import print_table

DATA = 'not used'
FRAMES, WARM_UP, ROUNDS = 3000, 100, 9
MODES = ('auto', 'keep', 'not judged')


class MovingBackend(NullBackend):
    """Keypoints that move by 8.5 pixels from frame to frame, forth and back: none stands."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._moved, self._count = replace(self._features, keypoints=self._features.keypoints + np.array((8, 3), np.float32)), 0

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> HostFeatures:
        self._count += 1
        return self._moved if self._count % 2 else self._features


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Print and return milliseconds on one core: quartiles of each mode, and of the differences of frames beside each other."""
    cv2.setNumThreads(1)
    height, width, keypoints = config.image_height, config.image_width, config.max_keypoints
    image, matchers = np.zeros((height, width), np.uint8), {}
    for mode in MODES:
        settings = MatcherConfig(image_height=height, image_width=width, max_keypoints=keypoints, refinement='none',
                                 static_points='auto' if mode == 'not judged' else mode)
        matchers[mode] = FrameMatcher(MovingBackend(settings.engine_spec('fp32')), settings)
    unjudged: Any = matchers['not judged'].static_points
    unjudged.judge, unjudged.learn = lambda *given: NOTHING, lambda *given: None
    times = {mode: np.zeros(FRAMES) for mode in MODES}
    for number in range(FRAMES):
        for place in range(len(MODES)):
            mode = MODES[(number + place) % len(MODES)]
            begin = time.perf_counter()
            matchers[mode].process(image, 0.1 * number)
            times[mode][number] = 1e3 * (time.perf_counter() - begin)
    rows = dict(times) | {f'auto minus {mode}': times['auto'] - times[mode] for mode in MODES[1:]}
    learning = np.median([_learning(height, width) for _ in range(ROUNDS)], axis=0)
    rows |= {'learn a new pattern': learning[:StaticPixels.MEMORY], 'learned pattern': learning[StaticPixels.MEMORY:]}
    report = {name: [*np.percentile(row[WARM_UP:] if len(row) == FRAMES else row, (25, 50, 75)).tolist(), float(row.mean())]
              for name, row in rows.items()}
    print_table(f'{width}x{height}, K = {keypoints}, ms', ['', 'lower quartile', 'median', 'upper quartile', 'mean'],
                [[name, *(f'{value:.3f}' for value in row)] for name, row in report.items()])
    return report


def _learning(height: int, width: int) -> list[float]:
    """Of each frame with a projector's dots."""
    pattern, times = StaticPixels((height, width)), []
    for image in textured_frames(3 * StaticPixels.MEMORY, height, width):
        shown = degraded(image, 'dots')
        begin = time.perf_counter()
        pattern.add(shown, StaticPixels.APART_PX)
        times.append(1e3 * (time.perf_counter() - begin))
    return times
