"""Prints docs/ops.md, made from the operators that the library registers.

PYTHONPATH=build/release/python .venv/bin/python3 scripts/make_ops_table.py > docs/ops.md
"""

from __future__ import annotations

RULES = {
    "compute": "float arithmetic in the layer's precision",
    "movement": "moves values: follows the type of its input",
    "fixed": "no float arithmetic: never lowered",
}


def table() -> str:
    from ulpscope._core import operators

    known = sorted(operators(), key=lambda op: (op[0], op[1].lower()))
    lines = [
        "# Operators",
        "",
        "Made by `scripts/make_ops_table.py` from the registry. Versions are opsets of the operator's domain; a",
        "model's opset decides which version of an operator runs. Models of opsets before 7 are read as those of 7.",
        "",
        "| precision | meaning |",
        "|---|---|",
        *(f"| {rule} | {meaning} |" for rule, meaning in RULES.items()),
        "",
        "Operators with a derivative take part in gradients (`OpDef::adjoint`). Through the others, and through",
        "integers, there is none: it is 0 almost everywhere, or not written.",
        "",
        "**Operators of ONNX Runtime.** Others that ONNX Runtime has (the rest of com.microsoft, ai.onnx.ml, ...) run",
        "there. Each layer has a session of its own in the Python worker, and one warning names the layers. They are",
        "in float32 on one thread, never lowered, without a derivative, and at no estimated cost. Strings and",
        "operators with graphs of their own cannot run so, and engine files cannot hold such layers. What ONNX",
        "Runtime does not have either (EfficientNMS_TRT, plugins) is refused by name; `--trt-outputs` with tensors",
        "before it leaves it out.",
        "",
        "**Sequences** are followed while a model is read. SequenceEmpty, SequenceConstruct, SequenceInsert,",
        "SequenceErase, SequenceAt, SequenceLength, ConcatFromSequence and SplitToSequence become layers on tensors",
        "(Identity, Concat, Split, ...) where positions and lengths are constants, and are refused elsewhere. An",
        "output that is a sequence or a map (ZipMap, at the end of scikit-learn exports) is replaced by the tensors",
        "in it; one of strings is left out. Optional, OptionalGetElement and OptionalHasElement are followed as well;",
        "an input that is an optional tensor has to be given.",
    ]
    for domain in sorted({op[0] for op in known}):
        chosen = [op for op in known if op[0] == domain]
        lines += [
            "",
            f"## {domain or 'ai.onnx'}: {len(chosen)} operators",
            "",
            "| operator | since | precision | derivative |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {name} | {since} | {rule} | {'yes' if derivative else ''} |"
            for _, name, since, rule, derivative in chosen
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
