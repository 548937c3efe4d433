"""When outputs are good enough."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import numpy as np

from .errors import invalid_argument
from .native import _core

#: metric(golden, candidate) over the outputs of one sample, {name: array}: a number, or one per output. Lower is better,
#: unless it has an attribute `higher_is_better = True`.
MetricFunction = Callable[
    [dict[str, "np.ndarray[Any, Any]"], dict[str, "np.ndarray[Any, Any]"]], Union[float, Mapping[str, float]]
]
#: A name ("rel-l2", "rel-max", "one-minus-cos", "kl", "psnr", "snr", "top-k", "iou"), a script "FILE.py:FUNC", which sees
#: all samples at once (docs/metrics.md), or a function.
Metric = Union[str, MetricFunction]
USUAL_METRIC = "rel-l2"
METRICS = (USUAL_METRIC, "rel-max", "one-minus-cos", "psnr", "snr", "kl", "top-k", "iou")
#: One number for all outputs, or numbers by name.
PerOutput = Union[float, Mapping[str, float]]


def _per_output(value: Optional[PerOutput]) -> dict[str, float]:
    if value is None:
        return {}
    given = value if isinstance(value, Mapping) else {"": value}
    return {name: float(each) for name, each in given.items()}


def _identity(function: MetricFunction) -> str:
    """The same for the same code: a journal is not for another metric of the same name."""
    code = getattr(function, "__code__", None)
    parts = [] if code is None else [code.co_code, repr(code.co_names), repr(function.__defaults__)]
    if code is not None:
        parts.append(repr([each for each in code.co_consts if not hasattr(each, "co_code")]))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def make_criterion(
    metric: Metric,
    threshold: Optional[PerOutput],
    rtol: Optional[PerOutput] = None,
    atol: Optional[PerOutput] = None,
    top_k: int = 1,
    iou_level: float = 0.5,
    needs_threshold: bool = True,
) -> Optional[_core.Criterion]:
    """None where nothing says what is good enough. Raises Error(INVALID_ARGUMENT) for both kinds of tolerance, and
    for a metric without a threshold."""
    tolerances = rtol is not None or atol is not None
    if threshold is None and not tolerances and not needs_threshold and isinstance(metric, str) and ".py" not in metric:
        criterion = _core.Criterion()
        criterion.metric = metric
        return criterion
    if threshold is None and not tolerances:
        if isinstance(metric, str) and ".py" not in metric and metric not in METRICS:
            raise invalid_argument(f"[criterion] metric: expected one of {', '.join(METRICS)}, got {metric!r}")
        if metric != USUAL_METRIC:
            raise invalid_argument(
                "[criterion] expected a threshold beside the metric, got none; try threshold=1e-2, or none of both"
            )
        return None
    criterion = _core.Criterion()
    if tolerances:
        if threshold is not None:
            raise invalid_argument("[criterion] expected a threshold for the metric, or rtol and atol, got both")
        criterion.set_tolerances(_per_output(rtol), _per_output(atol))
        return criterion
    criterion.set_threshold(_per_output(threshold))
    criterion.top_k, criterion.iou_level = top_k, iou_level
    if callable(metric):
        name = getattr(metric, "__qualname__", type(metric).__name__)
        higher = bool(getattr(metric, "higher_is_better", False))
        criterion.set_function(metric, name, _identity(metric), higher)
    elif ".py" in metric:
        criterion.metric_script = metric
    else:
        criterion.metric = metric
    return criterion
