"""Forms that move elements, views among them, and passages through other types."""

from __future__ import annotations

from typing import Callable, List

import numpy as np

from .site import Site
from .table import add, add_merge


def _transpose(which: str) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        rank = s.rank(x)
        s.need(rank >= {"last two": 2, "reverse": 3, "rotate": 3}[which])
        order = list(range(rank))
        perm = {"last two": [*order[:-2], rank - 1, rank - 2], "reverse": order[::-1], "rotate": [*order[1:], 0]}[which]
        return s.node("Transpose", [x], perm=perm)

    return build


add("Transpose", _transpose("last two"), "move", "core")
add("Transpose reverse", _transpose("reverse"), "move")
add("Transpose rotate", _transpose("rotate"), "move")


def _reshape(target: Callable[[tuple], List[int]]) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.values[x].v.size)
        return s.node("Reshape", [x, s.ints(*target(s.shape(x)))])

    return build


add("Reshape flat", _reshape(lambda n: [-1]), "move", "view", "core")
add("Reshape to rows", _reshape(lambda n: [-1, n[-1] if n else 1]), "move", "view")
add("Reshape with a head", _reshape(lambda n: [1, *n]), "move", "view")
add("Reshape to images", _reshape(lambda n: [1, n[0] if n else 1, -1, 1]), "move", "view")


def _flatten(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1)
    return s.node("Flatten", [x])


add("Flatten", _flatten, "move", "view")
add("Flatten 0", lambda s, x: s.node("Flatten", [x], axis=0), "move", "view")


def _unsqueeze(first: bool) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        axis = 0 if first else s.rank(x)
        if s.opset >= 13:
            return s.node("Unsqueeze", [x, s.ints(axis)])
        return s.node("Unsqueeze", [x], axes=[axis])

    return build


def _squeeze(s: Site, x: str) -> str:
    s.need(1 in s.shape(x))
    axis = s.shape(x).index(1)
    return s.node("Squeeze", [x, s.ints(axis)]) if s.opset >= 13 else s.node("Squeeze", [x], axes=[axis])


add("Unsqueeze first", _unsqueeze(True), "move", "view")
add("Unsqueeze last", _unsqueeze(False), "move", "view", "core")
add("Squeeze", _squeeze, "move", "view")


def _slice(which: str) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 1)
        last = s.rank(x) - 1
        axis = 0 if which in ("first rows", "rows backwards") else last
        size = s.shape(x)[axis]
        start, end, step = {
            "first rows": (0, max(1, size - 1), 1),
            "rows backwards": (size - 1, -size - 1, -1),
            "columns": (1, size, 1),
            "every second": (0, size, 2),
            "nothing": (size, size, 1),
        }[which]
        return s.node("Slice", [x, s.ints(start), s.ints(end), s.ints(axis), s.ints(step)])

    return build


add("Slice first rows", _slice("first rows"), "move", "view", "core")
add("Slice rows backwards", _slice("rows backwards"), "move")
add("Slice columns", _slice("columns"), "move", "core")
add("Slice every second", _slice("every second"), "move")
add("Slice nothing", _slice("nothing"), "move")


def _split(keep: str) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 1 and s.shape(x)[-1] >= 2)
        size, axis = s.shape(x)[-1], s.rank(x) - 1
        parts = [1, size - 1]
        if s.opset >= 13:
            a, b = s.node("Split", [x, s.ints(*parts)], 2, axis=axis)
        else:
            a, b = s.node("Split", [x], 2, axis=axis, split=parts)
        return (
            b if keep == "second" else s.node("Concat", [b, a], axis=axis) if keep == "both" else s.node("Mul", [a, b])
        )

    return build


add("Split second", _split("second"), "move")
add("Split and Concat", _split("both"), "move")
add("Split and Mul", _split("product"), "move")


def _concat(which: str) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 1)
        axis = 0 if which == "itself, rows" else s.rank(x) - 1
        other = x if which.startswith("itself") else s.given(s.shape(x), which == "constant")
        return s.node("Concat", [x, other] if which != "given" else [other, x], axis=axis)

    return build


add("Concat itself", _concat("itself"), "move", "core")
add("Concat itself, rows", _concat("itself, rows"), "move")
add("Concat constant", _concat("constant"), "move")
add("Concat given", _concat("given"), "move")


def _gather(axis: int, indices: object) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 1 and s.shape(x)[axis] >= 1)
        picked = np.asarray(indices, np.int64) % s.shape(x)[axis]
        return s.node("Gather", [x, s.constant(picked)], axis=axis % s.rank(x))

    return build


add("Gather one row", _gather(0, 1), "move", "core")
add("Gather rows", _gather(0, [1, 0, 1]), "move")
add("Gather columns", _gather(-1, [[2, 0], [1, 1]]), "move")


def _gather_elements(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1 and s.values[x].v.size)
    picked = s.rng.integers(0, s.shape(x)[-1], s.shape(x))
    return s.node("GatherElements", [x, s.constant(picked.astype(np.int64))], axis=s.rank(x) - 1)


def _gather_nd(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 2 and 0 not in s.shape(x)[:2] and s.opset >= 12)
    picked = np.stack([s.rng.integers(0, n, 3) for n in s.shape(x)[:2]], -1)
    return s.node("GatherND", [x, s.constant(picked.astype(np.int64))])


def _scatter_nd(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1 and s.shape(x)[0] >= 1)
    return s.node("ScatterND", [x, s.constant(np.int64([[0]])), s.weights([1, *s.shape(x)[1:]])])


