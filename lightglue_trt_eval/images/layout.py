"""Images that are no single view of a lens: panoramas of 360 degrees, and both views of a stereo camera in one image."""

from __future__ import annotations

import numpy as np

from lightglue_trt_ros.core.geometry import resize_gray
from lightglue_trt_ros.core.types import UInt8

from .moving_frames import shared_corners

NEXT, UNLIKE = 1.5, 0.5  # differences of the outer columns, over those of neighbouring ones, and over those of far ones
WIDE = 1.9  # width over height of two views side by side
SIDE, ROW_PX = 320, 3.0  # pixels of the longer side of views that are compared, and how far a point may be above the other one
LEAST, MOST = 30, 0.7  # points that both views have, and the share of them in one row
LOOKED_AT = 50  # images: a camera sends all in one layout


class Layout:
    """How a camera sends its images, by the first ones."""

    def __init__(self) -> None:
        self._seen = self._panoramas = self._pairs = 0

    def add(self, image: UInt8) -> None:
        """The next gray image (H, W)."""
        if self._seen < LOOKED_AT:
            self._seen += 1
            self._panoramas += is_panorama(image)
            self._pairs += is_pair(image)

    @property
    def doubts(self) -> list[str]:
        """Lines for people, where most images are no single view."""
        kinds = {'panoramas of 360 degrees, whose right edge goes on at the left: no calibration of a lens describes them, and '
                 'poses are wrong. Cut them into views of at most 90 degrees': self._panoramas,
                 'two views of one scene, as of a stereo camera that sends both in one image: cut them into left and right images':
                     self._pairs}
        return [f'{count} of the first {self._seen} images are {kind}' for kind, count in kinds.items() if 2 * count > self._seen]


def is_panorama(image: UInt8) -> bool:
    """Whether a gray image (H, 2 H), as equirectangular ones are, is as like across its edges as within."""
    height, width = image.shape
    if width != 2 * height or width < 8:
        return False
    columns = image.T.astype(np.int16)

    def apart(first: int, second: int) -> float:
        return float(np.abs(columns[first] - columns[second]).mean())

    near, far = (apart(0, 1) + apart(-1, -2)) / 2, (apart(0, width // 2) + apart(-1, width // 2)) / 2
    return apart(0, -1) < min(NEXT * near, UNLIKE * far)


def is_pair(image: UInt8) -> bool:
    """Whether the halves of a gray image (H, W) that is wide, or higher than wide, show one scene in the same rows."""
    height, width = image.shape
    if width < WIDE * height and height <= width:
        return False
    halves = (image[:, :width // 2], image[:, width - width // 2:]) if width > height else \
        (image[:height // 2], image[height - height // 2:])
    scale = min(SIDE / max(halves[0].shape), 1.0)
    size = (max(1, round(halves[0].shape[0] * scale)), max(1, round(halves[0].shape[1] * scale)))
    first, second = shared_corners(*(resize_gray(half, size) for half in halves))
    return len(first) >= LEAST and float(np.mean(np.abs(first - second)[:, 1] < ROW_PX)) > MOST
