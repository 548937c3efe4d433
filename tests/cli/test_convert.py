"""`ulpscope convert`: every kind of file converts, passes onnx.checker, runs in ONNX Runtime, and keeps its bits."""
import json
import os
import re
import signal

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cli_support import needs_constraints
from convert_support import FLOAT, HALF, MADE, SHAPES, assert_converted, casts, info, model, nested_functions, output_read_inside, save, shared_initializer, values


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("name", MADE)
def test_made_models(run, tmp_path, name, fusion):
    source = save(tmp_path, MADE[name]())
    outcome = run("convert", source, "--fp16", "-o", "t.onnx", "--fusion", fusion, *SHAPES.get(name, []))
    assert_converted(outcome)
    assert "ONNX Runtime" in outcome.text, outcome
    before, after = onnx.load(tmp_path / source), onnx.load(tmp_path / "t.onnx")
    assert [(o.name, o.type.tensor_type.elem_type) for o in before.graph.output] == \
        [(o.name, o.type.tensor_type.elem_type) for o in after.graph.output]
    # No cast undoes another one, and none reads a weight.
    producers = {o: node for node in after.graph.node for o in node.output}
    constants = {i.name for i in after.graph.initializer}
    for node in after.graph.node:
        if node.op_type != "Cast" or name == "own_casts":
            continue
        assert node.input[0] not in constants
        assert producers.get(node.input[0]) is None or producers[node.input[0]].op_type != "Cast"


@pytest.mark.parametrize("keep", [["--keep", "MatMul_1"], ["--keep", "Add", "Sub"], ["--lower", "MatMul*"]])
def test_the_typed_model_gives_what_precisions_give(run, tmp_path, keep):
    """The file run strongly typed, against the weakly typed network, by the program itself."""
    source = save(tmp_path, needs_constraints())
    assert_converted(run("convert", source, "--fp16", *keep, "-o", "t.onnx", "--save-layer-precisions", "p.txt"))
    words = (tmp_path / "p.txt").read_text().split()
    assert len(words) == 4
    weak = run("run", source, "--trt", "--fp16", "--assume-lowest", "--precision-constraints", "obey",
               "--layer-precisions", *words, "--save-outputs", "weak.json")
    assert weak.code == 0, weak
    typed = run("run", "t.onnx", "--trt", "--strongly-typed", "--load-outputs", "weak.json", "--atol", "0", "--rtol", "0")
    assert typed.code == 0, typed


def masks(name):
    """Without its masks clamped, the outputs are NaN in every narrow type."""
    return ["--clamp-constants", "float_min"] if name.startswith("minilm") else []


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("name,most,size", [("minilm", 4, 0.51), ("minilm_planted", 4, 0.51), ("ocr_det", 4, 0.56), ("ocr_cls", 4, 0.62), ("needs_constraints", 2, 0.6)])
def test_real_models(run, models, tmp_path, name, most, size, fusion):
    path = models / f"{name}.onnx"
    outcome = run("convert", path, "--fp16", "-o", "t.onnx", "--load-inputs", models / f"{name}.search.json",
                  "--fusion", fusion, *masks(name))
    if name == "minilm_planted":  # What is planted there leaves float16.
        assert outcome.code == 4 and "equal in every bit" in outcome.out, outcome
    else:
        assert_converted(outcome)
    assert casts(tmp_path / "t.onnx") - casts(path) <= most
    assert (tmp_path / "t.onnx").stat().st_size <= size * path.stat().st_size


@pytest.mark.parametrize("name", ["minilm", "ocr_det", "ocr_cls"])
def test_real_models_in_bfloat16(run, models, tmp_path, name):
    path = models / f"{name}.onnx"
    outcome = run("convert", path, "--bf16", "-o", "t.onnx", "--load-inputs", models / f"{name}.search.json",
                  *masks(name))
    assert_converted(outcome)
    assert "higher precision" not in outcome.text, outcome
    assert casts(tmp_path / "t.onnx") - casts(path) <= 4


