"""How often the odometry's errors are within one and two of its standard deviations, on recordings with ground truth."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.recorded_pairs import sized
from lightglue_trt_ros.core.cameras import Intrinsics, StereoRig
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.depth import DepthImage, depth_pixels
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.geometry import contiguous, size_of
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.stereo import RightImage
from lightglue_trt_ros.core.types import Float64, FrameMatches
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth, poses_at
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.datasets.stereo_and_depth import depth_of, paired, stereo_recording, with_nearest
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.odometry.sliding_window import MatchOdometry, Quality
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import BagError

DATA = 'folder of recordings with ground truth, and with right or depth images'
FRAMES, EVERY = 12, 10  # of a piece of the way, and between the first frames of two
APART_S = 0.02  # between an image and its pose


@dataclass(frozen=True)
class PoseCalibration:
    """Of one recording: shares, in percent, of the errors on all six axes that are within one and two deviations."""

    recording: str
    metres: bool  # by right or depth images; False: by the left images alone, in units of the first step
    frames: int
    twist: tuple[float, float]
    piece: tuple[float, float]  # of poses up to FRAMES after the odometry began
    whole: tuple[float, float]  # of poses since the first frame


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Match each recording once, and run the odometry on it and on pieces of it. Raises BagError."""
    found = [each for folder in recordings(args.data) for each in measure_recording(folder, config)]
    print_table(f'Errors within one / two standard deviations, %. Pieces begin every {EVERY} frames and have {FRAMES}',
                ['recording', 'scale', 'frames', 'twist', 'pose, pieces', 'pose, whole'],
                [(each.recording, 'metres' if each.metres else 'own', str(each.frames),
                  *(f'{one:.0f} / {two:.0f}' for one, two in (each.twist, each.piece, each.whole))) for each in found])
    return {'recordings': [dataclasses.asdict(each) for each in found]}


def recordings(data: Path) -> list[Path]:
    """Folders in `data` with right or depth images. Raises BagError where there is none."""
    folders = sorted({path.parent for name in ('images_right', 'depth') for path in data.glob(f'*/{name}')})
    if not folders:
        raise BagError(f'{data} holds no recording with images_right/ or depth/: name the folder above with --data')
    return folders


def measure_recording(folder: Path, config: MatcherConfig) -> Iterator[PoseCalibration]:
    """With right or depth images, and without. Raises BagError."""
    recording = open_recording(folder)
    camera, truth = recording.intrinsics, load_ground_truth(recording)
    if camera is None or truth is None:
        raise BagError(f'{folder} has no calibration or no ground truth: add calib.yaml and groundtruth.txt')
    matches = list(matched(recording, camera, sized(config, size_of(gray_of(next(recording.frames()).load())))))
    stamps = [round(each.stamp * 1e9) for each in matches]
    poses = poses_at(truth, [round(matches[0].reference_stamp * 1e9), *stamps], APART_S)
    rig = stereo_recording(recording).rig if recording.right is not None else None
    for calibration, depth in ((rig or camera, rig is None), (camera, False)):
        whole = errors_of(matches, poses, calibration, depth)
        pieces = [errors_of(matches[first:first + FRAMES], poses[first:], calibration, depth)
                  for first in range(0, len(matches) - FRAMES, EVERY)]
        yield PoseCalibration(folder.name, calibration is rig or depth, len(matches), shares(whole[1]),
                          shares(np.concatenate([piece for piece, _ in pieces])), shares(whole[0]))


def matched(recording: Recording, camera: Intrinsics, config: MatcherConfig) -> Iterator[FrameMatches]:
    """The matches of all frames, with right points or depth, as the node has them."""
    with closing(open_backend(config).backend) as backend:
        matcher = FrameMatcher(backend, config)
        if recording.right is None:
            for frame, other in with_nearest(recording.frames(), depth_of(recording).frames()):
                depth = None if other is None else DepthImage(*depth_pixels(other.load()), camera)
                found = matcher.process(gray_of(frame.load()), frame.stamp_ns * 1e-9, depth=depth, camera=camera)
                if found is not None:
                    yield found
            return
        pair = stereo_recording(recording)
        for frame, other in paired(pair.left.frames(), pair.right.frames()):
            right = None if other is None else RightImage(gray_of(other.load()), pair.rig)
            found = matcher.process(gray_of(frame.load()), frame.stamp_ns * 1e-9, right, camera=pair.rig.left)
            if found is not None:
                yield found


def errors_of(matches: list[FrameMatches], truth: Float64, calibration: Intrinsics | StereoRig,
              depth: bool) -> tuple[Float64, Float64]:
    """Errors of poses and of twists (N, 6), in deviations; `truth` (M, 4, 4) begins with the first frame's reference."""
    odometry, of_poses, of_twists = MatchOdometry(calibration, depth=depth), [], []
    unit = 1.0 if odometry.baseline_m is not None else 0.0  # 0: not known yet
    for number, each in enumerate(matches, 1):
        fix = odometry.add(each)
        if fix.quality is not Quality.TRACKING:
            continue
        moved = np.linalg.solve(truth[0], truth[number])
        unit = unit or float(1 / np.linalg.norm(moved[:3, 3]))
        step = np.linalg.solve(truth[number - 1], truth[number])
        for pose in (moved, step):
            pose[:3, 3] *= unit
        true_twist = np.concatenate([step[:3, :3].T @ step[:3, 3], vector(step)[3:]]) / (each.stamp - each.reference_stamp)
        of_poses.append(vector(np.linalg.solve(moved, fix.pose)) / np.sqrt(np.diag(fix.covariance)))
        of_twists.append((np.concatenate([fix.velocity, fix.rotation_rate]) - true_twist) / np.sqrt(np.diag(fix.twist_covariance)))
    return np.reshape(of_poses, (-1, 6)), np.reshape(of_twists, (-1, 6))


def vector(pose: NDArray[Any]) -> Float64:
    """(6,) translation and rotation vector of a pose (4, 4)."""
    return np.concatenate([pose[:3, 3], cv2.Rodrigues(contiguous(pose[:3, :3]))[0].ravel()])


def shares(errors: Float64) -> tuple[float, float]:
    """In percent; NaN without any, and those without truth do not count."""
    known = errors[np.isfinite(errors).all(axis=1)]
    one, two = (float(100 * np.mean(np.abs(known) < limit)) if len(known) else float('nan') for limit in (1, 2))
    return one, two
