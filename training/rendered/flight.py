"""python -m training.rendered.flight --world WORLD --models FOLDER --out BAG: a bag of a camera that moves through a 3D scene.

Images and true poses of places that no weights and no thresholds were chosen on.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.poses import Trajectory
from lightglue_trt_ros.utils.errors import BagError
from training.commands import command
from training.rendered import gazebo, viewpoints
from training.rendered.make import BRIGHTNESS, CONTRAST
from training.rendered.raycast import Camera, Exposure, Light, Scene, exposed
from training.rendered.sources import RenderError

SIZE = (640, 480)  # width and height in pixels
PERIOD_NS, BEGIN_NS = 66_666_667, 10**10
NOISE = 1.5  # gray levels
CLEARANCE = 0.25  # metres around the camera, and before it
INERTIA = 0.85  # share of the rotation from frame to frame that stays
TURNS = np.radians([7.0, 2.8, 1.75])  # standard deviations of yaw, pitch and roll that are added, to a metre of speed
TRIES = 40  # next places, after which the camera stands


def fly(scene: Scene, first: Camera, frames: int, speed: float, random: np.random.Generator) -> list[Camera]:
    """Cameras along a smooth way from the `first` one on, about `speed` metres a frame; it turns round before a surface."""
    cameras, direction, turn = [first], _unit(random.normal(0, [1, 1, 0.15])), np.zeros(3)
    for number in range(1, frames):
        here, reach = cameras[-1], speed * (0.6 + 0.4 * np.sin(number / 7))
        for _ in range(TRIES):
            way = _unit(direction + random.normal(0, [0.25, 0.25, 0.05]))
            turning = INERTIA * turn + random.normal(0, speed * TURNS)
            pose = here.pose.copy()
            pose[:3, :3] = (Rotation.from_euler('z', turning[0]).as_matrix() @ pose[:3, :3]
                            @ Rotation.from_euler('xz', turning[1:]).as_matrix())
            pose[:3, 3] += reach * way
            next_camera = replace(here, pose=pose)
            if scene.distances(here.pose[:3, 3], way[None])[0] > CLEARANCE + reach and _is_free(scene, next_camera):
                direction, turn = way, turning
                break
            direction, turn = _unit(random.normal(0, [0.5, 0.5, 0.1]) - direction), -turn
        else:
            next_camera = here
        cameras.append(next_camera)
    return cameras


def render(scene: Scene, cameras: list[Camera], random: np.random.Generator) -> Iterator[NDArray[np.uint8]]:
    """Gray images (H, W) of one exposure, with noise."""
    lights: list[Light] = viewpoints.draw_lights(scene, cameras[0], random)
    ambient, exposure = random.uniform(0.3, 0.6), None
    for camera in cameras:
        radiance = scene.radiance(camera, lights, ambient)
        exposure = exposure or Exposure.of(radiance, random.uniform(*BRIGHTNESS), random.uniform(*CONTRAST))
        image = exposed(radiance, exposure) + random.normal(0, NOISE, radiance.shape)
        yield np.clip(np.rint(image), 0, 255).astype(np.uint8)


def _is_free(scene: Scene, camera: Camera) -> bool:
    depth = scene.depth(camera.smaller(viewpoints.COARSE))
    seen = depth[depth > 0]
    return len(seen) > (1 - viewpoints.WITHOUT_HIT) * depth.size and bool(np.percentile(seen, 3) > CLEARANCE)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vector / np.linalg.norm(vector), np.float64)


@command('error', RenderError, BagError)
def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog='python -m training.rendered.flight', description=__doc__)
    parser.add_argument('--world', type=Path, required=True, help='a .world or .sdf file of Gazebo')
    parser.add_argument('--models', type=Path, required=True, help='the folder of its models')
    parser.add_argument('--out', type=Path, required=True, help='the bag')
    parser.add_argument('--frames', type=int, default=50)
    parser.add_argument('--speed', type=float, default=0.05, help='metres a frame')
    parser.add_argument('--seed', type=int, default=1)
    chosen = parser.parse_args(arguments)
    random = np.random.default_rng(chosen.seed)
    world = gazebo.load_world(chosen.world.stem, chosen.world, [chosen.models])
    gazebo.require_texture(chosen.world.stem, world)
    scene = Scene(world)
    first = viewpoints.draw_anchor(scene, gazebo.bounds(world), np.zeros((0, 3)), random)
    if first is None:
        raise RenderError(f'{chosen.world}: no free place with a view in {viewpoints.TRIES} tries: give another --seed')
    cameras = fly(scene, replace(first, focal=first.focal * SIZE[0] / first.width, width=SIZE[0], height=SIZE[1]),
                  chosen.frames, chosen.speed, random)
    focal, middle = cameras[0].focal, [(side - 1) / 2 for side in SIZE]
    matrix = np.array([[focal, 0, middle[0]], [0, focal, middle[1]], [0, 0, 1]])
    calibration = Intrinsics(*SIZE, matrix, 'plumb_bob', np.zeros(5))
    stamps = BEGIN_NS + PERIOD_NS * np.arange(len(cameras))
    written = write_bag(chosen.out, zip(stamps.tolist(), render(scene, cameras, random), strict=True), calibration,
                        Trajectory(stamps, np.stack([camera.pose for camera in cameras])))
    way = sum(np.linalg.norm(after.pose[:3, 3] - before.pose[:3, 3]) for before, after in itertools.pairwise(cameras))
    print(f'{chosen.out}: {written} frames, {way:.2f} m')
    return 0


if __name__ == '__main__':
    sys.exit(main())
