"""Pictures of errors: heatmaps of arrays, and errors against the magnitude of what they are errors of."""

from __future__ import annotations

import math
import os
from typing import Any, Dict, List, Tuple

import numpy as np

from .errors import WorkerError, package

# A figure is a grid of images, as many as fit into a screen.
_SCREEN = (1080, 1920)
_GRID = (14, 7)

_written: Dict[str, int] = {}


def _pyplot(show: bool) -> Any:
    matplotlib = package("matplotlib", "for plots")
    if not show:
        matplotlib.use("Agg")
    from matplotlib import pyplot

    if show:
        backend = str(matplotlib.get_backend())
        backends: Any = matplotlib.backends
        interactive = {name.lower() for name in backends.backend_registry.list_builtin(backends.BackendFilter.INTERACTIVE)}
        if backend.lower() not in interactive:
            raise WorkerError(
                "unsupported",
                "[plots] expected a display to show plots on, got none (matplotlib uses the backend "
                f"{backend}); try --save-heatmaps DIR or --save-error-metrics-plot DIR instead",
            )
    return pyplot


def check_plots(server: Any, show: bool, folders: List[str]) -> None:
    """Finds out before anything runs whether plots can be made."""
    _pyplot(show)
    for folder in folders:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise WorkerError("io", f"[plots] {folder}: expected a folder to write to; {error.strerror or error}") from None


def _save(figure: Any, folder: str, name: str, suffix: str, **options: Any) -> str:
    """Writes under a name that this process has not used, as a whole or not at all."""
    path = os.path.join(folder, name.replace(os.path.sep, "_") + suffix)
    count = _written[path] = _written.get(path, 0) + 1
    if count > 1:  # another iteration or pair of runners
        path = os.path.join(folder, f"{name.replace(os.path.sep, '_')} ({count}){suffix}")
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(folder, exist_ok=True)
        figure.savefig(temporary, format=suffix[1:], **options)
        os.replace(temporary, path)
    except OSError as error:
        raise WorkerError("io", f"[plots] {path}: cannot be written: {error.strerror or error}") from None
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    return path


def _range(array: np.ndarray, positive: bool) -> Tuple[float, float]:
    """The smallest and largest finite value; of the positive ones alone if asked for."""
    values = array[np.isfinite(array)]
    if positive:
        values = values[values > 0]
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def heatmaps(server: Any, array: np.ndarray, title: str, folder: str = "", show: bool = False, log_scale: bool = False) -> List[str]:
    """Draws the last two dimensions as images, as many figures as it takes; returns the files written.

    With `log_scale` colors are logarithmic unless all values are the same; zeros, infinities and NaN have no color.
    """
    if not array.size:
        return []
    pyplot = _pyplot(show)
    from matplotlib import colors

    array = np.asarray(array).astype(np.float64)
    while array.ndim < 3:
        array = array[np.newaxis]
    leading, (height, width) = array.shape[:-2], array.shape[-2:]
    images = array.reshape(-1, height, width)
    low, high = _range(images, False)
    logarithmic = log_scale and low != high
    if logarithmic:
        low, high = _range(images, True)
        logarithmic = low != high
        images = np.where(images > 0, images, np.nan)
    norm = colors.LogNorm(low, high) if logarithmic else colors.Normalize(low, high)
    title += " (Log Scale)" if logarithmic else ""
    images = np.where(np.isfinite(images), images, np.nan)

    def place(index: int) -> str:
        at = ",".join(str(int(i)) for i in np.unravel_index(index, leading))
        return f"({at},0:{height},0:{width})"

    rows = max(1, min(_SCREEN[0] // height, _GRID[0]))
    columns = max(1, min(_SCREEN[1] // width, _GRID[1]))
    if len(images) < rows * columns:
        columns = min(len(images), columns)
        rows = math.ceil(len(images) / columns)
    files = []
    for first in range(0, len(images), rows * columns):
        shown = images[first : first + rows * columns]
        figure, axes = pyplot.subplots(rows, columns, squeeze=False, dpi=200, constrained_layout=True)
        try:
            name = f"{title}: {place(first)} to {place(first + len(shown) - 1)}"
            figure.suptitle(name, fontsize="xx-small")
            for index, axis in enumerate(axes.flat):
                axis.set_axis_off()
                if index < len(shown):
                    drawn = axis.imshow(shown[index], cmap="plasma", norm=norm, interpolation="nearest")
                    axis.set_title(place(first + index), fontsize="xx-small")
            figure.colorbar(drawn, ax=axes, shrink=0.7)
            if folder:
                files.append(_save(figure, folder, name, ".svg"))
            if show:
                pyplot.show()
        finally:
            pyplot.close(figure)
    return files


def error_metrics(
    server: Any, absolute: np.ndarray, relative: np.ndarray, reference: np.ndarray, first: str, second: str, output: str,
    other_output: str, folder: str = "", show: bool = False,
) -> List[str]:
    """Draws absolute and relative errors against the magnitude of the second output; returns the files written."""
    if not reference.size:
        return []
    pyplot = _pyplot(show)
    magnitude = np.abs(np.asarray(reference).astype(np.float64)).reshape(-1)
    figure, axes = pyplot.subplots(2, sharex=True, constrained_layout=True)
    try:
        figure.suptitle(
            f"Error metrics between output0 and output1\noutput0: {first:35} | {output}\noutput1: {second:35} | {other_output}", fontsize=7)
        for axis, errors, label in ((axes[0], absolute, "Absolute error"), (axes[1], relative, "Relative error")):
            errors = np.asarray(errors).astype(np.float64).reshape(-1)
            low, high = _range(errors, False)
            if label.startswith("Relative") and low != high and _range(errors, True)[1] > 0:
                axis.set_yscale("log")
                label += " (log scale)"
                errors = np.where(errors > 0, errors, np.nan)
            finite = np.isfinite(errors) & np.isfinite(magnitude)
            axis.scatter(magnitude[finite], errors[finite], s=1)
            axis.set_ylabel(label, fontsize=7)
            axis.tick_params(axis="x", labelrotation=90)
            axis.tick_params(axis="both", labelsize=6)
            axis.grid(linestyle="--")
        axes[1].set_xlabel("output1 magnitude", fontsize=7)
        files = [_save(figure, folder, f"error_metrics_{output}", ".png", dpi=300, bbox_inches="tight")] if folder else []
        if show:
            pyplot.show()
    finally:
        pyplot.close(figure)
    return files
