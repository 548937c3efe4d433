"""Runs of modules on samples."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..data import Arrays
from ..errors import invalid_argument
from .calls import Call, array_of, on_device_of, tensors_in
from .packages import torch_package


class ForwardFailed(Exception):
    """A forward that raised: the innermost module, and what it raised."""

    def __init__(self, module: str, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.module = module
        self.error = error


def outputs_of(module: Any, calls: Sequence[Call], names: Sequence[str]) -> list[Arrays]:
    """The tensors that the module returns for each call, under the names of the model's outputs.

    Raises ForwardFailed; Error(INVALID_ARGUMENT) where they are not as many.
    """
    torch = torch_package("torch")
    results = []
    with torch.no_grad(), _innermost(module) as stack:
        for call in calls:
            moved = on_device_of(module, call)
            try:
                returned = module(*moved.args, **moved.kwargs)
            except Exception as error:
                raise ForwardFailed(stack[-1] if stack else "", error) from error
            tensors = list(tensors_in(returned))
            if len(tensors) != len(names):
                raise invalid_argument(
                    f"[apply] module: expected {len(names)} tensors as results ({', '.join(names)}), got {len(tensors)}"
                )
            results.append({name: array_of(tensor) for name, tensor in zip(names, tensors)})
    return results


@contextlib.contextmanager
def _innermost(module: Any) -> Iterator[list[str]]:
    """The names of the modules whose forwards run, the innermost last."""
    names = {inner: name for name, inner in module.named_modules()}
    stack: list[str] = []
    hooks = torch_package("torch").nn.modules.module

    def enter(inner: Any, args: Any) -> None:
        stack.append(names.get(inner, ""))

    def leave(inner: Any, args: Any, output: Any) -> None:
        stack.pop()

    handles = [hooks.register_module_forward_pre_hook(enter), hooks.register_module_forward_hook(leave)]
    try:
        yield stack
    finally:
        for handle in handles:
            handle.remove()


def first_non_finite(module: Any, call: Call) -> str | None:
    """The first module, in the order in which forwards end, that returns an infinity or a NaN; None: none does."""
    torch = torch_package("torch")
    names = {inner: name for name, inner in module.named_modules()}
    found: list[str] = []

    def look(inner: Any, args: Any, output: Any) -> None:
        if not found and any(
            not bool(each.isfinite().all()) for each in tensors_in(output) if each.is_floating_point()
        ):
            found.append(names.get(inner, ""))

    handle = torch.nn.modules.module.register_module_forward_hook(look)
    try:
        outputs_of_call = on_device_of(module, call)
        with torch.no_grad():
            module(*outputs_of_call.args, **outputs_of_call.kwargs)
    finally:
        handle.remove()
    return found[0] if found else None


def largest_difference(golden: Sequence[Arrays], others: Sequence[Arrays]) -> float:
    """The largest ratio |other - golden| / |golden| in the Euclidean norm, of all outputs and samples; infinite where
    values are not finite in other places."""
    worst = 0.0
    for exact, other in zip(golden, others):
        for name, value in exact.items():
            a, b = value.astype(np.float64).ravel(), other[name].astype(np.float64).ravel()
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            if same.all():
                continue
            if a.shape != b.shape or not np.isfinite(a[~same]).all() or not np.isfinite(b[~same]).all():
                return float("inf")
            size = float(np.linalg.norm(a[np.isfinite(a)]))
            worst = max(worst, float(np.linalg.norm(a[~same] - b[~same])) / size if size else float("inf"))
    return worst
