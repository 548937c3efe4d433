"""Memory of searches: beside a run, and under --memory-limit. Bounds are on the high-water marks of processes."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))
import peak_of  # noqa: E402

MB = 1e6
#: Of the program, with a model of next to nothing.
PROGRAM = 60 * MB


def peak(binary, words, folder):
    """Bytes, and what the program said. What would take all memory of the machine ends instead."""
    used, _, status, text = peak_of.measure(
        ["/usr/bin/prlimit", "--as=8000000000", str(binary), *map(str, words)], folder
    )
    return used, status, text


def save(folder, nodes, weights, shape):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), str(path))
    return path


def search(model, *more):
    return [
        "precision", "search", model, "--fp16", "--load-inputs", "x.npz", "--metric", "rel-l2", "--save-answer",
        "answer.json", *more,
    ]  # fmt: skip


@pytest.mark.parametrize("what,samples", [("reflect", 64000), ("edge", 64000), ("wrap", 64000), ("resize", 16384)])
def test_a_search_over_a_long_signal(binary, tmp_path, what, samples):
    """Adjoints of Pad and Resize are of the size of the signal, and no matrix over it."""
    random = np.random.default_rng(0)
    weights = {"s": np.float32(1.1), "w": random.normal(0, 0.1, (16, 1, 256)).astype("f")}
    nodes = [helper.make_node("Mul", ["x", "s"], ["x0"], "Scale")]
    if what == "resize":
        weights["scales"] = np.array([1, 1, 2], "f")
        nodes.append(helper.make_node("Resize", ["x0", "", "scales"], ["p"], "Resize", mode="linear"))
    else:
        weights["pads"] = np.array([0, 0, 128, 0, 0, 128])
        nodes.append(helper.make_node("Pad", ["x0", "pads"], ["p"], "Pad", mode=what))
    nodes.append(helper.make_node("Conv", ["p", "w"], ["c"], "Conv", strides=[256]))
    nodes.append(helper.make_node("Tanh", ["c"], ["y"], "Tanh"))
    model = save(tmp_path, nodes, weights, [1, 1, samples])
    np.savez(tmp_path / "x.npz", x=random.standard_normal((8, 1, 1, samples)).astype("f"))
    run, status, said = peak(binary, ["run", model, "--trt", "--load-inputs", "x.npz"], tmp_path)
    assert status == 0, said
    used, status, said = peak(binary, search(model, "--threshold", "1e-5"), tmp_path)
    assert (tmp_path / "answer.json").exists() and "[!]" not in said, said
    assert used < 3 * run, (used / MB, run / MB)


@pytest.fixture(scope="module")
def deep(binary, tmp_path_factory):
    """A network of 100 layers of 4 MB each, of which a run holds next to nothing at a time."""
    folder = tmp_path_factory.mktemp("deep")
    weights, nodes = {}, []
    for i in range(50):
        weights[f"s{i}"] = np.float32(1.4 + i / 100)
        nodes.append(helper.make_node("Mul", [f"t{i - 1}" if i > 0 else "x", f"s{i}"], [f"m{i}"], f"Mul{i}"))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"t{i}"], f"Tanh{i}"))
    nodes.append(helper.make_node("GlobalAveragePool", ["t49"], ["y"], "Mean"))
    shape = [1, 16, 65536]
    model = save(folder, nodes, weights, shape)
    np.savez(folder / "x.npz", x=np.random.default_rng(2).standard_normal((2, *shape)).astype("f"))
    words = search(model, "--threshold", "1e-6", "--max-trials", "2", "--no-hold-out", "--threads", "2")
    used, status, said = peak(binary, words, folder)
    assert status in (0, 1) and "[!]" not in said, said
    answer = json.loads((folder / "answer.json").read_text())
    run, status, said_of_run = peak(binary, ["run", model, "--trt", "--load-inputs", "x.npz"], folder)
    assert status == 0, said_of_run
    return folder, words, run, used, said, answer


def test_what_the_report_shows_is_taken_in_portions(binary, deep):
    """Nothing is kept and nothing explained: the magnitudes of all tensors, for the report, are what is left."""
    folder, words, run, *_ = deep
    words = [*words, "--threshold", "0.5"]
    used, status, said = peak(binary, words, folder)
    assert status == 0 and "none." in said, said
    assert used < PROGRAM + 2 * run + 200 * MB, (used / MB, run / MB)


def found(answer):
    return [answer[key] for key in ("layers", "sensitivities", "message")], [
        (t["kind"], t["raised"], t["used"]) for t in answer["trials"]
    ]


def test_a_search_that_takes_much_more_than_a_run_says_why(deep):
    _, _, run, used, said, _ = deep
    assert used > 4 * run + 300 * MB, (used / MB, run / MB)
    assert re.search(
        r"\[memory\] the search took up to .*, where one run takes about .* while predicting \(values, errors", said
    ), said
    assert "--memory-limit BYTES makes it less" in said


@pytest.mark.parametrize("limit", [600, 1])
def test_a_limit_holds_or_says_why_not(binary, deep, limit):
    folder, words, _, without, _, answer = deep
    words = ["limited.json" if word == "answer.json" else word for word in words]
    used, _, said = peak(binary, [*words, "--memory-limit", f"{limit}M"], folder)
    assert "[!]" not in said, said
    warned = re.findall(r"\[memory\] --memory-limit [^\n]*", said)
    if limit == 600:
        assert used < limit * 2**20 + PROGRAM + 150 * MB and not warned, (used / MB, said)
    assert used < without, (used / MB, without / MB)
    assert all(re.search("limit of .* or more can be kept, or try|the rest is", each) for each in warned), warned
    if limit == 1:
        assert any("the activations of one of them, take" in each for each in warned), warned
        assert any("the prediction from one sample" in each for each in warned), warned
    assert found(json.loads((folder / "limited.json").read_text())) == found(answer)


def test_a_run_says_what_a_limit_is_too_small_for(binary, deep):
    folder = deep[0]
    _, status, said = peak(
        binary, ["run", "model.onnx", "--trt", "--load-inputs", "x.npz", "--memory-limit", "5M"], folder
    )
    assert status == 0, said
    ahead, after = re.findall(r"\[memory\] --memory-limit 5.0 MiB: ([^\n]*)", said)
    assert re.match(
        r"inputs, activations and outputs of one run take [\d.]+ MiB; a limit of [\d.]+ MiB or more can be kept", ahead
    )
    assert re.match(r"the inputs and outputs of all iterations, and what a run holds, took [\d.]+ MiB", after)
    _, _, said = peak(
        binary, ["run", "model.onnx", "--trt", "--load-inputs", "x.npz", "--memory-limit", "500M"], folder
    )
    assert "[memory]" not in said, said
