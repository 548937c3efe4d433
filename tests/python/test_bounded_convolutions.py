"""Relu and Clip behind convolutions: NaN stays NaN, whoever computes them; the same bits for each number of threads."""

import numpy as np
import pytest
from onnx import helper, numpy_helper
from ulpscope import Engine

F32 = np.float32
# Groups, input and output channels, window, stride, size of the map: products of places, groups of a few channels,
# pieces of one long convolution, and what oneDNN has.
SHAPES = [
    (1, 48, 64, 1, 1, 28),
    (1, 192, 192, 3, 1, 14),
    (8, 32, 32, 3, 1, 15),
    (16, 32, 32, 3, 2, 14),
    (4, 32, 32, 5, 1, 9),
    (40, 40, 40, 3, 1, 28),
    (1, 3, 16, 3, 2, 28),
]


def model_of(shape, bound, random):
    groups, channels, outputs, window, stride, size = shape
    constants = {
        "w": (random.standard_normal((outputs, channels // groups, window, window)) / 5).astype(F32),
        "b": random.standard_normal(outputs).astype(F32),
        "low": F32(-0.25),
        "high": F32(0.5),
    }
    attributes = {"group": groups, "strides": [stride] * 2, "pads": [window // 2] * 4}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes)]
    nodes.append(helper.make_node(bound, ["c"] if bound == "Relu" else ["c", "low", "high"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, (2, channels, size, size))],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("bound", ["Relu", "Clip"])
@pytest.mark.parametrize("shape", SHAPES)
def test_not_a_number_stays(shape, bound):
    random = np.random.default_rng(sum(shape))
    x = random.standard_normal((2, shape[1], shape[5], shape[5])).astype(F32)
    for value in (np.nan, np.inf, -np.inf):
        x[random.random(x.shape) < 0.002] = value
    model = model_of(shape, bound, random)
    expected = Engine(model, backend="plain", threads=1).run({"x": x})["y"]
    one = Engine(model, threads=1).run({"x": x})["y"]
    np.testing.assert_array_equal(np.isnan(one), np.isnan(expected))
    assert np.isnan(one).any()
    np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)
    for threads in (2, 3):
        assert Engine(model, threads=threads).run({"x": x})["y"].tobytes() == one.tobytes()
