"""The enumerations of the real module that scripts use, with its numbers (TensorRT 10), which count from 0."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ._base import Enum


class DataType(Enum):
    FLOAT, HALF, INT8, INT32, BOOL, UINT8, FP8, BF16, INT64, INT4, FP4, E8M0 = range(12)
    # Element types of ONNX that TensorRT does not have; ulpscope's networks may hold them.
    (
        DOUBLE, INT16, UINT16, UINT32, UINT64, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ, FLOAT6E2M3, FLOAT6E3M2,
        UINT4, INT2, UINT2,
    ) = range(101, 114)  # fmt: skip

    @property
    def itemsize(self) -> int:
        return _SIZES[self]


_NAMES = {
    DataType.FLOAT: "float32", DataType.HALF: "float16", DataType.INT8: "int8", DataType.INT32: "int32", DataType.BOOL: "bool",
    DataType.UINT8: "uint8", DataType.FP8: "fp8", DataType.BF16: "bfloat16", DataType.INT64: "int64", DataType.DOUBLE: "float64",
    DataType.INT16: "int16", DataType.UINT16: "uint16", DataType.UINT32: "uint32", DataType.UINT64: "uint64",
    DataType.E8M0: "float8_e8m0fnu", DataType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz", DataType.FLOAT8E5M2: "float8_e5m2",
    DataType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz", DataType.FLOAT6E2M3: "float6_e2m3fn", DataType.FLOAT6E3M2: "float6_e3m2fn",
    DataType.FP4: "float4_e2m1fn", DataType.INT4: "int4", DataType.UINT4: "uint4", DataType.INT2: "int2", DataType.UINT2: "uint2",
}  # fmt: skip
_TYPES = {name: dtype for dtype, name in _NAMES.items()}
_NOT_IN_NUMPY = {name for name in _TYPES if name in ("bfloat16", "fp8", "int4", "uint4", "int2", "uint2") or "_e" in name}
_SIZES = {
    dtype: (2 if name == "bfloat16" else 1) if name in _NOT_IN_NUMPY else np.dtype(name).itemsize
    for dtype, name in _NAMES.items()
}


def type_name(dtype: Any) -> str:
    """ulpscope's name of a DataType."""
    if not isinstance(dtype, DataType):
        raise TypeError(f"expected a tensorrt.DataType such as trt.float32, got {dtype!r}")
    return _NAMES[dtype]


def type_from_name(name: Optional[str]) -> Optional[DataType]:
    return _TYPES.get(name) if name else None


def type_of_array(array: np.ndarray) -> DataType:
    dtype = array.dtype
    if dtype.metadata and "ulpscope" in dtype.metadata:
        return _TYPES[dtype.metadata["ulpscope"]]
    name = {"float8_e4m3fn": "fp8"}.get(dtype.name, dtype.name)
    if name not in _TYPES:
        raise TypeError(f"expected weights of numbers or bools, got elements of type {dtype}")
    return _TYPES[name]


def nptype(trt_type: DataType) -> Any:
    """NumPy's type for a DataType; TypeError for BF16, FP8 and others that NumPy does not have."""
    name = type_name(trt_type)
    if name in _NOT_IN_NUMPY:
        raise TypeError(f"NumPy has no type for {trt_type}")
    return np.dtype(name).type


class LayerType(Enum):
    (
        CONVOLUTION, CAST, ACTIVATION, POOLING, LRN, SCALE, SOFTMAX, DECONVOLUTION, CONCATENATION, ELEMENTWISE, PLUGIN,
        UNARY, PADDING, SHUFFLE, REDUCE, TOPK, GATHER, MATRIX_MULTIPLY, RAGGED_SOFTMAX, CONSTANT, IDENTITY, PLUGIN_V2,
        SLICE, SHAPE, PARAMETRIC_RELU, RESIZE, TRIP_LIMIT, RECURRENCE, ITERATOR, LOOP_OUTPUT, SELECT, FILL, QUANTIZE,
        DEQUANTIZE, CONDITION, CONDITIONAL_INPUT, CONDITIONAL_OUTPUT, SCATTER, EINSUM, ASSERTION, ONE_HOT, NON_ZERO,
        GRID_SAMPLE, NMS, REVERSE_SEQUENCE, NORMALIZATION, PLUGIN_V3, SQUEEZE, UNSQUEEZE, CUMULATIVE,
    ) = range(50)  # fmt: skip
    FULLY_CONNECTED = 90  # gone from newer releases


class ActivationType(Enum):
    (
        RELU, SIGMOID, TANH, LEAKY_RELU, ELU, SELU, SOFTSIGN, SOFTPLUS, CLIP, HARD_SIGMOID, SCALED_TANH,
        THRESHOLDED_RELU, GELU_ERF, GELU_TANH,
    ) = range(14)  # fmt: skip


