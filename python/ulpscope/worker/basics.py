"""Methods that need no backend."""

from __future__ import annotations

from typing import Any


def echo(server: Any, value: Any = None, ask: bool = False, repeat: int = 0) -> Any:
    """What it was given; through the program and back if ``ask``. For tests of the protocol."""
    for _ in range(repeat):
        print("x" * 1000)
    return server.request("echo", {"value": value}) if ask else value
