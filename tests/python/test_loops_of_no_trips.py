"""What comes out of a Loop that makes no trip, and layers whose operands follow from its shape."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope

node, info = helper.make_node, helper.make_tensor_value_info
FLOAT = TensorProto.FLOAT


def loop(nodes, carried, outputs, scans, graph_outputs, extra=(), opset=17, constants=()):
    """x through no trip of a Loop `loop`; `carried`: the body's inputs, with a shape or None."""
    formals = [info("i", TensorProto.INT64, []), info("k", TensorProto.BOOL, [])]
    formals += [info(name, FLOAT, shape) for name, shape in carried]
    yields = [info("k2", TensorProto.BOOL, None), *(info(name, FLOAT, None) for name in outputs)]
    body = helper.make_graph([node("Identity", ["k"], ["k2"]), *nodes], "body", formals, yields)
    layer = node("Loop", ["none", "", *["x"] * len(carried)], [f"o{i}" for i in range(len(outputs))], "loop", body=body)
    graph = helper.make_graph(
        [layer, *extra], "g", [info("x", FLOAT, [3, 3])], [info(name, FLOAT, None) for name in graph_outputs],
        [numpy_helper.from_array(np.int64(0), "none")]
        + [numpy_helper.from_array(value, name) for name, value in dict(constants).items()],
    )  # fmt: skip
    assert len(outputs) == len(carried) + scans
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_an_output_that_other_layers_of_the_body_do_not_decide():
    """The declared shape of one state does not fit the shape of another: the maximum has one all the same."""
    nodes = [
        node("Tanh", ["s"], ["t"]), node("Concat", ["u", "t"], ["c"], axis=0),
        node("ReduceMax", ["t"], ["m"], keepdims=1),
    ]  # fmt: skip
    made = loop(nodes, [("s", [4, "n"]), ("u", None)], ["t", "c", "m"], 1, ["o2"])
    x = np.ones((3, 3), np.float32)
    expected = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    actual = ulpscope.Engine(made).run({"x": x})["o2"]
    assert actual.shape == expected.shape == (0, 1, 1)


def test_a_product_whose_operands_are_known_with_a_shape_keeps_its_precision():
    w = np.array([[1 / 3, 0, 0], [-0.3125, 0, 0], [0, 0, 1]], np.float32)
    half = numpy_helper.from_array(np.array([0.5], np.float32))
    extra = [node("Shape", ["o0"], ["size"]), node("ConstantOfShape", ["size"], ["full"], value=half),
             node("MatMul", ["full", "w"], ["y"], "product")]  # fmt: skip
    made = loop([node("Relu", ["s"], ["t"])], [("s", [3, 3])], ["t"], 0, ["y"], extra, constants={"w": w})
    feed = {"x": np.ones((3, 3), np.float32)}
    narrow = w.astype(ml_dtypes.bfloat16).astype(np.float32)
    exact = np.full((3, 3), 0.5, np.float32) @ narrow
    expected = exact.astype(ml_dtypes.bfloat16).astype(np.float32)
    for fusion in ("none", "full"):
        actual = ulpscope.Engine(made, precision="bf16", fusion=fusion).run(feed)["y"]
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("width", [1, 3])
def test_dimensions_that_the_body_leaves_open_beside_others(width):
    """A value from outside decides those that it has; the others are 0, as in ONNX Runtime."""
    nodes = [node("Add", ["s", "outside"], ["t"]), node("Tanh", ["t"], ["c"])]
    constants = {"outside": np.ones((3, width), np.float32)}
    made = loop(nodes, [("s", ["m", "n"])], ["t", "c"], 1, ["o1"], constants=constants)
    x = np.ones((3, 3), np.float32)
    expected = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    actual = ulpscope.Engine(made).run({"x": x})["o1"]
    assert actual.shape == expected.shape == (0, 3, 3 if width == 3 else 0)


