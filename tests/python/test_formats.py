"""Narrow number formats: read, converted, moved, quantized and handed out, as ml_dtypes and onnx.reference have it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from ulpscope import Error, ErrorCode, backend

FLOAT8 = ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"]
FINITE = ["FLOAT6E2M3", "FLOAT6E3M2", "FLOAT4E2M1"]
INTEGERS = ["INT4", "UINT4", "INT2", "UINT2"]
ALL = FLOAT8 + FINITE + INTEGERS + ["FLOAT8E8M0"]
BITS = {"FLOAT4E2M1": 4, "INT4": 4, "UINT4": 4, "INT2": 2, "UINT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}


def number(name):
    return getattr(TensorProto, name)


def dtype_of(name):
    return np.dtype(helper.tensor_dtype_to_np_dtype(number(name)))


def all_codes(name):
    return np.arange(1 << BITS.get(name, 8), dtype=np.uint8).view(dtype_of(name))


def model(nodes, inputs, outputs, initializers=(), opset=28):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info(n, t, s) for n, t, s in inputs], [info(n, t, None) for n, t in outputs], list(initializers)
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)


def run(proto, *inputs):
    return backend.prepare(proto, "CPU").run(list(inputs))


def cast(x, to, opset=28, **attributes):
    source = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node("Cast", ["x"], ["y"], to=number(to), **attributes)
    return run(model([node], [("x", source, x.shape)], [("y", number(to))], opset=opset), x)[0]


def same(actual, expected):
    """The same bits, but for those of NaN."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(a, e)
    np.testing.assert_array_equal(np.signbit(a) & (a == a), np.signbit(e) & (e == e))


