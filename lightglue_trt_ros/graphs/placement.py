"""`placement.place_all` as ONNX graphs in FP32, for the pyramid's last level and for the others: see there what and why.

Each of 2 K rows is a point of the reference: its K keypoints, then what it carries. Those without a match are looked for where the
matches around them went; which of them are wanted the host says, later. Matrices of 2 x 2 are written out: symmetric ones as
(a, b, d), others as (a, b, c, d), each entry a column (2 K, 1).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np
import onnx
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, Var, argument, build

from ..config import EngineSpec
from ..placement import COARSE, DISAGREEMENT, FINE, FLOOR_PX, LIMIT_PX, PREDICTED_LIMIT_PX, PREDICTED_PX, UNPLACED_PX, Level
from ..placement.patches import FAINT, QUANTISATION
from ..placement.views import REACH_PX, RIDGE_PX, SOURCES
from .cache import PLACEMENT
from .frames import frame, halve
from .precision import stamp

SIZES = 8  # of the input `sizes`: see backends.placing.sizes_of

Columns = list[Var]
Offsets = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


class _State(NamedTuple):
    """What goes from level to level, one row per point; pixels are those of the camera's image."""

    view: Columns  # 4, how offsets around the reference's point become offsets here
    start: Columns  # 2, where the match is, or is expected
    limit: Columns  # 1, how far from there a patch may be
    shift: Columns  # 2, from there to where the level above found the patch, 0 where it did not
    found: Columns  # 1, whether it did
    information: Columns  # 3, inverse covariance so far
    total: Columns  # 2, information times shift, added up
    spread: Columns  # 3, covariance by which levels disagree

    def packed(self) -> Var:
        """(2 K, 18)."""
        return op.concat([column for columns in self for column in columns], axis=1)


STATE = 18  # columns of all that
BLOCK = 64  # rows are counted by


@lru_cache(maxsize=1)
def placement_graphs(spec: EngineSpec) -> dict[str, onnx.ModelProto]:
    """All that takes a camera's frame and places points in it, by the names of `cache.PLACEMENT`; FP32 whatever the spec says."""
    exact = replace(spec, precision='fp32')
    return {name: write(exact) for name, write in zip(PLACEMENT, (frame, halve, coarse, fine), strict=True)}


def coarse(spec: EngineSpec) -> onnx.ModelProto:
    """The pyramid's last level, and what comes before it.

    reference, current float32 (H, W), reference_points float32 (2 K, 2), keypoints1 float32 (K, 2) in pixels of the engine's image,
    matches0 int32 (K,) the rows of these that the reference's match, -1 where none, sizes (8,) -> next_state (2 K, 18).
    """
    graph, count = _Graph(spec, COARSE), spec.max_keypoints
    keypoints, matches = argument(Tensor(np.float32, (count, 2))), argument(Tensor(np.int32, (count,)))
    valid = op.unsqueeze(op.cast(op.greater_or_equal(matches, op.const(np.int32(0))), to=np.float32), _shape(1))
    rows = op.gather(keypoints, op.max([matches, op.const(np.int32(0))]))
    # pixels of the engine's image -> of the camera's, as geometry.to_original
    scaled = [op.mul(op.add(value, _value(0.5)), graph.sizes[6 + axis]) for axis, value in enumerate(_columns(rows))]
    moved = [op.sub(value, _value(0.5)) for value in scaled]
    view, there = _local_affine(_columns(graph.points), moved, valid)
    none = op.const(np.zeros((count, 1), np.float32))
    matched = op.greater(op.concat([valid, none], axis=0), _value(0.5))
    start = [op.where(matched, op.concat([seen, none], axis=0), expected) for seen, expected in zip(moved, there, strict=True)]
    unit = graph.sizes[5]
    limit = op.mul(op.where(matched, _value(LIMIT_PX), _value(PREDICTED_LIMIT_PX)), unit)
    known = op.div(op.where(matched, _value(UNPLACED_PX**-2), _value(PREDICTED_PX**-2)), op.mul(unit, unit))
    zero = op.mul(known, _value(0))
    state = graph.place(_State(view, start, [limit], [zero] * 2, [zero], [known, zero, known], [zero] * 2, [zero] * 3))
    model = build({**graph.inputs, 'keypoints1': keypoints, 'matches0': matches}, {'next_state': state.packed()})
    return stamp(model, 'placement-coarse', spec, '')


