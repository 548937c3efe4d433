"""Functions that compare two IterationResults, for scripts that judge with several of them or with other tolerances per output."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from .. import util
from ..exception import PolygraphyException
from ..logger import G_LOGGER

#: What zeros are divided by.
_EPSILON = 2.220446049250313e-16
_STATISTICS = ("elemwise", "max", "mean", "median", "quantile")


class OutputCompareResult:
    """True if an output agrees; the largest, mean, median and quantile differences."""

    _FIELDS = tuple(f"{statistic}_{kind}" for statistic in ("max", "mean", "median", "quantile") for kind in ("absdiff", "reldiff"))

    def __init__(
        self,
        passed: Any,
        max_absdiff: Any = None,
        max_reldiff: Any = None,
        mean_absdiff: Any = None,
        mean_reldiff: Any = None,
        median_absdiff: Any = None,
        median_reldiff: Any = None,
        quantile_absdiff: Any = None,
        quantile_reldiff: Any = None,
    ) -> None:
        self.passed = bool(passed)
        self.max_absdiff, self.max_reldiff = max_absdiff, max_reldiff
        self.mean_absdiff, self.mean_reldiff = mean_absdiff, mean_reldiff
        self.median_absdiff, self.median_reldiff = median_absdiff, median_reldiff
        self.quantile_absdiff, self.quantile_reldiff = quantile_absdiff, quantile_reldiff

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        given = [(name, getattr(self, name)) for name in self._FIELDS]
        return ", ".join(f"{name}={value:.5g}" for name, value in given if value is not None)


class MetricResult:
    """True if the one number of an output is on the right side of its threshold."""

    def __init__(self, name: str, label: str, value: float, threshold: float, passed: bool) -> None:
        setattr(self, name, value)
        self.passed = passed
        self._text = f"{label}: {value:.5g} (threshold: {threshold:.5g})"

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return self._text


class AllOf:
    """True if every one of several results is; it has their numbers."""

    def __init__(self, results: List[MetricResult]) -> None:
        for result in results:
            vars(self).update(vars(result))
        self.passed = all(results)
        self._text = "; ".join(map(repr, results))

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return self._text


def _of(values: Any, name: str, default: Any) -> Any:
    """The value for an output, of one for all or of a dict with "" for others."""
    if isinstance(values, dict):
        return values.get(name, values.get("", default))
    return util.default(values, default)


def _partner(name: str, index: int, result: Any, own: Any) -> Optional[List[str]]:
    found = util.find_str_in_iterable(name, result.keys(), index)
    if found is None or (found != name and found in own.keys()):
        return None
    return [found]


Match = Callable[[str, np.ndarray, np.ndarray], Any]


def _compare(match: Match, first: Any, second: Any, fail_fast: Any, find_output_func: Any) -> "OrderedDict[str, Any]":
    verdicts: "OrderedDict[str, Any]" = OrderedDict()
    for index, name in enumerate(first.keys()):
        for other in (find_output_func(name, index, second) if find_output_func else _partner(name, index, second, first)) or []:
            verdict = match(name, np.asarray(first[name]), np.asarray(second[other]))
            verdicts[name] = verdict
            if fail_fast and not verdict:
                return verdicts
    if not verdicts and (len(first) or len(second)):
        raise PolygraphyException(f"No outputs to compare: the results have {list(first.keys())} and {list(second.keys())}")
    return verdicts


def _aligned(name: str, first: np.ndarray, second: np.ndarray, check_shapes: Any) -> Optional[np.ndarray]:
    """The second in the shape of the first, if it may and can be."""
    if first.shape == second.shape:
        return second
    if util.default(check_shapes, True):
        G_LOGGER.error(f"FAILED | Output: `{name}` | Will not compare outputs of different shapes: {first.shape} and {second.shape}")
        return None
    if first.size != second.size:
        G_LOGGER.error(f"FAILED | Output: `{name}` | Shapes cannot be matched: {first.shape} and {second.shape}")
        return None
    axes: List[int] = []
    for size in first.shape:
        axes += [axis for axis in range(second.ndim) if second.shape[axis] == size and axis not in axes][:1]
    return second.transpose(axes) if len(axes) == first.ndim == second.ndim else second.reshape(first.shape)


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        return array.astype(np.float32) if array.dtype.itemsize < 4 else array
    return array.astype(np.int64)


def _errors(first: np.ndarray, second: np.ndarray, infinities_compare_equal: Any) -> Tuple[np.ndarray, np.ndarray]:
    """Absolute and relative differences per element."""
    with np.errstate(all="ignore"):
        if first.dtype == np.bool_ and second.dtype == np.bool_:
            absolute: np.ndarray = np.logical_xor(first, second)
        else:
            absolute = np.abs(_wide(first) - _wide(second))
            if infinities_compare_equal:
                absolute = np.where(np.isinf(first) & (first == second), np.zeros_like(absolute), absolute)
        divisor = np.abs(_wide(second))
        if divisor.dtype.kind == "f":
            divisor = np.where(divisor == 0, divisor.dtype.type(_EPSILON), divisor)
        return absolute, np.true_divide(absolute, divisor)


def _statistics(errors: np.ndarray, quantile: Optional[float]) -> Dict[str, Any]:
    if errors.size == 0:
        return {"max": 0.0, "mean": math.nan, "median": 0.0, "quantile": None if quantile is None else math.inf}
    if errors.dtype == np.bool_:
        errors = errors.astype(np.float32)
    return {
        "max": np.max(errors),
        "mean": np.mean(errors),
        "median": np.median(errors),
        "quantile": None if quantile is None else np.quantile(errors, quantile),
    }


class BaseCompareFunc:
    """A function of two IterationResults that returns a verdict per output."""

    def __call__(self, iter_result0: Any, iter_result1: Any) -> "OrderedDict[str, Any]":
        raise NotImplementedError


class SimpleCompareFunc(BaseCompareFunc):
    """Absolute and relative tolerances, per output where a dict is given."""

    def __init__(
        self,
        check_shapes: Any = None,
        rtol: Any = None,
        atol: Any = None,
        fail_fast: Any = None,
        find_output_func: Any = None,
        check_error_stat: Any = None,
        infinities_compare_equal: Any = None,
        save_heatmaps: Any = None,
        show_heatmaps: Any = None,
        save_error_metrics_plot: Any = None,
        show_error_metrics_plot: Any = None,
        error_quantile: Any = None,
    ) -> None:
        if save_heatmaps or show_heatmaps or save_error_metrics_plot or show_error_metrics_plot:
            G_LOGGER.warning("Comparisons of scripts draw nothing; try --save-heatmaps and the like without a script")
        self.check_shapes, self.rtol, self.atol, self.fail_fast = check_shapes, rtol, atol, fail_fast
        self.find_output_func, self.check_error_stat, self.error_quantile = find_output_func, check_error_stat, error_quantile
        self.infinities_compare_equal = infinities_compare_equal

    def _match(self, name: str, first: np.ndarray, second: np.ndarray) -> Any:
        statistic = _of(self.check_error_stat, name, "elemwise")
        if statistic not in _STATISTICS:
            G_LOGGER.critical(f"Invalid choice for check_error_stat: {statistic}; expected one of {', '.join(_STATISTICS)}")
        aligned = _aligned(name, first, second, self.check_shapes)
        if aligned is None:
            return False
        atol, rtol = _of(self.atol, name, 1e-5), _of(self.rtol, name, 1e-5)
        absolute, relative = _errors(first, aligned, self.infinities_compare_equal)
        quantile = _of(self.error_quantile, name, 0.99) if statistic == "quantile" else None
        of_absolute, of_relative = _statistics(absolute, quantile), _statistics(relative, quantile)
        if statistic == "elemwise":
            passed = bool(np.all((absolute <= atol) | (relative <= rtol)))
        else:
            passed = bool(of_absolute[statistic] <= atol or of_relative[statistic] <= rtol)
        if passed:
            G_LOGGER.finish(f"PASSED | Output: '{name}' | Difference is within tolerance (rel={rtol}, abs={atol})")
        else:
            G_LOGGER.error(f"FAILED | Output: '{name}' | Difference exceeds tolerance (rel={rtol}, abs={atol})")
        numbers = [each[key] for key in ("max", "mean", "median", "quantile") for each in (of_absolute, of_relative)]
        return OutputCompareResult(passed, *numbers)

    def __call__(self, iter_result0: Any, iter_result1: Any) -> "OrderedDict[str, Any]":
        return _compare(self._match, iter_result0, iter_result1, self.fail_fast, self.find_output_func)


class IndicesCompareFunc(BaseCompareFunc):
    """Positions of values along the last axis, as after top-K."""

    def __init__(self, index_tolerance: Any = None, fail_fast: Any = None) -> None:
        self.index_tolerance, self.fail_fast = index_tolerance, fail_fast

    def _match(self, name: str, first: np.ndarray, second: np.ndarray) -> bool:
        tolerance = int(_of(self.index_tolerance, name, 0))
        if first.shape != second.shape or first.ndim == 0:
            G_LOGGER.error(f"FAILED | Output: '{name}' | Cannot compare indices of shapes {first.shape} and {second.shape}")
            return False
        width = first.shape[-1]
        judged = width - max(tolerance, 0)
        for row, other in zip(first.reshape(-1, width), second.reshape(-1, width)):
            for position in range(judged):
                if row[position] == other[position]:
                    continue
                places = np.flatnonzero(other == row[position])
                if places.size == 0:
                    G_LOGGER.error(f"FAILED | Value: {row[position]} not found in output")
                    return False
                if abs(int(places[0]) - position) > tolerance:
                    G_LOGGER.error(f"FAILED | Difference exceeds index tolerance ({tolerance})")
                    return False
        G_LOGGER.finish(f"PASSED | Difference is within index tolerance ({tolerance})")
        return True

    def __call__(self, iter_result0: Any, iter_result1: Any) -> "OrderedDict[str, Any]":
        return _compare(self._match, iter_result0, iter_result1, self.fail_fast, None)


def _l2(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.sqrt(np.sum((first - second) ** 2)))


def _of_length_one_or_so(array: np.ndarray) -> np.ndarray:
    """Scaled so that no square overflows or vanishes."""
    largest = float(np.max(np.abs(array))) if array.size else 0.0
    return array / largest if math.isfinite(largest) and largest > 0 else array


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    first, second = _of_length_one_or_so(first), _of_length_one_or_so(second)
    lengths = float(np.sqrt(np.sum(first**2))), float(np.sqrt(np.sum(second**2)))
    if 0.0 in lengths:
        return 1.0 if lengths == (0.0, 0.0) else 0.0
    return float(np.clip(np.sum(first * second) / (lengths[0] * lengths[1]), -1, 1))


def _psnr(first: np.ndarray, second: np.ndarray) -> float:
    noise = float(np.mean((first - second) ** 2)) if first.size else math.nan
    if noise == 0:
        return math.inf
    if math.isnan(noise):
        return math.nan
    peak = float(np.max(first))
    return 20 * math.log10(peak if peak > 0 else 1.0) - 10 * math.log10(noise)


def _snr(first: np.ndarray, second: np.ndarray) -> float:
    if not first.size:
        return math.nan
    signal, noise = float(np.sum(first**2)), float(np.sum((first - second) ** 2))
    if noise == 0:
        return math.inf
    if signal == 0:
        return -math.inf
    return 10 * math.log10(signal / noise) if not math.isnan(signal / noise) else math.nan


class _MetricCompareFunc(BaseCompareFunc):
    """One number per output, held against a threshold."""

    NAME, LABEL, DEFAULT, LEAST = "", "", 0.0, True
    MEASURE: Callable[[np.ndarray, np.ndarray], float] = staticmethod(_l2)

    def __init__(self, threshold: Any = None, check_shapes: Any = None, fail_fast: Any = None, find_output_func: Any = None) -> None:
        self.threshold, self.check_shapes, self.fail_fast, self.find_output_func = threshold, check_shapes, fail_fast, find_output_func

    def _match(self, name: str, first: np.ndarray, second: np.ndarray) -> Any:
        aligned = _aligned(name, first, second, self.check_shapes)
        if aligned is None:
            return False
        threshold = _of(self.threshold, name, self.DEFAULT)
        with np.errstate(all="ignore"):
            value = type(self).MEASURE(first.astype(np.float64), aligned.astype(np.float64))
        passed = value >= threshold if self.LEAST else value <= threshold
        text = f"{'PASSED' if passed else 'FAILED'} | Output: '{name}' | {self.LABEL}: {value:.5g} (threshold: {threshold:.5g})"
        (G_LOGGER.finish if passed else G_LOGGER.error)(text)
        return MetricResult(self.NAME, self.LABEL, value, threshold, passed)

    def __call__(self, iter_result0: Any, iter_result1: Any) -> "OrderedDict[str, Any]":
        return _compare(self._match, iter_result0, iter_result1, self.fail_fast, self.find_output_func)


class L2CompareFunc(_MetricCompareFunc):
    NAME, LABEL, DEFAULT, LEAST, MEASURE = "l2_norm", "L2 Norm", 1e-5, False, staticmethod(_l2)

    def __init__(self, l2_threshold: Any = None, check_shapes: Any = None, fail_fast: Any = None, find_output_func: Any = None) -> None:
        super().__init__(l2_threshold, check_shapes, fail_fast, find_output_func)


class CosineSimilarityCompareFunc(_MetricCompareFunc):
    NAME, LABEL, DEFAULT, LEAST, MEASURE = "cosine_similarity", "Cosine Similarity", 0.997, True, staticmethod(_cosine)

    def __init__(
        self, cosine_similarity_threshold: Any = None, check_shapes: Any = None, fail_fast: Any = None, find_output_func: Any = None
    ) -> None:
        super().__init__(cosine_similarity_threshold, check_shapes, fail_fast, find_output_func)


class PsnrCompareFunc(_MetricCompareFunc):
    NAME, LABEL, DEFAULT, LEAST, MEASURE = "psnr", "PSNR", 30.0, True, staticmethod(_psnr)

    def __init__(self, psnr_threshold: Any = None, check_shapes: Any = None, fail_fast: Any = None, find_output_func: Any = None) -> None:
        super().__init__(psnr_threshold, check_shapes, fail_fast, find_output_func)


class SnrCompareFunc(_MetricCompareFunc):
    NAME, LABEL, DEFAULT, LEAST, MEASURE = "snr", "SNR", 20.0, True, staticmethod(_snr)

    def __init__(self, snr_threshold: Any = None, check_shapes: Any = None, fail_fast: Any = None, find_output_func: Any = None) -> None:
        super().__init__(snr_threshold, check_shapes, fail_fast, find_output_func)


def _both(parts: List[_MetricCompareFunc], fail_fast: Any, find_output_func: Any) -> Any:
    def match(name: str, first: np.ndarray, second: np.ndarray) -> Any:
        results = [part._match(name, first, second) for part in parts]
        return AllOf(results) if all(isinstance(result, MetricResult) for result in results) else False

    return lambda iter_result0, iter_result1: _compare(match, iter_result0, iter_result1, fail_fast, find_output_func)


class CompareFunc:
    """The same as functions, as older scripts make them."""

    @staticmethod
    def simple(*args: Any, **kwargs: Any) -> SimpleCompareFunc:
        return SimpleCompareFunc(*args, **kwargs)

    @staticmethod
    def indices(index_tolerance: Any = None, fail_fast: Any = None) -> IndicesCompareFunc:
        return IndicesCompareFunc(index_tolerance, fail_fast)

    @staticmethod
    def distance_metrics(
        l2_tolerance: Any = None, cosine_similarity_threshold: Any = None, check_shapes: Any = None, fail_fast: Any = None,
        find_output_func: Any = None,
    ) -> Any:  # fmt: skip
        return _both([L2CompareFunc(l2_tolerance, check_shapes), CosineSimilarityCompareFunc(cosine_similarity_threshold, check_shapes)],
                     fail_fast, find_output_func)  # fmt: skip

    @staticmethod
    def quality_metrics(
        psnr_tolerance: Any = None, snr_tolerance: Any = None, check_shapes: Any = None, fail_fast: Any = None, find_output_func: Any = None,
    ) -> Any:  # fmt: skip
        return _both([PsnrCompareFunc(psnr_tolerance, check_shapes), SnrCompareFunc(snr_tolerance, check_shapes)], fail_fast, find_output_func)
