"""evaluate_bag as users run it: real bags, whole and damaged, real reports, exit codes, Ctrl-C, and the real networks."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

from support.bags import database, storage_file
from support.evaluated_bags import (
    CAMERA,
    HEIGHT,
    PERIOD,
    SMALL,
    START,
    TRUTH,
    WIDTH,
    figures,
    launch,
    launched,
    make_bag,
    masked,
    no_pictures,
    path_of,
    report_of,
    view,
)
from support.full_disks import FULL, room_for
from support.image_recordings import image_folder, pinhole
from support.schemas import violations

from lightglue_trt_eval import evaluate
from lightglue_trt_eval.cli.evaluate_bag import main
from lightglue_trt_eval.predict import methods
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.datasets.bag_storage import rosbags_modules
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.poses import Trajectory
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import IMAGE
from lightglue_trt_ros.utils.errors import LightglueTrtError
from lightglue_trt_ros.utils.files import own_output_folder

pytestmark = pytest.mark.slow


def test_a_bag_and_its_report(evaluated: Any, tmp_path: Path) -> None:
    bag = make_bag(tmp_path / 'bag', storage='mcap')
    report = evaluated(bag, '--baselines', 'sift,orb,klt', pictures=True).report
    assert [matcher['name'] for matcher in report['matchers']] == ['ours', 'SIFT', 'ORB', 'KLT']
    assert report['recording'] | {'frames': 8, 'width': WIDTH, 'height': HEIGHT} == report['recording']
    assert report['notes'] == []
    assert violations('report', report) == []
    assert set(report['wall_s']) >= {'reading', 'inference', 'baselines', 'estimating', 'report'}
    assert report['peak_memory_mib'] > 50
    files = {path.name for path in (tmp_path / 'out').iterdir()}
    assert {'report.json', 'report.html'} < files
    assert any(name.endswith('.png') for name in files)
    klt = report['matchers'][3]
    assert klt['summary']['1']['precision@1'] > 95
    assert klt['summary']['1']['inlier_ratio'] > 95
    assert len(klt['pairs']['2']['frame']) == 3
    again = evaluated(bag, '--baselines', 'sift,orb,klt').report
    assert figures(again) == figures(report), 'the same bag twice gives the same figures'


def test_the_calibration_that_was_used_is_told_with_its_source(evaluated: Any, tmp_path: Path) -> None:
    text, report = evaluated(make_bag(tmp_path / 'bag'), '--strides', '1')
    assert report['recording']['calibration_source'] == 'CameraInfo on /camera/camera_info'
    assert 'camera: plumb_bob, fx 110.0, fy 110.0; from CameraInfo on /camera/camera_info' in text
    assert text.index('; from CameraInfo') < text.index('ours')
    page = (tmp_path / 'out' / 'report.html').read_text()
    assert 'calibration from' in page
    assert 'CameraInfo on /camera/camera_info' in page
    calib = tmp_path / 'calib.yaml'
    calib.write_text(pinhole(WIDTH, HEIGHT, 110))
    assert str(calib) in evaluated(tmp_path / 'bag', '--camera', calib, '--strides', '1').report['recording']['calibration_source']


def test_image_bits_give_the_figures_of_the_same_pictures(evaluated: Any, tmp_path: Path) -> None:
    plain = make_bag(tmp_path / 'plain')
    recorded = list(open_recording(plain).frames())
    dark = image_folder(tmp_path / 'dark', [gray_of(frame.load()).astype(np.uint16) << 4 for frame in recorded],
                        [f'{frame.stamp_ns / 1e9:.9f}' for frame in recorded])
    expected = evaluated(plain, '--baselines', 'sift', '--strides', '1').report['matchers'][1]['pairs']['1']['matches']
    report = evaluated(dark, '--baselines', 'sift', '--strides', '1', '--image-bits', '12').report
    assert report['matchers'][1]['pairs']['1']['matches'] == expected
    assert report['recording']['image_bits'] == 12
    assert violations('report', report) == []
    report = evaluated(dark, '--baselines', 'sift', '--strides', '1').report
    assert report['matchers'][1]['pairs']['1']['matches'] != expected
    assert any('give --image-bits 12' in note for note in report['notes'])


def test_requirements_set_the_exit_code(run: Any, tmp_path: Path, usage_error: Callable[..., str]) -> None:
    bag = make_bag(tmp_path / 'bag')
    assert run(bag, '--fail-under', 'matches=64', '--fail-under', 'stride2.matches=64')[0] == 0
    code, text, report = run(bag, '--fail-under', 'matches=65', '--fail-under', 'pose_auc@10=99.9', '--fail-under', 'matches=10')
    assert code == 1
    assert text.count('required') == 2
    assert 'matches of ours is 64' in text
    assert report, 'the report is written all the same'
    assert 'did you mean matches?' in usage_error(main, bag, '--fail-under', 'matchs=3')
    for words in (['--fail-under', 'matches'], ['--strides', '0'], ['--baselines', 'surf'], ['--height', '96'],
                  ['--max-frames', '1'], ['--rate', '-1'], ['--sampled-pairs', '0']):
        usage_error(main, bag, *words)


def test_compared_settings_share_a_report(evaluated: Any, refused: Any, tmp_path: Path) -> None:
    report = evaluated(make_bag(tmp_path / 'bag'), '--compare', 'fp32', 'fp16,32').report
    assert [matcher['name'] for matcher in report['matchers']] == ['ours fp32', 'ours fp16', 'ours 32']
    assert report['matchers'][1]['summary']['1']['retention'] == 100
    assert report['matchers'][2]['summary']['1']['count_ratio'] == 50
    assert '--compare fp12: give precisions' in refused(tmp_path / 'bag', '--compare', 'fp12')


def test_kept_predictions_are_scored_again_without_networks(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                            monkeypatch: pytest.MonkeyPatch, null: None) -> None:
    bag, out = make_bag(tmp_path / 'bag'), tmp_path / 'out'
    command = [str(bag), '--out', str(out), *SMALL, '--baselines', 'klt', '--compare', 'fp32,32']

    def run(*options: str) -> tuple[int, dict[str, Any]]:
        with no_pictures():
            return main([*command, *options]), report_of(out)

    (out / '.predictions-killed').mkdir(parents=True)
    code, first = run('--predictions', 'keep')
    assert code == 0
    assert sorted(path.name for path in out.glob('*pred*')) == ['predictions']
    assert 'MiB in' in capfd.readouterr().out

    def opened(config: MatcherConfig) -> None:
        raise AssertionError('networks are not needed')

    monkeypatch.setattr(methods, 'open_backend', opened)
    code, again = run('--predictions', 'use')
    assert code == 0
    assert again['matchers'] == first['matchers'], 'times are kept as well'
    assert again['notes'] == first['notes']
    _, other = run('--predictions', 'use', '--estimator', 'unweighted')
    assert other['estimator'] != first['estimator']
    assert other['matchers'][0]['pairs']['1']['matches'] == first['matchers'][0]['pairs']['1']['matches']
    assert run('--predictions', 'use', '--max-frames', '5')[0] == 1
    assert 'were made with another recording, --max-frames' in capfd.readouterr().err
    assert run('--predictions', 'use', '--match-threshold', '0.3')[0] == 1
    assert 'were made with another --match-threshold' in capfd.readouterr().err
    (out / 'predictions' / 'index.pickle').write_bytes(pickle.dumps(os.system))
    assert run('--predictions', 'use')[0] == 1
    assert 'posix.system is no part of predictions' in capfd.readouterr().err


@pytest.mark.parametrize(('words', 'told'), [
    (('--hz', '5'), 'are the pace of --live'), (('--rate', '2'), 'are the pace of --live'),
    (('--live', '--hz', '5', '--rate', '2'), 'not allowed with'), (('--truth-kind', 'tum'), 'name it with --truth'),
    (('--truth', 'poses.txt', '--truth-child-frame', 'base'), 'is of a topic, and --truth names a file'),
    (('--degrade', 'person', '--camera-in-body', 'calib.yaml'), 'the camera stands')])
def test_options_that_another_would_drop_are_refused(usage_error: Callable[..., str], words: tuple[str, ...], told: str) -> None:
    assert told in usage_error(main, 'bag', *words)


def test_options_replaced_by_each_variant_are_refused(evaluated: Any, refused: Any, tmp_path: Path) -> None:
    text = refused(make_bag(tmp_path / 'bag'), '--compare', '16', '32')
    assert '--max-keypoints 64 is replaced by each variant of --compare 16,32: leave out --max-keypoints, or' in text
    text, report = evaluated(tmp_path / 'bag', '--compare', '32', 'fp32', '--baselines', 'sift')
    assert 'SIFT: SIFT 32, ' in text, 'as many keypoints as the first'
    assert [matcher['name'] for matcher in report['matchers']] == ['ours 32', 'ours fp32', 'SIFT']
    assert 'image_height is 0' in refused(tmp_path / 'bag', '--height', '0', '--width', '0')
    for words in (('--stereo', '--right-topic', '/r'), ('--right-topic', '/r', '--stereo')):
        assert 'has no images on /r' in refused(tmp_path / 'bag', *words)


def test_predictions_of_other_pictures_or_masks_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], null: None) -> None:
    mask = masked(tmp_path)
    words = ['--out', str(tmp_path / 'out'), *SMALL, '--strides', '1', '--mask', str(mask)]
    (folder, other), views = (tmp_path / 'one', tmp_path / 'other'), [view(number) for number in range(5)]
    for path, shown in ((folder, views[:4]), (other, views[1:])):
        image_folder(path, shown, calibration=pinhole(WIDTH, HEIGHT, 100), baseline_m=0.1, images_right=shown)

    def used(recording: Path, *more: str) -> str:
        with no_pictures():
            assert main([str(recording), *words, '--predictions', 'use', *more]) == (1 if recording == other or more else 0)
        return capfd.readouterr().err

    with no_pictures():
        assert main([str(folder), *words, '--predictions', 'keep']) == 0
    shutil.copytree(folder, tmp_path / 'moved')
    used(tmp_path / 'moved')
    assert 'were made with another recording: give the same' in used(other)
    assert 'were made with another --stereo: give the same' in used(folder, '--stereo')
    cv2.imwrite(str(mask), np.full((HEIGHT, WIDTH), 255, np.uint8))
    with no_pictures():
        assert main([str(folder), *words, '--predictions', 'use']) == 1
    assert 'were made with another --mask: give the same' in capfd.readouterr().err


def test_two_runs_do_not_write_one_report(tmp_path: Path, capfd: pytest.CaptureFixture[str], null: None) -> None:
    make_bag(tmp_path / 'bag')
    out, words = tmp_path / 'out', [str(tmp_path / 'bag'), '--out', str(tmp_path / 'out'), *SMALL]
    with own_output_folder(out):
        assert main(words) == 1
    assert capfd.readouterr().err == f'evaluate_bag: another run writes to {out}: wait for it, or name another folder with --out\n'
    assert not list(out.iterdir())
    replaced = f'evaluate_bag: {out} has the report of an earlier run, which this one replaces at its end\n'
    for earlier in (False, True):
        with no_pictures():
            assert main(words) == 0
        assert (replaced in capfd.readouterr().out) == earlier


def test_options_take_their_own_words_alone(evaluated: Any, tmp_path: Path, usage_error: Callable[..., str]) -> None:
    bag = make_bag(tmp_path / 'bag')
    for words in (['--baselines', 'sift', 'orb', bag], [bag, '--baselines', 'sift,orb']):
        report = evaluated('--strides', '1', '--max-frames', '3', *words).report
        assert [matcher['name'] for matcher in report['matchers']] == ['ours', 'SIFT', 'ORB']
    text, report = evaluated('--compare', 'fp32', 'weights=ours_light', make_bag(tmp_path / 'two', 2))
    assert [matcher['name'] for matcher in report['matchers']] == ['ours fp32', 'ours_light']
    assert 'note: stride 2 has no pairs: no two of 2 frames are that far apart' in text
    assert 'stride 2: no pairs' in text
    for words in (['--baselines', 'surf', str(bag)], [str(bag), '--baselines']):
        usage_error(main, *words)


def test_a_mask_holds_for_all_matchers(evaluated: Any, refused: Any, tmp_path: Path) -> None:
    bag = make_bag(tmp_path / 'bag')
    words = bag, '--strides', '1', '--baselines', 'sift', 'orb', 'klt'
    plain, hidden = (evaluated(*words, *more).report for more in ((), ('--mask', masked(tmp_path))))
    for before, after in zip(plain['matchers'], hidden['matchers'], strict=True):
        assert 0.2 < after['summary']['1']['matches'] / before['summary']['1']['matches'] < 0.9, after['name']
    cv2.imwrite(str(tmp_path / 'mask.png'), np.ones((10, 10), np.uint8))
    text = refused(bag, '--mask', tmp_path / 'mask.png')
    assert text.endswith(f"mask.png is 10x10, the images are {WIDTH}x{HEIGHT}: a mask has their size, or the engine's 128x96\n")


def test_frames_are_degraded_for_every_matcher_alike(evaluated: Any, tmp_path: Path, usage_error: Callable[..., str]) -> None:
    bag = make_bag(tmp_path / 'bag')
    words = bag, '--strides', '1', '--baselines', 'sift', 'orb'
    plain = evaluated(*words).report
    text, report = evaluated(*words, '--degrade', 'dim')
    assert 'degraded, dim: Three tenths of the light' in text
    assert report['recording']['degraded'] == 'dim'
    for before, after in zip(plain['matchers'][1:], report['matchers'][1:], strict=True):
        assert before['pairs']['1']['matches'] != after['pairs']['1']['matches'], before['name']
    assert report['matchers'][1]['pairs'] == evaluated(*words, '--degrade', 'dim').report['matchers'][1]['pairs']
    assert 'leave out --live' in usage_error(main, bag, '--degrade', 'dim', '--live')


def test_several_degradations_are_named_with_their_figures(evaluated: Any, tmp_path: Path) -> None:
    bag = make_bag(tmp_path / 'bag')
    report = evaluated(bag, '--baselines', 'klt', '--degrade', 'dots,border', '--strides', '1').report
    assert report['recording']['degraded'] == 'dots,border'
    assert violations('report', report) == []
    notes = [note.partition(': ')[0] for note in report['notes']]
    assert notes[:2] == ['every frame is degraded, dots', 'every frame is degraded, border']
    plain = evaluated(bag, '--baselines', 'klt', '--strides', '1').report
    for key in ('step_m', 'frame'):
        assert report['matchers'][1]['pairs']['1'][key] == plain['matchers'][1]['pairs']['1'][key], 'poses stay'


def test_the_ground_truth_of_a_standing_camera_is_one_pose(evaluated: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                           usage_error: Callable[..., str]) -> None:
    bag = make_bag(tmp_path / 'bag')
    report = evaluated(bag, '--baselines', 'klt', '--degrade', 'person', '--strides', '1').report
    assert report['recording']['truth'] == 'the camera stands, by --degrade person'
    klt = report['matchers'][1]
    assert klt['pairs']['1']['step_m'] == [0] * 7
    assert klt['summary']['1']['rotation_auc@2'] > 80
    assert 'pose_auc@10' not in klt['summary']['1']
    for words, message in ((('person', '--depth'), 'the camera stands'), (('person', '--truth', 'poses.txt'), 'the camera stands'),
                           (('dots,wind',), "'wind' is none of blur, dim")):
        assert message in usage_error(main, bag, '--degrade', *words)
    with pytest.raises(SystemExit):
        main(['--help'])
    assert 'rain: Drops on the lens, which change slowly.\n' in capfd.readouterr().out


def test_max_frames(evaluated: Any, tmp_path: Path) -> None:
    report = evaluated(make_bag(tmp_path / 'bag'), '--max-frames', '4').report
    assert report['matchers'][0]['pairs']['1']['frame'] == [1, 2, 3]


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(share * path.stat().st_size))


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
def test_a_truncated_bag_is_evaluated_as_far_as_it_goes(evaluated: Any, tmp_path: Path, storage: str) -> None:
    bag = make_bag(tmp_path / 'bag', 20, storage=storage)
    cut(storage_file(bag), 0.6)
    report = evaluated(bag).report
    pairs = report['matchers'][0]['pairs']['1']['frame']
    assert 5 < len(pairs) < 19
    assert any('lost' in note or 'breaks off' in note for note in report['notes']), report['notes']


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
def test_a_bag_without_index_is_evaluated(evaluated: Any, tmp_path: Path, storage: str) -> None:
    bag = make_bag(tmp_path / 'bag', storage=storage)
    (bag / 'metadata.yaml').unlink()
    report = evaluated(bag).report
    assert len(report['matchers'][0]['pairs']['1']['frame']) == 7


def test_a_missing_topic_is_told_with_what_there_is(refused: Any, tmp_path: Path) -> None:
    bag = make_bag(tmp_path / 'bag')
    text = refused(bag, '--image-topic', '/left/image_raw')
    assert '/left/image_raw' in text
    assert '/camera/image_raw (sensor_msgs/msg/Image, 8 messages)' in text
    assert TRUTH in refused(bag, '--truth-topic', '/odom')


def test_without_intrinsics_only_statistics_remain(evaluated: Any, refused: Any, tmp_path: Path) -> None:
    report = evaluated(make_bag(tmp_path / 'bag', intrinsics=None)).report
    summary = report['matchers'][0]['summary']['1']
    assert summary['matches'] == 64
    assert not any(name.startswith(('pose', 'precision', 'ate')) for name in summary)
    assert any('no intrinsics in the recording; give --camera' in note and 'Left out' in note for note in report['notes'])
    assert report['recording']['left_out'] == ['no intrinsics in the recording']
    calib = tmp_path / 'calib.yaml'
    calib.write_text(pinhole(WIDTH, HEIGHT, 110))
    assert 'pose_auc@10' in evaluated(tmp_path / 'bag', '--camera', calib).report['matchers'][0]['summary']['2']
    calib.write_text(calib.read_text().replace(str(WIDTH), '640'))
    assert '640x96' in refused(tmp_path / 'bag', '--camera', calib)


def test_slow_truth_is_named_and_interpolated_on_request(evaluated: Any, tmp_path: Path) -> None:
    path = path_of(8)
    bag = make_bag(tmp_path / 'bag', truth=Trajectory(path.stamps_ns[::2], path.poses[::2]))
    text, report = evaluated(bag, '--strides', '1', '--max-time-difference', '0.001')
    assert 'note: no two consecutive frames have a true pose: a larger --max-time-difference interpolates' in text
    assert report['recording']['left_out'] == ['no two consecutive frames have a true pose']
    assert 'ate_m' not in report['matchers'][0]['summary']['1']
    report = evaluated(bag, '--strides', '1', '--max-time-difference', '0.2').report
    assert report['recording']['left_out'] == []
    assert 'ate_m' in report['matchers'][0]['summary']['1']


def test_truth_that_does_not_overlap_prints_both_ranges(evaluated: Any, refused: Any, tmp_path: Path) -> None:
    late = path_of(8, START + 500 * 10**9)
    report = evaluated(make_bag(tmp_path / 'bag', truth=late)).report  # recorded, but not asked for: the rest is evaluated
    assert '1700000500.000' in report['notes'][0]
    assert '1700000000.000' in report['notes'][0]
    assert 'pose_auc@10' not in report['matchers'][0]['summary']['1']
    assert 'inlier_ratio' in report['matchers'][0]['summary']['1']
    file = tmp_path / 'truth.txt'
    file.write_text(''.join(f'{1_700_000_500 + number} 0 0 0 0 0 0 1\n' for number in range(5)))
    text = refused(tmp_path / 'bag', '--truth', file)
    assert '1700000500.000 to 1700000504.000' in text
    assert '1700000000.000 to 1700000000.700' in text


def test_frames_out_of_order_are_told(evaluated: Any, tmp_path: Path) -> None:
    stamps = [START + PERIOD * number for number in (0, 1, 2, 4, 3, 5, 6, 7)]
    report = evaluated(make_bag(tmp_path / 'bag', stamps=stamps)).report
    assert any('out of order' in note for note in report['notes'])
    numbers = report['matchers'][0]['pairs']['1']['stamp']
    assert numbers == sorted(numbers)


@pytest.mark.parametrize('compressed', ['jpeg', 'png'])
def test_a_corrupt_image_in_the_middle_costs_that_image(evaluated: Any, tmp_path: Path, compressed: str) -> None:
    bag = make_bag(tmp_path / 'bag', compressed=compressed)
    with database(bag) as tables:
        topic, = tables.execute("SELECT id FROM topics WHERE name = '/camera/image_raw/compressed'").fetchone()
        rows = tables.execute('SELECT id, data FROM messages WHERE topic_id = ? ORDER BY id', (topic,)).fetchall()
        number, data = rows[4]
        tables.execute('UPDATE messages SET data = ? WHERE id = ?', (data[:-400] + b'\0' * 400, number))
    report = evaluated(bag).report
    pairs = report['matchers'][0]['pairs']['1']
    assert list(zip(pairs['reference_frame'], pairs['frame'], strict=True)) == [(0, 1), (1, 2), (2, 3), (3, 5), (5, 6), (6, 7)]
    assert sum('frame 4' in note for note in report['notes']) == 1


def test_change_of_resolution_is_noted(evaluated: Any, tmp_path: Path) -> None:
    report = evaluated(make_bag(tmp_path / 'bag', sizes={5: (48, 64), 6: (48, 64), 7: (48, 64)})).report
    assert report['matchers'][0]['pairs']['1']['frame'] == [1, 2, 3, 4, 6, 7]
    assert ['change their size once to 64x48 with frame 5' in note for note in report['notes']] == [True]


@pytest.mark.parametrize('count', [0, 1])
def test_a_bag_without_two_images_is_an_error(refused: Any, tmp_path: Path, count: int) -> None:
    if count:
        make_bag(tmp_path / 'bag', count)
    else:
        rosbag2, store = rosbags_modules()
        with rosbag2.Writer(tmp_path / 'bag', version=8) as writer:
            writer.add_connection('/camera/image_raw', IMAGE, typestore=store)
    assert ('matching takes two' if count else '/camera/image_raw') in refused(tmp_path / 'bag')


def test_no_bag_and_no_place_for_the_report(tmp_path: Path, capfd: pytest.CaptureFixture[str], null: None) -> None:
    assert main([str(tmp_path / 'nothing'), '--out', str(tmp_path / 'out')]) == 1
    assert 'nothing does not exist' in capfd.readouterr().err
    (tmp_path / 'file').touch()
    assert main([str(make_bag(tmp_path / 'bag')), '--out', str(tmp_path / 'file' / 'out')]) == 1
    printed = capfd.readouterr()
    assert 'cannot write to' in printed.err
    assert printed.out == '', 'it is known before the work'


def test_a_full_disk_leaves_no_report_without_its_page(tmp_path: Path, capfd: pytest.CaptureFixture[str], null: None) -> None:
    bag, out = make_bag(tmp_path / 'bag'), tmp_path / 'out'
    with room_for(60_000):
        assert main([str(bag), '--out', str(out), *SMALL]) == 1
    assert f'{out} cannot be written ({FULL}), and nothing was: choose another output folder' in capfd.readouterr().err
    assert not list(out.iterdir())


@pytest.mark.parametrize(('pictures', 'note'), [
    ([view(k // 2) for k in range(12)], '6 of 12 frames have the picture of the frame before under a new stamp'),
    ([view(4 * k)[:, ::-1 if k % 2 else 1] for k in range(24)], 'an earlier one: do several cameras share this topic or folder'),
    ([view(k) for k in range(24)], '')])
def test_copies_of_pictures_and_cameras_that_alternate_get_a_note(evaluated: Any, tmp_path: Path, pictures: Any, note: str) -> None:
    stamps = [START + PERIOD * number for number in range(len(pictures))]
    write_bag(tmp_path / 'bag', list(zip(stamps, pictures, strict=True)), CAMERA, path_of(len(pictures)))
    found = [line for line in evaluated(tmp_path / 'bag').report['notes'] if 'frame before' in line]
    assert len(found) == bool(note)
    assert not note or note in found[0]


def test_memory_does_not_grow_with_the_recording(run: Any, tmp_path: Path) -> None:
    """Held images would be 110 kB a frame, 1.3 MB in all."""
    import gc
    import tracemalloc
    height, width = 3 * HEIGHT, 3 * WIDTH
    camera = Intrinsics(width, height, np.array([[330.0, 0, 192], [0, 330.0, 144], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
    peaks: list[int] = []
    for count in (4, 8, 20):  # the first one imports
        bag = make_bag(tmp_path / f'bag{count}', count, sizes=dict.fromkeys(range(count), (height, width)), intrinsics=camera)
        gc.collect()
        tracemalloc.start()
        assert run(bag, '--strides', '1')[0] == 0
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] - peaks[1] < 12 * height * width // 2, peaks


def test_ctrl_c_leaves_a_report_of_what_was_done(tmp_path: Path) -> None:
    bag = make_bag(tmp_path / 'bag', 400)
    process = launch(bag, '--out', tmp_path / 'out', *SMALL)
    try:
        while 'ours: ' not in (process.stdout.readline() or 'ours: '):
            pass
        time.sleep(2.0)
    finally:
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=150)[0]
    assert process.returncode == 130, text
    assert 'Traceback' not in text
    report = report_of(tmp_path / 'out')
    assert report['interrupted']
    assert 0 < len(report['matchers'][0]['pairs']['1']['frame']) == report['covered'] - 1 < 399
    assert f'the figures cover the first {report["covered"]} of 400 frames' in text
    assert (tmp_path / 'out' / 'report.html').exists()


def test_real_networks_on_a_real_sequence(tmp_path: Path, shared_data: Path) -> None:
    launched(tmp_path / 'out', shared_data / 'kitti_short_1', '--max-frames', '5', '--height', '160', '--width', '528',
             '--max-keypoints', '512', '--strides', '1', '--baselines', 'sift', '--compare', 'fp32', 'fp8',
             '--backend', 'onnxruntime', '--refinement', 'none', '--weights', 'ours_light', '--fail-under', 'pose_auc@10=60')
    report = report_of(tmp_path / 'out')
    assert [matcher['name'] for matcher in report['matchers']] == ['ours_light fp32', 'SIFT']
    assert any('ours_light fp8 is unavailable' in note for note in report['notes'])
    summary = report['matchers'][0]['summary']['1']
    assert summary['precision@3'] > 80
    assert summary['forward_backward'] > 85
    assert summary['rpe_deg'] < 0.5
    assert 0 <= summary['layers'] <= 6


def test_interrupted_live_evaluation_ends_as_interrupted(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                         monkeypatch: pytest.MonkeyPatch, null: None) -> None:
    def interrupted(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        raise LightglueTrtError('the node published nothing')

    monkeypatch.setattr(evaluate, 'evaluate_live', interrupted)
    with no_pictures():
        assert main([str(make_bag(tmp_path / 'bag')), '--out', str(tmp_path / 'out'), *SMALL, '--live']) == 130
    text = ''.join(capfd.readouterr())
    assert 'Interrupted: ' in text
    assert 'published nothing' not in text


@pytest.mark.ros
def test_a_node_that_does_not_start_leaves_the_offline_report(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip('rclpy', reason='rclpy is not installed: nothing is evaluated live')
    monkeypatch.setenv('LIGHTGLUE_TRT_CACHE', str(tmp_path))  # no weights there
    code, text, report = run(make_bag(tmp_path / 'bag'), '--live', '--weights', 'magicleap')
    assert code == 1
    assert 'evaluate_bag: live: the node is not active: ' in text
    assert 'fetch_weights' in text
    assert [matcher['name'] for matcher in report['matchers']] == ['magicleap']
    assert any('not active' in note for note in report['notes'])
