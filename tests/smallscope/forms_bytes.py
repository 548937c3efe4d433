"""Forms whose results are stored as bytes, what stands between a product and its bytes, and layers on integers."""

from __future__ import annotations

from typing import Callable, Optional, Sequence, Tuple

import numpy as np

from .forms_other import integer_weights, quantized
from .site import Site
from .table import MICROSOFT, add, add_merge

# Ways to make bytes of floats and numbers of these again.


def _by_channel(s: Site, x: str) -> str:
    """A scale and a zero point for each channel."""
    s.need(s.rank(x) >= 2 and s.opset >= 13)
    count = s.shape(x)[1]
    given = [
        s.constant(s.rng.uniform(0.01, 0.05, count).astype(np.float32)),
        s.constant(s.rng.integers(0, 256, count).astype(np.uint8)),
    ]
    return s.node("DequantizeLinear", [s.node("QuantizeLinear", [x, *given], axis=1), *given], axis=1)


def _twice(s: Site, x: str) -> str:
    """Two layers quantize one value, with other scales."""
    return s.node("Sub", [quantized(s, x, 0.031, 17, np.uint8), quantized(s, x, 0.0625, -128)])


def _pooled(s: Site, x: str) -> str:
    """Bytes that are pooled before they are numbers again."""
    s.need(s.rank(x) in (3, 4) and s.values[x].v.size and s.opset >= 12)
    given = [s.constant(np.float32(0.0191)), s.constant(np.uint8(100))]
    spatial = s.rank(x) - 2
    q = s.node("MaxPool", [s.node("QuantizeLinear", [x, *given])], kernel_shape=[2] * spatial, pads=[1] * (2 * spatial))
    return s.node("DequantizeLinear", [q, *given])


def _wide(s: Site, x: str) -> str:
    s.need(s.opset >= 21)
    return quantized(s, x, 0.0002, 9000, np.uint16)


add("QDQ of little room", lambda s, x: quantized(s, x, 0.0041, -128), "bytes")
add("QDQ u8 of little room", lambda s, x: quantized(s, x, 0.0079, 255, np.uint8), "bytes")
add("QDQ by a power of two", lambda s, x: quantized(s, x, 0.03125, 3, np.uint8), "bytes")
add("QDQ u8 per channel", _by_channel, "bytes")
add("QDQ twice", _twice, "bytes")
add("QDQ u16", _wide, "bytes")
add("QDQ around MaxPool", _pooled, "bytes")

# Products of bytes that the enumeration of pairs lacks.


