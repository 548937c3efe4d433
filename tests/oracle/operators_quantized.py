"""QuantizeLinear, DequantizeLinear and the operators on integers."""

from __future__ import annotations

import typing

import numpy as np

from .model import NUMPY_TYPES, Node
from .operators_movement import Inputs
from .operators_products import bilinear
from .rounding import EPSILON, round_to
from .values import T, Unsupported, Value, kept

RANGES = {T.INT8: (-128, 127), T.UINT8: (0, 255), T.INT16: (-32768, 32767), T.UINT16: (0, 65535)}


def quantize(x: np.ndarray, scale: typing.Any, low: float, high: float, zero: typing.Any = 0) -> np.ndarray:
    """clamp(round(x / scale) + zero): a true float32 division, ties to even; NaN is 0."""
    q = np.rint(round_to(x / scale, "fp32"))
    q = np.where(np.isnan(q), 0, q)
    return np.clip(q + zero, low, high)


def along(parameter: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    """One value for all, one per index of an axis, or one per block of it (the last may be shorter), to broadcast."""
    if parameter.ndim <= 1 and parameter.size == 1:
        return parameter.reshape(())
    if block:
        return np.repeat(parameter, block, axis).take(np.arange(shape[axis]), axis)
    spread = [1] * len(shape)
    spread[axis] = -1
    return parameter.reshape(spread)


def _parameters(node: Node, x: Inputs) -> tuple[np.ndarray, typing.Any]:
    place = x[0].shape, node.get("axis", 1), node.get("block_size", 0)
    scale = along(x[1].v, *place)
    zero = along(x[2].v.astype(np.float64), *place) if len(x) > 2 and x[2] is not None else 0.0
    return scale, zero


def quantize_linear(node: Node, x: Inputs) -> list[Value]:
    kind = x[2].type if len(x) > 2 and x[2] is not None else (node.get("output_dtype", 0) or T.UINT8)
    if kind not in RANGES:
        raise Unsupported(f"QuantizeLinear to {T.DataType.Name(kind)}")
    scale, zero = _parameters(node, x)
    function = lambda v: quantize(v, scale, *RANGES[kind], zero)
    y = function(x[0].v)
    e = None
    if x[0].e is not None:
        bound = np.minimum(x[0].e, 1e300)
        e = kept(np.maximum(np.abs(function(x[0].v - bound) - y), np.abs(function(x[0].v + bound) - y)))
    return [Value(y.astype(NUMPY_TYPES[kind]), kind, e)]


def dequantize_linear(node: Node, x: Inputs) -> list[Value]:
    scale, zero = _parameters(node, x)
    y = round_to((x[0].v.astype(np.float64) - zero) * scale, "fp32")
    e = None
    if x[0].e is not None:  # This product and that of the other integer are rounded.
        step = np.spacing(np.where(np.isfinite(y), np.abs(y), 0).astype(np.float32))
        e = np.where(x[0].e > 0, x[0].e * np.abs(scale) * (1 + 2.0**-20) + step, 0.0)
    return [Value(y, node.get("output_dtype", 0) or x[1].type, e)]


def _matmul_integer(node: Node, x: Inputs) -> list[Value]:
    operands = []
    for i, value in enumerate(x[:2]):
        zero = x[i + 2].v.astype(np.float64) if len(x) > i + 2 and x[i + 2] is not None else np.zeros(1)
        column = zero.reshape(-1, 1) if i == 0 and zero.ndim == 1 and zero.size > 1 else zero
        operands.append(Value(value.v - (zero.reshape(()) if zero.size == 1 else column), T.DOUBLE, value.e))
    total = bilinear(np.matmul, *operands, 1)
    return [Value(total.v.astype(np.int32), T.INT32, total.e)]


# Layers of com.microsoft that read and make bytes.


def _real(x: Inputs, i: int) -> Value:
    """Input i of bytes, by the scale and the zero point behind it."""
    scale, zero = x[i + 1].v.reshape(()), x[i + 2].v.astype(np.float64).reshape(())
    v = (x[i].v.astype(np.float64) - zero) * scale
    own = 4 * EPSILON * (np.abs(v) + np.abs(zero * scale))  # Of a scale and a shift in one step, too.
    return Value(v, T.FLOAT, own if x[i].e is None else own + x[i].e * np.abs(scale))


def _as_bytes(v: np.ndarray, e: np.ndarray, scale: Value, zero: Value) -> Value:
    """The bytes of numbers that may lie anywhere in v +- e."""
    low, high = RANGES[zero.type]
    function = lambda a: np.clip(np.rint(a / float(scale.v.reshape(())) + float(zero.v.reshape(()))), low, high)
    y, e = function(v), e + 4 * EPSILON * np.abs(v)
    apart = np.maximum(np.abs(function(v - e) - y), np.abs(function(v + e) - y))
    return Value(y.astype(NUMPY_TYPES[zero.type]), zero.type, kept(apart))


def _of_one(function: typing.Callable[[Node, np.ndarray], np.ndarray]) -> typing.Callable[[Node, Inputs], list[Value]]:
    def run(node: Node, x: Inputs) -> list[Value]:
        a = _real(x, 0)
        v = function(node, a.v)
        e = np.maximum(np.abs(function(node, a.v - a.e) - v), np.abs(function(node, a.v + a.e) - v))
        return [_as_bytes(v, e + 4 * EPSILON * np.abs(v), x[3], x[4])]

    return run


def _leaky(node: Node, v: np.ndarray) -> np.ndarray:
    return np.where(v < 0, v * float(np.float32(node.get("alpha", 0.01))), v)


def _arithmetic(multiplies: bool) -> typing.Callable[[Node, Inputs], list[Value]]:
    def run(node: Node, x: Inputs) -> list[Value]:
        a, b = _real(x, 0), _real(x, 3)
        e = np.abs(a.v) * b.e + np.abs(b.v) * a.e + a.e * b.e if multiplies else a.e + b.e
        return [_as_bytes(a.v * b.v if multiplies else a.v + b.v, e, x[6], x[7])]

    return run


def _mean(node: Node, x: Inputs) -> list[Value]:
    a = _real(x, 0)
    axes = tuple(range(1, a.v.ndim - 1) if node.get("channels_last", 0) else range(2, a.v.ndim))
    return [_as_bytes(np.mean(a.v, axes, keepdims=True), np.mean(a.e, axes, keepdims=True), x[3], x[4])]


def _concatenated(node: Node, x: Inputs) -> list[Value]:
    parts = [_as_bytes(a.v, a.bound(), x[0], x[1]) for a in (_real(x, i) for i in range(2, len(x), 3))]
    e = np.concatenate([part.bound() for part in parts], node.get("axis"))
    return [Value(np.concatenate([part.v for part in parts], node.get("axis")), parts[0].type, kept(e))]


OF_BYTES: dict[str, typing.Callable[[Node, Inputs], list[Value]]] = {
    "QLinearAdd": _arithmetic(False), "QLinearMul": _arithmetic(True), "QLinearLeakyRelu": _of_one(_leaky),
    "QLinearSigmoid": _of_one(lambda node, v: 1 / (1 + np.exp(-v))), "QLinearGlobalAveragePool": _mean,
    "QLinearConcat": _concatenated,
}  # fmt: skip
QUANTIZATION: dict[str, typing.Callable[[Node, Inputs], list[Value]]] = {
    "QuantizeLinear": quantize_linear, "DequantizeLinear": dequantize_linear, "MatMulInteger": _matmul_integer,
}  # fmt: skip
