"""Rendered views: the list of scenes, reading Gazebo's files, depth and pose, refusals, packing, and the command end to end."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from PIL import Image

from lightglue_trt_ros.datasets.ground_truth import load_ground_truth
from lightglue_trt_ros.datasets.recordings import gray_images, open_recording

WHY = 'which training/rendered alone needs, is not installed: pip install -e .[rendered]'
trimesh = pytest.importorskip('trimesh', reason=f'trimesh, {WHY}')
pytest.importorskip('collada', reason=f'pycollada, {WHY}')
pytest.importorskip('embreex', reason=f'embreex, {WHY}')

from training.rendered import check, flight, gazebo, make, packing, retexture, sources, viewpoints
from training.rendered.raycast import Camera, Exposure, Light, Scene, Textures, exposed

COMMIT = '12' * 20
INCLUDE = '<model name="{name}"><include><uri>model://{name}</uri></include><pose>{pose}</pose></model>'


def noise(seed: int, size: int = 512) -> NDArray[np.uint8]:
    """uint8 (size, size) with texture at several scales."""
    rng = np.random.default_rng(seed)
    total = sum(cv2.resize(rng.normal(size=(2**k, 2**k)), (size, size), interpolation=cv2.INTER_CUBIC) for k in range(3, 8))
    return np.clip(120 + 35 * total, 0, 255).astype(np.uint8)


def textured_box(size: tuple[float, float, float], seed: int) -> Any:
    """A box whose every face shows the whole of a texture."""
    box = trimesh.creation.box(size)
    triangles = np.asarray(box.triangles)
    axis = np.abs(box.face_normals).argmax(1)
    uv = np.stack([np.delete(corners, a, 1) / np.delete(size, a) + 0.5 for corners, a in zip(triangles, axis, strict=True)])
    material = trimesh.visual.material.SimpleMaterial(image=Image.fromarray(noise(seed)))
    visual = trimesh.visual.TextureVisuals(uv=uv.reshape(-1, 2), material=material)
    return trimesh.Trimesh(triangles.reshape(-1, 3), np.arange(36).reshape(12, 3), visual=visual, process=False)


def write_model(folder: Path, mesh: Any, file: str) -> None:
    """A Gazebo model of one mesh."""
    (folder / 'meshes').mkdir(parents=True)
    mesh.export(folder / 'meshes' / file)
    (folder / 'model.sdf').write_text(f'<sdf version="1.6"><model name="m"><link name="l"><visual name="v"><geometry><mesh><uri>'
                                      f'model://{folder.name}/meshes/{file}</uri></mesh></geometry></visual></link></model></sdf>')


def write_world(path: Path, models: dict[str, str]) -> None:
    """A world that includes models at their poses."""
    inside = ''.join(INCLUDE.format(name=name, pose=pose) for name, pose in models.items())
    path.write_text(f'<sdf version="1.6"><world name="default">{inside}</world></sdf>')


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source with a textured room of 6 x 5 x 3 m, a textured crate, a plain table (COLLADA), and worlds of them."""
    source = tmp_path_factory.mktemp('scenes') / 'source'
    write_model(source / 'models/room', textured_box((6, 5, 3), 1), 'room.obj')
    write_model(source / 'models/crate', textured_box((0.6, 0.6, 1.2), 2), 'crate.obj')
    write_model(source / 'models/ycb_can', textured_box((0.1, 0.1, 0.2), 3), 'can.obj')
    write_model(source / 'models/table', trimesh.creation.box((1.2, 1.2, 0.8)), 'table.dae')
    write_world(source / 'room.world', {'room': '0 0 1.5 0 0 0', 'crate': '1 0.5 0.6 0 0 0.4', 'table': '-1.5 -1 0.4 0 0 0'})
    write_world(source / 'plain.world', {'table': '0 0 0 0 0 0'})
    write_world(source / 'absent.world', {'nowhere': '0 0 0 0 0 0'})
    return source


@pytest.fixture(scope='module')
def room(folder: Path) -> Scene:
    return Scene(gazebo.load_world('room', folder / 'room.world', [folder / 'models']))


def views_of(scene: Scene, count: int = 3) -> list[check.View]:
    """A cluster that moves sideways past the crate."""
    cameras = [Camera(viewpoints.look(np.array([-2.0, 0.2 * i, 1.2]), 0.1 - 0.1 * i, -0.1), 160, 256, 192) for i in range(count)]
    images = [exposed(scene.radiance(camera, [], 1.0), Exposure(1.0, 0.0)) for camera in cameras]
    return [check.View(f'{i:04d}', 0, camera, image, packing.millimetres(scene.depth(camera)))
            for i, (camera, image) in enumerate(zip(cameras, images, strict=True))]


