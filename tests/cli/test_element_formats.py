"""Products in fp8, MXFP8, NVFP4, MXFP4 and int4 against the rules of these formats, written again in numpy."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert_support import info, model, save
from oracle.element_formats import (
    E2M1, E4M3, by_tensor, fp8_channels, in_blocks, int4, int8_channels, mx, nvfp4, second_scale,
)  # fmt: skip
from search_support import outputs_of, save_inputs

ROWS, SUM, COLUMNS = 6, 256, 48


PRODUCT = [
    helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
    helper.make_node("Add", ["p", "b"], ["y"], name="bias"),
]


@pytest.fixture
def product(tmp_path):
    random = np.random.default_rng(7)
    weights = (random.standard_normal((SUM, COLUMNS)) * np.exp(random.standard_normal((SUM, 1)))).astype(np.float32)
    bias = random.standard_normal(COLUMNS).astype(np.float32)
    x = random.standard_normal((ROWS, SUM)).astype(np.float32)
    x[0, :32] = 0
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")]
    save(tmp_path, model(PRODUCT, [info("x", [ROWS, SUM])], [info("y", [ROWS, COLUMNS])], constants, opset=21))
    save_inputs(tmp_path / "in.json", [{"x": x}])
    scale = np.float32(np.abs(x).max()) / np.float32(127)
    (tmp_path / "scales.cache").write_text(f"TRT-8601-MinMaxCalibration\nx: {int(scale.view(np.uint32)):08x}\n")
    return x, weights, bias


def expected(name: str, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The product in float64, of operands in the format."""
    exact = np.float64
    largest = np.float32(np.float32(np.abs(x).max()) / np.float32(127)) * np.float32(127)
    if name == "fp8":
        (a, scale_a), (b, scale_b) = by_tensor(x, largest), by_tensor(w, np.abs(w).max())
        return (a.astype(exact) @ b) * (scale_a * scale_b) + bias
    if name == "nvfp4":
        a = in_blocks(x, 1, 16, nvfp4(second_scale(largest)))
        b = in_blocks(w, 0, 16, nvfp4(second_scale(np.abs(w).max())))
        return a.astype(exact) @ b + bias
    element = {"mxfp8": E4M3, "mxfp4": E2M1}[name]
    return in_blocks(x, 1, 32, mx(element)).astype(exact) @ in_blocks(w, 0, 32, mx(element)) + bias


def run_product(run, tmp_path, *flags):
    outcome = run(
        "run", "m.onnx", "--trt", *flags, "--assume-lowest", "--load-inputs", "in.json", "--save-outputs", "out.json"
    )
    assert outcome.code == 0, outcome
    return outputs_of(tmp_path / "out.json")[0]["y"]


@pytest.mark.parametrize("name", ["fp8", "mxfp8", "nvfp4", "mxfp4"])
def test_both_operands(run, tmp_path, product, name):
    scales = ["--calibration-cache", "scales.cache"] if name in ("fp8", "nvfp4") else []
    result = run_product(run, tmp_path, f"--{name}", *scales, *(AMAX if name == "nvfp4" else []))
    wanted = expected(name, *product)
    assert np.abs(result - wanted).max() <= 2e-6 * np.abs(wanted).max()
    assert np.abs(result - (product[0] @ product[1] + product[2])).max() > 1e-3 * np.abs(wanted).max()


