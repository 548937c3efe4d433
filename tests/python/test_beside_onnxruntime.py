"""What docs/beside_onnxruntime.md says: where ONNX Runtime on a CPU gives other results, and who is right."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope

node = helper.make_node
SCALE_W = np.float32(0.01)


def model(nodes, inputs, outputs, constants) -> onnx.ModelProto:
    ends = [[helper.make_tensor_value_info(*value) for value in values] for values in (inputs, outputs)]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", *ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def onnx_runtime(made, feed, level="ORT_ENABLE_ALL", **entries):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


def saturated(activations, weights):
    """The products of uint8 and int8 added in pairs of 16 bits, and these exactly."""
    pairs = np.stack([activations[:, k : k + 2] @ weights[k : k + 2] for k in range(0, len(weights), 2)])
    return np.clip(pairs, -32768, 32767).sum(0)


def far(result, expected):
    """Relative error, Euclidean norms."""
    return np.linalg.norm(result - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_products_of_integers(kind):
    generator = np.random.default_rng(3)
    limits = np.iinfo(kind)
    integers = generator.integers(limits.min, limits.max + 1, (4, 256))
    weights = generator.integers(-127, 128, (256, 16))
    scale = np.float32(6) / np.float32(limits.max)
    expected = (integers @ weights) * float(np.float32(scale * SCALE_W))
    made = model(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["d"]),
            node("DequantizeLinear", ["w", "sw", "zw"], ["wd"]),
            node("MatMul", ["d", "wd"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, [4, 256])],
        [("y", TensorProto.FLOAT, [4, 16])],
        {"s": scale, "z": kind(0), "w": weights.astype(np.int8), "sw": SCALE_W, "zw": np.int8(0)},
    )
    feed = {"x": (integers * scale).astype(np.float32)}
    # One rounding of the exact sum, and one of its product with the scales.
    assert far(ulpscope.Engine(made).run(feed)["y"], expected) < 1e-7
    assert far(onnx_runtime(made, feed, "ORT_DISABLE_ALL"), expected) < 1e-6
    assert far(onnx_runtime(made, feed, x64quantprecision="1"), expected) < 1e-6
    # int8 is shifted by 128 there.
    shift = 0 if kind is np.uint8 else 128
    cut = saturated(integers + shift, weights) - shift * weights.sum(0)
    cut = cut * float(np.float32(scale * SCALE_W))
    assert far(cut, expected) > 0.05
    result = onnx_runtime(made, feed)  # With VNNI, or elsewhere than on x86-64, exact.
    assert min(far(result, cut), far(result, expected)) < 1e-6


def test_matmul_integer():
    generator = np.random.default_rng(3)
    left, right = generator.integers(0, 256, (4, 256)), generator.integers(-127, 128, (256, 16))
    made = model(
        [node("MatMulInteger", ["a", "w"], ["y"])],
        [("a", TensorProto.UINT8, [4, 256])],
        [("y", TensorProto.INT32, [4, 16])],
        {"w": right.astype(np.int8)},
    )
    feed = {"a": left.astype(np.uint8)}
    assert np.array_equal(ulpscope.Engine(made).run(feed)["y"], left @ right)
    result = onnx_runtime(made, feed, "ORT_DISABLE_ALL")
    assert np.array_equal(result, left @ right) or np.array_equal(result, saturated(left, right))


def test_sigmoid_near_zero():
    x = np.linspace(-80, 20, 10001).astype(np.float32)
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    values = [("x", TensorProto.FLOAT, [len(x)]), ("y", TensorProto.FLOAT, [len(x)])]
    made = model([node("Sigmoid", ["x"], ["y"])], values[:1], values[1:], {})
    assert np.abs(ulpscope.Engine(made).run({"x": x})["y"] / exact - 1).max() < 2.5e-7
    # Right to some units in the last place of 1, not of the result.
    assert np.abs(onnx_runtime(made, {"x": x}) - exact).max() < 2.5e-7


def test_float16_is_rounded_by_the_rules():
    x = np.float16([[1, 100, 300, 3000]])
    values = [("x", TensorProto.FLOAT16, [1, 4]), ("y", TensorProto.FLOAT16, [1, 4])]
    made = model([node("Mul", ["x", "x"], ["t"]), node("Sqrt", ["t"], ["y"])], values[:1], values[1:], {})
    stored = [[1, 100, np.inf, np.inf]]
    assert np.array_equal(ulpscope.Engine(made, fusion="none").run({"x": x})["y"], stored)
    assert np.array_equal(ulpscope.Engine(made, fusion="full").run({"x": x})["y"], x)
    # On x86-64, both compute in float32, and nothing is stored between them.
    result = onnx_runtime(made, {"x": x}, "ORT_DISABLE_ALL")
    assert np.array_equal(result, x) or np.array_equal(result, stored)
