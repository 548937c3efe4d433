"""TensorRT's operators for NVFP4 and MXFP8 blocks, against their rules in NumPy with the roundings of ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope

node = helper.make_node
F = np.float32
TRT = {"domain": "trt"}
FP4, FP8, FLOAT = TensorProto.FLOAT4E2M1, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT
SHAPE, AXES = (4, 64, 32), (-1, 1, 2)


def numbers(seed=0, shape=SHAPE):
    """Of several magnitudes along every axis, with zeros, ties, infinitesimal and large ones."""
    random = np.random.default_rng(seed)
    x = (random.standard_normal(shape) * np.exp2(random.integers(-6, 7, shape))).astype(F)
    x[0, :32] = 0
    x[1] *= F(1e-6)
    x[2, :32] = np.arange(32 * 32).reshape(32, 32) / F(4)
    x[3, 5, 7], x[3, 40, 9], x[3, 60, 1] = 3e38, -3e38, 1e-42
    return x


def in_blocks(x, axis, size):
    """(..., blocks, size), and what brings that back."""
    moved = np.moveaxis(x, axis, -1)
    return moved.reshape(*moved.shape[:-1], -1, size), lambda blocks: np.moveaxis(blocks.reshape(moved.shape), -1, axis)


def e4m3(x):
    return np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn)


def fp4_blocks(x, scale, axis):
    blocks, back = in_blocks(x, axis, 16)
    largest = np.abs(blocks).max(-1)
    with np.errstate(over="ignore"):
        scales = np.where(largest == 0, e4m3(F(1)), e4m3(np.minimum(largest / (F(6) * F(scale)), F(448))))
    by = (scales.astype(F) * F(scale))[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(by == 0, F(0), blocks / by)
    return back(ratio.astype(ml_dtypes.float4_e2m1fn)), np.moveaxis(scales, -1, axis)


def mx_blocks(x, axis):
    blocks, back = in_blocks(x, axis, 32)
    ratio = np.abs(blocks).max(-1) / F(448)
    exact = np.log2(ratio.astype(np.float64), out=np.full(ratio.shape, -127.0), where=ratio > 0)
    exponents = np.clip(np.ceil(exact), -127, 127)
    codes = e4m3((blocks / np.exp2(exponents)[..., None]).astype(F))
    return back(codes), np.moveaxis((exponents + 127).astype(np.uint8), -1, axis)


def built(nodes, inputs, outputs, constants=()):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info(name, *each) for name, each in inputs.items()],
        [info(name, each, None) for name, each in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("trt", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def run(nodes, x, outputs, constants=(), **options):
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = built(nodes, {"x": (element, list(x.shape))}, outputs, constants)
    return ulpscope.Engine(made, **options).run({"x": x})


def same(actual, expected):
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("scale", [0.01, 1.0, 1e30])
@pytest.mark.parametrize("dtype", [F, np.float16, ml_dtypes.bfloat16])
def test_fp4_blocks_with_two_scales(dtype, scale, axis):
    with np.errstate(over="ignore"):
        x = numbers().astype(dtype)
    x[~np.isfinite(x)] = dtype(60000)
    quantizer = node("TRT_FP4DynamicQuantize", ["x", "g"], ["c", "s"], axis=axis, block_size=16, scale_type=FP8, **TRT)
    actual = run([quantizer], x, {"c": FP4, "s": FP8}, {"g": F(scale)})
    codes, scales = fp4_blocks(x.astype(F), scale, axis)
    same(actual["s"], scales)
    same(actual["c"], codes)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("dtype", [F, np.float16, ml_dtypes.bfloat16])
def test_mxfp8_blocks_there_and_back(dtype, axis):
    with np.errstate(over="ignore"):
        x = numbers(1).astype(dtype)
    x[~np.isfinite(x)] = dtype(60000)
    nodes = [
        node("TRT_MXFP8DynamicQuantize", ["x"], ["c", "s"], axis=axis, block_size=32, output_dtype=FP8, **TRT),
        node("TRT_MXFP8DequantizeLinear", ["c", "s"], ["d"], axis=axis, block_size=32, **TRT),
    ]
    actual = run(nodes, x, {"c": FP8, "s": TensorProto.UINT8, "d": FLOAT})
    codes, scales = mx_blocks(x.astype(F), axis)
    same(actual["s"], scales)
    same(actual["c"], codes)
    spread = np.repeat(np.exp2(scales.astype(np.float64) - 127), 32, axis=axis)
    np.testing.assert_array_equal(actual["d"], (codes.astype(np.float64) * spread).astype(F))


def test_powers_of_two_by_the_bits_of_the_quotient():
    """Just above and below where the exponent changes; the smallest and the largest; the codes at both ends."""
    exact = F(448) * np.exp2(np.arange(-120, 118, 7)).astype(F)
    edges = np.concatenate([exact, np.nextafter(exact, F(np.inf)), np.nextafter(exact, F(0))])
    edges = np.concatenate([edges, np.array([0, 1e-45, 2**-130, 3.4e38], F)])
    x = np.zeros((len(edges), 32), F)
    x[:, 3] = edges
    actual = run([node("TRT_MXFP8DynamicQuantize", ["x"], ["c", "s"], **TRT)], x, {"c": FP8, "s": TensorProto.UINT8})
    codes, scales = mx_blocks(x, -1)
    same(actual["s"], scales)
    same(actual["c"], codes)


def test_what_is_no_number_stays_none():
    x = np.ones((3, 32), F)
    x[0, 3], x[1, 4] = np.nan, np.inf
    nodes = [
        node("TRT_MXFP8DynamicQuantize", ["x"], ["c", "s"], **TRT),
        node("TRT_MXFP8DequantizeLinear", ["c", "s"], ["d"], axis=-1, **TRT),
        node("TRT_FP4DynamicQuantize", ["x", "g"], ["c4", "s4"], axis=-1, block_size=16, scale_type=FP8, **TRT),
        node("DequantizeLinear", ["s4", "g"], ["b4"]),
        node("DequantizeLinear", ["c4", "b4"], ["d4"], axis=-1, block_size=16),
    ]
    actual = run(nodes, x, {"d": FLOAT, "d4": FLOAT}, {"g": F(0.5)})
    assert np.isnan(actual["d"][0]).all() and np.isnan(actual["d4"][0, :16]).all()
    assert np.isfinite(actual["d4"][0, 16:]).all()
    assert actual["d"][1, 4] == np.inf and actual["d4"][1, 4] == 6 * 448 * 0.5
    np.testing.assert_array_equal(actual["d"][2], 1)


def weights_and_activations(form, random):
    """x -> quantized and back -> product with quantized weights, in float16, as TensorRT's tools write it."""
    w = (random.standard_normal((24, 64)) * 0.1).astype(F)
    half = {"to": TensorProto.FLOAT16}
    if form == "mxfp8":
        codes, scales = mx_blocks(w, -1)
        back = {"axis": -1, "block_size": 32, "output_dtype": TensorProto.FLOAT16, **TRT}
        nodes = [
            node("TRT_MXFP8DynamicQuantize", ["x"], ["c", "s"], axis=-1, block_size=32, output_dtype=FP8, **TRT),
            node("TRT_MXFP8DequantizeLinear", ["c", "s"], ["xd"], **back),
            node("TRT_MXFP8DequantizeLinear", ["w", "ws"], ["wd"], **back),
        ]
        wide = codes.astype(F) * np.repeat(np.exp2(scales.astype(F) - 127), 32, axis=-1)
        return nodes, {"w": codes, "ws": scales}, wide.astype(np.float16)
    g = F(np.abs(w).max()) / F(2688)
    codes, scales = fp4_blocks(w, g, -1)
    nodes = [
        node("TRT_FP4DynamicQuantize", ["x", "g"], ["c", "s"], axis=-1, block_size=16, scale_type=FP8, **TRT),
        node("DequantizeLinear", ["s", "g"], ["sd"]),
        node("DequantizeLinear", ["c", "sd"], ["xf"], axis=-1, block_size=16),
        node("Cast", ["xf"], ["xd"], **half),
        node("DequantizeLinear", ["ws", "wg"], ["wsd"]),
        node("DequantizeLinear", ["w", "wsd"], ["wf"], axis=-1, block_size=16),
        node("Cast", ["wf"], ["wd"], **half),
    ]
    wide = codes.astype(F) * np.repeat(scales.astype(F) * g, 16, axis=-1)
    return nodes, {"w": codes, "ws": scales, "g": F(0.002), "wg": g}, wide.astype(np.float16)


