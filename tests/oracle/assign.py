"""Which precision every layer computes in and which type every tensor is stored in (docs/numerics.md)."""

from __future__ import annotations

import dataclasses

from . import operators
from .specialize import PARAMETERS, Specialization, is_compute
from .values import FORM_OF, FLOATS, T

#: Outputs with a type of their own: stash_type of the means and inverse deviations.
TYPED_OUTPUTS = {
    "LayerNormalization": {1, 2}, "SimplifiedLayerNormalization": {1}, "SkipLayerNormalization": {1, 2},
    "SkipSimplifiedLayerNormalization": {1, 2},
}  # fmt: skip
NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclasses.dataclass
class Assignment:
    precision: list[str]  #: Per layer.
    storage: dict[str, str]  #: Per float tensor; float64 has none.

    def stored_by(self, layer: int) -> str:
        """The type in which the layer stores, before the file has a say."""
        return "fp32" if self.precision[layer] == "tf32" else self.precision[layer]


def assign(spec: Specialization, base: str, requested: dict[str, str] | None) -> Assignment:
    """`base` wherever a layer has such a form, but for what the file types and `requested` ({layer: "float16"})."""
    asked = {name: NAMES[kind] for name, kind in (requested or {}).items()}
    result = Assignment([], {})
    for name, kind in spec.types.items():
        if kind in FORM_OF:
            result.storage[name] = FORM_OF[kind]
    for i, node in enumerate(spec.graph.nodes):
        result.precision.append(_precision(spec, i, base, asked.get(node.name)))
        for at, output in enumerate(node.outputs):
            declared = FORM_OF.get(spec.types[output]) if output else None
            if declared is None:
                continue
            if node.op in operators.MOVEMENT:
                followed = asked.get(node.name) or _widest(spec, i, result)
                if followed and (declared == "fp32" or node.name in asked):
                    result.storage[output] = followed
            elif is_compute(node) and declared == "fp32" and at not in TYPED_OUTPUTS.get(node.op, ()):
                result.storage[output] = result.stored_by(i)
    return result


def _precision(spec: Specialization, i: int, base: str, asked: str | None) -> str:
    node = spec.graph.nodes[i]
    if node.op in operators.CONTROL:
        return asked or base
    if not is_compute(node) or not spec.numeric[i]:
        return "fp32"
    if asked:
        return asked
    floats = [spec.types[n] for n in [*node.outputs, *node.inputs] if n and spec.types[n] in FLOATS]
    declared = floats[0] if floats else T.FLOAT
    if declared != T.FLOAT:
        return FORM_OF.get(declared, "fp32")
    return "fp32" if base == "tf32" and not operators.is_product(node) else base


def _widest(spec: Specialization, i: int, assignment: Assignment) -> str | None:
    """The widest storage type of what a movement layer moves; constants have no say, fp16 beside bf16 is fp32."""
    node, forms = spec.graph.nodes[i], set()
    for at, name in enumerate(node.inputs):
        if name and name in assignment.storage and name not in spec.constants and at not in PARAMETERS.get(node.op, ()):
            forms.add(assignment.storage[name])
    if not forms:
        return None
    return forms.pop() if len(forms) == 1 else "fp32"
