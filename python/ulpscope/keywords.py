"""Messages of the library name options of the program; here they name arguments of the functions instead."""

from __future__ import annotations

import re

#: Options of the program, and the arguments that mean them.
KEYWORDS = {
    "--accumulation": "accumulation", "--answer": "answer", "--atol": "atol", "--attention": "attention",
    "--backend": "backend", "--bias-correction": "bias_correction", "--bits": "bits",
    "--calibration-cache": "calibration",
    "--calibration-inputs": "calibration_inputs", "--compare": "compare", "--fusion": "fusion",
    "--hold-out": "hold_out",
    "--io-types": "io_types", "--journal": "journal", "--keep": "keep", "--layer-precisions": "layer_precisions",
    "--golden": "golden", "--load-inputs": "data", "--load-outputs": "golden", "--lower": "lower", "--margin": "margin",
    "--memory-limit": "memory_limit", "--mx-scale-rule": "mx_scale_rule", "--weight-scales": "weight_scales",
    "--metric": "metric", "--metric-script": "metric", "--objective": "objective",
    "--precision": "fallback", "--relax": "relax", "--rtol": "rtol", "--target": "target", "--threshold": "threshold",
    "--typed": "typed",
}  # fmt: skip
#: Options that are values of arguments.
VALUES = {
    "--bf16": "'bf16'", "--continue": "resume=True", "--fp16": "'fp16'", "--fp8": "'fp8'", "--int4": "'int4'",
    "--int8": "'int8'", "--mxfp4": "'mxfp4'", "--mxfp8": "'mxfp8'", "--no-repair": "repair=False",
    "--nvfp4": "'nvfp4'", "--shrink": "shrink=True", "--tf32": "'tf32'",
}  # fmt: skip
#: What the program alone has.
PROGRAMS = (
    "--block-size", "--formats",
    "--check-error-stat", "--clamp-constants", "--cost-model", "--error-quantile", "--external-data-dir",
    "--infinities-compare-equal", "--input-shapes", "--iou-level", "--load-timing-cache", "--precision-constraints", "--python-time-limit",
    "--save-engine", "--save-shapes", "--save-tactics", "--seed", "--shapes", "--top-k", "--trt-max-shapes",
    "--trt-min-shapes", "--trt-opt-shapes", "--trt-outputs", "--val-range", "--weights-only",
)  # fmt: skip

_WORDS = {
    "accumulation": ("fp32", "hopper", "hopper-fast"), "attention": ("normalized", "flash"),
    "backend": ("cpu", "cuda"),
    "fusion": ("none", "pointwise", "full"), "metric": ("rel-l2",), "mx_scale_rule": ("ceil", "ocp"),
    "objective": ("fastest", "smallest", "cheapest", "bits", "error"),
    "weight_scales": ("amax", "least-squares", "activations"),
}  # fmt: skip
#: Commands stay as they are, between quotes and on lines of their own. An option may have a value, or what stands for
#: one, behind it.
_OPTION = re.compile(r"`[^`\n]*`|^ +ulpscope .*$|(?<![\w'-])(--[a-z][a-z0-9-]*)(?: (?!--)([\w.-]+))?", re.M)
#: Formats of weights alone, which have names of their own; int4 is one already.
_WEIGHTS_ALONE = re.compile(
    r"(?<![\w'`-])(?:--(int8|fp8|mxfp8|nvfp4|mxfp4) --weights-only|"
    r"--weights-only((?: --(?:int[48]|(?:mx)?fp8|(?:nv|mx)fp4))+)"
    r"(?![\w-]))(?![\w-])"
)


def _argument(found: re.Match[str]) -> str:
    option, value = found.groups()
    if option in PROGRAMS:
        return f"the program's {found[0]}"
    if option == "--target" and value == "measured":
        return "a file of ulpscope.measure_target as target"
    if option in VALUES:
        return VALUES[option] + found[0][len(option) :]
    name = KEYWORDS.get(option)
    if name is None:
        return found[0]
    if value in _WORDS.get(name, ()):
        return f"{name}={value!r}"
    if value and (value.isupper() or value[0].isdigit() or value.endswith(".json")):
        return f"{name}={value}"
    return name + found[0][len(option) :]


def _weights_alone(found: re.Match[str]) -> str:
    formats = [found[1]] if found[1] else [each[2:] for each in found[2].split()]
    return ", ".join(f"'{each}'" if each == "int4" else f"'{each}-weights'" for each in formats)


def in_python(message: str) -> str:
    """The message for somebody who calls functions."""
    return _OPTION.sub(_argument, _WEIGHTS_ALONE.sub(_weights_alone, message))
