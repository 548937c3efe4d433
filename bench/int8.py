"""Times of one inference in int8 (calibrated on its inputs) and emulated fp16 beside our own fp32, at `--fusion full`.

Each side is the sum over the steps of `ulpscope run --profile`, the least of eight runs for each step, so other work on the
machine shows little. The ratios are to fp32.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, Dict, List

import measure
import models
import numpy as np

TOTAL = re.compile(r"^ +\d+ steps, ([\d.]+) us", re.MULTILINE)


def total(program: str, model: models.Model, inputs: pathlib.Path, threads: int, options: List[str]) -> float:
    """Microseconds of all steps."""
    command = [program, "run", str(model.path), "--trt", "--fusion", "full", "--load-inputs", str(inputs), "--profile"]
    result = subprocess.run([*command, "--threads", str(threads), *options], capture_output=True, text=True, check=False)
    found = TOTAL.search(result.stdout)
    if result.returncode != 0 or found is None:
        raise SystemExit(f"{model.name} {' '.join(options)}: {result.stderr.strip() or result.stdout.strip()}")
    return float(found[1])


def measure_model(model: models.Model, threads: int, program: str) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        inputs, cache = pathlib.Path(folder) / "inputs.npz", pathlib.Path(folder) / "calibration"
        np.savez(inputs, **model.inputs)
        times = {
            name: total(program, model, inputs, threads, options)
            for name, options in {
                "fp32": [],
                "fp16": ["--fp16"],
                "int8": ["--int8", "--calibration-cache", str(cache)],
            }.items()
        }
    row: Dict[str, Any] = {"model": model.name, "threads": threads}
    row.update({f"{name} ms": time / 1000 for name, time in times.items()})
    row.update({f"{name} / fp32": times[name] / times["fp32"] for name in ("fp16", "int8")})
    return row


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", type=models.parse_names, default=models.ALL, help="comma-separated names")
    parser.add_argument("--folder", type=pathlib.Path, help="instead, every NAME.onnx with a NAME.npz of inputs (exports.py)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--program", default=str(models.ROOT / "build/release/bin/ulpscope"))
    options = parser.parse_args()
    chosen = models.in_folder(options.folder) if options.folder else [models.find(n, options.path) for n in options.models]
    rows = [measure_model(model, threads, options.program) for model in chosen for threads in options.threads]
    measure.report(rows, measure.environment(), options.output)
    for name in ("fp16", "int8"):
        ratios = {row["model"]: row[f"{name} / fp32"] for row in rows}
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        worst = max(ratios, key=lambda model: ratios[model])
        print(f"# {name}: geometric mean of the ratios {mean:.3f}, worst {ratios[worst]:.3f} ({worst})", file=sys.stderr)


if __name__ == "__main__":
    main()
