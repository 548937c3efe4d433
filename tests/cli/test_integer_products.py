"""Products of 8-bit integers: the exact sum, rounded to float32 once, times the scales, whatever instructions there are.
NumPy's integers are the judge."""

import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from search_support import outputs_of

SCALE_X, SCALE_W = np.float32(0.03), np.float32(0.007)


def network(path: pathlib.Path, rows: int, k: int, columns: int, generator: np.random.Generator) -> np.ndarray:
    """x as Q and DQ make integers of it, times constant integers; most of them large, so that sums go beyond 2^24."""
    weights = generator.choice(np.array([-128, -127, 1, 126, 127], np.int8), (k, columns), p=[0.1, 0.1, 0.1, 0.2, 0.5])
    scalars = {"sx": SCALE_X, "sw": SCALE_W, "z": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["xq"], name="quantize"),
        helper.make_node("DequantizeLinear", ["xq", "sx", "z"], ["xd"], name="dequantize"),
        helper.make_node("DequantizeLinear", ["w", "sw", "z"], ["wd"], name="weights"),
        helper.make_node("MatMul", ["xd", "wd"], ["y"], name="product"),
    ]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in scalars.items()]
    constants.append(numpy_helper.from_array(weights, "w"))
    shapes = {"x": [rows, k], "y": [rows, columns]}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "integers", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return weights


@pytest.mark.parametrize("instructions", ["DEFAULT", "AVX512_CORE", "AVX2"])
@pytest.mark.parametrize("k", [1, 65, 1536, 5000])
def test_sums_are_exact(run, tmp_path, k, instructions):
    generator = np.random.default_rng(k)
    rows, columns = 5, 33
    weights = network(tmp_path / "m.onnx", rows, k, columns, generator)
    x = generator.choice(np.float32([-9, -3.8, 0.1, 3.7, 9]), (rows, k), p=[0.1, 0.1, 0.1, 0.2, 0.5])
    np.savez(tmp_path / "x.npz", x=x)
    result = run("run", "m.onnx", "--trt", "--load-inputs", "x.npz", "--save-outputs", "y.json",
                 env={"ONEDNN_MAX_CPU_ISA": instructions})
    assert result.code == 0, result
    integers = np.clip(np.round(x / SCALE_X), -128, 127).astype(np.int64)
    sums = integers @ weights.astype(np.int64)
    assert k < 5000 or np.abs(sums).max() > 2**24
    expected = sums.astype(np.float32) * (SCALE_X * SCALE_W)
    assert np.array_equal(outputs_of(tmp_path / "y.json")[0]["y"], expected)