@pytest.mark.parametrize("options", [{}, {"fusion": "none"}, {"precision": "fp16"}])
@pytest.mark.parametrize("form", ["mxfp8", "nvfp4"])
def test_products_of_both_sides(form, options):
    random = np.random.default_rng(5)
    nodes, constants, weights = weights_and_activations(form, random)
    x = random.standard_normal((6, 64)).astype(np.float16)
    nodes += [node("Transpose", ["wd"], ["wt"], perm=[1, 0]), node("MatMul", ["xd", "wt"], ["y"])]
    actual = run(nodes, x, {"y": TensorProto.FLOAT16}, constants, **options)["y"]
    if form == "mxfp8":
        codes, scales = mx_blocks(x.astype(F), -1)
        wide = codes.astype(F) * np.repeat(np.exp2(scales.astype(F) - 127), 32, axis=-1)
    else:
        codes, scales = fp4_blocks(x.astype(F), F(0.002), -1)
        wide = codes.astype(F) * np.repeat(scales.astype(F) * F(0.002), 16, axis=-1)
    exact = wide.astype(np.float16).astype(np.float64) @ weights.astype(np.float64).T
    # Sums in float32, then one rounding to float16: half a step, and where both sides of a tie are as near.
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=2**-11 * 1.01, atol=1e-6)


