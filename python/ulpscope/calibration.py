"""int8 scales, from what a network computes on samples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Optional, Union

from .arguments import FilePath, checked
from .data import Arrays, Data, Source, each_sample
from .errors import warn
from .native import _core, assign
from .progress import Report, Watcher, watched

if TYPE_CHECKING:
    from .data import Model

DEFAULT_QUANTILE = 0.99999
#: Names that other tools have for the calibrators.
_METHODS = {"minmax": "max", "MinMax": "max", "Entropy": "entropy", "Percentile": "percentile"}


class Calibration(dict[str, float]):
    """The int8 scale of every tensor, by name: real value = scale * integer.

    >>> cache = ulpscope.calibrate("model.onnx", samples, method="max")
    >>> cache.save("int8.cache")
    >>> ulpscope.Calibration.load("int8.cache") == cache
    True
    """

    @checked
    def __init__(self, scales: Mapping[str, float], algorithm: str, samples: int = 0) -> None:
        super().__init__(scales)
        self.algorithm = algorithm  #: As calibration caches say it: "EntropyCalibration2", "MinMaxCalibration", ...
        self.samples = samples  #: How many it was made from; 0: unknown.
        self.path: Optional[str] = None  #: The file that holds it.
        #: What `calibrate` measured: rel-l2 of the worst output over a few samples, every layer that can be in int8.
        #: None: not measured.
        self.error: Optional[float] = None

    @checked
    def save(self, path: FilePath) -> None:
        """Writes TensorRT's calibration cache. Raises Error(IO)."""
        _core.write_calibration_cache(os.fspath(path), self.algorithm, dict(self))
        self.path = os.fspath(path)

    @staticmethod
    @checked
    def load(path: FilePath) -> Calibration:
        """Reads TensorRT's calibration cache. Raises Error: NOT_FOUND, IO, INVALID_FILE."""
        algorithm, scales = _core.read_calibration_cache(os.fspath(path))
        result = Calibration(scales, algorithm)
        result.path = os.fspath(path)
        return result


def calibrator_for(precisions: Sequence[str]) -> Optional[str]:
    """How the scales of these precisions are found where nobody says it; None: they need none.

    Formats of floats hold small values beside large ones, so that no clipping pays; int8 gains by it.
    """
    calibrated = [name for name in precisions if name in _core.calibrated_precisions()]
    if not calibrated:
        return None
    return "entropy" if calibrated == ["int8"] else "max"


@checked
def calibrate(
    model: Model,
    data: Data,
    method: str = "entropy",
    *,
    quantile: float = DEFAULT_QUANTILE,
    progress: Watcher = None,
    threads: int = 0,
    memory_limit: int = 0,
    measure: bool = True,
) -> Calibration:
    """The int8 scales of all tensors; as `ulpscope run --int8 --calibration-cache FILE`.

    model:    a path, bytes, or an onnx.ModelProto.
    data:     samples, one in memory at a time where the data allow it; see ulpscope.Data.
    method:   "entropy" (IInt8EntropyCalibrator2), "max" or "minmax" (IInt8MinMaxCalibrator), "percentile"
              (IInt8LegacyCalibrator, at `quantile`), or the name of one of TensorRT's calibrators.
    progress: as in ulpscope.search. threads: 0: one per core. The scales do not depend on it.
    memory_limit: as in ulpscope.Engine; with less, a network is run several times per sample.
    measure:  also what int8 costs with these scales (Calibration.error), on up to 4 samples; above 0.1 a warning has
              the errors of the other methods beside it.

    Raises Error: INVALID_ARGUMENT for an unknown method, no samples, and a sample that does not fit (says which); and
    what reading the model raises. Ctrl-C: KeyboardInterrupt.

    >>> cache = ulpscope.calibrate("model.onnx", samples, method="max")
    >>> round(cache["x"] * 127, 3)
    2.0
    """
    options = _core.ModelOptions()
    assign(options, precisions=["int8"], threads=threads, memory_limit=memory_limit)
    loaded = Source(model).load(options)
    kept: list[Arrays] = []
    with watched(progress) as report:
        result = calibrate_samples(loaded, _keeping(each_sample(data, loaded), kept), method, quantile, report)
    if measure and not loaded.brings_scales():
        result.error = _core.calibration_error(loaded, kept)
        if result.error > WORTH_A_WARNING:
            again = data if isinstance(data, (str, os.PathLike, list, tuple, Mapping)) else kept

            def error_of(other: str) -> float:
                fresh = Source(model).load(options)
                calibrate_samples(fresh, each_sample(again, fresh), other, quantile)
                return float(_core.calibration_error(fresh, kept))

            warn_of_error("calibrate", result.error, result.algorithm, error_of)
    return result


