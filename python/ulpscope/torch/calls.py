"""Samples as torch has them: the arguments of calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..arguments import shown
from ..data import Arrays
from ..errors import invalid_argument
from .packages import torch_package


class Call(NamedTuple):
    """The arguments of one call of a module."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def calls_of(samples: Any, where: str) -> list[Call]:
    """One call per sample: a tensor, a tuple of arguments, or a dictionary of them by name.

    Raises Error(INVALID_ARGUMENT) for what is no sample, and for none at all.
    """
    torch = torch_package(where)
    if isinstance(samples, (torch.Tensor, str, bytes, Mapping)) or not isinstance(samples, Iterable):
        raise invalid_argument(f"[{where}] samples: expected a list of samples, got {shown(samples)}; try [sample]")
    calls = []
    for i, sample in enumerate(samples):
        if isinstance(sample, torch.Tensor):
            calls.append(Call((sample,), {}))
        elif isinstance(sample, Mapping):
            calls.append(Call((), dict(sample)))
        elif isinstance(sample, Sequence) and not isinstance(sample, (str, bytes)):
            calls.append(Call(tuple(sample), {}))
        else:
            raise invalid_argument(
                f"[{where}] samples: expected a tensor, a tuple of arguments or a dictionary of them per sample, "
                f"got {shown(sample)} as sample {i}"
            )
    if not calls:
        raise invalid_argument(f"[{where}] samples: expected at least one sample, got none")
    return calls


def arguments_of(module: Any, call: Call, where: str) -> dict[str, Any]:
    """The arguments by the names of the parameters of `forward`, in their order.

    Raises Error(INVALID_ARGUMENT) where `forward` does not take them.
    """
    try:
        bound = inspect.signature(module.forward).bind(*call.args, **call.kwargs)
    except TypeError as error:
        raise invalid_argument(
            f"[{where}] samples: forward of {type(module).__name__} does not take one: {error}"
        ) from error
    return dict(bound.arguments)


def tensors_in(value: Any) -> Iterator[Any]:
    """All tensors in nested containers, in the order of torch.export."""
    torch = torch_package("torch")
    leaves = torch.utils._pytree.tree_leaves(value)
    return (each for each in leaves if isinstance(each, torch.Tensor))


def array_of(tensor: Any) -> Any:
    """As NumPy has it; bfloat16 as float32."""
    torch = torch_package("torch")
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()


def arrays_of(module: Any, call: Call, names: Sequence[str], where: str) -> Arrays:
    """The tensors of a call under the names of the model's inputs.

    Raises Error(INVALID_ARGUMENT) for other tensors than those of the sample that was exported.
    """
    tensors = list(tensors_in(arguments_of(module, call, where)))
    if len(tensors) != len(names):
        raise invalid_argument(
            f"[{where}] samples: expected {len(names)} tensors ({', '.join(names)}) as in the first sample, got "
            f"{len(tensors)}"
        )
    return {name: array_of(tensor) for name, tensor in zip(names, tensors)}


def on_device_of(module: Any, call: Call) -> Call:
    """The call with its tensors where the parameters of the module are."""
    torch = torch_package("torch")
    place = next((each.device for each in (*module.parameters(), *module.buffers())), None)
    if place is None:
        return call
    moved: tuple[tuple[Any, ...], dict[str, Any]] = torch.utils._pytree.tree_map(
        lambda each: each.to(place) if isinstance(each, torch.Tensor) else each, (call.args, call.kwargs)
    )
    return Call(*moved)
