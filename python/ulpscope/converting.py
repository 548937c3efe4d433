"""The strongly typed model of a choice of precisions."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from .answer import Answer, Judgement, as_answer
from .arguments import FilePath, Names, Precisions, checked
from .calibration import Calibration, add_scales, use_calibration
from .criterion import USUAL_METRIC, Metric, PerOutput, make_criterion
from .data import Arrays, Data, Source, names_of, outputs_of, precisions_of, samples_in, samples_of
from .errors import Error, ErrorCode, invalid_argument, warn
from .native import _core, assign
from .progress import Report, Watcher, watched

if TYPE_CHECKING:
    import onnx

    from .data import Model

    TypedModel = Union[onnx.ModelProto, Path]


@dataclass(frozen=True)
class ConvertReport:
    """What was converted."""

    layers: tuple[tuple[str, str, str], ...] = field(repr=False)
    """Name, operator and precision of every layer with float arithmetic."""
    kept_back: tuple[tuple[str, str, str], ...]
    """Name, operator and reason of layers that stay in float32 although a lower precision was asked for."""
    lowered: int  #: Layers that compute in a narrow type.
    casts: int  #: Cast nodes that were added.
    bytes: int  #: Of the file and its external data.
    checked: int  #: Runs in which the file gave the bits of the precisions that were asked for; 0: none was made.
    error_vs_fp32: Optional[float]
    """rel-l2 of the worst output and sample against the model in float32: a ratio. None without `verify`; NaN where the outputs
    have no elements."""
    error: Optional[Judgement]
    """The same for every output."""
    corrected_biases: int  #: Biases of int8 products that `bias_correction` changed.
    uncorrected_error_vs_fp32: Optional[float]  #: The error without that. None if it was not asked for.
    layer_precisions: str = field(repr=False)  #: Words for --layer-precisions, one per line.
    postprocess_script: str = field(repr=False)  #: For TensorRT up to 10.
    nodes_to_exclude: tuple[str, ...] = field(repr=False)  #: For ModelOpt AutoCast and onnxruntime.quantization.
    answer: Optional[Answer]  #: That of the call, with the layers that `relax` raised.


@checked
def convert(
    model: Model,
    answer: Optional[Union[Answer, FilePath]] = None,
    precision: Optional[Precisions] = None,
    keep: Names = (),
    io_types: Optional[Mapping[str, str]] = None,
    data: Optional[Data] = None,
    relax: bool = False,
    verify: bool = True,
    *,
    out: Optional[FilePath] = None,
    lower: Names = (),
    layer_precisions: Optional[Mapping[str, str]] = None,
    calibration: Union[Calibration, Mapping[str, float], FilePath, None] = None,
    golden: Optional[Data] = None,
    metric: Metric = USUAL_METRIC,
    threshold: Optional[PerOutput] = None,
    fusion: Optional[str] = None,
    target: Optional[FilePath] = None,
    bias_correction: bool = False,
    progress: Watcher = None,
    threads: int = 0,
    backend: str = "cpu",
    memory_limit: int = 0,
    weight_scales: Optional[str] = None,
    mx_scale_rule: str = "ceil",
    calibration_inputs: Optional[Data] = None,
) -> tuple[TypedModel, ConvertReport]:
    """The model with weights and casts in the types that its layers compute in; as `ulpscope convert`.

    model:     a path, bytes, or an onnx.ModelProto; that of the answer.
    answer:    of ulpscope.search, or its file: its precisions, layers and repairs. None: `precision`, of layers not in `keep`.
    precision: without an answer: "fp16" (None), "bf16", "int8", or several: what int8 does not suit takes the other.
               numpy.float16 is "fp16". Beside an answer only what it was found with.
    keep:      layers that stay in float32: names of layers or nodes, operators, patterns. lower: these alone are lowered,
               but for those of `keep`.
               layer_precisions: {layer: "float32" | "float16" | "bfloat16" | "int8"}.
    io_types:  {input or output: "float32" | "float16" | "bfloat16"}; others keep theirs.
    data:      samples to check with; the shapes of the first decide. None: the files that the search read, else
               random numbers.
    relax:     neighbors of kept layers stay in float32, too, where casts cost more than they gain, if the outputs stay
               within the tolerance of the answer, or `threshold` of `metric`, of `golden`.
    fusion:    None: that of the answer, else "full".
    verify:    run the new model against the old one: it has to give the bits of the chosen precisions.
    out:       also write the model there (and external data to OUT.data).
    backend:   who runs both models: "cpu", or "cuda": an NVIDIA GPU of sm_80 or later.
    bias_correction: biases of int8 products take the mean error of their outputs on `data`, where that brings the outputs
               of the model nearer to float32; the new model computes other values in float32 then.
    weight_scales, mx_scale_rule, calibration_inputs: as in ulpscope.search, without an answer, which has its own; None:
               by activations where there are `calibration_inputs` or `data`, and from these.
    progress:  as in ulpscope.search: runs that were begun.
    memory_limit: as in ulpscope.Engine. The file is the same.

    Returns the model and a report. The model is a path instead if it has more than 2 GB, or where the package onnx is
    not installed (then `out` has to be given). Raises Error: INVALID_ARGUMENT for names, types and samples that do not
    fit, and for an answer of another model; UNSUPPORTED when nothing can be lowered; IO. Ctrl-C: KeyboardInterrupt.

    >>> typed, info = ulpscope.convert("model.onnx", precision="fp16", keep=["Add", "Sub"])
    >>> info.lowered, info.casts, info.error_vs_fp32 < 1e-3
    (2, 4, True)
    """
    source = Source(model)
    if answer is not None:
        answer = as_answer(answer)
        if answer.verdict != "found":
            warn("[convert] the answer is %s: %s", answer.verdict, answer.message)
        options = answer._native.model_options()
        options.cost_model = False
        if precision is not None:
            _check_found_with(list(options.precisions), precisions_of(precision, "precision"))
        if fusion is not None:
            options.fusion = fusion
        if target is not None:
            options.target = os.fspath(target)
        if weight_scales is not None or mx_scale_rule != "ceil" or calibration_inputs is not None:
            raise invalid_argument(
                "[convert] weight_scales, mx_scale_rule, calibration_inputs: expected none of them with an answer, "
                "which has its own; try a search with them"
            )
    else:
        options = _core.ModelOptions()
        assign(
            options, precisions=precisions_of("fp16" if precision is None else precision, "precision"),
            fusion=fusion or "full", target=os.fspath(target or ""),
            weight_scales=weight_scales or "", mx_scale_rule=mx_scale_rule,
        )  # fmt: skip
    assign(options, threads=threads, backend=backend, memory_limit=memory_limit)
    loaded = source.load(options)
    samples = _samples(data, answer, loaded)
    choice = _core.ConvertOptions()
    choice.answer = None if answer is None else answer._native
    choice.keep, choice.lower = names_of(keep, "keep"), names_of(lower, "lower")
    choice.layer_precisions = [f"{name}:{type_}" for name, type_ in (layer_precisions or {}).items()]
    choice.set_io_types(dict(io_types or {}))
    assign(choice, relax=relax, verify=verify, bias_correction=bias_correction)
    criterion = make_criterion(metric, threshold) or (answer._criterion if answer is not None else None)
    if criterion is not None:
        choice.criterion = criterion
    if golden is not None:
        choice.set_golden(outputs_of(golden, loaded))
    given = samples if calibration_inputs is None else samples_of(calibration_inputs, loaded, "calibration_inputs")
    if calibration is not None:
        use_calibration(loaded, calibration)
    elif answer is None:
        add_scales(loaded, options.precisions, None, given)
    if answer is None and (data is not None or calibration_inputs is not None):
        _core.measure_activations(loaded, given)
    with watched(progress) as report:
        return _write(loaded, samples, choice, answer, out, report)


def _check_found_with(found: list[str], asked: list[str]) -> None:
    others = [each for each in asked if each not in found]
    if others:
        raise invalid_argument(
            f"[convert] precision: the answer lowers layers to {' and '.join(found)} and holds for that alone, "
            f"got '{others[0]}' beside it; try a search with that, or no precision"
        )


def _samples(data: Optional[Data], answer: Optional[Answer], model: _core.Model) -> list[Arrays]:
    if data is not None:
        return samples_of(data, model)
    found = samples_in(answer._native.inputs, model) if answer is not None else None
    return found if found is not None else _core.generate_inputs(model)


def _write(
    model: _core.Model,
    samples: list[Arrays],
    choice: _core.ConvertOptions,
    answer: Optional[Answer],
    out: Optional[FilePath],
    progress: Report,
) -> tuple[TypedModel, ConvertReport]:
    onnx: Any
    try:
        import onnx
    except ImportError as error:
        onnx = None
        if out is None:
            raise Error(
                ErrorCode.NOT_FOUND,
                "[convert] the package onnx, which has ModelProto, is not installed; try pip install onnx, or out=FILE",
            ) from error
    folder = tempfile.TemporaryDirectory(prefix="ulpscope-")
    path = Path(os.fspath(out) if out is not None else os.path.join(folder.name, "typed.onnx"))
    made = _core.convert(model, path, samples, choice, progress)
    report = _report(made, answer)
    if report.error is not None and report.error.problem:
        warn(
            "[convert] the check says nothing: %s; try other data, or ulpscope.search, which repairs what leaves the "
            "range", report.error.problem,
        )  # fmt: skip
    if onnx is not None and not Path(f"{path}.data").exists():
        typed: TypedModel = onnx.load(path)
        folder.cleanup()
        return typed, report
    if out is None:
        _KEPT.append(folder)
    return path, report


#: Folders of models beyond 2 GB that have no other place; removed at the end of the process.
_KEPT: list[tempfile.TemporaryDirectory[str]] = []
_AS_THEY_ARE = (
    "lowered", "casts", "bytes", "checked", "corrected_biases", "layer_precisions", "postprocess_script",
)  # fmt: skip


def _report(made: dict[str, Any], answer: Optional[Answer]) -> ConvertReport:
    error = None if made["error"] is None else Judgement.from_dict(made["error"])
    native, uncorrected = made["answer"], made["uncorrected_error"]
    return ConvertReport(
        layers=tuple(made["layers"]),
        kept_back=tuple(made["kept_back"]),
        error_vs_fp32=None if error is None else error.error,
        error=error,
        uncorrected_error_vs_fp32=None if uncorrected is None else Judgement.from_dict(uncorrected).error,
        nodes_to_exclude=tuple(json.loads(made["exclusions"])["nodes_to_exclude"]),
        answer=None if native is None else Answer(native, answer._judged_by if answer is not None else None),
        **{name: made[name] for name in _AS_THEY_ARE},
    )
