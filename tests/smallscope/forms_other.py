"""Forms of recurrent layers, of QuantizeLinear and DequantizeLinear around layers, and of control flow around forms."""

from __future__ import annotations

from typing import Callable, Optional, Tuple

import ml_dtypes
import numpy as np
from onnx import helper

from oracle.model import from_array

from .site import Site
from .table import FORMS, add, add_merge

# Recurrent layers.


def _recurrent(op: str, gates: int, both: bool = False, output: int = 0, **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        # Gates of long sums are saturated, and what is left of them is as good as random.
        s.need(s.rank(x) == 3 and s.values[x].v.size and s.shape(x)[2] <= 200)
        size, hidden, ways = s.shape(x)[2], 3, 2 if both else 1
        inputs = [
            x,
            s.weights([ways, gates * hidden, size], "small"),
            s.weights([ways, gates * hidden, hidden], "small"),
        ]
        inputs.append(s.weights([ways, 2 * gates * hidden], "small"))
        direction = "bidirectional" if both else None
        return s.node(op, inputs, 2, hidden_size=hidden, direction=direction, **attributes)[output]

    return build


add("LSTM", _recurrent("LSTM", 4), "recurrent", "core")
add("LSTM last", _recurrent("LSTM", 4, output=1), "recurrent")
add("LSTM both ways", _recurrent("LSTM", 4, True), "recurrent")
add("GRU", _recurrent("GRU", 3), "recurrent")
add("GRU after reset", _recurrent("GRU", 3, linear_before_reset=1), "recurrent")
add("RNN both ways", _recurrent("RNN", 1, True), "recurrent")


# Integers.


def quantized(s: Site, x: str, scale: float = 0.0213, zero: int = 0, dtype: type = np.int8) -> str:
    """x by way of integers."""
    given = [s.constant(np.float32(scale)), s.constant(dtype(zero))]
    return s.node("DequantizeLinear", [s.node("QuantizeLinear", [x, *given]), *given])


def integer_weights(s: Site, shape: Tuple[int, ...], axis: Optional[int] = None) -> str:
    """Constant weights from integers, with one scale or one per channel."""
    integers = s.constant(s.rng.integers(-127, 128, shape).astype(np.int8))
    if axis is None or s.opset < 13:
        return s.node("DequantizeLinear", [integers, s.constant(np.float32(0.0171)), s.constant(np.int8(0))])
    count = [shape[axis]]
    scales = s.constant(s.rng.uniform(0.005, 0.02, count).astype(np.float32))
    return s.node("DequantizeLinear", [integers, scales, s.constant(np.zeros(count, np.int8))], axis=axis)


add("QDQ", quantized, "int8", "core")
add("QDQ u8", lambda s, x: quantized(s, x, 0.0173, 131, np.uint8), "int8")


def _integer_matmul(per_channel: bool, bias: bool, given: bool = False, zero: int = 0) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 2)
        depth = s.shape(x)[-1]
        left = quantized(s, x, zero=zero, dtype=np.uint8 if zero else np.int8)
        right = (
            quantized(s, s.input([depth, 4])) if given else integer_weights(s, (depth, 4), 1 if per_channel else None)
        )
        y = s.node("MatMul", [left, right])
        return s.node("Add", [y, s.weights([4])]) if bias else y

    return build


add("MatMul int8", _integer_matmul(False, False), "int8", "product")
add("MatMul int8 per channel", _integer_matmul(True, True), "int8", "product")
add("MatMul int8 given", _integer_matmul(False, False, True), "int8", "product")
add("MatMul u8 with a zero point", _integer_matmul(True, False, zero=120), "int8", "product")


def _integer_conv(per_channel: bool, bias: bool, group: int = 1) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) in (3, 4) and s.values[x].v.size and s.shape(x)[1] % group == 0)
        channels, kernel = s.shape(x)[1] // group, [3] * (s.rank(x) - 2)
        inputs = [quantized(s, x), integer_weights(s, (4, channels, *kernel), 0 if per_channel else None)]
        if bias:
            inputs.append(s.weights([4]))
        return s.node("Conv", inputs, pads=[1] * (2 * len(kernel)), group=group)

    return build


