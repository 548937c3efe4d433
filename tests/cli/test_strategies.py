"""`ulpscope precision bisect`, `linear` and `worst-first` as people type them."""
import json
import pickle
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cli_support import encode_array

# Without fusion the sum of 65504 and x is stored: in float16 nothing is left of x.
BASE = ["--fp16", "--fusion", "none", "--val-range", "x:[1,2]", "--check-error-stat", "median"]


@pytest.fixture
def golden(run, model):
    assert run("run", model, "--onnxrt", "--val-range", "x:[1,2]", "--save-results=golden.pkl").code == 0
    return "golden.pkl"


def results_file(path, iterations, runner="onnxrt-runner-N0-01/01/26-00:00:00"):
    """A file of results with these outputs per iteration."""
    path.write_text(json.dumps({
        "lst": [[runner, [{
            "outputs": {name: {"values": encode_array(array), "polygraphy_class": "LazyArray"}
                        for name, array in outputs.items()},
            "runtime": 0.1, "runner_name": runner, "polygraphy_class": "IterationResult"} for outputs in iterations]]],
        "polygraphy_class": "RunResults"}))
    return path


def tries(outcome):
    return re.findall(r"Will run layer\(s\): (.*) in DataType\.\w+ precision", outcome.out)


def nodes(outcome):
    """The node names below the answer."""
    lines = outcome.out.splitlines()
    start = next(i for i, line in enumerate(lines) if "To achieve acceptable accuracy" in line)
    names = []
    for line in lines[start + 1:]:
        if not line.startswith("[I]     "):
            break
        names.append(line[8:])
    return names


@pytest.mark.parametrize("tool", ["bisect", "linear"])
@pytest.mark.parametrize("mode, count, names",
                         [("forward", "first 5", ["MatMul_0", "Add", "Sub"]),
                          ("reverse", "last 3", ["Add", "Sub", "MatMul_1"])])
def test_finds_the_layers_of_the_example(tool, mode, count, names, run, model, golden):
    outcome = run("precision", tool, model, "--golden", golden, "--mode", mode, *BASE)
    assert outcome.code == 0, outcome
    assert f"To achieve acceptable accuracy, try running the {count} layers in DataType.FLOAT precision" in outcome.out
    assert nodes(outcome) == names


def test_lines_of_bisect(run, model, golden):
    outcome = run("precision", "bisect", model, "--golden", golden, "--mode", "forward", *BASE)
    assert tries(outcome) == ["range(0, 0)", "range(0, 4)", "range(0, 6)", "range(0, 5)"]
    for line in ["[I]     Last known good: first 6 layer(s) in DataType.FLOAT precision",
                 "[I]     Last known bad: first 4 layer(s) in DataType.FLOAT precision",
                 "[E]     FAILED | Output: matmul_out_3 | Required Tolerances: (atol=1.5, rtol=1.0)",
                 "[I]     PASSED | Output: matmul_out_3 | Required Tolerances: (atol=0.0, rtol=0.0)"]:
        assert re.search(re.escape(line).replace("1\\.5", r"1\.\d+"), outcome.out), line
    assert "Comparing Output" not in outcome.out


def test_reverse_is_the_default(run, model, golden):
    assert tries(run("precision", "bisect", model, "--golden", golden, *BASE))[:2] == ["range(6, 6)", "range(2, 6)"]


def test_shows_comparisons_when_asked(run, model, golden):
    outcome = run("precision", "bisect", model, "--golden", golden, *BASE, "-s")
    assert outcome.code == 0 and "Comparing Output: 'matmul_out_3'" in outcome.out


def test_the_answer_holds_when_run(run, model, golden):
    outcome = run("precision", "bisect", model, "--golden", golden, *BASE)
    words = re.search(r"--layer-precisions .*", outcome.out).group().split()
    again = run("run", model, "--trt", "--load-outputs", golden, *BASE, *words)
    assert again.code == 0, again
    less = run("run", model, "--trt", "--load-outputs", golden, *BASE, *[w for w in words if not w.startswith("Add:")])
    assert less.code == 1


def test_saves_the_engine_of_the_answer(run, model, golden):
    assert run("precision", "bisect", model, "--golden", golden, *BASE, "--save-engine", "e.plan").code == 0
    assert run("run", "e.plan", "--trt", "--load-outputs", golden, *BASE[3:]).code == 0


def test_with_fusion_nothing_is_wrong(run, model, golden):
    outcome = run("precision", "bisect", model, "--golden", golden, "--fp16", *BASE[3:])
    assert outcome.code == 0 and tries(outcome)[0] == "range(6, 6)"
    assert "try running the last 0 layers" in outcome.out and nodes(outcome) == []


def test_costs_leave_layers_in_higher_precision(run, model, golden):
    outcome = run("precision", "bisect", model, "--golden", golden, *BASE, "--cost-model")
    assert "marking changes nothing" in outcome.out and "the last 0 layers" in outcome.out


