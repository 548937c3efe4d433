"""Reductions, softmax and normalizations: float64 sums, and bounds for float32 sums in any order."""

from __future__ import annotations


import numpy as np

from .model import Node
from .operators_movement import Inputs
from .rounding import EPSILON, FLOAT32_MAX, SMALLEST, SMALLEST_NORMAL
from .values import Unsupported, Value, corners, result

Axes = tuple[int, ...]


def sum_error(count: int) -> float:
    """The error of a float32 sum of this many terms, relative to the sum of their magnitudes."""
    return EPSILON * min(count - 1, 2 + 1.5 * np.sqrt(count)) if count > 1 else 0.0


def alike_error(v: np.ndarray, axis: int) -> np.ndarray:
    """What a running sum may lose beyond `sum_error`: its roundings are independent where its terms differ, but all go
    the same way where terms are equal. Relative, too; counts the terms that equal the middle one."""
    middle = np.take(np.sort(v, axis), [v.shape[axis] // 2], axis)
    return EPSILON * np.sum(v == middle, axis, keepdims=True)


def reduction_axes(node: Node, axes_value: Value | None, rank: int) -> Axes:
    """The axes of a ReduceX layer: all of them when none are given, unless noop_with_empty_axes is set."""
    axes = [int(a) for a in axes_value.v.reshape(-1)] if axes_value is not None else list(node.get("axes") or [])
    if not axes:
        return () if node.get("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({a + rank if a < 0 else a for a in axes}))


def _log_sum_exp(v: np.ndarray, axes: Axes) -> np.ndarray:
    top = np.max(v, axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    return np.log(np.sum(np.exp(v - shift), axes, keepdims=True)) + shift


def _reduce(op: str, v: np.ndarray, axes: Axes) -> np.ndarray:
    keep = {"axis": axes, "keepdims": True}
    if op == "ReduceSum":
        return np.sum(v, **keep)
    if op == "ReduceMean":
        return np.sum(v, **keep) / max(1, int(np.prod([v.shape[a] for a in axes], dtype=np.int64)))  # Of nothing: 0.
    if op in ("ReduceMax", "ReduceMin"):
        low = np.iinfo(v.dtype).min if v.dtype.kind in "iu" else (False if v.dtype.kind == "b" else -np.inf)
        high = np.iinfo(v.dtype).max if v.dtype.kind in "iu" else (True if v.dtype.kind == "b" else np.inf)
        return np.max(v, initial=low, **keep) if op == "ReduceMax" else np.min(v, initial=high, **keep)
    if op == "ReduceProd":
        return np.prod(v, **keep)
    if op == "ReduceL1":
        return np.sum(np.abs(v), **keep)
    if op == "ReduceL2":
        return np.sqrt(np.sum(v * v, **keep))
    if op == "ReduceSumSquare":
        return np.sum(v * v, **keep)
    if op == "ReduceLogSum":
        return np.log(np.sum(v, **keep))
    if op == "ReduceLogSumExp":
        return _log_sum_exp(v, axes)
    raise Unsupported(op)


def reduction(node: Node, x: Inputs) -> Value:
    data = x[0]
    assert data is not None
    axes = reduction_axes(node, x[1] if len(x) > 1 else None, len(data.shape))
    if not axes and node.op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
        return data
    count = int(np.prod([data.shape[a] for a in axes], dtype=np.int64))
    drop = (lambda a: a) if node.get("keepdims", 1) else (lambda a: np.squeeze(a, axes))
    if not data.is_float:
        v = data.v if node.op in ("ReduceMax", "ReduceMin") else data.v.astype(np.int64)
        y = _reduce(node.op, v, axes)
        if node.op == "ReduceMean":
            y = np.trunc(np.sum(v, axis=axes, keepdims=True) / max(count, 1))
        return Value(drop(y.astype(data.v.dtype)), data.type)
    y = _reduce(node.op, data.v, axes)
    moved = _moved(node.op, data, axes, y)
    return result(
        drop(y), data.type, None if moved is None else drop(moved), drop(_own(node.op, data.v, axes, y, count))
    )


def _moved(op: str, data: Value, axes: Axes, y: np.ndarray) -> np.ndarray | None:
    if data.e is None:
        return None
    e = np.minimum(data.e, 1e300)
    if op == "ReduceSum":
        moved = np.sum(e, axis=axes, keepdims=True)
    elif op == "ReduceMean":
        moved = _reduce(op, e, axes)
    elif op in ("ReduceMax", "ReduceMin", "ReduceLogSum", "ReduceLogSumExp"):
        moved = corners(lambda v: _reduce(op, v, axes), [data._replace(e=e)])
    else:
        # These grow with every magnitude.
        magnitudes = np.abs(data.v)
        moved = _reduce(op, magnitudes + e, axes) - _reduce(op, magnitudes, axes)
    return np.where(np.isnan(moved) | (moved > 1e250), np.inf, moved)


def _own(op: str, v: np.ndarray, axes: Axes, y: np.ndarray, count: int) -> np.ndarray:
    total = np.sum(np.abs(v), axis=axes, keepdims=True)
    if op in ("ReduceMax", "ReduceMin"):
        return np.zeros_like(y)
    if op == "ReduceSum":
        return sum_error(count) * total
    if op == "ReduceMean":
        return (sum_error(count) * total + (0 if count <= 1 else EPSILON * total)) / max(count, 1)
    if op == "ReduceL1":
        return sum_error(count) * np.abs(y)
    if op == "ReduceProd":
        # In another order the first factors alone may leave the range, whatever the others make of it.
        magnitudes = np.abs(v)
        least = np.prod(np.minimum(magnitudes, 1), axis=axes, keepdims=True)
        most = np.prod(np.maximum(magnitudes, 1), axis=axes, keepdims=True)
        leaves = (least < SMALLEST_NORMAL) | (most > FLOAT32_MAX)
        return np.where(leaves & (count > 1), 1e300, (0 if count <= 1 else count * EPSILON) * np.abs(y))
    if op in ("ReduceL2", "ReduceSumSquare"):
        # A square below the smallest normal number keeps no more than multiples of the smallest number.
        squares = v * v
        lost = SMALLEST * np.sum((squares > 0) & (squares < SMALLEST_NORMAL), axis=axes, keepdims=True)
        # And sums of squares beyond float32 say nothing of their root.
        beyond = np.where(np.sum(squares, axis=axes, keepdims=True) > FLOAT32_MAX, 1e300, 0.0)
        if op == "ReduceL2":
            lost = y - np.sqrt(np.maximum(y * y - lost, 0))
        return np.maximum((sum_error(count) + 2 * EPSILON) * np.abs(y) + lost, beyond)
    if op == "ReduceLogSum":
        # By the ends of what the sum may be: next to 0 its logarithm is anything.
        inner, off = np.sum(v, axis=axes, keepdims=True), sum_error(count) * total
        anything = np.where((off > 0) & (inner >= -off), 1e300, 0)
        return np.where(off < inner, off / (inner - off), anything) + 6 * EPSILON * np.where(np.isfinite(y), abs(y), 0)
    return sum_error(count) + 8 * EPSILON * (1 + np.abs(y))


# Softmax -----------------------------------------------------------------------------------------------------------


def softmax_axes(node: Node, rank: int) -> Axes:
    """Since opset 13 one axis; before, an axis and all behind it."""
    if node.opset >= 13:
        axis = node.get("axis", -1)
        return (axis + rank if axis < 0 else axis,)
    axis = node.get("axis", 1)
    return tuple(range(axis + rank if axis < 0 else axis, rank))


def softmax(node: Node, x: Inputs) -> Value:
    data = x[0]
    assert data is not None
    v, axes = data.v, softmax_axes(node, len(data.shape))
    if v.size == 0:
        return data
    count = int(np.prod([v.shape[a] for a in axes], dtype=np.int64))
    shifted = v - np.max(v, axes, keepdims=True)
    weights = np.exp(shifted)
    total = np.sum(weights, axes, keepdims=True)
    p = weights / total
    e = np.minimum(data.bound(), 1e300)
    finite = np.where(np.isfinite(shifted), np.abs(shifted), 0)
    moved = e + np.max(np.where(p > 0, e, 0), axes, keepdims=True)
    # exp() of a difference that was rounded, and an error of the sum.
    rounding = EPSILON * (8 + finite) + sum_error(count) + EPSILON * np.sum(p * finite, axes, keepdims=True)
    if node.op == "LogSoftmax":
        y = shifted - np.log(total)
        return result(y, data.type, moved if data.e is not None else None, rounding + 2 * EPSILON * np.abs(y))
    moved = np.minimum(p * np.expm1(np.minimum(moved, 700)), 1)
    return result(p, data.type, moved if data.e is not None else None, p * rounding + np.isfinite(shifted) * 2.0**-140)


def exponentials(node: Node, scores: Value) -> tuple[Value, Value]:
    """exp(score - largest of the row), and the sum of these, one per row."""
    v, axes = scores.v, softmax_axes(node, len(scores.shape))
    count = int(np.prod([v.shape[a] for a in axes], dtype=np.int64))
    shifted = v - np.max(v, axes, keepdims=True)
    weights = np.exp(shifted)
    total = np.sum(weights, axes, keepdims=True)
    finite = np.where(np.isfinite(shifted), np.abs(shifted), 0)
    own = EPSILON * weights * (8 + finite) + np.isfinite(shifted) * 2.0**-140
    own_total = sum_error(count) * total + np.sum(own, axes, keepdims=True)
    if scores.e is None:
        return result(weights, scores.type, None, own), result(total, scores.type, None, own_total)
    e = np.minimum(scores.e, 1e300)
    largest = np.max(np.where(weights > 0, e, 0), axes, keepdims=True)
    moved = weights * np.expm1(np.minimum(e + largest, 700))
    moved_total = np.sum(moved, axes, keepdims=True)
    return result(weights, scores.type, moved, own), result(total, scores.type, moved_total, own_total)


def hardmax(node: Node, x: Inputs) -> Value:
    """1 for the first of the largest of a row, 0 for the others."""
    data, axes = x[0], softmax_axes(node, len(x[0].shape))
    rows = np.moveaxis(data.v, axes, range(-len(axes), 0))
    outer = rows.shape[: rows.ndim - len(axes)]
    flat = rows.reshape(*outer, int(np.prod(rows.shape[len(outer) :], dtype=np.int64)))
    hot = np.arange(flat.shape[-1]) == np.argmax(flat, -1)[..., None] if flat.size else flat
    y = np.moveaxis(hot.reshape(rows.shape), range(-len(axes), 0), axes).astype(np.float64)
    if data.e is None or not data.v.size:
        return Value(y, data.type)
    rivals = (
        np.sum(data.v + data.bound() >= np.max(data.v - data.bound(), axes, keepdims=True), axes, keepdims=True) > 1
    )
    return Value(y, data.type, np.broadcast_to(np.where(rivals, 1.0, 0.0), y.shape) if rivals.any() else None)


# Normalizations ----------------------------------------------------------------------------------------------------


def standardized(x: Value, axes: Axes, epsilon: float, centered: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - mean) / sqrt(variance + epsilon), a bound of its error, and 1 / sqrt(...); without the mean when not
    `centered`."""
    v, e = x.v, np.minimum(x.bound(), 1e300)
    count = int(np.prod([v.shape[a] for a in axes], dtype=np.int64))
    mean = np.mean(v, axes, keepdims=True) if centered else 0.0
    d = v - mean
    squares = np.max(d * d, axes, keepdims=True, initial=0)
    beyond = squares > FLOAT32_MAX * (1 + EPSILON)  # Of one element: their sum is infinite in any order.
    inverse = np.where(beyond, 0.0, 1 / np.sqrt(np.mean(d * d, axes, keepdims=True) + epsilon))
    y = d * inverse
    # What the operands and the rounding of mean and differences move, as if x had moved.
    slack = e + (EPSILON * np.abs(d) if centered else 0)
    if centered:
        slack = (
            slack
            + np.mean(slack, axes, keepdims=True)
            + (sum_error(count) + EPSILON) * np.mean(np.abs(v), axes, keepdims=True)
        )
    # Through 1 / sqrt(mean(d^2)): d(inverse) / inverse = -mean(y * dy * inverse).
    through = np.mean(np.abs(y) * slack, axes, keepdims=True) * inverse
    second = np.mean(slack * slack, axes, keepdims=True) * inverse * inverse
    error = inverse * slack * (1 + through + second) + np.abs(y) * (through + second + sum_error(count) + 6 * EPSILON)
    limit = 2 * np.sqrt(max(count, 1))
    error = np.minimum(np.where(np.isnan(error), np.inf, error), np.where(np.isnan(y), 0, limit))
    # Sums that float32 may not hold, where it holds every term.
    largest = np.maximum(np.sum(d * d, axes, keepdims=True), np.sum(np.abs(v), axes, keepdims=True))
    loose = ~beyond & np.isfinite(largest) & (largest > FLOAT32_MAX * (1 - 1e-6))
    return y, np.where(loose | (beyond & (squares < FLOAT32_MAX * (1 + 1e-5))), np.inf, error), inverse


def _scale_and_shift(x: Value, y: np.ndarray, error: np.ndarray, scale: Value | None, shift: Value | None) -> Value:
    if scale is not None:
        # What is below the normal numbers has lost bits, which the scale may bring back into sight.
        error = error + np.where((y != 0) & (np.abs(y) < SMALLEST_NORMAL), SMALLEST, 0)
        error = error * np.abs(scale.v) + (np.abs(y) + error) * scale.bound() + EPSILON * np.abs(y * scale.v)
        y = y * scale.v
    if shift is not None:
        error = error + shift.bound() + EPSILON * (np.abs(y) + np.abs(shift.v))
        y = y + shift.v
    return result(y, x.type, np.where(np.isnan(error), np.where(np.isnan(y), 0, np.inf), error))


def _shaped(x: Value | None, shape: tuple[int, ...]) -> Value | None:
    return None if x is None else x.moved(lambda a: a.reshape(shape))


def _optional(x: Inputs, index: int) -> Value | None:
    return x[index] if index < len(x) else None


def normalization(node: Node, x: Inputs) -> list[Value]:
    data = x[0]
    assert data is not None
    op, rank = node.op, len(data.shape)
    epsilon = float(np.float32(node.get("epsilon", 1e-5)))
    if op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        return _skip(node, x)
    if op in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
        axis = node.get("axis", -1)
        axes = tuple(range(axis + rank if axis < 0 else axis, rank))
        centered = op == "LayerNormalization"
        y, error, inverse = standardized(data, axes, epsilon, centered)
        outputs = [_scale_and_shift(data, y, error, _optional(x, 1), _optional(x, 2) if centered else None)]
        if len(node.outputs) > 1:
            mean = np.mean(data.v, axes, keepdims=True)
            slack = np.mean(data.bound(), axes, keepdims=True) + 4 * EPSILON * np.mean(
                np.abs(data.v), axes, keepdims=True
            )
            inverses = result(inverse, data.type, inverse * np.max(error, axes, keepdims=True), 8 * EPSILON * inverse)
            outputs += [result(mean, data.type, slack), inverses] if centered else [inverses]
        return outputs
    if op == "InstanceNormalization":
        y, error, _ = standardized(data, tuple(range(2, rank)), epsilon, True)
        channels = (-1,) + (1,) * (rank - 2)
        return [_scale_and_shift(data, y, error, _shaped(x[1], channels), _shaped(x[2], channels))]
    if op == "GroupNormalization":
        return [_group(node, x, epsilon)]
    if op == "LpNormalization":
        return [_lp(node, data)]
    if op == "MeanVarianceNormalization":
        axes = tuple(node.get("axes", [0, 2, 3]))
        return [_mean_variance(data, axes)]
    raise Unsupported(op)


def _mean_variance(data: Value, axes: Axes) -> Value:
    """(x - mean) / (deviation + 1e-9): what is added is next to nothing, but where all are equal."""
    small = 1e-9
    y, error, inverse = standardized(data, axes, small * small, True)
    deviation = np.sqrt(np.maximum(1 / (inverse * inverse) - small * small, 0))
    return result(np.where(inverse == 0, y, y / inverse) / (deviation + small), data.type, error)


def _skip(node: Node, x: Inputs) -> list[Value]:
    centered = node.op == "SkipLayerNormalization"
    terms = [x[0], x[1], _optional(x, 4 if centered else 3)]
    present = [t for t in terms if t is not None]
    total = sum(t.v for t in present)
    e = sum(t.bound() for t in present) + (len(present) - 1) * EPSILON * sum(np.abs(t.v) for t in present)
    data = result(total, present[0].type, e if np.any(e) else None)
    epsilon = float(np.float32(node.get("epsilon", 1e-12)))
    y, error, _ = standardized(data, (len(data.shape) - 1,), epsilon, centered)
    first = _scale_and_shift(data, y, error, x[2], _optional(x, 3) if centered else None)
    unwritten = Value(np.zeros(0), data.type)
    return [first, unwritten, unwritten, data][: len(node.outputs)]


def _group(node: Node, x: Inputs, epsilon: float) -> Value:
    data, groups = x[0], node.get("num_groups")
    n, c, *rest = data.shape
    split = _shaped(data, (n, groups, -1))
    y, error, _ = standardized(split, (2,), epsilon, True)
    channels = (-1,) + (1,) * len(rest)
    parameters = []
    for parameter in x[1:3]:
        if parameter.v.size == groups and groups != c:
            parameter = parameter.moved(lambda a: np.repeat(a, c // groups))
        parameters.append(_shaped(parameter, channels))
    return _scale_and_shift(data, y.reshape(data.shape), error.reshape(data.shape), *parameters)


def _lp(node: Node, data: Value) -> Value:
    axis, p = node.get("axis", -1), node.get("p", 2)

    def norm(v: np.ndarray) -> np.ndarray:
        return np.sum(np.abs(v), axis, keepdims=True) if p == 1 else np.sqrt(np.sum(v * v, axis, keepdims=True))

    size = norm(data.v)
    y = np.where(size == 0, 0, data.v / np.where(size == 0, 1, size))
    e = np.minimum(data.bound(), 1e300)
    moved = (e + np.abs(y) * np.sum(e, axis, keepdims=True)) / np.where(size == 0, 1, size)
    own = 8 * EPSILON * np.abs(y) + sum_error(data.shape[axis]) * np.abs(y)
    if p == 2:  # Squares that float32 does not hold leave a norm of 0.
        own = np.where((size > 0) & (size * size < SMALLEST_NORMAL), 1e300, own)
    return result(y, data.type, moved if data.e is not None else None, own)


def local_response(node: Node, x: Inputs) -> Value:
    """LRN: x / (bias + alpha / size * sum of the squares of the channels around) ^ beta."""
    data, size = x[0], node.get("size")
    alpha, beta, bias = (float(np.float32(node.get(*a))) for a in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    before, channels = (size - 1) // 2, data.shape[1]

    def factor(v: np.ndarray) -> np.ndarray:
        padded = np.pad(v * v, [(0, 0), (before, size - 1 - before)] + [(0, 0)] * (v.ndim - 2))
        total = sum(padded[:, i : i + channels] for i in range(size))
        return (bias + alpha / size * total) ** -beta

    scale = factor(data.v)
    y = data.v * scale
    moved = None
    if data.e is not None:
        wider = np.abs(factor(np.abs(data.v) + data.bound()) - scale) * (np.abs(data.v) + data.bound())
        moved = data.bound() * scale + 2 * wider
    return result(y, data.type, moved, (sum_error(size) + 12 * EPSILON) * np.abs(y))


def batch_normalization(node: Node, x: Inputs) -> Value:
    """Inference with parameters as they are read: (x - mean) * (scale / sqrt(variance + epsilon)) + shift."""
    data = x[0]
    spatial = node.opset >= 9 or node.get("spatial", 1) == 1
    shape = (-1,) + (1,) * max(0, len(data.shape) - 2) if spatial else data.shape[1:]
    scale, shift, mean, variance = (_shaped(p, shape) for p in x[1:5])
    epsilon = float(np.float32(node.get("epsilon", 1e-5)))

    def compute(*v: np.ndarray) -> np.ndarray:
        return (v[0] - v[3]) * (v[1] / np.sqrt(v[4] + epsilon)) + v[2]

    operands = [data, scale, shift, mean, variance]
    y = compute(*[o.v for o in operands])
    factor = np.abs(scale.v / np.sqrt(variance.v + epsilon))
    own = 4 * EPSILON * (np.abs(data.v) + np.abs(mean.v)) * factor + EPSILON * (np.abs(shift.v) + np.abs(y))
    return result(y, data.type, corners(compute, operands), own)


REDUCTIONS = {
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSum", "ReduceLogSumExp",
}  # fmt: skip
NORMALIZATIONS = {
    "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "InstanceNormalization",
    "GroupNormalization", "LpNormalization", "MeanVarianceNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
}  # fmt: skip


def cumulative_sum(node: Node, x: Inputs) -> Value:
    data, axis = x[0], int(x[1].v.reshape(()))

    def run(v: np.ndarray) -> np.ndarray:
        v = np.flip(v, axis) if node.get("reverse", 0) else v
        y = np.cumsum(v, axis, dtype=v.dtype)
        if node.get("exclusive", 0):
            y = y - v if v.dtype.kind != "f" or not v.size else np.concatenate(
                [np.zeros_like(np.take(y, [0], axis)), np.delete(y, -1, axis)], axis)  # fmt: skip
        return np.flip(y, axis) if node.get("reverse", 0) else y

    if not data.is_float:
        return Value(run(data.v), data.type)
    return result(run(data.v), data.type, None if data.e is None else run(data.e),
                  EPSILON * (2 + np.sqrt(data.shape[axis])) * run(np.abs(data.v)))  # fmt: skip
