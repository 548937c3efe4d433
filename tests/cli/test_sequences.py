"""Sequences of tensors, and maps at the end of exports of scikit-learn: what goes into them is run, compared and
converted."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert_support import FLOAT, HALF, assert_converted, info, model, save, values

ML = helper.make_opsetid("ai.onnx.ml", 1)


def integer(name, value):
    return numpy_helper.from_array(np.asarray(value, np.int64), name)


def sequence_info(name):
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def classifier(labels=(0, 1, 2)):
    """As skl2onnx writes a pipeline of a scaler and a logistic regression: labels, and a ZipMap of probabilities."""
    are_words = isinstance(labels[0], str)
    classes = {"classlabels_strings" if are_words else "classlabels_ints": list(labels)}
    random = np.random.RandomState(0)
    nodes = [
        helper.make_node(
            "Scaler",
            ["x"],
            ["variable"],
            "Scaler",
            domain="ai.onnx.ml",
            offset=[5.8, 3.0, 3.7, 1.2],
            scale=[1.2, 2.3, 0.6, 1.3],
        ),
        helper.make_node(
            "LinearClassifier",
            ["variable"],
            ["label", "raw"],
            "LinearClassifier",
            domain="ai.onnx.ml",
            post_transform="SOFTMAX",
            coefficients=random.standard_normal(12).tolist(),
            intercepts=[0.1, -0.2, 0.3],
            multi_class=1,
            **classes,
        ),
        helper.make_node("Normalizer", ["raw"], ["probabilities"], "Normalizer", domain="ai.onnx.ml", norm="L1"),
        helper.make_node(
            "ZipMap",
            ["probabilities"],
            ["output_probability"],
            "ZipMap",
            domain="ai.onnx.ml",
            **({"classlabels_strings": list(labels)} if are_words else {"classlabels_int64s": list(labels)}),
        ),
    ]
    key = TensorProto.STRING if are_words else TensorProto.INT64
    maps = helper.make_value_info(
        "output_probability",
        helper.make_sequence_type_proto(helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, []))),
    )
    return model(nodes, [info("x", [None, 4])], [info("label", [None], key), maps], extra_opsets=[ML], opset=15)


def network_with_zipmap():
    """A network of our own operators whose probabilities end in a ZipMap."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "Gemm"),
        helper.make_node("Relu", ["h"], ["r"], "Relu"),
        helper.make_node("MatMul", ["r", "w2"], ["scores"], "MatMul"),
        helper.make_node("Softmax", ["scores"], ["probabilities"], "Softmax"),
        helper.make_node("ArgMax", ["scores"], ["label"], "ArgMax", axis=1, keepdims=0),
        helper.make_node(
            "ZipMap",
            ["probabilities"],
            ["output_probability"],
            "ZipMap",
            domain="ai.onnx.ml",
            classlabels_int64s=[0, 1, 2],
        ),
    ]
    maps = helper.make_value_info(
        "output_probability",
        helper.make_sequence_type_proto(
            helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, []))
        ),
    )
    return model(
        nodes,
        [info("x", [5, 4])],
        [info("label", [5], TensorProto.INT64), maps],
        [values("w1", 4, 16), values("b1", 16), values("w2", 16, 3)],
        extra_opsets=[ML],
    )


