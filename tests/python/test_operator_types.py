"""Every operator in float16 and bfloat16 at every opset: what `convert` writes is what ONNX defines."""

from __future__ import annotations

import functools
from typing import Dict, Iterator, List

import onnx
import pytest
from operator_models import OPSETS, Case, faults, models

import ulpscope

#: One of so many forms of an operator at an opset; each operator has one form at all of them.
SHARE = 6
NEWEST_OPSET = 25


@functools.cache
def cases() -> List[Case]:
    """The first form of each operator, and some of the others."""
    chosen, first = [], {}
    for index, case in enumerate(models()):
        form = case.name.split(",")[0]
        if first.setdefault(case.op, form) == form or index % SHARE == 0:
            chosen.append(case)
    return chosen


def opset_of(model: onnx.ModelProto) -> int:
    return next(o.version for o in model.opset_import if not o.domain)


def typed_model(case: Case, precision: str):
    try:
        return ulpscope.convert(case.model, precision=precision, data=[case.feed], verify=False)
    except ulpscope.Error as error:
        return error


def problems(case: Case, precision: str) -> Iterator[str]:
    """What is wrong with the typed file of one model."""
    made = typed_model(case, precision)
    if isinstance(made, ulpscope.Error):
        if made.code != ulpscope.ErrorCode.UNSUPPORTED:
            yield f"convert: {made}"
        return
    typed, report = made
    if opset_of(typed) > max(NEWEST_OPSET, opset_of(case.model)):
        yield f"opset {opset_of(typed)}"
    try:
        onnx.checker.check_model(typed, full_check=True)
    except Exception as error:  # the checker has no common base for its errors
        yield f"onnx.checker: {error}"
        return
    yield from faults(typed)
    if report.lowered == 0:
        yield "no layer is lowered"


def report_of(found: Dict[str, List[str]]) -> str:
    return "\n".join(f"{name}: {'; '.join(what)}" for name, what in found.items())


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_files_have_the_types_that_onnx_defines(precision, opset):
    of_opset = [case for case in cases() if opset_of(case.model) == opset]
    assert len({case.op for case in of_opset}) > 90
    found = {case.name: wrong for case in of_opset if (wrong := list(problems(case, precision)))}
    assert not found, report_of(found)
