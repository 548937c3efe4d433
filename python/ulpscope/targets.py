"""What this machine takes, measured: files for `target`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Optional, Union

from .calibration import Calibration, calibrate_samples, use_calibration
from .data import Data, Source, each_sample, names_of
from .errors import Error, ErrorCode
from .native import _core, assign
from .progress import Watcher, watched

if TYPE_CHECKING:
    from .data import Model


def measure_target(
    path: Union[str, os.PathLike[str]],
    model: Optional[Model] = None,
    data: Optional[Data] = None,
    precisions: Union[str, Sequence[str]] = ("fp16",),
    *,
    fusion: str = "full",
    calibration: Union[Calibration, Mapping[str, float], str, os.PathLike[str], None] = None,
    backend: str = "cpu",
    threads: int = 0,
    progress: Watcher = None,
) -> str:
    """Measures this machine and writes a file that `target` takes; as `ulpscope target measure`. Returns its path.

    path:        where to write it; ends in ".json".
    model, data: also the times of the groups of this model, on the first of these samples; None: rates alone.
    precisions:  in which the groups are measured, beside float32: "tf32", "fp16", "bf16", "int8".
    calibration: int8 scales; None: from `data`. fusion: as the search will have it.
    backend:     what is measured: "cpu", or "cuda": an NVIDIA GPU. threads: of the CPU; 0: one per core.
    progress:    as in ulpscope.search.

    Nothing else should run meanwhile. Raises Error: INVALID_ARGUMENT for a model without data, samples that do not fit and
    another name; UNSUPPORTED without a device; IO. Ctrl-C: KeyboardInterrupt.

    >>> path = ulpscope.measure_target("here.json", "model.onnx", samples)
    >>> answer = ulpscope.search("model.onnx", samples, threshold=1e-2, target=path)
    >>> answer.target
    'here.json'
    """
    file = os.fspath(path)
    if (model is None) != (data is None):
        raise Error(ErrorCode.INVALID_ARGUMENT, "[target] expected a model and data, or none of both, got one of them")
    with watched(progress) as report:
        if model is None or data is None:
            _core.measure_target(file, None, None, backend, threads, report)
            return file
        wanted = names_of(precisions, "precisions")
        options = _core.ModelOptions()
        assign(options, "target", precisions=wanted, fusion=fusion, backend=backend, threads=threads)
        loaded = Source(model).load(options)
        samples = list(each_sample(data, loaded))
        if not samples:
            raise Error(ErrorCode.INVALID_ARGUMENT, "[data] expected inputs of at least one sample, got none")
        if "int8" in wanted and calibration is not None:
            use_calibration(loaded, calibration)
        elif "int8" in wanted and not loaded.brings_scales():
            calibrate_samples(loaded, iter(samples), "entropy", report=report)
        _core.measure_target(file, loaded, samples[0], backend, threads, report)
    return file
