"""Damaged bags: what is readable is read, and what is lost is counted."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.bags import IMAGE, database, serialised_images, storage_file, write_messages

from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.datasets.bag_recording import BagRecording
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.poses import Trajectory
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import readable_frames
from lightglue_trt_ros.utils.errors import BagError

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

COUNT = 60
K = np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])


def image(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (120, 160), np.uint8)


def write(path: Path, storage: str) -> Path:
    stamps = [10**9 + number * 10**8 for number in range(COUNT)]
    truth = Trajectory(np.array(stamps, np.int64), np.tile(np.eye(4), (COUNT, 1, 1)))
    camera = Intrinsics(160, 120, K, 'plumb_bob', np.zeros(5))
    write_bag(path, ((stamp, image(number)) for number, stamp in enumerate(stamps)), camera, truth, storage=storage)
    return storage_file(path)


def read(path: Path, topic: str | None = None) -> tuple[list[int], list[str]]:
    """Numbers of the readable frames, each checked against what was written, and the losses."""
    told: list[str] = []
    numbers = []
    for frame in readable_frames(open_recording(path, topic), told.append):
        number = (frame.stamp_ns - 10**9) // 10**8
        assert bytes(frame.load().data) == image(number).tobytes()
        numbers.append(number)
    return numbers, told


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
@pytest.mark.parametrize('metadata', [True, False])
@pytest.mark.parametrize('share', [0.3, 0.7, 0.98])
def test_a_file_that_breaks_off(tmp_path: Path, storage: str, metadata: bool, share: float) -> None:
    file = write(tmp_path / 'bag', storage)
    data = file.read_bytes()
    file.write_bytes(data[:int(len(data) * share)])
    if not metadata:
        (tmp_path / 'bag' / 'metadata.yaml').unlink()
    numbers, told = read(tmp_path / 'bag')
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > COUNT * share - 15
    assert len(told) == 1
    if metadata:
        assert f'{COUNT - len(numbers)} of {COUNT} frames are lost: ' in told[0]
    else:
        assert 'frames are lost: ' in told[0] or f'after {len(numbers)} frames, how many followed is not known' in told[0]
    recording = open_recording(tmp_path / 'bag')
    assert isinstance(recording, BagRecording)
    assert recording.intrinsics is not None  # from the messages at the beginning
    with pytest.raises(BagError, match=str(tmp_path)):  # without somebody who is told, it raises
        list(recording.frames())
    lines: list[str] = []
    truth = load_ground_truth(recording, on_note=lines.append)
    assert truth is not None
    assert COUNT * share - 15 < len(truth) <= COUNT
    assert any('up to where the bag breaks off' in line for line in lines)


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
def test_a_file_without_its_index(tmp_path: Path, storage: str) -> None:
    """An mcap whose recorder was killed has neither summary nor footer, and no directory has metadata.yaml then."""
    file = write(tmp_path / 'bag', storage)
    (tmp_path / 'bag' / 'metadata.yaml').unlink()
    if storage == 'mcap':
        data = file.read_bytes()
        file.write_bytes(data[:data.rindex(b'\x0c', 0, data.rindex(b'serialized_metadata'))])  # all behind the chunks
    numbers, told = read(tmp_path / 'bag')
    assert numbers == list(range(COUNT))
    assert len(open_recording(tmp_path / 'bag')) == COUNT
    assert len(told) == (storage == 'mcap')
    assert all('how many followed is not known' in line for line in told)


@pytest.mark.parametrize('storage', ['sqlite3', 'mcap'])
def test_parts_without_metadata(tmp_path: Path, storage: str) -> None:
    suffix = {'sqlite3': 'db3', 'mcap': 'mcap'}[storage]
    file = write(tmp_path / 'whole', storage)
    stamps = [10**9 + (COUNT + number) * 10**8 for number in range(5)]
    write_bag(tmp_path / 'more', [(stamp, image(COUNT + number)) for number, stamp in enumerate(stamps)], storage=storage)
    (tmp_path / 'bag').mkdir()
    shutil.copy(file, tmp_path / 'bag' / f'bag_9.{suffix}')
    shutil.copy(tmp_path / 'more' / f'more.{suffix}', tmp_path / 'bag' / f'bag_10.{suffix}')
    assert read(tmp_path / 'bag') == (list(range(COUNT + 5)), [])
    part = tmp_path / 'bag' / f'bag_9.{suffix}'
    part.write_bytes(part.read_bytes()[:part.stat().st_size // 2])
    numbers, told = read(tmp_path / 'bag')  # the second part is as good as ever
    assert numbers[-5:] == list(range(COUNT, COUNT + 5))
    assert 10 < len(numbers) < COUNT
    assert len(told) == 1


def test_messages_that_are_none(tmp_path: Path) -> None:
    write(tmp_path / 'bag', 'sqlite3')
    with database(tmp_path / 'bag') as tables:
        (topic,) = tables.execute("SELECT id FROM topics WHERE name = '/camera/image_raw'").fetchone()
        ids = [row[0] for row in tables.execute('SELECT id FROM messages WHERE topic_id = ? ORDER BY id', (topic,))]
        tables.execute("UPDATE messages SET data = x'0102' WHERE id = ?", (ids[7],))
        tables.execute("UPDATE messages SET data = x'' WHERE id = ?", (ids[30],))
        tables.execute('DELETE FROM messages WHERE id = ?', (ids[-1],))
    numbers, told = read(tmp_path / 'bag')
    assert numbers == [number for number in range(COUNT - 1) if number not in (7, 30)]
    assert len(told) == 2
    assert told[0].startswith('2 of 60 frames cannot be used; the first is frame 7: ')
    assert 'message 8 of /camera/image_raw is 2 bytes' in told[0]
    assert told[1].startswith('1 of 60 frames are lost: ')
    numbered = [frame.number for frame in readable_frames(open_recording(tmp_path / 'bag'), told.append)]
    assert numbered == numbers


def test_a_page_that_is_gone(tmp_path: Path) -> None:
    """SQLite stops at a broken page; what stands behind it is read all the same."""
    file = write(tmp_path / 'bag', 'sqlite3')
    data = bytearray(file.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle:middle + 8 * 4096] = b'\xff' * (8 * 4096)
    file.write_bytes(data)
    told: list[str] = []
    frames = list(readable_frames(open_recording(tmp_path / 'bag'), told.append))
    numbers = [(frame.stamp_ns - 10**9) // 10**8 for frame in frames]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0
    assert COUNT - 15 < len(numbers) < COUNT
    assert numbers[-1] == COUNT - 1
    assert [line.split(':')[0] for line in told] == [f'{COUNT - len(numbers)} of {COUNT} frames are lost']


@pytest.mark.parametrize('mode', ['message', 'storage'])
def test_compressed_and_broken_off(tmp_path: Path, mode: str) -> None:
    write(tmp_path / 'plain', 'sqlite3')
    write_messages(tmp_path / 'zstd', {'/cam': (IMAGE, serialised_images(tmp_path / 'plain'))}, 'mcap', mode)
    file = tmp_path / 'zstd' / 'zstd.mcap'
    assert read(tmp_path / 'zstd') == (list(range(COUNT)), [])
    file.write_bytes(file.read_bytes()[:file.stat().st_size * 97 // 100])
    numbers, told = read(tmp_path / 'zstd')  # a compressed chunk that is cut is lost as a whole
    assert numbers == list(range(len(numbers)))
    assert 50 < len(numbers) < COUNT
    assert len(told) == 1
    assert told[0].startswith(f'{COUNT - len(numbers)} of 60 frames are lost')


def test_a_chunk_that_is_broken(tmp_path: Path) -> None:
    """The index is whole: what stands before the chunk comes through it, and once."""
    write_bag(tmp_path / 'plain', [(10**9 + number * 10**8, image(number)) for number in range(180)])
    write_messages(tmp_path / 'zstd', {'/cam': (IMAGE, serialised_images(tmp_path / 'plain'))}, 'mcap', 'storage')
    file = tmp_path / 'zstd' / 'zstd.mcap'
    data = bytearray(file.read_bytes())
    magic = b'\x28\xb5\x2f\xfd'
    second = data.index(magic, data.index(magic) + 4)
    data[second:second + 20] = bytes(20)
    file.write_bytes(data)
    numbers, told = read(tmp_path / 'zstd')
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (0, 179)
    gaps = [second - first for first, second in pairwise(numbers) if second - first > 1]
    assert len(gaps) == 1
    assert told[0].startswith(f'{gaps[0] - 1} of 180 frames are lost: ')
    assert len(told) == 1


def test_nothing_is_left(tmp_path: Path) -> None:
    file = write(tmp_path / 'bag', 'mcap')
    data = file.read_bytes()
    file.write_bytes(data[:40])
    numbers, told = read(tmp_path / 'bag')  # metadata.yaml tells what there was
    assert (numbers, len(told)) == ([], 1)
    assert told[0].startswith('60 of 60 frames are lost')
    (tmp_path / 'bag' / 'metadata.yaml').unlink()
    with pytest.raises(BagError, match=r'cannot read .*bag\.mcap'):
        open_recording(tmp_path / 'bag')


def test_losses_are_told_when_the_reader_stops(tmp_path: Path) -> None:
    write(tmp_path / 'bag', 'sqlite3')
    with database(tmp_path / 'bag') as tables:
        tables.execute("UPDATE messages SET data = x'0102' WHERE id = (SELECT min(id) FROM messages WHERE length(data) > 15000)")
    told: list[str] = []
    frames = readable_frames(open_recording(tmp_path / 'bag'), told.append)
    next(frames)
    assert not told
    frames.close()  # type: ignore[attr-defined]  # a generator
    assert len(told) == 1
    assert '1 of 60 frames cannot be used; the first is frame 0' in told[0]
