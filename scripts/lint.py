#!/usr/bin/env python3
"""Formatters and linters, on what has changed.

    python scripts/lint.py [BASE] [--build FOLDER] [--fix]

BASE is a commit: the default is where this branch left origin's main, or, where there is no such branch, the last
commit but one. Everything since then counts, committed or not. ruff looks at changed files; ruff format and
clang-format at changed lines, since older files have forms of their own; clang-tidy (.clang-tidy) at the changed
lines of sources that the build FOLDER (default: build/release) has compiled; mypy at all of python/ulpscope when a
file of it has changed. Prints what is wrong, with the line; exits 1 if anything is.
"""

from __future__ import annotations

import argparse
import difflib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOLS = pathlib.Path(sys.executable).parent
EXCLUDED = ("tests/fuzz_targets/corpus/",)
CPP, PYTHON = (".cpp", ".h"), (".py",)
PACKAGE = "python/ulpscope"
LONGEST = 120  #: Columns of a line, whatever a formatter cannot break.
TIDIED = 12  #: Sources that clang-tidy looks at: it takes some seconds for each.

Ranges = list[range]  #: Lines, from 1.


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def base_commit() -> str:
    """Where the branch began; "" without git."""
    for branch in ("origin/main", "origin/HEAD"):
        if found := _git("merge-base", "HEAD", branch).strip():
            return found if _git("diff", "--name-only", found).strip() else "HEAD~1"
    return _git("rev-parse", "--verify", "HEAD~1").strip()


def changed_lines(base: str) -> dict[str, Ranges]:
    """Per file that is there: the lines that `base` did not have."""
    result: dict[str, Ranges] = {}
    path = ""
    for line in _git("diff", "--unified=0", "--no-color", "--no-ext-diff", base).splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/") if line.startswith("+++ b/") else ""
        elif path and (hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            if count > 0:
                result.setdefault(path, []).append(range(first, first + count))
    for path in _git("ls-files", "--others", "--exclude-standard").splitlines():
        result[path] = [range(1, 1 << 30)]
    return {path: lines for path, lines in result.items() if (ROOT / path).is_file() and not path.startswith(EXCLUDED)}


def touches(lines: Ranges, first: int, last: int) -> bool:
    """Whether one of the lines first ... last is among them."""
    return any(each.start <= last and first < each.stop for each in lines)


def unformatted(text: str, formatted: str) -> list[tuple[int, str]]:
    """Where the formatter changes lines: the line, and what it makes."""
    ours, theirs = text.splitlines(), formatted.splitlines()
    result = []
    for kind, begin, end, new_begin, new_end in difflib.SequenceMatcher(None, ours, theirs, False).get_opcodes():
        if kind != "equal":
            made = "\n".join(f"    {line}" for line in theirs[new_begin:new_end])
            what = f"is to be\n{made}" if made else f"is to go, and {end - begin - 1} more"
            result.append((begin + 1, what))
    return result


def too_long(text: str, lines: Ranges) -> list[tuple[int, str]]:
    """Changed lines beyond the limit, but for links and single words, which cannot be broken."""
    return [
        (number, f"has {len(line)} columns, more than {LONGEST}")
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > LONGEST and touches(lines, number, number) and " " in line.strip() and "http" not in line
    ]


def _run(*command: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], cwd=ROOT, input=text, capture_output=True, text=True)


def format_python(path: str, text: str, lines: Ranges) -> str:
    """With the statements that these lines belong to formatted; from the last to the first, since lines move."""
    for each in reversed(lines):
        last = text.count("\n")
        end = str(each.stop) if each.stop <= last else f"{last}:999"
        words = [f"--range={each.start}-{end}", "--stdin-filename", path, "-"]
        done = _run(TOOLS / "ruff", "format", "--quiet", *words, text=text)
        if done.returncode != 0:
            sys.exit(f"[lint] ruff format {path}: {done.stderr}")
        text = done.stdout
    return text


def format_cpp(path: str, text: str, lines: Ranges) -> str:
    """The same, by clang-format."""
    last = text.count("\n") + 1
    words = [f"--lines={each.start}:{min(each.stop - 1, last)}" for each in lines]
    done = _run(TOOLS / "clang-format", f"--assume-filename={path}", *words, text=text)
    if done.returncode != 0:
        sys.exit(f"[lint] clang-format {path}: {done.stderr}")
    return done.stdout


