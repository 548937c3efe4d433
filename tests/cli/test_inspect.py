"""`inspect model` and `inspect data` print what pip's Polygraphy prints; engines and differences have forms of our own."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import encode_array


def rich_model():
    """Every kind of attribute, a sub-graph, optional inputs, unnamed nodes, dynamic and unknown dimensions, large and
    special weights, another domain, documentation."""
    rng = np.random.RandomState(3)
    weights = {
        "large": rng.standard_normal((4, 40, 12)).astype(np.float32),
        "long": np.arange(2000, dtype=np.int64).reshape(2, 1000),
        "flags": np.arange(1500).reshape(15, 100) % 3 == 0,
        "half": rng.standard_normal((3, 5)).astype(np.float16),
        "special": np.array([np.nan, np.inf, -np.inf, 1e-30], np.float32),
        "empty": np.zeros((0, 3), np.float32),
        "low": np.array(-1, np.float32),
    }
    branch = helper.make_graph([helper.make_node("Mul", ["a", "a"], ["m"], name="inner", doc_string="dropped")], "branch",
                               [], [helper.make_tensor_value_info("m", TensorProto.FLOAT, ["n", 12])])
    other = helper.make_graph([helper.make_node("Identity", ["a"], ["i"])], "other", [],
                              [helper.make_tensor_value_info("i", TensorProto.FLOAT, None)])
    nodes = [
        helper.make_node("Constant", [], ["c"], name="constant",
                         value=numpy_helper.from_array(np.arange(6, dtype=np.int32).reshape(2, 3))),
        helper.make_node("Clip", ["x", "", "low"], ["a"], name="clip"),
        helper.make_node("If", ["p"], ["chosen"], name="choice", then_branch=branch, else_branch=other),
        helper.make_node("Cast", ["chosen"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("LeakyRelu", ["a"], ["l"], name="leaky", alpha=0.01),
        helper.make_node("Resize", ["l", "", "special"], ["r"], name="resize", mode="nearest", axes=[0, 1]),
        helper.make_node("Made", ["r"], ["z", ""], name="made", domain="some.where", floats=[0.1, 2.0, 1e-9],
                         texts=["it's", "b"], ints=[1]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "rich",
        [info("x", TensorProto.FLOAT, ["n", 12]), info("p", TensorProto.BOOL, []), info("u", TensorProto.FLOAT16, [None, 3]),
         info("low", TensorProto.FLOAT, [])],
        [info("d", TensorProto.DOUBLE, ["n", 12]), info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
        value_info=[info("l", TensorProto.FLOAT, ["n", 12])], doc_string="What it is for.\nAnd why.")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("some.where", 2)],
                             ir_version=9)


def shown(text):
    """Without the notes of Polygraphy's own installation."""
    return [line for line in text.splitlines() if "colored" not in line]


@pytest.fixture
def rich(tmp_path):
    onnx.save(rich_model(), tmp_path / "rich.onnx")
    return tmp_path / "rich.onnx"


@pytest.mark.parametrize("show", [[], ["layers"], ["layers", "attrs"], ["weights"], ["layers", "attrs", "weights"]])
@pytest.mark.parametrize("which", ["needs_constraints", "dynamic", "rich"])
def test_onnx_as_polygraphy(show, which, run, polygraphy, model, dynamic_model, rich):
    path = {"needs_constraints": model, "dynamic": dynamic_model, "rich": rich}[which]
    words = ["inspect", "model", path, *(["--show", *show] if show else [])]
    mine, theirs = run(*words), polygraphy(*words)
    assert mine.code == theirs.code == 0, (mine, theirs)
    assert shown(mine.out) == shown(theirs.out)


def test_show_of_nothing(run, model):
    """Polygraphy 0.49 takes it, 0.53 does not."""
    mine, plain = run("inspect", "model", model, "--show"), run("inspect", "model", model)
    assert mine.code == plain.code == 0 and mine.out == plain.out, mine


