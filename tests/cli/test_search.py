"""`precision search` as a program: answers, files, exit statuses, mistakes, and ends before the end."""
import json
import shlex

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import encode_array
from search_support import BASE, answer_of, branches, samples, save_inputs, trials_of


def save_results(path, iterations):
    outputs = [{"outputs": {name: {"values": encode_array(a), "polygraphy_class": "LazyArray"} for name, a in each.items()},
                "runtime": 0.1, "runner_name": "golden", "polygraphy_class": "IterationResult"} for each in iterations]
    path.write_text(json.dumps({"lst": [["golden", outputs]], "polygraphy_class": "RunResults"}))
    return path.name


@pytest.fixture
def inputs(tmp_path):
    return save_inputs(tmp_path / "in.json", samples(4))


@pytest.fixture
def search(run, model, inputs):
    def call(*words, base=BASE):
        return run("precision", "search", model, "--load-inputs", inputs, *base, *words)

    return call


def test_answers_with_reasons(search, tmp_path):
    outcome = search()
    assert outcome.code == 0, outcome
    assert "Layers to keep in higher precision: 2 of 4 candidates" in outcome.out
    assert "Error on the 1 sample held out" in outcome.out and "; all pass" in outcome.out
    assert "a repaired layer" not in outcome.out
    answer = answer_of(tmp_path)
    assert answer["verdict"] == "found"
    assert [layer["name"] for layer in answer["layers"]] == ["Add", "Sub"]
    assert all(layer["precision"] == "fp32" and layer["reason"]["text"] for layer in answer["layers"])
    assert answer["search"]["samples"] == 3 and answer["held_out"]["samples"] == 1
    assert len(answer["sensitivities"]) == 4 and answer["trials"]
    journal = (tmp_path / "needs_constraints.fp16.journal.jsonl").read_text().splitlines()
    assert json.loads(journal[0])["format"] == "ulpscope-journal"
    assert len(journal) == 1 + len(trials_of(tmp_path / "needs_constraints.fp16.journal.jsonl"))


def test_the_command_of_the_answer_reproduces_it(search, run, model, inputs, tmp_path):
    assert search().code == 0
    words = answer_of(tmp_path)["run_options"]
    reference = run("run", model, "--onnxrt", "--load-inputs", inputs, "--save-outputs", "golden.json")
    assert reference.code == 0
    judged = ["--load-inputs", inputs, "--load-outputs", "golden.json", "--atol", "1e-3", "--rtol", "1e-2"]
    assert run("run", model, *words, *judged).code == 0
    # Without the layers that the answer names it fails.
    at = words.index("--layer-precisions")
    assert run("run", model, *words[:at], *judged).code == 1


def test_the_printed_command_is_one_for_a_shell(search, tmp_path):
    outcome = search()
    line = next(line for line in outcome.out.splitlines() if "    ulpscope run " in line)
    assert shlex.split(line[4:].strip())[3:] == answer_of(tmp_path)["run_options"]


def test_fusion_can_make_it_unnecessary(search, tmp_path):
    outcome = search("--fusion", "full")
    assert outcome.code == 0, outcome
    assert answer_of(tmp_path)["layers"] == []
    assert "Layers to keep in higher precision: none." in outcome.out


def test_files_have_their_options(search, tmp_path):
    assert search("--save-answer", "sub/a.json", "--save-layer-precisions", "layers.txt").code == 0
    assert (tmp_path / "layers.txt").read_text() == "Add:float32\nSub:float32\n"
    assert (tmp_path / "sub" / "a.journal.jsonl").exists() and (tmp_path / "sub" / "a.json").exists()
    assert search("--save-answer", "b.json", "--no-journal").code == 0
    assert not (tmp_path / "b.journal.jsonl").exists()
    assert search("--save-answer", "b.json", "--journal", "j").code == 0
    assert trials_of(tmp_path / "j")


@pytest.mark.parametrize("objective", ["fastest", "smallest", "cheapest"])
def test_answers_say_what_chose_them(run, search, model, tmp_path, objective):
    words = ["--fp16", "--fusion", "none", "--atol", "1e-3", "--rtol", "1e-2", "--save-answer", "a.json"]
    outcome = search(*([] if objective == "fastest" else ["--objective", objective]), base=words)
    assert outcome.code == 0 and f"({objective})" in outcome.text, outcome
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["objective"] == objective
    assert f"({objective})" in run("inspect", "data", "a.json").text
    # As earlier releases wrote it.
    del answer["objective"]
    (tmp_path / "old.json").write_text(json.dumps(answer))
    assert "Chosen for" not in run("inspect", "data", "old.json").text
    assert run("verify", model, "--answer", "old.json", "--load-inputs", "in.json").code == 0
    outcome = run("report", "old.json", "-o", "old.html")
    assert outcome.code == 0, outcome


