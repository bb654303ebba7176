"""Rendered views with depth as training pairs: packs, transfer, occlusion, and batches mixed with planes."""

import io
import tarfile
from pathlib import Path

import cv2
import numpy as np
import pytest

torch = pytest.importorskip('torch', reason='PyTorch, which the training room alone needs, is not installed: make parity')

from training.losses.matcher import true_matches
from training.photographs import NoPhotographsError, drawings
from training.scenes.mixed_views import MixedScenes, MixedViews
from training.scenes.rendered_views import FAR, RenderedScenes, load_views
from training.scenes.views import Scenes, other

HEIGHT, WIDTH, FOCAL = 96, 128, 100.0
WALL, BOX = 4.0, 2.0  # metres


def view(texture: np.ndarray, x: float) -> tuple[np.ndarray, np.ndarray]:
    """Gray and depth of a wall, and of a box before its middle, from a camera at (x, 0, 0) that looks along z."""
    v, u = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    rays = (u - (WIDTH - 1) / 2) / FOCAL, (v - (HEIGHT - 1) / 2) / FOCAL
    depth = np.where((np.abs(rays[0] * BOX + x) < 0.4) & (np.abs(rays[1] * BOX) < 0.4), BOX, WALL).astype(np.float32)
    on = [((ray * depth + shift) * 100 + middle).astype(np.float32)
          for ray, shift, middle in zip(rays, (x, 0), (400, 300), strict=True)]
    return cv2.remap(texture, *on, cv2.INTER_LINEAR), depth


def pack(folder: Path, places: list[float], unseen: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    texture, table, files = drawings(1, 5)[0], ['name,cluster,focal,tx,ty,tz,qx,qy,qz,qw'], {}
    for i, x in enumerate(places):
        image, depth = view(texture, x)
        files[f'room/{i:04}.jpg'] = cv2.imencode('.jpg', image, [cv2.IMWRITE_JPEG_QUALITY, 98])[1].tobytes()
        millimetres = np.zeros_like(depth, np.uint16) if unseen else (depth * 1000).astype(np.uint16)
        files[f'room/{i:04}.depth.png'] = cv2.imencode('.png', millimetres)[1].tobytes()
        table.append(f'{i:04},0,{FOCAL},{x},0,0,0,0,0,1')
    files['room/views.csv'] = '\n'.join(table).encode()
    with tarfile.open(folder / 'views.00.tar', 'w') as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return folder


def scenes(folder: Path, seed: int = 1) -> RenderedScenes:
    return RenderedScenes(load_views(folder), HEIGHT, WIDTH, seed, torch.device('cpu'))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return pack(tmp_path_factory.mktemp('views'), [0.0, 0.3, 0.5])


def test_points_move_by_their_parallax_and_what_is_hidden_is_not_visible(folder):
    rendered = scenes(folder)
    views = rendered._views(torch.tensor([0, 2]), torch.eye(3).expand(2, 3, 3))
    wall, box, covered = [20.0, 10.0], [63.5, 47.5], [36.0, 47.5]  # the last: hidden by the box in the second view
    there, visible = views.transfer(torch.tensor([[wall, box, covered], [wall, [40.0, 47.5], [120.0, 47.5]]]))
    on_wall, on_box = 0.5 * FOCAL / WALL, 0.5 * FOCAL / BOX  # pixels that they move to the left in the second view
    torch.testing.assert_close(there[0], torch.tensor([[20 - on_wall, 10], [63.5 - on_box, 47.5], [36 - on_wall, 47.5]]))
    torch.testing.assert_close(there[1], torch.tensor([[20 + on_wall, 10], [40 + on_box, 47.5], [120 + on_wall, 47.5]]))
    assert visible.tolist() == [[True, True, False], [True, True, False]]  # the last leaves the first view


def test_corresponding_pixels_of_rotated_mirrored_views_look_alike(folder):
    rendered = scenes(folder)
    rendered.random.generator.manual_seed(4)
    views = rendered._views(torch.tensor([0, 1, 0, 1, 1, 2, 2, 2]), rendered._motion(4))
    points = torch.rand(8, 500, 2) * torch.tensor([WIDTH - 1.0, HEIGHT - 1.0])
    there, visible = views.transfer(points)
    assert 0.3 < visible.float().mean() < 1
    size = torch.tensor([(WIDTH - 1) / 2, (HEIGHT - 1) / 2])
    here, then = (torch.nn.functional.grid_sample(images, (p / size - 1)[:, None], align_corners=True)[:, 0, 0]
                  for images, p in ((views.images, points), (other(views.images), there)))
    assert ((here - then).abs()[visible]).median() < 0.02
    back, _ = type(views)(other(views.images), other(views.foreign), other(views.depths), other(views.rays), other(views.cameras),
                          other(views.across)).transfer(there)
    assert (back - points).abs()[visible].max() < 3  # of the nearest pixel's depth, at outlines


def test_pairs_are_those_of_a_cluster_that_see_each_other(tmp_path, folder):
    assert scenes(folder).pairs.tolist() == [[0, 1], [0, 2], [1, 2]]
    far = pack(tmp_path / 'far', [0.0, 0.2, 40.0])
    assert scenes(far).pairs.tolist() == [[0, 1]]
    with pytest.raises(NoPhotographsError, match='no two of 2 rendered views see 15% of each other'):
        scenes(pack(tmp_path / 'apart', [0.0, 40.0]))


def test_empty_view_is_far_and_pair_without_overlap_has_no_matches(tmp_path, folder):
    unseen = load_views(pack(tmp_path / 'unseen', [0.0, 0.3], unseen=True))
    assert (unseen.depths == FAR).all()
    rendered = scenes(folder)
    rendered.poses[2, 0, 3] = 100.0  # metres: nothing is shared any more
    views = rendered._views(torch.tensor([0, 2]), torch.eye(3).expand(2, 3, 3))
    truth = true_matches(torch.rand(2, 50, 2) * 90, views)
    assert (truth.partners == -1).all()
    assert truth.alone.all()


def test_no_views_is_one_line(tmp_path):
    with pytest.raises(NoPhotographsError, match=r'views\.NN\.tar with views: python -m training\.rendered\.make writes them'):
        load_views(tmp_path)


def test_mixed_batches_keep_the_rows_of_each_pair_together(folder):
    planes = Scenes(torch.from_numpy(drawings(4, 0)), HEIGHT, WIDTH, seed=3)
    views = MixedScenes(planes, scenes(folder), 0.4).draw(5)
    assert isinstance(views, MixedViews)
    assert views.images.shape == (10, 1, HEIGHT, WIDTH)
    assert torch.equal(views.images[:3], views.planes.images[:3])
    assert torch.equal(views.images[8:], views.rendered.images[2:])
    points = torch.rand(10, 40, 2) * 90
    there, visible = views.transfer(points)
    on_planes, seen = views.planes.transfer(torch.cat([points[:3], points[5:8]]))
    assert torch.equal(torch.cat([there[:3], there[5:8]]), on_planes)
    assert torch.equal(torch.cat([visible[:3], visible[5:8]]), seen)
    rendered, _ = views.rendered.transfer(torch.cat([points[3:5], points[8:]]))
    assert torch.equal(torch.cat([there[3:5], there[8:]]), rendered)