def _check_format(files: dict[str, Ranges], formatter: Callable[[str, str, Ranges], str], fix: bool) -> list[str]:
    found = []
    for path, lines in files.items():
        text = (ROOT / path).read_text()
        formatted = formatter(path, text, lines)
        if fix and formatted != text:
            (ROOT / path).write_text(formatted)
            continue
        wrong = [*unformatted(text, formatted), *too_long(text, lines)]
        found += [f"{path}:{line}: {what}" for line, what in wrong]
    return found


def commands_of(build: pathlib.Path) -> dict[str, dict[str, str]]:
    """The command of each source, by its path in the repository: its own, or that of the unit that includes it."""
    result: dict[str, dict[str, str]] = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        unit = pathlib.Path(command["file"])
        inside = re.findall(r'#include "([^"]+)"', unit.read_text()) if unit.parent.name == "Unity" else [str(unit)]
        for path in map(pathlib.Path, inside):
            if path.is_relative_to(ROOT):
                words = command["command"].replace(str(unit), str(path))
                result[str(path.relative_to(ROOT))] = {**command, "file": str(path), "command": words}
    return result


def _told(output: str, files: dict[str, Ranges]) -> list[str]:
    """What clang-tidy says of changed lines, and every error: older lines are as they are."""
    result = []
    for line in output.splitlines():
        if found := re.match(r"(.+?):(\d+):\d+: (warning|error): ", line):
            path = pathlib.Path(found[1])
            lines = files.get(str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else "", [])
            if found[3] == "error" or touches(lines, int(found[2]), int(found[2])):
                result.append(line)
    return result


def _headers_of_gcc() -> list[str]:
    """Where GCC has omp.h, which pip's clang-tidy comes without; behind all other folders."""
    if shutil.which("g++") is None:
        return []
    folder = pathlib.Path(_run("g++", "-print-file-name=include").stdout.strip())
    return [f"--extra-arg=-idirafter{folder}"] if (folder / "omp.h").exists() else []


def _tidy(files: dict[str, Ranges], build: pathlib.Path) -> list[str]:
    if not (build / "compile_commands.json").exists():
        print(f"[lint] no compile_commands.json in {build}: clang-tidy was left out")
        return []
    known = commands_of(build)
    chosen = [path for path in files if path in known and path.startswith(("src/", "cli/")) and path.endswith(".cpp")]
    if len(chosen) > TIDIED:
        print(f"[lint] clang-tidy looks at {TIDIED} of {len(chosen)} changed sources")
    found, headers = [], _headers_of_gcc()
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps([known[path] for path in chosen]))
        for path in chosen[:TIDIED]:
            done = _run(TOOLS / "clang-tidy", "--quiet", "-p", folder, *headers, path)
            found += _told(done.stdout, files)
    return found


def _check_types() -> list[str]:
    output = _run(TOOLS / "mypy", "--strict", "--no-error-summary", PACKAGE)
    return (output.stdout + output.stderr).splitlines()


def _report(found: list[str]) -> str:
    suite = ElementTree.Element("testsuite")
    case = ElementTree.SubElement(suite, "testcase", name="lint")
    if found:
        ElementTree.SubElement(case, "failure", message="\n".join(found))
    return ElementTree.tostring(suite, encoding="unicode")


def main() -> int:
    """Prints what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", nargs="?", default="", help="a commit")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="what clang-tidy reads")
    parser.add_argument("--fix", action="store_true", help="format changed lines")
    parser.add_argument("--junit", type=pathlib.Path, help="write what was found there, as a test")
    options = parser.parse_args()
    base = options.base or base_commit()
    if not base:
        print("[lint] there is no commit to compare with: nothing is looked at")
    if lacking := [name for name in ("ruff", "clang-format", "clang-tidy", "mypy") if not (TOOLS / name).exists()]:
        sys.exit(f"[lint] not installed beside {sys.executable}: {', '.join(lacking)}; try scripts/setup.sh --tests")
    changed = changed_lines(base) if base else {}
    cpp = {path: lines for path, lines in changed.items() if path.endswith(CPP)}
    python = {path: lines for path, lines in changed.items() if path.endswith(PYTHON)}
    found = _check_format(python, format_python, options.fix)
    found += _check_format(cpp, format_cpp, options.fix)
    if python:
        found += _run(TOOLS / "ruff", "check", "--quiet", "--output-format", "concise", *python).stdout.splitlines()
    if any(path.startswith(f"{PACKAGE}/") for path in python):
        found += _check_types()
    found += _tidy(cpp, options.build)
    print(*found, sep="\n", end="\n" if found else "")
    if options.junit:
        options.junit.write_text(_report(found))
    print(f"[lint] {len(cpp)} files of C++, {len(python)} of Python, changed since {base[:12]}: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
