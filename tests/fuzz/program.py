"""The program `ulpscope`, for one run of a model with words that say its precisions."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import List, Sequence

from cli.cli_support import encode_array

from .graph import Arrays


def path() -> pathlib.Path:
    """That of the environment, or the one beside the package."""
    import ulpscope

    beside = pathlib.Path(ulpscope.__file__).absolute().parents[2] / "bin" / "ulpscope"
    return pathlib.Path(os.environ.get("ULPSCOPE_BIN", beside))


def save_inputs(file: pathlib.Path, feeds: Sequence[Arrays]) -> None:
    """As --load-inputs reads them."""
    file.write_text(json.dumps([{name: encode_array(value) for name, value in feed.items()} for feed in feeds]))


def run(folder: pathlib.Path, *words: str) -> List[Arrays]:
    """The outputs of `ulpscope run WORDS` on in.json of the folder. Raises RuntimeError with what it printed."""
    from ulpscope.native import _core

    command = [str(path()), "run", *words, "--load-inputs", "in.json", "--save-outputs", "out.json"]
    environment = {**os.environ, "ULPSCOPE_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}: {(done.stderr or done.stdout)[-600:]}")
    return _core.load_outputs(folder / "out.json")
