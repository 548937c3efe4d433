"""Convolutions of few weights for each channel in fp8, whose scales would weigh as much as they do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convert_support import info, model, save
from search_support import save_inputs


def narrow_network(spread: float) -> tuple[onnx.ModelProto, np.ndarray]:
    """A stem of 3 channels, a depthwise convolution and one of single places: 27, 9 and 24 weights for each channel."""
    random = np.random.default_rng(11)
    shapes = {"stem": (24, 3, 3, 3), "depthwise": (24, 1, 3, 3), "point": (48, 24, 1, 1)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    weights["point"][0] /= spread
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["a"], name="stem", pads=[1] * 4),
        helper.make_node("Conv", ["a", "depthwise"], ["b"], name="depthwise", pads=[1] * 4, group=24),
        helper.make_node("Conv", ["b", "point"], ["y"], name="point"),
    ]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    made = model(nodes, [info("x", [1, 3, 8, 8])], [info("y", [1, 48, 8, 8])], constants, opset=21)
    return made, random.standard_normal((1, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("flags", [["--weights-only"], []])
@pytest.mark.parametrize("spread", [100, 5000])
def test_scales_of_narrow_convolutions_in_fp8_take_next_to_nothing(run, tmp_path, flags, spread):
    made, x = narrow_network(spread)
    save(tmp_path, made)
    save_inputs(tmp_path / "in.json", [{"x": x}])
    words = ["--fp8", *flags, "--load-inputs", "in.json", "-o", "t.onnx"]
    outcome = run("convert", "m.onnx", *words)
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    typed = onnx.load(tmp_path / "t.onnx")
    onnx.checker.check_model(typed, full_check=True)
    constants = {each.name: each for each in typed.graph.initializer}
    bits = {}
    for node in typed.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            elements, scales = (numpy_helper.to_array(constants[name]) for name in node.input[:2])
            assert elements.itemsize == 1
            bits[elements.shape] = 8 + 8 * scales.itemsize * scales.size / elements.size
            loss = elements.astype(np.float32) * (scales.reshape(-1, 1, 1, 1) if scales.size > 1 else scales)
            [wanted] = [
                value for value in map(numpy_helper.to_array, made.graph.initializer) if value.shape == loss.shape
            ]
            for channel, exact in zip(loss, wanted):  # The small one, too.
                assert np.linalg.norm(channel - exact) < 0.04 * np.linalg.norm(exact)
    assert len(bits) == (3 if flags else 1)
    assert {shape for shape, each in bits.items() if each > 8.6} == ({(48, 24, 1, 1)} if spread == 5000 else set())
