"""Timing caches: what groups are estimated to take, collected over builds, and what a GPU measured."""
import json

import onnx
import pytest

from cli_support import dynamic_add, needs_constraints


@pytest.fixture
def models(tmp_path):
    onnx.save(needs_constraints(16), tmp_path / "a.onnx")
    onnx.save(dynamic_add(), tmp_path / "b.onnx")


def times(path):
    cache = json.loads(path.read_text())
    assert cache["timing_cache"] == 1
    return cache["microseconds"]


@pytest.mark.parametrize("option", ["--save-timing-cache", "--timing-cache"])
def test_builds_are_collected(option, run, models, tmp_path):
    b = ["b.onnx", "--trt", "--trt-min-shapes", "x:[2,3]", "--trt-max-shapes", "x:[2,3]"]
    for words, name in ((["a.onnx", "--trt"], "all"), (b, "b"), (b, "all"), (b, "all")):
        outcome = run("run", *words, option, f"{name}.cache")
        assert outcome.code == 0 and f"Saving tactic timing cache to {name}.cache" in outcome.out, outcome
    alone = run("run", "a.onnx", "--trt", option, "a.cache")
    assert alone.code == 0
    a, b, both = (times(tmp_path / f"{name}.cache")["l4"] for name in ("a", "b", "all"))
    assert both == {**a, **b} and len(both) == len(a) + len(b)
    sizes = {name: (tmp_path / f"{name}.cache").stat().st_size for name in ("a", "b", "all")}
    assert max(sizes["a"], sizes["b"]) < sizes["all"] <= sizes["a"] + sizes["b"]


def test_times_are_those_of_the_engine(run, models, tmp_path):
    words = ["--fp16", "--assume-lowest", "--fusion", "none"]
    assert run("convert", "a.onnx", *words[:1], *words[2:], "-o", "e.engine", "--save-timing-cache", "t").code == 0
    shown = json.loads(run("inspect", "model", "a.onnx", *words, "--convert-to", "trt", "--json").out)
    expected = sum(layer.get("microseconds", 0) for layer in shown["layers"])
    found = times(tmp_path / "t")["l4"]
    # The products differ in the type that they read.
    assert [key.split(":")[0] for key in sorted(found)] == ["Add fp16", "MatMul fp16", "MatMul fp16", "Sub fp16"]
    assert expected > 0 and sum(found.values()) == pytest.approx(expected)
    other = run("run", "a.onnx", "--trt", "--target", "t4", "--save-timing-cache", "t")
    assert other.code == 0 and set(times(tmp_path / "t")) == {"l4", "t4"}, other


@pytest.mark.parametrize("text", ["{", "[]", '{"timing_cache": 2, "microseconds": {}}', '{"timing_cache": 1}', "\x00\x01"])
def test_other_files_stay(text, run, models, tmp_path):
    (tmp_path / "t").write_text(text)
    outcome = run("run", "a.onnx", "--trt", "--save-timing-cache", "t")
    assert outcome.code == 1 and "expected a timing cache of ulpscope, or no file" in outcome.err, outcome
    assert (tmp_path / "t").read_text() == text


def test_the_script_saves_it_too(run, polygraphy, models):
    words = ["run", "a.onnx", "--trt", "--save-timing-cache", "t", "--gen-script", "-"]
    ours, theirs = run(*words), polygraphy(*words)
    line = [each for each in theirs.out.splitlines() if "save_timing_cache=" in each]
    assert len(line) == 1 and line[0] in ours.out.splitlines(), (ours, theirs)


GPU = "NVIDIA H200-driver13000-cublas13.1.0-cudnn9.19.0"
MEASURED = {"timing_cache": 1, "microseconds": {"t4": {"a group": 1.5}},
            "tactics": {GPU: {"product 1x2x3": {"algorithm": "00ff", "microseconds": 2.25}}}}


def test_measured_tactics_stay(run, models, tmp_path):
    (tmp_path / "t").write_text(json.dumps(MEASURED))
    for name in ("t", "alone"):
        assert run("run", "a.onnx", "--trt", "--save-timing-cache", name).code == 0
    after = json.loads((tmp_path / "t").read_text())
    assert after["tactics"] == MEASURED["tactics"] and set(after["microseconds"]) == {"t4", "l4"}
    assert "tactics" not in json.loads((tmp_path / "alone").read_text())


@pytest.mark.parametrize("backend", ["cpu", "plain"])
@pytest.mark.parametrize("text", [None, "not ours", json.dumps(MEASURED)], ids=["missing", "foreign", "ours"])
def test_loading_has_no_effect_where_nothing_is_measured(backend, text, run, models, tmp_path):
    if text is not None:
        (tmp_path / "t").write_text(text)
    outcome = run("run", "a.onnx", "--trt", "--backend", backend, "--load-timing-cache", "t")
    assert outcome.code == 0, outcome
    assert outcome.out.count(f"[W] [options] --load-timing-cache has no effect: the backend '{backend}'") == 1, outcome


@pytest.mark.parametrize(
    "text, reason",
    [
        (None, "t: there is no such file, tactics are measured"),
        ("", "t is ignored: [timing cache] expected a timing cache of ulpscope"),
        ("\x00TensorRT", "t is ignored: [timing cache] expected a timing cache of ulpscope"),
        (json.dumps(MEASURED)[:-1], "t is ignored: [timing cache] expected a timing cache of ulpscope"),
        (json.dumps(MEASURED).replace('"00ff"', "3"), "t is ignored: [timing cache]: tactics"),
    ],
    ids=["missing", "empty", "foreign", "cut", "other values"],
)
def test_a_gpu_ignores_other_files(text, reason, run, models, tmp_path):
    """Also where there is no GPU, of which the run then says so."""
    if text is not None:
        (tmp_path / "t").write_text(text)
    outcome = run("run", "a.onnx", "--trt", "--backend", "cuda", "--load-timing-cache", "t")
    assert f"[W] [options] --load-timing-cache {reason}" in outcome.text, outcome


def test_the_script_loads_it_too(run, polygraphy, models):
    words = ["run", "a.onnx", "--trt", "--load-timing-cache", "t", "--precision-constraints", "obey", "--fp16",
             "--save-tactics", "x", "--gen-script", "-"]
    ours, theirs = run(*words), polygraphy(*words)
    line = [each for each in theirs.out.splitlines() if "load_timing_cache='t'" in each]
    assert len(line) == 1 and line[0] in ours.out.splitlines(), (ours, theirs)
