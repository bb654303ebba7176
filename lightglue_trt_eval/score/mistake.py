"""A mistake that a calibration or a ground truth may have: the camera and the poses that would be right instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.types import Float64

LEAST = 0.02  # of a change


class Corrected(NamedTuple):
    """The camera and the true poses, as a mistake would have them."""

    k: Float64  # (3, 3)
    poses: Float64  # (P, 2, 4, 4) world from camera, of both frames of each pair
    bend: float = 0.0  # relative change of a radius that is as long as the focal length
    view: Intrinsics | None = None  # whose distortion the points have; None: that of the calibration


class Mistake(NamedTuple):
    """A family of models."""

    model: Callable[[Float64], Corrected]
    starts: list[Float64]  # (n,) parameters; those of n = 0 are not fitted
    reason: Callable[[Float64, bool], str]  # in words, of parameters and whether true steps are reversed; empty: no reason
    is_surer: Callable[[bool], bool] = lambda is_reversed: False  # than what rotations tell, if true steps are reversed or not


def without_parameters(reason: str, model: Corrected) -> Mistake:
    """One model, which is not fitted."""
    return Mistake(partial(always, model), [np.zeros(0)], partial(always, reason), lambda _: True)


def always(given: Any, *_: object) -> Any:
    """`given`, whatever else is."""
    return given


def is_changed(parameters: Float64) -> bool:
    """Whether parameters (n,) are worth a word."""
    return bool(np.abs(parameters).max() > LEAST)


def if_changed(reason: Callable[[Float64, bool], str]) -> Callable[[Float64, bool], str]:
    """`reason`, and none where the parameters are about 0."""
    return lambda parameters, is_reversed: reason(parameters, is_reversed) if is_changed(parameters) else ''
