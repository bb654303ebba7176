"""Settings: shapes and precision of an engine (EngineSpec), and everything a user may set (MatcherConfig).

`make params` writes config/matcher.yaml and the table of docs/parameters.md from the fields here and in ros/parameters.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..utils.errors import ConfigError, did_you_mean
from .early_exit import ALL_LAYERS, DEPTH_CONFIDENCE
from .score_calibration import ScoreCalibration
from .types import Thresholds

STRIDE = 8  # SuperPoint's cell: image sides are multiples of it
MAX_KEYPOINTS = 3840  # the largest K that attention was timed with: 1.6 ms each on 8 multiprocessors of an H200
PRECISIONS = ('fp32', 'fp16', 'fp8')
SHIPPED_MODELS = ('ours', 'ours_light')  # of extractor and matcher; the package has their files in networks/data/NAME
FETCHED_MODELS = ('magicleap',)
WEIGHTS = (f'{", ".join(SHIPPED_MODELS)} (shipped), {", ".join(FETCHED_MODELS)} (once fetched), or a folder that holds '
           'extractor.safetensors and matcher.safetensors')
RETIRED_VALUES = {'refinement': ('lucas_kanade', 'affine')}  # of former versions: patches replaced both
RENAMED = {'lightglue_weights': f'weights, which chooses extractor and matcher together: {WEIGHTS}'}
KINDS = {tuple: 'a list of names', float: 'a number', int: 'a whole number', bool: 'true or false', str: 'text'}


def setting(default: Any, doc: str, *, low: float | None = None, high: float | None = None,
            choices: tuple[Any, ...] = (), dynamic: bool = False, detail: str = '') -> Any:
    """A dataclass field with its bounds and its description: `doc` in one line, and a `detail` where there is room for more."""
    meta = {'doc': doc, 'detail': detail, 'low': low, 'high': high, 'choices': choices, 'dynamic': dynamic}
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True)
class EngineSpec:
    """The fixed shapes and the precision that extractor and matcher are built for.

    Raises ConfigError when they cannot be built: sides must be multiples of 8, and each 4x4 block of pixels has one keypoint at
    most.
    """

    image_height: int = 480
    image_width: int = 640
    max_keypoints: int = 1024
    precision: str = 'fp32'

    def __post_init__(self) -> None:
        for side, value in (('image_height', self.image_height), ('image_width', self.image_width)):
            if value < 2 * STRIDE or value % STRIDE:
                near = max(2 * STRIDE, round(value / STRIDE) * STRIDE)
                raise ConfigError(f'{side} is {value}: it must be a multiple of {STRIDE}, at least {2 * STRIDE}; use {near}')
        blocks = (self.image_height - STRIDE) * (self.image_width - STRIDE) // 16  # none stands in the border of 4 pixels
        if not 1 <= self.max_keypoints <= min(MAX_KEYPOINTS, blocks):
            raise ConfigError(f'max_keypoints is {self.max_keypoints}: {self.image_width}x{self.image_height} takes 1 to '
                              f'{min(MAX_KEYPOINTS, blocks)} (one per 4x4 pixels off the border, {MAX_KEYPOINTS} at most)')
        if self.precision not in PRECISIONS:
            raise ConfigError(f'precision is {self.precision!r}: use one of {", ".join(PRECISIONS)}')

    def __str__(self) -> str:
        """For people, e.g. fp16, 640x480, K = 1024."""
        return f'{self.precision}, {self.image_width}x{self.image_height}, K = {self.max_keypoints}'

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the engine's image."""
        return self.image_height, self.image_width

    @property
    def name(self) -> str:
        """As in names of engine folders: 480x640-k1024-fp16."""
        return f'{self.image_height}x{self.image_width}-k{self.max_keypoints}-{self.precision}'


