"""docs/cli.md holds the help texts of all tools as they are. `python tests/cli/test_docs.py --write` renews them."""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
BLOCK = re.compile(r"(```text\n\$ ulpscope ([^\n]*--help(?:-all)?)\n)(.*?)(```\n)", re.S)


def help_text(binary, words):
    return subprocess.run([str(binary), *words.split()], text=True, capture_output=True, check=True).stdout


def renewed(binary):
    return BLOCK.sub(lambda m: m.group(1) + help_text(binary, m.group(2)) + m.group(4), PAGE.read_text())


def test_help_texts_are_current(binary):
    assert PAGE.read_text() == renewed(binary)


def test_every_tool_is_documented(binary):
    tools = re.findall(r"^  ([a-z-]+(?: [a-z-]+)?)  +", help_text(binary, "--help").split("Tools:")[1], re.M)
    shown = [m.group(2) for m in BLOCK.finditer(PAGE.read_text())]
    # All options of Polygraphy that have no effect are options of `run`.
    assert [f"{tool} --help{'-all' if tool == 'run' else ''}" for tool in tools] == [
        words for words in shown if words != "--help"]


def test_options_without_effect_are_shown_when_asked_for(binary):
    page = PAGE.read_text()
    for words in (m.group(2) for m in BLOCK.finditer(page) if m.group(2) != "--help"):
        tool = words.rsplit(" ", 1)[0]
        short, whole = help_text(binary, f"{tool} --help"), help_text(binary, f"{tool} --help-all")
        assert "has no effect: " not in short
        hidden = set(re.findall(r"^  (--[a-z-]+)", whole, re.M)) - set(re.findall(r"^  (--[a-z-]+)", short, re.M))
        assert hidden <= set(re.findall(r"^  (--[a-z-]+)", help_text(binary, "run --help-all"), re.M))
        assert ("--help-all" in short) == (short != whole) == bool(hidden)


if __name__ == "__main__" and "--write" in sys.argv:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    from cli_support import newest_binary

    PAGE.write_text(renewed(os.environ.get("ULPSCOPE_BIN") or newest_binary("ulpscope")))
