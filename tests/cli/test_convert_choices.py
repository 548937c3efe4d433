"""`ulpscope convert` of chosen precisions: answers of searches, engines, sets that are relaxed."""
import json

import numpy as np
import onnx
import pytest
from onnx import helper

from cli_support import ROOT, encode_array, needs_constraints
from convert_support import assert_converted, casts, info, model, save, shared_initializer, values
from search_support import answers


def test_what_is_kept_is_not_lowered(run, tmp_path):
    save(tmp_path, needs_constraints())
    products = [node.name for node in needs_constraints().graph.node if node.op_type == "MatMul"]
    outcome = run("convert", "m.onnx", "--fp16", "--lower", "MatMul", "--keep", products[0], "-o", "t.onnx")
    assert_converted(outcome)
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "t.onnx").metadata_props}
    kept = metadata["ulpscope.kept_in_fp32"].split("\n")
    assert len(products) > 1 and products[0] in kept and not set(products[1:]) & set(kept)


def test_lists_of_other_tools(run, tmp_path):
    """They name every node or operator: layers without a precision are a warning, what names nothing is an error."""
    nodes = [
        helper.make_node("Constant", [], ["two"], name="two", value_float=2.0),
        helper.make_node("Mul", ["x", "two"], ["m"], name="mul"),
        helper.make_node("Shape", ["m"], ["shape"], name="shape"),
        helper.make_node("Reshape", ["m", "shape"], ["r"], name="reshape"),
        helper.make_node("Exp", ["r"], ["y"], name="exp"),
    ]
    save(tmp_path, model(nodes, [info("x", [3, 4])], [info("y", [3, 4])]))
    outcome = run("convert", "m.onnx", "--fp16", "--keep", "exp", "shape", "two", "Reshape", "s?ape", "-o", "t.onnx")
    assert_converted(outcome)
    assert (
        "--keep: 4 name(s) have no effect: layers that have no float arithmetic, or only move values, have no "
        "precision of their own: shape, two, Reshape, s?ape"
    ) in outcome.text, outcome
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "t.onnx").metadata_props}
    assert metadata["ulpscope.kept_in_fp32"].split("\n") == ["exp"]
    assert_converted(run("convert", "m.onnx", "--fp16", "--lower", "mul", "reshape", "-o", "t.onnx"))
    unknown = run("convert", "m.onnx", "--fp16", "--keep", "shape", "exb", "-o", "u.onnx")
    assert unknown.code == 1 and "--keep 'exb'" in unknown.text and "did you mean 'exp'" in unknown.text, unknown
    nothing = run("convert", "m.onnx", "--fp16", "--lower", "reshape", "-o", "u.onnx")
    assert nothing.code == 1 and "expected layers to lower, got none" in nothing.text, nothing
    searched = run(
        "precision", "search", "m.onnx", "--fp16", "--keep", "shape", "exp", "--metric", "rel-l2", "--threshold",
        "0.1", "--objective", "smallest", "--no-journal", "--save-answer", "a.json",
    )  # fmt: skip
    assert searched.code == 0 and "--keep: 1 name(s) have no effect" in searched.text, searched


def test_the_answer_of_a_search(run, tmp_path):
    save(tmp_path, needs_constraints())
    found = run("precision", "search", "m.onnx", "--fp16", "--objective", "smallest", "--val-range", "x:[1,2]", "--iterations", "4",
                "--atol", "1e-5", "--rtol", "1e-5", "--save-answer", "a.json", "--no-journal")
    assert found.code == 0, found
    kept = [layer["name"] for layer in json.loads((tmp_path / "a.json").read_text())["layers"]]
    assert_converted(run("convert", "m.onnx", "--answer", "a.json", "-o", "t.onnx"))
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "t.onnx").metadata_props}
    assert kept and metadata["ulpscope.kept_in_fp32"].split("\n") == kept
    # What the answer does not hold for is refused; more than it needs may be kept.
    for words, text in ((["--int8"], "--answer and --int8: the answer lowers layers to fp16"),
                        (["--bf16"], "holds for that alone"),
                        (["--layer-precisions", f"{kept[0]}:float16"], "--answer keeps it in float32, but --layer-precisions says float16")):
        refused = run("convert", "m.onnx", "--answer", "a.json", "-o", "v.onnx", *words)
        assert refused.code == 1 and text in refused.text and not (tmp_path / "v.onnx").exists(), refused
    first = needs_constraints().graph.node[0].name
    assert_converted(run("convert", "m.onnx", "--answer", "a.json", "-o", "v.onnx", "--fp16", "--keep", first, *kept))
    # The answer of another model: it is said whose it is.
    save(tmp_path, needs_constraints(n=128), "other.onnx")
    other = run("convert", "other.onnx", "--answer", "a.json", "-o", "u.onnx")
    assert other.code == 1 and "another model: it was found for 'm.onnx'" in other.text, other
    save(tmp_path, shared_initializer(), "third.onnx")
    third = run("convert", "third.onnx", "--answer", "a.json", "-o", "u.onnx")
    assert third.code == 1 and "another model: it was found for 'm.onnx'" in third.text, third
    (tmp_path / "broken.json").write_text("{}")
    assert run("convert", "m.onnx", "--answer", "broken.json", "-o", "u.onnx").code == 1
    assert not (tmp_path / "u.onnx").exists()


