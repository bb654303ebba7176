"""Focal lengths that change from frame to frame, by matches and the true motion."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.trajectories import hand_held

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.predict.scene import SECOND, Scene, Timeline
from lightglue_trt_eval.score.match_check import MatchCheck
from lightglue_trt_eval.score.zoom_check import zoom_doubts
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.datasets.sequence import Frame

COUNT, HZ, POINTS = 24, 10, 60
CAMERA = Intrinsics(640, 480, np.array([[400.0, 0, 320], [0, 400, 240], [0, 0, 1]]), 'plumb_bob', np.zeros(5))


def lines_of(zooms: np.ndarray, noise_px: float = 0.1, truth_m: float = 0.0) -> list[str]:
    """Those about points that are seen with the focal lengths of CAMERA times `zooms`, one of each frame."""
    rng, seen = np.random.default_rng(0), hand_held(COUNT)
    true = seen.copy()
    true[:, :3, 3] += truth_m * rng.normal(size=(COUNT, 3))
    scene = Scene(Timeline.of([Frame(k * SECOND // HZ, 0, lambda: None, number=k) for k in range(COUNT)], 1.0), CAMERA, true)
    check = MatchCheck(scene)
    for k in range(COUNT - 1):
        rays = np.column_stack([rng.uniform(-0.7, 0.7, POINTS), rng.uniform(-0.5, 0.5, POINTS), np.ones(POINTS)])
        motion = np.linalg.inv(seen[k + 1]) @ seen[k]
        moved = (rays * rng.uniform(1.5, 8, (POINTS, 1))) @ motion[:3, :3].T + motion[:3, 3]
        pixels = [zoom * 400 * each[:, :2] / each[:, 2:] + CAMERA.k[:2, 2] + noise_px * rng.normal(size=(POINTS, 2))
                  for zoom, each in zip(zooms[k:k + 2], (rays, moved), strict=True)]
        points = MatchedPoints(*(each.astype(np.float32) for each in pixels))
        check.add((k, k + 1), points, scene.straight((k, k + 1), points))
    return zoom_doubts(CAMERA, check.sample)


def test_focus_that_breathes_and_zoom_are_named_with_their_change() -> None:
    line, = lines_of(1 + 0.03 * np.sin(np.arange(COUNT)))
    assert re.search(r' if the focal length changes between frames, in [12][0-9] of 23 pairs and by 2.[0-9] %', line), line
    line, = lines_of(1.005**np.arange(COUNT))
    assert re.search(r' pairs and by 0.[45678] % there: fix zoom and focus', line), line


@pytest.mark.parametrize(('zooms', 'noise_px', 'truth_m'), [
    (np.ones(COUNT), 0.1, 0.0), (np.full(COUNT, 1.1), 0.1, 0.0), (np.ones(COUNT), 3.0, 0.0), (np.ones(COUNT), 0.1, 0.02)])
def test_noise_and_a_wrong_focal_length_are_no_zoom(zooms: np.ndarray, noise_px: float, truth_m: float) -> None:
    assert not lines_of(zooms, noise_px, truth_m)


def test_unknown_cameras_and_few_pairs_have_no_zoom() -> None:
    assert zoom_doubts(None, None) == zoom_doubts(CAMERA, None) == []
