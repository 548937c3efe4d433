"""Recipes of movement in all forms that are allowed: indices and pads outside of bounds, empty results, other types."""

from __future__ import annotations

import numpy as np

from .builder import Builder
from .recipes import axis_of, operand, recipe, scalar, signed

FAR = (2**31 - 1, 2**63 - 1, -(2**31), -(2**63) + 1)


def indices(b: Builder, values, dtype=None) -> str:
    """Integers of either index type: a constant, or an input."""
    array = np.asarray(values, dtype or b.choice([np.int64, np.int64, np.int32]))
    return b.constant(array) if b.chance(0.85) else b.input(array.shape, lambda shape: array)


def retyped(b: Builder, x: str) -> str:
    """x, now and then as integers, bools or doubles: movement is the same for all types."""
    if b.chance(0.75) or b.special:
        return x
    kind = b.choice([6, 7, 9, 11, 3, 2])
    if kind == 9:
        return b.node("Greater", [x, b.constant(np.float32(0))])
    if kind in (2, 3):
        x = b.node("Min", [b.node("Abs", [x]), b.constant(np.float32(100))])
    return b.node("Cast", [x], to=kind)


def back(b: Builder, y: str) -> str:
    """y as float32 for those who read it, or as it is."""
    if b.values[y][0].dtype == np.float32 or b.chance(0.5):
        return y
    return b.node("Cast", [y], to=1)


@recipe(2)
def slice_anywhere(b: Builder) -> None:
    b.need(b.opset >= 10)
    x = retyped(b, b.pick_rank(1))
    rank = b.rank(x)
    count = b.integer(1, rank)
    implicit = b.chance(0.2)
    axes = list(range(count)) if implicit else [int(a) for a in b.rng.permutation(rank)[:count]]
    starts, ends, steps = [], [], []
    for axis in axes:
        size = b.dims(x)[axis][0]
        bound = lambda: int(b.choice(FAR)) if b.chance(0.15) else b.integer(-2 * size - 2, 2 * size + 2)  # noqa: B023
        starts.append(bound())
        ends.append(bound())
        steps.append(b.choice([1, 1, -1, 2, -2, 3, size + 1, -size - 1]))
    dtype = np.int64 if max(map(abs, starts + ends)) > 2**31 else b.choice([np.int64, np.int32])
    inputs = [b.constant(np.array(v, dtype)) for v in (starts, ends)]
    if not implicit:
        inputs.append(b.constant(np.array([a - rank if b.chance(0.4) else a for a in axes], dtype)))
    if b.chance(0.8):
        inputs += [""] * (3 - len(inputs)) + [b.constant(np.array(steps, dtype))]
    back(b, b.node("Slice", [x, *inputs]))


@recipe(1.5)
def pad_any(b: Builder) -> None:
    x = b.pick_rank(1, 5)
    dims = [min(d) for d in b.dims(x)]
    rank = len(dims)
    mode = b.choice(["constant", "constant", "reflect", "edge"] + ["wrap"] * (b.opset >= 19))
    some = sorted(int(a) for a in b.rng.choice(rank, b.integer(1, rank), replace=False)) if b.opset >= 18 else None
    axes = list(range(rank)) if some is None or b.chance(0.5) else some
    pads = [b.integer(-2, 3) for _ in range(2 * len(axes))]
    if mode in ("reflect", "wrap"):
        b.need(all(d >= 1 for d in dims))
        pads = [min(p, dims[axes[i % len(axes)]] - 1) for i, p in enumerate(pads)]
    if mode != "constant":  # Pads and cuts of one axis: in which order is left open.
        pads = [max(p, 0) for p in pads] if b.chance(0.6) else [min(p, 0) for p in pads]
    if b.opset < 11:
        b.node("Pad", [x], mode=mode, pads=pads, value=b.choice([None, -1.5]))
        return
    value = ""
    if b.chance(0.5):
        value = b.constant(np.float32(-1.5)) if b.chance(0.6) else b.input([], lambda shape: np.float32(2.5))
    inputs = [x, b.ints(*pads), value]
    if len(axes) != rank or (some is not None and b.chance(0.3)):
        inputs.append(indices(b, signed(b, axes, rank)))
    while not inputs[-1]:
        inputs.pop()
    b.node("Pad", inputs, mode=mode if mode != "constant" or b.chance(0.5) else None)


