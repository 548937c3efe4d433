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


@recipe(0.6)
def nested(b: Builder) -> None:
    """An If in an If or in a Loop: values are captured from two graphs outside."""
    x = b.pick()
    first = b.input([], lambda shape: np.bool_(b.chance(0.5)))
    middle = b.child()
    inside = body_layers(middle, x)
    second = middle.node("Greater", [middle.node("ReduceMax", [inside], keepdims=0), middle.constant(np.float32(0.2))])
    bodies = {}
    for name in ("then_branch", "else_branch"):
        inner = middle.child()
        own = inner.node("Add", [body_layers(inner, inside, keep_shape=True), inside])
        bodies[name] = inner.body([], [inner.node("Mul", [own, own])], name)
    y = middle.node("Neg", [middle.node("If", [second], **bodies)])
    other = b.child()
    branches_ = {"then_branch": middle.body([], [y], "then_branch")}
    branches_["else_branch"] = other.body([], [body_layers(other, x)], "else_branch")
    b.node("If", [first], **branches_)


@recipe(0.6)
def counted(b: Builder) -> None:
    """A Loop that ends by its own condition, carries two values, one of which grows, and reads its counter."""
    b.need(b.opset >= 11)
    x = b.pick_rank(1, 3)
    b.need(b.values[x][0].shape[0] <= 4)
    inner = b.child()
    step, keep, state, grown = (inner.name(p) for p in ("i", "k", "s", "g"))
    inner.record(step, [np.asarray(np.int64(0))] * b.num_feeds)
    inner.record(keep, [np.asarray(True)] * b.num_feeds)
    inner.record(state, b.values[x])
    inner.record(grown, b.values[x])
    count = inner.node("Cast", [step], to=1)
    y = inner.node("Add", [inner.node("Tanh", [state]), count])
    longer = inner.node("Concat", [grown, y], axis=0)
    go_on = inner.node("Less", [step, inner.constant(np.int64(b.integer(0, 2)))])
    outputs = [go_on, y, longer, inner.node("ReduceMax", [y], keepdims=b.choice([0, 1]))]
    graph = inner.body([step, keep, state, grown], outputs, "loop_body")
    for value in (graph.input[3], graph.output[2]):  # Its length is another in each trip.
        value.type.tensor_type.ClearField("shape")
    trips = b.choice(["", b.constant(np.int64(b.integer(0, 4)))])
    going = b.constant(np.bool_(b.chance(0.9)))
    results = b.node("Loop", [trips, going, x, x], outputs=3, body=graph)
    b.node("Mul", [results[0], operand(b, results[0])])


@recipe(0.6)
def scan_options(b: Builder) -> None:
    """Two sequences, along other axes and backwards."""
    b.need(b.opset >= 11)
    x = b.pick_rank(2, 3)
    b.need(all(v.size for v in b.values[x]))
    rank = b.rank(x)
    axis = b.integer(0, rank - 1)
    inner = b.child()
    names = [inner.name(p) for p in ("s", "e", "f")]
    slices = [np.take(v, 0, axis) for v in b.values[x]]
    for name in names:
        inner.record(name, slices)
    total = inner.node(b.choice(["Add", "Max"]), [names[0], inner.node("Mul", [names[1], names[2]])])
    result = inner.node("Tanh", [total])
    graph = inner.body(names, [total, result], "scan_body")
    flip = lambda: b.choice([0, 1])  # noqa: E731
    axes = [axis, axis - rank if b.chance(0.3) else axis]
    start = b.input([s for d, s in enumerate(b.dims(x)) if d != axis])
    b.node(
        "Scan", [start, x, x], outputs=2, body=graph, num_scan_inputs=2, scan_output_axes=[b.integer(0, rank - 1)],
        scan_output_directions=[flip()], scan_input_axes=axes, scan_input_directions=[flip(), flip()],
    )  # fmt: skip
