"""Typed models of a graph: that they are valid, run elsewhere, leave float32 layers alone, and say what was asked."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np
import onnx

from .checks import BITS, INTERNAL, REFUSED, WRONG, leave_other_values
from .graph import Graph, onnxruntime_run
from .reasons import NEWEST, false_reason
from .steps import LONG_NAMES, NARROW, Broken, RefusedTruly, Step, known, known_types, messages, same_bits

_NONE_LOWERED = re.compile(r"no layer can be lowered; layer '(.*)' \((\w+)\): (.*); try another type")


class _OwnChecks:
    """convert() without its own look at the file in another process, which takes a second: it is done here."""

    def __enter__(self) -> None:
        from ulpscope.native import _core

        self._options = make = _core.ConvertOptions

        def options() -> Any:
            result = make()
            result.python_checks = False
            return result

        _core.ConvertOptions = options  # type: ignore[misc, assignment]

    def __exit__(self, *_: object) -> None:
        from ulpscope.native import _core

        _core.ConvertOptions = self._options  # type: ignore[misc]


def convert(*arguments: Any, **options: Any) -> Tuple[onnx.ModelProto, Any, List[str]]:
    """ulpscope.convert with its bit check, and what it logged."""
    import ulpscope

    with _OwnChecks(), messages() as lines:
        typed, report = ulpscope.convert(*arguments, progress=False, threads=1, **options)
    return typed, report, lines


def domain_of(graph: Graph, op: str) -> str:
    """Of the operator, as the graph uses it."""
    return next((node.domain for node in graph.nodes if node.op_type == op), "")


def carry_out(step: Step, graph: Graph, counts: Counter) -> List[Broken]:
    """All that is wrong with one conversion. Raises Broken, or RefusedTruly, where there is no typed model."""
    options: Dict[str, Any] = dict(
        precision=step.precisions, fusion=step.fusion, data=graph.feeds, keep=known(step.keep, graph),
        lower=known(step.lower, graph), layer_precisions=known_types(step.types, graph),
    )  # fmt: skip
    if step.lower and not options["lower"]:
        raise RefusedTruly("nothing to lower is left")
    if "int8" in step.precisions:
        options["calibration"] = calibrate(graph)
    try:
        typed, report, log = convert(graph.model(), **options)
    except (RuntimeError, AssertionError) as error:
        raise refusal(error, step, graph, options) from None
    found = [
        *_reasons(report, log, graph), *check_file(typed, graph, step.precisions, counts),
        *_unchanged(typed, report, graph),
    ]  # fmt: skip
    if report.checked == 0:
        found.append(Broken(WRONG, "convert checked nothing", f"{report}"))
    if "int8" not in step.precisions:
        found += same_assignment(typed, report, graph, step)
    counts[f"{step.stage} {'+'.join(step.precisions)}"] += 1
    return found


def calibrate(graph: Graph) -> Any:
    """int8 scales. Raises RefusedTruly where there is nothing to take them from."""
    import ulpscope

    feeds = graph.feeds
    usable = all(np.isfinite(v).all() for feed in feeds for v in feed.values() if v.dtype.kind == "f")
    try:
        with messages():
            return ulpscope.calibrate(graph.model(), feeds, method="max", progress=False, threads=1)
    except ulpscope.Error as error:
        if "expected values to take scales from" in str(error) or not usable:
            raise RefusedTruly("nothing to calibrate with") from None
        raise Broken(REFUSED, f"calibrate: {error}", "") from None


def refusal(error: Exception, step: Step, graph: Graph, options: Dict[str, Any]) -> Exception:
    """What an error of convert means: a defect, or a refusal that is true or is not."""
    text = str(error)
    if type(error).__name__ == "InternalError":
        return Broken(INTERNAL, text, "")
    found = _NONE_LOWERED.search(text)
    if found:
        _, op, reason = found.groups()
        problem = false_reason(op, domain_of(graph, op), reason, blocked=True)
        return Broken(WRONG, "a reason that is not true", f"{problem}: {text}") if problem else RefusedTruly(
            "no layer can be lowered"
        )
    if "nothing is left to lower" in text and chosen(graph, options["lower"]) & chosen(graph, options["keep"]):
        return RefusedTruly("kept and lowered both")
    if "expected layers to lower, got none" in text:
        low = lowerable(step, graph, options)
        return Broken(WRONG, "a reason that is not true", f"{low} can be lowered: {text}") if low else RefusedTruly(
            "nothing to lower"
        )
    return Broken(REFUSED, text, "")


def lowerable(step: Step, graph: Graph, options: Dict[str, Any]) -> List[str]:
    """Float32 layers that an engine of the first narrow precision lowers, but for those that the choice keeps."""
    import ulpscope

    narrow = [p for p in step.precisions if p in NARROW]
    if not narrow:
        return []  # Whether int8 suits a layer nobody else knows.
    halves = {node.name for node in graph.nodes if node.name.endswith("half")}
    asked = {name: "float32" for name in chosen(graph, options["keep"])}
    if options["lower"]:
        low = chosen(graph, options["lower"])
        asked = {node.name: "float32" for node in graph.nodes if node.name not in low} | asked
    asked |= options["layer_precisions"]
    layers = ulpscope.Engine(graph.model(), precision=narrow[0], fusion=step.fusion).layers
    return [l.name for l in layers if l.precision in NARROW and asked.get(l.name) != "float32" and l.name not in halves]


def chosen(graph: Graph, names: List[str]) -> Set[str]:
    """The nodes that names, operators and patterns mean."""
    import fnmatch

    return {
        node.name
        for node in graph.nodes
        if any(fnmatch.fnmatchcase(node.name, each) or fnmatch.fnmatchcase(node.op_type, each) for each in names)
    }


def _reasons(report: Any, log: List[str], graph: Graph) -> List[Broken]:
    """Of layers that stay in float32."""
    blocked = any("means something else for" in line for line in log)
    found = []
    for name, op, reason in report.kept_back:
        problem = false_reason(op, domain_of(graph, op), reason, blocked)
        if problem:
            found.append(Broken(WRONG, f"a reason that is not true, {op}", f"layer {name}: {reason}: {problem}"))
    return found


def check_file(typed: onnx.ModelProto, graph: Graph, precisions: List[str], counts: Counter) -> List[Broken]:
    """onnx.checker, the opset, and ONNX Runtime, where it has the types."""
    found = []
    try:
        onnx.checker.check_model(typed, full_check=True)
    except Exception as error:  # The checker's errors have no common base.
        if not _refused_before(graph):
            found.append(Broken(WRONG, f"onnx.checker: {str(error).strip()}", ""))
    opset = next(each.version for each in typed.opset_import if each.domain == "")
    if opset > max(NEWEST, graph.opset):
        found.append(Broken(WRONG, "opset", f"{opset}, of a source of {graph.opset}"))
    if "bf16" in precisions:
        return found
    for feed in graph.feeds:
        try:
            onnxruntime_run(typed.SerializeToString(), feed)
        except Exception as error:  # Nor have those of ONNX Runtime.
            if "NOT_IMPLEMENTED" in str(error) or "type is not supported" in str(error):
                counts["typed models that ONNX Runtime has no kernels for"] += 1
                break
            found.append(Broken(WRONG, f"ONNX Runtime: {str(error).strip()}", ""))
            break
    else:
        counts["typed models that ONNX Runtime ran"] += 1
    return found


def _refused_before(graph: Graph) -> bool:
    """onnx.checker refuses the graph itself: it has operators of ONNX Runtime alone, or of no schema."""
    try:
        onnx.checker.check_model(graph.model_proto(), full_check=True)
    except Exception:
        return True
    return False


def _element_types(model: onnx.ModelProto) -> Dict[str, int]:
    """Of all tensors that onnx knows of."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    infos = [*inferred.input, *inferred.output, *inferred.value_info]
    types = {each.name: each.type.tensor_type.elem_type for each in infos}
    types.update({each.name: each.data_type for each in inferred.initializer})
    return types


