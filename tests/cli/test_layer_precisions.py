"""`--layer-precisions` means the same in `run`, `precision search` and `convert`."""

import json

import numpy as np
import pytest
from onnx import helper, numpy_helper

from convert_support import info, model, save
from search_support import save_inputs

SEARCH = ["--metric", "rel-l2", "--threshold", "10", "--no-journal", "--save-answer", "a.json"]


@pytest.fixture
def named(tmp_path):
    """A layer is named as an operator is: its name is meant."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), f"w{i}") for i in (1, 2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Sigmoid", ["a"], ["b"], name="act/one"),
        helper.make_node("MatMul", ["b", "w2"], ["c"], name="second"),
        helper.make_node("Sigmoid", ["c"], ["d"], name="act/two"),
        helper.make_node("Tanh", ["d"], ["e"], name="Mul"),
        helper.make_node("Mul", ["e", "x"], ["y"], name="times"),
    ]
    save(tmp_path, model(nodes, [info("x", [4, 8])], [info("y", [4, 8])], weights))
    return save_inputs(tmp_path / "in.json", [{"x": rng.standard_normal((4, 8)).astype(np.float32)} for _ in range(2)])


@pytest.mark.parametrize("words, meant", [
    (["first:float32"], {"first": "float32"}),
    (["MatMul:float32"], {"first": "float32", "second": "float32"}),
    (["act/*:float32"], {"act/one": "float32", "act/two": "float32"}),
    (["Mul:float32"], {"Mul": "float32"}),
    (["first:float16", "MatMul:float32"], {"first": "float16", "second": "float32"}),
    (["act/*:float16", "Sigmoid:float32"], {"act/one": "float32", "act/two": "float32"}),
])  # fmt: skip
def test_the_same_words_in_three_tools(words, meant, named, run, tmp_path):
    asked = ["--layer-precisions", *words]
    build = ["m.onnx", "--trt", "--fp16", "--assume-lowest", "--precision-constraints", "obey", "--load-inputs", named]
    assert run("run", *build, *asked, "--save-outputs", "words.json").code == 0
    explicit = [f"{name}:{kind}" for name, kind in meant.items()]
    judged = ["--load-outputs", "words.json", "--atol", "0", "--rtol", "0"]
    assert run("run", *build, "--layer-precisions", *explicit, *judged).code == 0
    assert run("run", *build, *judged).code == 1

    outcome = run(
        "convert",
        "m.onnx",
        "--fp16",
        *asked,
        "-o",
        "t.onnx",
        "--load-inputs",
        named,
        "--save-layer-precisions",
        "l.txt",
    )
    assert outcome.code == 0, outcome
    high = {
        line.rpartition(":")[0] for line in (tmp_path / "l.txt").read_text().split("\n") if line.endswith(":float32")
    }
    assert high == {name for name, kind in meant.items() if kind == "float32"}
    assert run("run", "t.onnx", "--trt", "--strongly-typed", "--load-inputs", named, *judged).code == 0

    assert run("precision", "search", "m.onnx", "--fp16", *asked, "--load-inputs", named, *SEARCH).code == 0
    assert json.loads((tmp_path / "a.json").read_text())["build"]["layer_precisions"] == meant
