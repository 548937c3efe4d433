"""`ulpscope debug reduce`: the smallest part of a model that still fails, judged here or by a command."""

import json
import re
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import encode_array


WIDTH = 16


def save(path, nodes, inputs, outputs, constants=(), ir=10):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir)
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return path


def chain(value, count, name):
    """Layers that no type harms."""
    nodes = []
    for i in range(count):
        out = f"{name}_{i}_out"
        nodes.append(helper.make_node("Tanh", [value], [out], name=f"{name}_{i}"))
        value = out
    return nodes, value


def layer_norm_by_hand(path):
    """Values around 500, whose squares no float16 holds, between layers that are harmless."""
    before, value = chain("x", 6, "before")
    nodes = before + [
        helper.make_node("Mul", [value, "gain"], ["large"], name="gain_by"),
        helper.make_node("Mul", ["large", "large"], ["squares"], name="square"),
        helper.make_node("ReduceMean", ["squares"], ["mean"], name="mean", axes=[-1], keepdims=1),
        helper.make_node("Sqrt", ["mean"], ["root"], name="root"),
        helper.make_node("Div", ["large", "root"], ["normal"], name="normalize"),
    ]
    after, value = chain("normal", 6, "after")
    nodes += after + [helper.make_node("Identity", [value], ["y"], name="out")]
    return save(path, nodes, [("x", [2, WIDTH])], [("y", [2, WIDTH])], [("gain", np.float32(700))])


def masked_softmax(path):
    """A mask of -FLT_MAX is harmless, and is added twice; a row without any key gives NaN in float16 alone."""
    lowest = np.finfo(np.float32).min
    mask = np.zeros((2, WIDTH), np.float32)
    mask[0, 3:], mask[1] = lowest, lowest
    before, value = chain("x", 4, "before")
    nodes = before + [
        helper.make_node("Add", [value, "mask"], ["scores"], name="add_mask"),
        helper.make_node("Softmax", ["scores"], ["weights"], name="softmax", axis=-1),
    ]
    after, value = chain("weights", 4, "after")
    nodes += after + [helper.make_node("Identity", [value], ["y"], name="out")]
    return save(path, nodes, [("x", [2, WIDTH])], [("y", [2, WIDTH])], [("mask", mask)])


def large_sum(path):
    """4096 values of about 40 add up to 160,000; what follows brings the sum back."""
    before, value = chain("x", 3, "before")
    nodes = before + [
        helper.make_node("Mul", [value, "gain"], ["large"], name="gain_by"),
        helper.make_node("ReduceSum", ["large", "axes"], ["sum"], name="sum", keepdims=1),
        helper.make_node("Mul", ["sum", "back"], ["small"], name="back_by"),
    ]
    after, value = chain("small", 5, "after")
    nodes += after + [helper.make_node("Identity", [value], ["y"], name="out")]
    return save(
        path,
        nodes,
        [("x", [1, 4096])],
        [("y", [1, 1])],
        [("gain", np.float32(60)), ("axes", np.array([1])), ("back", np.float32(1e-5))],
    )


def names_of(path):
    return [node.name for node in onnx.load(path).graph.node]


CASES = {
    "layer norm": (layer_norm_by_hand, ["--val-range", "[0.5,1]"], {"square"}),
    "mask": (masked_softmax, [], {"softmax"}),
    "sum": (large_sum, ["--val-range", "[0.8,1]"], {"sum"}),
}


@pytest.mark.parametrize("case", CASES)
def test_reduces_to_what_breaks_in_fp16(run, tmp_path, case):
    make, data, blamed = CASES[case]
    make(tmp_path / "m.onnx")
    out = run("debug", "reduce", "m.onnx", "--fp16", "-o", "reduced.onnx", "--fusion", "none", *data)
    assert out.code == 0, out.text
    onnx.checker.check_model(onnx.load(tmp_path / "reduced.onnx"), full_check=True)
    assert blamed <= set(names_of(tmp_path / "reduced.onnx")) and len(names_of(tmp_path / "reduced.onnx")) <= 2
    # ONNX Runtime gives what is saved as golden, in float32.
    inputs = {name: array for name, array in arrays_of(run, tmp_path, "reduced.inputs.json")}
    golden = dict(arrays_of(run, tmp_path, "reduced.golden.json"))
    session = onnxruntime.InferenceSession(str(tmp_path / "reduced.onnx"), providers=["CPUExecutionProvider"])
    for output, value in zip(session.get_outputs(), session.run(None, inputs)):
        np.testing.assert_allclose(value, golden[output.name], rtol=1e-5)
    # The command that it names fails as the whole model does, and float32 does not.
    command = re.search(r"ulpscope (run reduced\.onnx .*)", out.text)[1].split()
    assert run(*command).code == 1
    assert (
        run(
            "run",
            "reduced.onnx",
            "--trt",
            "--load-inputs",
            "reduced.inputs.json",
            "--load-outputs",
            "reduced.golden.json",
        ).code
        == 0
    )


