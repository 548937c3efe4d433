"""Inputs that a model leaves open: of any rank, and those that have an initializer as their default. ONNX Runtime
judges."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
value = helper.make_tensor_value_info


def model_of(nodes, inputs, outputs, initializers=(), opset=17, ir_version=8) -> bytes:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in initializers])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version
    ).SerializeToString()


def scaled(ir_version=8, shape=(2,)) -> bytes:
    """y = x * w, where w is 2, 3 unless it is given."""
    inputs = [value("x", FLOAT, ["n"]), value("w", FLOAT, shape)]
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"], name="Mul")]
    return model_of(nodes, inputs, [value("y", FLOAT, None)], [("w", np.float32([2, 3]))], ir_version=ir_version)


def reference(model: bytes, feed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options)
    return dict(
        zip(
            [each.name for each in session.get_outputs()],
            session.run(None, {n: np.asarray(a) for n, a in feed.items()}),
        )
    )


def check(model: bytes, *feeds, **options):
    """One engine for all feeds, one after the other."""
    engine = ulpscope.Engine(model, threads=1, **options)
    for feed in [*feeds, *feeds]:
        expected, actual = reference(model, feed), engine.run(feed)
        for name, array in expected.items():
            assert actual[name].shape == array.shape and actual[name].dtype == array.dtype, name
            np.testing.assert_allclose(actual[name], array, rtol=2e-5, atol=2e-5, err_msg=name)
    return engine


def randoms(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


# Inputs of any rank


def test_an_input_without_a_shape_takes_any_rank():
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("ReduceSum", ["h"], ["y"], keepdims=0)]
    model = model_of(nodes, [value("x", FLOAT, None)], [value("h", FLOAT, None), value("y", FLOAT, None)])
    engine = check(model, *({"x": randoms(*shape)} for shape in [(2, 3), (), (4,), (1, 2, 3, 4), (0, 2)]))
    assert engine.inputs == (("x", np.dtype(np.float32), None),)
    assert [spec.shape for spec in engine.outputs] == [None, None]


def test_values_without_a_shape_beside_inputs_that_have_one():
    nodes = [helper.make_node("Add", ["x", "k"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=-1)]
    inputs, outputs = [value("x", FLOAT, None), value("k", FLOAT, ["n"])], [value("y", FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, value_info=[value("h", FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    check(model, {"x": randoms(2, 3), "k": randoms(3)}, {"x": randoms(5, 2, 3), "k": randoms(1)})


def test_functions_and_bodies_without_shapes():
    """y = Loop over a function's call, the value that it carries, and one that it takes from around it."""
    twice = helper.make_function("own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
                                 [helper.make_opsetid("", 17)])  # fmt: skip
    body = helper.make_graph(
        [
            helper.make_node("Twice", ["s"], ["t"], domain="own"),
            helper.make_node("Add", ["t", "x"], ["s2"]),
            helper.make_node("Identity", ["c"], ["c2"]),
            helper.make_node("Identity", ["s2"], ["scan"]),
        ],
        "body",
        [value("i", INT64, []), value("c", TensorProto.BOOL, []), value("s", FLOAT, None)],
        [value("c2", TensorProto.BOOL, None), value("s2", FLOAT, None), value("scan", FLOAT, None)],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y", "z"], body=body)]
    graph = helper.make_graph(nodes, "g", [value("x", FLOAT, None), value("n", INT64, None)],
                              [value("y", FLOAT, None), value("z", FLOAT, None)])  # fmt: skip
    model = helper.make_model(graph, functions=[twice], ir_version=8,
                              opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)])  # fmt: skip
    check(model.SerializeToString(), *({"x": randoms(*s), "n": np.int64(3)} for s in [(2, 3), (), (4, 1, 2)]))


def test_an_input_of_any_rank_needs_a_shape_to_be_generated():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", FLOAT, None)], [value("y", FLOAT, None)])
    with pytest.raises(ulpscope.Error, match=r"\[inputs\] input 'x': expected a shape.*--input-shapes"):
        ulpscope.convert(model)


# Initializers that are inputs


