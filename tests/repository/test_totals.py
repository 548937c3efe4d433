"""The last line of scripts/test.sh."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "test_totals.py"
PASSED = '<testcase name="a"/>'
FAILED = '<testcase name="b"><failure message="no"/></testcase>'
SKIPPED = '<testcase name="c"><skipped message="no browser"/></testcase>'
OF_CTEST = '<testcase name="engine/all_with_avx512"><skipped message="SKIP_RETURN_CODE=77"/></testcase>'
OF_PYTEST = '<testcase name="test_graphs[avx512]"><skipped message="no such instructions here: avx512"/></testcase>'


@pytest.mark.parametrize(
    ("cases", "status", "line"),
    [
        ([PASSED, SKIPPED], 0, "1 passed, 0 failed, 1 skipped (no instruction set was left out)"),
        ([PASSED, FAILED], 1, "1 passed, 1 failed, 0 skipped (no instruction set was left out)"),
        ([PASSED, OF_CTEST, OF_PYTEST, SKIPPED], 0, "1 passed, 0 failed, 3 skipped (2 of them for want of avx512)"),
        ([SKIPPED], 1, "0 passed, 0 failed, 1 skipped (no instruction set was left out)"),
    ],
)
def test_totals(tmp_path: pathlib.Path, cases: list[str], status: int, line: str) -> None:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    done = subprocess.run([sys.executable, str(SCRIPT), str(report)], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (status, line)


def test_a_report_that_lacks_is_a_failure(tmp_path: pathlib.Path) -> None:
    (tmp_path / "there.xml").write_text(f"<testsuite>{PASSED}</testsuite>")
    paths = [str(tmp_path / name) for name in ("there.xml", "lacks.xml")]
    done = subprocess.run([sys.executable, str(SCRIPT), *paths], capture_output=True, text=True)
    assert done.returncode == 1 and "lacks.xml is missing" in done.stdout
