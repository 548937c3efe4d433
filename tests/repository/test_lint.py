"""scripts/lint.py: it looks at what has changed, and at nothing else."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import lint  # noqa: E402


needs_tools = pytest.mark.skipif(
    not (lint.TOOLS / "ruff").exists() or not (lint.TOOLS / "clang-format").exists(),
    reason="ruff and clang-format are not installed: scripts/setup.sh --tests",
)


@needs_tools
def test_only_statements_with_changed_lines_are_formatted() -> None:
    text = "a=1\nb = f(1,\n      2)\nc=3\n"
    assert lint.format_python("x.py", text, [range(4, 5)]) == "a=1\nb = f(1,\n      2)\nc = 3\n"
    assert lint.format_python("x.py", text, [range(1, 2), range(3, 4)]) == "a = 1\nb = f(1, 2)\nc=3\n"
    assert lint.format_python("x.py", text, [range(1, 1 << 30)]) == "a = 1\nb = f(1, 2)\nc = 3\n"
    text = "int  a;\nint  b;\n"
    assert lint.format_cpp("x.cpp", text, [range(2, 3)]) == "int  a;\nint b;\n"


def test_what_a_formatter_would_make_is_said() -> None:
    assert lint.unformatted("a=1\nb = 2\nc=3\n", "a=1\nb = 2\nc = 3\n") == [(3, "is to be\n    c = 3")]
    assert lint.unformatted("a\n\n\nb\n", "a\n\nb\n") == [(3, "is to go, and 0 more")]
    assert lint.unformatted("a\n", "a\n") == []


def test_long_lines_are_found_where_they_can_be_broken() -> None:
    long = "word " * 25
    assert [line for line, _ in lint.too_long(f"{long}\n{long}\n", [range(2, 3)])] == [2]
    assert lint.too_long(f"see http://{long}\n{'x' * 130}\n{long[:120]}", [range(1, 9)]) == []


def test_clang_tidy_is_heard_on_changed_lines_and_on_errors() -> None:
    output = "\n".join(
        f"{path}:{line}:5: {kind}: text [check]"
        for path, line, kind in [
            (lint.ROOT / "src/a.cpp", 3, "warning"),
            (lint.ROOT / "src/a.cpp", 4, "warning"),
            (lint.ROOT / "src/a.cpp", 4, "note"),
            ("/usr/include/b.h", 3, "warning"),
            (lint.ROOT / "src/c.h", 9, "error"),
        ]
    )
    told = lint._told(output, {"src/a.cpp": [range(3, 4)]})
    assert [line.removeprefix(str(lint.ROOT)).split(": ")[0] for line in told] == ["/src/a.cpp:3:5", "/src/c.h:9:5"]


@pytest.fixture
def repository(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Two commits, and a file that is in neither."""
    monkeypatch.setattr(lint, "ROOT", tmp_path)

    def git(*words: str) -> None:
        identity = ["-c", "user.name=N", "-c", "user.email=n@example.com"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "old.py").write_text("a = 1\nb = 2\nc = 3\n")
    (tmp_path / "gone.py").write_text("a = 1\n")
    git("add", ".")
    git("commit", "-m", "One")
    (tmp_path / "old.py").write_text("a = 1\nb = 20\nc = 3\n\nd = 4\n")
    (tmp_path / "gone.py").unlink()
    git("commit", "-a", "-m", "Two")
    (tmp_path / "new.py").write_text("a=1\n")
    return tmp_path


def test_changes_are_those_since_the_last_commit(repository: pathlib.Path) -> None:
    changed = lint.changed_lines(lint.base_commit())
    assert changed["old.py"] == [range(2, 3), range(4, 6)]
    assert set(changed) == {"old.py", "new.py"}


@needs_tools
def test_findings_are_printed_and_fixed(
    repository: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["lint.py"])
    assert lint.main() == 1
    out = capsys.readouterr().out
    assert "new.py:1: is to be\n    a = 1\n" in out and "old.py" not in out
    monkeypatch.setattr(sys, "argv", ["lint.py", "--fix", "--junit", str(repository / "lint.xml")])
    assert lint.main() == 0
    assert (repository / "new.py").read_text() == "a = 1\n"
    assert (repository / "lint.xml").read_text() == '<testsuite><testcase name="lint" /></testsuite>'


def test_sources_in_units_have_commands_of_their_own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    unit = tmp_path / "build" / "Unity" / "unity_0.cxx"
    unit.parent.mkdir(parents=True)
    unit.write_text(f'#include "{tmp_path}/src/a.cpp"\n#include "{tmp_path}/src/b.cpp"\n')
    entries = [
        {"directory": "/d", "command": f"c++ -I x -c {unit}", "file": str(unit)},
        {"directory": "/d", "command": f"c++ -c {tmp_path}/cli/c.cpp", "file": f"{tmp_path}/cli/c.cpp"},
    ]
    (tmp_path / "build" / "compile_commands.json").write_text(json.dumps(entries))
    commands = lint.commands_of(tmp_path / "build")
    assert sorted(commands) == ["cli/c.cpp", "src/a.cpp", "src/b.cpp"]
    assert commands["src/b.cpp"] == {
        "directory": "/d", "command": f"c++ -I x -c {tmp_path}/src/b.cpp", "file": f"{tmp_path}/src/b.cpp",
    }  # fmt: skip
