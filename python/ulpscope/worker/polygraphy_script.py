"""Scripts that Polygraphy's own command line writes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from typing import Any, List

from .errors import WorkerError
from .scripts import set_up_polygraphy


def polygraphy_script(server: Any, tool: str, words: List[str], output: str) -> str:
    """What `polygraphy TOOL WORD...` writes to the file of its option ``output``."""
    set_up_polygraphy()
    from polygraphy.tools import main

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        command = ["polygraphy", *tool.split(), *words]
        log = io.StringIO()
        before, sys.argv = sys.argv, [*command, output, path]
        try:
            with contextlib.redirect_stdout(log):
                status = main()
        except SystemExit as error:  # Of argparse, which has printed why.
            status = error.code
        finally:
            sys.argv = before
        print("".join(line for line in log.getvalue().splitlines(keepends=True) if path not in line), end="")
        if status or not os.path.exists(path):
            raise WorkerError("script", f"[gen-script] Polygraphy refuses `{' '.join(command)}`: see what it wrote")
        with open(path, encoding="utf-8") as file:
            return file.read().replace(f" {output} {path}", "")