def arrays_of(run, folder, path):
    """Of one iteration of inputs or results, as Polygraphy reads the file."""
    json_utils = pytest.importorskip("polygraphy.json")
    loaded = json_utils.load_json(str(folder / path))
    if isinstance(loaded, list):
        return list(loaded[0].items())
    runner = loaded if hasattr(loaded, "lst") else next(iter(loaded.values()))
    return list(runner.lst[0][1][0].items())


def test_a_harmless_overflow_is_not_taken_for_the_failure(run, tmp_path):
    """The mask becomes -inf long before the part that fails, and softmax makes 0 of it."""
    masked_softmax(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    mask = np.zeros((2, WIDTH), np.float32)
    mask[:, 3:] = np.finfo(np.float32).min
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(mask, "mask"))
    overflow = [
        helper.make_node("Mul", ["y", "gain"], ["big"], name="gain_by"),
        helper.make_node("Mul", ["big", "big"], ["z"], name="square"),
    ]
    model.graph.node.extend(overflow)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(5000), "gain"))
    model.graph.output[0].name = "z"
    onnx.checker.check_model(model)
    onnx.save(model, tmp_path / "m.onnx")
    out = run("debug", "reduce", "m.onnx", "--fp16", "-o", "reduced.onnx", "--fusion", "none")
    assert out.code == 0, out.text
    assert names_of(tmp_path / "reduced.onnx") == ["square"]


def test_what_passes_is_not_reduced(run, tmp_path):
    layer_norm_by_hand(tmp_path / "m.onnx")
    out = run("debug", "reduce", "m.onnx", "--fp16", "-o", "reduced.onnx", "--val-range", "[0.001,0.002]")
    assert out.code == 1 and "There is nothing to reduce" in out.text
    assert not (tmp_path / "reduced.onnx").exists()


def test_tolerances_decide(run, tmp_path):
    layer_norm_by_hand(tmp_path / "m.onnx")
    words = ["debug", "reduce", "m.onnx", "--fp16", "-o", "reduced.onnx", "--val-range", "[0.001,0.002]"]
    assert run(*words, "--metric", "rel-l2", "--threshold", "1e-6").code == 0
    assert run(*words, "--atol", "1e-1").code == 1


CHECK = """import sys, onnx
names = [node.name for node in onnx.load('polygraphy_debug.onnx').graph.node]
print(names)
sys.exit(1 if 'square' in names else 0)
"""


@pytest.mark.parametrize("mode", ["bisect", "linear"])
def test_a_command_judges_as_with_polygraphy(run, polygraphy, tmp_path, mode):
    layer_norm_by_hand(tmp_path / "m.onnx")
    (tmp_path / "check.py").write_text(CHECK)
    words = ["debug", "reduce", "m.onnx", "--mode", mode, "--min-good", "good.onnx"]
    check = ["--check", sys.executable, "check.py"]
    mine = run(*words, "-o", "mine.onnx", *check)
    assert mine.code == 0, mine.text
    assert "square" in names_of(tmp_path / "mine.onnx") and "square" not in names_of(tmp_path / "good.onnx")
    theirs = polygraphy(*words, "-o", "theirs.onnx", *check)
    if theirs.code != 0:
        pytest.skip("this Polygraphy has no onnx_graphsurgeon")
    assert len(names_of(tmp_path / "mine.onnx")) <= len(names_of(tmp_path / "theirs.onnx"))
    assert not (tmp_path / "polygraphy_debug.onnx").exists()