def _unchanged(typed: onnx.ModelProto, report: Any, graph: Graph) -> List[Broken]:
    """Layers in float32 are the nodes that they were: operator, attributes, constants, types."""
    before = graph.model_proto()
    metadata = {each.key: each.value for each in typed.metadata_props}
    moved = {line.split(" (")[0] for line in metadata.get("ulpscope.other_type_same_bits", "").split("\n")}
    there = {node.name: node for node in typed.graph.node}
    types = _element_types(before), _element_types(typed)
    constants = graph.constants, {each.name: each for each in typed.graph.initializer}
    same_opset = next(e.version for e in typed.opset_import if e.domain == "") == graph.opset
    kept = {name for name, _, precision in report.layers if precision == "fp32"} - moved
    if "multiplied into the convolutions" in metadata.get("ulpscope.prepared", ""):  # Those in int8 have float32 ones.
        kept -= {name for name, op, _ in report.layers if op == "BatchNormalization"}
    found = []
    for node in before.graph.node:
        if node.name not in kept:
            continue
        text = _change(node, there.get(node.name), types, constants, same_opset)
        if text:
            found.append(Broken(WRONG, "a float32 layer changed", f"{node.name}: {text}"))
    return found


def _change(node: onnx.NodeProto, after: Optional[onnx.NodeProto], types: Any, constants: Any, same_opset: bool) -> str:
    if after is None:
        return "it is gone"
    if after.op_type != node.op_type or after.domain != node.domain:
        return f"it is {after.op_type} now"
    if (
        same_opset
        and list(after.attribute) != list(node.attribute)
        and not any(a.HasField("g") for a in node.attribute)
    ):
        return "it has other attributes"
    for old, new in (*zip(node.input, after.input), *zip(node.output, after.output)):
        kinds = types[0].get(old), types[1].get(new)
        if kinds[0] == onnx.TensorProto.FLOAT and kinds[1] not in (None, 0, onnx.TensorProto.FLOAT):
            return f"{old} is {onnx.TensorProto.DataType.Name(kinds[1])} now"
        if old in constants[0] and new in constants[1] and constants[0][old].dtype == np.float32:
            value = onnx.numpy_helper.to_array(constants[1][new])
            if value.dtype != np.float32 or value.tobytes() != constants[0][old].tobytes():
                return f"its constant {old} changed"
    return ""


