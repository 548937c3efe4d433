"""Operators whose loops take many elements at a time: the bits of NumPy's, at sizes around their blocks, for each
number of threads."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
import ulpscope
from ulpscope import Engine

RANDOM = np.random.default_rng(0)


def check(op, operands, expected, constants=(), opset=20, backend="cpu", **attributes):
    """All operands but those named by position in `constants` are inputs."""
    names = [f"i{i}" for i in range(len(operands))]
    feeds = {name: value for i, (name, value) in enumerate(zip(names, operands)) if i not in constants}
    given = [numpy_helper.from_array(operands[i], names[i]) for i in constants]
    graph = helper.make_graph(
        [helper.make_node(op, names, [f"o{i}" for i in range(len(expected))], **attributes)], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(f"o{i}", helper.np_dtype_to_tensor_dtype(np.asarray(e).dtype), None)
         for i, e in enumerate(expected)], given)  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    for threads in (1, 3):
        outputs = Engine(model, threads=threads, backend=backend).run(feeds)
        for i, value in enumerate(expected):
            assert outputs[f"o{i}"].tobytes() == np.asarray(value).tobytes(), (op, threads, i)


def numbers(*shape):
    """Few different ones, so that many are equal; no NaN."""
    return RANDOM.integers(-9, 10, shape).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.float64])
@pytest.mark.parametrize(
    "shapes", [((37, 53),) * 3, ((37, 1), (37, 53), (1, 53)), ((1, 53), (37, 1), ()), ((37, 1), (), (37, 53)),
               ((1, 1, 53), (4, 7, 53), (4, 7, 1))]
)  # fmt: skip
def test_where(dtype, shapes):
    condition = RANDOM.random(shapes[0]) < 0.5
    x, y = (RANDOM.integers(0, 200, shape).astype(dtype) for shape in shapes[1:])
    check("Where", [condition, x, y], [np.where(condition, x, y)])


def test_where_keeps_the_bits_of_nan():
    bits = np.array([0x7FC00001, 0xFFC12345, 0x7F800001] * 20, np.uint32)
    x, y = bits.view(np.float32), np.zeros(60, np.float32)
    condition = np.arange(60) % 2 == 0
    check("Where", [condition, x, y], [np.where(condition, bits, 0).astype(np.uint32).view(np.float32)])


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("shape,axis", [((5, 37, 45), 1), ((33, 50), 0), ((33, 50), 1), ((7, 9, 16), 0), ((40,), 0)])
@pytest.mark.parametrize("exclusive,reverse", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_cumulative_sums(dtype, shape, axis, exclusive, reverse):
    x = RANDOM.integers(-1000, 1000, shape).astype(dtype)
    if dtype == np.float32:
        x = x / np.float32(7)
    turned = np.flip(x, axis) if reverse else x
    sums = np.cumsum(turned, axis=axis, dtype=dtype)
    if exclusive:
        first = np.zeros_like(np.take(sums, [0], axis))
        sums = np.concatenate([first, np.take(sums, range(shape[axis] - 1), axis)], axis)
    expected = np.ascontiguousarray(np.flip(sums, axis) if reverse else sums)
    check("CumSum", [x, np.array(axis)], [expected], (1,), exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("k", [0, 1, 5, 12, 13, 60, 100])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("order", ["random", "rising", "falling"])
def test_the_first_of_equals_come_first(k, largest, order):
    x = numbers(40, 100)
    if order != "random":
        x = np.sort(x, axis=1)[:, :: 1 if order == "rising" else -1]
    index = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(x, index, 1)
    check("TopK", [x, np.array([k])], [values, index], (1,), largest=largest, axis=1)
    columns = [np.ascontiguousarray(each.T) for each in (x, values, index)]
    check("TopK", [columns[0], np.array([k])], columns[1:], (1,), largest=largest, axis=0)


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("shape,axes", [((20, 37), [0]), ((3, 20, 45), [1]), ((4, 5, 33), [0, 1]), ((7, 50), [1])])
def test_extremes(op, shape, axes):
    x = numbers(*shape) + np.float32(20)
    reduce = getattr(np, op.lower())
    check(f"Reduce{op}", [x, np.array(axes)], [reduce(x, axis=tuple(axes))], (1,), keepdims=0)
    x.ravel()[:: x.size // 5] = np.nan
    lost = np.isnan(x).any(axis=tuple(axes))
    result = Engine(one_node(f"Reduce{op}", [x, np.array(axes)])).run({"x": x})["y"]
    assert np.array_equal(np.isnan(result), lost)
    assert np.array_equal(result[~lost], reduce(x, axis=tuple(axes))[~lost])


def one_node(op, operands):
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "axes"], ["y"], keepdims=0)], "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, operands[0].shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(operands[1], "axes")])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 130, 200])
@pytest.mark.parametrize("case", ["numbers", "zeros", "a NaN", "NaN in front", "NaN", "no number"])
def test_where_the_extremes_of_a_row_are(case, count):
    x = numbers(7, count)
    if case == "zeros":
        x = np.where(x > 0, np.float32(0), np.float32(-0.0))
    elif case == "no number":
        x[:] = -np.inf
    elif case != "numbers":
        x[:, {"a NaN": count // 2, "NaN in front": 0, "NaN": slice(None)}[case]] = np.nan
    for op, of in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
        check(op, [x], [of(x, axis=1)], axis=1, keepdims=0)
        turned = count - 1 - of(x[:, ::-1], axis=1) if case in ("numbers", "zeros", "no number") else of(x, axis=1)
        check(op, [x], [turned], axis=1, keepdims=0, select_last_index=1)
    first = [0 if row[0] != row[0] else np.nanargmax(row) for row in x]
    check("Hardmax", [x], [np.eye(count, dtype=np.float32)[first]])


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_the_largest_of_a_channel(count):
    x = numbers(2, 5, count)
    check("GlobalMaxPool", [x], [x.max(axis=2, keepdims=True)])
    # The first of zeros of either sign, whatever is found first.
    zeros = -np.abs(numbers(1, 1, count))
    zeros[..., count // 2] = -0.0
    zeros[..., count - 1] = 0.0
    where = np.argmax(zeros == 0, axis=2)
    check("GlobalMaxPool", [zeros], [np.take_along_axis(zeros, where[..., None], 2)])
    x[0, 0, count // 2] = np.nan
    x[0, 1, :] = -np.inf
    expected = x.max(axis=2, keepdims=True)
    expected[0, 0, 0] = np.nan
    check("GlobalMaxPool", [x], [expected])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("zero", [0, 3, 100])
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_quantized_bytes(dtype, zero, axis):
    shape = (3, 5, 67)
    x = np.concatenate([RANDOM.normal(0, 20, 999), (np.arange(-6, 0) * 0.25)]).astype(np.float32).reshape(shape)
    x.ravel()[:6] = [np.inf, -np.inf, 1e30, -1e30, -0.0, 0.125]
    scale = np.float32(0.25) if axis is None else RANDOM.choice(np.array([0.25, 0.5, 2], np.float32), shape[axis])
    zeros = np.full_like(scale, zero, dtype=dtype)
    along = scale if axis is None else scale.reshape([-1 if d == axis else 1 for d in range(3)])
    bounds = np.iinfo(dtype)
    expected = np.clip(np.rint((x / along).astype(np.float64)) + zero, bounds.min, bounds.max).astype(dtype)
    check("QuantizeLinear", [x, scale, zeros], [expected], (1, 2), **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000, 40001])
def test_quantized_by_what_comes(count):
    x = RANDOM.normal(0.5, 2, count).astype(np.float32)
    low, high = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    scale = np.float32((high - low) / np.float32(255))
    zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
    expected = np.clip(np.rint((x / scale).astype(np.float64)) + float(zero), 0, 255).astype(np.uint8)
    check("DynamicQuantizeLinear", [x], [expected, scale, zero])


@pytest.mark.parametrize("image,block,strides,dilations,pads", [
    ((9, 11), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), ((9, 11), (3, 2), (2, 3), (2, 1), (0, 2, 1, 3)),
    ((4, 5, 6), (2, 2, 3), (1, 2, 1), (1, 1, 2), (0,) * 6), ((30,), (5,), (2,), (3,), (4, 0)),
])  # fmt: skip
def test_blocks_that_overlap(image, block, strides, dilations, pads):
    rank, channels = len(image), 3
    positions = [
        (image[d] + pads[d] + pads[d + rank] - dilations[d] * (block[d] - 1) - 1) // strides[d] + 1 for d in range(rank)
    ]
    x = RANDOM.normal(size=(2, channels * np.prod(block), np.prod(positions))).astype(np.float32)
    expected = np.zeros((2, channels, *image), np.float32)
    taps = x.reshape(2, channels, *block, *positions)
    for k in np.ndindex(*block):
        for p in np.ndindex(*positions):
            at = [p[d] * strides[d] + k[d] * dilations[d] - pads[d] for d in range(rank)]
            if all(0 <= at[d] < image[d] for d in range(rank)):
                expected[(slice(None), slice(None), *at)] += taps[(slice(None), slice(None), *k, *p)]
    windows = {"strides": strides, "dilations": dilations, "pads": pads}
    check("Col2Im", [x, np.array(image), np.array(block)], [expected], (1, 2), **windows)


@pytest.mark.parametrize("equation,shapes", [
    ("ik,kj->ij", [(5, 40), (40, 37)]), ("bhid,bhjd->bhij", [(2, 3, 7, 8), (2, 3, 33, 8)]), ("i,j->ij", [(9,), (50,)]),
    ("bnd,hdk->bhnk", [(2, 5, 12), (3, 12, 20)]), ("abk,kcd->abcd", [(3, 4, 6), (6, 2, 16)]),
    ("kj,ik->ij", [(8, 31), (6, 8)]), ("kj,ik->ij", [(8, 3), (6, 8)]), ("abcd,d->abcd", [(1, 2, 3, 2), (2,)]),
    ("abd,d->abd", [(2, 3, 20), (20,)]),
    ("bijk,jkc->bic", [(2, 3, 4, 5), (4, 5, 18)]), ("bij,bjk->ik", [(3, 4, 5), (3, 5, 20)]),
    ("...k,kj->...j", [(2, 1, 9), (9, 16)]),
    ("bk,bkj->bj", [(1, 7), (4, 7, 24)]), ("ii,ij->ij", [(6, 6), (6, 19)]), ("iijj,k->ik", [(3, 3, 2, 2), (17,)]),
])  # fmt: skip
def test_sums_of_products(equation, shapes):
    """Where they run as they are defined, products in float32, summed in float64 over the last index first."""
    operands = [RANDOM.normal(size=shape).astype(np.float32) for shape in shapes]
    check("Einsum", operands, [summed(equation, operands)], backend="plain", equation=equation)
    outputs = Engine(einsum(equation, operands)).run({"a": operands[0], "b": operands[1]})
    # Sums of up to 40 products of normal numbers, in float32.
    np.testing.assert_allclose(outputs["y"], summed(equation, operands), rtol=0, atol=1e-5)


def einsum(equation, operands):
    graph = helper.make_graph(
        [helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation)], "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, o.shape) for n, o in zip("ab", operands)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("equation,turn", [
    ("bij,bjk->bik", lambda a, b: (a, b)), ("bij,bkj->bik", lambda a, b: (a, b.transpose(0, 2, 1))),
    ("bji,bjk->bik", lambda a, b: (a.transpose(0, 2, 1), b)), ("jk,bji->bik", lambda a, b: (b.transpose(0, 2, 1), a)),
    ("ibj,jbk->bik", lambda a, b: (a.transpose(1, 0, 2), b.transpose(1, 0, 2))),
    ("bij,bjk->ikb", lambda a, b: (a, b)),
])  # fmt: skip
def test_products_of_matrices_by_indices(equation, turn):
    """Einsum of two tensors is MatMul, with its bits."""
    sizes = {"b": 3, "i": 37, "j": 70, "k": 45}
    terms = equation.split("->")[0].split(",")
    operands = [RANDOM.normal(size=[sizes[c] for c in term]).astype(np.float32) for term in terms]
    outputs = Engine(einsum(equation, operands), threads=2).run({"a": operands[0], "b": operands[1]})
    a, b = (np.ascontiguousarray(m) for m in turn(*operands))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])], "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, o.shape) for n, o in (("a", a), ("b", b))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    product = Engine(model, threads=1).run({"a": a, "b": b})["y"]
    result = product.transpose(1, 2, 0) if equation.endswith("ikb") else product
    assert outputs["y"].tobytes() == np.ascontiguousarray(result).tobytes()


def summed(equation, operands):
    terms, result = equation.split("->")
    left = terms.split(",")
    if "..." in equation:
        left, result = (
            [term.replace("...", "xy"[: len(a.shape) - 1]) for term, a in zip(left, operands)],
            result.replace("...", "xy"),
        )
    order = list(result) + [c for c in dict.fromkeys("".join(left)) if c not in result]
    sizes = {c: max(a.shape[t.index(c)] for t, a in zip(left, operands) if c in t) for c in order}
    product = np.float32(1)
    for term, operand in zip(left, operands):
        grid = np.ix_(*(np.arange(sizes[c]) for c in order))
        at = tuple(grid[order.index(c)] % operand.shape[axis] for axis, c in enumerate(term))
        product = (product * np.broadcast_to(operand[at], [sizes[c] for c in order])).astype(np.float32)
    sums = product.astype(np.float64)
    while sums.ndim > len(result):
        total = np.zeros(sums.shape[:-1])
        for i in range(sums.shape[-1]):
            total = total + sums[..., i]
        sums = total
    return sums.astype(np.float32)


@pytest.mark.parametrize("signs", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)])
@pytest.mark.parametrize("zeros", ["none", "a", "b", "both", "columns"])
@pytest.mark.parametrize(
    "a,b", [((5, 7), (7, 3)), ((1, 64), (64, 33)), ((2, 3, 17), (17, 40)), ((3, 1, 4, 9), (1, 2, 9, 16)),
            ((3, 2000), (2000, 50)), ((2, 40000), (40000, 4)), ((0, 3), (3, 2)), ((3, 0), (0, 2)), ((7,), (7, 3))]
)  # fmt: skip
def test_products_of_bytes(signs, zeros, a, b):
    x, w = (
        RANDOM.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
        for kind, shape in zip(signs, (a, b))
    )
    of_x = np.array(RANDOM.integers(0, 100) if zeros in ("a", "both") else 0, signs[0])
    most = 100 if zeros in ("b", "both", "columns") else 1
    of_w = RANDOM.integers(0, most, b[-1] if zeros == "columns" else ()).astype(signs[1])
    expected = np.matmul(x.astype(np.int64) - of_x, w.astype(np.int64) - of_w).astype(np.int32)
    operands = [x, w] if zeros == "none" else [x, w, of_x, of_w]
    check("MatMulInteger", operands, [expected], constants=(1, 3) if zeros != "none" else (1,))


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("perm,shape", [
    ((0, 2, 3, 1), (2, 3, 37, 70)), ((0, 3, 1, 2), (2, 37, 70, 3)), ((1, 0), (2, 5000)), ((1, 0), (4097, 4)),
    ((0, 2, 1), (3, 2, 9)), ((0, 2, 1), (3, 9, 4)), ((2, 0, 1), (2, 1, 3)), ((1, 0), (5, 11)),
])  # fmt: skip
def test_few_rows_are_turned(dtype, perm, shape):
    x = RANDOM.integers(0, 200, shape).astype(dtype)
    check("Transpose", [x], [np.ascontiguousarray(x.transpose(perm))], perm=list(perm))


@pytest.mark.parametrize("step", [2, 3, -2])
def test_every_other_element(step):
    x = numbers(7, 61)
    begin, end = (60, -100) if step < 0 else (0, 61)
    sliced = np.ascontiguousarray(x[:, ::step])
    check("Slice", [x, *(np.array([i]) for i in (begin, end, 1, step))], [sliced], (1, 2, 3, 4))


@pytest.mark.parametrize("dtype", [np.bool_, np.float32, np.int64])
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("begin,end", [
    ((0, 1, 2, 3), (0, 1, 0, 2)), ((1, 0, 0, 0), (0, 2, 0, 0)), ((0, 0, 3, 0), (0, 0, 1, 0)), ((0,) * 4, (0,) * 4),
    ((0, -1, 2, -2), (1, 3, -1, 0)), ((0, 1, 0, 1), (0, -1, 0, -1)), ((0, 0, 9, 20), (0, 0, 0, 17)),
])  # fmt: skip
def test_pads(dtype, mode, begin, end):
    x = (numbers(2, 5, 7, 9) + 9).astype(dtype)
    cut = x[tuple(slice(max(-b, 0), n - max(-e, 0)) for b, e, n in zip(begin, end, x.shape))]
    pads = [(max(b, 0), max(e, 0)) for b, e in zip(begin, end)]
    value = np.array(1, dtype)
    expected = np.pad(cut, pads, mode, **({"constant_values": value} if mode == "constant" else {}))
    check("Pad", [x, np.array([*begin, *end]), value], [expected], (1, 2), mode=mode)


def test_pads_that_leave_nothing_of_the_input():
    check("Pad", [numbers(2, 3), np.array([0, -4, 0, 6]), np.float32(7)], [np.full((2, 5), 7, np.float32)], (1, 2))


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_by_indices(dtype, kind, axis):
    x = RANDOM.integers(0, 200, (6, 9, 40)).astype(dtype)
    shape = [4, 5, 33]
    shape[axis] = 70
    index = RANDOM.integers(-x.shape[axis], x.shape[axis], shape).astype(kind)
    part = x[tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(shape))]
    positive = np.where(index < 0, index + x.shape[axis], index)
    check("GatherElements", [x, index], [np.take_along_axis(part, positive, axis)], axis=axis)
    # The last one of several with the same place stays.
    updates = RANDOM.integers(0, 200, shape).astype(dtype)
    expected = x.copy()
    for at in np.ndindex(*shape):
        place = list(at)
        place[axis] = positive[at]
        expected[tuple(place)] = updates[at]
    check("ScatterElements", [x, index, updates], [expected], axis=axis, opset=18)


@pytest.mark.parametrize("slice_shape", [(), (3,)])
def test_many_tuples_of_indices(slice_shape):
    """More than are looked up at a time; of several with the same place the last one stays."""
    x = numbers(40, 50, *slice_shape)
    tuples = np.stack([RANDOM.integers(-n, n, 70_001) for n in x.shape[:2]], -1)
    at = tuple(np.where(tuples < 0, tuples + x.shape[:2], tuples).T)
    check("GatherND", [x, tuples], [x[at]], opset=18)
    updates = numbers(len(tuples), *slice_shape)
    expected = x.copy()
    for place, update in zip(zip(*at), updates):
        expected[place] = update
    check("ScatterND", [x, tuples, updates], [expected], opset=18)
    for place in (0, 32_768, 70_000):
        wrong = tuples.copy()
        wrong[place, 1] = 50
        for op, operands in (("GatherND", [x, wrong]), ("ScatterND", [x, wrong, updates])):
            with pytest.raises(ulpscope.Error, match=r"index 50 is outside of \[-50, 49\]"):
                check(op, operands, [x], opset=18)


@pytest.mark.parametrize("place", [0, 31, 64])
@pytest.mark.parametrize("wrong", [5, -6])
@pytest.mark.parametrize("op", ["GatherElements", "ScatterElements"])
def test_indices_out_of_range(op, place, wrong):
    x = numbers(5, 13)
    index = RANDOM.integers(0, 5, (5, 13))
    index.ravel()[place] = wrong
    operands = [x, index] if op == "GatherElements" else [x, index, x]
    with pytest.raises(ulpscope.Error, match=rf"index {wrong} is outside of \[-5, 4\]"):
        check(op, operands, [x], axis=0, opset=18)


@pytest.mark.parametrize("to", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("of", [np.float32, np.float64])
def test_floats_become_integers(of, to):
    """By int64 and its low bits, beyond its range by its lowest number, as x86 has it."""
    x = (RANDOM.normal(size=5000) * 10.0 ** RANDOM.integers(-3, 4, 5000)).astype(of)
    for far in (None, 3e9, -(2.0**31), 2.0**31, 1e12, 2.0**63, -1e30, np.inf, np.nan):
        if far is not None:
            x[[700, 4999]] = far
        inside = np.abs(x) < 2.0**63
        wide = np.where(inside, np.where(inside, x, 0).astype(np.int64), np.iinfo(np.int64).min)
        number = helper.np_dtype_to_tensor_dtype(np.dtype(to))
        check("Cast", [x], [wide.astype(to)], to=number)


@pytest.mark.parametrize("count", [1, 17, 40000])
def test_booleans(count):
    x = RANDOM.random(count) < 0.5
    check("Not", [x], [~x])
    check("Cast", [x], [x.astype(np.float32)], to=onnx.TensorProto.FLOAT)
    check("Cast", [x], [x.astype(np.int64)], to=onnx.TensorProto.INT64)


@pytest.mark.parametrize("larger", [False, True])
def test_max_unpool(larger):
    x = numbers(2, 3, 4, 5) + 10
    places = np.concatenate([RANDOM.permutation(2 * 3 * 8 * 10)]).reshape(-1)[: x.size].reshape(x.shape)
    flat = np.zeros(2 * 3 * 8 * 10, np.float32)
    flat[places.ravel()] = x.ravel()
    expected, operands = flat.reshape(2, 3, 8, 10), [x, places]
    if larger:
        wide = np.zeros((2, 3, 9, 12), np.float32)
        wide[..., :8, :10] = expected
        expected, operands = wide, [x, places, np.array(wide.shape)]
    check("MaxUnpool", operands, [expected], (2,) if larger else (), kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("m,k,n", [(1, 7, 33), (4, 5, 4), (9, 40, 16), (61, 300, 45), (3, 20, 100)])
def test_products_in_float64(m, k, n):
    """Each product and each sum rounded, in the order of k."""
    a, b = RANDOM.normal(size=(m, k)), RANDOM.normal(size=(k, n))
    expected = np.zeros((m, n))
    for i in range(k):
        expected = expected + a[:, i : i + 1] * b[i]
    check("MatMul", [a, b], [expected])


@pytest.mark.parametrize("groups,mask", [(1, True), (2, True), (2, False)])
def test_deformed_convolutions(groups, mask):
    """Positions outside of the image are zeros, even next to infinities that have no weight."""
    x, w = (RANDOM.normal(size=s) for s in ((2, 4, 9, 8), (6, 4, 3, 3)))
    offset = RANDOM.normal(size=(2, groups * 18, 9, 8)) * 2
    offset[0, :2] = RANDOM.integers(-3, 4, (2, 9, 8))
    x[1, 2, 3, 3] = np.inf
    operands = [x, w, offset, RANDOM.normal(size=6)]
    if mask:
        operands.append(RANDOM.random((2, groups * 9, 9, 8)))
    names = [f"i{i}" for i in range(len(operands))]
    graph = helper.make_graph(
        [helper.make_node("DeformConv", names, ["y"], pads=[1] * 4, offset_group=groups)], "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, o.shape) for n, o in zip(names, operands)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, None)])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    feeds = dict(zip(names, operands))
    result = Engine(model).run(feeds)["y"]
    with np.errstate(invalid="ignore"):
        expected = deformed(*operands[:4], operands[4] if mask else None, groups)
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


def deformed(x, w, offset, bias, mask, groups):
    batch, channels, height, width = x.shape
    result = np.zeros((batch, len(w), height, width)) + bias[:, None, None]
    for n, c, i, j, tap in np.ndindex(batch, channels, height, width, 9):
        slot = c // (channels // groups) * 9 + tap
        at = (i + tap // 3 - 1 + offset[n, 2 * slot, i, j], j + tap % 3 - 1 + offset[n, 2 * slot + 1, i, j])
        value = 0.0
        for corner in np.ndindex(2, 2):
            place = [int(np.floor(p)) + k for p, k in zip(at, corner)]
            weight = np.prod([1 - abs(p - q) for p, q in zip(at, place)])
            if 0 <= place[0] < height and 0 <= place[1] < width and weight != 0:
                value += weight * x[n, c, place[0], place[1]]
        result[n, :, i, j] += w[:, c, tap // 3, tap % 3] * value * (1 if mask is None else mask[n, slot, i, j])
    return result
