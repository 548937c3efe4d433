"""The two ways in which a request can end early, under the names that they have in C++."""

from __future__ import annotations

import enum
from typing import Any


class ErrorCode(enum.Enum):
    """What kind of thing went wrong, for callers that react to it. People read the message."""

    INVALID_ARGUMENT = "invalid argument"  #: A value, name, shape or type that does not fit.
    NOT_FOUND = "not found"  #: A file, layer, tensor, program or module that is not there.
    UNSUPPORTED = "unsupported"  #: Well-formed, but outside of what ulpscope does.
    INVALID_FILE = "invalid file"  #: A file whose content is malformed.
    IO = "input/output"  #: The operating system refused (permissions, full disk, ...).
    BUILD = "build"  #: No engine satisfies the constraints.
    SCRIPT = "script"  #: A user's script or the Python worker failed.
    INTERRUPTED = "interrupted"  #: The user asked to stop.


class Error(RuntimeError):
    """Ends a request; the user or the machine can fix the cause."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, *self.args)


def invalid_argument(message: str) -> Error:
    return Error(ErrorCode.INVALID_ARGUMENT, message)


def missing_package(where: str, name: str, advice: str) -> Error:
    return Error(ErrorCode.NOT_FOUND, f"[{where}] the package {name} is not installed; try {advice}")


class InternalError(AssertionError):
    """A defect of ulpscope itself. Unrelated to Error on purpose."""


def warn(message: str, *values: object) -> None:
    """A warning of the logger "ulpscope"."""
    import logging  # Late: it takes as long as the rest of the package, and mostly there is nothing to say.

    logging.getLogger("ulpscope").warning(message, *values)
