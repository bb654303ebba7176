"""What stands still in the training's images: the same in both views, and no part of the scene."""

from typing import Any

import cv2
import numpy as np
import pytest

torch = pytest.importorskip('torch', reason='PyTorch, which the training room alone needs, is not installed: make parity')

from training.extractor import ExtractorSettings, train_extractor
from training.losses.detector import NO_KEYPOINT, detector_targets
from training.losses.imitation import imitation_loss
from training.losses.matcher import true_matches
from training.losses.placement import find_returns
from training.losses.reliability import reliability_loss
from training.networks.superpoint import FoldedSuperPoint, SuperPoint
from training.photographs import drawings
from training.processes import Processes
from training.scenes.geometry import Mixture
from training.scenes.random import Random
from training.scenes.standing import KINDS, jpeg, stand
from training.scenes.views import Scenes
from training.schedule import Schedule
from training.train import TOY_EXTRACTOR

HEIGHT, WIDTH = 96, 128
OF_THE_LINK = ('_blocks', '_interlace')  # what they add depends on what the scene shows


@pytest.fixture(scope='module')
def photographs():
    torch.set_num_threads(1)
    return torch.from_numpy(drawings(6, 0))


@pytest.fixture(scope='module')
def views(photographs):
    return Scenes(photographs, HEIGHT, WIDTH, seed=3, mixture=Mixture(standing=1.0)).draw(24)


def gray(pairs: int, *levels: float) -> Any:
    return torch.cat([torch.full((pairs, 1, HEIGHT, WIDTH), level) for level in levels])


@pytest.mark.parametrize('kind', [kind for _, kind in KINDS if kind.__name__ not in OF_THE_LINK], ids=lambda kind: kind.__name__)
def test_static_pattern_is_shared_by_a_pair_and_differs_in_the_next(kind, photographs):
    random = Random(7, torch.device('cpu'))
    images, _ = kind(random, gray(8, 0.5, 0.5), photographs)
    smooth = torch.nn.functional.avg_pool2d(images, 4)[:, 0]
    same, others = (smooth[:8] - smooth[8:]).abs().mean(), (smooth[:8] - smooth[8:].roll(1, 0)).abs().mean()
    assert same < 0.5 * others


def test_static_pattern_covers_a_share_of_pairs_and_spares_the_rest(photographs):
    plain = gray(200, 0.4, 0.6)
    images, foreign = stand(Random(1, torch.device('cpu')), plain, photographs, 0.3)
    touched = ((images != (plain * 255).round() / 255).flatten(1).any(1)).reshape(2, 200).any(0)
    assert 0.1 < touched.float().mean() < 0.4  # blocks and interlaced rows leave a flat image as it is
    assert 0 < foreign.float().mean() < 0.1
    assert not foreign.reshape(2, 200, -1)[:, ~touched].any()
    assert torch.equal(stand(Random(1, torch.device('cpu')), plain, photographs, 0.0)[0], plain)


