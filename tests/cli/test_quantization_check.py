"""What `inspect model` and `convert` say of quantizers: one tiny model per violation, and none of well-formed ones."""

import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

F = np.float32
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
FP8, FP4, INT8 = TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT4E2M1, TensorProto.INT8
E4M3, E2M1, E8M0, I4 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu, ml_dtypes.int4)
TRT = {"domain": "trt"}
node = helper.make_node


def model(nodes, constants, shape=(4, 32)):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", FLOAT, list(shape))], [info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("trt", 1), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=12)


def four_bit_product(scale):
    """ONNX Runtime's own form: a row of 32 codes, which are zeros."""
    sizes = {"K": 32, "N": 1, "bits": 4, "block_size": 32}
    product = node("MatMulNBits", ["x", "w", "s"], ["y"], "product", domain="com.microsoft", **sizes)
    return model([product], {"w": np.zeros((1, 1, 16), np.uint8), "s": np.full((1, 1), scale, F)})


def ramp(shape, top, dtype=np.int8):
    """Codes of both signs up to the largest."""
    values = np.linspace(-top, top, int(np.prod(shape))).reshape(shape)
    return (np.rint(values) if top > 6 else values).astype(F).astype(dtype)


def weights(codes, scale, **attributes):
    """y = x + W, with W behind a DequantizeLinear named `dq`."""
    return model(
        [node("DequantizeLinear", ["w", "s"], ["d"], "dq", **attributes), node("Add", ["x", "d"], ["y"], "add")],
        {"w": codes, "s": scale}, codes.shape,
    )  # fmt: skip


def activations(scale=0.1, zero=None, again=(), **attributes):
    """y = x, quantized by `q` and back by `dq`."""
    zero = np.int8(0) if zero is None else zero
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], "q", **attributes),
        node("DequantizeLinear", ["q", "s", "z"], ["d" if again else "y"], "dq", **attributes),
        *again,
    ]
    return model(nodes, {"s": F(scale), "z": zero, "other": F(0.2)})


def fp4_dynamic(axis=None, shape=(4, 32), scale=0.01, **others):
    attributes = {"block_size": 16, "scale_type": FP8} | ({} if axis is None else {"axis": axis}) | others
    nodes = [node("TRT_FP4DynamicQuantize", ["x", "g"], ["c", "s"], "q", **attributes, **TRT),
             node("DequantizeLinear", ["s", "g"], ["sd"], "scales"),
             node("DequantizeLinear", ["c", "sd"], ["y"], "dq", axis=-1, block_size=16)]  # fmt: skip
    return model(nodes, {"g": F(scale)}, shape)


def nvfp4(blocks):
    nodes = [node("DequantizeLinear", ["b", "g"], ["bd"], "scales"),
             node("DequantizeLinear", ["w", "bd"], ["d"], "dq", axis=-1, block_size=16),
             node("Add", ["x", "d"], ["y"], "add")]  # fmt: skip
    constants = {"w": ramp((4, 32), 6, E2M1), "b": np.asarray(blocks, F).astype(E4M3), "g": F(0.01)}
    return model(nodes, constants)


def mxfp8_dynamic(**attributes):
    nodes = [node("TRT_MXFP8DynamicQuantize", ["x"], ["c", "s"], "q", **attributes, **TRT),
             node("TRT_MXFP8DequantizeLinear", ["c", "s"], ["y"], "dq", axis=-1, block_size=32, **TRT)]  # fmt: skip
    return model(nodes, {})


def mxfp8(codes):
    nodes = [node("TRT_MXFP8DequantizeLinear", ["w", "s"], ["d"], "dq", axis=-1, block_size=32, **TRT),
             node("Add", ["x", "d"], ["y"], "add")]  # fmt: skip
    return model(nodes, {"w": ramp((4, 32), 448, E4M3), "s": codes})


def short_scales(value):
    """Scales of blocks in float16, by a Cast, as `convert` writes those of int4 beside float32."""
    nodes = [node("Cast", ["h"], ["s"], "cast", to=FLOAT),
             node("DequantizeLinear", ["w", "s"], ["d"], "dq", axis=-1, block_size=16),
             node("Add", ["x", "d"], ["y"], "add")]  # fmt: skip
    return model(nodes, {"w": ramp((4, 32), 7, I4), "h": np.full((4, 2), value, np.float16)})


