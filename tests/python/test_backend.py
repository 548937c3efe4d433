"""ulpscope.backend, and ONNX's own node tests through it."""

from __future__ import annotations

import collections

import node_tests
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ulpscope
from ulpscope import backend

AT_LEAST = 1780


def test_run_node_run_model_and_prepare_agree():
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([[10, 20], [30, 40]])
    node = helper.make_node("Add", ["a", "b"], ["c"])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "abc"]
    model = helper.make_model(
        helper.make_graph([node], "g", infos[:2], infos[2:]), opset_imports=[helper.make_opsetid("", 17)]
    )
    for outputs in (
        backend.run_node(node, [x, y]),
        backend.run_node(node, [x, y], outputs_info=[(np.float32, (2, 2))], opset_version=13),
        backend.run_model(model, [x, y]),
        backend.prepare(model, "CPU").run({"a": x, "b": y}),
    ):
        assert len(outputs) == 1 and np.array_equal(outputs[0], x + y)


def test_devices():
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    for device in ("CUDA", "CUDA:1", "TPU", "CPU:x", ""):
        assert not backend.supports_device(device)
        with pytest.raises(ulpscope.Error, match=f"expected 'CPU', got '{device}'") as caught:
            backend.prepare(onnx.ModelProto(), device)
        assert caught.value.code == ulpscope.ErrorCode.UNSUPPORTED


def test_node_tests_pass(capsys):
    results = list(node_tests.run_all(node_tests.collect(), node_tests.load_engine))
    totals = collections.Counter(result.outcome for result in results)
    with capsys.disabled():
        print(f"\nONNX node tests: {totals['passed']} of {len(results)} passed, {totals['unsupported']} unsupported")
    crashes = [
        result.name for result in results if "the process ended" in result.message or "took more" in result.message
    ]
    assert not crashes
    assert totals["passed"] >= AT_LEAST


def test_an_output_that_is_listed_twice_is_handed_out_twice():
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xyz")
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["z"])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y, z, y]), opset_imports=[helper.make_opsetid("", 17)]
    )
    results = backend.run_model(model, [np.float32([1, -2])])
    assert [result.tolist() for result in results] == [[-1, 2], [1, 2], [-1, 2]]


def test_what_onnx_runtime_lacks_too_is_unsupported():
    pytest.importorskip("onnxruntime")
    case = next(case for case in node_tests.collect("ImageDecoder") if "expanded" not in case.name)
    with pytest.raises(ulpscope.Error, match="ONNX Runtime refuses the model") as raised:
        backend.prepare(case.model).run(case.data_sets[0][0])
    assert raised.value.code == ulpscope.ErrorCode.UNSUPPORTED
