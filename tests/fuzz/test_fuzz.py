"""Random graphs, the same ones every time; and the generator and the shrinker themselves."""

from __future__ import annotations

import itertools
import math
import os
import pathlib

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as N

import instruction_sets
from fuzz.generator import generate
from fuzz.graph import Graph, onnxruntime_run
from fuzz.judge import Judge, close
from fuzz.pointwise import PARAMETRIC, UNARY
from fuzz.reductions import OTHER, PLAIN
from fuzz.run import run_graphs, shrunk_failures
from fuzz.shrink import settled, shrink, tensor_values

COUNT = int(os.environ.get("ULPSCOPE_FUZZ_COUNT", "500"))
SEED = 1_000_000

EXPECTED = {
    *UNARY, *PARAMETRIC, *PLAIN, *OTHER, "Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Min", "Max", "Sum", "Mean", "Gelu",
    "Clip", "Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
    "InstanceNormalization", "GroupNormalization", "BatchNormalization", "MatMul", "Gemm", "Einsum", "Conv",
    "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize", "Upsample", "Concat", "Split", "Slice",
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Gather", "Expand", "Tile", "Pad",
    "Where", "Cast", "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "If", "Loop",
    "Scan", "FastGelu", "QuickGelu", "BiasGelu", "SkipLayerNormalization", "Attention", "Mod", "NonZero", "Trilu",
    "GatherElements", "GatherND", "ScatterElements", "ScatterND", "CumSum", "TopK", "OneHot", "Range", "BitShift", "LSTM",
    "GRU", "RNN", "RotaryEmbedding", "Unique", "Compress", "ConvInteger", "CenterCropPad", "Xor", "QLinearAdd",
    "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QLinearGlobalAveragePool", "QGemm",
}  # fmt: skip


@pytest.mark.parametrize("instructions", instruction_sets.parameters())
def test_graphs(instructions: str, tmp_path: pathlib.Path) -> None:
    settings = instruction_sets.settings(instructions)
    summary = run_graphs(SEED, COUNT, max(1, min(4, os.cpu_count() or 1)), settings=settings)
    assert summary.graphs == COUNT
    if not summary.passed:
        pytest.fail(shrunk_failures(summary, tmp_path, settings))


def test_a_set_of_instructions_that_is_none_reaches_the_workers() -> None:
    """As the sets do that test_graphs names."""
    summary = run_graphs(SEED, 2, 1, settings={"ULPSCOPE_ISA": "sse9"})
    texts = [failure["text"] for failures in summary.failures.values() for failure in failures]
    assert len(summary.failures) == 2 and all("[build] ULPSCOPE_ISA: expected baseline" in text for text in texts), (
        texts
    )


def test_every_operator_occurs() -> None:
    seen = set().union(*(generate(seed).operators for seed in range(1500)))
    assert not EXPECTED - seen


def test_same_seed_same_graph() -> None:
    for seed in range(20):
        assert generate(seed).model() == generate(seed).model()
    assert len({generate(seed).model() for seed in range(20)}) == 20


def test_models_are_valid() -> None:
    for seed in range(100):
        graph = generate(seed)
        if not {"SimplifiedLayerNormalization"} & graph.operators:  # ONNX Runtime's own, in the standard's domain
            onnx.checker.check_model(graph.model_proto())


def test_shrinks_to_the_planted_node() -> None:
    def fails(candidate: Graph) -> bool:
        return any(node.op_type == "Softmax" for node in candidate.nodes)

    seeds = [seed for seed in range(400) if fails(generate(seed)) and len(generate(seed).nodes) > 8][:3]
    assert seeds
    for seed in seeds:
        small = shrink(settled(generate(seed)), fails, math.inf)
        assert [node.op_type for node in small.nodes] == ["Softmax"], small.listing()
        assert all(value.size <= 8 for feed in small.feeds for value in feed.values()), small.listing()