add("Conv int8", _integer_conv(False, True), "int8", "product", "conv")
add("Conv int8 per channel", _integer_conv(True, False), "int8", "product", "conv")
add("Conv int8 in groups", _integer_conv(True, True, 2), "int8", "product", "conv")


def _integer_gemm(s: Site, x: str) -> str:
    s.need(s.rank(x) == 2)
    weights = integer_weights(s, (4, s.shape(x)[1]), 0)
    return s.node("Gemm", [quantized(s, x), weights, s.weights([4])], transB=1)


add("Gemm int8", _integer_gemm, "int8", "product")


# Weights in blocks of low formats, the last of which are shorter where a sum is odd.


def block_weights(s: Site, shape: Tuple[int, ...], axis: int, kind: str) -> str:
    """Constant weights whose blocks of two along an axis share a scale."""
    s.need(s.opset >= 24)
    scales_shape = list(shape)
    scales_shape[axis] = -(-shape[axis] // 2)
    scales = s.rng.uniform(0.02, 0.3, scales_shape).astype(np.float32)
    given = {"axis": axis, "block_size": 2}
    if kind == "int4":
        codes = s.constant(s.rng.integers(-8, 8, shape).astype(np.int8).astype(ml_dtypes.int4))
        return s.node("DequantizeLinear", [codes, s.constant(scales)], **given)
    if kind == "uint4":
        codes, zeros = (s.constant(s.rng.integers(0, 16, size).astype(np.uint8).astype(ml_dtypes.uint4))
                        for size in (shape, scales_shape))  # fmt: skip
        return s.node("DequantizeLinear", [codes, s.constant(scales), zeros], **given)
    if kind == "mxfp8":
        codes = s.constant(s.numbers(shape).astype(ml_dtypes.float8_e4m3fn))
        powers = s.constant(scales.astype(ml_dtypes.float8_e8m0fnu))
        return s.node("DequantizeLinear", [codes, powers], output_dtype=1, **given)
    codes = s.constant(s.numbers(shape).astype(ml_dtypes.float4_e2m1fn))
    coded = s.constant(scales.astype(ml_dtypes.float8_e4m3fn))
    scales = s.node("DequantizeLinear", [coded, s.constant(np.float32(1.37))])
    return s.node("DequantizeLinear", [codes, scales], **given)


def _block_matmul(kind: str, transposed: bool = False) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 2)
        depth = s.shape(x)[-1]
        if not transposed:
            return s.node("MatMul", [x, block_weights(s, (depth, 5), 0, kind)])
        return s.node("MatMul", [x, s.node("Transpose", [block_weights(s, (5, depth), 1, kind)])])

    return build


add("MatMul int4 blocks", _block_matmul("int4"), "product")
add("MatMul uint4 blocks", _block_matmul("uint4"), "product")
add("MatMul mxfp8 blocks", _block_matmul("mxfp8"), "product")
add("MatMul nvfp4 blocks transposed", _block_matmul("nvfp4", True), "product")


def _block_gemm(s: Site, x: str) -> str:
    s.need(s.rank(x) == 2)
    return s.node("Gemm", [x, block_weights(s, (5, s.shape(x)[1]), 1, "int4"), s.weights([5])], transB=1)


add("Gemm int4 blocks", _block_gemm, "product")


def _integer_arithmetic(op: str) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        return s.node(op, [quantized(s, x), quantized(s, s.input(s.shape(x)), 0.0117)])

    return build


add("Add int8", _integer_arithmetic("Add"), "int8")
add("Mul int8", _integer_arithmetic("Mul"), "int8")


def _matmul_integer(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 2 and s.values[x].v.size)
    q, scale, point = s.node("DynamicQuantizeLinear", [x], 3)
    w = s.constant(s.rng.integers(-127, 128, (s.shape(x)[-1], 4)).astype(np.int8))
    y = s.node("Cast", [s.node("MatMulInteger", [q, w, point])], to=1)
    return s.node("Mul", [y, s.node("Mul", [scale, s.constant(np.float32(0.0123))])])


add("MatMulInteger", _matmul_integer, "int8")