def test_answers_of_other_external_weights_are_refused(run, tmp_path):
    whole = needs_constraints()
    onnx.save(whole, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=16)
    search = ["precision", "search", "m.onnx", "--fp16", "--objective", "smallest", "--val-range", "x:[1,2]", "--iterations", "4",
              "--atol", "1e-5", "--rtol", "1e-5", "--save-answer", "a.json", "--no-journal"]
    assert run(*search).code == 0
    answer = json.loads((tmp_path / "a.json").read_text())
    uses = (["convert", "m.onnx", "--answer", "a.json", "-o", "t.onnx"], ["run", "m.onnx", "--answer", "a.json", "--val-range", "x:[1,2]"],
            ["verify", "m.onnx", "--answer", "a.json", "--val-range", "x:[1,2]"])
    for words in uses:
        assert run(*words).code == 0, words
    content = bytearray((tmp_path / "weights.bin").read_bytes())
    content[-5] ^= 1  # one bit of one weight
    (tmp_path / "weights.bin").write_bytes(content)
    for words in uses:
        refused = run(*words)
        assert refused.code in (1, 4) and "the external weights of 'm.onnx' are not those that it was found for" in refused.text, refused
    # Answers of earlier releases say nothing about them.
    del answer["model"]["external_data_hash"]
    (tmp_path / "a.json").write_text(json.dumps(answer))
    assert run(*uses[1]).code == 0


def between_kept_layers():
    """Layers that cost little between two products, and a product of its own."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="first"), helper.make_node("Add", ["a", "b"], ["s"], name="bias"),
             helper.make_node("Sigmoid", ["s"], ["g"], name="gate"), helper.make_node("MatMul", ["g", "w"], ["c"], name="second"),
             helper.make_node("MatMul", ["c", "w"], ["y"], name="third")]
    return model(nodes, [info("x", [512, 512])], [info("y", [512, 512])], [values("w", 512, 512), values("b", 512)])


KEPT = ["--keep", "first", "second"]
RELAX = ["--relax", "--target", "rates.json"]


@pytest.fixture(autouse=True)
def rates(tmp_path):
    """Orin's, without models of kernels: its float32 is slow enough for the last product."""
    orin = json.loads((ROOT / "data" / "targets" / "orin.json").read_text())
    (tmp_path / "rates.json").write_text(json.dumps({key: value for key, value in orin.items() if key != "kernels"}))


def test_neighbors_are_raised_where_that_saves_casts(run, tmp_path):
    save(tmp_path, between_kept_layers())
    plain = run("convert", "m.onnx", "--fp16", *KEPT, "-o", "plain.onnx")
    assert_converted(plain)
    relaxed = run("convert", "m.onnx", "--fp16", *KEPT, "-o", "t.onnx", *RELAX, "--metric", "rel-l2", "--threshold", "0.01")
    assert_converted(relaxed)
    assert (
        "2 layers raised to float32" in relaxed.text
        and "bias, gate" in relaxed.text
        and "of the tolerance is used" in relaxed.text
    ), relaxed
    assert casts(tmp_path / "t.onnx") == casts(tmp_path / "plain.onnx") - 2
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "t.onnx").metadata_props}
    assert metadata["ulpscope.raised_to_save_time"] == "bias\ngate" and metadata["ulpscope.precisions"] == "1 fp16, 4 fp32"
    # A type that was asked for stays.
    asked = run("convert", "m.onnx", "--fp16", *KEPT, "--layer-precisions", "bias:float16", "-o", "u.onnx", *RELAX, "--rtol", "0.1")
    assert_converted(asked)
    assert "bias" not in {p.key: p.value for p in onnx.load(tmp_path / "u.onnx").metadata_props}.get("ulpscope.raised_to_save_time", "")


