"""Times of one inference in emulated fp16 and bf16 (every layer that has such a form) beside our own fp32.

The ratios are to fp32 at the same fusion level, of the minima: what emulating the roundings costs.
"""

from __future__ import annotations

from typing import Any, Dict, List

import measure
import models
import ulpscope

FUSIONS = ("full", "pointwise", "none")
PRECISIONS = ("fp32", "fp16", "bf16")


def measure_model(model: models.Model, threads: int, seconds: float) -> List[Dict[str, Any]]:
    engines = {
        (fusion, precision): ulpscope.Engine(model.path, precision=precision, fusion=fusion, threads=threads)
        for fusion in FUSIONS
        for precision in PRECISIONS
    }
    calls = {" ".join(key): (lambda engine=engine: engine.run(model.inputs)) for key, engine in engines.items()}
    times = {name: measure.summary(t) for name, t in measure.interleave(calls, seconds).items()}
    rows = []
    for fusion in FUSIONS:
        row: Dict[str, Any] = {"model": model.name, "threads": threads, "fusion": fusion}
        for precision in PRECISIONS:
            row[f"{precision} min ms"] = times[f"{fusion} {precision}"]["min"]
        for precision in PRECISIONS[1:]:
            row[f"{precision} / fp32"] = row[f"{precision} min ms"] / row["fp32 min ms"]
        row["fp16 median ms"] = times[f"{fusion} fp16"]["median"]
        rows.append(row)
    return rows


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", type=models.parse_names, default=models.ALL, help="comma-separated names")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    rows: List[Dict[str, Any]] = []
    for name in options.models:
        model = models.find(name, options.path)
        for threads in options.threads:
            rows.extend(measure_model(model, threads, 0.5 if options.quick else 8.0))
    measure.report(rows, measure.environment(), options.output)


if __name__ == "__main__":
    main()
