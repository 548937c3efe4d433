"""The nodes of an exported model, and the modules in whose forward they ran. Needs no torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import onnx

#: What the exporter of torch.export writes on each node: "['', 'blocks.0', 'blocks.0.norm', 'pow_1']".
SCOPES = "pkg.torch.onnx.name_scopes"
CLASSES = "pkg.torch.onnx.class_hierarchy"

#: Operators that hand values on as they are, in whatever type.
MOVEMENT = frozenset(
    ("Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand", "Flatten", "Gather",
     "GatherElements", "GatherND", "Identity", "Pad", "Range", "Reshape", "Shape", "Size", "Slice", "SpaceToDepth",
     "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze")
)  # fmt: skip


class Use(NamedTuple):
    """A tensor as the input of a node."""

    node: onnx.NodeProto
    input: int


class Graph:
    """The top level of an exported model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.nodes = {node.name: node for node in graph.node}
        self.producers = {name: node for node in graph.node for name in node.output if name}
        self.initializers = {each.name: each for each in graph.initializer}
        self.outputs = {each.name for each in graph.output}
        self.uses: dict[str, list[Use]] = {}
        for node in graph.node:
            for i, name in enumerate(node.input):
                self.uses.setdefault(name, []).append(Use(node, i))
        self.modules = {node.name: _module(node) for node in graph.node}
        self._live = self._find_live([each.name for each in graph.input if each.name not in self.initializers])

    def _find_live(self, inputs: list[str]) -> set[str]:
        live = set(inputs)
        for node in self.nodes.values():
            if node.op_type not in ("Shape", "Size") and not live.isdisjoint(node.input):
                live.update(node.output)
        return live

    def is_live(self, tensor: str) -> bool:
        """Whether it depends on the inputs' values."""
        return tensor in self._live

    def module_of(self, node: onnx.NodeProto) -> str:
        return self.modules[node.name]

    def computes(self, node: onnx.NodeProto) -> bool:
        """Whether it is arithmetic on values that depend on the inputs."""
        return node.op_type not in MOVEMENT and any(map(self.is_live, node.output))

    def stored(self, tensor: str) -> str | None:
        """The initializer that a tensor is, in another form at most; None where it is none."""
        while tensor not in self.initializers:
            node = self.producers.get(tensor)
            if node is None or node.op_type not in ("Transpose", "Identity", "Reshape", "Squeeze", "Unsqueeze"):
                return None
            tensor = node.input[0]
        return tensor

    def final_uses(self, use: Use) -> Iterator[Use]:
        """Where the values of a stored tensor go from one of its uses: beyond nodes that only change its form."""
        output = use.node.output[0]
        if use.input != 0 or self.is_live(output) or self.stored(output) is None:
            yield use
            return
        for each in self.uses.get(output, ()):
            yield from self.final_uses(each)

    def literal(self, tensor: str) -> float | None:
        """The number that a tensor is, where it is one number that the code of a forward says; else None."""
        from onnx import numpy_helper

        node = self.producers.get(tensor)
        while node is not None and node.op_type in ("Cast", "CastLike", "Identity", "Expand", "Reshape", "Unsqueeze"):
            tensor = node.input[0]
            node = self.producers.get(tensor)
        if tensor in self.initializers:
            value = numpy_helper.to_array(self.initializers[tensor])
        elif node is not None and node.op_type == "Constant" and node.attribute[0].HasField("t"):
            value = numpy_helper.to_array(node.attribute[0].t)
        else:
            return None
        return float(value.ravel()[0]) if value.size == 1 else None

    def readers(self, tensor: str) -> Iterator[onnx.NodeProto]:
        """The arithmetic that a tensor gets to, beyond movement."""
        seen, open_tensors = {tensor}, [tensor]
        while open_tensors:
            for use in self.uses.get(open_tensors.pop(), ()):
                if self.computes(use.node):
                    yield use.node
                    continue
                for output in use.node.output:
                    if output not in seen:
                        seen.add(output)
                        open_tensors.append(output)

    def between(self, names: set[str]) -> set[str]:
        """These nodes and all that lie on paths from one to another."""
        forward = self._reached(
            names, lambda node: [use.node for name in node.output for use in self.uses.get(name, ())]
        )
        backward = self._reached(
            names, lambda node: [self.producers[name] for name in node.input if name in self.producers]
        )
        return names | (forward & backward)

    def _reached(self, names: set[str], follow: Any) -> set[str]:
        seen: set[str] = set()
        open_nodes = [self.nodes[name] for name in names]
        while open_nodes:
            for node in follow(open_nodes.pop()):
                if node.name not in seen:
                    seen.add(node.name)
                    open_nodes.append(node)
        return seen


def _property(node: onnx.NodeProto, key: str) -> list[str]:
    for each in node.metadata_props:
        if each.key == key:
            return [str(part) for part in ast.literal_eval(each.value)]
    return []


def _module(node: onnx.NodeProto) -> str:
    """The innermost module; calls beyond the first of one module are told apart by "@1", "@2", ... ."""
    scopes = _property(node, SCOPES)[:-1]
    return ".".join(part.partition("@")[0] for part in scopes[-1].split(".")) if scopes else ""


def classes_of(model: onnx.ModelProto) -> dict[str, str]:
    """The class of each module that has nodes of its own: {"blocks.0.norm": "RMSNorm"}."""
    result = {}
    for node in model.graph.node:
        classes = _property(node, CLASSES)[:-1]
        if classes:
            result[_module(node)] = classes[-1].rpartition(".")[2]
    return result


def keep_scopes(model: onnx.ModelProto) -> None:
    """Drops what the exporter writes beside, stack traces with paths of files among it."""
    for node in model.graph.node:
        kept = [(each.key, each.value) for each in node.metadata_props if each.key in (SCOPES, CLASSES)]
        del node.metadata_props[:]
        for key, value in kept:
            node.metadata_props.add(key=key, value=value)


def name_after_modules(model: onnx.ModelProto) -> None:
    """Calls nodes and the tensors that they make after their modules; inputs, outputs and weights keep their names."""
    fixed = {each.name for each in (*model.graph.output, *model.graph.input, *model.graph.initializer)}
    names: dict[str, str] = {}
    for node in model.graph.node:
        module = _module(node)
        path = f"/{module.replace('.', '/')}/" if module else "/"
        node.name = path + node.name.removeprefix("node_")
        names.update({each: path + each for each in node.output if each and each not in fixed})
    for node in model.graph.node:
        _rename(node, names)
    for info in model.graph.value_info:
        info.name = names.get(info.name, info.name)


def _rename(node: onnx.NodeProto, names: dict[str, str]) -> None:
    for tensors in (node.input, node.output):
        for i, each in enumerate(tensors):
            tensors[i] = names.get(each, each)
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            own = {each for inner in body.node for each in inner.output} | {each.name for each in body.input}
            outer = {key: value for key, value in names.items() if key not in own}
            for inner in body.node:
                _rename(inner, outer)
            for output in body.output:
                output.name = outer.get(output.name, output.name)
