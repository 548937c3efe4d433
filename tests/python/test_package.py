"""The package as people read it: examples in docstrings, and the notebooks."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ulpscope

from limits import HANGS

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "python").glob("*/*.ipynb"))
MODULES = ("answer", "calibration", "converting", "engine", "polygraphy", "quantization", "reporting", "searching", "targets", "torch_export", "verification")  # fmt: skip
FUNCTIONS = ("search", "convert", "calibrate", "quantize", "verify", "report", "from_torch", "measure_target")


def example_model(path: pathlib.Path) -> list[dict[str, np.ndarray]]:
    """x -> MatMul -> + 65504 -> - 65504 -> MatMul: what the examples of the docstrings are about."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "First"), helper.make_node("Add", ["a", "big"], ["b"], "Add"),
        helper.make_node("Sub", ["b", "big"], ["c"], "Sub"), helper.make_node("MatMul", ["c", "w"], ["y"], "Second"),
    ]  # fmt: skip
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    constants = [
        helper.make_tensor("w", TensorProto.FLOAT, [8, 8], np.eye(8, dtype=np.float32).ravel()),
        helper.make_tensor("big", TensorProto.FLOAT, [], [65504.0]),
    ]
    graph = helper.make_graph(nodes, "example", infos[:1], infos[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    random = np.random.default_rng(0)
    return [{"x": np.append(random.uniform(1, 2, 7), 2).astype(np.float32).reshape(1, 8)} for _ in range(4)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"ulpscope": ulpscope, "samples": example_model(tmp_path / "model.onnx"), "np": np}
    names["fresh"] = [{"x": each["x"][:, ::-1].copy()} for each in names["samples"]]
    if name == "torch_export":
        names["torch"] = pytest.importorskip("torch")
    if name == "polygraphy":
        logger = importlib.import_module("polygraphy.logger").G_LOGGER
        monkeypatch.setattr(logger, "module_severity", logger.CRITICAL)
    module = importlib.import_module(f"ulpscope.{name}")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    tests = [test for test in doctest.DocTestFinder(recurse=True).find(module, globs=names) if test.examples]
    assert tests
    for test in tests:
        runner.run(test)
    assert runner.failures == 0


def test_everything_has_its_words():
    for name in ulpscope.__all__:
        assert getattr(ulpscope, name) is not None
    for name in FUNCTIONS:
        assert ">>> " in getattr(ulpscope, name).__doc__, name
    assert set(ulpscope.__all__) == set(dir(ulpscope))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    for needed in notebook.metadata.get("ulpscope_needs", ()):
        pytest.importorskip(needed)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(ulpscope.__file__).parents[1]), "IPYTHONDIR": str(tmp_path)}
    client = nbclient.NotebookClient(
        notebook, timeout=HANGS, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute(env=environment)
    assert (tmp_path / "typed.onnx").exists() and (tmp_path / "report.html").exists()
