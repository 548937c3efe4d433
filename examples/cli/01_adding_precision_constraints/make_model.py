"""Writes needs_constraints.onnx: a network that is right in FP32 and loses its input in FP16.

x is rotated by a quarter turn, 65504 (the largest FP16 number) is added and subtracted again, and the result is rotated
once more. In FP16 the sum cannot grow beyond 65504, so that nothing is left of x.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

SIZE = 256
FP16_MAX = 65504.0


def make_model():
    rotation = np.ascontiguousarray(np.rot90(np.eye(SIZE, dtype=np.float32))).reshape(1, 1, SIZE, SIZE)
    nodes = [
        helper.make_node("MatMul", ["x", "I_rot90"], ["matmul_out_0"], name="MatMul_0"),
        helper.make_node("Add", ["matmul_out_0", "fp16_max"], ["add_out_1"], name="Add"),
        helper.make_node("Sub", ["add_out_1", "fp16_max"], ["sub_out_2"], name="Sub"),
        helper.make_node("MatMul", ["sub_out_2", "I_rot90"], ["matmul_out_3"], name="MatMul_1"),
    ]
    initializers = [
        numpy_helper.from_array(rotation, "I_rot90"),
        numpy_helper.from_array(np.full((1, 1, 1, 1), FP16_MAX, np.float32), "fp16_max"),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, SIZE, SIZE]) for name in ("x", "matmul_out_3")
    )
    graph = helper.make_graph(nodes, "needs_constraints", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


if __name__ == "__main__":
    save(make_model(), "needs_constraints.onnx")
