"""The operands of the recorded products: made of integers by a generator of our own, the same everywhere."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

ROWS = 16
TYPES = {"fp8": ml_dtypes.float8_e4m3fn, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
DISTRIBUTIONS = ("gauss", "positive", "outliers", "wide", "subnormal")


@dataclass(frozen=True)
class Case:
    kind: str
    distribution: str
    k: int

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.distribution}_{self.k}"


# fp8 wants K in multiples of 16; the others in multiples of 8 (16 bytes).
CASES = [
    Case(kind, distribution, k)
    for kind, lengths in {
        "fp8": (16, 48, 128, 208, 1024, 4096),
        "fp16": (8, 24, 72, 1000, 4096),
        "bf16": (8, 24, 72, 1000, 4096),
    }.items()
    for distribution in DISTRIBUTIONS
    for k in lengths
]
# Large numbers times numbers below the smallest normal one: whose exponents count as they are, or as the smallest.
CASES += [Case(kind, "mixed", k) for kind in TYPES for k in (16, 48, 208, 1024)]


def uniform(seed: int, count: int) -> np.ndarray:
    """Numbers in (0, 1): SplitMix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return ((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def normal(seed: int, count: int) -> np.ndarray:
    """Twelve uniform numbers added up are nearly normal, and exact in float64 on every machine."""
    return uniform(seed, 12 * count).reshape(12, count).sum(axis=0) - 6.0


def values(seed: int, count: int, distribution: str, smallest: float) -> np.ndarray:
    x = normal(seed, count)
    if distribution == "positive":
        return np.abs(x) + 0.25
    if distribution == "outliers":
        return np.where(uniform(seed + 7919, count) < 0.01, 30.0 * x, x)
    if distribution == "wide":  # Powers of two from 2^-8 to 2^8.
        return x * 2.0 ** (np.floor(uniform(seed + 104729, count) * 17.0) - 8.0)
    if distribution == "subnormal":  # Among them many below the smallest normal number.
        return x * smallest * 2.0 ** np.floor(uniform(seed + 1299709, count) * 6.0 - 3.0)
    return x


def operands(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """float32 arrays (ROWS, k) whose numbers the type holds exactly; the product is a @ b.T."""
    dtype = TYPES[case.kind]
    smallest = {"fp8": 2.0**-6, "fp16": 2.0**-14, "bf16": 2.0**-60}[case.kind]
    seed = 1000 * CASES.index(case)
    result = []
    for operand in range(2):
        distribution = case.distribution
        if distribution == "mixed":
            distribution = ("wide", "subnormal")[operand]
        x = values(seed + operand, ROWS * case.k, distribution, smallest)
        if case.kind == "fp8":
            x = np.clip(x, -448, 448)
        result.append(x.astype(dtype).astype(np.float32).reshape(ROWS, case.k))
    return result[0], result[1]
