"""Single layers at the ends of what their operators say, by the oracle and by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import oracle
from oracle.networks import N, build
from plain_onnxruntime import plain_session


def agrees_with_onnxruntime(nodes, feeds: dict[str, np.ndarray], weights: dict[str, np.ndarray] | None = None) -> None:
    """All outputs "z"."""
    kind = lambda a: helper.np_dtype_to_tensor_dtype(a.dtype)
    infos = [helper.make_tensor_value_info(name, kind(a), a.shape) for name, a in feeds.items()]
    outputs = [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)]
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "edge", infos, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    wanted = plain_session(model).run(None, feeds)[0]
    assert oracle.judge(oracle.run(model, feeds)["z"], wanted) is None


def test_slices_that_start_before_the_first_element():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for start, end, step in [(-9, -20, -1), (-4, -5, -2), (-9, 9, 1), (9, -9, -2), (-3, -9, -1)]:
        weights = {k: np.array([v]) for k, v in (("s", start), ("e", end), ("a", 0), ("p", step))}
        agrees_with_onnxruntime([helper.make_node("Slice", ["x", "s", "e", "a", "p"], ["z"])], {"x": x}, weights)


@pytest.mark.parametrize("shape", [(1, 2, 0), (3, 0, 2), (2, 3, 2)])
def test_gathering_from_nothing(shape):
    nodes = [helper.make_node("GatherND", ["x", "i"], ["z"])]
    agrees_with_onnxruntime(nodes, {"x": np.ones(shape, np.float32)}, {"i": np.array([[0], [-1]])})


def test_gathering_in_batches():
    x, i = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.array([[[0], [-1]], [[2], [1]]])
    for batch, index in ((1, i), (2, np.array([[[0], [1], [2]], [[3], [-1], [0]]]))):
        nodes = [helper.make_node("GatherND", ["x", "i"], ["z"], batch_dims=batch)]
        agrees_with_onnxruntime(nodes, {"x": x}, {"i": index})


def test_powers_of_infinities():
    x = np.array([-np.inf, np.inf, 4, 0], np.float32)
    for exponent in (0.5, -0.5, 1.5):
        nodes = [helper.make_node("Pow", ["x", "p"], ["z"])]
        agrees_with_onnxruntime(nodes, {"x": x}, {"p": np.array(exponent, np.float32)})
        agrees_with_onnxruntime(nodes, {"x": np.array(x[0])}, {"p": np.array(exponent, np.float32)})


def test_reductions_at_the_ends_of_float32():
    tiny = np.array([[9e-41, 3e-23, 1e-30], [2e-22, -7e-23, 0]], np.float32)
    for op in ("ReduceL2", "ReduceSumSquare"):
        agrees_with_onnxruntime([helper.make_node(op, ["x"], ["z"])], {"x": tiny})
        agrees_with_onnxruntime(
            [helper.make_node(op, ["x"], ["z"])], {"x": np.float32([[1e36, 1, -2], [3, 1e19, 1e19]])}
        )
    # Sums that cancel: what is left is rounding, and its logarithm is anything, of one sum only where it is surely
    # negative.
    x = np.random.default_rng(3).standard_normal((2, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Sub", ["t", "x"], ["d"]),
        helper.make_node("ReduceLogSum", ["d"], ["z"], keepdims=1),
    ]
    agrees_with_onnxruntime(nodes, {"x": x})
    agrees_with_onnxruntime([helper.make_node("ReduceLogSum", ["x"], ["z"])], {"x": -np.abs(x)})


@pytest.mark.parametrize("axis", [0, 2])
def test_gathering_along_shorter_dimensions(axis):
    nodes = [helper.make_node("GatherElements", ["x", "i"], ["z"], axis=axis)]
    x, i = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.array([[[1], [-1]]])
    agrees_with_onnxruntime(nodes, {"x": x}, {"i": i})


@pytest.mark.parametrize("pads", [(3, -2), (-2, 3), (3, -4), (1, -1), (-1, -1)])
def test_pads_that_cut_more_than_there_is(pads):
    for size in (1, 2, 3):
        if size + sum(pads) >= 0:
            nodes = [helper.make_node("Pad", ["x", "p"], ["z"])]
            agrees_with_onnxruntime(nodes, {"x": np.ones(size, np.float32)}, {"p": np.array(pads)})


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(op):
    rng, gates = np.random.default_rng(5), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    numbers = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    for direction, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        weights = {"w": numbers(ways, gates * 3, 2), "r": numbers(ways, gates * 3, 3), "b": numbers(ways, gates * 6)}
        weights |= {"n": np.array([5, 2, 3], np.int32), "h": numbers(ways, 3, 3)}
        names = ["x", "w", "r", "b", "n", "h"]
        if op == "LSTM":
            weights |= {"c": numbers(ways, 3, 3), "p": numbers(ways, 9)}
            names += ["c", "p"]
        parametric = {"activations": ["HardSigmoid", "Affine", "ScaledTanh"], "activation_alpha": [0.3, 0.9, 1.1],
                      "activation_beta": [0.4, 0.1, 0.8]}  # fmt: skip
        for attributes in ({}, {"clip": 0.5}, {"linear_before_reset": 1}, {"activations": ["Relu", "Sigmoid", "Tanh"]},
                           parametric, {"activations": ["HardSigmoid", "LeakyRelu", "Elu"]}):  # fmt: skip
            if "linear_before_reset" in attributes and op != "GRU":
                continue
            if "activations" in attributes:
                attributes = {name: values[: {4: 3, 3: 2, 1: 1}[gates]] * ways for name, values in attributes.items()}
            for outputs in (["z"], ["", "z"]):
                nodes = [helper.make_node(op, names, outputs, hidden_size=3, direction=direction, **attributes)]
                agrees_with_onnxruntime(nodes, {"x": numbers(5, 3, 2)}, weights)


def test_a_gru_whose_update_gate_is_next_to_one():
    rng = np.random.default_rng(5)
    bias = np.zeros((1, 18), np.float32)
    bias[0, :3] = 12, 15, 18  # 1 - z is 6e-6, 3e-7 and, in float32, 0.
    weights = {"w": rng.standard_normal((1, 9, 2)), "r": rng.standard_normal((1, 9, 3))}
    weights = {name: (0.1 * value).astype(np.float32) for name, value in weights.items()} | {"b": bias}
    nodes = [helper.make_node("GRU", ["x", "w", "r", "b"], ["z"], hidden_size=3)]
    agrees_with_onnxruntime(nodes, {"x": rng.standard_normal((5, 3, 2)).astype(np.float32)}, weights)


def test_an_infinite_cell_without_peepholes():
    """h and c of 1e18 are infinite in float16; a gate without a peephole sees nothing of the cell, not 0 * infinity."""
    model = build(
        [N("LSTM", ["x", "w", "r", "", "", "h", "c"], ["z"], hidden_size=1)],
        {"x": np.ones((2, 1, 1), np.float32), "c": np.full((1, 1, 1), 1e18, np.float32)},
        {
            "w": np.ones((1, 4, 1), np.float32),
            "r": np.ones((1, 4, 1), np.float32),
            "h": np.zeros((1, 1, 1), np.float32),
        },
    )
    outcome = oracle.run(model.model, model.feed, "fp16", "none")["z"]
    assert np.isfinite(outcome.expected).all(), outcome.expected


@pytest.mark.parametrize("op", ["LayerNormalization", "InstanceNormalization"])
def test_norms_of_rows_whose_variance_is_beyond_float32(op):
    """All of the row is 0 then, but for what is added."""
    x = np.float32([[[1, 2, 3, 4], [1e36, 2, 3, 4], [1e30, -1e30, 1e-30, 0]]])
    count = {"LayerNormalization": 4, "InstanceNormalization": 3}[op]
    parameters = {"s": np.full(count, 2, np.float32), "b": np.full(count, 3, np.float32)}
    agrees_with_onnxruntime([helper.make_node(op, ["x", "s", "b"], ["z"])], {"x": x}, parameters)


def test_a_gate_that_is_not_a_number_stays_none():
    """ONNX Runtime's HardSigmoid, and its limit of `clip`, make numbers of NaN."""
    import ulpscope

    weights = {"w": np.ones((1, 4, 1), np.float32), "r": np.ones((1, 4, 1), np.float32)}
    layer = N(
        "LSTM", ["x", "w", "r"], ["z"], hidden_size=1, clip=0.5, activations=["HardSigmoid", "HardSigmoid", "Tanh"]
    )
    model = build([layer], {"x": np.full((1, 1, 1), np.nan, np.float32)}, weights)
    for result in (
        oracle.run(model.model, model.feed)["z"].expected,
        ulpscope.Engine(model.model).run(model.feed)["z"],
    ):
        assert np.isnan(result).all()