def of_copied_scale(value):
    nodes = [node("Identity", ["h"], ["s"], "copy"), node("DequantizeLinear", ["w", "s"], ["d"], "dq"),
             node("Add", ["x", "d"], ["y"], "add")]  # fmt: skip
    return model(nodes, {"w": ramp((4, 32), 127), "h": F(value)})


def computed_scale():
    nodes = [node("ReduceMax", ["x"], ["s"], "max", keepdims=0), node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
             node("DequantizeLinear", ["q", "s", "z"], ["y"], "dq")]  # fmt: skip
    return model(nodes, {"z": np.int8(0)})


def in_a_body():
    """The same as a negative scale, in a branch of an If."""
    inner = helper.make_graph(
        [node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"), node("DequantizeLinear", ["q", "s", "z"], ["o"], "dq")],
        "yes", [], [helper.make_tensor_value_info("o", FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph([node("Neg", ["x"], ["n"], "neg")], "no", [],
                              [helper.make_tensor_value_info("n", FLOAT, None)])  # fmt: skip
    choice = node("If", ["c"], ["y"], "choose", then_branch=inner, else_branch=other)
    return model([choice], {"c": np.array(True), "s": F(-1), "z": np.int8(0)})


SEVERAL = [node("QuantizeLinear", ["x", "other", "z"], ["q2"], "q2"),
           node("DequantizeLinear", ["q2", "other", "z"], ["e"], "dq2"),
           node("Add", ["d", "e"], ["y"], "add")]  # fmt: skip
AGAIN = [node("Reshape", ["d", "same"], ["r"], "r"), node("QuantizeLinear", ["r", "other", "z"], ["q2"], "q2"),
         node("DequantizeLinear", ["q2", "other", "z"], ["y"], "dq2")]  # fmt: skip


def again():
    made = activations(again=AGAIN)
    made.graph.initializer.append(numpy_helper.from_array(np.array([4, 32]), "same"))
    return made


PROBLEM, REFUSED, WARNING = "problem", "TensorRT", "warning"
INT4 = ramp((4, 32), 7, I4)
VIOLATIONS = {
    "a zero among scales behind a Cast": (short_scales(0), "dq", PROBLEM, "8 of the 8 scales in 'h' are 0"),
    "zero": (activations(0), "q", PROBLEM, "1 of the 1 scales in 's' is 0: expected finite numbers above 0"),
    "negative": (
        weights(ramp((4, 32), 127), np.array([1, -1, 2, -3], F), axis=0),
        "dq",
        PROBLEM,
        "2 of the 4 scales in 's' are negative",
    ),
    "nan": (activations(np.nan), "q", PROBLEM, "is NaN"),
    "infinite": (activations(np.inf), "q", PROBLEM, "is infinite"),
    "denormal": (
        weights(ramp((4, 32), 127), np.array([1, 1, 1, 1e-6], np.float16), axis=0, output_dtype=FLOAT),
        "dq",
        WARNING,
        "denormal in float16",
    ),
    "denormal of blocks": (
        weights(INT4, np.full((4, 1), 1e-5, np.float16), axis=-1, block_size=32, output_dtype=FLOAT),
        "dq",
        WARNING,
        "4 of the 4 scales in 's' are denormal in float16",
    ),
    "fp4 scale": (fp4_dynamic(-1, scale=-1), "q", PROBLEM, "is negative"),
    "body": (in_a_body(), "q", PROBLEM, "is negative"),
    "nan block": (nvfp4([[1, 2], [448, 3], [np.nan, 1], [2, 5]]), "dq", PROBLEM, "negative or NaN"),
    "vanishing block": (
        nvfp4([[1, 2], [448, 0], [4, 1], [2, 5]]),
        "dq",
        WARNING,
        "1 of the 8 scales of blocks in 'b' are 0",
    ),
    "e8m0": (
        weights(ramp((4, 32), 448, E4M3), np.ones((4, 1), F).astype(E8M0), axis=-1, block_size=32, output_dtype=FLOAT),
        "dq",
        REFUSED,
        "TensorRT takes no float8e8m0 as scales, which 's' holds; try TRT_MXFP8DequantizeLinear",
    ),
    "e4m3": (
        weights(ramp((4, 32), 6, E2M1), np.ones((4, 2), F).astype(E4M3), axis=-1, block_size=16, output_dtype=FLOAT),
        "dq",
        REFUSED,
        "TensorRT takes no float8e4m3fn as scales, which 's' holds; try a DequantizeLinear",
    ),
    "mx nan": (mxfp8(np.array([[127], [255], [120], [3]], np.uint8)), "dq", PROBLEM, "are NaN (code 255)"),
    "default axis": (
        fp4_dynamic(None, (2, 16, 32)),
        "q",
        PROBLEM,
        "the axis is left to its default, 1, and 'x' has 3 dimensions",
    ),
    "default axis of a matrix": (fp4_dynamic(None), "q", WARNING, "the axis is left to its default, 1, not the last"),
    "default axis of weights": (
        weights(ramp((4, 32), 6, E2M1), np.ones((4, 2), F), block_size=16),
        "dq",
        WARNING,
        "left to its default, 1",
    ),
    "dynamic block": (fp4_dynamic(-1, (4, 40)), "q", PROBLEM, "blocks of 16 do not divide axis -1 of 'x'"),
    "other block": (
        weights(INT4, np.ones((2, 2), F), axis=1, block_size=16),
        "dq",
        PROBLEM,
        "scales of shape (2, 2) fit no blocks of 16",
    ),
    "two equal blocks": (
        weights(ramp((32, 32), 7, I4), np.ones((2, 2), F), axis=1, block_size=16),
        "dq",
        PROBLEM,
        "blocks lie along 2 axes (0, 1)",
    ),
    "partial block": (
        weights(ramp((4, 40), 7, I4), np.ones((4, 3), F), axis=1, block_size=16),
        "dq",
        REFUSED,
        "blocks of 16 do not divide the 40 elements along axis 1",
    ),
    "block of as many scales as one that divides": (
        weights(ramp((4, 64), 7, I4), np.ones((4, 2), F), axis=1, block_size=48),
        "dq",
        REFUSED,
        "blocks of 48 do not divide the 64 elements along axis 1",
    ),
    "block of dynamic fp4": (fp4_dynamic(-1, block_size=32), "q", REFUSED, "expected a block_size of 16"),
    "scales of dynamic fp4": (fp4_dynamic(-1, scale_type=24), "q", REFUSED, "expected scale_type 17 (float8e4m3fn)"),
    "attribute of dynamic fp4": (fp4_dynamic(-1, saturate=1), "q", WARNING, "ignores the attribute saturate"),
    "block of dynamic mxfp8": (mxfp8_dynamic(block_size=16), "q", REFUSED, "expected a block_size of 32"),
    "type of dynamic mxfp8": (mxfp8_dynamic(output_dtype=19), "q", REFUSED, "expected output_dtype 17"),
    "scales of fp4 that were not rounded": (
        weights(ramp((4, 32), 6, E2M1), np.sqrt(np.arange(1, 9, dtype=F)).reshape(4, 2), axis=-1, block_size=16),
        "dq",
        WARNING,
        "the scales of blocks in 's' are no numbers of float8e4m3fn under one scale",
    ),
    "negative behind an Identity": (of_copied_scale(-0.1), "dq", PROBLEM, "1 of the 1 scales in 'h' is negative"),
    "no block": (weights(INT4, np.ones((4, 5), F), axis=1, block_size=16), "dq", PROBLEM, "fit no blocks of 16"),
    "other axis": (
        weights(ramp((32, 32), 7, I4), np.ones((32, 2), F), axis=0, block_size=16),
        "dq",
        PROBLEM,
        "blocks lie along axis 1 of 'w', but its axis is 0",
    ),
    "channels": (weights(ramp((4, 32), 127), np.ones(4, F), axis=1), "dq", PROBLEM, "4 scales do not fit axis 1"),
    "odd": (weights(ramp((3, 5), 7, I4), F(0.1)), "dq", REFUSED, "'w' has 15 elements of 4 bits"),
    "unused codes": (
        weights(ramp((4, 32), 3, E2M1), np.ones((4, 2), F), axis=-1, block_size=16),
        "dq",
        WARNING,
        "no block of 'w' has codes beyond 3, of 6",
    ),
    "codes of fp8 that are NaN": (
        weights(np.where(np.arange(128).reshape(4, 32) < 2, np.nan, ramp((4, 32), 448)).astype(E4M3), F(0.1)),
        "dq",
        PROBLEM,
        "2 of the 128 codes in 'w' are NaN: expected finite numbers",
    ),
    "codes of e5m2 that are infinite": (
        weights(np.where(np.arange(128).reshape(4, 32) < 1, np.inf, 1).astype(ml_dtypes.float8_e5m2), F(0.1)),
        "dq",
        PROBLEM,
        "1 of the 128 codes in 'w' is NaN or infinite",
    ),
    "several": (
        activations(again=SEVERAL),
        "q2",
        WARNING,
        "'x' is quantized by 'q', too, with other scales or to another type",
    ),
    "again": (again(), "q2", WARNING, "'r' comes out of 'dq' and is quantized again"),
    "e5m2": (
        activations(zero=np.array(0, F).astype(ml_dtypes.float8_e5m2)),
        "q",
        REFUSED,
        "TensorRT quantizes to no float8e5m2",
    ),
    "computed": (computed_scale(), "dq", REFUSED, "the scale 's' is computed when the network runs"),
    "computed product": (
        four_bit_product(scale=np.nan),
        "product",
        PROBLEM,
        "is NaN",
    ),
}

WELL_FORMED = {
    "scales of int4 behind a Cast": short_scales(0.1),
    "int8": activations(),
    "uint8 with a zero point": activations(zero=np.uint8(128)),
    "fp8": activations(zero=np.array(0, F).astype(E4M3)),
    "int8 per channel": weights(ramp((4, 32), 127), np.arange(1, 5, dtype=F), axis=0),
    "int4 blocks": weights(INT4, np.full((4, 2), 0.1, F), axis=1, block_size=16),
    "int4 blocks of rows": weights(
        ramp((32, 4), 7, I4), np.full((2, 4), 0.1, np.float16), axis=0, block_size=16, output_dtype=FLOAT
    ),
    "zeros": weights(np.zeros((4, 32), F).astype(I4), np.ones((4, 2), F), axis=1, block_size=16),
    "nvfp4": nvfp4([[1, 2], [448, 3], [4, 1], [2, 5]]),
    "scales of fp4 that were rounded": weights(
        ramp((4, 32), 6, E2M1),
        np.linspace(9, 448, 8, dtype=F).reshape(4, 2).astype(E4M3).astype(F) * F(0.003),
        axis=-1,
        block_size=16,
    ),
    "the same in float16": weights(
        ramp((4, 32), 6, E2M1),
        (np.linspace(9, 448, 8, dtype=F).reshape(4, 2).astype(E4M3).astype(F) * F(0.003)).astype(np.float16),
        axis=-1,
        block_size=16,
        output_dtype=FLOAT,
    ),
    # The smallest scale that quantizers write, 1e-5, is denormal in float16.
    "int4, a row of zeros": weights(
        (INT4.astype(F) * F([[1], [0], [1], [1]])).astype(I4),
        np.array([[0.1], [1e-5], [0.1], [0.1]], np.float16),
        axis=-1,
        block_size=32,
        output_dtype=FLOAT,
    ),
    "mxfp8": mxfp8(np.array([[127], [0], [120], [254]], np.uint8)),
    "dynamic fp4": fp4_dynamic(-1, (2, 16, 32)),
    "dynamic mxfp8": mxfp8_dynamic(axis=-1, block_size=32, output_dtype=FP8),
    "dynamic mxfp8 by its defaults": mxfp8_dynamic(),
    "two consumers": activations(
        again=[
            node("QuantizeLinear", ["x", "s", "z"], ["q2"], "q2"),
            node("DequantizeLinear", ["q2", "s"], ["e"], "dq2"),
            node("Add", ["d", "e"], ["y"], "add"),
        ]
    ),
    "negative scales of ONNX Runtime's products": four_bit_product(scale=-0.5),
    "none": model([node("Relu", ["x"], ["y"], "relu")], {}),
}


def found(run, made):
    onnx.save(made, "m.onnx")
    outcome = run("inspect", "model", "m.onnx", "--json")
    assert outcome.code == 0, outcome
    return json.loads(outcome.out).get("quantization", [])


@pytest.mark.parametrize("name", VIOLATIONS)
def test_each_violation_is_named_with_its_node(run, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    made, where, severity, text = VIOLATIONS[name]
    problems = found(run, made)
    matching = [each for each in problems if each["node"] == where and each["severity"] == severity]
    assert any(text in each["text"] for each in matching), problems


@pytest.mark.parametrize("name", WELL_FORMED)
def test_nothing_is_said_of_well_formed_files(run, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert found(run, WELL_FORMED[name]) == []


@pytest.mark.parametrize(
    "made, said",
    [
        (
            weights(ramp((4, 32), 127), np.full((4, 2), 0.1, F), axis=1, block_size=-16),
            "expected a 'block_size' of 0 or more, got -16",
        ),
        (
            weights(ramp((4, 32), 448, E4M3), np.ones((4, 1), F).astype(E8M0), axis=1, block_size=32),
            "got float8_e8m0fnu, the type of the scales; try the attribute 'output_dtype'",
        ),
    ],
)
def test_what_cannot_run_is_said_with_the_value(run, tmp_path, made, said):
    onnx.save(made, tmp_path / "m.onnx")
    outcome = run("run", "m.onnx", "--trt")
    assert outcome.code == 1 and "layer 'dq' (DequantizeLinear)" in outcome.text and said in outcome.text, outcome


def test_inspect_prints_a_section(run, tmp_path):
    onnx.save(VIOLATIONS["several"][0], tmp_path / "m.onnx")
    made = VIOLATIONS["e5m2"][0]
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(F(0), "s"))
    onnx.save(made, tmp_path / "n.onnx")
    outcome = run("inspect", "model", "m.onnx")
    assert outcome.code == 0 and "Quantization: 0 problems, 1 warning" in outcome.text, outcome
    outcome = run("inspect", "model", "n.onnx")
    assert outcome.code == 0, outcome
    assert "Quantization: 2 problems, 2 that TensorRT refuses" in outcome.text, outcome
    assert "    q (problem): 1 of the 1 scales in 's' is 0" in outcome.text, outcome
    onnx.save(WELL_FORMED["int8"], tmp_path / "o.onnx")
    assert "Quantization" not in run("inspect", "model", "o.onnx").text


def test_convert_says_what_the_model_had_already(run, tmp_path):
    made = activations(again=SEVERAL)
    made.graph.node.append(node("Tanh", ["y"], ["t"], "tanh"))
    made.graph.output[0].name = "t"
    onnx.save(made, tmp_path / "m.onnx")
    outcome = run("convert", "m.onnx", "--fp16", "-o", "t.onnx")
    assert outcome.code == 0, outcome
    assert "The model had these in its quantizers already" in outcome.text and "q2 (warning)" in outcome.text, outcome


def test_what_convert_quantizes_is_well_formed(run, tmp_path):
    """Weights per channel, one of zeros, activations per tensor."""
    random = np.random.default_rng(0)
    w = random.standard_normal((32, 16)).astype(F)
    w[:, 3] = 0
    made = model([node("MatMul", ["x", "w"], ["m"], "product"), node("Relu", ["m"], ["y"], "relu")], {"w": w})
    del made.opset_import[1:]
    made.opset_import[0].version, made.ir_version = 17, 8
    onnx.save(made, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=random.standard_normal((2, 4, 32)).astype(F))
    outcome = run("convert", "m.onnx", "--int8", "--fp16", "--load-inputs", "in.npz", "-o", "t.onnx")
    assert outcome.code == 0 and "Quantization" not in outcome.text, outcome
    assert any(each.op_type == "QuantizeLinear" for each in onnx.load(tmp_path / "t.onnx").graph.node)
    outcome = run("inspect", "model", "t.onnx", "--json")
    assert "quantization" not in json.loads(outcome.out)


def scaled(value, count):
    return weights(ramp((32, 32), 100), np.where(np.arange(32) < count, value, 0.1).astype(F), axis=1)


@pytest.mark.parametrize(
    "made, message",
    [
        (scaled(0, 1), "'dq': 1 of the 32 scales in 's' is 0"),
        (scaled(np.nan, 2), "2 of the 32 scales in 's' are NaN"),
        (activations(-0.1), "'q': 1 of the 1 scales in 's' is negative: expected finite numbers above 0; `inspect"),
        (activations(1e-42), "is denormal in float32, with fewer bits"),
        (activations(), None),
    ],
)  # fmt: skip
def test_runs_warn_of_scales(run, tmp_path, made, message):
    onnx.save(made, tmp_path / "m.onnx")
    outcome = run("run", "m.onnx", "--trt")
    assert outcome.code == 0, outcome
    said = [line for line in outcome.text.splitlines() if "scales in 's'" in line]
    assert len(said) == (message is not None) and all(message in line for line in said), outcome


def test_weights_below_the_smallest_scale(run, tmp_path):
    """Numbers of 1e-40 have small codes under 2^-127, since there is no smaller scale of a block."""
    codes = ramp((32, 64), 0.05, E4M3)
    onnx.save(weights(codes, np.full((32, 2), 2.0**-127, F).astype(E8M0), axis=1, block_size=32), tmp_path / "m.onnx")
    outcome = run("inspect", "model", "m.onnx")
    assert outcome.code == 0 and "scales are too large" not in outcome.text, outcome
