"""QuantizeLinear and DequantizeLinear of com.microsoft, as tools write them for types that ai.onnx had not yet,
against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope

node = helper.make_node
RANGES = {
    "INT4": (-8, 7),
    "UINT4": (0, 15),
    "INT8": (-128, 127),
    "UINT8": (0, 255),
    "INT16": (-500, 500),
    "UINT16": (0, 1000),
}


def model(nodes, initializers, output=TensorProto.FLOAT) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 3])],
                              [helper.make_tensor_value_info("y", output, [5, 3])], initializers)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10
    )


def same(made: onnx.ModelProto) -> None:
    feed = {"x": (np.random.default_rng(0).standard_normal((5, 3)) * 3).astype(np.float32)}
    session = ort.SessionOptions()
    session.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = ort.InferenceSession(made.SerializeToString(), session).run(None, feed)[0]
    for fusion in ("none", "full"):
        np.testing.assert_array_equal(ulpscope.Engine(made, fusion=fusion).run(feed)["y"], expected)


@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("type_", RANGES)
def test_values_pass_through_integers(type_, zero, per_axis):
    """A value becomes an integer and a value again; constants that are stored as integers become values."""
    element, (low, high) = TensorProto.DataType.Value(type_), RANGES[type_]
    shape, axis = ([3], {"axis": 1}) if per_axis else ([], {})
    scale = numpy_helper.from_array(np.float32([0.5, 0.25, 2.0] if per_axis else 0.5), "s")
    zeros = helper.make_tensor("z", element, shape, [1, 2, 0] if per_axis else [1])
    stored = helper.make_tensor("w", element, [5, 3], np.linspace(low, high, 15).round().astype(int).tolist())
    q, d = (["s", "z"], ["s", "z"]) if zero or type_ != "UINT8" else (["s"], ["s"])
    made = model(
        [
            node("QuantizeLinear", ["x", *q], ["i"], domain="com.microsoft", **axis),
            node("DequantizeLinear", ["i", *d], ["a"], domain="com.microsoft", **axis),
            node("DequantizeLinear", ["w", *(["s", "z"] if zero else ["s"])], ["b"], domain="com.microsoft", **axis),
            node("Add", ["a", "b"], ["y"]),
        ],
        [scale, zeros, stored],
    )
    same(made)


def test_weights_of_four_bits_are_converted():
    """The product is lowered; the file keeps the integers."""
    weights = helper.make_tensor("w", TensorProto.INT4, [3, 3], [-8, 7, 3, 0, -1, 5, 2, 2, -4])
    made = model(
        [node("DequantizeLinear", ["w", "s"], ["d"], domain="com.microsoft"), node("MatMul", ["x", "d"], ["y"])],
        [numpy_helper.from_array(np.float32(0.37), "s"), weights],
    )
    feed = {"x": np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)}
    typed, report = ulpscope.convert(made, precision="fp16", data=[feed])
    assert report.lowered == 1 and report.checked > 0
    assert (
        ulpscope.Engine(typed).run(feed)["y"].tobytes()
        == ulpscope.Engine(made, precision="fp16").run(feed)["y"].tobytes()
    )
