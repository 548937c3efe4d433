"""Models of opset 6: those of ONNX's own tests, and what changed with opset 7."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope

FOLDER = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
MODELS = [
    path.parent for kind in ("pytorch-converted", "pytorch-operator") for path in FOLDER.glob(f"{kind}/*/model.onnx")
]
info, node = helper.make_tensor_value_info, helper.make_node


def model(nodes, inputs, constants=(), opset=6):
    graph = helper.make_graph(
        nodes, "g", [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in dict(constants).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


def tensor(path):
    return numpy_helper.to_array(onnx.load_tensor(path))


@pytest.mark.skipif(not MODELS, reason="this version of onnx brings no models of tests")
def test_the_models_of_onnx_itself():
    for folder in MODELS:
        engine = ulpscope.Engine(folder / "model.onnx")
        for data in folder.glob("test_data_set_*"):
            given = [tensor(data / f"input_{i}.pb") for i in range(len(list(data.glob("input_*.pb"))))]
            results = engine.run(dict(zip([spec.name for spec in engine.inputs], given))).values()
            for i, actual in enumerate(results):
                np.testing.assert_allclose(actual, tensor(data / f"output_{i}.pb"), 1e-3, 1e-5, err_msg=folder.name)


@pytest.mark.parametrize("shape, axis, aligned", [
    ([3], 1, [3, 1, 1]), ([3, 4], 1, [3, 4, 1]), ([3], -3, [3, 1, 1]), ([4, 5], 2, [4, 5]), ([2], 0, [2, 1, 1, 1]),
    ([], 0, []),
])  # fmt: skip
@pytest.mark.parametrize("op", ["Add", "Mul", "Pow"])
def test_an_axis_aligns_the_second_operand(op, shape, axis, aligned):
    """Behind layers of other operators, too, whose ranks follow."""
    rng = np.random.default_rng(1)
    x, b = (np.abs(rng.standard_normal(s)).astype(np.float32) for s in ([2, 3, 4, 5], shape))
    made = model([node("Abs", ["x"], ["t"]), node(op, ["t", "b"], ["y"], broadcast=1, axis=axis)],
                 {"x": [2, 3, 4, 5]}, {"b": b})  # fmt: skip
    expected = {"Add": np.add, "Mul": np.multiply, "Pow": np.power}[op](x, b.reshape(aligned))
    for fusion in ("none", "full"):
        np.testing.assert_allclose(ulpscope.Engine(made, fusion=fusion).run({"x": x})["y"], expected, 1e-5)


def test_a_slope_for_each_channel():
    x, slope = np.float32([[[-1, 2, -3], [4, -5, -6]]]), np.float32([0.5, 0.25])
    made = model([node("PRelu", ["x", "s"], ["y"])], {"x": [1, 2, 3]}, {"s": slope})
    np.testing.assert_array_equal(ulpscope.Engine(made).run({"x": x})["y"], np.where(x < 0, x * slope[:, None], x))


@pytest.mark.parametrize("nodes, said", [
    ([node("Dropout", ["x"], ["y"], name="d")], "form for training"),
    ([node("ArgMax", ["x"], ["i"]), node("Cast", ["i"], ["t"], to=1),
      node("Add", ["t", "b"], ["y"], broadcast=1, axis=0)], "their ranks are not known"),
])  # fmt: skip
def test_what_cannot_be_told_is_refused(nodes, said):
    with pytest.raises(ulpscope.Error, match=said):
        ulpscope.Engine(model(nodes, {"x": [2, 3]}, {"b": np.ones(2, np.float32)}))


def test_convert_writes_a_newer_opset():
    w, scale = np.full((4, 3, 3, 3), 1 / 3, np.float32), np.ones(4, np.float32)
    made = model(
        [node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]), node("Add", ["c", "b"], ["d"], broadcast=1, axis=1),
         node("BatchNormalization", ["d", "b", "b", "b", "b"], ["y"], is_test=1)],
        {"x": [1, 3, 6, 6]}, {"w": w, "b": scale},
    )  # fmt: skip
    made.graph.input.extend(info(each.name, TensorProto.FLOAT, each.dims) for each in made.graph.initializer)
    typed, report = ulpscope.convert(made, precision="fp16", progress=False)
    onnx.checker.check_model(typed)
    assert report.lowered == 3 and report.checked > 0 and typed.opset_import[0].version >= 7
