"""Recipes of operators with many options: recurrent layers, attention, rotations, equations, norms, windows."""

from __future__ import annotations

import numpy as np

from .builder import Builder
from .graph import MICROSOFT
from .products import epilogue
from .recipes import IMAGE, SEQUENCE, axis_of, operand, recipe
from .windows import need_pads

ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "HardSigmoid", "Affine", "ScaledTanh")
PARAMETERS = {"HardSigmoid": (0.3, 0.4), "Affine": (0.9, 0.1), "ScaledTanh": (1.1, 0.8)}  #: alpha and beta


@recipe(1, (SEQUENCE,))
def recurrent_options(b: Builder) -> None:
    time, batch, width, hidden = b.integer(1, 5), b.integer(1, 3), b.choice([1, 3, 8]), b.choice([1, 3, 5])
    op = b.choice(["LSTM", "GRU", "RNN"])
    gates, count = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    direction = b.choice(["forward", "reverse", "bidirectional", None])
    ways = 2 if direction == "bidirectional" else 1
    x = b.input([time, batch, width])
    weights = [(ways, gates * hidden, width), (ways, gates * hidden, hidden)]
    inputs = [x, *(b.constant(b.numbers(s, 0.4), as_node=False) for s in weights)]
    bias = b.constant(b.numbers((ways, 2 * gates * hidden), 0.4), as_node=False) if b.chance(0.6) else ""
    lengths = b.rng.integers(1, time + 1, batch).astype(np.int32)
    state = lambda: operand(b, x, [ways, batch, hidden]) if b.chance(0.5) else ""  # noqa: E731
    inputs += [bias, b.constant(lengths) if b.chance(0.4) else "", state()]
    if op == "LSTM":
        inputs += [state(), b.constant(b.numbers((ways, 3 * hidden), 0.4), as_node=False) if b.chance(0.3) else ""]
    while not inputs[-1]:
        inputs.pop()
    clip = b.choice([None, None, 0.5])
    attributes = {"clip": None if b.special else clip}  # ONNX Runtime takes NaN for a bound.
    if op == "GRU":
        attributes["linear_before_reset"] = b.choice([None, 0, 1])
    if b.chance(0.3):
        names = [b.choice(ACTIVATIONS) for _ in range(count * ways)]
        attributes["activations"] = names
        attributes["activation_alpha"] = [PARAMETERS[n][0] for n in names if n in PARAMETERS] or None
        attributes["activation_beta"] = [PARAMETERS[n][1] for n in names if n in PARAMETERS] or None
    attributes.update(hidden_size=hidden, direction=direction)
    results = b.node(op, inputs, outputs=3 if op == "LSTM" else 2, **attributes)
    b.node("Add", [results[0], operand(b, results[0], [hidden])])


@recipe(2, (SEQUENCE,))
def attention_options(b: Builder) -> None:
    """Attention with heads in either form, groups of queries, masks, scales, caches."""
    b.need(b.has("Attention"))
    batch, groups, length, keys = b.integer(1, 2), b.choice([1, 2]), b.integer(1, 5), b.integer(1, 5)
    heads, size = groups * b.choice([1, 1, 2]), b.choice([1, 4, 8])
    wide = b.choice([size, size, 3])
    flat = b.chance(0.4)
    shape = (lambda h, t, d: [batch, t, h * d]) if flat else (lambda h, t, d: [batch, h, t, d])
    inputs = [b.input(shape(*s)) for s in ((heads, length, size), (groups, keys, size), (groups, keys, wide))]
    attributes = {"q_num_heads": heads, "kv_num_heads": groups} if flat else {}
    past = b.integer(1, 3) if b.chance(0.25) else 0
    mask = ""
    if b.chance(0.5):
        lead = b.choice([[length], [1], [batch, 1, length], [batch, heads, length]])
        dims = [*lead, keys + past]
        if b.chance(0.4):
            keep = b.rng.random(dims) < 0.7
            keep[..., 0] = True
            mask = b.input(dims, lambda s: keep)
        else:
            mask = b.input(dims)
    inputs.append(mask)
    if past:
        inputs += [b.input([batch, groups, past, d]) for d in (size, wide)]
    while not inputs[-1]:
        inputs.pop()
    attributes.update(scale=b.choice([None, 0.5]), softcap=b.choice([None, None, 2.0]))
    if b.chance(0.3):
        attributes["is_causal"] = 1
    b.node("Attention", inputs, outputs=3 if past else 1, **attributes)


@recipe(1, (SEQUENCE,))
def rotary(b: Builder) -> None:
    b.need(b.has("RotaryEmbedding"))
    batch, heads, length, half = b.integer(1, 2), b.choice([1, 2, 3]), b.integer(1, 5), b.choice([1, 2, 4])
    size, part = 2 * half, half
    attributes = {"interleaved": b.choice([None, 0, 1])}
    if b.chance(0.3) and half > 1:
        attributes["rotary_embedding_dim"], part = half // 2 * 2, half // 2
    flat = b.chance(0.4)
    if flat or "rotary_embedding_dim" in attributes:
        attributes["num_heads"] = heads
    x = b.input([batch, length, heads * size] if flat else [batch, heads, length, size])
    if b.chance(0.5):
        tables = [b.input([7, part]) for _ in range(2)]
        places = b.rng.integers(0, 7, (batch, length)).astype(np.int64)
        b.node("RotaryEmbedding", [x, *tables, b.constant(places)], **attributes)
    else:
        tables = [b.input([batch, length, part]) for _ in range(2)]
        b.node("RotaryEmbedding", [x, *tables], **attributes)


