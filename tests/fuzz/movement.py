"""Recipes of layers that move values, and of shapes that are computed."""

from __future__ import annotations

import numpy as np

from .builder import Builder
from .recipes import axes_inputs, axis_of, operand, partner, recipe, signed


@recipe(3)
def reshape(b: Builder) -> None:
    x = b.pick_rank(1)
    dims = b.dims(x)
    rank = len(dims)
    form = b.integer(0, 4)
    if form == 0:
        b.node("Reshape", [x, b.ints(-1)])
    elif form == 1:
        b.node("Reshape", [x, b.ints(0, -1)])
    elif form == 2 and rank >= 2:
        at = b.integer(0, rank - 2)
        b.node("Reshape", [x, b.ints(*[0] * at, -1, *[d[0] for d in dims[at + 2 :]])])
    elif form == 3:
        last = dims[-1][0]
        parts = [p for p in range(1, last + 1) if last % p == 0]
        b.need(parts)
        p = b.choice(parts)
        b.node("Reshape", [x, b.ints(*[0] * (rank - 1), p, last // p)])
    else:
        y = b.pick_rank(1)
        b.node("Reshape", [x, b.node("Shape", [y])])


@recipe(2.5)
def transpose(b: Builder) -> None:
    x = b.pick_rank(1)
    rank = b.rank(x)
    perm = [int(p) for p in b.rng.permutation(rank)]
    if rank == 4 and b.chance(0.5):
        perm = b.choice([[0, 2, 3, 1], [0, 3, 1, 2]])
    b.node("Transpose", [x], perm=None if b.chance(0.2) else perm)


@recipe(2)
def squeeze(b: Builder) -> None:
    x = b.pick_rank(0, 5)
    rank = b.rank(x)
    if b.chance(0.5):
        count = b.integer(1, 2)
        axes = sorted(int(a) for a in b.rng.choice(rank + count, count, replace=False))
        inputs, attributes = axes_inputs(b, signed(b, axes, rank + count), 13)
        b.node("Unsqueeze", [x, *inputs], **attributes)
        return
    ones = [d for d, sizes in enumerate(b.dims(x)) if set(sizes) == {1}]
    b.need(ones)
    inputs, attributes = ([], {}) if b.chance(0.3) else axes_inputs(b, signed(b, ones, rank), 13)
    b.node("Squeeze", [x, *inputs], **attributes)


@recipe(1)
def flatten(b: Builder) -> None:
    x = b.pick_rank(1)
    axis = b.integer(0, b.rank(x)) if b.opset < 11 else b.integer(-b.rank(x), b.rank(x))
    b.node("Flatten", [x], axis=axis if b.chance(0.8) else None)


@recipe(2)
def concat(b: Builder) -> None:
    x = b.pick_rank(1, 5)
    rank = b.rank(x)
    axis = b.integer(0, rank - 1) if b.chance(0.5) or rank < 3 else 1
    parts = [x]
    for _ in range(b.integer(0, 3)):
        dims = b.dims(x)
        dims[axis] = (b.integer(1, 3),) * b.num_feeds if b.chance(0.4) else dims[axis]
        parts.append(x if b.chance(0.15) else operand(b, x, dims))
    b.rng.shuffle(parts)
    b.node("Concat", [str(p) for p in parts], axis=axis - rank if b.opset >= 11 and b.chance(0.3) else axis)


@recipe(1.5)
def split(b: Builder) -> None:
    x = b.pick_rank(1, 5)
    rank = b.rank(x)
    axis = b.integer(0, rank - 1)
    size = b.dims(x)[axis]
    b.need(len(set(size)) == 1 and size[0] >= 2)
    count = b.integer(2, min(3, size[0]))
    if b.chance(0.5):
        cuts = sorted(int(c) for c in b.rng.integers(0 if b.chance(0.1) else 1, size[0], count - 1))
        sizes = [int(v) for v in np.diff([0, *cuts, size[0]])]
        inputs, attributes = ([b.ints(*sizes)], {}) if b.opset >= 13 else ([], {"split": sizes})
    else:
        inputs, attributes = [], {"num_outputs": count} if b.opset >= 18 else {}
    parts = b.node("Split", [x, *inputs], outputs=count, axis=axis, **attributes)
    if b.chance(0.5):
        b.node("Mul", [parts[0], b.node(b.choice(["Sigmoid", "Tanh"]), [parts[1]])])


@recipe(2)
def cut(b: Builder) -> None:
    """Slices: any start and end, inside or not, steps of either sign."""
    x = b.pick_rank(1)
    rank = b.rank(x)
    axes = sorted(int(a) for a in b.rng.choice(rank, b.integer(1, min(2, rank)), replace=False))
    starts, ends, steps = [], [], []
    for axis in axes:
        size = b.dims(x)[axis][0]
        step = b.choice([1, 1, 1, 2, -1, -2, 3]) if b.opset >= 10 else 1
        start, end = b.integer(-size, size), b.integer(-size - 1, size + 1)
        if b.chance(0.8) and size > 0:  # Something is left.
            start, end = b.integer(0, size - 1), b.choice([size, 2**31, size + 3])
            if step < 0:
                end = b.choice([-size - 1, -(2**31)])
        starts.append(start)
        ends.append(end)
        steps.append(step)
    if b.opset < 10:
        y = b.node("Slice", [x], starts=starts, ends=ends, axes=axes)
    else:
        inputs = [b.ints(*starts), b.ints(*ends), b.ints(*signed(b, axes, rank)), b.ints(*steps)]
        y = b.node("Slice", [x, *inputs])
    b.need(b.values[y][0].size or b.chance(0.5))


@recipe(2)
def gather(b: Builder) -> None:
    x = b.pick_rank(1, 5)
    axis = axis_of(b, b.rank(x))
    size = min(b.dims(x)[axis])
    b.need(size >= 1)
    low = -size if b.opset >= 11 else 0
    form = b.rng.random()
    if form < 0.7:
        shape = b.choice([[], [1], [3], [2, 2]])
        indices = b.rng.integers(low, size, shape).astype(b.choice([np.int64, np.int32]))
        name = b.constant(indices) if b.chance(0.6) else b.input(shape, lambda s: indices)
        b.node("Gather", [x, name], axis=axis)
    elif form < 0.85:
        indices = b.rng.integers(low, size, b.shape(x)).astype(np.int64)
        b.node("GatherElements", [x, b.constant(indices)], axis=axis)
    else:
        b.node("GatherND", [x, b.constant(b.rng.integers(0, min(b.dims(x)[0]), (2, 1)).astype(np.int64))])


@recipe(1)
def scatter(b: Builder) -> None:
    x = b.pick_rank(1, 4)
    shape = b.shape(x)
    b.need(all(shape))
    if b.chance(0.5):
        axis = b.integer(0, len(shape) - 1)
        count = b.integer(1, shape[axis])
        index_shape = [*shape[:axis], count, *shape[axis + 1 :]]
        one = b.rng.permutation(shape[axis])[:count]
        indices = np.broadcast_to(one.reshape([-1] + [1] * (len(shape) - axis - 1)), index_shape).astype(np.int64)
        reduction = b.choice([None, "none", "add"]) if b.opset >= 16 else None
        inputs = [x, b.constant(indices), operand(b, x, index_shape)]
        b.node("ScatterElements" if b.opset >= 11 else "Scatter", inputs, axis=axis, reduction=reduction)
    else:
        rows = b.rng.permutation(shape[0])[: b.integer(1, shape[0])].reshape(-1, 1).astype(np.int64)
        b.node("ScatterND", [x, b.constant(rows), operand(b, x, [len(rows), *shape[1:]])])


@recipe(2)
def expand(b: Builder) -> None:
    x = b.pick()
    dims = b.dims(x)
    if b.chance(0.3):
        y = partner(b, x)
        b.need(y)
        b.node("Expand", [x, b.node("Shape", [y])])
        return
    target = [d[0] if d[0] != 1 or b.chance(0.4) else b.integer(1, 3) for d in dims]
    target = [1 if b.chance(0.4) else t for t in target]
    lead = [b.integer(1, 3)] if b.chance(0.3) else []
    if b.chance(0.5) or not dims:
        b.node("Expand", [x, b.ints(*lead, *target)])
    else:
        b.node("Tile", [x, b.ints(*[b.integer(1, 2) for _ in dims])])


@recipe(1.5)
def pad(b: Builder) -> None:
    x = b.pick_rank(1, 5)
    rank = b.rank(x)
    mode = b.choice(["constant", "constant", "reflect", "edge"])
    low = -1 if mode == "constant" and all(min(v.shape) > 1 for v in b.values[x]) else 0
    pads = [b.integer(low, 2) if b.chance(0.6) else 0 for _ in range(2 * rank)]
    if mode == "reflect":
        pads = [min(p, min(b.dims(x)[d % rank]) - 1) for d, p in enumerate(pads)]
        b.need(all(p >= 0 for p in pads))
    if b.opset < 11:
        b.node("Pad", [x], mode=mode, pads=pads, value=0.5 if b.chance(0.4) else None)
        return
    value = [b.constant(np.float32(b.choice([0.5, 0.0])))] if mode == "constant" and b.chance(0.5) else []
    b.node("Pad", [x, b.ints(*pads), *value], mode=mode)


@recipe(1)
def triangle(b: Builder) -> None:
    x = b.pick_rank(2)
    inputs = [x] + ([b.constant(np.int64(b.integer(-2, 2)))] if b.chance(0.4) else [])
    b.node("Trilu", inputs, upper=b.choice([None, 0, 1]))


@recipe(1)
def computed_shape(b: Builder) -> None:
    """Shape, Gather, Concat, Reshape: as exporters write it."""
    x = b.pick_rank(2, 5)
    shape = b.node("Shape", [x])
    if b.chance(0.3):
        size = b.node("Size", [x])
        b.node("Mul", [x, b.node("Reciprocal", [b.node("Cast", [size], to=1)])])
        return
    first = b.node("Gather", [shape, b.constant(np.int64(0))], axis=0)
    inputs, attributes = axes_inputs(b, [0], 13)
    first = b.node("Unsqueeze", [first, *inputs], **attributes)
    b.node("Reshape", [x, b.node("Concat", [first, b.ints(-1)], axis=0)])


@recipe(0.8)
def made(b: Builder) -> None:
    """Tensors that come from shapes: ConstantOfShape, Range, OneHot, EyeLike."""
    from onnx import numpy_helper

    x = b.pick_rank(1, 4)
    form = b.integer(0, 3)
    if form == 0:
        value = numpy_helper.from_array(np.array([0.5], np.float32))
        b.node("Add", [x, b.node("ConstantOfShape", [b.node("Shape", [x])], value=value)])
    elif form == 1:
        limit = b.node("Gather", [b.node("Shape", [x]), b.constant(np.int64(-1 if b.opset >= 11 else 0))], axis=0)
        steps = b.node("Range", [b.constant(np.int64(0)), limit, b.constant(np.int64(1))])
        b.node("Mul", [x, b.node("Cast", [steps], to=1)])
    elif form == 2:
        indices = b.constant(b.rng.integers(0, 4, 3).astype(np.int64))
        b.node("OneHot", [indices, b.constant(np.int64(4)), b.constant(np.float32([0, 1.5]))], axis=b.choice([0, -1]))
    else:
        b.need(b.rank(x) == 2)
        b.node("Add", [x, b.node("EyeLike", [x], k=b.choice([None, 1]))])


@recipe(0.7)
def unknown_length(b: Builder) -> None:
    """Values whose number is known at run time only, and layers that read them."""
    x = b.pick_rank(1, 3)
    flat = b.node("Reshape", [x, b.ints(-1)])
    mask = b.node("Greater", [flat, b.constant(np.float32(0))])
    if b.chance(0.5) and b.opset >= 9:
        y = b.node("Compress", [flat, mask], axis=0)
    else:
        b.need(b.has("NonZero"))
        where = b.node("Reshape", [b.node("Transpose", [b.node("NonZero", [mask])], perm=[1, 0]), b.ints(-1)])
        y = b.node("Gather", [flat, where], axis=0)
    y = b.node(b.choice(["Relu", "Neg", "Tanh"]), [y])
    y = b.node("Mul", [y, b.constant(np.float32(1.5))])
    if b.chance(0.5):
        b.node(b.choice(["ReduceSum", "ReduceMax"]), [y], keepdims=0)


@recipe(0.5)
def reverse_sequence(b: Builder) -> None:
    x = b.pick_rank(2, 4)
    time, batch = (min(d) for d in b.dims(x)[:2])
    b.need(time >= 1 and b.static(x))
    lengths = b.rng.integers(1, time + 1, batch).astype(np.int64)
    b.node("ReverseSequence", [x, b.constant(lengths)], time_axis=0, batch_axis=1)
