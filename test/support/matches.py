"""Matches of a frame, made up."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightglue_trt_ros.core.refinement import unrefined
from lightglue_trt_ros.core.types import FrameMatches


def frame_matches(keypoints: np.ndarray, reference_keypoints: np.ndarray, stamp: float = 1.1, **columns: Any) -> FrameMatches:
    """Sure matches of tracks that begin with them, a tenth of a second apart and not refined; `columns` are what differs."""
    count = len(keypoints)
    usual = {'scores': np.ones(count, np.float32), 'track_ids': np.arange(count, dtype=np.uint32),
             'track_lengths': np.full(count, 2, np.uint32), 'covariances': unrefined(count), 'carried': np.zeros(count, np.uint8)}
    return FrameMatches(**{'stamp': stamp, 'reference_stamp': stamp - 0.1, 'keypoints': np.asarray(keypoints, np.float32),
                           'reference_keypoints': np.asarray(reference_keypoints, np.float32), **usual, **columns})
