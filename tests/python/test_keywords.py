"""Messages that reach callers of the functions name arguments of the functions, not options of the program."""

from __future__ import annotations

import inspect
import logging
import re
import types

import pytest
from small_models import ROOT, TASK, run_program

import ulpscope
from ulpscope.keywords import KEYWORDS, PROGRAMS, VALUES, in_python
from ulpscope.native import _core

#: Of words for commands, of compilers, and of comparisons, which no function makes.
ELSEWHERE = {
    "--assume-lowest", "--check-average", "--compare-func-script", "--fmad", "--gpu-architecture", "--log-level",
    "--no-shape-check", "--one-thread", "--postprocess",
    "--repairs", "--shims", "--std", "--trial", "--trt", "--trt-network-postprocess-script", "--upgrade",
}  # fmt: skip


def test_every_option_in_a_message_is_known():
    found = {f"--{name}" for name, _ in _core.precisions() if name != "fp32" and "-" not in name}  # Made of the table.
    for path in (ROOT / "src").rglob("*.[ch]*"):
        code = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.M)
        for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code):
            found |= set(re.findall(r"--[a-z][a-z0-9-]*", text))
    assert found == {*KEYWORDS, *VALUES, *PROGRAMS, *ELSEWHERE}


def test_arguments_exist():
    functions = [each for name in ulpscope.__all__ if isinstance(each := getattr(ulpscope, name), types.FunctionType)]
    arguments = {name for each in [*functions, ulpscope.Engine] for name in inspect.signature(each).parameters}
    values = {each.partition("=")[0] for each in VALUES.values() if "=" in each}
    assert {*KEYWORDS.values(), *values} <= arguments and "cost_model" not in arguments
    # What the program alone has is no argument under a name of its own.
    assert not {option[2:].replace("-", "_") for option in PROGRAMS} & arguments


def test_options_exist(folder, program):
    tools = ("run", "convert", "precision search", "verify", "report", "target measure")
    helps = "".join(run_program(program, folder, *tool.split(), "--help") for tool in tools)
    assert {*KEYWORDS, *VALUES, *PROGRAMS} <= set(re.findall(r"--[a-z][a-z0-9-]*", helps))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("try --hold-out FILE, or --threshold 0.01.", "try hold_out=FILE, or threshold=0.01."),
        ("try --objective smallest, --fusion none", "try objective='smallest', fusion='none'"),
        ("try --answer ANSWER.json", "try answer=ANSWER.json"),
        ("leave out --backend cuda; another --target", "leave out backend='cuda'; another target"),
        ("--keep and --lower contradict", "keep and lower contradict"),
        ("try --fp16 or --int8 (calibrated)", "try 'fp16' or 'int8' (calibrated)"),
        ("another --journal, or no --continue to", "another journal, or no resume=True to"),
        ("try --target measured, or", "try a file of ulpscope.measure_target as target, or"),
        ("try --external-data-dir", "try the program's --external-data-dir"),
        ("try `ulpscope precision search --objective fastest`", "try `ulpscope precision search --objective fastest`"),
        ("slow --keep:\n    ulpscope convert m --answer a -o b", "slow keep:\n    ulpscope convert m --answer a -o b"),
        ("got '--keep' and pip --upgrade", "got '--keep' and pip --upgrade"),
        ("layer 'a--keep'", "layer 'a--keep'"),
        ("try --mxfp4 --weights-only, or another target", "try 'mxfp4-weights', or another target"),
        ("try --weights-only --int4 --nvfp4 --fp8", "try 'int4', 'nvfp4-weights', 'fp8-weights'"),
        ("try --keep --weights-only", "try keep the program's --weights-only"),
    ],
)
def test_sentences(ours, theirs):
    assert in_python(ours) == theirs


@pytest.mark.parametrize(
    ("function", "given", "words"),
    [
        ("search", {"keep": "Nope"}, "keep 'Nope'"),
        ("search", {"keep": ["Add"], "lower": ["Add"]}, "keep and lower contradict"),
        ("search", {"threshold": {"nope": 1}}, "threshold: expected an output"),
        ("search", {"threshold": None, "rtol": -1}, "rtol: expected 0 or more"),
        ("search", {"precisions": []}, "fewer names in keep and lower"),
        ("convert", {"relax": True}, "relax: expected a tolerance"),
        ("convert", {"io_types": {"q": "float16"}}, "io_types: expected"),
        ("convert", {"keep": "First", "layer_precisions": {"First": "float16"}}, "keep and layer_precisions"),
        ("calibrate", {"data": []}, "try data"),
        ("measure_target", {"path": "here.txt"}, "by which target knows"),
    ],
)
def test_errors(samples, function, given, words):
    usual = {"search": {"data": samples, "progress": False, **TASK}, "measure_target": {}}.get(function, {})
    model = {} if function == "measure_target" else {"model": "m.onnx"}
    with pytest.raises(ulpscope.Error) as caught:
        getattr(ulpscope, function)(**{**model, **usual, **given})
    assert words in str(caught.value) and "--" not in str(caught.value)


def test_logs(samples, caplog):
    with caplog.at_level(logging.WARNING, "ulpscope"):
        ulpscope.search("m.onnx", samples[:3], progress=False, **TASK)
    sentences = [line for line in caplog.text.splitlines() if not line.startswith("    ulpscope ")]
    assert "or hold_out=FILE" in caplog.text and not [line for line in sentences if "--" in line]
