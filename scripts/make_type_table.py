"""Prints the table of data/onnx_operators.inc: which operators ONNX defines for float16 and bfloat16, since when.

    .venv/bin/python3 scripts/make_type_table.py

`tests/python/test_type_table.py` holds the source to it.
"""

import textwrap
from collections import defaultdict

import onnx.defs

FLOAT16, BFLOAT16, SAME_AS_BEFORE = 1, 2, 4
BODY_REFUSES_FLOAT16, BODY_REFUSES_BFLOAT16 = (
    8,
    16,
)  # Of types in the schema that the body of the function does not hold for.
OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional

# Versions that changed the meaning of nodes that look the same.
CHANGED = {
    ("Attention", 24),
    ("GroupNormalization", 21),
    ("Hardmax", 13),
    ("LogSoftmax", 13),
    ("RoiAlign", 16),
    ("Softmax", 13),
}


def is_parameter(schema: onnx.defs.OpSchema, index: int, name: str) -> bool:
    """Inputs that keep float32 when the operator computes in another type."""
    if schema.name in ("Resize", "Upsample") and 0 < index < len(schema.inputs):
        return True
    return schema.name == "Dropout" and name == "ratio"


def is_written_for_float(schema: onnx.defs.OpSchema) -> bool:
    """Whether constants in float meet other values in the body of a function: it holds for no narrower type then."""
    if not schema.has_function:
        return False
    constants = {
        node.output[0]
        for node in schema.function_body.node
        if node.op_type == "Constant"
        and any(
            a.name in ("value_float", "value_floats") or a.t.data_type == onnx.TensorProto.FLOAT for a in node.attribute
        )
    }
    return any(
        name in constants
        for node in schema.function_body.node
        if not node.op_type.startswith("Cast")
        for name in node.input
    )


def accepts(schema: onnx.defs.OpSchema, wanted: str) -> bool:
    """Whether `wanted` is allowed wherever float is."""
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    inputs = {p.type_str for p in schema.inputs}
    takes_floats = False
    for index, parameter in enumerate([*schema.inputs, *schema.outputs]):
        types = allowed.get(parameter.type_str, {parameter.type_str})
        if "tensor(float)" not in types or is_parameter(schema, index, parameter.name):
            continue
        # Optional outputs with types of their own are looked at where a layer has them.
        if index >= len(schema.inputs) and parameter.option == OPTIONAL and parameter.type_str not in inputs:
            continue
        takes_floats = True
        if wanted not in types:
            return False
    return takes_floats


def means_the_same(old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> bool:
    """Whether every node of the old version means the same in the new one."""
    if (new.name, new.since_version) in CHANGED or new.deprecated:
        return False
    if len(new.inputs) < len(old.inputs) or len(new.outputs) < len(old.outputs):
        return False
    for before, after in zip(old.inputs, new.inputs, strict=False):
        if before.option != after.option and after.option != OPTIONAL:
            return False
    if any(p.option != OPTIONAL for p in list(new.inputs)[len(old.inputs) :]):
        return False
    for name, attribute in old.attributes.items():
        if name not in new.attributes or attribute.type != new.attributes[name].type:
            return False
        if attribute.default_value != new.attributes[name].default_value:
            return False
    return not any(a.required for name, a in new.attributes.items() if name not in old.attributes)


def table() -> list[str]:
    """Rows of C++, as many to a line as fit."""
    versions = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions[schema.name].append(schema)
    rows = []
    for name in sorted(versions):
        before, entries = None, []
        for schema in sorted(versions[name], key=lambda s: s.since_version):
            flags = 0
            if not schema.deprecated:
                refused = is_written_for_float(schema)
                if accepts(schema, "tensor(float16)"):
                    flags |= BODY_REFUSES_FLOAT16 if refused else FLOAT16
                if accepts(schema, "tensor(bfloat16)"):
                    flags |= BODY_REFUSES_BFLOAT16 if refused else BFLOAT16
                flags |= SAME_AS_BEFORE if before is not None and means_the_same(before, schema) else 0
            entries.append(f"{{{schema.since_version},{flags}}}")
            before = schema
        rows.append(f'{{"{name}",{{{",".join(entries)}}}}},')
    return textwrap.wrap(" ".join(rows), 120, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


if __name__ == "__main__":
    print("\n".join(table()))
