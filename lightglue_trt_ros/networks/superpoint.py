"""SuperPoint as an ONNX graph, straight from its weights.

DeTone, Malisiewicz, Rabinovich: SuperPoint: Self-Supervised Interest Point Detection and Description, CVPRW 2018;
non-maximum suppression and descriptor sampling as in the released model.
"""

from __future__ import annotations

import numpy as np
import onnx
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, Var, argument, build

from ..core.config import EngineSpec
from . import engine_tensors as names
from .architecture import BLOCK, BORDER, CELL, descriptors_of, halves
from .typed_onnx import Typed, stamp
from .weights import Weights

NMS_RADIUS = 4
REFINE_RADIUS = 2  # subpixel refinement looks this far around a keypoint; less than BORDER


def superpoint(spec: EngineSpec, weights: Weights, *, subpixel: bool = True) -> onnx.ModelProto:
    """The extractor for one image size.

    image uint8 (H, W), mask uint8 (H, W) -> keypoints float32 (K, 2) as (u, v) in pixels, scores float32 (K,) in falling order,
    descriptors (K, D) of unit length in the spec's precision. No keypoint is where the mask is 0. Rows without a keypoint have
    score 0. Without `subpixel` keypoints are whole pixels, as the released model gives them; descriptors are sampled at these
    either way.
    """
    net = _SuperPoint(spec, weights)
    image, mask = (argument(Tensor(np.uint8, spec.size)) for _ in range(2))
    logits, described = net.maps(image)
    dense, detectable = mask_scores(net.score(logits), mask)
    pixels, scores = net.detect(detectable)
    descriptors = net.describe(described, op.cast(pixels, to=np.float32))
    keypoints = refine(dense, pixels) if subpixel else op.cast(pixels, to=np.float32)
    outputs = dict(zip(names.FEATURES, (keypoints, scores, descriptors), strict=True))
    return stamp(build({names.IMAGE: image, 'mask': mask}, outputs), 'superpoint', spec, weights.sha256)


def superpoint_maps(spec: EngineSpec, weights: Weights) -> onnx.ModelProto:
    """The extractor's convolutions, for what selects keypoints by itself.

    image uint8 (H, W) -> logits (1, 65, H / 8, W / 8) of the pixels of each cell and of "no keypoint here", dense
    (1, D, H / 8, W / 8) descriptors of any length; both in the spec's precision.
    """
    net, image = _SuperPoint(spec, weights), argument(Tensor(np.uint8, spec.size))
    logits, dense = net.maps(image)
    return stamp(build({names.IMAGE: image}, {names.LOGITS: logits, names.DENSE: dense}), 'superpoint_maps', spec, weights.sha256)


