"""How a recording is evaluated: the options that evaluate_bag and evaluate_fleet share, their values, and what --compare names."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightglue_trt_ros.core.config import PRECISIONS, MatcherConfig, check_cameras, check_names
from lightglue_trt_ros.datasets.pose_files import KINDS
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.datasets.units import JUDGED_IMAGES, bits_note
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

from .baselines import BASELINES
from .images.degradation import DEGRADATIONS, DEPTH_DEGRADATIONS, camera_stands, in_lines

OWN_RIGHT_IMAGES = '--stereo'  # as right_topic: the right images that a folder has without a topic
OWN_DEPTH_IMAGES = '--depth'  # as depth_topic: those that the recording has by itself
OWN_IMAGES = {  # options without a value, of the fields that also name a topic
    'right_topic': (OWN_RIGHT_IMAGES, 'also match left to right, if the folder has right images'),
    'depth_topic': (OWN_DEPTH_IMAGES, "give our matchers the depth images: the folder's, or a bag's that are called depth and have "
                                      "the images' frame_id")}
KEEP, USE = 'keep', 'use'
OF_SCORES = ('estimator', 'live', 'rate', 'hz', 'predictions')  # no prediction depends on them
OF_CAMERA = ('image_topic', 'depth_topic', 'camera', 'camera_in_body', 'mask', 'truth', 'truth_topic',
             'truth_child_frame')  # may have {camera}
SETTINGS = ('backend', 'engine_dir', 'precision', 'max_keypoints', 'weights', 'match_threshold', 'refinement', 'depth_confidence',
            'mask_margin', 'static_points')
OF_MATCHERS = tuple(field.name for field in dataclasses.fields(MatcherConfig)
                    if field.metadata['dynamic'] or field.name == 'static_points')  # no other backend is opened for them
GIVEN = ('reference', 'keyframe_min_ratio', 'max_gap_s')  # each frame is matched with the one before, and the evaluation knows gaps
SEVERAL_WORDS = {  # options that take several words, and which words belong to them
    '--baselines': lambda word: {*word.lower().split(',')} <= {*BASELINES, ''},
    '--compare': lambda word: all(_is_variant(part) for part in word.split(',') if part)}


def _words(text: str) -> list[str]:
    return [word for word in text.split(',') if word]


def option(default: Any, text: str, *names: str, single: bool = False, group: str = '', **argument: Any) -> Any:
    """A field that is an option of evaluate_bag, with its help; `names` are others of the same option.

    `single`: of a single recording, not of a fleet. Options of one `group` exclude each other. `argument` is argparse's.
    """
    start = [] if argument.get('action') == 'extend' else default
    return field(default=default, metadata={'names': names, 'single': single, 'group': group,
                                            'argument': {'default': start, 'help': text, **argument}})


@dataclass(frozen=True)
class EvaluationOptions:
    """How one recording is evaluated. None: as recorded, or chosen by the evaluation."""

    image_topic: str | None = option(None, 'image topic, if the bag has several', metavar='TOPIC')
    image_bits: int = field(default=16, metadata={'add': add_image_bits})
    camera: Path | None = option(None, 'intrinsics, instead of the recorded ones; of a file with several cameras FILE:NAME, as '
                                 'camchain.yaml:cam1', '--intrinsics', type=Path, metavar='YAML')
    mask: Path | None = option(None, '8-bit gray image of the size of the images or of the engine; no matcher gets keypoints '
                               'where it is 0', type=Path, metavar='PNG')
    truth_topic: str | None = option(None, 'ground truth: a topic of poses in the bag, instead of the default', group='truth',
                                     metavar='TOPIC')
    truth_child_frame: str | None = option(None, 'the moving frame, if a topic of poses has several or names none', metavar='FRAME')
    camera_in_body: Path | None = option(None, "the camera's pose in the body that the ground truth is of: a calibration file of "
                                         'EuRoC, Kalibr, VINS or ORB-SLAM; FILE:NAME as for --camera', type=Path, metavar='YAML')
    max_time_difference: float = option(0.02, 'largest difference between the stamps of an image and its pose, seconds; default: '
                                        '%(default)s', type=positive, metavar='S')
    strides: tuple[int, ...] = option((1, 2, 4), 'match every Nth frame with the one N before it; default: 1,2,4', type=numbers,
                                      metavar='N,N')
    baselines: tuple[str, ...] = option((), f'classical matchers to compare with, of {" ".join(BASELINES)}',
                                        type=some_of(BASELINES), action='extend', metavar='NAME ...')
    compare: tuple[str, ...] = option(  # words for `variants`
        (), f'precisions ({",".join(PRECISIONS)}), numbers of keypoints, SETTING=VALUE (depth_confidence=-1, weights=ours_light), '
        'or folders of engine sets, each compared with the first; a single one with the settings as they are', type=_words,
        action='extend', metavar='WHAT ...')
    estimator: str = option(DEFAULT_ESTIMATOR, 'how poses are estimated, for every matcher; default: %(default)s; '
                            + '; '.join(f'{name}: {label}' for name, label in ESTIMATOR_LABELS.items()),
                            choices=tuple(ESTIMATOR_LABELS))
    max_frames: int | None = option(None, 'evaluate only the first N frames', type=number(int, 2), metavar='N')
    depth_topic: str | None = option(  # OWN_DEPTH_IMAGES: those that the recording has by itself
        None, 'give our matchers the depth images on this topic of the bag', group='depth', metavar='TOPIC')
    depth_scale: float | None = field(default=None, metadata={'add': add_depth_scale})  # units to a metre of depth images
    degrade: tuple[str, ...] = option(
        (), 'show every matcher the frames in bad light or with structure that is no part of the scene, or ours depth images with '
        f'noise; of several one after the other\n{in_lines((*DEGRADATIONS, *DEPTH_DEGRADATIONS))}',
        type=some_of((*DEGRADATIONS, *DEPTH_DEGRADATIONS)), metavar='NAME,…')
    truth: Path | None = option(None, 'ground truth: a file of TUM, KITTI or EuRoC', '--truth-file', single=True, group='truth',
                                type=Path, metavar='FILE')
    truth_kind: str | None = option(None, 'format of that file; default: by its first line', single=True, choices=KINDS)
    right_topic: str | None = option(  # OWN_RIGHT_IMAGES: those of the folder
        None, 'also match left to right, with the right images on this topic', single=True, metavar='TOPIC')
    live: bool = option(False, 'also play the bag over DDS into the running node', single=True, action='store_true')
    rate: float = option(1.0, 'pace for --live, as a multiple of the recorded pace; default: %(default)s', single=True,
                         group='pace', type=positive)
    hz: float | None = option(None, 'frames per second for --live, instead of --rate; 0: what this machine keeps', single=True,
                              group='pace', type=number(float, 0))
    sampled_pairs: int = option(30, 'pairs that are timed, and of which up to 20 are matched backwards; default: %(default)s',
                                single=True, type=number(int, 1), metavar='N')
    predictions: str | None = option(
        None, f'{KEEP}: leave the matches of all methods in the folder of the report; {USE}: score those again, without networks, '
        'as with another --estimator', single=True, choices=(KEEP, USE))
    matcher: dict[str, Any] = field(default_factory=dict)  # fields of MatcherConfig, without the size
    height: int | None = option(None, 'height of the engine; default: aspect ratio of the images, area of 640x480', type=int)
    width: int | None = option(None, 'width of the engine', type=int)

    @classmethod
    def of(cls, args: argparse.Namespace, parser: argparse.ArgumentParser) -> EvaluationOptions:
        """The values of a parser that has `add_evaluation_options`. Contradictions end the command with a usage error."""
        values = {each.name: getattr(args, each.name) for each in dataclasses.fields(cls) if hasattr(args, each.name)}
        values |= {'baselines': tuple(dict.fromkeys(args.baselines)), 'compare': tuple(args.compare)}
        matcher = {name: value for name, value in settings_of(args, MatcherConfig).items() if name in SETTINGS}
        options = cls(**values, matcher=matcher)
        if (options.height is None) != (options.width is None):
            parser.error('give both of --height and --width, or neither')
        if options.degrade and (options.live or options.right_topic):
            parser.error('--degrade is for the matchers offline: leave out --live, --stereo and --right-topic; '
                         'make_bag --degrade writes a bag that --live can play')
        if (of_depth := DEPTH_DEGRADATIONS.keys() & options.degrade) and not options.depth_topic:
            parser.error(f'--degrade {min(of_depth)} is of depth images: give --depth')
        moves = options.depth_topic or options.truth or options.truth_topic or options.camera_in_body
        if camera_stands(options.degrade) and moves:
            parser.error(f'--degrade {",".join(options.degrade)}: the camera stands, so leave out depth images and ground truth, '
                         'which are of a camera that moves')
        if (options.hz is not None or options.rate != 1) and not options.live:
            parser.error('--rate and --hz are the pace of --live: give it, or leave them out')
        if options.truth_kind and not options.truth:
            parser.error('--truth-kind is the format of a file: name it with --truth')
        if options.truth_child_frame and options.truth:
            parser.error('--truth-child-frame is of a topic, and --truth names a file: leave one out')
        if options.depth_scale and not options.depth_topic:
            parser.error('--depth-scale is of depth images: give --depth')
        if options.depth_scale and options.live:
            parser.error('--depth-scale is offline: the node takes the unit of the encoding, so leave out --live')
        return options

    def open(self, path: Path, camera: str = '') -> Recording:
        """The recording at `path`, as `open_recording` opens it with these options. Raises BagError."""
        return open_recording(path, self.image_topic, camera, image_bits=self.image_bits, depth_scale=self.depth_scale)

    def variants(self, config: MatcherConfig) -> dict[str, MatcherConfig]:
        """`variants` of what --compare names. Raises ConfigError also for an option that each of them replaces."""
        found, default = variants(config, self.compare), MatcherConfig()
        given = {**self.matcher, 'engine_dir': default.engine_dir}  # a folder of engine sets has its own
        given |= {} if self.height is None or self.width is None else {'image_height': self.height, 'image_width': self.width}
        for name, value in given.items():
            if value != getattr(default, name) and all(getattr(each, name) != value for each in found.values()):
                option = f'--{name.removeprefix("image_").replace("_", "-")}'
                raise ConfigError(f'{option} {value} is replaced by each variant of --compare {",".join(self.compare)}: leave out '
                                  f'{option}, or compare a variant that keeps it')
        return found

    def for_camera(self, name: str) -> EvaluationOptions:
        """The options of one of several cameras: its name where {camera} stands."""
        given = {option: value for option in OF_CAMERA if (value := getattr(self, option)) is not None}
        return dataclasses.replace(self, **{option: type(value)(str(value).replace('{camera}', name))
                                            for option, value in given.items()})


def add_evaluation_options(parser: argparse._ActionsContainer, *, fleet: bool = False) -> None:
    """Declare every option of EvaluationOptions; for a `fleet` without those of a single recording."""
    groups = {name: parser.add_mutually_exclusive_group() for name in ('truth', 'depth', *['pace'] * (not fleet))}
    for each in dataclasses.fields(EvaluationOptions):
        meta = each.metadata
        if each.name == 'matcher':
            add_settings(parser, MatcherConfig, *SETTINGS)
        elif 'add' in meta:
            meta['add'](parser)
        elif not (fleet and meta['single']):
            holder = groups.get(meta['group'], parser)
            if each.name in OWN_IMAGES:
                name, text = OWN_IMAGES[each.name]
                holder.add_argument(name, dest=each.name, action=_Own, nargs=0, const=name, help=text)
            holder.add_argument(f'--{each.name.replace("_", "-")}', *meta['names'], **meta['argument'])


class _Own(argparse.Action):
    """An option without a value, of a field that also takes a topic: a topic that was given stays."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object,
                 option: str | None = None) -> None:
        setattr(namespace, self.dest, getattr(namespace, self.dest) or self.const)


