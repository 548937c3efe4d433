"""`ulpscope report`: the page of real and synthetic answers, in a browser where there is one, and mistakes."""
import json
import math
import pathlib
import random
import re
from html.parser import HTMLParser

import numpy as np
import onnx
import pytest

from browser import Browser, find_browser
from cli_support import encode_array
from search_support import answer_of, version_1

plotly = pytest.importorskip("plotly", reason="plotly is not installed")

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


def charts_of(page):
    """The figures of a page, each checked by plotly."""
    import plotly.graph_objects as go

    figures = json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.S)[1])
    return {name: go.Figure(figure) for name, figure in figures.items()}


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


def write_report(run, tmp_path, answer, *words):
    outcome = run("report", answer, "-o", "report.html", *words)
    assert outcome.code == 0, outcome
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    return page, Text(page).text


def points(figures):
    return sum(len(trace.x) for trace in figures.data if trace.type != "bar")


def test_page_of_a_search(run, search, tmp_path):
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
    for layer in answer["layers"]:
        assert layer["name"] in text and layer["reason"]["text"].split(": ", 1)[1] in text
    assert "fp16 → fp32" in text
    assert "ulpscope run " in text and "--layer-precisions Add:float32 Sub:float32" in text
    assert "--answer a.answer.json" in text
    figures = charts_of(page)
    assert len(figures) == 5  # trials by time and by share, sensitivities, two histograms
    assert points(figures["chart0"]) == points(figures["chart1"]) == len(answer["trials"]) + 2
    assert points(figures["chart2"]) == len(answer["sensitivities"]) == 4
    assert [trace.name for trace in figures["chart2"].data] == ["lowered", "kept"]
    assert sum(figures["chart4"].data[0].y) == 3 * 65536
    # Nothing is fetched: no address in an attribute, no imported style.
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)=', page.replace(plotly.offline.get_plotlyjs(), ""))


def test_page_with_the_predicted_curve(run, search, tmp_path):
    answer = json.loads((tmp_path / search()).read_text())
    answer["curve"] = [[10.0, "inf", 0], [12.0, 1.5, 1], [13.5, 0.25, 2], [14.0, 0.0, 4]]
    (tmp_path / "b.json").write_text(json.dumps(answer))
    page, _ = write_report(run, tmp_path, "b.json")
    lines = [[trace for trace in figure.data if trace.name == "predicted"] for figure in list(charts_of(page).values())[:2]]
    assert [len(each) for each in lines] == [1, 0]
    assert list(lines[0][0].x) == [12.0, 13.5] and list(lines[0][0].y) == [1.5, 0.25]


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
    assert "ulpscope run" not in text and not charts_of(page)


def test_page_of_what_is_not_reachable(run, search, tmp_path):
    name = search("--lower", "Add", base=["--fp16", "--fusion", "none", "--atol", "0", "--rtol", "1e-12"])
    assert json.loads((tmp_path / name).read_text())["verdict"] == "not-reachable"
    _, text = write_report(run, tmp_path, name)
    assert "Not reachable" in text and "best so far" not in text


def test_page_without_kept_layers(run, search, tmp_path):
    name = search(base=["--fp16", "--fusion", "none", "--atol", "1e6", "--rtol", "1"])
    assert json.loads((tmp_path / name).read_text())["layers"] == []
    _, text = write_report(run, tmp_path, name)
    assert "None: every layer may run in its lowest precision" in text
    answer = answer_of(tmp_path, name)
    assert answer["sensitivities"] == [] and "Not predicted: the first trials passed" in text and "ended before" not in text


def test_older_answers_have_no_histograms(run, search, tmp_path):
    answer = answer_of(tmp_path, search())
    for layer in answer["layers"]:
        del layer["reason"]["low"], layer["reason"]["exponents"]
    (tmp_path / "old.json").write_text(json.dumps(version_1(answer)))
    page, text = write_report(run, tmp_path, "old.json")
    assert len(charts_of(page)) == 3 and "Sub" in text


