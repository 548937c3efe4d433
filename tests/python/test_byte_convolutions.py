"""Convolutions of 8-bit integers: exact sums, rounded to float32 once, on every instruction set."""

from typing import NamedTuple, Tuple

import instruction_sets
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from ulpscope import Engine


class Case(NamedTuple):
    image: Tuple[int, ...]
    weights: Tuple[int, ...]  # Output channels, channels of a group, window.
    strides: Tuple[int, ...]
    pads: Tuple[int, ...]
    dilations: Tuple[int, ...]
    groups: int = 1


CASES = [
    Case((2, 40, 7, 9), (33, 40, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    Case((1, 40, 9, 8), (64, 40, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    Case((2, 5, 9, 11), (35, 5, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    Case((1, 33, 12, 7), (48, 33, 3, 5), (2, 1), (0, 3, 2, 1), (1, 1)),
    Case((1, 33, 12, 9), (48, 33, 3, 3), (1, 2), (2, 2, 2, 2), (2, 2)),
    Case((1, 3, 20, 20), (32, 3, 7, 7), (2, 2), (3, 3, 3, 3), (1, 1)),
    Case((3, 50, 31), (40, 50, 4), (2,), (5, 1), (1,)),
    Case((1, 300, 5, 5), (70, 300, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    Case((1, 64, 5, 5), (64, 32, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2),
    Case((1, 8, 2, 2), (32, 8, 3, 3), (1, 1), (4, 4, 4, 4), (1, 1)),
]


def model(case, weights, scales, kind, x_scale):
    """A convolution between pairs of QuantizeLinear and DequantizeLinear."""
    values = {"w": weights, "s": scales, "xs": np.float32(x_scale), "xz": np.zeros((), kind),
              "wz": np.zeros(len(scales), np.int8)}  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "wz"], ["wd"], axis=0),
        helper.make_node("Conv", ["d", "wd"], ["y"], strides=case.strides, pads=case.pads, dilations=case.dilations,
                         group=case.groups),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, case.image)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def sums(x, w, case):
    """In int64, place by place of the window."""
    rank = x.ndim - 2
    pads = [(0, 0), (0, 0), *zip(case.pads[:rank], case.pads[rank:])]
    x = np.pad(x.astype(np.int64), pads)
    window = w.shape[2:]
    size = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], window, case.strides, case.dilations)]
    result = np.zeros((len(x), len(w), *size), np.int64)
    inside, outside = w.shape[1], len(w) // case.groups
    for group in range(case.groups):
        rows = slice(group * outside, (group + 1) * outside)
        for place in np.ndindex(*window):
            at = tuple(
                slice(p * d, p * d + (n - 1) * s + 1, s)
                for p, d, n, s in zip(place, case.dilations, size, case.strides)
            )
            part = x[(slice(None), slice(group * inside, (group + 1) * inside), *at)]
            result[:, rows] += np.einsum("nc...,oc->no...", part, w[(rows, slice(None), *place)].astype(np.int64))
    return result


def differing(case, kind):
    random = np.random.default_rng(0)
    weights = random.integers(-127, 128, case.weights).astype(np.int8)
    scales = (2.0 ** random.integers(-8, -3, len(weights))).astype(np.float32) * np.float32(1.1)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    integers = random.integers(low, high + 1, case.image)
    x_scale = np.float32(0.037)
    made = model(case, weights, scales, kind, x_scale)
    feeds = {"x": (integers * np.float64(x_scale)).astype(np.float32)}
    factors = (x_scale * scales).reshape(-1, *[1] * (len(case.image) - 2))
    expected = sums(integers, weights, case).astype(np.float32) * factors
    results = [Engine(made, threads=threads).run(feeds)["y"] for threads in (1, 3)]
    return sum(int((result != expected).sum()) for result in results)


if __name__ == "__main__":
    print([differing(case, kind) for case in CASES for kind in (np.int8, np.uint8)])


@pytest.mark.parametrize("isa", instruction_sets.parameters())
def test_exact_sums(isa):
    done = instruction_sets.output_of(__file__, isa)
    assert done.stdout.strip() == str([0] * (2 * len(CASES))), done.stderr
