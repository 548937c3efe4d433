"""Layers of shapes with zeros: every dimension is 0 in turn, weights are inputs or constants; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope

N, C, H, W = 2, 3, 4, 5

# operator: (attributes, inputs by the names of their dimensions or as constants)
LAYERS = {
    "InstanceNormalization": ({}, ["NCH", "C", "C"]),
    "LayerNormalization": ({"axis": -1}, ["NCH", "H", "H"]),
    "BatchNormalization": ({}, ["NCHW", "C", "C", "C", "C"]),
    "Softmax": ({"axis": 1}, ["NCH"]),
    "LogSoftmax": ({"axis": -1}, ["NC"]),
    "ArgMax": ({"axis": 1}, ["NCH"]),
    "ArgMin": ({"axis": 0, "keepdims": 0}, ["NC"]),
    "DFT": ({"axis": 1}, ["NC1"]),
    "Conv": ({"pads": [1, 1]}, ["NCH", "WCH", "W"]),
    "ConvTranspose": ({"strides": [2, 2]}, ["NCHW", "CHCH", "H"]),
    "MatMul": ({}, ["NCH", "HW"]),
    "Gemm": ({}, ["NC", "CH"]),
    "Concat": ({"axis": 1}, ["NC", "NH"]),
    "Transpose": ({"perm": [2, 0, 1]}, ["NCH"]),
    "ReduceSum": ({}, ["NCH", np.int64([1])]),
    "ReduceMax": ({"axes": [0], "keepdims": 0}, ["NC"]),
    "Slice": ({}, ["NC", np.int64([1]), np.int64([2]), np.int64([1])]),
    "Gather": ({"axis": 1}, ["NC", np.zeros((0, 2), np.int64)]),
    "Pad": ({}, ["NC", np.int64([0, 1, 0, 2])]),
    "CumSum": ({}, ["NC", np.int64(1)]),
    "Add": ({}, ["NCH", "CH"]),
    "Where": ({}, [np.bool_([[True], [False]]), "NC", "C"]),
    "PRelu": ({}, ["NC", "C"]),
    "Expand": ({}, ["NC", np.int64([1, 1, 1])]),
    "Flatten": ({"axis": 1}, ["NCH"]),
    "Tile": ({}, ["NC", np.int64([2, 1])]),
    "LRN": ({"size": 3}, ["NCHW"]),
    "GlobalAveragePool": ({}, ["NCHW"]),
    "DepthToSpace": ({"blocksize": 1}, ["NCHW"]),
    "QuantizeLinear": ({}, ["NC", np.float32(0.1), np.uint8(3)]),
}


def model_of(op, attributes, arrays, constants=False) -> bytes:
    names = [f"i{i}" for i in range(len(arrays))]
    free = 1 if constants else len(arrays)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names[:free], arrays)
    ]
    kind = {"ArgMax": TensorProto.INT64, "ArgMin": TensorProto.INT64, "QuantizeLinear": TensorProto.UINT8}.get(
        op, TensorProto.FLOAT
    )
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", infos,
                              [helper.make_tensor_value_info("y", kind, None)],
                              [numpy_helper.from_array(a, n) for n, a in zip(names[free:], arrays[free:])])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def variants(inputs):
    """The inputs with each of their dimensions 0, and with all of them."""
    letters = sorted({letter for each in inputs if isinstance(each, str) for letter in each if letter != "1"})
    sizes = {"N": N, "C": C, "H": H, "W": W, "1": 1}
    for empty in [*letters, letters]:
        now = {name: 0 if name in empty else size for name, size in sizes.items()}
        yield "".join(empty), [
            np.linspace(0.5, 2, int(np.prod([now[k] for k in each])), dtype=np.float32).reshape([now[k] for k in each])
            if isinstance(each, str)
            else np.asarray(each)
            for each in inputs
        ]


@pytest.mark.parametrize("fusion, constants", [("none", False), ("full", False), ("full", True)])
@pytest.mark.parametrize("op", LAYERS)
def test_layers_of_nothing(op, fusion, constants):
    attributes, inputs = LAYERS[op]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    compared = 0
    for empty, arrays in variants(inputs):
        if op.startswith("Conv") and arrays[0].shape[1] == 0:
            continue  # ONNX Runtime leaves results of no channels as its heap has them.
        model = model_of(op, attributes, arrays, constants)
        feed = {f"i{i}": array for i, array in enumerate(arrays[: 1 if constants else None])}
        try:
            expected = onnxruntime.InferenceSession(model, options).run(None, feed)[0]
        except Exception:  # what ONNX Runtime refuses has no result
            continue
        actual = ulpscope.Engine(model, fusion=fusion, threads=1).run(feed)["y"]
        assert actual.shape == expected.shape and actual.dtype == expected.dtype, (op, empty)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, err_msg=f"{op} {empty}")
        compared += 1
    assert compared


def test_an_extreme_of_nothing_is_refused():
    model = model_of("ArgMax", {"axis": 1}, [np.zeros((2, 0), np.float32)])
    with pytest.raises(ulpscope.Error, match=r"\(ArgMax\): the axis has no elements to choose from"):
        ulpscope.Engine(model).run([np.zeros((2, 0), np.float32)])
