"""Recipes of convolutions, pooling and resizing, with what follows them."""

from __future__ import annotations

import numpy as np

from .builder import Builder
from .products import epilogue
from .recipes import IMAGE, operand, recipe

CHANNELS = (1, 2, 3, 4, 5, 8, 16, 17, 24, 33)


def need_pads(b: Builder, sizes, kernel, strides) -> None:
    """Steps so long that pads for the same size would have to be negative: each reader cuts at another side."""
    b.need(all((-(-n // s) - 1) * s + k >= n for n, k, s in zip(sizes, kernel, strides)))


def geometry(b: Builder, spatial, transposed: bool = False):
    """Kernel sizes and attributes of a window: strides, dilations, pads or auto_pad, most of them absent at times."""
    rank = len(spatial)
    smallest = [min(s) for s in spatial]
    b.need(all(s >= 1 for s in smallest))
    same = b.integer(1, 4)
    kernel = [same] * rank if b.chance(0.6) else [b.integer(1, 5) for _ in range(rank)]
    if b.chance(0.15) and max(smallest) <= 9:
        kernel = list(smallest)
    attributes = {}
    if b.chance(0.5):
        step = b.choice([1, 2, 2, 3, 4])
        attributes["strides"] = [step] * rank if b.chance(0.6) else [b.integer(1, 4) for _ in range(rank)]
    if b.chance(0.25):
        attributes["dilations"] = [b.integer(1, 3) for _ in range(rank)]
    form = b.rng.random()
    if form < 0.35:
        half = [(k - 1) // 2 for k in kernel]
        attributes["pads"] = half + half
    elif form < 0.65:
        attributes["pads"] = [b.integer(0, max(0, k - 1)) for k in kernel * 2]
    elif form < 0.8 and "dilations" not in attributes:
        attributes["auto_pad"] = b.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    if not transposed and attributes.get("auto_pad") not in ("SAME_UPPER", "SAME_LOWER"):
        # A window that fits nowhere: ONNX Runtime and the standard disagree about what that means.
        pads, dilations = attributes.get("pads", [0] * 2 * rank), attributes.get("dilations", [1] * rank)
        for d in range(rank):
            b.need(smallest[d] + pads[d] + pads[d + rank] >= (kernel[d] - 1) * dilations[d] + 1)
    if attributes.get("auto_pad") in ("SAME_UPPER", "SAME_LOWER") and not transposed:
        need_pads(b, smallest, kernel, attributes.get("strides", [1] * rank))
    if transposed and b.chance(0.25) and "strides" in attributes:
        attributes["output_padding"] = [b.integer(0, s - 1) for s in attributes["strides"]]
    return kernel, attributes


def weights(b: Builder, shape, fan_in: int) -> str:
    """Mostly constant weights."""
    scale = 1 / max(1, fan_in) ** 0.5
    if b.chance(0.9):
        return b.constant(b.numbers(shape, scale))
    return b.input(shape, lambda s: b.numbers(s, scale))


def batch_norm(b: Builder, x: str) -> str:
    """A constant BatchNormalization."""
    count = b.dims(x)[1][0]
    parameters = [b.numbers([count]) for _ in range(3)] + [np.abs(b.numbers([count])) + np.float32(0.3)]
    return b.node("BatchNormalization", [x, *(b.constant(p, as_node=False) for p in parameters)])


def tail(b: Builder, x: str) -> None:
    """BatchNormalization, residual sums and activations after a convolution."""
    if b.chance(0.3):
        x = batch_norm(b, x)
    x = epilogue(b, x, 1)
    if b.chance(0.15):
        batch_norm(b, x)


def static_channels(b: Builder, x: str) -> int:
    sizes = b.dims(x)[1]
    b.need(len(set(sizes)) == 1 and sizes[0] >= 1)
    return sizes[0]


@recipe(14, (IMAGE,))
def convolution(b: Builder) -> None:
    x = b.pick_rank(3, 5)
    c = static_channels(b, x)
    kernel, attributes = geometry(b, b.dims(x)[2:])
    groups = b.choice([g for g in {1, c, 2, 3, 4} if c % g == 0]) if b.chance(0.4) else 1
    multiplier = b.choice([1, 1, 2, 3])
    m = groups * multiplier if groups > 1 else b.choice(CHANNELS)
    w = weights(b, [m, c // groups, *kernel], c // groups * int(np.prod(kernel)))
    inputs = [x, w] + ([operand(b, x, [m])] if b.chance(0.5) else [])
    group = groups if groups > 1 or b.chance(0.5) else None
    y = b.node("Conv", inputs, kernel_shape=kernel if b.chance(0.7) else None, group=group, **attributes)
    tail(b, y)


@recipe(6, (IMAGE,))
def transposed_convolution(b: Builder) -> None:
    x = b.pick_rank(3, 5)
    c = static_channels(b, x)
    kernel, attributes = geometry(b, b.dims(x)[2:], transposed=True)
    groups = b.choice([g for g in {1, c, 2, 3} if c % g == 0]) if b.chance(0.3) else 1
    per_group = b.choice([1, 2, 3, 8]) if groups > 1 else b.choice(CHANNELS)
    w = weights(b, [c, per_group, *kernel], c // groups)
    inputs = [x, w] + ([operand(b, x, [groups * per_group])] if b.chance(0.5) else [])
    group = groups if groups > 1 else None
    y = b.node("ConvTranspose", inputs, kernel_shape=kernel if b.chance(0.7) else None, group=group, **attributes)
    tail(b, y)


@recipe(5, (IMAGE,))
def pooling(b: Builder) -> None:
    x = b.pick_rank(3, 5)
    op = b.choice(["MaxPool", "AveragePool", "AveragePool", "LpPool"])
    kernel, attributes = geometry(b, b.dims(x)[2:])
    if "dilations" in attributes and b.opset < {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]:
        del attributes["dilations"]
    if b.opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[op]:
        attributes["ceil_mode"] = b.choice([None, 0, 1])
    if op == "AveragePool":
        attributes["count_include_pad"] = b.choice([None, 0, 1])
    if op == "LpPool":
        attributes["p"] = b.choice([None, 1, 2])
    outputs = 2 if op == "MaxPool" and b.chance(0.15) else 1
    y = b.node(op, [x], outputs=outputs, kernel_shape=kernel, **attributes)
    if outputs == 1 and b.chance(0.4):
        epilogue(b, y, 1)


@recipe(1.5, (IMAGE,))
def global_pooling(b: Builder) -> None:
    x = b.pick_rank(3, 5)
    y = b.node(b.choice(["GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool"]), [x])
    if b.chance(0.5):
        y = b.node("Flatten", [y])
    if b.chance(0.5):
        epilogue(b, y, 1)


@recipe(4, (IMAGE,))
def resize(b: Builder) -> None:
    x = b.pick_rank(3, 5)
    rank = b.rank(x)
    b.need(all(min(v.shape) > 0 for v in b.values[x]))
    factors = [1.0, 1.0] + [float(b.choice([1, 2, 2, 3, 0.5, 1.5, 2.0])) for _ in range(rank - 2)]
    mode = b.choice(["nearest", "nearest", "linear", "cubic"])
    if mode != "nearest":
        b.need(rank == 4 or mode == "linear")
        b.need(not b.special)  # Weights of zero times infinity: some skip them.
    scales = np.array(factors, np.float32)
    if b.opset < 9:
        y = b.node("Upsample", [x], mode=mode, scales=factors)
    elif b.opset < 10:
        y = b.node("Upsample", [x, b.constant(scales, as_node=False)], mode=mode)
    elif b.opset < 11:
        y = b.node("Resize", [x, b.constant(scales)], mode=mode)
    else:
        attributes = {"mode": mode}
        if b.chance(0.8):
            modes = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
            attributes["coordinate_transformation_mode"] = b.choice(modes)
        if mode == "nearest" and b.chance(0.7):
            rounding = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]
            attributes["nearest_mode"] = b.choice(rounding)
        roi = "" if b.opset >= 13 else b.constant(np.zeros(0, np.float32), as_node=False)
        if b.chance(0.7):
            # With corners aligned, ONNX takes the scaled length as it is, ONNX Runtime without its fraction.
            exact = all(float(s * f).is_integer() for size, f in zip(b.dims(x), factors) for s in size)
            b.need(exact or attributes.get("coordinate_transformation_mode") != "align_corners")
            inputs = [x, roi, b.constant(scales)]
        else:
            empty = "" if b.opset >= 13 else b.constant(np.zeros(0, np.float32), as_node=False)
            sizes = [max(1, int(s[0] * f)) for s, f in zip(b.dims(x), factors)]
            inputs = [x, roi, empty, b.ints(*sizes)]
        y = b.node("Resize", inputs, **attributes)
    epilogue(b, y, 1)


@recipe(0.8, (IMAGE,))
def blocks(b: Builder) -> None:
    x = b.pick_rank(4, 4)
    if b.chance(0.5):
        b.node("SpaceToDepth", [x], blocksize=b.choice([1, 2, 3]))
    else:
        b.node("DepthToSpace", [x], blocksize=2, mode=b.choice(["DCR", "CRD"]) if b.opset >= 11 else None)


@recipe(1.5, (IMAGE,))
def residual_block(b: Builder) -> None:
    """Two convolutions whose result is added to what went in; the sum may be read twice."""
    x = b.pick_rank(3, 5)
    c = static_channels(b, x)
    rank = b.rank(x) - 2
    y = x
    for _ in range(b.integer(1, 2)):
        size = b.choice([1, 3])
        w = weights(b, [c, c] + [size] * rank, c * size**rank)
        y = b.node("Conv", [y, w], pads=[size // 2] * (2 * rank))
        if b.chance(0.5):
            y = batch_norm(b, y)
        if b.chance(0.5):
            y = b.node("Relu", [y])
    y = b.node("Add", [x, y] if b.chance(0.5) else [y, x])
    if b.chance(0.7):
        b.node(b.choice(["Relu", "Sigmoid", "HardSigmoid"]), [y])


@recipe(0.6, (IMAGE,))
def wide_convolution(b: Builder) -> None:
    """Many channels on few positions: other kernels than those of small layers."""
    channels = b.choice([64, 128, 256, 320])
    size = b.choice([1, 2, 4, 7])
    x = b.input([1, channels, size, size])
    k, out = b.choice([1, 2, 3, 4]), b.choice([1, 8, 16, 33, 64])
    stride = b.choice([1, 2, k])
    op = b.choice(["Conv", "ConvTranspose"])
    shape = [out, channels, k, k] if op == "Conv" else [channels, out, k, k]
    inputs = [x, weights(b, shape, channels * k * k)] + ([operand(b, x, [out])] if b.chance(0.7) else [])
    y = b.node(op, inputs, strides=[stride] * 2, pads=[k // 2] * 4 if op == "Conv" else [0] * 4)
    tail(b, y)
