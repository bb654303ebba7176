"""Drift of the sliding-window odometry on tracks of the networks, of SIFT and of KLT, on rectified stereo recordings."""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.recorded_pairs import sized
from lightglue_trt_eval.baselines import KltMatcher, SiftMatcher, follow_points
from lightglue_trt_eval.score.trajectory import align_sim3, kitti_drift, known_poses
from lightglue_trt_ros.core.cameras import StereoRig
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.geometry import size_of
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.stereo import RightImage
from lightglue_trt_ros.core.types import Float32, Float64, FrameMatches, UInt8
from lightglue_trt_ros.datasets.calibration_files import check_size
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.poses import angles_deg
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.stereo_and_depth import paired, stereo_recording
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.odometry.sliding_window import MatchOdometry
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import BagError

DATA = 'folder of rectified stereo recordings'
RIGHT = 'calib_right.yaml'  # next to images_right/; it has baseline_m
Points = tuple[Float32, Float32]  # (M, 2) of the left image and of the right one
ROWS_PX = 1.5  # a match further from its row is none: the images are rectified


@dataclass(frozen=True)
class TrackDrift:
    """One kind of tracks on one recording."""

    recording: str
    tracks: str
    matches: float  # per frame
    right: float  # of these, with a point in the right image
    percent: float  # drift as KITTI has it, with depth
    deg_per_m: float
    end_percent: float  # after the whole path, of its length
    end_deg_per_m: float
    offset_px: float  # error of the right image's columns, estimated
    mono_percent: float  # without depth, after the alignment of scale
    ms: float  # per frame, of the odometry with depth
    beside_ours_deg_per_m: float | None = None  # drift against the poses of our tracks instead of ground truth


class StereoPair(NamedTuple):
    """Two rectified images of one moment."""

    stamp: float  # seconds
    left: UInt8
    right: UInt8


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Run the odometry on three kinds of tracks of each recording. Raises BagError."""
    drifts = [drift for folder in stereo_folders(args.data) for drift in measure_drift(folder, config)]
    print_table('Odometry of stereo tracks. off px: by how much it finds the right columns off. left only: of the left images, '
                'after the alignment of scale',
                ['recording', 'tracks', 'matches', 'right', 'drift %', 'deg/m', 'at the end %', 'deg/m', 'off px', 'left only %',
                 'deg/m from ours', 'ms'],
                [(drift.recording, drift.tracks, f'{drift.matches:.0f}', f'{drift.right:.0f}', f'{drift.percent:.2f}',
                  f'{drift.deg_per_m:.4f}', f'{drift.end_percent:.2f}', f'{drift.end_deg_per_m:.4f}', f'{drift.offset_px:.2f}',
                  f'{drift.mono_percent:.2f}',
                  '-' if drift.beside_ours_deg_per_m is None else f'{drift.beside_ours_deg_per_m:.4f}', f'{drift.ms:.0f}')
                 for drift in drifts])
    return {'recordings': [dataclasses.asdict(drift) for drift in drifts]}


def stereo_folders(data: Path) -> list[Path]:
    """Folders in `data` that hold a rectified stereo recording. Raises BagError where there is none."""
    folders = sorted(path.parent for path in data.glob(f'*/{RIGHT}'))
    if not folders:
        raise BagError(f'{data} holds no stereo recording: folders with images/, images_right/, calib.yaml, {RIGHT} (baseline_m), '
                       'timestamps.txt and groundtruth.txt; name the folder above with --data')
    return folders


def measure_drift(folder: Path, config: MatcherConfig) -> Iterator[TrackDrift]:
    """Ours at the images' aspect ratio and the area of the configuration, SIFT and KLT with as many keypoints. Raises BagError."""
    recording = open_recording(folder)
    camera, truth = recording.intrinsics, load_ground_truth(recording)
    rig = stereo_recording(recording).rig
    size = size_of(next(stereo_pairs(folder)).left)
    if camera is None or truth is None or len(truth) != len(recording) or not known_poses(truth.poses).all():
        raise BagError(f'{folder} has no calib.yaml, or frames without ground truth')
    check_size(camera, *size)
    kinds: dict[str, Callable[[Iterator[StereoPair]], Iterator[FrameMatches]]] = {
        'ours': partial(our_tracks, config=sized(config, size), rig=rig),
        'SIFT': partial(sift_tracks, features=config.max_keypoints), 'KLT': partial(klt_tracks, features=config.max_keypoints)}
    ours: Float64 | None = None
    for name, tracks in kinds.items():
        drift, poses = drift_of_tracks(folder.name, name, list(tracks(stereo_pairs(folder))), rig, truth.poses)
        from_ours = None if ours is None else kitti_drift(poses, ours)
        ours = poses if ours is None else ours
        yield dataclasses.replace(drift, beside_ours_deg_per_m=None if from_ours is None else from_ours.rotation_deg_per_m)