AMAX = ["--weight-scales", "amax"]
WEIGHTS = {
    "int4": (["--int4", *AMAX], lambda w, t: in_blocks(w, 0, 128, int4(t))),
    "int4-64": (["--int4", "--block-size", "64", *AMAX], lambda w, t: in_blocks(w, 0, 64, int4(t))),
    "int4-32": (["--int4", "--block-size", "32", *AMAX], lambda w, t: in_blocks(w, 0, 32, int4(t))),
    "nvfp4": (
        ["--nvfp4", "--weights-only", *AMAX],
        lambda w, t: in_blocks(w, 0, 16, nvfp4(second_scale(np.abs(w).max()))),
    ),
    "mxfp8": (["--mxfp8", "--weights-only"], lambda w, t: in_blocks(w, 0, 32, mx(E4M3))),
    "mxfp4": (["--mxfp4", "--weights-only"], lambda w, t: in_blocks(w, 0, 32, mx(E2M1))),
    "fp8": (["--fp8", "--weights-only"], lambda w, t: fp8_channels(w, 1)),
    "int8": (["--int8", "--weights-only"], lambda w, t: int8_channels(w, 1)),
}


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_alone(run, tmp_path, product, name, half):
    x, w, bias = product
    flags, encode = WEIGHTS[name]
    result = run_product(run, tmp_path, *flags, *(["--fp16"] if half else []))
    number = np.float16 if half else np.float32
    stored = encode(w, number).astype(number).astype(np.float64)
    wanted = x.astype(number).astype(np.float64) @ stored + bias.astype(number)
    tolerance = 2**-10 if half else 2e-6
    assert np.abs(result - wanted).max() <= tolerance * np.abs(wanted).max()
    assert np.abs(result - (x @ w + bias)).max() > 1e-3 * np.abs(wanted).max()


def check_blocks(typed, scale_type):
    """The weights as NVIDIA's exporter writes them: [N, K], blocks along the last axis, a Transpose behind."""
    held = {each.name: each for each in typed.graph.initializer}
    (reader,) = [
        each for each in typed.graph.node if each.input[0] in held and list(held[each.input[0]].dims) == [COLUMNS, SUM]
    ]
    assert {each.name: each.i for each in reader.attribute}["axis"] == -1
    if scale_type is not None:
        assert reader.op_type == "TRT_MXFP8DequantizeLinear" and held[reader.input[1]].data_type == scale_type
    behind = reader
    while behind.op_type != "Transpose":
        (behind,) = [each for each in typed.graph.node if behind.output[0] in each.input]
        assert behind.op_type in ("Cast", "Transpose")


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", [*WEIGHTS, "W8A8", "MXFP8 on both sides", "NVFP4 on both sides"])
def test_typed_models(run, tmp_path, product, name, half):
    """The file has elements and scales as the formats say, and the bits of the engine."""
    both = {"W8A8": "--fp8", "MXFP8 on both sides": "--mxfp8", "NVFP4 on both sides": "--nvfp4"}
    scales = [] if name.startswith("MXFP8") else ["--calibration-cache", "scales.cache"]
    flags = WEIGHTS[name][0] if name in WEIGHTS else [both[name], *scales]
    outcome = run(
        "convert", "m.onnx", *flags, *(["--fp16"] if half else []), "-o", "t.onnx", "--load-inputs", "in.json"
    )
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    if name in ("int4", "W8A8"):
        assert "ONNX Runtime" in outcome.text, outcome
    assert "TensorRT takes no" not in outcome.text or name in ("mxfp8", "mxfp4"), outcome
    typed = onnx.load(tmp_path / "t.onnx")
    [opset] = [each.version for each in typed.opset_import if not each.domain]
    if opset > 21:  # It was raised.
        assert typed.ir_version == {23: 11, 24: 12}[opset]
    if name.endswith("sides"):
        assert [each.version for each in typed.opset_import if each.domain == "trt"] == [1]
    if "mxf" in name.lower() or "nvf" in name.lower():
        check_blocks(typed, TensorProto.UINT8 if name == "MXFP8 on both sides" else None)
    if name.startswith("int4"):
        blocks = SUM // int(name[5:] or 128)
        [scales] = [each for each in typed.graph.initializer if list(each.dims) == [blocks, COLUMNS]]
        assert scales.data_type == TensorProto.FLOAT16
    bits = {"int4": 4, "nvfp4": 4, "mxfp4": 4}.get(name.lower().split("-")[0].split(" ")[0], 8)
    sizes = {each.name: len(each.raw_data) for each in typed.graph.initializer}
    assert max(sizes.values()) == SUM * COLUMNS * bits // 8, sizes
    assert not any(
        each.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16) and len(each.raw_data) > 4096
        for each in typed.graph.initializer
    )