def listing(name: str = 'room', world: str = 'room.world', **changes: object) -> dict[str, list[dict[str, object]]]:
    """A list of one source and one scene."""
    source = {'name': 'source', 'url': 'nowhere', 'commit': COMMIT, 'licence': 'MIT-0', 'stated_in': 'LICENSE', 'attribution': 'me',
              'models': 'models', 'left_out': 'nothing'}
    return {'sources': [{**source, **changes}], 'scenes': [{'name': name, 'source': 'source', 'world': world}]}


def write_list(path: Path, content: object) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_list_has_allowed_licences_and_exact_commits() -> None:
    entries = sources.load_list()
    assert len(entries) >= 6
    for source in {entry.source.name: entry.source for entry in entries}.values():
        assert source.licence in {'MIT-0', 'CC-BY-3.0', 'CC-BY-4.0'}
        assert len(source.commit) == 40
        assert source.attribution
        assert source.stated_in
        assert 'hospital' not in source.url


@pytest.mark.parametrize(
    ('changes', 'words'),
    [({'licence': 'CC-BY-NC-4.0'}, 'licence CC-BY-NC-4.0 is none of'), ({'commit': 'dd44be6'}, 'not 40 hexadecimal digits'),
     ({'colour': 'red'}, 'colour')],
)
def test_a_source_that_is_not_allowed_is_refused(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(sources.RenderError, match=words):
        sources.load_list(write_list(tmp_path / 'list.yaml', listing(**changes)))


def test_lists_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    content = listing()
    for wrong, words in (([], 'no list'), ({**content, 'scenes': content['scenes'] * 2}, 'twice'),
                         ({**content, 'scenes': [{'name': 'a', 'source': 'b'}]}, 'scene')):
        with pytest.raises(sources.RenderError, match=words):
            sources.load_list(write_list(tmp_path / 'list.yaml', wrong))


def test_a_repository_that_cannot_be_fetched_is_named(tmp_path: Path) -> None:
    source = sources.Source('rooms', str(tmp_path / 'nowhere'), COMMIT, 'MIT-0', 'LICENSE', 'me', 'models', '')
    with pytest.raises(sources.RenderError, match=r'rooms: git fetch .* failed'):
        sources.fetch(source, tmp_path)
    assert not (tmp_path / 'rooms').exists()


def test_a_repository_is_fetched_at_its_commit(tmp_path: Path) -> None:
    origin = tmp_path / 'origin'
    git = ['git', '-C', str(origin), '-c', 'user.name=a', '-c', 'user.email=a@b']
    subprocess.run(['git', 'init', '--quiet', str(origin)], check=True)
    (origin / 'a.world').write_text('<sdf/>')
    subprocess.run([*git, 'add', '.'], check=True)
    subprocess.run([*git, 'commit', '--quiet', '-m', 'a'], check=True)
    commit = subprocess.run([*git, 'rev-parse', 'HEAD'], check=True, capture_output=True, text=True).stdout.strip()
    source = sources.Source('rooms', str(origin), commit, 'MIT-0', 'LICENSE', 'me', 'models', '')
    assert (sources.fetch(source, tmp_path / 'scenes') / 'a.world').exists()


def test_worlds_without_meshes_or_textures_are_named(folder: Path) -> None:
    with pytest.raises(sources.RenderError, match=r'hall: .* no mesh .*missing: model://nowhere'):
        gazebo.load_world('hall', folder / 'absent.world', [folder / 'models'])
    with pytest.raises(sources.RenderError, match=r'hall: .* cannot be read'):
        gazebo.load_world('hall', folder / 'none.world', [folder / 'models'])
    with pytest.raises(sources.RenderError, match='hall: none of its 1 surfaces has a texture'):
        gazebo.require_texture('hall', gazebo.load_world('hall', folder / 'plain.world', [folder / 'models']))


def test_triangles_with_the_same_corners_keep_the_textured_one() -> None:
    triangles, uv = np.random.default_rng(0).random((4, 3, 3)), np.zeros((4, 3, 2))
    plain = gazebo.Surface(triangles, uv, np.full((2, 2), 9, np.uint8))
    textured = gazebo.Surface(triangles[:3], uv[:3], noise(0, 8))
    kept = gazebo._without_duplicates([plain, textured])
    assert [(len(surface.triangles), surface.plain) for surface in kept] == [(3, False), (1, True)]


def test_depth_is_along_the_optical_axis_at_pixel_centres(room: Scene) -> None:
    camera = Camera(viewpoints.look(np.array([1.0, -1.5, 1.5]), 0.0, 0.0), 100, 65, 49)
    depth = room.depth(camera)
    assert depth.shape == (49, 65)
    assert depth[24, 20:45] == pytest.approx(2.0, abs=1e-5)  # the wall at x = 3, in every column
    assert camera.pose[:3, :3] @ [0, 1, 0] == pytest.approx([0, 0, -1])
    assert camera.pose[:3, :3] @ [1, 0, 0] == pytest.approx([0, -1, 0])


def test_textures_have_v_upwards_and_mip_levels() -> None:
    image = np.zeros((64, 64), np.uint8)
    image[:16] = 200
    image[:, :16] += 40
    textures = Textures([np.full((1, 1), 7, np.uint8), image])
    index, uv = np.array([0, 1, 1, 1]), np.array([[0.3, 0.3], [0.5, 0.9], [0.5, 0.1], [1.1, -0.1]])
    assert textures.read(index, uv, np.ones(4)) == pytest.approx([7, 200, 0, 240])
    assert textures.read(index[1:], uv[1:], np.full(3, 500.0)) == pytest.approx(60, abs=2)


def test_lights_are_blocked_by_what_is_between(room: Scene) -> None:
    camera = Camera(viewpoints.look(np.array([-2.0, 0.5, 1.0]), 0.0, -0.2), 60, 64, 48)
    behind = room.radiance(camera, [Light(np.array([1.9, 0.5, 0.6]), 5.0)], 0.0)
    before = room.radiance(camera, [Light(np.array([-1.0, 0.5, 0.6]), 5.0)], 0.0)
    assert behind[24:30, 28:36].max() < 1 < before[24:30, 28:36].min()


def test_viewpoints_that_see_nothing_or_one_wall_are_refused(room: Scene) -> None:
    outside = Camera(viewpoints.look(np.array([4.0, 0, 1.5]), 0.0, 0.0), 300, 512, 384)
    assert 'see nothing' in viewpoints.refusal(room, outside)
    for eye, yaw, words in (([2.9, 0, 1.5], np.pi, 'a surface is nearer'), ([2.9, -2.35, 1.5], 3.1, 'of the pixels are nearer'),
                            ([1.0, -1, 1.5], 0.0, 'one plane'), ([2.5, -1, 1.5], 0.0, 'the median depth is 0.50 m')):
        assert words in viewpoints.refusal(room, replace(outside, pose=viewpoints.look(np.array(eye), yaw, 0.0)))
    assert viewpoints.refusal(room, replace(outside, pose=viewpoints.look(np.array([-2.0, 0, 1.2]), 0.0, -0.1))) == ''


def test_depth_of_another_unit_and_wrong_poses_are_refused(room: Scene) -> None:
    views = views_of(room)
    found = check.check_scene('room', views)
    assert found.correlation > 0.9
    assert found.covisible > 0.5
    for factor in (0.1, 0.5, 2, 10):
        wrong = [replace(view, depth=np.minimum(view.depth * factor, 65_535).astype(np.uint16)) for view in views]
        with pytest.raises(sources.RenderError, match='room: views warped'):
            check.check_scene('room', wrong)
    inverted = [replace(view, camera=replace(view.camera, pose=np.linalg.inv(view.camera.pose))) for view in views]
    with pytest.raises(sources.RenderError, match='Give depth in millimetres'):
        check.check_scene('room', inverted)


def test_depth_is_rounded_by_less_than_a_tenth_of_a_pixel() -> None:
    depth = np.random.default_rng(0).uniform(0.3, 40, (50, 50))
    depth[0, 0] = 0
    error = np.abs(packing.millimetres(depth) / 1000 - depth)
    assert packing.millimetres(depth)[0, 0] == 0
    assert (640 * 0.35 * error[1:] / depth[1:]).max() < 0.5
    assert error.max() <= 0.008
    assert packing.millimetres(np.array([100.0])) == 0


def test_a_pack_is_read_back_and_keeps_clusters_whole(room: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = views_of(room)
    monkeypatch.setattr(packing, 'PART_BYTES', 420_000)
    pack = packing.Pack(tmp_path)
    for cluster in range(4):
        pack.add('room', [replace(view, cluster=cluster, name=f'{3 * cluster + i:04d}') for i, view in enumerate(views)])
    assert not list(tmp_path.glob('*.tar'))
    parts = pack.finish()
    assert len(parts) > 1
    assert max(part.stat().st_size for part in parts) < packing.PART_BYTES
    read = packing.read_pack(tmp_path)['room']
    assert [view.cluster for view in read] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert np.array_equal(read[4].depth, views[1].depth)
    assert read[4].camera.pose == pytest.approx(views[1].camera.pose, abs=1e-6)
    assert np.abs(read[4].image.astype(int) - views[1].image).mean() < 3
    check.check_scene('room', read)


def test_photographs_go_onto_plain_surfaces_and_some_walls(folder: Path) -> None:
    world = gazebo.load_world('room', folder / 'room.world', [folder / 'models'])
    photographs = np.stack([noise(5, 256), noise(6, 256)])
    changed = retexture.retexture(world, photographs, 1.0, np.random.default_rng(0))
    assert changed.count == world.count
    assert sum(surface.plain for surface in world.surfaces) == 1
    assert not any(surface.plain for surface in changed.surfaces)
    crate = next(surface for surface in world.surfaces if surface.areas.sum() < 4 and not surface.plain)
    assert any(surface is crate for surface in changed.surfaces)
    drawn = [retexture.retexture(world, photographs, 1.0, np.random.default_rng(seed)) for seed in range(8)]
    walls = next(surface for surface in world.surfaces if surface.areas.sum() > 60)
    assert 0 < sum(any(surface is walls for surface in other.surfaces) for other in drawn) < 8
    assert retexture.retexture(world, photographs, 0.0, np.random.default_rng(0)) is world


def test_objects_stand_on_level_surfaces(folder: Path) -> None:
    world = gazebo.load_world('room', folder / 'room.world', [folder / 'models'])
    changed, groups = retexture.put_objects(world, gazebo.bounds(world), folder / 'models', 12, np.random.default_rng(0))
    assert len(groups)
    feet = [float(surface.triangles[..., 2].min()) for surface in changed.surfaces[len(world.surfaces):]]
    assert len(feet) >= 6
    assert all(min(abs(foot), abs(foot - 0.8), abs(foot - 1.2)) < 1e-4 for foot in feet)  # the floor, the table or the crate


def test_the_command_leaves_out_scenes_that_cannot_be_used(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (('VIEWS', 3), ('SIZE', (256, 192)), ('CORNERS', 100)):
        monkeypatch.setattr(viewpoints, name, value)
    content = listing()
    content['scenes'] += [{'name': name, 'source': 'source', 'world': f'{name}.world'} for name in ('plain', 'absent')]
    arguments = ['--scenes', str(folder.parent), '--list', str(write_list(tmp_path / 'list.yaml', content)), '--views', '3']
    assert make.main([*arguments, '--out', str(tmp_path / 'views')]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith('room: 36 triangles')
    assert printed[1].startswith('left out: plain: none of its')
    assert printed[2].startswith('left out: absent: ')
    assert printed[3].startswith('3 views in 1 parts')
    read = packing.read_pack(tmp_path / 'views')['room']
    assert [view.image.shape for view in read] == [(192, 256)] * 3
    assert cv2.imread(str(tmp_path / 'views/sheet.png')) is not None
    assert make.main([*arguments, '--out', str(tmp_path / 'none'), '--only', 'plain']) == 1
    assert 'no scene can be used' in capsys.readouterr().err
    assert make.main([*arguments, '--out', str(tmp_path / 'none'), '--only', 'unknown']) == 1
    assert 'no such scene' in capsys.readouterr().err


def test_the_truth_of_a_flight_fits_its_images(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                               monkeypatch: pytest.MonkeyPatch, room: Scene) -> None:
    for name, value in (('SIZE', (256, 192)), ('CORNERS', 100)):
        monkeypatch.setattr(viewpoints, name, value)
    monkeypatch.setattr(flight, 'SIZE', (256, 192))
    out = tmp_path / 'bag'
    arguments = ['--world', str(folder / 'room.world'), '--models', str(folder / 'models'), '--frames', '5', '--speed', '0.1']
    assert flight.main([*arguments, '--out', str(out)]) == 0
    assert capsys.readouterr().out.startswith(f'{out}: 5 frames, 0.')
    recording = open_recording(out)
    intrinsics, truth = recording.intrinsics, load_ground_truth(recording)
    assert intrinsics is not None
    cameras = [Camera(pose, float(intrinsics.k[0, 0]), 256, 192) for pose in truth.poses]
    steps = [float(np.linalg.norm(second.pose[:3, 3] - first.pose[:3, 3])) for first, second in pairwise(cameras)]
    assert all(0.01 < step < 0.11 for step in steps), 'it moves, at about the speed'
    views = [check.View(str(number), 0, camera, image, packing.millimetres(room.depth(camera)))
             for number, (image, camera) in enumerate(zip(gray_images(out), cameras, strict=True))]
    check.check_scene('flight', views)
    assert flight.main([*arguments, '--out', str(out)]) == 1
    assert 'error: ' in capsys.readouterr().err, 'a bag is not overwritten'


def test_a_flight_without_room_or_texture_says_so(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = ['--world', str(folder / 'plain.world'), '--models', str(folder / 'models'), '--out', str(tmp_path / 'bag')]
    assert flight.main(world) == 1
    assert capsys.readouterr().err.startswith('error: ')
    assert not (tmp_path / 'bag').exists()
