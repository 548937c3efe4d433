"""Errors of inference and runs say which file they are about: once, in front."""

import onnx
import pytest
from onnx import helper

from hostile_models import floats, ints, model
from search_support import save_inputs

WRONG_SHAPE = model(
    [helper.make_node("Reshape", ["x", "s"], ["y"], name="bad")], {"x": floats(2, 3)}, {"s": ints(4, 4)}
)
OUTSIDE = model(
    [helper.make_node("Gather", ["x", "i"], ["g"], name="bad"), helper.make_node("Exp", ["g"], ["y"])],
    {"x": floats(2, 3), "i": ints(7)},
)
INFERRED = "[infer] m.onnx: layer 'bad' (Reshape): "
RUN = "[run] m.onnx: layer 'bad' (Gather): "


def message_of(outcome):
    """The only one, which names the file once."""
    assert outcome.code in (1, 4), outcome
    (message,) = [line for line in outcome.text.splitlines() if "layer 'bad'" in line]
    return message.partition("] ")[2] if message.startswith("[!]") else message


@pytest.mark.parametrize(
    "words",
    [
        ["run", "m.onnx", "--trt"],
        ["convert", "m.onnx", "--fp16", "-o", "t.onnx"],
        ["precision", "search", "m.onnx", "--fp16"],
        ["convert", "m.onnx", "-o", "e.plan"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("network, start", [(WRONG_SHAPE, INFERRED), (OUTSIDE, RUN)], ids=["infer", "run"])
def test_of_models(network, start, words, run, tmp_path):
    if start == RUN and "e.plan" in words:
        pytest.skip("nothing runs")
    onnx.save(network, tmp_path / "m.onnx")
    save_inputs(tmp_path / "in.json", [{"x": floats(2, 3), "i": ints(7)}])
    load = [] if start == INFERRED else ["--load-inputs", "in.json"]
    message = message_of(run(*words, *load))
    assert start in message and message.count("m.onnx") == 1, message


def test_of_engines(run, tmp_path):
    onnx.save(OUTSIDE, tmp_path / "m.onnx")
    save_inputs(tmp_path / "in.json", [{"x": floats(2, 3), "i": ints(7)}])
    assert run("run", "m.onnx", "--trt", "--save-engine", "e.plan", "--val-range", "i:[0,1]").code == 0
    message = message_of(run("run", "e.plan", "--trt", "--load-inputs", "in.json"))
    assert "[run] e.plan: layer 'bad' (Gather): " in message, message


def test_of_onnxruntime(run, tmp_path):
    onnx.save(OUTSIDE, tmp_path / "m.onnx")
    save_inputs(tmp_path / "in.json", [{"x": floats(2, 3), "i": ints(7)}])
    outcome = run("run", "m.onnx", "--onnxrt", "--load-inputs", "in.json")
    assert outcome.code == 1 and "[onnxrt] m.onnx: inference: " in outcome.err, outcome
