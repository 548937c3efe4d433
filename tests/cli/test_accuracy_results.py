"""run --check-average and --save-accuracy-results against pip's Polygraphy."""
import json
import math
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cli_support import encode_array


@pytest.fixture
def pair(tmp_path):
    """A model of two outputs, and results of it that differ a little more in every iteration; the inputs are in in.json."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 30]) for name in ("x", "y", "z")]
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["x"], ["z"])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:]), opset_imports=[helper.make_opsetid("", 13)],
                                ir_version=8), tmp_path / "m.onnx")
    random = np.random.default_rng(3)
    inputs = [random.uniform(0.1, 1, (2, 30)).astype(np.float32) for _ in range(3)]
    (tmp_path / "in.json").write_text(json.dumps([{"x": encode_array(x)} for x in inputs]))
    write_results(tmp_path / "golden.json", [{"y": x * np.float32(1 + 0.01 * k), "z": np.exp(x) + np.float32(0.02 * k)}
                                             for k, x in enumerate(inputs)])
    return ["run", "m.onnx", "--onnxrt", "--load-inputs", "in.json", "--load-outputs", "golden.json"]


def write_results(path, iterations):
    lazy = [{"outputs": {name: {"values": encode_array(array), "polygraphy_class": "LazyArray"} for name, array in each.items()},
             "runtime": 0.1, "runner_name": "golden", "polygraphy_class": "IterationResult"} for each in iterations]
    path.write_text(json.dumps({"lst": [["golden", lazy]], "polygraphy_class": "RunResults"}))


def same(mine, theirs):
    """The same file but for names of runners; numbers to the accuracy of float32 sums."""
    if isinstance(theirs, dict):
        assert list(mine) == list(theirs)
        for key, value in theirs.items():
            same(mine[key], value)
    elif isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            same(a, b)
    elif isinstance(theirs, str) and "runner" in theirs:
        assert re.sub(r"\d", "0", mine) == re.sub(r"\d", "0", theirs)
    elif isinstance(theirs, (int, float)) and not isinstance(theirs, bool):
        assert mine == pytest.approx(theirs, rel=2e-5, abs=1e-7, nan_ok=True)
    else:
        assert mine == theirs and type(mine) is type(theirs)


VERDICTS = [
    [], ["--check-error-stat", "mean", "y:max"], ["--check-error-stat", "quantile", "--error-quantile", "0.9"],
    ["--compare", "l2", "--l2-threshold", "1"], ["--compare", "simple", "distance_metrics", "indices"],
    ["--compare", "quality_metrics", "--psnr-threshold", "z:5", "20"], ["--fail-fast"],
]
AVERAGES = [
    ["--check-error-stat", "mean", "--atol", "0.02", "--rtol", "0"], ["--check-error-stat", "mean", "--atol", "0.021", "y:0.0054", "--rtol", "0"],
    ["--check-error-stat", "max", "--atol", "0", "--rtol", "0.0101"], ["--check-error-stat", "quantile", "--atol", "0.02"],
    ["--compare", "distance_metrics", "psnr", "--l2-threshold", "0.2"], ["--compare", "l2", "--l2-threshold", "0.15", "y:0.06"],
    ["--compare", "simple", "snr", "--check-error-stat", "median", "--atol", "1", "--snr-threshold", "40"],
]


@pytest.mark.parametrize("words", VERDICTS + [["--check-average", *each] for each in AVERAGES], ids=" ".join)
def test_as_polygraphy(words, run, polygraphy, pair, tmp_path):
    mine = run(*pair, *words, "--save-accuracy-results", "mine.json")
    theirs = polygraphy(*pair, *words, "--sequential-runners", "--save-accuracy-results", "theirs.json")
    assert mine.code == theirs.code, (mine, theirs)
    same(json.loads((tmp_path / "mine.json").read_text()), json.loads((tmp_path / "theirs.json").read_text()))
    if "--check-average" in words:
        passed = re.compile(r"Passed: (\d/\d outputs)")
        assert passed.search(mine.text).group(1) == passed.search(theirs.text).group(1)
        verdict = re.compile(r"^\[.\]     ([yz]) \| (PASSED|FAILED):$", re.M)
        assert verdict.findall(mine.text) == verdict.findall(theirs.text) != []
    # Each program shows the other's file.
    for name in ("mine.json", "theirs.json"):
        for more in ([], ["--all"]):
            shown, expected = run("inspect", "data", name, *more), polygraphy("inspect", "data", name, *more)
            assert shown.code == expected.code == 0, shown
            assert shown.out == "\n".join(line for line in expected.out.split("\n") if "colored" not in line)
    described = json.loads(run("inspect", "data", "mine.json", "--json", "--all").out)
    assert described["comparisons"][0]["pairs"][0]["num_iterations"] == (2 if "--fail-fast" in words else 3)
    # Polygraphy's own tool reads it.
    if words[:2] == ["--compare", "l2"]:
        for threshold, code in (("0.001", 1), ("100", 0)):
            judged = polygraphy("check", "accuracy", "mine.json", "--compare", "l2", "--l2-threshold", threshold)
            assert judged.code == code, judged


def test_numbers_that_json_lacks(run, polygraphy, pair, tmp_path):
    """NaN, infinity, and outputs that have no numbers since their shapes differ."""
    write_results(tmp_path / "golden.json", [{"y": np.full((2, 30), np.nan, np.float32), "z": np.zeros((30,), np.float32)}] * 3)
    mine = run(*pair, "--compare", "psnr", "simple", "--save-accuracy-results", "mine.json")
    theirs = polygraphy(*pair, "--compare", "psnr", "simple", "--sequential-runners", "--save-accuracy-results", "theirs.json")
    assert mine.code == theirs.code == 1
    results = [json.loads((tmp_path / name).read_text()) for name in ("mine.json", "theirs.json")]
    same(*results)
    iteration = results[0]["lst"][1]["lst"][0][1][0]
    assert iteration["z"] is False and math.isnan(iteration["y"]["max_absdiff"])
    shown, expected = run("inspect", "data", "theirs.json", "--all"), polygraphy("inspect", "data", "theirs.json", "--all")
    assert shown.out == "\n".join(line for line in expected.out.split("\n") if "colored" not in line)
    # An average of nothing is no verdict.
    outcome = run(*pair, "--check-average", "--check-error-stat", "max")
    assert outcome.code == 1 and "output 'z': no average can be checked" in outcome.err, outcome
    # NaN stays NaN in the average, and fails.
    outcome = run(*pair, "--check-average", "--compare", "l2", "--no-shape-check")
    assert outcome.code == 1, outcome
    assert run(*pair[:-2], "--save-outputs", "own.json").code == 0
    same_twice = run(*pair[:-1], "own.json", "--compare", "psnr", "--save-accuracy-results", "mine.json")
    assert same_twice.code == 0 and "Infinity" in (tmp_path / "mine.json").read_text(), same_twice


@pytest.mark.parametrize("words, message", [
    ([], "--check-error-stat elemwise (the default)"),
    (["--check-error-stat", "mean", "y:elemwise"], "--check-error-stat elemwise"),
    (["--check-error-stat", "mean", "--fail-fast"], "--fail-fast does not go with it"),
    (["--compare", "indices"], "gives no number to average"),
    (["--compare-func-script", "s.py"], "--compare-func-script gives verdicts"),
])
def test_no_average(words, message, run, polygraphy, pair, tmp_path):
    (tmp_path / "s.py").write_text("def compare_outputs(a, b):\n    return {'y': True}\n")
    outcome = run(*pair, "--check-average", *words)
    assert outcome.code == 1 and message in outcome.err and "starting inference" not in outcome.out, outcome
    assert polygraphy(*pair, "--check-average", *words, "--sequential-runners").code == 1


def test_the_script_does_the_same(run, pair, tmp_path):
    assert run(*pair, "--check-average", "--check-error-stat", "mean", "--save-accuracy-results", "a.json", "--gen-script", "s.py",
               ).code == 0
    script = (tmp_path / "s.py").read_text()
    assert "check_average=True" in script and "accuracy_results.save('a.json')" in script


def test_other_tools_refuse_them(run, pair):
    outcome = run("debug", "precision", "m.onnx", "--fp16", "--check-average", "--check", "true")
    assert outcome.code == 1 and "only `ulpscope run` compares whole runs" in outcome.err, outcome


@pytest.mark.parametrize("words", [["--save-outputs", "golden.json"], ["--save-inputs", "./in.json"], ["--save-inputs", "."]],
                         ids=" ".join)
def test_what_is_compared_with_is_not_written_over(words, run, polygraphy, pair, tmp_path):
    before = {name: (tmp_path / name).read_bytes() for name in ("in.json", "golden.json")}
    outcome = run(*pair, *words)
    assert outcome.code == 1 and "would be written over" in outcome.err, outcome
    assert polygraphy(*pair, *words).code == 1
    assert before == {name: (tmp_path / name).read_bytes() for name in before}


@pytest.mark.parametrize("change, message", [
    (lambda text: text[:-40], "malformed JSON"), (lambda text: text.replace("L2Result", "OwnResult"), "class 'OwnResult'"),
    (lambda text: text.replace('"l2_norm"', '"l1_norm"'), 'expected the key "l2_norm"'),
    (lambda text: text.replace('"threshold": 0.5', '"threshold": "x"'), "expected a number"),
    (lambda text: text.replace('"aggregation"', '"a"'), 'expected the key "aggregation"'),
])
def test_files_that_are_broken(change, message, run, pair, tmp_path):
    run(*pair, "--compare", "l2", "--l2-threshold", "0.5", "--save-accuracy-results", "a.json")
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(change(text))
    outcome = run("inspect", "data", "a.json")
    assert outcome.code == 1 and "a.json" in outcome.err and message in outcome.err, outcome


@pytest.mark.parametrize("quantile", ["2", "-0.1", "nan", "y:1.5"])
def test_quantiles_beyond_the_data(quantile, run, pair):
    outcome = run(*pair, "--check-error-stat", "quantile", "--error-quantile", quantile)
    assert outcome.code == 1 and "--error-quantile: expected a number from 0 to 1" in outcome.err, outcome
