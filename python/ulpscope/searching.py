"""The search for the layers that need more precision."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from .answer import Answer
from .arguments import FilePath, Names, Precisions, checked
from .calibration import Calibration, add_scales
from .criterion import USUAL_METRIC, Metric, PerOutput, make_criterion
from .data import Data, Source, names_of, outputs_of, path_of, precisions_of, samples_of
from .errors import invalid_argument
from .native import _core, assign
from .progress import Watcher, watched

if TYPE_CHECKING:
    from .data import Model

_ORDER = [name for name, _ in _core.precisions()]  # From low to high.
_LONG_NAMES = {request: name for name, request in _core.precisions()}


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a search. `answer` is the best so far ("unverified"), or None where nothing was tried yet."""

    def __init__(self, answer: Optional[Answer]) -> None:
        super().__init__("the search was interrupted; the best answer so far is the attribute `answer`")
        self.answer = answer

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.answer,)


@checked
def search(
    model: Model,
    data: Data,
    precisions: Precisions = ("fp16",),
    fallback: Names = ("float32",),
    hold_out: Union[Data, bool, None] = None,
    golden: Optional[Data] = None,
    metric: Metric = USUAL_METRIC,
    threshold: Optional[PerOutput] = None,
    margin: Optional[float] = None,
    objective: str = "fastest",
    keep: Names = (),
    lower: Names = (),
    calibration: Union[Calibration, Mapping[str, float], FilePath, None] = None,
    target: Optional[FilePath] = None,
    time_limit: Optional[float] = None,
    journal: Optional[FilePath] = None,
    progress: Watcher = None,
    threads: int = 0,
    *,
    rtol: Optional[PerOutput] = None,
    atol: Optional[PerOutput] = None,
    fusion: str = "full",
    accumulation: str = "fp32",
    attention: str = "normalized",
    resume: bool = False,
    shrink: bool = False,
    repair: bool = True,
    max_trials: int = 0,
    memory_limit: int = 0,
    layer_precisions: Optional[Mapping[str, str]] = None,
    backend: str = "cpu",
    ray: str = "",
    ray_workers: int = 0,
    weight_scales: Optional[str] = None,
    mx_scale_rule: str = "ceil",
    calibration_inputs: Optional[Data] = None,
    bits: Optional[float] = None,
) -> Answer:
    """The layers to keep in higher precision, so that the outputs stay within a tolerance; as `ulpscope precision search`.

    model:       a path, bytes, or an onnx.ModelProto.
    data:        samples: {input name: array} each, in the shapes of the model; see ulpscope.Data.
    precisions:  what layers may be lowered to: "tf32", "fp16", "bf16", "int8", "fp8", "mxfp8", "nvfp4", "mxfp4"; for
                 constant weights alone "int4" (blocks of 128), "int4-64", "int4-32", "nvfp4-weights" and the like. Of
                 several that store elements, each layer takes the one that is predicted to err least.
    fallback:    what they may be raised to: "float32", "tf32" (products; other layers have float32 then), "float16",
                 "bfloat16".
    hold_out:    samples that the answer is checked with, but not searched on. None: every fourth of `data`, if there are
                 four or more; False: none.
    golden:      exact outputs, one per sample (or those of `hold_out` behind them). None: of the model in float32.
    metric:      what `threshold` is of: a name, a script, or a function; see ulpscope.Metric.
    threshold:   the largest error that is good enough (psnr, snr, top-k, iou: the smallest value), or one per output.
                 Else `rtol` and `atol`: each element is within rtol * |golden| or atol. With none of these: the threshold
                 of rel-l2 that is usual for the precisions (fp16 and tf32 5e-3, bf16 3e-2, int8 5e-2), and a warning.
    margin:      the share of the tolerance that is searched at, above 0, at most 1. None: from the data.
    objective:   "fastest", "smallest" (layers) or "cheapest" (multiply-adds); with formats for weights alone also
                 "bits", as few bits per weight as hold the tolerance, or "error", the least error with `bits`.
    keep, lower: layers that stay in the highest or lowest precision: names of layers or nodes, operators, patterns.
    calibration: int8 scales: of `ulpscope.calibrate`, {tensor: scale}, or a calibration cache. None: from `data`.
    target:      the GPU whose times are estimated: "l4", "h100" or another of data/targets, or a file of
                 ulpscope.measure_target. None: the GPU of backend "cuda", else "l4".
    time_limit:  seconds; the best answer until then.
    journal:     a file for finished trials; `resume=True` goes on with what is there.
    progress:    a callable of ulpscope.Progress; None: a bar, where tqdm and somebody to see it are there; False: none.
    threads:     0: one per core. The answer does not depend on it.
    fusion:      "none", "pointwise" or "full": within a group of layers nothing is rounded.
    accumulation: what products of fp8, fp16 and bf16 are added up in: "fp32", or as a Hopper GPU does, which is slow:
                 "hopper", "hopper-fast".
    attention:   what the second product of an attention in one group reads: "normalized", its probabilities, or
                 "flash": exponentials, by the sum of which the results are divided, as flash attention on GPUs does.
    shrink:      take single layers out of the set as far as it still passes. repair: constants, regions and channels that
                 leave the range. max_trials: 0: no limit. memory_limit: bytes of tensors; 0: no limit.

    weight_scales: what the scales of weights in int4 and nvfp4 are made for: "amax", "least-squares" (the least error
                 of each block) or "activations" (the same, each error times the mean square of what it is multiplied
                 by). None: activations.
    mx_scale_rule: how the scales of mxfp8 and mxfp4 become powers of two: "ceil", or "ocp", down.
    calibration_inputs: samples that ranges and mean squares of activations come from. None: those of the search.
    bits:        with formats for weights alone ("int4", "nvfp4-weights", "int8-weights", ...): at most so many bits per
                 weight, codes, scales and zero points of all candidates together, with the least error. The metric
                 needs no threshold then; with one, the answer has to meet it, too.

    backend:     who runs the trials: "cpu", or "cuda": an NVIDIA GPU of sm_80 or later.
    ray:         a Ray cluster whose processes run samples and trials (pip install 'ulpscope[ray]'): "auto", "HOST:PORT",
                 or "local"; the answer is the same. ray_workers: at most so many processes; 0: one per core and sample.

    "Not found" is a verdict. Ctrl-C ends the search with SearchInterrupted (a KeyboardInterrupt), whose `answer` is the
    best so far; what `progress` and `metric` raise comes out as it is. Raises Error: INVALID_ARGUMENT for what makes no
    sense, NOT_FOUND, INVALID_FILE, IO, UNSUPPORTED for files, SCRIPT for a metric that does not give numbers.

    >>> answer = ulpscope.search("model.onnx", samples, threshold=1e-2, objective="smallest", fusion="none")
    >>> answer.verdict, answer.nodes_to_exclude
    ('found', ['Add', 'Sub'])
    """
    begin = time.monotonic()
    criterion = make_criterion(metric, threshold, rtol, atol, needs_threshold=bits is None)
    ladder = sorted({_LONG_NAMES.get(each, each) for each in names_of(fallback, "fallback")}, key=_rank)
    wanted = precisions_of(precisions, "precisions")
    wanted += [rung for rung in ladder if rung != _ORDER[-1] and rung not in wanted]
    source = Source(model)
    options = _core.ModelOptions()
    assign(
        options, precisions=wanted, target=os.fspath(target or ""), fusion=fusion, accumulation=accumulation,
        attention=attention, threads=threads, backend=backend, layer_precisions=dict(layer_precisions or {}),
        weight_scales=weight_scales or "", mx_scale_rule=mx_scale_rule,
    )  # fmt: skip
    loaded = source.load(options)
    samples = samples_of(data, loaded)
    strategy = _core.SearchOptions()
    if criterion is not None:
        strategy.criterion = criterion
    strategy.set_ladder(ladder)
    strategy.set_objective("smallest" if shrink and objective == "fastest" else objective)
    assign(
        strategy, margin=_checked_margin(margin), bits=_checked_bits(bits), keep=names_of(keep, "keep"),
        lower=names_of(lower, "lower"), shrink=shrink, repair=repair, max_trials=max_trials, memory_limit=memory_limit,
        time_limit=time_limit or 0, ray=ray, ray_workers=ray_workers, resume=resume, hold_out=hold_out is not False,
    )  # fmt: skip
    if not isinstance(hold_out, bool) and hold_out is not None:
        strategy.set_held_out(samples_of(hold_out, loaded, "hold_out"))
    if golden is not None:
        strategy.set_golden(outputs_of(golden, loaded))
    strategy.answer_path = place = _default_path(source.name, wanted)
    if journal is not None:
        strategy.journal = os.fspath(journal)
    with watched(progress) as report:
        given = samples if calibration_inputs is None else samples_of(calibration_inputs, loaded, "calibration_inputs")
        cache = add_scales(loaded, wanted, calibration, given, report)
        if calibration_inputs is not None:
            _core.measure_activations(loaded, given)
        if loaded.scales:
            strategy.calibration_cache = cache or place.removesuffix(".json") + ".calibration.cache"
        strategy.time_spent = time.monotonic() - begin
        try:
            native, interrupted = _core.search(loaded, samples, strategy, report)
        except KeyboardInterrupt:
            raise SearchInterrupted(None) from None
    native.inputs = [path] if (path := path_of(data)) is not None else []
    native.golden = path_of(golden) or ""
    answer = Answer(native, (metric, threshold) if callable(metric) and threshold is not None else None)
    if interrupted:
        raise SearchInterrupted(answer)
    return answer


def _checked_bits(bits: Optional[float]) -> float:
    if bits is None:
        return 0.0
    if not 0 < bits < math.inf:
        raise invalid_argument(f"[search] bits: expected a number of bits per weight above 0, got {bits}")
    return bits


def _rank(precision: str) -> int:
    return _ORDER.index(precision) if precision in _ORDER else -1


def _checked_margin(margin: Optional[float]) -> float:
    if margin is None:
        return 0
    if not 0 < margin <= 1:
        raise invalid_argument(f"[search] margin: expected above 0 and at most 1, got {margin!r}")
    return margin


def _default_path(model: str, precisions: Sequence[str]) -> str:
    """Where the program would write the answer."""
    stem = os.path.splitext(os.path.basename(model))[0]
    return f"{stem}.{'-'.join(each for each in reversed(_ORDER) if each in precisions)}.answer.json"
