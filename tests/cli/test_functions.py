"""The public functions against the program: the same answers, caches, typed models and pages, from a file and from
memory. The program's own tests say that what it writes is right."""
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import newest_binary
from search_support import answer_of, comparable, masked_attention, save_inputs
from limits import HANGS


def uneven(path, n=24):
    """Products and pointwise layers, one of which float16 does not suit."""
    random = np.random.default_rng(3)
    weights = [random.normal(0, n ** -0.5, (n, n)).astype(np.float32) for _ in range(3)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"], "First"), helper.make_node("Add", ["a", "big"], ["b"], "Raise"),
             helper.make_node("Sub", ["b", "big"], ["c"], "Lower"), helper.make_node("Tanh", ["c"], ["d"], "Squash"),
             helper.make_node("MatMul", ["d", "w1"], ["e"], "Second"), helper.make_node("MatMul", ["e", "w2"], ["y"], "Third")]
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    constants.append(numpy_helper.from_array(np.full(1, 3000, np.float32), "big"))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, n]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "uneven", infos[:1], infos[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": np.random.default_rng(i).uniform(-1, 1, (4, n)).astype(np.float32)} for i in range(5)]


@pytest.fixture
def functions(tmp_path):
    program = newest_binary("functions_cli")
    if program is None:
        pytest.skip("functions_cli is not built")

    def call(*words, folder="ours"):
        (tmp_path / folder).mkdir(exist_ok=True)
        environment = {**os.environ, "ULPSCOPE_PYTHON": sys.executable}
        return subprocess.run([str(program), "m.onnx", "in.json", folder, *words], cwd=tmp_path, env=environment, text=True,
                              capture_output=True, timeout=HANGS)

    return call


def same_answer(ours, theirs):
    ours, theirs = comparable(answer_of(ours.parent, ours.name)), comparable(answer_of(theirs.parent, theirs.name))
    for answer in (ours, theirs):
        answer["run_options"] = [re.sub("^(ours|bytes|theirs)/", "", word) for word in answer["run_options"]]
        if answer["int8"]:
            answer["int8"].pop("calibration_cache")
    assert ours == theirs
    return ours


def compare_with_program(functions, run, tmp_path, precisions, threshold, keep=(), report=True):
    """Runs both, and returns the answer."""
    words = [*precisions, "--threshold", threshold, *(word for name in keep for word in ("--keep", name))]
    done = functions(*words)
    assert done.returncode == 0, done.stderr
    flags = [f"--{each}" for each in precisions]
    (tmp_path / "theirs").mkdir()
    if "int8" in precisions:
        flags += ["--calibration-cache", "theirs/int8.cache", "--calib-base-cls", "max"]
    kept = ["--keep", *keep] if keep else []
    searched = run("precision", "search", "m.onnx", "--objective", "smallest", "--load-inputs", "in.json", "--fusion", "none",
                   *flags, "--metric", "rel-l2", "--threshold", threshold, "--save-answer", "theirs/answer.json", *kept)
    assert searched.code == 0, searched
    answer = same_answer(tmp_path / "ours" / "answer.json", tmp_path / "theirs" / "answer.json")
    if "int8" in precisions:
        assert (tmp_path / "ours" / "int8.cache").read_text() == (tmp_path / "theirs" / "int8.cache").read_text()
    converted = run("convert", "m.onnx", "--answer", "theirs/answer.json", "-o", "theirs/typed.onnx",
                    "--save-layer-precisions", "theirs/layers.txt")
    assert converted.code == 0, converted
    for name in ("typed.onnx", "layers.txt"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name
    if report:
        made = run("report", "ours/answer.json", "-o", "ours/report.html", "--typed", "ours/typed.onnx")
        ours = (tmp_path / "ours" / "report.html").read_bytes()
        functions(*words)
        assert made.code == 0, made
        strip = lambda page: re.sub(rb"[0-9a-f]{8}-[0-9a-f-]{27}", b"", page)
        assert len(strip(ours)) > 10000
        assert re.sub(rb"\d+\.\d+(e-?\d+)?", b"", strip(ours)) == re.sub(
            rb"\d+\.\d+(e-?\d+)?", b"", strip((tmp_path / "ours" / "report.html").read_bytes()))
    return answer, done.stdout


def test_float16(functions, run, tmp_path):
    save_inputs(tmp_path / "in.json", uneven(tmp_path / "m.onnx"))
    answer, printed = compare_with_program(functions, run, tmp_path, ["fp16"], "0.002")
    assert {"Raise", "Lower"} <= {layer["name"] for layer in answer["layers"]}
    assert printed.startswith("passed 1 ") and "outputs 1 plan 6" in printed
    # All samples are judged: those of the search and the one that it held out.
    used = float(re.search("used ([^ ]+)", printed)[1])
    assert used == pytest.approx(max(answer["search"]["used"], answer["held_out"]["used"]), rel=1e-12)


def test_a_model_from_memory_is_the_same(functions, tmp_path):
    save_inputs(tmp_path / "in.json", uneven(tmp_path / "m.onnx"))
    for folder, words in (("ours", []), ("bytes", ["--bytes"])):
        done = functions("fp16", "--threshold", "0.002", "--keep", "Squash", *words, folder=folder)
        assert done.returncode == 0, done.stderr
    same_answer(tmp_path / "ours" / "answer.json", tmp_path / "bytes" / "answer.json")
    assert (tmp_path / "ours" / "typed.onnx").read_bytes() == (tmp_path / "bytes" / "typed.onnx").read_bytes()


def test_layers_that_are_kept(functions, run, tmp_path):
    save_inputs(tmp_path / "in.json", uneven(tmp_path / "m.onnx"))
    answer, _ = compare_with_program(functions, run, tmp_path, ["bf16"], "0.05", keep=["MatMul"], report=False)
    assert [layer["reason"]["kind"] for layer in answer["layers"]].count("requested") == 3


def test_int8_with_calibration_and_repairs(functions, run, tmp_path):
    save_inputs(tmp_path / "in.json", masked_attention(tmp_path / "m.onnx", blocks=2))
    answer, printed = compare_with_program(functions, run, tmp_path, ["fp16", "int8"], "0.05", report=False)
    assert any(repair["kind"] == "clamp" for repair in answer["repairs"]) and printed.startswith("passed 1 ")


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["fp32", "--threshold", "0.1"], 0, "expected tf32, fp16, bf16, fp8, int8, mxfp8, "),
        (
            ["fp16", "--threshold", "0.1", "--keep", "Nobody"],
            0,
            "--keep 'Nobody': expected a layer with float arithmetic",
        ),
        (["fp16", "--threshold", "-1"], 0, "threshold of rel-l2: expected a finite number, 0 or more"),
    ],
)
def test_mistakes_are_errors(functions, tmp_path, words, code, message):
    save_inputs(tmp_path / "in.json", uneven(tmp_path / "m.onnx"))
    done = functions(*words)
    assert done.returncode == 1 and done.stderr.startswith(f"{code}: ") and message in done.stderr, done.stderr