def test_what_is_raised_has_to_meet_the_tolerance(run, tmp_path):
    save(tmp_path, between_kept_layers())
    outcome = run("convert", "m.onnx", "--fp16", *KEPT, "-o", "t.onnx", *RELAX, "--metric", "rel-l2", "--threshold", "1e-9")
    assert_converted(outcome)
    assert "they stay as they are" in outcome.text, outcome
    assert "ulpscope.raised_to_save_time" not in {p.key for p in onnx.load(tmp_path / "t.onnx").metadata_props}


def test_relaxing_an_answer(run, tmp_path):
    save(tmp_path, between_kept_layers())
    assert run("run", "m.onnx", "--trt", "--iterations", "4", "--save-inputs", "i.json", "--save-outputs", "g.json").code == 0
    found = run(
        "precision",
        "search",
        "m.onnx",
        "--fp16",
        "--objective",
        "smallest",
        "--target",
        "rates.json",
        *KEPT,
        "--load-inputs",
        "i.json",
        "--golden",
        "g.json",
        "--metric",
        "rel-l2",
        "--threshold",
        "0.05",
        "--save-answer",
        "a.json",
        "--no-journal",
        "--no-hold-out",
    )
    assert found.code == 0, found
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["criterion_options"] == ["--metric", "rel-l2", "--threshold", "0.05"]
    assert answer["inputs"] == ["i.json"] and answer["golden"] == "g.json"
    outcome = run("convert", "m.onnx", "--answer", "a.json", *RELAX, "-o", "t.onnx", "--save-answer", "b.json")
    assert_converted(outcome)
    assert "rel-l2 <= 0.05, 4 samples" in outcome.text and "Loading golden results from g.json" in outcome.text, outcome
    relaxed = json.loads((tmp_path / "b.json").read_text())
    assert [layer["name"] for layer in relaxed["layers"]] == ["first", "second", "bias", "gate"]
    assert "raised by convert" in relaxed["layers"][2]["reason"]["text"]
    assert relaxed["message"] == "4 layers are kept, 2 of them since that saves time"
    assert relaxed["time_us"]["answer"] < answer["time_us"]["answer"]
    assert relaxed["search"]["samples"] == 4 and relaxed["held_out"] is None and abs(relaxed["cost_share"] - 2 / 3) < 1e-6
    # The new answer says the same without the option, to run as well.
    assert_converted(run("convert", "m.onnx", "--answer", "b.json", "-o", "u.onnx"))
    typed = [onnx.load(tmp_path / name).graph for name in ("t.onnx", "u.onnx")]
    assert typed[0] == typed[1]
    weak = run("run", "m.onnx", *relaxed["run_options"], "--load-inputs", "i.json", "--save-outputs", "weak.json")
    assert weak.code == 0, weak
    strong = run("run", "t.onnx", "--trt", "--strongly-typed", "--load-inputs", "i.json", "--load-outputs", "weak.json", "--atol", "0", "--rtol", "0")
    assert strong.code == 0, strong
    # An answer of an earlier release.
    del answer["criterion_options"]
    (tmp_path / "old.json").write_text(json.dumps(answer))
    old = run("convert", "m.onnx", "--answer", "old.json", *RELAX, "-o", "v.onnx")
    assert old.code == 1 and "does not say its tolerance (rel-l2 <= 0.05) as options" in old.text, old


def test_an_engine(run, tmp_path):
    save(tmp_path, needs_constraints())
    assert run("convert", "m.onnx", "--fp16", "--keep", "Add", "-o", "m.plan").code == 0
    assert run("run", "m.plan", "--trt").code == 0


