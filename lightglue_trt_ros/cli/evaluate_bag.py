"""evaluate_bag: are the correspondences good enough on this recording, at what cost, and against what else."""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from ..core.config import PRECISIONS, MatcherConfig, check_cameras
from ..core.geometry import Size, fitting_size
from ..core.images import gray_of
from ..core.masks import Mask, load_mask
from ..core.options import add_settings, numbers, one_word_each, positive, settings_of, some_of
from ..core.types import UInt8
from ..datasets.bag import open_recording, stereo_recording
from ..datasets.poses import KINDS
from ..datasets.sequence import Recording
from ..evaluation.baselines import BASELINES
from ..evaluation.costs import WallTime
from ..evaluation.dataset_info import Asked, survey, usable_frames
from ..evaluation.degradation import DEGRADATIONS, degraded
from ..evaluation.evaluator import Evaluator
from ..evaluation.methods import Baseline
from ..evaluation.report.page import write_report
from ..evaluation.report.requirements import Requirement, check
from ..evaluation.report.side_by_side import CameraReport, print_side_by_side, write_side_by_side
from ..evaluation.report.summary import print_summary
from ..evaluation.results import Evaluation
from ..evaluation.stereo_accuracy import evaluate_stereo
from ..evaluation.variant_runs import evaluate_in_turn
from ..evaluation.variants import is_variant, variants
from ..odometry.two_view import DEFAULT_ESTIMATOR, ESTIMATOR_LABELS, ESTIMATORS
from ..utils.commands import INTERRUPTED, command, log
from ..utils.console import progress
from ..utils.errors import BagError, ConfigError, LightglueTrtError
from ..utils.files import make_output_folder, own_output_folder
from ..utils.processes import describe_machine, give_memory_back, stop_on_sigint

ITS_OWN = '--stereo'  # in place of a topic: the right images that a recording knows by itself
OF_CAMERA = ('image_topic', 'camera', 'camera_in_body', 'mask', 'truth', 'truth_topic', 'truth_child_frame')  # may have {camera}
OWN = "the camera's own"  # in what is said of a truth that stands for the camera's poses
GREEDY = {  # options that take several words, and which words are theirs
    '--baselines': lambda word: {*word.lower().split(',')} <= {*BASELINES, ''},
    '--compare': lambda word: all(is_variant(part) for part in word.split(',') if part)}


