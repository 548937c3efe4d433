"""Fixtures of the tests of the program."""
import os
import subprocess
import sys

import onnx
import pytest

from cli_support import Outcome, dynamic_add, needs_constraints, newest_binary
from limits import HANGS


@pytest.fixture(scope="session")
def binary():
    path = newest_binary("ulpscope")
    if path is None:
        pytest.skip("ulpscope is not built")
    return path


@pytest.fixture(scope="session")
def dump_arguments():
    path = newest_binary("dump_arguments")
    if path is None:
        pytest.skip("dump_arguments is not built")
    return path


@pytest.fixture
def run(binary, tmp_path):
    """Runs `ulpscope WORD...` in the test's own folder."""

    def call(*words, env=None, stdin=None, stdout=subprocess.PIPE, timeout=HANGS):
        environment = dict(os.environ)
        environment.setdefault("ULPSCOPE_PYTHON", sys.executable)
        environment.update(env or {})
        return Outcome(
            subprocess.run(
                [str(binary), *map(str, words)],
                cwd=tmp_path,
                env=environment,
                text=True,
                errors="replace",
                input=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                timeout=timeout,
            )
        )

    return call


@pytest.fixture
def polygraphy(tmp_path):
    """Runs pip's `polygraphy WORD...` in the test's own folder."""
    pytest.importorskip("polygraphy")
    program = "import sys; from polygraphy.tools import main; sys.exit(main())"

    def call(*words):
        return Outcome(subprocess.run([sys.executable, "-c", program, *map(str, words)], cwd=tmp_path, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=HANGS))

    return call


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "needs_constraints.onnx"
    onnx.save(needs_constraints(), path)
    return path


@pytest.fixture
def dynamic_model(tmp_path):
    path = tmp_path / "dynamic.onnx"
    onnx.save(dynamic_add(), path)
    return path
