"""Errors that the program shows to its user, and how exceptions of scripts become such errors."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any, Dict, List, Optional


class WorkerError(Exception):
    """Ends the current call. ``code`` is a name of ulpscope's ErrorCode ("not_found", "script", ...)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ProgramError(RuntimeError):
    """The program refused what a script asked for (a model that is not there, ...). Scripts may catch it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _user_frames(error: BaseException) -> List[traceback.FrameSummary]:
    """Without ours and Polygraphy's."""
    polygraphy = getattr(sys.modules.get("polygraphy"), "__file__", None)
    libraries = (_HERE, os.path.join(os.path.dirname(polygraphy), "")) if polygraphy else (_HERE,)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    return [frame for frame in frames if not os.path.abspath(frame.filename).startswith(libraries)]


def describe(error: BaseException, place: str) -> Dict[str, str]:
    """The error message of an exception that a script raised while it ran as ``place``."""
    if isinstance(error, ModuleNotFoundError) and error.name == "polygraphy":
        error = missing_package("polygraphy", f"for {place}; it is in the extra ulpscope[scripts]")
    if isinstance(error, WorkerError):
        return {"code": error.code, "message": str(error)}
    frames = _user_frames(error)
    if isinstance(error, UnicodeDecodeError) and not frames:  # Of a name that onnx or ONNX Runtime handed out.
        name = bytes(error.object).decode("utf-8", "replace")
        text = f"[script] {place}: expected names in UTF-8, got '{name}', which ONNX's packages in Python do not take"
        return {"code": "unsupported", "message": f"{text}; try another name for this input or output"}
    if isinstance(error, SystemExit):
        what = f"called exit with status {error.code!r}"
    elif isinstance(error, KeyboardInterrupt):
        what = "was interrupted"
    else:
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        what = f"raised {text}"
    code = error.code if isinstance(error, ProgramError) else "script"
    lines = [f"[script] {place}: {what}"]
    if frames:
        lines.append("Traceback (most recent call last):")
        lines.extend(line for line in "".join(traceback.format_list(frames[-12:])).rstrip("\n").split("\n"))
    cause: Optional[BaseException] = error.__cause__
    if cause is not None and not isinstance(error, SystemExit):
        lines.append("caused by " + "".join(traceback.format_exception_only(type(cause), cause)).strip())
    return {"code": code, "message": "\n".join(lines)}


def package(name: str, purpose: str) -> Any:
    """The module of a package that may not be installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_package(name.split(".")[0], purpose) from error


def missing_package(package: str, purpose: str) -> WorkerError:
    """A Python package is not installed."""
    return WorkerError(
        "not_found",
        f"[script] worker: expected the Python package {package} ({purpose}), got none in '{sys.executable}'; "
        f"try '{sys.executable} -m pip install {package}'",
    )
