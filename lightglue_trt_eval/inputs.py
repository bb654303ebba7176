"""What is evaluated: the recording, what the options add to it, and the matchers, opened and checked before anything runs."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightglue_trt_ros.core.cameras import StereoRig, is_rectified
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.geometry import Size, fitting_size, unit_of
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.core.masks import Mask, load_mask
from lightglue_trt_ros.datasets.bag_recording import BagRecording
from lightglue_trt_ros.datasets.calibration_files import check_size
from lightglue_trt_ros.datasets.sequence import Frame, Recording, readable_frames
from lightglue_trt_ros.datasets.stereo_and_depth import StereoRecording, depth_of, stereo_recording
from lightglue_trt_ros.datasets.units import JUDGED_IMAGES, median_depth
from lightglue_trt_ros.utils.errors import BagError, FrameError, naming

from .images.degradation import DEPTH_DEGRADATIONS, degraded_frames, description_of
from .options import OF_SCORES, OWN_DEPTH_IMAGES, OWN_IMAGES, OWN_RIGHT_IMAGES, EvaluationOptions
from .predict.frames import DepthImages, Frames, WallTime, check_registered
from .predict.methods import Baseline
from .predict.recorded_scene import first_size, named_pair, open_scene, spread, usable_frames
from .predict.scene import Scene

logger = logging.getLogger(__name__)
USUAL_BASELINES_M = 0.01, 1.0


@dataclass
class Inputs:
    """All that an evaluation reads."""

    recording: Recording
    options: EvaluationOptions
    scene: Scene
    facts: dict[str, Any]  # of the recording, for the report
    configs: dict[str, MatcherConfig]  # by the names of our methods
    baselines: list[Baseline]
    mask: Mask | None = None
    stereo: StereoRecording | None = None
    depth: Recording | None = None
    depth_images: DepthImages | None = None  # of `depth`, frame by frame

    @property
    def strides(self) -> tuple[int, ...]:
        """Those of the options; consecutive frames are always evaluated."""
        return tuple(sorted({1, *self.options.strides}))

    @property
    def predicted_with(self) -> dict[str, str]:
        """What predictions depend on, by name; what scores alone take is left out."""
        given = {**vars(self.options), 'matcher': {}, **self.options.matcher}  # whose settings are options, too
        options = {_named(name): f'{value}{_content(value)}' for name, value in given.items() if name not in OF_SCORES}
        return {'recording': str(self._pictures()), **options}

    def _pictures(self) -> int:
        """A number of the stamps and of some images: recordings of one rate have the same stamps."""
        numbers = self.scene.timeline.numbers
        found = zlib.crc32(self.scene.timeline.stamps_ns.tobytes())
        for frame in usable_frames(self.recording, spread(numbers, JUDGED_IMAGES)):
            with suppress(BagError, FrameError):
                found = zlib.crc32(gray_of(frame.load(), self.recording.bits).tobytes(), found)
        return found

    def frames(self, wall: WallTime, stopped: Callable[[], bool], on_note: Callable[[str], None]) -> Frames:
        """The recording's frames, degraded where the options say so."""
        bits = self.recording.bits

        def opened() -> Iterator[Frame]:
            return degraded_frames(usable_frames(self.recording, self.scene.timeline.numbers), self.options.degrade, bits)

        return Frames(opened, lambda message: gray_of(message, bits), self.scene, wall=wall, stopped=stopped, on_note=on_note,
                      depths=self.depth_images, stereo=self.stereo, sampled=self.options.sampled_pairs)


def _named(option: str) -> str:
    """An option as it is given, also without a value."""
    return OWN_IMAGES[option][0] if option in OWN_IMAGES else f'--{option.replace("_", "-")}'


def _content(value: object) -> str:
    """A number of a file that an option names, which may have changed since; empty for what is no file."""
    try:
        return f', {zlib.crc32(Path(value).read_bytes())}' if isinstance(value, (str, Path)) else ''
    except (OSError, ValueError):
        return ''