@command('evaluate_bag', interrupted='interrupted; no report was written')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when all was evaluated and every requirement met, 1 with a message otherwise, 130 when interrupted."""
    args = _parse(argv)
    give_memory_back()
    with own_output_folder(args.out), stop_on_sigint() as stop:
        if (args.out / 'report.json').exists():
            log.info(f'{args.out} has the report of an earlier run, which this one replaces at its end')
        interrupted, failures = (_every_camera if args.cameras else _one_camera)(args, stop.is_set)
    for failure in failures:
        print(f'evaluate_bag: {failure}', file=sys.stderr)
    return 1 if failures else INTERRUPTED if interrupted else 0


def _one_camera(args: argparse.Namespace, stopped: Callable[[], bool]) -> tuple[bool, list[str]]:
    """Whether it was interrupted, and what failed."""
    evaluation, failures = _evaluated(args, open_recording(args.bag, args.image_topic), stopped)
    return evaluation.interrupted, failures


def _every_camera(args: argparse.Namespace, stopped: Callable[[], bool]) -> tuple[bool, list[str]]:
    """The same of several, one after the other; of those that are done the figures alone are held."""
    recordings = {name: open_recording(args.bag, _of_camera(args.image_topic, name), name) for name in args.cameras}
    topics = [recording.image_topic for recording in recordings.values()]
    for name, topic in zip(args.cameras, topics, strict=True):
        if topics.count(topic) > 1:
            raise BagError(f'{args.bag}: {topic} is the topic of {topics.count(topic)} of these cameras, {name} among them: write '
                           '--image-topic with {camera} in place of the name')
    found: list[CameraReport] = []
    for name, recording in recordings.items():
        if stopped():
            found.append(CameraReport(name, notes=['interrupted before its turn'], interrupted=True))
            log.info(f'camera {name}: {found[-1].notes[0]}')
            continue
        own = argparse.Namespace(**{**vars(args), **{option: _of_camera(getattr(args, option), name) for option in OF_CAMERA},
                                    'out': args.out / name})
        log.info(f'camera {name}: {recording.image_topic}')
        make_output_folder(own.out)
        try:
            evaluation, failures = _evaluated(own, recording, stopped)
            found.append(CameraReport.of(name, evaluation, failures))
        except LightglueTrtError as error:
            found.append(CameraReport(name, failures=[str(error)]))
    truths = [str(each.recording.get('truth')) for each in found]
    if any(truths.count(truth) > 1 and OWN in truth for truth in truths):
        found[0].notes.append("the same poses are taken as each camera's own, which they can be of one alone: say where the "
                              'cameras are with --camera-in-body, e.g. {camera}.yaml')
        log.info(found[0].notes[-1])
    files = write_side_by_side(args.out, found)
    print_side_by_side(found)
    log.info(f'all cameras: see {files[-1]}')
    return any(each.interrupted for each in found), [f'{each.name}: {line}' for each in found for line in each.failures]


def _evaluated(args: argparse.Namespace, recording: Recording, stopped: Callable[[], bool]) -> tuple[Evaluation, list[str]]:
    """What was found, reported, and what failed: requirements too."""
    evaluation, failures = _evaluate(args, recording, stopped)
    files = write_report(args.out, evaluation)
    print_summary(evaluation)
    log.info(f'see {next((file for file in files if file.suffix == ".html"), args.out)}; '
         + ', '.join(f'{name} {seconds:.1f} s' for name, seconds in evaluation.wall_s.items())
         + f', peak memory {evaluation.peak_memory_mib:.0f} MiB')
    if failures or not evaluation.interrupted:
        failures += check(args.requirements, evaluation)
    return evaluation, failures


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='evaluate_bag', description='Match a recording and say how good that is: matches, inliers, relative poses, a two-view '
        'odometry, times; against baselines, other settings, and live.')
    parser.add_argument('bag', type=Path, help='rosbag2 (sqlite3 or mcap), or an image folder in TUM, KITTI or EuRoC layout')
    parser.add_argument('--image-topic', metavar='TOPIC', help='where the bag has several with images')
    parser.add_argument('--cameras', type=lambda text: tuple(text.split(',')), metavar='NAME,NAME', help='several cameras of a '
                        "bag, each by itself: a camera's images are on the topic that has its name among its parts "
                        '(/front/image_raw), or on --image-topic; {camera} stands for the name there and in --'
                        + ', --'.join(OF_CAMERA[1:]).replace('_', '-'))
    parser.add_argument('--camera', '--intrinsics', type=Path, metavar='YAML', help='intrinsics, instead of the recorded ones')
    parser.add_argument('--mask', type=Path, metavar='PNG', help="8-bit gray, of the images' size or the engine's: no matcher's "
                        'keypoints are where it is 0')
    truth = parser.add_mutually_exclusive_group()
    truth.add_argument('--truth-topic', metavar='TOPIC', help='poses in the bag, instead of what it has by itself')
    truth.add_argument('--truth', '--truth-file', type=Path, metavar='FILE', help='poses in a file of TUM, KITTI or EuRoC')
    parser.add_argument('--truth-kind', choices=KINDS, help='of that file, default: by its first line')
    parser.add_argument('--truth-child-frame', metavar='FRAME', help='the moving frame, where a topic of poses has several')
    parser.add_argument('--camera-in-body', type=Path, metavar='YAML',
                        help="a sensor.yaml as EuRoC's, whose T_BS says where the camera is in the body that the poses are of")
    parser.add_argument('--max-time-difference', type=positive, default=0.02, metavar='S',
                        help='between an image and its pose, seconds, default: %(default)s')
    parser.add_argument('--strides', type=numbers, default=(1, 2, 4), metavar='N,N',
                        help='match every Nth frame with the one N before it, default: 1,2,4')
    parser.add_argument('--baselines', type=some_of(BASELINES), action='append', default=[], metavar='NAME ...',
                        help=f'of {" ".join(BASELINES)}')
    parser.add_argument('--compare', action='append', default=[], metavar='WHAT ...', help=f'precisions ({",".join(PRECISIONS)}), '
                        "numbers of keypoints, SETTING=VALUE (depth_confidence=-1, weights=ours_light), or engine sets, each "
                        'against the first')
    parser.add_argument('--estimator', choices=tuple(ESTIMATOR_LABELS), default=DEFAULT_ESTIMATOR,
                        help='how poses are estimated, for every matcher; default: %(default)s; '
                        + '; '.join(f'{name}: {label}' for name, label in ESTIMATOR_LABELS.items()))
    parser.add_argument('--max-frames', type=int, metavar='N', help='evaluate the first N frames alone')
    parser.add_argument('--degrade', choices=tuple(DEGRADATIONS), help='show every matcher the frames in bad light')
    parser.add_argument('--stereo', dest='right_topic', action='store_const', const=ITS_OWN,
                        help='match left to right as well, where the folder has right images beside the left ones')
    parser.add_argument('--right-topic', metavar='TOPIC', help='the same, with the right images that a bag has on this topic')
    parser.add_argument('--live', action='store_true', help='play the bag over DDS into the running node as well')
    parser.add_argument('--rate', type=positive, default=1.0, help='of the recorded pace, for --live, default: %(default)s')
    parser.add_argument('--out', type=Path, default=Path('build/evaluation'), help='folder of the report, default: %(default)s')
    parser.add_argument('--fail-under', type=partial(_requirement, over=False), action='append', default=[], dest='requirements',
                        metavar='NAME=VALUE', help='exit with 1 unless the metric reaches the value, e.g. pose_auc@10=40 or '
                        'stride4.matches=100')
    parser.add_argument('--fail-over', type=partial(_requirement, over=True), action='append', dest='requirements',
                        metavar='NAME=VALUE', help='the same for metrics that are better when lower, e.g. ate_m=0.5')
    add_settings(parser, 'backend', 'engine_dir', 'precision', 'max_keypoints', 'weights', 'match_threshold', 'refinement',
                 'depth_confidence')
    parser.add_argument('--height', type=int, help="of the engine, default: the images' aspect ratio with the area of 640x480")
    parser.add_argument('--width', type=int, help='of the engine')
    args = parser.parse_args(one_word_each(_without_ros(argv), GREEDY))
    if (args.height is None) != (args.width is None):
        parser.error('give both of --height and --width, or neither')
    if args.max_frames is not None and args.max_frames < 2:
        parser.error('--max-frames must be at least 2')
    if args.degrade and (args.live or args.right_topic):
        parser.error('--degrade is for the matchers offline: leave out --live, --stereo and --right-topic')
    if args.cameras:
        _check_cameras(parser, args)
    if args.live and find_spec('rclpy') is None:
        parser.error('--live plays the bag into the running node, which needs ROS 2: source its setup.bash')
    args.strides = tuple(sorted({1, *args.strides}))  # the others are read beside it
    args.compare = [word for words in args.compare for word in words.split(',') if word]
    args.baselines = tuple(dict.fromkeys(name for names in args.baselines for name in names))
    return args


def _check_cameras(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    try:
        check_cameras(args.cameras)
    except ConfigError as error:
        parser.error(f'--{error}')
    if args.image_topic and '{camera}' not in args.image_topic:
        parser.error(f'--image-topic {args.image_topic} is one topic for {len(args.cameras)} cameras: write {{camera}} where a '
                     'name stands, e.g. /{camera}/image_raw')
    if args.right_topic:
        parser.error('--stereo and --right-topic are of one pair: leave out --cameras')


T = TypeVar('T', str, Path, None)


def _of_camera(value: T, camera: str) -> T:
    """An option's value, with the camera's name where {camera} stands."""
    return value if value is None else type(value)(str(value).replace('{camera}', camera))


def _evaluate(args: argparse.Namespace, recording: Recording, stopped: Callable[[], bool]) -> tuple[Evaluation, list[str]]:
    """All passes: what was found, and what went wrong although there is a report.

    Raises LightglueTrtError where nothing can be evaluated.
    """
    notes: list[str] = []

    def note(text: str) -> None:
        if text not in notes:
            notes.append(text)
            log.info(text)

    wall = WallTime()
    pair = stereo_recording(recording, None if args.right_topic == ITS_OWN else args.right_topic) if args.right_topic else None
    with wall.spent('reading'):
        scene, facts = survey(recording, Asked(args.camera, args.truth_topic, args.truth, args.truth_kind, args.truth_child_frame,
                                               args.camera_in_body, args.max_time_difference, args.max_frames), note)
    size = (args.height, args.width) if args.height else fitting_size((facts['height'], facts['width']))
    config = MatcherConfig(**{**settings_of(args), 'image_height': size[0], 'image_width': size[1]})
    mask = _mask(args.mask, (facts['height'], facts['width']), size)
    if mask is not None:
        facts['mask'] = f'{args.mask}, {100 * mask.share:.1f} % of the image'
    estimator = ESTIMATORS[args.estimator]
    baselines = [Baseline(name, config.max_keypoints, mask) for name in args.baselines]
    if args.degrade:
        facts['degraded'] = args.degrade
        note(f'every frame is degraded, {args.degrade}: {DEGRADATIONS[args.degrade].__doc__}')
    evaluator = partial(Evaluator, partial(usable_frames, recording, scene.timeline), _decoder(args.degrade), scene,
                        estimator=estimator, wall=wall, stopped=stopped, tell=note)
    wanted = variants(config, args.compare)
    first = next(iter(wanted.values()))
    results, covered, failure = evaluate_in_turn(wanted, baselines, evaluator, args.strides, args.out,
                                                 mask=mask, wall=wall, note=note)
    interrupted, failures = covered is not None, [failure] if failure else []
    for stride in args.strides if results else ():
        if not results[0].pairs.get(stride) and not interrupted:
            note(f'stride {stride} has no pairs: no two of {len(scene.timeline)} frames are that far apart without a break')
    if not any(result.pairs for result in results) and not interrupted:
        raise LightglueTrtError(f'{recording.path}: not one pair of frames could be matched; {"; ".join(notes)}')
    if pair is not None and results and not interrupted:
        try:
            with wall.spent('stereo'), progress('evaluating right images', len(scene.timeline)) as tell:
                results[0].figures |= evaluate_stereo(pair, first, scene, tell, stopped, note)
        except LightglueTrtError as error:
            failures.append(f'stereo: {error}')
        interrupted = stopped()
    if args.live and not interrupted:
        log.info(f'playing {recording.path} at {args.rate:g} times its pace into the node')
        try:
            with wall.spent('live'):
                from ..evaluation.live import evaluate_live
                results.append(evaluate_live(recording, first, scene, estimator, args.rate, results[0], stopped, note, args.mask))
        except LightglueTrtError as error:
            failures.append(f'live: {error}')
        interrupted = stopped()
    for failure in failures:
        note(failure)
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = Evaluation(facts, describe_machine(), results, tuple(args.strides), notes, interrupted, covered, wall.seconds,
                       memory_mib, ESTIMATOR_LABELS[args.estimator])
    return found, failures


def _decoder(degradation: str | None) -> Callable[[Any], UInt8]:
    """What makes a gray image of a message, as it was recorded or degraded."""
    return gray_of if degradation is None else lambda message: degraded(gray_of(message), degradation)


def _mask(path: Path | None, image: Size, engine: Size) -> Mask | None:
    """Raises ConfigError, FrameError."""
    mask = None if path is None else load_mask(path)
    if mask is not None:
        mask.check(image, engine)
    return mask


def _without_ros(argv: list[str] | None) -> list[str]:
    """What is left when a launch file's --ros-args are taken away."""
    words = sys.argv[1:] if argv is None else argv
    try:
        from ..ros.executor import without_ros_args
    except ImportError:  # nor is there launch
        return words
    return without_ros_args(words)


def _requirement(text: str, over: bool) -> Requirement:
    try:
        return Requirement.parse(text, over=over)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == '__main__':
    sys.exit(main())
