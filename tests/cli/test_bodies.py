"""Layers inside of the bodies of If, Loop and Scan: named, lowered and kept as others are."""
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from body_models import MODELS, branches, cancels_inside, loop, nested
from convert_support import HALF, assert_converted, info, model, save, values
from search_support import save_inputs


def graphs(graph):
    """A graph and those inside of it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def types_of(path):
    """The element type that each node of the file computes in, by name, from onnx's own inference of types."""
    inferred = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True).graph
    known, result = {}, {}
    for graph in graphs(inferred):
        known |= {i.name: i.type.tensor_type.elem_type for i in [*graph.input, *graph.value_info, *graph.output]}
        known |= {i.name: i.data_type for i in graph.initializer}
    for graph in graphs(inferred):
        result |= {node.name: known.get(node.output[0]) for node in graph.node}
    return result


def inputs_of(path, seed=3):
    random = np.random.RandomState(seed)
    result = {}
    for value in onnx.load(path).graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        is_bool = value.type.tensor_type.elem_type == onnx.TensorProto.BOOL
        result[value.name] = np.array(True) if is_bool else random.standard_normal(shape).astype(np.float32)
    return result


def weak_options(precision, words):
    return ["--trt", f"--{precision}", "--assume-lowest", "--precision-constraints", "obey", *(["--layer-precisions", *words] if words else [])]


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_all_of_a_body_is_lowered(run, tmp_path, name, precision, fusion):
    source = save(tmp_path, MODELS[name]())
    outcome = run("convert", source, f"--{precision}", "-o", "t.onnx", "--fusion", fusion)
    assert_converted(outcome)
    typed = onnx.load(tmp_path / "t.onnx")
    onnx.checker.check_model(typed, full_check=True)
    narrow = HALF if precision == "fp16" else onnx.TensorProto.BFLOAT16
    before, after = graphs(onnx.load(tmp_path / source).graph), graphs(typed.graph)
    for old, new in zip(before, after, strict=True):
        # What goes in and comes out keeps its type: both branches, and what a loop hands on, agree in it.
        assert [i.type.tensor_type.elem_type for i in [*old.input, *old.output]] == [i.type.tensor_type.elem_type for i in [*new.input, *new.output]]
    assert any(cast.op_type == "Cast" and helper.get_attribute_value(cast.attribute[0]) == narrow
               for graph in list(graphs(typed.graph))[1:] for cast in graph.node), "nothing is lowered inside"
    if precision == "fp16":
        feeds = inputs_of(tmp_path / source)
        exact = onnxruntime.InferenceSession(tmp_path / source).run(None, feeds)
        low = onnxruntime.InferenceSession(tmp_path / "t.onnx").run(None, feeds)
        for a, b in zip(exact, low):
            assert np.allclose(a, b, rtol=0.02, atol=0.02), name


def clamped_in_bodies():
    """A mask and the bound of a Clip that a layer and a branch of an If read, and a mask that only the other reads."""
    then = helper.make_graph(
        [
            helper.make_node("Add", ["t", "mask"], ["s"], name="then/add"),
            helper.make_node("Clip", ["s", "", "top"], ["c"], name="then/clip"),
            helper.make_node("Softmax", ["c"], ["then_out"], name="then/softmax"),
        ],
        "then",
        [],
        [info("then_out", [4, 8])],
    )
    other = helper.make_graph(
        [helper.make_node("Add", ["t", "inner"], ["else_out"], name="else/add")], "else", [], [info("else_out", [4, 8])]
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Add", ["p", "mask"], ["m"], name="add"),
        helper.make_node("Clip", ["m", "", "top"], ["t"], name="clip"),
        helper.make_node("If", ["choice"], ["y"], name="if", then_branch=then, else_branch=other),
    ]
    mask = np.zeros((1, 8), np.float32)
    mask[:, 4:] = -3.4e38
    constants = [
        onnx.numpy_helper.from_array(each, name)
        for name, each in (("mask", mask), ("inner", mask / 2), ("top", np.float32(3e38)))
    ]
    return model(
        nodes,
        [info("x", [4, 8]), info("choice", [], onnx.TensorProto.BOOL)],
        [info("y", [4, 8])],
        [values("w", 8, 8), *constants],
    )


