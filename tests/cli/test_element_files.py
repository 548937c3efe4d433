"""Files of products of elements: where blocks lie, and what they round when shapes are known at run time only."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert_support import info, model, save
from search_support import save_inputs


@pytest.mark.parametrize("half", [[], ["--fp16"]])
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_blocks_of_attention_lie_along_the_last_axis(run, tmp_path, name, half):
    """Also those of keys and values, whose sums run along the last axis but one: TensorRT's own exporter and readers of
    its form know no other axis."""
    node = helper.make_node
    nodes = [
        node("Transpose", ["k"], ["turned"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q", "turned"], ["scores"], name="scores"),
        node("Mul", ["scores", "factor"], ["scaled"], name="scale"),
        node("Softmax", ["scaled"], ["chances"], name="softmax", axis=-1),
        node("MatMul", ["chances", "v"], ["y"], name="mix"),
    ]
    shapes = {"q": [1, 2, 64, 32], "k": [1, 64, 2, 32], "v": [1, 2, 64, 32]}
    made = model(
        nodes,
        [info(each, shape) for each, shape in shapes.items()],
        [info("y", [1, 2, 64, 32])],
        [numpy_helper.from_array(np.float32(0.2), "factor")],
    )
    save(tmp_path, made)
    random = np.random.default_rng(13)
    save_inputs(
        tmp_path / "in.json",
        [{each: random.standard_normal(shape).astype(np.float32) for each, shape in shapes.items()} for _ in range(2)],
    )
    outcome = run("convert", "m.onnx", f"--{name}", *half, "-o", "t.onnx", "--load-inputs", "in.json")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    typed = onnx.load(tmp_path / "t.onnx")
    axes = [
        attribute.i
        for each in typed.graph.node
        for attribute in each.attribute
        if attribute.name == "axis" and each.op_type != "Softmax"
    ]
    assert len(axes) == 8 and set(axes) == {-1}


def test_products_of_elements_whose_shapes_come_late(run, tmp_path):
    """Behind operands whose shapes only a run tells, results of a product of elements are rounded as in the file."""
    random = np.random.default_rng(19)
    nodes = [
        helper.make_node("Compress", ["x", "chosen"], ["some"], axis=0),
        helper.make_node("Compress", ["all", "chosen"], ["places"], axis=0),
        helper.make_node("ScatterND", ["x", "places", "some"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["p"], name="product"),
        helper.make_node("Add", ["p", "r"], ["y"], name="residual"),
    ]
    constants = [
        numpy_helper.from_array(np.arange(24)[:, None], "all"),
        numpy_helper.from_array((random.standard_normal((64, 64)) / 8).astype(np.float32), "w"),
    ]
    inputs = [info("x", [24, 64]), info("chosen", [24], TensorProto.BOOL), info("r", [24, 64])]
    save(tmp_path, model(nodes, inputs, [info("y", [24, 64])], constants))
    sample = {
        "x": random.standard_normal((24, 64)).astype(np.float32),
        "chosen": np.arange(24) < 20,
        "r": random.standard_normal((24, 64)).astype(np.float32),
    }
    save_inputs(tmp_path / "in.json", [sample])
    for name in ("fp8", "mxfp8", "int8"):
        outcome = run("convert", "m.onnx", f"--{name}", "--fp16", "-o", "t.onnx", "--load-inputs", "in.json")
        assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
