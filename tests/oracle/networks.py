"""Small hand-made networks, one or a few per family of layers."""

from __future__ import annotations

import typing

import numpy as np
import onnx
from onnx import helper, numpy_helper

N = helper.make_node
Arrays = dict[str, np.ndarray]


class Network(typing.NamedTuple):
    model: bytes
    feed: Arrays


def build(
    nodes: list[onnx.NodeProto],
    feed: Arrays,
    weights: Arrays | None = None,
    outputs: typing.Sequence[str] = ("z",),
    opset: int = 17,
) -> Network:
    """A network whose nodes have the names of their first outputs."""
    for node in nodes:
        node.name = node.name or node.output[0]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feed.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, results, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8 if opset < 19 else 10)
    return Network(model.SerializeToString(), feed)


_random = np.random.default_rng(20)


def R(*shape: int) -> np.ndarray:
    return _random.standard_normal(shape).astype(np.float32)


def I(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _pairs(name: str, scale: str = "scale", zero: str = "zero") -> list[onnx.NodeProto]:
    return [
        N("QuantizeLinear", [name, scale, zero], [name + "_q"]),
        N("DequantizeLinear", [name + "_q", scale, zero], [name + "_d"]),
    ]


def _norm(channels: int) -> Arrays:
    return {"g": R(channels), "b": R(channels), "m": R(channels), "v": np.abs(R(channels)) + np.float32(0.5)}


def _body(
    name: str, nodes: list[onnx.NodeProto], inputs: dict[str, int], outputs: list[str], weights: Arrays
) -> onnx.GraphProto:
    formals = [helper.make_tensor_value_info(key, kind, None if kind == 1 else []) for key, kind in inputs.items()]
    results = [onnx.ValueInfoProto(name=key) for key in outputs]
    return helper.make_graph(nodes, name, formals, results, [numpy_helper.from_array(v, k) for k, v in weights.items()])


_BN = ["g", "b", "m", "v"]
_QUANTIZED = {
    "scale": np.float32(0.03),
    "zero": np.int8(0),
    "w_q": _random.integers(-127, 128, (16, 8)).astype(np.int8),
    "w_s": np.abs(R(8)) * np.float32(0.01) + np.float32(0.001),
    "bias": R(8),
}
_WEIGHTS = N("DequantizeLinear", ["w_q", "w_s"], ["w"], axis=1)

NETWORKS: dict[str, Network] = {
    "chain": build(
        [N("Add", ["x", "c"], ["a"]), N("Sigmoid", ["a"], ["s"]), N("Mul", ["a", "s"], ["z"])],
        {"x": R(3, 5)},
        {"c": R(5)},
    ),
    "activations": build(
        [
            N("Elu", ["x"], ["a"]),
            N("Softplus", ["a"], ["b"]),
            N("Gelu", ["b"], ["c"]),
            N("HardSwish", ["c"], ["d"]),
            N("LeakyRelu", ["d"], ["z"]),
        ],
        {"x": R(4, 9)},
        opset=20,
    ),
    "extremes": build(
        [N("Max", ["x", "y", "c"], ["a"]), N("Mean", ["a", "y"], ["b"]), N("Clip", ["b", "low", ""], ["z"])],
        {"x": R(3, 4), "y": R(4)},
        {"c": R(3, 1), "low": np.float32(-0.3)},
    ),
    "power": build(
        [N("Abs", ["x"], ["a"]), N("Pow", ["a", "p"], ["b"]), N("Sqrt", ["b"], ["z"])],
        {"x": R(4, 4)},
        {"p": np.float32(2.5)},
    ),
    "microsoft": build(
        [
            N("FastGelu", ["x", "c"], ["a"], domain="com.microsoft"),
            N("QuickGelu", ["a"], ["b"], domain="com.microsoft"),
            N("BiasGelu", ["b", "c"], ["z"], domain="com.microsoft"),
        ],
        {"x": R(3, 8)},
        {"c": R(8)},
    ),
    "mask": build(
        [N("Greater", ["x", "c"], ["m"]), N("Where", ["m", "x", "low"], ["a"]), N("Softmax", ["a"], ["z"])],
        {"x": R(4, 7)},
        {"c": np.float32(0.1), "low": np.float32(-1e4)},
    ),
    "matmul": build(
        [N("MatMul", ["x", "w"], ["a"]), N("Add", ["a", "c"], ["b"]), N("Relu", ["b"], ["z"])],
        {"x": R(2, 5, 16)},
        {"w": R(16, 12), "c": R(12)},
    ),
    "gemm": build(
        [N("Gemm", ["x", "w", "c"], ["a"], alpha=0.5, beta=2.0, transB=1), N("Tanh", ["a"], ["z"])],
        {"x": R(5, 16)},
        {"w": R(12, 16), "c": R(12)},
    ),
    "einsum": build(
        [N("Einsum", ["x", "w"], ["a"], equation="bij,jk->bik"), N("Neg", ["a"], ["z"])],
        {"x": R(2, 3, 8)},
        {"w": R(8, 4)},
    ),
    "conv": build(
        [N("Conv", ["x", "w", "c"], ["a"], pads=[1, 0, 1, 2], strides=[2, 1]), N("Relu", ["a"], ["z"])],
        {"x": R(2, 3, 7, 6)},
        {"w": R(4, 3, 3, 3), "c": R(4)},
    ),
    "conv1d": build(
        [N("Conv", ["x", "w"], ["z"], group=2, auto_pad="SAME_UPPER", strides=[2])],
        {"x": R(1, 4, 9)},
        {"w": R(6, 2, 3)},
    ),
    "conv3d": build([N("Conv", ["x", "w"], ["z"])], {"x": R(1, 2, 4, 5, 4)}, {"w": R(3, 2, 2, 2, 2)}),
    "depthwise": build(
        [N("Conv", ["x", "w"], ["a"], group=4, pads=[1] * 4), N("HardSwish", ["a"], ["z"])],
        {"x": R(1, 4, 6, 6)},
        {"w": R(4, 1, 3, 3)},
    ),
    "conv_transpose": build(
        [N("ConvTranspose", ["x", "w", "c"], ["z"], strides=[2, 2], output_padding=[1, 0], group=2)],
        {"x": R(1, 4, 3, 4)},
        {"w": R(4, 2, 3, 3), "c": R(4)},
    ),
    "conv_bn": build(
        [N("Conv", ["x", "w"], ["a"]), N("BatchNormalization", ["a", *_BN], ["n"]), N("Relu", ["n"], ["z"])],
        {"x": R(1, 3, 6, 6)},
        {"w": R(4, 3, 3, 3), **_norm(4)},
    ),
    "conv_transpose_bn": build(
        [N("ConvTranspose", ["x", "w"], ["a"], group=2), N("BatchNormalization", ["a", *_BN], ["z"])],
        {"x": R(1, 4, 5, 5)},
        {"w": R(4, 2, 3, 3), **_norm(4)},
    ),
    "conv3d_bn": build(
        [N("Conv", ["x", "w"], ["a"]), N("BatchNormalization", ["a", *_BN], ["z"])],
        {"x": R(1, 3, 4, 4, 4)},
        {"w": R(4, 3, 2, 2, 2), **_norm(4)},
    ),
    "conv_bn_and_its_shape": build(
        [N("Conv", ["x", "w"], ["a"]), N("Shape", ["a"], ["s"]), N("BatchNormalization", ["a", *_BN], ["z"])],
        {"x": R(1, 3, 6, 6)},
        {"w": R(4, 3, 3, 3), **_norm(4)},
        ("z", "s"),
    ),
    "local_response": build(
        [N("LRN", ["x"], ["a"], size=3, alpha=0.3, bias=1.5), N("LRN", ["a"], ["z"], size=1, alpha=0.1)],
        {"x": R(2, 5, 3, 2)},
    ),
    "bn_alone": build(
        [N("BatchNormalization", ["x", *_BN], ["n"]), N("Relu", ["n"], ["z"])], {"x": R(2, 4, 3, 3)}, _norm(4)
    ),
    "bn_large_variance": build(
        [N("BatchNormalization", ["x", *_BN], ["z"])],
        {"x": R(2, 4, 3, 3) * 1000},
        {**_norm(4), "v": np.float32([1e8, 1, 1e5, 2e7])},
    ),
    "layer_norm": build(
        [N("LayerNormalization", ["x", "g", "b"], ["n"], axis=-2), N("Mul", ["n", "x"], ["z"])],
        {"x": R(2, 4, 6)},
        {"g": R(4, 6), "b": R(4, 6)},
    ),
    "instance_norm": build(
        [N("InstanceNormalization", ["x", "g", "b"], ["n"]), N("Relu", ["n"], ["z"])],
        {"x": R(2, 3, 4, 5)},
        {"g": R(3), "b": R(3)},
    ),
    "group_norm": build(
        [N("GroupNormalization", ["x", "g", "b"], ["z"], num_groups=2)],
        {"x": R(2, 4, 3)},
        {"g": R(4), "b": R(4)},
        opset=21,
    ),
    "skip_norm": build(
        [N("SkipLayerNormalization", ["x", "y", "g", "b"], ["z"], domain="com.microsoft")],
        {"x": R(2, 3, 8), "y": R(2, 3, 8)},
        {"g": R(8), "b": R(8)},
    ),
    "written_norm": build(
        [
            N("ReduceMean", ["x"], ["m"], axes=[-1]),
            N("Sub", ["x", "m"], ["d"]),
            N("Mul", ["d", "d"], ["q"]),
            N("ReduceMean", ["q"], ["v"], axes=[-1]),
            N("Add", ["v", "e"], ["w"]),
            N("Sqrt", ["w"], ["s"]),
            N("Div", ["d", "s"], ["z"]),
        ],
        {"x": R(3, 4, 16)},
        {"e": np.float32(1e-5)},
    ),
    "softmax_12": build([N("Exp", ["x"], ["a"]), N("Softmax", ["a"], ["z"], axis=1)], {"x": R(2, 3, 4)}, opset=12),
    "log_softmax": build([N("LogSoftmax", ["x"], ["z"], axis=0)], {"x": R(5, 3)}),
    "reductions": build(
        [
            N("ReduceL2", ["x"], ["a"], axes=[2]),
            N("ReduceMax", ["x"], ["b"], axes=[0, 2]),
            N("ReduceSum", ["x", "axes"], ["c"], keepdims=0),
            N("ReduceLogSumExp", ["x"], ["d"]),
            N("ReduceProd", ["x"], ["e"], axes=[1], keepdims=0),
        ],
        {"x": R(2, 3, 5)},
        {"axes": I(-1, 0)},
        ("a", "b", "c", "d", "e"),
    ),
    "noop_reduction": build(
        [N("ReduceSum", ["x", "axes"], ["a"], noop_with_empty_axes=1), N("Neg", ["a"], ["z"])],
        {"x": R(2, 3)},
        {"axes": I()},
    ),
    "attention": build(
        [
            N("MatMul", ["q", "k"], ["s"]),
            N("Mul", ["s", "c"], ["t"]),
            N("Add", ["t", "mask"], ["u"]),
            N("Softmax", ["u"], ["p"], axis=-1),
            N("MatMul", ["p", "v"], ["z"]),
        ],
        {"q": R(1, 2, 8, 16), "k": R(1, 2, 16, 8), "v": R(1, 2, 8, 16), "mask": R(1, 1, 8, 8)},
        {"c": np.float32(0.25)},
    ),
    "inside_and_outside": build(
        [N("Add", ["x", "big"], ["a"]), N("Sub", ["a", "big"], ["s"]), N("MatMul", ["a", "w"], ["y"])],
        {"x": np.full((4, 4), 20, np.float32)},
        {"big": np.float32(32752), "w": np.eye(4, dtype=np.float32)},
        ("s", "y"),
    ),
    "movement": build(
        [
            N("Relu", ["x"], ["a"]),
            N("Transpose", ["a"], ["t"], perm=[0, 2, 1]),
            N("Slice", ["t", "s", "e", "d"], ["u"]),
            N("Concat", ["u", "t"], ["c"], axis=1),
            N("Split", ["c"], ["p", "r"], axis=2),
            N("Gather", ["p", "i"], ["g"], axis=1),
            N("Pad", ["r", "pads"], ["z"], mode="reflect"),
        ],
        {"x": R(2, 4, 5)},
        {"s": I(1), "e": I(4), "d": I(1), "i": I(0, -1, 3), "pads": I(0, 1, 0, 0, 1, 1)},
        ("g", "z"),
    ),
    "folded_constant": build(
        [N("Identity", ["c"], ["k"]), N("Relu", ["x"], ["a"]), N("Concat", ["k", "a"], ["z"], axis=0)],
        {"x": R(4, 4)},
        {"c": R(4, 4)},
    ),
    "computed_scale": build(
        [N("Exp", ["y"], ["b"]), N("LayerNormalization", ["x", "b"], ["z"])], {"x": R(9, 16), "y": R(16)}
    ),
    "computed_bound": build(
        [N("Mul", ["y", "c"], ["b"]), N("Clip", ["x", "", "b"], ["z"])],
        {"x": np.abs(R(4, 4)) + 9, "y": np.asarray(1.0045, np.float32)},
        {"c": np.float32(3.0045)},
    ),
    "shapes": build(
        [
            N("Relu", ["x"], ["a"]),
            N("Shape", ["a"], ["s"]),
            N("Gather", ["s", "i"], ["n"]),
            N("Concat", ["n", "rest"], ["t"], axis=0),
            N("Reshape", ["a", "t"], ["r"]),
            N("Expand", ["r", "e"], ["z"]),
        ],
        {"x": R(2, 3, 4)},
        {"i": I(0), "rest": I(-1), "e": I(3, 2, 12)},
    ),
    "pools": build(
        [
            N("MaxPool", ["x"], ["a"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1),
            N("AveragePool", ["a"], ["b"], kernel_shape=[2, 2], pads=[1, 0, 0, 1], count_include_pad=1),
            N("GlobalAveragePool", ["b"], ["z"]),
        ],
        {"x": R(1, 3, 8, 7)},
    ),
    "pad_by_computed_values": build(
        [
            N("Exp", ["x"], ["a"]),
            N("Pad", ["a", "pads", "v"], ["y"]),
            N("Mul", ["v", "c"], ["b"]),
            N("Pad", ["a", "pads", "b"], ["w"]),
            N("Neg", ["w"], ["z"]),
        ],
        {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "v": np.array(0.7, np.float32)},
        {"pads": I(0, 1, 2, 0), "c": np.float32(1 / 3)},
        ("y", "z", "w"),
    ),
    "resize": build(
        [N("Resize", ["x", "", "s"], ["a"], mode="linear"), N("Resize", ["a", "", "t"], ["z"], mode="nearest")],
        {"x": R(1, 2, 3, 4)},
        {"s": np.float32([1, 1, 2, 1.5]), "t": np.float32([1, 1, 2, 2])},
    ),
    "integers": build(
        [
            N("Cast", ["x"], ["a"], to=7),
            N("Div", ["a", "c"], ["b"]),
            N("ArgMax", ["x"], ["d"], axis=1),
            N("Equal", ["b", "c"], ["e"]),
        ],
        {"x": R(3, 4) * 10},
        {"c": np.int64(-2)},
        ("b", "d", "e"),
    ),
    "quantize": build(
        [*_pairs("x"), N("Relu", ["x_d"], ["z"])], {"x": R(3, 4)}, {"scale": np.float32(0.02), "zero": np.int8(3)}
    ),
    "int8_matmul": build(
        [
            *_pairs("x"),
            _WEIGHTS,
            N("MatMul", ["x_d", "w"], ["a"]),
            N("Add", ["a", "bias"], ["s"]),
            N("Relu", ["s"], ["z"]),
        ],
        {"x": R(5, 16)},
        _QUANTIZED,
    ),
    "int8_conv": build(
        [
            *_pairs("x"),
            N("DequantizeLinear", ["w_q", "w_s"], ["w"], axis=0),
            N("Conv", ["x_d", "w", "bias"], ["a"]),
            N("BatchNormalization", ["a", *_BN], ["n"]),
            N("Relu", ["n"], ["z"]),
        ],
        {"x": R(1, 3, 6, 6)},
        {
            **_QUANTIZED,
            "w_q": _random.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
            "w_s": np.abs(R(4)) * np.float32(0.01),
            "bias": R(4),
            **_norm(4),
        },
    ),
    "int8_gemm": build([*_pairs("x"), _WEIGHTS, N("Gemm", ["x_d", "w", "bias"], ["z"])], {"x": R(9, 16)}, _QUANTIZED),
    "int8_cast": build(
        [
            *_pairs("x"),
            _WEIGHTS,
            N("MatMul", ["x_d", "w"], ["a"]),
            N("Cast", ["a"], ["h"], to=10),
            N("Sigmoid", ["h"], ["s"]),
            N("Mul", ["s", "h"], ["p"]),
            N("Cast", ["p"], ["z"], to=1),
        ],
        {"x": R(9, 16)},
        _QUANTIZED,
    ),
    "int8_add": build(
        [*_pairs("x"), *_pairs("y"), N("Add", ["x_d", "y_d"], ["a"]), N("Relu", ["a"], ["z"])],
        {"x": R(3, 4), "y": R(3, 4)},
        {"scale": np.float32(0.02), "zero": np.int8(0)},
    ),
    "branches": build(
        [
            N("Exp", ["x"], ["a"]),
            N(
                "If",
                ["choose"],
                ["y"],
                then_branch=_body(
                    "t", [N("MatMul", ["a", "w"], ["u"]), N("Tanh", ["u"], ["o"])], {}, ["o"], {"w": R(4, 4)}
                ),
                else_branch=_body("f", [N("Neg", ["a"], ["n"])], {}, ["n"], {}),
            ),
            N("Relu", ["y"], ["z"]),
        ],
        {"x": R(4, 4), "choose": np.asarray(True)},
    ),
    "loop": build(
        [
            N(
                "Loop",
                ["n", "", "x"],
                ["z", "all"],
                body=_body(
                    "b",
                    [N("Tanh", ["s"], ["t"]), N("Mul", ["t", "c"], ["u"]), N("Identity", ["go"], ["on"])],
                    {"i": 7, "go": 9, "s": 1},
                    ["on", "u", "t"],
                    {"c": R(3)},
                ),
            )
        ],
        {"x": R(2, 3)},
        {"n": np.int64(3)},
        ("z", "all"),
    ),
    "skip_norm_without_mean": build(  # Rows next to the default epsilon, which is 1e-12 there.
        [N("SkipSimplifiedLayerNormalization", ["x", "y", "g"], ["z"], domain="com.microsoft")],
        {"x": R(2, 3, 4) * np.float32(1e-3), "y": R(2, 3, 4) * np.float32(1e-3)},
        {"g": R(4)},
    ),
    "mean_variance": build(  # Deviations next to nothing: 1e-9 is added to them, not to the variance.
        [N("MeanVarianceNormalization", ["x"], ["z"], axes=[1])], {"x": R(3, 4) * np.float32(1e-3)}
    ),
    "log_sum_of_nothing": build(
        [N("Sub", ["x", "x"], ["a"]), N("Add", ["a", "y"], ["b"]), N("ReduceLogSum", ["b"], ["z"], axes=[1])],
        {"x": R(3, 4), "y": np.abs(R(3, 4))},
    ),
}
