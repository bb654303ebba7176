"""The acceptance check of new engines: keypoints and matches of ONNX Runtime in FP32, and the refinement of the host."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from ..core.backend import Backend, RefiningBackend
from ..core.geometry import to_original, unit_of
from ..core.refinement import Pyramid, Refined, refine_points
from ..core.types import Features, Float32, HostFeatures, Int32, Matches, Thresholds, UInt8

RADIUS_PX = 0.5  # a keypoint is kept where the candidate has one within it
FRAMES = 9  # that the acceptance check runs on, consecutive ones
RENDERED = 'rendered views of a procedural texture'
_LEAST_MATCHES = 10  # of the reference; fewer judge nothing
_BLOCK = 512  # keypoints compared at a time: bounds the memory
REFINED_PX, REFINED_SIGMAS, REFINED_SHARE = 0.05, 0.5, 0.9  # OpenCV before 5 rounds to 1/32 of a pixel: the host, too, is off
LARGER = 1.5  # frames than the engines' image, which asks for resizing


@dataclass(frozen=True)
class ParityLimits:
    """Least agreement of a precision at every exit."""

    keypoint_overlap: float
    match_agreement: float
    score_error: float
    descriptor_cosine: float


THRESHOLDS = Thresholds()
MARGIN = 0.1  # of the detection threshold

LIMITS = {
    'fp32': ParityLimits(keypoint_overlap=0.995, match_agreement=0.99, score_error=0.01, descriptor_cosine=0.9999),
    'fp16': ParityLimits(keypoint_overlap=0.98, match_agreement=0.97, score_error=0.03, descriptor_cosine=0.999),
    'fp8': ParityLimits(keypoint_overlap=0.98, match_agreement=0.90, score_error=0.08, descriptor_cosine=0.999),
}


@dataclass(frozen=True)
class ExitParity:
    """A candidate against a reference at one exit of the matcher, over all pairs together."""

    layers: int
    match_agreement: float  # share of matches that both have, of the larger number, among keypoints that both have
    score_error: float  # mean absolute difference of the scores of these matches; NaN where there is none
    matches: int  # of the reference, at keypoints that both have or not


@dataclass(frozen=True)
class Parity:
    """A candidate against a reference, over all pairs of consecutive frames together."""

    keypoint_overlap: float  # share of one's keypoints clear of the threshold that the other has too, the lesser of both ways
    descriptor_cosine: float  # mean over keypoints that both have; NaN where a backend keeps its descriptors to itself
    finite: bool  # no NaN and no infinity in anything the candidate gave
    keypoints: int  # of the reference, all frames
    pairs: int
    exits: tuple[ExitParity, ...]  # first to last

    @property
    def judged(self) -> tuple[ExitParity, ...]:
        """The exits without one before the first layer that gives no matches: it is never taken."""
        return tuple(each for each in self.exits if each.layers or each.matches >= _LEAST_MATCHES)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: NaN is None."""
        def plain(values: Any) -> dict[str, Any]:
            return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in vars(values).items()}
        return plain(self) | {'exits': [plain(each) for each in self.exits]}


def parity(candidate: Backend, reference: Backend, frames: Sequence[UInt8]) -> Parity:
    """Compare two backends of the same exits on 2 or more consecutive gray frames, uint8 (H, W) of the engines' size.

    Raises EngineError.
    """
    ends = candidate.early_exits.ends
    counts = _Counts(len(ends))
    before: tuple[_ExtractedFrame, _ExtractedFrame, Int32] | None = None
    for image in frames:
        mine, theirs = _ExtractedFrame(candidate.extract(image)), _ExtractedFrame(reference.extract(image))
        kept = _nearest(theirs.keypoints, mine.keypoints)
        counts.add_frame(mine, theirs, kept)
        if before is not None:
            exits = zip(candidate.match_exits(before[0].features, mine.features, THRESHOLDS),
                        reference.match_exits(before[1].features, theirs.features, THRESHOLDS), strict=True)
            for number, (matches, expected) in enumerate(exits):
                counts.add_exit(number, matches, expected, before[2], kept)
        before = mine, theirs, kept
    return Parity(min(map(_share, counts.kept, counts.clear)), _mean(counts.cosines), counts.finite, counts.clear[0],
                  len(frames) - 1, tuple(map(ExitParity, ends, map(_share, counts.agreed, counts.comparable),
                                             map(_mean, counts.score_errors), counts.matches)))


def failures(result: Parity, precision: str) -> list[str]:
    """Reasons why `result` fails the check of `precision`, a line each; empty when it passes."""
    failed = [] if result.finite else ['the engines gave NaN or infinity']
    failed += [f'the reference found {each.matches} matches after {each.layers} layers and {result.keypoints} keypoints in '
               f'{result.pairs} pairs, too few to judge by: give other frames with --frames'
               for each in result.judged if each.matches < _LEAST_MATCHES]
    for name, value, sense, limit in _figures(result, precision):
        if sense == '>=' and value < limit:
            failed.append(f'{name} is {value:.4f}, at least {limit} is needed')
        if sense == '<=' and not value <= limit:
            failed.append(f'{name} is {value:.4f}, at most {limit} is allowed')
    return failed


