"""The files of a bag: logs beside databases, parts that are absent, renamed, compressed or out of order, other systems' files."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.bags import IMAGE, MCAP, database, mcap, mcap_message, mcap_record, mcap_text, storage_file, write_messages
from support.compression import zstd
from support.full_disks import room_for
from support.image_recordings import image_folder
from support.transport_bags import bag

from lightglue_trt_ros.datasets import bag_storage
from lightglue_trt_ros.datasets.bag_readers import unpack_file
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import readable_frames
from lightglue_trt_ros.utils.errors import BagError

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

ENDINGS = {'sqlite3': 'db3', 'mcap': 'mcap'}


def image(number: int) -> np.ndarray:
    return np.full((12, 16), number, np.uint8)


def part(path: Path, numbers: list[int], storage: str = 'mcap') -> Path:
    """The only file of a bag with frames of these numbers, received at as many seconds, moved to `path`."""
    bag = path.with_name(f'of_{path.name}')
    write_bag(bag, [(10**9 * number, image(number)) for number in numbers], storage=storage)
    shutil.move(storage_file(bag), path)
    shutil.rmtree(bag)
    return path


def split_bag(path: Path, storage: str = 'mcap', named: tuple[str, ...] = ('rec_0', 'rec_1', 'rec_2')) -> Path:
    """Frames 1 to 6 in three parts, with the metadata.yaml of all."""
    write_bag(path, [(10**9 * number, image(number)) for number in range(1, 7)], storage=storage)
    storage_file(path).unlink()
    for number in range(3):
        part(path / f'rec_{number}.{ENDINGS[storage]}', [2 * number + 1, 2 * number + 2], storage)
    content = yaml.safe_load((path / 'metadata.yaml').read_text())
    content['rosbag2_bagfile_information']['relative_file_paths'] = [f'{name}.{ENDINGS[storage]}' for name in named]
    (path / 'metadata.yaml').write_text(yaml.safe_dump(content))
    return path


def numbers_in(path: Path) -> list[int]:
    return [int(frame.load().data[0]) for frame in readable_frames(open_recording(path), lambda line: None)]


def losses(path: Path) -> list[str]:
    lines: list[str] = []
    list(readable_frames(open_recording(path), lines.append))
    return lines


def compress(file: Path, ending: str = '.zstd') -> Path:
    target = file.with_name(file.name + ending)
    target.write_bytes(zstd(file.read_bytes()))
    file.unlink()
    return target


def with_log(path: Path, in_log: int) -> Path:
    """A .db3 of six frames as a recorder leaves it that was killed: the last `in_log` of them are in its write-ahead log."""
    whole, live = part(path.with_name('whole.db3'), [1, 2, 3, 4, 5, 6], 'sqlite3'), path.with_name('live.db3')
    writer = sqlite3.connect(live)
    writer.execute('PRAGMA journal_mode=WAL')
    writer.execute('PRAGMA wal_autocheckpoint=0')
    source = sqlite3.connect(whole)
    for line in source.iterdump():
        if line.startswith(('CREATE', 'INSERT')) and 'INTO "messages"' not in line:
            writer.execute(line)
    rows = source.execute('SELECT id, topic_id, timestamp, data FROM messages ORDER BY id').fetchall()
    source.close()
    writer.executemany('INSERT INTO messages VALUES (?, ?, ?, ?)', rows[:6 - in_log])
    writer.commit()
    if in_log < 6:
        writer.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    writer.executemany('INSERT INTO messages VALUES (?, ?, ?, ?)', rows[6 - in_log:])
    writer.commit()
    for ending in ('', '-wal'):
        shutil.copy(f'{live}{ending}', f'{path}{ending}')
    writer.close()
    for left in (*path.parent.glob('live*'), whole):
        left.unlink()
    return path


def hashes(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.mark.parametrize('in_log', [2, 6])
@pytest.mark.parametrize('name', ['rec_0.db3', 'a b#1?%20.db3'])
def test_a_write_ahead_log_is_read_and_nothing_changes(tmp_path: Path, in_log: int, name: str) -> None:
    file = with_log(tmp_path / name, in_log)
    before = hashes(tmp_path)
    tmp_path.chmod(0o555)
    try:
        for path in (tmp_path, file):
            assert numbers_in(path) == [1, 2, 3, 4, 5, 6]
            assert len(open_recording(path)) == 6
    finally:
        tmp_path.chmod(0o755)
    assert hashes(tmp_path) == before


def test_a_write_ahead_log_that_is_absent_is_named(tmp_path: Path) -> None:
    file = with_log(tmp_path / 'rec_0.db3', 6)
    (tmp_path / 'rec_0.db3-wal').unlink()
    with pytest.raises(BagError, match=r'rec_0.db3 was recorded with a write-ahead log, rec_0.db3-wal, which is absent: copy it'):
        open_recording(file)
    half = with_log(split_bag(tmp_path / 'bag', 'sqlite3') / 'rec_3.db3', 2)
    shutil.move(f'{half}', tmp_path / 'bag' / 'rec_2.db3')
    (tmp_path / 'bag' / 'rec_3.db3-wal').unlink()
    for number in (0, 1):
        (tmp_path / 'bag' / f'rec_{number}.db3').unlink()
        part(tmp_path / 'bag' / f'rec_{number}.db3', [number + 1], 'sqlite3')
    with database(tmp_path / 'bag' / 'rec_2.db3') as tables:
        tables.execute('DELETE FROM messages WHERE id > 2')
    assert [line for line in losses(tmp_path / 'bag') if 'rec_2.db3-wal, which is absent: copy it there' in line]


def test_an_empty_database_keeps_its_log(tmp_path: Path) -> None:
    (tmp_path / 'rec_0.db3').touch()
    (tmp_path / 'rec_0.db3-wal').write_bytes(b'x' * 100)
    with pytest.raises(BagError, match=r'cannot read .*rec_0\.db3'):
        open_recording(tmp_path)
    assert (tmp_path / 'rec_0.db3-wal').stat().st_size == 100


@pytest.mark.parametrize('storage', ENDINGS)
@pytest.mark.parametrize('ending', ['.zstd', '.zst'])
def test_files_that_are_compressed_one_by_one_are_read(tmp_path: Path, storage: str, ending: str) -> None:
    suffix = ENDINGS[storage]
    for number in range(3):
        part(tmp_path / f'rec_{number}.{suffix}', [2 * number + 1, 2 * number + 2], storage)
    packed = compress(tmp_path / f'rec_1.{suffix}', ending)
    assert numbers_in(packed) == [3, 4]
    assert numbers_in(tmp_path) == [1, 2, 3, 4, 5, 6]
    (tmp_path / f'rec_0.{suffix}').unlink()
    (tmp_path / f'rec_2.{suffix}').unlink()
    assert numbers_in(tmp_path) == [3, 4]


def test_a_file_counts_before_its_compressed_form(tmp_path: Path) -> None:
    """As a recorder leaves them that died while it compressed."""
    part(tmp_path / 'rec_0.mcap', [1, 2])
    (tmp_path / 'rec_0.mcap.zstd').write_bytes(b'\x28\xb5\x2f\xfd half')
    assert numbers_in(tmp_path) == [1, 2]


def test_a_compressed_file_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    noise = np.random.default_rng(1)
    write_bag(tmp_path / 'bag', [(10**9 * number, noise.integers(0, 256, (300, 400), np.uint8)) for number in range(1, 31)],
              storage='mcap')
    packed = compress(shutil.move(tmp_path / 'bag' / 'bag.mcap', tmp_path / 'rec_0.mcap'))
    packed.write_bytes(packed.read_bytes()[:packed.stat().st_size * 3 // 4])
    recording = open_recording(packed)
    assert 10 < len(list(readable_frames(recording, lambda line: None))) < 30
    assert [line for line in recording.notes if f'{packed} is cut off or damaged' in line]
    (tmp_path / 'none.mcap.zstd').write_bytes(b'no zstd')
    with pytest.raises(BagError, match=r'cannot unpack .*none.mcap.zstd, 7 bytes: .* it is cut off, or no zstd: copy it again'):
        open_recording(tmp_path / 'none.mcap.zstd')


def test_a_compressed_bag_is_unpacked_once_for_all_its_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[Path]()

    def count(path: Path, target: Path) -> str:
        calls.append(path)
        return unpack_file(path, target)

    monkeypatch.setattr(bag_storage, 'unpack_file', count)
    frames = [(10**9 * number, image(number)) for number in range(1, 4)]
    write_bag(tmp_path / 'bag', frames, storage='mcap', right=(frames, None), depth=[(stamp, np.full((12, 16), 1000, np.uint16))
                                                                                     for stamp, _ in frames])
    packed = compress(tmp_path / 'bag' / 'bag.mcap')
    recording = open_recording(packed, '/camera/image_raw')
    assert recording.depth is not None
    right = recording.other('/camera_right/image_raw')  # type: ignore[attr-defined]  # of bags
    assert len(list(recording.depth.frames())) == len(list(right.frames())) == 3
    assert calls == [packed]


@pytest.mark.parametrize('storage', ENDINGS)
def test_metadata_names_files_that_were_unpacked_or_compressed_since(tmp_path: Path, storage: str) -> None:
    bag = split_bag(tmp_path / 'bag', storage)
    compress(bag / f'rec_1.{ENDINGS[storage]}')
    assert numbers_in(bag) == [1, 2, 3, 4, 5, 6]
    assert not losses(bag)
    metadata = bag / 'metadata.yaml'
    metadata.write_text(metadata.read_text().replace(f'rec_2.{ENDINGS[storage]}', f'rec_2.{ENDINGS[storage]}.zstd'))
    assert numbers_in(bag) == [1, 2, 3, 4, 5, 6]


def test_parts_that_are_absent_are_named(tmp_path: Path) -> None:
    bag = split_bag(tmp_path / 'bag')
    (bag / 'rec_1.mcap').unlink()
    assert numbers_in(bag) == [1, 2, 5, 6]
    assert open_recording(bag).notes == (f'{bag}: rec_1.mcap, which metadata.yaml names, is absent: copy it there',)
    assert losses(bag)[0].startswith('2 of 6 frames are lost: ')
    assert losses(bag)[0].endswith('rec_1.mcap, which belongs to it, is absent: copy it there')
    (bag / 'metadata.yaml').unlink()
    assert open_recording(bag).notes == (f'{bag}: rec_1.mcap is absent by the numbers of the other parts: '
                                         'copy it there if the recording has it',)
    assert numbers_in(bag) == [1, 2, 5, 6]


def test_a_folder_without_any_of_its_files_says_which(tmp_path: Path) -> None:
    bag = split_bag(tmp_path / 'bag')
    for file in bag.glob('*.mcap'):
        file.unlink()
    with pytest.raises(BagError, match=r'names rec_0.mcap, rec_1.mcap, rec_2.mcap, and .*bag has no such file: copy them there'):
        open_recording(bag)


def test_parts_that_were_renamed_are_read(tmp_path: Path) -> None:
    bag = split_bag(tmp_path / 'bag')
    for file in bag.glob('*.mcap'):
        file.rename(file.with_name(file.name.replace('rec', 'monday')))
    assert numbers_in(bag) == [1, 2, 3, 4, 5, 6]
    (note,) = open_recording(bag).notes
    assert 'names rec_0.mcap, rec_1.mcap, rec_2.mcap, which are absent: read instead are monday_0.mcap, monday_1.mcap,' in note


def test_a_part_that_metadata_does_not_name_is_read_if_it_is_the_next(tmp_path: Path) -> None:
    bag = split_bag(tmp_path / 'bag', named=('rec_0', 'rec_1'))
    shutil.copy(bag / 'rec_0.mcap', bag / 'copy.mcap')
    assert numbers_in(bag) == [1, 2, 3, 4, 5, 6]
    assert [note.partition('metadata.yaml ')[2] for note in open_recording(bag).notes] == [
        'does not name rec_2.mcap, which is read as the next part',
        'does not name copy.mcap, which is left out: name a file itself to read it']


def test_two_formats_in_one_folder_are_no_bag(tmp_path: Path) -> None:
    part(tmp_path / 'rec_0.mcap', [1])
    part(tmp_path / 'rec_0.db3', [1], 'sqlite3')
    with pytest.raises(BagError, match=r'holds bags of two formats, rec_0.db3, rec_0.mcap: name the one that is meant'):
        open_recording(tmp_path)


@pytest.mark.parametrize('storage', ENDINGS)
def test_parts_come_in_order_of_time(tmp_path: Path, storage: str) -> None:
    suffix = ENDINGS[storage]
    for name, numbers in (('a', [5, 6, 9]), ('b', [1, 2, 7]), ('c', [3, 4, 8])):
        part(tmp_path / f'{name}.{suffix}', numbers, storage)
    assert numbers_in(tmp_path) == list(range(1, 10))


@pytest.mark.parametrize('compressed', [False, True])
def test_messages_of_mcap_come_in_order_of_time(tmp_path: Path, compressed: bool) -> None:
    """Chunks overlap and are out of order, and the channel is named in the chunk that was written first."""
    order = [9, 7, 8, 1, 2, 4, 3, 5, 6]
    write_bag(tmp_path / 'plain', [(10**9 * number, np.full((600, 800), number, np.uint8)) for number in order])
    messages = [(frame.stamp_ns, frame.raw) for frame in open_recording(tmp_path / 'plain').frames()]
    messages.sort(key=lambda message: order.index(message[0] // 10**9))
    write_messages(tmp_path / 'bag', {'/cam': (IMAGE, messages)}, 'mcap', 'storage' if compressed else '')
    file = tmp_path / 'bag' / 'bag.mcap'
    assert numbers_in(file) == sorted(order)
    data = file.read_bytes()
    footer = data.rindex(b'\x02' + struct.pack('<Q', 20))
    start, = struct.unpack_from('<Q', data, footer + 9)
    file.write_bytes(data[:start])  # as a recorder leaves it that was killed: without a summary
    assert numbers_in(file) == sorted(order)


@pytest.mark.parametrize('statistics', [
    b'', mcap_record(11, struct.pack('<QHIIIIQQI', 2, 1, 1, 0, 0, 0, 1, 2, 0))], ids=['none', 'without channels'])
def test_messages_are_counted_where_the_summary_of_mcap_does_not(tmp_path: Path, statistics: bytes) -> None:
    """By the format statistics and their counts by channel may be left out, as rosbags 0.10 does the first."""
    write_bag(tmp_path / 'plain', [(10**9, image(1))])
    message = mcap_message(next(open_recording(tmp_path / 'plain').frames()).raw or b'')
    whole = mcap(message, message)
    head = len(MCAP) + len(mcap_record(1, mcap_text('ros2') + mcap_text('')))
    channels = whole[head:whole.index(message)]
    end = whole.rindex(mcap_record(2, bytes(20)))
    (tmp_path / 'a.mcap').write_bytes(whole[:end] + channels + statistics + mcap_record(2, struct.pack('<QQI', end, 0, 0)) + MCAP)
    recording = open_recording(tmp_path / 'a.mcap')
    assert (len(recording), len(list(recording.frames()))) == (2, 2)
    (tmp_path / 'none.mcap').write_bytes(whole[:head] + channels + mcap_record(15, bytes(4)) + channels + mcap_record(
        2, struct.pack('<QQI', head + len(channels) + 13, 0, 0)) + MCAP)
    with pytest.raises(BagError, match='has no message on /cam: see that the camera publishes'):
        open_recording(tmp_path / 'none.mcap')


def test_messages_of_sqlite_come_in_order_of_time(tmp_path: Path) -> None:
    file = part(tmp_path / 'rec_0.db3', [1, 2, 3, 4, 5, 6], 'sqlite3')
    with database(file) as tables:
        tables.execute('UPDATE messages SET timestamp = 7000000000 - timestamp WHERE timestamp <= 3000000000')
    frames = list(open_recording(file).frames())
    assert [frame.received_ns // 10**9 for frame in frames] == [4, 4, 5, 5, 6, 6]
    assert [int(frame.load().data[0]) for frame in frames] == [3, 4, 2, 5, 1, 6], 'equal times come as recorded'


def test_files_of_other_systems_are_passed_over(tmp_path: Path) -> None:
    part(tmp_path / 'rec_0.mcap', [1, 2])
    for name in ('._rec_0.mcap', '.DS_Store', 'Thumbs.db', 'desktop.ini', '._metadata.yaml', '._rec_1.db3'):
        (tmp_path / name).write_bytes(b'\x00\x05\x16\x07 x')
    (tmp_path / '__MACOSX').mkdir()
    assert numbers_in(tmp_path) == [1, 2]
    folder = image_folder(tmp_path / 'folder', map(image, (1, 2)))
    for name in ('._0.png', '._1.png', 'Thumbs.db'):
        (folder / 'images' / name).write_bytes(b'\x00\x05\x16\x07')
    assert numbers_in(folder) == [1, 2]


def test_bags_of_ros_1_are_named_with_the_command_that_converts_them(tmp_path: Path) -> None:
    (tmp_path / 'run.bag').write_bytes(b'#ROSBAG V2.0\n')
    (tmp_path / '._run.bag').write_bytes(b'x')
    for path, words in ((tmp_path, 'holds 1 bag of ROS 1, run.bag: convert'), (tmp_path / 'run.bag', 'is no rosbag2 file')):
        with pytest.raises(BagError, match=rf'{words}.*rosbags-convert --src {tmp_path}/run.bag --dst {tmp_path}/run$'):
            open_recording(path)
    (tmp_path / 'run_1.bag').write_bytes(b'#ROSBAG V2.0\n')
    with pytest.raises(BagError, match=rf'holds 2 bags of ROS 1, .*: --src {tmp_path}/\*\.bag --dst {tmp_path}/ros2$'):
        open_recording(tmp_path)
    (tmp_path / 'run.bag').rename(tmp_path / 'run.mcap')
    with pytest.raises(BagError, match=r'does not begin as an mcap file, but as a ROS 1 bag: name it \.bag, and convert it'):
        open_recording(tmp_path / 'run.mcap')


def test_the_command_that_converts_bags_of_ros_1_is_right() -> None:
    command = shutil.which('rosbags-convert', path=os.pathsep.join([str(Path(sys.executable).parent), os.environ['PATH']]))
    assert command, 'rosbags brings it'
    usage = subprocess.run([command, '--help'], capture_output=True, text=True, check=True).stdout
    assert '--src' in usage
    assert '--dst' in usage


@pytest.mark.parametrize(('encoding', 'kind', 'words'), [
    ('ros1', 'sensor_msgs/Image', r'messages of ROS 1 .*rosbags-convert'),
    ('protobuf', 'foxglove.RawImage', r'messages in protobuf .*cdr is needed.*ros2 bag record')])
def test_messages_of_other_encodings_are_named(tmp_path: Path, encoding: str, kind: str, words: str) -> None:
    (tmp_path / 'a.mcap').write_bytes(mcap(mcap_message(b'data'), kind=kind, encoding=encoding))
    with pytest.raises(BagError, match=words):
        open_recording(tmp_path / 'a.mcap')


def test_one_part_that_is_no_zstd_costs_its_own_frames_alone(tmp_path: Path) -> None:
    for number in range(3):
        compress(part(tmp_path / f'rec_{number}.mcap', [2 * number + 1, 2 * number + 2]))
    (tmp_path / 'rec_1.mcap.zstd').write_bytes(b'')  # as a full disk leaves it
    assert numbers_in(tmp_path) == [1, 2, 5, 6]
    (note,) = open_recording(tmp_path).notes
    assert 'rec_1.mcap.zstd, 0 bytes: ' in note
    assert note.endswith('copy it again. The other parts are read')


def test_one_part_that_is_a_pointer_of_git_lfs_is_noted(tmp_path: Path) -> None:
    bag = split_bag(tmp_path / 'bag')
    (bag / 'rec_1.mcap').write_text(f'version https://git-lfs.github.com/spec/v1\noid sha256:{"0" * 64}\nsize 1234\n')
    assert numbers_in(bag) == [1, 2, 5, 6]
    (note,) = open_recording(bag).notes
    assert note.startswith(f'{bag / "rec_1.mcap"} is a pointer of Git LFS, without the data: run git lfs install and git lfs pull')
    assert note.endswith('in its repository. The other parts are read')


def test_bags_are_found_three_folders_below(tmp_path: Path) -> None:
    day = tmp_path / 'runs' / 'monday'
    split_bag(day / 'b')
    shutil.copytree(day / 'b', day / 'a')
    (day / 'a' / 'metadata.yaml').unlink()
    (tmp_path / 'docs').mkdir()
    (tmp_path / 'docs' / 'metadata.yaml').write_text('title: of a page\n')
    with pytest.raises(BagError, match=rf'is no recording, and has 2 bags in it: name one, as {day}/a$'):
        open_recording(tmp_path)


def test_a_listing_of_topics_has_those_of_images(tmp_path: Path) -> None:
    others = {f'/robot/state_{number}': ('std_msgs/msg/String', [(1, b'')]) for number in range(30)}
    cameras = {f'/{side}/image_raw': (IMAGE, [(1, b'')]) for side in ('left', 'right')}
    with pytest.raises(BagError, match=r'2 image topics.* It holds: /left/image_raw \([^;]*; /right/image_raw \([^;]*\)$'):
        open_recording(write_messages(tmp_path / 'two', {**others, **cameras}))
    with pytest.raises(BagError, match=r'holds no images .* It holds: (/robot/state_[^;]*; ){11}/robot/[^;]*\) … \(30 in all\)$'):
        open_recording(write_messages(tmp_path / 'none', others))


def test_a_log_that_may_be_absent_is_named_where_the_recorder_died(tmp_path: Path) -> None:
    file = with_log(tmp_path / 'rec_0.db3', 2)
    (tmp_path / 'rec_0.db3-wal').unlink()
    for path in (tmp_path, file):
        assert numbers_in(path) == [1, 2, 3, 4]
        assert open_recording(path).notes == (f'{file} may have a write-ahead log, rec_0.db3-wal, which is absent: '
                                              'copy it there if the recording has it',)


def test_a_full_disk_is_no_damage(tmp_path: Path) -> None:
    packed = compress(part(tmp_path / 'rec_0.mcap', list(range(1, 7))))
    with pytest.raises(BagError, match=r'cannot unpack .*rec_0.mcap.zstd into .*make room, or name another folder in TMPDIR'), \
            room_for(500):
        open_recording(packed)


def test_depth_alone_is_taken_with_a_note(tmp_path: Path) -> None:
    """As of a thermal camera, whose images have the encoding of depth."""
    thermal = bag(tmp_path / 'bag', {'/thermal/image_raw': [('16UC1', np.full((12, 16), 900, np.uint16))] * 2})
    assert open_recording(thermal).notes == ('images: /thermal/image_raw (sensor_msgs/msg/Image, 2 messages) is depth by its '
                                             'encoding or name, and taken for want of others',)


@pytest.mark.parametrize('storage', ENDINGS)
@pytest.mark.parametrize('has_metadata', [True, False])
def test_types_without_msg_of_the_first_ros2_are_read(tmp_path: Path, storage: str, has_metadata: bool) -> None:
    write_bag(bag := tmp_path / 'bag', [(10**9 * number, image(number)) for number in (1, 2)], storage=storage)
    if storage == 'sqlite3':
        with database(bag) as tables:
            tables.execute("UPDATE topics SET type = 'sensor_msgs/Image'")
    else:
        storage_file(bag).write_bytes(mcap(mcap_message(bytes(12)), mcap_message(bytes(12)), kind='sensor_msgs/Image',
                                           topic='/camera/image_raw'))
    metadata = bag / 'metadata.yaml'
    metadata.write_text(metadata.read_text().replace('sensor_msgs/msg/Image', 'sensor_msgs/Image'))
    if not has_metadata:
        metadata.unlink()
    recording = open_recording(bag)
    assert (recording.topics[0].type, len(recording), len(list(recording.frames()))) == (IMAGE, 2, 2)


@pytest.mark.parametrize(('names', 'recordings'), [
    (('front_0', 'rear_0'), 2), (('rec_a', 'rec_b', 'rec_c'), 3), (('rec_0', 'rec_1'), 0), (('part1', 'part2', 'part10'), 0)])
def test_files_of_several_recordings_in_one_folder_are_noted(tmp_path: Path, names: tuple[str, ...], recordings: int) -> None:
    for number, name in enumerate(names, 1):
        part(tmp_path / f'{name}.mcap', [number])
    notes = open_recording(tmp_path).notes
    assert numbers_in(tmp_path) == list(range(1, len(names) + 1))
    words = f'are of {recordings} recordings by their names, and read as one'
    assert [words in note for note in notes] == [True] * bool(recordings)
