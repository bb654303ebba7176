"""The training photographs: each filter with images made here, fetching's checks, packing, and the command from end to end."""

from __future__ import annotations

import csv
import shutil
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from training.data import candidates, decoding, fetching, filters, gather, packing, sources


def photograph(seed: int, height: int = 700, width: int = 900, channels: int = 3) -> NDArray[np.uint8]:
    """An image with texture at every scale: noise summed over octaves."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, channels), np.float32)
    for octave in range(2, 9):
        noise = rng.normal(size=(2**octave, 2**octave, channels)).astype(np.float32)
        total += cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC).reshape(total.shape) * 2.0 ** (-0.5 * octave)
    total += rng.normal(scale=0.12, size=total.shape)
    return np.clip(128 + 75 * total, 0, 255).astype(np.uint8)


def file_of(image: NDArray[np.uint8], suffix: str = '.png') -> bytes:
    return bytes(cv2.imencode(suffix, image)[1])


def reason_of(image: NDArray[np.uint8]) -> str:
    """Why the image is refused after its crops were measured; empty for one that is taken."""
    found = candidates.examine('image.png', file_of(image), 1)
    if isinstance(found, candidates.Refusal):
        return found.reason
    return filters.refuse_measure(found[0].measure) or ''


def test_a_photograph_passes() -> None:
    assert reason_of(photograph(1)) == ''
    assert reason_of(np.ascontiguousarray(photograph(2)[..., 0])) == ''


@pytest.mark.parametrize(
    ('data', 'words'),
    [
        (b'', 'empty'),
        (b'not an image at all', 'cannot be decoded'),
        (file_of(photograph(1), '.jpg')[:20000], 'cut short'),
        (file_of(photograph(1, 300, 400)), 'tiny: 400x300'),
        (file_of(photograph(1, 520, 2000)), 'a strip: 2000x520'),
    ],
)
def test_files_that_cannot_be_used_say_why(data: bytes, words: str) -> None:
    found = candidates.examine('image', data, 1)
    assert isinstance(found, candidates.Refusal)
    assert words in found.reason
    assert '\n' not in found.reason


def test_flat_images_are_refused() -> None:
    assert 'flat: gray levels deviate' in reason_of(np.full((700, 900, 3), 127, np.uint8))
    assert 'flat: gray levels deviate' in reason_of((127 + (photograph(1).astype(int) - 127) // 12).astype(np.uint8))


def test_pages_of_text_are_refused() -> None:
    page = np.full((700, 900), 250, np.uint8)
    for line in range(30, 700, 30):
        cv2.putText(page, 'the quick brown fox jumps over the lazy dog', (20, line), cv2.FONT_HERSHEY_SIMPLEX, 0.8, 10, 2)
    assert 'is of one tone' in reason_of(page)


def test_vector_art_is_refused() -> None:
    art = np.zeros((700, 900, 3), np.uint8)
    ramp = np.linspace(0, 255, 900, dtype=np.uint8)
    art[:] = np.stack([ramp, ramp[::-1], np.full_like(ramp, 90)], axis=-1)
    cv2.circle(art, (450, 350), 200, (20, 200, 240), -1)
    assert any(word in reason_of(art) for word in ('constant areas', 'hardly any texture'))
    flags = np.zeros((700, 900, 3), np.uint8)
    rng = np.random.default_rng(0)
    for place in range(0, 700 * 900, 100):  # confetti in three colours
        flags.reshape(-1, 3)[place : place + 50] = ((255, 0, 0), (0, 255, 0), (0, 0, 255))[int(rng.integers(3))]
    blocks = cv2.resize(flags[:35, :45], (900, 700), interpolation=cv2.INTER_NEAREST).astype(np.uint8)
    assert 'a drawing: ' in reason_of(blocks)


def test_blurred_images_are_refused() -> None:
    blurred = np.asarray(cv2.GaussianBlur(photograph(1), (0, 0), 4), np.uint8)
    assert any(word in reason_of(blurred) for word in ('blurred', 'hardly any texture'))


def test_normal_maps_are_refused() -> None:
    height = photograph(1, channels=1)[..., 0].astype(np.float32)
    slope = np.stack([np.full_like(height, 120), *np.gradient(cv2.GaussianBlur(height, (0, 0), 2))], axis=-1)
    normals = slope / np.linalg.norm(slope, axis=-1, keepdims=True)
    assert 'a normal map' in reason_of((127.5 + 127.5 * normals).astype(np.uint8))


def test_sprites_are_refused_and_other_alpha_channels_are_not() -> None:
    image = np.dstack([photograph(1), np.full((700, 900), 255, np.uint8)])
    assert reason_of(image) == ''
    image[:200, :, 3] = 0
    assert 'a sprite: 29% is transparent' in reason_of(image)
    image[..., 3] = 0  # a specular layer of a game that has no shine
    assert reason_of(image) == ''


@pytest.mark.parametrize('turn', [0.0, 0.3])
def test_calibration_boards_are_refused(turn: float) -> None:
    board = (np.indices((7, 10)).sum(axis=0) % 2 * 200 + 20).astype(np.uint8)
    large = cv2.resize(board, (600, 420), interpolation=cv2.INTER_NEAREST)
    to = np.array([[np.cos(turn), -np.sin(turn), 180 + 60 * turn], [np.sin(turn), np.cos(turn), 100 - 100 * turn]])
    place = cv2.warpAffine(np.full_like(large, 255), to, (900, 700))
    scene = photograph(3)[..., 0]
    scene = np.where(place > 0, cv2.warpAffine(large, to, (900, 700)), scene).astype(np.uint8)
    found = candidates.examine('image.png', file_of(scene), 1)
    assert not isinstance(found, candidates.Refusal)
    assert found[0].measure.saddles >= filters.BOARD
    assert filters.saddles(packing.cuts_of(photograph(3)[..., 0])[0].gray) < filters.BOARD


@pytest.mark.parametrize(
    'name',
    ['wall_norm.png', 'textures/rock-n.jpg', 'Wood_Spec.png', 'a/gui/ok.png', 'stone_height2.png', 'fonts/a.png', 'x/minimap.png'],
)
def test_layers_of_materials_and_interfaces_go_by_their_names(name: str) -> None:
    assert filters.refuse_name(name) is not None


@pytest.mark.parametrize('name', ['wall.png', 'north/plant.jpg', 'wallpapers/Stones/special.jpg', 'IMG_0446.jpg', 'spain.png'])
def test_other_names_pass(name: str) -> None:
    assert filters.refuse_name(name) is None


def test_near_duplicates_are_found_at_other_sizes_qualities_and_aspects() -> None:
    image = photograph(5, 900, 1440, 1)[..., 0]
    seen = filters.Seen()
    assert seen.refuse(filters.hashes_of(image)) is None
    seen.keep(filters.hashes_of(image), 'first')
    smaller = cv2.resize(image, (1024, 640), interpolation=cv2.INTER_AREA).astype(np.uint8)
    worse = decoding.decode(bytes(cv2.imencode('.jpg', smaller, [cv2.IMWRITE_JPEG_QUALITY, 40])[1]))
    cut = np.ascontiguousarray(image[:, 120:-120])  # 4:3 of 16:10
    for other in (smaller, worse, cut):
        assert seen.refuse(filters.hashes_of(other)) == 'looks like first'
    assert seen.refuse(filters.hashes_of(photograph(6, 900, 1440, 1)[..., 0])) is None


def dds(fourcc: bytes, blocks: bytes, width: int, height: int) -> bytes:
    header = bytearray(128)
    header[:4] = b'DDS '
    struct.pack_into('<III', header, 4, 124, 0, height)
    struct.pack_into('<I', header, 16, width)
    header[84:88] = fourcc
    return bytes(header) + blocks


def test_dds_blocks_decode() -> None:
    # Four columns of a block: red, blue and the two thirds between (first end > second).
    block = struct.pack('<HH', 31 << 11, 31) + bytes([0b11100100] * 4)
    image = decoding.decode(dds(b'DXT1', block * 2, 8, 4))
    assert image.shape == (4, 8, 3)
    np.testing.assert_array_equal(image[0, :4], [[0, 0, 255], [255, 0, 0], [85, 0, 170], [170, 0, 85]])
    swapped = struct.pack('<HH', 31, 31 << 11) + bytes([0b11100100] * 4)  # in DXT1 the fourth is black, in DXT5 it is not
    np.testing.assert_array_equal(decoding.decode(dds(b'DXT1', swapped, 4, 4))[0, 2:], [[128, 0, 128], [0, 0, 0]])
    np.testing.assert_array_equal(decoding.decode(dds(b'DXT5', bytes(8) + swapped, 4, 4))[0, 2:], [[170, 0, 85], [85, 0, 170]])


@pytest.mark.parametrize(('fourcc', 'blocks', 'words'), [(b'ATI2', bytes(16), 'ATI2'), (b'DXT1', bytes(4), 'cut short')])
def test_other_dds_files_are_refused(fourcc: bytes, blocks: bytes, words: str) -> None:
    with pytest.raises(sources.DataError, match=words):
        decoding.decode(dds(fourcc, blocks, 4, 4))


@pytest.mark.parametrize(
    ('height', 'width', 'most', 'count'),
    [
        (600, 800, 4, 1),
        (1800, 2400, 4, 1),
        (2700, 3600, 4, 4),
        (2700, 3600, 2, 2),
        (1440, 2560, 4, 2),
        (2700, 3600, 1, 1),
        (3600, 2000, 2, 2),
    ],
)
def test_large_photographs_give_several_crops(height: int, width: int, most: int, count: int) -> None:
    cuts = packing.cuts_of(np.zeros((height, width), np.uint8), most)
    assert len(cuts) == count
    covered = np.zeros((height, width), np.uint8)
    for cut in cuts:
        assert cut.gray.shape == (packing.HEIGHT, packing.WIDTH)
        covered[cut.top : cut.top + cut.height, cut.left : cut.left + cut.width] += 1
    assert covered.max() == 1


def test_small_textures_are_enlarged_a_little_and_mirrored_at_the_sides() -> None:
    texture = photograph(7, 512, 512, 1)[..., 0]
    gray = packing.cuts_of(texture)[0].gray
    enlarged = cv2.resize(texture, (640, 640), interpolation=cv2.INTER_CUBIC)
    np.testing.assert_array_equal(gray[:, 80:720], enlarged[20:620])
    np.testing.assert_array_equal(gray[:, 79], gray[:, 81])


def test_parts_stay_under_their_size_and_come_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, 'PART_BYTES', 64 * 1024)
    items = [(f'{n:03d}.jpg', bytes([n]) * (5000 + n)) for n in range(40)]
    parts = packing.write_parts(items, tmp_path, 1)
    assert [p.name for p in parts] == [f'photographs.{n:02d}.tar' for n in range(len(parts))]
    assert len(parts) > 3
    assert all(p.stat().st_size <= 64 * 1024 for p in parts)
    assert packing.read_parts(tmp_path) == dict(items)
    with tarfile.open(parts[0]) as archive:
        names = archive.getnames()
    assert names != sorted(names)
    first = [p.read_bytes() for p in parts]
    assert [p.read_bytes() for p in packing.write_parts(items, tmp_path, 1)] == first
    fewer = packing.write_parts(items[:2], tmp_path, 1)
    assert sorted(tmp_path.glob('*')) == fewer


def write_list(path: Path, folder: Path, more: str = '') -> Path:
    path.write_text(
        f"""
