"""README.zh.md shows what README.md shows: the same code, in the same order, below the same headings, with the same links."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGLISH, CHINESE = ((ROOT / name).read_text() for name in ("README.md", "README.zh.md"))
FENCED = re.compile(r"^ *```.*?^ *```", re.M | re.S)


def without_comments(block: str) -> str:
    """Comments in code may be in another language."""
    return "\n".join(re.sub(r"(^|\s+)# .*", "", line) for line in block.splitlines() if not line.startswith("# "))


def test_the_same_code():
    english, chinese = ([without_comments(block) for block in FENCED.findall(text)] for text in (ENGLISH, CHINESE))
    assert chinese == english


def prose(text: str) -> str:
    return FENCED.sub("", re.sub(r"<!--.*?-->", "", text))


@pytest.mark.parametrize("pattern", [r"^(#+) ", r"\]\(([^)]+)\)", r"^(\|)"], ids=["headings", "links", "rows of tables"])
def test_the_same_structure(pattern):
    english, chinese = (re.findall(pattern, prose(text), re.M) for text in (ENGLISH, CHINESE))
    own = {"README.md", "README.zh.md"}
    assert [each for each in chinese if each not in own] == [each for each in english if each not in own]


def test_the_same_names():
    """Options, files and commands in the running text, and its numbers."""
    english, chinese = (set(re.findall(r"`([^`]+)`", prose(text))) for text in (ENGLISH, CHINESE))
    assert chinese == english


def test_it_is_chinese():
    paragraphs = [each for each in prose(CHINESE).split("\n\n") if re.search(r"[A-Za-z]{3}", each) and not each.startswith("#")]
    assert paragraphs and not [each for each in paragraphs if not re.search(r"[\u4e00-\u9fff]", each)]
