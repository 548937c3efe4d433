"""Loops that take lines, columns and planes side by side: the bits of NumPy's, or of one alone, for each number of
threads."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from ulpscope import Engine

RANDOM = np.random.default_rng(5)


def run(op, x, constants=None, opset=20, **attributes):
    """The output, which has the same bits on one thread and on three."""
    constants = constants or {}
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *constants], ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", kind(x.dtype), x.shape)], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items() if name])  # fmt: skip
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    )
    one, three = (Engine(model, threads=threads).run({"x": x})["y"] for threads in (1, 3))
    assert one.tobytes() == three.tobytes()
    return one


def numbers(*shape):
    """With NaN and infinities, and many that are equal."""
    x = RANDOM.integers(-9, 10, shape).astype(np.float32)
    x[RANDOM.random(shape) < 0.02] = np.nan
    x[RANDOM.random(shape) < 0.02] = np.inf
    return x


WINDOWS = [
    ((30,), (3,), (2,), (1,), (1, 0)),
    ((11, 40), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((12, 41), (3, 2), (2, 2), (1, 1), (1, 0, 0, 1)),
    ((9, 33), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    ((9, 33), (7, 4), (3, 3), (1, 1), (3, 0, 3, 3)),
    ((17, 20), (2, 3), (1, 2), (2, 3), (0, 2, 1, 2)),
    ((6, 8, 19), (2, 2, 2), (2, 2, 2), (1, 1, 1), (0,) * 6),
    ((5, 8, 19), (3, 1, 3), (1, 2, 1), (1, 1, 2), (1, 0, 2, 1, 0, 2)),
    ((50,), (4,), (4,), (1,), (2, 3)),
    ((14, 14), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((15, 15), (2, 2), (2, 2), (1, 1), (0, 0, 0, 0)),
    ((20, 20), (5, 5), (1, 1), (2, 1), (4, 2, 4, 2)),
    ((40, 130), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    ((7, 9, 11), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1,) * 6),
    ((4, 9, 18), (1, 3, 3), (1, 1, 2), (1, 1, 1), (0, 1, 1, 0, 1, 0)),
    ((6, 6, 16), (5, 2, 2), (1, 3, 2), (1, 2, 1), (2, 0, 0, 2, 0, 0)),
    ((3, 8, 16), (2, 6, 3), (1, 1, 1), (1, 1, 1), (1, 2, 1, 0, 2, 1)),
]


def windows(x, kernel, strides, dilations, pads, fill):
    """The elements that each output reads, in the last dimension, in their order; `fill` in pads."""
    rank = len(kernel)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])], constant_values=fill)
    size = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations)]
    places = itertools.product(*map(range, kernel))
    parts = [
        x[(..., *(slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, s, n in zip(place, dilations, strides, size)))]
        for place in places
    ]
    return np.stack(parts, -1)


@pytest.mark.parametrize("form", WINDOWS)
def test_pools(form):
    spatial, kernel, strides, dilations, pads = form
    x = numbers(2, 5, *spatial)
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    expected = windows(x, kernel, strides, dilations, pads, -np.inf).max(-1)
    np.testing.assert_array_equal(run("MaxPool", x, **attributes), expected)
    x = np.nan_to_num(x, posinf=3.0)  # Sums of small integers are exact in any order.
    read = windows(x, kernel, strides, dilations, pads, 0)
    inside = windows(np.ones_like(x), kernel, strides, dilations, pads, 0).sum(-1)
    for with_pads in (0, 1):
        count = np.float32(read.shape[-1]) if with_pads else inside
        found = run("AveragePool", x, count_include_pad=with_pads, **attributes)
        np.testing.assert_array_equal(found, read.sum(-1) / count)


@pytest.mark.parametrize("form", WINDOWS)
def test_maxima_of_numbers_are_those_of_their_windows(form):
    """Planes without NaN have loops of their own. Of zeros the last one keeps its sign, in three dimensions the first
    one."""
    spatial, kernel, strides, dilations, pads = form
    x = RANDOM.integers(-2, 1, (2, 5, *spatial)).astype(np.float32)
    x[x == -1] = -0.0
    x[0, 0] = RANDOM.standard_normal(spatial)
    x[1, 2] = -np.inf
    x[1, 3].flat[-1] = np.nan
    read = windows(x, kernel, strides, dilations, pads, -np.inf)
    if len(spatial) < 3:
        read = read[..., ::-1]
    expected = np.take_along_axis(read, read.argmax(-1)[..., None], -1)[..., 0]
    found = run("MaxPool", x, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads)
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("form", [form for form in WINDOWS if len(form[0]) == 2])
@pytest.mark.parametrize("kind", ["numbers", "nan", "bytes"])
def test_maxima_channels_last_are_those_of_their_windows(form, kind):
    """Behind a convolution of ones that leaves all bits as they are, but NaN; of zeros the last one keeps its sign."""
    spatial, kernel, strides, dilations, pads = form
    shape = (2, 19, *spatial)
    x = RANDOM.integers(-2, 1, shape).astype(np.float32)
    x[0, 0] = RANDOM.standard_normal(spatial)
    if kind == "nan":
        x[1, 3].flat[-1] = np.nan
    w = np.zeros((19, 1, 1, 1), np.float32)
    w[:, 0] = 1
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], group=19),
        helper.make_node("MaxPool", ["c"], ["m"], kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads),
        helper.make_node("Conv", ["m", "w"], ["y"], group=19),
    ]
    if kind == "bytes":
        x = RANDOM.integers(0, 256, shape).astype(np.uint8)
        w = np.ones((19, 1, 1, 1), np.uint8)
        scale = ["s", "z"]
        nodes[0] = helper.make_node("QLinearConv", ["x", *scale, "w", *scale, *scale], ["c"], group=19)
        nodes[2] = helper.make_node("QLinearConv", ["m", *scale, "w", *scale, *scale], ["y"], group=19)
    constants = {"w": w, "s": np.float32(1), "z": np.uint8(0)}
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info(name, element, None) for name in "my"],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    one, three = (Engine(model, threads=threads).run({"x": x}) for threads in (1, 3))
    expected = windows(x, kernel, strides, dilations, pads, 0 if kind == "bytes" else -np.inf).max(-1)
    np.testing.assert_array_equal(one["m"], expected)
    assert all(one[name].tobytes() == three[name].tobytes() for name in "my")


def test_the_first_zero_of_a_window_in_three_dimensions_keeps_its_sign():
    x = np.where(RANDOM.random((1, 3, 6, 6, 18)) < 0.5, np.float32(0), np.float32(-0.0))
    found = run("MaxPool", x, kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    np.testing.assert_array_equal(np.signbit(found), np.signbit(x[:, :, ::2, ::2, ::2]))


@pytest.mark.parametrize("length", [1, 2, 7, 48, 50, 96])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_a_fourier_transform_has_the_bits_that_it_has_alone(length, parts, inverse):
    x = RANDOM.standard_normal((11, length, parts)).astype(np.float32)
    x[3, length // 2] = np.inf
    axis = {"": 0, "axis": np.int64(1)}
    together = run("DFT", x, axis, inverse=inverse)
    alone = np.concatenate([run("DFT", x[i : i + 1], axis, inverse=inverse) for i in range(11)])
    assert together.tobytes() == alone.tobytes()
    finite = np.delete(x, 3, 0)
    values = finite[..., 0] + 1j * (finite[..., 1] if parts == 2 else 0)
    expected = (np.fft.ifft if inverse else np.fft.fft)(values, axis=1)
    np.testing.assert_allclose(np.delete(together, 3, 0), np.stack([expected.real, expected.imag], -1), atol=1e-4)


@pytest.mark.parametrize("shape,axis", [((9, 40), 0), ((2, 7, 33), 1), ((3, 5, 16), 1), ((4, 15), 0), ((1, 20), 0)])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_the_place_of_an_extreme_of_columns(shape, axis, op, last):
    x = numbers(*shape)
    rows = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    options = {"keepdims": 0, "select_last_index": last}
    np.testing.assert_array_equal(run(op, x, axis=axis, **options), run(op, rows, axis=-1, **options))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_samples_of_a_grid_are_those_of_images_of_one_row(padding, align):
    """In three dimensions, of which the first has one element, there are no loops for points side by side."""
    grid = RANDOM.uniform(-1.4, 1.4, (2, 9, 17, 2)).astype(np.float32)
    grid[0, 0, :3] = [[np.nan, 0], [1, -1], [1e30, 0.5]]
    x = RANDOM.standard_normal((2, 3, 12, 7)).astype(np.float32)
    options = {"mode": "linear", "padding_mode": padding, "align_corners": align}
    deep = np.concatenate([grid, np.zeros((2, 9, 17, 1), np.float32)], -1)[:, None]
    flat = run("GridSample", x, {"grid": grid}, **options)
    expected = run("GridSample", x[:, :, None], {"grid": deep}, **options)[:, :, 0]
    finite = np.isfinite(grid).all(-1)[:, None] & np.ones((1, 3, 1, 1), bool)
    np.testing.assert_array_equal(flat[finite], expected[finite])


@pytest.mark.parametrize("shape,axis", [((300, 40), 0), ((3, 129, 600), 1), ((2, 1000, 17), 1), ((8, 300), 0)])
def test_columns_have_the_bits_that_they_have_beside_fewer(shape, axis):
    x = RANDOM.standard_normal(shape).astype(np.float32)
    axes = {"axes": np.array([axis])}
    for op, function in {"Mean": np.mean, "Sum": np.sum, "Max": np.max, "Min": np.min}.items():
        found = run(f"Reduce{op}", x, axes, keepdims=0)
        part = run(f"Reduce{op}", np.ascontiguousarray(x[..., 1:17]), axes, keepdims=0)
        assert part.tobytes() == found[..., 1:17].tobytes(), op
        np.testing.assert_allclose(found, function(x.astype(np.float64), axis=axis), atol=1e-4)


@pytest.mark.parametrize("group,outs", [(1, 8), (1, 21), (2, 16)])
def test_a_convolution_in_three_dimensions_has_the_bits_of_each_channel_alone(group, outs):
    x = RANDOM.standard_normal((2, 3 * group, 5, 7, 17)).astype(np.float32)
    w = RANDOM.standard_normal((outs * group, 3, 2, 3, 3)).astype(np.float32)
    b = RANDOM.standard_normal(outs * group).astype(np.float32)
    options = {"pads": [1, 0, 1, 0, 1, 2], "strides": [1, 2, 1], "dilations": [2, 1, 1]}
    together = run("Conv", x, {"w": w, "b": b}, group=group, **options)
    for m in range(outs):
        rows = np.arange(group) * outs + m
        alone = run("Conv", x, {"w": w[rows], "b": b[rows]}, group=group, **options)
        assert alone.tobytes() == np.ascontiguousarray(together[:, rows]).tobytes(), m


@pytest.mark.parametrize("channels,each", [(16, 2), (5, 4), (33, 3)])
@pytest.mark.parametrize("size", [(12, 17), (40,)])
def test_several_outputs_of_each_channel_are_those_of_convolutions_of_each_channel(channels, each, size):
    x = RANDOM.standard_normal((2, channels, *size)).astype(np.float32)
    w = RANDOM.standard_normal((channels * each, 1, *(3,) * len(size))).astype(np.float32)
    options = {"strides": [2] * len(size), "pads": [1] * 2 * len(size)}
    found = run("Conv", x, {"w": w}, group=channels, **options)
    for k in range(each):
        one = run("Conv", x, {"w": np.ascontiguousarray(w[k::each])}, group=channels, **options)
        np.testing.assert_allclose(found[:, k::each], one, rtol=1e-5, atol=1e-5)
