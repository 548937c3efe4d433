"""Builder, its configuration, loggers and calibrators."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from ._base import Enum, Object, flag_methods
from ._enums import (
    BuilderFlag, DeviceType, EngineCapability, HardwareCompatibilityLevel, MemoryPoolType, PreviewFeature,
    ProfilingVerbosity, QuantizationFlag, TacticSource,
)  # fmt: skip
from ._network import INetworkDefinition
from ._tensor import Dims


class ILogger:
    """Base of loggers."""

    class Severity(Enum):
        INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = Severity

    def __init__(self) -> None:
        pass


class Logger(ILogger):
    """Prints messages of at least its severity to stderr."""

    def __init__(self, min_severity: ILogger.Severity = ILogger.Severity.WARNING) -> None:
        self.min_severity = min_severity

    def log(self, severity: ILogger.Severity, msg: str) -> None:
        if severity <= self.min_severity:
            print(f"[TRT] [{severity.name[0]}] {msg}", file=sys.stderr)


class IOptimizationProfile(Object):
    """Minimum, optimum and maximum shape per input."""

    extra_memory_target: float = 1.0

    def __init__(self) -> None:
        self._shapes: Dict[str, Tuple[Dims, Dims, Dims]] = {}
        self._values: Dict[str, Tuple[Any, Any, Any]] = {}

    def set_shape(self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]) -> None:
        if not len(min) == len(opt) == len(max):
            raise ValueError(f"the shapes of '{input}' have different ranks: {tuple(min)}, {tuple(opt)}, {tuple(max)}")
        if any(not low <= middle <= high for low, middle, high in zip(min, opt, max)):
            raise ValueError(f"the shapes of '{input}' are not in order: {tuple(min)}, {tuple(opt)}, {tuple(max)}")
        self._shapes[str(input)] = (Dims(tuple(min)), Dims(tuple(opt)), Dims(tuple(max)))

    def get_shape(self, input: str) -> List[Dims]:
        return list(self._shapes.get(input, ()))

    def set_shape_input(self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]) -> None:
        self._values[str(input)] = (tuple(min), tuple(opt), tuple(max))

    def get_shape_input(self, input: str) -> List[Any]:
        return list(self._values.get(input, ()))

    def __bool__(self) -> bool:
        return True


def _stored(name: str, convert: Callable[[Any], Any] = lambda value: value) -> Tuple[Any, Any]:
    """A setter, which accepts everything, and the getter of an attribute."""

    def set_value(self: Any, value: Any) -> bool:
        setattr(self, name, convert(value))
        return True

    return set_value, lambda self: getattr(self, name)


def _accepted(self: Any, *args: Any, **kwargs: Any) -> bool:
    """Has no effect on ulpscope's engine."""
    return True


