"""Constants that are no numbers wherever a repair, --clamp-constants or int8 looks at them, and ranks that come
at run time: run, or
refused by name, and never a crash."""

import onnx
import pytest
from onnx import helper

from hostile_constants import PLACES, VALUES
from hostile_models import floats, ints, model
from search_support import save_inputs

DEFECTS = ("defect of ulpscope", "terminate called", "Traceback (most recent", "Sanitizer", "runtime error:")


def sound(outcome):
    """It ends with a status that says how, and what went wrong is one message."""
    assert outcome.code in (0, 1, 4), outcome
    assert not any(text in outcome.text for text in DEFECTS), outcome
    assert outcome.err.count("[!]") <= 1 and (
        outcome.code == 0 or outcome.err or "[E]" in outcome.text or "verdict" in outcome.text
    ), outcome
    return outcome


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", PLACES)
def test_in_every_place(place, value, run, tmp_path):
    network = PLACES[place](VALUES[value])
    onnx.save(network, tmp_path / "m.onnx")
    names = [each.name for each in network.graph.initializer]
    assert sound(run("run", "m.onnx", "--trt", "--fp16", "--assume-lowest")).code == 0
    sound(run("precision", "search", "m.onnx", "--fp16", "--no-journal", "--save-answer", "a.json"))
    clamped = sound(
        run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--no-python-checks", "--clamp-constants", *names)
    )
    assert (tmp_path / "t.onnx").exists() and "equal in every bit" in clamped.text, clamped
    sound(run("convert", "m.onnx", "--repair-only", "-o", "r.onnx", "--no-python-checks"))
    outcome = sound(run("convert", "m.onnx", "--int8", "-o", "i.onnx", "--no-python-checks"))
    if place == "batch_scale" and value != "nan":
        assert outcome.code == 1 and "its weights, with 'bad' multiplied in, is too large" in outcome.text, outcome


@pytest.mark.parametrize("value", [v for v in VALUES if v != "nan"])
def test_a_convolution_with_infinite_factors_stays_in_float(value, run, tmp_path):
    """Its neighbor is int8 in the file all the same, and the bits are the engine's."""
    network = PLACES["batch_scale"](VALUES[value])
    network.graph.node[0].input[0] = "t"
    network.graph.node.insert(0, helper.make_node("Conv", ["x", "first"], ["t"], name="sound"))
    network.graph.initializer.append(onnx.numpy_helper.from_array(floats(4, 4, 1, 1), "first"))
    onnx.save(network, tmp_path / "m.onnx")
    outcome = sound(run("convert", "m.onnx", "--int8", "-o", "i.onnx", "--no-python-checks"))
    # 4: the golden output has NaN; the file is written.
    assert outcome.code == 4 and "multiplied in, is too large: conv" in outcome.text, outcome.text
    assert "equal in every bit" in outcome.text, outcome.text
    scaled = {node.op_type for node in onnx.load(tmp_path / "i.onnx").graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "BatchNormalization"} <= scaled


TAILS = {
    "softmax": ("Softmax", [], {}), "transpose": ("Transpose", [], {}), "product": ("MatMul", ["w"], {}),
    "mean": ("ReduceMean", [], {"keepdims": 0}),
    "sum": ("Add", ["v"], {}), "rows": ("LayerNormalization", ["v"], {}), "flat": ("Flatten", [], {}),
    "squeezed": ("Squeeze", [], {}),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(6, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize("tail", TAILS)
def test_ranks_that_come_at_run_time(tail, shape, run, tmp_path):
    """The shape of a Reshape is an input of any length."""
    op, more, attributes = TAILS[tail]
    feed = {"x": floats(2, 3, 4), "s": ints(*shape)}
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["r"], name="reshape"),
        helper.make_node(op, ["r", *more], ["t"], name="tail", **attributes),
        helper.make_node("Mul", ["t", "two"], ["y"], name="last"),
    ]
    network = model(nodes, feed, {"w": floats(4, 4), "v": floats(4), "two": floats(value=2)}, opset=19)
    network.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "rank"
    onnx.save(network, tmp_path / "m.onnx")
    load = ["--load-inputs", save_inputs(tmp_path / "in.json", [feed] * 2)]
    assert (
        sound(run("run", "m.onnx", "--trt", "--fp16", "--assume-lowest", "--onnxrt", "--rtol", "0.01", *load)).code == 0
    )
    sound(run("precision", "search", "m.onnx", "--fp16", "--no-journal", "--save-answer", "a.json", *load))
    assert sound(run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--no-python-checks", *load)).code == 0
