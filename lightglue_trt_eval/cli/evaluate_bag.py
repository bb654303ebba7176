"""evaluate_bag: are the correspondences good enough on this recording, at what cost, and against what else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path

from lightglue_trt_ros.datasets.sequence import Recording
from lightglue_trt_ros.utils.arguments import HelpInLines, one_word_each
from lightglue_trt_ros.utils.commands import INTERRUPTED, command, log
from lightglue_trt_ros.utils.errors import ConfigError, LightglueTrtError
from lightglue_trt_ros.utils.files import make_output_folder, own_output_folder
from lightglue_trt_ros.utils.processes import give_memory_back, stop_on_signal

from ..evaluate import evaluate_recording
from ..fleet.discovery import RecordingRef, fingerprint
from ..options import (
    OF_CAMERA,
    OWN_DEPTH_IMAGES,
    SEVERAL_WORDS,
    EvaluationOptions,
    add_cameras,
    add_evaluation_options,
    check_camera_options,
    check_topics,
)
from ..report.page import write_report
from ..report.requirements import Requirement, check
from ..report.side_by_side import CameraReport, not_evaluated, print_side_by_side, write_side_by_side
from ..report.summary import print_summary
from ..score.metrics import Evaluation


@command('evaluate_bag', interrupted='interrupted; no report was written')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when all was evaluated and every requirement met, 1 with a message otherwise, 130 when interrupted."""
    args, options = _parse(argv)
    give_memory_back()
    _content.cache_clear()
    with own_output_folder(args.out), stop_on_signal() as stop:
        if (args.out / 'report.json').exists():
            log.info(f'{args.out} has the report of an earlier run, which this one replaces at its end')
        if args.cameras:
            interrupted, failures = _evaluate_cameras(args, options, stop.is_set)
        else:
            recording = options.open(args.bag)
            evaluation, failures = _report(recording, options, args.out, args.requirements, stop.is_set)
            interrupted = evaluation.interrupted
    for failure in failures:
        print(f'evaluate_bag: {failure}', file=sys.stderr)
    return 1 if failures else INTERRUPTED if interrupted else 0


def _evaluate_cameras(args: argparse.Namespace, options: EvaluationOptions, stopped: Callable[[], bool]) -> tuple[bool, list[str]]:
    """Evaluate one camera after the other; only the figures of earlier ones are kept. Whether interrupted, and the failures."""
    by_camera = {name: options.for_camera(name) for name in args.cameras}
    recordings = {name: own.open(args.bag, name) for name, own in by_camera.items()}
    check_topics(args.bag, recordings)
    reports: list[CameraReport] = []
    for name, recording in recordings.items():
        if stopped():
            note = 'interrupted before it began'
            reports.append(not_evaluated(name, [note], [], interrupted=True))
            log.info(f'camera {name}: {note}')
            continue
        log.info(f'camera {name}: {recording.image_topic}')
        make_output_folder(args.out / name)
        try:
            evaluation, failures = _report(recording, by_camera[name], args.out / name, args.requirements, stopped)
            for matcher in evaluation.matchers:
                matcher.worst_pairs, matcher.middle_pair = [], []  # their images are in its own report
            reports.append(CameraReport(name, evaluation, failures))
        except LightglueTrtError as error:
            reports.append(not_evaluated(name, [], [str(error)]))
    recorded = [each.evaluation.recording for each in reports]
    own = [recording['truth'] for recording in recorded if recording.get('truth_as_camera')]
    if len(set(own)) < len(own):
        reports[0].evaluation.notes.append("the same poses are taken as each camera's own, but only one camera can have them: give "
                                'the pose of each camera in the body with --camera-in-body, e.g. {camera}.yaml')
        log.info(reports[0].evaluation.notes[-1])
    files = write_side_by_side(args.out, reports)
    print_side_by_side(reports)
    log.info(f'all cameras: see {files[-1]}')
    failures = [f'{each.name}: {line}' for each in reports for line in each.failures]
    return any(each.evaluation.interrupted for each in reports), failures


def _report(recording: Recording, options: EvaluationOptions, out: Path, requirements: Sequence[Requirement],
            stopped: Callable[[], bool]) -> tuple[Evaluation, list[str]]:
    """Evaluate a recording, write and print its report; the failures include requirements that are not met."""
    evaluation, failures = evaluate_recording(recording, options, out, stopped)
    if options.max_frames is None and not evaluation.interrupted:  # else it takes longer than the rest
        evaluation.recording['sha256'] = _content(recording.path)
    files = write_report(out, evaluation)
    print_summary(evaluation)
    log.info(f'see {next((file for file in files if file.suffix == ".html"), out)}; '
         + ', '.join(f'{name} {seconds:.1f} s' for name, seconds in evaluation.wall_s.items())
         + f', peak memory {evaluation.peak_memory_mib:.0f} MiB')
    if failures or not evaluation.interrupted:
        failures += check(requirements, evaluation)
    return evaluation, failures


@lru_cache(maxsize=1)
def _content(path: Path) -> str:
    """The fingerprint of a recording: cameras of one share it."""
    return fingerprint(RecordingRef(str(path), ''))


def _parse(argv: list[str] | None) -> tuple[argparse.Namespace, EvaluationOptions]:
    parser = argparse.ArgumentParser(
        prog='evaluate_bag', formatter_class=HelpInLines, description='Match a recording and measure matches, inliers, relative '
        'poses, a two-view odometry and times; compare with baselines, with other settings, and with the live node.')
    parser.add_argument('bag', type=Path, help='rosbag2 (sqlite3 or mcap), or an image folder in TUM, KITTI or EuRoC layout')
    add_cameras(parser, 'evaluate several cameras of a bag one after the other', *OF_CAMERA[1:])
    add_evaluation_options(parser)
    parser.add_argument('--out', type=Path, default=Path('build/evaluation'), help='folder of the report, default: %(default)s')
    parser.add_argument('--fail-under', type=partial(_requirement, over=False), action='append', default=[], dest='requirements',
                        metavar='NAME=VALUE', help='exit with 1 unless the metric reaches the value, e.g. pose_auc@10=40 or '
                        'stride4.matches=100')
    parser.add_argument('--fail-over', type=partial(_requirement, over=True), action='append', dest='requirements',
                        metavar='NAME=VALUE', help='the same for metrics that are better when lower, e.g. ate_m=0.5')
    words = sys.argv[1:] if argv is None else argv
    with suppress(ImportError):  # without ROS there is no launch file, which adds --ros-args
        from ..replay import without_ros_args
        words = without_ros_args(words)
    args = parser.parse_args(one_word_each(words, SEVERAL_WORDS))
    options = EvaluationOptions.of(args, parser)
    if args.cameras:
        _check_cameras(parser, args)
    if options.live and find_spec('rclpy') is None:
        parser.error('--live plays the bag into the running node, which needs ROS 2: source its setup.bash')
    return args, options


def _check_cameras(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    check_camera_options(parser, args.cameras, args.image_topic)
    if args.depth_topic not in (None, OWN_DEPTH_IMAGES) and '{camera}' not in args.depth_topic:
        parser.error(f'--depth-topic {args.depth_topic} is one topic for {len(args.cameras)} cameras: write {{camera}} where a '
                     'name stands')
    if args.right_topic:
        parser.error('--stereo and --right-topic are of one pair: leave out --cameras')


def _requirement(text: str, over: bool) -> Requirement:
    try:
        return Requirement.parse(text, over=over)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == '__main__':
    sys.exit(main())
