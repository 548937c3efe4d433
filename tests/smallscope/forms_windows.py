"""Forms of convolutions, pools and resizing over one to three dimensions."""

from __future__ import annotations

from typing import Callable

import numpy as np

from .site import Site
from .table import add


def _spatial(s: Site, x: str, rank: int) -> None:
    s.need(s.rank(x) == rank + 2 and s.values[x].v.size)


def _conv(
    rank: int, kernel: int, bias: bool, groups: str = "", constant: bool = True, outputs: int = 3, **attributes
) -> Callable[[Site, str], str]:
    """`attributes` per dimension; pads on either side."""

    def build(s: Site, x: str) -> str:
        _spatial(s, x, rank)
        channels = s.shape(x)[1]
        group = channels if groups == "depthwise" else 1
        s.need(groups != "depthwise" or channels > 1)
        count = channels if groups == "depthwise" else outputs
        inputs = [x, s.given([count, channels // group, *[kernel] * rank], constant)]
        if bias:
            inputs.append(s.given([count], constant))
        given = {key: [value] * rank for key, value in attributes.items() if isinstance(value, int)}
        given |= {key: value for key, value in attributes.items() if isinstance(value, str)}
        if "pads" in given:
            given["pads"] *= 2
        return s.node("Conv", inputs, group=group if groups else None, **given)

    return build


for _rank in (1, 2, 3):
    add(f"Conv{_rank} of 1", _conv(_rank, 1, True), "product", "conv", *["core"] * (_rank < 3))
    add(f"Conv{_rank} padded", _conv(_rank, 3, True, pads=1), "product", "conv", *["core"] * (_rank == 2))
    add(f"Conv{_rank} depthwise", _conv(_rank, 3, False, "depthwise", pads=1), "product", "conv")
    add(f"Conv{_rank} strided", _conv(_rank, 2, False, strides=2, pads=1), "product", "conv")
    add(f"Conv{_rank} given", _conv(_rank, 2, True, constant=False, pads=1, outputs=2), "product", "conv")
    add(f"Conv{_rank} dilated", _conv(_rank, 2, True, dilations=2, pads=1), "product", "conv")
    add(f"Conv{_rank} same", _conv(_rank, 3, False, auto_pad="SAME_UPPER", outputs=17), "product", "conv")
add("Conv2 of 1 to 17", _conv(2, 1, False, outputs=17), "product", "conv")


def _transposed(rank: int, kernel: int, bias: bool, groups: bool = False, **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        _spatial(s, x, rank)
        channels = s.shape(x)[1]
        group = channels if groups else 1
        inputs = [x, s.weights([channels, 2, *[kernel] * rank])]
        if bias:
            inputs.append(s.weights([2 * group]))
        given = {key: [value] * rank * (2 if key == "pads" else 1) for key, value in attributes.items()}
        return s.node("ConvTranspose", inputs, group=group if groups else None, **given)

    return build


for _rank in (1, 2, 3):
    add(f"ConvTranspose{_rank}", _transposed(_rank, 2, True, strides=2), "product", "conv")
    add(f"ConvTranspose{_rank} padded", _transposed(_rank, 3, False, pads=1), "product", "conv")
    add(f"ConvTranspose{_rank} groups", _transposed(_rank, 2, True, groups=True), "product", "conv")


def _pool(op: str, rank: int, kernel: int, **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        _spatial(s, x, rank)
        given = {key: [value] * rank if key in ("strides", "dilations") else value for key, value in attributes.items()}
        if "pads" in given:
            given["pads"] = [given["pads"]] * (2 * rank)
        return s.node(op, [x], kernel_shape=[kernel] * rank, **given)

    return build


for _rank in (1, 2, 3):
    add(f"MaxPool{_rank}", _pool("MaxPool", _rank, 2, pads=1), "pool", *["core"] * (_rank == 2))
    add(f"MaxPool{_rank} strided", _pool("MaxPool", _rank, 3, strides=2, pads=1, ceil_mode=1), "pool")
    add(f"AveragePool{_rank}", _pool("AveragePool", _rank, 2, pads=1), "pool", *["core"] * (_rank == 2))
    add(f"AveragePool{_rank} padded", _pool("AveragePool", _rank, 3, pads=1, strides=2, count_include_pad=1), "pool")
    add(f"LpPool{_rank}", _pool("LpPool", _rank, 2, strides=1, pads=1), "pool")
add("MaxPool2 dilated", _pool("MaxPool", 2, 2, dilations=2, pads=1), "pool")


def _global(op: str) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 3 and s.values[x].v.size)
        return s.node(op, [x])

    return build


add("GlobalAveragePool", _global("GlobalAveragePool"), "pool", "core")
add("GlobalMaxPool", _global("GlobalMaxPool"), "pool")
add("GlobalLpPool", _global("GlobalLpPool"), "pool")


def _resize(mode: str, factor: float, **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) in (3, 4) and s.values[x].v.size and s.opset >= 11)
        s.need(mode != "cubic" or s.rank(x) == 4)
        scales = [1.0, 1.0] + [factor] * (s.rank(x) - 2)
        s.need(all(int(size * f) >= 1 for size, f in zip(s.shape(x), scales)))
        return s.node(
            "Resize", [x, s.constant(np.zeros(0, np.float32)), s.constant(np.float32(scales))], mode=mode, **attributes
        )

    return build


add(
    "Resize nearest", _resize("nearest", 2.0, coordinate_transformation_mode="asymmetric", nearest_mode="floor"), "move"
)
add("Resize linear", _resize("linear", 1.5))
add("Resize linear down", _resize("linear", 0.5, coordinate_transformation_mode="align_corners"))
add("Resize cubic", _resize("cubic", 2.0))
