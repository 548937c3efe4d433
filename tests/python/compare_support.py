"""What tests against Polygraphy share: the program that runs src/compare alone, and files as Polygraphy writes them."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

polygraphy_json = pytest.importorskip("polygraphy.json")
from polygraphy.logger import G_LOGGER  # noqa: E402

from limits import HANGS


@pytest.fixture(scope="session")
def cli(build_dir: pathlib.Path):
    program = build_dir / "bin" / "compare_cli"
    assert program.exists(), f"{program} is missing: build the target compare_cli"

    def call(*arguments: object) -> subprocess.CompletedProcess:
        return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, timeout=HANGS)

    return call


def save(obj: object, path: pathlib.Path) -> pathlib.Path:
    G_LOGGER.module_severity = G_LOGGER.ERROR
    polygraphy_json.save_json(obj, str(path))
    return path
