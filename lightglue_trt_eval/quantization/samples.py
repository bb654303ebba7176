"""Frames of the recordings: which a calibration is made on, which are held out for its check, and what they show."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lightglue_trt_ros.core.backend import Backend
from lightglue_trt_ros.core.cameras import Intrinsics, distortion_model
from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.geometry import resize_gray
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.types import Float64, HostFeatures, Thresholds, UInt8
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth, poses_at
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import Recording, readable_frames
from lightglue_trt_ros.datasets.units import JUDGED_IMAGES, bits_note
from lightglue_trt_ros.utils.console import Bar
from lightglue_trt_ros.utils.errors import BagError, FrameError

from ..predict.recorded_scene import spread, usable_frames
from ..predict.scene import Scene, Timeline

STRIDES = (1, 2, 4)  # frames between the two of a pair
RUN = 24  # frames in a row, where a recording has more than are taken
HELD_OUT = 0.25  # share of the frames
GAP = 0.02  # share of the recording that lies between the two and is not used
LEAST_FRAMES = 10
LEAST_HELD_OUT = 4
ASPECT = 0.1  # by which the aspect ratios of image and engine may differ before that is worth a word
MAX_TIME_DIFFERENCE_S = 0.02  # between an image and its pose
EMPTY_STD = 1.0  # gray levels; an image of less contrast shows nothing

logger = logging.getLogger(__name__)


class FramePair(NamedTuple):
    """Two frames of one recording, by their places in its timeline."""

    sample: RecordingSample
    first: int
    second: int

    @property
    def stride(self) -> int:
        return self.second - self.first

    @property
    def features(self) -> tuple[HostFeatures, HostFeatures]:
        return self.sample.features[self.first], self.sample.features[self.second]


@dataclass(frozen=True)
class Split:
    """Places in a recording's timeline: runs of consecutive frames."""

    calibration: tuple[range, ...]
    held_out: tuple[range, ...]

    @property
    def frames(self) -> list[int]:
        """All of them, ascending."""
        return sorted({place for runs in (self.calibration, self.held_out) for run in runs for place in run})

    def __str__(self) -> str:
        texts = []
        for runs, what in ((self.calibration, 'calibration on'), (self.held_out, 'held out')):
            spans = [f'{run.start} to {run.stop - 1}' for run in runs]
            shown = [*spans[:3], *([f'… {spans[-1]}'] if len(spans) > 3 else [])]
            texts += [f'{what} {sum(map(len, runs))} frames ({", ".join(shown)})'] if runs else []
        return ', '.join(texts)


