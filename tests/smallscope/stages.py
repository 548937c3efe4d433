"""The stages of the enumeration: which forms meet in which way."""

from __future__ import annotations

from typing import Dict, List

from . import forms_bytes, forms_elements, forms_movement, forms_other, forms_pointwise  # noqa: F401
from . import forms_products, forms_rows, forms_windows, shapes  # noqa: F401
from .recipes import Stage, chain, diamond, idiom, in_turn, shown, side, triangle
from .table import FORMS, MERGES, tagged


def _names(*tags: str) -> List[str]:
    return [form.name for form in tagged(*tags)]


_ELEMENTS, _CORE, _MERGES = _names("elements"), _names("core"), list(MERGES)
_EVERY = [name for name in FORMS if name not in _ELEMENTS]
_REST = [name for name in _EVERY if "core" not in FORMS[name].tags]
_POINT, _ROW, _PRODUCT = _names("point", "core"), _names("row"), _names("product")
_CONTROL, _INT8 = _names("control"), _names("int8")
_BYTES = _names("bytes")
_CONVERTED = [name for name in _EVERY if {"product", "norm"} & set(FORMS[name].tags)]

# Normalizations that are written out, and what stands around them.
_ROWS = [n for n in _ROW if n.endswith("keepdims 1") or "Softmax" in n or "Normalization" in n]
_HEADS = [
    "Exp", "Add row", "Add given full", "MatMul", "Transpose", "Conv2 of 1", "Square by Pow", "PRelu row", "Add one",
]  # fmt: skip
_ARITHMETIC = ["Add", "Mul", "Sub", "Div, swapped", "Max"]
_TAILS = [
    "Mul row", "Sigmoid", "Add given row", "Cast to float16 and back", "Reshape flat", "ReduceSum last, keepdims 1",
    "Clip", "Mul its Identity", "Div itself", "Mul column",
]  # fmt: skip

# Attention: a product, a mask, softmax, what becomes of the weights, a product.
_ENDS = [n for n in _PRODUCT if n.startswith("MatMul") and "int8" not in n and "blocks" not in n]
_MASKS = ["Mul scalar", "Add given full", "Where by a row", "Div scalar", "Add row", "Clip", "Tanh", "Identity"]
_WEIGHTS = [
    "Identity", "Mul itself", "Mul given full", "Dropout", "Exp", "Mul row", "Cast to float16 and back", "Transpose",
]  # fmt: skip

# Products of bytes, what may stand between their sums and the bytes that are stored, and how these are made.
_OF_BYTES = [n for n in FORMS if {"int8", "bytes"} & set(FORMS[n].tags) and "product" in FORMS[n].tags]
_BETWEEN = [
    "Identity", "Relu", "Clip", "Add row", "Mul scalar", "HardSwish", "Sigmoid", "LeakyRelu", "Neg", "Add int8",
    "Add given full", "Mul itself", "Transpose", "Reshape flat", "BatchNormalization", "MaxPool2",
]  # fmt: skip
_STORED = ["QDQ", "QDQ u8", *(n for n in _BYTES if n.startswith("QDQ"))]

_ENGINES = [
    Stage("one", (_EVERY,), chain, len(shapes.ALL) // 3, shapes.ALL),
    Stage("two, core", (_CORE, _CORE), chain, 2),
    Stage("two, others first", (_REST, _CORE), chain, judges=("in_turn",)),
    Stage("two, others last", (_CORE, _REST), chain, judges=("in_turn",)),
    Stage("two, others", (_REST, _REST), chain, every=2, judges=("light",)),
    Stage("triangles", (_CORE, _CORE), in_turn(triangle, _MERGES)),
    Stage("triangles, all merges", (_MERGES, _CORE[:40:4], _EVERY), triangle, every=4, judges=("in_turn",)),
    Stage("sides", (_CORE, _CORE), in_turn(side, _MERGES)),
    Stage("diamonds", (_CORE, _CORE), in_turn(diamond, _MERGES)),
    Stage("diamonds, others", (_CORE, _REST), in_turn(diamond, _MERGES), every=4),
    Stage("shown", (_CORE, _CORE), shown),
    Stage("point, row, point", (_POINT, _ROW, _POINT), chain, every=6),
    Stage("idioms", (_HEADS, _ROWS, _ARITHMETIC, _TAILS), idiom),
    Stage("row, row, point", (_ROWS, _ROWS, _POINT), chain, every=6, judges=("in_turn",)),
    Stage("epilogues", (_PRODUCT, _POINT, _POINT), chain, every=8),
    Stage("attention", (_ENDS, _MASKS, ["Softmax last"], _WEIGHTS, _ENDS), chain, every=4),
    Stage("control", (_CONTROL, _CORE), chain, every=2),
    Stage("control last", (_CORE, _CONTROL), chain, every=2),
    Stage("int8 last", (_CORE, _INT8), chain),
    Stage("bytes", (_OF_BYTES, _BETWEEN, _STORED), chain, judges=("in_turn",)),
    Stage("bytes, shown", (_OF_BYTES, _STORED), shown),
    Stage("bytes, two", (_OF_BYTES, _STORED, _OF_BYTES, _STORED), chain, every=4, judges=("in_turn",)),
    Stage("large", (_CORE, _CORE), chain, shapes=shapes.LARGE, every=3),
    Stage("large, one", (_EVERY,), chain, 4, shapes.LARGE),
]
_CONVERT = [
    Stage("convert, two", (_CONVERTED, _CORE), chain, judges=("convert",)),
    Stage("convert, two last", (_CORE, _CONVERTED), chain, judges=("convert",)),
    Stage("convert, one", (_CONVERTED,), chain, 12, judges=("convert",)),
]
_ADJOINT = [
    Stage("adjoint, one", (_EVERY,), chain, 12, judges=("adjoint",)),
    Stage("adjoint, two", (_CORE, _CORE), chain, judges=("adjoint",)),
    Stage("adjoint, others first", (_REST, _CORE), chain, judges=("adjoint",)),
    Stage("adjoint, triangles", (_CORE, _CORE), in_turn(triangle, _MERGES), judges=("adjoint",)),
    Stage("adjoint, diamonds", (_CORE, _CORE), in_turn(diamond, _MERGES), judges=("adjoint",)),
]
# Elements of few bits: products beside all else, before and behind it.
_OF_ELEMENTS = [
    Stage("elements", (_ELEMENTS,), chain, 30, shapes.BLOCKS, judges=("elements",)),
    Stage("elements last", (_CORE, _ELEMENTS), chain, 3, shapes.BLOCKS, judges=("elements",)),
    Stage("elements first", (_ELEMENTS, _CORE), chain, 3, shapes.BLOCKS, judges=("elements",)),
    Stage("elements between", (_POINT, _ELEMENTS, _POINT), chain, 1, shapes.BLOCKS, 24, judges=("elements",)),
    Stage("elements twice", (_ELEMENTS, _CORE, _ELEMENTS), chain, 1, shapes.BLOCKS, 3, judges=("elements",)),
    Stage("elements beside", (_CORE, _ELEMENTS), in_turn(triangle, _MERGES), 1, shapes.BLOCKS, judges=("elements",)),
]

STAGES: Dict[str, Stage] = {stage.name: stage for stage in (*_ENGINES, *_CONVERT, *_ADJOINT, *_OF_ELEMENTS)}
TOTAL = 0  #: Numbers of graphs are below.
for _stage in STAGES.values():
    _stage.first = TOTAL
    TOTAL += len(_stage)
