"""Users' functions that judge outputs: ``metric(golden, candidate)`` over all samples."""

from __future__ import annotations

import inspect
import math
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from .errors import WorkerError
from .handles import Handles
from .scripts import describe_type, load_function

Sample = Dict[str, np.ndarray]

_golden = Handles()


def _samples(description: List[List[Any]], writable: bool = True) -> List[Sample]:
    samples = [dict((name, array) for name, array in sample) for sample in description]
    if not writable:
        for sample in samples:
            for array in sample.values():
                array.flags.writeable = False
    return samples


def open_metric(server: Any, path: str, function: str, golden: List[List[Any]]) -> Dict[str, Any]:
    """Keeps golden outputs for later calls. ``best`` is what they reach against themselves, where higher is better."""
    metric = load_function(path, function)
    _check_signature(metric, f"{path}:{function}")
    samples = _samples(golden, writable=False)
    higher = getattr(metric, "higher_is_better", False)
    if not isinstance(higher, (bool, np.bool_)):
        raise WorkerError("script", f"[script] {path}:{function}: expected higher_is_better to be True or False, got {describe_type(higher)}")
    best = _values(metric, samples, [dict(sample) for sample in samples], f"{path}:{function}") if higher else None
    return {"handle": _golden.add((metric, samples)), "higher_is_better": bool(higher), "best": best}


def run_metric(server: Any, path: str, function: str, handle: int, candidate: List[List[Any]]) -> List[List[Any]]:
    """[name, value] per output that the function returned; a single one with an empty name for a plain number."""
    metric, golden = _golden[handle]
    return _values(metric, golden, _samples(candidate), f"{path}:{function}")


def close_metric(server: Any, handle: int, path: str = "", function: str = "") -> None:
    """Forgets golden outputs."""
    _golden.pop(handle, None)


def _check_signature(metric: Callable[..., Any], place: str) -> None:
    try:
        inspect.signature(metric).bind(None, None)
    except TypeError as error:
        raise WorkerError("script", f"[script] {place}: expected a function of (golden, candidate), got another signature: {error}") from None
    except ValueError:
        pass  # a builtin without a signature


def _values(metric: Callable[..., Any], golden: List[Sample], candidate: List[Sample], place: str) -> List[List[Any]]:
    result = metric(list(golden), candidate)
    if not hasattr(result, "items") or isinstance(result, np.ndarray):
        return [["", _number(result, "", place)]]
    known = set(golden[0]) if golden else set()
    values: List[List[Any]] = []
    for name, value in result.items():
        if name not in known:
            raise WorkerError("script", f"[script] {place}: expected names of outputs ({', '.join(sorted(known))}), got the key {name!r}")
        values.append([name, _number(value, f" for output '{name}'", place)])
    if not values:
        raise WorkerError("script", f"[script] {place}: expected a number, or a dict of output names and numbers, got an empty dict")
    return values


def _number(value: Any, about: str, place: str) -> float:
    number: Optional[float] = None
    if not isinstance(value, (bool, np.bool_, str, bytes)) and getattr(value, "ndim", 0) == 0:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = None
    if number is None:
        raise WorkerError("script", f"[script] {place}: expected a number{about}, got {describe_type(value)}")
    if math.isnan(number):
        raise WorkerError("script", f"[script] {place}: expected a number{about}, got NaN")
    return number
