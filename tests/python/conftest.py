"""Makes `import ulpscope` find the package of the build."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _built_package() -> pathlib.Path | None:
    if folder := os.environ.get("ULPSCOPE_BUILD_DIR"):
        return pathlib.Path(folder) / "python"
    modules = sorted(ROOT.glob("build/*/python/ulpscope/_core*.so"), key=lambda path: path.stat().st_mtime)
    return modules[-1].parents[1] if modules else None


if package := _built_package():
    sys.path.insert(0, str(package))


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The working directory, and empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def samples(folder: pathlib.Path) -> list:
    """Of m.onnx, which is there: a network that float16 does not suit."""
    from small_models import uneven

    return uneven(folder / "m.onnx")
