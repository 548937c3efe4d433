"""`precision search --bits` and `--objective bits`: what the typed file holds, and what is refused."""

import json
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert_support import assert_converted
from search_support import save_inputs

WIDTH, LABELS = 192, 32
FORMATS = ["--weights-only", "--int4", "--nvfp4", "--int8", "--fp8"]
ELEMENT_BITS = {"FLOAT": 32, "FLOAT16": 16, "INT8": 8, "INT4": 4, "FLOAT8E4M3FN": 8, "FLOAT4E2M1": 4, "FLOAT8E8M0": 8}


def decoder(path, blocks=3):
    """gate * tanh(up) and down around a residual, and a head; 192 are no multiple of 128. Samples."""
    random = np.random.default_rng(3)
    nodes, constants, x = [], [], "x"

    def product(source, name, columns=WIDTH, size=0.06):
        weights = random.standard_t(4, (WIDTH, columns)) * size
        constants.append(numpy_helper.from_array(weights.astype(np.float32), f"{name}.weight"))
        nodes.append(helper.make_node("MatMul", [source, f"{name}.weight"], [f"{name}.out"], name))
        return f"{name}.out"

    for b in range(blocks):
        gate, up = product(x, f"b{b}.gate"), product(x, f"b{b}.up", size=0.03 * (b + 1))
        nodes.append(helper.make_node("Tanh", [up], [f"b{b}.tanh"], f"b{b}.Tanh"))
        nodes.append(helper.make_node("Mul", [gate, f"b{b}.tanh"], [f"b{b}.mul"], f"b{b}.Mul"))
        nodes.append(helper.make_node("Add", [x, product(f"b{b}.mul", f"b{b}.down")], [f"b{b}.x"], f"b{b}.Add"))
        x = f"b{b}.x"
    nodes.append(helper.make_node("MatMul", [x, "head.weight"], ["logits"], "head"))
    constants.append(
        numpy_helper.from_array((random.standard_normal((WIDTH, LABELS)) * 0.1).astype(np.float32), "head.weight")
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "decoder",
        [info("x", TensorProto.FLOAT, [8, WIDTH])],
        [info("logits", TensorProto.FLOAT, [8, LABELS])],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": np.random.default_rng(i).standard_normal((8, WIDTH)).astype(np.float32)} for i in range(8)]


@pytest.fixture
def search(run, tmp_path):
    save_inputs(tmp_path / "in.json", decoder(tmp_path / "m.onnx"))

    def call(*words):
        return run(
            "precision",
            "search",
            "m.onnx",
            "--load-inputs",
            "in.json",
            "--metric",
            "kl",
            "--save-answer",
            "a.json",
            *words,
        )

    return call


def stored_bits(path):
    """Per product, by the name of its weights: bits of elements and all scales in the file."""
    model = onnx.load(path)
    constants = {each.name: each for each in model.graph.initializer}
    makers = {output: node for node in model.graph.node for output in node.output}

    def bits_of(name):
        if name in constants:
            return math.prod(constants[name].dims) * ELEMENT_BITS[TensorProto.DataType.Name(constants[name].data_type)]
        maker = makers[name]
        assert maker.op_type in ("DequantizeLinear", "Cast", "Reshape", "Transpose"), maker
        return sum(
            bits_of(each) for each in (maker.input if maker.op_type == "DequantizeLinear" else maker.input[:1]) if each
        )

    return {node.name: bits_of(node.input[1]) for node in model.graph.node if node.op_type == "MatMul"}


@pytest.mark.parametrize(
    "words",
    [
        ["--bits", "5"],
        ["--bits", "4.5001", "--fp16"],
        ["--bits", "8.2", "--fp16"],
        ["--objective", "bits", "--threshold", "0.003"],
    ],
    ids=["budget", "fp16", "bytes beside fp16", "bits"],
)
def test_the_typed_file_has_the_bits_of_the_answer(words, search, run, tmp_path):
    outcome = search(*FORMATS, *words, "--keep", "head")
    assert outcome.code == 0, outcome
    answer = json.loads((tmp_path / "a.json").read_text())
    bits = answer["bits"]
    assert [each["name"] for each in bits["layers"]] == [
        f"b{b}.{name}" for b in range(3) for name in ("gate", "up", "down")
    ]
    assert bits["weights"] == 9 * WIDTH * WIDTH and bits["bytes"] == sum(each["bytes"] for each in bits["layers"])
    if bits["budget"] is not None:
        assert bits["per_weight"] <= bits["budget"] == float(words[1])
    else:
        assert answer["search"]["used"] <= answer["margin"] and answer["held_out"]["used"] <= 1
    assert f"{bits['per_weight']:.4g} bits per weight" in outcome.text
    # Nothing else is asked for: the answer says it all.
    assert_converted(run("convert", "m.onnx", "a.json", "-o", "typed.onnx"))
    stored = stored_bits(tmp_path / "typed.onnx")
    assert {each["name"]: each["bits"] for each in bits["layers"]} == {
        name: stored[name] for name in stored if name != "head"
    }


def test_int4_with_blocks_of_64_is_said(search, tmp_path):
    outcome = search("--weights-only", "--int4", "--bits", "4.5")
    assert outcome.code == 0 and "int4 has blocks of 64 in 10 layers" in outcome.text, outcome
    layers = json.loads((tmp_path / "a.json").read_text())["bits"]["layers"]
    assert {(each["format"], each["block"]) for each in layers} == {("int4-64", 64)}


def test_bytes_that_tensorrt_has_no_kernels_for_are_said(search):
    """It documents weights alone in int4 and fp4."""
    said = "TensorRT documents weights alone in int4, and fp4 as storage, and not in"
    outcome = search(*FORMATS, "--bits", "5", "--target", "h100")
    assert f"[W] [search] {said} int8-weights, fp8-weights: an engine for NVIDIA H100" in outcome.text, outcome
    outcome = search("--weights-only", "--int4", "--nvfp4", "--bits", "5", "--target", "h100", "--force")
    assert outcome.code == 0 and said not in outcome.text, outcome


def test_a_search_that_goes_on_gives_the_same_answer(search, tmp_path):
    def choice():
        return json.loads((tmp_path / "a.json").read_text())["bits"]

    assert search(*FORMATS, "--bits", "5", "--journal", "j.jsonl").code == 0
    first, lines = choice(), (tmp_path / "j.jsonl").read_text()
    outcome = search(*FORMATS, "--bits", "5", "--journal", "j.jsonl", "--continue", "--force")
    assert outcome.code == 0 and choice() == first and (tmp_path / "j.jsonl").read_text() == lines, outcome
    for other in (["--bits", "6"], ["--objective", "bits", "--threshold", "0.01"]):
        outcome = search(*FORMATS, *other, "--journal", "j.jsonl", "--continue", "--force")
        assert outcome.code != 0 and "j.jsonl" in outcome.text, outcome
        # What differs in the words of the command, not the hash of what they make of the network.
        said = {"--bits": "--bits: expected '6'", "--objective": "criterion: expected 'kl <= 0.01'"}[other[0]]
        assert said in outcome.text and "network: expected" not in outcome.text, outcome
    outcome = search("--fp16", "--threshold", "1", "--journal", "j.jsonl", "--continue", "--force")
    assert outcome.code != 0 and "precisions: expected 'fp16'" in outcome.text, outcome
    assert "--bits" in search(*FORMATS, "--bits", "6", "--journal", "j.jsonl", "--continue").text


@pytest.mark.parametrize(
    "words, message",
    [
        (
            [*FORMATS, "--bits", "4"],
            "expected at least 4.2500, the bits per weight that the smallest formats allowed take",
        ),
        (["--fp16", "--bits", "4.5"], "--bits: expected formats for weights alone"),
        (["--int4", "--fp8", "--bits", "4.5"], "--bits: expected formats for weights alone, got fp8"),
        ([*FORMATS, "--bits", "-1"], "--bits: expected a number of bits per weight above 0, got -1"),
        (
            [*FORMATS, "--bits", "5", "--objective", "smallest", "--threshold", "1"],
            "--bits and --objective smallest contradict each other",
        ),
        ([*FORMATS, "--objective", "error", "--threshold", "1"], "--objective error: expected --bits beside it"),
        ([*FORMATS, "--objective", "bits"], "needs --threshold"),
        ([*FORMATS, "--bits", "5", "--shrink"], "--bits and --shrink contradict each other"),
        ([*FORMATS, "--bits", "5", "--keep", "MatMul"], "there is nothing to search"),
    ],
)
def test_what_makes_no_sense_is_refused(words, message, search, tmp_path):
    outcome = search(*words)
    assert outcome.code not in (0, None) and message in " ".join(outcome.text.split()), outcome
    assert not (tmp_path / "a.json").exists()


def test_a_tolerance_beside_a_budget_has_to_be_met(search, tmp_path):
    outcome = search(*FORMATS, "--bits", "5", "--threshold", "1e-9")
    assert outcome.code == 1 and "Not reachable: with at most 5 bits per weight" in outcome.text, outcome
    assert json.loads((tmp_path / "a.json").read_text())["verdict"] == "not-reachable"


def test_convert_takes_one_answer(run, tmp_path):
    decoder(tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "a.json", "--answer", "b.json", "-o", "typed.onnx")
    assert outcome.code == 2 and "argument ANSWER: not allowed with argument --answer" in outcome.text, outcome
