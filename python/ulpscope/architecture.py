"""For which processors a compiled file is: a package of another architecture says so, instead of not being found."""

from __future__ import annotations

import pathlib
import platform
from typing import Optional

#: By the number that ELF has for them; as platform.machine() calls them.
_MACHINES = {62: "x86_64", 183: "aarch64"}


def machine_of(file: pathlib.Path) -> Optional[str]:
    """Nothing for what is no ELF file of 64 bits, and for machines without a name here."""
    with file.open("rb") as stream:
        head = stream.read(20)
    is_elf = len(head) == 20 and head[:6] == b"\x7fELF\x02\x01"
    return _MACHINES.get(int.from_bytes(head[18:20], "little")) if is_elf else None


def complaint(file: pathlib.Path) -> Optional[str]:
    """What is wrong with a file that is for another processor than this one."""
    here, there = platform.machine(), machine_of(file)
    if there is None or there == here:
        return None
    found = f"[install] {file}: expected a file for {here}, got one for {there}"
    return f"{found}; try the wheel whose name ends in {here}.whl"
