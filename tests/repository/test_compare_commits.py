"""scripts/compare_commits.py: equal records compare equal, and a changed bit is noticed."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from limits import HANGS

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.append(str(SCRIPTS))
import compare_commits  # noqa: E402

NAME = "small/product"
WEIGHTS = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def product(weights: np.ndarray) -> bytes:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "Product")
    graph = helper.make_graph([node], "product", infos[:1], infos[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def record(folder: pathlib.Path, environment: dict[str, str], weights: np.ndarray) -> dict[str, str]:
    feeds = [{"x": np.eye(8, dtype=np.float32)[2:4]}]  # Rows of the weights as they are: no sum rounds a bit away.
    network = {"kind": "small", "name": "product", "model": product(weights), "feeds": feeds}
    (folder / "inputs").write_bytes(pickle.dumps([network]))
    command = [sys.executable, str(SCRIPTS / "record_bits.py"), "inputs", "record.json", "--no-searches"]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=HANGS)
    return json.loads((folder / "record.json").read_text())


def test_a_changed_bit_of_a_weight_is_noticed(
    tmp_path: pathlib.Path, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    base, same = record(tmp_path, environment, WEIGHTS), record(tmp_path, environment, WEIGHTS)
    assert len(base) > 30 and not any("refused" in value for value in base.values()), base
    assert compare_commits.compare({"all": (base, same)}) == 0
    assert capsys.readouterr().out == f"0 of {len(base)} results differ (instruction sets: all)\n"

    weights = WEIGHTS.copy()
    weights.view(np.uint32)[3, 4] ^= 1
    changed = record(tmp_path, environment, weights)
    assert compare_commits.compare({"all": (base, changed)}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"run {NAME} in fp32, fusion none, on cpu: ") for line in lines), lines
    assert lines[-1].startswith(f"{len(lines) - 1} of {len(base)} results differ")


def test_what_only_one_record_has_is_a_difference() -> None:
    assert compare_commits.differences({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == [
        "b: 2 -> not recorded",
        "c: not recorded -> 3",
    ]


def test_what_passes_is_left_out_of_digests(environment: dict[str, str]) -> None:
    """Seconds and versions; nothing else."""
    code = """
import numpy as np, onnx, record_bits as r
one = {"program": "0.1", "seconds": 2.5, "trials": [{"cost": [3, 4.5, 0.25], "used": 0.5}]}
other = {"program": "0.2", "seconds": 1.5, "trials": [{"cost": [3, 4.5, 0.75], "used": 0.5}]}
assert r.digest_of_json(one) == r.digest_of_json(other)
other["trials"][0]["cost"][1] = 5
assert r.digest_of_json(one) != r.digest_of_json(other)
values = np.array([1, np.nan], np.float32)
negated = np.array([1, -np.nan], np.float32)
assert values.tobytes() != negated.tobytes()
assert r.digest_of_outputs({"y": values}) == r.digest_of_outputs({"y": negated})
assert r.digest_of_outputs({"y": np.float32([0.0])}) != r.digest_of_outputs({"y": np.float32([-0.0])})
assert r.digest_of_outputs({"y": np.float16([1])}) != r.digest_of_outputs({"y": np.float32([1])})
a, b = onnx.ModelProto(producer_version="1"), onnx.ModelProto(producer_version="2")
assert r.digest_of_model(a) == r.digest_of_model(b) != r.digest_of_model(onnx.ModelProto(ir_version=8))
"""
    paths = os.pathsep.join([environment["PYTHONPATH"], str(SCRIPTS)])
    subprocess.run([sys.executable, "-c", code], env={**environment, "PYTHONPATH": paths}, check=True)
