"""Small networks, each once computed wrongly, against ONNX Runtime at every fusion level, or against a written rule."""

from __future__ import annotations

import numpy as np
import pytest
from networks import LEVELS, agrees, half, model_of, node, positive, random, reference, run
from onnx import TensorProto, helper

import ulpscope

LAST, HALF = {"a": np.array([-1])}, np.array(0.5, np.float32)

# name: nodes, inputs, weights, opset
NETWORKS = {
    "a bound of Clip that is an input": (
        [node("MatMul", ["x", "w"], ["y"]), node("Clip", ["y", "", "hi"], ["z"])],
        {"x": random(4, 8), "hi": HALF},
        {"w": random(8, 8)},
        17,
    ),
    "a bound of Clip that is computed, behind a convolution": (
        [
            node("Conv", ["x", "w"], ["y"]),
            node("ReduceMean", ["x"], ["m"], keepdims=0),
            node("Clip", ["y", "m"], ["c"]),
            node("Tanh", ["c"], ["z"]),
        ],
        {"x": random(1, 3, 5, 5)},
        {"w": random(4, 3, 3, 3)},
        17,
    ),
    "a sum without keepdims that broadcasts along columns": (
        [node("ReduceSum", ["x", "a"], ["s"], keepdims=0), node("Mul", ["x", "s"], ["z"])],
        {"x": random(4, 4)},
        LAST,
        17,
    ),
    "the same with a batch of one": (
        [node("ReduceSum", ["x", "a"], ["s"], keepdims=0), node("Mul", ["x", "s"], ["z"])],
        {"x": random(1, 4, 4)},
        LAST,
        17,
    ),
    "the mean of two axes without keepdims": (
        [node("ReduceMean", ["x"], ["s"], axes=[2, 3], keepdims=0), node("Max", ["x", "s"], ["z"])],
        {"x": random(1, 2, 8, 2)},
        {},
        17,
    ),
    "a sum of everything without keepdims": (
        [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Mul", ["x", "s"], ["z"])],
        {"x": random(2, 3)},
        {},
        17,
    ),
    "a maximum without keepdims in front of attention": (
        [
            node("ReduceL2", ["x"], ["s"], axes=[2, 3], keepdims=0),
            node("Max", ["x", "s"], ["q"]),
            node("MatMul", ["q", "k"], ["y"]),
            node("Softmax", ["y"], ["p"]),
            node("MatMul", ["p", "v"], ["z"]),
        ],
        {"x": random(4, 1, 4, 4)},
        {"k": random(4, 4), "v": random(4, 4, seed=1)},
        17,
    ),
    "one tensor as row operand and scale of channels": (
        [node("Add", ["x", "t"], ["y"]), node("InstanceNormalization", ["y", "t", "b"], ["z"])],
        {"x": random(2, 5, 5), "t": random(5), "b": random(5, seed=1)},
        {},
        17,
    ),
    "one tensor as scale of channels and row operand": (
        [node("InstanceNormalization", ["x", "t", "t"], ["y"]), node("Add", ["y", "t"], ["z"])],
        {"x": random(2, 5, 5), "t": random(5)},
        {},
        17,
    ),
    "BatchNormalization per element": (
        [node("BatchNormalization", ["x", *"abcd"], ["z"], spatial=0)],
        {"x": random(2, 3, 4)},
        {name: positive(3, 4, seed=i) for i, name in enumerate("abcd")},
        7,
    ),
    "BatchNormalization per element behind a convolution": (
        [node("Conv", ["x", "w"], ["y"]), node("BatchNormalization", ["y", *"abcd"], ["z"], spatial=0)],
        {"x": random(2, 3, 6)},
        {"w": random(3, 3, 3)} | {name: positive(3, 4, seed=i) for i, name in enumerate("abcd")},
        8,
    ),
    "BatchNormalization of one value per row": (
        [node("ReduceMin", ["x"], ["t"], axes=[1]), node("BatchNormalization", ["t", *"abcd"], ["z"])],
        {"x": random(10, 2)},
        {name: positive(1, seed=i) for i, name in enumerate("abcd")},
        17,
    ),
    "BatchNormalization of one value per channel": (
        [node("ReduceMax", ["x"], ["t"], axes=[2, 3]), node("BatchNormalization", ["t", *"abcd"], ["z"])],
        {"x": random(2, 3, 4, 5)},
        {name: positive(3, seed=i) for i, name in enumerate("abcd")},
        17,
    ),
    "a Slice that starts before the first element and goes backwards": (
        [node("Slice", ["x", "s", "e", "a", "t"], ["z"])],
        {"x": random(5)},
        {"s": np.array([-6]), "e": np.array([-(2**31)]), "a": np.array([0]), "t": np.array([-1])},
        17,
    ),
}
for op, domain, second, attributes in (
    ("BiasGelu", "com.microsoft", ["b"], {}),
    ("FastGelu", "com.microsoft", ["b"], {}),
    ("FastGelu", "com.microsoft", [], {}),
    ("Gelu", "com.microsoft", [], {}),
    ("QuickGelu", "com.microsoft", [], {}),
    ("Mod", "", ["b"], {"fmod": 1}),
    ("Shrink", "", [], {"lambd": 0.3, "bias": 0.1}),
):
    NETWORKS[f"{op} of {1 + len(second)} behind a product"] = (
        [
            node("MatMul", ["x", "w"], ["y"]),
            node(op, ["y", *second], ["g"], domain=domain, **attributes),
            node("Neg", ["g"], ["z"]),
        ],
        {"x": random(4, 8)},
        {"w": random(8, 8), **({"b": random(8)} if second else {})},
        17,
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_agrees_with_onnx_runtime(name: str) -> None:
    nodes, feed, weights, opset = NETWORKS[name]
    agrees(model_of(nodes, feed, weights, opset), feed)


# Operands as A (batch..., m, k) and B (batch..., k, n), and with the dimensions as the attributes say.
@pytest.mark.parametrize("batches", [((), ()), ((2,), (2,)), ((3, 1), (3, 2)), ((2,), ())])
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("batch_first", [0, 1])
def test_fused_matmul(batches, trans_a: int, trans_b: int, batch_first: int) -> None:
    if batch_first and (not batches[0] or len(batches[0]) != len(batches[1])):
        pytest.skip("ONNX Runtime: two inputs of one rank, 3 or more")
    feeds = {}
    for name, batch, last, trans in (("x", batches[0], (4, 6), trans_a), ("w", batches[1], (6, 5), trans_b)):
        array = random(*batch, *last)
        if trans:
            array = array.swapaxes(-1, -2)
        if batch_first:
            array = np.moveaxis(array, -2, 0)
        feeds[name] = np.ascontiguousarray(array)
    attributes = {"transA": trans_a, "transB": trans_b, "transBatchA": batch_first, "transBatchB": batch_first, "alpha": 0.25}
    nodes = [node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft", **attributes), node("Relu", ["y"], ["z"])]
    weights = {"w": feeds["w"]}
    agrees(model_of(nodes, {"x": feeds["x"]}, weights, 17), {"x": feeds["x"]})


EMPTY = {"ReduceSum": 0, "ReduceL1": 0, "ReduceL2": 0, "ReduceSumSquare": 0, "ReduceMean": 0, "ReduceMax": -np.inf}


@pytest.mark.parametrize("op", [*EMPTY, "ReduceMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_of_nothing(op: str, keepdims: int) -> None:
    axis = {"a": np.array([1])}  # ONNX Runtime forgets negative ones of empty tensors.
    layer, x = node(op, ["x", "a"], ["z"], keepdims=keepdims), np.zeros((3, 0), np.float32)
    model = model_of([layer], {"x": x}, axis, opset=18)
    for fusion in LEVELS:
        actual = run(model, {"x": x}, fusion=fusion)
        assert actual.shape == ((3, 1) if keepdims else (3,))
        np.testing.assert_array_equal(actual, np.full_like(actual, EMPTY.get(op, np.inf)))
        np.testing.assert_array_equal(actual, reference(model, {"x": x}))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("channels", [(240, 128), (256, 128), (512, 64)])
@pytest.mark.parametrize("kernel, stride, pad", [(4, 2, 1), (4, 4, 0), (6, 2, 2), (3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_transposed_convolutions_add_their_bias_once(batch, channels, kernel, stride, pad) -> None:
    x, w, b = random(batch, channels[0], 8, 8), random(*channels, kernel, kernel), random(channels[1]) * 100
    convolution = node("ConvTranspose", ["x", "w", "b"], ["z"], strides=[stride] * 2, pads=[pad] * 4)
    agrees(model_of([convolution], {"x": x}, {"w": w, "b": b}), {"x": x}, levels=["full"])


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_normalization_goes_into_the_weights_of_a_convolution(dims: int, bias: bool) -> None:
    x, w = random(1, 3, *[5] * dims), random(4, 3, *[3] * dims)
    own = random(4) if bias else np.zeros(4, np.float32)
    p = {name: positive(4, seed=i) for i, name in enumerate("abcd")}
    scale = p["a"].astype(float) / np.sqrt(p["d"].astype(float) + 1e-5)
    column = (4,) + (1,) * (dims + 1)
    folded = {
        "w": half(w * scale.astype(np.float32).reshape(column)),
        "own": half(((own - p["c"]) * scale + p["b"]).astype(np.float32)),
    }
    expected = reference(model_of([node("Conv", ["x", "w", "own"], ["z"])], {"x": x}, folded), {"x": half(x)})
    nodes = [
        node("Conv", ["x", "w", "own"] if bias else ["x", "w"], ["y"]),
        node("BatchNormalization", ["y", *"abcd"], ["z"]),
    ]
    model = model_of(nodes, {"x": x}, {"w": w, **p, **({"own": own} if bias else {})})
    actual = run(model, {"x": x}, precision="fp16")
    # To one unit in the last place: sums in another order meet a tie.
    np.testing.assert_allclose(actual, half(expected), rtol=2**-10, atol=1e-4)
    assert (actual != half(expected)).mean() < 0.02


AFTER = {"Relu": ([], "", {}), "FastGelu": ([], "com.microsoft", {}), "Shrink": ([], "", {}), "Mod": (["k"], "", {"fmod": 1})}


@pytest.mark.parametrize("op", AFTER)
@pytest.mark.parametrize("product", [False, True])
def test_values_are_unrounded_inside_of_their_group(op: str, product: bool) -> None:
    """(x + 32752) - 32752 in fp16 is 20 where the sum is not rounded, else 16; another layer reads the sum, too."""
    second, domain, attributes = AFTER[op]
    eye, x = np.eye(4, dtype=np.float32), np.full((4, 4), 20, np.float32)
    nodes = [
        *([node("MatMul", ["x", "w"], ["p"])] if product else []),
        node("Add", ["p" if product else "x", "big"], ["a"]),
        node(op, ["a", *second], ["t"], domain=domain, **attributes),
        node("Sub", ["a", "big"], ["s"]),
        node("Max", ["s", "low"], ["z"]),
        node("Min", ["t", "low"], ["o"]),
        node("MatMul", ["a", "w"], ["outside"]),
    ]
    weights = {
        "big": np.full(1, 32752, np.float32),
        "low": np.full(1, -1, np.float32),
        "k": np.full(1, 100, np.float32),
        "w": eye,
    }
    model = model_of(nodes, {"x": x}, weights, outputs=("z", "o", "outside"))
    for fusion in ("pointwise", "full"):
        outputs = ulpscope.Engine(model, precision="fp16", fusion=fusion).run({"x": x})
        assert (outputs["z"] == 20).all(), fusion
        assert (outputs["outside"] == 32768).all(), fusion



def test_folded_constants_have_no_say_in_what_is_moved() -> None:
    """A Concat of an fp16 value and a constant is stored in fp16, also when the constant is computed from others."""
    c, x = np.full((1, 1), 0.5444286, np.float32), np.full((1, 1), 0.1, np.float32)
    for op, inputs, attributes in (("Concat", ["s", "k"], {"axis": 0}), ("ScatterElements", ["s", "i", "k"], {})):
        for maker in ("Identity", "Neg"):
            nodes = [
                node("Add", ["x", "x"], ["s"]),
                node(maker, ["c"], ["k"]),
                node(op, inputs, ["z"], **attributes),
            ]
            model = model_of(nodes, {"x": x}, {"c": c, "i": np.array([[0]])})
            actual = run(model, {"x": x}, precision="fp16", fusion="none")
            np.testing.assert_array_equal(actual, half(actual), err_msg=op)


@pytest.mark.parametrize("op", ["LayerNormalization", "Clip", "InstanceNormalization", "GRU"])
def test_computed_parameters_are_operands(op: str) -> None:
    """What a layer computes with is no computation of shapes: its makers are lowered."""
    x, y = random(2, 4, 4), random(4)
    feed, weights, nodes = {"x": x, "y": y}, {}, [node("Exp", ["y"], ["b"])]
    if op == "LayerNormalization":
        nodes += [node(op, ["x", "b"], ["z"])]
    elif op == "Clip":
        nodes += [node("ReduceMax", ["b"], ["m"], keepdims=0), node(op, ["x", "", "m"], ["z"])]
    elif op == "InstanceNormalization":
        nodes += [node(op, ["x", "b", "b"], ["z"])]
    else:
        weights = {"shape": np.array([1, 1, 4]), "reps": np.array([1, 12, 1]), "r": random(1, 12, 4)}
        nodes += [
            node("Reshape", ["b", "shape"], ["row"]),
            node("Tile", ["row", "reps"], ["w"]),
            node("GRU", ["x", "w", "r"], ["z"], hidden_size=4),
        ]
    engine = ulpscope.Engine(model_of(nodes, feed, weights), precision="fp16")
    assert {layer.op: layer.precision for layer in engine.layers}["Exp"] == "fp16"


@pytest.mark.parametrize("shape", [False, True])
def test_a_shape_that_is_known_reads_nothing(shape: bool) -> None:
    """An exporter's Shape of the scores leaves attention in one group: its bits are those without the Shape."""
    q, k, v = random(2, 8, 16), random(2, 16, 8), random(2, 8, 16, seed=1)
    weights = {"c": np.array(4, np.float32), "zero": np.array([0]), "rest": np.array([-1]), "two": np.array([2])}
    nodes = [
        node("MatMul", ["q", "k"], ["s"]),
        node("Mul", ["s", "c"], ["t"]),
        *([node("Shape", ["t"], ["sh"]), node("Gather", ["sh", "zero"], ["two"])] if shape else []),
        node("Softmax", ["t"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["u"]),
        node("Concat", ["two", "rest"], ["r"], axis=0),
        node("Reshape", ["u", "r"], ["z"]),
    ]
    if shape:
        del weights["two"]
    feed = {"q": q, "k": k, "v": v}
    engine = ulpscope.Engine(model_of(nodes, feed, weights), precision="fp16")
    actual = engine.run(feed)["z"]
    scores = np.matmul(half(q).astype(float), half(k)) * 4
    weighted = np.exp(scores - scores.max(-1, keepdims=True))
    weighted = half((weighted / weighted.sum(-1, keepdims=True)).astype(np.float32))
    expected = half(np.matmul(weighted.astype(float), half(v)).astype(np.float32)).reshape(2, -1)
    assert (actual != expected).mean() < 0.05  # Ties, and probabilities next to one.


def test_the_bias_of_integers_is_not_rounded() -> None:
    x, bias = random(4, 8), random(10)
    wq = np.random.default_rng(0).integers(-100, 100, (8, 10)).astype(np.int8)
    sx, sw = np.array(0.03, np.float32), np.random.default_rng(1).uniform(0.01, 0.02, 10).astype(np.float32)
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zero"], ["xq"]),
        node("DequantizeLinear", ["xq", "sx", "zero"], ["xd"]),
        node("DequantizeLinear", ["wq", "sw"], ["w"], axis=1),
        node("Gemm", ["xd", "w", "bias"], ["z"]),
    ]
    weights = {"sx": sx, "zero": np.array(0, np.int8), "wq": wq, "sw": sw, "bias": bias}
    integers = np.clip(np.rint(x / sx), -128, 127).astype(np.int64) @ wq.astype(np.int64)
    expected = half(integers.astype(np.float32) * (sx * sw) + bias)
    for fusion in LEVELS:
        actual = run(model_of(nodes, {"x": x}, weights), {"x": x}, precision="fp16", fusion=fusion)
        np.testing.assert_array_equal(actual, expected)



def test_followers_of_the_cast_that_stores_integers_read_the_sum() -> None:
    """0.5 + 2048 - 2048 is 0.5 where the sum is not rounded to float16, else 0."""
    x = np.full((2, 4), 0.125, np.float32)
    nodes = [
        node("QuantizeLinear", ["x", "s", "zero"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "zero"], ["xd"]),
        node("DequantizeLinear", ["wq", "one"], ["w"]),
        node("MatMul", ["xd", "w"], ["p"]),
        node("Add", ["p", "bias"], ["sum"]),
        node("Cast", ["sum"], ["h"], to=TensorProto.FLOAT16),
        node("Sub", ["h", "c"], ["d"]),
        node("Cast", ["d"], ["z"], to=TensorProto.FLOAT),
    ]
    weights = {
        "s": np.array(0.125, np.float32),
        "zero": np.array(0, np.int8),
        "one": np.array(1, np.float32),
        "wq": np.ones((4, 3), np.int8),
        "bias": np.full(3, 2048, np.float32),
        "c": np.array(2048, np.float16),
    }
    for fusion, expected in (("none", 0), ("pointwise", 0.5), ("full", 0.5)):
        assert (run(model_of(nodes, {"x": x}, weights), {"x": x}, fusion=fusion) == expected).all(), fusion


@pytest.mark.parametrize("declared", [[2, 3], [None, 3], [None, None], [], None])
def test_loops_without_iterations_stack_what_their_body_declares(declared: list | None) -> None:
    info, scalar, kind = helper.make_tensor_value_info, [], TensorProto.FLOAT
    body = helper.make_graph(
        [node("Identity", ["k"], ["k2"]), node("Tanh", ["s"], ["t"]), node("Neg", ["t"], ["u"])],
        "body",
        [info("i", TensorProto.INT64, scalar), info("k", TensorProto.BOOL, scalar), info("s", kind, declared)],
        [info("k2", TensorProto.BOOL, None), info("t", kind, None), info("u", kind, None)],
    )
    x = random(2, 3)
    model = model_of([node("Loop", ["n", "", "x"], ["a", "z"], body=body)], {"x": x}, {"n": np.array(0)}, opset=17)
    expected = (0, 2, 3) if declared is None else reference(model, {"x": x}).shape
    assert run(model, {"x": x}).shape == expected


@pytest.mark.parametrize("lead", [(1, 1), (2, 1), (1,), (3,), (2, 2)])
@pytest.mark.parametrize("rows, columns", [(4, 5), (0, 5), (3, 0), (0, 0)])
def test_masks_of_attention_have_batches_that_scores_have_not(lead: tuple, rows: int, columns: int) -> None:
    feed = {"q": random(rows, 3), "k": random(3, columns), "v": random(columns, 2), "m": random(*lead, rows, columns)}
    for scaled in (False, True):
        nodes = [
            node("MatMul", ["q", "k"], ["s"]),
            *([node("Mul", ["s", "half"], ["t"])] if scaled else []),
            node("Add", ["t" if scaled else "s", "m"], ["u"]),
            node("Softmax", ["u"], ["p"], axis=-1),
            node("MatMul", ["p", "v"], ["z"]),
        ]
        model = model_of(nodes, feed, {"half": HALF} if scaled else {}, 17)
        for fusion in LEVELS:
            actual, expected = run(model, feed, fusion=fusion), reference(model, feed)
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_long_means_do_not_drift() -> None:
    """Every rounding of one running sum of equal terms goes the same way."""
    x = np.full((1, 2, 9, 9, 81), 3.1, np.float32)
    for op, attributes in (("GlobalAveragePool", {}), ("AveragePool", {"kernel_shape": [9, 9, 81]})):
        model = model_of([node(op, ["x"], ["z"], **attributes)], {"x": x}, {}, 17)
        assert np.abs(run(model, {"x": x}) / x.mean(dtype=np.float64) - 1).max() < 1e-6


def test_sizes_of_a_resize_are_whole() -> None:
    """7 / 3 * 3 in float32 is a little more than 7: corners meet corners all the same."""
    for size, length in [(3, 7), (3, 5), (7, 31), (11, 83), (13, 59), (49, 97)]:
        x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
        modes = {"nearest_mode": "floor", "coordinate_transformation_mode": "align_corners"}
        nodes = [node("Resize", ["x", "", "", "n"], ["z"], **modes)]
        model = model_of(nodes, {"x": x}, {"n": np.array([1, 1, length])}, 19)
        assert run(model, {"x": x}).reshape(-1)[-1] == size - 1
        assert np.array_equal(run(model, {"x": x}), reference(model, {"x": x})), (size, length)


def test_pads_cut_more_than_there_is() -> None:
    x = np.arange(3, dtype=np.float32)
    for size in range(4):
        for pads in ((3, -2), (-2, 3), (5, -4), (1, -1), (3, -4)):
            if size + sum(pads) >= 0:
                model = model_of([node("Pad", ["x", "p"], ["z"])], {"x": x[:size]}, {"p": np.array(pads)}, 19)
                assert np.array_equal(run(model, {"x": x[:size]}), reference(model, {"x": x[:size]})), (size, pads)


@pytest.mark.parametrize("end", [2**31 - 1, 2**63 - 1, 2**31 - 2])
def test_slices_backwards_to_the_largest_integer(end: int) -> None:
    x = random(4, 3)
    weights = {"s": np.array([2]), "e": np.array([end]), "a": np.array([0]), "p": np.array([-1])}
    model = model_of([node("Slice", ["x", "s", "e", "a", "p"], ["z"])], {"x": x}, weights, 17)
    assert np.array_equal(run(model, {"x": x}), reference(model, {"x": x}))


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32, np.int64, np.float64, np.bool_])
def test_images_of_other_types_are_transposed(kind: type) -> None:
    """Only float32 tensors may lie in memory with the channels last."""
    x = (np.arange(120).reshape(2, 3, 4, 5) % 7).astype(kind)
    nodes = [node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), node("Cast", ["t"], ["z"], to=TensorProto.FLOAT)]
    agrees(model_of(nodes, {"x": x}), {"x": x})
    if kind in (np.uint8, np.int8):
        nodes[1] = node("DequantizeLinear", ["t", "s", "o"], ["z"])
        agrees(model_of(nodes, {"x": x}, {"s": HALF, "o": np.array(1, kind)}), {"x": x})


def test_zeros_have_the_scale_one() -> None:
    x = np.zeros((2, 3), np.float32)
    model = model_of([node("DynamicQuantizeLinear", ["x"], ["q", "z", "p"])], {"x": x}, {}, 17)
    assert run(model, {"x": x}) == reference(model, {"x": x}) == 1


def test_loops_without_iterations_stack_elements_of_their_shape() -> None:
    float_type, int_type, bool_type = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
    info = helper.make_tensor_value_info
    loop_body = helper.make_graph(
        [node("Tanh", ["s"], ["t"]), node("Identity", ["k"], ["k2"]), node("ReduceSum", ["t"], ["u"], axes=[1])],
        "body",
        [info("i", int_type, []), info("k", bool_type, []), info("s", float_type, [2, 3])],
        [info("k2", bool_type, None), info("t", float_type, None), info("u", float_type, None)],
    )
    x = random(2, 3)
    loop = [node("Loop", ["n", "", "x"], ["a", "z"], body=loop_body)]
    model = model_of(loop, {"x": x}, {"n": np.array(0)}, opset=11)
    assert run(model, {"x": x}).shape == reference(model, {"x": x}).shape == (0, 2, 1)
    scan_body = helper.make_graph(
        [node("Add", ["s", "e"], ["t"]), node("Neg", ["t"], ["u"])],
        "body",
        [info("s", float_type, None), info("e", float_type, None)],
        [info("t", float_type, None), info("u", float_type, None)],
    )
    feed = {"x": x, "y": np.zeros((0, 3), np.float32)}
    scan = [node("Scan", ["x", "y"], ["last", "z"], body=scan_body, num_scan_inputs=1)]
    assert run(model_of(scan, feed), feed).shape == (0, 2, 3)