@recipe(1.5)
def reshape_any(b: Builder) -> None:
    """Any factors of the size, one of them left open, some copied; empty ones by allowzero."""
    x = retyped(b, b.pick_rank(0))
    size = b.values[x][0].size
    if size == 0:
        b.need(b.opset >= 14)
        target = [0 if b.chance(0.4) else b.integer(1, 3) for _ in range(b.integer(1, 4))]
        b.node("Reshape", [x, b.ints(*(target if 0 in target else [0, *target]))], allowzero=1)
        return
    rest, target = size, []
    while rest > 1 and len(target) < 4 and b.chance(0.8):
        p = b.choice([p for p in range(1, min(rest, 12) + 1) if rest % p == 0])
        target.append(p)
        rest //= p
    target = [*target, rest] if rest > 1 or not target or b.chance(0.3) else target
    b.rng.shuffle(target)
    target = [int(t) for t in target]
    if b.chance(0.6):
        target[b.integer(0, len(target) - 1)] = -1
    for d in range(min(len(target), b.rank(x))):
        if target[d] == b.values[x][0].shape[d] and b.chance(0.5):
            target[d] = 0
    if size == 1 and b.chance(0.4):
        target = []
    back(b, b.node("Reshape", [x, b.ints(*target)]))


@recipe(1.5)
def expand_any(b: Builder) -> None:
    """To a lower rank, to ones, to nothing; both sides broadcast."""
    x = retyped(b, b.pick_rank(0, 4))
    shape = list(b.values[x][0].shape)
    target = [b.integer(0, 3) if s == 1 and b.chance(0.5) else b.choice([1, s]) for s in shape]
    target = target[b.integer(0, len(target)) :] if b.chance(0.4) else [1] * b.integer(0, 1) + target
    back(b, b.node("Expand", [x, b.ints(*target)]))


@recipe(0.7)
def tile_any(b: Builder) -> None:
    x = retyped(b, b.pick_rank(1, 4))
    back(b, b.node("Tile", [x, b.ints(*[b.choice([1, 1, 2, 3, 0]) for _ in range(b.rank(x))])]))


@recipe(2)
def gather_any(b: Builder) -> None:
    x = retyped(b, b.pick_rank(1, 5))
    shape = b.shape(x)
    b.need(all(shape))
    form = b.integer(0, 3)
    axis = b.integer(0, len(shape) - 1)
    low, either = -shape[axis] if b.opset >= 11 else 0, b.choice([axis, axis - len(shape)])
    if form == 0:
        many = b.choice([[], [1], [0], [2, 1], [1, 3, 2]])
        y = b.node("Gather", [x, indices(b, b.rng.integers(low, shape[axis], many))], axis=either)
    elif form == 1:
        b.need(b.opset >= 11)
        index_shape = [b.integer(1, s) if d != axis else b.integer(0, 4) for d, s in enumerate(shape)]
        y = b.node("GatherElements", [x, indices(b, b.rng.integers(low, shape[axis], index_shape))], axis=either)
    else:
        b.need(b.opset >= 12)
        batch = b.integer(0, len(shape) - 1)
        depth = b.integer(1, len(shape) - batch)
        lead = [*shape[:batch], *b.choice([[], [2], [1, 3]])]
        picks = [b.rng.integers(-shape[batch + k], shape[batch + k], lead) for k in range(depth)]
        y = b.node("GatherND", [x, b.constant(np.stack(picks, -1).astype(np.int64))], batch_dims=batch or None)
    back(b, y)


