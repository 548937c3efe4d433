"""DynamicQuantizeLSTM: its definition in NumPy, and ONNX Runtime."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from ulpscope import Engine

F32 = np.float32
TYPES = {"u": np.uint8, "s": np.int8}


def quantized(x):
    """The integers less their zero point, and the scale, as DynamicQuantizeLinear has them."""
    low, high = min(F32(0), x.min()), max(F32(0), x.max())
    scale = F32(1) if low == high else F32((high - low) / F32(255))
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.clip(np.rint(x / scale) + zero, 0, 255) - zero, scale


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def lstm(x, w, r, scales, biases, states, peepholes, backward):
    """One direction: Y, Y_h and Y_c. w and r: integers less their zero points."""
    integers, scale = quantized(x)
    inputs = (integers @ w).astype(F32) * (scale * scales[0])
    h, c = (np.array(state) for state in states)
    y = np.zeros((x.shape[0], *h.shape), F32)
    for t in range(x.shape[0])[:: -1 if backward else 1]:
        sums = inputs[t] + biases
        for n, state in enumerate(h):
            integers, scale = quantized(state)
            sums[n] += (integers @ r).astype(F32) * (scale * scales[1])
        i, o, f, g = np.split(sums, 4, axis=-1)
        p_i, p_o, p_f = np.split(peepholes, 3)
        i, f = sigmoid(i + p_i * c), sigmoid(f + p_f * c)
        c = (f * c + i * np.tanh(g)).astype(F32)
        h = (sigmoid(o + p_o * c) * np.tanh(c)).astype(F32)
        y[t] = h
    return y, h, c


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("batch,size,hidden", [(1, 5, 3), (1, 33, 70), (3, 16, 16), (1, 40, 600)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_against_the_definition(direction, batch, size, hidden, by_column, kind):
    random, steps, count = np.random.default_rng(hidden), 6, 2 if direction == "bidirectional" else 1
    width = 4 * hidden
    # Halves of int8: without VNNI, ONNX Runtime adds two products of u8 by s8 in 16 bits, which larger ones saturate.
    low, high = (0, 256) if kind == "u" else (-64, 64)
    feeds = {"x": random.normal(0.3, 1, (steps, batch, size)).astype(F32)}
    bytes_of = lambda *shape: random.integers(low, high, shape).astype(TYPES[kind])  # noqa: E731
    scale_shape = (count, width) if by_column else (count,)
    constants = {"w": bytes_of(count, size, width), "r": bytes_of(count, hidden, width)}
    constants["b"] = random.normal(0, 0.2, (count, 2 * width)).astype(F32)
    constants |= {name: random.normal(0, 0.5, (count, batch, hidden)).astype(F32) for name in ("h", "c")}
    constants["p"] = random.normal(0, 0.2, (count, 3 * hidden)).astype(F32)
    for name, k in (("w", size), ("r", hidden)):
        constants[f"{name}_scale"] = (random.uniform(0.5, 1, scale_shape) / 128 / np.sqrt(k)).astype(F32)
        middle = 128 if kind == "u" else 0
        constants[f"{name}_zero"] = (middle + random.integers(-3, 4, scale_shape)).astype(TYPES[kind])
    order = ["x", "w", "r", "b", "", "h", "c", "p", "w_scale", "w_zero", "r_scale", "r_zero"]
    node = helper.make_node("DynamicQuantizeLSTM", order, ["y", "y_h", "y_c"], domain="com.microsoft",
                            direction=direction, hidden_size=hidden)  # fmt: skip
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, feeds["x"].shape)],
        [helper.make_tensor_value_info(name, 1, None) for name in ("y", "y_h", "y_c")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)

    found = []
    for d in range(count):
        of = lambda name, d=d: constants[name][d]  # noqa: E731
        turned = lambda name, of=of: of(name).astype(np.int64) - of(f"{name}_zero").astype(np.int64)  # noqa: E731
        biases = of("b")[:width] + of("b")[width:]
        scales = (of("w_scale"), of("r_scale"))
        found.append(lstm(feeds["x"], turned("w"), turned("r"), scales, biases, (of("h"), of("c")), of("p"),
                          d == 1 or direction == "reverse"))  # fmt: skip
    expected = [np.stack([f[0] for f in found], 1), np.stack([f[1] for f in found]), np.stack([f[2] for f in found])]
    # A step of 1/255 in one element of a state moves sums by less than this.
    tolerance = {"atol": 2e-3, "rtol": 0}
    results = []
    for backend, threads in (("cpu", 1), ("cpu", 3), ("plain", 1)):
        outputs = Engine(model, backend=backend, threads=threads).run(feeds)
        results.append(outputs)
        for name, value in zip(("y", "y_h", "y_c"), expected):
            assert outputs[name].shape == value.shape
            np.testing.assert_allclose(outputs[name], value, err_msg=f"{backend} {name}", **tolerance)
    for name in ("y", "y_h", "y_c"):
        np.testing.assert_array_equal(results[0][name], results[1][name])
    if (
        batch == 1 and not by_column
    ):  # It groups the states of a batch by threads, and wants zero points of columns equal.
        options = ort.SessionOptions()
        options.log_severity_level = 4
        theirs = ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)
        for name, value in zip(("y", "y_h", "y_c"), theirs):
            np.testing.assert_allclose(results[0][name], value, err_msg=f"onnxruntime {name}", **tolerance)