def fine(spec: EngineSpec) -> onnx.ModelProto:
    """Any other level: reference, current, reference_points and sizes as in `coarse`, state (2 K, 18) of the level above.

    -> next_state (2 K, 18), points float32 (2 K, 2), covariances float32 (2 K, 3): of u, of both, of v.
    """
    graph = _Graph(spec, FINE)
    state = argument(Tensor(np.float32, (graph.count, STATE)))
    columns = iter(_columns(state))
    after = graph.place(_State(*([next(columns) for _ in range(count)] for count in (4, 2, 1, 2, 1, 3, 2, 3))))
    inverse = _inverse(after.information)
    points = _added(after.start, _times(_full(inverse), after.total))
    outputs = {'next_state': after.packed(), 'points': op.concat(points, axis=1),
               'covariances': op.concat(_added(inverse, after.spread), axis=1)}
    model = build({**graph.inputs, 'state': state}, outputs)
    return stamp(model, 'placement-fine', spec, '')


class _Graph:
    """The inputs that all levels have, and what is done at one of them."""

    def __init__(self, spec: EngineSpec, level: Level) -> None:
        self.count, self.level, self.side = 2 * spec.max_keypoints, level, 2 * level.radius + 1
        images = [argument(Tensor(np.float32, ('height', 'width'))) for _ in range(2)]
        points, sizes = argument(Tensor(np.float32, (self.count, 2))), argument(Tensor(np.float32, (SIZES,)))
        self.inputs = {'reference': images[0], 'current': images[1], 'reference_points': points, 'sizes': sizes}
        self.sizes = [op.slice(sizes, _shape(number), _shape(number + 1), _shape(0)) for number in range(SIZES)]  # (1,) each
        self.reference, self.current = (op.unsqueeze(image, _shape(0, 1)) for image in images)
        self.points = points
        # GridSample's coordinates go from -1 to 1
        self.unit = op.div(_value(2), op.slice(sizes, _shape(0), _shape(2), _shape(0)))

    def place(self, before: _State) -> _State:
        """As the loop in `placement.place_matches`."""
        scale, limit = self.sizes[4], before.limit[0]
        start = op.div(op.concat(_added(before.start, before.shift), axis=1), scale)
        here, covariance, alike = self._find(op.div(self.points, scale), start, before.view)
        points = [op.mul(value, scale) for value in here]
        shift = [op.sub(to, start) for to, start in zip(points, before.start, strict=True)]
        near = [alike, op.less(_dot(shift, shift), op.mul(limit, limit))]
        near += [op.greater_or_equal(value, _value(0)) for value in points]
        near += [op.less_or_equal(value, self.sizes[2 + axis]) for axis, value in enumerate(points)]
        good = op.cast(reduce(op.and_, near), to=np.float32)
        shift = [op.mul(value, good) for value in shift]
        both = op.mul(op.mul(good, before.found[0]), _value(DISAGREEMENT))
        apart = [op.sub(one, other) for one, other in zip(shift, before.shift, strict=True)]
        spread = _added(before.spread, [op.mul(value, both) for value in _squared(apart)])
        more = [op.mul(value, good) for value in _inverse([op.mul(value, op.mul(scale, scale)) for value in covariance])]
        return _State(before.view, before.start, before.limit, shift, [good], _added(before.information, more),
                      _added(before.total, _times(_full(more), shift)), spread)

    def _find(self, points: Var, start: Var, view: Columns) -> tuple[Columns, Columns, Var]:
        """As `find_patches`: where the patches are, their covariances (3), in the level's pixels, and whether they are there."""
        radius, noise = self.level.radius, self.level.noise / self.side**2
        axis = np.arange(-radius - 1, radius + 2, dtype=np.float32)
        square = np.stack(np.meshgrid(axis, axis), axis=-1)
        rim, inner = square.reshape(1, -1, 2), square[1:-1, 1:-1].reshape(1, -1, 2)
        template = _Template(self._sample(self.reference, points, op.mul(op.const(rim), self.unit)), self.side)
        step_of = _product(view, _full(_inverse(template.tensor())))
        descent, seen_through, here = template.descent(step_of), self._through(view, inner), start
        for _ in range(self.level.steps):
            here = op.sub(here, _step(descent, self._sample(self.current, here, seen_through)))
        found = _Template(self._sample(self.current, here, self._through(view, rim)), self.side)
        gain = op.div(_mean(op.mul(template.pattern, found.seen)), template.contrast)
        alike, gain = op.greater(gain, _value(FAINT)), op.max([gain, _value(FAINT)])
        variance = _mean(_square(op.sub(found.seen, _mean(found.seen))))
        residual = op.sub(op.div(variance, _square(gain)), _square(template.contrast))
        residual = op.mul(op.add(op.max([residual, _value(0)]), _value(QUANTISATION)), _value(noise))
        back = _times(view, _columns(_step(found.descent(_full(_inverse(found.tensor()))), template.seen)))
        by_return = [op.mul(value, _value(self.level.backward)) for value in _squared(back)]
        a, b, _, d = _product(step_of, [view[0], view[2], view[1], view[3]])
        by_noise = [op.mul(value, residual) for value in (a, b, d)]
        floor = [_value(FLOOR_PX**2), _value(0), _value(FLOOR_PX**2)]
        return _columns(here), _added(_added(by_noise, by_return), floor), alike

    def _through(self, view: Columns, offsets: Offsets) -> Var:
        """Offsets (1, n, 2) seen through `view`, (K, n, 2), as GridSample counts."""
        a, b, c, d = view
        along_u, along_v = (op.mul(op.unsqueeze(op.concat(column, axis=1), _shape(1)), self.unit) for column in ([a, c], [b, d]))
        return op.add(op.mul(op.const(offsets[:, :, :1]), along_u), op.mul(op.const(offsets[:, :, 1:]), along_v))

    def _sample(self, image: Var, points: Var, offsets: Var) -> Var:
        """Gray levels (K, n) at points (K, 2) + offsets (K or 1, n, 2), these as GridSample counts; the edge goes on for ever."""
        middle = op.unsqueeze(op.sub(op.mul(points, self.unit), _value(1)), _shape(1))
        grid = op.unsqueeze(op.add(middle, offsets), _shape(0))
        found = op.grid_sample(image, grid, align_corners=1, mode='bilinear', padding_mode='border')
        return op.reshape(found, _shape(self.count, -1))


