"""Layers some of whose outputs nobody names: in the file, or in the graph."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import ulpscope

RANDOM = np.random.default_rng(0)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def numbers(*shape):
    return RANDOM.uniform(0.1, 2, shape).astype(np.float32)


IMAGE, ROW = numbers(1, 2, 6, 6), numbers(3, 4)
STATISTICS = [numbers(2) for _ in range(4)]
#: Operator, opset, inputs, types of the outputs, attributes.
LAYERS = [
    ("BatchNormalization", 15, [IMAGE, *STATISTICS], [FLOAT] * 3, {"training_mode": 1}),
    ("LayerNormalization", 17, [ROW, numbers(4), numbers(4)], [FLOAT] * 3, {}),
    ("LSTM", 14, [numbers(4, 2, 5), numbers(1, 12, 5), numbers(1, 12, 3)], [FLOAT] * 3, {"hidden_size": 3}),
    ("MaxPool", 12, [IMAGE], [FLOAT, INT64], {"kernel_shape": [2, 2]}),
    ("Split", 18, [numbers(7, 2)], [FLOAT] * 3, {"num_outputs": 3}),
    ("TopK", 13, [ROW, np.array([2], np.int64)], [FLOAT, INT64], {}),
    ("Unique", 11, [np.float32([2, 1, 2])], [FLOAT, INT64, INT64, INT64], {}),
]


def model(op, opset, inputs, types, attributes, named):
    outputs = [f"o{i}" if each else "" for i, each in enumerate(named)]
    while not outputs[-1]:
        outputs.pop()
    given = [(f"i{i}", value) for i, value in enumerate(inputs)]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given
    ]
    results = [helper.make_tensor_value_info(f"o{i}", types[i], None) for i, each in enumerate(named) if each]
    node = helper.make_node(op, [name for name, _ in given], outputs, "layer", **attributes)
    graph = helper.make_graph([node], "g", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), dict(given)


def whole(layer):
    """All outputs, by ONNX Runtime."""
    made, feed = model(*layer, [True] * len(layer[3]))
    return ort.InferenceSession(made.SerializeToString()).run(None, feed)


@pytest.mark.parametrize("layer", LAYERS, ids=[layer[0] for layer in LAYERS])
def test_any_of_the_outputs_alone(layer):
    """They have the values that they have beside the others, in every way to run and to write the layer."""
    expected = whole(layer)
    for named in itertools.product((False, True), repeat=len(expected)):
        if not any(named):
            continue
        made, feed = model(*layer, named)
        for options in ({}, {"fusion": "none"}, {"backend": "plain"}):
            results = ulpscope.Engine(made, **options).run(feed)
            assert set(results) == {f"o{i}" for i, each in enumerate(named) if each}
            for name, actual in results.items():
                np.testing.assert_allclose(actual, expected[int(name[1:])], rtol=1e-5, atol=1e-6)
