"""`ulpscope report`: the text and the data of pages of real and synthetic answers, and mistakes."""
import json
import pathlib
import re
from html.parser import HTMLParser

import numpy as np
import onnx
import onnx.reference
import pytest

from cli_support import ROOT, encode_array
from report_support import data_of, large_answer
from search_support import answer_of, answers, version_1

BASE = ["--fp16", "--fusion", "none", "--atol", "1e-3", "--rtol", "1e-2"]


@pytest.fixture
def search(run, model, tmp_path):
    """The answer of a search, as the name of its file."""
    iterations = [{"x": np.random.default_rng(i).uniform(1, 2, (1, 1, 256, 256)).astype(np.float32)} for i in range(4)]
    (tmp_path / "in.json").write_text(json.dumps([{name: encode_array(a) for name, a in each.items()} for each in iterations]))

    def call(*words, base=BASE):
        outcome = run("precision", "search", model, "--objective", "smallest", "--load-inputs", "in.json", *base, "--save-answer", "a.answer.json", *words)
        assert (tmp_path / "a.answer.json").exists(), outcome
        return "a.answer.json"

    return call


class Text(HTMLParser):
    """What people read."""

    def __init__(self, page):
        super().__init__()
        self.parts, self.hidden = [], 0
        self.feed(page.replace("<wbr>", ""))
        self.text = re.sub(r"\s+", " ", " ".join(self.parts))

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data)


def trials_of_answer(answer):
    return [{**trial, "raised": list(trial["raised"])} for trial in answers.expand_trials(answer["trials"], answer["names"])]


def write_report(run, tmp_path, answer, *words):
    outcome = run("report", answer, "-o", "report.html", *words)
    assert outcome.code == 0, outcome
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    return page, Text(page).text


def test_page_of_a_search(run, search, model, tmp_path):
    answer = answer_of(tmp_path, search())
    for layer in answer["layers"]:
        exponents = layer["reason"]["exponents"]
        assert layer["reason"]["low"] == "fp16"
        assert exponents["counts"][0] > 0 and exponents["counts"][-1] > 0
        # What is added to 65504, and the sums, up to 65506.
        assert exponents["first"] + len(exponents["counts"]) - 1 == 15
    assert sum(answer["layers"][1]["reason"]["exponents"]["counts"]) == answer["layers"][1]["reason"]["total"] == 3 * 65536

    page, text = write_report(run, tmp_path, "a.answer.json")
    assert answer["message"] in text and "Found" in text
    assert "ulpscope run " in text and "--answer a.answer.json" in text
    assert "Objective smallest" in text
    data = data_of(page)
    assert data["trial_command"] == f"ulpscope convert {model} --answer a.answer.json -o needs_constraints.trial.onnx --trial"
    assert data["answers"][0]["answer"]["layers"] == answer["layers"]
    # Nothing is fetched: no address in an attribute, no imported style.
    assert not re.search(r"<[^>]*\b(?:src|href)=|@import|url\((?!#)|https?://(?!www.w3.org/2000/svg)", page)


def test_every_precision_has_a_color_in_light_and_dark(run, search, tmp_path):
    page, _ = write_report(run, tmp_path, search())
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in page.split("@media screen", 1))
    names = [each["name"] for each in data_of(page)["precisions"]]
    assert {"fp8", "nvfp4", "mxfp8", "int4", "int4-64", "nvfp4-weights"} <= {*names}
    for colors in (light, dark):
        assert len({colors[name] for name in names}) == len(names)
    for name in names:
        assert f".{name} {{ background: var(--{name}); fill: var(--{name}); }}" in page