class _SuperPoint:
    def __init__(self, spec: EngineSpec, weights: Weights) -> None:
        self.spec, self.weights, self.typed = spec, weights, Typed(spec.precision)

    def maps(self, image: Var) -> tuple[Var, Var]:
        """(H, W) uint8 -> logits (1, 65, H / 8, W / 8), descriptors (1, D, H / 8, W / 8) of any length."""
        # gray / 255, split so that the part done here is exact in FP16: a power of two; conv1a's weights take the rest
        x = op.mul(self.typed.compute(image), self.typed.const(1 / 256))
        x = op.reshape(x, _shape(1, 1, *self.spec.size))
        x = self.conv('conv1b', self.conv('conv1a', x, gain=256 / 255))
        x = self.conv('conv2b', self.conv('conv2a', x if halves(self.weights.tensors) else _halve(x)))
        x = self.conv('conv3b', self.conv('conv3a', _halve(x)))
        x = self.conv('conv4b', self.conv('conv4a', _halve(x)))
        logits, dense = (self.conv(f'conv{head}b', self.conv(f'conv{head}a', x), relu=False) for head in 'PD')
        return logits, dense

    def score(self, logits: Var) -> Var:
        """(1, 65, H / 8, W / 8) -> how much each pixel is a keypoint, FP32 (1, 1, H, W)."""
        cells = op.softmax(self.typed.exact(logits), axis=1)
        cells = op.slice(cells, _shape(0), _shape(CELL * CELL), _shape(1))  # the 65th channel says "no keypoint here"
        return op.depth_to_space(cells, blocksize=CELL, mode='DCR')

    def detect(self, dense: Var) -> tuple[Var, Var]:
        """The best K local maxima: pixels int32 (K, 2) as (u, v), scores FP32 (K,)."""
        height, width = self.spec.size
        inner = op.slice(suppress_non_maxima(dense), _shape(BORDER, BORDER), _shape(height - BORDER, width - BORDER), _shape(2, 3))
        return select_keypoints(inner, self.spec.max_keypoints)

    def describe(self, dense: Var, keypoints: Var) -> Var:
        """Sample the dense descriptors (1, D, H / 8, W / 8) at keypoints (K, 2) -> (K, D), unit length."""
        dense = _normalize(self.typed.exact(dense), axis=1)
        # the released model's grid: the centre of the first cell is pixel 3.5, and W - 4.5 maps to the last one
        first = np.float32(CELL / 2 - 0.5)
        extent = np.array([self.spec.image_width, self.spec.image_height], np.float32) - np.float32(CELL / 2 + 0.5)
        grid = op.sub(op.mul(op.sub(keypoints, op.const(first)), op.const(2 / extent)), op.const(np.float32(1)))
        grid = op.reshape(grid, _shape(1, 1, self.spec.max_keypoints, 2))
        sampled = op.grid_sample(dense, grid, align_corners=1, mode='bilinear', padding_mode='zeros')
        rows = op.transpose(op.reshape(sampled, _shape(descriptors_of(self.weights.tensors), self.spec.max_keypoints)), perm=[1, 0])
        return self.typed.compute(_normalize(rows, axis=1))

    def conv(self, name: str, x: Var, *, relu: bool = True, gain: float = 1.0) -> Var:
        kernel, bias = self.weights.tensors[f'{name}.weight'], self.weights.tensors[f'{name}.bias']
        side = kernel.shape[-1]
        x = op.conv(x, self.typed.const(kernel.astype(np.float32) * np.float32(gain)), self.typed.const(bias),
                    pads=[(side - 1) // 2] * 4, strides=[2 - side % 2] * 2)
        return op.relu(x) if relu else x


def mask_scores(dense: Var, mask: Var) -> tuple[Var, Var]:
    """Scores (1, 1, H, W) that are 0 where the mask uint8 (H, W) is, and of these what keypoints may be made of.

    Masked before non-maximum suppression, so that what is masked suppresses nothing. The slope of a masked peak would rise to a
    keypoint at the mask's edge then: as near to it as suppression reaches, only what is a peak of the unmasked scores counts.
    """
    zero = op.const(np.float32(0))
    # TensorRT takes uint8 where it comes in and is cast at once
    masked = op.equal(op.reshape(op.cast(mask, to=np.float32), _shape(*map(int, dense.unwrap_tensor().shape))), zero)
    near_edge = op.greater(_local_max(op.cast(masked, to=np.float32)), zero)
    slope = op.greater(_local_max(dense, radius=1), dense)
    allowed = op.where(masked, zero, dense)
    return allowed, op.where(op.and_(near_edge, slope), zero, allowed)


def suppress_non_maxima(scores: Var) -> Var:
    """Zero all but the local maxima of (1, 1, H, W): maxima first, then twice the maxima among what they leave."""
    zero = op.const(np.float32(0))
    maxima = op.equal(scores, _local_max(scores))
    for _ in range(2):
        suppressed = op.greater(_local_max(op.cast(maxima, to=np.float32)), zero)
        rest = op.where(suppressed, zero, scores)
        maxima = op.or_(maxima, op.and_(op.equal(rest, _local_max(rest)), op.not_(suppressed)))
    return op.where(maxima, scores, zero)


def select_keypoints(scores: Var, count: int) -> tuple[Var, Var]:
    """The `count` best pixels of (1, 1, h, w), the image's interior -> pixels int32 (K, 2) in the whole image, scores (K,).

    TopK runs over the maxima of blocks: exact after NMS, and 16 times smaller.
    """
    block_columns = scores.unwrap_tensor().shape[3] // BLOCK
    blocks = op.space_to_depth(scores, blocksize=BLOCK)  # (1, 16, h / 4, w / 4)
    best = op.reshape(op.reduce_max(blocks, axes=[1], keepdims=0), _shape(-1))
    place = op.reshape(op.cast(op.arg_max(blocks, axis=1, keepdims=0), to=np.int32), _shape(-1))
    top, index = op.top_k(best, _shape(count))
    within, index = op.gather(place, index), op.cast(index, to=np.int32)
    row, column = _divmod(index, block_columns)
    down, right = _divmod(within, BLOCK)
    block, border = op.const(np.int32(BLOCK)), op.const(np.int32(BORDER))
    u = op.add(op.add(op.mul(column, block), right), border)
    v = op.add(op.add(op.mul(row, block), down), border)
    return op.concat([op.unsqueeze(u, _shape(1)), op.unsqueeze(v, _shape(1))], axis=1), top


def refine(dense: Var, pixels: Var) -> Var:
    """Keypoints float32 (K, 2): the mean position under the scores (1, 1, H, W) of the 5x5 pixels around each of (K, 2).

    A local soft-argmax.
    """
    width = dense.unwrap_tensor().shape[3]
    around = np.arange(-REFINE_RADIUS, REFINE_RADIUS + 1, dtype=np.int32)
    shifts = np.stack(np.meshgrid(around, around), axis=-1).reshape(-1, 2)  # (25, 2) as (u, v)
    u, v = op.split(pixels, outputs_count=2, axis=1)
    index = op.add(op.add(op.mul(v, op.const(np.int32(width))), u), op.const(shifts @ np.array([1, width], np.int32)))
    weight = op.gather(op.reshape(dense, _shape(-1)), index)  # (K, 25)
    total = op.add(op.reduce_sum(weight, _shape(1), keepdims=1), op.const(np.float32(1e-9)))
    offset = op.div(op.matmul(weight, op.const(shifts.astype(np.float32))), total)
    return op.add(op.cast(pixels, to=np.float32), offset)


def _divmod(x: Var, divisor: int) -> tuple[Var, Var]:
    d = op.const(np.int32(divisor))
    quotient = op.div(x, d)
    return quotient, op.sub(x, op.mul(quotient, d))


def _local_max(x: Var, radius: int = NMS_RADIUS) -> Var:
    """The maximum of the square around each pixel: along rows, then along columns, which is a third of the work."""
    side = 2 * radius + 1
    along_rows = op.max_pool(x, kernel_shape=[1, side], pads=[0, radius, 0, radius])[0]
    return op.max_pool(along_rows, kernel_shape=[side, 1], pads=[radius, 0, radius, 0])[0]


def _halve(x: Var) -> Var:
    return op.max_pool(x, kernel_shape=[2, 2], strides=[2, 2])[0]


def _normalize(x: Var, axis: int) -> Var:
    norm = op.reduce_l2(x, axes=[axis], keepdims=1)
    return op.div(x, op.max([norm, op.const(np.float32(1e-12))]))


def _shape(*sizes: int) -> Var:
    return op.const(np.array(sizes, np.int64))