def test_lists_the_casts_of_a_typed_model(run, search, model, tmp_path):
    search()
    outcome = run("convert", model, "--answer", "a.answer.json", "-o", "typed.onnx")
    assert outcome.code == 0, outcome
    casts = [node for node in onnx.load(tmp_path / "typed.onnx").graph.node if node.op_type == "Cast"]
    assert casts
    _, text = write_report(run, tmp_path, "a.answer.json", "--typed", "typed.onnx")
    assert f"{len(casts)} Cast nodes in typed.onnx" in text
    assert all(node.name in text for node in casts)
    assert "float32 → float16" in text and "the input x" in text
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
    rows = [re.sub("<[^>]*>", " ", row.replace("<wbr>", "")).split() for row in page.split("<tr>") if "→" in row]
    for name in names:
        row = next(row for row in rows if row[0] == name)
        assert "added" in row if name in added else ["of", "the", "source"] == row[1:4], row
    # Another tool's file says nothing about it.
    del typed.metadata_props[:]
    onnx.save(typed, tmp_path / "other.onnx")
    page, text = write_report(run, tmp_path, "own.fp16.answer.json", "--typed", "other.onnx")
    assert f"{len(names)} Cast nodes in other.onnx" in text and "in network order." in text and "in network order:" not in text


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


def large_answer(answer, layers=2000, kept=60, trials=80):
    """An answer on a network of many layers: every kind of reason, errors and effects of 0, infinity and NaN."""
    rng = random.Random(1)
    names = [f"/encoder/layer.{i // 12}/attention/self/a_rather_long_name_of_a_layer/{['MatMul', 'Add', 'Softmax'][i % 3]}_{i}"
             for i in range(layers)]
    answer["sensitivities"] = [{"name": name, "op": "Add", "effect": 10 ** rng.gauss(-3, 1), "measured": i % 97 == 0}
                               for i, name in enumerate(names)]
    for i, value in ((5, 0), (6, "nan"), (7, "inf")):
        answer["sensitivities"][i]["effect"] = value
    kinds = ["overflow", "underflow", "cancellation", "saturation", "resolution", "rounding", "measured", "requested"]
    answer["layers"] = []
    for j, i in enumerate(sorted(rng.sample(range(layers), kept))):
        kind = kinds[j % len(kinds)]
        effect = answer["sensitivities"][i]["effect"] = "inf" if j % 9 == 0 else 10 ** rng.gauss(-0.5, 0.3)
        counts = [int(1e5 * math.exp(-((k - 12) / 5) ** 2)) for k in range(26)]
        reason = {"kind": kind, "tensor": names[i] + "_output_0", "count": 1234 * j, "total": 123456 * (j + 1), "largest": 1.2e5,
                  "share": rng.random() / 10, "text": f"{kind}: {1234 * j} values of '{names[i]}_output_0' lie beyond fp16",
                  "low": ["fp16", "bf16", "int8", None][j % 4], "exponents": {"first": -20 + 4 * (j % 7), "counts": counts}}
        if kind == "requested":
            reason.update(tensor="", count=0, total=0, low=None, exponents=None)
        answer["layers"].append({"name": names[i], "op": "Add", "nodes": [names[i]], "precision": "fp32", "effect": effect, "reason": reason})
    answer["candidates"] = layers
    answer["int8"] = {"calibration_cache": "m.cache", "scales": {names[i] + "_output_0": 0.05 for i in range(layers)}}
    answer["following"] = [f"/encoder/layer.{i}/Reshape_{i}" for i in range(30)]
    answer["repairs"] = [{"kind": "clamp", "name": "/mask", "limit": 32752, "text": "magnitudes are limited to 32752"}]
    answer["message"] = f"{kept} of {layers} layers need more precision"
    first = json.dumps(answer["trials"][0])
    answer["trials"] = []
    for i in range(trials):
        trial, raised = json.loads(first), rng.randrange(400)
        used = 10 ** rng.gauss(0.6 - raised / 90, 0.2)
        trial.update(kind="hold-out" if i % 10 == 9 else "search", raised=[[name, "fp32"] for name in names[:raised]],
                     time_us=2300 + 9 * raised, cost_share=raised / layers, passed=used <= 0.5)
        trial["error"]["used"] = used
        if i % 15 == 0:
            trial["error"].update(used="inf", problem="output 'y', sample 3: 2 NaN and 1 Inf where the golden output is finite")
            trial["passed"] = False
        answer["trials"].append(trial)
    answer["time_us"] = {"answer": 3100, "lowest": 2300, "highest": 4800}
    answer["run_options"] += [f"{layer['name']}:float32" for layer in answer["layers"]]
    return answer