def test_the_network_of_an_answer(run, tmp_path):
    """Layers, edges and magnitudes as ONNX's own reference evaluator has them."""
    rng = np.random.default_rng(5)
    weights = {"w": rng.normal(size=(8, 8)).astype(np.float32), "shape": np.array([4, 8], np.int64)}
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["m"], name="product"), onnx.helper.make_node("Relu", ["m"], ["r"], name="relu"),
             onnx.helper.make_node("Reshape", ["r", "shape"], ["s"], name="reshape"), onnx.helper.make_node("Add", ["s", "m"], ["a"], name="add"),
             onnx.helper.make_node("Exp", ["a"], ["e"], name="exp"), onnx.helper.make_node("Mul", ["e", "s"], ["y"], name="mul")]
    value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 8])  # noqa: E731
    graph = onnx.helper.make_graph(nodes, "g", [value("x")], [value("y")], [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()])
    network = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(network, tmp_path / "net.onnx")
    samples = [{"x": rng.normal(size=(4, 8)).astype(np.float32)} for _ in range(3)]
    (tmp_path / "in.json").write_text(json.dumps([{"x": encode_array(each["x"])} for each in samples]))
    for threads in ("1", "2"):
        assert run("precision", "search", "net.onnx", "--fp16", "--load-inputs", "in.json", "--metric", "rel-l2", "--threshold", "1e-4", "--objective", "smallest",
                   "--fusion", "none", "--save-answer", f"{threads}.json", "--no-journal", "--threads", threads).code == 0
    told = json.loads((tmp_path / "1.json").read_text())
    assert told["network"] == json.loads((tmp_path / "2.json").read_text())["network"]
    columns = told["network"]
    assert [told["names"][at] for at in columns["layer"]] == [node.name for node in nodes]
    assert columns["op"] == [node.op_type for node in nodes]
    producers = {node.output[0]: i for i, node in enumerate(nodes)}
    assert columns["inputs"] == [[producers[name] for name in node.input if name in producers] for node in nodes]
    assert columns["precision"] == ["fp16", "fp16", None, "fp16", "fp16", "fp16"]
    del graph.output[:]
    graph.output.extend(value(node.output[0]) for node in nodes)
    everything = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    values = onnx.reference.ReferenceEvaluator(everything).run(None, samples[0])
    for array, (low, high) in zip(values, columns["magnitudes"]):
        magnitudes = np.abs(array[array != 0]).astype(np.float64)
        assert (low, high) == (np.floor(np.log2(magnitudes.min())), np.floor(np.log2(magnitudes.max())))
    times = columns["time_us"]
    assert set(times) == {"fp16", "fp32"} and all(
        0 < low and 0 < high for low, high in zip(times["fp16"], times["fp32"]) if low is not None
    )


def test_page_of_an_interrupted_search(run, search, tmp_path):
    # Fused, the first trial raises nothing, and this tolerance needs more.
    base = ["--fp16", "--fusion", "full", "--atol", "1e-3", "--rtol", "0"]
    answer = json.loads((tmp_path / search("--max-trials", "1", base=base)).read_text())
    assert answer["verdict"] == "unverified"
    _, text = write_report(run, tmp_path, "a.answer.json")
    assert "Not finished" in text and "--continue" in text and answer["message"] in text


def test_page_of_a_search_that_had_no_trial(run, search, tmp_path):
    answer = answer_of(tmp_path, search())
    answer.update(verdict="unverified", message="Stopped", layers=[], following=[], trials=[], sensitivities=[], sets={}, held_out=None)
    answer["search"]["outputs"] = []
    (tmp_path / "b.json").write_text(json.dumps(version_1(answer)))
    page, text = write_report(run, tmp_path, "b.json")
    assert "No set of layers is known to pass yet" in text and "No trial was finished" in text
    assert "ulpscope run" not in text and data_of(page)["answers"][0]["answer"]["trials"] == []


def test_page_of_what_is_not_reachable(run, search, tmp_path):
    name = search("--lower", "Add", base=["--fp16", "--fusion", "none", "--atol", "0", "--rtol", "1e-12"])
    assert json.loads((tmp_path / name).read_text())["verdict"] == "not-reachable"
    _, text = write_report(run, tmp_path, name)
    assert "Not reachable" in text and "best so far" not in text


def test_page_without_kept_layers(run, search, tmp_path):
    name = search(base=["--fp16", "--fusion", "none", "--atol", "1e6", "--rtol", "1"])
    assert json.loads((tmp_path / name).read_text())["layers"] == []
    _, text = write_report(run, tmp_path, name)
    assert "every layer may run in its lowest precision" in text
    answer = answer_of(tmp_path, name)
    assert answer["sensitivities"] == [] and "No effects were predicted: the first trials passed" in text and "ended before" not in text


def test_older_answers_have_no_histograms(run, search, tmp_path):
    answer = answer_of(tmp_path, search())
    for layer in answer["layers"]:
        del layer["reason"]["low"], layer["reason"]["exponents"]
    (tmp_path / "old.json").write_text(json.dumps(version_1(answer)))
    page, text = write_report(run, tmp_path, "old.json")
    assert [layer["reason"].get("exponents") for layer in data_of(page)["answers"][0]["answer"]["layers"]] == [None, None]


