"""What no choice of precisions changes: types, shapes, constants, and which layers are numeric."""

from __future__ import annotations

import typing

from . import operators
from .model import Graph, Node
from .operators_pointwise import POINTWISE
from .values import FLOATS, T, Value

#: Inputs that say how, not what: their values steer a layer and are no operands of it.
PARAMETERS: dict[str, set[int]] = {
    "Reshape": {1}, "Expand": {1}, "Slice": {1, 2, 3, 4}, "Tile": {1}, "Pad": {1, 3}, "Resize": {1, 2, 3},
    "Upsample": {1}, "Squeeze": {1}, "Unsqueeze": {1}, "Split": {1}, "TopK": {1}, "ConstantOfShape": {0},
    "OneHot": {1}, "CumSum": {1}, "Trilu": {1}, "Dropout": {1, 2}, "QuantizeLinear": {1, 2},
    "DequantizeLinear": {1, 2}, **{op: {1} for op in (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
        "ReduceLogSum", "ReduceLogSumExp")},
}  # fmt: skip
#: Parameters whose values decide the shape of the output.
SHAPING = {op: inputs for op, inputs in PARAMETERS.items() if op not in (
    "Dropout", "QuantizeLinear", "DequantizeLinear", "CumSum", "Trilu")} | {"Range": {0, 1, 2}}  # fmt: skip
#: Their output has the shape of their first input, whatever is known of the others.
OF_FIRST = {
    "Clip", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "InstanceNormalization",
    "GroupNormalization", "BatchNormalization", "Scatter", "ScatterElements", "ScatterND", "TensorScatter", "CumSum",
    "Trilu", "Dropout", "CastLike",
}  # fmt: skip
#: The shapes of their outputs are known at run time only.
OPEN = {"NonZero", "Unique", "Compress", "NonMaxSuppression", "If", "Loop", "Scan"}
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
#: What makes integers that are values in another form.
QUANTIZERS = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger"}

Body = typing.Callable[[Node, dict[str, Value]], list[Value]]


def is_compute(node: Node) -> bool:
    """Float arithmetic with a precision of its own."""
    return node.op not in operators.MOVEMENT and node.op not in operators.FIXED


class Specialization:
    """A graph for these inputs. `body` runs If, Loop and Scan in plain float32."""

    def __init__(self, graph: Graph, feeds: dict[str, Value], body: Body):
        self.graph = graph
        self.types: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...] | None] = {}
        self.constants = dict(graph.constants)
        self.folded: set[int] = set()
        self.producer = {output: i for i, node in enumerate(graph.nodes) for output in node.outputs if output}
        values = dict(feeds)
        for name, value in [*feeds.items(), *self.constants.items()]:
            self.types[name], self.shapes[name] = value.type, value.shape
        for i, node in enumerate(graph.nodes):
            self._visit(i, node, values, body)
        #: Layers that are evaluated when the plan is made read nothing when it runs.
        self.readers = {name: [i for i in layers if i not in self.folded] for name, layers in graph.readers().items()}
        self.outputs = set(graph.outputs)
        self.numeric = self._numeric()

    def _visit(self, i: int, node: Node, values: dict[str, Value], body: Body) -> None:
        operands = [None if not name else self.constants.get(name, values.get(name)) for name in node.inputs]
        if node.op in operators.CONTROL:
            outputs = body(node, {**values, **self.constants})
        else:
            outputs = operators.compute(node, operands)
        known = all(name in self.constants for name in node.all_inputs)
        if node.op in ("Shape", "Size"):
            known = known or self.shapes[node.inputs[0]] is not None
        constant = known and node.op not in RANDOM and node.op not in operators.CONTROL
        if constant:
            self.folded.add(i)
        deciding = node.inputs[:1] if node.op in OF_FIRST else [] if node.op == "Size" else node.all_inputs
        static = node.op not in OPEN and all(self.shapes[name] is not None for name in deciding)
        for at in SHAPING.get(node.op, ()):
            static = static and (not node.reads(at) or node.inputs[at] in self.constants)
        for name, value in zip(node.outputs, outputs):
            if not name:
                continue
            self.types[name], self.shapes[name] = value.type, value.shape if static or constant else None
            (self.constants if constant else values)[name] = value

    def is_float(self, name: str) -> bool:
        """A float that can be stored in a narrower type."""
        return self.types[name] in FLOATS and self.types[name] != T.DOUBLE

    def _quantized(self) -> set[str]:
        result: set[str] = set()
        for node in self.graph.nodes:
            keeps = node.op in operators.MOVEMENT or (node.domain, node.op) in POINTWISE
            if node.op in QUANTIZERS or (keeps and any(name in result for name in node.inputs)):
                result |= {o for o in node.outputs if o and self.types[o] not in FLOATS and self.types[o] != T.BOOL}
        return result

    def _numeric(self) -> list[bool]:
        """Per layer: float arithmetic whose values reach an output as floats, as bools that select among floats, or as
        integers that are handed out themselves."""
        reaches, quantized = set(self.graph.outputs), self._quantized()
        numeric = [False] * len(self.graph.nodes)
        for i in reversed(range(len(self.graph.nodes))):
            node = self.graph.nodes[i]
            useful = [o for o in node.outputs if o in reaches]
            if not useful:
                continue
            floats = any(self.types[o] in FLOATS for o in useful)
            lowerable = any(self.is_float(o) for o in useful)
            decides = any(self.types[o] == T.BOOL for o in useful)
            reads_floats = any(self.is_float(name) for name in node.all_inputs)
            control = node.op in operators.CONTROL
            numeric[i] = (
                (is_compute(node) or control) and (lowerable or (decides and reads_floats)) and i not in self.folded
            )
            for at, name in enumerate([*node.inputs, *node.captured]):
                if not name or (at < len(node.inputs) and at in PARAMETERS.get(node.op, ())):
                    continue
                passes = control or not floats or self.types[name] in FLOATS or self.types[name] == T.BOOL
                if passes or name in quantized or (node.op == "DequantizeLinear" and at == 0):
                    reaches.add(name)
        return numeric
