"""Writes model.onnx: an encoder that turns a 48x48 picture into a vector of length 1, for search by similarity.

Nothing scales the values on the way, and the vector has a length of 10^4 before it is divided by it. In FP16 the sum of
squares is infinite then, the quotient 0, and no picture is similar to any other.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

GROWTH = 4.0  # of the values, per convolution


class Graph:
    """Collects nodes and constants; a node is named by the path of its module."""

    def __init__(self):
        self.nodes, self.constants, self.random = [], {}, np.random.RandomState(0)

    def const(self, name, value):
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name)
        return name

    def op(self, kind, inputs, name, output=None, **attributes):
        output = output or name + "_output_0"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def conv(self, x, path, inputs, outputs):
        weight = self.random.randn(outputs, inputs, 3, 3) * np.sqrt(2 / (inputs * 9)) * GROWTH
        x = self.op("Conv", [x, self.const(path + ".weight", weight), self.const(path + ".bias", np.zeros(outputs))],
                    path + "/Conv", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])  # fmt: skip
        return self.op("Relu", [x], path + "/Relu")


def make_model():
    graph = Graph()
    x = "picture"
    for i, (inputs, outputs) in enumerate([(1, 8), (8, 16), (16, 32)]):
        x = graph.conv(x, f"/encoder.{i}", inputs, outputs)
    x = graph.op("Flatten", [x], "/Flatten")
    weight = graph.random.randn(32 * 36, 64) / np.sqrt(32 * 36)
    x = graph.op("MatMul", [x, graph.const("projection.weight", weight)], "/projection/MatMul")
    square = graph.op("Mul", [x, x], "/normalize/Mul")
    total = graph.op("ReduceSum", [square], "/normalize/ReduceSum", keepdims=1)
    norm = graph.op("Sqrt", [total], "/normalize/Sqrt")
    graph.op("Div", [x, norm], "/normalize/Div", "embedding")
    info = helper.make_tensor_value_info
    made = helper.make_graph(
        graph.nodes, "encoder",
        [info("picture", TensorProto.FLOAT, ["batch", 1, 48, 48])], [info("embedding", TensorProto.FLOAT, ["batch", 64])],
        list(graph.constants.values()),
    )  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


if __name__ == "__main__":
    save(make_model(), "model.onnx")
