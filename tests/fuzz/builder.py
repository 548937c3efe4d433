"""Grows a graph node by node. Every node is carried out by ONNX Runtime as it is added, so a graph is valid by
construction, its shapes are known, and its values stay tame."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .graph import MICROSOFT, Arrays, Graph, declaration, element_type, ir_version, onnxruntime_run, reads

MAX_ELEMENTS = 60_000
MAX_VALUE = 3e4

#: Layers that choose among values. What they make of NaN is not defined: some pass it on, some pass it over.
CHOOSES = {
    "Clip", "GlobalMaxPool", "Hardmax", "Max", "MaxPool", "Min", "PRelu", "ReduceMax", "ReduceMin", "Relu", "Sign",
    "ThresholdedRelu", "Shrink", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish",
}  # fmt: skip

#: ONNX Runtime crashes or hangs on empty tensors (on empty images) in these.
NEEDS_ELEMENTS = {"InstanceNormalization", "GroupNormalization", "Conv", "ConvTranspose", "QLinearConv", "ConvInteger"}

Dims = List[Tuple[int, ...]]  #: Per dimension its size in each feed.


class Rejected(Exception):
    """What was tried is no valid or no useful node; the graph is as it was before the attempt."""


class Builder:
    """The state of a graph that grows. Recipes draw all their choices from `rng`."""

    def __init__(self, seed: int, opset: int, feeds: int = 1, special: bool = False) -> None:
        self.rng = np.random.default_rng([seed, 9])
        self.seed, self.opset, self.num_feeds = seed, opset, feeds
        self.special = special  #: Infinities and NaN are welcome.
        self.limit = MAX_ELEMENTS  #: Elements that a tensor may have.
        self.nodes: List[onnx.NodeProto] = []
        self.values: Dict[str, List[np.ndarray]] = {}  #: Of every tensor, one per feed.
        self.feeds: List[Arrays] = [{} for _ in range(feeds)]
        self.constants: Arrays = {}
        self.outer: Optional[Builder] = None
        self._counter = [0]
        self.floats: List[str] = []

    # Choices.

    def chance(self, probability: float) -> bool:
        """True so often."""
        return bool(self.rng.random() < probability)

    def choice(self, options: Sequence):
        """One of the options, unchanged."""
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """low <= n <= high."""
        return int(self.rng.integers(low, high + 1))

    def has(self, op: str, domain: str = "") -> bool:
        """The opset has the operator."""
        if domain or op == "SimplifiedLayerNormalization":
            return True
        return onnx.defs.has(op, self.opset) and not onnx.defs.get_schema(op, self.opset).deprecated

    def need(self, condition: object) -> None:
        """Ends the recipe unless the condition holds."""
        if not condition:
            raise Rejected

    # Tensors.

    def name(self, prefix: str) -> str:
        self._counter[0] += 1
        return f"{prefix}{self._counter[0]}"

    def dims(self, name: str) -> Dims:
        """The sizes of a tensor's dimensions."""
        return list(zip(*[value.shape for value in self.values[name]]))

    def rank(self, name: str) -> int:
        return self.values[name][0].ndim

    def static(self, name: str) -> bool:
        """All feeds have one shape."""
        return all(len(set(sizes)) == 1 for sizes in self.dims(name))

    def shape(self, name: str) -> Tuple[int, ...]:
        """The shape of a tensor, which must be the same in all feeds."""
        self.need(self.static(name))
        return self.values[name][0].shape

    def numbers(self, shape: Sequence[int], scale: float = 1.0) -> np.ndarray:
        """float32 values: mostly normal, sometimes multiples of a half, with zeros, or with an offset."""
        kind = self.rng.random()
        x = self.rng.standard_normal(tuple(shape))
        if kind < 0.15:
            x = np.round(x * 2) / 2
        elif kind < 0.25:
            x = x * 0.1 + 3
        elif kind < 0.3:
            x = np.where(x < 0, -0.0, x)
        x = (x * scale).astype(np.float32)
        return x

    def activations(self, shape: Sequence[int]) -> np.ndarray:
        """Such numbers for inputs: in special graphs with infinities, NaN, large and tiny ones among them."""
        x = self.numbers(shape)
        if self.special and x.size and self.chance(0.5):
            spots = self.rng.integers(0, x.size, max(1, x.size // 8))
            x.reshape(-1)[spots] = self.rng.choice(np.float32([np.inf, -np.inf, np.nan, 1e18, -0.0, 1e-40]), spots.size)
        return x

    def input(self, dims: Iterable[Union[int, Tuple[int, ...]]], make: Optional[Callable] = None) -> str:
        """A new input of the graph; `make(shape)` gives its values."""
        if self.outer is not None:
            raise Rejected
        sizes = [d if isinstance(d, tuple) else (d,) * self.num_feeds for d in dims]
        name = self.name("x")
        arrays = [np.asarray((make or self.activations)([s[f] for s in sizes])) for f in range(self.num_feeds)]
        self.need(all(a.size <= self.limit for a in arrays))
        for feed, array in zip(self.feeds, arrays):
            feed[name] = array
        self.record(name, arrays)
        return name

    def constant(self, value: object, as_node: Optional[bool] = None) -> str:
        """An initializer, or now and then the output of a Constant node."""
        array = np.asarray(value)
        self.need(array.size <= 10 * self.limit)
        name = self.name("c")
        if as_node is None:
            as_node = self.chance(0.1)
        if as_node:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        else:
            self.constants[name] = array
        self.values[name] = [array] * self.num_feeds
        return name

    def ints(self, *numbers: int, **k) -> str:
        """An int64 vector."""
        return self.constant(np.array(numbers, np.int64), **k)

    def record(self, name: str, arrays: List[np.ndarray]) -> None:
        self.values[name] = arrays
        if arrays[0].dtype == np.float32:
            self.floats.append(name)

    def pick(self, test: Optional[Callable[[str], bool]] = None, dtype: type = np.float32) -> str:
        """A tensor that the graph has, recent ones more often."""
        names = self.floats if dtype == np.float32 else [n for n, v in self.values.items() if v[0].dtype == dtype]
        names = [name for name in names if test is None or test(name)]
        self.need(names)
        if self.chance(0.6):
            return self.choice(names[-2:])
        return self.choice(names)

    def pick_rank(self, low: int, high: int = 9) -> str:
        """A float32 tensor of so many dimensions."""
        return self.pick(lambda name: low <= self.rank(name) <= high)

    # Nodes.

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes):
        """Adds a node and returns its output, or a tuple of them. Inputs may be ""; attributes of None are absent."""
        self.need(self.has(op, domain))
        attributes = {key: value for key, value in attributes.items() if value is not None}
        names = [self.name("t") for _ in range(outputs)]
        node = helper.make_node(op, list(inputs), names, name=names[0] + "_" + op, domain=domain, **attributes)
        results = self._evaluate(node)
        self._check(results)
        self.nodes.append(node)
        for name, arrays in zip(names, results):
            self.record(name, arrays)
        return names[0] if outputs == 1 else tuple(names)

    def _evaluate(self, node: onnx.NodeProto) -> List[List[np.ndarray]]:
        """The outputs of a node, each for every feed."""
        names = sorted(reads(node))
        arrays = [self.values[name] for name in names]
        if node.op_type in NEEDS_ELEMENTS:
            self.need(all(0 not in v.shape[1 if "Conv" in node.op_type else 0 :] for v in self.values[node.input[0]]))
        if node.op_type == "Einsum":  # It divides by sizes.
            self.need(all(v.size for a in arrays for v in a))
        if node.op_type == "LRN":  # ONNX Runtime gives NaN for windows of one channel.
            self.need(helper.get_node_attr_value(node, "size") > 1)
        if node.op_type == "Gemm":  # And forgets beta where the depth is 0.
            axis = 0 if any(a.name == "transA" and a.i for a in node.attribute) else 1
            self.need(all(v.shape[axis] for v in self.values[node.input[0]]))
        if node.op_type == "MatMul":  # ONNX Runtime leaves batches of products of depth 0 as memory was.
            deep = [v.shape[-1] if v.ndim else 1 for v in self.values[node.input[0]]]
            self.need(0 not in deep or all(a[0].ndim <= 2 for a in arrays))
        if self.special and node.op_type in CHOOSES:
            self.need(not any(np.isnan(v).any() for a in arrays for v in a if v.dtype.kind == "f"))
        infos = [
            helper.make_tensor_value_info(name, element_type(a[0]), [None] * a[0].ndim)
            for name, a in zip(names, arrays)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = helper.make_graph([node], "one", infos, outputs)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version(self.opset)).SerializeToString()
        try:
            runs = [onnxruntime_run(model, {n: a[f] for n, a in zip(names, arrays)}) for f in range(self.num_feeds)]
        except Exception as error:  # ONNX Runtime's own kinds of errors share no base but this
            raise Rejected(str(error)) from None
        return [list(values) for values in zip(*runs)]

    def _check(self, results: List[List[np.ndarray]]) -> None:
        for arrays in results:
            for array in arrays:
                if not isinstance(array, np.ndarray) or array.size > self.limit or array.ndim > 7:
                    raise Rejected("size")
                if array.dtype.kind == "f" and array.size and not self.special:
                    if not np.isfinite(array).all() or np.abs(array).max() > MAX_VALUE:
                        raise Rejected("values")

    def child(self) -> "Builder":
        """A builder for a body that can read all that this one has."""
        inner = Builder(self.seed, self.opset, self.num_feeds, self.special)
        inner.rng, inner._counter = self.rng, self._counter
        inner.values, inner.floats = dict(self.values), list(self.floats)
        inner.outer = self
        return inner

    def body(self, inputs: Sequence[str], outputs: Sequence[str], name: str = "body") -> onnx.GraphProto:
        """What this builder of a body has made, as a graph."""

        def info(tensor: str, exact: bool) -> onnx.ValueInfoProto:
            kind, dims = declaration(self.values[tensor], exact)
            return helper.make_tensor_value_info(tensor, kind, dims if exact else None)

        constants = [numpy_helper.from_array(value, key) for key, value in self.constants.items()]
        infos = [info(n, True) for n in inputs], [info(n, False) for n in outputs]
        return helper.make_graph(self.nodes, name, *infos, constants)

    def finish(self) -> Graph:
        """The graph. What nobody reads is an output, as are some of the values that somebody reads."""
        used = set().union(*(reads(node) for node in self.nodes)) if self.nodes else set()
        made = [name for node in self.nodes for name in node.output if name and node.op_type != "Constant"]
        self.need(made)
        outputs = [name for name in made if name not in used or self.chance(0.08)]
        if len(outputs) > 2 and self.chance(0.2):
            outputs.remove(self.choice(outputs))  # Dead code.
        given = [*self.feeds[0], *self.constants]
        if self.chance(0.05):
            outputs.append(self.choice(given))
        exposed = [name for name in self.constants if self.chance(0.3)] if self.chance(0.05) else []
        exact = self.chance(0.3)
        declared = {name: declaration(self.values[name], exact) for name in outputs}
        return Graph(
            self.seed, self.opset, self.nodes, self.feeds, self.constants, outputs, declared, tuple(exposed)
        ).pruned()
