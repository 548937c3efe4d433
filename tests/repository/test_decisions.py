"""Decision records say whether they still hold."""

from __future__ import annotations

import pathlib
import re

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("*.md"))
STATUS = re.compile(r"\*\*Status\.\*\* (Accepted|Superseded by \[\d+\]\((?P<later>\d{4}-[a-z0-9-]+\.md)\))[.,;]? ?.*")


def test_numbers_have_no_gaps() -> None:
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:4])
def test_each_record_has_a_status(path: pathlib.Path) -> None:
    title, blank, status, *_ = path.read_text().splitlines()
    assert title.startswith(f"# {int(path.name[:4])}. ") and blank == ""
    found = STATUS.fullmatch(status)
    assert found, f"expected '**Status.** Accepted.' or '**Status.** Superseded by [N](NNNN-....md).', got '{status}'"
    if found["later"]:
        assert (FOLDER / found["later"]).exists() and found["later"] > path.name


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:4])
def test_records_that_are_named_are_there(path: pathlib.Path) -> None:
    for name in re.findall(r"\((\d{4}-[^)#]+)\)", path.read_text()):
        assert (FOLDER / name).exists(), name
