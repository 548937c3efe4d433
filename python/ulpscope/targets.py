"""What this machine takes, measured: files for `target`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Optional, Union

from .arguments import FilePath, Precisions, checked
from .calibration import Calibration, add_scales
from .data import Data, Source, precisions_of, samples_of
from .errors import invalid_argument
from .native import _core, assign
from .progress import Watcher, watched

if TYPE_CHECKING:
    from .data import Model


@checked
def measure_target(
    path: FilePath,
    model: Optional[Model] = None,
    data: Optional[Data] = None,
    precisions: Precisions = ("fp16",),
    *,
    fusion: str = "full",
    calibration: Union[Calibration, Mapping[str, float], FilePath, None] = None,
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
        raise invalid_argument("[target] expected a model and data, or none of both, got one of them")
    with watched(progress) as report:
        if model is None or data is None:
            _core.measure_target(file, None, None, backend, threads, report)
            return file
        wanted = precisions_of(precisions, "precisions")
        options = _core.ModelOptions()
        assign(options, precisions=wanted, fusion=fusion, backend=backend, threads=threads)
        loaded = Source(model).load(options)
        samples = samples_of(data, loaded)
        add_scales(loaded, wanted, calibration, samples, report)
        _core.measure_target(file, loaded, samples[0], backend, threads, report)
    return file
