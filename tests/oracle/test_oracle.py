"""The oracle against ONNX Runtime, NumPy and ml_dtypes; its groups against the text; the engine against the oracle."""

from __future__ import annotations

import itertools
import pathlib

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import oracle
from oracle.model import read_model
from oracle.networks import NETWORKS, N, Network, R, build
from oracle.operators_quantized import dequantize_linear
from oracle.operators_rows import normalization
from oracle.rounding import is_exact, round_to
from oracle.values import T, Value
from plain_onnxruntime import plain_session

TRUTH = pathlib.Path(__file__).resolve().parents[1] / "truth"
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
LEVELS = ("none", "pointwise", "full")
onnxruntime.set_default_logger_severity(4)


# Rounding ------------------------------------------------------------------------------------------------------------


def corner_bits() -> np.ndarray:
    """All signs and exponents with fractions next to what is kept, next to ties, and at random."""
    rng = np.random.default_rng(3)
    fractions = {0, 1, 2, (1 << 23) - 1, (1 << 23) - 2}
    for dropped in (13, 16):
        half, step = 1 << (dropped - 1), 1 << dropped
        fractions |= {k * step + half + d for k in (0, 1, 2, 3, (1 << (23 - dropped)) - 1) for d in (-1, 0, 1)}
        fractions |= {k * step + d for k in (1, 2, 3) for d in (-1, 0, 1)}
    fractions |= set(rng.integers(0, 1 << 23, 40).tolist())
    # Subnormals of fp16 have ties at other places.
    fractions |= {1 << k for k in range(23)} | {(1 << k) | 1 for k in range(1, 23)} | {3 << k for k in range(22)}
    bits = np.arange(512, dtype=np.uint64)[:, None] << np.uint64(23) | np.array(sorted(fractions), np.uint64)
    return np.concatenate([bits.reshape(-1).astype(np.uint32), rng.integers(0, 1 << 32, 200000, np.uint32)])