def rows(result: Parity, precision: str) -> list[tuple[str, str, str]]:
    """The figures as rows of a table: name, value, what is needed."""
    table = [(name, 'not on the host' if sense == '>=' and math.isnan(value) else f'{value:.4f}', f'{sense} {limit}')
             for name, value, sense, limit in _figures(result, precision)]
    table += [(f'matches of the reference after {each.layers} layers', str(each.matches), f'>= {_LEAST_MATCHES}')
              for each in result.judged]
    return [*table, ('finite', 'yes' if result.finite else 'no', 'yes'), ('pairs', str(result.pairs), ''),
            ('keypoints of the reference', str(result.keypoints), '')]


def _figures(result: Parity, precision: str) -> Iterator[tuple[str, float, str, float]]:
    """Name, value, how it is compared, limit."""
    limits = LIMITS[precision]
    yield 'keypoint overlap', result.keypoint_overlap, '>=', limits.keypoint_overlap
    yield 'descriptor cosine', result.descriptor_cosine, '>=', limits.descriptor_cosine
    for each in result.judged:
        yield f'match agreement after {each.layers} layers', each.match_agreement, '>=', limits.match_agreement
        yield f'score error after {each.layers} layers', each.score_error, '<=', limits.score_error


class _ExtractedFrame:
    """One backend's features of a frame, with the arrays that are on the host."""

    def __init__(self, features: Features) -> None:
        self.features = features
        scores = features.scores
        # a score next to the threshold falls on either side with the last bit: such a keypoint is neither missed nor too many
        self.clear = scores > THRESHOLDS.detection * (1 + MARGIN)
        self.keypoints = np.where((scores > THRESHOLDS.detection * (1 - MARGIN))[:, None], features.keypoints, np.float32(np.nan))
        self.descriptors = features.descriptors.astype(np.float32) if isinstance(features, HostFeatures) else None
        self.finite = bool(np.isfinite(features.keypoints).all() and np.isfinite(scores).all()
                           and (self.descriptors is None or np.isfinite(self.descriptors).all()))


class _Counts:
    """Sums of `parity`. Lists of two are of the reference and of the candidate, others of each exit."""

    def __init__(self, exits: int) -> None:
        self.finite, self.clear, self.kept = True, [0, 0], [0, 0]
        self.cosines: list[Float32] = []
        self.matches, self.comparable, self.agreed = [0] * exits, [0] * exits, [0] * exits
        self.score_errors: list[list[Float32]] = [[] for _ in range(exits)]

    def add_frame(self, candidate: _ExtractedFrame, reference: _ExtractedFrame, kept: Int32) -> None:
        self.finite &= candidate.finite
        for side, (frame, other) in enumerate(((reference, kept), (candidate, _inverse(kept)))):
            self.clear[side] += int(frame.clear.sum())
            self.kept[side] += int((frame.clear & (other >= 0)).sum())
        mine = np.flatnonzero(kept >= 0)
        if candidate.descriptors is not None and reference.descriptors is not None:
            self.cosines.append(np.einsum('ij,ij->i', reference.descriptors[mine], candidate.descriptors[kept[mine]]))

    def add_exit(self, number: int, candidate: Matches, reference: Matches, kept0: Int32, kept1: Int32) -> None:
        self.finite &= bool(np.isfinite(candidate.scores).all()) and candidate.confidence_finite
        self.matches[number] += int((reference.indices >= 0).sum())
        mine = np.flatnonzero(kept0 >= 0)
        expected = _through(reference.indices[mine], kept1)  # as the candidate's rows, from here on
        given = candidate.indices[kept0[mine]]
        given = np.where(_through(given, _inverse(kept1)) >= 0, given, -1)
        agreed = (expected >= 0) & (expected == given)
        self.agreed[number] += int(agreed.sum())
        self.comparable[number] += max(int((expected >= 0).sum()), int((given >= 0).sum()))
        self.score_errors[number].append(np.abs(reference.scores[mine] - candidate.scores[kept0[mine]])[agreed])


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _mean(parts: list[Float32]) -> float:
    values = np.concatenate(parts) if parts else np.empty(0, np.float32)
    return float(values.mean()) if len(values) else math.nan


def _nearest(reference: Float32, candidate: Float32) -> Int32:
    """(K,) the candidate's row within RADIUS_PX that is nearest to each reference row, one to one; -1 where none."""
    result = np.full(len(reference), -1, np.int32)
    column, best = np.empty(len(reference), np.int64), np.empty(len(reference), np.float32)
    for start in range(0, len(reference), _BLOCK):
        block = slice(start, start + _BLOCK)
        distance = np.square(reference[block, None] - candidate[None]).sum(axis=2)
        distance = np.where(np.isfinite(distance), distance, np.float32(np.inf))
        column[block] = distance.argmin(axis=1)
        best[block] = distance.min(axis=1)
    taken = np.full(len(candidate), False)
    for row in np.argsort(best, kind='stable'):
        if best[row] > RADIUS_PX ** 2:
            break
        if not taken[column[row]]:
            taken[column[row]], result[row] = True, column[row]
    return result


