"""Starts the program `ulpscope` that is installed inside of this package."""

from __future__ import annotations

import os
import pathlib
import sys

from ulpscope.architecture import complaint


def main() -> None:
    program = pathlib.Path(__file__).with_name("bin") / "ulpscope"
    if not program.exists():
        sys.exit(f"[install] expected the program at {program}, found none; try an installed package, or the program of a build folder")
    os.environ.setdefault("ULPSCOPE_PYTHON", sys.executable)  # where its worker runs
    try:
        os.execv(program, ["ulpscope", *sys.argv[1:]])
    except OSError as error:
        sys.exit(complaint(program) or f"[install] could not start {program}: {error.strerror}")


if __name__ == "__main__":
    main()
