"""Models of opsets 1 to 6: those of ONNX's own tests, and what changed with opset 7."""

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


X = np.random.default_rng(3).standard_normal((1, 4, 6, 6)).astype(np.float32)
S, B, M, V = (np.float32([0.5, 1, 2, 3]) + i for i in range(4))
POOLED = np.sum(np.abs(X.reshape(1, 4, 3, 2, 3, 2)) ** 3, axis=(3, 5)) ** (1 / 3)
C4 = [v.reshape(4, 1, 1) for v in (S, B, M, V)]
OLD_FORMS = {
    "Reshape": (
        range(1, 5),
        [node("Reshape", ["x"], ["y"], shape=[0, -1, 3], consumed_inputs=[0])],
        X.reshape(1, -1, 3),
    ),
    "Reshape, then an axis": (
        range(1, 5),
        [node("Reshape", ["x"], ["t"], shape=[0, 4, -1]), node("Add", ["t", "s"], ["y"], axis=1, broadcast=1)],
        X.reshape(1, 4, 36) + S.reshape(4, 1),
    ),
    "Cast": (
        range(1, 6),
        [node("Cast", ["x"], ["t"], to="INT32"), node("Cast", ["t"], ["y"], to="FLOAT")],
        np.trunc(X),
    ),
    "Concat": (range(1, 4), [node("Concat", ["x", "x"], ["y"])], np.concatenate([X, X], 1)),
    "Concat along an axis": (range(1, 7), [node("Concat", ["x", "x"], ["y"], axis=2)], np.concatenate([X, X], 2)),
    "Pad": (
        [1],
        [node("Pad", ["x"], ["y"], paddings=[0, 0, 1, 0, 0, 0, 0, 2])],
        np.pad(X, [(0, 0)] * 2 + [(1, 0), (0, 2)]),
    ),
    "LpPool": ([1], [node("LpPool", ["x"], ["y"], p=3.0, kernel_shape=[2, 2], strides=[2, 2])], POOLED),
    "Upsample": (range(1, 7), [node("Upsample", ["x"], ["y"], height_scale=2.0, width_scale=1.0)], X.repeat(2, 2)),
    "Selu": (range(1, 6), [node("Selu", ["x"], ["y"])], 1.0507 * np.where(X > 0, X, 1.6732 * (np.exp(X) - 1))),
    "BatchNormalization": (
        range(1, 7),
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], is_test=1, consumed_inputs=[0, 0, 0, 1, 1])],
        C4[0] * (X - C4[2]) / np.sqrt(C4[3] + 1e-5) + C4[1],
    ),
    "Dropout": (range(1, 7), [node("Dropout", ["x"], ["y"], is_test=1)], X),
    "Max": (range(1, 7), [node("Max", ["x", "n"], ["y"], consumed_inputs=[0, 0])], np.maximum(X, 0)),
}


@pytest.mark.parametrize("form", OLD_FORMS)
def test_forms_of_opsets_before(form):
    opsets, nodes, expected = OLD_FORMS[form]
    constants = {"s": S, "b": B, "m": M, "v": V, "n": np.zeros_like(X)}
    for opset in opsets:
        made = model(nodes, {"x": X.shape}, constants, opset)
        for fusion in ("none", "full"):
            actual = ulpscope.Engine(made, fusion=fusion).run({"x": X})["y"]
            np.testing.assert_allclose(actual, expected, 1e-5, 1e-6, err_msg=f"opset {opset}")
        if form in ("BatchNormalization", "Reshape, then an axis"):
            typed, _ = ulpscope.convert(made, precision="fp16", data=[{"x": X}])
            np.testing.assert_allclose(ulpscope.Engine(typed).run({"x": X})["y"], expected, 0.01, 0.01)


@pytest.mark.parametrize("opset, made", [
    (1, node("Split", ["x", "parts"], ["y", "z"])), (5, node("Tile", ["x", "parts", "parts"], ["y"])),
])  # fmt: skip
def test_inputs_that_were_others_are_refused(opset, made):
    with pytest.raises(ulpscope.Error, match=f"has a form of opset {opset} that is not supported"):
        ulpscope.Engine(model([made], {"x": [4]}, {"parts": np.float32([2, 2])}, opset))