def split(length: int, frames: int, share: float = HELD_OUT) -> Split:
    """Up to `frames` of a recording of `length`: the last `share` of it is held out, with a gap before it.

    A share of 0 holds nothing out, 1 everything. Both parts are distributed over theirs, in runs. Raises BagError where a part
    would be too short to be of use.
    """
    if share in (0, 1):
        runs = even_runs(range(length), frames)
        return Split(runs, ()) if share == 0 else Split((), runs)
    held_out = max(LEAST_HELD_OUT, round(share * length))
    gap = min(max(STRIDES[-1], round(GAP * length)), max(1, (length - held_out) // 8))
    end = length - held_out - gap
    if end < LEAST_HELD_OUT:
        raise BagError(f'{length} frames are too few to calibrate on some and hold others out: record more')
    part = max(LEAST_HELD_OUT, round(share * frames))
    return Split(even_runs(range(end), max(LEAST_HELD_OUT, frames - part)), even_runs(range(length - held_out, length), part))


def even_runs(places: range, count: int) -> tuple[range, ...]:
    """About `count` of the places, evenly distributed in runs of RUN in a row; all of them where they are no more."""
    if len(places) <= count:
        return (places,) if places else ()
    number = max(1, round(count / RUN))
    lengths = [len(part) for part in np.array_split(np.arange(count), number)]
    starts = np.linspace(places.start, places.stop - lengths[-1], number).round().astype(int).tolist()
    merged: list[range] = []
    for start, length in zip(starts, lengths, strict=True):
        if merged and start <= merged[-1].stop:
            start = merged[-1].stop
            merged[-1] = range(merged[-1].start, min(start + length, places.stop))
        else:
            merged.append(range(start, start + length))
    return tuple(merged)


def quotas(lengths: Sequence[int], frames: int) -> list[int]:
    """How many frames each recording of `lengths` gives to `frames` together: equal parts, and short ones all they have."""
    counts = [0] * len(lengths)
    order = sorted(range(len(lengths)), key=lambda number: lengths[number])
    for done, number in enumerate(order):
        counts[number] = min(lengths[number], round((frames - sum(counts)) / (len(lengths) - done)))
    return counts


def some(pairs: Sequence[FramePair], count: int) -> list[FramePair]:
    """About `count` of the pairs, evenly distributed."""
    if len(pairs) <= count:
        return list(pairs)
    return [pairs[number] for number in np.unique(np.linspace(0, len(pairs) - 1, count).round().astype(int)).tolist()]


def mixed(by_stride: Sequence[Sequence[FramePair]], count: int) -> list[FramePair]:
    """About `count` pairs, of each stride as many as of the others where there are so many."""
    shares = quotas([len(pairs) for pairs in by_stride], min(count, sum(map(len, by_stride))))
    return [pair for pairs, share in zip(by_stride, shares, strict=True) if share for pair in some(pairs, share)]


@dataclass(eq=False)
class RecordingSample:
    """One recording, as much of it as is used."""

    path: Path
    scene: Scene
    split: Split
    sha256: str  # of the used frames' stamps and pixels, at the engine's size
    images: dict[int, UInt8]  # by place in the timeline; emptied by `extract`
    sizes: dict[int, tuple[int, int]]  # of the original images: height, width
    features: dict[int, HostFeatures] = field(default_factory=dict)  # of the frames that show something

    @property
    def name(self) -> str:
        return self.path.name

    def pairs(self, stride: int, held_out: bool) -> list[FramePair]:
        """All pairs of one part, `stride` apart inside one run and one segment of the timeline. Call after `extract`."""
        runs, segments = self.split.held_out if held_out else self.split.calibration, self.scene.timeline.segments
        pairs = [FramePair(self, first, first + stride) for run in runs for first in run if first + stride in run]
        return [pair for pair in pairs if segments[pair.first] == segments[pair.second]
                and pair.first in self.features and pair.second in self.features]


def read_samples(paths: Sequence[Path], held_out: Sequence[Path], frames: int, spec: EngineSpec, *,
                 image_topic: str | None = None, share: float = HELD_OUT, image_bits: int = 16) -> list[RecordingSample]:
    """Read up to `frames` frames of the recordings, of equal parts from each, and as many of those held out as `share` says.

    Without `held_out` recordings a `share` of each recording is held out. Frames that are read, left out or odd are logged.
    Raises BagError, naming counts, where there is too little.
    """
    if len({path.resolve() for path in (*paths, *held_out)}) < len(paths) + len(held_out):
        raise BagError('a recording is named twice: each may be calibrated on or held out, once')
    samples: list[RecordingSample] = []
    groups = [(paths, frames, 0.0 if held_out else share), (held_out, round(share * frames), 1.0)]
    opened = [[open_recording(path, image_topic, image_bits=image_bits) for path in group] for group, _, _ in groups]
    for recordings, (_, wanted, part) in zip(opened, groups, strict=True):
        timelines = [Timeline.of(readable_frames(recording, logger.info), MatcherConfig().max_gap_s) for recording in recordings]
        for recording, timeline, quota in zip(recordings, timelines, quotas(list(map(len, timelines)), wanted), strict=True):
            for note in timeline.notes:
                logger.info(f'{recording.path}: {note}')
            if note := bits_note(usable_frames(recording, spread(timeline.numbers, JUDGED_IMAGES)), recording.bits):
                logger.info(f'{recording.path}: {note}')
            samples.append(_read(recording, timeline, split(len(timeline), quota, part), spec))
    _check_numbers(samples, frames, bool(held_out))
    return samples


def extract(samples: Sequence[RecordingSample], extractor: Backend, bar: Bar | None = None) -> None:
    """Fill in the features, once per frame. Images are dropped as they are used.

    Frames without contrast or without a keypoint are left out, and a line is logged. Raises BagError, with counts,
    where that is most of them: before extraction where the images show it.
    """
    total = sum(len(each.images) for each in samples)
    empty = sum(_shows_nothing(image) for each in samples for image in each.images.values())
    _refuse_empty(empty, total)
    threshold, empty, bar = Thresholds().detection, 0, bar or Bar()
    for each in samples:
        for place in bar.each(sorted(each.images)):
            image = each.images.pop(place)
            features = extractor.extract(image)
            assert isinstance(features, HostFeatures)
            if not _shows_nothing(image) and np.any(features.scores > threshold):
                each.features[place] = features
            else:
                empty += 1
    _refuse_empty(empty, total)
    if empty:
        logger.info(f'{empty} of {total} frames show nothing, or have no keypoint above the detection threshold of {threshold:g}: '
            'they are left out')


def _shows_nothing(image: UInt8) -> bool:
    return float(image.std()) < EMPTY_STD


def _read(recording: Recording, timeline: Timeline, parts: Split, spec: EngineSpec) -> RecordingSample:
    scene = Scene(timeline, *_geometry(recording, timeline))
    images, sizes, digest = {}, {}, hashlib.sha256()
    size, wanted, lost = spec.size, parts.frames, 0
    places = dict(zip(timeline.numbers[wanted].tolist(), wanted, strict=True))
    for frame in usable_frames(recording, timeline.numbers[wanted]):
        place = places[frame.number]
        try:
            image = gray_of(frame.load(), recording.bits)
        except (BagError, FrameError) as error:
            lost += 1
            if lost == 1:
                logger.info(f'{recording.path}: frame {frame.number} cannot be decoded and is left out: {error}')
            continue
        scene.see(place, image.shape)
        sizes[place] = image.shape[0], image.shape[1]
        images[place] = resize_gray(image, size)
        digest.update(frame.stamp_ns.to_bytes(8, 'little', signed=True) + images[place].tobytes())
    if lost > 1:
        logger.info(f'{recording.path}: {lost} of {len(wanted)} frames cannot be decoded and are left out')
    if not images:
        raise BagError(f'{recording.path}: none of {len(wanted)} frames can be decoded')
    _check_aspect(recording.path, next(iter(sizes.values())), size)
    logger.info(f'{recording.path}: {len(timeline)} frames, {parts}')
    return RecordingSample(recording.path, scene, parts, digest.hexdigest(), images, sizes)


def _geometry(recording: Recording, timeline: Timeline) -> tuple[Intrinsics | None, Float64 | None]:
    """Camera and true poses, where the recording has what can be used; the acceptance check's figures need both."""
    try:
        intrinsics = recording.intrinsics
        for line in filter(None, (*recording.notes, recording.calibration_note)):
            logger.info(f'{recording.path}: {line}')
        if intrinsics is not None:
            distortion_model(intrinsics)
        truth = None if intrinsics is None else load_ground_truth(recording, on_note=logger.info)
        poses = None if truth is None else poses_at(truth, timeline.stamps_ns, MAX_TIME_DIFFERENCE_S)
    except BagError as error:
        logger.info(f'{recording.path}: no epipolar precision and no pose errors: {error}')
        return None, None
    if poses is None:
        missing = 'intrinsics' if intrinsics is None else 'ground truth'
        logger.info(f'{recording.path}: no {missing}, so no epipolar precision and no pose errors of it')
    return intrinsics, poses


def _check_aspect(path: Path, image: tuple[int, int], engine: tuple[int, int]) -> None:
    ratio = image[1] / image[0] * engine[0] / engine[1]
    if max(ratio, 1 / ratio) > 1 + ASPECT:
        logger.warning(f'the images of {path} have {image[1]}x{image[0]} pixels and are squeezed into {engine[1]}x{engine[0]}, '
            'another aspect ratio: that is right where the node does the same, otherwise give its --height and --width')


def _check_numbers(samples: Sequence[RecordingSample], asked: int, separate: bool) -> None:
    calibration, held_out = (sum(place in each.images for each in samples for run in getattr(each.split, part) for place in run)
                             for part in ('calibration', 'held_out'))
    total = calibration + (0 if separate else held_out)
    for number, least, what in ((total, LEAST_FRAMES, 'calibrate on'), (calibration, LEAST_HELD_OUT, 'calibrate on'),
                                (held_out, LEAST_HELD_OUT, 'hold out for the acceptance check')):
        if number < least:
            raise BagError(f'there are {number} frames to {what}, at least {least} are needed: record more')
    if total < asked:
        logger.warning(f'{asked} frames were asked for, the recordings give {total}: few frames say less about others')


def _refuse_empty(empty: int, total: int) -> None:
    if 2 * empty >= total:
        raise BagError(f'{empty} of {total} frames are black, uniform or without a keypoint above the detection threshold: '
                       'there is nothing to calibrate on; was the lens covered?')
