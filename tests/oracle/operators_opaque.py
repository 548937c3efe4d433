"""Layers whose values are those of ONNX's reference implementation in float64, and whose bounds are sampled: the layer
is run again with operands that are moved as far as theirs allow."""

from __future__ import annotations

import functools
import typing

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from .model import Node
from .operators_movement import Inputs
from .operators_recurrent import recurrent
from .rounding import EPSILON
from .values import FLOATS, T, Unsupported, Value, deviation, result, uncertain

#: Float arithmetic that stands alone.
COMPUTE = {"RNN", "LSTM", "GRU", "Attention", "RotaryEmbedding", "LinearAttention", "CausalConvWithState"}
#: Arithmetic on integers.
FIXED = {"QLinearMatMul", "QLinearConv", "ConvInteger", "DynamicQuantizeLinear"}
OPAQUE = COMPUTE | FIXED

_SAMPLES, _SAFETY = 6, 4.0


@functools.lru_cache(maxsize=64)
def _evaluator(proto: bytes, opset: int) -> ReferenceEvaluator:
    node = onnx.NodeProto.FromString(proto)
    inputs = [onnx.ValueInfoProto(name=name) for name in node.input if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", inputs, outputs)
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))


def _proto(node: Node) -> bytes:
    inputs = [f"i{i}" if name else "" for i, name in enumerate(node.inputs)]
    outputs = [f"o{i}" if name else "" for i, name in enumerate(node.outputs)]
    if any(not isinstance(v, (int, float, str, list)) for v in node.attributes.values()):
        raise Unsupported(f"{node.op} with such attributes")
    return helper.make_node(node.op, inputs, outputs, **node.attributes).SerializeToString()


def opaque(node: Node, x: Inputs) -> list[Value]:
    recurrence = node.op in ("LSTM", "GRU", "RNN")  # onnx.reference forgets lengths, clips and activations.
    evaluator = None if recurrence else _evaluator(_proto(node), node.opset)
    places = [i for i, value in enumerate(x) if value is not None]

    def run(values: list[np.ndarray]) -> list[np.ndarray]:
        if recurrence:
            given = dict(zip(places, values))
            outputs = recurrent(node, [given.get(i) for i in range(len(x))])
            return [y for y, name in zip(outputs, node.outputs) if name]
        try:
            return [np.asarray(y) for y in evaluator.run(None, {f"i{i}": v for i, v in zip(places, values)})]
        except Exception as error:
            raise Unsupported(f"{node.op} in onnx.reference: {error}") from None

    if node.op == "QLinearConv" and x[0].v.ndim != 4:
        raise Unsupported("QLinearConv of other than images")  # onnx.reference spreads scales along the wrong axes.
    if node.op == "Attention" and not all(np.isfinite(v.v).all() for v in x[:3]):
        raise Unsupported("Attention of infinities")  # onnx.reference makes zeros of rows of NaN.
    values = [x[i].v.astype(np.float32) if node.op in FIXED and x[i].is_float else x[i].v for i in places]
    if node.op == "DynamicQuantizeLinear":  # NaN is 0.
        values[0] = np.where(np.isnan(values[0]), np.float32(0), values[0])
    outputs = run(values)
    if node.op == "DynamicQuantizeLinear" and not np.any(values[0]):
        outputs[1] = np.ones((), np.float32)
    loose = any(x[i].e is not None and not x[i].is_float for i in places) or (
        node.op in FIXED and any(x[i].e is not None for i in places))  # fmt: skip
    if node.op == "DynamicQuantizeLinear":  # The bytes of an infinite range are casts of NaN: what these give is open.
        loose = loose or not np.isfinite(values[0]).all()
    kinds = [_kind(y, x) for y in outputs]
    if loose:
        results = [uncertain(y, kind, True) for y, kind in zip(outputs, kinds)]
    elif node.op in FIXED:
        results = [Value(y.astype(np.float64) if kind in FLOATS else y, kind) for y, kind in zip(outputs, kinds)]
    else:
        # A GRU adds (1 - z) of a candidate in each step: as small as it may be, its error is one of 1.
        own = 2 * EPSILON * len(values[0]) if node.op == "GRU" else 0.0
        results = _sampled(run, x, places, values, outputs, kinds, own)
    named = iter(results)
    return [next(named) if name else Value(np.zeros(0), T.FLOAT) for name in node.outputs]


def _kind(y: np.ndarray, x: Inputs) -> int:
    if y.dtype.kind == "f":
        floats = [v.type for v in x if v is not None and v.is_float]
        return floats[0] if floats else T.FLOAT
    return helper.np_dtype_to_tensor_dtype(y.dtype)


def _sampled(
    run: typing.Callable[[list[np.ndarray]], list[np.ndarray]],
    x: Inputs,
    places: list[int],
    values: list[np.ndarray],
    outputs: list[np.ndarray],
    kinds: list[int],
    own: float,
) -> list[Value]:
    """The outputs, with what they move when the operands do, and an error of their own."""
    rng = np.random.default_rng(1)
    spread = [np.zeros(y.shape) for y in outputs]
    for _ in range(_SAMPLES):
        moved = []
        for i, v in zip(places, values):
            if x[i].is_float:
                v = v + rng.choice([-1.0, 1.0], v.shape) * (np.minimum(x[i].bound(), 1e300) + 2 * EPSILON * np.abs(v))
            moved.append(v)
        spread = [np.maximum(s, deviation(y, z)) for s, y, z in zip(spread, outputs, run(moved))]
    final = []
    for y, kind, s in zip(outputs, kinds, spread):
        finite = np.abs(y[np.isfinite(y)])
        final.append(result(y, kind, _SAFETY * s, own + 16 * EPSILON * np.max(finite, initial=0)))
    return final
