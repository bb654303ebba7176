"""Methods, predicted and scored in one pass over frames; poses are by the estimator that takes a twentieth of the default one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lightglue_trt_eval.predict.frames import Frames
from lightglue_trt_eval.predict.predictions import Predictions
from lightglue_trt_eval.predict.run import predict_together
from lightglue_trt_eval.score.method_score import score
from lightglue_trt_eval.score.metrics import MatcherResult
from lightglue_trt_ros.odometry.two_view import ESTIMATORS, PoseEstimator

QUICK = ESTIMATORS['magsac']


def scored(methods: Sequence[Any], frames: Frames, strides: Sequence[int], advance: Callable[[int], None] = lambda done: None,
           estimator: PoseEstimator = QUICK) -> tuple[list[MatcherResult], Predictions]:
    """The results, and the predictions whose files are gone."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Predictions(Path(folder))
        predict_together(methods, frames, strides, kept, advance)
        return score(kept, frames.scene, estimator, frames.depths is not None)[0], kept
