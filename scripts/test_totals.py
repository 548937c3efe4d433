"""Prints 'N passed, N failed, N skipped' over JUnit reports; exits 0 only if tests ran, none failed, and no report lacks."""

from __future__ import annotations

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def main(paths: list[str]) -> int:
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    complete = True
    for path in paths:
        if not pathlib.Path(path).exists():
            print(f"{path} is missing: its test runner did not finish")
            complete = False
            continue
        for case in ElementTree.parse(path).iter("testcase"):
            kinds = {child.tag for child in case}
            failed = kinds & {"failure", "error"}
            totals["failed" if failed else "skipped" if "skipped" in kinds else "passed"] += 1
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 0 if complete and totals["passed"] > 0 and totals["failed"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
