"""Whether scores are probabilities: the share of right matches against the published scores, by true positions."""

from __future__ import annotations

import argparse
import dataclasses
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike

from benchmarks.real_images import find_sequences
from benchmarks.recorded_pairs import add_pair_options, load_images, open_recorded, sample_pairs
from lightglue_trt_eval.predict.methods import correspondences
from lightglue_trt_eval.predict.scene import Scene
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.depth import DepthImage, locate
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.types import Float32, Float64, FrameMatches
from lightglue_trt_ros.engines.selection import open_backend
from lightglue_trt_ros.odometry import two_view
from lightglue_trt_ros.utils.console import print_table, progress
from lightglue_trt_ros.utils.errors import BagError

DATA = 'any recording with poses, or the folder of several'
RIGHT_PX, SURE, BINS = 3.0, 0.9, 10
ROUNDS, WORST_PX, MIN_FIT = 3, 2.0, 8  # of the fit of a motion: matches off by more are left out, unless 2.5 medians are more


class JudgedMatches(NamedTuple):
    """Matches whose true position is known: probabilities (M,), and distances (M,) from it by the recorded and a fitted motion."""

    scores: Float32
    recorded: Float64
    fitted: Float64


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which frames."""
    add_pair_options(parser)
    parser.set_defaults(pairs=1000)
    parser.add_argument('--lines', action='store_true', help='distances to epipolar lines also where there is depth')


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Print and return the figures of each recording at each stride. Raises BagError, EngineError."""
    report = []
    for name, path in find_sequences(args.data).items():
        rows = [part | {'sequence': name} for part in _measure(path, args, config)]
        report += rows
        print_table(f'{name}: matches within {RIGHT_PX:g} px of {rows[0]["truth"]}, in percent', [
            'stride', 'matches', 'mean score', 'right', 'calibration error', 'fitted motion: right', 'calibration error'], [
            [str(row['stride']), str(row['matches']), *(f'{100 * row[key]:.1f}' for key in (
                'score', 'recorded_right', 'recorded_error', 'fitted_right', 'fitted_error'))] for row in rows])
    return {'rows': report}


def _measure(path: Path, args: argparse.Namespace, config: MatcherConfig) -> list[dict[str, Any]]:
    recording, scene, config = open_recorded(path, args.image_topic, dataclasses.replace(config, carry_frames=0))
    by_stride, rows = {stride: sample_pairs(scene.timeline, stride, args.pairs) for stride in args.strides}, []
    wanted = {row for pairs in by_stride.values() for pair in pairs for row in pair}
    images = load_images(recording, scene, wanted, depth=not args.lines)
    located = recording.depth is not None and scene.intrinsics is not None and not args.lines
    truth = 'the true position by depth' if located else 'the true epipolar line, an upper bound'
    with closing(open_backend(config).backend) as backend:
        for stride, pairs in by_stride.items():
            found: list[JudgedMatches] = []
            with progress(f'{path.name}, stride {stride}', len(pairs)) as bar:
                last = -1
                for pair in bar.each(pairs):
                    if pair[0] != last:  # pairs that follow one another are matched as in the node
                        matcher, last = FrameMatcher(backend, config), pair[0]
                        matcher.process(images[last][0], last / 1000)
                    last = pair[1]
                    matches = matcher.process(images[last][0], last / 1000)
                    judged = None if matches is None else judge(scene, pair, matches, images[pair[0]][1])
                    found += [] if judged is None else [judged]
            if not found:
                raise BagError(f'{path}: no two frames {stride} apart have true poses; give other --strides or recordings')
            rows.append({'stride': stride, 'pairs': len(found), 'truth': truth} | calibration(found))
    return rows


