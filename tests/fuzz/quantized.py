"""Recipes of layers on integers: QuantizeLinear and DequantizeLinear, alone or around products, and QLinear layers."""

from __future__ import annotations

from typing import Optional, Tuple

import numpy as np

from .builder import Builder
from .graph import MICROSOFT
from .products import epilogue
from .recipes import IMAGE, recipe


def scale_of(b: Builder, x: str) -> np.float32:
    """A scale under which the values of x mostly fit eight bits."""
    b.need(not b.special)
    largest = max([float(np.abs(v).max()) for v in b.values[x] if v.size] + [1e-3])
    return np.float32(largest / 127 * b.rng.uniform(0.7, 1.2))


def zero_point(b: Builder) -> Tuple[type, int]:
    """A type and a zero point, mostly those of symmetric int8."""
    return b.choice([(np.int8, 0), (np.int8, 0), (np.uint8, 128), (np.uint8, 3), (np.int8, -5)])


def pair(b: Builder, x: str, form: Optional[Tuple[type, int]] = None) -> str:
    """x through QuantizeLinear and DequantizeLinear."""
    dtype, zero = form or zero_point(b)
    scale = b.constant(scale_of(b, x), as_node=False)
    point = [b.constant(dtype(zero), as_node=False)]
    if dtype == np.uint8 and zero == 0:
        point = []
    return b.node("DequantizeLinear", [b.node("QuantizeLinear", [x, scale, *point]), scale, *point])


def integer_weights(b: Builder, shape, axis: Optional[int]) -> str:
    """Weights in int8 behind a DequantizeLinear, per tensor or per channel of an axis."""
    q = b.constant(b.rng.integers(-127, 128, shape).astype(np.int8), as_node=False)
    size = () if axis is None else (shape[axis],)
    scale = b.constant((b.rng.uniform(0.5, 1.5, size) * 0.003).astype(np.float32), as_node=False)
    attributes = {} if axis is None else {"axis": axis}
    point = [b.constant(np.zeros(size, np.int8), as_node=False)] if b.chance(0.6) else []
    return b.node("DequantizeLinear", [q, scale, *point], **attributes)


@recipe(1.2)
def quantize_pair(b: Builder) -> None:
    y = pair(b, b.pick_rank(1))
    if b.chance(0.4):
        y = b.node(b.choice(["Relu", "Add", "Mul"])[:4], [y]) if b.chance(0.3) else b.node("Add", [y, y])
    if b.chance(0.3):
        pair(b, y)


