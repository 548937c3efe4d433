"""Constants that files hold sparse, and optionals: run as the tensors that they are, and written by `convert`."""

import numpy as np
import onnx
import onnxruntime
import pytest
import ulpscope
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
DENSE = np.array([[0, 1.5, 0, 0], [-2, 0, 0, 0.25], [0, 0, 3, 0], [0, 0, 0, -0.75]], np.float32)


def sparse(dense, name="", coordinates=False):
    places = np.flatnonzero(dense)
    indices = np.stack(np.unravel_index(places, dense.shape), -1) if coordinates else places
    return helper.make_sparse_tensor(
        numpy_helper.from_array(dense.ravel()[places], name),
        numpy_helper.from_array(indices.astype(np.int64)),
        dense.shape,
    )


def model(nodes, inputs, outputs, sparse_initializers=(), opset=17):
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(np.zeros((1, 4), np.float32), "zero")],
        sparse_initializer=list(sparse_initializers),
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def with_sparse_weights(coordinates):
    """An initializer, and constants of other types in the graph and in a branch."""
    branch = [
        helper.make_node("Constant", [], ["inner"], sparse_value=sparse(DENSE + DENSE.T, "inner")),
        helper.make_node("Add", ["product", "inner"], ["then"]),
    ]
    flat = np.array([0, 2, 0, 1], np.int64)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
        helper.make_node("Constant", [], ["order"], "order", sparse_value=sparse(flat, "order")),
        helper.make_node("If", ["condition"], ["chosen"], "choice",
                         then_branch=helper.make_graph(branch, "then", [], [info("then", [4, 4])]),
                         else_branch=helper.make_graph([helper.make_node("Neg", ["product"], ["else"])], "else", [],
                                                       [info("else", [4, 4])])),
        helper.make_node("Gather", ["chosen", "order"], ["y"], "pick", axis=1),
    ]  # fmt: skip
    inputs = [info("x", [4, 4]), info("condition", [], TensorProto.BOOL)]
    return model(nodes, inputs, [info("y", [4, 4])], [sparse(DENSE, "w", coordinates)])


def info(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def values(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("coordinates", [False, True])
def test_sparse_constants(condition, coordinates):
    made, x = with_sparse_weights(coordinates), values(4, 4)
    product = x @ DENSE
    expected = (product + DENSE + DENSE.T if condition else -product)[:, [0, 2, 0, 1]]
    for source in (made, made.SerializeToString()):
        result = ulpscope.Engine(source).run({"x": x, "condition": np.array(condition)})["y"]
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint64, np.bool_])
def test_sparse_constants_of_every_width(dtype):
    dense = DENSE.astype(dtype)
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=sparse(dense, "c")),
             helper.make_node("Identity", ["c"], ["y"]), helper.make_node("Add", ["x", "zero"], ["z"])]  # fmt: skip
    made = model(nodes, [info("x", [1, 4])],
                 [info("y", [4, 4], helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), info("z", [1, 4])])  # fmt: skip
    result = ulpscope.Engine(made).run([values(1, 4)])["y"]
    assert result.dtype == dtype and (result == dense).all()


def test_sparse_weights_are_converted(tmp_path):
    """The typed model has dense weights, in their type, and gives what the engine gives."""
    made, x = with_sparse_weights(False), values(4, 4)
    source, out = tmp_path / "model.onnx", tmp_path / "typed.onnx"
    onnx.save(made, source)
    feeds = {"x": x, "condition": np.array(True)}
    ulpscope.convert(source, precision="fp16", data=[feeds], out=out)
    typed = onnx.load(out)
    onnx.checker.check_model(typed, full_check=True)
    assert not typed.graph.sparse_initializer
    assert {w.data_type for w in typed.graph.initializer if w.name.startswith("w")} == {TensorProto.FLOAT16}
    result = onnxruntime.InferenceSession(str(out)).run(None, feeds)[0]
    expected = ulpscope.Engine(made, precision="fp16").run(feeds)["y"]
    np.testing.assert_allclose(result.astype(np.float32), expected, rtol=2e-3, atol=2e-3)


def test_optionals_of_tensors_and_sequences():
    nodes = [
        helper.make_node("Optional", ["x"], ["some"], "some"),
        helper.make_node("Optional", [], ["none"], "none", type=helper.make_tensor_type_proto(FLOAT, [2, 3])),
        helper.make_node("Identity", ["none"], ["still_none"]),
        helper.make_node("OptionalGetElement", ["some"], ["element"], "get"),
        helper.make_node("OptionalHasElement", ["some"], ["has"], "has"),
        helper.make_node("OptionalHasElement", ["still_none"], ["has_none"], "has_none"),
        helper.make_node("OptionalHasElement", [""], ["has_no_input"], "has_no_input"),
        helper.make_node("SequenceConstruct", ["x", "element"], ["sequence"]),
        helper.make_node("Optional", ["sequence"], ["some_sequence"]),
        helper.make_node("OptionalGetElement", ["some_sequence"], ["same_sequence"]),
        helper.make_node("ConcatFromSequence", ["same_sequence"], ["y"], axis=0),
    ]
    flags = ["has", "has_none", "has_no_input"]
    graph = helper.make_graph(nodes, "g", [info("x", [2, 3])],
                              [info("y", [4, 3]), *(info(flag, [], TensorProto.BOOL) for flag in flags)])  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(made)
    x = values(2, 3)
    result = ulpscope.Engine(made).run([x])
    assert (result["y"] == np.concatenate([x, x])).all()
    assert [bool(result[flag]) for flag in flags] == [True, False, False]


def test_the_element_of_an_optional_without_one_is_refused():
    nodes = [helper.make_node("Optional", [], ["none"], type=helper.make_tensor_type_proto(FLOAT, [2])),
             helper.make_node("OptionalGetElement", ["none"], ["y"], "get")]  # fmt: skip
    made = helper.make_model(helper.make_graph(nodes, "g", [], [info("y", [2])]),
                             opset_imports=[helper.make_opsetid("", 18)], ir_version=8)  # fmt: skip
    with pytest.raises(ulpscope.Error, match=r"'get' \(OptionalGetElement\): expected an optional with an element"):
        ulpscope.Engine(made)


def test_an_input_that_is_an_optional_tensor():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2, "n"]))
    nodes = [helper.make_node("OptionalGetElement", ["x"], ["element"]), helper.make_node("Neg", ["element"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_value_info("x", kind)], [info("y", [2, None])])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    engine, x = ulpscope.Engine(made), values(2, 5)
    assert engine.inputs[0].shape == (2, -1)
    assert (engine.run([x])["y"] == -x).all()