class IBuilderConfig(Object):
    """How to build: precisions, constraints and profiles count; what only matters to a GPU is accepted and has no effect."""

    avg_timing_iterations: int = 1
    min_timing_iterations: int = 1
    builder_optimization_level: int = 3
    max_aux_streams: int = 0
    max_num_tactics: int = -1
    profiling_verbosity: ProfilingVerbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
    engine_capability: EngineCapability = EngineCapability.STANDARD
    hardware_compatibility_level: HardwareCompatibilityLevel = HardwareCompatibilityLevel.NONE
    default_device_type: DeviceType = DeviceType.GPU
    DLA_core: int = -1
    profile_stream: int = 0
    plugins_to_serialize: Sequence[str] = ()
    algorithm_selector: Any = None
    int8_calibrator: Any = None
    progress_monitor: Any = None
    flags: int = 1 << int(BuilderFlag.TF32)  # on by default, as in the real module
    quantization_flags: int = 0
    runtime_platform: Any = None
    tiling_optimization_level: Any = None
    l2_limit_for_tiling: int = -1
    remote_auto_tuning_config: str = ""

    def __init__(self) -> None:
        self._profiles: List[IOptimizationProfile] = []
        self._pools: Dict[MemoryPoolType, int] = {}
        self._tactic_sources = 1 << int(TacticSource.EDGE_MASK_CONVOLUTIONS) | 1 << int(TacticSource.JIT_CONVOLUTIONS)
        self._features: Set[PreviewFeature] = set()
        self._calibration_profile: Optional[IOptimizationProfile] = None

    set_flag, clear_flag, get_flag = flag_methods("flags", BuilderFlag)
    set_quantization_flag, clear_quantization_flag, get_quantization_flag = flag_methods(
        "quantization_flags", QuantizationFlag
    )

    max_workspace_size = property(
        lambda self: self.get_memory_pool_limit(MemoryPoolType.WORKSPACE),
        lambda self, value: self.set_memory_pool_limit(MemoryPoolType.WORKSPACE, value),
    )

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        self._pools[MemoryPoolType(pool)] = int(pool_size)

    def get_memory_pool_limit(self, pool: MemoryPoolType) -> int:
        return self._pools.get(MemoryPoolType(pool), 0)

    num_optimization_profiles = property(lambda self: len(self._profiles))

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self._profiles.append(profile)
        return len(self._profiles) - 1

    set_device_type = reset_device_type = set_timing_cache = set_compute_capability = _accepted
    set_calibration_profile, get_calibration_profile = _stored("_calibration_profile")
    set_tactic_sources, get_tactic_sources = _stored("_tactic_sources", int)

    def set_preview_feature(self, feature: PreviewFeature, enable: bool) -> None:
        (self._features.add if enable else self._features.discard)(PreviewFeature(feature))

    def get_preview_feature(self, feature: PreviewFeature) -> bool:
        return PreviewFeature(feature) in self._features

    def can_run_on_DLA(self, layer: Any) -> bool:
        return False

    def create_timing_cache(self, serialized_timing_cache: bytes) -> "ITimingCache":
        return ITimingCache()

    def get_timing_cache(self) -> "ITimingCache":
        return ITimingCache()


class ITimingCache:
    """Empty: ulpscope measures nothing while it builds."""

    def serialize(self) -> bytes:
        return b""

    def combine(self, input_cache: "ITimingCache", ignore_mismatch: bool) -> bool:
        return True

    def reset(self) -> bool:
        return True


class Builder(Object):
    """Makes networks and configurations. Engines are built by the program, after the script."""

    max_threads: int = 1
    error_recorder: Any = None
    gpu_allocator: Any = None
    max_batch_size: int = 1
    platform_has_tf32 = platform_has_fast_fp16 = platform_has_fast_int8 = True
    num_DLA_cores = 0

    logger = property(lambda self: self._logger)

    def __init__(self, logger: Optional[Any] = None) -> None:
        self._logger = logger

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        return INetworkDefinition(flags)

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig()

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def is_network_supported(self, network: INetworkDefinition, config: IBuilderConfig) -> bool:
        return True

    def reset(self) -> None:
        pass

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> None:
        raise RuntimeError("a script only describes the network: ulpscope builds the engine itself after the script has returned")

    build_engine = build_engine_with_config = build_serialized_network


class _NotCalled:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class IInt8Calibrator(_NotCalled):
    """Base of calibrators. ulpscope calibrates itself (--calibration-cache); a script's calibrator is not called."""


IInt8EntropyCalibrator = IInt8EntropyCalibrator2 = IInt8MinMaxCalibrator = IInt8LegacyCalibrator = IInt8Calibrator


class IAlgorithmSelector(_NotCalled):
    """Base of algorithm selectors; not called: see --save-tactics and --load-tactics."""


class IProgressMonitor(_NotCalled):
    """Base of progress monitors; not called."""


__all__ = [name for name in dir() if name.startswith("I") and name not in ("INetworkDefinition",)] + ["Builder", "Logger"]
