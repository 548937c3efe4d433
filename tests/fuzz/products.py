"""Recipes of matrix products and of what is built around them."""

from __future__ import annotations

import numpy as np

from .builder import Builder
from .recipes import SEQUENCE, axes_inputs, operand, recipe, scalar

WIDTHS = (1, 2, 3, 4, 5, 8, 16, 17, 33)


def matrix(b: Builder, rows, columns, constant: float = 0.6) -> str:
    """A constant or an input of that shape; sizes are numbers or one per feed."""
    sizes = [s if isinstance(s, tuple) else (s,) * b.num_feeds for s in (rows, columns)]
    fixed = all(len(set(s)) == 1 for s in sizes)
    scale = 1 / max(1.0, float(sizes[0][0])) ** 0.5
    if fixed and b.chance(constant):
        return b.constant(b.numbers([s[0] for s in sizes], scale))
    return b.input(sizes, lambda shape: b.numbers(shape, scale))


def epilogue(b: Builder, x: str, channel_axis: int = -1) -> str:
    """Some of what products are followed by: a bias, a residual sum, activations."""
    for _ in range(b.integer(0, 3)):
        form = b.rng.random()
        if form < 0.3:
            dims = b.dims(x)
            if channel_axis == 1 and len(dims) > 2:
                bias = operand(b, x, [dims[1]] + [1] * (len(dims) - 2))
            else:
                bias = operand(b, x, [dims[-1]] if dims else [])
            x = b.node("Add", [x, bias] if b.chance(0.7) else [bias, x])
        elif form < 0.5:
            other = operand(b, x)
            x = b.node(b.choice(["Add", "Mul", "Sub"]), [x, other] if b.chance(0.5) else [other, x])
        elif form < 0.6:
            x = b.node("Add", [x, operand(b, x, b.dims(x))])
        elif form < 0.66:
            x = b.node(b.choice(["Add", "Mul"]), [x, x])
        else:
            op = b.choice(
                ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Clip", "Gelu", "Softplus", "Elu", "Neg"]
            )
            op = op if b.has(op) else "Relu"
            if op == "Clip":
                bounds = ([], {"min": 0.0, "max": 6.0}) if b.opset < 11 else ([scalar0(b, 0.0), scalar0(b, 6.0)], {})
                x = b.node("Clip", [x, *bounds[0]], **bounds[1])
            else:
                x = b.node(op, [x])
    return x


def scalar0(b: Builder, value: float) -> str:
    return b.constant(np.float32(value))


@recipe(6, (SEQUENCE,))
def matmul(b: Builder) -> None:
    x = b.pick_rank(1)
    dims = b.dims(x)
    rank, n = len(dims), b.choice(WIDTHS)
    depth = dims[-1]
    form = b.rng.random()
    if form < 0.45:
        y = b.node("MatMul", [x, matrix(b, depth, n)])
    elif form < 0.55:
        left = dims[-2] if rank > 1 else dims[0]
        y = b.node("MatMul", [matrix(b, n, left), x])
    elif form < 0.62:
        y = b.node("MatMul", [x, operand(b, x, [depth])])
    elif form < 0.8:  # Batches that broadcast, on either side.
        batch = [d if b.chance(0.6) else 1 for d in dims[:-2]]
        batch = ([b.integer(1, 3)] if b.chance(0.25) else []) + batch[b.integer(0, len(batch)) :]
        y = b.node("MatMul", [x, operand(b, x, [*batch, depth, n])])
    elif form < 0.9:  # One tensor as both operands.
        b.need(rank >= 2)
        perm = [*range(rank - 2), rank - 1, rank - 2]
        turned = b.node("Transpose", [x], perm=perm)
        y = b.node("MatMul", [x, turned] if b.chance(0.5) else [turned, x])
    else:
        other = b.pick_rank(1)
        y = b.node("MatMul", [x, other])
    epilogue(b, y)


@recipe(6, (SEQUENCE,))
def gemm(b: Builder) -> None:
    x = b.pick_rank(2, 2)
    rows, columns = b.dims(x)
    trans_a, trans_b = int(b.chance(0.4)), int(b.chance(0.5))
    m, k = (columns, rows) if trans_a else (rows, columns)
    n = b.choice(WIDTHS)
    if b.chance(0.08):
        inputs, n = [x, x], None
        trans_b = 1 - trans_a if rows != columns else trans_b
    else:
        inputs = [x, matrix(b, n, k) if trans_b else matrix(b, k, n)]
    if n is not None and (b.opset < 11 or b.chance(0.8)):
        form = b.choice([[n], [1, n], [m, n], [m, 1], [], [1], [1, 1], [n]])
        inputs.append(operand(b, x, form))
    elif b.opset < 11:
        inputs.append(scalar(b, 0.5))
    alpha, beta = b.choice([None, 1.0, 0.5, -2.0]), b.choice([None, 1.0, 0.25, 0.0, 2.0])
    y = b.node("Gemm", inputs, alpha=alpha, beta=beta, transA=trans_a or None, transB=trans_b or None)
    epilogue(b, y)


