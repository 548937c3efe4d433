"""What docs/beside_onnxruntime.md says: where ONNX Runtime on a CPU gives other results, and who is right."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

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


def test_states_after_a_sequence_of_length_0():
    generator = np.random.default_rng(0)
    draw = lambda *shape: generator.normal(0, 1, shape).astype(np.float32)  # noqa: E731
    made = model(
        [node("GRU", ["x", "w", "r", "", "lengths", "h"], ["", "y"], hidden_size=3)],
        [("x", TensorProto.FLOAT, [2, 2, 4]), ("h", TensorProto.FLOAT, [1, 2, 3])],
        [("y", TensorProto.FLOAT, [1, 2, 3])],
        {"w": draw(1, 9, 4), "r": draw(1, 9, 3), "lengths": np.array([2, 0], np.int32)},
    )
    feed = {"x": draw(2, 2, 4), "h": draw(1, 2, 3)}
    ours, theirs = ulpscope.Engine(made).run(feed)["y"], onnx_runtime(made, feed)
    np.testing.assert_allclose(ours[0, 0], theirs[0, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ours[0, 1], feed["h"][0, 1])
    assert not theirs[0, 1].any()


def test_ratios_that_are_kept_along_axes_from_the_end():
    feed = {"x": np.arange(20, dtype=np.float32).reshape(1, 1, 4, 5)}
    shapes = {}
    for axes in ([2, 3], [-2, -1]):
        made = model(
            [node("Resize", ["x", "", "", "s"], ["y"], axes=axes, keep_aspect_ratio_policy="not_larger")],
            [("x", TensorProto.FLOAT, [1, 1, 4, 5])],
            [("y", TensorProto.FLOAT, [1, 1, "h", "w"])],
            {"s": np.array([7, 6])},
        )
        made.opset_import[0].version = 19
        shapes[axes[0]] = ulpscope.Engine(made).run(feed)["y"].shape, onnx_runtime(made, feed).shape
    assert shapes == {2: ((1, 1, 5, 6), (1, 1, 5, 6)), -2: ((1, 1, 5, 6), (1, 1, 4, 5))}


def test_relu_in_front_of_fp8_quantizers():
    """ONNX Runtime's ReluQuantRewrite takes 0 for the least of these elements, as of uint8, and drops the Relu."""
    generator = np.random.default_rng(5)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((8, 32), (32, 16)))
    made = model(
        [
            node("Relu", ["x"], ["r"]),
            node("QuantizeLinear", ["r", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s"], ["d"]),
            node("MatMul", ["d", "w"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, [8, 32])],
        [("y", TensorProto.FLOAT, [8, 16])],
        {"s": np.float32(0.01), "w": w},
    )
    made.graph.initializer.append(helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], b"\0", raw=True))
    made.opset_import[0].version = 19
    made.ir_version = 9
    ours = ulpscope.Engine(made).run({"x": x})["y"]
    assert far(ours, np.maximum(x, 0) @ w) < 0.05
    assert far(onnx_runtime(made, {"x": x}, "ORT_DISABLE_ALL"), ours) < 1e-6
    assert far(onnx_runtime(made, {"x": x}), ours) > 0.5
    options = onnxruntime.SessionOptions()
    without = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=["ReluQuantRewrite"]
    )
    assert far(without.run(None, {"x": x})[0], ours) < 1e-6


def test_weights_in_int4_and_int8():
    """By default they are multiplied by activations that are rounded to int8, by blocks of 32."""
    generator = np.random.default_rng(6)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((8, 64), (64, 32)))
    x[:, 3] *= 50  # What shares its scale loses its digits.
    codes, scale = np.rint(w * 30).astype(np.int8), np.full(32, 1 / 30, np.float32)
    made = model(
        [node("DequantizeLinear", ["w", "s"], ["d"], axis=1), node("MatMul", ["x", "d"], ["y"])],
        [("x", TensorProto.FLOAT, [8, 64])],
        [("y", TensorProto.FLOAT, [8, 32])],
        {"w": codes, "s": scale},
    )
    exact = x.astype(np.float64) @ (codes.astype(np.float64) * scale)
    assert far(onnx_runtime(made, {"x": x}), exact) > 5e-3
    assert far(onnx_runtime(made, {"x": x}, qdq_matmulnbits_accuracy_level="0"), exact) < 1e-5
    assert far(ulpscope.Engine(made).run({"x": x})["y"], exact) < 1e-6


def test_relus_are_there_where_onnx_runtime_judges_fp8():
    generator = np.random.default_rng(7)
    w = {name: (generator.standard_normal((64, 64)) / 6).astype(np.float32) for name in ("v", "w")}
    made = model(
        [
            node("MatMul", ["x", "v"], ["h"], "first"),
            node("Relu", ["h"], ["r"]),
            node("MatMul", ["r", "w"], ["y"], "last"),
        ],
        [("x", TensorProto.FLOAT, [16, 64])],
        [("y", TensorProto.FLOAT, [16, 64])],
        w,
    )
    samples = [{"x": generator.standard_normal((16, 64)).astype(np.float32)} for _ in range(4)]
    answer = ulpscope.search(
        made, samples, precisions=["fp8"], metric="rel-l2", threshold=0.2, margin=1, objective="smallest",
        hold_out=False, progress=False,
    )  # fmt: skip
    assert not answer.layers
    check = ulpscope.verify(made, answer, samples, runner="onnxruntime")
    assert check.passed and check.error == pytest.approx(check.predicted, rel=0.1)


