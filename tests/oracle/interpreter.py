"""Runs a network under the rules: values inside of groups, stored values, bodies of control flow."""

from __future__ import annotations

import functools
import typing

import numpy as np
import onnx

from . import operators
from .assign import Assignment, assign
from .grouping import ROW, Grouping, is_scale_shift
from .integers import Integers
from .judge import Outcome
from .model import Graph, Node, from_array, read_model
from .rounding import EPSILON, is_exact, round_to
from .specialize import PARAMETERS, Specialization, is_compute
from .values import TYPE_OF, T, Unsupported, Value, corners, kept, moved_by_noise, noise, result, rounded

LEVELS = ("none", "pointwise", "full")
RULES = ("normalized", "flash")  #: Of attention.


class Choice(typing.NamedTuple):
    """How bodies run."""

    precision: str
    level: str
    requested: dict[str, str] | None = None
    attention: str = "normalized"


class Network:
    """A graph for certain input shapes, kept for all precisions and levels."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._specializations: dict[typing.Any, Specialization] = {}
        self._bodies: dict[int, Network] = {}

    def body(self, graph: Graph) -> Network:
        return self._bodies.setdefault(id(graph), Network(graph))

    def specialization(self, feeds: dict[str, Value]) -> Specialization:
        key = tuple((name, value.type, value.shape) for name, value in sorted(feeds.items()))
        if key not in self._specializations:
            plain = lambda node, scope: self.control(node, scope, Choice("fp32", "none"))
            self._specializations[key] = Specialization(self.graph, feeds, plain)
        return self._specializations[key]

    def run(
        self,
        feeds: dict[str, Value],
        precision: str,
        level: str,
        requested: dict[str, str] | None = None,
        attention: str = "normalized",
    ) -> list[Value]:
        """The outputs, in the types that the file declares."""
        spec = self.specialization(feeds)
        assignment = assign(spec, precision, requested)
        integers = Integers(spec, assignment, precision)
        grouping = Grouping(spec, assignment, level, integers)
        run = _Run(self, spec, assignment, grouping, integers, level, requested, attention)
        try:
            return run.run(feeds)
        except ValueError as error:
            if None not in spec.shapes.values():
                raise
            raise Unsupported(f"shapes that values decide do not fit in {precision}: {error}") from None

    def groups(
        self, feeds: dict[str, Value], precision: str, level: str, requested: dict[str, str] | None
    ) -> list[list[str]]:
        spec = self.specialization(feeds)
        assignment = assign(spec, precision, requested)
        return Grouping(spec, assignment, level, Integers(spec, assignment, precision)).names()

    # Bodies --------------------------------------------------------------------------------------------------------

    def control(self, node: Node, scope: dict[str, Value], choice: Choice) -> list[Value]:
        """If, Loop and Scan, whose bodies run as networks of their own."""
        if node.op == "If":
            condition = scope[node.inputs[0]]
            if condition.e is not None:
                raise Unsupported("a condition that may be either")
            branch = node.get("then_branch") if bool(condition.v.reshape(())) else node.get("else_branch")
            return self._run_body(node, branch, [], scope, choice)
        if node.op == "Loop":
            return self._loop(node, scope, choice)
        return self._scan(node, scope, choice)

    def _run_body(
        self, node: Node, graph: Graph, formals: list[Value], scope: dict[str, Value], choice: Choice
    ) -> list[Value]:
        """What comes in and goes out has the declared type. Layers that nothing is asked of take what the one that runs
        them was asked."""
        feeds = dict(zip(graph.inputs, formals)) | {name: scope[name] for name in graph.free}
        asked = dict(choice.requested or {})
        if node.name in asked:
            inside = [n.name for n in graph.nodes if is_compute(n) or n.op in operators.CONTROL]
            asked = dict.fromkeys(inside, asked[node.name]) | asked
        return self.body(graph).run(feeds, choice.precision, choice.level, asked, choice.attention)

    def _loop(self, node: Node, scope: dict[str, Value], choice: Choice) -> list[Value]:
        body: Graph = node.get("body")
        trips = int(scope[node.inputs[0]].v.reshape(())) if node.reads(0) else 1 << 20
        going = bool(scope[node.inputs[1]].v.reshape(())) if node.reads(1) else True
        state = [scope[name] for name in node.inputs[2:]]
        scans: list[list[Value]] = [[] for _ in body.outputs[1 + len(state) :]]
        trip = 0
        while trip < trips and going:
            formals = [Value(np.asarray(trip, np.int64), T.INT64), Value(np.asarray(True), T.BOOL), *state]
            outputs = self._run_body(node, body, formals, scope, choice)
            if outputs[0].e is not None:
                raise Unsupported("a condition that may be either")
            going, state = bool(outputs[0].v.reshape(())), outputs[1 : 1 + len(state)]
            for scan, value in zip(scans, outputs[1 + len(state) :]):
                scan.append(value)
            trip += 1
        if scans and not scans[0]:
            raise Unsupported("a Loop without a trip and with scan outputs")
        stacked = [_stacked(scan, 0) for scan in scans]
        return [*state, *stacked]

    def _scan(self, node: Node, scope: dict[str, Value], choice: Choice) -> list[Value]:
        if node.opset < 9:
            raise Unsupported("Scan before opset 9")
        body: Graph = node.get("body")
        count = node.get("num_scan_inputs")
        values = [scope[name] for name in node.inputs]
        state, scanned = values[: len(values) - count], values[len(values) - count :]
        axes, backwards = node.get("scan_input_axes", [0] * count), node.get("scan_input_directions", [0] * count)
        made = len(body.outputs) - len(state)
        scans: list[list[Value]] = [[] for _ in range(made)]
        trips = scanned[0].shape[axes[0]]
        for trip in range(trips):
            at = [trips - 1 - trip if back else trip for back in backwards]
            slices = [x.moved(lambda a, i=i, axis=axis: np.take(a, i, axis)) for x, i, axis in zip(scanned, at, axes)]
            outputs = self._run_body(node, body, [*state, *slices], scope, choice)
            state = outputs[: len(state)]
            for scan, value in zip(scans, outputs[len(state) :]):
                scan.append(value)
        if trips == 0 and made:
            raise Unsupported("a Scan without a trip")
        out_axes, reversed_ = node.get("scan_output_axes", [0] * made), node.get("scan_output_directions", [0] * made)
        return [*state, *[_stacked(s[::-1] if back else s, axis) for s, axis, back in zip(scans, out_axes, reversed_)]]


def _stacked(parts: list[Value], axis: int) -> Value:
    e = np.stack([v.bound() for v in parts], axis)
    return Value(np.stack([v.v for v in parts], axis), parts[0].type, kept(e))


class _Run:
    def __init__(
        self,
        network: Network,
        spec: Specialization,
        assignment: Assignment,
        grouping: Grouping,
        integers: Integers,
        level: str,
        requested: dict[str, str] | None,
        attention: str,
    ):
        self.network, self.spec, self.assignment, self.level = network, spec, assignment, level
        self.attention = attention
        self.grouping, self.integers, self.requested = grouping, integers, requested
        self.exact: dict[str, Value] = {}  #: As computed.
        self.stored: dict[str, Value] = {}  #: As stored.
        self.folded: set[int] = set()  #: BatchNormalization layers that went into a convolution.

    def run(self, feeds: dict[str, Value]) -> list[Value]:
        self.exact.update(feeds)
        self.stored.update(feeds)
        for i, node in enumerate(self.spec.graph.nodes):
            if i in self.spec.folded:
                continue
            for name, value in zip(node.outputs, self._outputs(i, node)):
                if name:
                    self._define(name, value)
        return [self._handed_out(name) for name in self.spec.graph.outputs]

    def _define(self, name: str, value: Value) -> None:
        self.exact[name] = value
        self.stored[name] = rounded(value, self.assignment.storage.get(name, "fp32"))

    def _handed_out(self, name: str) -> Value:
        if name in self.spec.constants:
            return rounded(moved_by_noise(self.spec.constants[name]), self.assignment.storage.get(name, "fp32"))
        return self.stored[name]

    def _load_form(self, i: int, index: int) -> str:
        """What the layer rounds this input to."""
        node, precision = self.spec.graph.nodes[i], self.assignment.precision[i]
        if not self.spec.numeric[i] or not is_compute(node) or index in PARAMETERS.get(node.op, ()):
            return "fp32"
        return "fp32" if precision == "tf32" and not operators.is_product(node) else precision

    def _operand(self, i: int, index: int, name: str) -> Value | None:
        if not name:
            return None
        if name in self.spec.constants:
            return rounded(moved_by_noise(self.spec.constants[name]), self._load_form(i, index))
        if self.grouping.is_inside(name, i):
            return self.exact[name]
        form = self._load_form(i, index)
        stored = self.stored[name]
        return stored if is_exact(self.assignment.storage.get(name, "fp32"), form) else rounded(stored, form)

    def _outputs(self, i: int, node: Node) -> list[Value]:
        if node.op in operators.CONTROL:
            scope = {name: self.spec.constants.get(name, self.stored.get(name)) for name in node.all_inputs}
            choice = Choice(self.assignment.precision[i], self.level, self.requested, self.attention)
            return self.network.control(node, scope, choice)
        if self.integers.is_integer(i):
            return [self.integers.compute(i, self.stored)]
        if self.attention == "flash" and self._load_form(i, 0) != "fp32":
            softmax = self.grouping.softmax_before_values(i)
            if softmax is not None:
                return [self._flash(i, node, softmax)]
        operands = [self._operand(i, index, name) for index, name in enumerate(node.inputs)]
        if i in self.folded:
            return [operands[0]]  # type: ignore[list-item]
        if node.op == "Cast" and operands[0] is not None and self.grouping.is_inside(node.inputs[0], i):
            return [operands[0]._replace(type=node.get("to"))]
        normalization = self.grouping.folded_normalization(i)
        if normalization is not None:
            self.folded.add(normalization)
            operands = self._fold(i, node, self.spec.graph.nodes[normalization])
        elif is_scale_shift(self.spec, i) and self.spec.numeric[i]:
            return [self._scale_and_shift(i, node, operands[0])]  # type: ignore[arg-type]
        group = self.grouping.group_of[i]
        loose = group is not None and group.kind != ROW and operators.is_product(self.spec.graph.nodes[group.layers[0]])
        return operators.compute(node, operands, loose)

    # Attention -----------------------------------------------------------------------------------------------------

    def _flash(self, i: int, node: Node, softmax: int) -> Value:
        """Exponentials, rounded, times the values, over the sum of the unrounded ones."""
        before = self.spec.graph.nodes[softmax]
        scores = self._operand(softmax, 0, before.inputs[0])
        assert scores is not None
        exponentials, total = operators.exponentials(before, scores)
        stored = rounded(exponentials, self.assignment.storage.get(node.inputs[0], "fp32"))
        operands = [rounded(stored, self._load_form(i, 0)), self._operand(i, 1, node.inputs[1])]
        (sums,) = operators.compute(node, operands)
        quotient = np.divide(sums.v, total.v)
        # Or times the reciprocal.
        return result(quotient, sums.type, corners(np.divide, [sums, total]), 2 * EPSILON * np.abs(quotient))

    # BatchNormalization --------------------------------------------------------------------------------------------

    def _parameters(self, node: Node, form: str) -> tuple[np.ndarray, np.ndarray]:
        """Scale and shift per channel, computed in double, of parameters in this format."""
        gamma, beta, mean, variance = (round_to(self.spec.constants[name].v, form) for name in node.inputs[1:5])
        scale = gamma / np.sqrt(variance + float(np.float32(node.get("epsilon", 1e-5))))
        return round_to(scale, "fp32"), round_to(beta - mean * scale, "fp32")

    def _scale_and_shift(self, i: int, node: Node, x: Value) -> Value:
        form = self._load_form(i, 0)
        constants = [self.spec.constants[name].v for name in node.inputs[1:5]]
        survives = all(np.all(np.abs(round_to(c, form) - c) <= 2.0**-7 * np.abs(c)) for c in constants)
        scale, shift = self._parameters(node, form if survives else "fp32")
        if not survives:
            scale, shift = round_to(scale, form), round_to(shift, form)
        channels = (-1,) + (1,) * max(0, len(x.shape) - 2)
        scale, shift = scale.reshape(channels), shift.reshape(channels)
        function = lambda v: v * scale + shift
        offsets = np.abs(constants[1]) + np.abs(constants[2]) * np.abs(scale.reshape(-1))
        y = function(x.v)
        own = 2 * EPSILON * (np.abs(x.v * scale) + offsets.reshape(channels))
        # Where shapes are known only as it runs (behind an If, say), differences from the mean are scaled.
        mean = np.abs(constants[2]).reshape(channels)
        differences = 4 * EPSILON * (np.abs(x.v) + mean) * np.abs(scale)
        own = np.maximum(own, differences + EPSILON * (np.abs(constants[1]).reshape(channels) + np.abs(y)))
        return result(y, x.type, corners(function, [x]), own)

    def _fold(self, i: int, node: Node, normalization: Node) -> list[Value | None]:
        """The convolution's operands with scale and shift multiplied in, in float32, and rounded after that."""
        scale, shift = self._parameters(normalization, "fp32")
        weights = self.spec.constants[node.inputs[1]]
        bias = self.spec.constants[node.inputs[2]].v if node.reads(2) else 0.0
        if node.op == "ConvTranspose":
            groups = node.get("group", 1)
            per = weights.shape[0] // groups
            factor = np.repeat(scale.reshape(groups, 1, -1), per, 1).reshape(weights.shape[0], weights.shape[1])
            factor = factor.reshape(*factor.shape, *[1] * (len(weights.shape) - 2))
        else:
            factor = scale.reshape(-1, *[1] * (len(weights.shape) - 1))
        form = self._load_form(i, 1)
        return [
            self._operand(i, 0, node.inputs[0]),
            Value(round_to(round_to(weights.v * factor, "fp32"), form), weights.type),
            Value(round_to(round_to(bias * scale + shift, "fp32"), form), weights.type),
        ]