def test_nothing_found(run, model, golden):
    """float32 itself is not exact: no configuration passes tolerances of 0, elementwise."""
    outcome = run("precision", "bisect", model, "--golden", golden, "--fp16", "--fusion", "none", "--seed", "7", "-p",
                  "float32", "--val-range", "x:[1,2]")
    assert outcome.code == 1
    assert "Could not find a configuration that resulted in acceptable accuracy" in outcome.err
    assert "Even with every layer in float32 the outputs do not match" in outcome.out
    assert "FAILED | Runtime" in outcome.out


def test_all_iterations_count(run, model):
    assert run("run", model, "--onnxrt", "--val-range", "x:[1,2]", "--iterations", 3, "--save-outputs",
               "golden.json").code == 0
    outcome = run("precision", "bisect", model, "--golden", "golden.json", *BASE)
    assert outcome.code == 0 and "all 3 iterations" in outcome.out and "last 3 layers" in outcome.out
    outcome = run("precision", "bisect", model, "--golden", "golden.json", *BASE, "--iterations", 2)
    assert outcome.code == 0 and "the first 2 of both count" in outcome.out


def test_loaded_inputs(run, model):
    assert run("run", model, "--onnxrt", "--val-range", "x:[1,2]", "--seed", 9, "--save-inputs", "in.json",
               "--save-outputs", "golden.json").code == 0
    outcome = run("precision", "bisect", model, "--golden", "golden.json", *BASE[:3], *BASE[5:], "--load-inputs",
                  "in.json")
    assert outcome.code == 0 and "last 3 layers" in outcome.out
    outcome = run("precision", "bisect", model, "--golden", "golden.json", *BASE[:3], *BASE[5:],
                  "--data-loader-script", "loader.py")
    assert outcome.code == 1 and "loader.py" in outcome.err


@pytest.fixture
def layerwise(run, model):
    assert run("run", model, "--onnxrt", "--val-range", "x:[1,2]", "--onnx-outputs", "mark", "all", "--save-outputs",
               "layers.json").code == 0
    return "layers.json"


@pytest.mark.parametrize("outputs", [[], ["--trt-outputs", "mark", "all"]])
def test_worst_first(outputs, run, model, layerwise):
    outcome = run("precision", "worst-first", model, "--golden", layerwise, *BASE, *outputs, "--top", 1, "-v")
    assert outcome.code == 0, outcome
    assert "try running layers: [3, 4] in DataType.FLOAT precision" in outcome.out
    assert nodes(outcome) == ["Add", "Sub"]
    assert tries(outcome)[0] == "[]" and len(tries(outcome)) >= 3
    five = run("precision", "worst-first", model, "--golden", layerwise, *BASE, *outputs)
    assert five.code == 0 and nodes(five) == ["MatMul_0", "Add", "Sub", "MatMul_1"]


@pytest.mark.parametrize("marks", [[], ["--trt-outputs", "mark", "all"]])
def test_worst_first_without_golden_outputs_of_layers(marks, run, model, golden, layerwise):
    """Ranks by the layers' own outputs in float32, which here are what the layer-wise file has."""
    outcome = run("precision", "worst-first", model, "--golden", golden, *BASE, *marks, "--top", 1)
    assert outcome.code == 0 and "layers are ranked against their outputs in float32" in outcome.out, outcome
    assert "--onnx-outputs mark all" in outcome.out
    whole = run("precision", "worst-first", model, "--golden", layerwise, *BASE, "--top", 1)
    assert tries(outcome) == tries(whole) and nodes(outcome) == nodes(whole)


@pytest.mark.parametrize("array, message", [
    (np.zeros((1, 1, 256, 255), np.float32), "expected the shape (1, 1, 256, 256), got (1, 1, 256, 255)"),
    (np.full((1, 1, 256, 256), np.nan, np.float32), "65536 NaN in 65536 elements"),
    (np.full((1, 1, 256, 256), np.inf, np.float32), "try --infinities-compare-equal"),
])
def test_golden_results_that_nothing_can_be_compared_with(array, message, run, model, tmp_path):
    results_file(tmp_path / "g.json", [{"matmul_out_3": array}])
    outcome = run("precision", "bisect", model, "--golden", "g.json", *BASE)
    assert outcome.code == 1 and message in outcome.err and "matmul_out_3" in outcome.err


def test_golden_results_without_the_outputs(run, model, tmp_path):
    array = np.zeros((1, 1, 256, 256), np.float32)
    results_file(tmp_path / "g.json", [{"a": array, "b": array}])
    outcome = run("precision", "bisect", model, "--golden", "g.json", *BASE)
    assert outcome.code == 1 and "expected the outputs ['matmul_out_3'] of the network, got ['a', 'b']" in outcome.err
    results_file(tmp_path / "g.json", [])
    outcome = run("precision", "bisect", model, "--golden", "g.json", *BASE)
    assert outcome.code == 1 and "expected results of at least one iteration, got none" in outcome.err
    results_file(tmp_path / "g.json", [{"matmul_out_3": array}, {"other": array}])
    outcome = run("precision", "bisect", model, "--golden", "g.json", *BASE)
    assert outcome.code == 1 and "iteration 1 lacks the output 'matmul_out_3'" in outcome.err