def _conv(
    outputs: int, kernel: int, stride: int = 1, per_channel: bool = True, zero: int = 0
) -> Callable[[Site, str], str]:
    """Of bytes by constants, padded for its window."""

    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) in (3, 4) and s.values[x].v.size)
        spatial = s.rank(x) - 2
        left = quantized(s, x, zero=zero, dtype=np.uint8 if zero else np.int8)
        weights = integer_weights(s, (outputs, s.shape(x)[1], *[kernel] * spatial), 0 if per_channel else None)
        window = {"pads": [kernel // 2] * (2 * spatial), "strides": [stride] * spatial}
        return s.node("Conv", [left, weights, s.weights([outputs])], **window)

    return build


def _blocks(s: Site, x: str) -> str:
    """Wider by 1x1, by channel, narrower by 1x1, all of bytes: MobileNetV2's block, in channels beyond a vector."""
    s.need(s.rank(x) in (3, 4) and s.values[x].v.size)
    spatial = s.rank(x) - 2
    y = s.node("Relu", [_conv(35, 1)(s, x)])
    weights = integer_weights(s, (35, 1, *[3] * spatial), 0)
    y = s.node("Conv", [quantized(s, y, 0.05, 0, np.uint8), weights], group=35, pads=[1] * (2 * spatial))
    y = s.node("Clip", [y, s.constant(np.float32(0)), s.constant(np.float32(6))])
    weights = integer_weights(s, (s.shape(x)[1], 35, *[1] * spatial), 0)
    y = s.node("Conv", [quantized(s, y, 6 / 255, 0, np.uint8), weights])
    return s.node("Add", [quantized(s, y, 0.08, -11), quantized(s, x, 0.021, 131, np.uint8)])


def _matmul(width: int, zero: int) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 2)
        left = quantized(s, x, zero=zero, dtype=np.uint8 if zero else np.int8)
        y = s.node("MatMul", [left, integer_weights(s, (s.shape(x)[-1], width), 1)])
        return s.node("Add", [y, s.weights([width])])

    return build


add("Conv u8 of 1", _conv(17, 1, zero=131), "bytes", "product")
add("Conv int8 strided", _conv(33, 3, 2, False), "bytes", "product")
add("Conv u8 of 5", _conv(5, 5, zero=255), "bytes", "product")
add("Blocks of bytes", _blocks, "bytes", "product")
add("MatMul int8 to 35", _matmul(35, 0), "bytes", "product")
add("MatMul u8 to 16", _matmul(16, 255), "bytes", "product")

# Layers on integers, between a QuantizeLinear and a DequantizeLinear.

Numbers = Tuple[str, str]


def _numbers(s: Site, scale: float, zero: int, dtype: type) -> Numbers:
    return s.constant(np.float32(scale)), s.constant(dtype(zero))


def _bytes(s: Site, shape: Sequence[int], dtype: type = np.int8, largest: int = 60) -> str:
    """Constant weights, small enough for sums of pairs in 16 bits, where ONNX Runtime has no others."""
    low = 0 if dtype is np.uint8 else -largest
    return s.constant(s.rng.integers(low, largest + 1, tuple(shape)).astype(dtype))


def _qlinear(
    form: Callable[[Site, str, Numbers, Numbers], str], dtype: type = np.uint8, zero: int = 131, out_zero: int = 77
) -> Callable[[Site, str], str]:
    """`form` makes bytes of bytes."""

    def build(s: Site, x: str) -> str:
        s.need(s.values[x].v.size)
        given, made = _numbers(s, 0.0213, zero, dtype), _numbers(s, 0.0391, out_zero, dtype)
        return s.node("DequantizeLinear", [form(s, s.node("QuantizeLinear", [x, *given]), given, made), *made])

    return build


def _qlinear_conv(kernel: int, depthwise: bool, per_channel: bool, bias: bool) -> Callable:
    def form(s: Site, q: str, given: Numbers, made: Numbers) -> str:
        s.need(s.rank(q) in (3, 4))
        spatial, channels = s.rank(q) - 2, s.shape(q)[1]
        outputs = channels if depthwise else 18
        count = (outputs,) if per_channel else ()
        weights = _bytes(s, (outputs, 1 if depthwise else channels, *[kernel] * spatial))
        inputs = [q, *given, weights, s.constant(s.rng.uniform(0.005, 0.02, count).astype(np.float32)),
                  s.constant(np.zeros(count, np.int8)), *made]  # fmt: skip
        if bias:
            inputs.append(s.constant(s.rng.integers(-2000, 2000, outputs).astype(np.int32)))
        return s.node("QLinearConv", inputs, pads=[kernel // 2] * (2 * spatial), group=channels if depthwise else None)

    return form


def _qlinear_matmul(dtype: type, zero: int, right_zero: int) -> Callable:
    def form(s: Site, q: str, given: Numbers, made: Numbers) -> str:
        s.need(s.rank(q) >= 2)
        weights = _bytes(s, (s.shape(q)[-1], 5), dtype)
        return s.node("QLinearMatMul", [q, *given, weights, *_numbers(s, 0.0123, right_zero, dtype), *made])

    return form


def _qgemm(s: Site, q: str, given: Numbers, made: Numbers, bias: Optional[Sequence[int]] = None) -> str:
    s.need(s.rank(q) == 2)
    rows, depth = s.shape(q)
    columns = rows if bias == (0, 1) else 5  # One value per row, of as many rows as columns.
    shape = (rows, 1) if bias == (0, 1) else (columns,)
    inputs = [q, *given, _bytes(s, (columns, depth)), *_numbers(s, 0.0123, 0, np.int8)]
    inputs.append(s.constant(s.rng.integers(-900, 900, shape).astype(np.int32)))
    return s.node("QGemm", [*inputs, *made], domain=MICROSOFT, transB=1, alpha=0.75)


def _qlinear_one(op: str, **attributes) -> Callable:
    return lambda s, q, given, made: s.node(op, [q, *given, *made], domain=MICROSOFT, **attributes)


def _pooling(op: str, **attributes) -> Callable:
    def form(s: Site, q: str, given: Numbers, made: Numbers) -> str:
        s.need(s.rank(q) == 4)
        return s.node(op, [q, *given, *made], domain=MICROSOFT, **attributes)

    return form


def _qlinear_concat(s: Site, q: str, given: Numbers, made: Numbers) -> str:
    s.need(s.rank(q) >= 1)
    return s.node("QLinearConcat", [*made, q, *given, q, *made, q, *given], domain=MICROSOFT, axis=s.rank(q) - 1)


add("QLinearConv", _qlinear(_qlinear_conv(3, False, True, True)), "bytes")
add("QLinearConv of 1", _qlinear(_qlinear_conv(1, False, False, False), np.int8, -5, 127), "bytes")
add("QLinearConv depthwise", _qlinear(_qlinear_conv(3, True, False, True), np.uint8, 0, 255), "bytes")
add("QLinearMatMul", _qlinear(_qlinear_matmul(np.uint8, 131, 30)), "bytes")
add("QLinearMatMul int8", _qlinear(_qlinear_matmul(np.int8, 0, 0), np.int8, 0, -128), "bytes")
add("QGemm", _qlinear(_qgemm), "bytes")
add("QGemm, bias per row", _qlinear(lambda s, q, g, m: _qgemm(s, q, g, m, (0, 1)), np.int8, 3, -7), "bytes")
add("QLinearSigmoid", _qlinear(_qlinear_one("QLinearSigmoid")), "bytes")
add("QLinearLeakyRelu", _qlinear(_qlinear_one("QLinearLeakyRelu", alpha=0.3), np.int8, 9, -9), "bytes")
add("QLinearGlobalAveragePool", _qlinear(_pooling("QLinearGlobalAveragePool", channels_last=0)), "bytes")
add("QLinearAveragePool", _qlinear(_pooling("QLinearAveragePool", kernel_shape=[1, 1], strides=[2, 1])), "bytes")
add("QLinearConcat", _qlinear(_qlinear_concat), "bytes")


def _conv_integer(s: Site, x: str) -> str:
    s.need(s.rank(x) in (3, 4) and s.values[x].v.size)
    q, scale, zero = s.node("DynamicQuantizeLinear", [x], 3)
    weights = _bytes(s, (18, s.shape(x)[1], *[3] * (s.rank(x) - 2)))
    sums = s.node("ConvInteger", [q, weights, zero], pads=[1] * (2 * (s.rank(x) - 2)))
    return s.node("Mul", [s.node("Cast", [sums], to=1), s.node("Mul", [scale, s.constant(np.float32(0.0123))])])


def _dynamic(s: Site, x: str) -> str:
    s.need(s.values[x].v.size)
    return s.node("DequantizeLinear", list(s.node("DynamicQuantizeLinear", [x], 3)))


add("ConvInteger", _conv_integer, "bytes")
add("DynamicQuantizeLinear and back", _dynamic, "bytes")


def _dynamic_lstm(
    output: int, both: bool = False, by_column: bool = False, lengths: bool = False, **attributes
) -> Callable[[Site, str], str]:
    """DynamicQuantizeLSTM with a state of 3."""

    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) == 3 and s.values[x].v.size and s.shape(x)[2] <= 200 and s.opset >= 13)
        (steps, batch, width), hidden, ways = s.shape(x), 3, 2 if both else 1
        inputs = [x, *(_bytes(s, (ways, k, 4 * hidden), np.uint8, 255) for k in (width, hidden))]
        inputs.append(s.weights([ways, 8 * hidden], "small"))
        inputs.append(s.constant(s.rng.integers(1, steps + 1, batch).astype(np.int32)) if lengths else "")
        inputs += [s.weights([ways, batch, hidden], "small"), "", s.weights([ways, 3 * hidden], "small")]
        shape = (ways, 4 * hidden) if by_column else (ways,)
        for _ in range(2):
            inputs.append(s.constant(s.rng.uniform(0.001, 0.003, shape).astype(np.float32)))
            inputs.append(s.constant(s.rng.integers(120, 135, shape).astype(np.uint8)))
        given = {"hidden_size": hidden, "direction": "bidirectional" if both else None, **attributes}
        return s.node("DynamicQuantizeLSTM", inputs, 3, MICROSOFT, **given)[output]

    return build


add("DynamicQuantizeLSTM", _dynamic_lstm(0), "bytes", "recurrent")
add("DynamicQuantizeLSTM both ways", _dynamic_lstm(0, True, by_column=True, lengths=True), "bytes", "recurrent")
add("DynamicQuantizeLSTM last", _dynamic_lstm(2, clip=0.4), "bytes", "recurrent")
add("DynamicQuantizeLSTM backwards", _dynamic_lstm(1, lengths=True, direction="reverse"), "bytes", "recurrent")


def _qlinear_merge(op: str) -> Callable[[Site, str, str], str]:
    def build(s: Site, x: str, y: str) -> str:
        s.need(s.values[x].v.size and s.values[y].v.size)
        left, right, made = (_numbers(s, scale, zero, np.uint8) for scale, zero in ((0.02, 99), (0.03, 131), (0.07, 5)))
        inputs = [s.node("QuantizeLinear", [x, *left]), *left, s.node("QuantizeLinear", [y, *right]), *right, *made]
        return s.node("DequantizeLinear", [s.node(op, inputs, domain=MICROSOFT), *made])

    return build


add_merge("QLinearAdd", _qlinear_merge("QLinearAdd"))
add_merge("QLinearMul", _qlinear_merge("QLinearMul"))