def add_cameras(parser: argparse._ActionsContainer, what: str, *more: str) -> None:
    """Add --cameras; `more` are the options besides --image-topic in which the name stands."""
    parser.add_argument('--cameras', type=lambda text: tuple(text.split(',')), metavar='NAME,NAME', help=f'{what}: the name is a '
                        'part of the image topic (/front/image_raw), or give --image-topic; the name replaces {camera} there'
                        + ' and in --' * bool(more) + ', --'.join(more).replace('_', '-'))


def check_camera_options(parser: argparse.ArgumentParser, names: Sequence[str], image_topic: str | None) -> None:
    """End the command with a usage error where `names` or the topic cannot be those of several cameras."""
    if '' in names:
        parser.error("--cameras has '', an empty name: give names with commas between them, as front,rear")
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


def notes_of(recording: Recording) -> list[str]:
    """What its reader and its first images say of a recording: lines for people."""
    some = itertools.islice(recording.frames(), 0, None, max(1, len(recording) // JUDGED_IMAGES))
    return [*recording.notes, *filter(None, [bits_note(some, recording.bits)])]


def variants(config: MatcherConfig, compare: Sequence[str]) -> dict[str, MatcherConfig]:
    """Settings by name: precisions, keypoint budgets, SETTING=VALUE and folders of engine sets, each a variant of `config`.

    `config` itself, by its model's name, without any and next to a single one. Raises ConfigError for a word that is none of these.
    """
    model = Path(config.weights).name
    if len(set(compare)) < len(compare):
        raise ConfigError(f'--compare {",".join(compare)}: each may stand there once')
    wanted = [(_name(word, model), word, _variant(config, word)) for word in compare]
    if len(wanted) < 2 and all(each != config for _, _, each in wanted):
        wanted.insert(0, (model, str(config.weights), config))
    names = [name for name, _, _ in wanted]
    return {name if names.count(name) == 1 else word: each for name, word, each in wanted}  # folders may have one name


def settings_in_words(config: MatcherConfig, other: MatcherConfig | None = None) -> str:
    """The settings that two variants of one backend may differ in; with `other`, those in which they do."""
    values = {name.replace('_', ' '): getattr(config, name) for name in OF_MATCHERS
              if name not in GIVEN and (other is None or getattr(other, name) != getattr(config, name))}
    return ', '.join(f'{name} {value:g}' if isinstance(value, float) else f'{name} {value}' for name, value in values.items())


def _is_variant(word: str) -> bool:
    """Whether a word can be one of `variants`."""
    return word in PRECISIONS or word.isdigit() or '=' in word or _is_engine_set(word)


def _name(word: str, model: str) -> str:
    """For legends: weights and engine sets by their own names, refinement=affine as affine, depth_confidence=0.98 as it is."""
    setting, _, value = word.partition('=')
    if setting == 'weights':
        return Path(value).name or word
    if _is_engine_set(word):
        return Path(word).name
    return f'{model} {value if setting == "refinement" else word}'


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
    """`config` with other weights, or with another value of a setting that is of no backend."""
    check_names([name], ('weights', *OF_MATCHERS))
    if name in GIVEN:
        raise ConfigError(f'--compare {name}={text}: it changes nothing here, where each frame is matched with the one before. '
                          'Compare strides instead: --strides 1,2')
    kind: type = type(getattr(config, name))
    try:
        changes = {name: kind(text)}
    except ValueError:
        raise ConfigError(f'--compare {name}={text}: the value must be a {kind.__name__}') from None
    return dataclasses.replace(config, **changes)