def open_inputs(recording: Recording, options: EvaluationOptions, on_note: Callable[[str], None]) -> Inputs:
    """Open everything that the options name. Raises LightglueTrtError where it does not fit together."""
    pair = named_pair(options, recording)
    right_topic = None if options.right_topic == OWN_RIGHT_IMAGES else options.right_topic
    if options.right_topic and options.camera and pair is None:
        on_note(f'{options.camera} does not describe a pair (two cameras, and where the second is, as T_cn_cnm1 or R and T do): '
                'the pair takes the recorded calibration')
    stereo = stereo_recording(recording, right_topic, pair) if options.right_topic else None
    depth_topic = None if options.depth_topic == OWN_DEPTH_IMAGES else options.depth_topic
    depth = depth_of(recording, depth_topic) if options.depth_topic else None
    scene, facts = open_scene(recording, options, on_note)
    if stereo is not None and pair is None and stereo.right.calibration_note:
        on_note(stereo.right.calibration_note)
    if stereo is not None:
        _check_right(stereo, recording, pair is not None)
        logger.info(f'right images: {stereo.right.image_topic}, baseline {stereo.rig.baseline_m:.4g} m'
                    + f', from {stereo.rig.right.source}' * bool(stereo.rig.right.source))
        if doubt := _doubt_of_rig(stereo.rig):
            on_note(doubt)
    for other in filter(None, (None if stereo is None else stereo.right, depth)):
        for note in other.notes:
            on_note(note)
    _log(facts)
    image = facts['height'], facts['width']
    size = fitting_size(image) if options.height is None or options.width is None else (options.height, options.width)
    config = MatcherConfig(**options.matcher, image_height=size[0], image_width=size[1])
    mask = None if options.mask is None else load_mask(options.mask)
    if mask is not None:
        facts['mask'] = _checked(mask, options, image, config, on_note)
    if recording.bits != 16:
        facts['image_bits'] = recording.bits
    if options.degrade:
        facts['degraded'] = ','.join(options.degrade)
    for name in options.degrade:
        on_note(f'every frame is degraded, {name}: {description_of(name)}')
    depth_images = None if depth is None else _depth_images(depth, recording, options, scene, facts, on_note)
    configs = options.variants(config)
    first = next(iter(configs.values()))  # which the baselines are compared with
    margin = first.mask_margin * unit_of(image, (first.image_height, first.image_width))
    baselines = [Baseline(name, first.max_keypoints, mask, margin) for name in options.baselines]
    return Inputs(recording, options, scene, facts, configs, baselines, mask, stereo, depth, depth_images)


def _check_right(stereo: StereoRecording, left: Recording, is_named: bool) -> None:
    """Raises BagError where the calibration is not that of the right images; `is_named`: it comes from --camera."""
    right = stereo.right
    with naming(f'right camera, {stereo.rig.right.source or right.image_topic}'):
        check_size(stereo.rig.right, *first_size(right, readable_frames(right, lambda line: None)))
    if is_named and is_rectified(left.image_topic) != is_rectified(right.image_topic):
        raise BagError(f'of {left.image_topic} and {right.image_topic} one is rectified by its name, and --camera gives both '
                       'cameras alike: give two topics of one kind')


def _doubt_of_rig(rig: StereoRig) -> str:
    """What few rigs have, for people: a baseline in another unit, or a right camera on the left side."""
    if rig.left.rectification[0, 0] < -0.5:
        return (f'by the calibration the right camera stands {rig.baseline_m:.3g} m to the left of the left one: unless the images '
                'are upside down, left and right are swapped, or the pose is that of the left camera in the right one')
    if not USUAL_BASELINES_M[0] <= rig.baseline_m <= USUAL_BASELINES_M[1]:
        return (f'the baseline is {rig.baseline_m:.3g} m by the calibration, and most rigs have {USUAL_BASELINES_M[0]:g} to '
                f'{USUAL_BASELINES_M[1]:g} m: check that it is in metres, not in centimetres or squares of the board')
    return ''


def _log(facts: dict[str, Any]) -> None:
    part = f", the first of {facts['recorded_frames']}" if 'recorded_frames' in facts else ''
    logger.info(f"images: {facts['topic']}, {facts['frames']} frames of {facts['width']}x{facts['height']}{part}")
    if facts['truth']:
        logger.info(f"ground truth: {facts['truth']}")
    if facts['camera']:
        logger.info(f"camera: {facts['camera']}; from {facts['calibration_source']}")


def _checked(mask: Mask, options: EvaluationOptions, image: Size, config: MatcherConfig, on_note: Callable[[str], None]) -> str:
    """The mask in words. Raises LightglueTrtError where its size is neither that of the images nor of the engine."""
    size = config.image_height, config.image_width
    mask.check(image, size)
    if doubt := mask.doubt(size, config.mask_margin):
        on_note(doubt)
    return f'{options.mask}, {100 * mask.share:.1f} % of the image'


def _depth_images(depth: Recording, recording: Recording, options: EvaluationOptions, scene: Scene, facts: dict[str, Any],
                  on_note: Callable[[str], None]) -> DepthImages:
    """The depth images, with what the report says of them in `facts`. Raises BagError where they are of another camera."""
    if scene.intrinsics is None:
        raise BagError(f'{recording.path}: points with a depth need the intrinsics of the camera; give --camera')
    check_registered(depth, recording, scene.intrinsics)
    if (isinstance(depth, BagRecording) and options.depth_topic == OWN_DEPTH_IMAGES
            and not depth.frame_id and depth.camera_info is None):
        on_note(f'depth: nothing says that {depth.image_topic} is registered to {recording.image_topic}, which is assumed: both '
                'frame_ids are empty, and it has no CameraInfo')
    facts['depth'] = f'{depth.image_topic}, {len(depth)} images'
    if (median_m := median_depth(depth, on_note)) is not None:
        facts['depth_median_m'] = median_m
        logger.info(f"depth: {facts['depth']}, median {median_m:.3g} m")
    degradation = next((name for name in options.degrade if name in DEPTH_DEGRADATIONS), '')
    return DepthImages(depth, scene.intrinsics, degradation)