@recipe(1.5)
def scatter_any(b: Builder) -> None:
    """With reductions, where indices may meet; without, where they do not."""
    x = b.pick_rank(1, 4)
    shape = b.shape(x)
    b.need(all(shape))
    reductions = ["add", "mul"] * (b.opset >= 16) + ["max", "min"] * (b.opset >= 18)
    how = b.choice(["none", None, *reductions])
    plain = how in ("none", None)
    how = how if b.opset >= 16 else None
    if b.chance(0.5):
        b.need(b.opset >= 11)
        axis = b.integer(0, len(shape) - 1)
        index_shape = [b.integer(1, s) for s in shape]
        spots = np.argsort(b.rng.random(index_shape[:axis] + [shape[axis]] + index_shape[axis + 1 :]), axis)
        spots = np.take(spots, range(index_shape[axis]), axis)
        if not plain:
            spots = b.rng.integers(0, shape[axis], index_shape)
        spots = np.where(b.rng.random(spots.shape) < 0.3, spots - shape[axis], spots)
        inputs = [x, indices(b, spots), operand(b, x, index_shape)]
        b.node("ScatterElements", inputs, axis=b.choice([axis, axis - len(shape)]), reduction=how)
    else:
        b.need(b.opset >= 11)
        depth = b.integer(1, len(shape))
        flat = int(np.prod(shape[:depth]))
        count = b.integer(1, min(flat, 6))
        rows = b.rng.permutation(flat)[:count] if plain else b.rng.integers(0, flat, count)
        spots = np.stack(np.unravel_index(rows, shape[:depth]), -1).astype(np.int64)
        if b.chance(0.3):
            spots = spots - np.array(shape[:depth]) * (b.rng.random(spots.shape) < 0.5)
        inputs = [x, b.constant(spots.astype(np.int64)), operand(b, x, [count, *shape[depth:]])]
        b.node("ScatterND", inputs, reduction=how)


@recipe(1)
def split_any(b: Builder) -> None:
    """Uneven, with parts of nothing and parts that nobody reads."""
    x = retyped(b, b.pick_rank(1, 5))
    rank = b.rank(x)
    axis = b.integer(0, rank - 1)
    sizes = b.dims(x)[axis]
    b.need(len(set(sizes)) == 1 and sizes[0] >= 1)
    size, count = sizes[0], b.integer(1, min(4, sizes[0]))
    axis = b.choice([axis, axis - rank]) if b.opset >= 11 else axis
    if b.opset >= 18 and b.chance(0.5):
        parts = b.node("Split", [x], outputs=count, axis=axis, num_outputs=count)
    else:
        cuts = sorted(b.integer(0, size) for _ in range(count - 1))
        lengths = [int(v) for v in np.diff([0, *cuts, size])]
        inputs, attributes = ([b.ints(*lengths)], {}) if b.opset >= 13 else ([], {"split": lengths})
        parts = b.node("Split", [x, *inputs], outputs=count, axis=axis, **attributes)
    parts = [parts] if isinstance(parts, str) else list(parts)
    if b.chance(0.5):
        b.rng.shuffle(parts)
        b.node("Concat", [str(p) for p in parts[: b.integer(1, len(parts))]], axis=axis)


@recipe(1)
def concat_any(b: Builder) -> None:
    """Of nothing, of one, of the same ones, of constants."""
    x = retyped(b, b.pick_rank(1, 4))
    rank = b.rank(x)
    axis = b.integer(0, rank - 1)
    shape = [0 if d == axis else s for d, s in enumerate(b.shape(x))]
    nothing = b.constant(np.zeros(shape, b.values[x][0].dtype))
    parts = [b.choice([x, x, nothing]) for _ in range(b.integer(1, 4))]
    back(b, b.node("Concat", parts, axis=axis))


@recipe(1)
def made_any(b: Builder) -> None:
    form = b.integer(0, 5)
    if form == 0:
        b.need(b.opset >= 11)
        kind = b.choice([np.float32, np.int64, np.int32, np.float64])
        start, limit, delta = b.choice([(0, 5, 1), (5, 0, -2), (3, 3, 1), (1, 7, 3), (0, -4, -1)])
        back(b, b.node("Range", [b.constant(kind(v)) for v in (start, limit, delta)]))
    elif form == 1:
        picks = indices(b, b.rng.integers(-4, 5, b.choice([[], [3], [2, 2]])))
        depth = b.constant(b.choice([np.int64(4), np.array([4]), np.float32(4)]))
        values = b.constant(np.array([0.25, -2], b.choice([np.float32, np.int64])))
        rank = b.rank(picks)
        back(b, b.node("OneHot", [picks, depth, values], axis=b.integer(-rank - 1, rank) if b.opset >= 11 else None))
    elif form == 2:
        x = b.pick_rank(2, 2)
        back(b, b.node("EyeLike", [x], k=b.integer(-3, 3), dtype=b.choice([None, 1, 7, 11])))
    elif form == 3:
        x = b.pick_rank(1)
        b.need(b.opset >= 15)
        y = b.node("Shape", [x], start=b.choice([None, -2, 1, 9]), end=b.choice([None, -1, 2, 9]))
        b.node("Cast", [y], to=1)
    elif form == 4:
        x = b.pick_rank(2)
        k = b.constant(np.int64(b.integer(-9, 9)))
        b.node("Trilu", [x, k], upper=b.choice([None, 0, 1]))
    else:
        x = b.pick_rank(1, 4)
        rank = b.rank(x)
        b.need(b.opset >= 18)
        axes = [int(a) for a in b.rng.permutation(rank)[: b.integer(1, rank)]]
        b.node("CenterCropPad", [x, b.ints(*[b.integer(1, 6) for _ in axes])], axes=axes)


