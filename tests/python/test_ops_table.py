"""docs/ops.md lists the operators that the library registers."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_table_is_current(environment: dict[str, str]):
    script = ROOT / "scripts" / "make_ops_table.py"
    made = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert (ROOT / "docs" / "ops.md").read_text() == made.stdout, f"run {script} > docs/ops.md"


def test_every_operator_with_a_derivative_has_the_form_of_its_adjoint():
    page = (ROOT / "docs" / "adding_an_op.md").read_text()
    table = page[page.index("## Forms of adjoints") : page.index("## Its tests")]
    rows = [
        line.split("|")[1]
        for line in table.splitlines()
        if line.startswith("| ") and not line.startswith("| operators")
    ]
    named = [name.strip() for row in rows for name in row.split(",")]
    assert len(named) == len(set(named))
    listed = (ROOT / "docs" / "ops.md").read_text()
    assert set(named) == set(re.findall(r"^\| (\w+) \| \d+ \| \w+ \| yes \|$", listed, re.MULTILINE))
