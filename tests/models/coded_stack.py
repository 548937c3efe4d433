"""A stack of matrix products whose weights stay as the file has them: float32, or codes behind DequantizeLinear."""

import pathlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save


def _packed(codes: np.ndarray) -> bytes:
    """Two codes of 4 bits per byte, the first in the low ones."""
    low, high = (codes.reshape(-1)[i::2].astype(np.uint8) & 15 for i in (0, 1))
    return (low | high << 4).tobytes()


def make(path: pathlib.Path, kind: str, width: int, layers: int) -> None:
    """Input x, output y: [4, width]. `kind`: fp32, int4 (blocks of 64 of axis 0), fp8 (one scale), or nvfp4 (of the
    transpose, blocks of 16, scales in E4M3 under one of the tensor)."""
    random = np.random.default_rng(0)
    nodes, initializers, x = [], [], "x"

    def store(name, kind, shape, content):
        initializers.append(TensorProto(name=name, data_type=kind, dims=shape, raw_data=content))
        return name

    def number(name, value):
        initializers.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    for i in range(layers):
        square, codes = [width, width], random.integers(0, 16, (width, width), np.uint8)
        if kind == "fp32":
            w = number(f"w{i}", random.standard_normal(square, np.float32) / width**0.5)
        elif kind == "int4":
            scales = random.uniform(0.1, 0.3, (width // 64, width)) / width**0.5
            inputs = [store(f"q{i}", TensorProto.INT4, square, _packed(codes)), number(f"s{i}", scales)]
            w = node("DequantizeLinear", inputs, f"w{i}", axis=0, block_size=64)
        elif kind == "fp8":
            codes = random.integers(0, 0x60, square, np.uint8) | random.integers(0, 2, square, np.uint8) << 7
            inputs = [
                store(f"q{i}", TensorProto.FLOAT8E4M3FN, square, codes.tobytes()),
                number(f"s{i}", 0.3 / width**0.5),
            ]
            w = node("DequantizeLinear", inputs, f"w{i}")
        else:
            blocks = random.integers(0x30, 0x40, (width, width // 16), np.uint8)
            scales = [store(f"b{i}", TensorProto.FLOAT8E4M3FN, [width, width // 16], blocks.tobytes())]
            scales = node("DequantizeLinear", [*scales, number(f"g{i}", 0.4 / width**0.5)], f"s{i}")
            inputs = [store(f"q{i}", TensorProto.FLOAT4E2M1, square, _packed(codes)), scales]
            w = node(
                "Transpose", [node("DequantizeLinear", inputs, f"t{i}", axis=-1, block_size=16)], f"w{i}", perm=[1, 0]
            )
        x = node("MatMul", [x, w], "y" if i + 1 == layers else f"x{i}")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, width]) for name in "xy"]
    graph = helper.make_graph(nodes, "stack", value[:1], value[1:], initializers)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)
