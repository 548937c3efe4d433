"""Block scales of weights by their error, and of MX formats by either rule, against exhaustive searches in numpy."""

from __future__ import annotations

import base64
import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convert_support import info, model, save
from search_support import outputs_of, save_inputs

E4M3, E2M1 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn
ROWS, SUM, COLUMNS, SAMPLES = 6, 256, 40, 3
INT4_FACTORS = (1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6)
NVFP4_FACTORS = (1, 1.5, 0.95, 0.9, 0.85, 0.8, 0.75)


def rounded(values: np.ndarray, type_: type) -> np.ndarray:
    limit = np.float32(ml_dtypes.finfo(type_).max)
    return np.clip(values, -limit, limit).astype(type_).astype(np.float32)


def best_of(blocks: np.ndarray, weights: np.ndarray, candidates: "list[np.ndarray]", encode) -> np.ndarray:
    """Per block along the last axis, what the candidate with the least error makes; of equal ones the first."""
    made = np.stack([encode(blocks, scale) for scale in candidates])
    errors = (weights.astype(np.float64) * (blocks.astype(np.float64) - made) ** 2).sum(-1)
    return np.take_along_axis(made, errors.argmin(0)[None, ..., None], 0)[0]


def int4(blocks: np.ndarray, weights: np.ndarray, number: type) -> np.ndarray:
    scale = np.maximum(np.abs(blocks).max(-1, keepdims=True) / np.float32(7), np.float32(1e-5))
    short = np.float16 if number is np.float32 else number
    candidates = [(scale * np.float32(c)).astype(short).astype(np.float32) for c in INT4_FACTORS]
    return best_of(blocks, weights, candidates, lambda x, s: np.clip(np.rint(x / s), -8, 7) * s)


def nvfp4(blocks: np.ndarray, weights: np.ndarray, second: np.float32) -> np.ndarray:
    largest = np.abs(blocks).max(-1, keepdims=True)
    candidates = [
        np.maximum(rounded(largest * np.float32(c) / (np.float32(6) * second), E4M3), np.float32(2**-9)) * second
        for c in NVFP4_FACTORS
    ]
    return best_of(blocks, weights, candidates, lambda x, s: rounded(x / s, E2M1) * s)


def stored(name: str, w: np.ndarray, squares: np.ndarray, number: type) -> np.ndarray:
    """What the weights [SUM, n] become."""
    block = 16 if name == "nvfp4" else int(name.split("-")[1])
    blocks = w.T.reshape(w.shape[1], -1, block)
    weights = np.broadcast_to(squares.reshape(1, -1, block), blocks.shape)
    if name == "nvfp4":
        made = nvfp4(blocks, weights, np.abs(w).max() / np.float32(6 * 448))
    else:
        made = int4(blocks, weights, number)
    return made.reshape(w.shape[1], -1).T.astype(number)


FLAGS = {
    "int4-128": ["--int4"],
    "int4-64": ["--int4", "--block-size", "64"],
    "int4-32": ["--int4", "--block-size", "32"],
    "nvfp4": ["--nvfp4", "--weights-only"],
}


def samples_of(seed: int, count: int = SAMPLES) -> "list[dict[str, np.ndarray]]":
    random = np.random.default_rng(seed)
    channels = np.exp(1.5 * np.random.default_rng(11).standard_normal(SUM))
    return [{"x": (random.standard_normal((ROWS, SUM)) * channels).astype(np.float32)} for _ in range(count)]


def squares_of(samples: "list[dict[str, np.ndarray]]") -> np.ndarray:
    """Mean squares of the channels; the sum in float64."""
    return (np.concatenate([each["x"] for each in samples]).astype(np.float64) ** 2).mean(0).astype(np.float32)


def weights_of(seed: int = 7, shape: "tuple[int, int]" = (SUM, COLUMNS)) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) * np.exp(0.5 * random.standard_normal(shape))).astype(np.float32)


@pytest.fixture
def product(tmp_path):
    w = weights_of()
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    constants = [numpy_helper.from_array(w, "w")]
    save(tmp_path, model(nodes, [info("x", [ROWS, SUM])], [info("y", [ROWS, COLUMNS])], constants, opset=21))
    save_inputs(tmp_path / "in.json", samples_of(3))
    save_inputs(tmp_path / "calib.json", samples_of(4, 5))
    return w


def run_product(run, tmp_path, *flags):
    outcome = run(
        "run", "m.onnx", "--trt", *flags, "--assume-lowest", "--load-inputs", "in.json", "--save-outputs", "out.json"
    )
    assert outcome.code == 0, outcome
    return outcome, [each["y"] for each in outputs_of(tmp_path / "out.json")]


