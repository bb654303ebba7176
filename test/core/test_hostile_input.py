"""Small files that would become large, names that leave their folder, and two processes at one file."""

from __future__ import annotations

import multiprocessing
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.bags import database, mcap, mcap_chunk, mcap_message, mcap_record
from support.pth_files import SUPERPOINT, pin, pth

from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import read_image
from lightglue_trt_ros.networks.weight_store import fetch
from lightglue_trt_ros.utils import limits
from lightglue_trt_ros.utils.errors import BagError, ConfigError

pytest_plugins = ['support.weights_fixtures']
pytest.importorskip('rosbags', reason='bags need the Python package rosbags')

MIB = 2**20
BOMB_MIB = 600
CDR = b'\0\1\0\0' + struct.pack('<iI', 1, 0)  # an encapsulation and a stamp
READ_ALL = ('from lightglue_trt_ros.datasets.recordings import open_recording\n'
            'for frame in open_recording(sys.argv[1]).frames():\n    print("read", len(frame.raw or frame.load().data))')


def zstd_zeros(head: bytes, mib: int, tail: bytes = b'') -> bytes:
    """`head`, so many MiB of zeros, and `tail`, compressed."""
    zstd = pytest.importorskip('compression.zstd' if sys.version_info >= (3, 14) else 'backports.zstd')
    compressor = zstd.ZstdCompressor()
    pieces = [compressor.compress(head), *(compressor.compress(bytes(MIB)) for _ in range(mib)), compressor.compress(tail)]
    return b''.join([*pieces, compressor.flush()])


def bag_of_messages(path: Path) -> None:
    """sqlite3, compressed message by message: one of them becomes BOMB_MIB."""
    write_bag(path, [(10**9, np.zeros((30, 40), np.uint8))])
    with database(path) as tables:
        tables.execute('UPDATE messages SET data = ?', (zstd_zeros(CDR, BOMB_MIB),))
    metadata = (path / 'metadata.yaml').read_text()
    (path / 'metadata.yaml').write_text(metadata.replace("compression_format: ''", 'compression_format: zstd')
                                        .replace("compression_mode: ''", 'compression_mode: message'))


def bag_of_a_file(path: Path) -> None:
    """sqlite3, compressed as a whole: zeros stand behind the database."""
    write_bag(path, [(10**9, np.zeros((30, 40), np.uint8))])
    file = path / f'{path.name}.db3'
    (path / f'{path.name}.db3.zstd').write_bytes(zstd_zeros(file.read_bytes(), BOMB_MIB))
    file.unlink()
    metadata = (path / 'metadata.yaml').read_text()
    (path / 'metadata.yaml').write_text(metadata.replace(file.name, f'{file.name}.zstd')
                                        .replace("compression_format: ''", 'compression_format: zstd')
                                        .replace("compression_mode: ''", 'compression_mode: file'))


def mcap_of_a_chunk(path: Path) -> None:
    """A small message, and one chunk whose only message becomes BOMB_MIB."""
    message = struct.pack('<BQHIQQ', 5, 22 + len(CDR) + BOMB_MIB * MIB, 1, 0, 10**9, 10**9) + CDR
    chunk = mcap_chunk(zstd_zeros(message, BOMB_MIB), len(message) + BOMB_MIB * MIB)
    path.write_bytes(mcap(mcap_message(CDR + bytes(100)), chunk))


def png_of(width: int, height: int) -> bytes:
    """A black gray PNG, never held in memory."""
    compressor, row = zlib.compressobj(9), bytes(1 + width)
    data = b''.join([*(compressor.compress(row) for _ in range(height)), compressor.flush()])

    def part(name: bytes, body: bytes) -> bytes:
        return struct.pack('>I', len(body)) + name + body + struct.pack('>I', zlib.crc32(name + body))

    header = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + part(b'IHDR', header) + part(b'IDAT', data) + part(b'IEND', b'')


@pytest.fixture(scope='module')
def large_png() -> bytes:
    data = png_of(20_000, 20_000)
    assert len(data) < 500_000
    return data


