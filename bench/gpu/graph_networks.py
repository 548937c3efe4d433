"""Writes 31 networks as ONNX graphs with random weights, without torch.

    graph_networks.py FOLDER [NAME...]

makes FOLDER/NAME/net.onnx and its weights: well-known convolution networks (batch normalization folded), transformers
and a mixer, in the shapes of their papers and at batch 1 and 8. Needs onnx and NumPy; all of them take 4.4 GB.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import Any, Callable, Optional

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NUMBERS = np.random.default_rng(1).standard_normal(1 << 22, dtype=np.float32)  # Weights are stretches of them.


class Graph:
    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.folder, self.name = folder / name, name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.weights = (self.folder / "weights.bin").open("wb")
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.taken = 0

    def input(self, *shape: int) -> str:
        self.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
        return "x"

    def constant(self, value: Any) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.initializers)}"))
        return str(self.initializers[-1].name)

    def number(self, value: float) -> str:
        return self.constant(np.float32(value))

    def weight(self, shape: list[int], deviation: float, mean: float = 0.0) -> str:
        count = int(np.prod(shape))
        tensor = TensorProto(name=f"w{len(self.initializers)}", data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", self.weights.tell()), ("length", 4 * count)):
            tensor.external_data.add(key=key, value=str(value))
        values = np.resize(np.roll(NUMBERS, -self.taken), count)
        self.weights.write((values * np.float32(deviation) + np.float32(mean)).tobytes())
        self.taken = (self.taken + count + 7919) % NUMBERS.size
        self.initializers.append(tensor)
        return str(tensor.name)

    def op(self, name: str, *inputs: str, **attributes: Any) -> str:
        output = f"{name}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(name, inputs, [output], name=output, **attributes))
        return output

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.constant(np.array(shape)))

    def transpose(self, x: str, *order: int) -> str:
        return self.op("Transpose", x, perm=order)

    def activation(self, x: str, kind: Optional[str]) -> str:
        if kind is None:
            return x
        if kind == "relu6":
            return self.op("Clip", x, self.number(0), self.number(6))
        if kind == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "gelu":
            erf = self.op("Erf", self.op("Div", x, self.number(2**0.5)))
            return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.number(1))), self.number(0.5))
        return self.op({"relu": "Relu", "hard_swish": "HardSwish"}[kind], x)

    def conv(self, x: str, size: int, to: int, window: int, stride: int = 1, groups: int = 1,
             act: Optional[str] = "relu", gain: float = 1.0, pad: Optional[int] = None) -> str:  # fmt: skip
        inner = size // groups
        weights = self.weight([to, inner, window, window], gain * (2 / (inner * window * window)) ** 0.5)
        pads = [(window - 1) // 2 if pad is None else pad] * 4
        y = self.op("Conv", x, weights, self.weight([to], 0.05), kernel_shape=[window, window],
                    strides=[stride, stride], pads=pads, group=groups)  # fmt: skip
        return self.activation(y, act)

    def max_pool(self, x: str, window: int, pad: int) -> str:
        return self.op("MaxPool", x, kernel_shape=[window, window], strides=[2, 2], pads=[pad] * 4)

    def linear(self, x: str, size: int, to: int, act: Optional[str] = None) -> str:
        y = self.op("Add", self.op("MatMul", x, self.weight([size, to], size**-0.5)), self.weight([to], 0.02))
        return self.activation(y, act)

    def classifier(self, x: str, size: int) -> str:
        return self.op("Gemm", x, self.weight([1000, size], 0.02), self.weight([1000], 0.01), transB=1)

    def pooled_classifier(self, x: str, size: int) -> str:
        return self.classifier(self.op("Flatten", self.op("GlobalAveragePool", x)), size)

    def layer_norm(self, x: str, size: int) -> str:
        return self.op("LayerNormalization", x, self.weight([size], 0.02, 1), self.weight([size], 0.02), axis=-1)

    def rms_norm(self, x: str, size: int) -> str:
        mean = self.op("ReduceMean", self.op("Pow", x, self.number(2)), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.number(1e-5)))
        return self.op("Mul", self.op("Mul", x, self.op("Div", self.number(1), root)), self.weight([size], 0.02, 1))

    def attention(self, x: str, batch: int, length: int, size: int, heads: int, causal: bool = False,
                  key_heads: int = 0) -> str:  # fmt: skip
        width, key_heads = size // heads, key_heads or heads

        def split(count: int) -> str:
            y = self.reshape(self.linear(x, size, count * width), batch, length, count, width)
            return self.transpose(y, 0, 2, 1, 3)

        def repeated(y: str) -> str:
            if key_heads == heads:
                return y
            y = self.op("Unsqueeze", y, self.constant(np.array([2])))
            shape = np.array([batch, key_heads, heads // key_heads, length, width])
            return self.reshape(self.op("Expand", y, self.constant(shape)), batch, heads, length, width)

        queries, keys, values = split(heads), repeated(split(key_heads)), repeated(split(key_heads))
        scores = self.op("MatMul", queries, self.transpose(keys, 0, 1, 3, 2))
        scores = self.op("Mul", scores, self.number(width**-0.5))
        if causal:
            scores = self.op("Add", scores, self.constant(np.triu(np.full((length, length), -1e4, np.float32), 1)))
        y = self.transpose(self.op("MatMul", self.op("Softmax", scores, axis=-1), values), 0, 2, 1, 3)
        return self.linear(self.reshape(y, batch, length, size), size, size)

    def encoder(self, x: str, batch: int, length: int, size: int, heads: int, first: bool = True,
                causal: bool = False) -> str:  # fmt: skip
        """`first`: normalized before each part, not behind."""

        def part(x: str, compute: Callable[[str], str]) -> str:
            if first:
                return self.op("Add", x, compute(self.layer_norm(x, size)))
            return self.layer_norm(self.op("Add", x, compute(x)), size)

        x = part(x, lambda y: self.attention(y, batch, length, size, heads, causal))
        return part(x, lambda y: self.linear(self.linear(y, size, 4 * size, "gelu"), 4 * size, size))

    def save(self, y: str, *shape: int) -> None:
        self.nodes.append(helper.make_node("Identity", [y], ["y"], name="result"))
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, self.name, self.inputs, [output], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (self.folder / "net.onnx").write_bytes(model.SerializeToString())
        self.weights.close()


def resnet(g: Graph, batch: int, groups: int = 1, base: int = 64) -> None:
    x, size = g.max_pool(g.conv(g.input(batch, 3, 224, 224), 3, 64, 7, 2), 3, 1), 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        inner = width * base // 64
        for block in range(blocks):
            stride = 2 if stage and block == 0 else 1
            y = g.conv(g.conv(x, size, inner, 1), inner, inner, 3, stride, groups)
            y = g.conv(y, inner, 4 * width, 1, act=None, gain=0.4)
            z = g.conv(x, size, 4 * width, 1, stride, act=None, gain=0.7) if block == 0 else x
            x, size = g.op("Relu", g.op("Add", y, z)), 4 * width
    g.save(g.pooled_classifier(x, size), batch, 1000)


def squeeze(g: Graph, x: str, size: int, inner: int, act: str, gate: Callable[[str], str]) -> str:
    y = g.conv(g.op("GlobalAveragePool", x), size, inner, 1, act=act)
    return g.op("Mul", gate(g.conv(y, inner, size, 1, act=None)), x)


def mobilenet_v2(g: Graph, batch: int) -> None:
    x, size = g.conv(g.input(batch, 3, 224, 224), 3, 32, 3, 2, act="relu6"), 32
    for factor, to, blocks, first in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                      (6, 160, 3, 2), (6, 320, 1, 1)):  # fmt: skip
        for block in range(blocks):
            stride, inner = first if block == 0 else 1, size * factor
            y = g.conv(x, size, inner, 1, act="relu6") if factor > 1 else x
            y = g.conv(g.conv(y, inner, inner, 3, stride, inner, act="relu6"), inner, to, 1, act=None, gain=0.5)
            x, size = g.op("Add", x, y) if stride == 1 and size == to else y, to
    g.save(g.pooled_classifier(g.conv(x, size, 1280, 1, act="relu6"), 1280), batch, 1000)


def mobilenet_v3(g: Graph, batch: int) -> None:
    x, size = g.conv(g.input(batch, 3, 224, 224), 3, 16, 3, 2, act="hard_swish"), 16
    for window, inner, to, gated, act, stride in (
        (3, 16, 16, 0, "relu", 1), (3, 64, 24, 0, "relu", 2), (3, 72, 24, 0, "relu", 1), (5, 72, 40, 1, "relu", 2),
        (5, 120, 40, 1, "relu", 1), (5, 120, 40, 1, "relu", 1), (3, 240, 80, 0, "hard_swish", 2),
        (3, 200, 80, 0, "hard_swish", 1), (3, 184, 80, 0, "hard_swish", 1), (3, 480, 112, 1, "hard_swish", 1),
        (3, 672, 112, 1, "hard_swish", 1), (5, 672, 160, 1, "hard_swish", 2), (5, 960, 160, 1, "hard_swish", 1),
    ):  # fmt: skip
        y = g.conv(g.conv(x, size, inner, 1, act=act), inner, inner, window, stride, inner, act=act)
        if gated:
            y = squeeze(g, y, inner, inner // 4, "relu", lambda q: g.op("HardSigmoid", q, alpha=1 / 6))
        y = g.conv(y, inner, to, 1, act=None, gain=0.5)
        x, size = g.op("Add", x, y) if stride == 1 and size == to else y, to
    g.save(g.pooled_classifier(g.conv(x, size, 960, 1, act="hard_swish"), 960), batch, 1000)


def efficientnet_v2_s(g: Graph, batch: int) -> None:
    x, size = g.conv(g.input(batch, 3, 224, 224), 3, 24, 3, 2, act="silu"), 24
    for fused, factor, to, blocks, first in ((1, 1, 24, 2, 1), (1, 4, 48, 4, 2), (1, 4, 64, 4, 2), (0, 4, 128, 6, 2),
                                             (0, 6, 160, 9, 1), (0, 6, 256, 15, 2)):  # fmt: skip
        for block in range(blocks):
            stride, inner = first if block == 0 else 1, size * factor
            if fused and factor == 1:
                y = g.conv(x, size, to, 3, stride, act="silu", gain=0.5)
            elif fused:
                y = g.conv(g.conv(x, size, inner, 3, stride, act="silu"), inner, to, 1, act=None, gain=0.5)
            else:
                y = g.conv(g.conv(x, size, inner, 1, act="silu"), inner, inner, 3, stride, inner, act="silu")
                y = squeeze(g, y, inner, size // 4, "silu", lambda q: g.op("Sigmoid", q))
                y = g.conv(y, inner, to, 1, act=None, gain=0.5)
            x, size = g.op("Add", y, x) if stride == 1 and size == to else y, to
    g.save(g.pooled_classifier(g.conv(x, size, 1280, 1, act="silu"), 1280), batch, 1000)


def vgg16(g: Graph, batch: int) -> None:
    x, size = g.input(batch, 3, 224, 224), 3
    for to, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x, size = g.conv(x, size, to, 3), to
        x = g.max_pool(x, 2, 0)
    g.save(g.pooled_classifier(x, 512), batch, 1000)


def densenet121(g: Graph, batch: int) -> None:
    def normalized(x: str, size: int) -> str:
        scale, shift, mean = g.weight([size], 0.02, 1), g.weight([size], 0.02), g.weight([size], 0.02)
        return g.op("Relu", g.op("BatchNormalization", x, scale, shift, mean, g.weight([size], 0.02, 1)))

    x, size = g.max_pool(g.conv(g.input(batch, 3, 224, 224), 3, 64, 7, 2), 3, 1), 64
    for stage, blocks in enumerate((6, 12, 24, 16)):
        for _ in range(blocks):
            y = g.conv(g.conv(normalized(x, size), size, 128, 1), 128, 32, 3, act=None)
            x, size = g.op("Concat", x, y, axis=1), size + 32
        if stage < 3:
            x, size = g.conv(normalized(x, size), size, size // 2, 1, act=None), size // 2
            x = g.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    g.save(g.pooled_classifier(normalized(x, size), size), batch, 1000)


def convnext_t(g: Graph, batch: int) -> None:
    def normalized(x: str, size: int) -> str:
        return g.transpose(g.layer_norm(g.transpose(x, 0, 2, 3, 1), size), 0, 3, 1, 2)

    x, size = normalized(g.conv(g.input(batch, 3, 224, 224), 3, 96, 4, 4, act=None, pad=0), 96), 96
    for to, blocks in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if to != size:
            x, size = g.conv(normalized(x, size), size, to, 2, 2, act=None, pad=0), to
        for _ in range(blocks):
            y = g.layer_norm(g.transpose(g.conv(x, size, size, 7, 1, size, act=None), 0, 2, 3, 1), size)
            y = g.linear(g.linear(y, size, 4 * size, "gelu"), 4 * size, size)
            x = g.op("Add", x, g.transpose(g.op("Mul", y, g.weight([size], 0.1, 0.1)), 0, 3, 1, 2))
    g.save(g.pooled_classifier(x, size), batch, 1000)


def unet(g: Graph, batch: int) -> None:
    x, size, kept = g.input(batch, 3, 256, 256), 3, []
    for to in (32, 64, 128, 256):
        x, size = g.conv(g.conv(x, size, to, 3), to, to, 3), to
        kept.append((x, to))
        x = g.max_pool(x, 2, 0)
    x, size = g.conv(g.conv(x, size, 512, 3), 512, 512, 3), 512
    for y, to in reversed(kept):
        up = g.op("ConvTranspose", x, g.weight([size, to, 2, 2], size**-0.5), g.weight([to], 0.02),
                  kernel_shape=[2, 2], strides=[2, 2])  # fmt: skip
        x, size = g.conv(g.conv(g.op("Concat", up, y, axis=1), 2 * to, to, 3), to, to, 3), to
    g.save(g.conv(x, size, 4, 1, act=None), batch, 4, 256, 256)


def patches(g: Graph, batch: int, size: int) -> str:
    x = g.conv(g.input(batch, 3, 224, 224), 3, size, 16, 16, act=None, pad=0)
    return g.transpose(g.reshape(x, batch, size, 196), 0, 2, 1)


def vit(g: Graph, batch: int, size: int, heads: int) -> None:
    token = g.op("Expand", g.weight([1, 1, size], 0.02), g.constant(np.array([batch, 1, size])))
    x = g.op("Add", g.op("Concat", token, patches(g, batch, size), axis=1), g.weight([1, 197, size], 0.02))
    for _ in range(12):
        x = g.encoder(x, batch, 197, size, heads)
    x = g.op("Gather", g.layer_norm(x, size), g.constant(np.array(0)), axis=1)
    g.save(g.classifier(x, size), batch, 1000)


def mixer(g: Graph, batch: int, size: int = 512) -> None:
    x = patches(g, batch, size)
    for _ in range(8):
        y = g.linear(g.transpose(g.layer_norm(x, size), 0, 2, 1), 196, 256, "gelu")
        x = g.op("Add", x, g.transpose(g.linear(y, 256, 196), 0, 2, 1))
        x = g.op("Add", x, g.linear(g.linear(g.layer_norm(x, size), size, 2048, "gelu"), 2048, size))
    x = g.op("ReduceMean", g.layer_norm(x, size), axes=[1], keepdims=0)
    g.save(g.classifier(x, size), batch, 1000)


def bert(g: Graph, batch: int, length: int, size: int = 768, layers: int = 12) -> None:
    x = g.layer_norm(g.input(batch, length, size), size)
    for _ in range(layers):
        x = g.encoder(x, batch, length, size, size // 64, first=False)
    g.save(x, batch, length, size)


def gpt(g: Graph, batch: int, length: int, size: int = 768) -> None:
    x = g.input(batch, length, size)
    for _ in range(12):
        x = g.encoder(x, batch, length, size, 12, causal=True)
    g.save(g.op("MatMul", g.layer_norm(x, size), g.weight([size, 8192], 0.02)), batch, length, 8192)


def llama(g: Graph, batch: int, length: int, size: int = 1024, inner: int = 2816) -> None:
    def product(x: str, k: int, n: int) -> str:
        return g.op("MatMul", x, g.weight([k, n], k**-0.5))

    x = g.input(batch, length, size)
    for _ in range(8):
        x = g.op("Add", x, g.attention(g.rms_norm(x, size), batch, length, size, 16, causal=True, key_heads=4))
        y = g.rms_norm(x, size)
        y = g.op("Mul", g.activation(product(y, size, inner), "silu"), product(y, size, inner))
        x = g.op("Add", x, product(y, inner, size))
    g.save(g.rms_norm(x, size), batch, length, size)


Make = Callable[[Graph], None]


def networks() -> dict[str, Make]:
    made: dict[str, Make] = {}
    images: dict[str, Callable[[Graph, int], None]] = {
        "resnet50": resnet, "resnext50": lambda g, b: resnet(g, b, 32, 128), "mobilenet_v2": mobilenet_v2,
        "mobilenet_v3": mobilenet_v3, "efficientnet_v2_s": efficientnet_v2_s, "densenet121": densenet121,
        "convnext_t": convnext_t, "unet": unet, "mixer": mixer, "vit_b16": lambda g, b: vit(g, b, 768, 12),
        "deit_s": lambda g, b: vit(g, b, 384, 6),
    }  # fmt: skip
    for name, make in images.items():
        for batch in (1, 8):
            made[f"{name}_b{batch}"] = lambda g, make=make, batch=batch: make(g, batch)  # type: ignore[misc]
    made["vgg16_b1"] = lambda g: vgg16(g, 1)
    made["bert_medium_8x128"] = lambda g: bert(g, 8, 128, 512, 8)
    for batch, length in ((1, 128), (8, 384), (32, 128)):
        made[f"bert_{batch}x{length}"] = lambda g, b=batch, n=length: bert(g, b, n)  # type: ignore[misc]
    for batch, length in ((1, 256), (8, 256)):
        made[f"gpt_{batch}x{length}"] = lambda g, b=batch, n=length: gpt(g, b, n)  # type: ignore[misc]
    for batch, length in ((1, 128), (8, 256)):
        made[f"llama_{batch}x{length}"] = lambda g, b=batch, n=length: llama(g, b, n)  # type: ignore[misc]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="default: all of them")
    options = parser.parse_args()
    made = networks()
    for name in options.names or made:
        made[name](Graph(options.folder, name))


if __name__ == "__main__":
    main()