def drift_of_tracks(recording: str, name: str, matches: list[FrameMatches], rig: StereoRig,
                    truth: Float64) -> tuple[TrackDrift, Float64]:
    """The drift of N frames' tracks, and their poses with depth, (N + 1, 4, 4)."""
    in_right = [each.right_keypoints for each in matches if each.right_keypoints is not None]
    odometry, began = MatchOdometry(rig), time.perf_counter()
    poses = _poses(odometry, matches)
    ms = (time.perf_counter() - began) / len(matches) * 1e3
    mono = _poses(MatchOdometry(rig.left), matches)
    alignment = align_sim3(mono, truth)
    metric = kitti_drift(poses, truth)
    scaled = None if alignment is None else kitti_drift(alignment.apply(mono), truth)
    length = float(np.linalg.norm(np.diff(truth[:, :3, 3], axis=0), axis=1).sum())
    left_over = np.linalg.solve(np.linalg.solve(truth[0], truth[-1]), np.linalg.solve(poses[0], poses[-1]))
    return TrackDrift(
        recording, name, matches=float(np.mean([len(each.track_ids) for each in matches])),
        right=float(np.mean([np.isfinite(points[:, 0]).sum() for points in in_right])),
        percent=metric.translation_percent if metric else math.nan, deg_per_m=metric.rotation_deg_per_m if metric else math.nan,
        end_percent=100 * float(np.linalg.norm(left_over[:3, 3])) / length,
        end_deg_per_m=float(angles_deg(left_over[None, :3, :3])[0]) / length, offset_px=odometry.window.right_offset_px,
        mono_percent=scaled.translation_percent if scaled else math.nan, ms=ms), poses


def _poses(odometry: MatchOdometry, matches: list[FrameMatches]) -> Float64:
    """(N + 1, 4, 4) of the first frame and of those after it."""
    return np.stack([np.eye(4), *(odometry.add(each).pose for each in matches)])


def stereo_pairs(folder: Path) -> Iterator[StereoPair]:
    """The images of a recording that have right ones, in order. Raises BagError."""
    recording = stereo_recording(open_recording(folder))
    for frame, other in paired(recording.left.frames(), recording.right.frames()):
        if other is not None:
            yield StereoPair(frame.stamp_ns * 1e-9, gray_of(frame.load()), gray_of(other.load()))


def our_tracks(pairs: Iterator[StereoPair], config: MatcherConfig, rig: StereoRig) -> Iterator[FrameMatches]:
    """By the networks, as the node does it."""
    with closing(open_backend(config).backend) as backend:
        frames = FrameMatcher(backend, config)
        for pair in pairs:
            matches = frames.process(pair.left, pair.stamp, RightImage(pair.right, rig), camera=rig.left)
            if matches is not None:
                yield matches


def sift_tracks(pairs: Iterator[StereoPair], features: int) -> Iterator[FrameMatches]:
    """By SIFT with the ratio test, both ways and nearest to nearest."""
    across = SiftMatcher(features, mutual=True)
    return _chained(pairs, SiftMatcher(features, mutual=True), lambda pair, points: across.match(pair.left, pair.right)[:2])


def klt_tracks(pairs: Iterator[StereoPair], features: int) -> Iterator[FrameMatches]:
    """By corners that Lucas-Kanade follows, over time and, from where they are, into the right image and back."""
    def follow(pair: StereoPair, points: Float32) -> Points:
        if not len(points):
            return points, points
        in_right, good = follow_points(pair.left, pair.right, points)
        return points[good], in_right[good]
    return _chained(pairs, KltMatcher(features), follow)


def _chained(pairs: Iterator[StereoPair], matcher: SiftMatcher | KltMatcher,
             across: Callable[[StereoPair, Float32], Points]) -> Iterator[FrameMatches]:
    """Correspondences of consecutive frames as tracks: a keypoint is the same where its coordinates are."""
    ids: dict[tuple[float, float], int] = {}
    before, count = 0.0, 0
    for pair in pairs:
        found = matcher.process(pair.left)
        if found is not None:
            tracks = []
            for start in map(tuple, found[0].tolist()):
                tracks.append(ids.get(start, count))
                count += start not in ids
            ids = dict(zip(map(tuple, found[1].tolist()), tracks, strict=True))
            left, right = across(pair, found[1])
            row_of = {point: row for row, point in enumerate(map(tuple, left.tolist()))}
            both = [(row, row_of[point]) for row, point in enumerate(map(tuple, found[1].tolist())) if point in row_of]
            rows, others = np.array(both, np.int64).reshape(-1, 2).T
            in_right = _right_points(len(tracks), rows, left[others], right[others])
            yield _matches(pair.stamp, before, tracks, found[1], found[0], in_right)
        before = pair.stamp


def _right_points(count: int, rows: Any, left: Float32, right: Float32) -> Float32:
    """`right` (N, 2) at `rows` of (count, 2), where they lie on the row of `left` and not to its right; NaN elsewhere."""
    points = np.full((count, 2), np.nan, np.float32)
    good = (np.abs(left[:, 1] - right[:, 1]) < ROWS_PX) & (left[:, 0] > right[:, 0])
    points[rows[good]] = right[good]
    return points


def _matches(stamp: float, before: float, tracks: list[int], points: Float32, reference_points: Float32,
             right: Float32) -> FrameMatches:
    """Tracks without scores and covariances, which the odometry does not read."""
    count = len(tracks)
    return FrameMatches(stamp, before, points, reference_points, np.ones(count, np.float32), np.array(tracks, np.uint32),
                        np.full(count, 2, np.uint32), np.zeros((count, 2, 2), np.float32), np.zeros(count, np.uint8),
                        right_keypoints=right)
