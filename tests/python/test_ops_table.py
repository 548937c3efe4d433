"""docs/ops.md lists the operators that the library registers."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_table_is_current(environment: dict[str, str]):
    script = ROOT / "scripts" / "make_ops_table.py"
    made = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert (ROOT / "docs" / "ops.md").read_text() == made.stdout, f"run {script} > docs/ops.md"