@recipe(0.7, (SEQUENCE,))
def einsum(b: Builder) -> None:
    x = b.pick_rank(2, 4)
    letters = "abcd"[: b.rank(x)]
    depth = b.dims(x)[-1]
    if b.chance(0.5):
        y = b.node("Einsum", [x, matrix(b, depth, 3)], equation=f"{letters},{letters[-1]}n->{letters[:-1]}n")
    else:
        y = b.node("Einsum", [x], equation=f"{letters}->{letters[::-1] if b.chance(0.5) else letters[:-1]}")
    epilogue(b, y)


def mask_scores(b: Builder, scores: str) -> str:
    """One of the usual masks upon attention scores [..., m, n]."""
    m, n = b.dims(scores)[-2:]
    form = b.rng.random()
    if form < 0.3:
        return scores
    if form < 0.55:
        lead = list(b.dims(scores))[:-2]
        dims = b.choice([[m, n], [1, n], [n], [1, 1, m, n], [*lead, m, n], [2, *lead, m, n], [2, *[1] * len(lead), 1, n]])
        low = b.choice([-1e4, -30.0, -3e4])
        return b.node("Add", [scores, b.input(dims, lambda s: np.float32(low) * (b.rng.random(s) < 0.3))])
    if form < 0.75 and b.has("Trilu"):
        ones = b.input([m, n], lambda s: np.ones(s, np.float32))
        cond = b.node("Greater", [b.node("Trilu", [ones], upper=0), scalar(b, 0.5)])
        return b.node("Where", [cond, scores, scalar(b, -1e4)])
    keep = b.input([m, n], lambda s: b.rng.random(s) < 0.8)
    return b.node("Where", [keep, scores, scalar0(b, -1e4)])


@recipe(4, (SEQUENCE,))
def attention(b: Builder) -> None:
    """softmax(q k^T scale + mask) v over [.., t, d], heads or none, scores at times read by another."""
    x = b.pick_rank(2, 4)
    rank, width = b.rank(x), b.dims(x)[-1]
    if b.chance(0.5):
        heads = [b.node("MatMul", [x, matrix(b, width, width)]) for _ in range(3)]
    else:
        heads = [x] + [b.choice([x, operand(b, x, b.dims(x))]) for _ in range(2)]
    if rank == 3 and b.chance(0.6):
        d = width[0]
        count = b.choice([h for h in (1, 2, 4) if d % h == 0])
        split = [0, 0, count, d // count]
        heads = [b.node("Transpose", [b.node("Reshape", [h, b.ints(*split)])], perm=[0, 2, 1, 3]) for h in heads]
        rank = 4
    q, k, v = heads
    k = b.node("Transpose", [k], perm=[*range(rank - 2), rank - 1, rank - 2])
    if b.chance(0.3):
        q = b.node("Mul", [q, scalar(b, 0.5)])
    scores = b.node("MatMul", [q, k])
    if b.chance(0.7):
        op = b.choice(["Mul", "Div"])
        scores = b.node(op, [scores, scalar(b, 0.35 if op == "Mul" else 2.8)])
    scores = mask_scores(b, scores)
    axis = b.rank(scores) - 1 if b.opset < 11 else -1
    weights = b.node("Softmax", [scores], axis=axis)
    if b.chance(0.15):
        b.node("Neg", [b.choice([scores, weights])])
    y = b.node("MatMul", [weights, v])
    if rank == 4 and b.chance(0.6):
        y = b.node("Transpose", [y], perm=[0, 2, 1, 3])
        y = b.node("Reshape", [y, b.ints(0, 0, -1)])
    epilogue(b, y)


@recipe(1.5, (SEQUENCE,))
def attention_operator(b: Builder) -> None:
    b.need(b.has("Attention"))
    batch, heads, length, keys, size = 2, b.choice([1, 2]), b.integer(1, 5), b.integer(1, 5), b.choice([1, 4, 8])
    q = b.input([batch, heads, length, size])
    k, v = (b.input([batch, heads, keys, size]) for _ in range(2))
    inputs = [q, k, v]
    if b.chance(0.5):
        inputs.append(b.input([length, keys], lambda s: np.float32(-1e4) * (b.rng.random(s) < 0.3)))
    y = b.node("Attention", inputs, is_causal=b.choice([None, 1]) if len(inputs) == 3 else None)
    b.node("Add", [y, operand(b, y)])


@recipe(0.6, (SEQUENCE,))
def recurrent(b: Builder) -> None:
    """LSTM, GRU or RNN over [t, n, d], in one or both directions."""
    x = b.input([b.integer(1, 5), b.integer(1, 3), b.choice([1, 4, 8])])
    depth = b.dims(x)[-1]
    op, hidden = b.choice(["LSTM", "GRU", "RNN"]), b.choice([1, 3, 4])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = b.choice(["forward", "reverse", "bidirectional"])
    count = 2 if direction == "bidirectional" else 1
    shapes = [(count, gates * hidden, depth[0]), (count, gates * hidden, hidden), (count, 2 * gates * hidden)]
    inputs = [x] + [b.constant(b.numbers(s, 0.4), as_node=False) for s in shapes[: b.integer(2, 3)]]
    attributes = {"linear_before_reset": b.choice([None, 1])} if op == "GRU" else {}
    results = b.node(
        op, inputs, outputs=3 if op == "LSTM" else 2, hidden_size=hidden, direction=direction, **attributes
    )
    if count == 1:
        inputs, attributes = axes_inputs(b, [1], 13)
        b.node("Squeeze", [results[0], *inputs], **attributes)
