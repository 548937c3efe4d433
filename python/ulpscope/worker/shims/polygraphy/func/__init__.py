"""Functions that extend other functions."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

from ..exception import PolygraphyException


def extend(extend_func: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated function gets what ``extend_func`` returns.

    A tuple is spread over the parameters. The caller gets what the decorated function returns, or what ``extend_func``
    returned if that is None. A function that takes the parameters of ``extend_func`` in front of its results gets both.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def extended(*args: Any, **kwargs: Any) -> Any:
            returned = extend_func(*args, **kwargs)
            results = returned if type(returned) is tuple else (returned,)
            parameters = list(inspect.signature(function).parameters)
            if not parameters and results == (None,):
                value = function()
            elif len(parameters) == len(results):
                value = function(*results)
            elif len(parameters) == len(results) + len(args) + len(kwargs):
                named = dict(zip(parameters[len(parameters) - len(results) :], results))
                value = function(*args, **kwargs, **named)
            else:
                ours = getattr(function, "__name__", repr(function))
                theirs = getattr(extend_func, "__name__", type(extend_func).__name__)
                types = ", ".join(type(result).__name__ for result in results)
                raise PolygraphyException(
                    f"Function: {ours} accepts {len(parameters)} parameter(s), but needs to accept {len(results)} parameter(s) "
                    f"from: {theirs} instead.\nNote: Parameters should be: ({types})"
                )
            return returned if value is None else value

        return extended

    return decorate


def invoke(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function returns; a loader is a function, too."""
    return function(*args, **kwargs)


def constantmethod(method: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator without effect here."""
    return method
