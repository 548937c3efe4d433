"""Prints 'N passed, N failed, N skipped' over JUnit reports, and which instruction sets were left out; exits 0 only if
tests ran, none failed, and no report lacks."""

from __future__ import annotations

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

# Of a test of ctest that a set of instructions names, and of the reason that pytest was given.
OF_CTEST = re.compile(r"/all_with_(\w+)$")
OF_PYTEST = re.compile(r"no such instructions here: (\w+)")


def left_out(case: ElementTree.Element) -> str | None:
    """The set of instructions that this processor lacks, for which a test was skipped."""
    skipped = case.find("skipped")
    if skipped is None:
        return None
    found = OF_CTEST.search(case.get("name", "")) or OF_PYTEST.search(skipped.get("message", ""))
    return found[1] if found else None


def main(paths: list[str]) -> int:
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    lacking: dict[str, int] = {}
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
            if name := left_out(case):
                lacking[name] = lacking.get(name, 0) + 1
    sets = "; ".join(f"{count} of them for want of {name}" for name, count in sorted(lacking.items()))
    rest = f" ({sets})" if sets else " (no instruction set was left out)"
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped{rest}")
    return 0 if complete and totals["passed"] > 0 and totals["failed"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
