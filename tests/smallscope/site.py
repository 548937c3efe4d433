"""Where forms put their nodes: a graph that grows from given inputs, with the value of every tensor as it arises."""

from __future__ import annotations

import functools
import hashlib
from typing import Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.graph import MICROSOFT, Graph, element_type, ir_version, onnxruntime_run
from oracle import operators
from oracle.model import Node, from_array
from oracle.values import Unsupported, Value

MAX_ELEMENTS = 40_000
MAX_RANK = 6

Shape = Tuple[int, ...]


class Unfit(Exception):
    """The form has no meaning for these shapes, or no such operator in this opset."""


@functools.lru_cache(None)
def _in_opset(op: str, opset: int) -> bool:
    return onnx.defs.has(op, opset) and not onnx.defs.get_schema(op, opset).deprecated


class Site:
    """A graph under construction. All that forms draw is a function of `seed`.

    positive: all inputs are. shown: of the two sets of inputs, the one whose values `values` has.
    """

    def __init__(
        self,
        opset: int,
        shapes: Sequence[Shape],
        seed: int = 0,
        outer: Optional["Site"] = None,
        positive: bool = False,
        shown: int = 0,
    ) -> None:
        self.opset = opset
        self._positive, self._shown = positive, shown
        self.rng = np.random.default_rng([seed, 27]) if outer is None else outer.rng
        self.nodes: List[onnx.NodeProto] = []
        self.feeds: List[Dict[str, np.ndarray]] = [{}, {}]
        self.constants: Dict[str, np.ndarray] = {}
        self.values: Dict[str, Value] = {} if outer is None else dict(outer.values)
        self._outer = outer
        self._count = 0
        self._seed = seed
        self.sources = [self.input(shape) for shape in shapes]

    # Tensors.

    def need(self, condition: object) -> None:
        """Ends the form unless the condition holds."""
        if not condition:
            raise Unfit

    def shape(self, name: str) -> Shape:
        return self.values[name].shape

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def _name(self, prefix: str) -> str:
        self._count += 1
        inside = "" if self._outer is None else "b"
        return f"{inside}{prefix}{self._count}"

    def numbers(self, shape: Sequence[int], kind: str = "normal") -> np.ndarray:
        """float32 numbers that neither float16 nor bfloat16 holds exactly."""
        if kind == "normal":
            return self.rng.standard_normal(tuple(shape)).astype(np.float32)
        if kind == "small":
            return (0.3 * self.rng.standard_normal(tuple(shape))).astype(np.float32)
        return self.rng.uniform(0.4, 1.9, tuple(shape)).astype(np.float32)

    def input(self, shape: Sequence[int], kind: str = "normal") -> str:
        """A network input. The second set of inputs is positive, so that roots and logarithms have values."""
        if self._outer is not None:
            return self._outer_input(shape, kind)
        name = self._name("x")
        arrays = [self.numbers(shape, "positive" if self._positive else kind), self.numbers(shape, "positive")]
        for feed, array in zip(self.feeds, arrays):
            feed[name] = array
        self.values[name] = from_array(arrays[self._shown], onnx.TensorProto.FLOAT)
        return name

    def _outer_input(self, shape: Sequence[int], kind: str) -> str:
        name = self._outer.input(shape, kind)
        self.values[name] = self._outer.values[name]
        return name

    def constant(self, value: object) -> str:
        """An initializer."""
        array = np.asarray(value)
        name = self._name("c")
        self.constants[name] = array
        self.values[name] = from_array(array, element_type(array))
        return name

    def weights(self, shape: Sequence[int], kind: str = "normal") -> str:
        """A constant of floats."""
        return self.constant(self.numbers(shape, kind))

    def given(self, shape: Sequence[int], constant: bool, kind: str = "normal") -> str:
        """Floats that are constant, or an input of the network."""
        return self.weights(shape, kind) if constant else self.input(shape, kind)

    def ints(self, *numbers: int) -> str:
        """An int64 vector."""
        return self.constant(np.array(numbers, np.int64))

    # Nodes.

    def has(self, op: str, domain: str = "") -> bool:
        """The opset has the operator."""
        return bool(domain) or op == "SimplifiedLayerNormalization" or _in_opset(op, self.opset)

    def node(
        self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes
    ) -> Union[str, Tuple[str, ...]]:
        """Adds a node and returns its output, or a tuple of them. Attributes of None are absent."""
        self.need(self.has(op, domain))
        given = {key: value for key, value in attributes.items() if value is not None}
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        names = [self._name("t") for _ in range(outputs)]
        prefix = "" if self._outer is None else "body/"
        self.nodes.append(helper.make_node(op, inputs, names, name=prefix + names[0], domain=domain, **given))
        for name, value in zip(names, self._computed(op, domain, given, inputs, names)):
            self.values[name] = value
        return names[0] if outputs == 1 else tuple(names)

    def _computed(self, op: str, domain: str, attributes: dict, inputs: Sequence[str], names: List[str]) -> List[Value]:
        read = {key: from_array(numpy_helper.to_array(value), value.data_type)
                if isinstance(value, onnx.TensorProto) else value for key, value in attributes.items()}  # fmt: skip
        node = Node(names[0], op, domain, 1 if domain else self.opset, read, list(inputs), names, [])
        try:
            with np.errstate(all="ignore"):
                values = operators.compute(node, [self.values[name] if name else None for name in inputs])
        except Unsupported:
            return self._by_onnxruntime(inputs)
        except (ValueError, IndexError, ZeroDivisionError, np.exceptions.AxisError) as error:
            raise Unfit(str(error)) from None
        for value in values:
            self.need(value.v.size <= MAX_ELEMENTS and value.v.ndim <= MAX_RANK)
        return [value._replace(e=None) for value in values]

    def _by_onnxruntime(self, inputs: Sequence[str]) -> List[Value]:
        """The values of the last node, which the oracle does not have."""
        arrays = {name: self._array(name) for name in inputs if name}
        self.need(all(array.size for array in arrays.values()))  # It crashes on empty tensors.
        infos = [helper.make_tensor_value_info(name, element_type(a), a.shape) for name, a in arrays.items()]
        node = self.nodes[-1]
        graph = helper.make_graph([node], "one", infos, [helper.make_empty_tensor_value_info(n) for n in node.output])
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version(self.opset))
        try:
            outputs = onnxruntime_run(model.SerializeToString(), arrays)
        except Exception as error:  # ONNX Runtime's own kinds of errors share no base but this.
            raise Unfit(str(error)) from None
        return [from_array(array, element_type(array)) for array in outputs]

    def _array(self, name: str) -> np.ndarray:
        value = self.values[name]
        return np.asarray(value.v, np.float32) if value.is_float else value.v

    def control(self, op: str, inputs: Sequence[str], shapes: Sequence[Shape], **attributes) -> Union[str, Tuple]:
        """A node of control flow, whose outputs are float32 of these shapes."""
        names = [self._name("t") for _ in shapes]
        self.nodes.append(helper.make_node(op, inputs, names, name=names[0], **attributes))
        for name, shape in zip(names, shapes):
            self.need(np.prod(shape) <= MAX_ELEMENTS and len(shape) <= MAX_RANK)
            self.values[name] = from_array(np.zeros(shape, np.float32), onnx.TensorProto.FLOAT)
        return names[0] if len(names) == 1 else tuple(names)

    def body(self) -> "Site":
        """A body that can read all that this graph has."""
        self._count += 1
        inner = Site(self.opset, (), self._seed, self)
        inner._count = 100 * self._count
        return inner

    def as_graph(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str]) -> onnx.GraphProto:
        """What a body has made."""
        tensors = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        infos = [helper.make_tensor_value_info(name, self.values[name].type, None) for name in outputs]
        return helper.make_graph(self.nodes, "body", inputs, infos, tensors)

    # Results.

    @property
    def has_nan(self) -> bool:
        """A value of this set of inputs is NaN."""
        return any(value.is_float and bool(np.isnan(value.v).any()) for value in self.values.values())

    def key(self, outputs: Sequence[str]) -> bytes:
        """Equal for graphs that differ in the values of their constants only."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(repr((self.opset, outputs, [(n, a.shape) for n, a in self.feeds[0].items()])).encode())
        for name, value in self.constants.items():
            exact = value.tolist() if value.dtype.kind != "f" else ""
            digest.update(repr((name, value.shape, value.dtype, exact)).encode())
        for node in self.nodes:
            digest.update(node.SerializeToString())
        return digest.digest()

    def graph(self, number: int, outputs: Sequence[str]) -> Graph:
        """The whole graph, as tests/fuzz has them. Half of them declare the shapes of their outputs."""
        for name in outputs:
            self.need(name not in self.feeds[0] and name not in self.constants)
        declared = {
            name: (self.values[name].type, list(self.shape(name)) if number % 2 else [None] * self.rank(name))
            for name in outputs
        }
        return Graph(number, self.opset, self.nodes, self.feeds, self.constants, list(outputs), declared).pruned()
