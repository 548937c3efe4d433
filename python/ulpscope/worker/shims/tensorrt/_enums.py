"""The enumerations of the real module that scripts use, with its numbers (TensorRT 10 documentation)."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ._base import Enum


class DataType(Enum):
    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8
    INT4 = 9
    FP4 = 10
    E8M0 = 11
    # Element types of ONNX that TensorRT does not have; ulpscope's networks may hold them.
    DOUBLE = 101
    INT16 = 102
    UINT16 = 103
    UINT32 = 104
    UINT64 = 105
    FLOAT8E4M3FNUZ = 106
    FLOAT8E5M2 = 107
    FLOAT8E5M2FNUZ = 108
    FLOAT6E2M3 = 109
    FLOAT6E3M2 = 110
    UINT4 = 111
    INT2 = 112
    UINT2 = 113

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
    CONVOLUTION = 0
    CAST = 1
    ACTIVATION = 2
    POOLING = 3
    LRN = 4
    SCALE = 5
    SOFTMAX = 6
    DECONVOLUTION = 7
    CONCATENATION = 8
    ELEMENTWISE = 9
    PLUGIN = 10
    UNARY = 11
    PADDING = 12
    SHUFFLE = 13
    REDUCE = 14
    TOPK = 15
    GATHER = 16
    MATRIX_MULTIPLY = 17
    RAGGED_SOFTMAX = 18
    CONSTANT = 19
    IDENTITY = 20
    PLUGIN_V2 = 21
    SLICE = 22
    SHAPE = 23
    PARAMETRIC_RELU = 24
    RESIZE = 25
    TRIP_LIMIT = 26
    RECURRENCE = 27
    ITERATOR = 28
    LOOP_OUTPUT = 29
    SELECT = 30
    FILL = 31
    QUANTIZE = 32
    DEQUANTIZE = 33
    CONDITION = 34
    CONDITIONAL_INPUT = 35
    CONDITIONAL_OUTPUT = 36
    SCATTER = 37
    EINSUM = 38
    ASSERTION = 39
    ONE_HOT = 40
    NON_ZERO = 41
    GRID_SAMPLE = 42
    NMS = 43
    REVERSE_SEQUENCE = 44
    NORMALIZATION = 45
    PLUGIN_V3 = 46
    SQUEEZE = 47
    UNSQUEEZE = 48
    CUMULATIVE = 49
    FULLY_CONNECTED = 90  # gone from newer releases


class ActivationType(Enum):
    RELU = 0
    SIGMOID = 1
    TANH = 2
    LEAKY_RELU = 3
    ELU = 4
    SELU = 5
    SOFTSIGN = 6
    SOFTPLUS = 7
    CLIP = 8
    HARD_SIGMOID = 9
    SCALED_TANH = 10
    THRESHOLDED_RELU = 11
    GELU_ERF = 12
    GELU_TANH = 13


class ElementWiseOperation(Enum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    DIV = 5
    POW = 6
    FLOOR_DIV = 7
    AND = 8
    OR = 9
    XOR = 10
    EQUAL = 11
    GREATER = 12
    LESS = 13


class UnaryOperation(Enum):
    EXP = 0
    LOG = 1
    SQRT = 2
    RECIP = 3
    ABS = 4
    NEG = 5
    SIN = 6
    COS = 7
    TAN = 8
    SINH = 9
    COSH = 10
    ASIN = 11
    ACOS = 12
    ATAN = 13
    ASINH = 14
    ACOSH = 15
    ATANH = 16
    CEIL = 17
    FLOOR = 18
    ERF = 19
    NOT = 20
    SIGN = 21
    ROUND = 22
    ISINF = 23
    ISNAN = 24


class MatrixOperation(Enum):
    NONE = 0
    TRANSPOSE = 1
    VECTOR = 2


class PoolingType(Enum):
    MAX = 0
    AVERAGE = 1
    MAX_AVERAGE_BLEND = 2


class PaddingMode(Enum):
    EXPLICIT_ROUND_DOWN = 0
    EXPLICIT_ROUND_UP = 1
    SAME_UPPER = 2
    SAME_LOWER = 3


class ReduceOperation(Enum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4


class TopKOperation(Enum):
    MAX = 0
    MIN = 1


class ScaleMode(Enum):
    UNIFORM = 0
    CHANNEL = 1
    ELEMENTWISE = 2


class GatherMode(Enum):
    DEFAULT = 0
    ELEMENT = 1
    ND = 2


class ScatterMode(Enum):
    ELEMENT = 0
    ND = 1


class SampleMode(Enum):
    STRICT_BOUNDS = 0
    WRAP = 1
    CLAMP = 2
    FILL = 3
    REFLECT = 4


SliceMode = SampleMode  # its name in TensorRT 8


class InterpolationMode(Enum):
    NEAREST = 0
    LINEAR = 1
    CUBIC = 2


ResizeMode = InterpolationMode  # its name in TensorRT 8


class ResizeCoordinateTransformation(Enum):
    ALIGN_CORNERS = 0
    ASYMMETRIC = 1
    HALF_PIXEL = 2


class ResizeRoundMode(Enum):
    HALF_UP = 0
    HALF_DOWN = 1
    FLOOR = 2
    CEIL = 3


class NetworkDefinitionCreationFlag(Enum):
    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1
    EXPLICIT_PRECISION = 2


class BuilderFlag(Enum):
    FP16 = 0
    INT8 = 1
    DEBUG = 2
    GPU_FALLBACK = 3
    REFIT = 4
    DISABLE_TIMING_CACHE = 5
    EDITABLE_TIMING_CACHE = 6
    TF32 = 7
    SPARSE_WEIGHTS = 8
    SAFETY_SCOPE = 9
    OBEY_PRECISION_CONSTRAINTS = 10
    PREFER_PRECISION_CONSTRAINTS = 11
    DIRECT_IO = 12
    REJECT_EMPTY_ALGORITHMS = 13
    VERSION_COMPATIBLE = 14
    EXCLUDE_LEAN_RUNTIME = 15
    FP8 = 16
    ERROR_ON_TIMING_CACHE_MISS = 17
    BF16 = 18
    DISABLE_COMPILATION_CACHE = 19
    STRIP_PLAN = 20
    REFIT_IDENTICAL = 21
    WEIGHT_STREAMING = 22
    INT4 = 23
    STRICT_TYPES = 31  # obey, in TensorRT 7 and earlier


class OnnxParserFlag(Enum):
    NATIVE_INSTANCENORM = 0
    ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA = 1


class MemoryPoolType(Enum):
    WORKSPACE = 0
    DLA_MANAGED_SRAM = 1
    DLA_LOCAL_DRAM = 2
    DLA_GLOBAL_DRAM = 3
    TACTIC_DRAM = 4
    TACTIC_SHARED_MEMORY = 5


class TacticSource(Enum):
    CUBLAS = 0
    CUBLAS_LT = 1
    CUDNN = 2
    EDGE_MASK_CONVOLUTIONS = 3
    JIT_CONVOLUTIONS = 4


class ProfilingVerbosity(Enum):
    LAYER_NAMES_ONLY = 0
    NONE = 1
    DETAILED = 2


class EngineCapability(Enum):
    STANDARD = 0
    SAFETY = 1
    DLA_STANDALONE = 2


class DeviceType(Enum):
    GPU = 0
    DLA = 1


class HardwareCompatibilityLevel(Enum):
    NONE = 0
    AMPERE_PLUS = 1
    SAME_COMPUTE_CAPABILITY = 2


class PreviewFeature(Enum):
    FASTER_DYNAMIC_SHAPES_0805 = 0
    DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805 = 1
    PROFILE_SHARING_0806 = 2
    ALIASED_PLUGIN_IO_10_03 = 3


class QuantizationFlag(Enum):
    CALIBRATE_BEFORE_FUSION = 0


class TensorFormat(Enum):
    LINEAR = 0
    CHW2 = 1
    HWC8 = 2
    CHW4 = 3
    CHW16 = 4
    CHW32 = 5


class TensorLocation(Enum):
    DEVICE = 0
    HOST = 1


__all__ = [name for name, value in list(globals().items()) if isinstance(value, type) and issubclass(value, Enum) and value is not Enum]