def test_a_default_is_used_until_it_is_given():
    x = np.float32([1, 10])
    engine = check(scaled(), {"x": x}, {"x": x, "w": np.float32([5, -6])}, {"x": x}, {"x": -x, "w": np.float32([0, 1])})
    assert [spec.name for spec in engine.inputs] == ["x"]
    assert engine.defaults == (("w", np.dtype(np.float32), (2,)),)
    assert engine.run([x])["y"].tolist() == [2, 30]


def test_shapes_of_what_is_given():
    check(scaled(shape=["m"]), {"x": np.float32([1, 10]), "w": np.float32([7])}, {"x": np.float32([1, 2])})
    with pytest.raises(ulpscope.Error, match=r"\[run\] input 'w': expected the shape \(2,\), got \(1,\)"):
        ulpscope.Engine(scaled()).run({"x": np.float32([1, 10]), "w": np.float32([7])})
    with pytest.raises(ulpscope.Error, match=r"\[run\] input 'w': expected elements of type float32, got float64"):
        ulpscope.Engine(scaled()).run({"x": np.float32([1, 10]), "w": np.float64([7, 8])})
    assert ulpscope.Engine(scaled()).run({"x": [1, 10], "w": [7, 8]})["y"].tolist() == [7, 80]


def test_up_to_ir_version_3_initializers_are_constants():
    engine = check(scaled(ir_version=3), {"x": np.float32([1, 10])})
    assert engine.defaults == ()
    with pytest.raises(ulpscope.Error, match="expected 'x', got 'x', 'w'"):
        engine.run({"x": np.float32([1, 10]), "w": np.float32([7, 8])})


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], **attributes)


OPERATORS = {
    # What is folded, packed or read as a weight when it is constant.
    "matmul": ([node("MatMul", ["x", "w"], "y")], (3, 4), {"w": randoms(4, 5)}),
    "gemm": ([node("Gemm", ["x", "w", "b"], "y", transB=1)], (3, 4), {"w": randoms(5, 4), "b": randoms(5)}),
    "conv": ([node("Conv", ["x", "w", "b"], "y")], (1, 2, 5, 5), {"w": randoms(3, 2, 3, 3), "b": randoms(3)}),
    "conv and norm": (
        [node("Conv", ["x", "w"], "h"), node("BatchNormalization", ["h", "s", "b", "m", "v"], "y")],
        (1, 2, 5, 5),
        {"w": randoms(3, 2, 3, 3), "s": randoms(3), "b": randoms(3), "m": randoms(3), "v": abs(randoms(3)) + 1},
    ),
    "layer norm": ([node("LayerNormalization", ["x", "s", "b"], "y")], (3, 4), {"s": randoms(4), "b": randoms(4)}),
    "reshape": ([node("Reshape", ["x", "s"], "y")], (3, 4), {"s": np.int64([2, 6])}),
    "slice": ([node("Slice", ["x", "a", "e"], "y")], (3, 4), {"a": np.int64([0, 1]), "e": np.int64([2, 3])}),
    "gather": ([node("Gather", ["x", "i"], "y")], (3, 4), {"i": np.int64([2, 0])}),
    "clip": ([node("Clip", ["x", "a"], "y")], (3, 4), {"a": np.float32(0.1)}),
    "folded": (
        [node("Transpose", ["w"], "t"), node("Mul", ["t", "t"], "u"), node("MatMul", ["x", "u"], "y")],
        (3, 4),
        {"w": randoms(5, 4)},
    ),
    "pad": ([node("Pad", ["x", "p", "v"], "y")], (3, 4), {"p": np.int64([1, 0, 0, 2]), "v": np.float32(3)}),
    "dequantize": (
        [node("QuantizeLinear", ["x", "s", "z"], "q"), node("DequantizeLinear", ["q", "s", "z"], "y")],
        (3, 4),
        {"s": np.float32(0.02), "z": np.uint8(120)},
    ),
    "lstm": (
        [helper.make_node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=3)],
        (2, 1, 4),
        {"w": randoms(1, 12, 4), "r": randoms(1, 12, 3)},
    ),
}
OTHERS = {  # what is given: another value of the same shape, and for these one that means something
    "s": lambda a: np.int64([4, 3]) if a.dtype == np.int64 else np.abs(a) * 2 + 0.01,
    "i": lambda a: np.int64([1, 1]),
    "a": lambda a: np.int64([1, 0]) if a.dtype == np.int64 else np.float32(-0.5),
    "e": lambda a: np.int64([3, 4]),
    "p": lambda a: np.int64([0, 1, 2, 0]),
    "z": lambda a: np.uint8(100),
    "v": lambda a: np.abs(a) + np.float32(0.5),
}


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("case", OPERATORS)
def test_what_a_constant_was_folded_into_follows_what_is_given(case, fusion):
    nodes, shape, constants = OPERATORS[case]
    initializers = [(name, np.asarray(array)) for name, array in constants.items()]
    inputs = [value("x", FLOAT, shape)]
    inputs += [value(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in initializers]
    model = model_of(nodes, inputs, [value("y", FLOAT, None)], initializers)
    x = randoms(*shape, seed=3)
    given = {
        name: np.asarray(OTHERS.get(name, lambda a: a * np.float32(1.5) + np.float32(0.25))(array), array.dtype)
        for name, array in initializers
    }
    one = next(iter(given))
    together = [] if case == "slice" else [{"x": x, one: given[one]}]
    engine = check(model, {"x": x}, *together, {"x": x, **given}, fusion=fusion)
    assert {spec.name for spec in engine.defaults} == set(constants)
    before, after = engine.run({"x": x})["y"], engine.run({"x": x, **given})["y"]
    assert before.shape != after.shape or not np.array_equal(before, after)


def test_a_default_that_bodies_read():
    """If, with a Loop inside: w is read two graphs further in, and in one branch only."""
    body = helper.make_graph(
        [node("Mul", ["s", "w"], "s2"), node("Identity", ["c"], "c2")],
        "body",
        [value("i", INT64, []), value("c", TensorProto.BOOL, []), value("s", FLOAT, [2])],
        [value("c2", TensorProto.BOOL, []), value("s2", FLOAT, [2])],
    )
    then = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["a"], body=body)], "then", [], [value("a", FLOAT, [2])]
    )
    other = helper.make_graph([node("Neg", ["x"], "b")], "else", [], [value("b", FLOAT, [2])])
    nodes = [helper.make_node("If", ["p"], ["y"], then_branch=then, else_branch=other)]
    inputs = [value("x", FLOAT, [2]), value("p", TensorProto.BOOL, []), value("w", FLOAT, [2])]
    model = model_of(nodes, inputs, [value("y", FLOAT, [2])], [("w", np.float32([2, 3])), ("n", np.int64(3))])
    x = np.float32([1, 10])
    check(model, *({"x": x, "p": np.bool_(p), **w} for p in (True, False) for w in ({}, {"w": np.float32([-1, 0.5])})))


