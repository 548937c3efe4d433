"""Products, convolutions, pooling and resizing: sums of products in float64, with bounds for float32 accumulators."""

from __future__ import annotations

import itertools
import typing

import numpy as np

from .model import Node
from .operators_movement import Inputs
from .operators_rows import alike_error, sum_error
from .rounding import EPSILON, SMALLEST_NORMAL
from .values import T, Unsupported, Value, corners, result, uncertain

PRODUCTS = {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"}


def bilinear(function: typing.Callable[[np.ndarray, np.ndarray], np.ndarray], a: Value, b: Value, count: int) -> Value:
    """A sum of `count` products of elements of `a` and `b`, accumulated in float32."""
    y = function(a.v, b.v)
    finite_a, finite_b = (np.where(np.isfinite(x.v), np.abs(x.v), 1e300) for x in (a, b))
    own = None
    if count > 1:
        own = sum_error(count) * function(
            np.where(np.isfinite(a.v), finite_a, 0), np.where(np.isfinite(b.v), finite_b, 0)
        )
    moved = None
    for left, right in ((a.e, finite_b), (b.e, finite_a)):
        if left is not None:
            left = np.minimum(left, 1e300)
            term = function(left, right) if left.shape == a.shape and right is finite_b else function(right, left)
            moved = term if moved is None else moved + term
    if a.e is not None and b.e is not None:
        moved = moved + function(np.minimum(a.e, 1e150), np.minimum(b.e, 1e150))
    if moved is not None:
        moved = np.where(np.isnan(moved) | (moved > 1e140), np.inf, moved)
    return result(y, a.type, moved, own)


def matmul(node: Node, x: Inputs) -> Value:
    a, b = x[0], x[1]
    if not a.is_float:
        return Value(np.matmul(a.v, b.v), a.type)
    return bilinear(np.matmul, a, b, a.shape[-1])


def _added(product: Value, other: Value, count: int) -> Value:
    """A bias that may ride on the accumulator."""
    y = product.v + other.v
    moved = corners(np.add, [product, other])
    return result(y, product.type, moved, sum_error(count + 1) * np.abs(other.v) + EPSILON * np.abs(product.v))


def gemm(node: Node, x: Inputs) -> Value:
    a = x[0].moved(np.transpose) if node.get("transA", 0) else x[0]
    b = x[1].moved(np.transpose) if node.get("transB", 0) else x[1]
    alpha, beta = float(np.float32(node.get("alpha", 1.0))), float(np.float32(node.get("beta", 1.0)))
    y = bilinear(np.matmul, a, b, a.shape[-1])
    if alpha != 1:
        # The factor may be one of the weights, and be rounded there.
        y = result(y.v * alpha, y.type, None if y.e is None else y.e * abs(alpha), EPSILON * np.abs(y.v * alpha))
    if len(x) > 2 and x[2] is not None and beta != 0:
        c = x[2]
        if beta != 1:
            c = result(c.v * beta, c.type, None if c.e is None else c.e * abs(beta), EPSILON * np.abs(c.v * beta))
        y = _added(y, c, a.shape[-1])
    return y


def einsum(node: Node, x: Inputs) -> Value:
    equation = node.get("equation")
    operands = [v for v in x if v is not None]
    if len(operands) == 1:
        y = np.einsum(equation, operands[0].v)
        e = None if operands[0].e is None else np.einsum(equation, operands[0].e)
        return result(
            y, operands[0].type, e, sum_error(operands[0].v.size) * np.einsum(equation, np.abs(operands[0].v))
        )
    if len(operands) != 2:
        raise Unsupported("Einsum of three and more")
    count = max(1, max(v.v.size for v in operands))
    return bilinear(lambda a, b: np.einsum(equation, a, b), *operands, count)


# Windows -----------------------------------------------------------------------------------------------------------


class Window(typing.NamedTuple):
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]