def model_of_data_dependent_sizes():
    """A Range up to a value, the same bounded by a Min, and shapes of Expand, Tile and Pad, constant or not."""
    node = helper.make_node
    info = helper.make_tensor_value_info
    constants = {"zero": np.array(0), "one": np.array(1), "bound": np.array(9), "kernel": np.ones((3, 3, 3, 3), np.float32),
                 "twice": np.array([2, 2]), "wide": np.array([4, 2])}
    nodes = [node("Conv", ["x", "kernel"], ["c"], name="conv"), node("ReduceMax", ["c"], ["largest"], keepdims=0),
             node("Cast", ["largest"], ["limit"], to=TensorProto.INT64), node("Range", ["zero", "limit", "one"], ["r"]),
             node("Min", ["limit", "bound"], ["bounded"]), node("Range", ["zero", "bounded", "one"], ["s"]),
             node("Shape", ["n"], ["sizes"]), node("Expand", ["n", "wide"], ["wider"]), node("Tile", ["n", "twice"], ["tiled"]),
             node("Mul", ["given", "twice"], ["doubled"]), node("Tile", ["n", "doubled"], ["more"]),
             node("Expand", ["n", "doubled"], ["expanded"])]
    outputs = ["r", "s", "wider", "tiled", "more", "expanded"]
    graph = helper.make_graph(nodes, "sizes", [info("x", TensorProto.FLOAT, [1, 3, 10, 10]), info("n", TensorProto.FLOAT, [1, "m"]),
                                              info("given", TensorProto.INT64, [2])],
                              [info(name, TensorProto.INT64 if name in "rs" else TensorProto.FLOAT, None) for name in outputs],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("show", [[], ["layers"], ["layers", "attrs", "weights"]])
def test_shape_inference_as_polygraphy(show, run, polygraphy, tmp_path):
    onnx.save(model_of_data_dependent_sizes(), tmp_path / "m.onnx")
    words = ["inspect", "model", "m.onnx", "--shape-inference", *(["--show", *show] if show else [])]
    mine, theirs = run(*words), polygraphy(*words)
    assert mine.code == theirs.code == 0, (mine, theirs)
    found = [line for line in shown(theirs.out) if "ONNX-Runtime" not in line and not line.startswith("[W]")]
    assert [line for line in shown(mine.out) if "Loading" not in line] == [line for line in found if "Loading" not in line]
    assert not show or "{c [dtype=float32, shape=(1, 3, 8, 8)]}" in mine.out


@pytest.mark.parametrize("words", [[], ["--shape-inference"]])
def test_sizes_that_data_decide(words, run, polygraphy, tmp_path):
    onnx.save(model_of_data_dependent_sizes(), tmp_path / "m.onnx")
    mine = run("inspect", "model", "m.onnx", "--list-unbounded-dds", *words)
    assert mine.code == 0 and "Found tensors with unbounded DDS: ['limit', 'doubled']" in mine.out, mine
    theirs = polygraphy("inspect", "model", "m.onnx", "--list-unbounded-dds", *words)
    if theirs.code == 0:  # It wants onnx_graphsurgeon.
        line = theirs.out[theirs.out.index("Found tensors with unbounded DDS"):]
        assert [name for name in ("limit", "bounded", "doubled", "wide", "twice") if f"({name})" in line] == ["limit", "doubled"]


def test_weights_elsewhere_that_are_ignored(run, polygraphy, tmp_path):
    weights = [numpy_helper.from_array(np.full((2, 2), i, np.float32), name) for i, name in enumerate("ab")]
    weights.append(numpy_helper.from_array(np.float32([7, 8]), "inside"))
    graph = helper.make_graph([helper.make_node("Sum", ["x", "a", "b", "inside"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx",
              save_as_external_data=True, location="w.bin", size_threshold=45)
    (tmp_path / "w.bin").unlink()
    words = ["inspect", "model", "m.onnx", "--show", "layers", "weights", "--ignore-external-data"]
    mine, theirs = run(*words), polygraphy(*words)
    assert mine.code == theirs.code == 0, (mine, theirs)
    assert mine.out.count("[E] Failed to load weights.") == 2 and "[7. 8.]" in mine.out
    assert [line for line in shown(mine.out) if "Error was" not in line] == [line for line in shown(theirs.out) if "Error was" not in line]
    # Nothing that is not shown is missed.
    assert "Failed" not in run(*words[:3], "--ignore-external-data").out


@pytest.mark.parametrize("words", [[], ["--all"], ["-a", "-s"], ["--histogram", "--show-values", "-n", "2"],
                                   ["--all", "--show-values", "--line-width", "40"], ["-s", "-n", "-1", "--line-width", "-1"]])
@pytest.mark.parametrize("file", ["in.json", "out.json"])
def test_data_as_polygraphy(words, file, run, polygraphy, model):
    outcome = run("run", model, "--onnxrt", "--onnxrt", "--iterations", "2", "--save-inputs", "in.json", "--save-outputs",
                  "out.json")
    assert outcome.code == 0, outcome
    mine, theirs = run("inspect", "data", file, *words), polygraphy("inspect", "data", file, *words)
    assert mine.code == theirs.code == 0, (mine, theirs)
    assert shown(mine.out) == shown(theirs.out)


@pytest.mark.parametrize("array", [np.arange(12, dtype=np.int64), np.arange(40, dtype=np.int8),
                                   np.float32(2.5), np.linspace(-1, 1, 3000).reshape(3, 10, 100),
                                   np.arange(1200, dtype=np.float64).reshape(1200, 1)], ids=lambda a: str(a.dtype))
def test_values_as_numpy(array, run, polygraphy, tmp_path):
    (tmp_path / "in.json").write_text(json.dumps([{"x": encode_array(np.asarray(array))}]))
    words = ["inspect", "data", "in.json", "-s", "--histogram"]
    mine, theirs = run(*words), polygraphy(*words)
    assert mine.code == theirs.code == 0, (mine, theirs)
    assert shown(mine.out) == shown(theirs.out)


def test_json_of_a_model(run, rich):
    outcome = run("inspect", "model", rich, "--json", "--show", "layers", "attrs")
    assert outcome.code == 0, outcome
    described = json.loads(outcome.out)
    assert described["kind"] == "onnx" and described["opsets"] == {"": 18, "some.where": 2}
    assert described["inputs"][0] == {"name": "x", "type": "float32", "shape": ["n", 12]}
    nodes = {node["name"]: node for node in described["nodes"]}
    assert nodes["leaky"]["attributes"]["alpha"] == pytest.approx(0.01)
    assert nodes["made"]["attributes"]["texts"] == ["it's", "b"]
    assert nodes["choice"]["attributes"]["then_branch"]["nodes"][0]["op"] == "Mul"


def test_json_of_data(run, model):
    assert run("run", model, "--onnxrt", "--iterations", "3", "--save-outputs", "out.json", "--save-inputs",
               "in.json").code == 0
    data = json.loads(run("inspect", "data", "out.json", "--json", "--all").out)
    assert data["kind"] == "results" and data["runners"][0]["num_iterations"] == 3
    output = data["runners"][0]["iterations"][2][0]
    assert output["name"] == "matmul_out_3" and output["shape"] == [1, 1, 256, 256] and 0 < output["mean"] < 1
    # A model that is no model is shown as what it is.
    assert json.loads(run("inspect", "model", "in.json", "--json").out)["kind"] == "inputs"


def test_engine_of_options_and_of_a_plan(run, model, tmp_path):
    outcome = run("inspect", "model", model, "--fp16", "--assume-lowest", "--layer-precisions", "Add:float32",
                  "--precision-constraints", "obey", "--save-engine", "a.plan", "--json")
    assert outcome.code == 0, outcome
    engine = json.loads(outcome.out)["engine"]
    layers = {layer["name"]: layer for layer in engine["layers"]}
    assert {name: layer["precision"] for name, layer in layers.items()} == {
        "I_rot90": "float32", "MatMul_0": "fp16", "fp16_max": "float32", "Add": "fp32", "Sub": "fp16", "MatMul_1": "fp16"}
    assert layers["Add"]["reason"] and layers["Add"]["group"] and layers["Add"]["nodes"] == ["Add"]
    assert engine["microseconds"] > 0
    # Every layer's group is timed once.
    assert sum(layer["microseconds"] for layer in engine["layers"]) == pytest.approx(engine["microseconds"])
    assert layers["MatMul_0"]["outputs"][0] == {"name": "matmul_out_0", "storage": "float16", "shape": [1, 1, 256, 256],
                                                "weight": False}
    assert layers["I_rot90"]["weight_bytes"] == 4 * 256 * 256
    # The plan says the same.
    plan = json.loads(run("inspect", "model", "a.plan", "--json").out)
    assert plan["layers"] == engine["layers"] and plan["precisions"] == ["fp16"]
    text = run("inspect", "model", "a.plan", "--show", "layers").out
    assert "Layer 3    | Add [Op: Add]" in text and "Precision = fp32" in text and "bytes on the target" in text
    assert "Precision = " not in run("inspect", "model", "a.plan").out


def test_plan_of_dynamic_shapes(run, dynamic_model):
    outcome = run("inspect", "model", dynamic_model, "--convert-to", "trt", "--show", "layers", "weights")
    assert outcome.code == 0 and "ONNX Model" not in outcome.out, outcome
    assert "x [dtype=float32, shape=(-1, 3)]" in outcome.out and "Weight | two | Values:" in outcome.out


def test_difference_of_engines(run, model, tmp_path):
    assert run("run", model, "--trt", "--fp16", "--assume-lowest", "--save-engine", "low.plan").code == 0
    assert run("run", model, "--trt", "--save-engine", "high.plan").code == 0
    outcome = run("inspect", "diff", "low.plan", "high.plan")
    assert outcome.code == 1 and "4 of 6 common layer(s) differ" in outcome.out, outcome
    assert "Add | A: float16 (the lowest enabled precision) | B: float32" in outcome.out
    assert run("inspect", "diff", "low.plan", "low.plan").code == 0
    # Other forms of the same: what inspect prints, a search's answer, an object, lines.
    (tmp_path / "low.json").write_text(run("inspect", "model", "low.plan", "--json").out)
    assert run("inspect", "diff", "low.plan", "low.json").code == 0
    answer = {"layers": [{"name": "Add", "nodes": ["Add"], "precision": "fp32", "reason": "saturates"}]}
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    outcome = run("inspect", "diff", "low.json", "answer.json", "--json")
    assert outcome.code == 1, outcome
    difference = json.loads(outcome.out)
    assert difference["different"] == [{"name": "Add", "a": {"precision": "float16", "reason": "the lowest enabled precision"},
                                        "b": {"precision": "float32", "reason": "saturates"}}]
    assert difference["only_a"] == ["I_rot90", "MatMul_0", "fp16_max", "Sub", "MatMul_1"] and difference["only_b"] == []
    (tmp_path / "object.json").write_text('{"Add": "fp32"}')
    (tmp_path / "lines.txt").write_text("# what to keep\nAdd:float32\n\n")
    assert run("inspect", "diff", "object.json", "answer.json").code == 0
    assert run("inspect", "diff", "lines.txt", "object.json").code == 0


def test_answer_of_a_search(run, model, tmp_path):
    rng = np.random.RandomState(1)
    samples = [{"x": encode_array(rng.uniform(1, 2, (256, 256)).astype(np.float32))} for _ in range(4)]
    (tmp_path / "samples.json").write_text(json.dumps(samples))
    search = ["precision", "search", model, "--fp16", "--objective", "smallest", "--load-inputs", "samples.json", "--atol", "1e-3", "--rtol", "1e-2"]
    assert run(*search, "--fusion", "none", "--save-answer", "unfused.answer.json").code == 0
    assert run(*search, "--fusion", "full", "--save-answer", "fused.answer.json").code == 0
    outcome = run("inspect", "model", "unfused.answer.json")
    assert outcome.code == 0 and "Answer of a Search" in outcome.out, outcome
    assert "Add (Add, fp32)" in outcome.out and "where fp16 steps by 32" in outcome.out
    assert json.loads(run("inspect", "data", "unfused.answer.json", "--json").out)["format"] == "ulpscope-answer"
    outcome = run("inspect", "diff", "unfused.answer.json", "fused.answer.json")
    assert outcome.code == 1 and "Layers of A alone (2): Add, Sub" in outcome.out, outcome
    (tmp_path / "cut.answer.json").write_text((tmp_path / "fused.answer.json").read_text()[:300])
    assert run("inspect", "model", "cut.answer.json").code == 1


def test_difference_of_results(run, model):
    assert run("run", model, "--onnxrt", "--save-outputs", "a.json", "--save-inputs", "in.json").code == 0
    assert run("run", model, "--onnxrt", "--save-outputs", "b.json", "--seed", "2").code == 0
    assert run("inspect", "diff", "a.json", "a.json").code == 0
    outcome = run("inspect", "diff", "a.json", "b.json")
    assert outcome.code == 1 and "matmul_out_3 | max absolute difference" in outcome.out, outcome
    report = json.loads(run("inspect", "diff", "a.json", "b.json", "--json").out)
    assert not report["equal"] and 0 < report["runners"][0]["outputs"][0]["max_abs"] <= 1
    assert run("inspect", "diff", "in.json", "in.json").code == 0


@pytest.mark.parametrize(
    "words, code, says",
    [
        (["inspect", "model"], 2, "the following arguments are required: MODEL"),
        (["inspect", "model", "nothing.onnx"], 1, "no such file"),
        (["inspect", "model", "garbage.onnx"], 1, "garbage.onnx"),
        (["inspect", "model", "garbage.plan"], 1, "garbage.plan"),
        (["inspect", "model", "empty.onnx"], 1, "empty.onnx"),
        (["inspect", "model", "garbage.onnx", "--visual"], 1, "--visual"),
        (["inspect", "model", "garbage.onnx", "--show", "layer"], 2, "invalid choice"),
        (["inspect", "data", "nothing.json"], 1, "nothing.json"),
        (["inspect", "data", "garbage.onnx"], 1, "garbage.onnx"),
        (["inspect", "data", "broken.json"], 1, "malformed JSON"),
        (["inspect", "data", "garbage.onnx"], 1, "no JSON begins so; is it a file of another kind?"),
        (["inspect", "data", "broken.json", "-n", "-5"], 1, "--num-items"),
        (["inspect", "diff", "broken.json"], 2, "required: B"),
        (["inspect", "diff", "broken.json", "broken.json"], 1, "malformed JSON"),
        (
            ["inspect", "diff", "garbage.onnx", "broken.json"],
            1,
            "expected an engine, saved results, or layer precisions",
        ),
        (["inspect", "diff", "lines.txt", "wrong.txt"], 1, "line 2: expected layer:type, got 'no type'"),
        (["inspect", "diff", "lines.txt", "empty.json"], 1, "expected an engine"),
        (["inspect", "diff", "lines.txt", "x.json"], 1, "expected two of a kind"),
        (["inspect", "diff", "lines.txt", "nameless.json"], 1, "layer 0: expected the keys"),
        (
            ["inspect", "diff", "lines.txt", "lines.txt", "more"],
            1,
            "Unrecognized Options: ['more']; too many words: usage: ulpscope inspect diff [-h] A B [options]",
        ),
    ],
)
def test_bad_input(words, code, says, run, tmp_path):
    (tmp_path / "garbage.onnx").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "garbage.plan").write_bytes(b"ULPSPLAN" + bytes(100))
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "broken.json").write_text('{"lst": [')
    (tmp_path / "lines.txt").write_text("a:fp16\n")
    (tmp_path / "wrong.txt").write_text("a:fp16\nno type\n")
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "x.json").write_text(json.dumps([{"x": encode_array(np.zeros(2, np.float32))}]))
    (tmp_path / "nameless.json").write_text('{"layers": [{"precision": "fp16"}]}')
    outcome = run(*words)
    assert outcome.code == code and says in outcome.text, outcome


def arrays_of_all_types():
    """Values on and between edges of bins, ends that their type cannot subtract, single values, small steps."""
    random = np.random.default_rng(5)
    arrays = {}
    for dtype in (np.float16, np.float32, np.float64):
        for k in range(25):
            size = int(random.integers(101, 4000))
            scale = 10.0 ** random.integers(-6, 4)
            arrays[f"{dtype.__name__}_{k}"] = (random.standard_normal(size) * scale + random.integers(-3, 4)).astype(dtype)
        arrays[f"{dtype.__name__}_steps"] = (random.integers(0, 11, 500) / 10).astype(dtype)
        arrays[f"{dtype.__name__}_one"] = np.full(200, 0.3, dtype)
        arrays[f"{dtype.__name__}_ends"] = np.repeat(np.array([np.finfo(dtype).min, 0, np.finfo(dtype).max], dtype), 50)
        arrays[f"{dtype.__name__}_tiny"] = np.repeat(np.arange(20) * np.finfo(dtype).smallest_subnormal, 9).astype(dtype)
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        info = np.iinfo(dtype)
        for k in range(8):
            low, high = sorted(int(random.integers(info.min, info.max, dtype=dtype, endpoint=True)) for _ in range(2))
            arrays[f"{dtype.__name__}_{k}"] = random.integers(low, high, int(random.integers(101, 3000)), dtype=dtype, endpoint=True)
        arrays[f"{dtype.__name__}_ends"] = np.repeat(np.array([info.min, info.max // 2, info.max], dtype), 40)
        arrays[f"{dtype.__name__}_one"] = np.full(120, 7, dtype)
    return arrays


def test_histograms_of_all_types_as_numpy(run, polygraphy, tmp_path):
    arrays = arrays_of_all_types()
    (tmp_path / "in.json").write_text(json.dumps([{name: encode_array(array) for name, array in arrays.items()}]))
    words = ["inspect", "data", "in.json", "--histogram"]
    mine, theirs = run(*words), polygraphy(*words)
    assert mine.code == theirs.code == 0, (mine, theirs)
    mine, theirs = shown(mine.out), shown(theirs.out)
    assert sum("Bin Range" in line for line in mine) > 130
    different = [pair for pair in zip(mine, theirs) if pair[0] != pair[1] and "Stats" not in pair[0]]
    assert not different and len(mine) == len(theirs), different[:10]


@pytest.mark.parametrize("mode, show", [("none", []), ("basic", ["layers"]), ("attrs", ["layers", "attrs"]), ("full", ["layers", "attrs", "weights"])])
@pytest.mark.parametrize("form", [[], ["--display-as=trt"]], ids=["onnx", "trt"])
def test_older_form_of_show(mode, show, form, run, model):
    older, newer = (run("inspect", "model", model, *form, *words) for words in ([f"--mode={mode}"], ["--show", *show] if show else []))
    assert older.code == 0 and older.out == newer.out, older


def test_folders_without_iterations(run, polygraphy, tmp_path):
    (tmp_path / "empty").mkdir()
    ours, theirs = run("inspect", "data", "empty"), polygraphy("inspect", "data", "empty")
    assert ours.code == theirs.code == 1 and "No per-iteration" in ours.err and "No per-iteration" in theirs.text, (ours, theirs)


def test_unknown_tools_are_named(run):
    for words in (["inspect", "tactics", "r.json"], ["inspect", "-v", "tactics", "r.json"]):
        outcome = run(*words)
        assert outcome.code == 2 and "invalid choice: 'inspect tactics' (choose from " in outcome.err, outcome
        assert "it is Polygraphy's: 'polygraphy inspect tactics'" in outcome.err, outcome
    outcome = run("surgeon", "extract", "m.onnx", "--inputs", "x:auto:auto", "-o", "e.onnx")
    assert outcome.code == 2 and "it is Polygraphy's: 'polygraphy surgeon'" in outcome.err, outcome
    assert "did you mean 'ulpscope inspect data'" in run("inspect", "dta", "r.json").err