def test_dimensions_that_a_value_from_outside_leaves_open_too():
    """They are 0, as in ONNX Runtime: what comes in decides nothing."""
    made = loop([node("Add", ["s", "outside"], ["t"])], [("s", [3, "n"])], ["t", "t"], 1, ["o1"])
    made.graph.input.append(info("outside", FLOAT, [3, "width"]))
    feed = {"x": np.ones((3, 3), np.float32), "outside": np.ones((3, 3), np.float32)}
    expected = ort.InferenceSession(made.SerializeToString()).run(None, feed)[0]
    actual = ulpscope.Engine(made).run(feed)["o1"]
    assert actual.shape == expected.shape == (0, 3, 0)


def test_a_value_computed_outside_that_fits_the_shapes_that_come_in_alone():
    """Nothing declares its shape, and dimensions of 0 do not fit it."""
    made = loop([node("Add", ["s", "outside"], ["t"])], [("s", [2, None, None])], ["t", "t"], 1, ["o1"])
    made.graph.node.insert(0, node("Add", ["row", "x"], ["outside"]))
    made.graph.input.append(info("row", FLOAT, [1, 2, 1]))
    feed = {"x": np.ones((2, 2, 1), np.float32), "row": np.ones((1, 2, 1), np.float32)}
    made.graph.input[0].CopyFrom(info("x", FLOAT, [2, 2, 1]))
    expected = ort.InferenceSession(made.SerializeToString()).run(None, feed)[0]
    actual = ulpscope.Engine(made).run(feed)["o1"]
    assert actual.shape == expected.shape == (0, 2, 2, 0)


BODIES = {
    "the state": [node("Identity", ["s"], ["t"])],
    "a value from outside": [node("Tanh", ["o"], ["t"])],
    "a sum": [node("Add", ["s", "o"], ["t"])],
    "a sum, transposed": [node("Transpose", ["s"], ["v"]), node("Add", ["v", "o"], ["t"])],
    "a sum of three": [node("Add", ["s", "o"], ["u"]), node("Add", ["u", "row"], ["t"])],
    "rows": [node("Concat", ["s", "o"], ["t"], axis=0)],
    "columns": [node("Concat", ["s", "o"], ["t"], axis=1)],
    "a product": [node("MatMul", ["s", "o"], ["t"])],
    "a maximum of a sum": [node("Add", ["s", "o"], ["u"]), node("ReduceMax", ["u"], ["t"], axes=[1], keepdims=0)],
    "the first row": [node("Slice", ["s", "zeros", "ones"], ["t"])],
    "two rows": [node("Gather", ["s", "zeros2"], ["t"])],
}


@pytest.mark.parametrize("body", BODIES)
def test_dimensions_follow_from_what_is_declared_as_in_onnx_runtime(body):
    """Whatever declares them, of 1 and of 3: the state, an input, or the input of what computes a value outside."""
    constants = {"zeros": np.zeros(1, np.int64), "ones": np.ones(1, np.int64), "zeros2": np.zeros(2, np.int64)}
    constants["row"] = np.ones((1, 3), np.float32)
    sizes, judged = list(itertools.product((1, 3), repeat=2)), 0
    for x, outer in itertools.product(sizes, sizes):
        feed = {"x": np.ones(x, np.float32), "outside": np.ones(outer, np.float32)}
        for state, outside, computed in itertools.product(
            (["m", "n"], list(x), ["m", x[1]]), (["p", "w"], ["p", outer[1]], list(outer)), (False, True)
        ):
            nodes = [node("Identity", ["s"], ["s2"]), *BODIES[body]]
            made = loop(nodes, [("s", state)], ["s2", "t"], 1, ["o1"], constants=constants)
            made.graph.input[0].CopyFrom(info("x", FLOAT, ["a", "b"]))
            made.graph.input.append(info("outside", FLOAT, outside))
            made.graph.node.insert(0, node("Neg" if computed else "Identity", ["outside"], ["o"]))
            once = onnx.ModelProto()
            once.CopyFrom(made)
            once.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.int64(1), "none"))
            try:
                ulpscope.Engine(once).run(feed)
            except ulpscope.Error:
                continue  # No trip could run.
            expected = ort.InferenceSession(made.SerializeToString()).run(None, feed)[0]
            actual = ulpscope.Engine(made).run(feed)["o1"]
            assert actual.shape == expected.shape, (x, outer, state, outside, computed)
            judged += 1
    assert judged >= 72
