"""Number formats and their rounding (docs/numerics.md, "Types and rounding"): to nearest, ties to even.

Values are float64 arrays that hold numbers of a narrower format exactly.
"""

from __future__ import annotations

import numpy as np

#: Half a unit in the last place of a float32, relative.
EPSILON = 2.0**-24
FLOAT32_MAX = float(np.finfo(np.float32).max)
#: Of float32; below the smallest normal number precision is lost.
SMALLEST, SMALLEST_NORMAL = 2.0**-149, 2.0**-126


def _round_fraction(x: np.ndarray, kept: int) -> np.ndarray:
    """float32 numbers with `kept` bits after the leading one; carries run into the exponent, and so into infinity."""
    bits = np.array(x, np.float32, order="C").view(np.uint32)  # Of NaN alone the sum below leaves 32 bits.
    dropped = 23 - kept
    bits += np.uint32((1 << (dropped - 1)) - 1) + ((bits >> np.uint32(dropped)) & np.uint32(1))
    bits &= np.uint32(0xFFFFFFFF >> dropped << dropped)
    return np.where(np.isnan(x), np.nan, bits.view(np.float32).astype(np.float64))


def round_to(x: np.ndarray, form: str) -> np.ndarray:
    """`x` in the format "fp32", "tf32", "fp16" or "bf16". What is wider than float32 becomes a float32 first, as the
    accumulators and registers are that the value comes from. For callers that let NumPy be silent of overflow."""
    x = np.asarray(x, np.float64).astype(np.float32)
    if form == "fp32":
        return x.astype(np.float64)
    if form == "fp16":
        return x.astype(np.float16).astype(np.float64)
    if form == "bf16":
        return _round_fraction(x, 7)
    if form == "tf32":
        return _round_fraction(x, 10)
    raise ValueError(f"no format {form}")


def is_exact(storage: str, form: str) -> bool:
    """Rounding values stored as `storage` to `form` changes none of them."""
    return form == "fp32" or storage == form or (form == "tf32" and storage in ("fp16", "bf16"))
