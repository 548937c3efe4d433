"""Fits the factors of a target's kernels to small networks as a whole, and to kernels inside of whole networks.

    fit_networks.py bench/gpu/measured/h100.kernels.json... data/targets/h100.json [--write] [--only KIND PRECISION]

Each row of a file of times is {"of": NAME, "us": MICROSECONDS, "kernels": [[KIND, PRECISION, TERM...]]}: the sums of
the terms of src/engine/kernel_model.h (KernelTerm) over what took that long. Rows with a `share` are single kinds of
kernels inside of one whole network, as its steps were timed, scaled to the time of the whole; `share` is what they take
of it. What a whole network takes is a row, too (`whole`). Least squares of relative errors with factors of 0 or more,
in which what lies far off counts less, as in src/runtime/measure_kernels.cpp. Prints how well that tells the whole
networks; --write puts the factors into the target, with --only those of one kind in one precision: the others stay
as they are there. Needs numpy.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
from typing import Any

import numpy as np

TERMS = ("call", "depth", "gop", "mb", "weight_mb", "program", "program_mb")
ORDER = (
    "product", "narrow product", "convolution", "irregular convolution", "grouped convolution", "tiled convolution",
    "depthwise convolution", "attention", "long attention", "recurrent", "pointwise", "row", "window", "move", "view",
    "cast", "run",
)  # fmt: skip
PRECISIONS = (
    "fp32", "tf32", "fp16", "int8", "fp8", "int4", "int4-32", "int8-weights", "fp8-weights", "nvfp4-weights",
)  # fmt: skip
# Whole networks count as several small ones: they are what is asked for. Errors below CLOSE count squared, others less.
WHOLE, CLOSE, ROUNDS, SWEEPS = 4.0, 0.1, 8, 300
LEAST_SHARE, LEAST_SCALE = 0.03, 0.05

Place = tuple[str, str, int]
Rows = list[dict[str, Any]]


def nonnegative_squares(rows: np.ndarray, wanted: np.ndarray, weights: np.ndarray, start: np.ndarray) -> np.ndarray:
    square, right = (rows * weights[:, None]).T @ rows, (rows * weights[:, None]).T @ wanted
    x = start.copy()
    for _ in range(SWEEPS):
        for i in range(len(x)):
            if square[i, i] > 0:
                x[i] = max(0.0, x[i] + (right[i] - square[i] @ x) / square[i, i])
    return x


def scale_of(row: dict[str, Any]) -> float:
    """What errors are relative to: small parts of a network count little."""
    share = row.get("share", 1.0)
    return row["us"] * max(1.0, LEAST_SCALE / share) if share > 0 else row["whole_us"] * LEAST_SCALE


def design(
    rows: Rows, target: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[Place, int], np.ndarray]:
    """Relative rows, times and weights; the columns; and the least of each: nothing computes faster than the peak."""
    columns: dict[Place, int] = {}
    for row in rows:
        for kind, precision, *terms in row["kernels"]:
            for i, term in enumerate(terms):
                if term > 0:
                    columns.setdefault((kind, precision, i), len(columns))
    least = np.zeros(len(columns))
    for (_, precision, i), column in columns.items():
        if TERMS[i] == "gop" and precision in target["tflops"]:
            least[column] = 1e3 / target["tflops"][precision]
    per_mb = 1e3 / target["bandwidth_gb_per_s"]  # Of bytes beyond those that the cache keeps.
    a, b, weights = np.zeros((len(rows), len(columns))), np.zeros(len(rows)), np.zeros(len(rows))
    for r, row in enumerate(rows):
        scale = scale_of(row)
        for kind, precision, *terms in row["kernels"]:
            for i, term in enumerate(terms):
                if (kind, precision, i) in columns:
                    a[r, columns[kind, precision, i]] += term / scale
        b[r] = (row["us"] - row.get("uncached_mb", 0.0) * per_mb) / scale
        weights[r] = WHOLE * max(row["share"], LEAST_SHARE) if "share" in row else WHOLE if "whole" in row else 1.0
    return a, b - a @ least, weights, columns, least


def factors_of(target: dict[str, Any]) -> dict[Place, float]:
    return {
        (row["kind"], row["precision"], i): row[term]
        for row in target["kernels"]["us"] for i, term in enumerate(TERMS) if term in row
    }  # fmt: skip


def fit(rows: Rows, target: dict[str, Any], only: tuple[str, str] | None) -> dict[Place, float]:
    """`only`: the others are the target's."""
    a, b, own, columns, least = design(rows, target)
    known = {place: factor for place, factor in factors_of(target).items() if only and place[:2] != only}
    for place, column in columns.items():
        if only and place[:2] != only:
            b -= a[:, column] * (known.get(place, 0.0) - least[column])
            a[:, column] = 0
    norms = np.sqrt((a * a * own[:, None]).sum(0)) + 1e-12
    x, weights = np.zeros(len(columns)), own.copy()
    for _ in range(ROUNDS):
        x = nonnegative_squares(a / norms, b, weights, x)
        weights = own / np.maximum(np.abs(a / norms @ x - b), CLOSE)
    return {place: float(x[column] / norms[column] + least[column]) for place, column in columns.items()
            if not only or place[:2] == only} | known  # fmt: skip


