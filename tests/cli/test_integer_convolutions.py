"""Convolutions of 8-bit integers: the exact sum, rounded to float32 once, times the scales, plus the bias, whatever
instructions there are. NumPy's integers are the judge."""

import itertools
import pathlib
from typing import Dict, List, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from search_support import outputs_of

SCALE_X = np.float32(0.03)


class Geometry(NamedTuple):
    groups: int
    inputs: int  # Channels of each group.
    outputs: int
    size: List[int]
    kernel: List[int]
    strides: List[int]
    dilations: List[int]
    pads: List[int]  # Begins, then ends.


def any_geometry(generator: np.random.Generator) -> Geometry:
    rank = int(generator.integers(1, 3))
    groups = int(generator.choice([1, 1, 1, 3, 16, 40]))
    depthwise = groups > 3
    channels = [1, 1] if depthwise else [int(generator.choice([1, 3, 4, 16, 33, 130])) for _ in range(2)]
    kernel = [int(generator.integers(1, 6)) for _ in range(rank)]
    dilations = [int(generator.integers(1, 3)) for _ in range(rank)]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    pads = [int(generator.integers(0, span)) for span in spans * 2]
    size = [span + int(generator.integers(0, 12)) for span in spans]
    return Geometry(groups, *channels, size, kernel, [int(generator.integers(1, 4)) for _ in range(rank)], dilations, pads)


def sums_of(x: np.ndarray, weights: np.ndarray, g: Geometry) -> np.ndarray:
    rank = len(g.size)
    padded = np.pad(x.astype(np.int64), [(0, 0), (0, 0), *zip(g.pads[:rank], g.pads[rank:])])
    spans = [(k - 1) * d + 1 for k, d in zip(g.kernel, g.dilations)]
    places = [(n - span) // stride + 1 for n, span, stride in zip(padded.shape[2:], spans, g.strides)]
    result = np.zeros((x.shape[0], g.groups, g.outputs, *places), np.int64)
    by_group = padded.reshape(x.shape[0], g.groups, g.inputs, *padded.shape[2:])
    w = weights.astype(np.int64).reshape(g.groups, g.outputs, g.inputs, *g.kernel)
    for tap in itertools.product(*(range(k) for k in g.kernel)):
        starts = [t * d for t, d in zip(tap, g.dilations)]
        window = tuple(slice(s, s + (p - 1) * stride + 1, stride) for s, p, stride in zip(starts, places, g.strides))
        values = by_group[(slice(None),) * 3 + window]
        result += np.einsum("ngi...,goi->ngo...", values, w[(slice(None),) * 3 + tap])
    return result.reshape(x.shape[0], g.groups * g.outputs, *places)


def save_network(path: pathlib.Path, g: Geometry, batch: int, constants: Dict[str, np.ndarray]) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["xq"], name="quantize"),
        helper.make_node("DequantizeLinear", ["xq", "sx", "z"], ["xd"], name="dequantize"),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], name="weights", axis=0),
        helper.make_node("Conv", ["xd", "wd", "b"], ["y"], name="convolution", group=g.groups, strides=g.strides,
                         dilations=g.dilations, pads=g.pads),
    ]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, g.groups * g.inputs, *g.size]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "integers", ends[:1], ends[1:],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("instructions", ["DEFAULT", "AVX512_CORE", "AVX2"])
@pytest.mark.parametrize("unsigned", [False, True])
def test_sums_are_exact(run, tmp_path, unsigned, instructions):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    generator = np.random.default_rng(seed)
    for _ in range(12):
        g, batch = any_geometry(generator), int(generator.integers(1, 3))
        channels = g.groups * g.outputs
        # Half of the cases have sums far beyond 2^24, if they are long.
        one_sided = bool(generator.integers(2))
        odds = [0.01, 0.01, 0.08, 0.3, 0.6] if one_sided else [0.2] * 5
        likely = generator.choice(np.array([-128, -127, 1, 126, 127], np.int8), (channels, g.inputs, *g.kernel), p=odds)
        integer = np.uint8 if unsigned else np.int8
        limits = np.iinfo(integer)
        constants = {
            "sx": np.array(SCALE_X), "z": np.array(0, integer), "w": likely,
            "sw": generator.uniform(0.001, 0.01, channels).astype(np.float32), "zw": np.zeros(channels, np.int8),
            "b": generator.normal(size=channels).astype(np.float32),
        }
        save_network(tmp_path / "m.onnx", g, batch, constants)
        x = (generator.uniform(0.8 if one_sided else -1.2, 1.2, (batch, g.groups * g.inputs, *g.size)) * limits.max * SCALE_X).astype(np.float32)
        np.savez(tmp_path / "x.npz", x=x)
        result = run("run", "m.onnx", "--trt", "--load-inputs", "x.npz", "--save-outputs", "y.json", "--threads",
                     int(generator.integers(1, 4)), env={"ONEDNN_MAX_CPU_ISA": instructions})
        assert result.code == 0, result
        integers = np.clip(np.round(x / SCALE_X), limits.min, limits.max).astype(np.int64)
        shape = (1, channels) + (1,) * len(g.size)
        expected = sums_of(integers, likely, g).astype(np.float32) * (SCALE_X * constants["sw"]).reshape(shape)
        expected = expected + constants["b"].reshape(shape)
        got = outputs_of(tmp_path / "y.json")[0]["y"]
        assert np.array_equal(got, expected), f"seed {seed}: {g}, batch {batch}"


def test_long_sums(run, tmp_path):
    """Beyond 2^24 float32 holds no odd sums: rounded once, to the nearest even."""
    generator = np.random.default_rng(5)
    g = Geometry(1, 320, 17, [7, 9], [3, 3], [1, 1], [1, 1], [1, 1, 1, 1])
    weights = generator.choice(np.array([-127, 126, 127], np.int8), (17, 320, 3, 3), p=[0.05, 0.15, 0.8])
    constants = {"sx": np.array(SCALE_X), "z": np.array(0, np.int8), "w": weights, "sw": np.full(17, 0.25, np.float32),
                 "zw": np.zeros(17, np.int8), "b": np.zeros(17, np.float32)}
    save_network(tmp_path / "m.onnx", g, 1, constants)
    x = generator.choice(np.float32([-9, 3.75, 9]), (1, 320, 7, 9), p=[0.05, 0.15, 0.8])
    np.savez(tmp_path / "x.npz", x=x)
    result = run("run", "m.onnx", "--trt", "--load-inputs", "x.npz", "--save-outputs", "y.json")
    assert result.code == 0, result
    sums = sums_of(np.clip(np.round(x / SCALE_X), -128, 127), weights, g)
    assert np.abs(sums).max() > 2**24
    assert np.array_equal(outputs_of(tmp_path / "y.json")[0]["y"], sums.astype(np.float32) * (SCALE_X * np.float32(0.25)))
