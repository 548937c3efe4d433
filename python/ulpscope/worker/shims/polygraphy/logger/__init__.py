"""A logger with the module's levels and line format."""

from __future__ import annotations

import contextlib
import enum
import sys
from typing import Any, Callable, Dict, Iterator, Optional, Union

from ..exception import PolygraphyException


class LogMode(enum.IntEnum):
    EACH = 0
    ONCE = 1


class Logger:
    """Prints to stdout what is at least as severe as ``module_severity``."""

    ULTRA_VERBOSE = -10
    SUPER_VERBOSE = 0
    EXTRA_VERBOSE = 5
    VERBOSE = 10
    INFO = 20
    START = 22
    FINISH = 28
    WARNING = 30
    ERROR = 40
    CRITICAL = 50

    _TAGS = {ULTRA_VERBOSE: "U", SUPER_VERBOSE: "S", EXTRA_VERBOSE: "X", VERBOSE: "V", INFO: "I", START: "I", FINISH: "I", WARNING: "W",
             ERROR: "E", CRITICAL: "!"}  # fmt: skip

    def __init__(self, severity: int = INFO) -> None:
        self.module_severity: Any = severity
        self.logging_indent = 0
        self._once: Dict[str, bool] = {}

    def severity(self) -> int:
        value = self.module_severity
        if isinstance(value, dict):
            value = value.get("", self.INFO)
        return int(value)

    def log(self, message: Union[str, Callable[[], str]], severity: int, mode: LogMode = LogMode.EACH, **kwargs: Any) -> None:
        if severity < self.severity():
            return
        text = str(message() if callable(message) else message)
        if mode == LogMode.ONCE:
            if text in self._once:
                return
            self._once[text] = True
        indent = " " * 4 * self.logging_indent
        print(f"[{self._TAGS.get(severity, 'I')}] " + "\n".join(indent + line for line in text.split("\n")), flush=True)

    def ultra_verbose(self, message: Any, mode: LogMode = LogMode.EACH) -> None:
        self.log(message, self.ULTRA_VERBOSE, mode)

    def super_verbose(self, message: Any, mode: LogMode = LogMode.EACH) -> None:
        self.log(message, self.SUPER_VERBOSE, mode)

    def extra_verbose(self, message: Any, mode: LogMode = LogMode.EACH) -> None:
        self.log(message, self.EXTRA_VERBOSE, mode)

    def verbose(self, message: Any, mode: LogMode = LogMode.EACH) -> None:
        self.log(message, self.VERBOSE, mode)

    def info(self, message: Any, mode: LogMode = LogMode.EACH) -> None:
        self.log(message, self.INFO, mode)

    def start(self, message: Any, mode: LogMode = LogMode.EACH) -> None:
        self.log(message, self.START, mode)

    def finish(self, message: Any, mode: LogMode = LogMode.EACH) -> None:
        self.log(message, self.FINISH, mode)

    def warning(self, message: Any, mode: LogMode = LogMode.EACH) -> None:
        self.log(message, self.WARNING, mode)

    def error(self, message: Any, mode: LogMode = LogMode.EACH) -> None:
        self.log(message, self.ERROR, mode)

    def critical(self, message: Any, ExceptionType: Any = None) -> None:
        """Ends the script with this message."""
        raise (ExceptionType or PolygraphyException)(message() if callable(message) else message)

    def internal_error(self, message: Any) -> None:
        pass

    def log_exception(self, func: Callable[..., Any]) -> Callable[..., Any]:
        return func

    def backtrace(self, depth: int = 0, limit: Optional[int] = None, severity: int = ERROR) -> None:
        pass

    @contextlib.contextmanager
    def indent(self, level: int = 1) -> Iterator[None]:
        self.logging_indent += level
        try:
            yield
        finally:
            self.logging_indent -= level

    @contextlib.contextmanager
    def verbosity(self, severity: int = CRITICAL) -> Iterator[None]:
        old, self.module_severity = self.module_severity, severity
        try:
            yield
        finally:
            self.module_severity = old

    def __enter__(self) -> "Logger":
        return self

    def __exit__(self, *exception: Any) -> None:
        sys.stdout.flush()


G_LOGGER = Logger()