def window(node: Node, size: tuple[int, ...], kernel: list[int]) -> Window:
    """The geometry of a convolution or pool over these spatial dimensions."""
    rank = len(size)
    strides, dilations = node.get("strides") or [1] * rank, node.get("dilations") or [1] * rank
    pads, auto = list(node.get("pads") or [0] * (2 * rank)), node.get("auto_pad", "NOTSET")
    if auto == "VALID":
        pads = [0] * (2 * rank)
    elif auto.startswith("SAME"):
        for d in range(rank):
            extent = (kernel[d] - 1) * dilations[d] + 1
            total = max(0, (-(-size[d] // strides[d]) - 1) * strides[d] + extent - size[d])
            less, more = total // 2, total - total // 2
            pads[d], pads[d + rank] = (less, more) if auto == "SAME_UPPER" else (more, less)
    return Window(list(kernel), list(strides), list(dilations), pads[:rank], pads[rank:])


def _outputs(size: tuple[int, ...], w: Window, ceil: bool = False) -> list[int]:
    result_ = []
    for d, length in enumerate(size):
        room = length + w.before[d] + w.after[d] - ((w.kernel[d] - 1) * w.dilations[d] + 1)
        count = (-(-room // w.strides[d]) if ceil else room // w.strides[d]) + 1
        # A window that starts behind the data and its padding in front is none.
        if ceil and (count - 1) * w.strides[d] >= length + w.before[d]:
            count -= 1
        result_.append(max(0, count))
    return result_


def _taps(w: Window) -> typing.Iterator[tuple[int, ...]]:
    return itertools.product(*[range(k) for k in w.kernel])


def _tap(padded: np.ndarray, w: Window, tap: tuple[int, ...], out: list[int]) -> np.ndarray:
    """What one position of the kernel sees, for all outputs."""
    index = tuple(slice(t * d, t * d + s * (o - 1) + 1, s) if o > 0 else slice(0, 0)
                  for t, d, s, o in zip(tap, w.dilations, w.strides, out))  # fmt: skip
    return padded[(slice(None), slice(None), *index)]


def _padded(v: np.ndarray, w: Window, fill: float, out: list[int]) -> np.ndarray:
    width = [(0, 0), (0, 0)]
    for d in range(v.ndim - 2):
        need = (out[d] - 1) * w.strides[d] + (w.kernel[d] - 1) * w.dilations[d] + 1
        have = v.shape[d + 2] + w.before[d]
        width.append((w.before[d], max(0, w.after[d], need - have)))
    return np.pad(v, width, constant_values=fill)


def convolve(node: Node, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
    groups, w = node.get("group", 1), window(node, a.shape[2:], list(weights.shape[2:]))
    out = _outputs(a.shape[2:], w)
    padded = _padded(a, w, 0.0, out)
    n, channels, m = a.shape[0], weights.shape[1], weights.shape[0]
    seen = np.stack([_tap(padded, w, tap, out) for tap in _taps(w)], 2)
    taps, positions = seen.shape[2], int(np.prod(out, dtype=np.int64))
    seen = seen.reshape(n, groups, channels * taps, positions)
    return _mixed(weights.reshape(groups, m // groups, channels * taps), seen).reshape(n, m, *out)


def _mixed(weights: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """(groups, out, in) times (n, groups, in, positions)."""
    if weights.shape[-1] == 1 and weights.shape[-2] == 1:
        return weights * seen
    n, groups, channels, positions = seen.shape
    flat = seen.transpose(1, 2, 0, 3).reshape(groups, channels, n * positions)
    return np.matmul(weights, flat).reshape(groups, weights.shape[1], n, positions).transpose(2, 0, 1, 3)


def convolve_transposed(node: Node, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
    rank, groups = a.ndim - 2, node.get("group", 1)
    kernel = list(weights.shape[2:])
    strides, dilations = node.get("strides") or [1] * rank, node.get("dilations") or [1] * rank
    extra, pads = node.get("output_padding") or [0] * rank, list(node.get("pads") or [0] * (2 * rank))
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    full = [s * (i - 1) + e + x for s, i, e, x in zip(strides, a.shape[2:], extent, extra)]
    wanted, auto = node.get("output_shape"), node.get("auto_pad", "NOTSET")
    if auto.startswith("SAME") and not wanted:
        wanted = [i * s for i, s in zip(a.shape[2:], strides)]
    if wanted:
        for d in range(rank):
            total = max(0, full[d] - wanted[d])
            less, more = total // 2, total - total // 2
            pads[d], pads[d + rank] = (less, more) if auto == "SAME_UPPER" else (more, less)
            if node.get("output_shape"):
                full[d] = wanted[d] + pads[d] + pads[d + rank]
    elif auto == "VALID":
        pads = [0] * (2 * rank)
    n, c = a.shape[:2]
    m = weights.shape[1]
    y = np.zeros((n, groups * m, *full))
    positions = int(np.prod(a.shape[2:], dtype=np.int64))
    split = a.reshape(n, groups, c // groups, positions)
    w = weights.reshape(groups, c // groups, *weights.shape[1:])
    for tap in itertools.product(*[range(k) for k in kernel]):
        part = _mixed(np.swapaxes(w[(slice(None), slice(None), slice(None), *tap)], 1, 2), split)
        index = tuple(
            slice(t * d, t * d + s * (i - 1) + 1, s) for t, d, s, i in zip(tap, dilations, strides, a.shape[2:])
        )
        y[(slice(None), slice(None), *index)] += part.reshape(n, groups * m, *a.shape[2:])
    cut = tuple(slice(pads[d], full[d] - pads[d + rank]) for d in range(rank))
    return y[(slice(None), slice(None), *cut)]


def convolution(node: Node, x: Inputs) -> Value:
    data, weights = x[0], x[1]
    transposed = node.op == "ConvTranspose"
    function = convolve_transposed if transposed else convolve
    taps = int(np.prod(weights.shape[2:], dtype=np.int64))
    count = taps * (weights.shape[0] // node.get("group", 1) if transposed else weights.shape[1])
    y = bilinear(lambda a, w: function(node, a, w), data, weights, count)
    if len(x) > 2 and x[2] is not None:
        bias = x[2].moved(lambda b: b.reshape((-1,) + (1,) * (len(data.shape) - 2)))
        y = _added(y, bias, count)
    return y


def pool(node: Node, x: Inputs) -> list[Value]:
    data = x[0]
    if node.op.startswith("Global"):
        return [_global_pool(node, data)]
    w = window(node, data.shape[2:], list(node.get("kernel_shape")))
    out = _outputs(data.shape[2:], w, bool(node.get("ceil_mode", 0)))
    if node.get("auto_pad", "NOTSET").startswith("SAME"):
        out = [-(-size // s) for size, s in zip(data.shape[2:], w.strides)]

    def stack(v: np.ndarray, fill: float) -> np.ndarray:
        padded = _padded(v, w, fill, out)
        return np.stack([_tap(padded, w, tap, out) for tap in _taps(w)])

    if node.op == "MaxPool":
        if len(node.outputs) > 1 and node.outputs[1]:
            return _max_pool_with_indices(node, data, w, out)
        if not data.is_float:
            return [Value(stack(data.v, np.iinfo(data.v.dtype).min).max(0), data.type)]
        largest = lambda v: stack(v, -np.inf).max(0)
        return [result(largest(data.v), data.type, corners(largest, [data]))]
    taps = int(np.prod(w.kernel))
    if node.op == "LpPool":
        p = node.get("p", 2)
        norm = lambda v: (stack(np.abs(v), 0.0) ** p).sum(0) ** (1 / p)
        y = norm(data.v)
        moved = None if data.e is None else norm(np.abs(data.v) + data.e) - y
        return [result(y, data.type, moved, (sum_error(taps) + 8 * EPSILON) * y + _lost(y, p))]
    counted = _counts(node, data, w, out)
    mean = lambda v: stack(v, 0.0).sum(0) / counted
    own = (sum_error(taps) + EPSILON + alike_error(stack(data.v, 0.0), 0)[0]) * mean(np.abs(data.v))
    return [result(mean(data.v), data.type, None if data.e is None else mean(data.e), own if taps > 1 else None)]


def _lost(norm: np.ndarray, p: int) -> np.ndarray:
    """What is left of a norm whose powers float32 does not hold as normal numbers: 0, maybe."""
    return np.where((p > 1) & (norm**p < SMALLEST_NORMAL), norm, 0.0)


def _max_pool_with_indices(node: Node, data: Value, w: Window, out: list[int]) -> list[Value]:
    if node.get("storage_order", 0) or not data.is_float:
        raise Unsupported("MaxPool with such indices")
    numbers = np.arange(data.v.size, dtype=np.float64).reshape(data.shape)
    values = np.stack([_tap(_padded(data.v, w, -np.inf, out), w, tap, out) for tap in _taps(w)])
    places = np.stack([_tap(_padded(numbers, w, -1, out), w, tap, out) for tap in _taps(w)])
    chosen = np.argmax(values, 0)[None]
    index = np.take_along_axis(places, chosen, 0)[0].astype(np.int64)
    alone = node._replace(outputs=node.outputs[:1])
    return [*pool(alone, [data]), uncertain(index, T.INT64, data.e is not None)]


def _counts(node: Node, data: Value, w: Window, out: list[int]) -> np.ndarray:
    """How many elements each mean is over; padding counts when count_include_pad is set, what ceil_mode adds never."""
    ones = np.ones((1, 1, *data.shape[2:]))
    if node.get("count_include_pad", 0):
        ones = np.pad(ones, [(0, 0), (0, 0), *zip(w.before, w.after)], constant_values=1.0)
        w = w._replace(before=[0] * len(out), after=[0] * len(out))
    padded = _padded(ones, w, 0.0, out)
    return np.stack([_tap(padded, w, tap, out) for tap in _taps(w)]).sum(0)


def _global_pool(node: Node, data: Value) -> Value:
    axes = tuple(range(2, len(data.shape)))
    count = int(np.prod(data.shape[2:], dtype=np.int64))
    keep: dict[str, typing.Any] = {"axis": axes, "keepdims": True}
    if node.op == "GlobalMaxPool":
        moved = None if data.e is None else np.max(data.bound(), **keep, initial=0)  # the largest moves no more
        return result(np.max(data.v, **keep, initial=-np.inf), data.type, moved)
    if node.op == "GlobalAveragePool":
        flat = data.v.reshape(*data.shape[:2], count)
        alike = alike_error(flat, 2).reshape(*data.shape[:2], *[1] * len(axes)) if flat.size else 0.0
        own = (sum_error(count) + EPSILON + alike) * np.mean(np.abs(data.v), **keep) if count > 1 else None
        return result(np.mean(data.v, **keep), data.type, None if data.e is None else np.mean(data.e, **keep), own)
    if node.op == "GlobalLpPool":
        p = node.get("p", 2)
        norm = lambda v: np.sum(np.abs(v) ** p, **keep) ** (1 / p)
        y = norm(data.v)
        moved = None if data.e is None else norm(np.abs(data.v) + data.e) - y
        return result(y, data.type, moved, (sum_error(count) + 8 * EPSILON) * y + _lost(y, p))
    raise Unsupported(node.op)


POOLS = {"MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"}
