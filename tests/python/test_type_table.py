"""data/onnx_operators.inc has the table that scripts/make_type_table.py prints."""

import pathlib
import runpy

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_table_is_that_of_the_onnx_package():
    pytest.importorskip("onnx")
    lines = runpy.run_path(str(ROOT / "scripts" / "make_type_table.py"))["table"]()
    source = (ROOT / "data" / "onnx_operators.inc").read_text().splitlines()
    assert [line for line in source if line.startswith('    {"')] == lines