def test_lists_the_casts_of_a_typed_model(run, search, model, tmp_path):
    search()
    outcome = run("convert", model, "--answer", "a.answer.json", "-o", "typed.onnx")
    assert outcome.code == 0, outcome
    casts = [node for node in onnx.load(tmp_path / "typed.onnx").graph.node if node.op_type == "Cast"]
    assert casts
    page, text = write_report(run, tmp_path, "a.answer.json", "--typed", "typed.onnx")
    assert f"{len(casts)} Cast nodes in typed.onnx" in text
    rows = data_of(page)["typed"]["casts"]
    assert {row["name"] for row in rows} == {node.name for node in casts}
    assert ("float32", "float16", "the input x") in {(row["from"], row["to"], row["producer"]) for row in rows}
    assert f"{len(casts)} added, 0 of the source" in text


def test_refuses_the_typed_model_of_another_model(run, search, model, tmp_path):
    name = search()
    network = onnx.load(tmp_path / model)
    network.graph.name = "another"
    onnx.save(network, tmp_path / "other.onnx")
    assert run("convert", "other.onnx", "--fp16", "-o", "other_typed.onnx").code == 0
    refused = run("report", name, "--typed", "other_typed.onnx", "-o", "r.html")
    assert refused.code == 1 and "one of another model: it was made from one with the hash" in refused.text, refused
    # By a tool that does not say what it was made from.
    network.graph.node[1].name = "renamed"
    del network.graph.node[2:]
    network.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(network.graph.node[1].output[0], 1, [1, 1, 256, 256]))
    onnx.save(network, tmp_path / "plain.onnx")
    refused = run("report", name, "--typed", "plain.onnx", "-o", "r.html")
    assert refused.code == 1 and "it does not have the kept layer 'Add'" in refused.text, refused
    assert not (tmp_path / "r.html").exists()


def test_tells_added_casts_from_those_of_the_source(run, tmp_path):
    half = onnx.TensorProto.FLOAT16
    nodes = [onnx.helper.make_node("Mul", ["x", "x"], ["m"], name="mul"),
             onnx.helper.make_node("Cast", ["m"], ["h"], name="down", to=half),
             onnx.helper.make_node("Cast", ["h"], ["f"], name="up", to=onnx.TensorProto.FLOAT),
             onnx.helper.make_node("Add", ["f", "x"], ["y"], name="add")]
    value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4])  # noqa: E731
    graph = onnx.helper.make_graph(nodes, "g", [value("x")], [value("y")])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), tmp_path / "own.onnx")
    found = run("precision", "search", "own.onnx", "--objective", "smallest", "--fp16", "--keep", "add", "--iterations", "4", "--rtol", "1", "--atol", "1",
                "--no-journal")
    assert found.code == 0, found
    assert run("convert", "own.onnx", "--answer", "own.fp16.answer.json", "-o", "typed.onnx").code == 0
    typed = onnx.load(tmp_path / "typed.onnx")
    names = [node.name for node in typed.graph.node if node.op_type == "Cast"]
    own, added = [n for n in names if n in ("down", "up")], [n for n in names if n not in ("down", "up")]
    assert own and added
    page, text = write_report(run, tmp_path, "own.fp16.answer.json", "--typed", "typed.onnx")
    assert f"{len(added)} added, {len(own)} of the source" in text
    origins = {row["name"]: row["origin"] for row in data_of(page)["typed"]["casts"]}
    assert origins == {**dict.fromkeys(added, "added"), **dict.fromkeys(own, "of the source")}
    # Another tool's file says nothing about it.
    del typed.metadata_props[:]
    onnx.save(typed, tmp_path / "other.onnx")
    page, text = write_report(run, tmp_path, "own.fp16.answer.json", "--typed", "other.onnx")
    assert f"{len(names)} Cast nodes in other.onnx , in network order. " in text


def test_names_are_no_markup(run, search, tmp_path):
    answer = answer_of(tmp_path, search())
    evil = "</script><script>alert(1)</script><b onclick='x'>"
    answer["layers"][0].update(name=evil, nodes=[evil])
    answer["layers"][0]["reason"]["tensor"] = evil
    answer["sensitivities"][1]["name"] = evil
    answer["model"]["path"] = answer["message"] = evil
    (tmp_path / "evil.json").write_text(json.dumps(version_1(answer)))
    page, text = write_report(run, tmp_path, "evil.json")
    assert "alert(1)</script>" not in page and evil in text
    assert data_of(page)["answers"][0]["answer"]["layers"][0]["name"] == evil


