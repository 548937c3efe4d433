"""A part of the enumeration on every instruction set; and the enumeration itself."""

from __future__ import annotations

import os
import pathlib
import random
import re
import subprocess
import sys

import numpy as np
import pytest

from smallscope import shapes
from smallscope.batches import available_isas
from smallscope.enumeration import Enumeration, plan_of
from smallscope.recipes import OPSETS
from smallscope.stages import TOTAL
from smallscope.table import FORMS, MERGES

FOLDER = pathlib.Path(__file__).resolve().parent
#: Of all graphs, one in so many.
PARTS = int(os.environ.get("ULPSCOPE_SMALLSCOPE_PARTS", "10"))
#: Which of them: another one every time; printed with what fails, so that it can be asked for again.
PART = int(os.environ.get("ULPSCOPE_SMALLSCOPE_PART", str(random.SystemRandom().randrange(PARTS))))


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess:
    command = [sys.executable, str(FOLDER / "run.py"), "--part", f"{PART}/{PARTS}"]
    return subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")


def test_a_part_of_all_graphs(done: subprocess.CompletedProcess) -> None:
    text = f"ULPSCOPE_SMALLSCOPE_PART={PART} ULPSCOPE_SMALLSCOPE_PARTS={PARTS}\n{done.stdout[-8000:]}"
    assert done.returncode == 0, f"{text}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_an_instruction_set_had_its_turn(isa: str, done: subprocess.CompletedProcess) -> None:
    if isa not in available_isas():
        pytest.skip(f"this processor has no {isa}")
    line = next(line for line in done.stdout.splitlines() if "instruction sets:" in line)
    assert re.search(rf"\b{isa} [1-9]", line), line


def test_a_number_is_a_graph() -> None:
    numbers = np.random.default_rng(27).integers(0, TOTAL, 40)
    plans = [plan for plan in map(plan_of, map(int, numbers)) if plan]
    assert len(plans) > 30
    for plan in plans:
        again = plan_of(plan.number)
        assert again == plan and again.graph().model() == plan.graph().model()


def test_parts_are_the_whole() -> None:
    name = "sides"
    whole = {plan.number for plan in Enumeration([name], 0, 1)}
    parts = [{plan.number for plan in Enumeration([name], k, 7)} for k in range(7)]
    assert whole <= set().union(*parts)
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_every_form_occurs_and_has_a_meaning() -> None:
    alone = {plan.recipe.steps[0][0] for plan in Enumeration(["adjoint, one", "elements"], 0, 1)}
    assert alone == set(FORMS)
    merged = {plan.recipe.steps[2][0] for plan in Enumeration(["triangles, all merges"], 0, 7)}
    assert merged == set(MERGES)


def test_every_shape_and_opset_occurs() -> None:
    plans = list(Enumeration(["one", "large, one"], 0, 3))
    assert {plan.shape for plan in plans} >= {*shapes.ALL, *shapes.LARGE} - {()}
    assert {plan.opset for plan in plans} == set(OPSETS)


def test_constants_are_not_exact_in_narrow_types() -> None:
    import ml_dtypes

    inexact = total = 0
    for number in range(0, TOTAL, TOTAL // 60):
        plan = plan_of(number)
        for value in plan.graph().constants.values() if plan else ():
            if value.dtype == np.float32 and value.size > 8:
                total += 1
                narrow = value.astype(ml_dtypes.bfloat16).astype(np.float32)
                inexact += bool((narrow != value).any() and (value.astype(np.float16) != value).any())
    assert total > 5 and inexact == total
