"""Attention of ai.onnx: what the packed products compute, beside float64 and the reference kernel."""

import numpy as np
import onnx
import pytest
from onnx import helper
from ulpscope import Engine

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def model(operands, outputs, **attributes):
    names = [name if value is not None else "" for name, value in operands.items()]
    graph = helper.make_graph(
        [helper.make_node("Attention", names, [f"y{i}" for i in range(outputs)], **attributes)], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for n, v in operands.items() if v is not None],
        [helper.make_tensor_value_info(f"y{i}", onnx.TensorProto.FLOAT, None) for i in range(outputs)])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def heads(x, count):
    """(batch, heads, positions, width) of what is (batch, positions, heads * width)."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def attended(q, k, v, bias, scale, softcap=0.0):
    """In float64; rows of `bias` that are -inf everywhere give zeros."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = scores + bias
    there = np.isfinite(bias).any(-1, keepdims=True) * np.ones_like(scores, bool)
    largest = np.where(there, scores, 0).max(-1, keepdims=True)
    shares = np.where(there, np.exp(scores - largest), 0)
    return shares / np.maximum(shares.sum(-1, keepdims=True), 1e-300) @ v


def causal(queries, keys, past=0):
    return np.where(np.arange(keys) > np.arange(queries)[:, None] + past, -np.inf, 0.0)


def outputs_of(made, feeds):
    """Of the first thread counts, which agree in all bits; the reference kernel is not far."""
    one, three = (Engine(made, threads=n).run(feeds) for n in (1, 3))
    plain = Engine(made, backend="plain").run(feeds)
    for name, value in one.items():
        assert value.tobytes() == three[name].tobytes()
        np.testing.assert_allclose(value, plain[name], rtol=0, atol=1e-5)
    return list(one.values())


SIZES = [(1, 2, 2, 5, 7, 8, 8), (2, 4, 2, 100, 33, 16, 24), (1, 3, 1, 1, 300, 64, 64), (1, 1, 1, 130, 700, 5, 3)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "flags", "softcap"])
def test_products_and_softmax(size, packed, kind):
    batch, q_heads, kv_heads, queries, keys, width, v_width = size
    q, k, v = (
        normal(batch, q_heads, queries, width),
        normal(batch, kv_heads, keys, width),
        normal(batch, kv_heads, keys, v_width),
    )
    attributes, bias, mask = {}, np.zeros((queries, keys)), None
    if kind == "causal":
        attributes, bias = {"is_causal": 1}, causal(queries, keys)
    elif kind == "mask":
        bias = mask = normal(queries, keys)
    elif kind == "flags":
        mask = RANDOM.random((batch, 1, queries, keys)) < 0.6
        mask[0, 0, 0] = False  # A query that sees nothing.
        bias = np.where(mask, 0.0, -np.inf)
    elif kind == "softcap":
        attributes = {"softcap": 2.0, "scale": 0.3}
    expected = attended(q, k, v, bias, attributes.get("scale", width**-0.5), attributes.get("softcap", 0.0))
    operands = {"q": q, "k": k, "v": v, "mask": mask}
    if packed:
        flat = lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1))  # noqa: E731
        operands |= {"q": flat(q), "k": flat(k), "v": flat(v)}
        attributes |= {"q_num_heads": q_heads, "kv_num_heads": kv_heads}
    feeds = {name: value for name, value in operands.items() if value is not None}
    (result,) = outputs_of(model(operands, 1, **attributes), feeds)
    np.testing.assert_allclose(heads(result, q_heads), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("queries", [1, 20])
def test_caches(queries):
    q, k, v = normal(2, 4, queries, 16), normal(2, 2, queries, 16), normal(2, 2, queries, 16)
    past_k, past_v = normal(2, 2, 50, 16), normal(2, 2, 50, 16)
    operands = {"q": q, "k": k, "v": v, "mask": None, "past_k": past_k, "past_v": past_v}
    feeds = {name: value for name, value in operands.items() if value is not None}
    result, keys, values = outputs_of(model(operands, 3, is_causal=1), feeds)
    all_keys, all_values = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    assert np.array_equal(keys, all_keys) and np.array_equal(values, all_values)
    expected = attended(q, all_keys, all_values, causal(queries, 50 + queries, 50), 0.25)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


def test_heads_do_not_depend_on_others():
    q, k, v = normal(3, 4, 50, 16), normal(3, 4, 60, 16), normal(3, 4, 60, 16)
    (whole,) = outputs_of(model({"q": q, "k": k, "v": v}, 1), {"q": q, "k": k, "v": v})
    part = {"q": q[1:2, 2:3], "k": k[1:2, 2:3], "v": v[1:2, 2:3]}
    (alone,) = outputs_of(model(part, 1), part)
    assert alone.tobytes() == np.ascontiguousarray(whole[1:2, 2:3]).tobytes()


def test_what_is_not_a_number_spreads_along_its_row():
    q, k, v = normal(1, 1, 4, 8), normal(1, 1, 5, 8), normal(1, 1, 5, 8)
    q[0, 0, 2, 3] = np.nan
    (result,) = (Engine(model({"q": q, "k": k, "v": v}, 1)).run({"q": q, "k": k, "v": v})).values()
    assert np.isnan(result[0, 0, 2]).all() and not np.isnan(result[0, 0, [0, 1, 3]]).any()


def test_half_precision_is_rounded_where_it_is_stored():
    q, k, v = normal(1, 2, 30, 16), normal(1, 2, 30, 16), normal(1, 2, 30, 16)
    feeds = {"q": q, "k": k, "v": v}
    result = Engine(model(feeds, 1), precision="fp16").run(feeds)["y0"]
    half = {name: value.astype(np.float16).astype(np.float32) for name, value in feeds.items()}
    expected = Engine(model(half, 1)).run(half)["y0"].astype(np.float16).astype(np.float32)
    assert np.array_equal(result, expected)
