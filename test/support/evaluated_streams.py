"""What an evaluation finds on a backend that places points, beside what the node's frontend finds there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.predict.frames import ShownFrame
from lightglue_trt_eval.predict.methods import OurMethod
from lightglue_trt_eval.predict.shared_networks import SharedNetworks
from lightglue_trt_ros.core.backend import RefiningBackend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.types import FrameMatches


def evaluated_beside_the_node(backend: RefiningBackend, config: MatcherConfig,
                              images: Sequence[np.ndarray]) -> Iterator[tuple[MatchedPoints, FrameMatches]]:
    """Of each image after the first: what the evaluation tracks, and the node.

    Another stride is between; the device has room for three frames.
    """
    matcher = FrameMatcher(backend, config)
    expected = [matcher.process(image, 0.1 * number) for number, image in enumerate(images)]
    del matcher
    frontend = OurMethod('ours', SharedNetworks(backend, [config]), config)
    every, fourth = frontend.stream(0), frontend.stream(1)
    for number, image in enumerate(images):
        shown = ShownFrame(number, 0.1 * number, image)
        found = every.process(shown)
        if number % 4 == 0:
            fourth.process(shown)
        if number:
            matches = expected[number]
            assert found is not None
            assert found.tracked is not None
            assert matches is not None
            yield found.tracked, matches