def test_fewer_layers_need_not_be_faster(search, tmp_path):
    outcome = search("--shrink", base=["--fp16", "--objective", "fastest", "--rtol", "1e-2"])
    assert outcome.code == 1 and "--shrink and --objective fastest contradict each other" in outcome.err, outcome
    assert search("--shrink", base=["--fp16", "--fusion", "none", "--atol", "1e-3", "--rtol", "1e-2"]).code == 0
    assert [layer["name"] for layer in answer_of(tmp_path)["layers"]] == ["Add", "Sub"]


def test_weak_grounds_are_said(run, model, tmp_path):
    save_inputs(tmp_path / "same.json", samples(1) * 4)
    outcome = run("precision", "search", model, "--load-inputs", "same.json", "--bf16", "--target", "t4", "--metric", "rel-l2",
                  "--threshold", "0.1", "--no-hold-out")
    assert "the 4 samples to search on are all the same" in outcome.text, outcome
    assert "has no rate for bf16" in outcome.text, outcome
    save_inputs(tmp_path / "others.json", samples(4))
    outcome = run("precision", "search", model, "--load-inputs", "others.json", "--bf16", "--metric", "rel-l2", "--threshold",
                  "0.1", "--no-hold-out")
    assert "all the same" not in outcome.text and "no rate" not in outcome.text, outcome
    save_inputs(tmp_path / "held.json", samples(5)[3:])
    words = ["precision", "search", model, "--fp16", "--metric", "rel-l2", "--threshold", "0.1", "--load-inputs", "others.json", "--hold-out"]
    assert "1 of the 2 held-out samples are samples of the search, too" in run(*words, "held.json").text
    assert "2 of the 2" not in run(*words, "held.json").text and "4 of the 4" in run(*words, "others.json").text


def test_everything_stays_high_while_no_set_is_known(search, tmp_path):
    outcome = search("--max-trials", "1", "--save-layer-precisions", "layers.txt")
    assert outcome.code == 1, outcome
    answer = answer_of(tmp_path)
    assert answer["verdict"] == "unverified" and "everything stays in fp32" in answer["message"]
    assert len(answer["layers"]) == answer["candidates"] == 4
    assert len((tmp_path / "layers.txt").read_text().splitlines()) == 4


def test_the_bias_of_an_int8_product_rises_with_it(run, tmp_path):
    # The bias is part of the product in int8; beside a raised product it would run in fp16, which cannot hold it.
    rng = np.random.default_rng(5)
    weights = [numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), name) for name in ("w", "v")]
    bias = numpy_helper.from_array(np.full(8, 1e5, np.float32), "b")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "product"), helper.make_node("Add", ["p", "b"], ["s"], "bias"),
             helper.make_node("Sub", ["s", "b"], ["d"], "back"), helper.make_node("MatMul", ["d", "v"], ["y"], "last")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [*weights, bias])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    samples = [{"x": rng.normal(size=(4, 8)).astype(np.float32)} for _ in range(4)]
    words = ["--load-inputs", save_inputs(tmp_path / "x.json", samples), "--fusion", "none", "--atol", "0.05", "--rtol", "0"]
    outcome = run("precision", "search", "m.onnx", "--int8", "--fp16", *words)
    assert outcome.code == 0, outcome
    answer = answer_of(tmp_path, "m.fp16-int8.answer.json")
    names = [layer["name"] for layer in answer["layers"]]
    assert {"product", "bias", "back"} <= set(names) and len(names) <= answer["candidates"] == 4
    assert "the bias of 'product'" in answer["layers"][names.index("bias")]["reason"]["text"]
    reference = run("run", "m.onnx", "--trt", *words[:2], "--save-outputs", "golden.json")
    assert reference.code == 0
    assert run("run", "m.onnx", *answer["run_options"], *words[:2], "--load-outputs", "golden.json", *words[4:]).code == 0


def test_not_reachable_is_an_answer(search, tmp_path):
    outcome = search("--lower", "Add", "Sub")
    assert outcome.code == 1, outcome
    assert answer_of(tmp_path)["verdict"] == "not-reachable"
    assert "Not reachable" in outcome.out


