"""The graph in double arithmetic by onnx.reference, and how far the rounding of float32 may move each of its values.

The bound is not derived but observed: the graph runs again with every float that a layer reads or makes moved by a few
units in the last place of float32, and an element may deviate as far as it then moves. That covers cancellation,
overflow, and elements that stand beside a step (Round, comparisons, QuantizeLinear)."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from .graph import Arrays, Graph, subgraphs
from .reference_ops import OPERATORS

NOISE = 1e-6  #: Of a value: some eight units in the last place of float32.
RUNS = 8
CHOOSERS = {"MaxPool", "ArgMax", "ArgMin", "TopK", "Hardmax"}  #: One of several values that are next to equal.
CHOICES = 64  #: Further runs, which show what else these may choose.
MOVES = {
    "Reshape", "Transpose", "Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Squeeze", "Unsqueeze",
    "Flatten", "Expand", "Tile", "Pad", "Identity", "Where", "Shape", "Size", "Constant", "ConstantOfShape", "TopK",
    "Trilu", "Max", "Min", "Relu", "Neg", "Abs", "Dropout", "DepthToSpace", "SpaceToDepth", "MaxPool", "GlobalMaxPool",
    "ReduceMax", "ReduceMin", "Cast", "ReverseSequence", "Compress", "OneHot", "Range", "Sign", "Clip",
}  # fmt: skip


def _widened(tensor: TensorProto) -> TensorProto:
    if tensor.data_type != TensorProto.FLOAT:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)


def widen(graph: onnx.GraphProto) -> None:
    """float32 becomes float64 in a graph and its bodies: initializers, constants, casts, declared types."""
    for i, tensor in enumerate(graph.initializer):
        graph.initializer[i].CopyFrom(_widened(tensor))
    for info in [*graph.input, *graph.output, *graph.value_info]:
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.type == onnx.AttributeProto.TENSOR:
                attribute.t.CopyFrom(_widened(attribute.t))
            elif attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
        for body in subgraphs(node):
            widen(body)


class Reference:
    """A graph, ready to run in double."""

    def __init__(self, graph: Graph) -> None:
        model = graph.model_proto()
        widen(model.graph)
        self.outputs, self._chooses = graph.outputs, bool(graph.operators & CHOOSERS)
        self._session = ReferenceEvaluator(model, new_ops=OPERATORS)

    def run(self, feed: Arrays, rng: Optional[np.random.Generator] = None, size: float = NOISE) -> List[np.ndarray]:
        """The outputs; with a generator of random numbers, those of the graph disturbed by noise of this size."""
        results: Dict[str, object] = {"": None}
        for name, value in {**feed, **self._session.rt_inits_}.items():
            results[name] = value.astype(np.float64) if value.dtype == np.float32 else value
        with np.errstate(all="ignore"):
            for node in self._session.rt_nodes_:
                kind = node.onnx_node.op_type
                resampled = kind in ("Resize", "Upsample")
                disturbed = rng is not None and kind not in MOVES
                inputs = [results[name] for name in node.input]
                if disturbed:  # The scales of a Resize decide its shape.
                    count = 1 if resampled else len(inputs)
                    inputs = [*(_disturb(value, rng, size, 0.0) for value in inputs[:count]), *inputs[count:]]
                context = {"context": results.copy()} if node.need_context() else {}
                for name, value in zip(node.output, node.run(*inputs, **context)):
                    if isinstance(value, np.ndarray) and value.dtype == np.float32:
                        value = value.astype(np.float64)
                    # The position n is rounded, too, by n 2^-24: so far goes the way between two neighbors.
                    share = 0.06 * max(value.shape) if resampled else 0.1
                    results[name] = _disturb(value, rng, size, max(0.1, share)) if disturbed else value
        return [np.asarray(results[name]) for name in self.outputs]

    def bounds(self, feed: Arrays, seed: int = 0) -> List[Tuple[np.ndarray, np.ndarray]]:
        """Per output its value in double and how far each element may be off, infinite where anything goes."""
        exact, noisy = self.run(feed), self._noisy(feed, seed, range(RUNS))
        return [(value, _spread(value, [run[i] for run in noisy])) for i, value in enumerate(exact)]

    def wider(
        self, bounds: Sequence[Tuple[np.ndarray, np.ndarray]], feed: Arrays, seed: int = 0
    ) -> List[Tuple[np.ndarray, np.ndarray]]:
        """The bounds, and as far as elements move in further runs of a graph that has CHOOSERS: of many values that
        differ by their last bits any may be the largest, and a few runs do not name all."""
        if not self._chooses:
            return list(bounds)
        noisy = self._noisy(feed, seed, range(RUNS, RUNS + CHOICES))
        return [(x, np.maximum(bound, _moved(x, [run[i] for run in noisy]))) for i, (x, bound) in enumerate(bounds)]

    def _noisy(self, feed: Arrays, seed: int, runs: range) -> List[List[np.ndarray]]:
        """In pairs of opposite noise: what stands at a step falls to either side of it."""
        return [self.run(feed, np.random.default_rng([seed, i // 2]), (-1) ** i * NOISE) for i in runs]


def _disturb(value: object, rng: np.random.Generator, size: float, share: float) -> object:
    """Floats moved by up to `size` of themselves, and of `share` of the tensor's usual size."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size == 0:
        return value
    usual = float(np.sqrt(np.mean(np.square(value[np.isfinite(value)])))) if share and np.isfinite(value).any() else 0.0
    moves = size * rng.uniform(-1, 1, (2, *value.shape))
    return value + value * moves[0] + usual * share * moves[1]


def _moved(exact: np.ndarray, noisy: List[np.ndarray]) -> np.ndarray:
    """How far each element goes in any of the runs; anywhere, where the shape is another."""
    if any(run.shape != exact.shape for run in noisy):
        return np.full(exact.shape, np.inf)
    x = exact.astype(np.float64)
    spread = np.zeros(x.shape)
    for run in noisy:
        y = run.astype(np.float64)
        with np.errstate(all="ignore"):
            moved = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        spread = np.maximum(spread, np.where(np.isnan(moved), np.inf, moved))
    return spread


def _spread(exact: np.ndarray, noisy: List[np.ndarray]) -> np.ndarray:
    spread = _moved(exact, noisy)
    # By chance some elements hardly moved: the tensor's usual move is granted to them, too.
    return np.maximum(8 * spread, 4 * np.median(spread)) if spread.size else spread
