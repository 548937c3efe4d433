"""Writes model.onnx: a small convolutional classifier of 32x32 images with squeeze-and-excitation.

One filter of /stage2/conv is 60 times stronger than the others, as happens in trained networks. With one int8 scale for the
whole tensor, its range leaves few steps to the rest.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

CLASSES = 5


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

    def conv(self, x, path, channels, kernel=3, stride=1, strong=1.0):
        inputs, outputs = channels
        weight = self.random.randn(outputs, inputs, kernel, kernel) * np.sqrt(2 / (inputs * kernel**2))
        weight[0] *= strong
        bias = self.const(path + ".bias", 0.1 * self.random.randn(outputs))
        return self.op("Conv", [x, self.const(path + ".weight", weight), bias], path + "/Conv",
                       kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)  # fmt: skip

    def excite(self, x, path, channels):
        y = self.op("GlobalAveragePool", [x], path + "/GlobalAveragePool")
        y = self.op("Relu", [self.conv(y, path + "/reduce", (channels, channels // 4), 1)], path + "/Relu")
        y = self.op("Sigmoid", [self.conv(y, path + "/expand", (channels // 4, channels), 1)], path + "/Sigmoid")
        return self.op("Mul", [x, y], path + "/Mul")

    def stage(self, x, path, channels, strong=1.0):
        x = self.op("Relu", [self.conv(x, path + "/down", channels, stride=2)], path + "/down/Relu")
        y = self.op("Relu", [self.conv(x, path + "/conv", channels[1:] * 2, strong=strong)], path + "/conv/Relu")
        y = self.excite(y, path + "/se", channels[1])
        y = self.conv(y, path + "/out", channels[1:] * 2)
        return self.op("Relu", [self.op("Add", [x, y], path + "/Add")], path + "/Relu")


def make_model():
    graph = Graph()
    x = graph.stage("image", "/stage1", (3, 16))
    x = graph.stage(x, "/stage2", (16, 32), strong=60.0)
    x = graph.stage(x, "/stage3", (32, 64))
    x = graph.op("GlobalAveragePool", [x], "/pool/GlobalAveragePool")
    x = graph.op("Flatten", [x], "/Flatten")
    weight = graph.const("classifier.weight", graph.random.randn(CLASSES, 64) / 8)
    graph.op("Gemm", [x, weight, graph.const("classifier.bias", np.zeros(CLASSES))], "/classifier/Gemm", "logits", transB=1)
    info = helper.make_tensor_value_info
    made = helper.make_graph(
        graph.nodes, "classifier",
        [info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])], [info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        list(graph.constants.values()),
    )  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    save(make_model(), "model.onnx")
