"""Targets that are measured, from Python: no test looks at a time."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from small_models import run_program

import ulpscope

CODE = ulpscope.ErrorCode
SEARCH = {"threshold": 0.5, "hold_out": False, "margin": 1.0, "fusion": "none", "repair": False}


def test_rates_alone(folder):
    assert ulpscope.measure_target("t.json", threads=1) == "t.json"
    target = json.loads((folder / "t.json").read_text())
    assert target["groups"] == [] and target["measured"]["backend"] == "cpu" and target["measured"]["threads"] == 1


def test_files_decide_what_is_fastest(program, folder, samples):
    path = folder / "t.json"
    seen: list[ulpscope.Progress] = []
    ulpscope.measure_target(path, "m.onnx", iter(samples), fusion="none", threads=1, progress=seen.append)
    assert any("groups in fp16" in each.stage for each in seen), seen
    target = json.loads(path.read_text())
    kernels = {group["kernel"] for group in target["groups"]}
    run_program(program, folder, "target", "measure", "m.onnx", "--fp16", "--fusion", "none", "-o", "program.json")
    assert kernels == {group["kernel"] for group in json.loads((folder / "program.json").read_text())["groups"]}
    for slow, kept in (("fp16", 6), ("fp32", 2)):  # fp16 does not suit two of the layers.
        for group in target["groups"]:
            group["us"] = {"fp16": 10.0 if slow == "fp16" else 1.0, "fp32": 10.0 if slow == "fp32" else 1.0}
        target.update(launch_us=0.1, bandwidth_gb_per_s=1000.0)
        path.write_text(json.dumps(target))
        answer = ulpscope.search("m.onnx", samples, target=path, objective="fastest", **SEARCH)
        assert len(answer.layers) == kept and answer.target == str(path)
        assert answer.time_us["highest"] == pytest.approx(60.0 if slow == "fp32" else 6.0)
        again = ulpscope.search("m.onnx", samples, target=str(path), objective="fastest", **SEARCH)
        assert again.to_dict()["target_hash"] == answer.to_dict()["target_hash"] and again.time_us == answer.time_us


def test_int8(folder, samples):
    ulpscope.measure_target("t.json", "m.onnx", samples, ["int8", "fp16"], threads=1)
    target = json.loads((folder / "t.json").read_text())
    assert any("int8" in group["us"] for group in target["groups"])


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (("t.json", "m.onnx"), CODE.INVALID_ARGUMENT, "expected a model and data"),
        (("t.json", "m.onnx", []), CODE.INVALID_ARGUMENT, "at least one sample"),
        (("t.txt",), CODE.INVALID_ARGUMENT, "ends in .json"),
        (("t.json", "m.onnx", [{"x": np.zeros((5, 5, 5), np.float32)}]), CODE.INVALID_ARGUMENT, "x"),
        (("t.json", "none.onnx", [{}]), CODE.NOT_FOUND, "none.onnx"),
    ],
)
def test_what_makes_no_sense(arguments, code, words, folder, samples):
    with pytest.raises(ulpscope.Error) as error:
        ulpscope.measure_target(*arguments)
    assert error.value.code == code and words in str(error.value)
    assert not pathlib.Path("t.json").exists()


def test_searches_do_not_measure(samples):
    with pytest.raises(ulpscope.Error, match="measure_target"):
        ulpscope.search("m.onnx", samples, target="measured", **SEARCH)