def test_numbers_that_are_none_in_quantizelinear():
    x = np.float32([np.nan, 3, -1])
    values = [("x", TensorProto.FLOAT, [3]), ("y", TensorProto.INT8, [3])]
    made = model([node("QuantizeLinear", ["x", "s", "z"], ["y"])], values[:1], values[1:],
                 {"s": np.float32(0.5), "z": np.int8(7)})  # fmt: skip
    assert ulpscope.Engine(made).run({"x": x})["y"].tolist() == [7, 13, 5]
    assert onnx_runtime(made, {"x": x})[1:].tolist() == [13, 5]
    ends = [
        [("x", TensorProto.FLOAT, [3])],
        [("y", TensorProto.UINT8, [3]), ("s", TensorProto.FLOAT, []), ("z", TensorProto.UINT8, [])],
    ]
    made = model([node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], *ends, {})
    result = ulpscope.Engine(made).run({"x": x})
    assert result["y"].tolist() == [result["z"], 255, 0] and result["s"] == np.float32(4) / 255
    assert onnx_runtime(made, {"x": x})[1:].tolist() == [255, 0]


def test_corners_of_a_size_that_is_no_integer():
    feed = {"x": np.arange(3, dtype=np.float32).reshape(1, 1, 3)}
    made = model(
        [node("Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode="align_corners")],
        [("x", TensorProto.FLOAT, [1, 1, 3])],
        [("y", TensorProto.FLOAT, [1, 1, 4])],
        {"s": np.float32([1, 1, 1.5])},
    )
    np.testing.assert_allclose(ulpscope.Engine(made).run(feed)["y"][0, 0], np.arange(4) * 2 / 3.5, rtol=1e-6)
    np.testing.assert_allclose(onnx_runtime(made, feed)[0, 0], np.arange(4) * 2 / 3, rtol=1e-6)


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("opset", [7, 17])
def test_limits_that_are_left_out_hold_infinities(opset, fusion):
    feed = {"x": np.float32([np.inf, -np.inf, 1, np.nan])}
    values = [("x", TensorProto.FLOAT, [4]), ("y", TensorProto.FLOAT, [4])]
    made = model([node("Mul", ["x", "two"], ["t"]), node("Clip", ["t"], ["y"])], values[:1], values[1:],
                 {"two": np.float32(2)})  # fmt: skip
    made.opset_import[0].version = opset
    most = np.finfo(np.float32).max
    for result in (ulpscope.Engine(made, fusion=fusion).run(feed)["y"], onnx_runtime(made, feed, "ORT_DISABLE_ALL")):
        np.testing.assert_array_equal(result, np.float32([most, -most, 2, np.nan]))


def test_the_layer_normalization_that_its_fusions_write():
    generator = np.random.default_rng(4)
    x, scale = generator.normal(0, 1, (2, 3, 8)).astype(np.float32), generator.normal(1, 0.1, 8).astype(np.float32)
    values = [("x", TensorProto.FLOAT, [2, 3, 8]), ("y", TensorProto.FLOAT, [2, 3, 8])]
    made = model(
        [node("LayerNormalization", ["x", "s", "b"], ["y"])], values[:1], values[1:], {"s": scale, "b": -scale}
    )
    made.opset_import[0].version = 13  # ONNX has it since 17.
    np.testing.assert_allclose(ulpscope.Engine(made).run({"x": x})["y"], onnx_runtime(made, {"x": x}), atol=1e-6)


@pytest.mark.parametrize("operator", ["Conv", "LpPool"])
def test_same_padding_of_strides_beyond_the_window(operator):
    feed = {"x": np.arange(1, 9, dtype=np.float32).reshape(1, 1, 8)}
    values = [("x", TensorProto.FLOAT, [1, 1, 8]), ("y", TensorProto.FLOAT, [1, 1, 2])]
    constants = {"w": np.ones((1, 1, 1), np.float32)} if operator == "Conv" else {}
    layer = node(operator, ["x", *constants], ["y"], auto_pad="SAME_UPPER", kernel_shape=[1], strides=[4])
    made = model([layer], values[:1], values[1:], constants)
    np.testing.assert_array_equal(ulpscope.Engine(made).run(feed)["y"][0, 0], [1, 5])
    np.testing.assert_array_equal(onnx_runtime(made, feed)[0, 0], [2, 6])
    if operator == "Conv":
        np.testing.assert_array_equal(ReferenceEvaluator(made).run(None, feed)[0][0, 0], [1, 5])
