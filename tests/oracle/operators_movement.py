"""Layers that move, select or view values, and those about shapes, types and indices. Nothing is computed here."""

from __future__ import annotations

import typing

import numpy as np

from .model import NUMPY_TYPES, Node
from .rounding import EPSILON, round_to
from .values import FLOATS, FORM_OF, T, Unsupported, Value, deviation, kept, result, uncertain

Inputs = list[Value | None]


def integers(x: Value | None) -> list[int] | None:
    return None if x is None else [int(i) for i in np.asarray(x.v).reshape(-1)]


def listed(node: Node, x: Inputs, index: int, attribute: str) -> list[int] | None:
    """A list of integers that later opsets have as an input."""
    if index < len(x) and x[index] is not None:
        return integers(x[index])
    value = node.get(attribute)
    return None if value is None else [int(i) for i in value]


def _reshape(node: Node, x: Inputs) -> list[Value]:
    data = x[0]
    shape = listed(node, x, 1, "shape") or []
    if not node.get("allowzero", 0):
        shape = [data.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    return [data.moved(lambda a: a.reshape(shape))]


def _flatten(node: Node, x: Inputs) -> list[Value]:
    data, axis = x[0], node.get("axis", 1)
    axis = axis + len(data.shape) if axis < 0 else axis
    outer = int(np.prod(data.shape[:axis], dtype=np.int64))
    inner = int(np.prod(data.shape[axis:], dtype=np.int64))
    return [data.moved(lambda a: a.reshape(outer, inner))]


def _squeeze(node: Node, x: Inputs) -> list[Value]:
    axes = listed(node, x, 1, "axes")
    return [x[0].moved(lambda a: np.squeeze(a, None if axes is None else tuple(axes)))]


def _unsqueeze(node: Node, x: Inputs) -> list[Value]:
    axes = listed(node, x, 1, "axes") or []
    return [x[0].moved(lambda a: np.expand_dims(a, tuple(axes)))]


def _transpose(node: Node, x: Inputs) -> list[Value]:
    return [x[0].moved(lambda a: np.transpose(a, node.get("perm")))]


def _concat(node: Node, x: Inputs) -> list[Value]:
    parts = [v for v in x if v is not None]
    axis = node.get("axis", 1)
    y = np.concatenate([v.v for v in parts], axis)
    e = np.concatenate([v.bound() for v in parts], axis) if any(v.e is not None for v in parts) else None
    return [Value(y, parts[0].type, e)]


def _slice(node: Node, x: Inputs) -> list[Value]:
    data = x[0]
    starts, ends = listed(node, x, 1, "starts") or [], listed(node, x, 2, "ends") or []
    axes, steps = listed(node, x, 3, "axes"), integers(x[4]) if len(x) > 4 else None
    index: list[typing.Any] = [slice(None)] * len(data.shape)
    for i, (start, end) in enumerate(zip(starts, ends)):
        axis = axes[i] if axes is not None else i
        step, size = steps[i] if steps is not None else 1, data.shape[axis]
        if step > 0:
            index[axis] = slice(max(0, min(size, start + size if start < 0 else start)),
                                max(0, min(size, end + size if end < 0 else end)), step)  # fmt: skip
        else:
            # ONNX clamps a start to the first element, where NumPy takes nothing.
            first = max(0, min(size - 1, start + size if start < 0 else start))
            # The largest integers mean the end in the direction of the step, as in ONNX Runtime.
            last = -1 if end in (2**31 - 1, 2**63 - 1) else max(-1, min(size - 1, end + size if end < 0 else end))
            index[axis] = slice(first, None if last < 0 else last, step)
    return [data.moved(lambda a: a[tuple(index)])]


def _split(node: Node, x: Inputs) -> list[Value]:
    data, axis, count = x[0], node.get("axis", 0), len(node.outputs)
    sizes = listed(node, x, 1, "split")
    if sizes is None:
        each = -(-data.shape[axis] // count)
        sizes = [max(0, min(each, data.shape[axis] - i * each)) for i in range(count)]
    cuts = np.cumsum(sizes)[:-1]
    parts = np.split(data.v, cuts, axis)
    bounds = [None] * count if data.e is None else np.split(data.e, cuts, axis)
    return [Value(p, data.type, b) for p, b in zip(parts, bounds)]


def _pick(data: Value, index: Value, function: typing.Callable[[np.ndarray], np.ndarray]) -> list[Value]:
    if index.e is not None:
        y = function(data.v)
        return [uncertain(y, data.type, True)]
    return [data.moved(function)]


def _gather(node: Node, x: Inputs) -> list[Value]:
    axis = node.get("axis", 0)
    return _pick(x[0], x[1], lambda a: np.take(a, x[1].v, axis))


def _gather_elements(node: Node, x: Inputs) -> list[Value]:
    axis = node.get("axis", 0)
    size = x[0].shape[axis]
    index = np.where(x[1].v < 0, x[1].v + size, x[1].v)
    place = list(np.indices(index.shape))  # Other dimensions may be shorter than those of the data.
    place[axis] = index
    return _pick(x[0], x[1], lambda a: a[tuple(place)])


def _gather_nd(node: Node, x: Inputs) -> list[Value]:
    batch, index = node.get("batch_dims", 0), x[1].v

    def gather(a: np.ndarray) -> np.ndarray:
        lead = np.indices(index.shape[:batch]).reshape(batch, *index.shape[:batch], *[1] * (index.ndim - 1 - batch))
        return a[(*lead, *np.moveaxis(index, -1, 0))]

    return _pick(x[0], x[1], gather)


def _expand(node: Node, x: Inputs) -> list[Value]:
    shape = np.broadcast_shapes(x[0].shape, tuple(integers(x[1]) or ()))
    return [x[0].moved(lambda a: np.array(np.broadcast_to(a, shape)))]


def _tile(node: Node, x: Inputs) -> list[Value]:
    return [x[0].moved(lambda a: np.tile(a, tuple(integers(x[1]) or ())))]


def _where(node: Node, x: Inputs) -> list[Value]:
    condition, a, b = x
    y = np.where(condition.v, a.v, b.v)
    if condition.e is None and a.e is None and b.e is None:
        return [Value(y, a.type)]
    e = np.where(condition.v, a.bound(), b.bound())
    if condition.e is not None:
        either = np.broadcast_to(condition.e > 0, y.shape)
        e = np.where(either, np.maximum(a.bound(), b.bound()) + deviation(a.v, b.v), e)
    return [Value(y, a.type, kept(e))]


def _pad(node: Node, x: Inputs) -> list[Value]:
    data, mode = x[0], node.get("mode", "constant")
    pads = listed(node, x, 1, "pads") or []
    value = x[2] if len(x) > 2 and x[2] is not None else None
    fill = value.v.reshape(()) if value is not None else np.asarray(node.get("value", 0.0)).astype(data.v.dtype)
    axes = integers(x[3]) if len(x) > 3 and x[3] is not None else list(range(len(data.shape)))
    before, after = [0] * len(data.shape), [0] * len(data.shape)
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    width = [(max(0, b), max(0, a)) for b, a in zip(before, after)]

    def pad(a: np.ndarray, filling: typing.Any) -> np.ndarray:
        if mode == "constant":  # What is cut may reach into the pads of the other side.
            a = np.pad(a, width, mode, constant_values=filling)
        a = a[tuple(slice(max(0, -b), s - max(0, -e)) for b, e, s in zip(before, after, a.shape))]
        return a if mode == "constant" else np.pad(a, width, mode)

    e = None
    if data.e is not None or (value is not None and value.e is not None):
        e = pad(data.bound(), 0.0 if value is None else value.bound().reshape(()))
    return [Value(pad(data.v, fill), data.type, e)]


def _depth_to_space(node: Node, x: Inputs) -> list[Value]:
    n, c, h, w = x[0].shape
    b = node.get("blocksize")
    if node.get("mode", "DCR") == "DCR":
        return [x[0].moved(lambda a: a.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
                           .reshape(n, c // b**2, h * b, w * b))]  # fmt: skip
    return [x[0].moved(lambda a: a.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
                       .reshape(n, c // b**2, h * b, w * b))]  # fmt: skip


def _space_to_depth(node: Node, x: Inputs) -> list[Value]:
    n, c, h, w = x[0].shape
    b = node.get("blocksize")
    return [x[0].moved(lambda a: a.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
                       .reshape(n, c * b * b, h // b, w // b))]  # fmt: skip


def _trilu(node: Node, x: Inputs) -> list[Value]:
    k = int(x[1].v.reshape(())) if len(x) > 1 and x[1] is not None else 0
    part = np.triu if node.get("upper", 1) else np.tril
    return [x[0].moved(lambda a: part(a, k))]


def _identity(node: Node, x: Inputs) -> list[Value]:
    result = [x[0]]
    if len(node.outputs) > 1:
        result.append(Value(np.ones(x[0].shape, np.bool_), T.BOOL))
    return result


_SCATTERED = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(node: Node, data: Value, updates: Value, index: Value, place: tuple[np.ndarray, ...]) -> list[Value]:
    """`updates` written to, or reduced with, the elements at `place`."""
    how = node.get("reduction", "none")

    def scatter(a: np.ndarray, u: np.ndarray) -> np.ndarray:
        y = a.copy()
        if how == "none":
            y[place] = u
        else:
            _SCATTERED[how].at(y, place, u)
        return y

    y = scatter(data.v, updates.v)
    if index.e is not None:
        return [uncertain(y, data.type, True)]
    if data.is_float and how in ("add", "mul"):
        size = scatter(np.abs(data.v), np.abs(updates.v))
        moved = scatter(np.abs(data.v) + data.bound(), np.abs(updates.v) + updates.bound()) - size
        return [result(y, data.type, kept(moved), (1 + updates.v.size) * EPSILON * np.abs(size - np.abs(data.v)))]
    if data.e is None and updates.e is None:
        return [Value(y, data.type)]
    if how == "none":
        return [Value(y, data.type, scatter(data.bound(), updates.bound()))]
    # The least or largest of some moves no more than the one that moves most.
    bounds = data.bound().copy()
    np.maximum.at(bounds, place, updates.bound())
    return [Value(y, data.type, bounds)]


def _scatter_elements(node: Node, x: Inputs) -> list[Value]:
    data, index, updates = x[0], x[1], x[2]
    axis = node.get("axis", 0)
    axis = axis + len(data.shape) if axis < 0 else axis
    place = list(np.indices(index.shape))
    place[axis] = np.where(index.v < 0, index.v + data.shape[axis], index.v)
    return _scatter(node, data, updates, index, tuple(place))


def _scatter_nd(node: Node, x: Inputs) -> list[Value]:
    return _scatter(node, x[0], x[2], x[1], tuple(np.moveaxis(x[1].v, -1, 0)))


def _compress(node: Node, x: Inputs) -> list[Value]:
    if x[1].e is not None:
        raise Unsupported("Compress by a condition that may be either")
    axis = node.get("axis")
    return [x[0].moved(lambda a: np.compress(x[1].v, a, axis))]


def _reverse_sequence(node: Node, x: Inputs) -> list[Value]:
    time, batch, lengths = node.get("time_axis", 0), node.get("batch_axis", 1), integers(x[1]) or []

    def reverse(a: np.ndarray) -> np.ndarray:
        y = np.moveaxis(a.copy(), (batch, time), (0, 1))
        for i, length in enumerate(lengths):
            y[i, :length] = y[i, :length][::-1].copy()
        return np.moveaxis(y, (0, 1), (batch, time))

    return [x[0].moved(reverse)]


def _top_k(node: Node, x: Inputs) -> list[Value]:
    data, axis, largest = x[0], node.get("axis", -1), node.get("largest", 1)
    k = integers(x[1])[0] if len(x) > 1 and x[1] is not None else node.get("k")
    order = np.argsort(-data.v if largest else data.v, axis, kind="stable")
    index = np.take(order, np.arange(k), axis)
    y = np.take_along_axis(data.v, index, axis)
    if data.e is None:
        return [Value(y, data.type), Value(index.astype(np.int64), T.INT64)]
    # Neighbors in the order that may change places: their values move as much, their indices are anybody's.
    e = np.take_along_axis(data.bound(), index, axis) + np.max(data.bound(), axis, keepdims=True)
    return [Value(y, data.type, e), uncertain(index.astype(np.int64), T.INT64, True)]


#: PrecisionRule "movement": they pass on the storage type of their inputs.
MOVEMENT: dict[str, typing.Callable[[Node, Inputs], list[Value]]] = {
    "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Transpose": _transpose,
    "Concat": _concat, "Slice": _slice, "Split": _split, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_nd, "Expand": _expand, "Tile": _tile, "Where": _where, "Pad": _pad, "Identity": _identity,
    "Dropout": _identity, "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth, "Trilu": _trilu,
    "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd, "ReverseSequence": _reverse_sequence,
    "TopK": _top_k,
    "Scatter": _scatter_elements, "Compress": _compress,
}  # fmt: skip


# Shapes, types, indices --------------------------------------------------------------------------------------------


def _shape(node: Node, x: Inputs) -> list[Value]:
    shape = list(x[0].shape)
    return [Value(np.asarray(shape[node.get("start", 0) : node.get("end")], np.int64), T.INT64)]


def _size(node: Node, x: Inputs) -> list[Value]:
    return [Value(np.asarray(x[0].v.size, np.int64), T.INT64)]


def _cast(node: Node, x: Inputs) -> list[Value]:
    return [cast(x[0], x[1].type if node.op == "CastLike" else node.get("to"))]


def cast(x: Value, kind: int) -> Value:
    """Between all types but those of four and eight bits that are no integers."""
    if kind in FLOATS:
        v = x.v.astype(np.float64)
        if kind == T.DOUBLE:
            return Value(v, kind, x.e)
        form = FORM_OF[kind]
        y = round_to(v, form)
        if x.e is None:
            return Value(y, kind)
        e = np.maximum(deviation(round_to(v - x.e, form), y), deviation(round_to(v + x.e, form), y))
        return Value(y, kind, kept(np.where(np.isinf(x.e), np.inf, e)))
    if kind not in NUMPY_TYPES:
        raise Unsupported(f"Cast to {T.DataType.Name(kind)}")

    def convert(v: np.ndarray) -> np.ndarray:
        if kind == T.BOOL:
            return v != 0
        if x.is_float:
            v = np.trunc(np.where(np.isfinite(v), v, 0)).astype(np.int64)
        return v.astype(NUMPY_TYPES[kind])

    # What infinities and NaN become as integers is left open.
    undefined = ~np.isfinite(x.v) if x.is_float and kind != T.BOOL else np.zeros(x.v.shape, bool)
    y = convert(x.v)
    if x.e is None:
        return Value(y, kind, kept(np.where(undefined, np.inf, 0.0)))
    bound = np.minimum(x.e, 2.0**62)
    low, high = convert(x.v - bound).astype(np.float64), convert(x.v + bound).astype(np.float64)
    e = np.maximum(np.abs(low - y.astype(np.float64)), np.abs(high - y.astype(np.float64)))
    return Value(y, kind, kept(np.where(undefined | np.isinf(x.e), np.inf, e)))


def _constant_of_shape(node: Node, x: Inputs) -> list[Value]:
    value = node.get("value") or Value(np.zeros(1), T.FLOAT)
    return [Value(np.full(integers(x[0]), value.v.reshape(-1)[0]), value.type)]


def _range(node: Node, x: Inputs) -> list[Value]:
    start, limit, delta = (v.v.reshape(()) for v in x[:3])
    count = max(0, int(np.ceil((float(limit) - float(start)) / float(delta))))
    if not x[0].is_float:
        return [Value((start + np.arange(count) * delta).astype(x[0].v.dtype), x[0].type)]
    y = round_to(start + np.arange(count) * delta, "fp32")
    return [Value(y, x[0].type, kept(2.0**-22 * np.abs(y)))]


def _one_hot(node: Node, x: Inputs) -> list[Value]:
    depth, axis = int(x[1].v.reshape(-1)[0]), node.get("axis", -1)
    index = x[0].v.astype(np.int64)
    hot = np.where(index < 0, index + depth, index)[..., None] == np.arange(depth)
    hot = np.moveaxis(hot, -1, axis) if axis != -1 else hot
    return [Value(np.where(hot, x[2].v[1], x[2].v[0]), x[2].type)]


def _non_zero(node: Node, x: Inputs) -> list[Value]:
    if x[0].e is not None and np.any((x[0].e > 0) & ~(np.abs(x[0].v) > x[0].e)):
        raise Unsupported("NonZero of values next to zero")
    places = np.nonzero(np.atleast_1d(x[0].v))
    found = int(np.count_nonzero(x[0].v))
    return [Value(np.asarray(places, np.int64)[: len(x[0].shape)].reshape(len(x[0].shape), found), T.INT64)]


def _arg_extreme(node: Node, x: Inputs) -> list[Value]:
    data, axis = x[0], node.get("axis", 0)
    sign = 1 if node.op == "ArgMax" else -1
    v = sign * data.v if data.is_float else sign * data.v.astype(np.float64)
    if v.size == 0:  # NumPy has no place of the largest of none.
        shape = np.sum(v, axis, keepdims=bool(node.get("keepdims", 1))).shape
        return [Value(np.zeros(shape, np.int64), T.INT64)]
    size = v.shape[axis]
    first = np.argmax(v, axis)
    if node.get("select_last_index", 0):
        first = size - 1 - np.argmax(np.flip(v, axis), axis)
    best = np.max(v, axis, keepdims=True)
    y = first.astype(np.int64)
    y = np.expand_dims(y, axis) if node.get("keepdims", 1) else y
    if data.e is None:
        return [Value(y, T.INT64)]
    rivals = np.sum(v + data.bound() >= best - np.max(data.bound(), axis, keepdims=True), axis, keepdims=True) > 1
    return [uncertain(y, T.INT64, rivals if node.get("keepdims", 1) else np.squeeze(rivals, axis))]


def _eye_like(node: Node, x: Inputs) -> list[Value]:
    kind = node.get("dtype", x[0].type)
    y = np.eye(*x[0].shape, k=node.get("k", 0))
    return [Value(y if kind in FLOATS else y.astype(NUMPY_TYPES[kind]), kind)]


#: PrecisionRule "fixed": no float arithmetic.
FIXED: dict[str, typing.Callable[[Node, Inputs], list[Value]]] = {
    "Shape": _shape, "Size": _size, "Cast": _cast, "CastLike": _cast, "ConstantOfShape": _constant_of_shape,
    "Range": _range, "OneHot": _one_hot, "NonZero": _non_zero, "ArgMax": _arg_extreme, "ArgMin": _arg_extreme,
    "EyeLike": _eye_like,
}  # fmt: skip
