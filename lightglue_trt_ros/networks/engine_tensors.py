"""The tensors between the graphs of the engines and the kernels: names, shapes and types, which both sides import.

A frame's features are those of image 0 or 1 of a pair in the matcher: see `of_pair`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from .architecture import HEAD_DIM

IMAGE = 'image'  # of the extractor
LOGITS, DENSE = 'logits', 'dense'  # its maps, which the selection kernels take
FEATURES = KEYPOINTS, SCORES, DESCRIPTORS = 'keypoints', 'scores', 'descriptors'  # of a frame
THRESHOLDS = MATCH_THRESHOLD, DETECTION_THRESHOLD = 'match_threshold', 'detection_threshold'
STATE, NEXT_STATE = 'state', 'next_state'  # of both images, before and after a part of the matcher
ROTATION = COSINES, SINES = 'cosines', 'sines'  # the encoded positions
PROJECTED, ATTENDED = 'projected', 'attended'  # before and after an attention kernel
TOKENS = 'tokens'  # logits, which the confidence kernel takes
FINAL, MATCHABILITY = 'final', 'matchability'  # which the assignment kernels take
MATCHES, MATCH_SCORES = 'matches0', 'scores'  # the row of image 1 or -1, and the score, by row of image 0


class TensorType(NamedTuple):
    """Of one tensor."""

    dtype: DTypeLike
    shape: tuple[int, ...]


def of_pair(name: str) -> tuple[str, str]:
    """The names of a feature tensor of both images."""
    return f'{name}0', f'{name}1'


def frame_types(k: int, channels: int, dtype: DTypeLike) -> dict[str, TensorType]:
    """Types of a frame's features, K rows; descriptors have `channels` numbers of `dtype`."""
    return {KEYPOINTS: TensorType(np.float32, (k, 2)), SCORES: TensorType(np.float32, (k,)),
            DESCRIPTORS: TensorType(dtype, (k, channels))}


def result_types(k: int) -> dict[str, TensorType]:
    """Types of what a pair of K keypoints each gives."""
    return {MATCHES: TensorType(np.int32, (k,)), MATCH_SCORES: TensorType(np.float32, (k,))}


def matcher_input_types(k: int, width: int, channels: int, dtype: DTypeLike) -> dict[str, TensorType]:
    """Types of all that a part of the matcher may take; the state is `width` wide and computed in `dtype`."""
    features = {side: kind for name, kind in frame_types(k, channels, dtype).items() for side in of_pair(name)}
    return {**features, **dict.fromkeys(THRESHOLDS, TensorType(np.float32, ())), STATE: TensorType(dtype, (2, k, width)),
            ATTENDED: TensorType(dtype, (2, k, 2 * width)), **dict.fromkeys(ROTATION, TensorType(dtype, (2, 1, k, HEAD_DIM)))}