- name: mine
  kind: folder
  version: 1
  licence: CC0-1.0
  stated_in: README
  digest: ''
  url: {folder}
  crops: 4
  licences: {{'*brick*': MIT}}
  exclude:
    - reason: of an evaluation
      patterns: ['*graf*']
{more}"""
    )
    return path


def test_the_command_from_a_folder_to_a_pack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / 'images'
    (folder / 'walls').mkdir(parents=True)
    for number in range(4):
        (folder / f'house{number}.jpg').write_bytes(file_of(photograph(number), '.jpg'))
    (folder / 'walls/brick.png').write_bytes(file_of(photograph(10)))
    (folder / 'walls/brick_norm.png').write_bytes(file_of(photograph(11)))
    (folder / 'large.jpg').write_bytes(file_of(photograph(12, 1900, 2600, 1), '.jpg'))
    (folder / 'graf1.png').write_bytes(file_of(photograph(13)))
    smaller = cv2.resize(photograph(1), (800, 622), interpolation=cv2.INTER_AREA)
    (folder / 'copy.jpg').write_bytes(file_of(np.asarray(smaller, np.uint8), '.jpg'))
    (folder / 'flat.png').write_bytes(file_of(np.full((700, 900, 3), 90, np.uint8)))
    (folder / 'broken.jpg').write_bytes(b'\xff\xd8 nothing')
    (folder / 'notes.txt').write_text('no image')
    out = tmp_path / 'out'
    listed = write_list(tmp_path / 'sources.yaml', folder)
    arguments = ['--out', str(out), '--sources', str(listed), '--workers', '1']
    assert gather.main([*arguments, '--sheets', str(tmp_path / 'sheets')]) == 0
    packed = packing.read_parts(out)
    text = (out / 'manifest.csv').read_text()
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith('#')))
    assert {f'{row["id"]}.jpg' for row in rows} == set(packed)
    expected = [f'house{n}.jpg' for n in range(4)] + ['large.jpg'] * 4 + ['walls/brick.png']
    assert sorted(row['member'] for row in rows) == expected
    assert {row['licence'] for row in rows if row['member'] == 'walls/brick.png'} == {'MIT'}
    assert {row['licence'] for row in rows if row['member'] == 'large.jpg'} == {'CC0-1.0'}
    assert all(row['sha256'] == fetching.sha256_of(folder / row['member']) for row in rows)
    assert packing.digest_of(packed.items()) in text
    for data in packed.values():
        assert decoding.decode(data).shape == (600, 800)
    refused = (out / 'refusals.txt').read_text()
    for words in (
        'graf1.png: of an evaluation',
        'walls/brick_norm.png: a layer',
        'copy.jpg: looks like house1.jpg',
        'flat.png: flat',
        'broken.jpg: a JPEG',
    ):
        assert words in refused
    assert '| mine | 1 | CC0-1.0 | 9 | 5 |' in capsys.readouterr().out
    sheet = cv2.imread(str(tmp_path / 'sheets/sheet.000.png'), cv2.IMREAD_GRAYSCALE)
    assert sheet is not None
    assert sheet.std() > 10
    assert gather.main(arguments) == 0
    assert (out / 'manifest.csv').read_text() == text


def test_a_limit_takes_the_same_images_whatever_their_order() -> None:
    source = sources.Source('x', 'folder', '1', 'CC0-1.0', '', '', limit=3)
    found = []
    for number in range(6):
        result = candidates.examine(f'{number}.png', file_of(photograph(number, 600, 800, 1)), 1)
        assert not isinstance(result, candidates.Refusal)
        found += result
    one, refused = gather.choose(source, found, filters.Seen())
    other, _ = gather.choose(source, found[::-1], filters.Seen())
    assert [k.id for k in one] == [k.id for k in other]
    assert len(one) == 3
    assert all('over the limit of 3' in r.reason for r in refused)


@pytest.mark.parametrize(
    ('more', 'words'),
    [
        ('- {name: b, kind: ftp, version: 1, licence: MIT, stated_in: x, digest: x}', "kind 'ftp'"),
        ('- {name: b, kind: git, version: 1, licence: MIT, stated_in: x}', "missing ['digest']"),
        ('- {name: b, kind: git, version: 1, licence: MIT, stated_in: x, digest: x, colour: red}', "unknown ['colour']"),
        ('- {name: mine, kind: git, version: 1, licence: MIT, stated_in: x, digest: x}', "twice: ['mine']"),
        ('- nothing', 'each a mapping'),
        ('- {', 'no list of sources can be read'),
    ],
)
def test_a_wrong_list_names_the_entry(tmp_path: Path, more: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    listed = write_list(tmp_path / 'sources.yaml', tmp_path, more)
    assert gather.main(['--out', str(tmp_path / 'out'), '--sources', str(listed)]) == 1
    assert words in capsys.readouterr().err


def test_packages_and_wheels_are_read_with_the_archives_in_them(tmp_path: Path) -> None:
    image = file_of(photograph(1, 30, 40))
    archive = tmp_path / 'walls-1-py3-none-any.whl'
    with zipfile.ZipFile(archive, 'w') as stream:
        stream.writestr('art/brick.png', image)
        stream.writestr('art/notes.txt', 'none')
    source = sources.Source('walls', 'python', '1', 'CC0-1.0', '', fetching.sha256_of(archive))
    fetching.check_digest(source, archive)
    assert list(fetching.images_of(source, archive)) == [('art/brick.png', image)]
    if shutil.which('dpkg-deb') is None:
        pytest.skip('no dpkg-deb here')
    tree = tmp_path / 'tree'
    (tree / 'DEBIAN').mkdir(parents=True)
    (tree / 'DEBIAN/control').write_text('Package: walls\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: walls\n')
    (tree / 'usr').mkdir()
    (tree / 'usr/wood.JPG').write_bytes(b'wood')
    shutil.copy(archive, tree / 'usr/data.zip')
    subprocess.run(['dpkg-deb', '--build', str(tree), str(tmp_path / 'walls_1_all.deb')], check=True, capture_output=True)
    package = sources.Source('walls', 'debian', '1', 'CC0-1.0', '', '')
    assert fetching.fetch(package, tmp_path) == tmp_path / 'walls_1_all.deb'
    found = dict(fetching.images_of(package, tmp_path / 'walls_1_all.deb'))
    assert found == {'usr/wood.JPG': b'wood', 'usr/data.zip/art/brick.png': image}


@pytest.mark.skipif(shutil.which('git') is None, reason='no git here')
def test_a_repository_is_fetched_at_its_commit(tmp_path: Path) -> None:
    origin = tmp_path / 'origin'
    origin.mkdir()
    image = file_of(photograph(1, 30, 40))
    (origin / 'a wall.png').write_bytes(image)
    (origin / 'README').write_text('none')
    git = ['git', '-C', str(origin), '-c', 'user.name=a', '-c', 'user.email=a@b']
    for command in (['init', '--quiet'], ['add', '.'], ['commit', '--quiet', '-m', 'walls']):
        subprocess.run([*git, *command], check=True, capture_output=True)
    commit = subprocess.run([*git, 'rev-parse', 'HEAD'], check=True, capture_output=True, text=True).stdout.strip()
    source = sources.Source('a/walls', 'git', commit, 'MIT', 'LICENSE', commit, url=str(origin))
    path = fetching.fetch(source, tmp_path / 'work')
    assert list(fetching.images_of(source, path)) == [('a wall.png', image)]
    other = sources.Source('a/walls', 'git', '1', 'MIT', 'LICENSE', '12' * 20, url=str(origin))
    with pytest.raises(sources.DataError, match='is not in it'):
        list(fetching.images_of(other, fetching.fetch(other, tmp_path / 'work')))
    with pytest.raises(sources.DataError, match='exit status'):
        fetching.fetch(other, tmp_path / 'elsewhere')
    assert not list((tmp_path / 'elsewhere').glob('*.git'))


def test_another_file_than_the_listed_one_is_refused(tmp_path: Path) -> None:
    package = tmp_path / 'walls_1_all.deb'
    package.write_bytes(b'something else')
    source = sources.Source('walls', 'debian', '1', 'CC0-1.0', '', 'ab' * 32)
    with pytest.raises(sources.DataError, match='the list says abab'):
        fetching.check_digest(source, package)


def test_a_source_that_is_not_there_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = write_list(tmp_path / 'sources.yaml', tmp_path / 'absent')
    assert gather.main(['--out', str(tmp_path / 'out'), '--sources', str(listed)]) == 1
    assert 'absent is not there' in capsys.readouterr().err


def test_the_list_that_ships_is_whole() -> None:
    listed = sources.load_sources(gather.HERE / 'sources.yaml')
    assert all(len(s.digest) == (40 if s.kind == 'git' else 64) for s in listed)
    assert all(s.licence and s.stated_in for s in listed)
    rows = [line for line in (gather.HERE / 'manifest.csv').read_text().splitlines() if not line.startswith('#')]
    found = list(csv.DictReader(rows))
    names = {s.name for s in listed}
    assert found
    assert {row['source'] for row in found} <= names
    assert not [row for row in found if 'graf' in row['member'].lower() and row['source'] == 'opencv-doc']
    assert len({row['id'] for row in found}) == len(found)