def inside(opset=17):
    """Sequences between layers: made, added to, shortened, read, counted and joined."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=0)
        if opset < 18
        else helper.make_node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2),
        helper.make_node("MatMul", ["a", "w"], ["aw"], "product"),
        helper.make_node("SequenceConstruct", ["aw", "b"], ["s0"], "construct"),
        helper.make_node("SequenceInsert", ["s0", "a", "first"], ["s1"], "insert"),
        helper.make_node("SequenceInsert", ["s1", "b"], ["s2"], "append"),
        helper.make_node("SequenceErase", ["s2", "last"], ["s3"], "erase"),
        helper.make_node("SequenceAt", ["s3", "last"], ["picked"], "at"),
        helper.make_node("SequenceLength", ["s3"], ["length"], "length"),
        helper.make_node("Cast", ["length"], ["count"], "count", to=FLOAT),
        helper.make_node("ConcatFromSequence", ["s3"], ["joined"], "join", axis=1),
        helper.make_node("ConcatFromSequence", ["s3"], ["stacked"], "stack", axis=-1, new_axis=1),
        helper.make_node("Mul", ["joined", "count"], ["y"], "scale"),
        helper.make_node("Tanh", ["picked"], ["z"], "tanh"),
    ]
    return model(nodes, [info("x", [4, 4])], [info("y", [2, 12]), info("z", [2, 4]), info("stacked", [2, 4, 3])],
                 [values("w", 4, 4), integer("first", 0), integer("last", -1)], opset=opset)


def parts(opset=17, keepdims=1, lengths=None):
    """SplitToSequence, whose parts are read by number."""
    inputs = ["x"] + (["lengths"] if lengths is not None else [])
    nodes = [helper.make_node("SplitToSequence", inputs, ["s"], "split", axis=1, keepdims=keepdims),
             helper.make_node("SequenceAt", ["s", "second"], ["b"], "at"), helper.make_node("Exp", ["b"], ["y"], "exp")]
    weights = [integer("second", 1)] + ([integer("lengths", lengths)] if lengths is not None else [])
    return model(
        nodes,
        [info("x", [3, 5])],
        [info("y", [3, None] if keepdims or lengths is not None else [3])],
        weights,
        opset=opset,
    )


def body(nodes, inputs, outputs, weights=()):
    return helper.make_graph(nodes, "body", inputs, outputs, list(weights))


def mapped():
    """A body that runs for every tensor, with another sequence, a tensor and a weight from around, and its own."""
    each = body(
        [
            helper.make_node("MatMul", ["p", "w"], ["pw"], "product"),
            helper.make_node("Add", ["pw", "own"], ["sum"], "add"),
            helper.make_node("Mul", ["sum", "q"], ["scaled"]),
            helper.make_node("Sub", ["scaled", "t"], ["less"], "less"),
            helper.make_node("Tanh", ["p"], ["other"], "tanh"),
        ],
        [info("p", [2, 4]), info("q", [2, 4]), info("t", [4])],
        [info("less", [2, 4]), info("other", [2, 4])],
        [values("own", 4)],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], "before"),
        helper.make_node("Split", ["xw"], ["a", "b"], axis=0),
        helper.make_node("SequenceConstruct", ["a", "b"], ["s"], "construct"),
        helper.make_node("SequenceConstruct", ["b", "b"], ["s2"], "again"),
        helper.make_node("SequenceMap", ["s", "s2", "shift"], ["m1", "m2"], "map", body=each),
        helper.make_node("SequenceAt", ["m2", "last"], ["z"], "at"),
        helper.make_node("ConcatFromSequence", ["m1"], ["y"], "join", axis=0),
    ]
    weights = [values("w", 4, 4), values("shift", 4), integer("last", -1)]
    return model(nodes, [info("x", [4, 4])], [info("y", [4, 4]), info("z", [2, 4])], weights)


def mapped_twice():
    """What one body gives, goes through another, which passes a tensor on and has an If inside."""
    branches = [
        body([helper.make_node(op, ["p"], [f"{op}_out"], op)], [], [info(f"{op}_out", [2, 4])]) for op in ("Exp", "Neg")
    ]
    choose = [helper.make_node("If", ["c"], ["chosen"], "if", then_branch=branches[0], else_branch=branches[1])]
    first = body([helper.make_node("Abs", ["p"], ["r"], "abs")], [info("p", [2, 4])], [info("r", [2, 4])])
    second = body(choose, [info("p", [2, 4])], [info("chosen", [2, 4]), info("p", [2, 4])])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], "before"),
        helper.make_node("Split", ["xw"], ["a", "b"], axis=0),
        helper.make_node("SequenceConstruct", ["a", "b"], ["s"], "construct"),
        helper.make_node("SequenceMap", ["s"], ["m"], "first", body=first),
        helper.make_node("SequenceMap", ["m"], ["n", "o"], "second", body=second),
        helper.make_node("ConcatFromSequence", ["n"], ["y"], "join", axis=0),
        helper.make_node("ConcatFromSequence", ["o"], ["z"], "join_too", axis=1),
    ]
    condition = info("c", [], TensorProto.BOOL)
    return model(nodes, [info("x", [4, 4]), condition], [info("y", [4, 4]), info("z", [2, 8])], [values("w", 4, 4)])


def of_different_lengths():
    each = body([helper.make_node("Add", ["p", "q"], ["r"], "add")], [info("p", [2]), info("q", [2])], [info("r", [2])])
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"], "two"),
        helper.make_node("SequenceConstruct", ["x"], ["s1"], "one"),
        helper.make_node("SequenceMap", ["s", "s1"], ["m"], "map", body=each),
        helper.make_node("ConcatFromSequence", ["m"], ["y"], "join", axis=0),
    ]
    return model(nodes, [info("x", [2])], [info("y", [4])])


def handed_out():
    """A sequence is an output: its tensors are compared."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "product"), helper.make_node("Tanh", ["a"], ["b"], "tanh"),
             helper.make_node("SequenceConstruct", ["a", "b"], ["both"], "construct")]
    return model(nodes, [info("x", [3, 4])], [sequence_info("both")], [values("w", 4, 4)])