def _through(indices: Int32, table: Int32) -> Int32:
    """table[indices], -1 where an index is not one of its rows."""
    sound = (indices >= 0) & (indices < len(table))
    return np.where(sound, table[np.where(sound, indices, 0)], np.int32(-1))


def _inverse(forward: Int32) -> Int32:
    result = np.full(len(forward), -1, np.int32)
    rows = np.flatnonzero(forward >= 0)
    result[forward[rows]] = rows
    return result


def refined_as_on_the_host(candidate: RefiningBackend, frames: Sequence[UInt8]) -> float:
    """The share of matches in consecutive gray frames that are refined to where the host refines them.

    That is within REFINED_PX, or within REFINED_SIGMAS standard deviations: along an edge a position is hardly known.
    0 where nothing matches or anything is not finite. Raises EngineError.
    """
    size = round(frames[0].shape[0] * LARGER), round(frames[0].shape[1] * LARGER)
    engine = candidate.spec.size
    images = [np.asarray(cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR), np.uint8) for image in frames]
    unit, near, count = unit_of(size, engine), 0, 0
    for before, image in itertools.pairwise(images):
        reference, current = candidate.extract_frame(before), candidate.extract_frame(image)
        points0, points1 = (to_original(features.keypoints, engine, size) for features in (reference, current))
        matches, refined = candidate.match_and_refine(reference, current, THRESHOLDS, points0)
        rows = np.flatnonzero(matches.indices >= 0)
        expected = refine_points(Pyramid(before, unit), Pyramid(image, unit), points0[rows], points1[matches.indices[rows]])
        apart, deviations = distances(refined.points[rows], expected)
        del reference, current  # there are slots for three frames
        close = (apart < REFINED_PX) | (deviations < REFINED_SIGMAS)
        near += int(np.count_nonzero(close & np.isfinite(refined.covariances[rows]).all(axis=(1, 2))))
        count += len(rows)
    return near / count if count else 0.0


def distances(points: Float32, expected: Refined) -> tuple[Float32, Float32]:
    """Of points (M, 2) to those expected: pixels (M,), and standard deviations (M,)."""
    apart = points - expected.points
    towards = np.linalg.solve(expected.covariances, apart[:, :, None])[:, :, 0]
    return np.asarray(np.linalg.norm(apart, axis=1), np.float32), np.asarray(np.sqrt(np.sum(apart * towards, axis=1)), np.float32)


def rendered_frames(count: int, height: int, width: int) -> Iterator[UInt8]:
    """Gray frames (H, W) of a camera that drifts, rotates and tilts over corners, edges and noise: for machines without others."""
    scene = _scene(height, width)
    centre = np.array([[1, 0, -(width - 1) / 2], [0, 1, -(height - 1) / 2], [0, 0, 1]])
    middle = np.array([[1, 0, (scene.shape[1] - 1) / 2], [0, 1, (scene.shape[0] - 1) / 2], [0, 0, 1]])
    for i in range(count):
        angle, scale = 0.03 * i, 1 + 0.05 * math.sin(0.7 * i)
        cosine, sine = scale * math.cos(angle), scale * math.sin(angle)
        motion = np.array([[cosine, -sine, 0.015 * width * i / 2], [sine, cosine, -0.01 * height * i / 2],
                           [0.05 / width * math.sin(0.9 * i), 0.05 / height * math.cos(0.5 * i), 1]])
        view = cv2.warpPerspective(scene, middle @ motion @ centre, (width, height), borderMode=cv2.BORDER_REFLECT,
                                   flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        yield np.asarray(np.clip(view * (1 + 0.1 * math.sin(i)), 0, 255), np.uint8)


def _scene(height: int, width: int) -> Float32:
    """Half as large again as a frame: noise of four scales under rectangles, triangles and discs."""
    rng = np.random.default_rng(5)
    height, width = height * 3 // 2, width * 3 // 2
    scene = np.full((height, width), 128, np.float32)
    for cells in (4, 16, 64, 256):
        noise = rng.normal(0, 18, (max(2, height * cells // width), cells)).astype(np.float32)
        scene += cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    for i in range(400):
        middle, size = rng.random(2) * (width, height), width * rng.uniform(0.008, 0.05)
        shade = float(rng.uniform(10, 245))
        corners = middle + size * rng.uniform(-1, 1, (3 + i % 2, 2))
        if i % 5:
            cv2.fillPoly(scene, [cv2.convexHull(corners.astype(np.int32))], shade, cv2.LINE_8)
        else:
            cv2.circle(scene, middle.astype(int).tolist(), int(size / 2), shade, -1)
    return np.asarray(cv2.GaussianBlur(scene, (0, 0), 0.8), np.float32)
