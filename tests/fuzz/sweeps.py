"""Kinds of kernels, each as a function that makes a graph of one layer (or of a layer and what runs with it) of a random
shape. Shapes are drawn around what decides which kernel runs: numbers of channels, widths of vectors, strides."""

from __future__ import annotations

import math
from typing import Callable, Dict, List

import numpy as np

from .builder import Builder, Rejected
from .graph import Graph

SWEEPS: Dict[str, Callable[[Builder], None]] = {}

CHANNELS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 96)
WIDE = (128, 192, 240, 256, 257, 320, 512)
LENGTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 127, 129, 257, 513, 1000, 1025)


def sweep(make: Callable[[Builder], None]) -> Callable[[Builder], None]:
    """Enters a function into the table under its name."""
    SWEEPS[make.__name__] = make
    return make


def case(make: Callable[[Builder], None], index: int) -> Graph:
    """The index-th graph of a sweep."""
    for trial in range(50):
        b = Builder(index * 64 + trial, 21)
        b.limit = 400_000
        try:
            make(b)
            return b.finish()
        except Rejected:
            continue
    raise RuntimeError(f"no graph {index} of {make.__name__}")


def _scaled(b: Builder, shape: List[int], fan_in: int) -> str:
    return b.constant((b.rng.standard_normal(shape) / math.sqrt(max(1, fan_in))).astype(np.float32), as_node=False)


def _follow(b: Builder, y: str) -> None:
    """Now and then something that a product takes along: a residual sum, an activation."""
    form = b.integer(0, 4)
    if form == 0:
        y = b.node("Add", [y, b.input(b.dims(y))])
    if form in (0, 1):
        b.node(b.choice(["Relu", "HardSwish", "Sigmoid"]), [y])
    elif form == 2:
        b.node("Mul", [y, b.input([b.dims(y)[-1]])])