def peak(script: str, *arguments: object) -> tuple[str, float]:
    """The last line of what a script in a process of its own says, and the MiB by which it outgrew its imports."""
    around = ('import resource, sys\nimport cv2, numpy\nimport lightglue_trt_ros.datasets.bag_writer\n'
              'from lightglue_trt_ros.datasets.bag_storage import rosbags_modules\nrosbags_modules()\n'
              'most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\nbefore = most()\n'
              'try:\n    exec(sys.argv.pop(1))\nexcept Exception as error:\n    print(type(error).__name__, error)\n'
              'print(most() - before)')
    command = [sys.executable, '-c', around, script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    *_, line, mib = done.stdout.splitlines()
    return line, float(mib)


@pytest.mark.slow
@pytest.mark.parametrize(('make', 'name'), [(bag_of_messages, 'bag'), (bag_of_a_file, 'bag'), (mcap_of_a_chunk, 'a.mcap')])
def test_a_bag_that_would_fill_the_memory(tmp_path: Path, make: object, name: str) -> None:
    path = tmp_path / name
    make(path)
    files = [file for file in (path.iterdir() if path.is_dir() else [path]) if file.suffix != '.yaml']
    assert sum(file.stat().st_size for file in files) < 100_000
    line, grown = peak(READ_ALL, path)
    assert line.startswith('OversizeError'), line
    for part in (str(path), '256 MiB', 'LIGHTGLUE_TRT_MAX_UNPACKED_MIB'):
        assert part in line
    assert grown < 2.2 * 256


@pytest.mark.slow
def test_the_bound_is_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mcap_of_a_chunk(tmp_path / 'a.mcap')
    monkeypatch.setenv('LIGHTGLUE_TRT_MAX_UNPACKED_MIB', '8')
    line, grown = peak(READ_ALL, tmp_path / 'a.mcap')
    assert 'becomes more than 8 MiB' in line or 'become more than 8 MiB' in line
    assert grown < 40
    monkeypatch.setenv('LIGHTGLUE_TRT_MAX_UNPACKED_MIB', 'much')
    with pytest.raises(ConfigError, match="LIGHTGLUE_TRT_MAX_UNPACKED_MIB is 'much'"):
        list(open_recording(tmp_path / 'a.mcap').frames())


@pytest.mark.slow
def test_a_record_that_says_it_is_large(tmp_path: Path) -> None:
    """Nothing is compressed: the file has a hole, and is small on disk."""
    mcap_of_a_chunk(tmp_path / 'a.mcap')
    data = (tmp_path / 'a.mcap').read_bytes()
    with (tmp_path / 'hole.mcap').open('wb') as file:
        file.write(data[:data.index(b'zstd') - 41] + struct.pack('<BQ', 5, BOMB_MIB * MIB))
        file.truncate(BOMB_MIB * MIB + 1000)
    line, grown = peak(READ_ALL, tmp_path / 'hole.mcap')
    assert f'{BOMB_MIB} MiB where 256 are allowed' in line
    assert grown < 40


def test_chunks_in_chunks_are_not_followed(tmp_path: Path) -> None:
    mcap_of_a_chunk(tmp_path / 'a.mcap')
    data = (tmp_path / 'a.mcap').read_bytes()
    inner = data[8:data.index(b'zstd') - 41]
    for _ in range(1200):
        inner = mcap_chunk(inner, len(inner), '')
    (tmp_path / 'deep.mcap').write_bytes(data[:8] + inner + mcap_record(15, bytes(4)) + mcap_record(2, bytes(20)) + data[:8])
    with pytest.raises(BagError, match=r'cannot read .*deep\.mcap'):
        open_recording(tmp_path / 'deep.mcap')


@pytest.mark.slow
def test_an_image_file_that_would_fill_the_memory(tmp_path: Path, large_png: bytes) -> None:
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / 'a.png').write_bytes(large_png)
    (tmp_path / 'timestamps.txt').write_text('1.0\n')
    line, grown = peak(READ_ALL, tmp_path)
    assert line.startswith('BagError')
    for part in ('a.png', f'{len(large_png)} bytes', '64', 'megapixels', 'LIGHTGLUE_TRT_MAX_MEGAPIXELS'):
        assert part in line
    assert grown < 40


