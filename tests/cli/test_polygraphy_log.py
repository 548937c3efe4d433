"""Comparisons print what Polygraphy prints, in full: scripts read it."""
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

MARKS = (
    "Comparing Output:", "Tolerance:", "Minimum Required Tolerance:", "Absolute Difference |",
    "Relative Difference |", "| Stats:", "PASSED |", "FAILED |", "Iteration:", "Error Metrics:",
    "Accuracy Comparison |", "Validating output:",
)  # fmt: skip


@pytest.fixture
def two_outputs(tmp_path):
    """y = Relu(x W), z = Sigmoid(x W)."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in ("x", "y", "z")]
    nodes = [helper.make_node("MatMul", ["x", "W"], ["h"]), helper.make_node("Relu", ["h"], ["y"]),
             helper.make_node("Sigmoid", ["h"], ["z"])]
    weights = np.random.RandomState(0).standard_normal((4, 4)).astype(np.float32)
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [numpy_helper.from_array(weights, "W")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return "m.onnx"


def lines_of(text):
    """What is said of comparisons, sorted: later versions of Polygraphy print some of it in another order and place."""
    text = re.sub(r"\d\d/\d\d/\d\d-\d\d:\d\d:\d\d", "DATE", text)
    lines = []
    for line in text.splitlines():
        if not any(mark in line for mark in MARKS) or "Runtime:" in line:
            continue
        lines.append(
            re.sub(r"^(\[.\]) *", r"\1 ", line).replace("simple | ", "").replace("| Iteration 0 ", "").rstrip()
        )
    return sorted(lines)


@pytest.mark.parametrize("level", [[], ["-q"], ["-qq"], ["-qqq"]])
@pytest.mark.parametrize("seed", ["1", "2"])
def test_every_iteration_in_full(run, polygraphy, two_outputs, level, seed):
    """Passing iterations and failing ones, on every level."""
    assert run("run", two_outputs, "--onnxrt", "--iterations", "5", "--save-outputs", "golden.json").code == 0
    words = [
        "run", two_outputs, "--onnxrt", "--iterations", "5", "--seed", seed, "--load-outputs", "golden.json", *level,
    ]  # fmt: skip
    ours, theirs = run(*words), polygraphy(*words)
    assert ours.code == theirs.code == int(seed == "2"), (ours, theirs)
    if level != ["-qqq"] or seed == "2":
        assert len(lines_of(ours.out)) >= 5, ours
    assert lines_of(ours.out) == lines_of(theirs.out)


def test_no_iteration_is_left_out(run, two_outputs):
    outcome = run("run", two_outputs, "--onnxrt", "--onnxrt", "--iterations", "40")
    assert outcome.code == 0 and len(re.findall(r"^\[I\]     Iteration: \d+$", outcome.out, re.M)) == 40
    assert outcome.out.count("PASSED | Output: 'y' | Difference is within tolerance") == 40


@pytest.mark.parametrize("level", [[], ["-q"], ["-qq"]])
def test_validation(run, polygraphy, two_outputs, level):
    words = ["run", two_outputs, "--onnxrt", "--onnxrt", "--validate", *level]
    ours, theirs = run(*words), polygraphy(*words)
    assert ours.code == theirs.code == 0
    assert ours.out.count("[I]     PASSED | Output Validation") == 1  # newer ones leave it out
    ours, theirs = (
        [line for line in lines_of(each.out) if "alid" in line and "Output Validation" not in line]
        for each in (ours, theirs)
    )
    assert ours == theirs and len(ours) == {"": 8, "-q": 8, "-qq": 4}["".join(level)]


def test_files_without_a_place_are_malformed_command_lines(run, polygraphy, two_outputs):
    for tool in (["template", "trt-network"], ["template", "onnx-gs"], ["convert"]):
        ours, theirs = run(*tool, two_outputs), polygraphy(*tool, two_outputs)
        assert ours.code == theirs.code == 2 and "the following arguments are required: -o" in ours.err, ours