# The public face ---------------------------------------------------------------------------------------------------

_LAST: list[tuple[bytes, Network]] = []


def _network(model: bytes | onnx.ModelProto) -> Network:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    for known, network in _LAST:
        if known == data:
            return network
    _LAST.insert(0, (data, Network(read_model(data))))
    del _LAST[4:]
    return _LAST[0][1]


def _feeds(network: Network, feeds: dict[str, np.ndarray]) -> dict[str, Value]:
    return {name: from_array(feeds[name], network.graph.input_types[name]) for name in network.graph.inputs}


def run(
    model: bytes | onnx.ModelProto,
    feeds: dict[str, np.ndarray],
    precision: str = "fp32",
    fusion: str = "full",
    layer_precisions: dict[str, str] | None = None,
    attention: str = "normalized",
) -> dict[str, Outcome]:
    """What the rules say that every output of the network is.

    precision: "fp32", "tf32", "fp16" or "bf16", taken wherever a layer has such a form. layer_precisions: layers that
    differ, {name: "float32" | "float16" | "bfloat16"}. fusion: "none", "pointwise" or "full". attention: "normalized"
    or "flash". Raises Unsupported.
    """
    if precision not in (*TYPE_OF, "tf32") or fusion not in LEVELS or attention not in RULES:
        raise ValueError(f"no precision {precision}, fusion {fusion} or attention {attention}")
    network = _network(model)
    given = _feeds(network, feeds)
    with np.errstate(all="ignore"):
        values = network.run(given, precision, fusion, layer_precisions, attention)
    samples: dict[int, list[Value]] = {}

    def sample(output: int, seed: int) -> np.ndarray:
        if seed not in samples:
            with np.errstate(all="ignore"), noise(seed):
                samples[seed] = network.run(given, precision, fusion, layer_precisions, attention)
        return samples[seed][output].v

    return {
        name: Outcome(value.v, value.bound(), value.type, functools.partial(sample, i))
        for i, (name, value) in enumerate(zip(network.graph.outputs, values))
    }


def groups(
    model: bytes | onnx.ModelProto,
    feeds: dict[str, np.ndarray],
    precision: str = "fp32",
    fusion: str = "full",
    layer_precisions: dict[str, str] | None = None,
) -> list[list[str]]:
    """The groups of more than one layer, by the names of their layers."""
    network = _network(model)
    return network.groups(_feeds(network, feeds), precision, fusion, layer_precisions)
