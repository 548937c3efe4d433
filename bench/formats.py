"""Times of one inference with every product in an 8 or 4 bit format beside our own fp32, and of weights in NVFP4.

Both operands of products are in the format, but for int4, which is of weights alone: the ratios to fp32 say what it
costs to find the scales and elements of activations while the network runs. Each side is the sum over the steps of
`ulpscope run --profile`, the least of eight runs for each step. Weights: the processor time of a run on one thread with
weights alone in NVFP4, less that of a run in fp32. `activations` takes the samples for calibration that lie beside the
model (without these the one sample of its inputs), and runs them, too; `least-squares` is what it does once the mean
squares of inputs are known.
"""

from __future__ import annotations

import pathlib
import resource
import subprocess
import tempfile
from typing import Any, Dict, List

import int8
import measure
import models
import numpy as np

FORMATS = ("fp8", "mxfp8", "nvfp4", "mxfp4", "int4")


def measure_model(model: models.Model, threads: int, program: str) -> List[Dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        inputs = pathlib.Path(folder) / "inputs.npz"
        np.savez(inputs, **model.inputs)
        times = {"fp32": int8.total(program, model, inputs, threads, [])}
        for name in FORMATS:
            times[name] = int8.total(program, model, inputs, threads, [f"--{name}", "--assume-lowest"])
    return [
        {"model": model.name, "threads": threads, "format": name, "ms": time / 1000, "/ fp32": time / times["fp32"]}
        for name, time in times.items()
    ]


def processor_seconds(command: List[str]) -> float:
    """The least of five: user and system time of the process."""
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def measure_weights(model: models.Model, program: str) -> List[Dict[str, Any]]:
    """Seconds that NVFP4 weights take by themselves: activations stay in fp32."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        inputs = pathlib.Path(folder) / "inputs.npz"
        np.savez(inputs, **model.inputs)
        samples = model.path.with_suffix(".calib.json")
        run = [
            program,
            "run",
            str(model.path),
            "--trt",
            "--threads",
            "1",
            "--fusion",
            "full",
            "--load-inputs",
            str(inputs),
        ]
        low = [*run, "--nvfp4", "--weights-only", "--assume-lowest", "--weight-scales"]
        plain = processor_seconds(run)
        for rule in ("amax", "least-squares", "activations"):
            known = (
                ["--calibration-inputs", str(samples if samples.exists() else inputs)] if rule == "activations" else []
            )
            seconds = processor_seconds([*low, rule, *known]) - plain
            rows.append({"model": model.name, "weights": f"nvfp4, {rule}", "s": seconds})
    return rows


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", type=models.parse_names, default=("minilm",), help="comma-separated names")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--program", default=str(models.ROOT / "build/release/bin/ulpscope"))
    options = parser.parse_args()
    chosen = [models.find(name, options.path) for name in options.models]
    rows = [
        row for model in chosen for threads in options.threads for row in measure_model(model, threads, options.program)
    ]
    measure.report(rows, measure.environment(), options.output)
    weights = [row for model in chosen for row in measure_weights(model, options.program)]
    measure.report(weights, measure.environment(), options.output)


if __name__ == "__main__":
    main()