def test_outputs_that_are_no_numbers_check_nothing(run, models, tmp_path):
    outcome = run("convert", models / "minilm.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 4 and "The check says nothing: output 'last_hidden_state'" in outcome.out, outcome
    # No search mends what float32 does not compute either.
    assert "where float32 itself is finite, `precision search`" in outcome.out, outcome
    empty = helper.make_model(helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(empty, tmp_path / "e.onnx")
    outcome = run("convert", "e.onnx", "--fp16", "-o", "t.onnx", "--input-shapes", "x:[0,64]")
    assert outcome.code == 4 and "no output has any element" in outcome.out, outcome


def test_dynamic_dimensions_need_no_shapes(run, models, tmp_path):
    """A size of 1, which Polygraphy takes, is too small for its windows."""
    outcome = run("convert", models / "ocr_cls.onnx", "--fp16", "-o", "t.onnx")
    assert_converted(outcome)
    error = re.search(r"Error against float32 on 1 sample: rel-l2 (\S+) at", outcome.out)
    shape = [int(d) for d in re.search(r"of shape: \(([^)]*)\)", outcome.out)[1].split(",")]
    feed = {"x": np.random.default_rng(0).random(shape, np.float32)}
    exact, typed = [onnxruntime.InferenceSession(str(path)).run(None, feed)[0] for path in (models / "ocr_cls.onnx", tmp_path / "t.onnx")]
    # Other numbers, and ONNX Runtime's order of sums: the same size.
    assert 0.05 < float(error[1]) / (np.linalg.norm(typed - exact) / np.linalg.norm(exact)) < 20


def test_one_kept_layer_of_minilm_costs_few_casts(run, models, tmp_path):
    path = models / "minilm.onnx"
    assert_converted(run("convert", path, "--fp16", "--keep", "/Mul", "-o", "t.onnx"))
    assert casts(tmp_path / "t.onnx") - casts(path) <= 6


def test_bfloat16_raises_the_opset_where_that_is_safe(run, tmp_path):
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), helper.make_node("Relu", ["c"], ["y"], name="relu")]
    save(tmp_path, model(nodes, [info("x", [1, 3, 6, 6])], [info("y", [1, 4, 4, 4])], [values("w", 4, 3, 3, 3)]))
    outcome = run("convert", "m.onnx", "--bf16", "-o", "t.onnx")
    assert_converted(outcome)
    assert "from 17 to 22" in outcome.text and "no CPU kernels for bfloat16" in outcome.text, outcome
    typed = onnx.load(tmp_path / "t.onnx")
    assert typed.opset_import[0].version == 22
    assert typed.graph.initializer[0].data_type == TensorProto.BFLOAT16


