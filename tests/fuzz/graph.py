"""A generated graph: its nodes, what it is fed, and the ONNX model that it is."""

from __future__ import annotations

import dataclasses
import functools
from typing import Dict, Iterable, List, Optional, Set, Tuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

Arrays = Dict[str, np.ndarray]

MICROSOFT = "com.microsoft"


def session_options(optimize: bool = False):
    """One thread, and no graph optimization unless asked for: values of single operators."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def onnxruntime_run(model: bytes, feed: Arrays, optimize: bool = False) -> List[np.ndarray]:
    """The outputs of ONNX Runtime on the CPU."""
    import onnxruntime as ort

    session = ort.InferenceSession(model, _options(optimize), providers=["CPUExecutionProvider"])
    return session.run(None, feed)


@functools.lru_cache(None)
def _options(optimize: bool):
    return session_options(optimize)


def ir_version(opset: int) -> int:
    """An IR version that has the opset and that all readers know."""
    return 8 if opset < 19 else 10 if opset < 23 else 11


def element_type(array: np.ndarray) -> int:
    """The ONNX type of an array's elements."""
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def declaration(arrays: List[np.ndarray], exact: bool) -> Tuple[int, List[Optional[int]]]:
    """The type and the dimensions of a tensor with these values; dimensions that differ, or all, are unknown."""
    sizes = zip(*[array.shape for array in arrays])
    return element_type(arrays[0]), [s[0] if exact and len(set(s)) == 1 else None for s in sizes]


def subgraphs(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    """The bodies of a node."""
    return (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)


def reads(node: onnx.NodeProto) -> Set[str]:
    """All tensors that a node reads, those that its bodies capture included."""
    names = {name for name in node.input if name}
    for body in subgraphs(node):
        inside = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        for inner in body.node:
            names |= reads(inner) - inside
            inside.update(inner.output)
        names |= {value.name for value in body.output} - inside
    return names


@dataclasses.dataclass
class Graph:
    """Nodes in the order of execution with all that they need; `feeds` has one set of inputs per set of shapes."""

    seed: int
    opset: int
    nodes: List[onnx.NodeProto]
    feeds: List[Arrays]
    constants: Arrays
    outputs: List[str]
    declared: Dict[str, Tuple[int, Optional[List[Optional[int]]]]]  #: Element types and dimensions of the outputs.
    exposed: Tuple[str, ...] = ()  #: Constants that are inputs, too, of which they are the defaults.

    @property
    def operators(self) -> Set[str]:
        """The names of all operators, those in bodies included."""
        found: Set[str] = set()

        def visit(nodes: Iterable[onnx.NodeProto]) -> None:
            for node in nodes:
                found.add(node.op_type)
                for body in subgraphs(node):
                    visit(body.node)

        visit(self.nodes)
        return found

    @property
    def has_halves(self) -> bool:
        """Layers compute in float16, where ONNX Runtime rounds at other places than the rules."""
        return any(node.name.endswith("half") for node in self.nodes)

    def model_proto(self) -> onnx.ModelProto:
        """The model. Dimensions that differ between feeds are symbolic."""
        inputs = []
        for name in self.feeds[0]:
            shapes = [feed[name].shape for feed in self.feeds]
            dims = [sizes[0] if len(set(sizes)) == 1 else f"{name}_{d}" for d, sizes in enumerate(zip(*shapes))]
            inputs.append(helper.make_tensor_value_info(name, element_type(self.feeds[0][name]), dims))
        for name in self.exposed:
            value = self.constants[name]
            inputs.append(helper.make_tensor_value_info(name, element_type(value), value.shape))
        outputs = [helper.make_tensor_value_info(name, *self.declared[name]) for name in self.outputs]
        initializers = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        body = helper.make_graph(self.nodes, "fuzz", inputs, outputs, initializers)
        imports = [helper.make_opsetid("", self.opset)]
        if any(node.domain == MICROSOFT for node in all_nodes(self.nodes)):
            imports.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(body, opset_imports=imports, ir_version=ir_version(self.opset))

    def model(self) -> bytes:
        """The serialized model."""
        return self.model_proto().SerializeToString()

    def pruned(self) -> "Graph":
        """Without what no output needs."""
        needed, nodes = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                nodes.append(node)
                needed |= reads(node)
        return dataclasses.replace(
            self,
            nodes=nodes[::-1],
            feeds=[{name: value for name, value in feed.items() if name in needed} for feed in self.feeds],
            constants={name: value for name, value in self.constants.items() if name in needed},
            exposed=tuple(name for name in self.exposed if name in needed),
        )

    def listing(self) -> str:
        """One line per input, constant, node and output, for people."""
        lines = [f"seed {self.seed}, opset {self.opset}"]
        for name in self.feeds[0]:
            shapes = " or ".join(dict.fromkeys(str(list(feed[name].shape)) for feed in self.feeds))
            lines.append(f"  {name} = input {self.feeds[0][name].dtype} {shapes}")
        for name, value in self.constants.items():
            text = f" {value.tolist()}" if value.size <= 8 else ""
            lines.append(f"  {name} = constant {value.dtype} {list(value.shape)}{text}")
        lines += [f"  {line}" for node in self.nodes for line in _describe(node)]
        lines.append("  outputs " + ", ".join(self.outputs))
        return "\n".join(lines)


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.NodeProto]:
    """The nodes, and those of their bodies."""
    for node in nodes:
        yield node
        for body in subgraphs(node):
            yield from all_nodes(body.node)


def _describe(node: onnx.NodeProto) -> List[str]:
    attributes, bodies = [], []
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            body = attribute.g
            arguments = ", ".join(value.name for value in body.input)
            bodies.append(f"  {attribute.name}({arguments}):")
            for tensor in body.initializer:
                bodies.append(f"    {tensor.name} = constant {list(tensor.dims)}")
            bodies += [f"    {line}" for inner in body.node for line in _describe(inner)]
            bodies.append("    yields " + ", ".join(value.name for value in body.output))
            continue
        value = helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            array = numpy_helper.to_array(value)
            value = array.tolist() if array.size <= 8 else f"{array.dtype} {list(array.shape)}"
        elif isinstance(value, bytes):
            value = value.decode()
        attributes.append(f"{attribute.name}={value}")
    call = f"{node.op_type}({', '.join([*node.input, *attributes])})"
    return [f"{', '.join(node.output)} = {call}", *bodies]