def check(outputs, samples, w, half):
    number = np.float16 if half else np.float32
    for output, sample in zip(outputs, samples):
        wanted = sample["x"].astype(number).astype(np.float64) @ w.astype(np.float64)
        assert np.abs(output - wanted).max() <= (2**-10 if half else 2e-6) * np.abs(wanted).max()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("rule", ["least-squares", "activations", "calibration inputs", "default"])
@pytest.mark.parametrize("name", FLAGS)
def test_scales_are_the_best_of_all_candidates(run, tmp_path, product, name, rule, half):
    flags = {
        "least-squares": ["--weight-scales", "least-squares"],
        "activations": ["--weight-scales", "activations"],
        "calibration inputs": ["--calibration-inputs", "calib.json"],
        "default": [],
    }[rule]
    squares = np.ones(SUM, np.float32)
    if rule != "least-squares":
        squares = squares_of(samples_of(4, 5) if rule == "calibration inputs" else samples_of(3))
    number = np.float16 if half else np.float32
    wanted = stored(name, product, squares, number)
    flags = [*FLAGS[name], *(["--fp16"] if half else []), *flags]
    outcome, outputs = run_product(run, tmp_path, *flags)
    check(outputs, samples_of(3), wanted, half)
    assert ("chosen by activations" in outcome.text) == (rule != "least-squares"), outcome
    _, largest = run_product(run, tmp_path, *FLAGS[name], *(["--fp16"] if half else []), "--weight-scales", "amax")
    assert any((a != b).any() for a, b in zip(outputs, largest))


def elements_of(path):
    """What the DequantizeLinear of the file's weights make, in float32."""
    typed = onnx.load(path)
    kept = {each.name: each for each in typed.graph.initializer}
    for node in typed.graph.node:  # Scales in float16 beside float32.
        if node.op_type == "Cast" and node.input[0] in kept:
            kept[node.output[0]] = kept[node.input[0]]
    made = []
    for node in typed.graph.node:
        if node.op_type != "DequantizeLinear" or node.input[0] not in kept:
            continue
        elements = numpy_helper.to_array(kept[node.input[0]])
        if elements.ndim < 2 or node.input[1] not in kept:
            continue
        scales = numpy_helper.to_array(kept[node.input[1]]).astype(np.float32)
        axis = next(each.i for each in node.attribute if each.name == "axis")
        block = next(each.i for each in node.attribute if each.name == "block_size")
        made.append(elements.astype(np.float32) * np.repeat(scales, block, axis))
    return made


SEARCH = ["--objective", "smallest", "--metric", "rel-l2", "--threshold", "0.5", "--no-hold-out"]


@pytest.mark.parametrize("name", ["int4-64", "int4-32"])
def test_a_typed_model_has_the_elements_of_the_search(run, tmp_path, product, name):
    flags = [*FLAGS[name], *SEARCH, "--load-inputs", "in.json", "--save-answer", "a.json"]
    outcome = run("precision", "search", "m.onnx", *flags, "--calibration-inputs", "calib.json")
    assert outcome.code == 0, outcome
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["block_scales"]["weight_scales"] == "activations"
    wanted = stored(name, product, squares_of(samples_of(4, 5)), np.float32)
    # The inputs of the search are gone, and those that the check runs on are others.
    save_inputs(tmp_path / "other.json", samples_of(9))
    (tmp_path / "calib.json").unlink()
    outcome = run("convert", "m.onnx", "--answer", "a.json", "-o", "t.onnx", "--load-inputs", "other.json")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    [made] = elements_of(tmp_path / "t.onnx")
    np.testing.assert_array_equal(made, wanted)
    # So have `run` and an engine.
    save_inputs(tmp_path / "in.json", samples_of(9))
    outcome = run(
        "run", "m.onnx", "--trt", "--answer", "a.json", "--load-inputs", "in.json", "--save-outputs", "o.json"
    )
    assert outcome.code == 0, outcome
    check([each["y"] for each in outputs_of(tmp_path / "o.json")], samples_of(9), wanted, False)
    _, outputs = run_product(run, tmp_path, *FLAGS[name], "--weight-scales", "a.json")
    check(outputs, samples_of(9), wanted, False)
    outcome = run("convert", "m.onnx", "--answer", "a.json", "-o", "t.engine")
    assert outcome.code == 0, outcome
    outcome = run("run", "t.engine", "--trt", "--load-inputs", "in.json", "--save-outputs", "e.json")
    assert outcome.code == 0, outcome
    check([each["y"] for each in outputs_of(tmp_path / "e.json")], samples_of(9), wanted, False)
    verdict = run("verify", "m.onnx", "--answer", "a.json", "--load-inputs", "in.json")
    assert verdict.code == 0, verdict


