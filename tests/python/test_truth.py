"""Predicted errors against those that a GPU made (tests/truth).

`python tests/python/test_truth.py` prints the table.
"""

from __future__ import annotations

import functools
import math
import pathlib
import typing

import numpy as np
import pytest

if __name__ == "__main__":
    import conftest  # noqa: F401  (finds the package of the build)

import ulpscope

TRUTH = pathlib.Path(__file__).resolve().parents[1] / "truth"
NETWORKS = sorted(path.stem for path in TRUTH.glob("*.onnx"))
PRECISIONS = ("fp16", "bf16")
RECORDED = {"none": "eager", "full": "fused"}

#: Where PyTorch's operators are not the nodes of the ONNX file, so that op by op they round at other places.
OTHER_OPERATORS = {"mlp", "attention", "groupnorm_silu", "pool_resize", "underflow"}
SAME_OPERATORS = [name for name in NETWORKS if name not in OTHER_OPERATORS]

#: Where Inductor's kernels do what our fusion does not; docs/numerics.md says what, each verified by an experiment.
FUSED_DIFFERENTLY = {
    "fp16": {"encoder4", "sum_overflow", "underflow"},
    "bf16": {"encoder4", "depthwise"},
}


class Row(typing.NamedTuple):
    network: str
    precision: str
    fusion: str
    predicted: float
    real: float

    @property
    def ratio(self) -> float:
        """Predicted / real; 1 where both are infinite."""
        if math.isinf(self.predicted) and math.isinf(self.real):
            return 1.0
        return self.predicted / self.real


def relative_l2(values: np.ndarray, reference: np.ndarray) -> float:
    """|values - reference| / |reference|; inf when a value is infinite, NaN when one is NaN."""
    with np.errstate(all="ignore"):
        difference = values.astype(np.float64) - reference
        return float(np.sqrt(np.sum(difference * difference)) / np.sqrt(np.sum(reference * reference)))


@functools.lru_cache(maxsize=None)
def measure(network: str, precision: str, fusion: str) -> Row:
    with np.load(TRUTH / f"{network}.npz") as data:
        x, reference = data["x"], data["float64"]
        recorded = data[f"{precision}_{RECORDED[fusion]}"]
    engine = ulpscope.Engine(TRUTH / f"{network}.onnx", precision=precision, fusion=fusion, threads=1)
    y = engine.run({"x": x})["y"]
    return Row(network, precision, fusion, relative_l2(y, reference), relative_l2(recorded, reference))


def table() -> str:
    columns = [(precision, fusion) for precision in PRECISIONS for fusion in RECORDED]
    lines = [
        "| network | " + " | ".join(f"{p}, {f} / {RECORDED[f]}" for p, f in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for network in NETWORKS:
        rows = [measure(network, *column) for column in columns]
        cells = [f"{row.predicted:.3g} / {row.real:.3g} = {row.ratio:.2f}" for row in rows]
        lines.append(f"| {network} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def test_the_whole_table_is_printed(capsys):
    text = table()
    with capsys.disabled():
        print("\nRelative L2 error against float64: predicted / real = ratio\n" + text)
    assert len(NETWORKS) == 19
    assert all(f"| {name} |" in text for name in NETWORKS)


@pytest.mark.parametrize("network", SAME_OPERATORS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_op_by_op_errors_are_predicted(network, precision):
    row = measure(network, precision, "none")
    assert math.isinf(row.predicted) == math.isinf(row.real)
    assert 0.9 <= row.ratio <= 1.1, row


@pytest.mark.parametrize("precision", PRECISIONS)
def test_fused_errors_are_predicted(precision):
    outside = {name for name in NETWORKS if not 0.75 <= measure(name, precision, "full").ratio <= 1.2}
    assert len(NETWORKS) - len(outside) >= 15
    assert outside <= FUSED_DIFFERENTLY[precision]


def test_the_sum_overflows_where_the_gpu_overflows():
    x, recorded = (np.load(TRUTH / "sum_overflow.npz")[key] for key in ("x", "fp16_eager"))
    engine = ulpscope.Engine(TRUTH / "sum_overflow.onnx", precision="fp16", fusion="none", threads=1)
    y = engine.run({"x": x})["y"]
    assert np.isinf(recorded).any()
    assert np.array_equal(np.isinf(y), np.isinf(recorded))


@pytest.mark.parametrize("network", ["needs_constraints", "cancellation", "manual_norm_overflow"])
def test_fusion_decides_between_ruin_and_success(network):
    for row in (measure(network, "fp16", "none"), measure(network, "fp16", "full")):
        if row.fusion == "none":
            assert row.predicted > 0.3 and row.real > 0.3
        else:
            assert row.predicted < 1e-3 and row.real < 1e-3


if __name__ == "__main__":
    print(table())