@pytest.mark.parametrize(
    "words", [[], ["--keep", "then/*"], ["--keep", "add", "clip"], ["--keep", "then/add"]], ids=" ".join
)
def test_bodies_read_clamped_constants(run, tmp_path, words):
    """In the file they read them from outside, or as constants of their own: the same bits either way."""
    source = save(tmp_path, clamped_in_bodies())
    inputs = save_inputs(tmp_path / "in.json", [{"x": np.ones((4, 8), np.float32), "choice": np.array(True)}])
    outcome = run(
        "convert",
        source,
        "--fp16",
        "-o",
        "t.onnx",
        *words,
        "--load-inputs",
        inputs,
        "--clamp-constants",
        "mask:1",
        "top:0.5",
    )
    assert_converted(outcome)
    assert "No sample runs else_branch of 'if': what is written there follows the same rules" in outcome.text, outcome


@pytest.mark.parametrize("name", ["inner", "then/add"])
def test_constants_of_bodies_are_not_clamped(run, tmp_path, name):
    source = save(tmp_path, clamped_in_bodies())
    outcome = run("convert", source, "--fp16", "-o", "t.onnx", "--clamp-constants", name)
    said = {
        "inner": "got one that only the body of an If, Loop or Scan reads",
        "then/add": "there is no constant 'then/add'",
    }[name]
    assert outcome.code == 1 and "[repair] " in outcome.err and said in outcome.err, outcome


def test_verify_names_bodies_that_no_sample_runs(run, tmp_path):
    source = save(tmp_path, branches())
    data = [{"x": np.full((2, 4), i / 8, np.float32), "choice": np.array(True)} for i in range(4)]
    words = ["--load-inputs", save_inputs(tmp_path / "in.json", data)]
    options = ["--fp16", "--threshold", "0.1", "--objective", "smallest", "--save-answer", "a.json"]
    assert run("precision", "search", source, *options, *words).code == 0
    said = "[verify] No sample runs else_branch of 'if': the verdict says nothing of the layers there"
    outcome = run("verify", source, "--answer", "a.json", *words)
    assert outcome.code == 0 and outcome.text.count(said) == 1, outcome
    data[1]["choice"] = np.array(False)
    save_inputs(tmp_path / "in.json", data)
    assert "No sample runs" not in run("verify", source, "--answer", "a.json", *words).text


@pytest.mark.parametrize("keep, kept", [
    (["then/product"], {"then/product"}), (["else/*"], {"else/product", "else/mul"}), (["MatMul"], {"product", "then/product", "else/product"}),
    (["if"], {"then/product", "then/add", "else/product", "else/mul"}),
])
def test_layers_are_kept_by_any_name(run, tmp_path, keep, kept):
    source = save(tmp_path, branches())
    assert_converted(run("convert", source, "--fp16", "--keep", *keep, "-o", "t.onnx"))
    types = types_of(tmp_path / "t.onnx")
    names = ["product", "sum", "then/product", "then/add", "else/product", "else/mul", "tanh"]
    assert {name for name in names if types[name] != HALF} == kept


def test_lower_names_layers_inside_alone(run, tmp_path):
    source = save(tmp_path, loop())
    assert_converted(run("convert", source, "--fp16", "--lower", "loop/product", "-o", "t.onnx"))
    types = types_of(tmp_path / "t.onnx")
    assert [name for name in ("gain", "loop/product", "loop/add", "loop/tanh", "softmax") if types[name] == HALF] == ["loop/product"]


