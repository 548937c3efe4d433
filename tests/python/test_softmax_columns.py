"""Softmax over other than last dimensions: the bits that it has over rows, for each number of threads."""

import numpy as np
import onnx
import pytest
from onnx import helper
from ulpscope import Engine

RANDOM = np.random.default_rng(0)


def model(op, shape, axis):
    value = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], axis=axis)], "g", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    "shape,axis", [((70, 45), 0), ((3, 21, 5, 33), 1), ((2, 5, 1), 1), ((4, 1, 30), 1), ((1, 300, 16), 1)]
)
def test_softmax_of_columns(op, shape, axis):
    x = RANDOM.normal(size=shape).astype(np.float32) * 5
    x.ravel()[3] = -np.inf
    turned = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    rows = Engine(model(op, list(turned.shape), -1)).run({"x": turned})["y"]
    for threads in (1, 3):
        columns = Engine(model(op, list(shape), axis), threads=threads).run({"x": x})["y"]
        assert columns.tobytes() == np.ascontiguousarray(np.moveaxis(rows, -1, axis)).tobytes()