def outputs_of(path, iteration=0):
    results = json.loads(path.read_text())["lst"]
    return {name: [out["outputs"] for out in each] for name, each in results}


@pytest.mark.parametrize(
    "made, tensors",
    [
        (classifier, {"label", "probabilities"}),
        (lambda: classifier(("no", "maybe", "yes")), {"probabilities"}),
        (network_with_zipmap, {"label", "probabilities"}),
        (handed_out, {"a", "b"}),
    ],
)
def test_what_goes_into_maps_is_compared(run, tmp_path, made, tensors):
    source = save(tmp_path, made())
    outcome = run(
        "run", source, "--trt", "--onnxrt", "--save-outputs", "out.json", "--input-shapes",
        "x:[5,4]" if made is not handed_out else "x:[3,4]",
    )  # fmt: skip
    assert outcome.code == 0 and "the tensors that go into it" in outcome.text, outcome
    for name, runs in outputs_of(tmp_path / "out.json").items():
        assert set(runs[0]) == tensors, name


def test_words_are_left_out(run, tmp_path):
    source = save(tmp_path, classifier(("no", "maybe", "yes")))
    outcome = run("run", source, "--trt", "--input-shapes", "x:[5,4]")
    assert outcome.code == 0 and "output 'label' is a tensor of strings: it is left out" in outcome.text, outcome


def test_a_network_with_a_zipmap_converts(run, tmp_path):
    source = save(tmp_path, network_with_zipmap())
    assert_converted(run("convert", source, "--fp16", "-o", "t.onnx"))
    typed = onnx.load(tmp_path / "t.onnx")
    assert typed.graph.output == onnx.load(tmp_path / source).graph.output
    assert [node.op_type for node in typed.graph.node][-1] == "ZipMap" or "ZipMap" in [
        node.op_type for node in typed.graph.node
    ]
    assert {i.name: i.data_type for i in typed.graph.initializer}["w1"] == HALF
    x = np.random.RandomState(1).standard_normal((5, 4)).astype(np.float32)
    exact, low = (onnxruntime.InferenceSession(tmp_path / name).run(None, {"x": x}) for name in (source, "t.onnx"))
    assert [list(row) for row in exact[1]] == [list(row) for row in low[1]]
    assert np.allclose([list(row.values()) for row in exact[1]], [list(row.values()) for row in low[1]], atol=1e-2)