class ElementWiseOperation(Enum):
    SUM, PROD, MAX, MIN, SUB, DIV, POW, FLOOR_DIV, AND, OR, XOR, EQUAL, GREATER, LESS = range(14)


class UnaryOperation(Enum):
    (
        EXP, LOG, SQRT, RECIP, ABS, NEG, SIN, COS, TAN, SINH, COSH, ASIN, ACOS, ATAN, ASINH, ACOSH, ATANH, CEIL, FLOOR,
        ERF, NOT, SIGN, ROUND, ISINF, ISNAN,
    ) = range(25)  # fmt: skip


class MatrixOperation(Enum):
    NONE, TRANSPOSE, VECTOR = range(3)


class PoolingType(Enum):
    MAX, AVERAGE, MAX_AVERAGE_BLEND = range(3)


class PaddingMode(Enum):
    EXPLICIT_ROUND_DOWN, EXPLICIT_ROUND_UP, SAME_UPPER, SAME_LOWER = range(4)


class ReduceOperation(Enum):
    SUM, PROD, MAX, MIN, AVG = range(5)


class TopKOperation(Enum):
    MAX, MIN = range(2)


class ScaleMode(Enum):
    UNIFORM, CHANNEL, ELEMENTWISE = range(3)


class GatherMode(Enum):
    DEFAULT, ELEMENT, ND = range(3)


class ScatterMode(Enum):
    ELEMENT, ND = range(2)


class SampleMode(Enum):
    STRICT_BOUNDS, WRAP, CLAMP, FILL, REFLECT = range(5)


SliceMode = SampleMode  # its name in TensorRT 8


class InterpolationMode(Enum):
    NEAREST, LINEAR, CUBIC = range(3)


ResizeMode = InterpolationMode  # its name in TensorRT 8


class ResizeCoordinateTransformation(Enum):
    ALIGN_CORNERS, ASYMMETRIC, HALF_PIXEL = range(3)


class ResizeRoundMode(Enum):
    HALF_UP, HALF_DOWN, FLOOR, CEIL = range(4)


class NetworkDefinitionCreationFlag(Enum):
    EXPLICIT_BATCH, STRONGLY_TYPED, EXPLICIT_PRECISION = range(3)


class BuilderFlag(Enum):
    (
        FP16, INT8, DEBUG, GPU_FALLBACK, REFIT, DISABLE_TIMING_CACHE, EDITABLE_TIMING_CACHE, TF32, SPARSE_WEIGHTS,
        SAFETY_SCOPE, OBEY_PRECISION_CONSTRAINTS, PREFER_PRECISION_CONSTRAINTS, DIRECT_IO, REJECT_EMPTY_ALGORITHMS,
        VERSION_COMPATIBLE, EXCLUDE_LEAN_RUNTIME, FP8, ERROR_ON_TIMING_CACHE_MISS, BF16, DISABLE_COMPILATION_CACHE,
        STRIP_PLAN, REFIT_IDENTICAL, WEIGHT_STREAMING, INT4,
    ) = range(24)  # fmt: skip
    STRICT_TYPES = 31  # obey, in TensorRT 7 and earlier


class OnnxParserFlag(Enum):
    NATIVE_INSTANCENORM, ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA = range(2)


class MemoryPoolType(Enum):
    WORKSPACE, DLA_MANAGED_SRAM, DLA_LOCAL_DRAM, DLA_GLOBAL_DRAM, TACTIC_DRAM, TACTIC_SHARED_MEMORY = range(6)


class TacticSource(Enum):
    CUBLAS, CUBLAS_LT, CUDNN, EDGE_MASK_CONVOLUTIONS, JIT_CONVOLUTIONS = range(5)


class ProfilingVerbosity(Enum):
    LAYER_NAMES_ONLY, NONE, DETAILED = range(3)


class EngineCapability(Enum):
    STANDARD, SAFETY, DLA_STANDALONE = range(3)


class DeviceType(Enum):
    GPU, DLA = range(2)


class HardwareCompatibilityLevel(Enum):
    NONE, AMPERE_PLUS, SAME_COMPUTE_CAPABILITY = range(3)


class RuntimePlatform(Enum):
    SAME_AS_BUILD, WINDOWS_AMD64 = range(2)


class TilingOptimizationLevel(Enum):
    NONE, FAST, MODERATE, FULL = range(4)


class PreviewFeature(Enum):
    (
        FASTER_DYNAMIC_SHAPES_0805, DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805, PROFILE_SHARING_0806,
        ALIASED_PLUGIN_IO_10_03,
    ) = range(4)  # fmt: skip


class QuantizationFlag(Enum):
    CALIBRATE_BEFORE_FUSION = 0


class TensorFormat(Enum):
    LINEAR, CHW2, HWC8, CHW4, CHW16, CHW32 = range(6)


class TensorLocation(Enum):
    DEVICE, HOST = range(2)


__all__ = [name for name, value in list(globals().items()) if isinstance(value, type) and issubclass(value, Enum) and value is not Enum]