#: rel-l2 of int8 above which people are told, and how many samples it is measured on.
WORTH_A_WARNING, MEASURED = 0.1, 4
#: By the name that caches have.
_NAMES = {
    "EntropyCalibration2": "entropy", "EntropyCalibration": "entropy", "MinMaxCalibration": "max",
    "LegacyCalibration": "percentile",
}  # fmt: skip


def warn_of_error(
    where: str, error: float, algorithm: str, error_of: Callable[[str], float], precision: str = "int8"
) -> None:
    """Says what a format with calibrated scales costs, and what it would cost by the other methods."""
    own = _NAMES.get(algorithm, algorithm)
    errors = {name: error_of(name) for name in ("entropy", "max", "percentile") if name != own}
    others = ", ".join(f"{name!r} {value:.3g}" for name, value in errors.items())
    best = min(errors, key=lambda name: errors[name])
    argument = "method" if where == "calibrate" else "calibration_method"
    advice = f"try {argument}={best!r}" if errors[best] < 0.9 * error else "try ulpscope.search for layers to keep"
    warn(
        "[%s] %s with the scales of %r is off by %.3g (rel-l2 of the worst output, up to %d samples); by other "
        "methods: %s; %s", where, precision, own, error, MEASURED, others, advice,
    )  # fmt: skip


def _keeping(samples: Iterator[Arrays], kept: list[Arrays]) -> Iterator[Arrays]:
    for sample in samples:
        if len(kept) < MEASURED:
            kept.append(sample)
        yield sample


def calibrate_samples(
    model: _core.Model,
    samples: Iterator[Arrays],
    method: str,
    quantile: float = DEFAULT_QUANTILE,
    report: Report = None,
) -> Calibration:
    """Sets the scales of the model, too."""
    name = _METHODS.get(method, method)
    algorithm, scales, count = _core.calibrate(model, lambda: next(samples, None), name, quantile, report)
    return Calibration(scales, algorithm, count)


def add_scales(
    model: _core.Model,
    precisions: Sequence[str],
    calibration: Union[Calibration, Mapping[str, float], FilePath, None],
    samples: Sequence[Arrays],
    report: Report = None,
) -> Optional[str]:
    """Those that the precisions need: given, of the model's file, or of the samples. Returns the file of the scales,
    where they are in one."""
    method = calibrator_for(precisions)
    if method is None:
        return None
    if calibration is not None:
        return use_calibration(model, calibration)
    if not model.brings_scales():
        calibrate_samples(model, iter(samples), method, report=report)
    return None


def use_calibration(
    model: _core.Model, calibration: Union[Calibration, Mapping[str, float], FilePath]
) -> Optional[str]:
    """Sets the scales of the model. Returns the file that they are in, if they are."""
    if isinstance(calibration, (str, os.PathLike)):
        calibration = Calibration.load(calibration)
    algorithm = calibration.algorithm if isinstance(calibration, Calibration) else "EntropyCalibration2"
    path = calibration.path if isinstance(calibration, Calibration) else None
    scales = {name: float(scale) for name, scale in calibration.items()}
    _core.use_calibration(model, algorithm, scales, path or "the calibration")
    return path