@pytest.mark.parametrize("name", MODELS)
def test_a_mixture_is_one_assignment_in_every_form(run, tmp_path, name):
    """Some layers float16, some bfloat16, some float32: the typed file, and --layer-precisions of the weak network."""
    source = save(tmp_path, MODELS[name]())
    listed = run("convert", source, "--fp16", "-o", "all.onnx", "--save-layer-precisions", "all.txt")
    assert_converted(listed)
    layers = [line.rsplit(":", 1)[0] for line in (tmp_path / "all.txt").read_text().split()]
    assert len(layers) == len(set(layers))
    types = ("float32", "float16", "bfloat16")
    words = [f"{layer}:{types[i % 3]}" for i, layer in enumerate(layers)]
    outcome = run("convert", source, "--fp16", "--bf16", "--layer-precisions", *words, "-o", "t.onnx", "--save-layer-precisions", "p.txt")
    assert_converted(outcome)
    words = (tmp_path / "p.txt").read_text().split()
    weak = run("run", source, *weak_options("fp16", words), "--bf16", "--save-outputs", "weak.json", "--save-inputs", "in.json")
    assert weak.code == 0, weak
    typed = run("run", "t.onnx", "--trt", "--strongly-typed", "--load-inputs", "in.json", "--load-outputs", "weak.json", "--atol", "0", "--rtol", "0")
    assert typed.code == 0, typed


def test_the_layer_that_runs_a_body_names_what_is_in_it(run, tmp_path):
    """`run --layer-precisions loop:float32` keeps the body in float32; a name inside has the last word."""
    source = save(tmp_path, loop())
    def outputs(words, file):
        outcome = run("run", source, *weak_options("fp16", words), "--save-outputs", file, "--seed", "1")
        assert outcome.code == 0, outcome
        return json.loads((tmp_path / file).read_text())["lst"][0][1][0]["outputs"]
    inside = ["loop/product", "loop/add", "loop/tanh", "loop/total"]
    assert outputs(["loop:float32"], "a.json") == outputs([f"{name}:float32" for name in inside], "b.json")
    assert outputs(["loop:float32", "loop/tanh:float16"], "c.json") == outputs([f"{n}:float32" for n in inside if n != "loop/tanh"], "d.json")
    assert outputs(["loop:float32"], "e.json") != outputs([], "f.json")


def test_a_search_keeps_layers_inside(run, tmp_path):
    source = save(tmp_path, cancels_inside())
    found = run("precision", "search", source, "--fp16", "--objective", "smallest", "--metric", "rel-l2", "--threshold", "1e-2", "--iterations", "8",
                "--save-answer", "a.json", "--save-onnx", "t.onnx")
    assert found.code == 0, found
    kept = {layer["name"] for layer in json.loads((tmp_path / "a.json").read_text())["layers"]}
    assert "loop/add" in kept and kept <= {"loop/product", "loop/add", "loop/again", "loop/sub"}, found
    types = types_of(tmp_path / "t.onnx")
    assert {name for name in ("start", "loop/product", "loop/add", "loop/again", "loop/sub", "end") if types[name] != HALF} == kept
    assert "inside of a body of 'loop'" in found.text, found
    assert run("verify", source, "--answer", "a.json", "--iterations", "4").code == 0
    assert_converted(run("convert", source, "--answer", "a.json", "-o", "again.onnx"))
    assert onnx.load(tmp_path / "again.onnx").graph == onnx.load(tmp_path / "t.onnx").graph


def test_an_engine_file_keeps_the_types_of_bodies(run, tmp_path):
    source = save(tmp_path, nested())
    weak = run("run", source, *weak_options("fp16", ["first/product:float32", "sigmoid:float32"]), "--save-engine", "m.engine",
               "--save-outputs", "weak.json", "--save-inputs", "in.json")
    assert weak.code == 0, weak
    again = run("run", "m.engine", "--trt", "--load-inputs", "in.json", "--load-outputs", "weak.json", "--atol", "0", "--rtol", "0")
    assert again.code == 0, again
    shown = run("inspect", "model", "m.engine", "--show", "layers")
    assert shown.code == 0 and "first/product" in shown.out, shown


def test_unknown_names_find_layers_inside(run, tmp_path):
    source = save(tmp_path, loop())
    outcome = run("convert", source, "--fp16", "--keep", "loop/prodct", "-o", "t.onnx")
    assert outcome.code == 1 and "loop/product" in outcome.text, outcome


def test_int8_is_refused_inside(run, tmp_path):
    source = save(tmp_path, loop())
    outcome = run("run", source, *weak_options("int8", ["loop/product:int8"]))
    assert outcome.code != 0 and "'loop/product' (MatMul) was asked to run in int8, but layers in the body" in outcome.text, outcome


