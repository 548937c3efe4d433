"""Time of a whole process: `ulpscope run needs_constraints.onnx --trt`, beside `polygraphy run ... --onnxrt`.

Polygraphy has no engine of its own: its figure is that of the shortest command it can run on a machine without a GPU.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List

import measure
import models


def find_program(name: str, folders: List[pathlib.Path]) -> str:
    """Beside this Python, in `folders`, or on PATH."""
    for folder in (pathlib.Path(sys.executable).parent, *folders):
        if (folder / name).exists():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{name}: not found; build it, install it, or give --{name}")
    return found


def milliseconds(command: List[str]) -> float:
    start = time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    elapsed = (time.perf_counter() - start) * 1e3
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return elapsed


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--ulpscope", help="the program")
    parser.add_argument("--polygraphy", help="the program; 'none' leaves it out")
    parser.add_argument("--count", type=int, default=20, help="runs of ulpscope")
    options = parser.parse_args()
    model = str(models.find("needs_constraints", options.path).path)
    builds = [models.ROOT / "build" / name / "bin" for name in ("release", "dev")]
    ulpscope = options.ulpscope or find_program("ulpscope", builds)
    commands = {"ulpscope run needs_constraints.onnx --trt": ([ulpscope, "run", model, "--trt"], options.count)}
    if options.polygraphy != "none":
        polygraphy = options.polygraphy or find_program("polygraphy", [])
        command = [polygraphy, "run", model, "--onnxrt"]
        commands["polygraphy run needs_constraints.onnx --onnxrt"] = (command, max(3, options.count // 4))
    rows: List[Dict[str, Any]] = []
    for name, (command, count) in commands.items():
        if options.quick:
            count = 3
        milliseconds(command)  # Brings the files into the cache.
        times = measure.summary([milliseconds(command) for _ in range(count)])
        row = {"process": name, "runs": count, "min ms": times["min"], "median ms": times["median"], "p90 ms": times["p90"]}
        rows.append(row)
    measure.report(rows, measure.environment(nice=os.nice(0)), options.output)


if __name__ == "__main__":
    main()