def test_fallbacks_that_are_too_coarse_name_float32(search):
    outcome = search("--fp8", "--precision", "float16")
    assert outcome.code == 1, outcome
    assert "too tight for fp16" in outcome.out and "(--precision ... float32)" in outcome.out
    outcome = search("--fp8", "--precision", "float16", "float32", "--force")
    assert outcome.code == 0, outcome


@pytest.mark.parametrize(
    "element, reason",
    [
        (TensorProto.FLOAT16, "its float layers have narrow types in the file already; try the float32 model"),
        (TensorProto.DOUBLE, "layer 'sum' (Add) computes in float64, which stays"),
    ],
)
def test_says_what_cannot_run_in_another_type(run, tmp_path, element, reason):
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"], name="sum")],
        "g",
        [helper.make_tensor_value_info("x", element, [2])],
        [helper.make_tensor_value_info("y", element, [2])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    outcome = run("precision", "search", "m.onnx", "--fp16")
    assert outcome.code == 1 and f"no layer would run in lower precision: {reason}" in outcome.text, outcome
    assert "--fp16, --bf16" not in outcome.text, outcome


def test_keep_and_lower(search, tmp_path):
    outcome = search("--keep", "MatMul", "--shrink")
    assert outcome.code == 0, outcome
    layers = {layer["name"]: layer["reason"]["kind"] for layer in answer_of(tmp_path)["layers"]}
    assert set(layers) == {"Add", "Sub", "MatMul_0", "MatMul_1"}
    assert layers["MatMul_0"] == layers["MatMul_1"] == "requested"


@pytest.mark.parametrize("words, message", [
    (["--keep", "Addd"], "--keep 'Addd': expected a layer with float arithmetic"),
    (["--keep", "Addd"], "did you mean 'Add'"),
    (["--lower", "Conv*"], "--lower 'Conv*'"),
    (["--keep", "Add", "--lower", "*"], "layer 'Add': --keep and --lower contradict each other"),
    (["--keep", "*"], "there is nothing to search"),
    (["--keep", "*", "--dry-run"], "there is nothing to search"),
    (["--margin", "0"], "--margin: expected a number above 0 and at most 1, got 0"),
    (["--max-trials", "0"], "--max-trials: expected 1 or more, got 0"),
    (["--time-limit", "soon"], "--time-limit: expected a time such as 30s, 2m or 1h, got 'soon'"),
    (["--time-limit=-3s"], "--time-limit: expected a time"),
    (["--memory-limit", "2X"], "Could not convert 2X to a number of bytes; --memory-limit takes 1 or more bytes such as"),
    (["--hold-out", "none.json"], "none.json"),
])
def test_mistakes_are_named(search, tmp_path, words, message):
    outcome = search(*words)
    assert outcome.code == 1, outcome
    assert message in outcome.err, outcome
    assert not list(tmp_path.glob("*.answer.json")) and not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize("words", [["--precision", "float12"], ["--objective", "best"],
                                   ["--journal", "x", "--no-journal"], ["--continue", "--no-journal"],
                                   ["--hold-out", "x", "--no-hold-out"], ["--threshold", "1"],
                                   ["--metric", "rel-l2"]])
def test_command_lines_that_do_not_fit(search, words):
    assert search(*words).code == 2


def test_a_precision_is_needed(search):
    outcome = search(base=[])
    assert outcome.code == 1
    assert "at least one precision besides float32" in outcome.err


def test_golden_results(search, run, model, inputs, tmp_path):
    assert run("run", model, "--onnxrt", "--load-inputs", inputs, "--save-outputs", "golden.pkl").code == 0
    assert search("--golden", "golden.pkl").code == 0
    assert [layer["name"] for layer in answer_of(tmp_path)["layers"]] == ["Add", "Sub"]


def broken_golden(tmp_path, change):
    good = [{"matmul_out_3": each["x"]} for each in samples(4)]
    return save_results(tmp_path / "golden.json", change(good))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda good: [{"other": g["matmul_out_3"], "more": g["matmul_out_3"]} for g in good], "matmul_out_3"),
        (
            lambda good: [{"matmul_out_3": g["matmul_out_3"][..., :7]} for g in good],
            "expected shape (1, 1, 256, 256), got (1, 1, 256, 7)",
        ),
        (lambda good: good[:3], "expected results of 4 iterations, one per sample, got 3"),
        (lambda good: good[:3] + [{"matmul_out_3": np.full_like(good[0]["matmul_out_3"], np.nan)}], "NaN"),
    ],
)
def test_golden_results_that_do_not_fit(search, tmp_path, change, message):
    outcome = search("--golden", broken_golden(tmp_path, change))
    assert outcome.code == 1, outcome
    assert message in outcome.err, outcome


