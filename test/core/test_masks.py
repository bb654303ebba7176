"""Masks: no keypoint where they are 0, and everywhere else what would be there without them."""

from __future__ import annotations

import numpy as np
import pytest
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, argument, build
from support.networks import SMALL, extract, ours, photo, session

from lightglue_trt_ros.core.masks import Mask
from lightglue_trt_ros.core.types import Thresholds
from lightglue_trt_ros.networks import superpoint as graph
from lightglue_trt_ros.utils.errors import FrameError

pytestmark = pytest.mark.networks

SIZE = SMALL.image_height, SMALL.image_width
LEFT = (np.arange(SIZE[1]) < 150).astype(np.uint8) * np.ones((SIZE[0], 1), np.uint8)  # of the image is allowed


@pytest.fixture(scope='module')
def extractor():
    return session(graph.superpoint(SMALL, ours().extractor))


def without_mask(spec, weights):
    """The graph as it was without the input, with suppression over whole squares."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(graph, '_local_max', lambda x: op.max_pool(x, kernel_shape=[9, 9], pads=[4] * 4)[0])
        net = graph._SuperPoint(spec, weights)
        image = argument(Tensor(np.uint8, (spec.image_height, spec.image_width)))
        logits, described = net.maps(image)
        dense = net.score(logits)
        pixels, scores = net.detect(dense)
        descriptors = net.describe(described, op.cast(pixels, to=np.float32))
    return build({'image': image}, {'keypoints': graph.refine(dense, pixels), 'scores': scores, 'descriptors': descriptors})


@pytest.mark.parametrize('allowed', [1, 255])
def test_where_all_is_allowed_not_one_bit_is_another(extractor, allowed):
    image = photo('coffee', *SIZE)
    expected = session(without_mask(SMALL, ours().extractor)).run(['keypoints', 'scores', 'descriptors'], {'image': image})
    found = extract(extractor, image, np.full(SIZE, allowed, np.uint8))
    for name, values in zip(('keypoints', 'scores', 'descriptors'), expected, strict=True):
        np.testing.assert_array_equal(getattr(found, name), values)


def test_masked_regions_cost_no_keypoints(extractor):
    image, threshold = photo('coffee', *SIZE), Thresholds().detection
    everywhere, found = extract(extractor, image), extract(extractor, image, LEFT)
    assert np.sum(everywhere.keypoints[:, 0] > 150) > 50
    assert np.all(found.scores > threshold), 'all rows are keypoints still, elsewhere'
    assert np.all(LEFT[tuple(np.rint(found.keypoints[:, ::-1]).astype(int).T)])
    inner = everywhere.keypoints[everywhere.keypoints[:, 0] < 130]
    apart = np.linalg.norm(inner[:, None] - found.keypoints, axis=2).min(axis=1)
    assert np.all(apart < 1e-4), 'those that were there are there still'


def test_the_edge_of_a_mask_draws_no_keypoints(extractor):
    """The strongest keypoints masked, a pixel each: of hardly any does the slope become one."""
    image = photo('coffee', *SIZE)
    strongest = extract(extractor, image).keypoints[:100]
    mask = np.ones(SIZE, np.uint8)
    u, v = np.rint(strongest).astype(int).T
    mask[v, u] = 0
    found = extract(extractor, image, mask).keypoints
    assert np.sum(np.abs(strongest[:, None] - found).max(axis=2) < 1.6) <= 10


def detected(scores, mask):
    """Pixels (u, v) that become keypoints of these scores."""
    dense, allowed = argument(Tensor(np.float32, (1, 1, *scores.shape))), argument(Tensor(np.uint8, scores.shape))
    kept = graph.suppress_non_maxima(graph.mask_scores(dense, allowed)[1])
    found = session(build({'dense': dense, 'mask': allowed}, {'kept': kept})).run(
        None, {'dense': scores[None, None], 'mask': mask})[0][0, 0]
    return {(int(u), int(v)): found[v, u] for v, u in np.argwhere(found > 0)}


def test_masked_peak_neither_suppresses_neighbour_nor_fires_at_edge():
    v, u = np.mgrid[:32, :40]
    slope = np.exp(-0.5 * np.hypot(u - 20, v - 16)).astype(np.float32)
    scores = slope.copy()
    scores[16, 17] = 0.4  # a lower peak beside the slope of the highest
    scores[slope < 1e-3] = 0
    everywhere = np.ones(scores.shape, np.uint8)
    assert (20, 16) in detected(scores, everywhere)
    assert (17, 16) not in detected(scores, everywhere)
    mask = everywhere.copy()
    mask[:, 19:] = 0
    found = detected(scores, mask)
    assert found[17, 16] == np.float32(0.4)
    assert not [place for place in found if place[0] > 14 and place != (17, 16)], 'the slope of the highest'
    assert detected(scores, np.zeros_like(mask)) == {}


def test_whatever_is_masked_no_keypoint_is_there(extractor):
    image, rng = photo('coffee', *SIZE), np.random.default_rng(2)
    for share in (0.1, 0.5, 0.95):
        blocks = (rng.random((15, 41)) > share) * rng.integers(1, 256, (15, 41))
        mask = np.kron(blocks, np.ones((16, 8))).astype(np.uint8)
        found = extract(extractor, image, mask)
        u, v = np.rint(found.keypoints[found.scores > 0]).astype(int).T
        assert len(u) > 10
        assert mask[v, u].all()
        assert np.isfinite(found.keypoints).all()
    nothing = extract(extractor, image, np.zeros(SIZE, np.uint8))
    assert not nothing.scores.any()
    assert np.isfinite(nothing.descriptors).all()


def test_a_mask_is_resized_to_nearest_neighbours_once_and_asked_by_pixel():
    allowed = np.array([[0, 7, 0, 0], [0, 0, 0, 255]], np.uint8)
    mask = Mask(allowed)
    np.testing.assert_array_equal(mask.resized((4, 8)), np.kron(allowed, np.ones((2, 2), np.uint8)))
    np.testing.assert_array_equal(mask.resized((1, 2)), [[0, 255]])  # of the four, the one at the centre, or after it
    assert mask.resized((1, 2)) is mask.resized((1, 2))
    points = np.array([[1.4, 0.4], [1.6, 0.4], [0.5, 0.0], [3.49, 1.49], [9, 9], [-5, -5], [np.nan, 0]], np.float32)
    np.testing.assert_array_equal(mask.allows(points, (2, 4)), [True, False, True, True, True, False, False])
    doubled = np.array([[1.4, 0.4], [1.6, 0.4], [3.4, 1.4], [3.6, 1.4]], np.float32)
    np.testing.assert_array_equal(mask.allows(doubled, (4, 8)), [False, True, True, False])
    both = mask.both(Mask(np.kron(np.ones((1, 4), np.uint8), np.array([[1], [0], [1], [1]], np.uint8)).repeat(2, 1)), (4, 8))
    np.testing.assert_array_equal(both.allowed > 0, (np.kron(allowed, np.ones((2, 2))) > 0) & (np.arange(4) != 1)[:, None])
    assert mask.share == 0.75


def test_mask_margin_grows_masked_pixels_but_not_the_image_border():
    allowed = np.full((40, 60), 7, np.uint8)
    allowed[20, 30] = 0
    mask = Mask(allowed)
    v, u = np.mgrid[:40, :60]
    for margin in (1, 2.5, 4):
        np.testing.assert_array_equal(mask.grown((40, 60), margin), np.where(np.hypot(u - 30, v - 20) <= margin, 0, 7))
    assert mask.grown((40, 60), 4) is mask.grown((40, 60), 4), 'a device uploads it once'
    assert mask.grown((40, 60), 0) is mask.resized((40, 60))
    assert Mask(np.full((40, 60), 255, np.uint8)).grown((40, 60), 8).all(), 'the image ends, and nothing is hidden there'
    points = np.array([[26.0, 20], [25.4, 20], [30, 20], [0, 0]], np.float32)
    np.testing.assert_array_equal(mask.allows(points, (40, 60), 4), [False, True, False, True])
    np.testing.assert_array_equal(mask.allows(points, (40, 60)), [True, True, False, True])


@pytest.mark.parametrize('size', [(240, 320), (160, 248), (480, 640), (960, 1280)])
def test_a_single_masked_pixel_stays_grown_at_any_size(size):
    allowed = np.full((480, 640), 255, np.uint8)
    allowed[301, 223] = 0
    hidden = np.argwhere(Mask(allowed).grown(size, 4) == 0)
    middle = (np.array([301, 223]) + 0.5) * np.array(size) / (480, 640) - 0.5
    assert 45 <= len(hidden) <= 100
    np.testing.assert_allclose(hidden.mean(axis=0), middle, atol=1)


def test_margin_that_leaves_nothing_is_reported_and_not_used():
    allowed = np.zeros((48, 64), np.uint8)
    allowed[10:14, 10:20] = 255
    mask = Mask(allowed, 'the mask body.png')
    assert mask.grown((48, 64), 1).any()
    assert mask.doubt((48, 64), 1) == mask.doubt((48, 64), 0) == ''
    np.testing.assert_array_equal(mask.grown((48, 64), 4), allowed)
    assert mask.doubt((48, 64), 4) == ('the mask body.png leaves 1.3 % of the image, and nothing of it once mask_margin = 4 pixels '
                                       'of 64x48 are added: it is used without them; lower mask_margin')
    assert Mask(np.zeros((48, 64), np.uint8)).doubt((48, 64), 4) == '', 'it leaves nothing by itself'


@pytest.mark.parametrize(('given', 'shown'), [
    (None, 'no array but NoneType'), ([[1, 0]], 'no array but list'), (np.ones((4, 4), bool), r'bool \(4, 4\)')])
def test_what_is_no_mask_is_refused_by_what_it_is(given, shown):
    """None is what cv2.imread gives for a file that it cannot read; it raised AttributeError."""
    with pytest.raises(FrameError, match=f'the mask is {shown}: masks are uint8'):
        Mask(given)
