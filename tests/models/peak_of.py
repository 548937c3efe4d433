"""Runs a command, and prints its peak of memory in bytes, its processor seconds and its exit status as the last line.

usage: peak_of.py COMMAND...

A process of its own, and a small one: the peak of a child counts what its parent had when it started the child.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import List, Tuple


def measure(words: List[str], folder: str) -> Tuple[int, float, int, str]:
    """Peak bytes, processor seconds, exit status and output of a command."""
    done = subprocess.run([sys.executable, "-S", __file__, *words], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    text, last = done.stdout[: done.stdout.rstrip().rfind("\n") + 1], done.stdout.split("\n")[-2]
    peak, seconds, status = last.split()[-3:]
    return int(peak), float(seconds), int(status), text


def main() -> None:
    pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
    _, status, usage = os.wait4(pid, 0)
    print(f"\n{usage.ru_maxrss * 1024} {usage.ru_utime + usage.ru_stime:.2f} {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
