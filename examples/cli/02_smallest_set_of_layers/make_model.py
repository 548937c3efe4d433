"""Writes model.onnx: a small classifier of sequences with two transformer blocks, its nodes as exporters write them.

In FP16 it goes wrong in two places that lie far apart:
  /blocks.0/norm2, /blocks.1/norm1   two channels are about 500, as single channels of trained transformers are; their
                                     squares are beyond 65504, the largest FP16 number
  /head                              scores are 2<x, p> - |x|^2 - |p|^2, the negative squared distance of x to a prototype
                                     p per class: the terms are thousands, and the rounding of each is most of what is left
Its attention mask of -3.4e38 is beyond FP16 as well, but does no harm.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

LENGTH, WIDTH, HEADS, CLASSES, BLOCKS = 16, 64, 4, 8, 2


class Graph:
    """Collects nodes and constants; a node is named by the path of its module."""

    def __init__(self):
        self.nodes, self.constants, self.random = [], {}, np.random.RandomState(0)

    def const(self, name, value):
        value = np.asarray(value)
        value = value.astype(np.float32) if value.dtype.kind == "f" else value
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def op(self, kind, inputs, name, output=None, **attributes):
        output = output or name + "_output_0"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def linear(self, x, path, inputs, outputs, bias=None):
        weight = self.const(path + ".weight", self.random.randn(inputs, outputs) / np.sqrt(inputs))
        bias = self.const(path + ".bias", 0.1 * self.random.randn(outputs) if bias is None else bias)
        return self.op("Add", [self.op("MatMul", [x, weight], path + "/MatMul"), bias], path + "/Add")

    def norm(self, x, path):
        mean = self.op("ReduceMean", [x], path + "/ReduceMean", axes=[-1])
        centred = self.op("Sub", [x, mean], path + "/Sub")
        square = self.op("Pow", [centred, self.const("two", 2.0)], path + "/Pow")
        variance = self.op("ReduceMean", [square], path + "/ReduceMean_1", axes=[-1])
        sigma = self.op("Sqrt", [self.op("Add", [variance, self.const("eps", 1e-5)], path + "/Add")], path + "/Sqrt")
        scale = self.const(path + ".weight", 1 + 0.1 * self.random.randn(WIDTH))
        return self.op("Mul", [self.op("Div", [centred, sigma], path + "/Div"), scale], path + "/Mul")

    def heads(self, x, path, perm):
        shape = self.const("heads", np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
        x = self.op("Reshape", [self.linear(x, path, WIDTH, WIDTH), shape], path + "/Reshape")
        return self.op("Transpose", [x], path + "/Transpose", perm=perm)

    def block(self, x, path, bias=None):
        y = self.norm(x, path + "/norm1")
        query, key, value = (
            self.heads(y, f"{path}/attn/{name}", perm)
            for name, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        scores = self.op("MatMul", [query, key], path + "/attn/MatMul")
        scores = self.op("Div", [scores, self.const("sqrt_d", np.sqrt(WIDTH / HEADS))], path + "/attn/Div")
        mask = self.const("causal_mask", np.triu(np.full((LENGTH, LENGTH), np.finfo(np.float32).min), 1))
        weights = self.op("Softmax", [self.op("Add", [scores, mask], path + "/attn/Add")], path + "/attn/Softmax", axis=-1)
        mixed = self.op("MatMul", [weights, value], path + "/attn/MatMul_1")
        mixed = self.op("Transpose", [mixed], path + "/attn/Transpose", perm=[0, 2, 1, 3])
        mixed = self.op("Reshape", [mixed, self.const("merged", np.array([0, 0, WIDTH], np.int64))], path + "/attn/Reshape")
        x = self.op("Add", [x, self.linear(mixed, path + "/attn/out", WIDTH, WIDTH, bias)], path + "/Add")
        y = self.linear(self.norm(x, path + "/norm2"), path + "/mlp/up", WIDTH, 4 * WIDTH)
        erf = self.op("Erf", [self.op("Div", [y, self.const("sqrt_2", np.sqrt(2))], path + "/mlp/Div")], path + "/mlp/Erf")
        y = self.op("Mul", [y, self.op("Add", [erf, self.const("one", 1.0)], path + "/mlp/Add")], path + "/mlp/Mul")
        y = self.op("Mul", [y, self.const("half", 0.5)], path + "/mlp/Mul_1")
        return self.op("Add", [x, self.linear(y, path + "/mlp/down", 4 * WIDTH, WIDTH)], path + "/Add_1")

    def distances(self, x, path):
        prototypes = 0.3 * self.random.randn(CLASSES, WIDTH) + 4
        x = self.op("Add", [x, self.const(path + ".centre", np.full(WIDTH, 4.0))], path + "/Add")
        norms = self.op("ReduceSumSquare", [x], path + "/ReduceSumSquare", axes=[-1])
        products = self.op("MatMul", [x, self.const(path + ".prototypes", 2 * prototypes.T)], path + "/MatMul")
        difference = self.op("Sub", [products, norms], path + "/Sub")
        return self.op("Sub", [difference, self.const(path + ".norms", (prototypes**2).sum(1))], path + "/Sub_1", "scores")


def make_model():
    graph = Graph()
    outliers = np.zeros(WIDTH)  # added to the stream by block 0, and taken away by block 1
    outliers[[5, 40]] = 500.0, -450.0
    x = graph.linear("x", "/embed", 32, WIDTH)
    for i in range(BLOCKS):
        x = graph.block(x, f"/blocks.{i}", {0: outliers, 1: -outliers}.get(i))
    x = graph.norm(x, "/norm")
    x = graph.op("ReduceMean", [x], "/pool/ReduceMean", axes=[1], keepdims=0)
    graph.distances(x, "/head")
    info = helper.make_tensor_value_info
    made = helper.make_graph(
        graph.nodes, "classifier",
        [info("x", TensorProto.FLOAT, ["batch", LENGTH, 32])], [info("scores", TensorProto.FLOAT, ["batch", CLASSES])],
        list(graph.constants.values()),
    )  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    save(make_model(), "model.onnx")
