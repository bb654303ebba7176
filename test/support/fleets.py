"""Small real recordings for the tests of fleets: flights over the demo's town, as image folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.image_recordings import image_folder, pinhole

HEIGHT, WIDTH, KEYPOINTS, FRAMES = 96, 128, 96, 9
SMALL = ('--height', str(HEIGHT), '--width', str(WIDTH), '--max-keypoints', str(KEYPOINTS), '--strides', '1,2',
         '--backend', 'onnxruntime', '--weights', 'ours_light', '--estimator', 'magsac')


def make_flight(folder: Path, seed: int = 7, frames: int = FRAMES, truth: bool = True) -> Path:
    """images/, timestamps.txt, calib.yaml, and groundtruth.txt where the truth is told."""
    pytest.importorskip('skimage', reason='scikit-image is not installed: there are no photographs to fly over')
    from lightglue_trt_eval.demo.flight import Flight
    from lightglue_trt_ros.datasets.poses import quaternions_from_rotations
    flight = Flight(frames=frames, height=HEIGHT, width=WIDTH, seed=seed)
    rendered, k = list(flight.render()), flight.intrinsics
    stamps = [f'{frame.stamp_ns * 1e-9:.6f}' for frame in rendered]
    image_folder(folder, [frame.image for frame in rendered], stamps,
                 calibration=pinhole(WIDTH, HEIGHT, k[0, 0], (k[0, 2], k[1, 2])))
    if truth:
        poses = np.stack([frame.pose for frame in rendered])
        turns = quaternions_from_rotations(poses[:, :3, :3]).tolist()
        rows = [' '.join([stamp, *map(repr, position), *map(repr, turn)])
                for stamp, position, turn in zip(stamps, poses[:, :3, 3].tolist(), turns, strict=True)]
        (folder / 'groundtruth.txt').write_text('\n'.join(rows) + '\n')
    return folder


def copy_of(folder: Path, target: Path) -> Path:
    """The same recording at another place."""
    shutil.copytree(folder, target)
    return target
