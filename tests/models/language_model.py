"""Writes a decoder with random weights, layer by layer: as large as wanted, without holding it in memory.

usage: language_model.py OUT.onnx HIDDEN LAYERS VOCABULARY [fp32|fp16|bf16] [inline|external] [tied|untied] [LENGTH]

An embedding, blocks of attention (heads of 64) and a feed-forward network of four times the width, and a head that is a
matrix of its own or (tied) the embedding, transposed. LENGTH is a number of tokens, or a name: any number (default: 16).
"""

from __future__ import annotations

import argparse
import pathlib
from typing import Any, BinaryIO, List, Optional, Union

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

TYPES = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}


def _narrow(values: np.ndarray, kind: str) -> bytes:
    if kind == "bf16":
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    return values.astype(np.float16 if kind == "fp16" else np.float32).tobytes()


class _Writer:
    def __init__(self, path: pathlib.Path, kind: str, external: bool) -> None:
        self.kind, self.name = kind, path.name + ".data"
        self.data: Optional[BinaryIO] = open(path.parent / self.name, "wb") if external else None
        self.random = np.random.default_rng(0)
        self.nodes: List[Any] = []
        self.initializers: List[TensorProto] = []

    def weight(self, name: str, shape: List[int], scale: float) -> str:
        """Random numbers of this size; written to the file of external data at once."""
        tensor = TensorProto(name=name, dims=shape, data_type=TYPES[self.kind])
        content = _narrow(self.random.standard_normal(shape, dtype=np.float32) * np.float32(scale), self.kind)
        if self.data is not None and len(content) >= 1024:
            offset = (self.data.tell() + 4095) // 4096 * 4096
            self.data.seek(offset)
            self.data.write(content)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", self.name), ("offset", offset), ("length", len(content))):
                tensor.external_data.add(key=key, value=str(value))
        else:
            tensor.raw_data = content
        self.initializers.append(tensor)
        return name

    def integers(self, name: str, values: List[int]) -> str:
        self.initializers.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def node(self, op: str, inputs: List[str], output: str = "", **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        output = output or f"{name}_out"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output


def make(
    path: Union[str, pathlib.Path],
    hidden: int,
    layers: int,
    vocabulary: int,
    kind: str = "fp32",
    external: bool = True,
    tied: bool = False,
    length: Union[int, str] = 16,
) -> None:
    """Input: ids, int64 [1, length]. Output: logits [1, length, vocabulary] of the weights' type."""
    path = pathlib.Path(path)
    w = _Writer(path, kind, external)
    heads, merged = w.integers("heads", [1, -1, hidden // 64, 64]), w.integers("merged", [1, -1, hidden])
    eighth = w.weight("eighth", [1], 0.125)
    scale = hidden**-0.5

    def normalized(x: str, name: str) -> str:
        return w.node("LayerNormalization", [x, w.weight(f"{name}.g", [hidden], 1), w.weight(f"{name}.b", [hidden], 0.1)], axis=-1)

    def product(x: str, name: str, shape: List[int], size: float = scale) -> str:
        return w.node("MatMul", [x, w.weight(name, shape, size)])

    embedding = w.weight("embedding", [vocabulary, hidden], 1)
    x = w.node("Gather", [embedding, "ids"])
    for i in range(layers):
        y = normalized(x, f"{i}.first")
        q, k, v = (
            w.node("Transpose", [w.node("Reshape", [product(y, f"{i}.{name}", [hidden, hidden]), heads])], perm=perm)
            for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
        )
        attention = w.node("Softmax", [w.node("Mul", [w.node("MatMul", [q, k]), eighth])], axis=-1)
        seen = w.node("Transpose", [w.node("MatMul", [attention, v])], perm=[0, 2, 1, 3])
        x = w.node("Add", [x, product(w.node("Reshape", [seen, merged]), f"{i}.o", [hidden, hidden])])
        up = product(normalized(x, f"{i}.second"), f"{i}.up", [hidden, 4 * hidden])
        gate = w.node("Mul", [up, w.node("Sigmoid", [up])])
        x = w.node("Add", [x, product(gate, f"{i}.down", [4 * hidden, hidden], scale / 2)])
    x = normalized(x, "last")
    head = w.node("Transpose", [embedding], perm=[1, 0]) if tied else w.weight("head", [hidden, vocabulary], scale)
    w.node("MatMul", [x, head], "logits")
    graph = helper.make_graph(
        w.nodes,
        "language_model",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, length])],
        [helper.make_tensor_value_info("logits", TYPES[kind], [1, length, vocabulary])],
        w.initializers,
    )
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if w.data is not None:
        w.data.close()
    path.write_bytes(model.SerializeToString())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=pathlib.Path, metavar="OUT.onnx")
    for size in ("hidden", "layers", "vocabulary"):
        parser.add_argument(size, type=int, metavar=size.upper())
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    words = options.words
    kind = next((word for word in words if word in TYPES), "fp32")
    length = next((w for w in words if w not in (*TYPES, "inline", "external", "tied", "untied")), "16")
    make(options.path, options.hidden, options.layers, options.vocabulary, kind, "inline" not in words, "tied" in words,
         int(length) if length.isdigit() else length)


if __name__ == "__main__":
    main()