class _Template:
    """As `patches._template`: of patches with a rim, (K, (side + 2)^2), gradients without gain and offset, and contrasts."""

    def __init__(self, patch: Var, side: int) -> None:
        square = op.reshape(patch, _shape(-1, side + 2, side + 2))

        def part(right: int, down: int) -> Var:
            piece = op.slice(square, _shape(down, right), _shape(down + side, right + side), _shape(1, 2))
            return op.reshape(piece, _shape(-1, side**2))
        self.seen = part(1, 1)
        centred = op.sub(self.seen, _mean(self.seen))
        self.contrast = op.max([op.sqrt(_mean(_square(centred))), _value(FAINT)])
        self.pattern = op.div(centred, self.contrast)
        self.gradients = []
        for gradient in (op.sub(part(2, 1), part(0, 1)), op.sub(part(1, 2), part(1, 0))):
            gradient = op.mul(gradient, _value(0.5))
            gradient = op.sub(gradient, _mean(gradient))
            self.gradients.append(op.sub(gradient, op.mul(self.pattern, _mean(op.mul(gradient, self.pattern)))))

    def tensor(self) -> Columns:
        """The structure tensor."""
        u, v = self.gradients
        return [_mean(op.mul(one, other)) for one, other in ((u, u), (u, v), (v, v))]

    def descent(self, step_of: Columns) -> Var:
        """(K, 3, side^2): what a patch is multiplied with for its step in u and v, before its gain, and for that."""
        rows = [*_times(step_of, self.gradients), op.div(self.pattern, self.contrast)]
        return op.concat([op.unsqueeze(row, _shape(1)) for row in rows], axis=1)


