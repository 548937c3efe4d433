"""Models in int8, fp8 or 4 bits, under the argument names of ModelOpt and onnxruntime.quantization."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

from .arguments import FilePath, Names, checked, is_text, shown
from .calibration import WORTH_A_WARNING, Calibration, calibrate, calibrator_for, warn_of_error
from .converting import ConvertReport, convert
from .data import Data, Source, names_of, samples_of
from .errors import Error, ErrorCode, invalid_argument
from .native import _core

if TYPE_CHECKING:
    from .converting import TypedModel
    from .data import Model

_HIGHER = {"fp32": "float32", "float32": "float32", "fp16": "float16", "float16": "float16", "bf16": "bfloat16", "bfloat16": "bfloat16"}  # fmt: skip


@checked
def quantize(
    onnx_path: Optional[Model] = None,
    quantize_mode: str = "int8",
    calibration_data: Optional[Data] = None,
    calibration_method: Optional[str] = None,
    calibration_cache_path: Optional[FilePath] = None,
    op_types_to_quantize: Optional[Names] = None,
    op_types_to_exclude: Optional[Names] = None,
    nodes_to_quantize: Optional[Names] = None,
    nodes_to_exclude: Optional[Names] = None,
    output_path: Optional[FilePath] = None,
    high_precision_dtype: str = "fp32",
    *,
    model_input: Optional[Model] = None,
    model_output: Optional[FilePath] = None,
    calibration_data_reader: Optional[Data] = None,
    calibrate_method: Any = None,
    verify: bool = True,
    threads: int = 0,
    weight_scales: Optional[str] = None,
    mx_scale_rule: str = "ceil",
) -> tuple[TypedModel, ConvertReport]:
    """The quantized model, with QuantizeLinear and DequantizeLinear around the layers that have such a form.

    The positional names are those of modelopt.onnx.quantization.quantize; those of
    onnxruntime.quantization.quantize_static mean the same: model_input, model_output, calibration_data_reader,
    calibrate_method.

    onnx_path:              the model: a path, bytes, or an onnx.ModelProto.
    quantize_mode:          "int8", "fp8", "nvfp4", "mxfp8"; of constant weights alone "int4" (blocks of 128; "int4-64",
                            "int4-32"), "int8-weights", "fp8-weights", "nvfp4-weights" and the like.
    calibration_data:       samples; see ulpscope.Data.
    calibration_method:     as in ulpscope.calibrate: "entropy" (the default of int8), "max" (of others) or "minmax",
                            "percentile". A member of onnxruntime's CalibrationMethod, too.
    calibration_cache_path: scales, read if the file is there, else written.
    op_types_to_quantize, nodes_to_quantize: these alone. op_types_to_exclude, nodes_to_exclude: not these. Names may be
                            patterns (*attention*).
    output_path:            also write the model there.
    high_precision_dtype:   what layers that are not quantized compute in: "fp32", "fp16" or "bf16".
    verify:                 run the new model against the old one, bit for bit.
    weight_scales, mx_scale_rule: as in ulpscope.search; by activations of `calibration_data` where there are some.

    Returns the model and a report, and raises Error, as ulpscope.convert.

    >>> typed, info = ulpscope.quantize("model.onnx", calibration_data=samples, nodes_to_exclude=["Sub"])
    >>> {"QuantizeLinear", "DequantizeLinear"} <= {node.op_type for node in typed.graph.node}
    True
    """
    model = _one_of("onnx_path", onnx_path, "model_input", model_input)
    if model is None:
        raise invalid_argument("[quantize] expected a model as onnx_path or model_input, got none")
    data = _one_of("calibration_data", calibration_data, "calibration_data_reader", calibration_data_reader)
    method = _one_of("calibration_method", calibration_method, "calibrate_method", calibrate_method)
    out = _one_of("output_path", output_path, "model_output", model_output)
    if quantize_mode not in _MODES:
        expected = f"one of {', '.join(sorted(_MODES))}"
        raise Error(ErrorCode.UNSUPPORTED, f"[quantize] quantize_mode: expected {expected}, got {quantize_mode!r}")
    higher = _HIGHER.get(high_precision_dtype)
    if higher is None:
        raise invalid_argument(
            f"[quantize] high_precision_dtype: expected fp32, fp16 or bf16, got {high_precision_dtype!r}"
        )
    samples = None if data is None else _list_of(data, model)
    usual = calibrator_for([quantize_mode])
    name = usual or "max" if method is None else getattr(method, "name", method)
    if not is_text(name):
        raise invalid_argument(
            f"[quantize] calibration_method, calibrate_method: expected the name of a calibrator, got {shown(method)}"
        )
    calibration = None if usual is None else _calibration(model, samples, name, calibration_cache_path, threads)
    chosen = _names(op_types_to_quantize=op_types_to_quantize, nodes_to_quantize=nodes_to_quantize)
    excluded = _names(op_types_to_exclude=op_types_to_exclude, nodes_to_exclude=nodes_to_exclude)
    narrow = {"float16": "fp16", "bfloat16": "bf16"}.get(higher)
    options: dict[str, Any] = {"precision": [quantize_mode] + ([narrow] if narrow else [])}
    if narrow is None:
        options.update(keep=excluded, lower=chosen)
    else:
        # Layers that are not quantized are lowered all the same.
        types: dict[str, str] = {"*": higher} if chosen else {}
        types.update({name: quantize_mode for name in chosen})
        types.update({name: higher for name in excluded})
        options["layer_precisions"] = types
    options.update(
        data=samples[:_CHECKED] if samples else None, calibration_inputs=samples or None, verify=verify,
        threads=threads, weight_scales=weight_scales, mx_scale_rule=mx_scale_rule,
    )  # fmt: skip
    typed, info = convert(model, calibration=calibration, out=out, **options)
    error = info.error_vs_fp32
    if error is not None and error > WORTH_A_WARNING and samples and calibration is not None:
        given = samples

        def error_of(other: str) -> float:
            scales = calibrate(model, given, other, threads=threads, progress=False, measure=False)
            other_error = convert(model, calibration=scales, **options)[1].error_vs_fp32
            return float("nan") if other_error is None else other_error

        warn_of_error("quantize", error, calibration.algorithm, error_of, quantize_mode)
    return typed, info


#: Formats that operands are stored in.
_MODES = {name for name, _ in _core.precisions()} - {"fp32", "tf32", "fp16", "bf16"}
#: Samples that the new model is checked with.
_CHECKED = 4


def _names(**given: Optional[Names]) -> list[str]:
    return [name for what, names in given.items() if names is not None for name in names_of(names, what)]


def _one_of(name: str, value: Any, other_name: str, other: Any) -> Any:
    if value is not None and other is not None:
        raise invalid_argument(f"[quantize] {name} and {other_name} mean the same; expected one of them")
    return value if value is not None else other


def _list_of(data: Data, model: Model) -> list[Mapping[str, Any]]:
    return list(samples_of(data, Source(model).load(_core.ModelOptions()), "calibration_data"))


def _calibration(
    model: Model, samples: Any, method: str, cache: Optional[FilePath], threads: int
) -> Optional[Calibration]:
    if cache is not None and os.path.exists(cache):
        return Calibration.load(cache)
    if samples is None:
        if Source(model).load(_core.ModelOptions()).brings_scales():
            return None
        raise invalid_argument("[quantize] expected calibration_data (or calibration_data_reader), got none")
    result = calibrate(model, samples, method, threads=threads, progress=False, measure=False)
    if cache is not None:
        result.save(cache)
    return result
