"""The same graphs through `convert`, and the adjoint that a search takes its predictions from."""

from __future__ import annotations

import logging
import os
import pathlib
import struct
import subprocess
import tempfile
from typing import Optional, Tuple

import numpy as np
import onnx
import ulpscope
from ulpscope.calibration import calibrate_samples
from ulpscope.native import _core, assign

import oracle
from fuzz.checks import CRASHED, INTERNAL, REFUSED, WRONG, Way
from fuzz.graph import onnxruntime_run, subgraphs
from fuzz.reference import widen

from .judges import Judge

logging.getLogger("ulpscope").setLevel(logging.ERROR)  # What stays in float32 is no news here.

#: In memory, where the system has such a folder.
_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

#: In turn. What int8 does not suit takes fp16; the scales are those of a calibration on both sets of inputs.
PRECISIONS = (("fp16",), ("bf16",), ("int8", "fp16"))


def convert(judge: Judge) -> None:
    """The typed model has the bits of the precisions (convert checks that), is valid, and means what it says."""
    precisions = PRECISIONS[judge.plan.number % 3]
    if "int8" in precisions and any(0 in value.shape for value in judge.graph.feeds[0].values()):
        precisions = ("fp16",)  # There is nothing to take scales from.
    way = Way("full", 1, "+".join(precisions), against="convert")
    try:
        made, data = converted(judge, precisions)
    except (RuntimeError, AssertionError) as error:
        if "expected layers to lower" in str(error) or "no layer can be lowered" in str(error):
            judge.counts["nothing to lower"] += 1
        else:
            judge.note(INTERNAL if type(error).__name__ == "InternalError" else REFUSED, str(error), way)
        return
    judge.counts["converted"] += 1
    if not made["checked"]:
        judge.note(WRONG, "no run was compared", way)
    if (text := invalid(data)) and not invalid(judge.model):
        judge.note(WRONG, f"onnx.checker: {text}", way)
        return
    _means_the_same(judge, data, way)
    if precisions == ("fp16",):
        _loads(judge, data, way)


def converted(
    judge: Judge, precisions: Tuple[str, ...], method: str = "entropy", target: str = "h200"
) -> Tuple[dict, bytes]:
    """What ulpscope.convert makes and checks itself, without the processes that it starts for onnx and ONNX Runtime."""
    options = _core.ModelOptions()
    assign(options, precisions=list(precisions), fusion="full", target=target, threads=1)
    model = _core.Model.from_bytes(judge.model, options, "model.onnx")
    if {"int8", "fp8", "nvfp4"} & set(precisions) and not model.brings_scales():
        calibrate_samples(model, iter(judge.graph.feeds), method)
    choice = _core.ConvertOptions()
    assign(choice, verify=True, python_checks=False)
    with tempfile.TemporaryDirectory(prefix="smallscope-", dir=_FOLDER) as folder:
        path = os.path.join(folder, "typed.onnx")
        made = _core.convert(model, path, judge.graph.feeds, choice, None)
        return made, pathlib.Path(path).read_bytes()


def invalid(model: bytes) -> str:
    """What onnx.checker has against it."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error)
    return ""


def _means_the_same(judge: Judge, data: bytes, way: Way) -> None:
    """The typed model, carried out as it is written, is what the oracle makes of it."""
    feed = judge.plan.number // 3 % 2
    outputs = ulpscope.Engine(data, threads=1).run(judge.graph.feeds[feed])
    outcomes = judge.consult(data, Way("full", against="convert"), feed)
    if outcomes is None:
        return
    judge.counts["judged by the oracle"] += 1
    for name, output in outputs.items():
        if text := oracle.judge(outcomes[name], output):
            judge.note(WRONG, f"the typed model, output {name}: {text}", way)


def _loads(judge: Judge, data: bytes, way: Way) -> None:
    """ONNX Runtime takes the typed model if it takes the model."""
    if judge.onnxruntime(0) is None:
        return
    try:
        onnxruntime_run(data, judge.graph.feeds[0])
        judge.counts["typed models that ONNX Runtime runs"] += 1
    except Exception as error:  # ONNX Runtime's own kinds of errors share no base but this.
        judge.note(WRONG, f"ONNX Runtime: {error}", way)


# The adjoint.

_checker: Optional[subprocess.Popen] = None


def _adjoint_checker() -> subprocess.Popen:
    """The program of adjoint_check.cpp; one for all graphs of this process."""
    global _checker
    if _checker is None or _checker.poll() is not None:
        build = pathlib.Path(_core.__file__).parents[2]
        _checker = subprocess.Popen([build / "bin" / "adjoint_check"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return _checker


def _without_rounding(graph: onnx.GraphProto) -> None:
    """Casts to narrow floats keep all digits: the adjoint takes the derivative of rounding for 1."""
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16):
                attribute.i = onnx.TensorProto.FLOAT
        for body in subgraphs(node):
            _without_rounding(body)


def adjoint(judge: Judge) -> None:
    """Gradients in float64 against finite differences, at either set of inputs."""
    way = Way("none", against="adjoint")
    model = judge.graph.model_proto()
    _without_rounding(model.graph)
    widen(model.graph)
    data = model.SerializeToString()
    feed = judge.graph.feeds[judge.plan.number % 2]
    message = [struct.pack("I", len(data)), data, struct.pack("I", len(feed))]
    for value in feed.values():
        message.append(struct.pack("I", value.ndim) + struct.pack(f"{value.ndim}q", *value.shape))
        message.append(np.ascontiguousarray(value, np.float64).tobytes())
    checker = _adjoint_checker()
    checker.stdin.write(b"".join(message))
    checker.stdin.flush()
    answer = checker.stdout.readline().decode().strip()
    if not answer:
        judge.note(CRASHED, f"adjoint_check ended with {checker.wait()}", way)
        return
    kind, _, text = answer.partition(": ")
    judge.counts[f"adjoint {kind}"] += 1
    if kind == "wrong":
        judge.note(WRONG, text, way)
    elif kind == "refused" and "float64" not in text and "double" not in text:
        judge.note(REFUSED, text, way)