@pytest.mark.parametrize("mode", ["bisect", "linear"])
def test_constant_nodes_become_initializers(run, tmp_path, mode):
    """As with Polygraphy: what is left are the nodes that fail, and a Constant does not."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [
        helper.make_node("Constant", [], ["c"], name="constant", value=numpy_helper.from_array(values, "v")),
        helper.make_node("Identity", ["x"], ["before"], name="before"),
        helper.make_node("Add", ["before", "c"], ["sum"], name="breaks"),
        helper.make_node("Identity", ["sum"], ["y"], name="after"),
    ]
    save(tmp_path / "m.onnx", nodes, [("x", [2, 3])], [("y", [2, 3])])
    check = "import onnx, sys; sys.exit('breaks' in [n.name for n in onnx.load('polygraphy_debug.onnx').graph.node])"
    outcome = run("debug", "reduce", "m.onnx", "--mode", mode, "-o", "r.onnx", "--check", sys.executable, "-c", check)
    assert outcome.code == 0, outcome
    graph = onnx.load(tmp_path / "r.onnx").graph
    assert [node.name for node in graph.node] == ["breaks"] and list(graph.node[0].input) == ["before", "c"]
    assert np.array_equal(numpy_helper.to_array(graph.initializer[0]), values)
    onnx.checker.check_model(str(tmp_path / "r.onnx"), full_check=True)


def test_artifacts_and_replays(run, tmp_path):
    layer_norm_by_hand(tmp_path / "m.onnx")
    (tmp_path / "check.py").write_text(CHECK + "")
    words = [
        "debug",
        "reduce",
        "m.onnx",
        "-o",
        "r.onnx",
        "--artifacts",
        "polygraphy_debug.onnx",
        "--iteration-info",
        "info.json",
        "--save-debug-replay",
        "replay.json",
    ]
    first = run(*words, "--check", sys.executable, "check.py")
    assert first.code == 0, first.text
    tries = json.loads((tmp_path / "replay.json").read_text())
    kinds = {path.parent.name for path in (tmp_path / "polygraphy_artifacts").glob("*/*.onnx")}
    assert kinds == {"good", "bad"} and len(tries) >= 4
    (tmp_path / "check.py").write_text("import sys; sys.exit(3)")
    again = run(*words, "--load-debug-replay", "replay.json", "--check", sys.executable, "check.py")
    assert again.code == 0 and "FAILED | Runtime" not in again.text
    assert again.text.count("Loading iteration information from debug replay") == len(tries)


def test_one_end_alone(run, tmp_path):
    layer_norm_by_hand(tmp_path / "m.onnx")
    words = ["debug", "reduce", "m.onnx", "--fp16", "-o", "r.onnx", "--fusion", "none", "--val-range", "[0.5,1]"]
    assert run(*words, "--no-reduce-inputs").code == 0
    graph = onnx.load(tmp_path / "r.onnx").graph
    assert [each.name for each in graph.input] == ["x"]
    assert run(*words, "--no-reduce-outputs").code == 0
    graph = onnx.load(tmp_path / "r.onnx").graph
    assert [each.name for each in graph.output] == ["y"]
    both = run(*words, "--no-reduce-outputs", "--no-reduce-inputs")
    assert both.code == 2 and "not allowed with argument" in both.text


def test_says_what_is_missing(run, tmp_path):
    layer_norm_by_hand(tmp_path / "m.onnx")
    out = run("debug", "reduce", "m.onnx", "--fp16")
    assert out.code == 1
    assert "--output (where to write the reduced model) and/or --min-good" in " ".join(out.text.split())
    (tmp_path / "polygraphy_debug.onnx").write_text("mine")
    out = run("debug", "reduce", "m.onnx", "--fp16", "-o", "r.onnx", "--fusion", "none", "--val-range", "[0.5,1]")
    assert out.code == 1 and "refusing to overwrite" in out.text


def two_branches(path):
    """x -> left, y -> right, left + right -> sum -> out."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("Identity", ["x"], ["left"], name="left"),
        node("Identity", ["y"], ["right"], name="right"),
        node("Add", ["left", "right"], ["sum"], name="add"),
        node("Identity", ["sum"], ["out"], name="last"),
    ]
    graph = helper.make_graph(
        nodes, "branches", [info(name, TensorProto.FLOAT, [1]) for name in "xy"], [info("out", TensorProto.FLOAT, [1])]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def test_values_that_are_frozen_want_the_inputs_of_the_check(run, tmp_path):
    two_branches(tmp_path / "m.onnx")
    (tmp_path / "check.py").write_text("""import onnx, sys
sys.exit(any(node.name == "left" for node in onnx.load("polygraphy_debug.onnx").graph.node))
""")
    (tmp_path / "i.json").write_text(
        json.dumps([{"x": encode_array(np.ones(1, np.float32)), "y": encode_array(np.ones(1, np.float32))}])
    )
    words = ["debug", "reduce", "m.onnx", "-o", "r.onnx", "--no-reduce-outputs", "--no-shape-inference"]
    check = ["--check", sys.executable, "check.py"]
    warning = "Please ensure that you have provided a data loader argument directly"
    generated, given = run(*words, *check), run(*words, "--load-inputs", "i.json", *check)
    assert generated.code == given.code == 0, (generated, given)
    assert "left" in names_of(tmp_path / "r.onnx")
    assert generated.text.count(warning) == 1 and warning not in given.text


def test_the_last_verdict_may_lack_its_newline(run, tmp_path):
    two_branches(tmp_path / "m.onnx")
    words = ["debug", "reduce", "m.onnx", "-o", "r.onnx", "--no-reduce-inputs", "--mode", "linear"]
    whole = run(*words, stdin="p\n" * 8)
    assert whole.code == 0, whole
    asked = whole.text.count("[p]ass or [f]ail?")
    assert asked > 1
    again = run(*words, stdin="\n".join(["p"] * asked))
    assert again.code == 0, again
    assert run(*words, stdin="\n".join(["p"] * (asked - 1))).code == 1


def shapes_of(values):
    return {each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in values}


def names_check(name):
    """A command that refuses models with this node."""
    code = f"import onnx, sys; sys.exit('{name}' in [n.name for n in onnx.load('polygraphy_debug.onnx').graph.node])"
    return ["--check", sys.executable, "-c", code]


@pytest.mark.parametrize("mode", ["bisect", "linear"])
def test_a_model_without_inputs_is_reduced_to_its_node(run, tmp_path, mode):
    """What is computed from constants alone may be what the command refuses: it is no reason for an empty model."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [
        helper.make_node("Constant", [], ["c"], name="constant", value=numpy_helper.from_array(values, "v")),
        helper.make_node("Neg", ["c"], ["first"], name="first"),
        helper.make_node("Neg", ["first"], ["second"], name="breaks"),
        helper.make_node("Neg", ["second"], ["y"], name="third"),
    ]
    save(tmp_path / "m.onnx", nodes, [], [("y", [2, 3])])
    outcome = run("debug", "reduce", "m.onnx", "--mode", mode, "-o", "r.onnx", *names_check("breaks"))
    assert outcome.code == 0, outcome
    assert names_of(tmp_path / "r.onnx") == ["breaks"]
    session = onnxruntime.InferenceSession(str(tmp_path / "r.onnx"))
    assert np.array_equal(session.run(None, {"first": -values})[0], values)


def test_constant_computations_are_candidates_of_linear(run, tmp_path):
    nodes = [
        helper.make_node("Neg", ["c"], ["folded"], name="breaks"),
        helper.make_node("Abs", ["folded"], ["factor"], name="abs"),
        helper.make_node("Mul", ["x", "factor"], ["y"], name="mul"),
    ]
    save(tmp_path / "m.onnx", nodes, [("x", [3])], [("y", [3])], [("c", np.ones(3, np.float32))])
    outcome = run("debug", "reduce", "m.onnx", "--mode", "linear", "-o", "r.onnx", *names_check("breaks"))
    assert outcome.code == 0, outcome
    assert names_of(tmp_path / "r.onnx") == ["breaks"]


def test_outputs_of_parts_have_the_shapes_that_are_known(run, tmp_path):
    """Whatever the values of the inputs are: NonZero gives as many columns as it finds."""
    nodes = [
        helper.make_node("Neg", ["x"], ["minus"], name="minus"),
        helper.make_node("NonZero", ["minus"], ["places"], name="places"),
        helper.make_node("Transpose", ["places"], ["rows"], name="rows"),
        helper.make_node("Cast", ["rows"], ["y"], name="cast", to=TensorProto.FLOAT),
    ]
    save(tmp_path / "m.onnx", nodes, [("x", [2, 3])], [("y", [None, 2])])
    for name, shape in {"minus": [2, 3], "rows": [0, 0]}.items():
        outcome = run("debug", "reduce", "m.onnx", "--mode", "linear", "-o", f"{name}.onnx", *names_check(name))
        assert outcome.code == 0, outcome
        assert shapes_of(onnx.load(tmp_path / f"{name}.onnx").graph.output) == {name: shape}  # 0: not said.


def test_replays_are_those_of_polygraphy(run, polygraphy, tmp_path):
    """Keys of tries say whether inputs or outputs were reduced; either program goes on from the other's file."""
    layer_norm_by_hand(tmp_path / "m.onnx")
    (tmp_path / "check.py").write_text(CHECK)
    words = ["debug", "reduce", "m.onnx", "-o", "r.onnx"]
    check = ["--check", sys.executable, "check.py"]
    outcome = run(*words, "--save-debug-replay", "mine.json", *check)
    assert outcome.code == 0, outcome
    tries = json.loads((tmp_path / "mine.json").read_text())
    for phase in ("outputs", "inputs"):
        keys = [key for key in tries if key.endswith(phase)]
        assert keys and keys == [f"_N{i}_{phase}" for i in range(len(keys))]
        assert [tries[key]["iteration_info"]["iteration"] for key in keys] == list(range(len(keys)))
    theirs = polygraphy(*words, "--save-debug-replay", "theirs.json", *check)
    if theirs.code != 0:
        pytest.skip("this Polygraphy has no onnx_graphsurgeon")
    again = run(*words, "--load-debug-replay", "theirs.json", "--check", "false")
    assert again.code == 0 and "Loading iteration information from debug replay" in again.text
