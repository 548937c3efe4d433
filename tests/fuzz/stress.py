"""Puts what float16 does not hold into a graph: large sums, squares, masks, infinite bounds. float32 is right all
the same."""

from __future__ import annotations

import dataclasses
from typing import Callable, Dict, List, Optional, Tuple

import numpy as np
import onnx
from onnx import helper

from .generator import generate
from .graph import Arrays, Graph
from .shrink import settled, tensor_values

SHARE = 0.5  #: Of the seeds.


class _Passage:
    """Nodes between a tensor and those who read it."""

    def __init__(self, name: str, value: np.ndarray, rng: np.random.Generator) -> None:
        self.last, self.value, self.rng = name, value, rng
        self.nodes: List[onnx.NodeProto] = []
        self.constants: Arrays = {}
        self._stem = name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        """Its inputs are the last tensor, and these."""
        output = f"{self._stem}_s{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, [self.last, *inputs], [output], name=f"{output}_{op}", **attributes)
        )
        self.last = output
        return output

    def constant(self, value: object) -> str:
        name = f"{self._stem}_k{len(self.constants)}"
        self.constants[name] = np.asarray(value, np.float32)
        return name

    @property
    def largest(self) -> float:
        """Of the values that come in."""
        return max(float(np.abs(self.value).max(initial=0)), 1e-3)


def _grow(p: _Passage) -> None:
    """Up to four times the largest float16, and back."""
    factor = 2.6e5 / p.largest
    p.node("Mul", p.constant(factor))
    p.node("Mul", p.constant(1 / factor))


def _normalize(p: _Passage) -> None:
    """x / |x|, by the square root of squares beyond float16."""
    p.node("Mul", p.constant(p.rng.uniform(500, 3000) / p.largest))
    x = p.last
    p.node("Mul", x)
    p.node("Add", p.constant(1.0))
    root = p.node("Sqrt")
    p.last = x
    p.node("Div", root)


def _cancel(p: _Passage) -> None:
    """x + c - c."""
    c = p.constant(p.rng.choice([100.0, 3000.0, 60000.0]))
    p.node("Add", c)
    p.node("Sub", c)


def _mask(p: _Passage) -> None:
    """Masks ahead of a softmax; the first of each row is not masked."""
    mask = np.where(p.rng.random(p.value.shape) < 0.4, p.rng.choice([-np.inf, -3.4e38, -1e9, -1e4]), 0)
    mask[..., 0] = 0
    p.node("Add", p.constant(mask))
    p.node("Softmax", axis=-1)


def _bounds(p: _Passage) -> None:
    """Bounds that bound nothing."""
    p.node("Max", p.constant(p.rng.choice([-np.inf, -3.4e38, -1e5])))
    p.node("Min", p.constant(p.rng.choice([np.inf, 3.4e38, 1e5])))


def _cap(p: _Passage) -> None:
    """Values of some 20,000 under a bound of 60,000 or none, which other samples may come near to."""
    factor = 2e4 / p.largest
    p.node("Mul", p.constant(factor))
    p.node("Min", p.constant(p.rng.choice([np.inf, 1e6, 6e4])))
    p.node("Mul", p.constant(1 / factor))


FORMS: Tuple[Callable[[_Passage], None], ...] = (_grow, _normalize, _cancel, _mask, _bounds, _cap)
SINCE: Dict[Callable, int] = {_mask: 13, _bounds: 8, _cap: 8}  #: Broadcasts, and a Softmax of one axis.


def _with_passage(graph: Graph, passage: _Passage, name: str, at: int) -> Graph:
    """Layers behind node `at` read what leaves the passage; bodies and outputs stay with what enters."""
    nodes = list(graph.nodes[: at + 1]) + passage.nodes
    for node in graph.nodes[at + 1 :]:
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        for i, read in enumerate(copied.input):
            if read == name:
                copied.input[i] = passage.last
        nodes.append(copied)
    read = any(passage.last in node.input for node in nodes)
    outputs = graph.outputs if read else [*graph.outputs, passage.last]
    return dataclasses.replace(
        graph, nodes=nodes, constants={**graph.constants, **passage.constants}, outputs=outputs
    )


def stressed(graph: Graph, rng: np.random.Generator) -> Optional[Graph]:
    """The graph with one such passage; None where there is no place for it."""
    values = tensor_values(graph)
    places = [
        (at, name)
        for at, node in enumerate(graph.nodes)
        for name in node.output
        if name
        and values[name][0].dtype == np.float32
        and values[name][0].ndim
        and all(v.size and np.isfinite(v).all() for v in values[name])
    ]
    forms = [form for form in FORMS if graph.opset >= SINCE.get(form, 7)]
    if not places:
        return None
    at, name = places[int(rng.integers(len(places)))]
    form = forms[int(rng.integers(len(forms)))]
    static = len({v.shape for v in values[name]}) == 1
    if form is _mask and not static:
        return None
    passage = _Passage(name, values[name][0], rng)
    form(passage)
    return settled(_with_passage(graph, passage, name, at))


def generate_for_pipeline(seed: int) -> Graph:
    """The graph of a seed, every other one with such a passage."""
    graph = generate(seed)
    rng = np.random.default_rng([seed, 78])
    if rng.random() < SHARE:
        return stressed(graph, rng) or graph
    return graph
