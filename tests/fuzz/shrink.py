"""Makes a failing graph small: fewer outputs, nodes and attributes, smaller dimensions, while it still fails."""

from __future__ import annotations

import copy
import dataclasses
import time
from typing import Callable, Dict, Iterator, List, Optional

import numpy as np
from onnx import helper

from .graph import Graph, declaration, onnxruntime_run

Values = Dict[str, List[np.ndarray]]  #: Of every tensor, one per feed.


def tensor_values(graph: Graph) -> Values:
    """The values of all inputs, constants and results, by ONNX Runtime. Raises what it raises."""
    names = [name for node in graph.nodes for name in node.output if name]
    proto = dataclasses.replace(graph, outputs=[]).model_proto()
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    model = proto.SerializeToString()
    runs = [onnxruntime_run(model, feed) for feed in graph.feeds]
    values = {name: [run[i] for run in runs] for i, name in enumerate(names)}
    values.update({name: [feed[name] for feed in graph.feeds] for name in graph.feeds[0]})
    values.update({name: [value] * len(graph.feeds) for name, value in graph.constants.items()})
    return values


def settled(graph: Graph) -> Optional[Graph]:
    """The graph without what nobody needs and with the right types of its outputs; nothing if it does not run."""
    graph = graph.pruned()
    if not graph.nodes or not graph.outputs or not graph.feeds[0]:
        return None
    try:
        values = tensor_values(graph)
    except Exception:  # ONNX Runtime's errors: no valid graph
        return None
    return dataclasses.replace(graph, declared={n: declaration(values[n], False) for n in graph.outputs})


def _fewer_feeds(graph: Graph, values: Values) -> Iterator[Graph]:
    if len(graph.feeds) > 1:
        for feed in graph.feeds:
            yield dataclasses.replace(graph, feeds=[feed])


def _fewer_outputs(graph: Graph, values: Values) -> Iterator[Graph]:
    if len(graph.outputs) > 1:
        for name in graph.outputs:
            yield dataclasses.replace(graph, outputs=[name])
        for name in graph.outputs:
            yield dataclasses.replace(graph, outputs=[n for n in graph.outputs if n != name])


def _earlier_outputs(graph: Graph, values: Values) -> Iterator[Graph]:
    """One value of the middle is the only output."""
    for node in graph.nodes[:-1]:
        for name in node.output:
            if name and name not in graph.outputs:
                yield dataclasses.replace(graph, outputs=[name])


def _cut_off(graph: Graph, values: Values) -> Iterator[Graph]:
    """A node goes; what it made are inputs."""
    for node in reversed(graph.nodes):
        made = [name for name in node.output if name and name not in graph.outputs]
        if not made:
            continue
        feeds = [{**feed, **{n: values[n][i] for n in made}} for i, feed in enumerate(graph.feeds)]
        nodes = [other for other in graph.nodes if other is not node]
        outputs = [name for name in graph.outputs if name not in node.output]
        if outputs:
            yield dataclasses.replace(graph, nodes=nodes, feeds=feeds, outputs=outputs)


def _bypassed(graph: Graph, values: Values) -> Iterator[Graph]:
    """A node goes; its readers read one of its inputs of the same shape and type."""
    for node in graph.nodes:
        if len(node.output) != 1 or node.output[0] in graph.outputs:
            continue
        result = values[node.output[0]]
        for name in dict.fromkeys(node.input):
            same = name and all(a.shape == r.shape and a.dtype == r.dtype for a, r in zip(values[name], result))
            if not same:
                continue
            nodes = []
            for other in graph.nodes:
                if other is node:
                    continue
                other = copy.deepcopy(other)
                for i, read in enumerate(other.input):
                    if read == node.output[0]:
                        other.input[i] = name
                nodes.append(other)
            yield dataclasses.replace(graph, nodes=nodes)


def _simpler_nodes(graph: Graph, values: Values) -> Iterator[Graph]:
    """One attribute or the last input of a node goes."""
    for n, node in enumerate(graph.nodes):
        for a in range(len(node.attribute)):
            simpler = copy.deepcopy(node)
            del simpler.attribute[a]
            yield dataclasses.replace(graph, nodes=[*graph.nodes[:n], simpler, *graph.nodes[n + 1 :]])
        if len(node.input) > 1:
            simpler = copy.deepcopy(node)
            del simpler.input[-1]
            yield dataclasses.replace(graph, nodes=[*graph.nodes[:n], simpler, *graph.nodes[n + 1 :]])


def _smaller_dims(graph: Graph, values: Values) -> Iterator[Graph]:
    """All dimensions of one size become smaller, in inputs, constants, and vectors of int64 that name the size."""
    arrays = [*graph.constants.values(), *(a for feed in graph.feeds for a in feed.values())]
    sizes = sorted({d for a in arrays for d in a.shape if d > 1}, reverse=True)

    def cut(array: np.ndarray, size: int, to: int) -> np.ndarray:
        array = array[tuple(slice(to if d == size else None) for d in array.shape)]
        return np.where(array == size, to, array) if array.dtype == np.int64 else array

    for size in sizes:
        for to in sorted({1, 2, 3, size // 2, size - 1}):
            if 0 < to < size:
                constants = {name: np.asarray(cut(value, size, to)) for name, value in graph.constants.items()}
                feeds = [{name: np.asarray(cut(v, size, to)) for name, v in feed.items()} for feed in graph.feeds]
                yield dataclasses.replace(graph, constants=constants, feeds=feeds)


def _plainer_values(graph: Graph, values: Values) -> Iterator[Graph]:
    """Whole numbers, or ones, instead of random ones."""

    def floats(name: str, array: np.ndarray) -> bool:
        return array.dtype == np.float32 and array.size > 0 and not (array == np.round(array)).all()

    for plain in (np.ones_like, np.round):
        for name, value in graph.constants.items():
            if floats(name, value):
                yield dataclasses.replace(graph, constants={**graph.constants, name: plain(value)})
        for name, value in graph.feeds[0].items():
            if floats(name, value):
                feeds = [{**feed, name: plain(feed[name])} for feed in graph.feeds]
                yield dataclasses.replace(graph, feeds=feeds)


STEPS = [
    _fewer_feeds, _fewer_outputs, _earlier_outputs, _cut_off, _bypassed, _simpler_nodes, _smaller_dims, _plainer_values,
]  # fmt: skip


def shrink(graph: Graph, fails: Callable[[Graph], bool], seconds: float = 60.0) -> Graph:
    """The smallest graph found for which `fails` holds, as it does for `graph`. `fails` gets graphs that ONNX Runtime
    carries out; it may take its time but must return."""
    end = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for step in STEPS:
            smaller = True
            while smaller and time.monotonic() < end:
                smaller = False
                for candidate in step(graph, tensor_values(graph)):
                    if time.monotonic() > end:
                        break
                    candidate = settled(candidate)
                    if candidate is not None and fails(candidate):
                        graph, smaller, changed = candidate, True, True
                        break
    return graph
