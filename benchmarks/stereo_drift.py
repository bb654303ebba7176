"""What the odometry makes of tracks: ours, SIFT's and KLT's, on rectified stereo recordings with truth."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.stereo_tracks import StereoMatches, StereoPair, klt_tracks, our_tracks, sift_tracks, stereo_pairs
from lightglue_trt_ros.core.cameras import Intrinsics, check_size, normalised
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.geometry import fitting_size
from lightglue_trt_ros.core.types import Float64
from lightglue_trt_ros.datasets.bag import open_recording
from lightglue_trt_ros.datasets.ground_truth import load_truth
from lightglue_trt_ros.datasets.poses import angles_deg
from lightglue_trt_ros.datasets.stereo_pairs import stereo_recording
from lightglue_trt_ros.evaluation.trajectory import align_sim3, kitti_drift, known_poses
from lightglue_trt_ros.odometry.sliding_window import SlidingWindow
from lightglue_trt_ros.utils.errors import BagError

RIGHT = 'calib_right.yaml'  # beside images_right/; it has baseline_m


@dataclass(frozen=True)
class TrackDrift:
    """One kind of tracks on one recording."""

    recording: str
    tracks: str
    matches: float  # per frame
    right: float  # of these, with a place in the right image
    percent: float  # drift as KITTI has it, with depth
    deg_per_m: float
    end_percent: float  # after the whole path, of its length
    end_deg_per_m: float
    offset_px: float  # of the right image's columns, estimated
    mono_percent: float  # without depth, after the alignment of scale
    ms: float  # per frame, of the odometry with depth
    beside_ours_deg_per_m: float | None = None  # drift from the poses of our tracks, in place of the truth


def stereo_folders(data: Path) -> list[Path]:
    """Folders in `data` that hold a rectified stereo recording. Raises BagError where there is none."""
    found = sorted(path.parent for path in data.glob(f'*/{RIGHT}'))
    if not found:
        raise BagError(f'{data} holds no stereo recording: folders with images/, images_right/, calib.yaml, {RIGHT} (baseline_m), '
                       'timestamps.txt and groundtruth.txt; name the folder above with --data')
    return found


def measure_drift(folder: Path, config: MatcherConfig) -> Iterator[TrackDrift]:
    """Ours at the images' aspect ratio and the area of the configuration, SIFT and KLT with as many keypoints. Raises BagError."""
    recording = open_recording(folder)
    camera, truth = recording.intrinsics, load_truth(recording)
    rig = stereo_recording(recording).rig
    shape = next(stereo_pairs(folder)).left.shape
    if camera is None or truth is None or len(truth) != len(recording) or not known_poses(truth.poses).all():
        raise BagError(f'{folder} has no calib.yaml, or frames without truth')
    check_size(camera, *shape)
    height, width = fitting_size((shape[0], shape[1]), config.image_height * config.image_width)
    sized = dataclasses.replace(config, image_height=height, image_width=width)
    kinds: dict[str, Callable[[Iterator[StereoPair]], Iterator[StereoMatches]]] = {
        'ours': partial(our_tracks, config=sized, rig=rig), 'SIFT': partial(sift_tracks, features=config.max_keypoints),
        'KLT': partial(klt_tracks, features=config.max_keypoints)}
    ours: Float64 | None = None
    for name, tracks in kinds.items():
        drift, poses = _drift(folder.name, name, list(tracks(stereo_pairs(folder))), camera, rig.baseline_m, truth.poses)
        beside = None if ours is None else kitti_drift(poses, ours)
        ours = poses if ours is None else ours
        yield dataclasses.replace(drift, beside_ours_deg_per_m=None if beside is None else beside.rotation_deg_per_m)


def _drift(recording: str, name: str, found: list[StereoMatches], camera: Intrinsics, baseline: float,
           truth: Float64) -> tuple[TrackDrift, Float64]:
    """And the poses with depth, (N + 1, 4, 4)."""
    window, began = SlidingWindow(float(camera.k[0, 0]), baseline), time.perf_counter()
    poses = _poses(window, found, camera)
    ms = (time.perf_counter() - began) / len(found) * 1e3
    mono = _poses(SlidingWindow(float(camera.k[0, 0])), found, camera)
    alignment = align_sim3(mono, truth)
    metric = kitti_drift(poses, truth)
    scaled = None if alignment is None else kitti_drift(alignment.apply(mono), truth)
    length = float(np.linalg.norm(np.diff(truth[:, :3, 3], axis=0), axis=1).sum())
    left_over = np.linalg.solve(np.linalg.solve(truth[0], truth[-1]), np.linalg.solve(poses[0], poses[-1]))
    return TrackDrift(
        recording, name, matches=float(np.mean([len(each.track_ids) for each in found])),
        right=float(np.mean([np.isfinite(each.right_u).sum() for each in found])),
        percent=metric.translation_percent if metric else math.nan, deg_per_m=metric.rotation_deg_per_m if metric else math.nan,
        end_percent=100 * float(np.linalg.norm(left_over[:3, 3])) / length,
        end_deg_per_m=float(angles_deg(left_over[None, :3, :3])[0]) / length, offset_px=window.right_offset_px,
        mono_percent=scaled.translation_percent if scaled else math.nan, ms=ms), poses


def _poses(window: SlidingWindow, found: list[StereoMatches], camera: Intrinsics) -> Float64:
    """(N + 1, 4, 4) of the first frame and of those after it."""
    poses = [np.eye(4)]
    for each in found:
        right = normalised(np.column_stack([each.right_u, each.keypoints[:, 1]]), camera)[:, 0]
        fix = window.add(each.stamp, each.track_ids, normalised(each.keypoints, camera), each.reference_stamp,
                         normalised(each.reference_keypoints, camera), right)
        poses.append(fix.pose)
    return np.stack(poses)