def test_what_the_opset_cannot_say_stays_in_float32(run, tmp_path):
    """Up to opset 12 this Softmax works over the last three axes at once."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
             helper.make_node("Softmax", ["c"], ["r"], name="softmax"),
             helper.make_node("Add", ["c", "r"], ["y"], name="add")]
    made = model(nodes, [info("x", [1, 3, 6, 6])], [info("y", [1, 4, 4, 4])], [values("w", 4, 3, 3, 3)], opset=11)
    save(tmp_path, made)
    outcome = run("convert", "m.onnx", "--bf16", "-o", "t.onnx")
    assert outcome.code == 1 and "Softmax 'softmax' (its axis 1 is not the last one of 4)" in outcome.text, outcome
    assert "try exporting the model with opset 13" in outcome.text, outcome


RAISED = {
    "softmax": [helper.make_node("Softmax", ["p"], ["y"], axis=2)],
    "squeeze": [helper.make_node("Unsqueeze", ["p"], ["u"], axes=[1]), helper.make_node("Tanh", ["u"], ["v"]),
                helper.make_node("Squeeze", ["v"], ["y"], axes=[1])],
    "reductions": [helper.make_node("ReduceSum", ["p"], ["s"], axes=[2]), helper.make_node("ReduceMean", ["p"], ["m"], axes=[-1]),
                   helper.make_node("ReduceL2", ["p"], ["l"], axes=[2]), helper.make_node("Sub", ["p", "m"], ["c"]),
                   helper.make_node("Mul", ["c", "s"], ["d"]), helper.make_node("Div", ["d", "l"], ["y"])],
    "split": [helper.make_node("Split", ["p"], ["s1", "s2"], axis=1), helper.make_node("Split", ["s1"], ["a", "b"], axis=1, split=[1, 1]),
              helper.make_node("Concat", ["b", "a", "s2"], ["y"], axis=1)],
}


@pytest.mark.parametrize("name", RAISED)
def test_attributes_that_newer_opsets_have_as_inputs(run, tmp_path, name):
    """Written for opset 11, raised as far as bfloat16 needs it: to 13, with a convolution to 22."""
    for last, opset in (("MatMul", 13), ("Conv", 22)):
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="first")] + \
            [helper.make_node(last, ["x", "k" if last == "Conv" else "w"], ["z"], name="last")] + RAISED[name]
        made = model(nodes, [info("x", [2, 4, 6])], [info("y", [2, 4, 6]), info("z", [2, 3, 6] if last == "Conv" else [2, 4, 6])],
                     [values("w", 6, 6), values("k", 3, 4, 1)], opset=11)
        save(tmp_path, made)
        outcome = run("convert", "m.onnx", "--bf16", "-o", "t.onnx")
        assert_converted(outcome)
        assert f"from 11 to {opset}" in outcome.text and "higher precision" not in outcome.text, outcome
        # In float16 it runs in ONNX Runtime; int8 asks for opset 13.
        both = run("convert", "m.onnx", "--fp16", "--int8", "-o", "u.onnx")
        assert_converted(both)
        assert "ONNX Runtime" in both.text and onnx.load(tmp_path / "u.onnx").opset_import[0].version == 13, both


def test_shared_initializer_is_stored_twice_only_if_it_must(run, tmp_path):
    save(tmp_path, shared_initializer())
    assert_converted(run("convert", "m.onnx", "--fp16", "--keep", "high", "-o", "two.onnx"))
    assert sorted(i.data_type for i in onnx.load(tmp_path / "two.onnx").graph.initializer) == [FLOAT, HALF]
    assert_converted(run("convert", "m.onnx", "--fp16", "-o", "one.onnx"))
    assert [(i.name, i.data_type) for i in onnx.load(tmp_path / "one.onnx").graph.initializer] == [("w", HALF)]


def test_everything_else_stays(run, tmp_path):
    """Texts, metadata, names of dimensions, opsets, training information; and what nobody reads."""
    made = model([helper.make_node("MatMul", ["x", "w"], ["a"], name="product", doc_string="a node"),
                  helper.make_node("Relu", ["x"], ["unread"], name="dead"),
                  helper.make_node("Softmax", ["a"], ["y"], name="softmax", axis=-1)],
                 [info("x", ["batch", 4])], [info("y", ["batch", 4])], [values("w", 4, 4), values("nobody", 3)],
                 extra_opsets=[helper.make_opsetid("com.example", 3)])
    made.doc_string, made.producer_name, made.graph.doc_string = "a model", "me", "a graph"
    made.graph.initializer[0].doc_string = "a weight"
    made.graph.value_info.append(info("a", ["batch", 4]))
    entry = made.metadata_props.add()
    entry.key, entry.value = "author", "me"
    save(tmp_path, made)
    assert_converted(run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--input-shapes", "x:[3,4]"))
    typed = onnx.load(tmp_path / "t.onnx")
    assert (typed.doc_string, typed.producer_name, typed.graph.doc_string) == ("a model", "me", "a graph")
    assert {p.key: p.value for p in typed.metadata_props}["author"] == "me"
    assert [(o.domain, o.version) for o in typed.opset_import] == [("", 17), ("com.example", 3)]
    assert [n.name for n in typed.graph.node if n.op_type != "Cast"] == ["product", "dead", "softmax"]
    assert typed.graph.input[0] == made.graph.input[0] and typed.graph.output[0] == made.graph.output[0]
    assert [n.doc_string for n in typed.graph.node if n.name == "product"] == ["a node"]
    weights = {i.name: (i.data_type, i.doc_string) for i in typed.graph.initializer}
    assert weights == {"w": (HALF, "a weight"), "nobody": (FLOAT, "")}
    assert {v.name: v.type.tensor_type.elem_type for v in typed.graph.value_info}["a"] == HALF
    # Converting twice changes nothing but is told.
    again = run("convert", "t.onnx", "--fp16", "-o", "u.onnx")
    assert again.code == 1 and "already" in again.text, again


def test_initializers_that_are_inputs_too(run, tmp_path):
    """Files of IR version 3, and those that were exported like them."""
    for version in (3, 8):
        made = shared_initializer()
        made.ir_version = version
        made.graph.input.append(info("w", [4, 4]))
        made.opset_import[0].version = 8 if version == 3 else 17
        save(tmp_path, made)
        assert_converted(run("convert", "m.onnx", "--fp16", "--keep", "high", "-o", "t.onnx"))
        typed = onnx.load(tmp_path / "t.onnx").graph
        names = [i.name for i in typed.input]
        assert names[:2] == ["x", "w"] and len(names) == (3 if version == 3 else 2)


@pytest.mark.parametrize("fusion", ["none", "full"])
def test_functions_are_lowered(run, tmp_path, fusion):
    save(tmp_path, nested_functions())
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--fusion", fusion)
    assert_converted(outcome)
    assert "ONNX Runtime" in outcome.text and "2 call(s) of model-local functions are written as their bodies" in outcome.text, outcome
    typed = onnx.load(tmp_path / "t.onnx")
    assert not typed.functions and [o.domain for o in typed.opset_import] == [""]
    names = [n.name for n in typed.graph.node]
    assert "before" in names and sum(n.op_type == "LeakyRelu" for n in typed.graph.node) == 4
    types = {v.name: v.type.tensor_type.elem_type for v in onnx.shape_inference.infer_shapes(typed).graph.value_info}
    assert all(types[n.output[0]] == HALF for n in typed.graph.node if n.op_type in ("LeakyRelu", "Mul"))


def test_functions_of_another_opset_stay(run, tmp_path):
    body = [helper.make_node("Softmax", ["v"], ["out"], axis=0)]
    function = helper.make_function("local", "Old", ["v"], ["out"], body, [helper.make_opsetid("", 11)])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="before"), helper.make_node("Old", ["a"], ["y"], name="call", domain="local")]
    made = model(nodes, [info("x", [3, 4])], [info("y", [3, 4])], [values("w", 4, 4)], functions=[function],
                 extra_opsets=[helper.make_opsetid("local", 1)])
    onnx.save(made, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--no-python-checks")
    assert outcome.code == 0 and "inside of a model-local function" in outcome.text, outcome
    assert len(onnx.load(tmp_path / "t.onnx").functions) == 1


def test_io_types(run, tmp_path):
    save(tmp_path, output_read_inside())
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--io-types", "x:float16", "y:fp16")
    assert_converted(outcome)
    typed = onnx.load(tmp_path / "t.onnx").graph
    assert [v.type.tensor_type.elem_type for v in [*typed.input, *typed.output]] == [HALF, FLOAT, HALF]


def test_bits_are_compared_on_two_samples_and_the_first_without_fusion_too(run, tmp_path):
    save(tmp_path, needs_constraints())
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--iterations", "5")
    assert outcome.code == 0 and "ulpscope (3 runs, equal in every bit)" in outcome.out, outcome
    assert "on 5 samples" in outcome.out, outcome


def test_bits_are_compared_on_every_set_of_shapes(run, tmp_path):
    save(tmp_path, model([helper.make_node("Exp", ["x"], ["y"], name="e")], [info("x", ["n"])], [info("y", ["n"])]))
    (tmp_path / "d.py").write_text(
        "import numpy as np\n\ndef load_data():\n"
        "    for n in (1, 1, 1, 2, 2, 3):\n        yield {'x': np.ones(n, np.float32)}\n"
    )
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx", "--data-loader-script", "d.py")
    assert outcome.code == 0 and "ulpscope (5 runs, equal in every bit)" in outcome.out, outcome


def test_progress_counts_runs(run, tmp_path):
    """A signal at a run ends the conversion there."""
    save(tmp_path, needs_constraints())
    outcome = run(
        "convert",
        "m.onnx",
        "--fp16",
        "-o",
        "t.onnx",
        "--iterations",
        "5",
        env={"ULPSCOPE_SIGNAL_AT": f"{int(signal.SIGINT)}:1:converting and checking: run 3"},
    )
    assert outcome.code == 130 and not (tmp_path / "t.onnx").exists(), outcome


def test_other_forms(run, tmp_path):
    save(tmp_path, needs_constraints())
    outcome = run("convert", "m.onnx", "--fp16", "--keep", "Add", "-o", "t.onnx", "--save-postprocess-script", "p.py",
                  "--save-exclusions", "e.json", "--print-commands")
    assert_converted(outcome)
    assert "trtexec --onnx=t.onnx --stronglyTyped" in outcome.out
    assert json.loads((tmp_path / "e.json").read_text()) == {"node_block_list": ["Add"], "nodes_to_exclude": ["Add"]}
    with_script = run("run", "m.onnx", "--trt", "--fp16", "--assume-lowest", "--precision-constraints", "obey",
                      "--trt-npps", "p.py", "-v")
    assert with_script.code == 0, with_script
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "t.onnx").metadata_props}
    assert metadata["ulpscope.kept_in_fp32"] == "Add" and metadata["ulpscope.precisions"] == "3 fp16, 1 fp32"


def test_external_data_moves_along(run, tmp_path):
    onnx.save(shared_initializer(), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "out").mkdir()
    assert_converted(run("convert", "m.onnx", "--fp16", "--keep", "high", "-o", "out/t.onnx"))
    assert os.listdir(tmp_path / "out") == ["t.onnx"]


def half_model():
    return model([helper.make_node("Relu", ["x"], ["y"], name="relu")], [info("x", [2], HALF)], [info("y", [2], HALF)])


@pytest.mark.parametrize(
    "words,text",
    [
        (["--fp16", "--keep", "Ad"], "did you mean"),
        (["--fp16", "--keep", "nothing*"], "expected a layer"),
        (["--fp16", "--keep", "Add", "--lower", "A*"], "matches both --keep and --lower"),
        (["--fp16", "--keep", "Add", "--layer-precisions", "Add:float16"], "disagree"),
        (["--fp16", "--layer-precisions", "Add:float15"], "expected <layer>:"),
        (["--fp16", "--keep", "*"], "expected layers to lower"),
        (["--keep", "Add"], "expected a type to lower"),
        (["--print-commands"], "expected a type to lower"),
        (["--fp16", "--calibration-cache", "c"], "expected --int8 too"),
        (["--fp16", "--io-types", "add:float16"], "expected an input or output"),
        (["--fp16", "--io-types", "x:int8"], "expected a change between"),
        (["--fp16", "--relax"], "expected a tolerance that the outputs must stay within"),
        (["--fp16", "--relax", "--rtol", "0.1", "--lower", "Add"], "--relax and --lower contradict"),
        (["--fp16", "--rtol", "0.1"], "expected --relax too"),
        (["--fp16", "--save-answer", "a.json"], "expected --answer too"),
    ],
)
def test_mistakes(run, tmp_path, words, text):
    save(tmp_path, needs_constraints())
    outcome = run("convert", "m.onnx", *words, "-o", "t.onnx")
    assert outcome.code == 1 and text in outcome.text, outcome
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_a_layer_that_onnx_runtime_has_no_kernel_for(run, tmp_path):
    nodes = [helper.make_node("Exp", ["x"], ["e"], name="exp"),
             helper.make_node("ScatterElements", ["e", "i", "u"], ["y"], name="scatter", reduction="mul")]
    indices = numpy_helper.from_array(np.zeros((1, 2), np.int64), "i")
    save(
        tmp_path,
        model(
            nodes,
            [info("x", [2, 2])],
            [info("y", [2, 2])],
            [indices, numpy_helper.from_array(np.full((1, 2), 0.5, np.float32), "u")],
            opset=18,
        ),
    )
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0 and "Not run in ONNX Runtime, which has no kernel for a layer" in outcome.text, outcome
    assert (tmp_path / "t.onnx").exists() and "ScatterElements" in outcome.text


def test_a_model_that_is_narrow_already(run, tmp_path):
    save(tmp_path, half_model())
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 1 and "narrow types in the file already; try the float32 model" in outcome.text, outcome


@pytest.mark.parametrize(
    "node,element,words,reason",
    [
        (
            helper.make_node("Exp", ["x"], ["y"], name="exp"),
            FLOAT,
            ["--keep", "exp"],
            "; all its float layers are kept",
        ),
        (
            helper.make_node("Exp", ["x"], ["y"], name="exp"),
            TensorProto.DOUBLE,
            [],
            ": layer 'exp' (Exp) computes in float64, which stays",
        ),
        (
            helper.make_node("Inverse", ["x"], ["y"], name="inv", domain="com.microsoft"),
            FLOAT,
            [],
            ": layer 'inv' (Inverse) has no precision of its own",
        ),
        (
            helper.make_node("Transpose", ["x"], ["y"], name="turn"),
            FLOAT,
            [],
            "; no float arithmetic but of constants reaches an output",
        ),
    ],
)
def test_says_why_nothing_is_lowered(run, tmp_path, node, element, words, reason):
    made = model([node], [info("x", [2, 2], element)], [info("y", [2, 2], element)])
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    save(tmp_path, made)
    outcome = run("convert", "m.onnx", "--fp16", *words, "-o", "t.onnx")
    assert outcome.code == 1 and outcome.text.rstrip().endswith(f"expected layers to lower, got none{reason}"), outcome


def test_an_output_that_is_listed_twice(run, tmp_path):
    twice = model(
        [helper.make_node("Exp", ["x"], ["y"], name="exp")], [info("x", [2, 2])], [info("y", [2, 2]), info("y", [2, 2])]
    )
    save(tmp_path, twice)
    outcome = run("run", "m.onnx", "--trt", "--onnxrt")
    assert outcome.code == 0 and "output 'y' is listed twice, and handed out once" in outcome.text, outcome
    assert_converted(run("convert", "m.onnx", "--fp16", "--io-types", "y:float16", "-o", "t.onnx"))
    assert [o.type.tensor_type.elem_type for o in onnx.load(tmp_path / "t.onnx").graph.output] == [HALF, HALF]


def test_bfloat16_needs_opset_13(run, tmp_path):
    for axis in (1, 0):
        save(tmp_path, model([helper.make_node("Softmax", ["x"], ["y"], name="softmax", axis=axis)], [info("x", [2, 3])], [info("y", [2, 3])], opset=11))
        outcome = run("convert", "m.onnx", "--bf16", "-o", "t.onnx")
        if axis == 1:
            assert_converted(outcome)
        else:
            assert outcome.code == 1 and "opset 11 has no bfloat16" in outcome.text, outcome
