"""The ONNX file as the oracle reads it: nodes in order, constants, bodies."""

from __future__ import annotations

import heapq
import typing

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .values import FLOATS, T, Unsupported, Value

NUMPY_TYPES = {
    T.UINT8: np.uint8, T.INT8: np.int8, T.UINT16: np.uint16, T.INT16: np.int16, T.INT32: np.int32,
    T.INT64: np.int64, T.BOOL: np.bool_, T.UINT32: np.uint32, T.UINT64: np.uint64, T.INT4: np.int8, T.UINT4: np.uint8,
}  # fmt: skip
#: Types that only hold values.
STORAGE = {T.FLOAT8E4M3FN, T.FLOAT8E5M2, T.FLOAT4E2M1, T.FLOAT8E8M0}


def from_array(array: np.ndarray, kind: int) -> Value:
    """A tensor of this ONNX type."""
    if kind in FLOATS or kind in STORAGE:
        return Value(np.asarray(array).astype(np.float64), kind)
    if kind in NUMPY_TYPES:
        return Value(np.asarray(array).astype(NUMPY_TYPES[kind]), kind)
    raise Unsupported(f"tensors of type {T.DataType.Name(kind)}")


def from_tensor(tensor: onnx.TensorProto) -> Value:
    return from_array(numpy_helper.to_array(tensor), tensor.data_type)


class Node(typing.NamedTuple):
    name: str
    op: str
    domain: str  #: "" is ai.onnx
    opset: int
    attributes: dict[str, typing.Any]  #: Tensors are Values, graphs Graphs.
    inputs: list[str]  #: Trailing absent ones removed.
    outputs: list[str]
    captured: list[str]  #: What its bodies read from around them.

    def get(self, name: str, absent: typing.Any = None) -> typing.Any:
        return self.attributes.get(name, absent)

    def reads(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] != ""

    @property
    def all_inputs(self) -> list[str]:
        return [name for name in [*self.inputs, *self.captured] if name]


class Graph:
    """One graph: the network, or the body of a control-flow node."""

    def __init__(self, proto: onnx.GraphProto, opsets: dict[str, int], outer: dict[str, Value] | None = None):
        self.constants: dict[str, Value] = {}
        self.outer_constants = dict(outer or {})
        self.declared = {info.name: info.type.tensor_type.elem_type for info in [*proto.value_info, *proto.output]}
        for tensor in proto.initializer:
            self.constants[tensor.name] = from_tensor(tensor)
        names = set(self.constants)
        self.inputs = [i.name for i in proto.input if i.name not in names]
        self.input_types = {i.name: i.type.tensor_type.elem_type for i in proto.input}
        self.outputs = [o.name for o in proto.output]
        visible = {**self.outer_constants, **self.constants}
        for name in self.inputs:
            visible.pop(name, None)
        for node in proto.node:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                visible[node.output[0]] = self.constants[node.output[0]] = _constant(node)
        self.visible_constants = visible
        self.nodes = [self._node(n, opsets) for n in _sorted(proto) if n.op_type != "Constant"]
        own = {*self.inputs, *self.constants, *(o for n in self.nodes for o in n.outputs)}
        read = [name for node in self.nodes for name in node.all_inputs] + self.outputs
        #: Values of the surrounding graphs; constants among them are constants here.
        self.free = [name for name in dict.fromkeys(read) if name not in own and name not in self.outer_constants]
        for name in read:
            if name not in own and name in self.outer_constants:
                self.constants[name] = self.outer_constants[name]

    def _node(self, proto: onnx.NodeProto, opsets: dict[str, int]) -> Node:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        attributes: dict[str, typing.Any] = {}
        captured: list[str] = []
        for attribute in proto.attribute:
            value = helper.get_attribute_value(attribute)
            if attribute.type == onnx.AttributeProto.GRAPH:
                value = Graph(value, opsets, self.visible_constants)
                captured += value.free
            elif attribute.type == onnx.AttributeProto.TENSOR:
                value = from_tensor(value)
            elif isinstance(value, bytes):
                value = value.decode()
            elif attribute.type == onnx.AttributeProto.STRINGS:
                value = [v.decode() for v in value]
            elif attribute.type == onnx.AttributeProto.FLOAT:
                value = float(np.float32(value))
            attributes[attribute.name] = value
        inputs = list(proto.input)
        while inputs and not inputs[-1]:
            inputs.pop()
        name = proto.name or "node_of_" + next((o for o in proto.output if o), proto.op_type)
        return Node(name, proto.op_type, domain, opsets.get(domain, 1), attributes, inputs, list(proto.output),
                    list(dict.fromkeys(captured)))  # fmt: skip

    def readers(self) -> dict[str, list[int]]:
        """Per value the nodes that read it, in order, each once."""
        result: dict[str, list[int]] = {}
        for i, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.all_inputs):
                result.setdefault(name, []).append(i)
        return result


def _constant(node: onnx.NodeProto) -> Value:
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return from_tensor(value)
    if attribute.name in ("value_float", "value_floats"):
        return from_array(np.asarray(value, np.float32), T.FLOAT)
    if attribute.name in ("value_int", "value_ints"):
        return from_array(np.asarray(value, np.int64), T.INT64)
    raise Unsupported(f"Constant with {attribute.name}")


def _free_names(graph: onnx.GraphProto) -> set[str]:
    own = (
        {i.name for i in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
    )
    read = {o.name for o in graph.output}
    for node in graph.node:
        read |= _reads(node)
    return read - own


def _reads(node: onnx.NodeProto) -> set[str]:
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            names |= _free_names(attribute.g)
    return names


def _sorted(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The order of the file, but that every value is computed before it is read."""
    producer = {output: i for i, node in enumerate(graph.node) for output in node.output if output}
    needs = [{producer[name] for name in _reads(node) if name in producer} for node in graph.node]
    feeds: dict[int, list[int]] = {}
    for i, need in enumerate(needs):
        for p in need:
            feeds.setdefault(p, []).append(i)
    waiting = [len(need) for need in needs]
    ready = [i for i, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(graph.node[i])
        for reader in feeds.get(i, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return order


def read_model(model: bytes | onnx.ModelProto) -> Graph:
    """The network of a file. Functions of the model are inlined."""
    proto = onnx.load_model_from_string(model) if isinstance(model, bytes) else model
    if proto.functions:
        from onnx import inliner

        proto = inliner.inline_local_functions(proto)
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    return Graph(proto.graph, opsets)
