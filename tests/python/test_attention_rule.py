"""attention="flash" from the arguments to the answer and back; tests/oracle holds the results against the rule."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ulpscope


def attention() -> bytes:
    """softmax((x a) (x b)^T) x, which is one group."""
    random = np.random.default_rng(3)
    weights = [numpy_helper.from_array(random.normal(0, 0.5, (8, 8)).astype(np.float32), name) for name in "ab"]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["q"]),
        helper.make_node("MatMul", ["x", "b"], ["k"]),
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"], name="values"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 24, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "attention", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def samples(count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(5)
    return [{"x": random.standard_normal((2, 24, 8)).astype(np.float32)} for _ in range(count)]


def run(model: bytes, **options: object) -> np.ndarray:
    return ulpscope.Engine(model, threads=1, **options).run(samples(1)[0])["y"]


def test_an_answer_keeps_the_rule(tmp_path: pathlib.Path) -> None:
    model = attention()
    (tmp_path / "m.onnx").write_bytes(model)
    ours, flash = run(model, precision="fp16"), run(model, precision="fp16", attention="flash")
    assert not np.array_equal(ours, flash)
    np.testing.assert_allclose(flash, ours, atol=4e-3)
    find = lambda rule, **more: ulpscope.search(
        tmp_path / "m.onnx", samples(4), "fp16", threshold=1e-1, attention=rule, progress=False,
        journal=tmp_path / "journal", **more,
    )  # fmt: skip
    answer = find("flash")
    assert answer.verdict == "found" and not answer.layers and answer.to_dict()["attention"] == "flash"
    answer.save(tmp_path / "answer.json")
    np.testing.assert_array_equal(run(tmp_path / "m.onnx", answer=answer), flash)
    np.testing.assert_array_equal(run(tmp_path / "m.onnx", answer=tmp_path / "answer.json"), flash)
    with pytest.raises(ulpscope.Error, match="another search.*attention.*normalized.*flash"):
        find("normalized", resume=True)
    with pytest.raises(ulpscope.Error, match="answer: it says"):
        ulpscope.Engine(tmp_path / "m.onnx", answer=answer, attention="flash")


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ulpscope.Error, match=r"attention: expected normalized or flash, got 'online'"):
        run(attention(), attention="online")
