"""Layers that run on elements of few bits: what their products are, by NumPy; and the same graphs through `convert`."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Set, Tuple

import ml_dtypes
import numpy as np
import onnx
from ulpscope.calibration import calibrate_samples
from ulpscope.native import _core, assign

from fuzz.checks import INTERNAL, LEVELS, REFUSED, WRONG, Way
from oracle.element_formats import (
    E2M1, E4M3, by_tensor, fp8_channels, in_blocks, int4, int8_channels, mx, nvfp4, second_scale,
)  # fmt: skip

from . import further
from .judges import Judge, same_bits

#: Formats of layers, each with its block; in turn. The first are for both operands.
FORMATS = (
    ("fp8", 0), ("mxfp8", 32), ("nvfp4", 16), ("mxfp4", 32), ("int4-32", 32), ("nvfp4-weights", 16),
    ("mxfp8-weights", 32), ("fp8-weights", 0), ("int8-weights", 0),
)  # fmt: skip
BOTH = ("fp8", "mxfp8", "nvfp4", "mxfp4")
PRODUCTS = ("MatMul", "Gemm", "Conv")
NUMBERS = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


class Asked(NamedTuple):
    """A product that is asked to run in a format, with its operands."""

    node: onnx.NodeProto
    format: str
    block: int
    constant: bool  #: The right operand.
    makers: Tuple[str, str]  #: The operators that made the operands.


def elements(judge: Judge) -> None:
    """The products of a graph in formats of few bits: one of them, or several in several formats."""
    number = judge.plan.number
    feeds = judge.graph.feeds
    model = onnx.load_from_string(judge.model)
    scales = _scales(judge.model, feeds)
    for node in model.graph.node:  # What the file says counts more.
        scale = judge.graph.constants.get(node.input[1]) if node.op_type == "DequantizeLinear" else None
        if scale is not None and scale.size == 1:
            scales[node.output[0]] = float(scale)
    base = ("fp32", "fp16", "fp32", "bf16")[number // 2 % 4]
    asked = _asked(judge, model, number)
    if not asked:
        judge.counts["no product for elements"] += 1
        _convert(judge, [FORMATS[number // 3 % len(FORMATS)][0]], base)
        return
    ways = [Way(fusion, threads, base, {each.node.name: each.format for each in asked}) for fusion, threads in
            (("none", 1), (LEVELS[1 + number % 2], 1), (LEVELS[1 + number % 2], 2))]  # fmt: skip
    seen = list(dict.fromkeys(name for each in asked for name in (*each.node.input[:2], each.node.output[0])))
    shown = _with_outputs(model, judge, seen)
    before: Optional[List[List[np.ndarray]]] = None
    for way in ways:
        got = _run(judge, judge.model, way, scales)
        if got is None:
            return
        if way.threads == 2 and not all(same_bits(a, b) for a, b in zip(got, before or [])):
            judge.note(WRONG, "other bits with two threads", way)
        before = got
        values = _run(judge, shown, way, scales)
        if values is None:
            return
        names = [each.name for each in onnx.load_from_string(shown).graph.output]
        for outputs, feed in zip(values, feeds):
            known = {**judge.graph.constants, **feed, **dict(zip(names, outputs))}
            for each in asked:
                _judge_product(judge, way, each, known, scales)
    judge.counts["products of elements"] += len(asked)
    _convert(judge, [each.format for each in asked], base)


def _asked(judge: Judge, model: onnx.ModelProto, number: int) -> List[Asked]:
    """What has a form in the formats whose turn it is."""
    result = []
    shapes = _shapes(judge, model)
    made_by = {output: node for node in model.graph.node for output in node.output}
    constants = set(judge.graph.constants)
    for node in model.graph.node:
        if node.input and constants.issuperset(node.input):
            constants.update(node.output)
    for i, node in enumerate(n for n in model.graph.node if n.op_type in PRODUCTS):
        name, block = FORMATS[(number // 3 + i * 4) % len(FORMATS)]
        if node.op_type == "Conv":
            name, block = ("fp8", 0) if name in BOTH else (("fp8-weights", "int8-weights")[number % 2], 0)
        makers = tuple(made_by[each].op_type if each in made_by else "" for each in node.input[:2])
        if name in ("fp8", "int8-weights") and makers[0] == "DequantizeLinear":
            continue  # The file has it as int8.
        if makers[1] == "DequantizeLinear" and not (name == "fp8" and _is_fp8(made_by[node.input[1]], judge)):
            continue
        if _fits(node, shapes, name, block, constants):
            result.append(Asked(node, name, block, node.input[1] in constants, makers))
    return result


def _is_fp8(dequantize: onnx.NodeProto, judge: Judge) -> bool:
    """Weights of the file in E4M3, with one scale."""
    codes, scale = (judge.graph.constants.get(each) for each in dequantize.input[:2])
    return codes is not None and scale is not None and codes.dtype == E4M3 and scale.size == 1


def _shapes(judge: Judge, model: onnx.ModelProto) -> Dict[str, Tuple[int, ...]]:
    """Those that are known."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for given in fixed.graph.input:
        for size, dimension in zip(judge.graph.feeds[0][given.name].shape, given.type.tensor_type.shape.dim):
            dimension.dim_value = size
    result = {name: value.shape for name, value in {**judge.graph.constants, **judge.graph.feeds[0]}.items()}
    for info in onnx.shape_inference.infer_shapes(fixed, data_prop=True).graph.value_info:
        sizes = [d.dim_value if d.HasField("dim_value") else 0 for d in info.type.tensor_type.shape.dim]
        result.setdefault(info.name, tuple(sizes))
    return result


