"""Cameras in free space, in clusters that see the same things from near each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from training.rendered.check import covisible
from training.rendered.raycast import Camera, Light, Scene

Floats = NDArray[Any]
VIEWS = 6  # of a cluster
SIZE = (512, 384)  # width and height in pixels
FOCAL = (0.55, 1.25)  # of the width
HEIGHTS = (0.3, 1.8)  # metres above the floor
NEAREST, SHARE_NEARER = 0.35, 0.01  # metres; share of the pixels that may be nearer
WITHOUT_HIT = 0.05  # the largest share of pixels that see nothing
MEDIAN = (0.8, 12.0)  # metres, of the median depth
CLEARANCE = 0.2  # metres around the camera
CORNERS = 200
ROTATION = (2.0, 35.0)  # degrees between the anchor and another view
LARGEST = (35.0, 12.0, 15.0)  # degrees of yaw, pitch and roll between them
TRANSLATION = (0.03, 0.35)  # of the anchor's median depth
RELIEF = 0.08  # least deviation of inverse depth from one plane, as a share of its mean
EDGES = 0.03  # least share of the anchor's pixels at steps of depth, of a tenth or more
OVERLAP = 0.25  # least share of the anchor's pixels that another view sees
COARSE = 8  # checks of depth use every 8th pixel
TRIES = 60


def refusal(scene: Scene, camera: Camera) -> str:
    """Why a viewpoint is refused by what it sees; empty where it is accepted."""
    small = camera.smaller(COARSE)
    rays = small.rays()
    depth = scene.distances(camera.pose[:3, 3], rays)
    seen = np.isfinite(depth)
    if (~seen).mean() > WITHOUT_HIT:
        return f'{(~seen).mean():.0%} of the pixels see nothing'
    if not MEDIAN[0] <= (median := float(np.median(depth[seen]))) <= MEDIAN[1]:
        return f'the median depth is {median:.2f} m'
    if (nearer := float((depth * np.linalg.norm(rays, axis=1) < NEAREST).mean())) > SHARE_NEARER:
        return f'{nearer:.0%} of the pixels are nearer than {NEAREST} m'
    if (scene.distances(camera.pose[:3, 3], _BALL) < CLEARANCE).any():
        return f'a surface is nearer than {CLEARANCE} m'
    if relief(small, depth) < RELIEF:
        return 'all it sees is one plane'
    return ''


def relief(camera: Camera, depth: Floats) -> float:
    """How much inverse depth deviates from a plane's, whose inverse depth is linear in the pixels; a share of its mean."""
    y, x = np.mgrid[:camera.height, :camera.width].reshape(2, -1)
    plane = np.stack([x, y, np.ones_like(x)], 1).astype(np.float64)
    inverse = 1 / depth
    residual = inverse - plane @ np.linalg.lstsq(plane, inverse, rcond=None)[0]
    return float(residual.std() / inverse.mean())


def edges(scene: Scene, camera: Camera) -> float:
    """The share of pixels whose right or lower neighbour has another depth by a tenth or more."""
    depth = np.log(np.maximum(scene.depth(camera.smaller(COARSE)), 0.1))
    steps = (np.abs(np.diff(depth, axis=1))[1:] > 0.1) | (np.abs(np.diff(depth, axis=0))[:, 1:] > 0.1)
    return float(steps.mean())


def corners(image: NDArray[np.uint8]) -> int:
    """Number of corners of a gray image, at most 2000."""
    found = cv2.goodFeaturesToTrack(image, 2000, 0.01, 6)
    return 0 if found is None else len(found)


