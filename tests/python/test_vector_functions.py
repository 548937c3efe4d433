"""Functions of single elements that are computed in float64 and rounded once: the bits of NumPy's float64, on every
instruction set."""


import instruction_sets
import numpy as np
import onnx
import pytest
from onnx import helper
from ulpscope import Engine

FUNCTIONS = {"Sin": np.sin, "Cos": np.cos, "Atan": np.arctan, "Asin": np.arcsin, "Acos": np.arccos}
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e6, 1.0000001e6, 3.4e38, 0.5, -0.5], np.float32
)


def model(op, shape):
    value = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def floats():
    """Every 4001st of all there are, zeros and NaN of either sign among them."""
    return np.concatenate([np.arange(0, 2**32, 4001, np.uint64).astype(np.uint32).view(np.float32), SPECIAL])


def differing(op):
    """How many of them have other bits than float64 gives, rounded, and by how many units of the last place at most."""
    x = floats()
    result = Engine(model(op, list(x.shape)), threads=2).run({"x": x})["y"]
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[op](x.astype(np.float64)).astype(np.float32)
    assert np.array_equal(np.isnan(result), np.isnan(expected))
    there = ~np.isnan(expected)
    steps = result.view(np.int32)[there].astype(np.int64) - expected.view(np.int32)[there]
    return int((steps != 0).sum()), int(np.abs(steps).max())


if __name__ == "__main__":
    print([differing(op) for op in FUNCTIONS])


@pytest.mark.parametrize("isa", instruction_sets.parameters())
def test_bits(isa):
    # float64 functions differ by some 1e-16 of the value: once in 2^28 the rounding to float32 shows it.
    done = instruction_sets.output_of(__file__, isa)
    assert done.stdout.strip() == str([(0, 0)] * len(FUNCTIONS)), done.stderr