def _scatter_elements(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1 and s.values[x].v.size)
    shape = [*s.shape(x)[:-1], 1]
    return s.node("ScatterElements", [x, s.constant(np.zeros(shape, np.int64)), s.weights(shape)], axis=s.rank(x) - 1)


add("GatherElements", _gather_elements, "move")
add("GatherND", _gather_nd, "move")
add("ScatterND", _scatter_nd, "move")
add("ScatterElements", _scatter_elements, "move")


def _expand(s: Site, x: str) -> str:
    return s.node("Expand", [x, s.ints(2, *s.shape(x))])


def _expand_ones(s: Site, x: str) -> str:
    s.need(1 in s.shape(x))
    return s.node("Expand", [x, s.ints(*[3 if size == 1 else 1 for size in s.shape(x)])])


def _tile(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1)
    return s.node("Tile", [x, s.ints(*[2 if d == s.rank(x) - 1 else 1 for d in range(s.rank(x))])])


add("Expand", _expand, "move")
add("Expand ones", _expand_ones, "move", "core")
add("Tile", _tile, "move")


def _pad(mode: str, ends: tuple) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        rank = s.rank(x)
        s.need(rank >= 1 and (mode == "constant" or s.values[x].v.size and s.shape(x)[-1] >= 2))
        s.need(min(ends) >= 0 or s.shape(x)[-1] >= 1)
        s.need(mode != "wrap" or s.opset >= 19)
        pads = [0] * (2 * rank)
        pads[rank - 1], pads[2 * rank - 1] = ends
        value = [s.constant(np.float32(-0.333))] if mode == "constant" else []
        return s.node("Pad", [x, s.ints(*pads), *value], mode=mode)

    return build


add("Pad", _pad("constant", (1, 2)), "move", "core")
add("Pad reflect", _pad("reflect", (1, 1)), "move")
add("Pad edge", _pad("edge", (2, 0)), "move")
add("Pad wrap", _pad("wrap", (1, 1)), "move")
add("Pad by less than nothing", _pad("constant", (-1, 0)), "move")


def _blocks(op: str, **attributes) -> Callable[[Site, str], str]:
    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) == 4 and s.values[x].v.size)
        return s.node(op, [x], blocksize=2, **attributes)

    return build


add("DepthToSpace", _blocks("DepthToSpace"), "move")
add("SpaceToDepth", _blocks("SpaceToDepth"), "move")


def _trilu(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 2)
    return s.node("Trilu", [x], upper=0)


def _top_k(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1 and s.shape(x)[-1] >= 2)
    return s.node("TopK", [x, s.ints(2)], 2, axis=s.rank(x) - 1)[0]


def _reverse_sequence(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 2 and 0 not in s.shape(x)[:2])
    lengths = np.arange(s.shape(x)[1]) % s.shape(x)[0] + 1
    return s.node("ReverseSequence", [x, s.constant(lengths.astype(np.int64))], time_axis=0, batch_axis=1)


def _compress(s: Site, x: str) -> str:
    s.need(s.rank(x) >= 1 and s.shape(x)[0] >= 1)
    return s.node("Compress", [x, s.constant(np.array([True]))], axis=0)


add("Trilu", _trilu, "move")
add("TopK", _top_k, "move")
add("ReverseSequence", _reverse_sequence, "move")
add("Compress", _compress, "move")


def _through(kind: int) -> Callable[[Site, str], str]:
    return lambda s, x: s.node("Cast", [s.node("Cast", [x], to=kind)], to=1)


def _through_bfloat16(s: Site, x: str) -> str:
    s.need(s.opset >= 13)
    return _through(16)(s, x)


add("Cast to float16 and back", _through(10), "core")
add("Cast to bfloat16 and back", _through_bfloat16)
add("Cast to float64 and back", _through(11))


def _in_float64(s: Site, x: str) -> str:
    wide = s.node("Cast", [x], to=11)
    return s.node("Cast", [s.node("Mul", [wide, s.constant(s.rng.standard_normal(()))])], to=1)


def _in_float16(s: Site, x: str) -> str:
    half = s.node("Cast", [x], to=10)
    return s.node("Cast", [s.node("Add", [half, half])], to=1)


add("Mul in float64", _in_float64)
add("Add in float16", _in_float16)


def _join(axis: int) -> Callable[[Site, str, str], str]:
    def build(s: Site, x: str, y: str) -> str:
        s.need(s.rank(x) == s.rank(y) >= 1)
        return s.node("Concat", [x, y], axis=axis % s.rank(x))

    return build


add_merge("Concat", _join(-1))
add_merge("Concat rows", _join(0))


def _picture(kind: int) -> Callable[[Site, str], str]:
    """Channels to the front, as networks take pictures of bytes."""

    def build(s: Site, x: str) -> str:
        s.need(s.rank(x) >= 3 and bool(np.isfinite(s.values[x].v).all()))
        size = s.node("Abs", [s.node("Mul", [x, s.constant(np.float32(16))])])
        whole = s.node("Cast", [s.node("Min", [size, s.constant(np.float32(200))])], to=kind)
        last = s.rank(x) - 1
        return s.node("Cast", [s.node("Transpose", [whole], perm=[0, last, *range(1, last)])], to=1)

    return build


add("Picture of uint8", _picture(2))
add("Picture of int32", _picture(6))
add("Picture of int64", _picture(7))
add("Picture of float64", _picture(11))
