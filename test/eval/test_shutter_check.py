"""Cameras that read rows one after another, against the true motion."""

from __future__ import annotations

import numpy as np
import pytest
from support.trajectories import hand_held

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.predict.scene import SECOND, Scene, Timeline
from lightglue_trt_eval.score.match_check import MatchCheck
from lightglue_trt_eval.score.shutter_check import exposure_doubts
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.datasets.sequence import Frame

COUNT, HZ, POINTS = 24, 10, 50
CAMERA = Intrinsics(640, 480, np.array([[400.0, 0, 320], [0, 400, 240], [0, 0, 1]]), 'plumb_bob', np.zeros(5))


def lines_of(readout: float, late: float = 0.0, noise_px: float = 0.15, truth_m: float = 0.0) -> list[str]:
    """Those about points that are seen at the times of their rows; the middle row is `late` frames after the stamp."""
    rng = np.random.default_rng(0)
    true = hand_held(COUNT)
    true[:, :3, 3] += truth_m * rng.normal(size=(COUNT, 3))
    scene = Scene(Timeline.of([Frame(k * SECOND // HZ, 0, lambda: None, number=k) for k in range(COUNT)], 1.0), CAMERA, true)
    check = MatchCheck(scene)

    def moment(number: int, row: float) -> np.ndarray:
        return hand_held(1, late_s=-(number + late + readout * (row / CAMERA.height - 0.5)) / HZ)[0]

    for k in range(COUNT - 1):
        first, second = rng.uniform([40, 40], [600, 440], (POINTS, 2)), np.zeros((POINTS, 2))
        for n, depth in enumerate(rng.uniform(1.5, 8, POINTS)):
            place = moment(k, first[n, 1]) @ [*depth * np.linalg.solve(CAMERA.k, [*first[n], 1]), 1]
            for _ in range(3):  # where a row meets it
                seen = CAMERA.k @ (np.linalg.inv(moment(k + 1, second[n, 1])) @ place)[:3]
                second[n] = seen[:2] / seen[2]
        points = MatchedPoints(*((each + noise_px * rng.normal(size=each.shape)).astype(np.float32) for each in (first, second)))
        check.add((k, k + 1), points, scene.straight((k, k + 1), points))
    return exposure_doubts(scene, check.sample)


@pytest.mark.parametrize(('readout', 'late'), [(0.2, 0), (-0.3, 0), (0.2, 0.1), (0.9, 0.45)])
def test_rolling_shutter_is_named_with_its_readout(readout: float, late: float) -> None:
    """0.2 moves matches by a tenth of a pixel in the median. A camera upside down reads its rows backwards."""
    line, = lines_of(readout, late)
    assert float(line.split(' of the time')[0].split()[-1]) == pytest.approx(abs(readout), rel=0.05, abs=0.03), line
    assert f'over {1000 * float(line.split(" of the time")[0].split()[-1]) / HZ:.0f} ms' in line


@pytest.mark.parametrize('late', [0.3, -0.15])
def test_clock_that_explains_most_of_the_distance_is_named(late: float) -> None:
    line, = lines_of(0, late)
    found = float(line.split(' s too ')[0].split()[-1])
    assert found == pytest.approx(abs(late) / HZ, rel=0.1)
    assert line.endswith(f' s too {"late" if late > 0 else "early"}: correct its clock')


@pytest.mark.parametrize(('readout', 'late', 'noise_px', 'truth_m'), [(0, 0.1, 0.6, 0), (0.1, 0, 0.6, 0), (0.2, 0, 3.0, 0),
                                                                      (0, 0, 0.15, 0.01)])
def test_no_rolling_shutter_is_named_that_explains_little(readout: float, late: float, noise_px: float, truth_m: float) -> None:
    assert not lines_of(readout, late, noise_px, truth_m)
