"""Thirty networks of all kinds, made of random weights: images, sound, text, sequences, graphs, control flow, int8.

Each is of a size at which its activations, or its weights, are far more than the program itself.
"""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import models
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


class Graph:
    """Nodes and weights of one network as they are written, and the shapes of its inputs."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: List[onnx.NodeProto] = []
        self.weights: List[onnx.TensorProto] = []
        self.inputs: Dict[str, Tuple[Tuple[int, ...], Any]] = {}

    def input(self, name: str, shape: Sequence[int], below: int = 0) -> str:
        """Normal values, or integers in [0, below)."""
        self.inputs[name] = (tuple(shape), below)
        return name

    def constant(self, values: Any) -> str:
        name = f"c{len(self.weights)}"
        values = np.asarray(values)
        self.weights.append(
            numpy_helper.from_array(values.astype(np.float32) if values.dtype == np.float64 else values, name)
        )
        return name

    def weight(self, *shape: int, fan_in: Optional[int] = None) -> str:
        """Of a size at which values keep theirs."""
        fan = fan_in or int(np.prod(shape[1:])) or 1
        return self.constant(self.random.standard_normal(shape, np.float32) * np.float32(np.sqrt(1.5 / fan)))

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        name = f"{op}_{len(self.nodes)}"
        names = [f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name, **attributes))
        return names[0] if outputs == 1 else names

    def conv(
        self,
        x: str,
        c_in: int,
        c_out: int,
        kernel: int,
        stride: int = 1,
        dilation: int = 1,
        group: int = 1,
        dims: int = 2,
        pad: Optional[int] = None,
        op: str = "Conv",
    ) -> str:
        shape = (c_out, c_in // group) if op == "Conv" else (c_in, c_out // group)
        w = self.weight(*shape, *[kernel] * dims, fan_in=c_in // group * kernel**dims)
        pads = [(kernel // 2 * dilation if pad is None else pad)] * 2 * dims
        return self.node(op, [x, w, self.constant(self.random.normal(0, 0.1, c_out))], strides=[stride] * dims,
                         dilations=[dilation] * dims, pads=pads, group=group)

    def dense(self, x: str, wide: int, out: int) -> str:
        y = self.node("MatMul", [x, self.weight(wide, out, fan_in=wide)])
        return self.node("Add", [y, self.constant(self.random.normal(0, 0.1, out))])

    def norm(self, x: str, wide: int) -> str:
        return self.node("LayerNormalization", [x, self.constant(self.random.uniform(0.8, 1.2, wide)),
                                                self.constant(self.random.normal(0, 0.1, wide))], axis=-1)

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", [x, self.constant(np.array(shape, np.int64))])

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def attention(self, x: str, length: int, wide: int, heads: int, mask: Optional[str] = None) -> str:
        def split(y: str, perm: List[int]) -> str:
            return self.node("Transpose", [self.reshape(y, -1, length, heads, wide // heads)], perm=perm)

        q, v = split(self.dense(x, wide, wide), [0, 2, 1, 3]), split(self.dense(x, wide, wide), [0, 2, 1, 3])
        scores = self.node("MatMul", [q, split(self.dense(x, wide, wide), [0, 2, 3, 1])])
        scores = self.node("Mul", [scores, self.constant(np.float32((wide // heads) ** -0.5))])
        scores = self.node("Add", [scores, mask]) if mask else scores
        y = self.node("MatMul", [self.node("Softmax", [scores], axis=-1), v])
        return self.dense(self.reshape(self.node("Transpose", [y], perm=[0, 2, 1, 3]), -1, length, wide), wide, wide)

    def block(self, x: str, length: int, wide: int, heads: int, mask: Optional[str] = None) -> str:
        """A layer of a transformer."""
        x = self.node("Add", [x, self.attention(self.norm(x, wide), length, wide, heads, mask)])
        y = self.node("Gelu", [self.dense(self.norm(x, wide), wide, 4 * wide)])
        return self.node("Add", [x, self.dense(y, 4 * wide, wide)])

    def pad(self, x: str, rank: int, amount: int, mode: str, first: int = 2) -> str:
        pads = [0] * first + [amount] * (rank - first)
        return self.node("Pad", [x, self.integers(*pads, *pads)], mode=mode)

    def quantized(self, x: str, scale: float) -> str:
        parameters = [self.constant(np.float32(scale)), self.constant(np.int8(0))]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [x, *parameters]), *parameters])

    def quantized_weight(self, *shape: int) -> str:
        values = self.random.integers(-127, 128, shape).astype(np.int8)
        scale = np.float32(np.sqrt(3.0 / np.prod(shape[1:])) / 127)
        return self.node("DequantizeLinear", [self.constant(values), self.constant(scale), self.constant(np.int8(0))])

    def body(self, name: str, inputs: Sequence[Tuple[str, int, Sequence[int]]], outputs: Sequence[Tuple[str, int]],
             nodes: Sequence[onnx.NodeProto]) -> onnx.GraphProto:
        """A graph of control flow."""
        return helper.make_graph(list(nodes), name, [helper.make_tensor_value_info(*each) for each in inputs],
                                 [helper.make_tensor_value_info(each, kind, None) for each, kind in outputs])

    def save(self, path: pathlib.Path, *outputs: str, opset: int = 20) -> None:
        infos = [helper.make_tensor_value_info(name, TensorProto.INT64 if below else TensorProto.FLOAT, shape)
                 for name, (shape, below) in self.inputs.items()]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, path.stem, infos, made, self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), str(path))

    def samples(self, count: int) -> Dict[str, np.ndarray]:
        random = np.random.default_rng(7)
        return {
            name: random.integers(0, below, (count, *shape))
            if below
            else random.standard_normal((count, *shape), np.float32)
            for name, (shape, below) in self.inputs.items()
        }


def _relu(g: Graph, x: str) -> str:
    return g.node("Relu", [x])


def vgg(g: Graph) -> List[str]:
    x, c = g.input("x", (1, 3, 160, 160)), 3
    for wide, count in ((32, 2), (64, 2), (128, 3), (256, 3)):
        for _ in range(count):
            x, c = _relu(g, g.conv(x, c, wide, 3)), wide
        x = g.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    return [g.dense(g.node("Flatten", [x]), 256 * 10 * 10, 100)]


def densenet(g: Graph) -> List[str]:
    x, c = g.conv(g.input("x", (1, 3, 112, 112)), 3, 32, 3), 32
    for _ in range(3):
        for _ in range(6):
            y = g.conv(_relu(g, g.conv(x, c, 64, 1)), 64, 16, 3)
            x, c = g.node("Concat", [x, y], axis=1), c + 16
        x, c = g.node("AveragePool", [g.conv(x, c, c // 2, 1)], kernel_shape=[2, 2], strides=[2, 2]), c // 2
    return [g.node("GlobalAveragePool", [x])]


def squeeze_excite(g: Graph) -> List[str]:
    x = g.conv(g.input("x", (1, 3, 128, 128)), 3, 48, 3, 2)
    for _ in range(8):
        y = g.node("HardSwish", [g.conv(g.conv(x, 48, 144, 1), 144, 144, 5, group=144)])
        gate = _relu(g, g.conv(g.node("GlobalAveragePool", [y]), 144, 36, 1))
        y = g.node("Mul", [y, g.node("HardSigmoid", [g.conv(gate, 36, 144, 1)])])
        x = g.node("Add", [x, g.conv(y, 144, 48, 1)])
    return [g.node("GlobalAveragePool", [x])]


def alexnet(g: Graph) -> List[str]:
    x = _relu(g, g.conv(g.input("x", (1, 3, 127, 127)), 3, 64, 11, 4))
    x = g.node("LRN", [x], size=5)
    x = g.node(
        "LRN",
        [_relu(g, g.conv(g.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2]), 64, 192, 5, group=2))],
        size=5,
    )
    x = g.node("MaxPool", [_relu(g, g.conv(x, 192, 256, 3))], kernel_shape=[3, 3], strides=[2, 2])
    return [g.dense(_relu(g, g.dense(g.node("Flatten", [x]), 256 * 7 * 7, 1024)), 1024, 100)]


def unet(g: Graph) -> List[str]:
    x, c, skips = g.input("x", (1, 3, 192, 192)), 3, []
    for wide in (24, 48, 96):
        x = _relu(g, g.conv(_relu(g, g.conv(x, c, wide, 3)), wide, wide, 3))
        skips.append((x, wide))
        x, c = g.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2]), wide
    x = _relu(g, g.conv(x, c, 192, 3))
    c = 192
    for skip, wide in reversed(skips):
        x = g.node("Resize", [x, "", g.constant(np.array([1, 1, 2, 2], np.float32))], mode="linear",
                   coordinate_transformation_mode="half_pixel")
        x = g.node("Concat", [x, skip], axis=1)
        x, c = _relu(g, g.conv(_relu(g, g.conv(x, c + wide, wide, 3)), wide, wide, 3)), wide
    return [g.node("Sigmoid", [g.conv(x, c, 1, 1)])]


def generator(g: Graph) -> List[str]:
    """Reflected borders, instance normalization and transposed convolutions, as in CycleGAN."""
    def norm(y: str, c: int) -> str:
        return g.node("InstanceNormalization", [y, g.constant(np.ones(c)), g.constant(np.zeros(c))])

    x = _relu(g, norm(g.conv(g.pad(g.input("x", (1, 3, 128, 128)), 4, 3, "reflect"), 3, 32, 7, pad=0), 32))
    x = _relu(g, norm(g.conv(x, 32, 64, 3, 2), 64))
    x = _relu(g, norm(g.conv(x, 64, 128, 3, 2), 128))
    for _ in range(5):
        y = _relu(g, norm(g.conv(g.pad(x, 4, 1, "reflect"), 128, 128, 3, pad=0), 128))
        x = g.node("Add", [x, norm(g.conv(g.pad(y, 4, 1, "reflect"), 128, 128, 3, pad=0), 128)])
    x = _relu(g, norm(g.conv(x, 128, 64, 2, 2, pad=0, op="ConvTranspose"), 64))
    x = _relu(g, norm(g.conv(x, 64, 32, 2, 2, pad=0, op="ConvTranspose"), 32))
    return [g.node("Tanh", [g.conv(g.pad(x, 4, 3, "reflect"), 32, 3, 7, pad=0)])]


def super_resolution(g: Graph) -> List[str]:
    x = _relu(g, g.conv(g.input("x", (1, 3, 128, 128)), 3, 64, 5))
    for _ in range(6):
        x = g.node("Add", [x, g.conv(_relu(g, g.conv(x, 64, 64, 3)), 64, 64, 3)])
    return [g.node("DepthToSpace", [g.conv(x, 64, 27, 3)], blocksize=3)]


def segmentation(g: Graph) -> List[str]:
    x = _relu(g, g.conv(g.input("x", (1, 3, 160, 160)), 3, 32, 3, 2))
    x = _relu(g, g.conv(x, 32, 96, 3, 2))
    parts = [_relu(g, g.conv(x, 96, 64, 3, dilation=d)) for d in (1, 3, 6, 9)]
    y = g.conv(g.node("Concat", parts, axis=1), 256, 21, 1)
    y = g.node("Resize", [y, "", "", g.integers(1, 21, 160, 160)], mode="cubic")
    return [g.node("Softmax", [y], axis=1)]


def video(g: Graph) -> List[str]:
    x, c = g.input("x", (1, 3, 12, 64, 64)), 3
    for wide in (16, 32, 64):
        x, c = _relu(g, g.conv(x, c, wide, 3, dims=3)), wide
        x = g.node("AveragePool", [x], kernel_shape=[1, 2, 2], strides=[1, 2, 2])
    return [g.node("GlobalAveragePool", [x])]


def diffusion(g: Graph) -> List[str]:
    x = g.conv(g.input("x", (1, 4, 64, 64)), 4, 96, 3)
    for _ in range(4):
        y = g.node("Reshape", [x, g.integers(0, 8, -1)])
        y = g.node("InstanceNormalization", [y, g.constant(np.ones(8)), g.constant(np.zeros(8))])
        y = g.reshape(y, 1, 96, 64, 64)
        y = g.node("Mul", [y, g.node("Sigmoid", [y])])
        x = g.node("Add", [x, g.conv(y, 96, 96, 3)])
    return [g.conv(x, 96, 4, 3)]


def detector(g: Graph) -> List[str]:
    x, c = g.input("x", (1, 3, 192, 192)), 3
    for wide in (24, 48, 96):
        x, c = g.node("LeakyRelu", [g.conv(x, c, wide, 3, 2)], alpha=0.1), wide
    boxes = g.reshape(g.node("Transpose", [g.conv(x, 96, 3 * 85, 1)], perm=[0, 2, 3, 1]), 1, -1, 85)
    scores = g.node("Sigmoid", [g.node("Slice", [boxes, g.integers(4), g.integers(5), g.integers(2)])])
    _, best = g.node("TopK", [g.reshape(scores, 1, -1), g.integers(200)], outputs=2)
    return [g.node("Gather", [boxes, g.reshape(best, -1)], axis=1)]


def warp(g: Graph) -> List[str]:
    x = _relu(g, g.conv(g.input("x", (1, 3, 128, 128)), 3, 32, 3))
    flow = g.node("Transpose", [g.node("Tanh", [g.conv(x, 32, 2, 3)])], perm=[0, 2, 3, 1])
    y = g.node("GridSample", [x, flow], mode="linear", padding_mode="border")
    return [g.conv(_relu(g, g.conv(y, 32, 64, 3)), 64, 3, 3)]


def encoder(g: Graph, length: int = 128, wide: int = 384, layers: int = 4) -> List[str]:
    x = g.node("Gather", [g.weight(8000, wide, fan_in=2), g.input("ids", (1, length), 8000)])
    for _ in range(layers):
        x = g.block(x, length, wide, wide // 64)
    return [g.norm(x, wide)]


def decoder(g: Graph) -> List[str]:
    length, wide = 96, 512
    x = g.node("Gather", [g.weight(12000, wide, fan_in=2), g.input("ids", (1, length), 12000)])
    mask = g.constant(np.triu(np.full((length, length), -1e9, np.float32), 1))
    for _ in range(4):
        x = g.block(x, length, wide, 8, mask)
    return [g.node("MatMul", [g.norm(x, wide), g.weight(wide, 12000, fan_in=wide)])]


def long_text(g: Graph) -> List[str]:
    return encoder(g, 1024, 128, 2)


def vision_transformer(g: Graph) -> List[str]:
    x = g.conv(g.input("x", (1, 3, 224, 224)), 3, 256, 16, 16, pad=0)
    x = g.node("Transpose", [g.reshape(x, 1, 256, 196)], perm=[0, 2, 1])
    for _ in range(5):
        x = g.block(x, 196, 256, 4)
    return [g.dense(g.node("ReduceMean", [x, g.integers(1)], keepdims=0), 256, 1000)]


def cross_attention(g: Graph) -> List[str]:
    a, b = g.input("a", (1, 256, 192)), g.input("b", (1, 512, 192))
    for _ in range(3):
        scores = g.node("Einsum", [g.dense(a, 192, 192), g.dense(b, 192, 192)], equation="bid,bjd->bij")
        scores = g.node("Mul", [scores, g.constant(np.float32(0.07))])
        y = g.node("Einsum", [g.node("Softmax", [scores], axis=-1), g.dense(b, 192, 192)], equation="bij,bjd->bid")
        a = g.norm(g.node("Add", [a, y]), 192)
    return [a]


def lstm(g: Graph) -> List[str]:
    x, wide = g.input("x", (400, 1, 64)), 64
    for _ in range(2):
        y = g.node("LSTM", [x, g.weight(1, 512, wide, fan_in=wide), g.weight(1, 512, 128, fan_in=256)], hidden_size=128)
        x, wide = g.node("Squeeze", [y, g.integers(1)]), 128
    return [g.dense(x, 128, 40)]


def gru(g: Graph) -> List[str]:
    x = g.dense(g.input("x", (300, 1, 80)), 80, 96)
    y = g.node("GRU", [x, g.weight(2, 288, 96, fan_in=96), g.weight(2, 288, 96, fan_in=192)], hidden_size=96,
               direction="bidirectional")
    y = g.reshape(g.node("Transpose", [y], perm=[0, 2, 1, 3]), 300, 1, 192)
    return [g.node("LogSoftmax", [g.dense(y, 192, 60)], axis=-1)]


def unrolled(g: Graph) -> List[str]:
    """A recurrent network without a loop: every step reads its own part of the input."""
    x = g.dense(g.input("x", (1, 200, 128)), 128, 256)
    w, state = g.weight(256, 256, fan_in=512), None
    for t in range(200):
        step = g.node("Gather", [x, g.constant(np.int64(t))], axis=1)
        state = g.node("Tanh", [g.node("Add", [step, g.node("MatMul", [state, w])]) if state else step])
    return [g.dense(state, 256, 10)]


def speech(g: Graph) -> List[str]:
    """A centered spectrum by a convolution over reflected borders, in front of a small network."""
    x = g.pad(g.node("Mul", [g.input("x", (1, 1, 64000)), g.constant(np.float32(1.1))]), 3, 200, "reflect")
    s = g.conv(x, 1, 402, 400, 160, dims=1, pad=0)
    real, imaginary = g.node("Split", [s], outputs=2, axis=1, num_outputs=2)
    power = g.node("Add", [g.node("Mul", [real, real]), g.node("Mul", [imaginary, imaginary])])
    y = g.node("Log", [g.node("Add", [g.conv(power, 201, 80, 1, dims=1), g.constant(np.float32(50))])])
    for _ in range(3):
        y = g.node("Gelu", [g.conv(y, 80, 80, 3, dims=1)])
    return [g.node("GlobalAveragePool", [y])]


def spectrum(g: Graph) -> List[str]:
    x = g.reshape(g.pad(g.input("x", (1, 1, 32000)), 3, 256, "reflect"), 1, 32512, 1)
    window = g.constant(np.hanning(512).astype(np.float32))
    s = g.node("STFT", [x, g.constant(np.int64(128)), window, g.constant(np.int64(512))])
    power = g.node("ReduceSumSquare", [s, g.integers(3)], keepdims=0)
    y = g.node("Sqrt", [g.node("Add", [power, g.constant(np.float32(1e-3))])])
    return [g.dense(_relu(g, g.dense(y, 257, 128)), 128, 32)]


def wave(g: Graph) -> List[str]:
    x = g.conv(g.input("x", (1, 1, 16000)), 1, 32, 1, dims=1)
    for i in range(8):
        x_padded = g.node("Pad", [x, g.integers(0, 0, 2**i, 0, 0, 0)])
        gate = g.conv(x_padded, 32, 32, 2, dilation=2**i, dims=1, pad=0)
        y = g.node("Mul", [g.node("Tanh", [gate]), g.node("Sigmoid", [gate])])
        x = g.node("Add", [x, g.conv(y, 32, 32, 1, dims=1)])
    return [g.conv(_relu(g, x), 32, 64, 1, dims=1)]


def resampled_sound(g: Graph) -> List[str]:
    x = g.node(
        "Resize", [g.input("x", (1, 2, 16384)), "", g.constant(np.array([1, 1, 1.5], np.float32))], mode="linear"
    )
    for c in (2, 32, 32):
        x = g.node("Tanh", [g.conv(x, c, 32, 9, dims=1)])
    return [g.conv(x, 32, 1, 9, dims=1)]


def loop(g: Graph) -> List[str]:
    x = g.dense(g.input("x", (1, 64, 256)), 256, 256)
    w = g.weight(256, 256, fan_in=400)
    body = g.body(
        "body",
        [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("s", TensorProto.FLOAT, [1, 64, 256])],
        [("go_on", TensorProto.BOOL), ("t", TensorProto.FLOAT)],
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("MatMul", ["s", w], ["m"], "step"),
            helper.make_node("Tanh", ["m"], ["t"]),
        ],
    )
    return [g.dense(g.node("Loop", [g.constant(np.int64(8)), g.constant(np.bool_(True)), x], body=body), 256, 64)]


def branch(g: Graph) -> List[str]:
    x = g.dense(g.input("x", (1, 128, 256)), 256, 256)
    condition = g.node("Greater", [g.node("ReduceMean", [x], keepdims=0), g.constant(np.float32(0))])
    weights = [g.weight(256, 256, fan_in=256), g.weight(256, 256, fan_in=256)]
    bodies = [
        g.body(
            f"branch{i}",
            [],
            [(f"b{i}", TensorProto.FLOAT)],
            [helper.make_node("MatMul", [x, w], [f"b{i}"], f"product{i}")],
        )
        for i, w in enumerate(weights)
    ]
    y = g.node("If", [condition], then_branch=bodies[0], else_branch=bodies[1])
    return [g.dense(g.node("Gelu", [y]), 256, 64)]


def quantized_images(g: Graph) -> List[str]:
    x, c = g.quantized(g.input("x", (1, 3, 128, 128)), 0.03), 3
    for wide in (32, 64, 96, 128):
        y = g.node("Conv", [x, g.quantized_weight(wide, c, 3, 3)], pads=[1] * 4, strides=[2, 2])
        x, c = g.quantized(_relu(g, y), 0.04), wide
    return [g.dense(g.node("Flatten", [g.node("GlobalAveragePool", [x])]), 128, 100)]


def mlp(g: Graph) -> List[str]:
    x, wide = g.input("x", (16, 512)), 512
    for _ in range(4):
        x = _relu(g, g.dense(x, wide, 1024))
        wide = 1024
    return [g.dense(x, wide, 10)]


def recommender(g: Graph) -> List[str]:
    parts = [g.reshape(g.node("Gather", [g.weight(60000, 64, fan_in=64), g.input(f"id{i}", (64, 1), 60000)]), 64, 64)
             for i in range(4)]
    x = g.node("Concat", [*parts, g.dense(g.input("dense", (64, 13)), 13, 64)], axis=1)
    return [g.node("Sigmoid", [g.dense(_relu(g, g.dense(x, 320, 256)), 256, 1)])]


def message_passing(g: Graph) -> List[str]:
    count, edges = 2000, 16000
    x, to = g.dense(g.input("x", (count, 32)), 32, 64), g.random.integers(0, count, (edges, 1))
    origin = g.constant(g.random.integers(0, count, edges))
    for _ in range(3):
        messages = _relu(g, g.dense(g.node("Gather", [x, origin]), 64, 64))
        sums = g.node("ScatterND", [g.constant(np.zeros((count, 64))), g.constant(to), messages], reduction="add")
        x = g.norm(g.node("Add", [x, sums]), 64)
    return [g.dense(x, 64, 8)]


class Kind(NamedTuple):
    """What a maker wrote, or a network of the other benchmarks."""

    name: str
    make: Optional[Callable[[Graph], List[str]]]


KINDS = (
    Kind("resnet18", None), Kind("mobilenetv2", None), *(
        Kind(make.__name__, make)
        for make in (
            vgg, densenet, squeeze_excite, alexnet, unet, generator, super_resolution, segmentation, video, diffusion,
            detector, warp, encoder, decoder, long_text, vision_transformer, cross_attention, lstm, gru, unrolled,
            speech, spectrum, wave, resampled_sound, loop, branch, quantized_images, mlp, recommender, message_passing,
        )
    ),
)  # fmt: skip


def make(kind: Kind, folder: pathlib.Path, count: int) -> Tuple[pathlib.Path, Dict[str, np.ndarray]]:
    """The network's file, and so many samples of each of its inputs, one behind the other."""
    if kind.make is None:
        found = models.find(kind.name, folder)
        random = np.random.default_rng(7)
        return found.path, {
            name: random.random((count, *value.shape), np.float32) for name, value in found.inputs.items()
        }
    graph = Graph(len(kind.name))
    path = folder / f"{kind.name}.onnx"
    graph.save(path, *kind.make(graph))
    return path, graph.samples(count)