@dataclass(frozen=True)
class MatcherConfig:
    """Everything a user may set. Raises ConfigError when a value is of the wrong type or out of its range."""

    backend: str = setting(
        'auto', 'Library that runs the networks; auto takes TensorRT where an engine fits, else ONNX Runtime, and logs its choice',
        choices=('auto', 'tensorrt', 'onnxruntime'))
    engine_dir: str = setting('', 'Folder of the TensorRT engines that build_engines made; empty: in the user cache')
    build_on_start: bool = setting(False, 'Build missing TensorRT engines before activation, which takes minutes')
    weights: str = setting(SHIPPED_MODELS[0], f'Extractor and matcher: {WEIGHTS}')
    image_height: int = setting(480, 'Height that frames are resized to, pixels, a multiple of 8', low=16, high=4096)
    image_width: int = setting(640, 'Width that frames are resized to, a multiple of 8; keep the aspect ratio', low=16, high=4096)
    max_keypoints: int = setting(1024, f'Keypoints per frame (K), at most {MAX_KEYPOINTS}', low=1, high=MAX_KEYPOINTS)
    precision: str = setting(
        'auto', 'Arithmetic of the networks; auto is fp32 on the CPU, on a GPU the best that it runs and that passed its check',
        choices=('auto', *PRECISIONS))
    match_threshold: float = setting(
        0.4, 'Least score of a published match: the probability that it is right', low=0.0, high=1.0, dynamic=True)
    detection_threshold: float = setting(
        0.0005, 'Least SuperPoint score of a keypoint that takes part', low=0.0, high=1.0, dynamic=True)
    depth_confidence: float = setting(
        DEPTH_CONFIDENCE, 'Share of confident points at which LightGlue stops before its last layer, in (0, 1); -1: never',
        low=ALL_LAYERS, high=1.0, dynamic=True)
    refinement: str = setting(
        'patches', "Subpixel refinement of matched points: patches refines them by the images; none keeps SuperPoint's positions",
        choices=('patches', 'none'), dynamic=True, detail='Patches refines only where there is texture')
    max_sigma_px: float = setting(
        0.0, 'Largest standard deviation of a published point in any direction, pixels; 0: any', low=0.0, high=1000.0, dynamic=True)
    carry_frames: int = setting(
        10, 'Frames for which track propagation keeps a point without a match, where the image still shows it; 0: no propagation',
        low=0, high=100, dynamic=True, detail='Propagation needs refinement by patches')
    mask_margin: int = setting(
        4, "Pixels of the engine's image by which masks are grown, as a keypoint that is nearer sees what a mask hides; 0: not",
        low=0, high=32, dynamic=True)
    static_points: str = setting(
        'auto', 'Points that stand still in the image while the camera moves: auto drops them once the camera is seen to move; '
        'drop, whenever anything moves; keep, never', choices=('auto', 'drop', 'keep'))
    reference: str = setting(
        'previous', 'Frame that a new frame is matched with; alternate is the one before the previous, for projectors that flash',
        choices=('previous', 'keyframe', 'alternate'), dynamic=True)
    keyframe_min_ratio: float = setting(
        0.4, "A new keyframe is taken when fewer than this share of the keyframe's keypoints are matched",
        low=0.0, high=1.0, dynamic=True, detail='For keyframes it is the share of tracks that go on')
    keyframes: int = setting(
        0, 'Keyframes that are kept, published on ~/keyframe and matched by ~/match_keyframes; 0: none', low=0, high=10_000)
    max_gap_s: float = setting(
        1.0, 'A longer gap between stamps forgets reference and tracks, seconds', low=0.001, high=3600.0, dynamic=True)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_setting(field, getattr(self, field.name))
        if self.depth_confidence != ALL_LAYERS and not 0 < self.depth_confidence < 1:
            raise ConfigError(f'depth_confidence is {self.depth_confidence}: it must lie between 0 and 1, or be -1, which runs all '
                              'layers')
        self.engine_spec('fp32')

    def engine_spec(self, precision: str) -> EngineSpec:
        """The spec of the engines for this configuration, at a resolved precision."""
        return EngineSpec(self.image_height, self.image_width, self.max_keypoints, precision)

    def thresholds(self, scores: ScoreCalibration, at_zero: bool = False) -> Thresholds:
        """As the matcher's graph takes them, for scores of this calibration; `at_zero` as in Thresholds."""
        return Thresholds(scores.raw(self.match_threshold), self.detection_threshold, self.depth_confidence, at_zero)


def check_setting(field: dataclasses.Field[Any], value: Any) -> None:
    """Raise ConfigError unless `value` has the type of the field's default and lies in its range or choices."""
    expected, meta = type(field.default), field.metadata
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) if expected is float else type(value) is expected
    if not fits:
        bounds = '' if meta['low'] is None else f' in [{meta["low"]}, {meta["high"]}]'
        raise ConfigError(f'{field.name} is {value!r} ({type(value).__name__}): it must be {KINDS[expected]}{bounds}')
    if value in RETIRED_VALUES.get(field.name, ()):
        raise ConfigError(f'{field.name} is {value!r}, which patches has replaced: use {" or ".join(meta["choices"])}')
    if meta['choices'] and value not in meta['choices']:
        raise ConfigError(f'{field.name} is {value!r}: use one of {", ".join(map(str, meta["choices"]))}')
    if meta['low'] is not None and not meta['low'] <= value <= meta['high']:
        raise ConfigError(f'{field.name} is {value}: it must lie in [{meta["low"]}, {meta["high"]}]')


def check_cameras(names: Sequence[str]) -> None:
    """Raise ConfigError unless each name can be part of a topic and occurs once; a single camera's name is empty."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f'cameras has {name!r} {names.count(name)} times: each camera needs a name of its own')
        if tuple(names) != ('',) and not (isinstance(name, str) and re.fullmatch(r'[A-Za-z_][A-Za-z0-9_]*', name)):
            raise ConfigError(f'cameras has {name!r}: a name is part of topics, of letters, digits and underscores, no digit first')


def check_names(given: Collection[str], known: Collection[str]) -> None:
    """Raise ConfigError for the first unknown name, with the nearest known one."""
    for name in given:
        if name in RENAMED:
            raise ConfigError(f'the setting {name!r} is now {RENAMED[name]}')
        if name not in known:
            raise ConfigError(f'unknown setting {name!r}: {did_you_mean(name, known) or "there are " + ", ".join(known)}')