@recipe(2, (SEQUENCE,))
def equations(b: Builder) -> None:
    form = b.integer(0, 6)
    x = b.pick_rank(2, 4)
    dims, letters = b.dims(x), "abcd"[: b.rank(x)]
    if form == 0:
        y = b.node("Einsum", [x, operand(b, x, [dims[-1], 3])], equation=f"...{letters[-1]},{letters[-1]}n->...n")
    elif form == 1:
        y = b.node("Einsum", [x, operand(b, x, dims)], equation=f"{letters},{letters}->{letters[:-1]}")
    elif form == 2:
        some = [letters[i] for i in b.rng.permutation(len(letters))][: b.integer(0, len(letters))]
        y = b.node("Einsum", [x], equation=f"{letters}->{''.join(some)}")
    elif form == 3:
        w = operand(b, x, [3, dims[-1]])
        y = b.node("Einsum", [x, w], equation=f"{letters}, n{letters[-1]} -> {letters[:-1]}n")
    elif form == 4:
        inputs = [x, operand(b, x, [dims[0], 2]), operand(b, x, [dims[-1], 3])]
        y = b.node("Einsum", inputs, equation=f"{letters},{letters[0]}x,{letters[-1]}y->{letters[1:-1]}xy")
    elif form == 5:
        y = b.node("Einsum", [x, operand(b, x, [dims[-1], 3])], equation=f"{letters},{letters[-1]}z")
    else:
        y = b.node("Einsum", [x, operand(b, x, [dims[-1]])], equation=f"{letters},{letters[-1]}->{letters}")
    epilogue(b, y)


@recipe(2, (SEQUENCE,))
def normalization_options(b: Builder) -> None:
    """Further outputs, scales that broadcast, axes in front, no scale at all."""
    x = b.pick_rank(1)
    rank, dims = b.rank(x), b.dims(x)
    op = b.choice(["Layer", "RMS", "Lp", "LRN", "MeanVariance", "SkipLayer", "Batch", "Group"])
    op += "Normalization" if op != "LRN" else ""
    if op in ("LayerNormalization", "RMSNormalization"):
        axis = axis_of(b, rank)
        shape = [d if b.chance(0.8) else 1 for d in dims[axis:]]
        inputs = [x, operand(b, x, shape)]
        if op == "LayerNormalization" and b.chance(0.5):
            inputs.append(operand(b, x, dims[axis:]))
        outputs = b.choice([1, 3]) if op == "LayerNormalization" else 1
        b.node(op, inputs, outputs=outputs, axis=axis, epsilon=b.choice([None, 1e-2]))
    elif op == "LpNormalization":
        b.node(op, [x], axis=b.choice([None, axis_of(b, rank)]), p=b.choice([None, 1, 2]))
    elif op == "LRN":
        b.need(rank >= 3)
        attributes = {"alpha": b.choice([None, 0.1]), "beta": b.choice([None, 0.5]), "bias": b.choice([None, 2.0])}
        b.node(op, [x], size=b.choice([3, 5, 7]), **attributes)
    elif op == "MeanVarianceNormalization":
        axes = sorted(int(a) for a in b.rng.choice(rank, b.integer(1, rank), replace=False))
        b.need(all(v.size and v.var(tuple(axes)).min() > 0.01 for v in b.values[x]))
        b.node(op, [x], axes=axes)
    elif op == "SkipLayerNormalization":
        b.need(rank == 3)
        skip = b.choice([[1, *dims[1:]], dims[1:], dims])
        inputs = [x, operand(b, x, skip), *(operand(b, x, [dims[-1]]) for _ in range(b.integer(1, 3)))]
        b.node(op, inputs, domain=MICROSOFT, epsilon=1e-5)
    elif op == "BatchNormalization":
        b.need(rank >= 2 and len(set(dims[1])) == 1)
        c = [dims[1][0]]
        parameters = [operand(b, x, c), operand(b, x, c), operand(b, x, c)]
        variance = b.constant(np.abs(b.numbers(c)) + np.float32(0.3))
        b.node(op, [x, *parameters, variance], epsilon=b.choice([None, 0.1]), momentum=b.choice([None, 0.5]))
    else:
        b.need(rank >= 3 and len(set(dims[1])) == 1 and dims[1][0] >= 1)
        groups = b.choice([g for g in range(1, dims[1][0] + 1) if dims[1][0] % g == 0])
        size = [groups] if b.opset < 21 else [dims[1]]
        b.node(op, [x, operand(b, x, size), operand(b, x, size)], num_groups=groups, epsilon=b.choice([None, 0.1]))