def estimate(row: dict[str, Any], factors: dict[Place, float], target: dict[str, Any]) -> float:
    us = row.get("uncached_mb", 0.0) * 1e3 / target["bandwidth_gb_per_s"]
    for kind, precision, *terms in row["kernels"]:
        us += sum(term * factors.get((kind, precision, i), 0.0) for i, term in enumerate(terms))
    return us


def print_ratios(title: str, ratios: list[float]) -> None:
    within = sum(0.8 <= ratio <= 1.25 for ratio in ratios)
    print(f"{title}: median {statistics.median(ratios):.3f}, {within} of {len(ratios)} within 0.8 to 1.25")


def written(target: dict[str, Any], factors: dict[Place, float], errors: list[float]) -> str:
    """The file with a line per kernel, as it is read best. Without errors, those that it names stay."""
    lines = []
    for kind in ORDER:
        for precision in PRECISIONS:
            own = {TERMS[i]: float(f"{factors[kind, precision, i]:.4g}") for i in range(len(TERMS))
                   if factors.get((kind, precision, i), 0) > 5e-5}  # fmt: skip
            if any(place[:2] == (kind, precision) for place in factors):
                lines.append("      " + json.dumps({"kind": kind, "precision": precision, **own}))
    errors = sorted(errors)
    model = {key: target["kernels"].get(key, 0) for key in ("networks", "median_error", "large_error")}
    if errors:
        model["networks"] = len(errors)
        for key, share in (("median_error", 0.5), ("large_error", 0.9)):
            model[key] = float(f"{errors[int(share * (len(errors) - 1))]:.4g}")
    rest = {key: value for key, value in target.items() if key != "kernels"}
    text = json.dumps({**rest, "kernels": {**model, "us": []}}, indent=2)
    return text.replace('"us": []', '"us": [\n' + ",\n".join(lines) + "\n    ]") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", nargs="+", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="change the target's file")
    parser.add_argument("--only", nargs=2, metavar=("KIND", "PRECISION"), help="fit these factors alone")
    options = parser.parse_args()
    rows: Rows = [row for path in options.times for row in json.loads(path.read_text())["rows"]]
    target = json.loads(options.target.read_text())
    only = tuple(options.only) if options.only else None
    if only:
        rows = [row for row in rows if any(tuple(kernel[:2]) == only for kernel in row["kernels"])]
    factors = fit(rows, target, only)
    whole = [row for row in rows if "share" not in row]
    for title, some in (("small networks", [row for row in whole if "whole" not in row]),
                        ("networks", [row for row in whole if "whole" in row])):  # fmt: skip
        if some:
            print_ratios(title, [estimate(row, factors, target) / row["us"] for row in some])
    if options.write:
        errors = [] if only else [abs(estimate(row, factors, target) / row["us"] - 1) for row in whole]
        options.target.write_text(written(target, factors, errors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
