"""Times of MatMulNBits (com.microsoft, 4 bits) beside the product in fp32 of the same shape and ONNX Runtime's.

One thread, the sides in turns; ratios are of the minima. Weights are random codes with a scale per block of 32.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import measure
import numpy as np
import onnx
import onnxruntime
import ulpscope
from onnx import TensorProto, helper, numpy_helper

SHAPES = ((1, 768, 3072), (128, 768, 3072), (1, 2048, 2048), (128, 2048, 2048))
BLOCK = 32


def model(node: onnx.NodeProto, weights: List[onnx.TensorProto], rows: int, k: int, n: int) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, k])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, n])
    graph = helper.make_graph([node], "product", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def products(rows: int, k: int, n: int) -> Tuple[bytes, bytes]:
    """MatMulNBits, and MatMul with the values that its codes stand for."""
    random = np.random.RandomState(4)
    codes = random.randint(0, 256, (n, k // BLOCK, BLOCK // 2)).astype(np.uint8)
    scales = (random.rand(n, k // BLOCK) * 0.01 + 0.001).astype(np.float32)
    low, high = (codes & 15).astype(np.float32), (codes >> 4).astype(np.float32)
    values = (np.stack([low, high], -1).reshape(n, k // BLOCK, BLOCK) - 8) * scales[:, :, None]
    of_codes = helper.make_node(
        "MatMulNBits", ["x", "b", "s"], ["y"], "product", domain="com.microsoft", K=k, N=n, bits=4, block_size=BLOCK
    )
    of_floats = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    packed = [numpy_helper.from_array(codes, "b"), numpy_helper.from_array(scales.reshape(-1), "s")]
    plain = [numpy_helper.from_array(np.ascontiguousarray(values.reshape(n, k).T), "w")]
    return (
        model(of_codes, packed, rows, k, n).SerializeToString(),
        model(of_floats, plain, rows, k, n).SerializeToString(),
    )


def measure_shape(rows: int, k: int, n: int, seconds: float) -> Dict[str, Any]:
    codes, floats = products(rows, k, n)
    x = np.random.RandomState(5).randn(rows, k).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(codes, options, providers=["CPUExecutionProvider"])
    engines = [ulpscope.Engine(each, threads=1) for each in (codes, floats)]
    results = [engines[0].run({"x": x})["y"], engines[1].run({"x": x})["y"]]
    calls = {
        "codes": lambda: engines[0].run({"x": x}),
        "fp32": lambda: engines[1].run({"x": x}),
        "onnxruntime": lambda: session.run(None, {"x": x}),
    }
    times = {name: measure.summary(t)["min"] for name, t in measure.interleave(calls, seconds).items()}
    return {
        "product": f"{rows} x {k} x {n}",
        "MatMulNBits min ms": times["codes"],
        "fp32 min ms": times["fp32"],
        "onnxruntime min ms": times["onnxruntime"],
        "/ fp32": times["codes"] / times["fp32"],
        "/ onnxruntime": times["codes"] / times["onnxruntime"],
        "largest difference from fp32": f"{np.abs(results[0] - results[1]).max() / np.abs(results[1]).max():.1e}",
    }


def main() -> None:
    parser = measure.parser(__doc__ or "")
    options = parser.parse_args()
    rows = [measure_shape(*shape, 0.3 if options.quick else 3.0) for shape in SHAPES]
    measure.report(rows, measure.environment(threads=1), options.output)


if __name__ == "__main__":
    main()