@pytest.mark.parametrize('quality', [10, 30, 60])
def test_blocks_are_those_of_a_real_jpeg(quality):
    rng = np.random.default_rng(0)
    image = cv2.GaussianBlur(rng.uniform(0, 255, (HEIGHT, WIDTH)).astype(np.float32), (0, 0), 2)
    image = cv2.normalize(image, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)
    real = cv2.imdecode(cv2.imencode('.jpg', image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_GRAYSCALE)
    ours = jpeg(torch.from_numpy(image)[None, None].float() / 255, torch.tensor([float(quality)]))[0, 0].numpy() * 255
    error = np.abs(real.astype(np.float32) - image).mean()
    assert np.abs(ours - real).mean() < 0.1 * error


def test_standing_camera_pairs_every_point_with_its_own_pixel(photographs):
    views = Scenes(photographs, HEIGHT, WIDTH, seed=3, mixture=Mixture(standing=1.0, still=1.0)).draw(16)
    points = torch.rand(32, 50, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([WIDTH - 1.0, HEIGHT - 1.0])
    transferred, visible = views.transfer(points)
    torch.testing.assert_close(transferred, points, atol=1e-3, rtol=0)
    assert visible.all()
    torch.testing.assert_close(views.clean[:16], views.clean[16:], atol=2e-3, rtol=0)


def test_a_share_of_the_cameras_stands_and_no_other_pair_is_the_same_view(photographs):
    views = Scenes(photographs, 48, 64, seed=3, mixture=Mixture(still=0.4)).draw(100)
    alike = (views.clean[:100] - views.clean[100:]).abs().flatten(1).amax(1) < 2e-3
    assert 25 < alike.sum() < 55


def test_points_on_foreign_structure_have_no_partner_and_no_keypoint(views):
    assert 0.01 < views.foreign.float().mean() < 0.5
    chosen = [row for row, foreign in enumerate(views.foreign) if foreign.sum() > 300]
    every = torch.full((len(views.images), 40, 2), 5.0)
    for row in chosen:
        every[row] = torch.nonzero(views.foreign[row])[::7][:40].flip(1).float()
    _, visible = views.transfer(every)
    assert not visible[chosen].any()
    assert (true_matches(every, views).partners[chosen] < 0).all()
    returns = find_returns(every, views)
    assert returns.foreign[chosen].all()
    targets = detector_targets(views, 50)
    hidden = -torch.nn.functional.max_pool2d(-views.foreign[:, None].float(), 8)[:, 0] > 0
    assert (targets[hidden] == NO_KEYPOINT).all()
    scores = torch.full((len(views.images), 1, HEIGHT, WIDTH), 0.5, requires_grad=True)
    nothing = torch.zeros(returns.same.shape, dtype=torch.bool)
    reliability_loss(scores, every.long(), returns, nothing).backward()
    assert (scores.grad.flatten(1)[chosen].amax(1) > 0).all()  # the score falls


def test_imitation_loss_wants_no_keypoint_where_scene_is_hidden():
    generator = torch.Generator().manual_seed(0)
    wide, descriptors = torch.randn(1, 65, 2, 3, generator=generator), torch.randn(1, 8, 2, 3, generator=generator)
    foreign = torch.zeros(1, 16, 24, dtype=torch.bool)
    foreign[0, 3, 5] = True  # in the first cell
    logits, other = wide.clone(), descriptors.clone()
    logits[:, :, 0, 0], other[:, :, 0, 0] = -20.0, -other[:, :, 0, 0]
    logits[:, NO_KEYPOINT, 0, 0] = 20.0
    assert imitation_loss(logits, other, wide, descriptors, foreign) < imitation_loss(wide, descriptors, wide, descriptors, foreign)
    assert imitation_loss(logits, other, wide, descriptors) > imitation_loss(wide, descriptors, wide, descriptors)


def test_an_extractor_that_goes_on_begins_with_the_same_answers(photographs):
    torch.manual_seed(0)
    before = SuperPoint(TOY_EXTRACTOR.widths)
    tensors = before.eval().exported()
    images = photographs[:2, None, :HEIGHT, :WIDTH].float() / 255
    after = SuperPoint(TOY_EXTRACTOR.widths)
    after.take(tensors, images)
    for expected, answer, training in zip(before(images), after.eval()(images), after.train()(images), strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(training, expected, rtol=1e-3, atol=1e-3)
    for expected, answer in zip(before(images), FoldedSuperPoint(after.exported())(images), strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-2, atol=1e-2)


def test_an_extractor_is_trained_further_on_what_stands_still(photographs, tmp_path):
    torch.manual_seed(0)
    tensors = SuperPoint(TOY_EXTRACTOR.widths).exported()
    settings = ExtractorSettings(HEIGHT, WIDTH, 2, 40, widths=TOY_EXTRACTOR.widths, mixture=Mixture(standing=0.8))
    scorer = lambda part: torch.ones_like(part, dtype=torch.float16)  # noqa: E731
    assert train_extractor(photographs.numpy(), scorer, tmp_path, Processes(), Schedule(5), 1, settings, tensors, initial=tensors)
    trained = torch.load(tmp_path / 'extractor.weights.pt', weights_only=True)
    moved = max(float((trained[name] - tensors[name]).abs().max()) for name in tensors)
    assert 0 < moved < 0.1
