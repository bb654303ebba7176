"""Tracks as the estimators of VINS-Mono and VINS-Fusion read them (Qin, Li and Shen, T-RO 2018). No ROS here."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.cameras import Intrinsics, normalised
from ...core.geometry import Size
from ...core.types import Float32, Float64, FrameMatches

LARGEST_ID = 2**24  # beyond it, float32 no longer tells neighbours apart
Int64 = NDArray[np.int64]


class VinsPoints(NamedTuple):
    """The tracks of one message, M rows: what the camera saw, then what the right one of its pair did, by the same ids."""

    cameras: Int64  # (M,) the camera, counted from 0; of a pair the right one is the next
    ids: Int64  # (M,), those of no other camera: each is a number of the camera's own, times the cameras, plus its number
    points: Float64  # (M, 2) on the plane z = 1, undistorted
    pixels: Float32  # (M, 2) of the image as it was received
    velocities: Float64  # (M, 2) of `points`, per second


class _Observed(NamedTuple):
    """A track in the last message."""

    number: int
    point: Float64  # (2,) on the plane z = 1
    right: Float64  # (2,) the same of the right camera, NaN where it was not seen there


class VinsTracks:
    """Chooses, numbers and measures the tracks of one camera, frame by frame.

    An estimator takes the observations of an id for consecutive: so an id is kept from one message to the next and never comes
    back after a message without it, whatever the matcher's own ids do (a keyframe finds points again after frames without them).
    """

    def __init__(self, max_tracks: int, camera: int = 0, cameras: int = 1) -> None:
        """Of camera number `camera`, counted from 0, of so many."""
        self.max_tracks, self._camera, self._cameras = max_tracks, camera, cameras
        self._next = 0
        self._last: dict[int, _Observed] = {}  # by the matcher's track ids
        self._stamp = math.nan  # its own

    def update(self, matches: FrameMatches, intrinsics: Intrinsics, right: Intrinsics | None = None) -> VinsPoints:
        """At most `max_tracks` of a frame's matches, and with the `right` camera their points there. Those that a camera's model
        cannot undistort are left out.

        Velocities are since the last message where the track was in it, as the estimators' own tracker has it, else since the
        reference; in the right image, of which no reference is known, they are 0 then, as that tracker has them.
        """
        kept = np.array([track in self._last for track in matches.track_ids.tolist()], np.bool_)
        rows = spread(matches.keypoints, kept, matches.track_lengths, matches.scores, (intrinsics.height, intrinsics.width),
                      self.max_tracks)
        tracks = matches.track_ids[rows].tolist()
        now, before = normalised(matches.keypoints[rows], intrinsics), normalised(matches.reference_keypoints[rows], intrinsics)
        elapsed = np.full((len(rows), 1), matches.stamp - matches.reference_stamp)
        there_before = np.full((len(rows), 2), np.nan)
        for index in np.flatnonzero(kept[rows]).tolist():
            _, before[index], there_before[index] = self._last[tracks[index]]
            elapsed[index] = matches.stamp - self._stamp
        velocities = (now - before) / elapsed
        good = np.flatnonzero(np.isfinite(velocities).all(axis=1))
        there = np.full((len(rows), 2), np.nan)
        if right is not None and matches.right_keypoints is not None:
            there = normalised(matches.right_keypoints[rows], right)
        self._last = {tracks[index]: _Observed(self._last[tracks[index]].number if tracks[index] in self._last else self._new_id(),
                                               now[index], there[index]) for index in good.tolist()}
        ids = np.array([observed.number for observed in self._last.values()], np.int64) * self._cameras + self._camera
        camera = np.full(len(good), self._camera)
        found = VinsPoints(camera, ids, now[good], matches.keypoints[rows[good]], velocities[good])
        seen = np.isfinite(there[good]).all(axis=1)
        if matches.right_keypoints is not None and seen.any():
            across = good[seen]
            moved = np.nan_to_num((there - there_before)[across] / (matches.stamp - self._stamp))
            beside = VinsPoints(camera[seen] + 1, ids[seen], there[across], matches.right_keypoints[rows[across]], moved)
            found = VinsPoints(*(np.concatenate([first, second]) for first, second in zip(found, beside, strict=True)))
        self._stamp = matches.stamp
        return found

    def _new_id(self) -> int:
        self._next = (self._next + 1) % (LARGEST_ID // self._cameras)
        return self._next


def spread(pixels: Float32, kept: NDArray[np.bool_], lengths: NDArray[np.uint32], scores: Float32, size: Size, count: int) -> Int64:
    """At most `count` rows of `pixels` (M, 2) in an image of `size`, spread over a grid of about as many square cells.

    In a cell those `kept` come first, then long tracks, then high scores; the best of every cell go before any second one.
    """
    columns, rows = (np.asarray(pixels, np.float64) / math.sqrt(size[0] * size[1] / count)).astype(np.int64).T
    cells = rows * (size[0] + size[1] + 1) + columns
    best_first = np.lexsort((-scores, -lengths.astype(np.int64), ~kept))
    by_cell = np.argsort(cells[best_first], kind='stable')
    ordered = cells[best_first][by_cell]
    place = np.empty(len(ordered), np.int64)  # within its cell
    place[by_cell] = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    return np.asarray(best_first[np.argsort(place, kind='stable')[:count]], np.int64)


def channels(found: VinsPoints, count: int) -> dict[str, Float32]:
    """The channels of the message by name, each (M,) float32: five as VINS-Mono reads them, nine as VINS-Fusion.

    VINS-Fusion takes the last three for a point's true position, which nobody knows: zeros. Of an id it asserts that camera 0 comes
    first and camera 1, which makes it a stereo observation, second.
    """
    (u, v), (vx, vy) = found.pixels.T, found.velocities.T
    named = {'id': found.ids, 'u': u, 'v': v, 'vx': vx, 'vy': vy}
    if count == 9:
        nothing = np.zeros(len(u))
        named = {'id': found.ids, 'camera': found.cameras, 'u': u, 'v': v, 'vx': vx, 'vy': vy,
                 'gx': nothing, 'gy': nothing, 'gz': nothing}
    return {name: np.asarray(values, np.float32) for name, values in named.items()}