@pytest.mark.parametrize("form, dtype", [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_rounding_is_that_of_numpy_and_ml_dtypes(form, dtype):
    x = corner_bits().view(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype).astype(np.float64)
    np.testing.assert_array_equal(round_to(x.astype(np.float64), form), expected)


def test_tf32_keeps_eleven_bits():
    x = corner_bits().view(np.float32)
    finite = x[np.isfinite(x) & (np.abs(x) > 1e-30) & (np.abs(x) < 1e38)].astype(np.float64)
    scale = np.exp2(np.floor(np.log2(np.abs(finite))) - 10)
    np.testing.assert_array_equal(round_to(finite, "tf32"), np.rint(finite / scale) * scale)
    assert round_to(np.float64(3.4e38), "tf32") == 2.0**128 * (1 - 2.0**-11) or np.isinf(
        round_to(np.float64(3.4028e38), "tf32")
    )
    assert np.isnan(round_to(np.float64(np.nan), "tf32"))


def test_what_is_exact_changes_nothing():
    x = corner_bits().view(np.float32).astype(np.float64)
    for storage, form in itertools.product(("fp32", "fp16", "bf16"), PRECISIONS):
        stored = round_to(x, storage)
        same = np.array_equal(round_to(stored, form), stored, equal_nan=True)
        assert same == is_exact(storage, form) or storage == "fp32"


def test_what_the_next_integer_stands_for_is_within_the_bound_of_one():
    """Both products with the scale are rounded to float32."""
    scale = np.float32(0.07814955711364746)
    integers, node = np.arange(-100, 100), build([N("DequantizeLinear", ["q", "s"], ["z"])], {}, {}).model
    layer = read_model(node).nodes[0]
    parameters = [Value(np.float64(scale), T.FLOAT)]
    (value,) = dequantize_linear(layer, [Value(integers, T.INT8, np.ones(integers.shape)), *parameters])
    for step in (-1, 1):
        (other,) = dequantize_linear(layer, [Value(integers + step, T.INT8), *parameters])
        assert (np.abs(other.v - value.v) <= value.e).all()


# Values in float32 ---------------------------------------------------------------------------------------------------


def test_float32_is_that_of_onnxruntime_for_every_family():
    checked = 0
    for name, network in NETWORKS.items():
        if name == "int8_cast":  # its float16 is rounded after every layer there
            continue
        session = plain_session(network.model)
        outcomes = oracle.run(network.model, network.feed, "fp32", "none")
        for output, actual in zip(session.get_outputs(), session.run(None, network.feed)):
            outcome = outcomes[output.name]
            assert actual.shape == outcome.expected.shape, name
            size = np.abs(outcome.expected).max(initial=0)
            np.testing.assert_allclose(actual, outcome.expected, rtol=1e-5, atol=3e-6 * size, err_msg=name)
            checked += 1
    assert checked > 45


def test_wrong_values_are_called_wrong():
    network = NETWORKS["matmul"]
    outcome = oracle.run(network.model, network.feed, "fp16", "full")["z"]
    right = outcome.expected.astype(np.float32)
    assert oracle.judge(outcome, right) is None
    wrong = right.copy()
    wrong[1, 2, 3] += 2 * np.spacing(np.float16(wrong[1, 2, 3])) + 2.0**-14
    assert "1 of 120 elements are wrong; at [1, 2, 3]" in (oracle.judge(outcome, wrong) or "")
    assert "shape" in (oracle.judge(outcome, right[0]) or "")
    nan = right.copy()
    nan[0, 0, 0] = np.nan
    assert oracle.judge(outcome, nan)


def test_a_small_error_everywhere_is_seen_behind_many_layers():
    nodes = [N("MatMul", [f"h{i}", "w"], [f"h{i + 1}"]) for i in range(8)] + [N("Neg", ["h8"], ["z"])]
    network = build(nodes, {"h0": R(16, 64)}, {"w": R(64, 64) / 8})
    outcome = oracle.run(network.model, network.feed, "fp32", "none")["z"]
    right = outcome.sample(100) if outcome.sample else outcome.expected
    assert oracle.judge(outcome, right.astype(np.float32)) is None
    slightly_off = (outcome.expected * (1 + 3e-5)).astype(np.float32)
    assert np.all(np.abs(slightly_off - outcome.expected) < outcome.bound + 1e-30)
    assert "together" in (oracle.judge(outcome, slightly_off) or "")


# Groups --------------------------------------------------------------------------------------------------------------

BIG = {"big": np.float32(65504)}
GROUPS: dict[str, tuple[Network, str, dict[str, str], list[list[str]]]] = {
    "the published example": (
        build([N("Add", ["x", "big"], ["a"]), N("Sub", ["a", "big"], ["z"])], {"x": R(4)}, BIG),
        "pointwise",
        {},
        [["a", "z"]],
    ),
    "not at level none": (
        build([N("Add", ["x", "big"], ["a"]), N("Sub", ["a", "big"], ["z"])], {"x": R(4)}, BIG),
        "none",
        {},
        [],
    ),
    "a boundary of precisions": (
        build([N("Add", ["x", "big"], ["a"]), N("Sub", ["a", "big"], ["z"])], {"x": R(4)}, BIG),
        "full",
        {"z": "float32"},
        [],
    ),
    "mark all ends every group": (
        build([N("Add", ["x", "big"], ["a"]), N("Sub", ["a", "big"], ["z"])], {"x": R(4)}, BIG, ("a", "z")),
        "full",
        {},
        [],
    ),
    "a Cast that hands out": (
        build(
            [N("Relu", ["x"], ["a"]), N("Exp", ["a"], ["z"]), N("Cast", ["a"], ["d"], to=11)],
            {"x": R(4)},
            {},
            ("z", "d"),
        ),
        "full",
        {},
        [],
    ),
    "attention": (NETWORKS["attention"], "full", {}, [["s", "t", "u", "p", "z"]]),
    "attention needs full": (NETWORKS["attention"], "pointwise", {}, [["s", "t", "u"]]),
    "scores that others read": (
        build(
            [
                N("MatMul", ["q", "k"], ["s"]),
                N("Softmax", ["s"], ["p"]),
                N("MatMul", ["p", "v"], ["z"]),
                N("Transpose", ["s"], ["o"]),
            ],
            {"q": R(4, 4), "k": R(4, 4), "v": R(4, 4)},
            {},
            ("z", "o"),
        ),
        "full",
        {},
        [],
    ),
    "scores whose shape is read": (
        build(
            [
                N("MatMul", ["q", "k"], ["s"]),
                N("Shape", ["s"], ["o"]),
                N("Softmax", ["s"], ["p"]),
                N("MatMul", ["p", "v"], ["z"]),
            ],
            {"q": R(4, 4), "k": R(4, 4), "v": R(4, 4)},
            {},
            ("z", "o"),
        ),
        "full",
        {},
        [["s", "p", "z"]],
    ),
    "an epilogue keeps the shape": (
        build(
            [N("MatMul", ["x", "w"], ["a"]), N("Relu", ["a"], ["b"]), N("Add", ["b", "y"], ["z"])],
            {"x": R(1, 4), "y": R(3, 4)},
            {"w": R(4, 4)},
        ),
        "full",
        {},
        [["a", "b"]],
    ),
    "movement ends a group": (
        build(
            [N("Relu", ["x"], ["a"]), N("Transpose", ["a"], ["t"]), N("Exp", ["t"], ["e"]), N("Neg", ["e"], ["z"])],
            {"x": R(3, 4)},
        ),
        "full",
        {},
        [["e", "z"]],
    ),
    "rows": (NETWORKS["written_norm"], "full", {}, [["m", "d", "q", "v", "w", "s", "z"]]),
    "rows need full": (NETWORKS["written_norm"], "pointwise", {}, [["d", "q"], ["w", "s"]]),
    "a reduction that drops its dimension is stored": (
        build(
            [N("Abs", ["x"], ["a"]), N("ReduceSum", ["a", "axes"], ["s"], keepdims=0), N("Mul", ["a", "s"], ["z"])],
            {"x": R(4, 4)},
            {"axes": np.int64([-1])},
        ),
        "full",
        {},
        [["a", "s"]],
    ),
    "but where it lines up": (
        build(
            [N("Abs", ["x"], ["a"]), N("ReduceSum", ["a", "axes"], ["s"], keepdims=0), N("Mul", ["a", "s"], ["z"])],
            {"x": R(1, 4)},
            {"axes": np.int64([-1])},
        ),
        "full",
        {},
        [["a", "s", "z"]],
    ),
    "rows of other dimensions": (
        build(
            [N("Softmax", ["x"], ["a"]), N("LayerNormalization", ["a", "g"], ["z"], axis=0)],
            {"x": R(3, 4)},
            {"g": R(3, 4)},
        ),
        "full",
        {},
        [],
    ),
    "not the innermost axis": (
        build(
            [N("Abs", ["x"], ["a"]), N("ReduceMax", ["a"], ["m"], axes=[0]), N("Sub", ["a", "m"], ["z"])],
            {"x": R(3, 4)},
        ),
        "full",
        {},
        [],
    ),
    "two groups become one": (
        build(
            [N("Exp", ["x"], ["a"]), N("Tanh", ["y"], ["b"]), N("Add", ["a", "b"], ["z"])], {"x": R(3, 4), "y": R(3, 4)}
        ),
        "pointwise",
        {},
        [["a", "b", "z"]],
    ),
    "but not with a product": (
        build(
            [N("MatMul", ["x", "w"], ["a"]), N("Tanh", ["y"], ["b"]), N("Add", ["a", "b"], ["z"])],
            {"x": R(3, 4), "y": R(3, 4)},
            {"w": R(4, 4)},
        ),
        "pointwise",
        {},
        [["b", "z"]],
    ),
    "nobody waits": (
        build(
            [
                N("Exp", ["x"], ["a"]),
                N("MatMul", ["a", "w"], ["b"]),
                N("Neg", ["a"], ["c"]),
                N("Add", ["b", "c"], ["z"]),
            ],
            {"x": R(4, 4)},
            {"w": R(4, 4)},
        ),
        "pointwise",
        {},
        [["c", "z"]],
    ),
    "convolution and BatchNormalization": (NETWORKS["conv_bn"], "pointwise", {}, [["a", "n", "z"]]),
    "spatial = 0": (
        build(
            [N("Relu", ["x"], ["a"]), N("BatchNormalization", ["a", "g", "b", "m", "v"], ["z"], spatial=0)],
            {"x": R(2, 3, 2)},
            {key: np.abs(R(3, 2)) for key in "gbmv"},
            opset=8,
        ),
        "full",
        {},
        [],
    ),
    "bias of a product of integers": (NETWORKS["int8_matmul"], "none", {}, [["a", "s"]]),
    "shapes known at run time only": (
        build(
            [N("NonZero", ["x"], ["i"]), N("Cast", ["i"], ["f"], to=1), N("Exp", ["f"], ["a"]), N("Neg", ["a"], ["z"])],
            {"x": np.float32([0, 1, 2])},
        ),
        "full",
        {},
        [],
    ),
    **{
        f"parameters of unknown shapes, {op} {inputs}": (
            build(
                [
                    N("NonZero", ["x"], ["i"]),
                    N("Cast", ["i"], ["f"], to=1),
                    N("ReduceMax", ["f"], ["m"], keepdims=0),
                    N("Expand", ["m", "shape"], ["p"]),
                    N(op, ["x", *inputs], ["a"]),
                    N("MatMul", ["a", "w"], ["b"]),
                    N("Add", ["b", "c"], ["z"]),
                ],
                {"x": R(3, 2, 4), "c": R(1)},
                {"w": R(4, 5), "row": R(4), "channels": R(2), "places": np.int64([[[1]], [[0]]]), "shape": shape},
            ),
            "pointwise",
            {},
            [["b", "z"]],
        )
        for op, inputs, shape in (
            ("Clip", ["p"], np.int64([])),
            ("Clip", ["", "p"], np.int64([])),
            ("LayerNormalization", ["row", "p"], np.int64([4])),
            ("InstanceNormalization", ["channels", "p"], np.int64([2])),
            ("ScatterElements", ["places", "p"], np.int64([2, 1, 1])),
        )
    },
    "a Size of an unknown shape": (
        build(
            [
                N("NonZero", ["x"], ["i"]),
                N("Size", ["i"], ["n"]),
                N("Cast", ["n"], ["f"], to=1),
                N("Sub", ["f", "c"], ["a"]),
                N("Sub", ["a", "t"], ["z"]),
            ],
            {"x": R(3, 2, 4), "t": R()},
            {"c": R()},
        ),
        "pointwise",
        {},
        [["a", "z"]],
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups(name):
    network, level, layers, expected = GROUPS[name]
    assert oracle.groups(network.model, network.feed, "fp16", level, layers) == expected


UNUSUAL = {
    "a window of elements of which nothing is known": build(
        [
            N("Tanh", ["x"], ["t"]),
            N("DynamicQuantizeLinear", ["t"], ["q", "scale", "zero"]),
            N("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
            N("MaxPool", ["d"], ["z"], kernel_shape=[2]),
        ],
        {"x": R(1, 2, 30)},
    ),
    "the place of the largest of no elements": build(
        [N("Relu", ["x"], ["t"]), N("ArgMax", ["t"], ["z"], axis=1, keepdims=0)], {"x": R(2, 0, 0)}
    ),
}


@pytest.mark.parametrize("name", list(UNUSUAL))
def test_engine_on_unusual_values(name):
    network = UNUSUAL[name]
    assert not disagreements(network.model, network.feed)


def values(
    network: Network, level: str, precision: str = "fp16", layers: dict[str, str] | None = None
) -> dict[str, list]:
    outcomes = oracle.run(network.model, network.feed, precision, level, layers)
    return {name: outcome.expected.reshape(-1).tolist() for name, outcome in outcomes.items()}


def test_the_published_example():
    network = build([N("Add", ["x", "big"], ["a"]), N("Sub", ["a", "big"], ["z"])], {"x": np.float32([3.5, -1])}, BIG)
    assert values(network, "full")["z"] == [3.5, -1]
    assert values(network, "none")["z"] == [0, 0]
    assert values(network, "full", layers={"z": "float32"})["z"] == [0, 0]


def test_inside_and_outside():
    network = NETWORKS["inside_and_outside"]
    fused, stored = values(network, "full"), values(network, "none")
    assert set(fused["s"]) == {20} and set(stored["s"]) == {16}
    assert set(fused["y"]) == set(stored["y"]) == {32768}


def test_products_read_rounded_operands_and_accumulate_in_float32():
    feed = {"x": np.float32([[2049, 1, 1, -2049]])}
    network = build([N("MatMul", ["x", "w"], ["z"])], feed, {"w": np.ones((4, 1), np.float32)})
    assert values(network, "none")["z"] == [2]  # 2049 is 2048 in fp16, on both sides
    feed = {"x": np.float32([[2048, 1, 1, -2048]])}
    network = build([N("MatMul", ["x", "w"], ["z"])], feed, {"w": np.ones((4, 1), np.float32)})
    assert values(network, "none")["z"] == [2]  # an fp16 accumulator would lose the ones


def test_constants_overflow_in_the_narrow_type():
    network = build([N("Add", ["x", "c"], ["z"])], {"x": np.float32([1])}, {"c": np.float32([-3.4e38])})
    assert values(network, "full")["z"] == [-np.inf]
    assert values(network, "full", "bf16")["z"] == [round_to(np.float64(-3.4e38), "bf16")]


def test_a_scale_shows_what_is_lost_below_the_normal_numbers():
    """x / root is rounded to steps of 2^-149 before the scale multiplies it."""
    x, scale = np.array([[-1.641696, 9.999946e-41, 0.5310936, 0.3209395]], np.float32), np.float32(1e18)
    nodes = [N("SimplifiedLayerNormalization", ["x", "s"], ["y"], epsilon=1e-3)]
    layer = read_model(build(nodes, {}, {}).model).nodes[0]
    operands = [Value(x.astype(np.float64), T.FLOAT), Value(np.full(4, scale, np.float64), T.FLOAT)]
    (value,) = normalization(layer, operands)
    root = np.sqrt(np.mean(x * x, dtype=np.float32) + np.float32(1e-3))
    assert abs((x / root * scale)[0, 1] - value.v[0, 1]) <= value.bound()[0, 1] < 1e-4 * value.v[0, 1]


def test_what_steers_shapes_stays_in_float32():
    nodes = [N("Add", ["x", "c"], ["a"]), N("ReduceMax", ["a"], ["m"], keepdims=0), N("Cast", ["m"], ["n"], to=7),
             N("Unsqueeze", ["n", "zero"], ["s"]), N("Expand", ["y", "s"], ["z"])]  # fmt: skip
    network = build(
        nodes, {"x": np.float32([2048, 1]), "y": np.float32([1])}, {"c": np.float32(1), "zero": np.int64([0])}
    )
    assert len(values(network, "none")["z"]) == 2049


# The engine ----------------------------------------------------------------------------------------------------------


def disagreements(model: bytes, feed: dict[str, np.ndarray], precisions=PRECISIONS) -> list[str]:
    import ulpscope

    found = []
    for precision, level in itertools.product(precisions, LEVELS):
        outcomes = oracle.run(model, feed, precision, level)
        actual = ulpscope.Engine(model, precision=precision, fusion=level, threads=1).run(feed)
        for name, outcome in outcomes.items():
            if message := oracle.judge(outcome, actual[name]):
                found.append(f"{precision}, {level}, output {name}: {message}")
    return found


@pytest.mark.parametrize("name", sorted(path.stem for path in TRUTH.glob("*.onnx")))
def test_engine_on_the_networks_of_the_gpu(name):
    model = (TRUTH / f"{name}.onnx").read_bytes()
    with np.load(TRUTH / f"{name}.npz") as data:
        feed = {"x": data["x"]}
    assert not disagreements(model, feed)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_engine_on_every_family(name):
    network = NETWORKS[name]
    assert not disagreements(network.model, network.feed)


@pytest.mark.parametrize("name", [name for name, (_, _, layers, _) in GROUPS.items() if not layers])
def test_engine_on_the_groups(name):
    network = GROUPS[name][0]
    assert not disagreements(network.model, network.feed)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_engine_in_mixtures_of_precisions(name):
    import ulpscope

    network = NETWORKS[name]
    rng = np.random.default_rng(sorted(NETWORKS).index(name))
    for level, base in itertools.product(LEVELS, ("fp16", "bf16")):
        engine = ulpscope.Engine(network.model, precision=base, fusion=level, threads=1)
        computing = [layer.name for layer in engine.layers if layer.precision == base]
        layers = {
            layer: str(rng.choice(["float32", "float16", "bfloat16"])) for layer in computing if rng.random() < 0.6
        }
        outcomes = oracle.run(network.model, network.feed, base, level, layers)
        engine = ulpscope.Engine(network.model, precision=base, fusion=level, threads=1, layer_precisions=layers)
        actual = engine.run(network.feed)
        for output, outcome in outcomes.items():
            assert oracle.judge(outcome, actual[output]) is None, (level, base, layers, output)