def judge(scene: Scene, pair: tuple[int, int], matches: FrameMatches, depth: DepthImage | None) -> JudgedMatches | None:
    """Of the reference's depth image, if it has one; None without true poses.

    The fitted motion is that of the sure matches. It shows what errors of the poses add: six numbers, of hundreds of matches.
    """
    pose0, pose1, camera = scene.pose(pair[0]), scene.pose(pair[1]), scene.camera(pair)
    if pose0 is None or pose1 is None or camera is None:
        return None
    points = scene.straight(pair, correspondences(matches)).points
    usable = np.asarray(np.isfinite(np.hstack(points)).all(axis=1))  # not where the distortion has no inverse
    matches, (before, current) = matches.only(usable), (each[usable] for each in points)
    sure = matches.scores > SURE
    if depth is None:
        recorded = two_view.epipolar_errors(before, current, two_view.fundamental_from_poses(pose0, pose1, camera, camera))
        estimate = two_view.estimate_relative_pose(before[sure], current[sure], camera, camera)
        fundamental = None if estimate is None else two_view.fundamental_of(estimate, camera, camera)
        fitted = recorded if fundamental is None else two_view.epipolar_errors(before, current, fundamental)
        return JudgedMatches(matches.scores, recorded, fitted)
    xyz = locate(depth, matches.reference_keypoints, np.zeros_like(matches.covariances)).xyz.astype(np.float64)
    known = np.isfinite(xyz).all(axis=1)
    xyz, sure, current = xyz[known], sure[known], current[known]
    rotation, translation = two_view.relative_pose(pose0, pose1)
    recorded = fitted = _reprojection_errors(xyz, current, camera, rotation, translation)
    vector, shift = np.asarray(cv2.Rodrigues(rotation)[0], np.float64), translation.reshape(3, 1)
    for _ in range(ROUNDS):
        kept = sure & (fitted < max(WORST_PX, 2.5 * float(np.median(fitted[sure])) if sure.any() else 0.0))
        if kept.sum() < MIN_FIT:
            break
        refined: Any = cv2.solvePnPRefineLM(xyz[kept], current[kept], np.asarray(camera), None, vector.copy(), shift.copy())
        vector, shift = refined
        fitted = _reprojection_errors(xyz, current, camera, np.asarray(cv2.Rodrigues(vector)[0]), shift.ravel())
    return JudgedMatches(matches.scores[known], recorded, fitted)


def _reprojection_errors(xyz: Float64, points: Float64, camera: ArrayLike, rotation: Any, translation: Float64) -> Float64:
    """Distances (M,) of points (M, 2) from those in space (M, 3), seen by a camera that moved; infinite behind it."""
    seen = (xyz @ rotation.T + translation) @ np.asarray(camera).T
    with np.errstate(divide='ignore', invalid='ignore'):
        errors = np.linalg.norm(seen[:, :2] / seen[:, 2:] - points, axis=1)
    return np.asarray(np.where(seen[:, 2] > 0, errors, np.inf))


def calibration(found: list[JudgedMatches]) -> dict[str, Any]:
    """Shares and errors over all matches, and the curves: matches, mean score and share of right ones of each tenth."""
    scores, recorded, fitted = (np.concatenate(each) for each in zip(*found, strict=True))
    figures: dict[str, Any] = {'matches': len(scores), 'score': float(scores.mean(dtype=np.float64))}
    for name, errors in (('recorded', recorded), ('fitted', fitted)):
        curve = reliability(scores, errors < RIGHT_PX)
        error = sum(count * abs(score - right) for count, score, right in curve) / len(scores)
        figures |= {f'{name}_right': float(np.mean(errors < RIGHT_PX)), f'{name}_error': error, f'{name}_curve': curve}
    return figures


def reliability(scores: Float32, right: Any) -> list[tuple[int, float, float]]:
    """Matches, their mean score and the share of right ones, by tenths of the scores (M,), where there are any."""
    tenths = np.minimum((scores * BINS).astype(int), BINS - 1)
    return [(int(mine.sum()), float(scores[mine].mean(dtype=np.float64)), float(right[mine].mean()))
            for mine in (tenths == tenth for tenth in range(BINS)) if mine.any()]
