"""The training room: scenes, losses, networks against the package's graphs, and a training at toy size from end to end."""

import json
import math
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.random_pairs import write_pair

from lightglue_trt_ros.core.score_calibration import ScoreCalibration
from lightglue_trt_ros.networks.models import load_model
from lightglue_trt_ros.networks.weight_folding import SHARPNESS

torch = pytest.importorskip('torch', reason='PyTorch, which the training room alone needs, is not installed: make parity')

from training.extractor import ExtractorSettings, train_extractor
from training.losses.detector import NO_KEYPOINT, detector_targets
from training.losses.distillation import distillation_loss, log_assignment, soft_assignment
from training.losses.imitation import imitation_loss
from training.losses.matcher import MatcherLoss, assignment_loss, earlier_targets, true_matches
from training.losses.placement import distances, find_returns, placement_loss
from training.networks.keypoints import refine, sample_descriptors, score_map, strongest, suppress_non_maxima
from training.networks.lightglue import LightGlue, normalize_positions
from training.networks.superpoint import FoldedSuperPoint, SuperPoint
from training.photographs import NoPhotographsError, drawings, load_photographs
from training.processes import Processes
from training.run import CheckpointMismatchError, read_tensors
from training.scenes.corners import corner_scores
from training.scenes.geometry import FLAT, PLANES, Mixture, draw_geometry
from training.scenes.matrices import inverse, rotation
from training.scenes.random import Random
from training.scenes.views import Scenes, TwoViews, other
from training.schedule import Schedule
from training.scores import Matched, fit, fitted, record_of, true_errors
from training.scores import main as scores
from training.teacher import Teacher
from training.train import TOY_EXTRACTOR, main
from training.weight_files import first_layers, with_descriptor_assignment

HEIGHT, WIDTH = 96, 128


@pytest.fixture(scope='module')
def views():
    torch.set_num_threads(1)
    return Scenes(torch.from_numpy(drawings(6, 0)), HEIGHT, WIDTH, seed=3).draw(8)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('photographs')
    for i, image in enumerate(drawings(6, 1)):
        cv2.imwrite(str(folder / f'{i}.png'), image)
    return folder


def still(batch: int = 1, shift: float = 0.0) -> TwoViews:
    """Pairs whose second view is the first, moved to the right."""
    across = torch.eye(3).expand(2 * batch, PLANES, 3, 3).clone()
    across[:batch, :, 0, 2], across[batch:, :, 0, 2] = shift, -shift
    flat = torch.zeros(2 * batch, 1, HEIGHT, WIDTH)
    nothing = torch.zeros(2 * batch, HEIGHT, WIDTH)
    return TwoViews(flat, flat, flat, nothing.bool(), flat.clone(), nothing.long(), across)


def test_small_matrices_are_those_of_the_general_solvers():
    generator = torch.Generator().manual_seed(0)
    m = torch.eye(3) + 0.4 * torch.randn(20, 3, 3, generator=generator)
    torch.testing.assert_close(inverse(m), torch.linalg.inv(m), rtol=1e-3, atol=1e-3)
    w = torch.randn(20, 3, generator=generator)
    k = torch.zeros(20, 3, 3)
    k[:, 0, 1], k[:, 0, 2], k[:, 1, 0], k[:, 1, 2], k[:, 2, 0], k[:, 2, 1] = -w[:, 2], w[:, 1], w[:, 2], -w[:, 0], -w[:, 1], w[:, 0]
    torch.testing.assert_close(rotation(w), torch.linalg.matrix_exp(k), rtol=1e-4, atol=1e-5)


def test_a_point_shows_the_same_in_both_views(views):
    generator = torch.Generator().manual_seed(0)
    points = (torch.rand(16, 800, 2, generator=generator) * torch.tensor([WIDTH - 1, HEIGHT - 1])).round()
    there, visible = views.transfer(points)
    assert 0.3 < visible.float().mean() < 0.98
    here = views.clean.flatten(1).gather(1, (points[..., 1] * WIDTH + points[..., 0]).long())
    grid = there / torch.tensor([WIDTH - 1, HEIGHT - 1]) * 2 - 1
    seen = torch.nn.functional.grid_sample(other(views.clean), grid[:, None], align_corners=True)[:, 0, 0]
    difference = (here - seen).abs()[visible]
    assert difference.median() < 0.01
    assert difference.quantile(0.8) < 0.08