def _convolution(b: Builder, op: str, wide: bool) -> None:
    spatial = b.choice([1, 2, 2, 2, 3])
    groups = b.choice([1, 1, 1, 2, 4])
    c = b.choice(WIDE if wide else CHANNELS)
    m = b.choice(CHANNELS + WIDE[:4] if wide else CHANNELS)
    if b.chance(0.2) and not wide:
        groups = c = m = b.choice(CHANNELS)  # Depthwise.
    c, m = c - c % groups, m - m % groups
    b.need(c and m)
    side = b.integer(1, 6 if wide or spatial == 3 else 14)
    sizes = [side if b.chance(0.7) else b.integer(1, 14 if not wide else 6) for _ in range(spatial)]
    k = b.choice([1, 2, 3, 4, 5, 6])
    kernel = [k if b.chance(0.8) else b.choice([1, 2, 3, 4]) for _ in range(spatial)]
    strides = [b.choice([1, 1, 2, 2, 3, 4, k])] * spatial
    dilations = [b.choice([1, 1, 1, 2])] * spatial
    pads = [b.integer(0, (n - 1) // 2 + 1) for n in kernel * 2]
    if b.chance(0.5):
        pads = [(n - 1) // 2 for n in kernel] * 2
    shape = [m, c // groups, *kernel] if op == "Conv" else [c, m // groups, *kernel]
    b.need(math.prod(shape) * math.prod(sizes) < 6e7)
    if op == "Conv":
        extents = [n + pads[d] + pads[d + spatial] - (kernel[d] - 1) * dilations[d] for d, n in enumerate(sizes)]
        b.need(min(extents) >= 1)
    x = b.input([b.choice([1, 1, 2]), c, *sizes])
    inputs = [x, _scaled(b, shape, c // groups * math.prod(kernel))]
    if b.chance(0.6):
        inputs.append(_scaled(b, [m], 1))
    _follow(b, b.node(op, inputs, strides=strides, dilations=dilations, pads=pads, group=groups))


@sweep
def convolution(b: Builder) -> None:
    _convolution(b, "Conv", False)


@sweep
def wide_convolution(b: Builder) -> None:
    _convolution(b, "Conv", True)


@sweep
def transposed_convolution(b: Builder) -> None:
    _convolution(b, "ConvTranspose", False)


@sweep
def wide_transposed_convolution(b: Builder) -> None:
    """Many input channels and strides that divide the kernel: oneDNN has kernels of its own for these."""
    if b.chance(0.3):
        _convolution(b, "ConvTranspose", True)
        return
    c, m, side = b.choice(WIDE), b.choice([1, 8, 16, 33, 64, 128]), b.integer(2, 9)
    stride = b.choice([2, 2, 3, 4])
    k = stride * b.integer(1, 3) if b.chance(0.8) else b.integer(1, 6)
    b.need(c * m * k * k < 1.2e6)
    x = b.input([1, c, side, side])
    inputs = [x, _scaled(b, [c, m, k, k], c)] + ([_scaled(b, [m], 1)] if b.chance(0.8) else [])
    pad = b.integer(0, max(0, (k - stride) // 2 + 1))
    _follow(b, b.node("ConvTranspose", inputs, strides=[stride] * 2, pads=[pad] * 4))


@sweep
def gemm(b: Builder) -> None:
    m, n, k = (b.choice(LENGTHS) for _ in range(3))
    b.need(m * n * k < 2e7)
    ta, tb = b.integer(0, 1), b.integer(0, 1)
    a = b.input([k, m] if ta else [m, k])
    w = [n, k] if tb else [k, n]
    inputs = [a, _scaled(b, w, k) if b.chance(0.6) else b.input(w)]
    if b.chance(0.7):
        c = b.choice([[n], [1, n], [m, 1], [m, n], [1], []])
        inputs.append(b.input(c) if b.chance(0.4) else b.constant(b.numbers(c)))
    alpha, beta = b.choice([1.0, 1.0, 0.5]), b.choice([1.0, 1.0, 2.0, 0.0])
    _follow(b, b.node("Gemm", inputs, transA=ta, transB=tb, alpha=alpha, beta=beta))


@sweep
def matmul(b: Builder) -> None:
    m, n, k = (b.choice(LENGTHS) for _ in range(3))
    batch = b.choice([[], [], [2], [3], [2, 3], [5, 1]])
    b.need(m * n * k * math.prod(batch) < 2e7)
    other = b.choice([[], batch, batch[-1:], [1] * len(batch)])
    form = b.integer(0, 7)
    left = [k] if form == 0 else [*batch, m, k]
    right = [k] if form == 1 else [*other, k, n]
    x = b.input(left)
    w = _scaled(b, right, k) if b.chance(0.6) else b.input(right)
    y = b.node("MatMul", [x, w])
    if b.rank(y):
        _follow(b, y)


def _channels_last(b: Builder, x: str) -> str:
    """x times a number per channel, by a convolution, whose results lie channels last."""
    rank = b.rank(x)
    channels = b.dims(x)[1][0]
    return b.node("Conv", [x, _scaled(b, [channels, 1] + [1] * (rank - 2), 1)], group=channels)


@sweep
def pooling(b: Builder) -> None:
    spatial = b.choice([1, 2, 2, 3])
    sizes = [b.integer(1, 15) for _ in range(spatial)]
    kernel = [b.integer(1, min(6, n)) for n in sizes]
    pads = [b.integer(0, k // 2) for k in kernel * 2]
    op = b.choice(["MaxPool", "AveragePool"])
    attributes = {"count_include_pad": b.integer(0, 1)} if op == "AveragePool" else {}
    dilations = [b.choice([1, 1, 2])] * spatial
    for d, n in enumerate(sizes):
        b.need(n + pads[d] + pads[d + spatial] > (kernel[d] - 1) * dilations[d])
    x = b.input([b.integer(1, 2), b.choice(CHANNELS), *sizes])
    if b.chance(0.5):
        x = _channels_last(b, x)
    strides = [b.integer(1, 4) for _ in range(spatial)]
    attributes["ceil_mode"] = b.integer(0, 1)
    b.node(op, [x], kernel_shape=kernel, pads=pads, strides=strides, dilations=dilations, **attributes)


@sweep
def reduction(b: Builder) -> None:
    rank = b.integer(1, 4)
    shape = [b.choice(LENGTHS if d == rank - 1 or b.chance(0.2) else LENGTHS[:9]) for d in range(rank)]
    x = b.input(shape)
    names = ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp", "Prod")
    op = "Reduce" + b.choice(names[:7] if b.chance(0.9) else names)
    count = b.integer(1, rank)
    axes = list(range(rank - count, rank)) if b.chance(0.7) else [int(a) for a in b.rng.permutation(rank)[:count]]
    y = b.node(op, [x, b.ints(*axes)], keepdims=b.integer(0, 1))
    if b.chance(0.4):
        b.node("Sqrt", [b.node("Abs", [y])])


@sweep
def softmax(b: Builder) -> None:
    rank = b.integer(1, 4)
    shape = [b.choice(LENGTHS if d == rank - 1 else LENGTHS[:9]) for d in range(rank)]
    x = b.input(shape, lambda s: b.numbers(s, b.choice([1.0, 10.0])))
    axis = -1 if b.chance(0.7) else b.integer(0, rank - 1)
    y = b.node(b.choice(["Softmax", "Softmax", "LogSoftmax"]), [x], axis=axis)
    if b.chance(0.4):
        b.node("Mul", [y, b.input([shape[-1]])])


@sweep
def layer_norm(b: Builder) -> None:
    rank = b.integer(1, 4)
    shape = [b.choice(LENGTHS if d == rank - 1 else LENGTHS[:9]) for d in range(rank)]
    x = b.input(shape)
    op = b.choice(["LayerNormalization", "InstanceNormalization", "SimplifiedLayerNormalization"])
    if op == "InstanceNormalization":
        b.need(rank >= 3)
        b.node(op, [x, b.input([shape[1]]), _scaled(b, [shape[1]], 1)])
        return
    axis = b.integer(0, rank - 1) if b.chance(0.4) else rank - 1
    parameters = [b.input(shape[axis:])] + ([_scaled(b, shape[axis:], 1)] if op[0] == "L" else [])
    b.node(op, [b.node("Add", [x, x]) if b.chance(0.3) else x, *parameters], axis=axis)


@sweep
def resize(b: Builder) -> None:
    channels = b.choice(CHANNELS)
    x = b.input([b.integer(1, 2), channels, b.integer(1, 9), b.integer(1, 9)])
    if b.chance(0.6):
        x = _channels_last(b, x)
    factors = [1.0, 1.0] + [float(b.choice([1, 2, 3, 4, 1.5, 0.5, 2.5])) for _ in range(2)]
    transform = b.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    mode = b.choice(["nearest", "nearest", "linear", "cubic"])
    rounding = b.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]) if mode == "nearest" else None
    inputs = [x, "", b.constant(np.array(factors, np.float32))]
    b.node("Resize", inputs, mode=mode, coordinate_transformation_mode=transform, nearest_mode=rounding)


@sweep
def quantize(b: Builder) -> None:
    """Ties, values beyond the range, zero points, scales per tensor and per channel."""
    rank = b.integer(1, 4)
    shape = [b.choice(LENGTHS[:14]) for _ in range(rank)]
    axis = b.integer(0, rank - 1) if b.chance(0.5) else None
    size = () if axis is None else (shape[axis],)
    scales = b.rng.choice(np.float32([0.5, 0.25, 0.1, 1 / 3, 0.007]), size).astype(np.float32)
    dtype = b.choice([np.int8, np.uint8])
    limits = np.iinfo(dtype)
    x = b.input(shape, lambda s: (np.round(b.rng.standard_normal(s) * 60) / 8).astype(np.float32))
    zero = b.rng.integers(limits.min, limits.max + 1, size).astype(dtype)
    parameters = [b.constant(np.asarray(scales), as_node=False), b.constant(np.asarray(zero), as_node=False)]
    attributes = {} if axis is None else {"axis": axis}
    q = b.node("QuantizeLinear", [x, *parameters], **attributes)
    b.node("DequantizeLinear", [q, *parameters], **attributes)


@sweep
def large_convolution(b: Builder) -> None:
    """Enough work to be done in pieces: stripes of rows or columns, blocks of output channels, what is added included."""
    one = b.chance(0.4)  # Over time.
    c, m, k = b.choice([32, 48, 64, 96, 128, 256]), b.choice([40, 64, 100, 128, 192, 256]), b.choice([2, 3, 3, 5, 7])
    sizes = [b.integer(20, 400)] if one else [b.integer(5, 32), b.integer(5, 32)]
    weights = c * m * k ** len(sizes)
    b.need(weights < 1.2e6 and 5e6 < weights * math.prod(sizes) < 1.5e8)
    stride, dilation = b.choice([1, 1, 2, 3]), b.choice([1, 1, 2])
    pads = [b.integer(0, k - 1) for _ in sizes * 2]
    b.need(all(n + pads[d] + pads[d + len(sizes)] > (k - 1) * dilation for d, n in enumerate(sizes)))
    x = b.input([b.choice([1, 1, 2]), c, *sizes])
    inputs = [x, _scaled(b, [m, c] + [k] * len(sizes), c * k ** len(sizes))]
    if b.chance(0.7):
        inputs.append(_scaled(b, [m], 1))
    spatial = {"strides": [stride] * len(sizes), "dilations": [dilation] * len(sizes)}
    _follow(b, b.node("Conv", inputs, pads=pads, **spatial))


@sweep
def recurrent(b: Builder) -> None:
    """Sizes around vectors and panels, batches, both orders of dimensions, everything that may be absent."""
    op = b.choice(["LSTM", "GRU", "RNN"])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    t, n, d = b.integer(1, 12), b.choice([1, 1, 2, 3, 4, 5, 7, 9]), b.choice(LENGTHS[:14])
    h = b.choice([1, 2, 5, 8, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100])
    direction = b.choice(["forward", "reverse", "bidirectional"])
    both = 2 if direction == "bidirectional" else 1
    x = b.input([t, n, d])
    inputs = [x, _scaled(b, [both, gates * h, d], d), _scaled(b, [both, gates * h, h], h)]
    attributes = {"hidden_size": h, "direction": direction}
    inputs.append(_scaled(b, [both, 2 * gates * h], 4) if b.chance(0.7) else "")
    if b.chance(0.5):
        inputs += ["", b.input([both, n, h])]
        if op == "LSTM":
            inputs.append(b.input([both, n, h]))
            if b.chance(0.4):
                inputs.append(_scaled(b, [both, 3 * h], 4))
    if op == "GRU":
        attributes["linear_before_reset"] = b.integer(0, 1)
    if op == "RNN" and b.chance(0.4):
        attributes["activations"] = ["Relu"] * both
    if b.chance(0.2):
        attributes["clip"] = 0.5
    results = b.node(op, inputs, outputs=3 if op == "LSTM" else 2, **attributes)
    b.node("Mul", [results[0], b.input([h])])


def _image(b: Builder, channels: int) -> str:
    """Channels last."""
    return _channels_last(b, b.input([b.choice([1, 1, 2]), channels, b.integer(1, 9), b.integer(1, 9)]))


@sweep
def cut(b: Builder) -> None:
    """Slice and Split of images, steps backwards and cuts of everything among them; then something that reads the parts."""
    channels = b.choice(CHANNELS)
    x = _image(b, channels)
    if b.chance(0.4) and channels > 1:
        first = b.integer(1, channels - 1)
        sizes, axis = ([first, channels - first], 1)
        parts = b.node("Split", [x, b.ints(*sizes)], outputs=2, axis=axis)
        b.node("Relu", [parts[0]])
        b.node("Conv", [parts[1], _scaled(b, [4, channels - first, 1, 1], channels)])
        return
    axes = [int(a) for a in b.rng.permutation(4)[: b.integer(1, 3)]]
    starts, ends, steps = [], [], []
    for axis in axes:
        size = b.dims(x)[axis][0]
        step = b.choice([1, 1, 1, 2, -1])
        start, end = (0, size) if b.chance(0.4) else (b.integer(0, size - 1), b.integer(1, size + 1))
        starts.append(size - 1 if step < 0 else start)
        ends.append(-size - 1 if step < 0 else max(end, start + 1))
        steps.append(step)
    y = b.node("Slice", [x, b.ints(*starts), b.ints(*ends), b.ints(*axes), b.ints(*steps)])
    _follow(b, y)


@sweep
def spatial_mean(b: Builder) -> None:
    """Of images, as squeeze-and-excitation has it."""
    channels = b.choice(CHANNELS)
    x = _image(b, channels)
    mean = b.node("ReduceMean", [x, b.ints(2, 3)], keepdims=1)
    gate = b.node("Sigmoid", [b.node("Conv", [mean, _scaled(b, [channels, channels, 1, 1], channels)])])
    b.node("Mul", [x, gate])


@sweep
def computed_length(b: Builder) -> None:
    """The length of what convolutions and products read is a value of the network."""
    c, longest = b.choice([1, 3, 8, 17, 32]), b.integer(3, 40)
    x = b.input([1, c, longest])
    lengths = b.input([1], lambda s: np.full(s, b.integer(2, longest), np.int64))
    zero, two = b.ints(0), b.ints(2)
    y = b.node("Slice", [x, zero, lengths, two])
    for _ in range(b.integer(1, 3)):
        k = b.choice([1, 2])
        weights = _scaled(b, [c, c, k], c * k)
        y = b.node(b.choice(["Relu", "Tanh", "Sigmoid"]), [b.node("Conv", [y, weights], pads=[k - 1, 0])])
    if b.chance(0.5):
        y = b.node("Add", [y, b.node("Slice", [x, zero, lengths, two])])
    if b.chance(0.5):
        shape = b.node("Concat", [b.ints(c), lengths], axis=0)
        y = b.node("Reshape", [y, shape])
        y = b.node("MatMul", [_scaled(b, [5, c], c), y])
    if b.chance(0.3):
        kept = b.node("NonZero", [b.node("Greater", [b.node("ReduceSum", [y], keepdims=0), b.constant(np.float32(0))])])
        b.node("Cast", [kept], to=1)
    b.node("ReduceMax", [y], keepdims=1)