def draw_anchor(scene: Scene, box: tuple[Floats, Floats], targets: Floats, random: np.random.Generator) -> Camera | None:
    """A camera at a robot's or a hand's height, which looks along the floor or at one of the targets; None if none is accepted.

    Args:
        scene: where the camera is.
        box: the lower and the upper corner of the world, (3,) each; the lower one is on the floor.
        targets: (N, 3) points of interest; may be empty.
        random: the source of chance.

    """
    low, high = box
    focal = SIZE[0] * random.uniform(*FOCAL)
    for _ in range(TRIES):
        if len(targets) and random.random() < 0.6:
            target = targets[random.integers(len(targets))] + random.normal(0, 0.1, 3)
            yaw, pitch, distance = random.uniform(-np.pi, np.pi), -np.radians(random.uniform(5, 50)), random.uniform(0.8, 2.2)
            eye = target - distance * np.array([np.cos(yaw) * np.cos(pitch), np.sin(yaw) * np.cos(pitch), np.sin(pitch)])
            yaw, pitch = yaw + np.radians(random.normal(0, 8)), pitch + np.radians(random.normal(0, 5))
        else:
            eye = np.append(random.uniform(low[:2], high[:2]), low[2] + random.uniform(*HEIGHTS))
            yaw, pitch = random.uniform(-np.pi, np.pi), np.radians(random.normal(-6, 9))
        camera = Camera(look(eye, yaw, pitch, np.radians(random.normal(0, 4))), focal, *SIZE)
        if HEIGHTS[0] <= eye[2] - low[2] <= HEIGHTS[1] and not refusal(scene, camera) and edges(scene, camera) > EDGES:
            return camera
    return None


def draw_neighbour(scene: Scene, anchor: Camera, floor: float, random: np.random.Generator) -> Camera | None:
    """A camera as the anchor's is after 4 to 16 frames of motion; None if none is accepted. `floor` is a height in metres."""
    depth = scene.depth(anchor.smaller(COARSE))
    median = float(np.median(depth[depth > 0]))
    least, most = TRANSLATION
    for _ in range(TRIES):
        reach = random.uniform(0.2, 1.0)
        angles = random.normal(0, np.multiply(reach, [17, 6, 5]))
        yaw, pitch, roll = np.radians(np.clip(angles, -np.array(LARGEST), LARGEST))
        pose = anchor.pose.copy()
        tilt = Rotation.from_euler('xz', [pitch, roll]).as_matrix()
        pose[:3, :3] = Rotation.from_euler('z', yaw).as_matrix() @ pose[:3, :3] @ tilt
        angle = np.degrees(Rotation.from_matrix(anchor.pose[:3, :3].T @ pose[:3, :3]).magnitude())
        direction = random.normal(0, [1, 1, 0.5])
        move = direction / np.linalg.norm(direction) * median * (least + (most - least) * reach * random.random())
        pose[:3, 3] += move
        camera = replace(anchor, pose=pose)
        if (ROTATION[0] <= angle <= ROTATION[1] and HEIGHTS[0] <= pose[2, 3] - floor <= HEIGHTS[1]
                and scene.distances(anchor.pose[:3, 3], move[None])[0] > 1 and not refusal(scene, camera)):
            other = scene.depth(camera.smaller(COARSE))
            if covisible(anchor.smaller(COARSE), depth, camera.smaller(COARSE), other)[2].mean() >= OVERLAP:
                return camera
    return None


def draw_lights(scene: Scene, anchor: Camera, random: np.random.Generator, count: int = 2) -> list[Light]:
    """Point lights above the camera that it has a free line to."""
    eye = anchor.pose[:3, 3]
    directions = np.stack([*random.normal(0, 1, (2, count)), random.uniform(0.3, 1.2, count)], 1)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    reach = np.minimum(scene.distances(eye, directions), 4.0) * random.uniform(0.5, 0.85, count)
    return [Light(eye + direction * metres, float(random.uniform(0.7, 1.6)))
            for direction, metres in zip(directions, reach, strict=True)]


def look(eye: Floats, yaw: float, pitch: float, roll: float = 0.0) -> Floats:
    """The pose (4, 4) of the optical frame at `eye`; angles in radians, yaw from x to y, pitch upwards."""
    level = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])  # columns: right, down and forward of a camera that looks along x
    pose = np.eye(4)
    pose[:3, :3] = Rotation.from_euler('ZY', [yaw, -pitch]).as_matrix() @ level @ Rotation.from_euler('z', roll).as_matrix()
    pose[:3, 3] = eye
    return pose


_BALL = np.array([[x, y, z] for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if x or y or z], np.float32)
_BALL /= np.linalg.norm(_BALL, axis=1, keepdims=True)