@pytest.mark.parametrize("value", [0, 2])
def test_places_in_a_scalar(value):
    """No dimension, so no row of places; ONNX Runtime has one."""
    import ulpscope

    model = build([N("NonZero", ["x"], ["z"])], {"x": np.float32(value)})
    assert oracle.run(model.model, model.feed)["z"].expected.shape == (0, value // 2)
    assert ulpscope.Engine(model.model).run(model.feed)["z"].shape == (0, value // 2)


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("reduction", ["min", "max"])
def test_bounds_of_the_least_and_the_largest(op, reduction):
    """Of a value with a bound and one without: what is taken may be the one with a bound."""
    nodes = [N("LogSoftmax", ["x"], ["a"]), N(op, ["a", "places", "u"], ["z"], reduction=reduction)]
    weights = {"places": np.zeros((1, 1), np.int64), "u": np.full((1, 3), -1, np.float32)}
    if op == "ScatterElements":
        weights["places"] = np.zeros((1, 3), np.int64)
    model = build(nodes, {"x": np.float32([[1, 2, 3]])}, weights, opset=18)
    outcome = oracle.run(model.model, model.feed)["z"]
    taken = outcome.expected != -1
    assert taken.any() and (outcome.bound[taken] > 0).all()


def test_numbers_beyond_a_threshold_or_a_limit_that_is_left_out():
    feed = {"x": np.float32([np.nan, np.inf, -np.inf, 2, 0.5])}
    agrees_with_onnxruntime([N("ThresholdedRelu", ["x"], ["z"])], feed)
    agrees_with_onnxruntime([N("Clip", ["x"], ["z"])], feed)
    agrees_with_onnxruntime([N("Clip", ["x", "low"], ["z"])], feed, {"low": np.float32(0)})
