"""Element types."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class DataType(enum.Enum):
    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8E4M3FN = "float8e4m3fn"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT64 = "uint64"
    UINT32 = "uint32"
    UINT16 = "uint16"
    UINT8 = "uint8"
    BOOL = "bool"

    def numpy(self) -> Any:
        return np.dtype(self.value).type

    @staticmethod
    def from_dtype(dtype: Any, source_module: Any = None) -> "DataType":
        name = getattr(dtype, "name", None) or np.dtype(dtype).name
        names = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "FP8": "float8e4m3fn"}
        return DataType(names.get(name, str(name).lower()))

    def __str__(self) -> str:
        return self.value