def test_constants_of_old_bodies_are_inputs_too(run, tmp_path):
    """Up to IR version 3 every initializer is an input of its graph, of a body, too."""
    inner = helper.make_graph(
        [
            helper.make_node("Mul", ["h", "own"], ["m"], name="loop/mul"),
            helper.make_node("Tanh", ["m"], ["next"], name="loop/tanh"),
            helper.make_node("Identity", ["going"], ["still"], name="loop/going"),
        ],
        "body",
        [
            info("i", [], onnx.TensorProto.INT64),
            info("going", [], onnx.TensorProto.BOOL),
            info("h", [2, 4]),
            info("own", [4]),
        ],
        [info("still", [], onnx.TensorProto.BOOL), info("next", [2, 4])],
        [values("own", 4)],
    )
    trips = onnx.numpy_helper.from_array(np.int64(3), "trips")
    old = model(
        [helper.make_node("Loop", ["trips", "", "x"], ["y"], name="loop", body=inner)],
        [info("x", [2, 4]), info("trips", [], onnx.TensorProto.INT64)],
        [info("y", [2, 4])],
        [trips],
        opset=8,
        ir_version=3,
    )
    source = save(tmp_path, old)
    assert run("run", source, "--trt", "--onnxrt").code == 0
    assert_converted(run("convert", source, "--fp16", "-o", "t.onnx"))
    assert types_of(tmp_path / "t.onnx")["loop/tanh"] == HALF


def test_a_body_that_never_fits_is_no_error_until_it_runs(run, tmp_path):
    """A branch whose shapes cannot be: it converts while it does not run, and says so when it does."""
    then = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["t"], name="fits")], "then", [], [info("t", [2, 4])])
    other = helper.make_graph([helper.make_node("MatMul", ["w", "bad"], ["e"], name="never")], "else", [], [info("e", [2, 4])])
    source = tmp_path / "m.onnx"
    onnx.save(model([helper.make_node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other)],
                    [info("x", [2, 4]), info("c", [], onnx.TensorProto.BOOL)], [info("y", [2, 4])], [values("w", 4, 4), values("bad", 3, 4)]), source)
    for choice, code in ((True, 0), (False, 1)):
        (tmp_path / "data.py").write_text(f"import numpy as np\ndef load_data():\n    yield {{'x': np.ones((2, 4), np.float32), 'c': np.bool_({choice})}}\n")
        outcome = run("run", source, *weak_options("fp16", []), "--data-loader-script", "data.py")
        assert outcome.code == code and (choice or "'never'" in outcome.text), outcome


def test_types_of_a_body_are_its_own(run, tmp_path):
    """Tensors of a body have numbers of their own, which outside are those of others: here of float16 ones."""
    outer = [helper.make_node("Cast", ["x"], ["h0"], "to_half", to=HALF)]
    outer += [helper.make_node("Mul", [f"h{i}", f"h{i}"], [f"h{i + 1}"], f"half{i}") for i in range(8)]
    outer += [helper.make_node("Cast", ["h8"], ["y"], "from_half", to=onnx.TensorProto.FLOAT)]
    body = [helper.make_node("Tanh", ["x" if i == 0 else f"t{i - 1}"], [f"t{i}"], f"inside{i}") for i in range(8)]
    other = [helper.make_node("Sin", ["x"], ["s"], "other")]
    then_branch = helper.make_graph(
        body, "then", [], [helper.make_tensor_value_info("t7", onnx.TensorProto.FLOAT, None)]
    )
    else_branch = helper.make_graph(
        other, "else", [], [helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, None)]
    )
    choice = helper.make_node("If", ["c"], ["z"], "if", then_branch=then_branch, else_branch=else_branch)
    source = save(
        tmp_path,
        model(
            [*outer, choice],
            [info("x", [2, 3]), info("c", [], onnx.TensorProto.BOOL)],
            [info("y", [2, 3]), info("z", [2, 3])],
        ),
    )
    outcome = run("convert", source, "--bf16", "-o", "t.onnx")
    assert_converted(outcome)
    types = types_of(tmp_path / "t.onnx")
    assert {types[f"inside{i}"] for i in range(8)} == {onnx.TensorProto.BFLOAT16}
