"""What tests in Python share: where the build is, the program, and the models."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def pytest_configure() -> None:
    """Processes of pytest-xdist ignore interrupts, and what they start would, too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _newest_build() -> pathlib.Path | None:
    programs = sorted(ROOT.glob("build/*/bin/ulpscope"), key=lambda path: path.stat().st_mtime)
    return programs[-1].parents[1] if programs else None


@pytest.fixture(scope="session")
def build_dir() -> pathlib.Path:
    """The build folder: ULPSCOPE_BUILD_DIR, else the one with the newest program."""
    folder = os.environ.get("ULPSCOPE_BUILD_DIR") or _newest_build()
    if folder is None:
        pytest.fail("no build folder; run scripts/build.sh release, or set ULPSCOPE_BUILD_DIR")
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def program(build_dir: pathlib.Path) -> pathlib.Path:
    """The program `ulpscope`."""
    path = build_dir / "bin" / "ulpscope"
    assert path.exists(), f"{path} is missing: build it first"
    return path


@pytest.fixture(scope="session")
def environment(build_dir: pathlib.Path) -> dict[str, str]:
    """An environment with `ulpscope` and `python3` (that of these tests) on PATH, in which `import ulpscope` works."""
    result = dict(os.environ)
    folders = [str(build_dir / "bin"), str(pathlib.Path(sys.executable).parent), result.get("PATH", "")]
    result["PATH"] = os.pathsep.join(folders)
    result["PYTHONPATH"] = str(build_dir / "python")
    return result


def _generate(scripts: list[str], ready: pathlib.Path, folder: pathlib.Path) -> None:
    """Runs make_models.py for the models in `scripts`, once: a folder appears whole or not at all."""
    source = ROOT / "tests" / "models" / "make_models.py"
    if ready.exists() and ready.stat().st_mtime >= source.stat().st_mtime:
        return
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".making-{os.getpid()}"
    done = subprocess.run([sys.executable, str(source), str(fresh), *scripts], capture_output=True, text=True)
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        pytest.fail("tests/models/make_models.py failed; did scripts/setup.sh --tests run?\n" + done.stderr[-2000:])
    for path in sorted(fresh.iterdir(), key=lambda path: path.name == ready.name):
        path.replace(folder / path.name)
    fresh.rmdir()
    ready.touch()


@pytest.fixture(scope="session")
def models() -> pathlib.Path:
    """A folder with needs_constraints.onnx, minilm.onnx, ocr_det.onnx, ocr_cls.onnx, minilm_planted.onnx, each with
    NAME.search.json, NAME.calib.json and NAME.held.json. Kept in build/models."""
    folder = ROOT / "build" / "models"
    _generate([], folder / "ocr_cls.onnx", folder)
    return folder


@pytest.fixture(scope="session")
def needs_constraints(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """needs_constraints.onnx alone, which needs no packages with weights."""
    folder = tmp_path_factory.mktemp("needs_constraints")
    _generate(["needs_constraints"], folder / "needs_constraints.onnx", folder)
    return folder / "needs_constraints.onnx"
