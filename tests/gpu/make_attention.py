"""Writes small networks of attention with random shapes: make_attention.py FOLDER [COUNT] [SEED]

Heads of 8 to 256, sequences to 2,100, masks that are added or absent, keys of another length than queries, for
check_models.py and gpu_latency on a machine with a GPU. Prints the seed.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import random_models


def network(generator: random.Random, index: int) -> onnx.ModelProto:
    """q, k and v of (batch, rows, heads, depth), transposed as exporters do; perhaps scaled before their product."""
    batch, heads = generator.choice([1, 2, 3]), generator.choice([1, 2, 5])
    depth = generator.choice([8, 16, 40, 64, 72, 80, 96, 128, 160, 256])
    queries = generator.choice([1, 7, 16, 63, 64, 65, 128, 197, 300, 700, 1370])
    keys = generator.choice([queries, 1, 17, 77, 128, 256, 257, 513, 1500, 2100])
    masked, scaled = generator.random() < 0.5, generator.random() < 0.5
    numbers = np.random.default_rng(index)
    nodes, initializers = [], []

    def constant(name: str, value: np.ndarray) -> str:
        initializers.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    factor = constant("factor", np.array(depth**-0.25 if scaled else depth**-0.5))
    q = node("Transpose", ["q"], "q_heads", perm=[0, 2, 1, 3])
    k = node("Transpose", ["k"], "k_heads", perm=[0, 2, 3, 1])
    v = node("Transpose", ["v"], "v_heads", perm=[0, 2, 1, 3])
    if scaled:
        q, k = node("Mul", [q, factor], "q_scaled"), node("Mul", [k, factor], "k_scaled")
    scores = node("MatMul", [q, k], "scores")
    if not scaled:
        scores = node("Mul", [scores, factor], "scaled")
    if masked:
        mask = np.where(numbers.random((batch, 1, queries, keys)) < 0.2, -1e4, 0.0)
        scores = node("Add", [scores, constant("mask", mask)], "masked")
    weights = node("Softmax", [scores], "weights", axis=-1)
    node("Transpose", [node("MatMul", [weights, v], "heads")], "y", perm=[0, 2, 1, 3])

    def value(name: str, rows: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, rows, heads, depth])

    graph = helper.make_graph(
        nodes, "attention", [value("q", queries), value("k", keys), value("v", keys)], [value("y", queries)], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    sys.exit(random_models.write_all(__doc__, "attention", 16, network))
