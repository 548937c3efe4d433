"""Products of 8-bit integers with zero points by constants: the bits of NumPy's sums, for each number of threads."""

import platform

import numpy as np
import pytest
from onnx import helper, numpy_helper
from ulpscope import Engine

TYPES = {"u": np.uint8, "s": np.int8}
SCALES = {"x_scale": np.float32(0.02), "y_scale": np.float32(0.37)}


def value_of(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def check(op, x, constants, expected, **attributes):
    names = ["x", *(name or "" for name in constants)]
    given = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "g",
        [value_of("x", x)],
        [value_of("y", expected)],
        given,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    for threads in (1, 3):
        found = Engine(model, threads=threads).run({"x": x})["y"]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected, f"{op} on {threads} threads")


def draw(random, kind, *shape):
    limits = np.iinfo(TYPES[kind])
    return random.integers(limits.min, limits.max + 1, shape).astype(TYPES[kind])


def requantized(sums, scale, zero):
    limits = np.iinfo(zero.dtype)
    values = np.rint(sums.astype(np.float32) * scale) + np.float32(zero)
    return np.clip(values, limits.min, limits.max).astype(zero.dtype)


def convolved(x, w, group, strides, pads, dilations):
    """The definition, over two spatial dimensions."""
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    out, _, rows, columns = w.shape
    reach = [(n - 1) * d + 1 for n, d in zip((rows, columns), dilations)]
    size = [(have - need) // step + 1 for have, need, step in zip(x.shape[2:], reach, strides)]
    result = np.zeros((x.shape[0], out, *size), np.int64)
    each, per_group = out // group, x.shape[1] // group
    for g in range(group):
        for i in range(rows):
            for j in range(columns):
                y0, x0 = i * dilations[0], j * dilations[1]
                part = x[:, g * per_group : (g + 1) * per_group, y0 :: strides[0], x0 :: strides[1]]
                part = part[:, :, : size[0], : size[1]]
                result[:, g * each : (g + 1) * each] += np.einsum(
                    "ncyx,mc->nmyx", part, w[g * each : (g + 1) * each, :, i, j]
                )
    return result


@pytest.mark.parametrize("types", ["us", "ss", "uu"])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(
    "a,b", [((7, 33), (33, 20)), ((2, 3, 5, 16), (16, 70)), ((1, 130), (130, 9)), ((4, 6, 8), (4, 8, 10))]
)
def test_matrices(types, by_column, a, b):
    random = np.random.default_rng(len(a))
    x, w, x_zero = draw(random, types[0], *a), draw(random, types[1], *b), draw(random, types[0], 1)[0]
    columns = b[-1] if by_column else 1
    w_zero, y_zero = draw(random, types[1], columns), draw(random, types[0], 1)[0]
    w_scale = (random.random(columns) / 99).astype(np.float32)
    sums = np.matmul(x.astype(np.int64) - int(x_zero), w.astype(np.int64) - w_zero.astype(np.int64))
    check("MatMulInteger", x, {"w": w, "x_zero": x_zero, "w_zero": w_zero}, sums.astype(np.int32))
    scale = SCALES["x_scale"] * w_scale / SCALES["y_scale"]
    constants = {"x_scale": SCALES["x_scale"], "x_zero": x_zero, "w": w, "w_scale": w_scale, "w_zero": w_zero}
    constants |= {"y_scale": SCALES["y_scale"], "y_zero": y_zero}
    check("QLinearMatMul", x, constants, requantized(sums, scale, y_zero))


WINDOWS = {
    "3 x 3": ((1, 8, 9, 11), (6, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    "1 x 1": ((2, 8, 8, 9), (64, 8, 1, 1), {}),
    "1 x 1, odd": ((2, 7, 8, 8), (5, 7, 1, 1), {}),
    "steps": ((1, 8, 8, 8), (5, 8, 1, 1), {"strides": [2, 2]}),
    "dilated": ((1, 70, 13, 12), (130, 70, 3, 3), {"dilations": [2, 2]}),
    "depthwise": ((1, 12, 9, 9), (12, 1, 3, 3), {"group": 12, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "two of each": ((1, 12, 9, 9), (24, 1, 3, 3), {"group": 12}),
    "groups": ((2, 12, 9, 9), (6, 4, 3, 2), {"group": 3, "pads": [1, 0, 1, 1]}),
    "long sums": ((1, 150, 5, 6), (20, 150, 3, 3), {}),
} | {
    f"depthwise, {channels} of {rows} x {columns}": (
        (2, channels, 11, 73 + channels % 2),
        (channels, 1, rows, columns),
        {"group": channels, "pads": [rows // 2, 1, 0, columns // 2], "strides": strides, "dilations": dilations},
    )
    for channels in (9, 31, 32, 64, 100)
    for (rows, columns), strides, dilations in (((3, 3), [1, 1], [1, 1]), ((5, 2), [2, 3], [2, 4]))
}


@pytest.mark.parametrize("types", ["us", "ss", "uu"])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("form", WINDOWS)
def test_windows(types, by_channel, form):
    shape, kernel, attributes = WINDOWS[form]
    random = np.random.default_rng(len(form))
    x, w, x_zero = draw(random, types[0], *shape), draw(random, types[1], *kernel), draw(random, types[0], 1)[0]
    channels = kernel[0] if by_channel else 1
    w_zero, y_zero = draw(random, types[1], channels), draw(random, types[0], 1)[0]
    w_scale = (random.random(channels) / 99).astype(np.float32)
    bias = random.integers(-9999, 9999, kernel[0]).astype(np.int32)
    options = {"group": 1, "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], **attributes}
    centered = w.astype(np.int64) - w_zero.astype(np.int64).reshape(-1, 1, 1, 1)
    sums = convolved(x.astype(np.int64) - int(x_zero), centered, **options)
    check("ConvInteger", x, {"w": w, "x_zero": x_zero, "w_zero": w_zero}, sums.astype(np.int32), **attributes)
    scale = SCALES["x_scale"] * w_scale / SCALES["y_scale"]
    constants = {"x_scale": SCALES["x_scale"], "x_zero": x_zero, "w": w, "w_scale": w_scale, "w_zero": w_zero}
    constants |= {"y_scale": SCALES["y_scale"], "y_zero": y_zero, "b": bias}
    sums = sums + bias.reshape(-1, 1, 1)
    check("QLinearConv", x, constants, requantized(sums, scale.reshape(-1, 1, 1), y_zero), **attributes)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["u", "s"])
@pytest.mark.parametrize("group", [1, 40])
def test_scales_that_are_no_numbers(group, kind):
    """Infinity makes the largest bytes of all sums but 0; NaN counts as 0."""
    random = np.random.default_rng(group)
    x, w = draw(random, kind, 1, 40, 6, 7), draw(random, "s", 40, 40 // group, 1, 1)
    w[::5] = 0
    y_zero = TYPES[kind](3)
    w_scale = np.resize(np.float32([np.inf, np.nan, 1e-45, -np.inf, 3e38, 0.1, -0.1]), 40)
    sums = convolved(x.astype(np.int64) - 1, w.astype(np.int64), group, [1, 1], [0] * 4, [1, 1])
    constants = {"x_scale": np.float32(2), "x_zero": TYPES[kind](1), "w": w, "w_scale": w_scale}
    constants |= {"w_zero": np.zeros(40, np.int8), "y_scale": np.float32(1), "y_zero": y_zero}
    values = sums.astype(np.float32) * (np.float32(2) * w_scale).reshape(-1, 1, 1)
    values = np.rint(np.nan_to_num(np.clip(values, -1000, 1000), nan=0)) + y_zero
    limits = np.iinfo(y_zero.dtype)
    check("QLinearConv", x, constants, np.clip(values, limits.min, limits.max).astype(y_zero.dtype), group=group)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors take floats")
@pytest.mark.parametrize("kind", ["u", "s"])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("window", [1, 3])
def test_convolutions_of_dequantized_bytes(window, by_channel, kind):
    """With a zero point: the sums of the integers, scaled, not those of float32. Also where others read the numbers."""
    random = np.random.default_rng(window)
    x, w = draw(random, kind, 2, 34, 9, 11), draw(random, "s", 40, 34, window, window)
    zero, x_scale = TYPES[kind](17), np.float32(0.0173)
    w_scale = (random.random(40 if by_channel else 1) / 99).astype(np.float32)
    bias = random.standard_normal(40).astype(np.float32)
    constants = {
        "x_scale": x_scale,
        "x_zero": zero,
        "w": w,
        "w_scale": w_scale if by_channel else w_scale[0],
        "b": bias,
    }
    axis = {"axis": 0} if by_channel else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["numbers"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale"], ["weights"], **axis),
        helper.make_node("Conv", ["numbers", "weights", "b"], ["y"], pads=[window // 2] * 4),
    ]
    pads = [window // 2] * 4
    centered = x.astype(np.int64) - int(zero)
    sums = convolved(centered, w.astype(np.int64), 1, [1, 1], pads, [1, 1])
    expected = sums.astype(np.float32) * (x_scale * w_scale).reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)
    for outputs in (["y"], ["y", "numbers"]):
        graph = helper.make_graph(
            nodes,
            "g",
            [value_of("x", x)],
            [helper.make_tensor_value_info(name, 1, None) for name in outputs],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        for threads in (1, 3):
            found = Engine(model, threads=threads).run({"x": x})
            np.testing.assert_array_equal(found["y"], expected)
            if "numbers" in outputs:
                np.testing.assert_array_equal(found["numbers"], centered.astype(np.float32) * x_scale)
        plain = Engine(model, backend="plain").run({"x": x})["y"]
        np.testing.assert_allclose(expected, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["u", "s"])
@pytest.mark.parametrize("window,channels", [(1, 36), (1, 64), (3, 36), (3, 40)])
def test_convolutions_of_symmetric_bytes(window, channels, kind):
    """Without a zero point, from floats: the sums of the integers."""
    random = np.random.default_rng(window)
    q, w = draw(random, kind, 2, channels, 9, 11), draw(random, "s", 40, channels, window, window)
    scale, w_scale = np.float32(2**-6), np.float32(0.0071)
    bias = random.standard_normal(40).astype(np.float32)
    pads = [window // 2] * 4
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["numbers"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale"], ["weights"]),
        helper.make_node("Conv", ["numbers", "weights", "b"], ["y"], pads=pads),
    ]
    constants = {"scale": scale, "zero": TYPES[kind](0), "w": w, "w_scale": w_scale, "b": bias}
    x = q.astype(np.float32) * scale
    graph = helper.make_graph(
        nodes,
        "g",
        [value_of("x", x)],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    sums = convolved(q.astype(np.int64), w.astype(np.int64), 1, [1, 1], pads, [1, 1])
    expected = sums.astype(np.float32) * (scale * w_scale) + bias.reshape(-1, 1, 1)
    for threads in (1, 3):
        np.testing.assert_array_equal(Engine(model, threads=threads).run({"x": x})["y"], expected)


#: What is between a convolution and what quantizes it, its definition, and the step: 1e-31 and 3e37 have no
#: inverse that gives the same integers.
BEHIND = {
    "nothing": ([], lambda v: v, 0.0371),
    "ties": ([], lambda v: v, 2**-3),
    "step 1": ([], lambda v: v, 1),
    "Relu": ([("Relu", ["v"])], lambda v: np.maximum(v, 0), 0.019),
    "Clip": ([("Clip", ["v", "low", "high"])], lambda v: np.clip(v, LOW, HIGH), 0.0131),
    "Clip beyond": ([("Clip", ["v", "high"])], lambda v: np.maximum(v, HIGH), 1e-5),
    "Clip and Relu": (
        [("Clip", ["v", "low", "high"]), ("Relu", ["v"])],
        lambda v: np.maximum(np.clip(v, LOW, HIGH), 0),
        0.0031,
    ),
    "Relu, by division": ([("Relu", ["v"])], lambda v: np.maximum(v, 0), 1e-31),
    "by division": ([], lambda v: v, 3e37),
    "a factor": ([("Mul", ["v", "high"])], lambda v: v * HIGH, 0.019),
    "another bias": ([("Add", ["v", "high"]), ("Relu", ["v"])], lambda v: np.maximum(v + HIGH, 0), 0.019),
}
LOW, HIGH = np.float32(-1.5), np.float32(2.7)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors take floats")
@pytest.mark.parametrize("kind", ["u", "s"])
@pytest.mark.parametrize("zero", [0, 17])
@pytest.mark.parametrize("form", BEHIND)
@pytest.mark.parametrize("group,window", [(1, 1), (1, 3), (40, 3)])
def test_bytes_of_convolutions(group, window, form, zero, kind):
    """Between QuantizeLinear and DequantizeLinear: each operation is rounded, whether or not one step does all."""
    behind, definition, step = BEHIND[form]
    random = np.random.default_rng(window + zero)
    q, w = draw(random, kind, 2, 40, 9, 35), draw(random, "s", 40, 40 // group, window, window)
    scale, zero, step = np.float32(2**-6), TYPES[kind](zero), np.float32(step)
    w_scale = (np.arange(1, 41) / np.float32(2**10) if form == "ties" else random.random(40) / 400).astype(np.float32)
    bias = np.round(random.standard_normal(40), 3 if form != "ties" else 0).astype(np.float32)
    y_zero = TYPES[kind](9)
    chain, last = [], "v0"
    for i, (op, inputs) in enumerate(behind):
        chain.append(helper.make_node(op, [last if name == "v" else name for name in inputs], [f"v{i + 1}"]))
        last = f"v{i + 1}"
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["numbers"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale"], ["weights"], axis=0),
        helper.make_node("Conv", ["numbers", "weights", "b"], ["v0"], pads=[window // 2] * 4, group=group),
        *chain,
        helper.make_node("QuantizeLinear", [last, "step", "y_zero"], ["y"]),
    ]
    constants = {"scale": scale, "zero": zero, "w": w, "w_scale": w_scale, "b": bias}
    constants |= {"step": step, "y_zero": y_zero, "low": LOW, "high": HIGH}
    centered = q.astype(np.int64) - int(zero)
    sums = convolved(centered, w.astype(np.int64), group, [1, 1], [window // 2] * 4, [1, 1])
    scales, offsets = (scale * w_scale).reshape(-1, 1, 1), bias.reshape(-1, 1, 1)
    values = definition(sums.astype(np.float32) * scales + offsets).astype(np.float32)
    limits = np.iinfo(y_zero.dtype)
    with np.errstate(over="ignore"):
        expected = np.clip(np.rint(values / step) + y_zero, limits.min, limits.max).astype(y_zero.dtype)
    x = centered.astype(np.float32) * scale
    for outputs in (["y"], ["y", last]):
        graph = helper.make_graph(
            nodes,
            "g",
            [value_of("x", x)],
            [helper.make_tensor_value_info(name, 2 + (kind == "s") if name == "y" else 1, None) for name in outputs],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        for threads in (1, 3):
            found = Engine(model, threads=threads).run({"x": x})
            np.testing.assert_array_equal(found["y"], expected)
            if last in found:
                np.testing.assert_array_equal(found[last], values)
