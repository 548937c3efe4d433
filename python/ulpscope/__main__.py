"""Starts the program `ulpscope` that is installed inside of this package."""

from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).with_name("bin") / "ulpscope"
    if not program.exists():
        sys.exit(f"[install] expected the program at {program}, found none; try an installed package, or the program of a build folder")
    os.environ.setdefault("ULPSCOPE_PYTHON", sys.executable)  # where its worker runs
    os.execv(program, ["ulpscope", *sys.argv[1:]])


if __name__ == "__main__":
    main()