def with_epilogues(form):
    """Products whose results meet other activations before they are stored: a residual, another product, a gate."""
    random = np.random.default_rng(11)
    node = helper.make_node
    nodes = {
        "residual": [
            node("MatMul", ["x", "v"], ["p"], name="product"),
            node("Add", ["x", "p"], ["y"], name="residual"),
        ],
        "two products": [
            node("Relu", ["x"], ["r"], name="relu"),
            node("MatMul", ["r", "v"], ["p"], name="first"),
            node("MatMul", ["r", "w"], ["q"], name="second"),
            node("Add", ["p", "q"], ["y"], name="sum"),
        ],
        "gate": [
            node("MatMul", ["x", "v"], ["p"], name="product"),
            node("Add", ["p", "b"], ["biased"], name="bias"),
            node("Sigmoid", ["biased"], ["s"], name="sigmoid"),
            node("Mul", ["biased", "s"], ["gated"], name="gate"),
            node("MatMul", ["gated", "w"], ["y"], name="next"),
        ],
    }[form]
    read = {each for one in nodes for each in one.input}
    constants = {"v": (64, 64), "w": (64, 64), "b": (64,)}
    initializers = [
        numpy_helper.from_array((random.standard_normal(shape) / 8).astype(np.float32), name)
        for name, shape in constants.items()
        if name in read
    ]
    samples = [{"x": random.standard_normal((2, 20, 64)).astype(np.float32)} for _ in range(2)]
    return model(nodes, [info("x", [2, 20, 64])], [info("y", [2, 20, 64])], initializers), samples