def test_some_golden_outputs_are_missing(run, model, golden):
    outcome = run("precision", "bisect", model, "--golden", golden, *BASE, "--trt-outputs", "matmul_out_3", "sub_out_2")
    assert outcome.code == 0 and "lacks the outputs ['sub_out_2']: they are not judged" in outcome.out


def test_pickles_and_missing_files(run, model, tmp_path):
    (tmp_path / "old.pkl").write_bytes(pickle.dumps({"a": 1}))
    outcome = run("precision", "bisect", model, "--golden", "old.pkl", *BASE)
    assert outcome.code == 1 and "Python pickle" in outcome.err and "save_json" in outcome.err
    outcome = run("precision", "bisect", model, "--golden", "none.json", *BASE)
    assert outcome.code == 1 and "none.json" in outcome.err


@pytest.mark.parametrize("words, code, message", [
    ([], 1, "Please enable at least one precision besides float32"),
    (["--fp16", "--strongly-typed"], 1, "strongly typed"),
    (["--fp16", "--precision-constraints", "none"], 1, "expected obey (the default) or prefer"),
    (["--fp16", "--load-outputs", "x"], 1, "--golden FILE"),
    (["--fp16", "--iterations", "0"], 1, "--iterations: expected 1 or more"),
    (["--fp16", "--mode", "sideways"], 2, "invalid choice: 'sideways'"),
    (["--fp16", "-p", "int8"], 2, "invalid choice: 'int8'"),
    (["--fp16", "--cost-model", "--assume-lowest"], 2, "not allowed with argument"),
    (["--fp16", "--calibration-cache", "c"], 1, "--int8"),
    (["--fp16", "--check-error-stat", "worst"], 1, "Invalid choice for check_error_stat"),
    (["--fp16", "--top", "3"], 1, "Unrecognized Options"),
    (["--fp16", "--load-inputs", "nothing.json"], 1, "nothing.json"),
])
def test_refusals(words, code, message, run, model, golden):
    outcome = run("precision", "bisect", model, "--golden", golden, *words)
    assert outcome.code == code and message in outcome.text, outcome


def test_more_refusals(run, model, golden, tmp_path):
    outcome = run("precision", "bisect", model, "--fp16")
    assert outcome.code == 2 and "required: --golden" in outcome.err
    outcome = run("precision", "bisect", "--golden", golden, "--fp16")
    assert outcome.code == 2 and "required: MODEL" in outcome.err
    (tmp_path / "e.engine").write_bytes(b"")
    outcome = run("precision", "bisect", "e.engine", "--golden", golden, "--fp16")
    assert outcome.code == 1 and "got an engine" in outcome.err
    outcome = run("precision", "worst-first", model, "--golden", golden, "--fp16", "--top", 0)
    assert outcome.code == 1 and "--top: expected 1 or more" in outcome.err
    outcome = run("precision", "sideways", model)
    assert outcome.code == 2 and "'precision sideways'" in outcome.err
    outcome = run("precision", "bisect", "none.onnx", "--golden", golden, "--fp16")
    assert outcome.code == 1 and "no such file" in outcome.err


def test_float16_turns_fp16_on(run, model, golden):
    outcome = run("precision", "bisect", model, "--golden", golden, "-p", "float16", *BASE[1:])
    assert "float16 is also the lowest precision available" in outcome.out
    assert "in DataType.HALF precision" in outcome.out and outcome.code == 1


def test_precisions_that_were_set_before_stay(run, model, golden):
    outcome = run("precision", "bisect", model, "--golden", golden, *BASE, "--layer-precisions", "Sub:float32",
                  "MatMul_1:float32")
    assert outcome.code == 0 and "last 3 layers" in outcome.out
    outcome = run("precision", "bisect", model, "--golden", golden, "--mode", "forward", *BASE, "--layer-precisions",
                  "Sub:float32")
    assert outcome.code == 0 and "first 4 layers" in outcome.out and nodes(outcome) == ["MatMul_0", "Add"]


def test_says_that_passing_is_not_monotone(run, tmp_path):
    """(x + 65504) - 65504: fused in float16 it is right; with the Sub alone in float32 the sum is stored as float16."""
    names = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in ("x", "y")]
    big = helper.make_tensor("big", TensorProto.FLOAT, [1], [65504.0])
    ops = [helper.make_node("Add", ["x", "big"], ["s"], name="Add"),
           helper.make_node("Sub", ["s", "big"], ["y"], name="Sub")]
    onnx.save(helper.make_model(helper.make_graph(ops, "g", names[:1], names[1:], [big]),
                                opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    assert run("run", "m.onnx", "--onnxrt", "--save-outputs", "g.json").code == 0
    outcome = run("precision", "linear", "m.onnx", "--golden", "g.json", "--fp16", "--atol", "1e-2")
    assert outcome.code == 0 and "last 0 layers" in outcome.out
    # All layers pass as well; with Sub alone in float32 nothing is left of x.
    assert "Passing is not monotone: the last 0 layer(s) pass, the last 1 fail" in outcome.out
