"""Formats by layer in `ulpscope.Engine`: the bits of the command line, and scales that are missing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import outputs_of, run_program, save_inputs

import ulpscope

SUM, COLUMNS = 256, 48
NODES = [
    helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
    helper.make_node("Relu", ["p"], ["y"], name="relu"),
]
SCALED = ["int8", "fp8", "nvfp4"]  #: Whose activations need a calibrated scale.
OTHERS = ["mxfp8", "mxfp4", "int4", "int4-64", "int4-32", "int8-weights", "fp8-weights", "mxfp8-weights",
          "nvfp4-weights", "mxfp4-weights"]  # fmt: skip


def model_of(weights):
    info, (depth, width) = helper.make_tensor_value_info, weights.shape
    graph = helper.make_graph(
        NODES, "g", [info("x", TensorProto.FLOAT, [5, depth])], [info("y", TensorProto.FLOAT, [5, width])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def precision_of(engine):
    [precision] = [layer.precision for layer in engine.layers if layer.name == "product"]
    return precision


@pytest.fixture
def network(tmp_path):
    random = np.random.default_rng(3)
    weights = random.standard_normal((SUM, COLUMNS)).astype(np.float32)
    x = random.standard_normal((5, SUM)).astype(np.float32)
    onnx.save(model_of(weights), tmp_path / "m.onnx")
    save_inputs(tmp_path / "in.json", [{"x": x}])
    scale = np.float32(np.abs(x).max()) / np.float32(127)
    (tmp_path / "scales.cache").write_text(f"TRT-8601-MinMaxCalibration\nx: {int(scale.view(np.uint32)):08x}\n")
    return tmp_path / "m.onnx", x, float(scale)


@pytest.mark.parametrize("name", SCALED + OTHERS)
def test_layers_have_the_bits_of_the_command_line(program, tmp_path, network, name) -> None:
    path, x, scale = network
    words = ["--calibration-cache", "scales.cache"] if name in SCALED else []
    words += ["--weight-scales", "amax"] if name.startswith(("int4", "nvfp4")) else []
    run_program(
        program, tmp_path, "run", "m.onnx", "--trt", "--formats", name, "--layer-precisions", f"product:{name}",
        "relu:float32", "--precision-constraints", "obey", *words, "--load-inputs", "in.json",
        "--save-outputs", "out.json",
    )  # fmt: skip
    wanted = outputs_of(tmp_path / "out.json")[0]["y"]
    for calibration in [{"x": scale}, tmp_path / "scales.cache"] if name in SCALED else [None]:
        engine = ulpscope.Engine(path, layer_precisions={"product": name}, calibration=calibration)
        assert precision_of(engine) == name
        np.testing.assert_array_equal(engine.run([x])["y"], wanted)


@pytest.mark.parametrize("name", SCALED)
def test_scales_that_are_missing_are_named(network, name) -> None:
    with pytest.raises(ulpscope.Error, match="'product'.*no scales for x.*calibration"):
        ulpscope.Engine(network[0], layer_precisions={"product": name})


def test_sums_that_128_does_not_divide_have_the_block_that_was_asked_for() -> None:
    weights = np.random.default_rng(4).standard_normal((192, 8)).astype(np.float32)
    made = model_of(weights)
    engine = ulpscope.Engine(made, layer_precisions={"product": "int4-64"})
    assert precision_of(engine) == "int4-64"
    with pytest.raises(ulpscope.Error, match="product.*128"):
        ulpscope.Engine(made, layer_precisions={"product": "int4"})


def test_names_that_are_no_precision(network) -> None:
    with pytest.raises(ulpscope.Error, match="float128.*int4-64|int4-64.*float128"):
        ulpscope.Engine(network[0], layer_precisions={"product": "float128"})


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("scale", [-0.1, np.inf, -np.inf, 1e-42, 1e37, 3e38])
def test_scales_that_no_tensor_can_have_are_refused(network, name, scale) -> None:
    """As in a calibration cache: a denormal scale, or one whose largest value overflows, would give 0 or NaN."""
    with pytest.raises(ulpscope.Error, match="calibration, tensor 'x': expected a scale from 1.17.*e-38 to 2.67.*e.36"):
        ulpscope.Engine(network[0], layer_precisions={"product": name}, calibration={"x": scale})


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize(("scale", "said"), [(np.nan, "numbers by name"), (0.0, "there are no scales for x")])
def test_scales_that_are_none(network, name, scale, said) -> None:
    with pytest.raises(ulpscope.Error, match=said) as raised:
        ulpscope.Engine(network[0], layer_precisions={"product": name}, calibration={"x": scale})
    assert scale != 0 or f"was asked to run in {name}, but" in str(raised.value)


@pytest.mark.parametrize("name", [*SCALED, "int8-weights", "fp8-weights", "int4", "mxfp8"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_no_code_stands_for_are_refused(name, value) -> None:
    weights = np.ones((SUM, COLUMNS), np.float32)
    weights[3, 5] = value
    with pytest.raises(ulpscope.Error, match=f"'product'.*run in {name}, but its weights hold infinities or NaN"):
        ulpscope.Engine(model_of(weights), layer_precisions={"product": name}, calibration={"x": 0.1})