def _integer_sum(s: Site, x: str, y: str) -> str:
    return s.node("Add", [quantized(s, x), quantized(s, y, 0.0119)])


def _integer_product(s: Site, x: str, y: str) -> str:
    s.need(s.rank(x) >= 2 and s.rank(y) >= 2)
    return s.node("MatMul", [quantized(s, x), quantized(s, y, 0.0119)])


add_merge("Add int8", _integer_sum)
add_merge("MatMul int8", _integer_product)


# Control flow around a form.

INSIDE = (
    "Exp", "Sigmoid", "Mul row", "Add given row", "Mul itself", "Mul its Identity", "Gelu", "Identity", "Softmax last",
    "LayerNormalization", "ReduceSum last, keepdims 1", "ReduceMean none, keepdims 1", "MatMul", "MatMul given", "Gemm",
    "Conv2 padded", "MatMul batch same", "Transpose", "Reshape flat", "Concat itself", "Slice first rows",
    "BatchNormalization", "QDQ", "MatMul int8", "Where", "Cast to float16 and back",
)  # fmt: skip


def _info(name: str, kind: int, shape: Optional[Tuple[int, ...]] = None):
    return helper.make_tensor_value_info(name, kind, shape)


def _if(name: str, taken: bool) -> Callable[[Site, str], str]:
    """The form in the branch that is taken; the other one hands on what the form would read."""

    def build(s: Site, x: str) -> str:
        bodies = []
        for inside in (True, False):
            body = s.body()
            y = FORMS[name].build(body, x) if inside else body.node("Neg", [x])
            bodies.append((body.as_graph([], [y]), body.shape(y)))
        condition = s.node("Greater", [s.input([], "positive"), s.constant(np.float32(0 if taken else 9))])
        (formed, shape), (other, plain) = bodies
        return s.control("If", [condition], [shape if taken else plain], then_branch=formed, else_branch=other)

    return build


def _loop(name: str) -> Callable[[Site, str], str]:
    """Two trips of a form that keeps the shape; else one trip and its values stacked."""

    def build(s: Site, x: str) -> str:
        body = s.body()
        counter, condition = from_array(np.asarray(0, np.int64), 7), from_array(np.asarray(True), 9)
        body.values.update({"bi": counter, "bc": condition, "bs": s.values[x]})
        y = FORMS[name].build(body, "bs")
        going = body.node("Identity", ["bc"])
        steady = body.shape(y) == s.shape(x)
        inputs = [_info("bi", 7, ()), _info("bc", 9, ()), _info("bs", 1, None)]
        trips = s.constant(np.int64(2))
        if steady:
            return s.control("Loop", [trips, "", x], [s.shape(x)], body=body.as_graph(inputs, [going, y]))
        kept = body.node("Identity", ["bs"])
        graph = body.as_graph(inputs, [going, kept, y])
        return s.control("Loop", [trips, "", x], [s.shape(x), (2, *body.shape(y))], body=graph)[1]

    return build


def _scan(name: str) -> Callable[[Site, str], str]:
    """The form on every slice along the first dimension, with a running sum beside it."""

    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 2 and s.shape(x)[0] >= 1)
        body = s.body()
        row = s.values[x].moved(lambda v: v[0])
        body.values.update({"bs": row, "br": row})
        total = body.node("Add", ["bs", "br"])
        y = FORMS[name].build(body, "br")
        shape = body.shape(y)
        graph = body.as_graph([_info("bs", 1, None), _info("br", 1, None)], [total, y])
        start = s.weights(s.shape(x)[1:])
        return s.control("Scan", [start, x], [s.shape(x)[1:], (s.shape(x)[0], *shape)], body=graph, num_scan_inputs=1)[
            1
        ]

    return build


for _name in INSIDE:
    _core = ("core",) if _name in ("Mul row", "MatMul") else ()
    add(f"If {{{_name}}}", _if(_name, True), "control", *_core)
    add(f"If else {{{_name}}}", _if(_name, False), "control")
    add(f"Loop {{{_name}}}", _loop(_name), "control", *_core)
    add(f"Scan {{{_name}}}", _scan(_name), "control", *_core)
