"""`target measure`, --target FILE and --target measured, by what they choose and say: no test looks at a time that was measured."""
import itertools
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import ROOT
from search_support import answer_of, comparable, save_inputs

WIDTHS = (32, 48, 24, 40)  # Three products of different shapes: three kernels.
BANDWIDTH, LAUNCH, SHARE = 200.0, 0.25, 0.75
SEARCH = ["--fp16", "--fusion", "none", "--metric", "rel-l2", "--threshold", "0.5", "--margin", "1", "--no-repair", "--no-hold-out"]


@pytest.fixture
def chain(tmp_path):
    random = np.random.default_rng(3)
    nodes, weights = [], []
    for i, (a, b) in enumerate(itertools.pairwise(WIDTHS)):
        nodes.append(helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"], f"P{i}"))
        weights.append(numpy_helper.from_array((random.normal(size=(a, b)) / a).astype(np.float32), f"w{i}"))
    last = len(WIDTHS) - 1
    infos = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, [1, WIDTHS[i]]) for i in (0, last)]
    graph = helper.make_graph(nodes, "chain", infos[:1], infos[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    save_inputs(tmp_path / "in.json", [{"v0": random.normal(size=(1, WIDTHS[0])).astype(np.float32)} for _ in range(3)])
    return tmp_path


def measured(run, folder, *words):
    outcome = run("target", "measure", "m.onnx", "--load-inputs", "in.json", "--fusion", "none", "-o", "t.json", "--threads", "1", *words)
    assert outcome.code == 0, outcome
    return json.loads((folder / "t.json").read_text())


def with_times(target, times):
    """The file with these times: {precision: microseconds} per product."""
    groups = []
    for i, (a, b) in enumerate(itertools.pairwise(WIDTHS)):
        found = [group for group in target["groups"] if f"[1x{a}]" in group["kernel"] and f"[{a}x{b}]" in group["kernel"]]
        assert len(found) == 1 and {"fp32", "fp16"} <= set(found[0]["us"]), target["groups"]
        groups.append({"kernel": found[0]["kernel"], "us": times[i]})
    return {**target, "bandwidth_gb_per_s": BANDWIDTH, "launch_us": LAUNCH, "cast_share": SHARE, "product_cast_share": SHARE, "weight_us_per_mb": 0, "groups": groups}


def by_hand(times, high):
    """Products in float32 where `high` says so: their times, and a cast of every value that is read in the other type."""
    total = sum(times[i]["fp32" if each else "fp16"] for i, each in enumerate(high))
    written = [True, *high]  # The input is float32,
    read = [*high, True]     # and so is the output.
    for i, width in enumerate(WIDTHS):
        if written[i] != read[i]:
            total += SHARE * (LAUNCH + width * 6 / (BANDWIDTH * 1e3))
    return total


def search(run, *words):
    return run("precision", "search", "m.onnx", "--load-inputs", "in.json", *SEARCH, "--save-answer", "a.json", "--no-journal", *words)


@pytest.mark.parametrize("seed", range(6))
def test_the_fastest_set_is_that_of_the_times_in_the_file(seed, run, chain):
    random = np.random.default_rng(seed)
    times = [{p: round(float(random.uniform(1, 9)), 3) for p in ("fp32", "fp16")} for _ in range(3)]
    times[0].update(fp32=2.0, fp16=12.0)  # Slower in fp16,
    times[1].update(fp32=14.0, fp16=3.0)  # and faster.
    (chain / "t.json").write_text(json.dumps(with_times(measured(run, chain), times)))
    outcome = search(run, "--target", "t.json")
    assert outcome.code == 0, outcome
    answer = answer_of(chain, "a.json")
    costs = {high: by_hand(times, high) for high in itertools.product((False, True), repeat=3)}
    best = min(costs, key=costs.get)
    kept = {layer["name"] for layer in answer["layers"]}
    assert kept == {f"P{i}" for i in range(3) if best[i]} and kept >= {"P0"} and "P1" not in kept
    assert answer["time_us"]["answer"] == pytest.approx(costs[best], rel=1e-9)
    assert answer["time_us"]["lowest"] == pytest.approx(costs[False, False, False], rel=1e-9)
    assert answer["time_us"]["highest"] == pytest.approx(costs[True, True, True], rel=1e-9)
    for trial in answer["trials"]:
        high = tuple([f"P{i}", "fp32"] in [list(pair) for pair in trial["raised"]] for i in range(3))
        assert trial["time_us"] == pytest.approx(costs[high], rel=1e-5), trial  # Kept to 6 digits.
    assert answer["target"] == "t.json" and answer["target_hash"].startswith("xxh3:")
    first = comparable(answer)
    assert search(run, "--target", "t.json").code == 0
    assert comparable(answer_of(chain, "a.json")) == first


def test_times_choose_and_change_no_bit(run, chain):
    target = measured(run, chain)
    for name, slow, fast in (("low", 1.0, 9.0), ("high", 9.0, 1.0)):
        times = [{"fp16": slow, "fp32": fast}] * 3
        (chain / f"{name}.json").write_text(json.dumps(with_times(target, times)))
        words = ["run", "m.onnx", "--trt", "--fp16", "--fusion", "none", "--load-inputs", "in.json", "--target", f"{name}.json"]
        assert run(*words, "--save-outputs", f"{name}.out.json").code == 0
        asked = ["--precision-constraints", "obey", "--layer-precisions", "P0:float16", "P1:float32", "P2:float16"]
        assert run(*words, *asked, "--save-outputs", f"{name}.asked.json").code == 0
        engine = json.loads(run("inspect", "model", "m.onnx", "--fp16", "--fusion", "none", "--target", f"{name}.json", "--json",
                                "--display-as", "trt").out)
        engine = engine.get("engine", engine)
        assert {layer["precision"] for layer in engine["layers"] if layer["op"] == "MatMul"} == {"fp16" if name == "low" else "fp32"}
        assert [layer["microseconds"] for layer in engine["layers"] if layer["op"] == "MatMul"] == [1.0] * 3
    equal = json.loads(run("inspect", "diff", "low.asked.json", "high.asked.json", "--json").out)
    assert equal["equal"], equal


def test_other_figures_are_another_search(run, chain):
    target = measured(run, chain)
    times = [{"fp16": 1.0, "fp32": 2.0}] * 3
    (chain / "t.json").write_text(json.dumps(with_times(target, times)))
    words = ["precision", "search", "m.onnx", "--load-inputs", "in.json", *SEARCH, "--save-answer", "a.json", "--target", "t.json"]
    assert run(*words).code == 0
    first = answer_of(chain, "a.json")
    assert run(*words, "--continue").code == 0
    times[1] = {"fp16": 1.5, "fp32": 2.0}
    (chain / "t.json").write_text(json.dumps(with_times(target, times)))
    refused = run(*words, "--continue")
    assert refused.code == 1 and "figures of --target" in refused.text, refused
    assert run(*words).code == 0
    assert answer_of(chain, "a.json")["target_hash"] != first["target_hash"]


def test_measured_before_the_search(run, chain):
    outcome = search(run, "--target", "measured")
    assert outcome.code in (0, 1), outcome
    assert "--target measured: measuring this machine and the groups of the model on --backend cpu" in outcome.text
    answer = answer_of(chain, "a.json")
    assert answer["target"] == "a.target.json" and "a.target.json" in answer["run_options"]
    target = json.loads((chain / "a.target.json").read_text())
    assert target["measured"]["backend"] == "cpu" and target["groups"]
    # The saved file gives the same answer, and nothing is measured.
    again = search(run, "--target", "a.target.json")
    assert again.code == outcome.code and "Measuring" not in again.text
    assert comparable(answer_of(chain, "a.json")) == comparable(answer)
    dry = run("precision", "search", "m.onnx", "--load-inputs", "in.json", *SEARCH, "--target", "measured", "--dry-run")
    assert dry.code == 0 and "nothing is measured in a dry run" in dry.text, dry
    elsewhere = run("run", "m.onnx", "--trt", "--fp16", "--target", "measured")
    assert elsewhere.code == 1 and "ulpscope target measure -o FILE.json" in elsewhere.text, elsewhere


def test_groups_that_the_file_does_not_have(run, chain):
    target = measured(run, chain)
    target["groups"] = [{"kernel": "MatMul($0[7x7], w[7x7]) %0[7x7]", "us": {"fp32": 1.0}}]
    (chain / "t.json").write_text(json.dumps(target))
    outcome = search(run, "--target", "t.json")
    assert outcome.text.count("measured times of 0 of 6 groups") == 1 and "ulpscope target measure" in outcome.text, outcome
    target["groups"] = []
    (chain / "t.json").write_text(json.dumps(target))
    assert "measured times of" not in search(run, "--target", "t.json").text


def test_another_device(run, chain):
    target = measured(run, chain)
    assert "was measured on" not in search(run, "--target", "t.json").text
    target["measured"]["device"] = "Abacus 9"
    (chain / "t.json").write_text(json.dumps(target))
    assert "was measured on 'Abacus 9'" in search(run, "--target", "t.json").text
    target["measured"]["backend"] = "cuda"  # Times of a GPU are what one looks for on a machine without one.
    (chain / "t.json").write_text(json.dumps(target))
    assert "was measured on" not in search(run, "--target", "t.json").text


GOOD = {"format": "ulpscope-target", "version": 1, "name": "mine", "tflops": {"fp32": 1.0, "fp16": 2.0}, "bandwidth_gb_per_s": 100, "launch_us": 1}
FITTED = {"networks": 30, "median_error": 0.1, "large_error": 0.2}
ADD = 'expected "format": "ulpscope-target", "version": 1; try adding these'


@pytest.mark.parametrize(
    "change, words",
    [
        ({"bandwidth_gb_per_s": None}, 'expected the key "bandwidth_gb_per_s"'),
        ({"launch_us": None}, 'expected the key "launch_us"'),
        ({"name": None}, 'expected the key "name"'),
        ({"tflops": None}, 'expected the key "tflops"'),
        ({"tflops": {"fp16": 1}}, "expected a rate of fp32"),
        (
            {"tflops": {"fp32": 1, "fp16": 0}},
            "tflops.fp16: expected a number above 0 (leave out what the device does not have), got 0",
        ),
        ({"tflops": {"fp32": 1, "fp17": 1}}, "tflops.fp17: expected fp32"),
        ({"tflops": {"fp32": "fast"}}, "tflops.fp32: expected a number, got 'fast'"),
        ({"bandwidth_gb_per_s": -3}, "bandwidth_gb_per_s: expected a number above 0, got -3"),
        ({"bandwidth_gb_per_s": 0}, "bandwidth_gb_per_s: expected a number above 0, got 0"),
        ({"cast_share": -1}, "cast_share: expected a number of 0 or more, got -1"),
        ({"product_cast_share": "much"}, "product_cast_share: expected a number, got 'much'"),
        ({"launch_us": -1}, "launch_us: expected a number of 0 or more, got -1"),
        ({"format": "ulpscope-answer"}, 'format: expected "ulpscope-target"'),
        ({"format": None}, ADD),
        ({"version": None}, ADD),
        ({"version": 2}, "version: expected 1; try measuring again"),
        ({"groups": {}}, "groups: expected a list"),
        ({"groups": [{"kernel": "Relu"}]}, 'groups[0]: expected the key "us"'),
        (
            {"groups": [{"kernel": "Relu", "us": {"fp16": -1}}]},
            "groups[0].us.fp16: expected a number of 0 or more, got -1",
        ),
        ({"measured": {"backend": "cpu"}}, 'measured: expected the key "program"'),
        ({"processors": -1}, "processors: expected a number of processors, got -1"),
        ({"processors": 1.5}, "processors: expected a whole number, got 1.5"),
        ({"kernels": []}, "kernels: expected an object, got a list"),
        ({"kernels": {"of": "h1000"}}, "h1000"),
        ({"kernels": {"of": "t.json"}}, "[target] 't.json': has no measured kernels that 'mine' could take"),
        ({"kernels": {**FITTED, "us": {}}}, "kernels.us: expected a list"),
        ({"kernels": {"networks": 1, "median_error": 0.1, "us": []}}, 'expected the key "large_error"'),
        (
            {"kernels": {**FITTED, "us": [{"kind": "producer", "precision": "fp32"}]}},
            "kernels.us[0].kind: expected a kind of kernel, got 'producer'",
        ),
        ({"kernels": {**FITTED, "us": [{"kind": "product", "precision": "fp17"}]}}, "got 'fp17'"),
        (
            {"kernels": {**FITTED, "us": [{"kind": "product", "precision": "fp32", "gop": -1}]}},
            "gop: expected a number of 0 or more, got -1",
        ),
    ],
)
def test_files_that_make_no_sense(change, words, run, chain):
    target = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    (chain / "t.json").write_text(json.dumps(target))
    outcome = search(run, "--target", "t.json")
    assert outcome.code == 1 and words in outcome.text and "t.json" in outcome.text, outcome
    assert not (chain / "a.json").exists()


def test_kernels_of_a_target_in_another_file(run, chain):
    kernels = {**FITTED, "us": [{"kind": "product", "precision": "fp32", "call": 3}]}
    (chain / "other.json").write_text(json.dumps({**GOOD, "kernels": kernels}))
    (chain / "t.json").write_text(json.dumps({**GOOD, "launch_us": 0.5, "kernels": {"of": "other.json"}}))
    outcome = search(run, "--target", "t.json")
    assert outcome.code == 0, outcome


SHAPES = ROOT / "bench" / "gpu" / "measured" / "h100.shapes.json"


def some_shapes(folder, count=60):
    """The first times of those that were measured on an H100."""
    shapes = json.loads(SHAPES.read_text())
    shapes["times"] = shapes["times"][:count]
    (folder / "shapes.json").write_text(json.dumps(shapes))
    return shapes


def fit(run, *words):
    return run(
        "target", "measure", "--shapes", "--load-shapes", "shapes.json", "-o", "t.json", "--target", "h100", *words
    )


def test_a_model_of_kernels_from_times_of_another_machine(run, chain):
    some_shapes(chain)
    outcome = fit(run)
    assert outcome.code == 0 and "a model of kernels that was fitted to 60 times" in outcome.text, outcome
    target = json.loads((chain / "t.json").read_text())
    assert target["measured"]["device"] == "NVIDIA H100 80GB HBM3" and target["bandwidth_gb_per_s"] == 3350
    kernels = target["kernels"]
    assert kernels["networks"] == 60 and 0 < kernels["median_error"] < kernels["large_error"]
    assert all({"kind", "precision"} < set(each) for each in kernels["us"])
    calls = next(each for each in kernels["us"] if (each["kind"], each["precision"]) == ("product", "fp32"))
    outcome = search(run, "--target", "t.json")
    assert outcome.code == 0, outcome
    before = answer_of(chain, "a.json")["time_us"]["highest"]
    calls["call"] = calls.get("call", 0) + 100  # Of each of the three products.
    (chain / "t.json").write_text(json.dumps(target))
    assert search(run, "--target", "t.json").code == 0
    assert answer_of(chain, "a.json")["time_us"]["highest"] - before == pytest.approx(300, abs=0.1)


def test_files_of_shapes_that_make_no_sense(run, chain):
    shapes = some_shapes(chain, 10)
    outcome = fit(run)
    assert outcome.code == 1 and "expected times of 20 networks or more, got 10" in outcome.text, outcome
    shapes["times"][3]["us"] = 0
    (chain / "shapes.json").write_text(json.dumps(shapes))
    outcome = fit(run)
    assert outcome.code == 1 and "'shapes.json': times[3].us: expected a number above 0, got 0" in outcome.text, outcome
    (chain / "shapes.json").write_text("{}")
    assert "'shapes.json': expected the key \"format\"" in fit(run).text
    assert not (chain / "t.json").exists()


@pytest.mark.parametrize("target", ["h100", "h200", "l4"])
def test_float16_is_estimated_faster_than_float32_for_a_classifier_of_text(target, run, models, tmp_path):
    """It is on a GPU: 237 us instead of 269 on an H100."""
    outcome = run(
        "precision",
        "search",
        models / "ocr_cls.onnx",
        "--fp16",
        "--load-inputs",
        models / "ocr_cls.search.json",
        "--metric",
        "rel-l2",
        "--threshold",
        "0.5",
        "--no-repair",
        "--no-hold-out",
        "--no-journal",
        "--target",
        target,
        "--save-answer",
        "a.json",
    )
    assert outcome.code == 0, outcome
    times = answer_of(tmp_path, "a.json")["time_us"]
    assert times["lowest"] < times["highest"], times
    assert f"(--target {target})" in outcome.text, outcome
    said = ": those measured on h100, as the rates and processors are to each other" in outcome.text
    assert said == (target == "l4"), outcome


def test_the_default_is_a_card_of_the_middle_and_named_once(run, chain):
    outcome = search(run)
    assert outcome.code == 0 and json.loads((chain / "a.json").read_text())["target"] == "l4", outcome
    assert outcome.text.count("Times are estimated for NVIDIA L4 (--target l4)") == 1, outcome


def test_files_that_people_write(run, chain):
    (chain / "t.json").write_text(json.dumps(GOOD))
    outcome = search(run, "--target", "t.json")
    assert outcome.code == 0 and json.loads((chain / "a.json").read_text())["target"] == "t.json", outcome


def test_files_that_are_no_json(run, chain):
    (chain / "t.json").write_text("{")
    outcome = search(run, "--target", "t.json")
    assert outcome.code == 1 and "'t.json': expected JSON" in outcome.text, outcome
    (chain / "t.json").write_text("[]")
    assert "got a list" in search(run, "--target", "t.json").text
    outcome = search(run, "--target", "none.json")
    assert outcome.code == 1 and "none.json" in outcome.text, outcome


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["m.onnx"], 2, "the following arguments are required: -o/--output"),
        (["m.onnx", "-o", "t.txt"], 1, "expected a file name that ends in .json"),
        (["-o", "t.txt"], 1, "expected a file name that ends in .json"),
        (["-o", "t.json", "--target", "h200"], 2, "argument --target: not allowed"),
        (
            ["-o", "t.json", "--num-shapes", "3"],
            2,
            "arguments --save-shapes, --load-shapes and --num-shapes: expected with --shapes",
        ),
        (["m.onnx", "-o", "t.json", "--shapes"], 2, "argument --shapes: not allowed with MODEL"),
        (["-o", "t.json", "--shapes"], 2, "argument --shapes: expected --backend cuda"),
        (["-o", "t.json", "--shapes", "--load-shapes", "s.json"], 2, "argument --load-shapes: expected --target"),
        (
            ["-o", "t.json", "--shapes", "--load-shapes", "s.json", "--save-shapes", "s.json"],
            2,
            "argument --save-shapes: not allowed",
        ),
        (["-o", "t.json", "--shapes", "--load-shapes", "none.json", "--target", "h100"], 1, "none.json"),
        (["-o", "t.json", "--load-inputs", "in.json"], 2, "argument --load-inputs: not allowed without MODEL"),
        (["-o", "t.json", "--threads", "-1"], 1, "--threads"),
        (["none.onnx", "-o", "t.json"], 1, "none.onnx"),
    ],
)
def test_command_lines_that_do_not_fit(words, code, message, run, chain):
    outcome = run("target", "measure", *words)
    assert outcome.code == code and message in outcome.text, outcome
    assert not (chain / "t.json").exists()