def as_layer_precisions(report: Any) -> Dict[str, str]:
    """The types of float layers, and of those that move values in float32, as `ulpscope.Engine` takes them."""
    words = (line.rpartition(":") for line in report.layer_precisions.splitlines())
    return {name: kind for name, _, kind in words if kind in LONG_NAMES.values()}


def same_assignment(typed: onnx.ModelProto, report: Any, graph: Graph, step: Step) -> List[Broken]:
    """The typed model, and an engine that is told the same layer by layer, on all feeds and on the first one again."""
    import ulpscope

    low = next(p for p in step.precisions if p in NARROW)
    engines = {}
    for name, model, options in (
        ("layer_precisions", graph.model(), dict(precision=low, layer_precisions=as_layer_precisions(report))),
        ("typed model", typed.SerializeToString(), {}),
    ):
        try:
            engines[name] = ulpscope.Engine(model, fusion=step.fusion, threads=1, **options)
        except (RuntimeError, AssertionError) as error:
            kind = INTERNAL if type(error).__name__ == "InternalError" else REFUSED
            return [Broken(kind, f"Engine of the {name}: {error}", "")]
    for feed in [*graph.feeds, graph.feeds[0]]:
        for engine in engines.values():
            leave_other_values(engine, feed)
        want, got = engines["layer_precisions"].run(feed), engines["typed model"].run(feed)
        if text := same_bits(got, want):
            return [Broken(BITS, "typed model and layer_precisions", text)]
    return []
