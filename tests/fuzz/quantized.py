"""Recipes of layers on integers: QuantizeLinear and DequantizeLinear, alone or around products, and QLinear layers."""

from __future__ import annotations

from typing import Optional, Tuple

import numpy as np

from .builder import Builder
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