def test_a_network_with_a_zipmap_is_searched(run, tmp_path):
    source = save(tmp_path, network_with_zipmap())
    found = run(
        "precision", "search", source, "--fp16", "--metric", "rel-l2", "--threshold", "1e-2", "--iterations", "8",
        "--save-answer", "a.json",
    )  # fmt: skip
    assert found.code == 0, found
    assert run("verify", source, "--answer", "a.json", "--runner", "onnxrt", "--iterations", "4").code == 0


@pytest.mark.parametrize(
    "made",
    [
        inside,
        lambda: inside(11),
        lambda: inside(20),
        handed_out,
        mapped,
        mapped_twice,
        parts,
        lambda: parts(11),
        lambda: parts(keepdims=0),
        lambda: parts(11, 0),
        lambda: parts(lengths=2),
        lambda: parts(lengths=[1, 3, 1]),
    ],
)
def test_sequences_run_and_convert(run, tmp_path, made):
    source = save(tmp_path, made())
    outcome = run("run", source, "--trt", "--onnxrt", "--atol", "1e-5")
    assert outcome.code == 0, outcome
    assert_converted(run("convert", source, "--fp16", "-o", "t.onnx"))
    onnx.checker.check_model(onnx.load(tmp_path / "t.onnx"), full_check=True)


def computed_position():
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"], "construct"),
        helper.make_node("SequenceAt", ["s", "at"], ["y"], "at"),
    ]
    return model(nodes, [info("x", [2]), info("at", [], TensorProto.INT64)], [info("y", [2])])


def beyond_the_end():
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"], "construct"),
        helper.make_node("SequenceAt", ["s", "at"], ["y"], "at"),
    ]
    return model(nodes, [info("x", [2])], [info("y", [2])], [integer("at", 2)])


def of_nothing():
    nodes = [
        helper.make_node("SequenceEmpty", [], ["s"], "empty"),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], "join", axis=0),
    ]
    return model(nodes, [info("x", [2])], [info("y", [2])])


def unknown_length():
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], "split"),
        helper.make_node("SequenceAt", ["s", "at"], ["y"], "at"),
    ]
    return model(nodes, [info("x", ["n", 2])], [info("y", [1, 2])], [integer("at", 0)])


def only_words():
    nodes = [helper.make_node("Cast", ["x"], ["y"], "cast", to=TensorProto.STRING)]
    return model(nodes, [info("x", [2])], [info("y", [2], TensorProto.STRING)])


@pytest.mark.parametrize(
    "made, text",
    [
        (computed_position, "node 'at' (SequenceAt): expected a constant as position, got 'at'"),
        (of_different_lengths, "node 'map' (SequenceMap): expected sequences of 2, got one of 1: 's1'"),
        (beyond_the_end, "node 'at' (SequenceAt): expected a position in a sequence of 2, got 2"),
        (of_nothing, "node 'join' (ConcatFromSequence): expected a sequence with tensors"),
        (unknown_length, "node 'split' (SplitToSequence): expected dimension 0 of 'x' to be known"),
        (only_words, "expected an output that is a tensor of numbers"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_not_known_is_refused(run, tmp_path, made, text):
    outcome = run("run", save(tmp_path, made()), "--trt")
    assert outcome.code == 1 and text in outcome.text and "Traceback" not in outcome.text, outcome


def test_shapes_that_onnx_infers_are_known(run, tmp_path):
    """As the message says of a computed tensor that is split."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("SplitToSequence", ["r"], ["s"], "split"),
        helper.make_node("SequenceAt", ["s", "at"], ["y"], "at"),
    ]
    made = model(nodes, [info("x", [3, 2])], [info("y", [1, 2])], [integer("at", 1)])
    outcome = run("run", save(tmp_path, made), "--trt")
    assert outcome.code == 1 and "the shapes that onnx.shape_inference finds" in outcome.text, outcome
    outcome = run("run", save(tmp_path, onnx.shape_inference.infer_shapes(made)), "--trt")
    assert outcome.code == 0, outcome
