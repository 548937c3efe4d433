"""Recipes of control flow: bodies that capture values of the graph around them."""

from __future__ import annotations

import numpy as np

from .builder import Builder, Rejected
from .products import matrix
from .recipes import operand, recipe


def body_layers(b: Builder, x: str, keep_shape: bool = False) -> str:
    """A few layers on x inside of a body. Constants only: bodies have no inputs of their own."""
    for _ in range(b.integer(1, 4)):
        op = b.choice(["Add", "Mul", "Tanh", "Relu", "Sigmoid", "capture", "Softmax", "MatMul", "ReduceMean"])
        if op in ("Add", "Mul"):
            x = b.node(op, [x, b.constant(b.numbers(b.choice([[], [1]])))])
        elif op == "capture":
            outer = [n for n in b.floats if b.dims(n) == b.dims(x)]
            x = b.node(b.choice(["Add", "Sub"]), [x, b.choice(outer)])
        elif op == "MatMul" and b.rank(x) >= 2:
            k = b.dims(x)[-1]
            if len(set(k)) == 1:
                x = b.node("MatMul", [x, matrix(b, k, k if keep_shape else 3, constant=1.0)])
        elif op == "ReduceMean" and b.rank(x) >= 1 and not keep_shape and b.opset < 18:
            x = b.node("ReduceMean", [x], axes=[b.rank(x) - 1], keepdims=b.choice([0, 1]))
        elif op == "Softmax" and b.rank(x) >= 1:
            x = b.node("Softmax", [x], axis=b.rank(x) - 1)
        elif op in ("Tanh", "Relu", "Sigmoid"):
            x = b.node(op, [x])
    return b.node("Identity", [x]) if b.chance(0.3) else b.node("Tanh", [x])


@recipe(0.8)
def branches(b: Builder) -> None:
    x = b.pick()
    if b.chance(0.5):
        condition = b.input([], lambda shape: np.bool_(b.chance(0.5)))
    else:
        mean = b.node("ReduceMax", [b.node("Abs", [x])], keepdims=0)
        condition = b.node("Greater", [mean, b.constant(np.float32(1))])
    bodies = {}
    for name in ("then_branch", "else_branch"):
        inner = b.child()
        bodies[name] = inner.body([], [body_layers(inner, x)], name)
    y = b.node("If", [condition], **bodies)
    if b.chance(0.6):
        b.node("Add", [y, operand(b, y)])


@recipe(0.8)
def loop(b: Builder) -> None:
    """A Loop that carries one value, captures others, and hands out what it carries at times."""
    x = b.pick()
    count = b.integer(0, 3)
    trips = b.constant(np.int64(count)) if b.chance(0.5) else b.input([], lambda shape: np.int64(count))
    inner = b.child()
    step, keep, state = (inner.name(p) for p in ("i", "k", "s"))
    inner.record(step, [np.asarray(np.int64(0))] * b.num_feeds)
    inner.record(keep, [np.asarray(True)] * b.num_feeds)
    inner.record(state, b.values[x])
    y = body_layers(inner, state, keep_shape=True)
    if inner.dims(y) != b.dims(x):
        raise Rejected
    go_on = inner.node("Identity", [keep])
    outputs = [go_on, y]
    if b.chance(0.5):
        outputs.append(inner.node("Neg", [y]))
    graph = inner.body([step, keep, state], outputs, "loop_body")
    results = b.node("Loop", [trips, "", x], outputs=len(outputs) - 1, body=graph)
    first = results if isinstance(results, str) else results[0]
    if b.chance(0.6):
        b.node("Mul", [first, operand(b, first)])


@recipe(0.4)
def scan(b: Builder) -> None:
    """A running sum over the first axis, with layers in between."""
    b.need(b.opset >= 9)
    x = b.pick_rank(2, 4)
    b.need(all(v.size for v in b.values[x]))
    inner = b.child()
    state, element = inner.name("s"), inner.name("e")
    inner.record(state, [np.zeros(v.shape[1:], np.float32) for v in b.values[x]])
    inner.record(element, [v[0] for v in b.values[x]])
    total = inner.node("Add", [state, element])
    result = inner.node(b.choice(["Tanh", "Relu", "Neg"]), [total])
    graph = inner.body([state, element], [total, result], "scan_body")
    start = b.input(b.dims(x)[1:])
    b.node("Scan", [start, x], outputs=2, body=graph, num_scan_inputs=1)
