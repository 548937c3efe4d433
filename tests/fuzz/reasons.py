"""Whether what `convert` says of layers that it leaves in float32 is true, by the schemas of ONNX."""

from __future__ import annotations

import re
from typing import Optional

import onnx

NEWEST = 25  #: What TensorRT and ONNX Runtime read.

_LACKS = re.compile(r"ONNX has no (\w+) (\w+) at opset (\d+)")
_IN_FLOAT = re.compile(
    r"ONNX defines (\w+) at opset (\d+) by a function with constants in float32, which onnx.checker refuses for (\w+)"
)
_COMBINES = re.compile(r"it combines elements that (float16|bfloat16) does not hold")
_OPSET_LACKS = re.compile(r"opset (\d+) has no (\w+)")
#: Said of int8, of the model's own types, and of what no schema knows.
_OTHERS = (
    "not all of its outputs can be", "DequantizeLinear per channel",
    "DequantizeLinear has no scales for the output channels", "its types in the file are not float32",
    "the file has its outputs in", "the scale of ", "an operand depends on the shapes",
)  # fmt: skip


def accepts(op: str, domain: str, opset: int, kind: str) -> bool:
    """All floats that the operator reads and makes can be of that type."""
    version = 1 if domain else opset
    if not onnx.defs.has(op, version, domain):
        return domain != ""  # Of other domains there is no schema here.
    schema = onnx.defs.get_schema(op, version, domain)
    named = {each.type_param_str: set(each.allowed_type_strs) for each in schema.type_constraints}
    return all(f"tensor({kind})" in allowed for allowed in named.values() if "tensor(float)" in allowed)


def body_refuses(op: str, opset: int, kind: str) -> bool:
    """The schema has the type, and a full check of the function that defines the operator fails with it."""
    if not accepts(op, "", opset, kind):
        return False
    schema = onnx.defs.get_schema(op, opset, "")
    names = [each.name for each in schema.inputs] or ["size"]
    element = onnx.TensorProto.DataType.Value(kind.upper())
    node = onnx.helper.make_node(op, names, ["result"])
    values = [onnx.helper.make_tensor_value_info(name, element, [2, 3, 4, 4]) for name in [*names, "result"]]
    graph = onnx.helper.make_graph([node], "one", values[:-1], values[-1:])
    try:
        onnx.checker.check_model(
            onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)]), full_check=True
        )
    except Exception:  # noqa: BLE001 - its errors have no common base
        return True
    return False


def false_reason(op: str, domain: str, reason: str, blocked: bool) -> Optional[str]:
    """What is wrong with a reason for which a layer stays in float32; None: it is true. `blocked`: the log says why the
    opset cannot be raised."""
    found = _LACKS.search(reason)
    if found:
        kind, opset = found[1], int(found[3])
        if accepts(op, domain, opset, kind):
            return f"the schema of {op} at opset {opset} has {kind}"
        later = next((n for n in range(opset + 1, NEWEST + 1) if accepts(op, domain, n, kind)), None)
        if later is not None and not blocked:
            return f"opset {later} has {kind} {op}, and nothing says why the opset stays {opset}"
        return None
    found = _IN_FLOAT.search(reason)
    if found:
        refused = found[1] == op and body_refuses(op, int(found[2]), found[3])
        return (
            None
            if refused
            else f"onnx.checker takes {found[3]} {op} at opset {found[2]}, or its schema has no such type"
        )
    found = _OPSET_LACKS.search(reason)
    if found:
        opset, kind = int(found[1]), found[2]
        if accepts("Cast", "", opset, kind) or not blocked:
            return f"opset {opset} could be raised to one with {kind}"
        return None
    if _COMBINES.search(reason):
        return None if op in ("ScatterElements", "ScatterND") else f"{op} moves elements, and combines none"
    if any(text in reason for text in _OTHERS):
        return None
    return "nobody knows this reason"
