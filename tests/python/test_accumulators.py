"""--accumulation: sums of products as a Hopper GPU computed them, bit for bit (tests/truth/accumulators), and as the
model of its tensor cores, written once more in NumPy, says of products and convolutions that nobody recorded."""

import pathlib
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ulpscope

TRUTH = pathlib.Path(__file__).resolve().parents[1] / "truth" / "accumulators"
sys.path.insert(0, str(TRUTH))
from inputs import CASES, Case, operands, values  # noqa: E402

ONNX = {"fp8": TensorProto.FLOAT8E4M3FN, "fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
NUMPY = {"fp8": ml_dtypes.float8_e4m3fn, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
#: Products per step, bits below the largest exponent, significant bits of the sum.
MODEL = {"fp8": (32, 13, 14), "fp16": (16, 25, 24), "bf16": (16, 25, 24)}


def tensor(name: str, kind: str, array: np.ndarray) -> onnx.TensorProto:
    return helper.make_tensor(name, ONNX[kind], array.shape, array.astype(NUMPY[kind]).tobytes(), raw=True)


def model(kind: str, op: str, x: np.ndarray, w: np.ndarray, output: tuple, **attributes: object) -> bytes:
    """op(x, w): of fp8 the float32 sums of elements of scale 1, else sums that are stored in the type."""
    nodes, initializers = [], [tensor("w", kind, w)]
    if kind == "fp8":
        initializers += [
            helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
            tensor("zero", kind, np.zeros((), np.float32)),
        ]
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["xq"]),
            helper.make_node("DequantizeLinear", ["xq", "one", "zero"], ["a"]),
            helper.make_node("DequantizeLinear", ["w", "one", "zero"], ["b"]),
            helper.make_node(op, ["a", "b"], ["y"], **attributes),
        ]
    else:
        nodes = [
            helper.make_node("Cast", ["x"], ["a"], to=ONNX[kind]),
            helper.make_node(op, ["a", "w"], ["sums"], **attributes),
            helper.make_node("Cast", ["sums"], ["y"], to=TensorProto.FLOAT),
        ]
    graph = helper.make_graph(
        nodes,
        "sums",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def run(made: bytes, x: np.ndarray, accumulation: str, backend: str = "cpu") -> np.ndarray:
    return ulpscope.Engine(made, accumulation=accumulation, backend=backend).run({"x": x})["y"]


def product(kind: str, a: np.ndarray, b: np.ndarray, accumulation: str, backend: str = "cpu") -> np.ndarray:
    """a @ b.T"""
    return run(model(kind, "MatMul", a, b.T, (len(a), len(b))), a, accumulation, backend)


def chain(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One chain of the model over all of k: a @ b.T in float64."""
    step, fraction, bits = MODEL[kind]
    lowest = {"fp8": -6, "fp16": -14, "bf16": -126}[kind]

    def exponents(x: np.ndarray, least: int) -> np.ndarray:
        return np.where(x == 0, -10000, np.maximum(np.frexp(x)[1] - 1, least))

    sums = np.zeros((len(a), len(b)))
    for at in range(0, a.shape[1], step):
        left, right = (each[:, at : at + step].astype(np.float64) for each in (a, b))
        of_terms = exponents(left, lowest)[:, None] + exponents(right, lowest)[None]
        largest = np.maximum(of_terms.max(-1), exponents(sums, -2000))
        unit = np.ldexp(1.0, np.maximum(largest, -900) - fraction)
        total = (np.trunc(left[:, None] * right[None] / unit[..., None]) * unit[..., None]).sum(-1)
        total += np.trunc(sums / unit) * unit
        last = np.ldexp(1.0, np.frexp(total)[1] - bits)
        sums = np.trunc(total / last) * last
    return sums


def stored(kind: str, sums: np.ndarray) -> np.ndarray:
    """As the model gives them."""
    with np.errstate(over="ignore"):
        return sums if kind == "fp8" else sums.astype(NUMPY[kind]).astype(np.float32)


def expected(kind: str, a: np.ndarray, b: np.ndarray, accumulation: str) -> np.ndarray:
    piece = 128 if kind == "fp8" and accumulation == "hopper" else a.shape[1]
    result = np.zeros((len(a), len(b)), np.float32)
    for at in range(0, a.shape[1], piece):
        result += chain(kind, a[:, at : at + piece], b[:, at : at + piece]).astype(np.float32)
    return stored(kind, result)


def same_bits(actual: np.ndarray, wanted: np.ndarray) -> bool:
    """Of numbers; which bits a NaN has depends on the processor."""
    actual, wanted = (
        np.where(np.isnan(each), np.float32(np.nan), each) for each in (actual, wanted.astype(np.float32))
    )
    return np.array_equal(actual.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("backend", ["cpu", "plain"])
@pytest.mark.parametrize("kind", MODEL)
def test_every_bit_that_a_gpu_computed(kind: str, backend: str) -> None:
    recorded = np.load(TRUTH / "products.npz")
    seen = 0
    for case in CASES:
        if case.kind != kind:
            continue
        a, b = operands(case)
        for accumulation, name in (("hopper", case.name), ("hopper-fast", case.name + "_fast")):
            if name in recorded:
                assert same_bits(product(kind, a, b, accumulation, backend), stored(kind, recorded[name])), name
                seen += 1
    assert seen == sum(name.startswith(kind) for name in recorded)


def test_fp32_is_another_sum() -> None:
    a, b = operands(Case("fp8", "positive", 1024))
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    worst = {how: np.abs(product("fp8", a, b, how) / exact - 1).max() for how in ("fp32", "hopper", "hopper-fast")}
    assert worst["fp32"] < 1e-6 < 1e-4 < worst["hopper"] < 2e-3 < 1e-2 < worst["hopper-fast"] < 3e-2


@pytest.mark.parametrize("accumulation", ["hopper", "hopper-fast"])
@pytest.mark.parametrize("kind", MODEL)
def test_every_length_of_k(kind: str, accumulation: str) -> None:
    for k in [*range(1, 70), 127, 128, 129, 131, 257]:
        numbers = [
            np.clip(values(7 * k + side, 3 * k, "wide", 1.0), -448, 448).astype(NUMPY[kind]).astype(np.float32)
            for side in range(2)
        ]
        a, b = (each.reshape(3, k) for each in numbers)
        assert same_bits(product(kind, a, b, accumulation), expected(kind, a, b, accumulation)), k


@pytest.mark.parametrize("backend", ["cpu", "plain"])
@pytest.mark.parametrize("kind", MODEL)
def test_convolutions_sum_channels_within_places(kind: str, backend: str) -> None:
    x = np.clip(values(3, 2 * 6 * 5 * 4, "wide", 1.0), -448, 448).astype(NUMPY[kind]).astype(np.float32)
    x = x.reshape(2, 6, 5, 4)
    w = values(5, 4 * 3 * 3 * 2, "gauss", 1.0).astype(NUMPY[kind]).astype(np.float32).reshape(4, 3, 3, 2)
    attributes = {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1]}
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 1)))
    rows, columns = (padded.shape[2] - 3) // 2 + 1, padded.shape[3] - 2 + 1
    wanted = np.zeros((2, 4, rows, columns), np.float32)
    for n in range(2):
        for group in range(2):
            windows = [
                padded[n, 3 * group : 3 * group + 3, 2 * i : 2 * i + 3, j : j + 2].transpose(1, 2, 0).ravel()
                for i in range(rows)
                for j in range(columns)
            ]
            weights = w[2 * group : 2 * group + 2].transpose(0, 2, 3, 1).reshape(2, -1)
            sums = expected(kind, weights, np.array(windows), "hopper-fast")
            wanted[n, 2 * group : 2 * group + 2] = sums.reshape(2, rows, columns)
    made = model(kind, "Conv", x, w, wanted.shape, **attributes)
    assert same_bits(run(made, x, "hopper-fast", backend), wanted)


def test_infinities_and_nan_are_what_they_are_in_float32() -> None:
    a = np.array([[np.inf, 1, 2], [np.nan, 1, 2], [np.inf, -np.inf, 1], [65504, 65504, 65504]], np.float32)
    b = np.array([[1, 1, 1], [0, 1, 1], [-1, 1, 1]], np.float32)
    with np.errstate(invalid="ignore"):
        wanted = stored("fp16", a @ b.T)
    np.testing.assert_array_equal(product("fp16", a, b, "hopper"), wanted)


def test_an_unknown_accumulation_is_named() -> None:
    a, b = operands(Case("fp16", "gauss", 8))
    with pytest.raises(ulpscope.Error, match=r"accumulation: expected fp32, hopper or hopper-fast, got 'ampere'"):
        product("fp16", a, b, "ampere")
