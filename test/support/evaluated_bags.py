"""Small bags for the tests of evaluate_bag, and ways to run it on them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.executables import ROOT, environment, finish
from support.networks import photo
from support.no_pictures import NO_PICTURES

from lightglue_trt_eval.report import page
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.poses import Trajectory

START = 1_700_000_000 * 10**9
PERIOD = 100_000_000
HEIGHT, WIDTH = 96, 128
CAMERA = Intrinsics(WIDTH, HEIGHT, np.array([[110.0, 0, 64], [0, 110.0, 48], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
SMALL = ('--height', '96', '--width', '128', '--max-keypoints', '64', '--strides', '1,2', '--sampled-pairs', '3',
         '--estimator', 'magsac',  # a twentieth of the default's time
         '--static-points', 'keep')  # the null backend's keypoints stand where they are
TRUTH = '/ground_truth/pose'


def view(number: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """A photograph on a wall 2 m away, seen by a camera that goes to the right, 1 cm or half a pixel a frame."""
    scene = photo('coffee', 2 * HEIGHT, 3 * WIDTH)
    shift = np.array([[1, 0, -20 - 2 * number], [0, 1, -20]], np.float32)
    return cv2.resize(cv2.warpAffine(scene, shift, (2 * WIDTH, 2 * HEIGHT)), (width, height), interpolation=cv2.INTER_AREA)


def path_of(count: int, start: int = START) -> Trajectory:
    poses = np.tile(np.eye(4), (count, 1, 1))
    poses[:, 0, 3] = 2 / 110 * np.arange(count)
    return Trajectory(start + PERIOD * np.arange(count), poses)


def make_bag(path: Path, count: int = 8, *, stamps: list[int] | None = None, sizes: dict[int, tuple[int, int]] | None = None,
             intrinsics: Intrinsics | None = CAMERA, truth: Trajectory | None = None, **options: Any) -> Path:
    stamps = stamps or [START + PERIOD * number for number in range(count)]
    frames = [(stamp, view(number, *(sizes or {}).get(number, (HEIGHT, WIDTH)))) for number, stamp in enumerate(stamps)]
    write_bag(path, frames, intrinsics, path_of(count) if truth is None else truth, **options)
    return path


def masked(folder: Path) -> Path:
    """A mask that hides the left half."""
    allowed = np.zeros((HEIGHT, WIDTH), np.uint8)
    allowed[:, WIDTH // 2:] = 255
    cv2.imwrite(str(folder / 'mask.png'), allowed)
    return folder / 'mask.png'


@contextmanager
def no_pictures() -> Iterator[None]:
    """Reports are written without pictures, which take seconds to draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, 'draw_all', lambda evaluation: [])
        yield


def launch(*arguments: str | Path) -> subprocess.Popen[str]:
    """evaluate_bag in a process of its own, whose report has no pictures."""
    return subprocess.Popen([sys.executable, '-m', 'lightglue_trt_eval.cli.evaluate_bag', *map(str, arguments)], text=True,
                            env=environment(ROOT, NO_PICTURES), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def launched(out: Path, *arguments: str | Path) -> str:
    """What evaluate_bag printed in a process of its own, which succeeded; its report is in `out`."""
    process = launch(*arguments, '--out', out)
    text = finish(process)
    assert process.returncode == 0, text
    return text


def report_of(out: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((out / 'report.json').read_text())
    return report


def figures(report: dict[str, Any]) -> list[Any]:
    """All of a report but times."""
    timed = ('frame_ms', 'fps', 'cpu_ms', 'gpu_ms')
    return [report['notes'], report['strides'], *(
        [{stride: {name: value for name, value in summary.items() if not name.startswith(timed)}
          for stride, summary in matcher['summary'].items()}, matcher['pairs'], matcher['odometry'], matcher['track_lengths']]
        for matcher in report['matchers'])]