def test_a_search_measures_its_own_samples(run, tmp_path, product):
    """Without --calibration-inputs, and without those that it holds out: every fourth."""
    save_inputs(tmp_path / "in.json", samples_of(3, 8))
    flags = ["--nvfp4", "--weights-only", *SEARCH[:-1], "--load-inputs", "in.json", "--save-answer", "a.json"]
    outcome = run("precision", "search", "m.onnx", *flags)
    assert outcome.code == 0, outcome
    [group] = json.loads((tmp_path / "a.json").read_text())["block_scales"]["mean_squares"]
    squares = np.frombuffer(base64.b64decode(group["float32"]), "<f4")
    assert group["layers"] == ["product"]
    samples = [each for i, each in enumerate(samples_of(3, 8)) if i % 4 != 3]
    np.testing.assert_allclose(squares, squares_of(samples), rtol=1e-6)


def test_shared_and_transposed_weights(run, tmp_path):
    """Two products with the same weights have one set of elements; a Gemm has its blocks along the other axis."""
    w, v = weights_of(1), weights_of(2, (COLUMNS, SUM))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Mul", ["x", "x"], ["xx"], name="square"),
        helper.make_node("MatMul", ["xx", "w"], ["b"], name="second"),
        helper.make_node("Gemm", ["x", "v"], ["c"], name="third", transB=1),
    ]
    constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")]
    outputs = [info(each, [ROWS, COLUMNS]) for each in "abc"]
    save(tmp_path, model(nodes, [info("x", [ROWS, SUM])], outputs, constants, opset=21))
    samples = samples_of(3)
    save_inputs(tmp_path / "in.json", samples)
    flags = ["--int4", "--block-size", "32", "--load-inputs", "in.json"]
    outcome = run("convert", "m.onnx", *flags, "-o", "t.onnx")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    made = elements_of(tmp_path / "t.onnx")
    assert len(made) == 2
    squared = [{"x": each["x"] * each["x"]} for each in samples]
    both = ((squares_of(samples).astype(np.float64) + squares_of(squared)) / 2).astype(np.float32)
    for found in made:
        if found.shape == w.shape:
            np.testing.assert_array_equal(found, stored("int4-32", w, both, np.float32))
        else:
            np.testing.assert_array_equal(found.T, stored("int4-32", v.T, squares_of(samples), np.float32))


def mx_rounded_down(values: np.ndarray, type_: type) -> np.ndarray:
    """Blocks of 32 along the last axis."""
    blocks = values.reshape(*values.shape[:-1], -1, 32)
    largest = np.abs(blocks).max(-1, keepdims=True)
    top = {E4M3: 8, E2M1: 2}[type_]
    with np.errstate(divide="ignore"):
        exponent = np.clip(np.floor(np.log2(largest.astype(np.float64))) - top, -127, 127)
    scale = np.exp2(exponent).astype(np.float32)
    return (rounded(blocks / scale, type_) * scale).reshape(values.shape)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4"])
@pytest.mark.parametrize("alone", [False, True])
def test_powers_of_two_are_rounded_down(run, tmp_path, product, name, alone):
    type_ = {"mxfp8": E4M3, "mxfp4": E2M1}[name]
    flags = [f"--{name}", *(["--weights-only"] if alone else [])]
    _, outputs = run_product(run, tmp_path, *flags, "--mx-scale-rule", "ocp")
    _, up = run_product(run, tmp_path, *flags)
    w = mx_rounded_down(product.T, type_).T.astype(np.float64)
    for output, sample, other in zip(outputs, samples_of(3), up):
        x = sample["x"] if alone else mx_rounded_down(sample["x"], type_)
        wanted = x.astype(np.float64) @ w
        assert np.abs(output - wanted).max() <= 2e-6 * np.abs(wanted).max()
        assert np.abs(other - wanted).max() > 1e-3 * np.abs(wanted).max()


