"""Runs the commands that README.md, the examples, docs/index.md, docs/howto and docs/causes show: every ```bash block, in order, in a copy of the
examples.

A block must end with exit code 0, or with the code of the comment `<!-- exit: N -->` in front of it. Blocks behind
`<!-- skip: REASON -->` are not run. A ```text block shows lines of what the block before it prints, in order: `...`
stands for any text, a line `...` for any lines, and numbers with a point or an exponent may differ a little. What
depends on the processor is shown as `...`.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import textwrap
from typing import NamedTuple

import pytest

import instruction_sets
from limits import HANGS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted(ROOT.glob("examples/*/*/README.md")), *sorted(ROOT.glob("docs/howto/*.md")),
         *sorted(ROOT.glob("docs/causes/*.md"))]
TOLERANCE = 0.02

BLOCK = re.compile(
    r"(?:^ *<!-- (?P<marker>exit|skip): (?P<value>[^>]+) -->\s*\n)?^ *```(?P<kind>bash|text)\n(?P<text>.*?)^ *```",
    re.M | re.S,
)
REAL = re.compile(r"-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")


class Command(NamedTuple):
    line: int
    text: str
    exit_code: int
    shown: tuple[str, ...] = ()


def commands(page: str) -> list[Command]:
    result: list[Command] = []
    skipped = False
    for match in BLOCK.finditer(page):
        text = textwrap.dedent(match["text"])
        if match["kind"] == "text":
            if not skipped:
                lines = tuple(line for line in text.splitlines() if line.strip() not in ("", "..."))
                result[-1] = result[-1]._replace(shown=result[-1].shown + lines)
            continue
        skipped = match["marker"] == "skip"
        if not skipped:
            exit_code = int(match["value"]) if match["marker"] == "exit" else 0
            result.append(Command(page.count("\n", 0, match.start("text")) + 1, text, exit_code))
    return result


def pattern_of(shown: str) -> re.Pattern[str]:
    """What a line must look like; its real numbers are groups."""

    def pattern(part: str) -> str:
        return ".*" if part == "..." else f"({REAL.pattern})" if REAL.fullmatch(part) else re.escape(part)

    return re.compile("".join(map(pattern, re.split(rf"({REAL.pattern}|\.\.\.)", shown.strip()))))


def agrees(shown: str, line: str) -> bool:
    match = pattern_of(shown).fullmatch(line.strip())
    return match is not None and all(
        abs(float(a) - float(b)) <= TOLERANCE * abs(float(a)) for a, b in zip(REAL.findall(shown), match.groups())
    )


def first_missing(shown: tuple[str, ...], printed: str) -> str | None:
    """The first line of an excerpt that does not follow in what was printed."""
    lines = iter(printed.splitlines())
    return next((each for each in shown if not any(agrees(each, line) for line in lines)), None)


def test_blocks_and_markers_are_found():
    text = "a\n```bash\none\n```\n\n1. b\n\n   <!-- exit: 1 -->\n   ```bash\n   two \\\n     three\n   ```\n<!-- skip: no -->\n```bash\nx\n```\n"
    assert commands(text) == [Command(3, "one\n", 0), Command(10, "two \\\n  three\n", 1)]


def test_excerpts_are_held_against_what_is_printed():
    text = "```bash\nrun\n```\n\n```text\n[I] a 1.50\n...\n  in ... s: 3 (up to -2.5e-03)\n```\n<!-- skip: no -->\n```bash\nx\n```\n```text\ny\n```\n"
    (command,) = commands(text)
    assert command.shown == ("[I] a 1.50", "  in ... s: 3 (up to -2.5e-03)")
    assert first_missing(command.shown, "0\n[I] a 1.51\n\nin 0.1 s: 3 (up to -2.51e-03)\n") is None
    assert first_missing(command.shown, "[I] a 1.6\nin 0.1 s: 3 (up to -2.5e-03)\n") == command.shown[0]
    assert first_missing(command.shown, "[I] a 1.5\nin 0.1 s: 4 (up to -2.5e-03)\n") == command.shown[1]
    assert first_missing(command.shown, "in 0.1 s: 3 (up to -2.5e-03)\n[I] a 1.5\n") == command.shown[1]


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT)).removesuffix("/README.md")


def shows_numbers(page: pathlib.Path) -> bool:
    return any(REAL.search(line) for command in commands(page.read_text()) for line in command.shown)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_of_page(page: pathlib.Path, tmp_path: pathlib.Path, environment: dict[str, str], request):
    if "CMAKE_PREFIX_PATH" in page.read_text():
        environment = {**environment, "CMAKE_PREFIX_PATH": str(request.getfixturevalue("installed"))}
    run_page(page, tmp_path, environment)


@pytest.mark.parametrize("page", [page for page in PAGES if shows_numbers(page)], ids=name_of)
def test_numbers_of_pages_are_those_of_every_processor(
    page: pathlib.Path, tmp_path: pathlib.Path, environment: dict[str, str]
):
    """The least instructions beside the most, which the test before this one takes."""
    run_page(page, tmp_path, {**environment, **instruction_sets.settings("baseline")})


PYTHON = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
SMALL_DATA = """
import numpy as np

def two(count=2):
    for seed in range(count):
        yield {"x": np.random.default_rng(seed).uniform(1, 2, (1, 1, 256, 256)).astype(np.float32)}

def few_unseen():
    yield from two(4)
"""


def test_python_of_the_first_page(tmp_path: pathlib.Path, environment: dict[str, str]):
    """Behind the commands of the page, with a smaller network of the same files."""
    (block,) = PYTHON.findall((ROOT / "README.md").read_text())
    shutil.copytree(ROOT / "examples/cli/01_adding_precision_constraints", tmp_path, dirs_exist_ok=True)
    (tmp_path / "data.py").write_text(SMALL_DATA)
    (tmp_path / "block.py").write_text(block + "print(check.passed, list(outputs), info.error_vs_fp32 < 1e-2)\n")
    script = "python3 make_model.py && mv needs_constraints.onnx model.onnx && python3 block.py"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.endswith("True ['matmul_out_3'] True\n"), done.stdout + done.stderr
    real = (ROOT / "examples/cli/06_speech_quality/data.py").read_text()
    used = set(re.findall(r"data\.(\w+)\(", block))
    assert used and all(f"def {name}(" in real and f"def {name}(" in SMALL_DATA for name in used), used


def run_page(page: pathlib.Path, tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    blocks = commands(page.read_text())
    assert BLOCK.search(page.read_text()), f"{page} shows no command"
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    folder = tmp_path / page.parent.relative_to(ROOT) if page.is_relative_to(ROOT / "examples") else tmp_path
    for block in blocks:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", block.text],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANGS,
        )  # fmt: skip
        printed = f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
        assert done.returncode == block.exit_code, (
            f"{page}:{block.line}: expected exit code {block.exit_code}, got {done.returncode}\n{block.text}\n{printed}"
        )
        missing = first_missing(block.shown, done.stdout + done.stderr)
        assert missing is None, f"{page}:{block.line}: what follows the command is not printed:\n{missing}\n{printed}"


@pytest.fixture(scope="session")
def installed(build_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What `cmake --install` makes of the build."""
    prefix = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(
        ["cmake", "--install", str(build_dir), "--prefix", str(prefix)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return prefix