def test_page_of_a_large_network(run, search, tmp_path):
    answer = large_answer(answer_of(tmp_path, search()))
    (tmp_path / "large.json").write_text(json.dumps(version_1(answer)))
    page, text = write_report(run, tmp_path, "large.json")
    figures = charts_of(page)
    assert points(figures["chart2"]) == 2000
    not_finite = [trace for trace in figures["chart2"].data if trace.marker.symbol == "triangle-up"]
    assert sum(len(trace.x) for trace in not_finite) == 2 + 7  # a NaN, an infinity, and those of kept layers
    assert all(np.isfinite(trace.y).all() for trace in figures["chart2"].data)
    assert len(figures) == 3 + 60 - 7  # requested layers have no histogram
    assert len(page) - len(plotly.offline.get_plotlyjs()) < 2_000_000
    assert "30 layers" in text and "magnitudes are limited" in text


def complaints(browser):
    """What the page wrote to the console; a software renderer reports its own stalls, which say nothing of the page."""
    return [message for message in browser.messages if "GL Driver Message" not in message[1]]


@pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")
def test_looks_right_in_a_browser(run, search, tmp_path):
    small = answer_of(tmp_path, search())
    (tmp_path / "large.json").write_text(json.dumps(version_1(large_answer(json.loads(json.dumps(small)), layers=5000, kept=8))))
    pages = []
    for name in ("a.answer.json", "large.json"):
        outcome = run("report", name, "-o", name.split(".")[0] + ".html")
        assert outcome.code == 0, outcome
        pages.append(tmp_path / (name.split(".")[0] + ".html"))
    with Browser(tmp_path / "profile") as browser:
        for page in pages:
            for width, dark in ((1280, False), (390, True)):
                browser.look_like(width, dark=dark, touch=width == 390)
                browser.open(page)
                browser.show_all()
                assert complaints(browser) == []
                assert [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))] == []
                assert browser.evaluate("document.documentElement.scrollWidth") == width
                # Nothing sticks out of its box either.
                assert browser.evaluate("[...document.querySelectorAll('section *')].filter((n) => !n.closest('svg, .chart, pre') && "
                                        f"n.getBoundingClientRect().right > {width}).length") == 0
                browser.screenshot(page.with_suffix(f".{width}.png"))
                light = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 247, 249)"
                assert light is not dark
            # Colors of charts change with the theme.
            color = "document.querySelector('.chart .xtick text').style.fill"
            before = browser.evaluate(color)
            browser.look_like(1280, dark=False)
            browser.evaluate("new Promise((done) => setTimeout(done, 500))")
            assert browser.evaluate(color) != before and "var" not in before
            # The other axis, a histogram that was closed, and the copied command.
            browser.evaluate("document.querySelectorAll('.switch button')[1].click()")
            browser.evaluate("document.querySelectorAll('.more').forEach((b) => { if (b.getAttribute('aria-expanded') !== 'true') b.click(); })")
            browser.show_all()
            assert browser.evaluate("document.querySelectorAll('.view')[1].querySelectorAll('.main-svg').length") > 0
            browser.evaluate("document.querySelector('.copy').click()")
            browser.evaluate("new Promise((done) => setTimeout(done, 300))")
            assert browser.evaluate("document.querySelector('.copy').textContent") in ("Copied", "Press Ctrl-C")
            assert complaints(browser) == []


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
    assert (tmp_path / name).read_text() == text
    assert "got a folder" in refused(name, "-o", ".")
    assert "/proc/r.html" in refused(name, "-o", "/proc/r.html")
    assert "no.onnx" in refused(name, "-o", "r.html", "--typed", "no.onnx")
    assert "ANSWER" in run("report").text and run("report").code == 2
    if pathlib.Path("/dev/full").exists():
        assert "/dev/full" in refused(name, "-o", "/dev/full")


def test_says_how_to_install_plotly(run, search, tmp_path):
    name = search()
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "plotly.py").write_text("raise ImportError('hidden')\n")
    outcome = run("report", name, "-o", "r.html", env={"PYTHONPATH": str(tmp_path / "hidden")})
    assert outcome.code == 1 and "-m pip install plotly" in outcome.text, outcome
    assert not (tmp_path / "r.html").exists()


def test_default_name(run, search, tmp_path):
    outcome = run("report", search())
    assert outcome.code == 0 and "Saving report to a.html" in outcome.out, outcome
    assert (tmp_path / "a.html").exists()
