"""Modules as models whose nodes are named after them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..arguments import shown
from ..errors import Error, ErrorCode, invalid_argument
from ..torch_export import from_torch
from .calls import Call, arguments_of, calls_of, on_device_of, tensors_in
from .graph import keep_scopes, name_after_modules
from .packages import check_exporter, onnx_package, torch_package

if TYPE_CHECKING:
    import onnx


def export(module: Any, samples: Any, **options: Any) -> onnx.ModelProto:
    """The ONNX model of a module, by torch.onnx.export, whose nodes carry the names of modules.

    module:  a torch.nn.Module in float32 and evaluation mode.
    samples: as in `search`; the first is what is exported, and sizes that differ among them are left open.
    options: further arguments of torch.onnx.export, such as dynamic_shapes or opset_version.

    Nodes and tensors are called after the module in whose forward they ran: /blocks/0/norm/pow_1 is of
    module.blocks[0].norm. The exporter's optimizer is not used: it would let modules share constants and results.

    Raises Error: NOT_FOUND without torch, onnx or onnxscript; INVALID_ARGUMENT for what is no module, one in training
    mode, and samples that do not fit it; UNSUPPORTED for parameters of other float types; SCRIPT where the export fails
    (`__cause__` is what torch raised), as it does where values decide what a forward does.

    >>> model = ulpscope.torch.export(torch.nn.Sequential(torch.nn.Linear(4, 2)).eval(), [torch.zeros(1, 4)])
    >>> [node.name for node in model.graph.node][-1]
    '/0/linear'
    """
    checked_module(module, "export")
    return exported(module, calls_of(samples, "export"), options)


def checked_module(module: Any, where: str) -> None:
    """Raises as `export` for what it cannot take."""
    torch = torch_package(where)
    onnx_package(where)
    check_exporter(where)
    if not isinstance(module, torch.nn.Module):
        raise invalid_argument(f"[{where}] module: expected a torch.nn.Module, got {shown(module)}")
    training = [name for name, inner in module.named_modules() if inner.training]
    if training:
        which = "all of it" if not training[0] else f"'{training[0]}'"
        raise invalid_argument(
            f"[{where}] module: expected evaluation mode, got {which} in training mode; try module.eval()"
        )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise Error(
                ErrorCode.UNSUPPORTED,
                f"[{where}] module: expected parameters and buffers in float32, got '{name}' in {tensor.dtype}; try "
                "module.float() on weights that were never rounded",
            )


def exported(module: Any, calls: list[Call], options: dict[str, Any]) -> onnx.ModelProto:
    options = {"optimize": False, "verbose": False, **options, "dynamo": True}
    open_sizes = _open_sizes(module, calls)
    if open_sizes is not None:
        options.setdefault("dynamic_shapes", open_sizes)
    first = on_device_of(module, calls[0])
    try:
        with _quiet_exporter():
            model = from_torch(module, first.args, kwargs=first.kwargs, **options)
    except Error as error:
        if error.code != ErrorCode.SCRIPT or error.__cause__ is None:
            raise
        raise _not_exported(module, error.__cause__) from error.__cause__
    keep_scopes(model)
    name_after_modules(model)
    return model


def _not_exported(module: Any, cause: BaseException) -> Error:
    """The first lines of what went wrong; torch says what it tried, too, on pages of them."""
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return Error(
        ErrorCode.SCRIPT,
        f"[export] module: torch.export cannot trace the forward of {type(module).__name__}: {type(cause).__name__}: "
        f"{' '.join(text[:2])[:300]}; try torch.where or torch.cond where values decide, or a part of the module",
    )


def _open_sizes(module: Any, calls: list[Call]) -> dict[str, Any] | None:
    """What differs among the samples, as torch.export takes it; None: nothing does."""
    torch = torch_package("export")
    arguments = [arguments_of(module, call, "export") for call in calls]
    shapes = [[tuple(each.shape) for each in tensors_in(each_call)] for each_call in arguments]
    if all(each == shapes[0] for each in shapes):
        return None
    if any(len(each) != len(shapes[0]) for each in shapes):
        raise invalid_argument(
            f"[export] samples: expected as many tensors in each, got {sorted({len(each) for each in shapes})}"
        )
    specs = []
    for tensor, of_all in enumerate(zip(*shapes)):
        if len({len(shape) for shape in of_all}) > 1:
            raise invalid_argument(
                f"[export] samples: expected as many dimensions in every sample, got {sorted(set(of_all))} for tensor "
                f"{tensor}"
            )
        sizes = enumerate(zip(*of_all))
        specs.append({axis: torch.export.Dim.AUTO for axis, values in sizes if len(set(values)) > 1} or None)
    left = iter(specs)
    result: dict[str, Any] = torch.utils._pytree.tree_map(
        lambda each: next(left) if isinstance(each, torch.Tensor) else None, arguments[0]
    )
    return result


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without its words about packages that this has nothing to do with (torchvision)."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
