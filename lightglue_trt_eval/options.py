"""How a recording is evaluated: the options that evaluate_bag and evaluate_fleet share, their values, and what --compare names."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightglue_trt_ros.core.config import PRECISIONS, MatcherConfig, check_cameras, check_names
from lightglue_trt_ros.datasets.bag import open_recording
from lightglue_trt_ros.datasets.poses import KINDS
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.odometry.two_view import DEFAULT_ESTIMATOR, ESTIMATOR_LABELS
from lightglue_trt_ros.utils.arguments import (
    add_depth_scale,
    add_image_bits,
    add_settings,
    number,
    numbers,
    positive,
    settings_of,
    some_of,
)
from lightglue_trt_ros.utils.errors import BagError, ConfigError

from .images.degradation import DEGRADATIONS, DEPTH_DEGRADATIONS, camera_stands, in_lines
from .predict.baselines import BASELINES

OWN_RIGHT_IMAGES = '--stereo'  # as right_topic: the right images that a folder has without a topic
OWN_DEPTH_IMAGES = '--depth'  # as depth_topic: those that the recording has by itself
OF_CAMERA = ('image_topic', 'depth_topic', 'camera', 'camera_in_body', 'mask', 'truth', 'truth_topic',
             'truth_child_frame')  # may have {camera}
SETTINGS = ('backend', 'engine_dir', 'precision', 'max_keypoints', 'weights', 'match_threshold', 'refinement', 'depth_confidence',
            'mask_margin', 'static_points')
DYNAMIC = tuple(field.name for field in dataclasses.fields(MatcherConfig) if field.metadata['dynamic'])
COMPARABLE = ('weights', *DYNAMIC)
GIVEN = ('reference', 'keyframe_min_ratio', 'max_gap_s')  # each frame is matched with the one before, and the evaluation knows gaps
SEVERAL_WORDS = {  # options that take several words, and which words belong to them
    '--baselines': lambda word: {*word.lower().split(',')} <= {*BASELINES, ''},
    '--compare': lambda word: all(_is_variant(part) for part in word.split(',') if part)}


@dataclass(frozen=True)
class EvaluationOptions:
    """How one recording is evaluated. None: as recorded, or chosen by the evaluation."""

    image_topic: str | None = None
    image_bits: int = 16  # that the camera fills, of images of 16 bits
    camera: Path | None = None  # intrinsics
    mask: Path | None = None
    truth_topic: str | None = None
    truth: Path | None = None
    truth_kind: str | None = None
    truth_child_frame: str | None = None
    camera_in_body: Path | None = None
    max_time_difference: float = 0.02  # between an image and its pose, seconds
    strides: tuple[int, ...] = (1, 2, 4)
    baselines: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()  # words for `variants`
    estimator: str = DEFAULT_ESTIMATOR
    max_frames: int | None = None
    degrade: tuple[str, ...] = ()  # of DEGRADATIONS and DEPTH_DEGRADATIONS
    right_topic: str | None = None  # OWN_RIGHT_IMAGES: those of the folder
    depth_scale: float | None = None  # units to a metre of depth images
    depth_topic: str | None = None  # OWN_DEPTH_IMAGES: those that the recording has by itself
    live: bool = False
    rate: float = 1.0  # of the recorded pace, for `live`
    height: int | None = None  # of the engine; None: `fitting_size`
    width: int | None = None
    matcher: dict[str, Any] = field(default_factory=dict)  # fields of MatcherConfig, without the size

    @classmethod
    def of(cls, args: argparse.Namespace, parser: argparse.ArgumentParser) -> EvaluationOptions:
        """The values of a parser that has `add_evaluation_options`. Contradictions end the command with a usage error."""
        values = {each.name: getattr(args, each.name) for each in dataclasses.fields(cls) if hasattr(args, each.name)}
        values['baselines'] = tuple(dict.fromkeys(name for names in args.baselines for name in names))
        values['compare'] = tuple(word for words in args.compare for word in words.split(',') if word)
        matcher = {name: value for name, value in settings_of(args, MatcherConfig).items() if name in SETTINGS}
        options = cls(**values, matcher=matcher)
        if (options.height is None) != (options.width is None):
            parser.error('give both of --height and --width, or neither')
        if options.degrade and (options.live or options.right_topic):
            parser.error('--degrade is for the matchers offline: leave out --live, --stereo and --right-topic; '
                         'make_bag --degrade writes a bag that --live can play')
        if (of_depth := DEPTH_DEGRADATIONS.keys() & options.degrade) and not options.depth_topic:
            parser.error(f'--degrade {min(of_depth)} is of depth images: give --depth')
        if camera_stands(options.degrade) and (options.depth_topic or options.truth or options.truth_topic):
            parser.error(f'--degrade {",".join(options.degrade)}: the camera stands, so leave out depth images and ground truth, '
                         'which are of a camera that moves')
        if options.depth_scale and not options.depth_topic:
            parser.error('--depth-scale is of depth images: give --depth')
        if options.depth_scale and options.live:
            parser.error('--depth-scale is offline: the node takes the unit of the encoding, so leave out --live')
        return options

    def open(self, path: Path, camera: str = '') -> Recording:
        """The recording at `path`, as `open_recording` opens it with these options. Raises BagError."""
        return open_recording(path, self.image_topic, camera, image_bits=self.image_bits, depth_scale=self.depth_scale)

    def for_camera(self, name: str) -> EvaluationOptions:
        """The options of one of several cameras: its name where {camera} stands."""
        given = {option: value for option in OF_CAMERA if (value := getattr(self, option)) is not None}
        return dataclasses.replace(self, **{option: type(value)(str(value).replace('{camera}', name))
                                            for option, value in given.items()})


def add_evaluation_options(parser: argparse._ActionsContainer, *, fleet: bool = False) -> None:
    """Declare every option of EvaluationOptions; for a `fleet` without those of a single recording."""
    parser.add_argument('--image-topic', metavar='TOPIC', help='image topic, if the bag has several')
    add_image_bits(parser)
    parser.add_argument('--camera', '--intrinsics', type=Path, metavar='YAML', help='intrinsics, instead of the recorded ones; of '
                        'a file with several cameras FILE:NAME, as camchain.yaml:cam1')
    parser.add_argument('--mask', type=Path, metavar='PNG', help='8-bit gray image of the size of the images or of the engine; no '
                        'matcher gets keypoints where it is 0')
    truth = parser.add_mutually_exclusive_group()
    truth.add_argument('--truth-topic', metavar='TOPIC', help='ground truth: a topic of poses in the bag, instead of the default')
    parser.add_argument('--truth-child-frame', metavar='FRAME', help='the moving frame, if a topic of poses has several')
    parser.add_argument('--camera-in-body', type=Path, metavar='YAML',
                        help="the camera's pose in the body that the ground truth is of: a calibration file of EuRoC, Kalibr, VINS "
                        'or ORB-SLAM; FILE:NAME as for --camera')
    parser.add_argument('--max-time-difference', type=positive, default=0.02, metavar='S',
                        help='largest difference between the stamps of an image and its pose, seconds; default: %(default)s')
    parser.add_argument('--strides', type=numbers, default=(1, 2, 4), metavar='N,N',
                        help='match every Nth frame with the one N before it; default: 1,2,4')
    parser.add_argument('--baselines', type=some_of(BASELINES), action='append', default=[], metavar='NAME ...',
                        help=f'classical matchers to compare with, of {" ".join(BASELINES)}')
    parser.add_argument('--compare', action='append', default=[], metavar='WHAT ...', help=f'precisions ({",".join(PRECISIONS)}), '
                        'numbers of keypoints, SETTING=VALUE (depth_confidence=-1, weights=ours_light), or folders of engine sets, '
                        'each compared with the first')
    parser.add_argument('--estimator', choices=tuple(ESTIMATOR_LABELS), default=DEFAULT_ESTIMATOR,
                        help='how poses are estimated, for every matcher; default: %(default)s; '
                        + '; '.join(f'{name}: {label}' for name, label in ESTIMATOR_LABELS.items()))
    parser.add_argument('--max-frames', type=number(int, 2), metavar='N', help='evaluate only the first N frames')
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument('--depth', dest='depth_topic', action='store_const', const=OWN_DEPTH_IMAGES, help='give our matchers the '
                       "depth images: the folder's, or a bag's that are called depth and have the images' frame_id")
    depth.add_argument('--depth-topic', metavar='TOPIC', help='give our matchers the depth images on this topic of the bag')
    add_depth_scale(parser)
    parser.add_argument('--degrade', type=some_of(kinds := (*DEGRADATIONS, *DEPTH_DEGRADATIONS)), default=(), metavar='NAME,…',
                        help='show every matcher the frames in bad light or with structure that is no part of the scene, or '
                        f'ours depth images with noise; of several one after the other\n{in_lines(kinds)}')
    if not fleet:
        truth.add_argument('--truth', '--truth-file', type=Path, metavar='FILE', help='ground truth: a file of TUM, KITTI or EuRoC')
        parser.add_argument('--truth-kind', choices=KINDS, help='format of that file; default: by its first line')
        parser.add_argument('--stereo', dest='right_topic', action='store_const', const=OWN_RIGHT_IMAGES,
                            help='also match left to right, if the folder has right images')
        parser.add_argument('--right-topic', metavar='TOPIC', help='also match left to right, with the right images on this topic')
        parser.add_argument('--live', action='store_true', help='also play the bag over DDS into the running node')
        parser.add_argument('--rate', type=positive, default=1.0,
                            help='pace for --live, as a multiple of the recorded pace; default: %(default)s')
    add_settings(parser, MatcherConfig, *SETTINGS)
    parser.add_argument('--height', type=int, help='height of the engine; default: aspect ratio of the images, area of 640x480')
    parser.add_argument('--width', type=int, help='width of the engine')


def add_cameras(parser: argparse._ActionsContainer, what: str, *more: str) -> None:
    """Add --cameras; `more` are the options besides --image-topic in which the name stands."""
    parser.add_argument('--cameras', type=lambda text: tuple(text.split(',')), metavar='NAME,NAME', help=f'{what}: the name is a '
                        'part of the image topic (/front/image_raw), or give --image-topic; the name replaces {camera} there'
                        + ' and in --' * bool(more) + ', --'.join(more).replace('_', '-'))


def check_camera_options(parser: argparse.ArgumentParser, names: Sequence[str], image_topic: str | None) -> None:
    """End the command with a usage error where `names` or the topic cannot be those of several cameras."""
    try:
        check_cameras(names)
    except ConfigError as error:
        parser.error(f'--{error}')
    if image_topic and '{camera}' not in image_topic:
        parser.error(f'--image-topic {image_topic} is one topic for {len(names)} cameras: write {{camera}} where a name stands, '
                     'e.g. /{camera}/image_raw')


def check_topics(path: Path, recordings: Mapping[str, Recording]) -> None:
    """Raise BagError where several cameras have one topic."""
    topics = [recording.image_topic for recording in recordings.values()]
    for name, topic in zip(recordings, topics, strict=True):
        if topics.count(topic) > 1:
            raise BagError(f'{path}: {topic} is the topic of {topics.count(topic)} of these cameras, {name} among them: write '
                           '--image-topic with {camera} in place of the name')


def variants(config: MatcherConfig, compare: Sequence[str]) -> dict[str, MatcherConfig]:
    """Settings by name: precisions, keypoint budgets, SETTING=VALUE and folders of engine sets, each a variant of `config`.

    `config` alone without any. Raises ConfigError for a word that is none of these.
    """
    configs = {_name(word): _variant(config, word) for word in compare}
    if len(configs) < len(compare):
        raise ConfigError(f'--compare {",".join(compare)}: each may stand there once')
    return configs or {'ours': config}


def settings_in_words(config: MatcherConfig, other: MatcherConfig | None = None) -> str:
    """The settings that two variants of one backend may differ in; with `other`, those in which they do."""
    values = {name.replace('_', ' '): getattr(config, name) for name in DYNAMIC
              if name not in GIVEN and (other is None or getattr(other, name) != getattr(config, name))}
    return ', '.join(f'{name} {value:g}' if isinstance(value, float) else f'{name} {value}' for name, value in values.items())


def _is_variant(word: str) -> bool:
    """Whether a word can be one of `variants`."""
    return word in PRECISIONS or word.isdigit() or '=' in word or _is_engine_set(word)


def _name(word: str) -> str:
    """For legends: weights and engine sets by their own names, refinement=affine as affine, depth_confidence=0.98 as it is."""
    setting, _, value = word.partition('=')
    if setting == 'weights':
        return Path(value).name or word
    if _is_engine_set(word):
        return Path(word).name
    return f'ours {value if value.isidentifier() else word}'


def _is_engine_set(word: str) -> bool:
    return (Path(word).expanduser() / 'manifest.json').is_file()


def _variant(config: MatcherConfig, word: str) -> MatcherConfig:
    if word in PRECISIONS:
        return dataclasses.replace(config, precision=word)
    if word.isdigit():
        return dataclasses.replace(config, max_keypoints=int(word))
    if '=' in word:
        return _with_setting(config, *word.split('=', 1))
    if not _is_engine_set(word):
        raise ConfigError(f'--compare {word}: give precisions ({", ".join(PRECISIONS)}), numbers of keypoints, SETTING=VALUE, or '
                          'folders of engine sets (with a manifest.json)')
    from lightglue_trt_ros.engines.manifest import ENGINES, MANIFEST, Artifact
    folder = Path(word).expanduser()
    try:
        identity = Artifact.of_folder(folder).identity
    except (OSError, ValueError) as error:
        raise ConfigError(f'--compare {word}: {folder / MANIFEST} cannot be used ({error}): build_engines makes it anew') from error
    if identity.kind != ENGINES or identity.name != folder.name:
        raise ConfigError(f'--compare {word}: it holds the {identity.kind} {identity.name}; give engines, in a folder called so')
    return dataclasses.replace(
        config, backend='tensorrt', engine_dir=str(folder.parent), precision=identity.matcher_precision,
        image_height=identity.image_height, image_width=identity.image_width, max_keypoints=identity.max_keypoints,
        weights=identity.weights_choice)


def _with_setting(config: MatcherConfig, name: str, text: str) -> MatcherConfig:
    """`config` with other weights, or with another value of one of the settings that may change while the node runs."""
    check_names([name], COMPARABLE)
    kind: type = type(getattr(config, name))
    try:
        changes = {name: kind(text)}
    except ValueError:
        raise ConfigError(f'--compare {name}={text}: the value must be a {kind.__name__}') from None
    return dataclasses.replace(config, **changes)
