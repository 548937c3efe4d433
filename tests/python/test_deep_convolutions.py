"""Convolutions over three dimensions, on every instruction set: sums of small integers are exact in any order."""

import itertools
from typing import NamedTuple, Tuple

import instruction_sets
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from ulpscope import Engine


class Case(NamedTuple):
    image: Tuple[int, ...]
    weights: Tuple[int, ...]  # As the operator has them.
    strides: Tuple[int, ...] = (1, 1, 1)
    pads: Tuple[int, ...] = (0,) * 6
    dilations: Tuple[int, ...] = (1, 1, 1)
    groups: int = 1
    transposed: bool = False


CASES = [
    Case((1, 3, 4, 32, 48), (20, 3, 2, 16, 16), (2, 16, 16)),
    Case((2, 5, 4, 9, 11), (35, 5, 3, 3, 3), pads=(1,) * 6),
    Case((1, 33, 5, 7, 9), (48, 33, 1, 1, 1)),
    Case((1, 8, 6, 8, 7), (17, 8, 3, 1, 2), (2, 1, 3), (2, 0, 1, 1, 0, 2), (1, 1, 2)),
    Case((1, 6, 4, 5, 6), (80, 3, 3, 3, 3), pads=(1,) * 6, groups=2),
    Case((2, 6, 4, 5, 6), (12, 1, 3, 3, 3), pads=(1,) * 6, groups=6),
    Case((1, 4, 2, 2, 2), (6, 4, 3, 3, 3), pads=(3,) * 6),
    Case((1, 7, 3, 4, 5), (7, 9, 2, 2, 2), (2, 2, 2), transposed=True),
    Case((2, 5, 3, 4, 5), (5, 6, 3, 2, 4), (1, 2, 3), (1, 0, 1, 0, 1, 2), transposed=True),
]


def model(case, weights, bias):
    """max(conv(x) + z, 0)."""
    attributes = {"strides": case.strides, "pads": case.pads, "dilations": case.dilations, "group": case.groups}
    nodes = [
        helper.make_node("ConvTranspose" if case.transposed else "Conv", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Add", ["c", "z"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, case.image),
                     helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [1, len(bias), 1, 1, 1])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def sums(x, w, case):
    """Place by place of the window: a transposed convolution adds to where another one reads from."""
    per_group = w.shape[1] if case.transposed else w.shape[0] // case.groups
    inside, window = x.shape[1] // case.groups, w.shape[2:]
    reach = [d * (k - 1) + 1 for k, d in zip(window, case.dilations)]
    pads = list(zip(case.pads[:3], case.pads[3:]))
    if case.transposed:
        places = x.shape[2:]
        full = [(n - 1) * s + r for n, s, r in zip(places, case.strides, reach)]
        result = np.zeros((x.shape[0], per_group * case.groups, *full))
    else:
        x = np.pad(x, [(0, 0), (0, 0), *pads])
        places = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, case.strides)]
        result = np.zeros((x.shape[0], w.shape[0], *places))
    for group, place in itertools.product(range(case.groups), itertools.product(*map(range, window))):
        rows, columns = (slice(group * n, (group + 1) * n) for n in (per_group, inside))
        at = tuple(slice(p * d, p * d + (n - 1) * s + 1, s)
                   for p, d, n, s in zip(place, case.dilations, places, case.strides))  # fmt: skip
        if case.transposed:
            result[(slice(None), rows, *at)] += np.einsum("nczyx,co->nozyx", x[:, columns], w[(columns, ..., *place)])
        else:
            result[:, rows] += np.einsum("nczyx,oc->nozyx", x[(slice(None), columns, *at)], w[(rows, ..., *place)])
    if case.transposed:
        result = result[(..., *(slice(a, n - b) for (a, b), n in zip(pads, result.shape[2:])))]
    return result


def differing(case):
    random = np.random.default_rng(0)
    x, w = (random.integers(-9, 10, shape).astype(np.float32) for shape in (case.image, case.weights))
    channels = case.weights[1] * case.groups if case.transposed else case.weights[0]
    b = random.integers(-9, 10, channels).astype(np.float32)
    z = random.integers(-9, 10, (1, channels, 1, 1, 1)).astype(np.float32)
    expected = np.maximum(sums(x, w, case) + b.reshape(-1, 1, 1, 1) + z, 0)
    made = model(case, w, b)
    results = [Engine(made, threads=threads).run({"x": x, "z": z})["y"] for threads in (1, 3)]
    return sum(int((result != expected).sum()) for result in results)


def same_bits(case):
    """On one thread and on three, of any numbers."""
    random = np.random.default_rng(1)
    w = random.standard_normal(case.weights).astype(np.float32)
    channels = case.weights[1] * case.groups if case.transposed else case.weights[0]
    made = model(case, w, random.standard_normal(channels).astype(np.float32))
    feeds = {"x": random.standard_normal(case.image).astype(np.float32),
             "z": random.standard_normal((1, channels, 1, 1, 1)).astype(np.float32)}  # fmt: skip
    one, three = (Engine(made, threads=threads).run(feeds)["y"] for threads in (1, 3))
    return one.tobytes() == three.tobytes()


if __name__ == "__main__":
    print([differing(case) for case in CASES], all(same_bits(case) for case in CASES))


@pytest.mark.parametrize("isa", instruction_sets.parameters())
def test_exact_sums(isa):
    done = instruction_sets.output_of(__file__, isa)
    assert done.stdout.strip() == f"{[0] * len(CASES)} True", done.stderr
