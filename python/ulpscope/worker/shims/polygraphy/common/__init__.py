"""Descriptions of tensors."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any


class MetadataTuple:
    """Type, shape and documentation of a tensor."""

    def __init__(self, dtype: Any, shape: Any, docstring: Any = None) -> None:
        self.dtype, self.shape, self.docstring = dtype, shape, docstring

    def __iter__(self) -> Any:
        return iter((self.dtype, self.shape))


class TensorMetadata(OrderedDict[str, MetadataTuple]):
    """Tensors by name."""

    def add(self, name: str, dtype: Any, shape: Any, min_shape: Any = None, max_shape: Any = None, docstring: Any = None) -> "TensorMetadata":
        self[name] = MetadataTuple(dtype, shape, docstring)
        return self
