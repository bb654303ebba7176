"""Frames in bad light or with structure that is no part of the scene; depth images with noise. `--degrade NAME` shows them.

Poses and intrinsics stay those of the recording, so reports with and without can be compared; where the camera stands, all poses
are one. It is a model of a camera, not of a scene: fog has one density at every depth, and lamps do not glare.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from lightglue_trt_ros.core.depth import DepthImage
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.types import Float32, UInt8
from lightglue_trt_ros.datasets.sequence import Frame, ImageRecord
from lightglue_trt_ros.utils.errors import BagError, FrameError

from .static_structure import STANDING, STRUCTURES, Degradation, Shot, blurred, noisy

BLOCK = 4  # pixels of a depth image that share their noise


def degraded(image: UInt8, name: str, seed: int = 0, *, number: int = 0,
             before: Callable[[], UInt8 | None] = lambda: None) -> UInt8:
    """A gray image, uint8 (H, W), under one of DEGRADATIONS.

    Noise depends on `seed` and on the image, of STRUCTURES on `number` as well: a frame gets the same noise in every run, and no
    two frames share theirs. Patterns depend on `seed` and size.

    Args:
        number: Of the frame in its recording: clocks, drops and films follow it.
        before: The image of the frame before, None where there is none.
    """
    entropy = [seed, zlib.crc32(np.ascontiguousarray(image).data), *([number] if name in STRUCTURES else [])]
    shot = Shot(np.random.default_rng(entropy), seed, number, before)
    return np.asarray(np.clip(np.rint(DEGRADATIONS[name](image.astype(np.float32), shot)), 0, 255), np.uint8)


def degraded_frames(frames: Iterable[Frame], names: Sequence[str], bits: int = 16) -> Iterator[Frame]:
    """Frames with images of mono8 under DEGRADATIONS, one after the other; names that are none of these are left out.

    `bits` are those of `gray_of`. Nothing is decoded before a frame is loaded, except where the camera stands: there each frame
    shows the first that can be decoded.
    """
    if camera_stands(names):
        frames = _standing(frames, bits)
    for name in names:
        if name in DEGRADATIONS:
            frames = _degraded(frames, name, bits)
    return iter(frames)


def camera_stands(names: Iterable[str]) -> bool:
    """Whether the camera stands in a recording under these degradations, so that all poses are one."""
    return not STANDING.isdisjoint(names)


def description_of(kind: str) -> str:
    """One of DEGRADATIONS or DEPTH_DEGRADATIONS with its figures, for people."""
    return ' '.join(str((DEGRADATIONS | DEPTH_DEGRADATIONS)[kind].__doc__).split())


def in_lines(kinds: Iterable[str]) -> str:
    """A line of help for each kind, without figures."""
    functions = DEGRADATIONS | DEPTH_DEGRADATIONS
    return '\n'.join(f'{kind}: {str(functions[kind].__doc__).splitlines()[0]}'.replace('%', '%%') for kind in kinds)


def degraded_depth(depth: DepthImage, name: str, seed: int = 0) -> DepthImage:
    """A depth image under one of DEPTH_DEGRADATIONS, in metres; noise as in `degraded`."""
    rng = np.random.default_rng([seed, zlib.crc32(np.ascontiguousarray(depth.pixels).data)])
    metres = depth.pixels.astype(np.float32) * np.float32(depth.unit_m)
    return depth._replace(pixels=DEPTH_DEGRADATIONS[name](metres, Shot(rng, seed)), unit_m=1.0)


def _degraded(frames: Iterable[Frame], name: str, bits: int) -> Iterator[Frame]:
    before: Frame | None = None
    for frame in frames:
        yield replace(frame, load=partial(_load, frame, before, name, bits), raw=None)
        before = frame


def _load(frame: Frame, before: Frame | None, name: str, bits: int) -> ImageRecord:
    image = gray_of(frame.load(), bits)
    return ImageRecord.from_array(degraded(image, name, number=frame.number, before=partial(_image, before, bits)))


def _image(frame: Frame | None, bits: int) -> UInt8 | None:
    """None where there is no frame, or it cannot be decoded."""
    try:
        return None if frame is None else gray_of(frame.load(), bits)
    except (BagError, FrameError):
        return None


def _standing(frames: Iterable[Frame], bits: int) -> Iterator[Frame]:
    """Frames that all show the first that can be decoded; those before it stay as they are."""
    first: ImageRecord | None = None
    for frame in frames:
        if first is None and (image := _image(frame, bits)) is not None:
            first = ImageRecord.from_array(image)
        yield frame if first is None else replace(frame, load=partial(_same, first), raw=None)


def _same(record: ImageRecord) -> ImageRecord:
    return record


def _blur(gray: Float32, shot: Shot) -> Float32:
    """Out of focus by 2 px, noise of 1.5 gray levels."""
    return noisy(blurred(gray, 2.0), shot.rng, 1.5)


def _dim(gray: Float32, shot: Shot) -> Float32:
    """Three tenths of the light, noise of 5 gray levels."""
    return noisy(0.3 * gray, shot.rng, 5.0)


def _fog(gray: Float32, shot: Shot) -> Float32:
    """A quarter of the contrast, around 170 gray levels, scattered by 1 px, noise of 2.5 gray levels."""
    return noisy(170 + 0.25 * (blurred(gray, 1.0) - 127.5), shot.rng, 2.5)


def _night(gray: Float32, shot: Shot) -> Float32:
    """A long exposure blurred by 1 px, 60 photons for white, an amplified read-out noise of 6 gray levels."""
    photons = shot.rng.poisson(60 * (blurred(gray, 1.0) / 255)**1.5).astype(np.float32)
    return noisy(photons * np.float32(160 / 60), shot.rng, 6.0)


def _depth_noise(metres: Float32, shot: Shot) -> Float32:
    """Depth images with noise of 0.0025 z^2 metres, the same in blocks of 4x4 pixels."""
    height, width = metres.shape
    noise = shot.rng.standard_normal((-(-height // BLOCK), -(-width // BLOCK)), np.float32).repeat(BLOCK, 0).repeat(BLOCK, 1)
    noisy_depth = metres + np.float32(0.0025) * metres**2 * noise[:height, :width]
    return np.where(metres > 0, np.maximum(noisy_depth, 0), metres)


DEPTH_DEGRADATIONS: dict[str, Degradation] = {'depth_noise': _depth_noise}
DEGRADATIONS: dict[str, Degradation] = {'blur': _blur, 'dim': _dim, 'fog': _fog, 'night': _night, **STRUCTURES}