@pytest.mark.parametrize("ladder, hint", [([], True), (["--precision", "float16", "float32"], False)])
def test_a_float_that_is_allowed_and_was_not_tried_is_named(run, model, tmp_path, ladder, hint):
    """Beside int8, layers go to float32 unless float16 is asked for."""
    name = save_inputs(tmp_path / "in.json", samples(4))
    words = ["--int8", "--fp16", "--objective", "smallest", "--metric", "rel-l2", "--threshold", "1e-5", *ladder]
    outcome = run("precision", "search", model, "--load-inputs", name, "--no-journal", "--no-repair", *words)
    assert outcome.code == 0 and "Layers to keep in higher precision: none" not in outcome.out, outcome
    assert ("fp16 is allowed, too: --precision float16 float32 tries it for them first" in outcome.out) == hint, outcome


def test_golden_outputs_of_our_own_that_are_no_numbers(run, tmp_path):
    nodes = [helper.make_node("Mul", ["x", "two"], ["m"], name="Mul"), helper.make_node("Sqrt", ["m"], ["y"], name="Root")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "root", infos[:1], infos[1:], [numpy_helper.from_array(np.full(1, 2, np.float32), "two")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "root.onnx")
    good = [{"x": np.full(4, i + 1, np.float32)} for i in range(4)]
    for bad, where in ((1, "sample 1"), (3, "of the held-out samples")):
        iterations = [dict(each) for each in good]
        iterations[bad] = {"x": np.array([1, -1, 2, 3], np.float32)}
        name = save_inputs(tmp_path / "in.json", iterations)
        outcome = run("precision", "search", "root.onnx", "--load-inputs", name, *BASE)
        assert outcome.code == 1 and "expected numbers, got 1 NaN" in outcome.err, outcome
        assert where in outcome.err and "the first infinity or NaN comes from 'Root' (Sqrt); try" in outcome.err, (
            outcome
        )
        assert not (tmp_path / "root.fp16.answer.json").exists()


def test_the_layer_that_takes_the_logarithm_of_zero_is_named(run, tmp_path):
    """As models of torch do, whose exporter makes log(x) of log(x + 1e-10); the mean makes NaN of its infinities."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="Cut"),
        helper.make_node("Log", ["r"], ["l"], name="Level"),
        helper.make_node("ReduceMean", ["l"], ["m"], name="Mean"),
        helper.make_node("Sub", ["l", "m"], ["y"], name="Centered"),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "level", infos[:1], infos[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "level.onnx"
    )
    name = save_inputs(tmp_path / "in.json", [{"x": np.array([1, 2, 3, low], np.float32)} for low in (4, -1, 5, 6)])
    outcome = run("precision", "search", "level.onnx", "--load-inputs", name, *BASE)
    assert outcome.code == 1 and "sample 1" in outcome.err, outcome
    assert "comes from 'Level' (Log), which reads zeros" in outcome.err and "optimize=False" in outcome.err, outcome


def test_bodies_of_control_flow_are_raised(run, tmp_path):
    onnx.save(branches(), tmp_path / "branches.onnx")
    name = save_inputs(tmp_path / "in.json", [{"x": np.random.default_rng(i).uniform(1, 2, 4).astype(np.float32)} for i in range(4)])
    assert run("precision", "search", "branches.onnx", "--load-inputs", name, *BASE).code == 0
    answer = answer_of(tmp_path, "branches.fp16.answer.json")
    assert [layer["name"] for layer in answer["layers"]] == ["Add", "Sub"]
    assert answer["held_out"]["passed"] == answer["held_out"]["samples"] == 1
    judged = ["--load-inputs", name, "--onnxrt", "--atol", "1e-3", "--rtol", "1e-2"]
    assert run("run", "branches.onnx", *answer["run_options"], *judged).code == 0
    words = answer["run_options"]
    assert run("run", "branches.onnx", *words[:words.index("--layer-precisions")], *judged).code == 1


def test_golden_results_of_other_inputs(search, tmp_path):
    outcome = search("--golden", broken_golden(
        tmp_path, lambda good: [{"matmul_out_3": g["matmul_out_3"] + 0.5} for g in good]))
    assert outcome.code == 1
    assert "Even with every layer in float32" in outcome.out, outcome
    assert answer_of(tmp_path)["verdict"] == "not-reachable"


def test_samples_of_the_wrong_kind(run, model, tmp_path):
    save_inputs(tmp_path / "bad.json", [{"x": np.zeros((2, 3), np.float32)}])
    outcome = run("precision", "search", model, "--load-inputs", "bad.json", *BASE)
    assert outcome.code == 1 and "x" in outcome.err, outcome
    save_inputs(tmp_path / "bad.json", [{"z": np.zeros(3), "w": np.zeros((1, 1, 256, 256), np.float32)}])
    outcome = run("precision", "search", model, "--load-inputs", "bad.json", *BASE)
    assert outcome.code == 1 and "x" in outcome.err, outcome


@pytest.mark.parametrize(
    "bad, message",
    [
        (np.full((1, 1, 256, 256), "a"), "iteration 1: input 'x': expected a numeric NumPy type, got '<U1'"),
        (np.zeros((1, 1, 256, 256), complex), "expected a numeric NumPy type, got '<c16'"),
        (
            np.zeros((1, 1, 256, 255), np.float32),
            "Provided input: [dtype=float32, shape=(1, 1, 256, 255)], "
            "Requested input: [dtype=float32, shape=(1, 1, 256, 256)]",
        ),
        (np.full((1, 1, 256, 256), np.nan, np.float32), "its input 'x' has NaN or Inf, too"),
    ],
)
def test_a_sample_of_the_wrong_kind(run, model, tmp_path, bad, message):
    iterations = samples(4)
    iterations[1] = {"x": bad}
    outcome = run("precision", "search", model, "--load-inputs", save_inputs(tmp_path / "bad.json", iterations), *BASE)
    assert outcome.code == 1 and message in outcome.err, outcome
    assert len(outcome.err.splitlines()) == 1 and not list(tmp_path.glob("*.answer.json")), outcome


@pytest.mark.parametrize("text, message", [
    ('{"x": 1}', "input 'x': expected an array"), ("3", "expected a list with one object"), ("[]", "got none"),
    ('[{"x": "hello"}]', "expected an array"), ('[{"x": {"arr', "malformed JSON"), ("", "bad.json"),
])
def test_files_that_hold_no_samples(run, model, tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    outcome = run("precision", "search", model, "--load-inputs", "bad.json", *BASE)
    assert outcome.code == 1 and message in outcome.err, outcome


METRICS = """
import time
def good(golden, candidate):
    return max(float(abs(g["matmul_out_3"] - c["matmul_out_3"]).max()) for g, c in zip(golden, candidate))
def raises(golden, candidate):
    raise ValueError("no such class")
def nan(golden, candidate):
    return float("nan")
def hangs(golden, candidate):
    time.sleep(10000)
"""


def test_metric_scripts(search, tmp_path):
    (tmp_path / "m.py").write_text(METRICS)
    base = ["--fp16", "--objective", "smallest", "--fusion", "none", "--threshold", "0.01"]
    assert search("--metric-script", "m.py:good", base=base).code == 0
    assert [layer["name"] for layer in answer_of(tmp_path)["layers"]] == ["Add", "Sub"]
    for function, message, limit in (
        ("raises", "no such class", "600"),
        ("nan", "NaN", "600"),
        ("hangs", "limit", "2"),
    ):
        outcome = search("--metric-script", f"m.py:{function}", "--python-time-limit", limit, base=base)
        assert outcome.code == 1, outcome
        assert message.lower() in outcome.err.lower(), outcome


def test_calibration_caches_that_make_no_sense(search, tmp_path):
    header = "TRT-8601-EntropyCalibration2\n"
    for text, message in (
            ("hello", "expected a header"), (header + "x: zz\n", "line 2"), (header + "x 3c010204\n", "expected 'tensor name: hex'"),
            (header + "x: 7f800000\n", "expected a positive scale"), (header + "x: 7fc00000\n", "NaN"),
            (header + "x: 00000000\n", "got 00000000 (0)"), (header + "x: bc010204\n", "which is negative"),
            (header + "x: 00000001\n", "which is too small"), (header + "x: 7f7fffff\n", "127 times it overflows"),
            (header + "other: 3c010204\n", "got those of another model: 'other'"), (header, "got none at all")):
        (tmp_path / "c.cache").write_text(text)
        outcome = search("--int8", "--calibration-cache", "c.cache")
        assert outcome.code == 1 and "calibration cache" in outcome.err and message in outcome.err, outcome
        assert not list(tmp_path.glob("*.answer.json")), text


def test_generated_samples_are_warned_of(run, model):
    outcome = run("precision", "search", model, "--val-range", "[1,2]", *BASE)
    assert outcome.code == 0
    assert "The samples are random numbers" in outcome.out
    assert "Searching on 3 samples, checking the answer on 1 held-out one (every" in outcome.out


def test_shapes_that_nobody_gives_fit_the_network(run, tmp_path):
    """A size of 1 is too small for the window."""
    graph = helper.make_graph(
        [helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3]), helper.make_node("Exp", ["p"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2, "a", "b"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    words = ["precision", "search", "m.onnx", "--fp16", "--metric", "rel-l2", "--threshold", "1e-2"]
    outcome = run(*words)
    assert outcome.code == 0 and "Will generate data of shape: (1, 2, 8, 8)" in outcome.out, outcome
    outcome = run(*words, "--input-shapes", "x:[1,2,2,8]")
    assert outcome.code == 1 and "a window of 3 does not fit" in outcome.text, outcome


def test_dry_run(search, tmp_path):
    outcome = search("--dry-run")
    assert outcome.code == 0
    for part in ("4 of", "candidates", "3 to search on, 1 held out", "MatMul_0 (MatMul, fp16)", "will take about"):
        assert part in outcome.out, outcome
    assert not list(tmp_path.glob("*.answer.json")) and not list(tmp_path.glob("*.jsonl"))


def test_limits_leave_an_answer(search, tmp_path):
    outcome = search("--max-trials", "1")
    assert outcome.code in (0, 1), outcome
    assert answer_of(tmp_path)["evaluations"] <= 1
    outcome = search("--time-limit", "1ms")
    assert outcome.code == 1
    assert answer_of(tmp_path)["verdict"] == "unverified"
    assert "the time limit" in outcome.out


def test_the_typed_model_of_an_answer(search, run, tmp_path):
    outcome = search("--save-onnx", "typed.onnx")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "typed.onnx").metadata_props}
    assert metadata["ulpscope.kept_in_fp32"] == "Add\nSub"
    # The same file as in two steps.
    two = run("convert", "needs_constraints.onnx", "--answer", "needs_constraints.fp16.answer.json", "-o", "two.onnx")
    assert two.code == 0, two
    assert (tmp_path / "two.onnx").read_bytes() == (tmp_path / "typed.onnx").read_bytes()


def test_no_typed_model_without_an_answer(search, tmp_path):
    outcome = search("--save-onnx", "typed.onnx", "--lower", "Add", "Sub")
    assert outcome.code == 1 and "--save-onnx typed.onnx: not written" in outcome.text, outcome
    assert not (tmp_path / "typed.onnx").exists() and (tmp_path / "needs_constraints.fp16.answer.json").exists()


def test_a_typed_model_never_replaces_the_model(search, tmp_path):
    before = (tmp_path / "needs_constraints.onnx").read_bytes()
    outcome = search("--save-onnx", "needs_constraints.onnx")
    assert outcome.code == 1 and "expected another file than the model" in outcome.text, outcome
    assert (tmp_path / "needs_constraints.onnx").read_bytes() == before
    assert not (tmp_path / "needs_constraints.fp16.answer.json").exists()


def test_a_reason_counts_the_values_that_it_speaks_of(run, tmp_path):
    """The first product overflows in float16 alone, whose operands are rounded up; the second one lies beyond it."""
    nodes = [helper.make_node("Mul", ["x", "k"], ["large"], name="grow"), helper.make_node("Mul", ["large", "small"], ["y"], name="shrink")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(np.float32(v), name) for name, v in (("k", 255.74), ("small", 1e-3))]
    graph = helper.make_graph(nodes, "counts", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    (tmp_path / "i.json").write_text(json.dumps([{"x": encode_array(np.array([256.13, 300], np.float32))}]))
    outcome = run("precision", "search", "m.onnx", "--fp16", "--fusion", "none", "--load-inputs", "i.json", "--rtol", "1e-2", "--atol", "0",
                  "--no-repair", "--no-hold-out", "--no-journal", "--save-answer", "a.json")
    assert outcome.code == 0, outcome
    reason = json.loads((tmp_path / "a.json").read_text())["layers"][0]["reason"]
    assert reason["text"].startswith(f"overflow: {reason['count']} of {reason['total']} values of 'large' lie beyond fp16"), reason