def test_typed_models_with_powers_of_two_rounded_down(run, tmp_path, product):
    rule = ["--mx-scale-rule", "ocp"]
    outcome = run("convert", "m.onnx", "--mxfp8", *rule, "-o", "t.onnx", "--load-inputs", "in.json")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    assert "not documented" in outcome.text, outcome
    _, wanted = run_product(run, tmp_path, "--mxfp8", *rule)
    for words, same in ((rule, True), ([], False)):
        outcome = run(
            "run", "t.onnx", "--trt", "--strongly-typed", *words, "--load-inputs", "in.json", "--save-outputs", "o.json"
        )
        assert outcome.code == 0, outcome
        outputs = [each["y"] for each in outputs_of(tmp_path / "o.json")]
        assert all((a == b).all() for a, b in zip(outputs, wanted)) == same


def test_calibration_inputs_make_the_ranges(run, tmp_path, product):
    """What int8 and fp8 are calibrated on: the largest value of these files alone, as threshold / 127."""
    for flag in ("--fp8", "--int8"):
        words = [flag, "--calib-base-cls", "max", "--calibration-cache", f"{flag[2:]}.cache"]
        run_product(run, tmp_path, *words, "--calibration-inputs", "calib.json")
        text = (tmp_path / f"{flag[2:]}.cache").read_text()
        largest = max(np.abs(each["x"]).max() for each in samples_of(4, 5))
        scale = np.float32(largest) / np.float32(127)
        assert f"x: {int(scale.view(np.uint32)):08x}" in text, text


def test_what_makes_no_sense_is_refused(run, tmp_path, product):
    save_inputs(tmp_path / "none.json", [])
    for words, message in (
        (["--int8", "--weight-scales", "least-squares"], "expected int4 or nvfp4 beside least-squares"),
        (["--mxfp4", "--weights-only", "--weight-scales", "activations"], "expected int4 or nvfp4"),
        (["--int4", "--weight-scales", "best"], "expected amax, least-squares or activations, got 'best'"),
        (["--int4", "--mx-scale-rule", "ocp"], "expected --mxfp8 or --mxfp4 beside it"),
        (["--int4", "--mx-scale-rule", "floor"], "--mx-scale-rule"),
        (["--fp16", "--calibration-inputs", "calib.json"], "expected a format that is calibrated"),
        (["--int4", "--calibration-inputs", "absent.json"], "absent.json"),
        (["--int4", "--calibration-inputs", "none.json"], "expected at least one sample"),
        (["--int4", "--weight-scales", "absent.json"], "absent.json"),
    ):
        outcome = run("run", "m.onnx", "--trt", *words)
        assert outcome.code != 0 and message in outcome.text, (words, outcome)
    save_inputs(tmp_path / "calib.json", samples_of(2))
    needless = run("run", "m.onnx", "--trt", "--mxfp8", "--calibration-inputs", "calib.json")
    assert needless.code == 0 and "--calibration-inputs has no effect" in needless.text, needless
    # What 8 bits have is what amax says.
    assert run("run", "m.onnx", "--trt", "--mxfp8", "--weights-only", "--weight-scales", "amax").code == 0
    generated = run("run", "m.onnx", "--trt", "--int4", "--assume-lowest")
    assert generated.code == 0 and "those of the largest weights (amax)" in generated.text, generated


NUMBERS = {"--int4": "int4", "--nvfp4": "nvfp4-weights", "--int8": "int8-weights", "--fp8": "fp8-weights"}


@pytest.mark.parametrize("flags", [["--int4"], *([name, "--weights-only"] for name in ("--nvfp4", "--int8", "--fp8"))])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_no_code_stands_for_stay_numbers(run, tmp_path, flags, value):
    w = weights_of()
    w[3, 5] = value
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    constants = [numpy_helper.from_array(w, "w")]
    save(tmp_path, model(nodes, [info("x", [ROWS, SUM])], [info("y", [ROWS, COLUMNS])], constants, opset=21))
    samples = samples_of(3)
    save_inputs(tmp_path / "in.json", samples)
    outcome, outputs = run_product(run, tmp_path, *flags)
    assert "its weights hold infinities or NaN: product" in outcome.text, outcome
    for output, sample in zip(outputs, samples):
        assert not np.isfinite(output[:, 5]).any()
        np.testing.assert_allclose(np.delete(output, 5, 1), sample["x"] @ np.delete(w, 5, 1), rtol=1e-3, atol=1e-3)
    form = NUMBERS[flags[0]]
    obey = ["--precision-constraints", "obey", "--layer-precisions", f"product:{form}"]
    asked = run("run", "m.onnx", "--trt", *flags, *obey)
    assert asked.code != 0 and "hold infinities or NaN" in asked.text, asked
