"""The networks that the benchmarks run, with inputs for them.

needs_constraints, minilm, ocr_det and ocr_cls come from tests/models/make_models.py, with their held-out samples as
inputs; ResNet-18 and MobileNetV2 are built here, with random weights: speed does not depend on them.
"""

from __future__ import annotations

import base64
import io
import json
import pathlib
from typing import Dict, List, NamedTuple, Tuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ("needs_constraints", "minilm", "ocr_det", "ocr_cls")
BUILT = ("resnet18", "mobilenetv2")
ALL = ("minilm", "ocr_det", "ocr_cls", *BUILT)


class Model(NamedTuple):
    """A file on disk and one sample of its inputs."""

    name: str
    path: pathlib.Path
    inputs: Dict[str, np.ndarray]


class _Net:
    """Nodes as exporters write them before anything is folded: Conv, BatchNormalization, activation."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.RandomState(seed)
        self.nodes: List[onnx.NodeProto] = []
        self.weights: List[onnx.TensorProto] = []

    def weight(self, name: str, values: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(self, op: str, inputs: List[str], **attributes: object) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name + "_out"], name, **attributes))
        return name + "_out"

    def conv_bn(self, x: str, c_in: int, c_out: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        r, name, fan_in = self._random, f"w{len(self.weights)}", c_in // group * kernel * kernel
        w = self.weight(name, r.randn(c_out, c_in // group, kernel, kernel) * np.sqrt(2.0 / fan_in))
        pad = kernel // 2
        y = self.node("Conv", [x, w], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=group)
        parameters = [r.uniform(0.5, 1, c_out), r.randn(c_out) * 0.1, r.randn(c_out) * 0.1, r.uniform(0.5, 1, c_out)]
        names = [self.weight(f"{name}_{part}", p) for part, p in zip(("scale", "bias", "mean", "var"), parameters)]
        return self.node("BatchNormalization", [y, *names], epsilon=1e-5)

    def relu6(self, x: str) -> str:
        if not any(w.name == "zero" for w in self.weights):
            self.weight("zero", np.float32(0))
            self.weight("six", np.float32(6))
        return self.node("Clip", [x, "zero", "six"])

    def classifier(self, x: str, channels: int) -> str:
        y = self.node("Flatten", [self.node("GlobalAveragePool", [x])], axis=1)
        w = self.weight("fc_w", self._random.randn(1000, channels) / np.sqrt(channels))
        b = self.weight("fc_b", self._random.randn(1000) * 0.1)
        return self.node("Gemm", [y, w, b], transB=1)

    def model(self, name: str, output: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 224, 224])
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", 1000])
        graph = helper.make_graph(self.nodes, name, [x], [y], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet18() -> onnx.ModelProto:
    """He et al., "Deep Residual Learning for Image Recognition", 2015, table 1."""
    net = _Net(18)
    y = net.node("Relu", [net.conv_bn("x", 3, 64, 7, stride=2)])
    y = net.node("MaxPool", [y], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if block == 0 and width != 64 else 1
            inner = net.node("Relu", [net.conv_bn(y, channels, width, 3, stride)])
            inner = net.conv_bn(inner, width, width, 3)
            shortcut = y if stride == 1 else net.conv_bn(y, channels, width, 1, stride)
            y = net.node("Relu", [net.node("Add", [inner, shortcut])])
            channels = width
    return net.model("resnet18", net.classifier(y, 512))


def mobilenetv2() -> onnx.ModelProto:
    """Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018, table 2."""
    net = _Net(2)
    y, channels = net.relu6(net.conv_bn("x", 3, 32, 3, stride=2)), 32
    table = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, width, count, first_stride in table:
        for i in range(count):
            stride, hidden, inner = (first_stride if i == 0 else 1), channels * expansion, y
            if expansion != 1:
                inner = net.relu6(net.conv_bn(inner, channels, hidden, 1))
            inner = net.relu6(net.conv_bn(inner, hidden, hidden, 3, stride, group=hidden))
            inner = net.conv_bn(inner, hidden, width, 1)
            y = net.node("Add", [y, inner]) if stride == 1 and channels == width else inner
            channels = width
    y = net.relu6(net.conv_bn(y, 320, 1280, 1))
    return net.model("mobilenetv2", net.classifier(y, 1280))


def read_samples(path: pathlib.Path) -> List[Dict[str, np.ndarray]]:
    """The sets of inputs of a file in Polygraphy's JSON."""
    return [
        {name: np.load(io.BytesIO(base64.b64decode(value["array"]))) for name, value in sample.items()}
        for sample in json.loads(path.read_text())
    ]


def find(name: str, folder: pathlib.Path) -> Model:
    """The model of this name: read from `folder`, or built into it. Raises SystemExit that says what to run."""
    path = folder / f"{name}.onnx"
    if name in FILES:
        sample = folder / f"{name}.held.json"
        if not path.exists() or not sample.exists():
            raise SystemExit(f"{path}: not found; make it with: python tests/models/make_models.py {folder}")
        return Model(name, path, read_samples(sample)[0])
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save({"resnet18": resnet18, "mobilenetv2": mobilenetv2}[name](), str(path))
    return Model(name, path, {"x": np.random.RandomState(0).rand(1, 3, 224, 224).astype(np.float32)})


def in_folder(folder: pathlib.Path) -> List[Model]:
    """Every NAME.onnx with a NAME.npz that has a sample of its inputs."""
    found = []
    for path in sorted(folder.glob("*.onnx")):
        if not path.with_suffix(".npz").exists():
            continue
        with np.load(path.with_suffix(".npz")) as sample:
            found.append(Model(path.stem, path, {name: sample[name] for name in sample.files}))
    if not found:
        raise SystemExit(f"{folder}: expected pairs of NAME.onnx and NAME.npz, found none")
    return found


def parse_names(text: str) -> Tuple[str, ...]:
    """Comma-separated names, each one of ALL."""
    names = tuple(text.split(","))
    for name in names:
        if name not in ALL:
            raise SystemExit(f"--models: expected names from {', '.join(ALL)}; got {name!r}")
    return names
