"""Layers that a model has in float16 or float64 itself, beside others that are lowered or kept."""

from __future__ import annotations

import numpy as np
import pytest
from networks import LEVELS, node, random
from onnx import TensorProto, helper, numpy_helper

import ulpscope

LONG = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def model_of(nodes, inputs, outputs, weights=None) -> bytes:
    """Inputs and outputs: name, type, shape."""
    info = helper.make_tensor_value_info
    constants = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", [info(*i) for i in inputs], [info(*o) for o in outputs], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def halves() -> tuple[bytes, dict[str, np.ndarray]]:
    """Two layers of float16, a Cast, and one of float32."""
    nodes = [
        node("MatMul", ["x", "w"], ["p"], "product"), node("Mul", ["p", "c"], ["m"], "factor"),
        node("Cast", ["m"], ["f"], "cast", to=TensorProto.FLOAT), node("Mul", ["f", "d"], ["y"], "last"),
    ]  # fmt: skip
    weights = {"w": random(8, 5).astype(np.float16), "c": random(1).astype(np.float16), "d": random(1, seed=1)}
    model = model_of(nodes, [("x", TensorProto.FLOAT16, [4, 8])], [("y", TensorProto.FLOAT, [4, 5])], weights)
    return model, {"x": random(4, 8).astype(np.float16)}


@pytest.mark.parametrize("fusion", LEVELS)
@pytest.mark.parametrize(
    "choice", [{"lower": ["last"]}, {"keep": ["product", "factor"]}, {"layer_precisions": {"product": "float32"}}]
)
def test_float16_of_the_file_that_is_kept_is_stored_as_the_file_has_it(fusion: str, choice: dict) -> None:
    model, feed = halves()
    typed, info = ulpscope.convert(model, precision="fp16", data=[feed], fusion=fusion, **choice)
    assert info.checked
    precisions = {name: LONG[precision] for name, _, precision in info.layers}
    assert precisions["product"] == "float32" and precisions["last"] == "float16"
    told = ulpscope.Engine(model, precision="fp16", layer_precisions=precisions, fusion=fusion)
    expected = told.run(feed)["y"]
    assert ulpscope.Engine(typed, fusion=fusion).run(feed)["y"].tobytes() == expected.tobytes()


def test_kept_layers_with_several_float16_outputs() -> None:
    nodes = [
        node("LSTM", ["x", "w", "r"], ["a", "h", "c"], "lstm", hidden_size=3),
        node("Cast", ["a"], ["f"], "cast", to=TensorProto.FLOAT),
        node("Cast", ["c"], ["g"], "cast2", to=TensorProto.FLOAT),
        node("ReduceSum", ["f"], ["s"], "sum"),
        node("Mul", ["s", "g"], ["y"], "last"),
    ]
    weights = {"w": random(1, 12, 4).astype(np.float16), "r": random(1, 12, 3).astype(np.float16)}
    model = model_of(nodes, [("x", TensorProto.FLOAT16, [2, 1, 4])], [("y", TensorProto.FLOAT, None)], weights)
    feed = {"x": random(2, 1, 4).astype(np.float16)}
    typed, info = ulpscope.convert(model, precision="fp16", keep=["lstm"], data=[feed])
    assert info.checked and dict((name, precision) for name, _, precision in info.layers)["lstm"] == "fp32"
    casts = [each for each in typed.graph.node if each.op_type == "Cast" and each.input[0].endswith("_fp32")]
    assert len(casts) >= 2


def test_float16_of_the_file_takes_no_bfloat16() -> None:
    model, feed = halves()
    types = {"product": "bfloat16", "last": "bfloat16"}
    _, info = ulpscope.convert(model, precision="bf16", layer_precisions=types, data=[feed])
    assert info.kept_back == (("product", "MatMul", "the file has its outputs in float16"),)
    assert ("product", "MatMul", "fp16") in info.layers and ("last", "Mul", "bf16") in info.layers


def test_words_of_a_conversion_leave_float16_of_the_file_out(program, folder) -> None:
    """Nobody has enabled that type: what the file says needs no words."""
    model, feed = halves()
    _, info = ulpscope.convert(model, precision="bf16", data=[feed])
    assert info.layer_precisions.split() == ["last:bfloat16"]


def test_float16_of_the_file_is_no_candidate() -> None:
    model, feed = halves()
    samples = [{"x": random(4, 8, seed=i).astype(np.float16)} for i in range(4)]
    answer = ulpscope.search(model, samples, threshold=1e-9, hold_out=False, objective="smallest", progress=False)
    assert answer.verdict == "found" and [layer.name for layer in answer.layers] == ["last"]
    assert answer.error == 0


@pytest.mark.parametrize("op", ["Exp", "Tanh", "Softmax", "Abs"])
@pytest.mark.parametrize("back", [False, True])
def test_searches_through_float64(op: str, back: bool) -> None:
    """A layer in float32 whose values pass through float64 on their way to an output."""
    nodes = [
        node("Sin", ["x"], ["s"], "sine"), node("Cast", ["s"], ["d"], "cast", to=TensorProto.DOUBLE),
        node(op, ["d"], ["e"], "wide"),
    ]  # fmt: skip
    if back:
        nodes.append(node("Cast", ["e"], ["y"], "back", to=TensorProto.FLOAT))
    output = ("y", TensorProto.FLOAT, [5]) if back else ("e", TensorProto.DOUBLE, [5])
    model = model_of(nodes, [("x", TensorProto.FLOAT, [5])], [output])
    layers = {layer.name: layer.precision for layer in ulpscope.Engine(model, precision="fp16").layers}
    assert layers["sine"] == "fp16"
    answer = ulpscope.search(
        model, [{"x": random(5, seed=i)} for i in range(3)], threshold=1e-6, hold_out=False, progress=False,
        objective="smallest",
    )  # fmt: skip
    assert answer.verdict == "found" and [layer.name for layer in answer.layers] == ["sine"]
    assert np.isfinite(answer.layers[0].effect) and answer.layers[0].effect > 1