@pytest.mark.slow
def test_a_compressed_image_that_would_fill_the_memory(tmp_path: Path, large_png: bytes) -> None:
    pytest.importorskip('rclpy')
    (tmp_path / 'a.png').write_bytes(large_png)
    line, grown = peak('from pathlib import Path\nfrom sensor_msgs.msg import CompressedImage\n'
                       'from lightglue_trt_ros.core.images import gray_of\n'
                       'gray_of(CompressedImage(format="png", data=Path(sys.argv[1]).read_bytes()), 16, 64.0)', tmp_path / 'a.png')
    assert line.startswith('ImageEncodingError')
    for part in (f'{len(large_png)} bytes', '64', 'megapixels', 'max_megapixels'):
        assert part in line
    assert grown < 80  # the message's own imports too


@pytest.mark.parametrize('suffix', ['png', 'jpg', 'bmp', 'pgm', 'tif', 'webp'])
def test_the_size_is_read_from_the_header_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    path = tmp_path / f'a.{suffix}'
    assert cv2.imwrite(str(path), np.zeros((200, 300), np.uint8))
    monkeypatch.setenv(limits.MEGAPIXELS_VARIABLE, '0.06')
    assert read_image(path).shape[:2] == (200, 300)
    monkeypatch.setenv(limits.MEGAPIXELS_VARIABLE, '0.0599')
    with pytest.raises(BagError, match=r'300x200 pixels, 0 megapixels where 0\.0599 are allowed'):
        read_image(path)


def listings(tmp_path: Path, name: str) -> Iterator[Path]:
    """Folders of both layouts whose list names `name`; around them stands an image that is none of theirs."""
    (tmp_path / 'tum' / 'rgb').mkdir(parents=True)
    (tmp_path / 'tum' / 'rgb.txt').write_text(f'1.0 {name}\n')
    (tmp_path / 'euroc' / 'data').mkdir(parents=True)
    (tmp_path / 'euroc' / 'data.csv').write_text(f'1000,{name}\n')
    for path in (tmp_path / 'x.png', tmp_path / 'tum' / 'rgb' / 'a.png', tmp_path / 'euroc' / 'data' / 'a.png'):
        assert cv2.imwrite(str(path), np.zeros((30, 40), np.uint8))
    (tmp_path / 'tum' / 'link.png').symlink_to(tmp_path / 'x.png')
    (tmp_path / 'euroc' / 'data' / 'link.png').symlink_to(tmp_path / 'x.png')
    yield from (tmp_path / 'tum', tmp_path / 'euroc')


@pytest.mark.parametrize('name', ['../x.png', '../../x.png', 'link.png', '{folder}/x.png', 'data/../../../x.png'])
def test_names_that_leave_the_folder(tmp_path: Path, name: str) -> None:
    name, refused = name.format(folder=tmp_path), 0
    for folder in listings(tmp_path, name):
        with pytest.raises(BagError) as caught:
            read_image(open_recording(folder).files[0])  # type: ignore[attr-defined]
        refused += f'names {name!r}, which is ' in str(caught.value) and 'outside of' in str(caught.value)
    assert refused >= 1  # in the other folder there may be no such file


@pytest.mark.parametrize('name', ['a.png', './a.png', '../{folder}/a.png'])
def test_names_that_stay_are_read(tmp_path: Path, name: str) -> None:
    for folder, home in zip(listings(tmp_path, ''), ('rgb', 'data'), strict=True):
        listing = folder / {'rgb': 'rgb.txt', 'data': 'data.csv'}[home]
        given = name.format(folder=home)
        listing.write_text(f'1.0 rgb/{given}\n' if home == 'rgb' else f'1000,{given}\n')
        assert next(open_recording(folder).frames()).load().height == 30


def test_two_processes_fetch_one_file(http_server, monkeypatch, weights_cache) -> None:
    """The second comes while nothing has arrived yet; it waits, and finds what the first one got."""
    http_server.body, http_server.delay = pth(SUPERPOINT), 1.0
    pin(monkeypatch, 'superpoint', http_server.body, http_server.url)
    processes = []
    for number in range(2):
        process = multiprocessing.get_context('fork').Process(target=fetch, args=('superpoint',))
        process.start()
        processes.append(process)
        deadline = time.monotonic() + 10
        while number == 0 and not http_server.requests and time.monotonic() < deadline:
            time.sleep(0.01)
    for process in processes:
        process.join(20)
    assert [process.exitcode for process in processes] == [0, 0]
    assert http_server.requests == 1
    assert [path.name for path in weights_cache.iterdir()] == ['superpoint_v1.safetensors']
