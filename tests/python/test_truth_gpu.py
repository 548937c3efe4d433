"""What the backend for GPUs computed on an H200 (tests/truth/gpu), against the CPU: errors and bits."""

from __future__ import annotations

import pathlib
import sys

import instruction_sets
import numpy as np
import pytest
import ulpscope

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
from check_models import Case, Runner

TRUTH = pathlib.Path(__file__).resolve().parents[1] / "truth"
NETWORKS = sorted(path.stem for path in TRUTH.glob("gpu/*.npz"))

#: Of one group, or of programs alone: each element rounds once, or at the same places.
PROGRAMS = {"cancellation", "layernorm", "manual_norm", "manual_norm_overflow", "pointwise_chain", "softmax_mask"}
ONE_PRODUCT = {"linear_k4096", "depthwise", "conv_transpose"}
#: Recorded in fp8, too.
FP8 = ["attention", "encoder4", "linear_k4096", "mlp"]


def widened(recorded: np.ndarray) -> np.ndarray:
    """The float32 values of an array that tests/gpu/record.py wrote."""
    if recorded.dtype == np.uint16:  # The upper half of a float32.
        return (recorded.astype(np.uint32) << 16).view(np.float32)
    return recorded.astype(np.float32)


def error(values: np.ndarray, reference: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(values - reference) / np.linalg.norm(reference))


def test_all_networks_were_recorded() -> None:
    assert NETWORKS == sorted(path.stem for path in TRUTH.glob("*.onnx"))


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("network", NETWORKS)
def test_the_gpu_computed_what_is_predicted(network: str, precision: str, fusion: str) -> None:
    with np.load(TRUTH / "gpu" / f"{network}.npz") as data:
        recorded = widened(data[f"{precision}_{fusion}_y"]).astype(np.float64)
    with np.load(TRUTH / f"{network}.npz") as data:
        x, reference = data["x"], data["float64"].ravel()
    engine = ulpscope.Engine(TRUTH / f"{network}.onnx", precision=precision, fusion=fusion, threads=1)
    predicted = engine.run({"x": x})["y"].ravel().astype(np.float64)
    assert np.array_equal(np.isfinite(recorded), np.isfinite(predicted))
    same = np.mean((recorded == predicted) | (np.isnan(recorded) & np.isnan(predicted)))
    if network in PROGRAMS:
        assert same >= 0.999
    if network in ONE_PRODUCT:
        assert same >= 0.99
    if np.isfinite(predicted).all() and predicted.size:
        assert 0.95 <= error(recorded, reference) / error(predicted, reference) <= 1.05


@pytest.mark.parametrize("fusion", ["none", "full"])
@pytest.mark.parametrize("precision", ["fp8", "fp8-hopper", "fp8-hopper-fast"])
@pytest.mark.parametrize("network", FP8)
def test_the_gpu_computed_in_fp8_what_is_predicted(
    network: str, precision: str, fusion: str, program: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Sums as the tensor cores add them up give every bit. One kernel for all of an attention has its sums in float32
    unless asked for the slow rule; whole networks without a rule part where one sum rounds otherwise. The norms of
    encoder4 add in float32, in the GPU's order on processors with AVX-512 alone."""
    with np.load(TRUTH / "gpu" / f"{network}.npz") as data:
        recorded = widened(data[f"{precision}_{fusion}_y"]).astype(np.float64)
    with np.load(TRUTH / f"{network}.npz") as data:
        reference = data["float64"].ravel()
    runner = Runner(program, tmp_path, 600, "normalized")
    predicted = runner.outputs(Case(TRUTH / f"{network}.onnx", precision, fusion), "cpu")["y"].astype(np.float64)
    one_kernel = fusion == "full" and network in ("attention", "encoder4")
    in_order = network != "encoder4" or instruction_sets.is_there("avx512")
    if in_order and (precision == "fp8-hopper" or (precision == "fp8-hopper-fast" and not one_kernel)):
        assert np.mean(recorded == predicted) >= 0.9995
    off = 0.01 if in_order else 0.05
    assert 1 - off <= error(recorded, reference) / error(predicted, reference) <= 1 + off
