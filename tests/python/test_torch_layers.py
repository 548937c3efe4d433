"""What ulpscope.torch knows of exported models by themselves: needs no torch."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import ulpscope
from ulpscope.torch.graph import Graph
from ulpscope.torch.repairing import Refusal
from ulpscope.torch.searching import own_layers


def mixture_of_experts():
    """The two best of four scores go into a tensor of zeros, as a router does it; nodes have the scopes of modules."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"], "/router/linear"),
        helper.make_node("TopK", ["scores", "two"], ["best", "which"], "/router/topk"),
        helper.make_node("Sub", ["scores", "scores"], ["zeros"], "/router/sub"),
        helper.make_node("ScatterElements", ["zeros", "which", "best"], ["gates"], "/router/scatter", axis=1),
        helper.make_node("Mul", ["gates", "gates"], ["y"], "/experts/mul"),
    ]
    for node in nodes:
        scopes = ["", node.name.split("/")[1], node.name]
        node.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value=str(scopes)))
    weights = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    graph = helper.make_graph(
        nodes, "experts", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 4])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([2]), "two")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_layers_that_only_move_values_are_not_kept():
    """A search that is made again keeps the layers of a module's forward. TopK and ScatterElements have no precision of
    their own, and keep= would warn of them."""
    model = mixture_of_experts()
    samples = [{"x": np.random.default_rng(i).random((8, 16), np.float32)} for i in range(4)]
    answer = ulpscope.search(model, samples, "fp16", threshold=1e-2, progress=False)
    refusal = Refusal({}, ("router",), frozenset(), "")
    assert own_layers(Graph(model), answer, [refusal]) == ["/router/linear", "/router/sub"]
