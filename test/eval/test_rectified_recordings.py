"""The same rectified pictures as a bag, as KITTI's folder and with a plain calibration: the same figures to the last digit."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

from support.evaluated_bags import figures, no_pictures, report_of
from support.fleets import SMALL, make_flight

from lightglue_trt_eval.cli.evaluate_bag import main
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.recordings import open_recording

pytestmark = [pytest.mark.slow, pytest.mark.networks]


@dataclass(frozen=True, eq=False)
class BeforeRectification(Intrinsics):
    """K and D of the raw images; P is the `rectified` camera's."""

    rectified: Intrinsics | None = None

    @property
    def projection(self) -> np.ndarray:
        assert self.rectified is not None
        return self.rectified.projection


def as_bag(folder: Path, path: Path) -> Path:
    """On a rectified topic, with a CameraInfo as image_proc leaves it."""
    recording = open_recording(folder)
    camera = recording.intrinsics
    assert camera is not None
    raw = BeforeRectification(camera.width, camera.height, camera.k * [[1.2], [1.2], [1]], 'plumb_bob',
                              np.array([-0.28, 0.07, 0.001, -0.002, 0.0]), rectified=camera)
    write_bag(path, recording.images(), raw, image_topic='/camera/image_rect')  # type: ignore[attr-defined]  # of folders
    return path


def as_kitti(folder: Path, path: Path) -> Path:
    """image_0/, times.txt and calib.txt; P0 has a fourth column of zeros, as KITTI's."""
    shutil.copytree(folder / 'images', path / 'image_0')
    shutil.copy(folder / 'timestamps.txt', path / 'times.txt')
    camera = open_recording(folder).intrinsics
    assert camera is not None
    (path / 'calib.txt').write_text(f'P0: {" ".join(map(repr, camera.projection.ravel().tolist()))}\n')
    return path


def evaluated(path: Path, truth: Path, out: Path) -> dict[str, Any]:
    with no_pictures():
        assert main([str(path), *SMALL, '--weights', 'ours_light', '--truth', str(truth), '--truth-kind', 'tum',
                     '--baselines', 'klt', '--out', str(out)]) == 0
    return report_of(out)


def test_rectified_bag_kitti_folder_and_plain_calibration_agree(tmp_path: Path) -> None:
    folder = make_flight(tmp_path / 'flight', frames=5)
    truth = folder / 'groundtruth.txt'
    paths = folder, as_bag(folder, tmp_path / 'bag'), as_kitti(folder, tmp_path / 'kitti' / '07')
    assert [type(open_recording(path)).__name__ for path in paths] == ['ImagesFolder', 'BagRecording', 'KittiFolder']
    plain, *others = (evaluated(path, truth, tmp_path / f'out{number}') for number, path in enumerate(paths))
    for matcher in plain['matchers']:
        assert matcher['summary']['1']['pose_auc@20'] > 20, matcher['name']
    for report in others:
        assert figures(report) == figures(plain)
