"""Runs one model in FP32 and in FP16, and keeps two layers in FP32."""

import numpy as np
from onnx import TensorProto, helper

import ulpscope


def make_model() -> bytes:
    """y = (x + 65504) - 65504: right in FP32, but 65504 is the largest FP16 number."""
    nodes = [
        helper.make_node("Add", ["x", "largest"], ["sum"], name="Add"),
        helper.make_node("Sub", ["sum", "largest"], ["y"], name="Sub"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    largest = helper.make_tensor("largest", TensorProto.FLOAT, [], [65504.0])
    graph = helper.make_graph(nodes, "add_and_subtract", [x], [y], [largest])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def main() -> None:
    model = make_model()
    x = np.linspace(1, 2, 4, dtype=np.float32)
    variants = {
        "FP32": {},
        "FP16, one kernel for both": {"precision": "fp16"},
        "FP16, a kernel each": {"precision": "fp16", "fusion": "none"},
        "the same, Add and Sub in FP32": {
            "precision": "fp16",
            "fusion": "none",
            "layer_precisions": {"Add": "float32", "Sub": "float32"},
        },
    }
    for name, options in variants.items():
        engine = ulpscope.Engine(model, threads=1, **options)
        print(f"{name:32} {engine.run({'x': x})['y']}")
        for layer in engine.layers:
            print(f"    {layer.name}: {layer.precision}")


if __name__ == "__main__":
    main()
