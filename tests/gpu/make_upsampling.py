"""Writes small networks that upsample by transposed convolutions: make_upsampling.py FOLDER [COUNT] [SEED]

One to three of them, of one to three dimensions, whose strides are their kernels, so that windows lie side by side; 1 to
130 channels, most of them odd; with and without a bias, normalization, activation, residual and concatenation, behind a
convolution or not; for check_models.py and gpu_latency on a machine with a GPU. Prints the seed.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import random_models

CHANNELS = [1, 2, 3, 5, 8, 13, 24, 33, 64, 65, 130]


class Maker:
    """A network as it grows; `shape` is that of its last tensor."""

    def __init__(self, generator: random.Random, index: int) -> None:
        self.pick, self.numbers = generator, np.random.default_rng(index)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        rank = generator.choice([1, 2, 2, 2, 3])
        sizes = [generator.randint(3, {1: 40, 2: 12, 3: 5}[rank]) for _ in range(rank)]
        self.shape = [generator.choice([1, 2]), generator.choice(CHANNELS), *sizes]
        self.last = self.input("x")

    def constant(self, values: np.ndarray) -> str:
        name = f"constant{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def uniform(self, shape: list[int], low: float, high: float) -> str:
        return self.constant(self.numbers.uniform(low, high, shape))

    def input(self, name: str) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shape))
        return name

    def node(self, kind: str, inputs: list[str], **attributes: Any) -> None:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        self.last = name

    def convolution(self) -> None:
        """Of 3 in every dimension; the same sizes."""
        rank, channels = len(self.shape) - 2, self.pick.choice(CHANNELS)
        scale = (self.shape[1] * 3**rank) ** -0.5
        weights = self.uniform([channels, self.shape[1], *[3] * rank], -scale, scale)
        self.node("Conv", [self.last, weights, self.uniform([channels], -0.3, 0.3)], pads=[1] * (2 * rank))
        self.shape[1] = channels

    def upsampling(self) -> None:
        rank, channels = len(self.shape) - 2, self.pick.choice(CHANNELS)
        kernel = [self.pick.choice([1, 2, 2, 3] if rank > 1 else [2, 3, 4]) for _ in range(rank)]
        scale = self.shape[1] ** -0.5
        inputs = [self.last, self.uniform([self.shape[1], channels, *kernel], -2 * scale, 2 * scale)]
        if self.pick.random() < 0.6:
            inputs.append(self.uniform([channels], -0.5, 0.5))
        self.node("ConvTranspose", inputs, strides=kernel)
        self.shape = [self.shape[0], channels, *(n * k for n, k in zip(self.shape[2:], kernel))]
        if self.pick.random() < 0.3:
            parameters = [self.uniform([channels], low, high) for low, high in ((0.5, 1.5), (-1, 1), (-1, 1), (0.5, 2))]
            self.node("BatchNormalization", [self.last, *parameters])
        what = self.pick.choice(["", "Relu", "Relu", "Sigmoid", "residual", "concat"])
        if what in ("Relu", "Sigmoid"):
            self.node(what, [self.last])
        elif what:
            made, beside = self.last, self.input(f"beside{len(self.nodes)}")
            if self.pick.random() < 0.5:
                self.node("Tanh", [beside])
                beside = self.last
            if what == "residual":
                self.node("Add", [made, beside])
                self.node("Relu", [self.last])
            else:
                self.node("Concat", [made, beside], axis=1)
                self.shape[1] *= 2


def network(generator: random.Random, index: int) -> onnx.ModelProto:
    maker = Maker(generator, index)
    if generator.random() < 0.6:
        maker.convolution()
    for _ in range(generator.choice([1, 1, 2, 2, 3])):
        if np.prod(maker.shape) < 200_000:
            maker.upsampling()
    if generator.random() < 0.3:
        maker.convolution()
    output = helper.make_tensor_value_info(maker.last, TensorProto.FLOAT, maker.shape)
    graph = helper.make_graph(maker.nodes, "upsampling", maker.inputs, [output], maker.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    sys.exit(random_models.write_all(__doc__, "upsampling", 24, network))
