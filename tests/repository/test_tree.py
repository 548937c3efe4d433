"""What lies where in the repository, and that its scripts leave nothing there."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = {
    ".ci", ".github", "bench", "cli", "cmake", "data", "docs", "examples", "include", "python", "schemas", "scripts",
    "src", "tests",
}  # fmt: skip
FILES = {
    ".clang-format", ".clang-tidy", ".dockerignore", ".gitignore", "CHANGELOG.md", "CMakeLists.txt",
    "CMakePresets.json", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "README.md", "README.zh.md", "action.yml",
    "mkdocs.yml", "pyproject.toml",
}  # fmt: skip
# Scripts that people start: the rest is imported, or started by other scripts with arguments of their own.
SCRIPTS = sorted(
    path
    for folder in ("tests/gpu", "tests/models", "tests/fuzz")
    for path in (ROOT / folder).glob("*.py")
    if '__name__ == "__main__"' in path.read_text() and path.name not in ("worker.py", "peak_of.py")
)


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("this is no clone: only git knows which files are the repository's")
    return [path for path in done.stdout.split("\0") if (ROOT / path).exists()]


def test_the_root_holds_only_what_it_should() -> None:
    top = {path.partition("/")[0] for path in tracked()}
    assert top - FOLDERS - FILES - {""} == set(), "a new file or folder at the root is a decision: name it in this test"
    assert FOLDERS | FILES <= top


def test_no_model_is_outside_of_the_folders_of_data() -> None:
    """Scripts make models; the ones that are kept have recorded results beside them, or are the corpus of a fuzz
    target."""
    models = [path for path in tracked() if path.endswith((".onnx", ".plan", ".npz"))]
    assert [path for path in models if not path.startswith(("tests/truth/", "tests/fuzz_targets/corpus/"))] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_help_is_shown_and_nothing_is_written(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = subprocess.run([sys.executable, str(script), "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: "), done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