@recipe(0.8)
def found(b: Builder) -> None:
    """What lies where: NonZero, Unique, Compress, TopK."""
    b.need(not b.special)
    x = b.pick_rank(1, 4)
    form = b.integer(0, 3)
    if form == 0:
        rounded = b.node("Round", [x])
        back(b, b.node("NonZero", [rounded]))
    elif form == 1:
        b.need(b.opset >= 11 and all(v.size for v in b.values[x]))
        rounded = b.node("Cast", [b.node("Round", [x])], to=b.choice([1, 7]))
        axis = b.choice([None, None, axis_of(b, b.rank(x))])
        back(b, b.node("Unique", [rounded], outputs=b.integer(2, 4), axis=axis, sorted=b.choice([None, 1, 0]))[0])
    elif form == 2:
        axis = b.choice([None, b.integer(0, b.rank(x) - 1)])
        size = min(v.size for v in b.values[x]) if axis is None else min(b.dims(x)[axis])
        mask = b.constant(b.rng.random(b.integer(0, min(size, 20))) < 0.5)
        b.node("Compress", [x, mask], axis=axis)
    else:
        b.need(b.opset >= 11)
        axis = axis_of(b, b.rank(x))
        size = min(b.dims(x)[axis])
        y = b.node("Round", [x]) if b.chance(0.4) else x
        b.node("TopK", [y, b.ints(b.integer(0, size))], outputs=2, axis=axis, largest=b.choice([0, 1]))


@recipe(1)
def cumulative(b: Builder) -> None:
    x = b.pick_rank(1)
    axis = b.constant(b.choice([np.int32, np.int64])(axis_of(b, b.rank(x))))
    if b.chance(0.2):
        x = b.node("Cast", [x], to=b.choice([6, 7, 11])) if not b.special else x
    flags = {"exclusive": b.choice([None, 0, 1]), "reverse": b.choice([None, 0, 1])}
    back(b, b.node("CumSum", [x, axis], **flags))


@recipe(0.5)
def reversed_in_batches(b: Builder) -> None:
    x = b.pick_rank(2, 4)
    b.need(b.static(x))
    time = b.integer(0, 1)
    shape = b.shape(x)
    lengths = b.rng.integers(1 if b.chance(0.5) else 0, shape[time] + 1, shape[1 - time]).astype(np.int64)
    b.node("ReverseSequence", [x, b.constant(lengths)], time_axis=time, batch_axis=1 - time)


@recipe(1.5)
def where_any(b: Builder) -> None:
    """All three broadcast; constants, scalars, other types."""
    x = b.pick()
    y = operand(b, x)
    shape = [d[0] if b.chance(0.6) else 1 for d in b.dims(x)][b.integer(0, b.rank(x)) :]
    mask = b.constant(b.rng.random(shape) < 0.5) if b.chance(0.5) else b.input(shape, lambda s: b.rng.random(s) < 0.5)
    order = [x, y] if b.chance(0.5) else [y, x]
    if b.chance(0.2) and not b.special:
        kind = b.choice([7, 6, 11])
        order = [b.node("Cast", [v], to=kind) for v in order]
    if b.chance(0.2):
        kind = b.values[order[0]][0].dtype
        order[b.integer(0, 1)] = scalar(b, b.choice([0.0, -np.inf, 1e4])) if kind == np.float32 else order[0]
    y = b.node("Where", [mask, *order])
    if b.values[y][0].dtype != np.float32:
        back(b, y)