def dynamic_pooling():
    """Does not work with 1 for each dynamic dimension."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="conv"), helper.make_node("MaxPool", ["a"], ["b"], name="pool", kernel_shape=[2, 2]),
             helper.make_node("GlobalAveragePool", ["b"], ["y"], name="mean")]
    return model(nodes, [info("x", ["n", 3, "h", "w"])], [info("y", ["n", 4, 1, 1])], [values("w", 4, 3, 1, 1)])


def save_inputs(tmp_path, shape, count=2):
    iterations = [{"x": encode_array(np.random.RandomState(i).rand(*shape).astype(np.float32))} for i in range(count)]
    (tmp_path / "i.json").write_text(json.dumps(iterations))


def test_an_engine_knows_the_shapes_that_it_was_built_for(run, tmp_path):
    save(tmp_path, dynamic_pooling())
    save_inputs(tmp_path, (1, 3, 6, 8))
    made = run("convert", "m.onnx", "--fp16", "--load-inputs", "i.json", "-o", "m.plan")
    assert made.code == 0, made
    shown = run("inspect", "model", "m.plan")
    assert shown.code == 0 and "estimated on the target" in shown.text, shown
    assert run("run", "m.plan", "--trt", "--load-inputs", "i.json").code == 0
    for words in (["--save-exclusions", "e.json"], ["--print-commands"]):
        refused = run("convert", "m.onnx", "--fp16", "--load-inputs", "i.json", "-o", "n.plan", *words)
        assert refused.code == 1 and "expected a typed model to write, got an engine" in refused.text, refused
    assert not (tmp_path / "n.plan").exists()


def test_an_engine_has_the_io_types_asked_for(run, tmp_path):
    save(tmp_path, needs_constraints())
    assert run("convert", "m.onnx", "--fp16", "--io-types", "x:float16", "-o", "m.plan").code == 0
    assert "x [dtype=float16" in run("inspect", "model", "m.plan").text
    refused = run("convert", "m.onnx", "--fp16", "--io-types", "xx:float16", "-o", "n.plan")
    assert refused.code == 1 and "expected an input or output of the network, got 'xx'; did you mean 'x'" in refused.text, refused
    refused = run("convert", "m.onnx", "--fp16", "--io-types", "x:int8", "-o", "n.plan")
    assert refused.code == 1 and "expected a change between float32" in refused.text, refused


def test_the_set_of_a_trial(run, tmp_path):
    save(tmp_path, needs_constraints())
    found = run("precision", "search", "m.onnx", "--fp16", "--objective", "smallest", "--val-range", "x:[1,2]", "--iterations", "4", "--fusion", "none",
                "--atol", "1e-3", "--rtol", "1e-2", "--save-answer", "a.json", "--no-journal")
    assert found.code == 0, found
    answer = json.loads((tmp_path / "a.json").read_text())
    nodes = needs_constraints().graph.node
    trials = [{name for name, _ in each["raised"]} for each in answers.expand_trials(answer["trials"], answer["names"])]
    some = [number for number, names in enumerate(trials) if len(names) < len(nodes)]  # Of all it would write no typed model.
    for number in some[:2] + some[-1:]:
        converted = run("convert", "m.onnx", "--answer", "a.json", "--trial", number, "-o", "t.onnx", "--no-verify")
        assert converted.code == 0, converted
        metadata = {p.key: p.value for p in onnx.load(tmp_path / "t.onnx").metadata_props}
        assert set(metadata.get("ulpscope.kept_in_fp32", "").split("\n")) - {""} == trials[number]
    for words, text in ((["--trial", str(len(trials))], f"expected a number below {len(trials)}, got {len(trials)}"), (["--trial", "-1"], "0 or more, got -1"),
                        (["--trial", "0", "--objective", "smallest"], "expected no --objective")):
        for tool in (["convert", "m.onnx", "-o", "v.onnx"], ["verify", "m.onnx"]):
            refused = run(*tool, "--answer", "a.json", *words)
            assert refused.code in (1, 4) and text in refused.text and not (tmp_path / "v.onnx").exists(), refused
    refused = run("convert", "m.onnx", "--fp16", "--trial", "0", "-o", "v.onnx")
    assert refused.code == 1 and "--trial: expected --answer" in refused.text, refused


def test_an_answer_brings_its_inputs(run, tmp_path):
    save(tmp_path, dynamic_pooling())
    save_inputs(tmp_path, (1, 3, 6, 8))
    found = run("precision", "search", "m.onnx", "--fp16", "--load-inputs", "i.json", "--metric", "rel-l2", "--threshold", "0.9",
                "--objective", "smallest", "--save-answer", "a.json", "--no-journal", "--no-hold-out")
    assert found.code == 0, found
    converted = run("convert", "m.onnx", "--answer", "a.json", "-o", "t.onnx")
    assert_converted(converted)
    assert "Loading input data from i.json" in converted.text, converted
    (tmp_path / "i.json").unlink()
    outcome = run("convert", "m.onnx", "--answer", "a.json", "-o", "u.onnx", "--input-shapes", "x:[1,3,6,8]")
    assert_converted(outcome)
    missing = run("convert", "m.onnx", "--answer", "a.json", "-o", "v.onnx")
    # Shapes of its own are found for the windows.
    assert missing.code == 0 and "'i.json', which the search read inputs from, is not there" in missing.text, missing


def test_a_search_that_keeps_every_layer_writes_no_typed_model(run, tmp_path):
    save(tmp_path, dynamic_pooling())
    save_inputs(tmp_path, (1, 3, 6, 8))
    found = run("precision", "search", "m.onnx", "--fp16", "--load-inputs", "i.json", "--metric", "rel-l2", "--threshold", "1e-12",
                "--objective", "smallest", "--save-onnx", "t.onnx", "--save-answer", "a.json", "--no-journal", "--no-hold-out")
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["verdict"] == "found" and len(answer["layers"]) == answer["candidates"]
    assert found.code == 0 and "every layer is kept" in found.text, found
    assert not (tmp_path / "t.onnx").exists()


def test_the_script_leaves_out_formats_of_typed_models(run, tmp_path):
    """TensorRT's Python has no names for them, and weakly typed networks no flags."""
    edges = enumerate(("xa", "ab", "by"))
    nodes = [helper.make_node("MatMul", [a, f"w{i}"], [b], name=f"p{i}") for i, (a, b) in edges]
    weights = [values(f"w{i}", 64, 64) for i in range(3)]
    save(tmp_path, model(nodes, [info("x", [32, 64])], [info("y", [32, 64])], weights))
    formats = ["--mxfp8", "--nvfp4", "--fp8", "--fp16", "--layer-precisions", "p0:mxfp8", "p1:fp8", "p2:nvfp4"]
    outcome = run("convert", "m.onnx", *formats, "-o", "t.onnx", "--save-postprocess-script", "p.py")
    assert outcome.code == 0 and "The script leaves out 2 layer(s) ('p0' in mxfp8, ...)" in outcome.out, outcome
    script = (tmp_path / "p.py").read_text()
    assert "run MODEL --trt --fp16 --fp8 --precision-constraints" in script
    assert '#   "p0": mxfp8\n#   "p2": nvfp4\nPRECISIONS = {\n    "p1": trt.fp8,\n}' in script
    words = ["--trt", "--fp8", "--precision-constraints", "obey", "--trt-npps", "p.py", "-v"]
    with_script = run("run", "m.onnx", *words)
    assert with_script.code == 0 and "p1 [MatMul] | fp8" in with_script.out, with_script


def test_the_script_has_the_types_of_an_int8_choice(run, tmp_path):
    save(tmp_path, between_kept_layers())
    outcome = run("convert", "m.onnx", "--int8", "--fp16", "--layer-precisions", "second:float16", "--keep", "gate", "-o", "t.onnx",
                  "--calibration-cache", "c", "--save-postprocess-script", "p.py")
    assert_converted(outcome)
    script = (tmp_path / "p.py").read_text()
    assert '"second": trt.float16,' in script and '"gate": trt.float32,' in script and '"first"' not in script
    assert "--trt --fp16 --int8 --calibration-cache" in script
    with_script = run("run", "m.onnx", "--trt", "--fp16", "--int8", "--calibration-cache", "c", "--assume-lowest",
                      "--precision-constraints", "obey", "--trt-npps", "p.py", "-v")
    assert with_script.code == 0, with_script
    lines = {name: line for line in with_script.out.splitlines() for name in ("first", "second", "gate") if f"{name} [" in line}
    assert "| fp16" in lines["second"] and "| fp32" in lines["gate"] and "| int8" in lines["first"], lines