def test_shrinks_to_two_nodes_and_their_values() -> None:
    """A defect that needs a Tanh of values above 1 that a Mul made."""

    def fails(candidate: Graph) -> bool:
        values = tensor_values(candidate)
        made = {name for node in candidate.nodes if node.op_type == "Mul" for name in node.output}
        return any(
            node.op_type == "Tanh" and node.input[0] in made and any((v > 1).any() for v in values[node.input[0]])
            for node in candidate.nodes
        )

    seed = next(seed for seed in range(3000) if fails(generate(seed)) and len(generate(seed).nodes) > 4)
    small = shrink(settled(generate(seed)), fails, math.inf)
    assert sorted(node.op_type for node in small.nodes) == ["Mul", "Tanh"], small.listing()


def test_judge_sees_wrong_numbers() -> None:
    """An output whose largest element moves by a thousandth is wrong, ONNX Runtime's own is right."""
    caught = total = 0
    for seed in range(60):
        graph = generate(seed)
        judge = Judge(graph, graph.feeds[0])
        outputs = onnxruntime_run(graph.model(), graph.feeds[0])
        assert judge.fault(outputs) == ""
        for i, output in enumerate(outputs):
            if output.dtype == np.float32 and output.size and np.isfinite(output).all() and np.abs(output).max() > 0.01:
                wrong = output.copy()
                wrong.reshape(-1)[np.abs(output).argmax()] *= 1.001
                assert not close(wrong, output)
                total += 1
                caught += judge.fault([*outputs[:i], wrong, *outputs[i + 1 :]]) != ""
    assert total > 50 and caught >= 0.9 * total, f"{caught} of {total}"


@pytest.mark.parametrize("op", ["MaxPool", "ArgMax", "TopK"])
def test_judge_lets_any_of_almost_equal_values_be_chosen(op: str) -> None:
    """(x + a) - a is almost x, in float32. Of six x that are equal any may be the largest; one that is less may not."""
    x, a = np.full((1, 8, 4, 4), 5, np.float32), np.linspace(1, 2, 128, dtype=np.float32).reshape(1, 8, 4, 4)
    x.reshape(8, 16)[:, :6] = 8.1
    images = [N("Reshape", ["o", "image"], ["y"])]
    rows = [N("Flatten", ["d"], ["r"], axis=2)]
    choices = {
        "MaxPool": [N("MaxPool", ["d"], ["m", "i"], kernel_shape=[4, 4]),
                    N("MaxUnpool", ["m", "i"], ["y"], kernel_shape=[4, 4])],
        "ArgMax": [*rows, N("ArgMax", ["r"], ["i"], axis=1, keepdims=0),
                   N("OneHot", ["i", "size", "offon"], ["o"]), *images],
        "TopK": [*rows, N("TopK", ["r", "one"], ["m", "k"]), N("Squeeze", ["k", "last"], ["i"]),
                 N("OneHot", ["i", "size", "offon"], ["o"]), *images],
    }  # fmt: skip
    constants = {
        "size": np.int64(16), "offon": np.float32([0, 8.1]), "one": np.int64([1]), "last": np.int64([1]),
        "image": np.int64([1, 8, 4, 4]),
    }  # fmt: skip
    nodes = [N("Add", ["x", "a"], ["s"]), N("Sub", ["s", "a"], ["d"]), *choices[op]]
    graph = Graph(0, 17, nodes, [{"x": x, "a": a}], constants, ["y"], {"y": (onnx.TensorProto.FLOAT, [1, 8, 4, 4])})
    judge = Judge(graph, graph.feeds[0])
    for channel, place in itertools.product(range(8), range(16)):
        chosen = np.zeros((8, 16), np.float32)
        chosen[:, 0] = 8.1
        chosen[channel] = 0
        chosen[channel, place] = 8.1
        wrong = judge.fault([chosen.reshape(x.shape)])
        assert bool(wrong) == (place >= 6), (channel, place, wrong)
