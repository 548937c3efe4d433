"""Random products in fp8, int4, NVFP4, MXFP8 and MXFP4: as pairs in the file, or as precisions of layers. What they
have to be is computed in float64 from what tests/oracle/element_formats.py says that their operands stand for."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Tuple

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from oracle.element_formats import (
    E2M1, E4M3, E8M0, Encode, by_tensor, fp8_channels, in_blocks, int4, int8_channels, mx, nvfp4, rounded, second_scale,
)  # fmt: skip

TYPES = {
    E4M3: TensorProto.FLOAT8E4M3FN, E2M1: TensorProto.FLOAT4E2M1, E8M0: TensorProto.FLOAT8E8M0,
    ml_dtypes.int4: TensorProto.INT4, ml_dtypes.uint4: TensorProto.UINT4,
}  # fmt: skip

#: Formats of layers: flags of the program, and the length of a block (0: there are none).
LAYER_FORMATS: Dict[str, Tuple[List[str], int]] = {
    "int4": (["--int4"], 128), "int4-64": (["--int4", "--block-size", "64"], 64),
    "int4-32": (["--int4", "--block-size", "32"], 32), "nvfp4-weights": (["--nvfp4", "--weights-only"], 16),
    "mxfp8-weights": (["--mxfp8", "--weights-only"], 32), "mxfp4-weights": (["--mxfp4", "--weights-only"], 32),
    "fp8-weights": (["--fp8", "--weights-only"], 0), "int8-weights": (["--int8", "--weights-only"], 0),
    "mxfp8": (["--mxfp8"], 32), "mxfp4": (["--mxfp4"], 32), "nvfp4": (["--nvfp4"], 16), "fp8": (["--fp8"], 0),
}  # fmt: skip
FILE_FORMATS = ("fp8", "fp8 on both sides", "int4", "uint4", "nvfp4", "mxfp8", "mxfp4")


@dataclasses.dataclass
class Product:
    """A model of one product, x -> y, and what y has to be."""

    name: str
    model: onnx.ModelProto
    x: np.ndarray
    wanted: np.ndarray  #: In float64.
    bound: np.ndarray  #: Of what float32 sums, in any order, and the stored type may make of it.
    precision: Optional[str] = None  #: Of the layer `product`.
    half: bool = False  #: Of the network: fp16.
    words: List[str] = dataclasses.field(default_factory=list)  #: Of the program, with `precision`.
    scale: Optional[np.float32] = None  #: Of x, where it has to be calibrated: int8's.


class _Drawing:
    """A product whose operands are drawn, and the nodes and constants of its model."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 61])
        self.nodes: List[onnx.NodeProto] = []
        self.constants: List[TensorProto] = []
        self.op = str(self.rng.choice(["MatMul", "Gemm", "Gemm transB", "Conv"]))

    def one(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def numbers(self, shape) -> np.ndarray:
        """Normal, with rows of other sizes, zeros, or an outlier."""
        x = self.rng.standard_normal(shape)
        form = self.rng.integers(4)
        if form == 1:
            x = x * np.exp(self.rng.standard_normal((*shape[:1], *[1] * (len(shape) - 1))))
        elif form == 2:
            x.reshape(-1)[: x.size // 3] = 0
        elif form == 3:
            x.reshape(-1)[int(self.rng.integers(x.size))] *= 30
        return x.astype(np.float32)

    def draw(self, block: int) -> None:
        """Operands; `block` divides the sums (0: any length that fp8 has a form for)."""
        sums = block * int(self.rng.integers(1, 5)) if block else int(self.rng.integers(16, 130))
        self.columns = int(self.rng.integers(17, 60))
        if self.op == "Conv":
            channels, side = int(self.rng.integers(17, 40)), self.one(1, 3)
            self.x = self.numbers((self.one(1, 2), channels, 5, self.one(4, 7)))
            self.w = self.numbers((self.columns, channels, side, side))
            self.channel, self.sum_axis = 0, 1
            return
        self.x = self.numbers((self.one(2, 3, 16), sums))
        self.w = self.numbers((self.columns, sums) if self.op == "Gemm transB" else (sums, self.columns))
        self.channel, self.sum_axis = (0, 1) if self.op == "Gemm transB" else (1, 0)

    def product(self, a: np.ndarray, w: np.ndarray) -> np.ndarray:
        """In float64."""
        a, w = a.astype(np.float64), w.astype(np.float64)
        if self.op != "Conv":
            return a @ (w.T if self.op == "Gemm transB" else w)
        side = w.shape[2]
        padded = np.pad(a, ((0, 0), (0, 0), (side // 2, side // 2), (side // 2, side // 2)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), axis=(2, 3))
        return np.einsum("nchwij,mcij->nmhw", windows, w)

    def constant(self, name: str, value: np.ndarray) -> str:
        type_ = value.dtype.type
        if type_ not in TYPES:
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
            return name
        raw = value.reshape(-1).view(np.uint8)
        if TYPES[type_] in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1):
            raw = np.append(raw & 15, np.zeros(raw.size % 2, np.uint8))
            raw = raw[::2] | raw[1::2] << 4
        self.constants.append(
            TensorProto(name=name, data_type=TYPES[type_], dims=value.shape, raw_data=raw.astype(np.uint8).tobytes())
        )
        return name

    def node(self, op: str, inputs: List[str], output: str, **attributes) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def model(self, x: str, w: str, opset: int) -> onnx.ModelProto:
        attributes = {"pads": [self.w.shape[2] // 2] * 4} if self.op == "Conv" else {}
        if self.op == "Gemm transB":
            attributes = {"transB": 1}
        self.nodes.append(helper.make_node(self.op.split()[0], [x, w], ["y"], name="product", **attributes))
        info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)  # noqa: E731
        shape = self.product(self.x, self.w).shape
        graph = helper.make_graph(self.nodes, "g", [info("x", self.x.shape)], [info("y", shape)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=12)

    def made(self, name: str, a: np.ndarray, w: np.ndarray, opset: int, inputs=("x", "w"), half=False) -> Product:
        """`a` and `w`: what the operands stand for."""
        wanted, sizes = self.product(a, w), self.product(np.abs(a), np.abs(w))
        length = self.w.size / self.columns
        bound = sizes * (length * 2.0**-24 + 2.0**-21) + 1e-30
        if half:
            bound = bound * 1.01 + np.abs(wanted) * 2.0**-11 + 2.0**-25
        return Product(f"{name}, {self.op}", self.model(*inputs, opset), self.x, wanted, bound, half=half)


def _scales(d: _Drawing, axis: int, block: int) -> np.ndarray:
    """Of blocks of the weights: any numbers."""
    shape = list(d.w.shape)
    shape[axis] = -(-shape[axis] // block)
    return d.rng.uniform(0.01, 0.2, shape).astype(np.float32)


def in_file(seed: int) -> Product:
    """Elements and scales of the file, which stand for what they say."""
    d = _Drawing(seed)
    name = str(d.rng.choice(FILE_FORMATS))
    if name.startswith("fp8"):
        return _fp8_in_file(d, name)
    block = {"int4": d.one(16, 32, 64), "uint4": d.one(16, 32), "nvfp4": 16}.get(name, 32)
    d.draw(block)
    axis = d.sum_axis
    if d.op == "Conv":  # Blocks of channels, the last of which may be shorter.
        block = d.one(8, 16)
    scales, opset, zeros = _scales(d, axis, block), 24, None
    if name in ("int4", "uint4"):
        type_, low = (ml_dtypes.int4, -8) if name == "int4" else (ml_dtypes.uint4, 0)
        codes = d.rng.integers(low, low + 16, d.w.shape).astype(np.int8).astype(type_)
        zeros = d.rng.integers(0, 16, scales.shape).astype(np.uint8).astype(type_) if name == "uint4" else None
        stored = scales
    else:
        element = E4M3 if name == "mxfp8" else E2M1
        codes = d.numbers(d.w.shape).astype(element)
        stored = scales.astype(E4M3 if name == "nvfp4" else E8M0)
        scales = stored.astype(np.float32)
    inputs = [d.constant("codes", codes), d.constant("scales", stored)]
    if name == "nvfp4":
        second = np.float32(d.rng.uniform(0.3, 2))
        scales = scales * second
        inputs[1] = d.node("DequantizeLinear", [inputs[1], d.constant("second", np.asarray(second))], "block scales")
    if zeros is not None:
        inputs.append(d.constant("zeros", zeros))
    attributes = {"output_dtype": TensorProto.FLOAT} if name.startswith("mx") else {}
    w = d.node("DequantizeLinear", inputs, "w", axis=d.one(axis, axis - d.w.ndim), block_size=block, **attributes)

    def spread(values):
        return np.repeat(values.astype(np.float32), block, axis=axis).take(np.arange(d.w.shape[axis]), axis=axis)

    centered = codes.astype(np.float32) - (0 if zeros is None else spread(zeros))
    return _with_numbers(d, name, (centered * spread(scales)).astype(np.float32), w, opset)


def _with_numbers(d: _Drawing, name: str, w: np.ndarray, weights: str, opset: int) -> Product:
    """A product of numbers, in fp32 or fp16."""
    if d.rng.random() < 0.4:
        return d.made(name, d.x.astype(np.float16), w.astype(np.float16), opset, ("x", weights), half=True)
    return d.made(name, d.x, w, opset, ("x", weights))


def _fp8_in_file(d: _Drawing, name: str) -> Product:
    d.draw(0)
    shape = [d.columns] if d.rng.random() < 0.5 else []
    scales = d.rng.uniform(0.005, 0.02, shape).astype(np.float32)
    along = scales.reshape([-1 if axis == d.channel else 1 for axis in range(d.w.ndim)]) if shape else scales
    codes = rounded(d.w / along, E4M3).astype(E4M3)
    attributes = {"axis": d.channel} if shape else {}
    inputs = [d.constant("codes", codes), d.constant("scales", scales)]
    w = d.node("DequantizeLinear", inputs, "w", **attributes)
    values = codes.astype(np.float32) * along
    if name == "fp8":
        return _with_numbers(d, name, values, w, 21)
    scale = d.constant("scale", np.asarray(np.float32(np.abs(d.x).max() / 448 * d.rng.uniform(0.5, 1.2))))
    zero = d.constant("zero", np.asarray(0, E4M3))
    number = numpy_helper.to_array(next(each for each in d.constants if each.name == scale))
    a = rounded(d.x / number, E4M3) * np.float64(number)
    x = d.node("QuantizeLinear", ["x", scale, zero], "elements")
    x = d.node("DequantizeLinear", [x, scale, zero], "numbers")
    exact = codes.astype(np.float64) * along.astype(np.float64)
    return d.made(name, a, exact, 21, (x, w), half=bool(d.rng.random() < 0.4))


def of_layers(seed: int) -> Product:
    """A float32 model whose product is asked to run in a format."""
    d = _Drawing(seed)
    name = str(d.rng.choice(list(LAYER_FORMATS)))
    if d.op == "Conv":  # Convolutions have no blocks.
        name = d.one("fp8", "fp8-weights", "int8-weights")
    flags, block = LAYER_FORMATS[name]
    d.draw(block)
    half = name.endswith("weights") or name.startswith("int4")
    half = half and bool(d.rng.random() < 0.4)
    number = np.float16 if half else np.float32
    scale, largest = None, 0.0
    if name in ("fp8", "nvfp4"):
        scale = np.float32(np.abs(d.x).max() / 127 * d.rng.uniform(0.6, 1.2))
        largest = scale * np.float32(127)
    a, w = _operands(d, name, block, number, largest)
    d.constant("w", d.w)
    result = d.made(f"layer in {name}", a, w, 21, half=half)
    amax = ["--weight-scales", "amax"] if name.startswith(("int4", "nvfp4")) else []
    result.precision, result.words, result.scale = name, [*flags, *amax, *(["--fp16"] if half else [])], scale
    return result


def _operands(d: _Drawing, name: str, block: int, number: type, largest: float) -> Tuple[np.ndarray, np.ndarray]:
    """What both operands of a layer in a format stand for."""
    weights: Dict[str, Encode] = {
        "nvfp4": nvfp4(second_scale(np.abs(d.w).max())), "mxfp8": mx(E4M3), "mxfp4": mx(E2M1), "int4": int4(number),
    }  # fmt: skip
    kind = name.split("-")[0]
    if block:
        w = in_blocks(d.w, d.sum_axis, block, weights[kind])
    elif name == "fp8" and d.op != "Conv":
        elements, own = by_tensor(d.w, np.abs(d.w).max())
        w = elements * np.float64(own)
    else:
        w = (int8_channels if kind == "int8" else fp8_channels)(d.w, d.channel)
    if name == "fp8":
        elements, own = by_tensor(d.x, largest)
        return elements * np.float64(own), w
    if name in ("mxfp8", "mxfp4", "nvfp4"):
        encode = nvfp4(second_scale(largest)) if name == "nvfp4" else mx(E4M3 if name == "mxfp8" else E2M1)
        return in_blocks(d.x, 1, block, encode), w
    return d.x.astype(number), w.astype(number)
