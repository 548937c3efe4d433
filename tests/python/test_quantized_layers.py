"""Layers of 8-bit integers of com.microsoft and QLinearConv: the bits of ONNX Runtime, for each number of threads."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from ulpscope import Engine

TYPES = {"u": np.uint8, "s": np.int8}
F32 = np.float32


def value_of(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(array)), None)


def model_of(nodes, feeds, constants, output, opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()],
        [value_of("y", output)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def same_as_onnxruntime(model, feeds, **compared):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)[0]
    for backend, threads in (("cpu", 1), ("cpu", 3), ("plain", 1)):
        found = Engine(model, backend=backend, threads=threads).run(feeds)["y"]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected, f"{backend} on {threads} threads {compared}")


def check(op, feeds, constants, order, output, domain="com.microsoft", **attributes):
    node = helper.make_node(op, order, ["y"], domain=domain, **attributes)
    same_as_onnxruntime(model_of([node], feeds, constants, output), feeds)


class Draw:
    """Bytes, scales that are often simple, so that there are ties, and zero points."""

    def __init__(self, seed, kind):
        self.random = np.random.default_rng(seed)
        self.type = TYPES[kind]
        self.simple = seed % 2 == 0

    def bytes(self, *shape):
        limits = np.iinfo(self.type)
        return self.random.integers(limits.min, limits.max + 1, shape).astype(self.type)

    def scale(self):
        return F32(self.random.integers(1, 40) / F32(64)) if self.simple else F32(self.random.uniform(0.001, 0.1))

    def zero(self):
        return self.bytes(1)[0]


ONE = ["x", "x_scale", "x_zero", "y_scale", "y_zero"]
TWO = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]


def scales_of(draw, *names):
    return {
        f"{n}_{part}": draw.scale() if part == "scale" else draw.zero() for n in names for part in ("scale", "zero")
    }


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_all_pairs_of_bytes(op, seed, kind):
    draw, limits = Draw(seed, kind), np.iinfo(TYPES[kind])
    a, b = np.meshgrid(*[np.arange(limits.min, limits.max + 1).astype(TYPES[kind])] * 2)
    check(op, {"a": a, "b": b}, scales_of(draw, "a", "b", "y"), TWO, TYPES[kind])


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(
    "a,b", [((2, 5, 7, 9), (2, 5, 1, 1)), ((3, 1, 4), (5, 1)), ((), (7,)), ((2, 3, 4), (2, 3, 4)), ((1, 70), (1, 1))]
)
def test_broadcasting(op, a, b):
    for seed, shapes in enumerate(((a, b), (b, a))):
        draw = Draw(seed, "u")
        check(
            op,
            {"a": draw.bytes(*shapes[0]), "b": draw.bytes(*shapes[1])},
            scales_of(draw, "a", "b", "y"),
            TWO,
            np.uint8,
        )


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(4))
def test_functions_of_one_byte(seed, kind):
    draw, limits = Draw(seed, kind), np.iinfo(TYPES[kind])
    x = np.arange(limits.min, limits.max + 1).astype(TYPES[kind])
    check("QLinearSigmoid", {"x": x}, scales_of(draw, "x", "y"), ONE, TYPES[kind])
    check("QLinearLeakyRelu", {"x": x}, scales_of(draw, "x", "y"), ONE, TYPES[kind], alpha=0.1)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(6))
def test_softmax(seed, kind):
    """Bytes close together and far apart, along each axis and over several; one alone, whose power has no room."""
    draw = Draw(seed, kind)
    for shape in ((3, 5, 70), (2, 1, 4), (7, 300), (4, 1)):
        x = draw.bytes(*shape)
        for spread in (1, 4, 30):
            constants = scales_of(draw, "x", "y")
            if seed > 2:
                constants["y_scale"] = F32(1 / 256)
            for axis in range(-1, len(shape)):
                for opset in (12, 13):
                    given = {"axis": axis} if axis >= 0 else {}
                    feeds = {"x": (x // spread).astype(TYPES[kind])}
                    check("QLinearSoftmax", feeds, constants, ONE, TYPES[kind], opset=opset, **given)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(4))
def test_where(seed, kind):
    draw = Draw(seed, kind)
    order = ["c", "x", "x_scale", "x_zero", "y_in", "y_in_scale", "y_in_zero", "y_scale", "y_zero"]
    for shapes in (((3, 4, 90),) * 3, ((4, 1), (3, 1, 90), ()), ((), (3, 7), (1, 7)), ((7,), (3, 1), (3, 7))):
        constants = scales_of(draw, "x", "y_in", "y")
        if seed == 3:
            constants |= {"y_scale": constants["x_scale"], "y_zero": constants["x_zero"]}
        feeds = {"c": draw.random.random(shapes[0]) < 0.5, "x": draw.bytes(*shapes[1]), "y_in": draw.bytes(*shapes[2])}
        check("QLinearWhere", {k: np.asarray(v) for k, v in feeds.items()}, constants, order, TYPES[kind])


POOLS = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    {"kernel_shape": [5, 3], "strides": [2, 3], "pads": [2, 0, 1, 1]},
    {"kernel_shape": [1, 1], "strides": [2, 2]},
]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(4))
def test_pools(seed, kind):
    draw = Draw(seed, kind)
    x = draw.bytes(2, 70, 9, 11)
    for attributes in POOLS:
        check("QLinearAveragePool", {"x": x}, scales_of(draw, "x", "y"), ONE, TYPES[kind], **attributes)
    for channels_last in (0, 1):
        constants = scales_of(draw, "x", "y")
        check("QLinearGlobalAveragePool", {"x": x}, constants, ONE, TYPES[kind], channels_last=channels_last)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenations(axis, kind):
    draw = Draw(axis % 3, kind)
    shapes = [[2, 3, 4, 5] for _ in range(3)]
    for i, shape in enumerate(shapes):
        shape[axis] += i
    feeds = {n: draw.bytes(*shape) for n, shape in zip("abc", shapes)}
    constants = scales_of(draw, "y", "a", "b", "c")
    constants |= {"b_scale": constants["y_scale"], "b_zero": constants["y_zero"]}
    order = ["y_scale", "y_zero", *(f"{n}{part}" for n in "abc" for part in ("", "_scale", "_zero"))]
    check("QLinearConcat", feeds, constants, order, TYPES[kind], axis=axis)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("form", ["bytes", "floats", "turned", "no bias", "factor"])
def test_gemm(form, by_column, kind):
    draw = Draw(len(form), kind)
    columns = 70 if by_column else 1
    # Without VNNI, ONNX Runtime adds two products of u8 by s8 in 16 bits, which larger ones saturate.
    limit = 64 if kind == "u" else 128
    weights = draw.random.integers(-limit, limit, (33, 70)).astype(np.int8)
    constants = scales_of(draw, "a", "y") | {
        "b": weights.T.copy() if form == "turned" else weights,
        "b_scale": (draw.random.random(columns) / 99).astype(F32),
        "b_zero": np.zeros(columns, np.int8) if kind == "u" else draw.random.integers(-9, 9, columns).astype(np.int8),
        "c": draw.random.integers(-9999, 9999, 70).astype(np.int32),
    }
    if not by_column:
        constants |= {name: constants[name][0] for name in ("b_scale", "b_zero")}
    order = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "" if form == "no bias" else "c"]
    output = F32 if form == "floats" else TYPES[kind]
    attributes = {"transB": 1} if form == "turned" else {"alpha": 0.5} if form == "factor" else {}
    for rows in (1, 3):
        order = order[:7] + ([] if form == "floats" else ["y_scale", "y_zero"])
        check(
            "QGemm",
            {"a": draw.bytes(rows, 33)},
            {k: v for k, v in constants.items() if k in order},
            order,
            output,
            **attributes,
        )


@pytest.mark.parametrize("bias", [(5,), (1, 5), (5, 1), (5, 5), (1,), ()], ids=str)
def test_biases_of_a_square_gemm(bias):
    """One per column, per row, per element or for all; rows and columns are as many."""
    draw = Draw(1, "u")
    constants = scales_of(draw, "a", "b") | {
        "b": draw.bytes(33, 5),
        "c": draw.random.integers(-99999, 99999, bias).astype(np.int32),
    }
    order = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "c"]
    feeds = {"a": draw.bytes(5, 33)}
    node = helper.make_node("QGemm", order, ["y"], domain="com.microsoft")
    columns = {**constants, "c": np.broadcast_to(constants["c"], (5, 5))}
    expected = Engine(model_of([node], feeds, columns, F32), backend="plain").run(feeds)["y"]
    for backend in ("cpu", "plain"):
        found = Engine(model_of([node], feeds, constants, F32), backend=backend).run(feeds)["y"]
        np.testing.assert_array_equal(found, expected, backend)
    if np.prod(bias) in (5, 25):  # It does not spread a single one.
        same_as_onnxruntime(model_of([node], feeds, constants, F32), feeds)


def convolution(draw, name, x, shape, weights, **attributes):
    """A QLinearConv, and its constants."""
    channels = shape[0]
    w = draw.random.integers(-64, 64, shape).astype(np.int8)
    constants = {
        f"{name}_w": w,
        f"{name}_w_scale": (draw.random.uniform(0.5, 1, channels if weights else 1) / 60).astype(F32),
        f"{name}_w_zero": np.zeros(channels if weights else 1, np.int8),
        f"{name}_scale": F32(1.25 * np.sqrt(np.prod(shape[1:])) / 9),
        f"{name}_zero": draw.zero(),
        f"{name}_b": draw.random.integers(-3000, 3000, channels).astype(np.int32),
    }
    parts = ("_w", "_w_scale", "_w_zero", "_scale", "_zero", "_b")
    node = helper.make_node(
        "QLinearConv", [x, f"{x}_scale", f"{x}_zero", *(name + part for part in parts)], [name], **attributes
    )
    return node, constants


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("weights", [False, True], ids=["by tensor", "by channel"])
@pytest.mark.parametrize("channels", [3, 16, 40, 70, 130])
def test_networks(channels, weights, kind):
    """Convolutions of all kinds one behind the other, with what is between them in such files."""
    draw = Draw(channels, kind)
    node, c = helper.make_node, channels
    nodes, constants = [], scales_of(draw, "x") | {"x_scale": F32(0.05)}

    def add(made):
        nodes.append(made[0])
        constants.update(made[1])

    def scaled(op, inputs, name, **attributes):
        constants.update({f"{name}_scale": F32(draw.random.uniform(1, 2) / 9), f"{name}_zero": draw.zero()})
        given = [part for x in inputs for part in (x, f"{x}_scale", f"{x}_zero")]
        out = [f"{name}_scale", f"{name}_zero"]
        order = [*out, *given] if op == "QLinearConcat" else [*given, *out]
        nodes.append(node(op, order, [name], domain="com.microsoft", **attributes))

    def alias(name, source):
        constants.update({f"{name}_{part}": constants[f"{source}_{part}"] for part in ("scale", "zero")})

    add(convolution(draw, "stem", "x", (c, 3, 3, 3), weights, pads=[1] * 4, strides=[2, 2]))
    nodes.append(node("MaxPool", ["stem"], ["pooled"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    alias("pooled", "stem")
    add(convolution(draw, "depth", "pooled", (c, 1, 3, 3), weights, pads=[1] * 4, group=c))
    add(convolution(draw, "wide", "depth", (2 * c, c, 1, 1), weights))
    add(convolution(draw, "steps", "wide", (2 * c, 1, 5, 5), weights, pads=[2] * 4, strides=[2, 2], group=2 * c))
    add(convolution(draw, "side", "pooled", (2 * c, c, 1, 1), weights, strides=[2, 2]))
    scaled("QLinearAdd", ["steps", "side"], "sum")
    scaled("QLinearGlobalAveragePool", ["sum"], "mean")
    add(convolution(draw, "gate", "mean", (2 * c, 2 * c, 1, 1), weights))
    scaled("QLinearSigmoid", ["gate"], "open")
    scaled("QLinearMul", ["sum", "open"], "gated")
    scaled("QLinearLeakyRelu", ["gated"], "leaky", alpha=0.25)
    scaled("QLinearConcat", ["leaky", "sum", "side"], "joined", axis=1)
    scaled("QLinearAveragePool", ["joined"], "smaller", kernel_shape=[2, 2], strides=[2, 2])
    add(convolution(draw, "last", "smaller", (5, 6 * c, 3, 3), weights, pads=[1] * 4))
    nodes.append(node("DequantizeLinear", ["last", "last_scale", "last_zero"], ["reals"]))
    nodes.append(node("HardSigmoid", ["reals"], ["hard"]))
    alias("q", "stem")
    nodes.append(node("QuantizeLinear", ["hard", "q_scale", "q_zero"], ["q"]))
    nodes.append(node("Reshape", ["q", "shape"], ["flat"]))
    constants["shape"] = np.array([0, -1], np.int64)
    nodes.append(node("Concat", ["flat", "flat"], ["y"], axis=1))
    feeds = {"x": draw.bytes(2, 3, 33, 37)}
    used = {name for n in nodes for name in n.input}
    model = model_of(nodes, feeds, {k: v for k, v in constants.items() if k in used}, TYPES[kind])
    same_as_onnxruntime(model, feeds)


@pytest.mark.parametrize("kept", [(0, 5, 7), (4, 0, 7)])
def test_bytes_of_images_that_have_none(kept):
    """Behind a convolution, channels lie last: also where a Slice leaves none of them."""
    random = np.random.default_rng(2)
    feeds = {"x": random.standard_normal((1, 3, 5, 7)).astype(F32)}
    constants = {
        "w": random.standard_normal((4, 3, 1, 1)).astype(F32),
        "starts": np.zeros(3, np.int64),
        "ends": np.array(kept),
        "axes": np.array([1, 2, 3]),
        "scale": F32(0.1),
        "zero": np.int8(3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Slice", ["c", "starts", "ends", "axes"], ["s"]),
        helper.make_node("QuantizeLinear", ["s", "scale", "zero"], ["q"]),
        helper.make_node("Transpose", ["q"], ["y"], perm=[0, 3, 1, 2]),
    ]
    for backend in ("cpu", "plain"):
        found = Engine(model_of(nodes, feeds, constants, np.int8), backend=backend).run(feeds)["y"]
        assert found.shape == (1, 7, kept[0], kept[1]) and found.dtype == np.int8


@pytest.mark.parametrize("type_", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("ahead", [["Conv"], ["Conv", "Relu"], ["Conv", "MaxPool"], ["MaxPool"]], ids="-".join)
@pytest.mark.parametrize("behind", [[], ["Transpose"], ["Reshape"], ["DequantizeLinear"]], ids="".join)
def test_integers_of_images_that_are_stored(type_, ahead, behind):
    """Whatever order the engine keeps the image in, and however wide they are."""
    random = np.random.default_rng(0)
    feeds = {"x": random.integers(-9, 9, (2, 4, 6, 5)).astype(F32)}
    constants = {"w": random.integers(-3, 3, (6, 4, 3, 3)).astype(F32), "scale": F32(0.75), "zero": type_(3)}
    constants["flat"] = np.int64([2, -1])
    attributes = {"MaxPool": {"kernel_shape": [2, 2]}, "Transpose": {"perm": [0, 2, 3, 1]}}
    others = {
        "Conv": ["w"],
        "QuantizeLinear": ["scale", "zero"],
        "DequantizeLinear": ["scale", "zero"],
        "Reshape": ["flat"],
    }
    chain = [*ahead, "QuantizeLinear", *behind]
    names = ["x", *(f"t{i}" for i in range(1, len(chain))), "y"]
    nodes = [
        helper.make_node(op, [names[i], *others.get(op, [])], [names[i + 1]], op, **attributes.get(op, {}))
        for i, op in enumerate(chain)
    ]
    output = F32 if "DequantizeLinear" in behind else type_
    same_as_onnxruntime(model_of(nodes, feeds, constants, output, opset=21), feeds)
    if "DequantizeLinear" in behind:  # The integers beside it.
        made = model_of(nodes, feeds, constants, output, opset=21)
        made.graph.output.insert(0, value_of(names[-2], type_))
        expected = ort.InferenceSession(made.SerializeToString()).run(None, feeds)[0]
        np.testing.assert_array_equal(Engine(made).run(feeds)[names[-2]], expected)
