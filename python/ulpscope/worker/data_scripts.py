"""Scripts that yield input data and that compare outputs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .errors import WorkerError
from .handles import Handles
from .protocol import as_array
from .scripts import describe_type, load_function, set_up_polygraphy

_loaders = Handles()


def open_data_loader(server: Any, path: str, function: str) -> int:
    """Calls ``load_data()``; the handle of what it returned."""
    data = load_function(path, function)()
    try:
        iterator = iter(data)
    except TypeError:
        raise WorkerError(
            "script", f"[script] {path}:{function}: expected something to iterate over (yield one dict per iteration), got {describe_type(data)}"
        ) from None
    if isinstance(data, dict):
        raise WorkerError("script", f"[script] {path}:{function}: expected one dict per iteration, got a single dict; try yield instead of return")
    return _loaders.add((f"{path}:{function}", iterator))


def next_data(server: Any, handle: int, path: str = "", function: str = "") -> Optional[List[Any]]:
    """[name, array] per input of the next iteration; None at the end."""
    place, iterator = _loaders[handle]
    try:
        feed = next(iterator)
    except StopIteration:
        return None
    return _named_arrays(feed, "input", "a dict", place)


def _named_arrays(given: Any, what: str, kind: str, place: str) -> List[Any]:
    """[name, array] of each that a script gave."""
    if not hasattr(given, "items"):
        raise WorkerError(
            "script", f"[script] {place}: expected {kind} of {what} names and arrays, got {describe_type(given)}"
        )
    result: List[Any] = []
    for name, value in given.items():
        if not isinstance(name, str):
            raise WorkerError("script", f"[script] {place}: expected {what} names, got the key {name!r}")
        try:
            result.append([name, as_array(value)])
        except (TypeError, ValueError) as error:
            raise WorkerError("script", f"[script] {place}: {what} '{name}': {error}") from None
    return result


def close_data_loader(server: Any, handle: int) -> None:
    """Forgets the loader (and runs a generator's clean-up)."""
    _, iterator = _loaders.pop(handle, ("", iter(())))
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


def _iteration(description: Dict[str, Any]) -> Any:
    set_up_polygraphy()
    from polygraphy.comparator import IterationResult

    # Polygraphy computes in NumPy's own types alone. Those of ml_dtypes are narrower than float32.
    outputs = {name: array.astype("f4") if array.dtype.kind == "V" else array for name, array in description["outputs"]}
    return IterationResult(outputs, description["runtime"], description["runner_name"])


def compare(server: Any, path: str, function: str, first: Dict[str, Any], second: Dict[str, Any]) -> Dict[str, Any]:
    """Verdicts of ``compare_outputs(result0, result1)``: per output for a dict, else a single one with an empty name."""
    result = load_function(path, function)(_iteration(first), _iteration(second))
    if result is None:
        raise WorkerError("script", f"[script] {path}:{function}: expected a dict of output names and verdicts (or a single verdict), got None")
    verdicts = list(result.items()) if hasattr(result, "items") else [("", result)]
    return {"outputs": [[str(name), bool(value)] for name, value in verdicts], "details": [repr(value)[:1000] for _, value in verdicts]}


def postprocess_result(server: Any, path: str, function: str, result: Dict[str, Any]) -> List[Any]:
    """[name, array] per output of ``postprocess_outputs(result)``, which returns an IterationResult or a dict."""
    processed = load_function(path, function)(_iteration(result))
    return _named_arrays(processed, "output", "an IterationResult or a dict", f"{path}:{function}")
