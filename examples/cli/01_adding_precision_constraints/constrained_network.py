"""The same constraints in a script that makes the network. Used in the place of the model."""

import tensorrt as trt
from polygraphy import func
from polygraphy.backend.trt import NetworkFromOnnxPath


@func.extend(NetworkFromOnnxPath("needs_constraints.onnx"))
def load_network(builder, network, parser):
    for layer in network:
        if layer.name in ("Add", "Sub"):
            layer.precision = trt.float32
        if layer.name == "Add":
            layer.set_output_type(0, trt.float32)