def _step(descent: Var, seen: Var) -> Var:
    """How far a patch that is seen (K, n) is off, (K, 2)."""
    products = op.reduce_mean(op.mul(descent, op.unsqueeze(seen, _shape(1))), axes=[2], keepdims=0)
    gain = op.max([op.slice(products, _shape(2), _shape(3), _shape(1)), _value(FAINT)])
    return op.div(op.slice(products, _shape(0), _shape(2), _shape(1)), gain)


def _local_affine(asked: Columns, moved: Columns, valid: Var) -> tuple[Columns, Columns]:
    """As `views.local_affine`, by the same matches, every so many of those that are valid: views (4) and places (2) of points.

    The first K points asked are the matches' own, which went to `moved` where `valid` (K, 1) is one.
    """
    count, flat = valid.unwrap_tensor().shape[0], op.reshape(valid, _shape(1, -1))
    points = [op.slice(point, _shape(0), _shape(count), _shape(0)) for point in asked]
    rank = _rank(flat, count)
    total = op.max([op.reduce_sum(flat, _shape(1), keepdims=1), _value(1)])
    stride = op.ceil(op.div(total, _value(SOURCES)))
    wanted = op.mul(op.const(np.arange(min(SOURCES, count), dtype=np.float32)[:, None]), stride)
    chosen = op.mul(op.cast(op.less(op.abs(op.sub(rank, wanted)), _value(0.5)), to=np.float32), flat)  # (S, K), a one in a row

    def mean(column: Var) -> Var:
        return op.div(op.reduce_sum(op.mul(column, valid), _shape(0), keepdims=1), total)

    offsets = [op.sub(to, point) for to, point in zip(moved, points, strict=True)]
    middle, shift = [mean(point) for point in points], [mean(offset) for offset in offsets]
    x = [op.div(op.sub(point, by), _value(REACH_PX)) for point, by in zip(asked, middle, strict=True)]
    own = [op.slice(column, _shape(0), _shape(count), _shape(0)) for column in x]
    motion = [op.div(op.sub(offset, by), _value(REACH_PX)) for offset, by in zip(offsets, shift, strict=True)]
    there = op.reduce_sum(chosen, _shape(1), keepdims=1)  # (S, 1)
    sources = op.matmul(chosen, op.concat([*own, *motion], axis=1))
    a0, a1, b0, b1 = _columns(sources)
    apart = [op.sub(mine, op.reshape(theirs, _shape(1, -1))) for mine, theirs in zip(x, (a0, a1), strict=True)]
    distance = _dot(apart, apart)
    weights = op.mul(op.exp(op.mul(distance, _value(-0.5))), op.reshape(there, _shape(1, -1)))  # (K, S)
    pairs = [(a0, a0), (a0, a1), (a1, a1), (b0, a0), (b0, a1), (b1, a0), (b1, a1)]
    table = op.concat([there, a0, a1, b0, b1, *(op.mul(one, other) for one, other in pairs)], axis=1)
    total, *moments = _columns(op.matmul(weights, table))
    total = op.add(total, _value(1e-6))
    m0, m1, n0, n1, *products = (op.div(moment, total) for moment in moments)
    means = [(m0, m0), (m0, m1), (m1, m1), (n0, m0), (n0, m1), (n1, m0), (n1, m1)]
    a, b, d, *cross = (op.sub(product, op.mul(one, other)) for product, (one, other) in zip(products, means, strict=True))
    ridge = op.div(_value((RIDGE_PX / REACH_PX)**2), total)
    a, d = op.add(a, ridge), op.add(d, ridge)
    determinant = op.sub(op.mul(a, d), op.mul(b, b))
    change = _product(cross, _full([op.div(value, determinant) for value in (d, op.neg(b), a)]))
    beside = _times(change, [op.sub(mine, centre) for mine, centre in zip(x, (m0, m1), strict=True)])
    further = [op.mul(op.add(mean_motion, more), _value(REACH_PX)) for mean_motion, more in zip((n0, n1), beside, strict=True)]
    there = [op.add(point, op.add(by, more)) for point, by, more in zip(asked, shift, further, strict=True)]
    return _added(change, [_value(1), _value(0), _value(0), _value(1)]), there


