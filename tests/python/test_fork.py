"""A process that has computed with several threads may fork, as loaders of data do: the child computes, too."""
import os
import signal

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper


def test_a_forked_process_computes():
    from ulpscope import Engine

    n = 256
    weight = np.random.default_rng(0).normal(size=(n, n)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Tanh", ["m"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, n])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [n, n])], [numpy_helper.from_array(weight, "w")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    x = np.random.default_rng(1).normal(size=(n, n)).astype(np.float32)
    engine = Engine(model, threads=4)
    expected = engine.run({"x": x})["y"]
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        same = engine.run({"x": x})["y"].tobytes() == expected.tobytes()
        fresh = Engine(model, threads=4).run({"x": x})["y"].tobytes() == expected.tobytes()
        os._exit(0 if same and fresh else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_process_runs_convolutions_that_were_made_for_several_threads():
    from ulpscope import Engine

    random = np.random.default_rng(0)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2]), helper.make_node("Relu", ["c"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(random.normal(size=(32, 3, 3, 3)).astype(np.float32), "w")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    engine = Engine(model, threads=2)
    feeds = [{"x": random.normal(size=(n, 3, 64, 64)).astype(np.float32)} for n in (1, 2)]
    expected = [engine.run(feed)["y"].tobytes() for feed in feeds]
    right = lambda: [engine.run(feed)["y"].tobytes() for feed in feeds] == expected  # noqa: E731
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if right() else 3)
    assert right()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_process_has_an_onnxruntime_of_its_own():
    from ulpscope import Engine

    pytest.importorskip("onnxruntime")
    graph = helper.make_graph(
        [helper.make_node("CDist", ["x", "x"], ["y"], metric="sqeuclidean", domain="com.microsoft")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "n"])])  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    engine = Engine(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    right = lambda a: np.array_equal(engine.run({"x": np.array([[0, 0], [a, 0]], np.float32)})["y"], [[0, a * a], [a * a, 0]])  # noqa: E731
    assert right(3)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if all(right(a) for a in (4, 5)) else 3)
    assert all(right(a) for a in (6, 7))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
