"""The C++ library, as ulpscope.engine uses it."""

from os import PathLike
from typing import Any, Mapping, Sequence

import numpy as np

_Spec = tuple[str, np.dtype[Any], list[int]]

class Engine:
    @staticmethod
    def from_file(
        path: str | PathLike[str], precision: str, layer_precisions: Mapping[str, str], fusion: str, threads: int
    ) -> Engine: ...
    @staticmethod
    def from_bytes(
        model: bytes, precision: str, layer_precisions: Mapping[str, str], fusion: str, threads: int
    ) -> Engine: ...
    def inputs(self) -> list[_Spec]: ...
    def outputs(self) -> list[_Spec]: ...
    def layers(self) -> list[tuple[str, str, str, str, list[str]]]: ...
    def run(self, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]: ...

def reference_run(model: bytes, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]: ...
