"""Writes small networks of LSTM, GRU and RNN with random sizes: make_recurrent.py FOLDER [COUNT] [SEED]

One or two layers of 16 to 700 units, 1 to 70 sequences, in one or both directions, with any of the operators'
attributes, inputs and outputs, for check_models.py and gpu_latency on a machine with a GPU. Prints the seed.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import random_models

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class Maker:
    """A network as it grows."""

    def __init__(self, generator: random.Random, index: int) -> None:
        self.generator, self.numbers = generator, np.random.default_rng(index)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def constant(self, shape: list[int], scale: float = 1.0) -> str:
        name = f"constant{len(self.initializers)}"
        values = self.numbers.uniform(-scale, scale, shape).astype(np.float32)
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def integers(self, values: list[int]) -> str:
        name = f"constant{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(values, dtype=np.int64), name))
        return name

    def input(self, name: str, shape: list[int]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def output(self, name: str, shape: list[int]) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def node(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))

    def layer(self, number: int, x: str, seq: int, batch: int, width: int, last: bool) -> tuple[str, int]:
        """One layer; what the next one reads, and its width."""
        pick = self.generator
        kind = pick.choice(["LSTM", "LSTM", "GRU", "RNN"])
        directions, hidden = pick.choice([1, 2]), pick.choice([16, 37, 64, 100, 129, 256, 512, 700])
        gates, scale = GATES[kind] * hidden, hidden**-0.5
        batch_first = last and number == 0 and pick.random() < 0.3
        if batch_first:
            self.node("Transpose", [x], [f"turned{number}"], perm=[1, 0, 2])
            x = f"turned{number}"
        state = [batch, directions, hidden] if batch_first else [directions, batch, hidden]
        attributes: dict[str, Any] = {
            "direction": "bidirectional" if directions == 2 else pick.choice(["forward", "reverse"]),
            "hidden_size": hidden,
            "layout": int(batch_first),
        }
        if pick.random() < 0.25:
            attributes["clip"] = 0.5
        if kind == "RNN" and pick.random() < 0.5:
            attributes["activations"] = ["Relu"] * directions
        if kind == "GRU":
            attributes["linear_before_reset"] = pick.choice([0, 1])
        if kind == "LSTM":
            attributes["input_forget"] = int(pick.random() < 0.25)

        def initial(name: str) -> str:
            way = pick.choice(["absent", "constant", "input"])
            return "" if way == "absent" else self.constant(state) if way == "constant" else self.input(name, state)

        inputs = [x, self.constant([directions, gates, width], width**-0.5)]
        inputs.append(self.constant([directions, gates, hidden], scale))
        inputs.append(self.constant([directions, 2 * gates], scale) if pick.random() < 0.75 else "")
        inputs += ["", initial(f"hidden{number}")]
        if kind == "LSTM":
            inputs.append(initial(f"cell{number}"))
            inputs.append(self.constant([directions, 3 * hidden], scale) if pick.random() < 0.3 else "")
        outputs = [f"y{number}"]
        for name in [f"last{number}"] + ([f"last_cell{number}"] if kind == "LSTM" else []):
            wanted = pick.random() < 0.5
            outputs.append(name if wanted else "")
            if wanted:
                self.output(name, state)
        self.node(kind, inputs, outputs, **attributes)
        if batch_first:
            self.output(outputs[0], [batch, seq, directions, hidden])
            return "", 0
        self.node("Transpose", [outputs[0]], [f"side{number}"], perm=[0, 2, 1, 3])
        self.node("Reshape", [f"side{number}", self.integers([seq, batch, -1])], [f"rows{number}"])
        return f"rows{number}", directions * hidden


def network(generator: random.Random, index: int) -> onnx.ModelProto:
    maker = Maker(generator, index)
    seq, batch = generator.choice([1, 8, 25]), generator.choice([1, 1, 2, 5, 8, 33, 70])
    width, layers = generator.choice([16, 40, 77, 256]), generator.choice([1, 2])
    x = maker.input("x", [seq, batch, width])
    for number in range(layers):
        x, width = maker.layer(number, x, seq, batch, width, layers == 1)
    if x:
        maker.output(x, [seq, batch, width])
    graph = helper.make_graph(maker.nodes, "recurrent", maker.inputs, maker.outputs, maker.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    sys.exit(random_models.write_all(__doc__, "recurrent", 8, network))
