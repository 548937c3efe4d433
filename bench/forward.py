"""Times and peak memory of one inference in fp32: ulpscope.Engine (--fusion full) beside ONNX Runtime's CPU provider.

The ratios are ulpscope / ONNX Runtime, of the minima. Peak memory (VmHWM) is that of a fresh process each that loads the
model and runs it twice, less what the process had before it imported the runtime (peak.py).
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Dict, List

import measure
import models
import numpy as np
import peak


def peak_memory(side: str, model: models.Model, threads: int) -> float:
    """MB, see peak.py."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = pathlib.Path(folder) / "inputs.npz"
        np.savez(inputs, **model.inputs)
        command = [sys.executable, peak.__file__, side, str(model.path), str(inputs), str(threads)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"peak memory of {side} on {model.name}: {result.stderr.strip()}")
    return float(result.stdout)


def worst_difference(ours: Dict[str, Any], theirs: List[Any]) -> float:
    """Between the outputs: nobody should compare the speed of wrong results."""
    pairs = zip(ours.values(), theirs)
    return max(float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)))) for a, b in pairs)


def measure_model(model: models.Model, threads: int, seconds: float) -> Dict[str, Any]:
    runs = {side: peak.load(side, model.path, threads) for side in peak.SIDES}
    difference = worst_difference(runs["ulpscope"](model.inputs), runs["onnxruntime"](model.inputs))
    calls = {side: (lambda run=run: run(model.inputs)) for side, run in runs.items()}
    times = {side: measure.summary(t) for side, t in measure.interleave(calls, seconds).items()}
    ours, theirs = times["ulpscope"], times["onnxruntime"]
    memory = {side: peak_memory(side, model, threads) for side in peak.SIDES}
    return {
        "model": model.name,
        "threads": threads,
        "ulpscope min ms": ours["min"],
        "onnxruntime min ms": theirs["min"],
        "ratio": ours["min"] / theirs["min"],
        "ulpscope median ms": ours["median"],
        "onnxruntime median ms": theirs["median"],
        "ulpscope peak MB": round(memory["ulpscope"], 1),
        "onnxruntime peak MB": round(memory["onnxruntime"], 1),
        "peak ratio": memory["ulpscope"] / memory["onnxruntime"],
        "largest difference": f"{difference:.2g}",
    }


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", type=models.parse_names, default=models.ALL, help="comma-separated names")
    parser.add_argument("--folder", type=pathlib.Path, help="instead, every NAME.onnx with a NAME.npz of inputs (exports.py)")
    parser.add_argument("--seconds", type=float, default=6.0, help="per model (default: 6)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    rows: List[Dict[str, Any]] = []
    chosen = models.in_folder(options.folder) if options.folder else [models.find(n, options.path) for n in options.models]
    for model in chosen:
        rows.extend(measure_model(model, threads, 0.2 if options.quick else options.seconds) for threads in options.threads)
    measure.report(rows, measure.environment(), options.output)
    for threads in options.threads:
        ratios = {row["model"]: row["ratio"] for row in rows if row["threads"] == threads}
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        worst = max(ratios, key=lambda name: ratios[name])
        print(f"# {threads} threads: geometric mean of the ratios {mean:.3f}, worst {ratios[worst]:.3f} ({worst})", file=sys.stderr)


if __name__ == "__main__":
    main()
