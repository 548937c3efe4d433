"""Precisions of modules: the types of their parameters, and casts at their borders."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from .folding import Folds
from .packages import torch_package
from .plan import Plan


def torch_type(precision: str) -> Any:
    torch = torch_package("apply")
    return {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[precision]


def _mapped(value: Any, change: Any) -> Any:
    """The same containers with every tensor of 16 and 32 bits changed; others, and other objects, as they are."""
    torch = torch_package("apply")
    if isinstance(value, torch.Tensor):
        return change(value) if value.dtype in (torch.float16, torch.bfloat16, torch.float32) else value
    if isinstance(value, tuple):
        parts = [_mapped(each, change) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    if isinstance(value, Mapping):
        result = copy.copy(value)
        for name in value:
            result[name] = _mapped(value[name], change)  # type: ignore[index]
        return result
    return value


class CastInputs:
    """A hook before a forward. Its tensors are multiplied by `factor` and cast to `type`, where these are not None."""

    def __init__(self, type_: Any, factor: float | None) -> None:
        self.type = type_
        self.factor = factor

    def __call__(self, module: Any, args: Any, kwargs: Any) -> Any:
        return _mapped(args, self._change), _mapped(kwargs, self._change)

    def _change(self, tensor: Any) -> Any:
        if self.factor is not None:
            tensor = tensor * self.factor
        return tensor if self.type is None else tensor.to(self.type)


class CastOutputs:
    """A hook behind a forward: its results are cast to `type`."""

    def __init__(self, type_: Any) -> None:
        self.type = type_

    def __call__(self, module: Any, args: Any, output: Any) -> Any:
        return _mapped(output, self._change)

    def _change(self, tensor: Any) -> Any:
        return tensor.to(self.type)


def hook_inputs(module: Any, folds: Folds) -> None:
    """Multiplications of what comes into modules, without casts."""
    for name, exponent in folds.inputs.items():
        module.get_submodule(name).register_forward_pre_hook(CastInputs(None, 2.0**exponent), with_kwargs=True)


def cast_modules(module: Any, plan: Plan, folds: Folds) -> None:
    """Parameters, buffers and borders in the precisions of a plan. Results of the whole are float32."""
    torch = torch_package("apply")
    _cast_parameters(module, plan, folds)
    for name in plan.precisions:
        inner = module.get_submodule(name)
        factor = 2.0 ** folds.inputs[name] if name in folds.inputs else None
        inner.register_forward_pre_hook(CastInputs(torch_type(plan.precisions[name]), factor), with_kwargs=True)
        leaves_as = plan.leaves_as(name)
        if leaves_as is not None and leaves_as != plan.precisions[name]:
            inner.register_forward_hook(CastOutputs(torch_type(leaves_as)))
    module.register_forward_hook(CastOutputs(torch.float32))


def _cast_parameters(module: Any, plan: Plan, folds: Folds) -> None:
    """Those that several modules share stay shared where their precisions are the same."""
    torch = torch_package("apply")
    made: dict[tuple[int, Any], Any] = {}
    before = []  # Keeps the old tensors alive, since ids tell them apart.
    for name, inner in list(module.named_modules()):
        type_ = torch_type("fp32" if name in folds.exact else plan.precision_of(name))
        held = {**inner._parameters, **inner._buffers}
        loose = {key: each for key, each in vars(inner).items() if isinstance(each, torch.Tensor)}
        for key, tensor in (held | loose).items():
            if tensor is None or tensor.dtype != torch.float32:
                continue
            before.append(tensor)
            place = (id(tensor), type_)
            if place not in made:
                cast = tensor.detach().to(type_)
                made[place] = (
                    torch.nn.Parameter(cast, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else cast
                )
            setattr(inner, key, made[place])