@recipe(1.2, (IMAGE,))
def quantized_convolution(b: Builder) -> None:
    x = b.pick_rank(3, 4)
    c = b.shape(x)[1]
    m, k, rank = b.choice([1, 3, 8, 16]), b.choice([1, 3]), b.rank(x) - 2
    axis = 0 if b.opset >= 13 and b.chance(0.6) else None
    w = integer_weights(b, [m, c] + [k] * rank, axis)
    symmetric = (np.int8, 0) if b.chance(0.7) else None
    inputs = [pair(b, x, symmetric), w] + ([b.constant(b.numbers([m]))] if b.chance(0.5) else [])
    y = b.node("Conv", inputs, pads=[k // 2] * (2 * rank))
    y = epilogue(b, y, 1)
    if b.chance(0.3):
        pair(b, y)


@recipe(1.2)
def quantized_product(b: Builder) -> None:
    x = b.pick_rank(2)
    k = b.dims(x)[-1]
    b.need(len(set(k)) == 1 and k[0] >= 1)
    n = b.choice([1, 3, 8, 17])
    axis = 1 if b.opset >= 13 and b.chance(0.6) else None
    symmetric = (np.int8, 0) if b.chance(0.7) else None
    y = b.node("MatMul", [pair(b, x, symmetric), integer_weights(b, [k[0], n], axis)])
    epilogue(b, y)


@recipe(0.7)
def integer_product(b: Builder) -> None:
    """DynamicQuantizeLinear, MatMulInteger, and the scales by hand."""
    b.need(b.has("DynamicQuantizeLinear") and not b.special)
    x = b.pick_rank(2)
    k = b.dims(x)[-1]
    b.need(len(set(k)) == 1 and k[0] >= 1 and all(v.size for v in b.values[x]))
    q, scale, point = b.node("DynamicQuantizeLinear", [x], outputs=3)
    w = b.constant(b.rng.integers(-127, 128, (k[0], 5)).astype(np.int8), as_node=False)
    y = b.node("MatMulInteger", [q, w, point])
    b.node("Mul", [b.node("Cast", [y], to=1), b.node("Mul", [scale, b.constant(np.float32(0.01))])])


@recipe(0.7)
def qlinear(b: Builder) -> None:
    x = b.pick_rank(2, 4)
    dtype, zero = zero_point(b)

    def numbers(scale: float, point: int):
        return [b.constant(np.float32(scale), as_node=False), b.constant(dtype(point), as_node=False)]

    a = numbers(float(scale_of(b, x)), zero)
    q = b.node("QuantizeLinear", [x, *a])
    out = numbers(0.05, zero)
    if b.rank(x) == 4 and b.chance(0.6):
        c = b.shape(x)[1]
        w = b.constant(b.rng.integers(-50, 50, (3, c, 1, 1)).astype(np.int8), as_node=False)
        parameters = [b.constant(np.float32(0.01), as_node=False), b.constant(np.int8(0), as_node=False)]
        y = b.node("QLinearConv", [q, *a, w, *parameters, *out])
    else:
        k = b.dims(x)[-1]
        b.need(len(set(k)) == 1 and k[0] >= 1)
        w = b.constant(b.rng.integers(0, 50, (k[0], 4)).astype(dtype), as_node=False)
        y = b.node("QLinearMatMul", [q, *a, w, *numbers(0.01, 1), *out])
    b.node("DequantizeLinear", [y, *out])


@recipe(1.2)
def integer_options(b: Builder) -> None:
    """Scales per channel, zero points of weights, groups, biases, integers that are pooled and moved."""
    x = b.pick_rank(2, 4)
    dtype, zero = zero_point(b)
    number = lambda value, kind: b.constant(np.asarray(value, kind), as_node=False)  # noqa: E731
    scale, rank, form = scale_of(b, x), b.rank(x), b.integer(0, 4)
    if form == 0:  # Per channel, and back.
        axis = b.integer(0, rank - 1)
        sizes = b.dims(x)[axis]
        b.need(len(set(sizes)) == 1 and b.opset >= 13)
        scales = number(b.rng.uniform(0.5, 2, sizes[0]) * scale, np.float32)
        points = number(b.rng.integers(0, 5, sizes[0]), dtype)
        q = b.node("QuantizeLinear", [x, scales, points], axis=b.choice([axis, axis - rank]))
        b.node("DequantizeLinear", [q, scales, points], axis=axis)
        return
    q = b.node("QuantizeLinear", [x, number(scale, np.float32), number(zero, dtype)])
    if form == 1:  # Movement, clamps and maxima of integers.
        q = b.node("Transpose", [q]) if b.chance(0.5) else q
        if b.rank(q) >= 3 and b.opset >= 12 and all(v.size for v in b.values[q]):
            q = b.node("MaxPool", [q], kernel_shape=[1] * (b.rank(q) - 2), strides=[2] * (b.rank(q) - 2))
        q = b.node("Reshape", [q, b.ints(-1)])
        b.node("DequantizeLinear", [q, number(scale, np.float32), number(zero, dtype)])
    elif form == 2:  # MatMulInteger with a zero point per column.
        depth = b.dims(x)[-1]
        b.need(len(set(depth)) == 1 and depth[0] >= 1)
        w = number(b.rng.integers(0, 100, (depth[0], 4)), b.choice([np.int8, np.uint8]))
        point = number(b.rng.integers(0, 9, b.choice([(), (4,)])), b.values[w][0].dtype)
        y = b.node("MatMulInteger", [q, w, number(zero, dtype), point] if b.chance(0.7) else [q, w])
        b.node("Cast", [y], to=1)
    else:
        b.need(rank == 4 and b.static(x) and all(b.shape(x)))
        c = b.shape(x)[1]
        groups = b.choice([1, c])
        m, k = groups * b.choice([1, 2]), b.choice([1, 2, 3])
        shape, window = (m, c // groups, k, k), {"pads": [b.integer(0, k - 1) for _ in range(4)], "group": groups}
        window["strides"] = b.choice([[1, 1], [2, 1]])
        if form == 3:
            w = number(b.rng.integers(-90, 90, shape), np.int8)
            each = (m,) if b.chance(0.5) else ()
            inputs = [q, number(scale, np.float32), number(zero, dtype), w]
            inputs += [number(b.rng.uniform(0.005, 0.02, each), np.float32), number(np.zeros(each), np.int8)]
            inputs += [number(0.05, np.float32), number(zero, dtype)]
            inputs += [number(b.rng.integers(-500, 500, m), np.int32)] if b.chance(0.6) else []
            y = b.node("QLinearConv", inputs, **window)
            b.node("DequantizeLinear", [y, *inputs[6:8]])
        else:
            w = number(b.rng.integers(0, 90, shape), np.uint8)
            points = [number(zero, dtype), number(3, np.uint8)] if b.chance(0.6) else []
            b.node("Cast", [b.node("ConvInteger", [q, w, *points], **window)], to=1)


@recipe(0.8)
def layers_of_bytes(b: Builder) -> None:
    """A few layers of com.microsoft that read and make bytes, between a QuantizeLinear and a DequantizeLinear."""
    x = b.pick_rank(1, 4)
    b.need(all(v.size for v in b.values[x]))
    dtype = b.choice([np.int8, np.uint8])
    number = lambda value, kind: b.constant(np.asarray(value, kind), as_node=False)  # noqa: E731
    limits = np.iinfo(dtype)
    zeros = lambda: number(b.choice([0, limits.min, limits.max, b.integer(-9, 99) % 100]), dtype)  # noqa: E731
    parameters = lambda scale: (number(scale * b.rng.uniform(0.5, 2), np.float32), zeros())  # noqa: E731
    scale = float(scale_of(b, x))
    given = parameters(scale)
    y = b.node("QuantizeLinear", [x, *given])
    for _ in range(b.integer(1, 3)):
        made = parameters(scale)
        node = lambda op, *inputs, **attributes: b.node(op, inputs, domain=MICROSOFT, **attributes)  # noqa: E731
        forms = ["Add", "Mul", "Sigmoid", "LeakyRelu", "Concat"] + ["GlobalAveragePool"] * (2 * (b.rank(y) == 4))
        form = b.choice(forms + ["Gemm"] * (3 * (b.rank(y) == 2 and b.static(y))))
        if form in ("Add", "Mul"):
            random = lambda shape: b.rng.integers(limits.min, limits.max + 1, shape).astype(dtype)  # noqa: E731
            other = (b.input(b.choice([b.dims(y), b.dims(y)[-1:]]), random), *parameters(scale))
            operands = [(y, *given), b.choice([other, (y, *given)])][:: b.choice([1, -1])]
            y = node(f"QLinear{form}", *operands[0], *operands[1], *made)
        elif form == "Concat":
            axis = b.integer(-b.rank(y), b.rank(y) - 1)
            y = node("QLinearConcat", *made, y, *given, y, *b.choice([given, made]), axis=axis)
        elif form == "Gemm":
            (rows, depth), turned = b.shape(y), b.integer(0, 1)
            columns = b.choice([1, rows, 5, 17])
            weights = number(b.rng.integers(-60, 60, (columns, depth) if turned else (depth, columns)), np.int8)
            bias = b.choice([(columns,), (1, columns), (rows, 1), (rows, columns)])
            last = [number(0.01, np.float32), number(0, np.int8), number(b.rng.integers(-500, 500, bias), np.int32)]
            y = node("QGemm", y, *given, weights, *last, *made, transB=turned)
        else:
            attributes = {"LeakyRelu": {"alpha": b.choice([0.0, 0.1, 1.5])}, "GlobalAveragePool": {"channels_last": 0}}
            y = node(f"QLinear{form}", y, *given, *made, **attributes.get(form, {}))
        given = made
    b.node("DequantizeLinear", [y, *given])