def _fits(node: onnx.NodeProto, shapes: dict, name: str, block: int, constants: Set[str]) -> bool:
    """The rules of docs/numerics.md, on the careful side."""
    a, b = (shapes.get(each) for each in node.input[:2])
    if a is None or b is None or 0 in a or 0 in b or len(a) < 2 or len(b) < 2:
        return False
    constant = node.input[1] in constants
    if node.op_type == "Conv":
        return constant and a[1] == 32
    attributes = {each.name: each.i for each in node.attribute}
    if attributes.get("transA") or (name not in BOTH and not constant) or node.input[0] in constants:
        return False
    depth, columns = (b[-1], b[-2]) if attributes.get("transB") else (b[-2], b[-1])
    rows = int(np.prod(a[:-1])) if constant else a[-2]
    if block:
        return depth % block == 0 and rows > 1 and columns > 1
    return depth >= 16 and columns >= 16 and rows > 1


def _with_outputs(model: onnx.ModelProto, judge: Judge, names: List[str]) -> bytes:
    """The same model, with these values as outputs, too."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    there = {each.name for each in (*shown.graph.output, *shown.graph.input, *shown.graph.initializer)}
    for name in names:
        if name not in there:
            shown.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return shown.SerializeToString()


def _scales(model: bytes, feeds: list) -> Dict[str, float]:
    options = _core.ModelOptions()
    assign(options, precisions=["fp8"], fusion="full", target="h200", threads=1)
    loaded = _core.Model.from_bytes(model, options, "model.onnx")
    return dict(calibrate_samples(loaded, iter(feeds), "max"))


def _run(judge: Judge, model: bytes, way: Way, scales: Dict[str, float]) -> Optional[List[List[np.ndarray]]]:
    """The outputs for both sets of inputs; the first set runs again behind the second."""
    judge.counts["engines"] += 1
    try:
        options = _core.EngineOptions()
        assign(options, precision=way.precision, layer_precisions=way.layer_precisions, scales=scales,
               fusion=way.fusion, threads=way.threads)  # fmt: skip
        engine = _core.Engine.from_bytes(model, options)
        first, second, again = (engine.run(list(judge.graph.feeds[i].values()), {}) for i in (0, 1, 0))
    except (RuntimeError, AssertionError) as error:
        text = str(error)  # Its own, or that of the shapes of what a body leaves.
        unfit = "has no " in text or "its shapes are known at run time only" in text
        if unfit and {"If", "Loop", "Scan"} & {node.op_type for node in judge.graph.nodes}:
            judge.counts["shapes that are known at run time"] += 1
        else:
            judge.note(INTERNAL if type(error).__name__ == "InternalError" else REFUSED, str(error), way)
        return None
    if not same_bits(first, again):
        judge.note(WRONG, "an earlier input shows through", way)
    return [first, second]


# What products are.


def _operands(each: Asked, a: np.ndarray, w: np.ndarray, number: type, scales: Dict[str, float]):
    """What both stand for, in float64; the axis of w that is summed over is `along`."""
    attributes = {x.name: x.i for x in each.node.attribute}
    kind = each.format.split("-")[0]
    convolution = each.node.op_type == "Conv"
    along = w.ndim - 1 if attributes.get("transB") else w.ndim - 2
    channel = 0 if convolution else w.ndim - 2 if attributes.get("transB") else w.ndim - 1
    largest = [
        np.float32(1) if maker == "Softmax" else np.float32(scales.get(name, 0)) * np.float32(127)
        for name, maker in zip(each.node.input, each.makers)
    ]
    if each.block:
        second = second_scale(np.abs(w).max() if each.constant else largest[1])
        encode = {"nvfp4": nvfp4(second), "mxfp8": mx(E4M3), "mxfp4": mx(E2M1), "int4": int4(number)}[kind]
        w = in_blocks(w, along, each.block, encode)
    elif each.format == "fp8" and each.makers[1] == "DequantizeLinear":
        pass  # As the file has it.
    elif each.format == "fp8" and not convolution:
        codes, scale = by_tensor(w, np.abs(w).max() if each.constant else largest[1])
        w = codes * np.float64(scale)
    else:
        w = (int8_channels if kind == "int8" else fp8_channels)(w, channel)
    if each.format == "fp8":
        codes, scale = by_tensor(a, largest[0])
        return codes * np.float64(scale), w
    if each.format in BOTH:
        encode = {"nvfp4": nvfp4(second_scale(largest[0])), "mxfp8": mx(E4M3), "mxfp4": mx(E2M1)}[kind]
        return in_blocks(a, a.ndim - 1, each.block, encode), w
    return a.astype(number), w.astype(number)


def _product(node: onnx.NodeProto, a: np.ndarray, w: np.ndarray) -> np.ndarray:
    a, w = a.astype(np.float64), w.astype(np.float64)
    if node.op_type != "Conv":
        transposed = any(each.name == "transB" and each.i for each in node.attribute)
        return a @ (np.swapaxes(w, -1, -2) if transposed else w)
    padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,mcij->nmhw", windows, w)


def _judge_product(judge: Judge, way: Way, each: Asked, known: dict, scales: dict) -> None:
    """Its result against that of its operands, all as the engine stored them."""
    number = NUMBERS[way.precision]
    a, w = (np.asarray(known[name], np.float32) for name in each.node.input[:2])
    if not (np.isfinite(a).all() and np.isfinite(w).all()) or not np.abs(a).max() or not np.abs(w).max():
        return
    with np.errstate(all="ignore"):
        exact_a, exact_w = _operands(each, a, w, number, scales)
    wanted, sizes = _product(each.node, exact_a, exact_w), _product(each.node, np.abs(exact_a), np.abs(exact_w))
    if len(each.node.input) > 2:
        bias = known[each.node.input[2]].astype(np.float32 if each.format in BOTH else number).astype(np.float64)
        bias = bias.reshape(-1, 1, 1) if each.node.op_type == "Conv" else bias
        wanted, sizes = wanted + bias, sizes + np.abs(bias)
    got = known[each.node.output[0]].astype(np.float64)
    if not np.isfinite(got).all():
        return  # Beyond float16.
    length = exact_w.size / exact_w.shape[0 if each.node.op_type == "Conv" else -1]
    bound = sizes * (min(length, 4096) * 2.0**-24 + 2.0**-21) + 1e-30
    if number is not np.float32:
        step = 2.0**-11 if number is np.float16 else 2.0**-8
        bound = bound * 1.01 + np.abs(wanted) * step * 1.01 + 2.0**-25
    error = np.abs(got - wanted)
    if not (error <= bound).all():
        at = np.unravel_index(int((error / bound).argmax()), error.shape)
        text = f"{each.node.name} in {each.format}: {got[at]:.9g} at {list(map(int, at))}, expected {wanted[at]:.9g}"
        judge.note(WRONG, text, way)


def _convert(judge: Judge, formats: List[str], base: str) -> None:
    """The typed model has the bits of the precisions (convert checks that), and is valid."""
    precisions = tuple(dict.fromkeys([formats[0], *([base] if base != "fp32" else [])]))
    way = Way("full", 1, "+".join(precisions), against="convert")
    try:
        made, data = further.converted(judge, precisions, "max", "b200")
    except (RuntimeError, AssertionError) as error:
        if "expected layers to lower" in str(error) or "no layer can be lowered" in str(error):
            judge.counts["nothing to lower"] += 1
        else:
            judge.note(INTERNAL if type(error).__name__ == "InternalError" else REFUSED, str(error), way)
        return
    judge.counts["converted"] += 1
    if not made["checked"]:
        judge.note(WRONG, "no run was compared", way)
    if text := further.invalid(data):
        judge.note(WRONG, f"onnx.checker: {text}", way)
