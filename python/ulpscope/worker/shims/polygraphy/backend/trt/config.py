"""Loaders of builder configurations, and profiles."""

from __future__ import annotations

import fnmatch
from collections import OrderedDict
from typing import Any, Callable, Iterable, Optional

import tensorrt as trt

from ... import util
from ...exception import PolygraphyException
from ...logger import G_LOGGER, LogMode
from ..base import BaseLoader


class ShapeTuple:
    """Minimum, optimum and maximum."""

    def __init__(self, min: Any, opt: Any, max: Any) -> None:
        self.min, self.opt, self.max = min, opt, max

    def __iter__(self) -> Any:
        return iter((self.min, self.opt, self.max))


class Profile(OrderedDict[str, ShapeTuple]):
    """Shapes per input."""

    def add(self, name: str, min: Any, opt: Any, max: Any) -> "Profile":
        self[name] = ShapeTuple(min, opt, max)
        return self

    def __getitem__(self, key: str) -> ShapeTuple:
        if key not in self:
            raise PolygraphyException(f"Binding: {key} does not have shapes set in this profile")
        return super().__getitem__(key)

    def fill_defaults(self, network: Any, default_shape_value: Optional[int] = None) -> "Profile":
        value = util.default(default_shape_value, 1)
        for index in range(network.num_inputs):
            tensor = network.get_input(index)
            if any(fnmatch.fnmatch(tensor.name, pattern) for pattern in self):
                continue
            shape = util.override_dynamic_shape(tensor.shape, value)
            if shape != list(tensor.shape):
                G_LOGGER.warning(
                    f"{tensor.name} | No shapes provided; Will use shape: {shape} for min/opt/max in profile. Others will be refused; "
                    "if this is incorrect, please set the range of shapes for this input",
                    mode=LogMode.ONCE,
                )
            self.add(tensor.name, shape, shape, shape)
        return self

    def to_trt(self, builder: Any, network: Any) -> Any:
        profile = builder.create_optimization_profile()
        for name, shapes in self.items():
            profile.set_shape(name, *shapes)
        return profile


class CreateConfig(BaseLoader):
    """Called with (builder, network), returns the configuration."""

    _FLAGS = (
        "restricted:SAFETY_SCOPE", "refittable:REFIT", "strip_plan:STRIP_PLAN", "sparse_weights:SPARSE_WEIGHTS", "direct_io:DIRECT_IO",
        "version_compatible:VERSION_COMPATIBLE", "exclude_lean_runtime:EXCLUDE_LEAN_RUNTIME", "allow_gpu_fallback:GPU_FALLBACK",
        "error_on_timing_cache_miss:ERROR_ON_TIMING_CACHE_MISS", "disable_compilation_cache:DISABLE_COMPILATION_CACHE",
        "weight_streaming:WEIGHT_STREAMING",
    )  # fmt: skip
    #: Attributes of the configuration, which scripts may read again; they have no effect on ulpscope's engine.
    _ATTRIBUTES = (
        "algorithm_selector", "profiling_verbosity", "engine_capability", "builder_optimization_level", "hardware_compatibility_level",
        "max_aux_streams", "progress_monitor", "runtime_platform", "tiling_optimization_level", "max_workspace_size",
    )  # fmt: skip
    _OTHERS = ("load_timing_cache", "tactic_sources", "memory_pool_limits", "preview_features", "quantization_flags", "use_dla")

    def __init__(
        self,
        tf32: Optional[bool] = None,
        fp16: Optional[bool] = None,
        int8: Optional[bool] = None,
        profiles: Optional[Iterable[Profile]] = None,
        calibrator: Any = None,
        precision_constraints: Optional[str] = None,
        fp8: Optional[bool] = None,
        bf16: Optional[bool] = None,
        obey_precision_constraints: Optional[bool] = None,
        strict_types: Optional[bool] = None,
        **kwargs: Any,
    ) -> None:
        self._precisions = {"TF32": tf32, "FP16": fp16, "INT8": int8, "FP8": fp8, "BF16": bf16}
        if precision_constraints not in (None, "obey", "prefer", "none"):
            raise PolygraphyException(f"precision_constraints: expected 'obey', 'prefer' or 'none', got {precision_constraints!r}")
        self._constraints = "obey" if obey_precision_constraints or strict_types else precision_constraints
        self._profiles = [Profile()] if profiles is None else list(profiles)
        self._calibrator = calibrator
        known = [entry.split(":")[0] for entry in self._FLAGS]
        unknown = [name for name in kwargs if name not in known + [*self._ATTRIBUTES, *self._OTHERS]]
        if unknown:
            raise TypeError(f"CreateConfig has no parameter {unknown[0]!r}")
        self._flags = [entry.split(":")[1] for entry in self._FLAGS if kwargs.get(entry.split(":")[0])]
        self._others = {"profiling_verbosity": trt.ProfilingVerbosity.DETAILED}
        self._others.update({name: value for name, value in kwargs.items() if name not in known and value is not None})

    def call_impl(self, builder: Any, network: Any) -> Any:
        config = builder.create_builder_config()
        for name, wanted in self._precisions.items():
            (config.set_flag if wanted else config.clear_flag)(trt.BuilderFlag[name])
        for name in self._flags:
            config.set_flag(trt.BuilderFlag[name])
        if self._constraints in ("obey", "prefer"):
            config.set_flag(trt.BuilderFlag[f"{self._constraints.upper()}_PRECISION_CONSTRAINTS"])
        for profile in self._profiles:
            complete = Profile(profile).fill_defaults(network)
            config.add_optimization_profile(complete.to_trt(builder, network))
        if self._calibrator is not None:
            config.int8_calibrator = self._calibrator
        self._set_others(config)
        return config

    def _set_others(self, config: Any) -> None:
        given = self._others
        for name in self._ATTRIBUTES:
            if name in given:
                setattr(config, name, given[name])
        if "tactic_sources" in given:
            config.set_tactic_sources(sum(1 << int(source) for source in given["tactic_sources"]))
        for pool, size in given.get("memory_pool_limits", {}).items():
            config.set_memory_pool_limit(pool, size)
        for feature in given.get("preview_features", ()):
            config.set_preview_feature(feature, True)
        for flag in given.get("quantization_flags", ()):
            config.set_quantization_flag(flag)
        if given.get("use_dla"):
            config.default_device_type = trt.DeviceType.DLA
            config.DLA_core = 0
            config.set_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)


class PostprocessConfig(BaseLoader):
    """Calls a function with builder, network and config; returns the config."""

    def __init__(self, config: Any, func: Callable[..., None]) -> None:
        if not callable(func):
            raise PolygraphyException(f"Object {func} (of type {type(func).__name__}) is not a callable.")
        self._config, self._function = config, func

    def call_impl(self, builder: Any, network: Any) -> Any:
        config, _ = util.invoke_if_callable(self._config, builder, network)
        self._function(builder=builder, network=network, config=config)
        return config


def create_config(builder: Any, network: Any, *args: Any, **kwargs: Any) -> Any:
    """The configuration at once."""
    return CreateConfig(*args, **kwargs)(builder, network)


def postprocess_config(builder: Any, network: Any, *args: Any, **kwargs: Any) -> Any:
    """The postprocessed configuration at once."""
    return PostprocessConfig(*args, **kwargs)(builder, network)
