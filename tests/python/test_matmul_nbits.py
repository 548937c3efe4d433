"""MatMulNBits of com.microsoft against ONNX Runtime, or NumPy where that has no kernel: run, converted, searched."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope

F = np.float32
FLOAT, HALF, BFLOAT = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
MICROSOFT = {"domain": "com.microsoft"}
N = 5


def packed(codes, bits):
    """The codes of the last axis as bytes, the lowest bits first."""
    width = 8 // bits
    rest = -codes.shape[-1] % width
    full = np.concatenate([codes, np.zeros((*codes.shape[:-1], rest), np.uint8)], -1)
    parts = full.reshape(*codes.shape[:-1], -1, width) << (np.arange(width, dtype=np.uint8) * bits)
    return np.bitwise_or.reduce(parts, -1).astype(np.uint8)


class Product:
    """A node with its constants, and the weights (N, K) that they mean."""

    def __init__(self, bits, k, block, zero="none", bias=False, dtype=F, name="product", inputs="x"):
        random = np.random.default_rng([bits, k, block])
        blocks = -(-k // block)
        codes = random.integers(0, 1 << bits, (N, blocks * block)).astype(np.uint8)
        scales = random.uniform(0.01, 0.1, (N, blocks)).astype(dtype)
        zeros = random.integers(0, 1 << bits, (N, blocks)).astype(np.uint8)
        self.constants = {
            f"{name}.w": packed(codes.reshape(N, blocks, block), bits), f"{name}.s": scales,
            f"{name}.z": packed(zeros, bits) if zero == "packed" else (zeros + dtype(0.5 * (bits == 8))).astype(dtype),
            f"{name}.b": random.standard_normal(N).astype(dtype),
        }  # fmt: skip
        given = {"none": np.full_like(scales, 1 << (bits - 1), F), "packed": zeros.astype(F)}
        spread = np.repeat(given.get(zero, self.constants[f"{name}.z"].astype(F)), block, axis=1)
        self.weights = ((codes.astype(F) - spread) * np.repeat(scales.astype(F), block, axis=1))[:, :k]
        self.bias = self.constants[f"{name}.b"].astype(F) if bias else np.zeros(N, F)
        chosen = [
            inputs,
            f"{name}.w",
            f"{name}.s",
            "" if zero == "none" else f"{name}.z",
            "",
            f"{name}.b" if bias else "",
        ]
        while not chosen[-1]:
            chosen.pop()
        self.constants = {key: value for key, value in self.constants.items() if key in chosen}
        self.node = helper.make_node(
            "MatMulNBits", chosen, ["y"], name, K=k, N=N, bits=bits, block_size=block, **MICROSOFT
        )

    def model(self, shape, element, extra=()):
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            [self.node, *extra], "g", [info("x", element, shape)], [info("z" if extra else "y", element, None)],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def onnxruntime(model, feed):
    session = ort.SessionOptions()
    session.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), session, providers=["CPUExecutionProvider"]).run(None, feed)[
        0
    ]


FORMS = list(
    itertools.product((2, 4, 8), ((64, 16), (40, 32), (33, 16), (16, 128)), ("none", "packed", "float"), (0, 1))
)


@pytest.mark.parametrize(("bits", "size", "zero", "bias"), FORMS)
def test_float32_as_in_onnxruntime(bits, size, zero, bias):
    made = Product(bits, *size, zero, bool(bias))
    x = np.random.default_rng(1).standard_normal((2, 3, size[0])).astype(F)
    model = made.model(["a", 3, "k"], FLOAT)
    actual = ulpscope.Engine(model).run({"x": x})["y"]
    exact = x.astype(np.float64) @ made.weights.astype(np.float64).T + made.bias
    np.testing.assert_allclose(actual, exact, rtol=1e-5, atol=1e-5)
    if bits < 8 or zero != "float":  # ONNX Runtime has no kernel for these.
        np.testing.assert_allclose(actual, onnxruntime(model, {"x": x}), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(
    ("dtype", "element", "step"), [(np.float16, HALF, 2**-11), (ml_dtypes.bfloat16, BFLOAT, 2**-8)]
)
def test_narrow_activations(bits, dtype, element, step):
    made = Product(bits, 64, 32, "packed", True, dtype)
    x = np.random.default_rng(2).standard_normal((4, 64)).astype(dtype)
    model = made.model([4, 64], element)
    actual = ulpscope.Engine(model).run({"x": x})["y"]
    assert actual.dtype == dtype
    exact = x.astype(np.float64) @ made.weights.astype(np.float64).T + made.bias
    # One rounding of a sum in float32.
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=1.01 * step, atol=1e-4)
    if element == HALF and bits != 2:
        expected = onnxruntime(model, {"x": x})
        np.testing.assert_allclose(actual.astype(F), expected.astype(F), rtol=4 * step, atol=1e-2)


@pytest.mark.parametrize("shape", [(64,), (1, 64), (0, 64), (2, 1, 3, 64)])
def test_shapes_of_activations(shape):
    made = Product(4, 64, 32)
    x = np.random.default_rng(3).standard_normal(shape).astype(F)
    actual = ulpscope.Engine(made.model(list(shape), FLOAT)).run({"x": x})["y"]
    np.testing.assert_allclose(actual, x @ made.weights.T, rtol=1e-5, atol=1e-5)
    assert actual.shape == (*shape[:-1], N)


@pytest.mark.parametrize("rows", [3, 4, 7, 49, 130])
@pytest.mark.parametrize(("k", "block"), [(64, 16), (300, 32), (1100, 128), (40, 256), (33, 16)])
@pytest.mark.parametrize(
    ("columns", "bits", "zero"), [(5, 4, "packed"), (17, 4, "none"), (70, 8, "none"), (40, 2, "packed")]
)
def test_many_rows(rows, k, block, columns, bits, zero, monkeypatch):
    """They are multiplied by panels of columns; the bits depend neither on threads nor on the other rows."""
    monkeypatch.setattr(f"{__name__}.N", columns)
    made = Product(bits, k, block, zero, bias=True)
    x = np.random.default_rng(5).standard_normal((rows, k)).astype(F)
    model = made.model(["rows", k], FLOAT)
    actual = ulpscope.Engine(model, threads=1).run({"x": x})["y"]
    exact = x.astype(np.float64) @ made.weights.astype(np.float64).T + made.bias
    size = np.abs(x).astype(np.float64) @ np.abs(made.weights).astype(np.float64).T + np.abs(made.bias)
    # Sums in float32 of at most 256 numbers, whose roundings are random: 2^-24 times the root of that.
    assert (np.abs(actual - exact) <= 4 * 2**-24 * np.sqrt(256) * size / np.sqrt(k) + 2**-23 * np.abs(exact)).all()
    three = ulpscope.Engine(model, threads=3)
    assert three.run({"x": x})["y"].tobytes() == actual.tobytes()
    if rows > 4:  # Three rows and fewer are added up in another order.
        assert three.run({"x": x[1:5]})["y"].tobytes() == actual[1:5].tobytes()


@pytest.mark.parametrize(("precision", "type_"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("fusion", ["none", "full"])
def test_many_rows_are_rounded_once(precision, type_, fusion):
    made = Product(4, 96, 32, "packed", True)
    x = np.random.default_rng(6).standard_normal((40, 96)).astype(F)
    model = made.model([40, 96], FLOAT)
    actual = ulpscope.Engine(model, precision=precision, fusion=fusion).run({"x": x})["y"]
    assert np.array_equal(actual, actual.astype(type_).astype(F))
    exact = x.astype(type_).astype(np.float64) @ made.weights.astype(np.float64).T + made.bias
    np.testing.assert_allclose(actual, exact, rtol=3 * float(ml_dtypes.finfo(type_).eps), atol=1e-2)


FAULTS = {
    "bits": ({"bits": 3}, "expected 2, 4 or 8 bits, got 3"),
    "block_size": ({"block_size": 24}, "a power of two from 16 on, got 24"),
    "K": ({"K": 63}, r"expected 63 elements \(K\) along the last dimension"),
    "N": ({"N": 6}, r"expected codes of shape \(6, 2, 16\) as input 1, got \(5, 2, 16\)"),
    "prepacked": ({"weight_prepacked": 1}, "packed for a GPU"),
    "no K": ({"K": None}, "K"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_fits_nothing_is_refused(name):
    changes, message = FAULTS[name]
    model = Product(4, 64, 32).model([4, 64], FLOAT)
    node = model.graph.node[0]
    for key, value in changes.items():
        kept = [each for each in node.attribute if each.name != key]
        del node.attribute[:]
        node.attribute.extend(kept if value is None else [*kept, helper.make_attribute(key, value)])
    with pytest.raises(ulpscope.Error, match=message) as raised:
        ulpscope.Engine(model).run({"x": np.ones((4, 64), F)})
    assert "'product'" in str(raised.value)


def test_order_of_groups_is_refused_by_name():
    model = Product(4, 64, 32).model([4, 64], FLOAT)
    model.graph.node[0].input.extend(["", "order"])
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(64, np.int32), "order"))
    with pytest.raises(ulpscope.Error, match=r"g_idx \(input 4\) is not supported") as raised:
        ulpscope.Engine(model).run({"x": np.ones((4, 64), F)})
    assert raised.value.code == ulpscope.ErrorCode.UNSUPPORTED


def tail():
    """Layers behind the product that float16 does not suit."""
    return [
        helper.make_node("Add", ["y", "big"], ["u"], "Raise"),
        helper.make_node("Sub", ["u", "big"], ["z"], "Lower"),
    ]


@pytest.mark.parametrize("zero", ["none", "packed", "float"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_typed_files_keep_the_codes(precision, zero):
    made = Product(4, 48, 32, zero, True)
    model = made.model([4, 48], FLOAT, [helper.make_node("Relu", ["y"], ["z"], "Relu")])
    feed = {"x": np.random.default_rng(4).standard_normal((4, 48)).astype(F)}
    typed, report = ulpscope.convert(model, precision=precision, data=[feed])
    assert report.lowered >= 1 and report.checked > 0
    onnx.checker.check_model(typed)
    element = {"fp16": HALF, "bf16": BFLOAT}[precision]
    (node,) = [each for each in typed.graph.node if each.op_type == "MatMulNBits"]
    kept = {each.name: each for each in typed.graph.initializer}
    assert numpy_helper.to_array(kept[node.input[1]]).tobytes() == made.constants["product.w"].tobytes()
    if zero == "packed":
        assert numpy_helper.to_array(kept[node.input[3]]).tobytes() == made.constants["product.z"].tobytes()
    # Those of scales, too: a Cast brings them into the type that the operator wants.
    (cast,) = [each for each in typed.graph.node if node.input[2] in each.output]
    assert cast.op_type == "Cast" and cast.attribute[0].i == element
    assert numpy_helper.to_array(kept[cast.input[0]]).tobytes() == made.constants["product.s"].tobytes()
    assert kept[node.input[5]].data_type == element
    low = ulpscope.Engine(model, precision=precision).run(feed)["z"]
    assert ulpscope.Engine(typed).run(feed)["z"].tobytes() == low.tobytes()
    if precision == "fp16" and zero != "float":
        np.testing.assert_allclose(onnxruntime(typed, feed), low, rtol=1e-2, atol=1e-2)


def test_a_search_lowers_the_product():
    """The product is a candidate and need not be kept; the sum that loses its digits behind it is."""
    made = Product(4, 64, 32)
    made.constants["big"] = np.full(1, 3000, F)
    model = made.model([4, 64], FLOAT, tail())
    samples = [{"x": np.random.default_rng(i).uniform(-1, 1, (4, 64)).astype(F)} for i in range(6)]
    answer = ulpscope.search(model, samples, metric="rel-l2", threshold=5e-3, objective="smallest", fusion="none")
    assert sorted(layer.name for layer in answer.layers) == ["Lower", "Raise"]
