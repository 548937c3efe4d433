"""Runs the commands that README files show: every ```bash block, in order, in a copy of the README's folder.

A block must end with exit code 0, or with the code of the comment `<!-- exit: N -->` in front of it. Blocks behind
`<!-- skip: REASON -->` are not run.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import textwrap
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
READMES = sorted(ROOT.glob("examples/*/*/README.md"))

BLOCK = re.compile(
    r"(?:^ *<!-- (?P<marker>exit|skip): (?P<value>[^>]+) -->\s*\n)?^ *```bash\n(?P<text>.*?)^ *```", re.M | re.S
)


class Command(NamedTuple):
    line: int
    text: str
    exit_code: int


def commands(readme: str) -> list[Command]:
    result = []
    for match in BLOCK.finditer(readme):
        if match["marker"] == "skip":
            continue
        exit_code = int(match["value"]) if match["marker"] == "exit" else 0
        result.append(
            Command(readme.count("\n", 0, match.start("text")) + 1, textwrap.dedent(match["text"]), exit_code)
        )
    return result


def test_blocks_and_markers_are_found():
    text = "a\n```bash\none\n```\n\n1. b\n\n   <!-- exit: 1 -->\n   ```bash\n   two \\\n     three\n   ```\n<!-- skip: no -->\n```bash\nx\n```\n"
    assert commands(text) == [Command(3, "one\n", 0), Command(10, "two \\\n  three\n", 1)]


@pytest.mark.parametrize("readme", READMES, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_commands_of_readme(readme: pathlib.Path, tmp_path: pathlib.Path, environment: dict[str, str], request):
    text = readme.read_text()
    blocks = commands(text)
    assert blocks, f"{readme} shows no command"
    if "find_package" in text or "CMAKE_PREFIX_PATH" in text:
        environment = {**environment, "CMAKE_PREFIX_PATH": str(request.getfixturevalue("installed"))}
    folder = tmp_path / readme.parent.name
    shutil.copytree(readme.parent, folder)
    for block in blocks:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", block.text],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == block.exit_code, (
            f"{readme}:{block.line}: expected exit code {block.exit_code}, got {done.returncode}\n"
            f"{block.text}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
        )


@pytest.fixture(scope="session")
def installed(build_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What `cmake --install` makes of the build."""
    prefix = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(
        ["cmake", "--install", str(build_dir), "--prefix", str(prefix)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return prefix