@pytest.mark.parametrize("half", ["--fp16", "--bf16"])
@pytest.mark.parametrize("name", ["fp8", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("form", ["residual", "two products", "gate"])
def test_epilogues_that_read_other_activations(run, tmp_path, form, name, half):
    """What a product of elements stores in half is rounded once, behind its epilogue, in the typed model, too."""
    made, samples = with_epilogues(form)
    save(tmp_path, made)
    save_inputs(tmp_path / "in.json", samples)
    outcome = run("convert", "m.onnx", f"--{name}", half, "-o", "t.onnx", "--load-inputs", "in.json")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome


def test_accumulators_are_part_of_answers_and_engines(run, tmp_path, product):
    flags = ["--fp8", "--calibration-cache", "scales.cache", "--accumulation", "hopper-fast"]
    fp32 = run_product(run, tmp_path, *flags[:-2])
    wanted = run_product(run, tmp_path, *flags, "--save-engine", "m.plan")
    assert 1e-6 < np.abs(wanted - fp32).max() / np.abs(fp32).max() < 1e-2
    outcome = run("run", "m.plan", "--trt", "--load-inputs", "in.json", "--save-outputs", "engine.json")
    assert outcome.code == 0, outcome
    np.testing.assert_array_equal(outputs_of(tmp_path / "engine.json")[0]["y"], wanted)
    search = ["--load-inputs", "in.json", "--metric", "rel-l2", "--threshold", "0.9", "--save-answer", "a.json"]
    outcome = run("precision", "search", "m.onnx", *flags, *search, "--objective", "smallest")
    assert outcome.code == 0, outcome
    outcome = run("convert", "m.onnx", "--answer", "a.json", "-o", "t.onnx", "--load-inputs", "in.json")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    words = ["--answer", "a.json", "--load-inputs", "in.json", "--save-outputs", "answer.json"]
    outcome = run("run", "m.onnx", "--trt", *words)
    assert outcome.code == 0, outcome
    np.testing.assert_array_equal(outputs_of(tmp_path / "answer.json")[0]["y"], wanted)


def test_what_does_not_fit(run, tmp_path, product):
    for words, message in (
        (["--int4", "--block-size", "48"], "expected 128, 64 or 32, got 48"),
        (["--int4", "--block-size", "0"], "expected 128, 64 or 32, got 0"),
        (["--fp8", "--block-size", "64"], "expected --int4 beside it"),
        (["--weights-only", "--fp16"], "expected a format for weights"),
    ):
        outcome = run("run", "m.onnx", "--trt", *words)
        assert outcome.code != 0 and message in outcome.text, outcome


@pytest.mark.parametrize("name", ["--fp8", "--nvfp4"])
def test_calibration_inputs_that_say_nothing(run, tmp_path, product, name):
    save_inputs(tmp_path / "empty.json", [{}])
    save_inputs(tmp_path / "infinite.json", [{"x": np.full((ROWS, SUM), np.inf, np.float32)}])
    for file, message in (
        ("empty.json", "'empty.json', iteration 0: Input tensor: x"),
        ("infinite.json", "got none that are finite"),
    ):
        outcome = run("run", "m.onnx", "--trt", name, "--calibration-inputs", file, "--load-inputs", "in.json")
        assert outcome.code == 1 and message in outcome.text, outcome


def test_elements_of_the_file_that_a_layer_moves_stay_what_they_are(run, tmp_path):
    """Weights that are elements in the file, and turned before the product, take no other form."""
    random = np.random.default_rng(5)
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scale"], ["numbers"]),
        helper.make_node("Transpose", ["numbers"], ["w"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
    ]
    constants = [
        numpy_helper.from_array(random.integers(-127, 128, (20, 128)).astype(np.int8), "codes"),
        numpy_helper.from_array(np.float32(0.01), "scale"),
    ]
    save(tmp_path, model(nodes, [info("x", [3, 128])], [info("y", [3, 20])], constants, opset=21))
    outcome = run("convert", "m.onnx", "--int4", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0 and "equal in every bit" in outcome.text, outcome
    codes = {each.name: each for each in onnx.load(tmp_path / "t.onnx").graph.initializer}
    assert codes["codes"].data_type == TensorProto.INT8


@pytest.mark.parametrize("flags", [["--nvfp4", *AMAX], ["--nvfp4"], ["--nvfp4", "--weights-only", *AMAX]])
def test_scales_that_would_be_zero_are_counted(run, tmp_path, flags):
    """Next to a large weight, blocks of small ones have the smallest scale in place of 0, and the log says how many."""
    random = np.random.default_rng(17)
    weights = random.standard_normal((64, 48)).astype(np.float32)
    weights[16:32] *= np.float32(1e-7)
    weights[32:48, 5] = 0
    weights[0, 0] = 300
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    constants = [numpy_helper.from_array(weights, "w")]
    save(tmp_path, model(nodes, [info("x", [4, 64])], [info("y", [4, 48])], constants))
    save_inputs(tmp_path / "in.json", [{"x": random.standard_normal((4, 64)).astype(np.float32)}])
    outcome = run("convert", "m.onnx", *flags, "-o", "t.onnx", "--load-inputs", "in.json")
    assert outcome.code == 0, outcome
    largest = np.abs(weights).reshape(4, 16, 48).max(1)
    quotients = largest / (np.float32(6) * np.float32(np.float32(300) / np.float32(6 * 448)))
    zero = (quotients <= 2.0**-10) & (largest > 0)
    assert zero.sum() == 48
    assert "48 of 192 scales of blocks would be rounded to 0, and are the smallest that E4M3 has" in outcome.text, (
        outcome
    )
    (scales,) = (each for each in onnx.load(tmp_path / "t.onnx").graph.initializer if list(each.dims) == [48, 4])
    codes = np.frombuffer(scales.raw_data, np.uint8).reshape(48, 4).T
    assert (codes[zero] == 1).all() and codes.min() == 1 and codes[2, 5] == 0x38
    # A file without such blocks hears nothing of it.
    weights[16:32] *= np.float32(1e7)
    constants = [numpy_helper.from_array(weights, "w")]
    save(tmp_path, model(nodes, [info("x", [4, 64])], [info("y", [4, 48])], constants))
    outcome = run("convert", "m.onnx", *flags, "-o", "t.onnx", "--load-inputs", "in.json")
    assert outcome.code == 0 and "rounded to 0" not in outcome.text, outcome


def test_sums_that_blocks_do_not_divide(run, tmp_path):
    random = np.random.default_rng(3)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="ragged")]
    constants = [numpy_helper.from_array(random.standard_normal((72, 20)).astype(np.float32), "w")]
    save(tmp_path, model(nodes, [info("x", [3, 72])], [info("y", [3, 20])], constants))
    outcome = run("run", "m.onnx", "--trt", "--int4", "--fp16", "--assume-lowest")
    assert outcome.code == 0 and "no multiple of blocks of 128: ragged" in outcome.text, outcome
    outcome = run("convert", "m.onnx", "--mxfp8", "-o", "t.onnx")
    assert (
        outcome.code == 1
        and "got none; layer 'ragged' (MatMul) has no mxfp8, since its sums of 72 products" in outcome.text
        and "; try --fp16 or --bf16 beside it, or another format" in outcome.text
    )
    save_inputs(tmp_path / "in.json", [{"x": random.standard_normal((3, 72)).astype(np.float32)} for _ in range(2)])
    outcome = run("precision", "search", "m.onnx", "--mxfp8", "--load-inputs", "in.json", "--threshold", "0.1")
    said = "no layer would run in lower precision: layer 'ragged' (MatMul) has no mxfp8, since its sums of 72 products"
    assert outcome.code == 1 and said in outcome.text, outcome
    outcome = run("convert", "m.onnx", "--mxfp8", "--keep", "ragged", "-o", "t.onnx")
    assert outcome.code == 1 and "got none; all its float layers are kept" in outcome.text, outcome
    assert not (tmp_path / "t.onnx").exists()


def test_blocks_that_would_fit_are_named(run, tmp_path):
    """Sums of 96: neither 128 nor the 64 that come with it."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    constants = [numpy_helper.from_array(np.ones((96, 20), np.float32), "w")]
    save(tmp_path, model(nodes, [info("x", [3, 96])], [info("y", [3, 20])], constants))
    outcome = run("convert", "m.onnx", "--int4", "-o", "t.onnx")
    assert outcome.code == 1 and "no multiple of blocks of 128 (--block-size 32 fits)" in outcome.text, outcome
    assert run("convert", "m.onnx", "--int4", "--block-size", "32", "-o", "t.onnx").code == 0


def test_formats_of_activations_that_no_file_has_are_tried_for_weights(run, tmp_path, product):
    outcome = run("convert", "m.onnx", "--mxfp4", "-o", "t.onnx")
    assert outcome.code == 1 and "only for weights (--weights-only)" in outcome.text, outcome
    assert not (tmp_path / "t.onnx").exists()
    assert run("convert", "m.onnx", "--mxfp4", "--weights-only", "-o", "t.onnx").code == 0


def test_targets_without_the_format_are_refused(run, product):
    outcome = run("run", "m.onnx", "--trt", "--mxfp4", "--target", "h100")
    assert outcome.code != 0 and "H100 SXM has no mxfp4 arithmetic; try --mxfp4 --weights-only" in outcome.text, outcome
    assert run("run", "m.onnx", "--trt", "--mxfp4", "--target", "b200").code == 0
    assert run("run", "m.onnx", "--trt", "--mxfp4", "--weights-only", "--target", "h100").code == 0


def test_a_search_takes_the_better_format_for_each_layer(run, tmp_path):
    """Weights with rows of far sizes: blocks along the sum suit one product, a scale per column the other."""
    random = np.random.default_rng(5)
    smooth = random.standard_normal((128, 128)).astype(np.float32)
    rows = smooth * np.where(np.arange(128) % 64 < 32, 1, 64)[:, None].astype(np.float32)
    x = random.standard_normal((4, 128)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "rows"], ["p"], name="first"),
        helper.make_node("Tanh", ["p"], ["t"], name="t"),
        helper.make_node("MatMul", ["t", "smooth"], ["y"], name="second"),
    ]
    constants = [numpy_helper.from_array(rows / 512, "rows"), numpy_helper.from_array(smooth, "smooth")]
    save(tmp_path, model(nodes, [info("x", [4, 128])], [info("y", [4, 128])], constants, opset=21))
    save_inputs(tmp_path / "in.json", [{"x": x}])
    flags = [
        "--weights-only",
        "--int8",
        "--int4",
        "--metric",
        "rel-l2",
        "--threshold",
        "0.5",
        "--objective",
        "smallest",
    ]
    outcome = run("precision", "search", "m.onnx", *flags, "--load-inputs", "in.json")
    assert (
        outcome.code == 0 and "each layer takes the one that is predicted to err least: 2 int8-weights" in outcome.text
    ), outcome
    assert "have no effect" not in outcome.text, outcome  # What chose the formats hears nothing of its own choice.
    [answer] = tmp_path.glob("*.answer.json")
    again = run("convert", "m.onnx", "--answer", answer, "-o", "t.onnx", "--load-inputs", "in.json")
    assert again.code == 0 and "equal in every bit" in again.text, again
    stored = {each.data_type for each in onnx.load(tmp_path / "t.onnx").graph.initializer if len(each.raw_data) > 4096}
    assert stored == {TensorProto.INT8}


def test_beside_fp8_int8_is_for_products_that_have_fp8_too(run, tmp_path):
    random = np.random.default_rng(3)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Mul", ["p", "x"], ["y"], name="factor"),
    ]
    constants = [numpy_helper.from_array(random.standard_normal((32, 32)).astype(np.float32), "w")]
    save(tmp_path, model(nodes, [info("x", [4, 32])], [info("y", [4, 32])], constants, opset=21))
    save_inputs(tmp_path / "in.json", [{"x": random.standard_normal((4, 32)).astype(np.float32)} for _ in range(4)])
    words = ["--load-inputs", "in.json", "--fusion", "none", "--metric", "rel-l2", "--threshold", "0.2", "--force"]
    words += ["--objective", "smallest"]
    answer = tmp_path / "m.answer.json"
    both = run("precision", "search", "m.onnx", "--fp8", "--int8", *words, "--save-answer", answer)
    assert both.code == 0 and "1 layer(s) that are no products of these formats stay floats" in both.text, both
    read = json.loads(answer.read_text())
    assert read["candidates"] == 1 and "factor:float32" in read["run_options"], read["run_options"]
    lowered = run("precision", "search", "m.onnx", "--fp8", "--int8", "--lower", "factor", *words)
    assert lowered.code == 0 and "stay floats" not in lowered.text, lowered
    alone = run("precision", "search", "m.onnx", "--int8", *words, "--save-answer", answer)
    assert alone.code == 0 and json.loads(answer.read_text())["candidates"] == 2, alone


def test_convert_says_which_products_lack_the_format(run, tmp_path, product):
    """One whose sum has no whole number of blocks beside one that has."""
    model = onnx.load(tmp_path / "m.onnx")
    odd = np.ones((SUM + 1, 8), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(odd, "odd_w"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("z", TensorProto.FLOAT, [3, SUM + 1]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("odd_y", TensorProto.FLOAT, [3, 8]))
    model.graph.node.append(onnx.helper.make_node("MatMul", ["z", "odd_w"], ["odd_y"], name="odd"))
    onnx.save(model, tmp_path / "two.onnx")
    for flags in (["--int4"], ["--nvfp4", "--weights-only"]):
        outcome = run("convert", "two.onnx", *flags, "-o", f"{flags[0][2:]}.onnx")
        assert outcome.code == 0, outcome
        assert f"1 layer(s) take floats instead, since its sums of {SUM + 1} products are no multiple" in outcome.text


@pytest.mark.parametrize("flag", ["--int8", "--fp8", "--nvfp4", "--int4"])
def test_products_in_bodies_and_behind_them_stay_float(run, tmp_path, flag):
    """And the log says so, for int8 as for other formats."""
    constants = [numpy_helper.from_array(np.ones((SUM, SUM), np.float32), name) for name in ("in_w", "out_w")]
    constants.append(numpy_helper.from_array(np.array(True), "yes"))
    branch = helper.make_graph(
        [helper.make_node("MatMul", ["x", "in_w"], ["b"], "inner")], "branch", [], [info("b", None)]
    )
    nodes = [
        helper.make_node("And", ["flag", "yes"], ["chosen"]),
        helper.make_node("If", ["chosen"], ["c"], then_branch=branch, else_branch=branch),
        helper.make_node("Compress", ["c", "rows"], ["d"], axis=0),
        helper.make_node("MatMul", ["d", "out_w"], ["y"], "outer"),
    ]
    inputs = [info("x", [3, SUM]), info("flag", [], TensorProto.BOOL), info("rows", [3], TensorProto.BOOL)]
    save(tmp_path, model(nodes, inputs, [info("y", [None, SUM])], constants))
    outcome = run("run", "m.onnx", "--trt", flag, "--assume-lowest")
    assert outcome.code == 0, outcome
    assert "2 layer(s) take floats instead, since bodies of control flow stay float: inner" in outcome.text, outcome
    assert "since its shapes are known at run time only: outer" in outcome.text, outcome


def test_an_answer_without_scales_says_that_it_is_calibrated_again(run, tmp_path, product):
    flags = ["--fp8", "--calibration-cache", "scales.cache", "--load-inputs", "in.json"]
    search = ["--metric", "rel-l2", "--threshold", "0.9", "--objective", "smallest", "--save-answer", "a.json"]
    outcome = run("precision", "search", "m.onnx", *flags, *search)
    assert outcome.code == 0, outcome
    words, said = ("run", "m.onnx", "--trt", "--answer", "a.json", "--load-inputs", "in.json"), "has no scales of act"
    outcome = run(*words)
    assert outcome.code == 0 and said not in outcome.text, outcome
    answer = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps({**answer, "int8": None}))
    outcome = run(*words)
    assert outcome.code == 0 and outcome.text.count(said) == 1, outcome


@pytest.mark.parametrize(
    "value, reason",
    [
        (np.nan, "its weights hold infinities or NaN"),
        (1e6, "its weights lie beyond 458528, the largest that scales of int4-64 hold"),
    ],
)
def test_weights_that_blocks_do_not_hold_are_the_reason_whatever_would_fit(run, tmp_path, value, reason):
    weights = np.ones((64, 16), np.float32)
    weights[3, 5] = value
    constants = [numpy_helper.from_array(weights, "w")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    save(tmp_path, model(nodes, [info("x", [4, 64])], [info("y", [4, 16])], constants, opset=21))
    save_inputs(tmp_path / "in.json", [{"x": np.ones((4, 64), np.float32)}])
    block = [] if np.isnan(value) else ["--block-size", "64"]
    outcome = run("convert", "m.onnx", "--int4", *block, "--load-inputs", "in.json", "-o", "t.onnx")
    assert outcome.code == 1 and f", since {reason}" in outcome.text, outcome


@pytest.mark.parametrize(
    "found,refused,taken",
    [
        ("--fp8", [["--weights-only"], ["--fp8", "--weights-only"], ["--formats", "int4"]], ["--fp8"]),
        ("--int4", [["--int4", "--block-size", "32"], ["--formats", "int4-32"]], ["--int4", "--weights-only"]),
        ("--nvfp4 --weights-only", [["--nvfp4"], ["--int8", "--weights-only"]], ["--nvfp4", "--weights-only"]),
        ("--fp16", [["--formats", "int4"], ["--int8"]], ["--fp16"]),
    ],
)
def test_answers_hold_for_the_formats_that_they_were_found_with(run, tmp_path, product, found, refused, taken):
    """Others would be another file than the one that the search proved, and the log would not say so."""
    flags = ["--load-inputs", "in.json"]
    searched = run(
        "precision", "search", "m.onnx", *found.split(), *flags, "--threshold", "0.9", "--save-answer", "a.json"
    )
    assert searched.code == 0, searched
    assert run("convert", "m.onnx", "a.json", *flags, "-o", "whole.onnx").code == 0
    whole = onnx.load(tmp_path / "whole.onnx")
    for words in refused:
        for tool in (
            ["convert", "m.onnx", "--answer", "a.json", "-o", "t.onnx"],
            ["run", "m.onnx", "--answer", "a.json"],
        ):
            outcome = run(*tool, *words, *flags)
            assert outcome.code == 1 and "holds for that alone; try a search with" in outcome.text, outcome
    assert not (tmp_path / "t.onnx").exists()
    assert run("convert", "m.onnx", "--answer", "a.json", *taken, *flags, "-o", "t.onnx").code == 0
    assert onnx.load(tmp_path / "t.onnx").graph == whole.graph
