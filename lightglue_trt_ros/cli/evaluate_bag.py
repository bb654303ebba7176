"""evaluate_bag: are the correspondences good enough on this recording, at what cost, and against what else."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..config import PRECISIONS, WEIGHTS, MatcherConfig
from ..errors import ConfigError, LightglueTrtError
from ..evaluation.baselines import BASELINES
from ..evaluation.results import Evaluation
from ..evaluation.twoview import DEFAULT_ESTIMATOR, ESTIMATOR_LABELS
from ..processes import INTERRUPTED
from ..recordings.pose_files import KINDS
from ..reports.gate import Requirement, check
from ..reports.summary import print_summary
from ._evaluation import evaluate


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when all was evaluated and every requirement met, 1 with a message otherwise, 130 when interrupted."""
    args = _parse(argv)
    try:
        _check_writable(args.out)
        with _stop_on_sigint() as stop:
            evaluation, failures = evaluate(args, stop.is_set, _say)
            files = _report(args.out, evaluation)
    except LightglueTrtError as error:
        print(f'evaluate_bag: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('evaluate_bag: interrupted twice; no report was written', file=sys.stderr)
        return INTERRUPTED
    print_summary(evaluation)
    _say(f'see {next((file for file in files if file.suffix == ".html"), args.out)}; '
         + ', '.join(f'{name} {seconds:.1f} s' for name, seconds in evaluation.wall_s.items())
         + f', peak memory {evaluation.peak_memory_mib:.0f} MiB')
    if evaluation.interrupted and not failures:
        return INTERRUPTED
    failures += check(args.requirements, evaluation)
    for failure in failures:
        print(f'evaluate_bag: {failure}', file=sys.stderr)
    return 1 if failures else 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    default = MatcherConfig()
    parser = argparse.ArgumentParser(
        prog='evaluate_bag', description='Match a recording and say how good that is: matches, inliers, relative poses, a two-view '
        'odometry, times; against baselines, other settings, and live.')
    parser.add_argument('bag', type=Path, help='rosbag2 (sqlite3 or mcap), or an image folder in TUM, KITTI or EuRoC layout')
    parser.add_argument('--image-topic', metavar='TOPIC', help='where the bag has several with images')
    parser.add_argument('--camera', '--intrinsics', type=Path, metavar='YAML', help='intrinsics, instead of the recorded ones')
    truth = parser.add_mutually_exclusive_group()
    truth.add_argument('--truth-topic', metavar='TOPIC', help='poses in the bag, instead of what it has by itself')
    truth.add_argument('--truth', '--truth-file', type=Path, metavar='FILE', help='poses in a file of TUM, KITTI or EuRoC')
    parser.add_argument('--truth-kind', choices=KINDS, help='of that file, default: by its first line')
    parser.add_argument('--truth-child-frame', metavar='FRAME', help='the moving frame, where a topic of poses has several')
    parser.add_argument('--camera-in-body', type=Path, metavar='YAML',
                        help="a sensor.yaml as EuRoC's, whose T_BS says where the camera is in the body that the poses are of")
    parser.add_argument('--max-time-difference', type=_positive, default=0.02, metavar='S',
                        help='between an image and its pose, seconds, default: %(default)s')
    parser.add_argument('--strides', type=_strides, default=(1, 2, 4), metavar='N,N',
                        help='match every Nth frame with the one N before it, default: 1,2,4')
    parser.add_argument('--baselines', type=_baselines, default=(), metavar='NAME,NAME', help=f'of {",".join(BASELINES)}')
    parser.add_argument('--compare', nargs='+', default=[], metavar='WHAT', help=f'precisions ({",".join(PRECISIONS)}), numbers of '
                        "keypoints, SETTING=VALUE (depth_confidence=-1), or bundles' folders, each against the first")
    parser.add_argument('--estimator', choices=tuple(ESTIMATOR_LABELS), default=DEFAULT_ESTIMATOR,
                        help='how poses are estimated, for every matcher; default: %(default)s; '
                        + '; '.join(f'{name}: {label}' for name, label in ESTIMATOR_LABELS.items()))
    parser.add_argument('--max-frames', type=int, metavar='N', help='evaluate the first N frames alone')
    parser.add_argument('--live', action='store_true', help='play the bag over DDS into the running node as well')
    parser.add_argument('--rate', type=_positive, default=1.0, help='of the recorded pace, for --live, default: %(default)s')
    parser.add_argument('--out', type=Path, default=Path('build/evaluation'), help='folder of the report, default: %(default)s')
    parser.add_argument('--fail-under', type=_under, action='append', default=[], dest='requirements', metavar='NAME=VALUE',
                        help='exit with 1 unless the metric reaches the value, e.g. pose_auc@10=40 or stride4.matches=100')
    parser.add_argument('--fail-over', type=_over, action='append', dest='requirements', metavar='NAME=VALUE',
                        help='the same for metrics that are better when lower, e.g. ate_m=0.5')
    parser.add_argument('--backend', default=default.backend, choices=('auto', 'tensorrt', 'onnxruntime'))
    parser.add_argument('--engine-dir', default=default.engine_dir, help='folder of TensorRT engines, default: in the user cache')
    parser.add_argument('--precision', default=default.precision, choices=('auto', *PRECISIONS))
    parser.add_argument('--max-keypoints', type=int, default=default.max_keypoints, metavar='K',
                        help='per frame, for ours and for the baselines, default: %(default)s')
    parser.add_argument('--height', type=int, help="of the engine, default: the images' aspect ratio with the area of 640x480")
    parser.add_argument('--width', type=int, help='of the engine')
    parser.add_argument('--weights', default=default.weights, metavar='PAIR', help=f'{WEIGHTS}; default: %(default)s')
    parser.add_argument('--match-threshold', type=float, default=default.match_threshold, help='default: %(default)s')
    parser.add_argument('--refinement', default=default.refinement, choices=('lucas_kanade', 'affine', 'none'),
                        help='how matched points are placed, default: %(default)s')
    parser.add_argument('--depth-confidence', type=float, default=default.depth_confidence,
                        help='of LightGlue, -1: every layer; default: %(default)s')
    args = parser.parse_args(_without_ros(argv))
    if (args.height is None) != (args.width is None):
        parser.error('give both of --height and --width, or neither')
    if args.max_frames is not None and args.max_frames < 2:
        parser.error('--max-frames must be at least 2')
    args.compare = [word for words in args.compare for word in words.split(',') if word]
    return args


def _report(out: Path, evaluation: Evaluation) -> list[Path]:
    """Write the report, with the time that writing it took."""
    from ..evaluation.run import WallTime
    from ..reports.document import write_document
    from ..reports.page import write_report
    clock = WallTime()
    try:
        with clock.spent('report'):
            files = write_report(out, evaluation)
        evaluation.wall_s |= clock.seconds
        write_document(out / 'report.json', evaluation)
    except OSError as error:
        raise LightglueTrtError(f'cannot write {out}: {error.strerror or error}') from error
    return files


def _check_writable(out: Path) -> None:
    """Find out before the work, not after it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise LightglueTrtError(f'cannot write the report to {out}: {error.strerror}; name another folder with --out') from None


@contextmanager
def _stop_on_sigint() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one is a KeyboardInterrupt."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop.set()
        _say('interrupted: the report of what was done follows; once more to leave at once')

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _without_ros(argv: list[str] | None) -> list[str]:
    """What is left when a launch file's --ros-args are taken away."""
    from rclpy.utilities import remove_ros_args
    words: list[str] = remove_ros_args(sys.argv if argv is None else ['evaluate_bag', *argv])[1:]
    return words


def _strides(text: str) -> tuple[int, ...]:
    try:
        found = sorted({int(word) for word in text.split(',')})
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r}: write strides as 1,2,4') from None
    if found[0] < 1:
        raise argparse.ArgumentTypeError(f'{text}: a stride is at least 1')
    return tuple(sorted({1, *found}))  # the others are read beside it


def _baselines(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(word for word in text.split(',') if word))
    for name in found:
        if name not in BASELINES:
            raise argparse.ArgumentTypeError(f'there is no baseline {name!r}: use {", ".join(BASELINES)}')
    return found


def _under(text: str) -> Requirement:
    return _requirement(text, False)


def _over(text: str) -> Requirement:
    return _requirement(text, True)


def _requirement(text: str, over: bool) -> Requirement:
    try:
        return Requirement.parse(text, over=over)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float('inf'):
        raise argparse.ArgumentTypeError(f'{text} must be above 0')
    return value


def _say(text: str) -> None:
    print(f'evaluate_bag: {text}', flush=True)


if __name__ == '__main__':
    sys.exit(main())