FAULTS = {
    "block_size": ("TRT_FP4DynamicQuantize", {"block_size": 32}, "expected a block_size of 16"),
    "scale_type": ("TRT_FP4DynamicQuantize", {"scale_type": FLOAT}, "expected a scale_type of 17"),
    "axis": ("TRT_FP4DynamicQuantize", {"axis": 2}, "axis 2 is outside"),
    "mx block_size": ("TRT_MXFP8DynamicQuantize", {"block_size": 16}, "expected a block_size of 32"),
    "mx axis": ("TRT_MXFP8DynamicQuantize", {"axis": 0}, "expected a multiple of 32 elements along axis 0"),
    "output_dtype": ("TRT_MXFP8DequantizeLinear", {"output_dtype": FP8}, "as output_dtype, got fp8"),
    "precision": ("TRT_MXFP8DequantizeLinear", {"precision": FLOAT}, "takes no attribute precision"),
    "dq axis": ("TRT_MXFP8DequantizeLinear", {"axis": 0}, "do not fit an input of shape"),
    "dq block_size": ("TRT_MXFP8DequantizeLinear", {"axis": -1, "block_size": 64}, "do not fit an input of shape"),
}


def one(op, attributes, scale=1.0, rows=6):
    constants = {"g": F(scale)}
    if op == "TRT_MXFP8DequantizeLinear":
        constants = {"c": np.zeros((rows, 64), ml_dtypes.float8_e4m3fn), "g": np.zeros((rows, 2), np.uint8)}
        nodes = [node(op, ["c", "g"], ["d"], "bad", **attributes, **TRT), node("Add", ["x", "d"], ["y"])]
    else:
        inputs = ["x", "g"] if op == "TRT_FP4DynamicQuantize" else ["x"]
        nodes = [node(op, inputs, ["c", "s"], "bad", **attributes, **TRT), node("Cast", ["c"], ["y"], to=FLOAT)]
    return built(nodes, {"x": (FLOAT, [rows, 64])}, {"y": FLOAT}, constants)


