"""docs/cli.md holds the help texts of all tools as they are. `python tests/cli/test_docs.py --write` renews them."""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
BLOCK = re.compile(r"(```text\n\$ ulpscope ([^\n]*--help)\n)(.*?)(```\n)", re.S)


def help_text(binary, words):
    return subprocess.run([str(binary), *words.split()], text=True, capture_output=True, check=True).stdout


def renewed(binary):
    return BLOCK.sub(lambda m: m.group(1) + help_text(binary, m.group(2)) + m.group(4), PAGE.read_text())


def test_help_texts_are_current(binary):
    assert PAGE.read_text() == renewed(binary)


def test_every_tool_is_documented(binary):
    tools = re.findall(r"^  ([a-z-]+(?: [a-z-]+)?)  +", help_text(binary, "--help").split("Tools:")[1], re.M)
    shown = [m.group(2) for m in BLOCK.finditer(PAGE.read_text())]
    assert [f"{tool} --help" for tool in tools] == [words for words in shown if words != "--help"]


if __name__ == "__main__" and "--write" in sys.argv:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    from cli_support import newest_binary

    PAGE.write_text(renewed(os.environ.get("ULPSCOPE_BIN") or newest_binary("ulpscope")))
