"""Results of runs, and generated input data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from ..exception import PolygraphyException
from ..json import Decoder, Encoder, add_json_methods
from .compare import (
    BaseCompareFunc,
    CompareFunc,
    CosineSimilarityCompareFunc,
    IndicesCompareFunc,
    L2CompareFunc,
    OutputCompareResult,
    PsnrCompareFunc,
    SimpleCompareFunc,
    SnrCompareFunc,
)
from .data_loader import DataLoader
from .postprocess import BasePostprocessFunc, PostprocessFunc, TopKPostprocessFunc


class LazyArray:
    """An array that the real module may keep on disk; here it is simply held."""

    def __init__(self, arr: Any) -> None:
        self.arr = arr

    def load(self) -> Any:
        return self.arr

    def numpy(self) -> np.ndarray:
        return np.asarray(self.arr)


@Encoder.register(LazyArray)
def _encode_lazy(array: LazyArray) -> Dict[str, Any]:
    return {"values": array.numpy()}


@Decoder.register(LazyArray, alias="LazyNumpyArray")
def _decode_lazy(entries: Dict[str, Any]) -> LazyArray:
    return LazyArray(entries["values"])


@add_json_methods("inference result")
class IterationResult(MutableMapping[str, Any]):
    """The outputs of one inference, by name, with the runner's name and the seconds it took."""

    def __init__(self, outputs: Optional[Dict[str, Any]] = None, runtime: Optional[float] = None, runner_name: Optional[str] = None) -> None:
        self.dct: Dict[str, LazyArray] = OrderedDict()
        for name, array in (outputs or {}).items():
            self[name] = array
        self.runtime = runtime
        self.runner_name = "custom_runner" if runner_name is None else runner_name

    def __getitem__(self, name: str) -> Any:
        return self.dct[name].load()

    def __setitem__(self, name: str, array: Any) -> None:
        self.dct[name] = array if isinstance(array, LazyArray) else LazyArray(array)

    def __delitem__(self, name: str) -> None:
        del self.dct[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.dct)

    def __len__(self) -> int:
        return len(self.dct)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, IterationResult) or (self.runtime, self.runner_name) != (other.runtime, other.runner_name):
            return False
        return self.keys() == other.keys() and all(np.array_equal(array, other[name]) for name, array in self.items())


@Encoder.register(IterationResult)
def _encode_iteration(result: IterationResult) -> Dict[str, Any]:
    return {"outputs": result.dct, "runtime": result.runtime, "runner_name": result.runner_name}


@Decoder.register(IterationResult)
def _decode_iteration(entries: Dict[str, Any]) -> IterationResult:
    return IterationResult(entries["outputs"], entries["runtime"], entries["runner_name"])


@add_json_methods("inference results")
class RunResults:
    """Pairs of a runner's name and its list of IterationResults, in order."""

    def __init__(self, lst: Optional[Iterable[Tuple[str, List[IterationResult]]]] = None) -> None:
        self.lst: List[Tuple[str, List[IterationResult]]] = [(name, list(iterations)) for name, iterations in lst or []]

    def items(self) -> Iterator[Tuple[str, List[IterationResult]]]:
        return iter(self.lst)

    def keys(self) -> Iterator[str]:
        return (name for name, _ in self.lst)

    def values(self) -> Iterator[List[IterationResult]]:
        return (iterations for _, iterations in self.lst)

    def add(self, out_list: Iterable[Dict[str, Any]], runtime: Optional[float] = None, runner_name: Optional[str] = None) -> None:
        iterations = [IterationResult(outputs, runtime, runner_name) for outputs in out_list]
        self.lst.append((iterations[0].runner_name if iterations else "custom_runner", iterations))

    def append(self, entry: Tuple[str, List[IterationResult]]) -> None:
        self.lst.append(entry)

    def extend(self, entries: Iterable[Tuple[str, List[IterationResult]]]) -> None:
        self.lst.extend(entries)

    def update(self, other: Any) -> None:
        for name, iterations in other.items():
            self[name] = iterations

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int):
            return self.lst[key]
        for name, iterations in self.lst:
            if name == key:
                return iterations
        raise PolygraphyException(f"{key} does not exist in this RunResults instance. Note: Available runners: {list(self.keys())}")

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, int):
            self.lst[key] = value
            return
        for index, (name, _) in enumerate(self.lst):
            if name == key:
                self.lst[index] = (key, value)
                return
        self.lst.append((key, value))

    def __contains__(self, key: str) -> bool:
        return any(name == key for name in self.keys())

    def __iter__(self) -> Iterator[Tuple[str, List[IterationResult]]]:
        return iter(self.lst)

    def __len__(self) -> int:
        return len(self.lst)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, RunResults) and self.lst == other.lst

    __hash__ = None  # type: ignore[assignment]


@Encoder.register(RunResults)
def _encode_results(results: RunResults) -> Dict[str, Any]:
    return {"lst": [[name, iterations] for name, iterations in results.lst]}


@Decoder.register(RunResults)
def _decode_results(entries: Dict[str, Any]) -> RunResults:
    return RunResults([(name, iterations) for name, iterations in entries["lst"]])


__all__ = [
    "BaseCompareFunc",
    "BasePostprocessFunc",
    "CompareFunc",
    "CosineSimilarityCompareFunc",
    "DataLoader",
    "IndicesCompareFunc",
    "IterationResult",
    "L2CompareFunc",
    "LazyArray",
    "OutputCompareResult",
    "PostprocessFunc",
    "PsnrCompareFunc",
    "RunResults",
    "SimpleCompareFunc",
    "SnrCompareFunc",
    "TopKPostprocessFunc",
]