@recipe(4, (IMAGE,))
def window_options(b: Builder) -> None:
    """auto_pad beside strides and dilations, sizes of the output that are asked for, kernels larger than the image."""
    x = b.pick_rank(3, 5)
    dims = b.dims(x)
    rank = len(dims) - 2
    b.need(len(set(dims[1])) == 1 and all(min(d) >= 1 for d in dims))
    c, kernel = dims[1][0], [b.integer(1, 4) for _ in range(rank)]
    attributes = {"strides": b.choice([None, [b.integer(1, 4) for _ in range(rank)]])}
    op = b.choice(["Conv", "Conv", "ConvTranspose", "ConvTranspose", "MaxPool", "AveragePool"])
    attributes["auto_pad"] = b.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", None])
    if attributes["auto_pad"] in ("NOTSET", None):
        attributes["pads"] = [b.integer(0, 3 if "Conv" in op else max(0, k - 1)) for k in kernel * 2]
    if "Conv" in op or b.opset >= (10 if op == "MaxPool" else 19):
        attributes["dilations"] = b.choice([None, [b.integer(1, 3) for _ in range(rank)]])
    if op == "Conv":
        w = b.constant(b.numbers([4, c, *kernel], 0.4))
        inputs = [x, w] + ([operand(b, x, [4])] if b.chance(0.5) else [])
    elif op == "ConvTranspose":
        inputs = [x, b.constant(b.numbers([c, 3, *kernel], 0.4))] + ([operand(b, x, [3])] if b.chance(0.5) else [])
        strides, dilations = attributes["strides"] or [1] * rank, attributes["dilations"] or [1] * rank
        full = [(s[0] - 1) * t + (k - 1) * d + 1 for s, t, k, d in zip(dims[2:], strides, kernel, dilations)]
        if b.chance(0.4):
            attributes.pop("pads", None)
            attributes["output_shape"] = [max(1, f - b.integer(0, 2)) for f in full]
        elif b.chance(0.4):
            attributes["output_padding"] = [b.integer(0, max(t, d) - 1) for t, d in zip(strides, dilations)]
    else:
        inputs, attributes["kernel_shape"] = [x], kernel
        if op == "AveragePool":
            attributes["count_include_pad"] = b.choice([None, 0, 1])
        if b.opset >= 10:
            attributes["ceil_mode"] = b.choice([None, 0, 1])
    if op != "ConvTranspose":
        auto, pads = attributes["auto_pad"], attributes.get("pads", [0] * 2 * rank)
        steps = attributes.get("dilations") or [1] * rank
        same = auto in ("SAME_UPPER", "SAME_LOWER")
        # ONNX Runtime's pools forget dilations there; what a window that fits nowhere means is left open.
        b.need(not same or op == "Conv" or steps == [1] * rank)
        if same:
            extents = [(k - 1) * d + 1 for k, d in zip(kernel, steps)]
            need_pads(b, [min(n) for n in dims[2:]], extents, attributes["strides"] or [1] * rank)
        fits = [min(n) + p + q > (k - 1) * d for n, p, q, k, d in zip(dims[2:], pads, pads[rank:], kernel, steps)]
        b.need(same or all(fits))
    y = b.node(op, inputs, **attributes)
    b.need(all(v.size for v in b.values[y]))
    epilogue(b, y, 1)


@recipe(1, (IMAGE,))
def image_operators(b: Builder) -> None:
    """GridSample, RoiAlign, MaxUnpool, Col2Im."""
    b.need(not b.special)
    x = b.pick_rank(4, 4)
    n, c, height, width = b.shape(x)
    b.need(min(n, c, height, width) >= 1)
    form = b.integer(0, 2)
    if form == 0:
        mode = b.choice(["bilinear", "nearest", "bicubic"] if b.opset < 20 else ["linear", "nearest", "cubic"])
        grid = b.input([n, 3, 2, 2], lambda s: b.rng.uniform(-1.2, 1.2, s).astype(np.float32))
        outside = b.choice(["zeros", "border", "reflection"])
        b.node("GridSample", [x, grid], mode=mode, padding_mode=outside, align_corners=b.choice([0, 1]))
    elif form == 1:
        boxes = np.sort(b.rng.uniform(0, 4, (2, 2, 2)), 1).reshape(2, 4).astype(np.float32)
        places = b.choice(["half_pixel", "output_half_pixel"]) if b.opset >= 16 else None
        b.node(
            "RoiAlign", [x, b.constant(boxes), b.constant(np.zeros(2, np.int64))], output_height=2, output_width=3,
            sampling_ratio=2, spatial_scale=0.5, mode="avg", coordinate_transformation_mode=places,
        )  # fmt: skip
    else:
        b.need(height >= 2 and width >= 2)
        values, places = b.node("MaxPool", [x], outputs=2, kernel_shape=[2, 2], strides=[2, 2])
        b.node("MaxUnpool", [values, places], kernel_shape=[2, 2], strides=[2, 2])