@pytest.mark.parametrize("name", FAULTS)
def test_attributes_that_tensorrt_refuses(name):
    op, attributes, message = FAULTS[name]
    with pytest.raises(ulpscope.Error, match=message) as raised:
        ulpscope.Engine(one(op, attributes)).run({"x": np.ones((6, 64), F)})
    assert "'bad'" in str(raised.value) and op in str(raised.value)


IGNORED = {
    "no block_size": (
        "TRT_FP4DynamicQuantize",
        {"axis": -1, "scale_type": FP8},
        "has no block_size; TensorRT takes 16",
    ),
    "no scale_type": ("TRT_FP4DynamicQuantize", {"axis": -1, "block_size": 16}, "has no scale_type"),
    "another": ("TRT_MXFP8DynamicQuantize", {"precision": FLOAT}, "ignores the attribute precision"),
    "output_dtype": ("TRT_MXFP8DynamicQuantize", {"output_dtype": FLOAT}, "ignores output_dtype"),
}


@pytest.mark.parametrize("name", IGNORED)
def test_attributes_that_tensorrt_ignores(name, caplog):
    op, attributes, message = IGNORED[name]
    made = one(op, attributes)
    made.graph.node[0].name = f"ignored {name}"  # Each message comes once in a process.
    ulpscope.Engine(made).run({"x": np.ones((6, 64), F)})
    assert any(message in text and f"'ignored {name}'" in text for text in caplog.messages), caplog.messages


@pytest.mark.parametrize("scale", [0, -1, np.nan, np.inf])
def test_scales_that_are_none(scale):
    with pytest.raises(ulpscope.Error, match="expected a finite scale above 0 as input 1"):
        made = one("TRT_FP4DynamicQuantize", {"axis": -1, "block_size": 16, "scale_type": FP8}, scale)
        ulpscope.Engine(made).run({"x": np.ones((6, 64), F)})


def test_typed_files_keep_these_layers_and_their_codes():
    random = np.random.default_rng(6)
    _, constants, _ = weights_and_activations("mxfp8", random)
    nodes = [
        node("MatMul", ["x", "v"], ["h"], "first"),
        node("TRT_MXFP8DynamicQuantize", ["h"], ["c", "s"], axis=-1, block_size=32, output_dtype=FP8, **TRT),
        node("TRT_MXFP8DequantizeLinear", ["c", "s"], ["xd"], axis=-1, block_size=32, output_dtype=FLOAT, **TRT),
        node("TRT_MXFP8DequantizeLinear", ["w", "ws"], ["wd"], axis=-1, block_size=32, output_dtype=FLOAT, **TRT),
        node("Transpose", ["wd"], ["wt"], perm=[1, 0]),
        node("MatMul", ["xd", "wt"], ["z"], "second"),
        node("Relu", ["z"], ["y"], "last"),
    ]
    constants["v"] = random.standard_normal((64, 64)).astype(F)
    made = built(nodes, {"x": (FLOAT, [6, 64])}, {"y": FLOAT}, constants)
    feed = {"x": random.standard_normal((6, 64)).astype(F)}
    typed, report = ulpscope.convert(made, precision="fp16", data=[feed])
    assert report.lowered >= 2 and report.checked > 0
    kept = {each.name: each for each in typed.graph.initializer}
    for name in ("w", "ws"):
        same(numpy_helper.to_array(kept[name]), constants[name])
    assert [each.op_type for each in typed.graph.node].count("TRT_MXFP8DynamicQuantize") == 1
    assert ("trt", 1) in [(each.domain, each.version) for each in typed.opset_import]
    expected = ulpscope.Engine(made, precision="fp16").run(feed)["y"]
    assert ulpscope.Engine(typed).run(feed)["y"].tobytes() == expected.tobytes()
    onnx.checker.check_model(typed)