def _rank(flat: Var, count: int) -> Var:
    """How many ones stand before each of (1, K) zeros and ones, (1, K): within blocks of 64, and by whole blocks before them."""
    blocks = -(-count // BLOCK)
    rows = op.reshape(op.pad(flat, _shape(0, 0, 0, blocks * BLOCK - count), _value(0)), _shape(blocks, BLOCK))
    within = op.matmul(rows, op.const(np.triu(np.ones((BLOCK, BLOCK), np.float32), 1)))
    earlier = op.matmul(op.const(np.tril(np.ones((blocks, blocks), np.float32), -1)), op.reduce_sum(rows, _shape(1), keepdims=1))
    return op.slice(op.reshape(op.add(within, earlier), _shape(1, -1)), _shape(0), _shape(count), _shape(1))


def _inverse(matrix: Columns) -> Columns:
    """As `patches.inverse_2x2`."""
    a, b, d = op.add(matrix[0], _value(1e-6)), matrix[1], op.add(matrix[2], _value(1e-6))
    least = op.mul(_square(op.add(a, d)), _value(1e-6))
    determinant = op.max([op.sub(op.mul(a, d), op.mul(b, b)), least])
    return [op.div(value, determinant) for value in (d, op.neg(b), a)]


def _full(symmetric: Columns) -> Columns:
    a, b, d = symmetric
    return [a, b, b, d]


def _product(left: Columns, right: Columns) -> Columns:
    """Of two full matrices."""
    return [_dot(left[2 * row:2 * row + 2], right[column::2]) for row in (0, 1) for column in (0, 1)]


def _times(matrix: Columns, vector: Columns) -> Columns:
    """A full matrix times a vector (2)."""
    return [_dot(matrix[:2], vector), _dot(matrix[2:], vector)]


def _dot(one: Columns, other: Columns) -> Var:
    return reduce(op.add, (op.mul(left, right) for left, right in zip(one, other, strict=True)))


def _squared(vector: Columns) -> Columns:
    """vector vector^T, symmetric."""
    u, v = vector
    return [op.mul(u, u), op.mul(u, v), op.mul(v, v)]


def _added(one: Columns, other: Columns) -> Columns:
    return [op.add(left, right) for left, right in zip(one, other, strict=True)]


def _columns(x: Var) -> Columns:
    """The columns of (K, n), (K, 1) each."""
    return [op.slice(x, _shape(number), _shape(number + 1), _shape(1)) for number in range(x.unwrap_tensor().shape[1])]


def _square(x: Var) -> Var:
    return op.mul(x, x)


def _mean(x: Var) -> Var:
    """Over the columns of (K, n), (K, 1)."""
    return op.reduce_mean(x, axes=[1], keepdims=1)


def _value(value: float) -> Var:
    return op.const(np.float32(value))


def _shape(*sizes: int) -> Var:
    return op.const(np.array(sizes, np.int64))