def floats(seed=1, count=20000):
    """float32 of all magnitudes, and every number that a format could have trouble with."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    values = np.concatenate([all_codes(name).astype(np.float32) for name in FLOAT8 + FINITE])
    values = np.sort(values[np.isfinite(values)])
    ties = (values[1:] + values[:-1]) / 2
    others = [464, 465, 61440, 480, 248, 1e38, np.inf, -np.inf, 0, -0.0]
    near = np.concatenate([values, ties, others]).astype(np.float32)
    around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    return np.concatenate([x[np.isfinite(x)], rng.normal(0, 100, count).astype(np.float32), *around])


@pytest.mark.parametrize("name", ALL)
def test_every_code_is_read_and_handed_out(name):
    codes = all_codes(name)
    same(cast(codes, "FLOAT"), codes.astype(np.float32))
    kept = run_identity(codes).view(np.uint8) == codes.view(np.uint8)
    assert kept.all() or (name == "FLOAT8E5M2" and (codes[~kept] != codes[~kept]).all())  # it has three NaNs
    same(run_identity(codes), codes)


def run_identity(codes):
    kind = helper.np_dtype_to_tensor_dtype(codes.dtype)
    return run(model([helper.make_node("Identity", ["x"], ["y"])], [("x", kind, codes.shape)], [("y", kind)]), codes)[0]


@pytest.mark.parametrize("name", FLOAT8 + FINITE)
@pytest.mark.parametrize("source", ["FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT32", "FLOAT8E5M2"])
def test_cast_rounds_as_ml_dtypes_does(name, source):
    x = floats().astype(np.float64)
    if source == "INT32":
        x = np.clip(x, -(2**31), 2**31 - 1)
    with np.errstate(all="ignore"):
        x = x.astype(dtype_of(source))
        wide = x.astype(np.float64)
        expected = wide.astype(dtype_of(name))  # to nearest, ties to even; no saturation where there is a NaN
        if source in ("DOUBLE", "INT32"):
            expected = by_definition(wide, name)
    if name in FINITE:
        x, expected = x[wide == wide], expected[wide == wide]
    same(cast(x, name, saturate=0), expected)


def by_definition(wide, name):
    """One rounding from float64, through the table of all values: the nearest, of two the one with the even code."""
    codes = all_codes(name)
    values = codes.astype(np.float64)
    chosen = np.isfinite(values) & ~np.signbit(values)
    codes, values = codes.view(np.uint8)[chosen], values[chosen]
    order = np.argsort(values)
    codes, values = codes[order], values[order]
    magnitude = np.minimum(np.abs(wide), 4 * values[-1])
    above = np.clip(np.searchsorted(values, magnitude), 1, len(values) - 1)
    low, high = values[above - 1], values[above]
    up = (high - magnitude < magnitude - low) | ((high - magnitude == magnitude - low) & (codes[above] % 2 == 0))
    result = np.copysign(np.where(up, high, low), wide)
    step = values[-1] - values[-2]
    half = values[-1] + step / 2
    over = (magnitude > half) | ((magnitude == half) & (codes[-1] % 2 == 1))
    if name in FLOAT8:
        result = np.where(over, np.copysign(np.inf, wide), result)
    return np.where(np.isnan(wide), np.nan, result).astype(dtype_of(name))


@pytest.mark.parametrize("name", FLOAT8)
def test_cast_saturates_by_default(name):
    x = np.append(floats(2), np.float32(np.nan))
    largest = float(ml_dtypes.finfo(dtype_of(name)).max)
    expected = np.clip(x, -largest, largest).astype(dtype_of(name))
    same(cast(x, name), expected)
    same(cast(x, name, opset=19), expected)
    like = helper.make_node("CastLike", ["x", "like"], ["y"])
    kind = number(name)
    inputs = [("x", TensorProto.FLOAT, x.shape), ("like", kind, [1])]
    same(run(model([like], inputs, [("y", kind)]), x, np.zeros(1, dtype_of(name)))[0], expected)


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_cast_to_scales_of_blocks(mode):
    rng = np.random.default_rng(3)
    x = np.abs(rng.integers(0, 2**31, 5000, dtype=np.uint32).view(np.float32))
    x = x[np.isfinite(x) & (x >= 2.0**-126) & (x <= 2.0**127)]
    x = np.concatenate([x, 2.0 ** np.arange(-126, 127), 1.5 * 2.0 ** np.arange(-126, 127)]).astype(np.float32)
    same(cast(x, "FLOAT8E8M0", round_mode=mode), numpy_helper.to_float8e8m0(x, True, mode))
    ends = np.float32([0, 2.0**-127, 3e38, np.inf, np.nan])
    assert cast(ends, "FLOAT8E8M0").view(np.uint8).tolist() == [0, 0, 254, 254, 255]
    assert cast(ends, "FLOAT8E8M0", saturate=0, round_mode="nearest").view(np.uint8).tolist() == [255, 0, 255, 255, 255]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("source", ["FLOAT", "INT32", "UINT8", "INT64", "FLOAT16"])
def test_casts_to_narrow_integers_keep_the_low_bits(name, source):
    bits, signed = BITS[name], name.startswith("I")
    low = 0 if source == "UINT8" else -100
    whole = np.arange(low, 120)
    x = (whole + (0.75 * np.sign(whole) if source.startswith("FLOAT") else 0)).astype(dtype_of(source))
    wrapped = whole & ((1 << bits) - 1)
    expected = np.where(signed & (wrapped >= 1 << (bits - 1)), wrapped - (1 << bits), wrapped)
    assert cast(x, name).astype(np.int32).tolist() == expected.tolist()


def tensors(codes, name):
    """The same elements as raw_data, as int32_data, and as a message that is parsed again."""
    raw = numpy_helper.from_array(codes, "c")
    typed = helper.make_tensor("c", number(name), codes.shape, codes.astype(np.float32).ravel())
    return [raw, typed, onnx.TensorProto.FromString(typed.SerializeToString())]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (4, 4), (0, 3), (7,)])
def test_constants_are_read_from_every_field(name, shape):
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 1 << BITS.get(name, 8), shape, dtype=np.uint8).view(dtype_of(name)).reshape(shape)
    is_number = codes.astype(np.float32) == codes.astype(np.float32)
    codes = np.where(is_number, codes, np.ones(1, codes.dtype)).astype(codes.dtype)
    for tensor in tensors(codes, name):
        assert np.array_equal(numpy_helper.to_array(tensor).astype(np.float32), codes.astype(np.float32))
        held = helper.make_node("Constant", [], ["k"], value=tensor)
        nodes = [held, helper.make_node("Cast", ["c"], ["y"], to=1), helper.make_node("Identity", ["k"], ["z"])]
        y, z = run(model(nodes, [], [("y", 1), ("z", number(name))], [tensor]))
        same(y, codes.astype(np.float32))
        same(z, codes)


def test_wrong_sizes_are_refused():
    short = onnx.TensorProto(name="c", data_type=TensorProto.INT4, dims=[5], raw_data=b"\1\2")
    typed = onnx.TensorProto(name="c", data_type=TensorProto.UINT4, dims=[5], int32_data=[1, 2])
    for tensor in (short, typed):
        with pytest.raises(Error, match="expected 3 "):
            run(model([helper.make_node("Cast", ["c"], ["y"], to=1)], [], [("y", 1)], [tensor]))


@pytest.mark.parametrize("name", ALL)
def test_movement_operators_move_them(name):
    rng = np.random.default_rng(7)
    codes = rng.integers(0, 1 << BITS.get(name, 8), (2, 3, 4), dtype=np.uint8).view(dtype_of(name))
    kind = number(name)
    ints = lambda name, values: numpy_helper.from_array(np.array(values, np.int64), name)  # noqa: E731
    node = helper.make_node
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
        node("Reshape", ["t", "shape"], ["r"]),
        node("Concat", ["r", "r"], ["c"], axis=0),
        node("Gather", ["c", "rows"], ["g"], axis=0),
        node("Unsqueeze", ["g", "axes"], ["u"]),
        node("Squeeze", ["u", "axes"], ["s"]),
        node("Slice", ["s", "from", "to"], ["y"]),
        node("Shape", ["y"], ["n"]),
        node("ConstantOfShape", ["n"], ["f"], value=numpy_helper.from_array(codes[:1, 0, 0], "v")),
        node("Flatten", ["f"], ["z"]),
    ]
    constants = [ints("shape", [8, 3]), ints("rows", [3, 0, 15, 9]), ints("axes", [0])]
    constants += [ints("from", [1, 0]), ints("to", [4, 2])]
    y, z = run(model(nodes, [("x", kind, codes.shape)], [("y", kind), ("z", kind)], constants), codes)
    rows = codes.transpose(2, 0, 1).reshape(8, 3)
    same(y, np.concatenate([rows, rows])[[3, 0, 15, 9]][1:4, 0:2])
    same(z, np.full((3, 2), codes[0, 0, 0], codes.dtype))


@pytest.mark.parametrize("name", FLOAT8 + FINITE + INTEGERS)
@pytest.mark.parametrize("layout", ["tensor", "axis", "block"])
@pytest.mark.parametrize("scale_type", ["FLOAT", "FLOAT8E8M0"])
def test_quantization_agrees_with_onnx_reference(name, layout, scale_type):
    rng = np.random.default_rng(len(name) * 10 + len(layout))
    kind, node = number(name), helper.make_node
    for _ in range(5):
        shape = tuple(map(int, rng.integers(1, 9, 3)))
        axis, block = int(rng.integers(-3, 3)), int(rng.integers(1, 5))
        scales = {"tensor": (), "axis": (shape[axis],), "block": shape}[layout]
        if layout == "block":
            scales = list(shape)
            scales[axis] = -(-shape[axis] // block)
        scale = rng.uniform(0.05, 3, scales).astype(np.float32)
        if scale_type == "FLOAT8E8M0":
            scale = numpy_helper.to_float8e8m0(scale.reshape(-1)).reshape(scales)
        zero = np.zeros(scales, dtype_of(name))
        if name in INTEGERS:
            info = ml_dtypes.iinfo(dtype_of(name))
            zero = rng.integers(info.min, int(info.max) + 1, scales).astype(np.float32).astype(dtype_of(name))
        x = rng.normal(0, 20, shape).astype(np.float32)
        attributes = {"axis": axis} | ({"block_size": block} if layout == "block" else {})
        nodes = [
            node("QuantizeLinear", ["x", "s", "zero"], ["q"], **attributes),
            node("DequantizeLinear", ["q", "s", "zero"], ["y"], output_dtype=TensorProto.FLOAT, **attributes),
        ]
        constants = [numpy_helper.from_array(np.asarray(scale), "s"), numpy_helper.from_array(zero, "zero")]
        proto = model(nodes, [("x", TensorProto.FLOAT, shape)], [("q", kind), ("y", TensorProto.FLOAT)], constants)
        if scale_type == "FLOAT8E8M0":  # the reference divides in the scale's own arithmetic
            proto_of_oracle = onnx.ModelProto.FromString(proto.SerializeToString())
            wide = numpy_helper.from_array(np.asarray(scale).astype(np.float32), "s")
            proto_of_oracle.graph.initializer[0].CopyFrom(wide)
        else:
            proto_of_oracle = proto
        expected = ReferenceEvaluator(proto_of_oracle).run(None, {"x": x})
        q, y = run(proto, x)
        same(q, expected[0])
        same(y, expected[1])


def test_output_type_without_a_zero_point():
    x = np.float32([[1, -3, 700], [0.3, 0.2, 5]])
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=TensorProto.FLOAT8E4M3FN, saturate=0)
    scale = numpy_helper.from_array(np.float32(1), "s")
    (q,) = run(model([node], [("x", 1, x.shape)], [("q", TensorProto.FLOAT8E4M3FN)], [scale]), x)
    same(q, x.astype(ml_dtypes.float8_e4m3fn))


@pytest.mark.parametrize("op", ["Add", "MatMul", "Relu", "Softmax", "Equal", "ReduceMax", "Dropout", "TopK"])
def test_arithmetic_in_them_is_refused_by_name(op):
    kind = TensorProto.FLOAT8E4M3FN
    inputs = {"Add": 2, "MatMul": 2, "Equal": 2, "TopK": 2}.get(op, 1)
    node = helper.make_node(op, ["x", "x"][:inputs], ["y"] + ["i"] * (op == "TopK"), name="the_layer")
    with pytest.raises(Error, match="'the_layer'.*no kernel for elements of type fp8") as error:
        run(model([node], [("x", kind, [2, 2])], [("y", kind)]), np.zeros((2, 2), ml_dtypes.float8_e4m3fn))
    assert error.value.code == ErrorCode.UNSUPPORTED


def test_reductions_while_scattering_are_refused():
    kind, node = TensorProto.INT4, helper.make_node("ScatterElements", ["x", "i", "x"], ["y"], reduction="add")
    with pytest.raises(Error, match="int4"):
        run(model([node], [("x", kind, [2]), ("i", TensorProto.INT64, [2])], [("y", kind)]), None, None)


def test_other_inputs_of_quantization_are_refused():
    scale = numpy_helper.from_array(np.float32(1), "s")
    for op, kind in (("DequantizeLinear", TensorProto.FLOAT), ("DequantizeLinear", TensorProto.FLOAT8E8M0)):
        with pytest.raises(Error, match="float32|e8m0"):
            run(model([helper.make_node(op, ["x", "s"], ["y"])], [("x", kind, [2])], [("y", 1)], [scale]), None)
    zero = numpy_helper.from_array(np.float32(0), "zero")
    with pytest.raises(Error, match="float32"):
        node = helper.make_node("QuantizeLinear", ["x", "s", "zero"], ["y"])
        run(model([node], [("x", 1, [2])], [("y", 1)], [scale, zero]), None)


@pytest.mark.parametrize("name", ["FLOAT8E5M2", "INT4", "FLOAT4E2M1"])
def test_shapes_known_only_while_running(name):
    rng = np.random.default_rng(9)
    x, keep = rng.normal(0, 9, (6, 3)).astype(np.float32), np.array([1, 0, 1, 1, 0, 1], bool)
    kind, node = number(name), helper.make_node
    nodes = [
        node("Compress", ["x", "keep"], ["k"], axis=0),
        node("QuantizeLinear", ["k", "s", "zero"], ["q"]),
        node("Transpose", ["q"], ["t"]),
        node("DequantizeLinear", ["t", "s", "zero"], ["y"]),
        node("CastLike", ["k", "zero"], ["like"]),
    ]
    zero = np.zeros((), dtype_of(name))
    constants = [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(zero, "zero")]
    inputs = [("x", TensorProto.FLOAT, x.shape), ("keep", TensorProto.BOOL, keep.shape)]
    proto = model(nodes, inputs, [("q", kind), ("y", TensorProto.FLOAT), ("like", kind)], constants, opset=25)
    for actual, expected in zip(run(proto, x, keep), ReferenceEvaluator(proto).run(None, {"x": x, "keep": keep})):
        same(actual, expected)


@pytest.mark.parametrize("choice", [True, False])
def test_branches_hand_them_on(choice):
    kind, node, info = TensorProto.FLOAT8E5M2, helper.make_node, helper.make_tensor_value_info
    x = np.random.default_rng(10).normal(0, 9, (6, 3)).astype(np.float32)
    kept = helper.make_graph([node("Identity", ["q"], ["a"])], "kept", [], [info("a", kind, None)])
    other = [node("Neg", ["x"], ["n"]), node("Cast", ["n"], ["b"], to=kind)]
    negated = helper.make_graph(other, "negated", [], [info("b", kind, None)])
    nodes = [node("Cast", ["x"], ["q"], to=kind), node("If", ["f"], ["y"], then_branch=kept, else_branch=negated)]
    inputs = [("x", TensorProto.FLOAT, x.shape), ("f", TensorProto.BOOL, [])]
    (y,) = run(model(nodes, inputs, [("y", kind)], opset=25), x, np.array(choice))
    same(y, (x if choice else -x).astype(ml_dtypes.float8_e5m2))
