"""The tests of quantized layers with the instructions of other processors, as far as this one has them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import instruction_sets
import pytest

HERE = pathlib.Path(__file__).parent
FILES = ["test_quantized_layers.py", "test_quantized_products.py"]


@pytest.mark.parametrize("isa", instruction_sets.parameters()[1:])
def test_quantized_layers(isa: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *FILES]
    environment = {**os.environ, **instruction_sets.settings(isa)}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