def test_a_default_that_is_an_output_and_one_that_nobody_reads():
    nodes = [node("Relu", ["x"], "y")]
    inputs = [value(name, FLOAT, [2]) for name in ("x", "w", "unused")]
    constants = [("w", np.float32([2, 3])), ("unused", np.float32([2, 3]))]
    model = model_of(nodes, inputs, [value("y", FLOAT, [2]), value("w", FLOAT, [2])], constants)
    x, w = np.float32([1, -1]), np.float32([8, 9])
    engine = check(model, {"x": x}, {"x": x, "w": w})
    assert engine.run({"x": x, "unused": w})["w"].tolist() == [2, 3]


def test_lower_precisions_hold_for_what_is_given():
    x, w = np.float32([1, 1]), np.float32([1 + 2**-12, 70000])
    engine = ulpscope.Engine(scaled(), precision="fp16")
    assert engine.run({"x": x, "w": w})["y"].tolist() == [1, np.inf]
    assert engine.run({"x": x})["y"].tolist() == [2, 3]
    kept = ulpscope.Engine(scaled(), precision="fp16", layer_precisions={"Mul": "float32"})
    assert kept.run({"x": x, "w": w})["y"].tolist() == w.tolist()


def test_samples_of_a_search_do_not_replace_constants(caplog):
    x = np.float32([1, 10])
    with caplog.at_level("WARNING", logger="ulpscope"):
        ulpscope.search(scaled(), [{"x": x, "w": np.float32([5, 6])}], threshold=1e-2)
    assert "'w' is a constant of the model and keeps its value here" in caplog.text


def test_the_model_itself_may_be_onnx_modelproto():
    assert ulpscope.Engine(onnx.load_from_string(scaled())).run({"x": [1, 1], "w": [4, 5]})["y"].tolist() == [4, 5]
