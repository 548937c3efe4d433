"""The check of typed models by onnx.checker, for which the worker does not import the package around it."""

import subprocess
import sys
import types

import onnx
import pytest
from onnx import TensorProto, helper

from ulpscope.worker import errors, onnx_checks


def model(tmp_path, op):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", ends[:1], ends[1:])
    path = tmp_path / f"{op}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def test_a_model_is_checked_without_the_package(tmp_path):
    code = """
import sys
from ulpscope.worker import errors, onnx_checks
assert onnx_checks.onnx_prepare(None)["onnx"]
right, wrong = sys.argv[1:]
assert onnx_checks.onnx_check(None, right)
try:
    onnx_checks.onnx_check(None, wrong)
except errors.WorkerError as error:
    assert "No Op registered for Nonsense" in str(error), error
else:
    raise AssertionError(wrong)
assert "onnx" not in sys.modules
import onnx
onnx.checker.check_model(onnx.load(right), full_check=True)
assert onnx_checks.onnx_check(None, right, nodes_only=True)
"""
    files = [model(tmp_path, op) for op in ("Relu", "Nonsense")]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "extension", [None, types.SimpleNamespace(checker=types.SimpleNamespace(check_model_path=int))]
)
def test_another_release_of_onnx_checks_by_its_package(tmp_path, monkeypatch, extension):
    monkeypatch.setattr(onnx_checks, "_extension", lambda: extension)
    assert onnx_checks.onnx_check(None, model(tmp_path, "Relu"))
    with pytest.raises(errors.WorkerError, match="No Op registered for Nonsense"):
        onnx_checks.onnx_check(None, model(tmp_path, "Nonsense"))