@pytest.mark.parametrize("fusion", ["none", "full"])
def test_times_add_up(fusion, run, search, tmp_path):
    """Those of the layers and of the casts make the estimate, but for what neighbors do for each other."""
    rates = json.loads((ROOT / "data" / "targets" / "h200.json").read_text())
    (tmp_path / "rates.json").write_text(json.dumps({key: value for key, value in rates.items() if key != "kernels"}))
    name = search("--fusion", fusion, "--target", "rates.json")
    told = json.loads((tmp_path / name).read_text())
    network, time = told["network"], told["time_us"]
    kept = {layer["name"]: layer["precision"] for layer in told["layers"]}
    assert kept == ({"Add": "fp32", "Sub": "fp32"} if fusion == "none" else {})
    layers = sum(network["time_us"][kept.get(told["names"][at], low)][row] for row, (at, low) in enumerate(zip(network["layer"], network["precision"])))
    # x to float16, the product to float32, the difference to float16, the output to float32; where all four layers share
    # a group, the first and the last of these.
    assert time["cast_count"] == (4 if fusion == "none" else 2) and time["casts"] > 0
    rest = time["answer"] - layers - time["casts"]
    if fusion == "none":
        # MatMul_1 reads float32, and its own time is that of reading float16: 65536 elements at 4.8 TB/s.
        assert rest == pytest.approx(65536 * 2 / 4.8e6, rel=0.05)
    _, text = write_report(run, tmp_path, name)
    sentence = re.search(r"The estimated ([\d.]+) µs are: layers ([\d.]+) µs, [24] casts ([\d.]+) µs(, fusion and types between neighbors (-?[\d.]+) µs)?\.", text)
    total, of_layers, of_casts, groups, of_groups = sentence.groups()
    assert (groups is not None) == (abs(rest) > 5e-4 * time["answer"])
    assert float(of_layers) + float(of_casts) + float(of_groups or 0) == pytest.approx(float(total), rel=0.01)
    # The set of another trial has casts that nobody counted.
    del time["casts"], time["cast_count"]
    (tmp_path / "old.json").write_text(json.dumps(told))
    assert "are: layers" not in write_report(run, tmp_path, "old.json")[1]


@pytest.mark.parametrize("kept", [60, 5000])
def test_page_of_a_large_network_is_small(kept, run, search, tmp_path):
    answer = large_answer(json.loads((tmp_path / search()).read_text()), kept=kept)
    (tmp_path / "large.json").write_text(json.dumps(answer))
    page, text = write_report(run, tmp_path, "large.json")
    assert len(page.encode()) < 2_000_000
    # Nothing of it is lost on the way.
    shown = data_of(page)["answers"][0]["answer"]
    for key in ("layers", "following", "sensitivities", "network", "curve", "search", "held_out"):
        assert shown[key] == answer[key], key
    assert shown["names"] == answer["names"][:-1]
    assert trials_of_answer(shown) == trials_of_answer(answer)
    assert set(shown["int8"]["scales"]) == {layer["reason"]["tensor"] for layer in answer["layers"]} - {""}
    assert f"{kept} of 5000 layers need more precision" in text and "magnitudes are limited" in text


def test_mistakes(run, search, model, tmp_path):
    name = search()
    text = (tmp_path / name).read_text()

    def refused(answer, *words, code=1):
        before = sorted(path.name for path in tmp_path.iterdir())
        outcome = run("report", answer, *(words or ("-o", "r.html")))
        assert outcome.code == code and "Traceback" not in outcome.text, outcome
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        return outcome.text

    assert "nothing.json" in refused("nothing.json")
    assert "expected JSON" in refused(model)
    (tmp_path / "other.json").write_text('{"a": 1}')
    assert "expected an answer of `ulpscope precision search`" in refused("other.json")
    (tmp_path / "cut.json").write_text(text[: len(text) // 2])
    assert "expected JSON" in refused("cut.json")
    (tmp_path / "later.json").write_text(text.replace('"version": 2', '"version": 7'))
    assert "expected version 1 to 2 of the format, got 7" in refused("later.json")
    assert "expected another file" in refused(name, "-o", name)
    (tmp_path / "second.json").write_text(text)
    assert "expected another file" in refused(name, "--compare", "second.json", "-o", "second.json")
    assert "nothing.json" in refused(name, "--compare", "nothing.json")
    assert (tmp_path / name).read_text() == text
    assert "got a folder" in refused(name, "-o", ".")
    assert "/proc/r.html" in refused(name, "-o", "/proc/r.html")
    assert "no.onnx" in refused(name, "-o", "r.html", "--typed", "no.onnx")
    assert "ANSWER" in run("report").text and run("report").code == 2
    if pathlib.Path("/dev/full").exists():
        assert "/dev/full" in refused(name, "-o", "/dev/full")


def test_default_name(run, search, tmp_path):
    outcome = run("report", search())
    assert outcome.code == 0 and "Saving report to a.html" in outcome.out, outcome
    assert (tmp_path / "a.html").exists()