def test_transfer_there_and_back_ends_where_it_began(views):
    points = torch.rand(16, 200, 2) * torch.tensor([WIDTH - 1, HEIGHT - 1])
    there, visible = views.transfer(points)
    reverse = TwoViews(*(other(values) for values in vars(views).values()))
    back, again = reverse.transfer(there)
    both = visible & again
    assert both.float().mean() > 0.3
    assert (back - points)[both].abs().max() < 0.05


def test_the_same_seed_gives_the_same_scenes_and_another_one_others():
    photographs = torch.from_numpy(drawings(3, 0))
    first, second, third = (Scenes(photographs, 48, 64, seed).draw(2).images for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_pairs_of_views_come_nearer_each_other_with_ease():
    photographs = torch.from_numpy(drawings(4, 0))
    centre = torch.tensor([[[31.5, 23.5]]])

    def moved(ease: float) -> float:
        views = Scenes(photographs, 48, 64, seed=1, mixture=Mixture(ease=ease)).draw(24)
        there, seen = views.transfer(centre.repeat(48, 1, 1))
        return float((there - centre).norm(dim=-1)[seen].median())

    assert moved(3.0) < 0.7 * moved(1.0)


def test_the_mixture_says_how_many_cameras_are_turned():
    none, half, all_of_them = (
        draw_geometry(Random(1, torch.device('cpu')), 400, 48, 64, 600, 800, Mixture(8.0, turned=share)).across[:400, 0, 1, 0].abs()
        for share in (0.0, 0.5, 1.0))  # the sine of the angle, with the scale
    counts = [int((sines > 0.5).sum()) for sines in (none, half, all_of_them)]
    assert counts[0] < 20
    assert 100 < counts[1] < 180  # the sine of two angles in three is larger
    assert 230 < counts[2] < 310


def test_reach_moves_cameras_apart_and_leaves_homographies_unchanged():
    near, far = (draw_geometry(Random(1, torch.device('cpu')), 400, 48, 64, 600, 800, mixture).across[:400, 0]
                 for mixture in (Mixture(ease=2.0), Mixture(ease=2.0, reach=2.0)))
    flat = (near == far).all(-1).all(-1)
    assert flat.float().mean() == pytest.approx(FLAT, abs=0.08)
    shift = [(across[~flat] - torch.eye(3))[:, :2, 2].norm(dim=-1) for across in (near, far)]
    assert (shift[1] / shift[0]).median() > 1.2  # some are rotated about the axis, which shifts them more


def test_views_that_are_near_each_other_show_the_same_size():
    views = Scenes(torch.from_numpy(drawings(4, 0)), 48, 64, seed=1, mixture=Mixture(ease=50.0)).draw(24)
    ends = torch.tensor([[[26.5, 23.5], [36.5, 23.5]]]).repeat(48, 1, 1)
    there, seen = views.transfer(ends)
    length = (there[:, 0] - there[:, 1]).norm(dim=-1)[seen.all(1)]
    assert len(length) > 24
    assert float((length / 10).log().abs().quantile(0.8)) < 0.05


def test_targets_are_the_teachers_peaks_that_return():
    pair = still()
    pair.scores[0, 0, 40, 40], pair.scores[1, 0, 41, 41] = 0.5, 0.4  # found again, a pixel beside
    pair.scores[0, 0, 60, 80] = 0.5  # not found again
    pair.scores[:, 0, 20, 20] = 0.005  # too faint
    pair.scores[:, 0, 20, 100] = 0.5
    pair.planes[:, :, 101:] = 1  # cut off by another plane
    targets = detector_targets(pair, 20)
    assert targets[0, 5, 5] == 0  # the cell's first pixel
    assert targets[1, 5, 5] == 9  # a row and a column further
    assert (targets != NO_KEYPOINT).sum() == 2


def test_placement_is_judged_under_the_true_motion():
    pair = still(shift=10.0)
    points = torch.tensor([[[30.0, 30.0], [50.0, 60.0]], [[40.0, 30.0], [60.0, 61.0]]])
    returns = find_returns(points, pair)
    assert returns.same.all()
    assert returns.distance[0].tolist() == [0, 1]
    assert placement_loss(points, pair, returns) == pytest.approx(math.log(5) / 2)  # of 0 and of 1 pixel, in both directions
    points.requires_grad_()
    placement_loss(points, pair, returns).backward()
    assert points.grad[0, 1, 1] > 0 or points.grad[0, 1, 1] < 0


def test_true_matches_agree_in_both_directions():
    pair = still(shift=10.0)
    points = torch.tensor([[[30.0, 30.0], [50.0, 60.0], [100.0, 20.0], [10.0, 80.0]],
                           [[60.5, 60.0], [40.0, 30.5], [60.0, 90.0], [23.0, 80.0]]])
    truth = true_matches(points, pair)
    assert truth.partners.tolist() == [[1, 0, -1, -1], [1, 0, -1, -1]]
    assert truth.alone.tolist() == [[False, False, True, False], [False, False, True, False]]  # the last: 3 pixels off


def test_the_assignments_loss_is_that_of_the_dense_assignment():
    generator = torch.Generator().manual_seed(0)
    similarity, logits = torch.randn(2, 5, 5, generator=generator), torch.randn(4, 5, generator=generator)
    partners = torch.tensor([[1, -1, 0, -1, -1], [-1, 3, -1, -1, -1], [2, 0, -1, -1, -1], [-1, -1, -1, 1, -1]])
    alone = torch.zeros(4, 5, dtype=torch.bool)
    alone[0, 1] = alone[3, 0] = True
    loss, matches = assignment_loss(similarity, logits, partners, alone)
    sure = torch.nn.functional.logsigmoid(logits)
    dense = similarity.log_softmax(1) + similarity.log_softmax(2) + sure[:2, :, None] + sure[2:, None]
    expected = (-(dense[0, 0, 1] + dense[0, 2, 0]) / 2 + 0.5 * torch.nn.functional.softplus(logits[0, 1])
                - dense[1, 1, 3] + 0.5 * torch.nn.functional.softplus(logits[3, 0])) / 2
    torch.testing.assert_close(loss, expected)
    best, index = dense.max(2)
    assert torch.equal(matches[:2], torch.where(best.exp() > 0.1, index, -1))


def test_early_layer_targets_follow_last_layer_without_ground_truth():
    partners = torch.tensor([[1, -1, -1, -1], [-1, 0, -1, -1]])
    alone = torch.tensor([[False, True, False, False], [False, False, False, False]])
    last = torch.tensor([[0, 1, 2, 3], [0, -1, 2, 0]])  # points 2 match each other, points 3 do not choose each other
    followed, unmatched = earlier_targets(last, partners, alone)
    assert followed.tolist() == [[1, -1, 2, -1], [-1, 0, 2, -1]]
    assert unmatched.tolist() == [[False, True, False, True], [False, False, False, True]]


def test_a_point_whose_partner_has_a_ground_truth_is_asked_nothing():
    partners = torch.tensor([[-1, 0], [1, -1]])  # row 1 of the first view and row 0 of the second belong together
    last = torch.tensor([[0, -1], [0, -1]])  # the last layer matches row 0 of the first to it instead
    followed, unmatched = earlier_targets(last, partners, torch.zeros(2, 2, dtype=torch.bool))
    assert followed.tolist() == [[-1, 0], [1, -1]]
    assert unmatched.tolist() == [[False, False], [False, True]]


def test_the_matcher_learns_what_belongs_together():
    torch.manual_seed(0)
    count, pairs = 24, 4
    order = torch.stack([torch.randperm(count) for _ in range(pairs)])
    first = torch.randn(pairs, count, 32)
    second = first.gather(1, order.argsort(1)[..., None].expand(-1, -1, 32)) + 0.3 * torch.randn(pairs, count, 32)
    partners = torch.cat([order, order.argsort(1)])
    loss = MatcherLoss(LightGlue(width=64, layers=2, descriptor=32))
    optimizer = torch.optim.AdamW(loss.parameters(), lr=3e-3)
    positions, described = torch.rand(2 * pairs, count, 2), torch.cat([first, second])
    seen = []
    for _ in range(60):
        value, figures = loss(positions, described, partners, torch.zeros_like(partners, dtype=torch.bool))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        seen.append(value.item())
    assert seen[-1] < 0.3 * seen[0]
    assert figures[2] > 0.9  # of the pairs are found


def test_a_deep_matchers_answer_as_the_ground_truth_gives_the_same_loss():
    generator = torch.Generator().manual_seed(0)
    similarity, logits = torch.randn(2, 5, 5, generator=generator), torch.randn(4, 5, generator=generator)
    partners = torch.tensor([[1, -1, 0, -1, -1], [-1, 3, -1, -1, -1], [2, 0, -1, -1, -1], [-1, -1, -1, 1, -1]])
    soft = soft_assignment(60 * torch.nn.functional.one_hot(partners[:2].clamp_min(0), 5) * (partners[:2] >= 0)[..., None],
                           torch.where(partners >= 0, 30.0, -30.0))
    expected, _ = assignment_loss(similarity, logits, partners, partners < 0)
    torch.testing.assert_close(distillation_loss(similarity, logits, soft), expected, rtol=1e-4, atol=1e-4)
    own = soft_assignment(similarity, logits)
    torch.testing.assert_close(own.matches, log_assignment(similarity, logits).exp())
    assert distillation_loss(similarity, logits, own) < distillation_loss(similarity + 1.5 * torch.eye(5), logits - 1, own)


def test_shallow_matcher_learns_from_deep_one_without_ground_truth():
    torch.manual_seed(0)
    deep = LightGlue(width=64, layers=3, descriptor=32).requires_grad_(False)
    positions, described = torch.rand(4, 16, 2), torch.randn(4, 16, 32)
    soft, nothing = soft_assignment(*deep(positions, described)), torch.full((4, 16), -1)
    similarity, logits = deep(positions, described)
    least = distillation_loss(similarity, logits, soft).item()
    loss = MatcherLoss(LightGlue(width=64, layers=2, descriptor=32))
    optimizer = torch.optim.AdamW(loss.parameters(), lr=3e-3)
    apart = []
    for _ in range(40):
        value, _ = loss(positions, described, nothing, torch.zeros(4, 16, dtype=torch.bool), soft)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        similarity, logits = loss.network(positions, described)
        apart.append(distillation_loss(similarity, logits, soft).item() - least)
    assert apart[-1] < 0.5 * apart[0]


@pytest.mark.parametrize('stem', [False, True])
def test_the_folded_extractor_is_the_trained_one(stem):
    torch.manual_seed(0)
    network = SuperPoint((8, 8, 16, 16, 32), stem=stem)
    network(torch.rand(4, 1, 64, 64))  # running statistics of their own
    network.eval()
    image = torch.rand(1, 1, 64, 96)
    for trained, folded in zip(network(image), FoldedSuperPoint(network.exported())(image), strict=True):
        torch.testing.assert_close(trained, folded, rtol=1e-4, atol=1e-4)


def test_corners_are_those_of_boxes_whichever_way_up():
    image = np.full((96, 128), 60, np.uint8)
    cv2.rectangle(image, (30, 20), (90, 70), 200, -1)
    upright = corner_scores(torch.from_numpy(image)[None])
    pixels, _ = strongest(suppress_non_maxima(upright[:, None].float()), 4)
    corners = torch.tensor([[30, 20], [90, 20], [30, 70], [90, 70]]).float()
    assert torch.cdist(corners, pixels[0].float()).min(1).values.max() < 2
    turned = corner_scores(torch.from_numpy(np.rot90(image).copy())[None])
    torch.testing.assert_close(turned.rot90(-1, (1, 2)), upright, atol=0.05, rtol=0.01)
    assert corner_scores(torch.full((1, 64, 64), 90, dtype=torch.uint8)).max() == 0


def test_teacher_repeats_keypoints_under_rotation_unlike_aliked():
    teacher = Teacher(torch.device('cpu'))
    photograph = torch.from_numpy(drawings(1, 4))[:, :320, :480]
    turned = photograph.rot90(1, (1, 2))
    for scorer, low, high in ((teacher, 0.9, 1), (lambda images: teacher.aliked(images[:, None].float() / 255)[:, 0], 0, 0.4)):
        here, there = (strongest(suppress_non_maxima(scores[:, None].float()), 60)[0][0].float()
                       for scores in (scorer(photograph), scorer(turned).rot90(-1, (1, 2))))
        assert low <= (torch.cdist(here, there).min(1).values <= 1).float().mean() <= high


@pytest.mark.parametrize('name', ['ours', 'ours_light'])  # with a stem, and without
def test_keypoints_and_descriptors_are_those_of_the_packages_graph(name):
    from lightglue_trt_ros.core.config import EngineSpec
    from lightglue_trt_ros.networks.models import load_model
    from lightglue_trt_ros.networks.superpoint import superpoint
    onnxruntime = pytest.importorskip('onnxruntime')
    weights = load_model(name).extractor
    image = cv2.resize(drawings(1, 5)[0], (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    session = onnxruntime.InferenceSession(superpoint(EngineSpec(HEIGHT, WIDTH, 50), weights).SerializeToString())
    feed = {'image': image, 'mask': np.ones_like(image)}
    keypoints, scores, descriptors = session.run(['keypoints', 'scores', 'descriptors'], feed)
    network = FoldedSuperPoint({name: torch.from_numpy(np.array(tensor, np.float32)) for name, tensor in weights.tensors.items()})
    logits, dense = network(torch.from_numpy(image)[None, None].float() / 255)
    dense_scores = score_map(logits)
    pixels, best = strongest(suppress_non_maxima(dense_scores), 50)
    np.testing.assert_allclose(best[0], scores, atol=1e-5)
    apart, rows = distances(refine(dense_scores, pixels), torch.from_numpy(keypoints)[None])[0].min(1)  # alike scores change places
    assert apart.max() < 2e-3
    assert len(rows.unique()) == len(keypoints)
    np.testing.assert_allclose(sample_descriptors(dense, pixels.float())[0], descriptors[rows], atol=1e-3)


def test_descriptor_assignment_starts_as_cosine_learns_matchability():
    torch.manual_seed(0)
    network = LightGlue(width=64, layers=1, descriptor=32)
    described = torch.nn.functional.normalize(torch.randn(2, 8, 32), dim=-1)
    similarity, _ = network.descriptor_assignment(described)
    torch.testing.assert_close(similarity, SHARPNESS * described[:1] @ described[1:].transpose(1, 2), atol=1e-4, rtol=1e-4)

    shared = described[:1, :4]  # half of the points have a partner, and a first number that says so
    described = torch.cat([torch.cat([shared, described[i:i + 1, 4:]], 1) for i in range(2)]).clone()
    described[:, :, 0] = torch.tensor([1.0] * 4 + [-1.0] * 4)
    partners = torch.tensor([[0, 1, 2, 3, -1, -1, -1, -1]] * 2)
    loss, states = MatcherLoss(network), {name: value.clone() for name, value in network.state_dict().items()}
    optimizer = torch.optim.AdamW(network.descriptor_assignment.parameters(), lr=0.03)
    values = []
    for _ in range(60):
        value, _ = loss(torch.rand(2, 8, 2), described, partners, partners < 0)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    _, logits = network.descriptor_assignment(described)
    assert (logits[:, :4] > 1).all()
    assert (logits[:, 4:] < -1).all()
    assert states['input_proj.weight'].equal(network.state_dict()['input_proj.weight'])


@pytest.mark.parametrize('words', ['', '640,0', '640;320', 'many'])
def test_numbers_of_keypoints_are_whole_and_above_none(words, folder, tmp_path, usage_error):
    command = '--photographs', folder, '--out', tmp_path, '--steps', '1', '--keypoints'
    assert 'as 640,320,128' in usage_error(main, *command, words)


def test_the_trained_matcher_is_the_packages(tmp_path):
    """What training counts as matches after the last layer is what the package's graph gives."""
    from lightglue_trt_ros.core.config import EngineSpec
    from lightglue_trt_ros.networks.lightglue import lightglue
    from lightglue_trt_ros.networks.models import load_model
    onnxruntime = pytest.importorskip('onnxruntime')
    weights = load_model('ours').matcher
    count, rng = 40, np.random.default_rng(0)
    points = rng.uniform((5, 5), (WIDTH - 5, HEIGHT - 5), (2, count, 2)).astype(np.float32)
    points[1] = points[0] + (3, 1)
    described = rng.normal(size=(count, 256)).astype(np.float32)
    described = np.stack([described, described + 0.3 * rng.normal(size=(count, 256))]).astype(np.float32)
    described /= np.linalg.norm(described, axis=-1, keepdims=True)
    session = onnxruntime.InferenceSession(lightglue(EngineSpec(HEIGHT, WIDTH, count), weights).SerializeToString())
    ones, least, none = np.ones(count, np.float32), np.array(0.1, np.float32), np.array(0, np.float32)
    matches = session.run(['matches0'], {
        'keypoints0': points[0], 'keypoints1': points[1], 'scores0': ones, 'scores1': ones, 'descriptors0': described[0],
        'descriptors1': described[1], 'match_threshold': least, 'detection_threshold': none})[0]
    network = LightGlue(layers=6)
    network.load_state_dict(with_descriptor_assignment(network.state_dict(), {
        name: torch.from_numpy(np.array(tensor, np.float32)) for name, tensor in weights.tensors.items()}))
    loss = MatcherLoss(network)
    partners = torch.from_numpy(np.stack([matches, matches])).long()
    with torch.no_grad():
        _, figures = loss(normalize_positions(torch.from_numpy(points), HEIGHT, WIDTH), torch.from_numpy(described), partners,
                          partners < 0)
    assert (matches >= 0).sum() > count / 2
    assert figures[2] > 0.97  # of the package's matches are training's


@pytest.mark.parametrize(('name', 'data', 'why'), [
    ('broken.jpg', b'not an image', 'not an image'),
    ('empty.png', b'', 'not an image'),
    ('small.png', cv2.imencode('.png', drawings(1, 0)[0][:300, :400])[1].tobytes(), '400x300 is smaller than 800x600'),
    ('flat.png', cv2.imencode('.png', np.full((600, 800), 90, np.uint8))[1].tobytes(), 'flat: its gray levels spread by 0.0'),
])
def test_images_that_teach_nothing_are_refused_with_the_reason(folder, tmp_path, name, data, why):
    (tmp_path / 'good.png').write_bytes((folder / '0.png').read_bytes())
    (tmp_path / name).write_bytes(data)
    images, refused = load_photographs(tmp_path)
    assert images.shape == (1, 600, 800)
    assert len(refused) == 1
    assert refused[0].startswith(f'{name}: {why}')


def test_nothing_to_train_on_is_said(tmp_path):
    with pytest.raises(NoPhotographsError, match='no usable image'):
        load_photographs(tmp_path)
    with pytest.raises(NoPhotographsError, match='not a folder'):
        load_photographs(tmp_path / 'missing')


def train(images, folder: Path, settings: ExtractorSettings = TOY_EXTRACTOR, wide=None, **schedule) -> bool:
    return train_extractor(images, corner_scores, folder, Processes(), Schedule(**schedule), 1, settings, wide, log_every=1)


def test_a_training_goes_on_where_it_was_cut_off(tmp_path):
    images = drawings(3, 0)
    assert not train(images, tmp_path, steps=14, piece=1e-6)  # it ends where it looks at the clock, after some steps
    assert not (tmp_path / 'extractor.weights.pt').exists()
    done = torch.load(tmp_path / 'extractor.checkpoint.pt', weights_only=True)['step']
    assert 0 < done < 14
    assert train(images, tmp_path, steps=14)
    steps = [json.loads(line)['step'] for line in (tmp_path / 'extractor.log.jsonl').read_text().splitlines()]
    assert steps == list(range(1, 15))


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    images = drawings(3, 0)
    train(images, tmp_path, steps=2)
    with pytest.raises(CheckpointMismatchError, match=r'extractor\.checkpoint\.pt is of another network'):
        train(images, tmp_path, ExtractorSettings(64, 96, 4, 40, widths=(8, 8, 16, 16, 32)), steps=2)


def test_a_narrow_extractor_comes_to_give_what_the_wide_one_gives(tmp_path):
    torch.manual_seed(0)
    wide = FoldedSuperPoint(SuperPoint((8, 8, 16, 16, 32)).exported())
    images, apart = torch.rand(4, 1, 64, 64), []
    narrow = SuperPoint((8, 8, 8, 8, 16))
    optimizer = torch.optim.AdamW(narrow.parameters(), lr=5e-3)
    for _ in range(40):
        loss = imitation_loss(*narrow(images), *wide(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        apart.append(loss.item())
    odds = wide(images)[0].softmax(1)
    least = -(odds * odds.log()).sum(1).mean()  # the entropy of the wide one's odds: nothing can come below
    assert apart[-1] - least < 0.6 * (apart[0] - least)
    assert train(drawings(3, 0), tmp_path, wide=SuperPoint().exported(), steps=2)


def test_a_light_matcher_begins_with_the_first_layers_of_a_large_one():
    large = LightGlue(64, 5, 32).state_dict()
    small = LightGlue(64, 3, 32)
    small.load_state_dict(first_layers(large, 3))
    assert torch.equal(small.transformers[2].cross_attn.to_v.weight, large['transformers.2.cross_attn.to_v.weight'])
    assert torch.equal(small.log_assignment[2].final_proj.weight, large['log_assignment.2.final_proj.weight'])


def test_wrong_usage_is_one_line(tmp_path):
    words = ['--photographs', str(tmp_path), '--out', str(tmp_path), '--steps', '1']
    run = subprocess.run([sys.executable, '-m', 'training.train', *words], capture_output=True, text=True, check=False,
                         cwd=Path(__file__).parents[2])
    assert run.returncode == 1
    assert 'no usable image' in run.stderr
    assert 'Traceback' not in run.stderr


def test_what_a_training_needs_and_has_not_is_said(folder, tmp_path, capsys):
    from safetensors.torch import save_file
    words = ['--photographs', str(folder), '--drawings', '0', '--out', str(tmp_path), '--steps', '1', '--toy']
    assert main([*words, '--networks', 'matcher']) == 1
    assert 'extractor.weights.pt is not there' in capsys.readouterr().err
    assert main([*words, '--like', str(tmp_path / 'none')]) == 1
    assert 'none/extractor.weights.pt is not there' in capsys.readouterr().err
    torch.save(SuperPoint((16, 16, 32, 32, 64)).exported(), tmp_path / 'extractor.weights.pt')
    assert main([*words, '--initial', str(tmp_path / 'none')]) == 1
    assert 'none' in capsys.readouterr().err
    save_file({'input_proj.bias': torch.zeros(3)}, tmp_path / 'other.safetensors')
    assert main([*words, '--initial', str(tmp_path / 'other.safetensors')]) == 1
    assert 'other.safetensors is of another network' in capsys.readouterr().err


def test_a_models_matcher_is_trained_further_and_its_extractor_stays(folder, tmp_path):
    model, run = tmp_path / 'model', tmp_path / 'run'
    write_pair(model)
    words = ['--photographs', str(folder), '--drawings', '0', '--out', str(run), '--steps', '10', '--toy', '--model', str(model)]
    assert main(words) == 0
    kept, given = (read_tensors(path) for path in (run / 'extractor.weights.pt', model / 'extractor.safetensors'))
    assert all(torch.equal(kept[name], tensor) for name, tensor in given.items())
    trained, begun = (read_tensors(path) for path in (run / 'matcher.weights.pt', model / 'matcher.safetensors'))
    apart = max(float((trained[name] - tensor).abs().max()) for name, tensor in begun.items())
    assert 0 < apart < 0.05


def test_a_models_first_layers_are_trained_to_answer_as_all_of_them(folder, tmp_path):
    model, run = tmp_path / 'model', tmp_path / 'run'
    write_pair(model)
    layers = sum(name.endswith('.final_proj.bias') for name in read_tensors(model / 'matcher.safetensors'))
    words = ['--photographs', str(folder), '--drawings', '0', '--out', str(run), '--steps', '3', '--toy', '--model', str(model)]
    assert layers == 2
    assert main([*words, '--layers', '1', '--distil', str(model)]) == 0
    trained = read_tensors(run / 'matcher.weights.pt')
    assert not any(name.startswith(('transformers.1.', 'log_assignment.1.', 'token_confidence')) for name in trained)


@pytest.mark.parametrize(('words', 'why'), [
    (['--layers', '0'], 'give 1 to 9 layers'),
    (['--widths', '16,32,32,64'], 'give five multiples of 8'),
    (['--widths', '16,32,32,64,12'], 'give five multiples of 8'),
    (['--model', 'here', '--like', 'there'], '--model brings both networks'),
    (['--model', 'here', '--widths', '8,8,16,16,32'], '--model brings both networks'),
])
def test_options_that_do_not_go_together_are_refused(words, why, usage_error):
    assert why in usage_error(main, '--photographs', 'x', '--out', 'y', '--steps', '1', *words)


def test_an_extractor_has_the_widths_that_were_asked_for(folder, tmp_path):
    words = ['--photographs', str(folder), '--drawings', '0', '--out', str(tmp_path), '--steps', '2', '--toy']
    assert main([*words, '--networks', 'extractor', '--widths', '8,8,16,16,24']) == 0
    tensors = read_tensors(tmp_path / 'extractor.weights.pt')
    assert [len(tensors[f'conv{name}.bias']) for name in ('1b', '2b', '3b', '4b', 'Da')] == [8, 8, 16, 16, 24]


def test_stem_replaces_first_convolutions_when_training_continues(folder, tmp_path):
    words = ['--photographs', str(folder), '--drawings', '0', '--toy', '--steps', '1', '--networks', 'extractor']
    widths = ['--widths', '8,8,16,16,24']
    assert main([*words, *widths, '--out', str(tmp_path / 'whole')]) == 0
    former = read_tensors(tmp_path / 'whole/extractor.weights.pt')
    images, network = torch.rand(4, 1, 64, 64), SuperPoint((8, 8, 16, 16, 24), stem=True)
    network.take(former, images)
    taken = network.exported()
    assert taken['conv1a.weight'].shape == (8, 1, 6, 6)
    assert all(layer.shape[-1] == 8 for layer in network(images))
    torch.testing.assert_close(taken['conv4b.weight'], former['conv4b.weight'], rtol=1e-3, atol=1e-4)
    assert main([*words, *widths, '--stem', '--out', str(tmp_path / 'stem')]) == 0
    assert read_tensors(tmp_path / 'stem/extractor.weights.pt')['conv1a.weight'].shape == (8, 1, 6, 6)


def test_scores_are_fitted_to_the_share_of_right_matches():
    random, wanted = np.random.default_rng(0), ScoreCalibration(0.3, 0.6)
    raw = random.uniform(0, 1, 40_000).astype(np.float32)
    found = fit(raw, np.where(random.uniform(size=len(raw)) < wanted.probability(raw), 1.0, 9.0))
    np.testing.assert_allclose(found.probability(raw), wanted.probability(raw), atol=0.02)


def test_early_exits_with_enough_matches_have_scores_of_their_own():
    random, found = np.random.default_rng(1), []
    numbers = {0: (0.9, 3.0), 3: (0.2, 0.9), 4: (0.5, 0.5), 6: (0.4, 0.6)}
    curves = {layers: ScoreCalibration(*each) for layers, each in numbers.items()}
    for layers, curve in curves.items():
        raw = random.uniform(0, 1, 900 if layers == 4 else 40_000).astype(np.float32)
        found.append(Matched(layers, raw, np.where(random.uniform(size=len(raw)) < curve.probability(raw), 1.0, 9.0)))
    calibration = fitted(found)
    assert [*calibration.exits] == [0, 3]
    for layers in (0, 3):
        np.testing.assert_allclose(calibration.after(layers).probability(raw), curves[layers].probability(raw), atol=0.03)
    assert calibration.after(4) == calibration.after(6) == calibration
    assert record_of(calibration, '')['exits']['3'] == {'a': calibration.after(3).a, 'b': calibration.after(3).b}


def test_the_scores_of_a_model_are_written_into_its_folder(folder, tmp_path, capsys):
    write_pair(tmp_path)
    words = [str(tmp_path), '--drawings', '0', '--pairs', '2', '--height', '192', '--width', '256']
    assert scores([*words, '--photographs', str(tmp_path / 'none')]) == 1
    assert 'is not a folder' in capsys.readouterr().err
    for _ in range(2):  # again, it fits raw scores
        assert scores([*words, '--photographs', str(folder)]) == 0
        assert capsys.readouterr().out.startswith(str(load_model(str(tmp_path)).score_calibration))


def test_errors_of_matches_are_from_the_true_position_and_unknown_at_edges():
    pair = still(shift=3.0)
    pair.planes[:, :, 64:] = 1
    before = np.float32([[20, 20], [63.5, 30], [30, 40]])
    errors, known = true_errors(pair, before, before + np.float32([[3, 0], [3, 0], [7, 3]]))
    np.testing.assert_allclose(errors[known], [0, 5], atol=1e-4)
    assert known.tolist() == [True, False, True]


def test_a_minute_of_training_teaches_both_networks_and_their_export_runs(folder, tmp_path):
    """From photographs to FrameMatcher, at toy size: the losses fall, and the package takes what comes out."""
    from lightglue_trt_ros.core.config import MatcherConfig
    from lightglue_trt_ros.core.frame_matcher import FrameMatcher
    from lightglue_trt_ros.engines.selection import open_backend
    from training.curves import draw, read_log
    from training.export import main as export
    torch.set_num_threads(1)  # small tensors: more of them wait for one another
    run, pair = tmp_path / 'run', tmp_path / 'pair'
    words = ['--photographs', str(folder), '--drawings', '0', '--out', str(run), '--toy']
    assert main([*words, '--networks', 'extractor', '--steps', '25']) == 0
    assert main([*words, '--steps', '6']) == 0, 'of both, what is not trained yet'
    losses = [row['detector'] for row in read_log(run / 'extractor.log.jsonl')]
    assert losses[-1] < 0.85 * losses[0], losses
    assert all(np.isfinite(row['assignment']) for row in read_log(run / 'matcher.log.jsonl'))
    assert draw(run).stat().st_size > 10_000
    assert export([str(run), '--out', str(pair), '--pair', 'toy']) == 0
    config = MatcherConfig(weights=str(pair), image_height=96, image_width=128, max_keypoints=100, backend='onnxruntime')
    frames = FrameMatcher(open_backend(config).backend, config)
    image = drawings(1, 9)[0][::4, ::4]
    assert frames.process(image, 0.0) is None
    matches = frames.process(image, 0.1)
    assert matches is not None
    assert np.isfinite(matches.keypoints).all()
