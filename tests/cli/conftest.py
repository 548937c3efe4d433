"""Fixtures of the tests of the program."""
import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

from browser import Browser
from cli_support import Outcome, dynamic_add, encode_array, needs_constraints, newest_binary
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


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def answer(run, model, tmp_path):
    """That of a search, as it is in the file."""
    iterations = [{"x": np.random.default_rng(i).uniform(1, 2, (1, 1, 256, 256)).astype(np.float32)} for i in range(4)]
    (tmp_path / "in.json").write_text(
        json.dumps([{name: encode_array(a) for name, a in each.items()} for each in iterations])
    )
    words = (
        "--objective smallest --load-inputs in.json --fp16 --fusion none --atol 1e-3 --rtol 1e-2 --save-answer a.json"
    )
    outcome = run("precision", "search", model, *words.split())
    assert outcome.code == 0, outcome
    return json.loads((tmp_path / "a.json").read_text())


@pytest.fixture
def opened(run, browser, tmp_path):
    """Opens the page of an answer; returns the text of the page."""

    def call(answer, *words, width=1280, dark=False, height=900):
        (tmp_path / "shown.json").write_text(json.dumps(answer))
        outcome = run("report", "shown.json", "-o", "r.html", *words)
        assert outcome.code == 0, outcome
        browser.look_like(width, height, dark=dark, touch=width < 600)
        browser.open(tmp_path / "r.html")
        browser.settle()
        return (tmp_path / "r.html").read_text(encoding="utf-8")

    yield call
    # Pixels are read back by these tests alone.
    assert [message for message in browser.messages if "getImageData" not in message[1]] == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))] == []
