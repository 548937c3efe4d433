"""What a whole search costs, in forwards of ONNX Runtime in fp32 over the same samples, on as many threads.

A search (search_bench, the cases below) is everything after the model, its samples and the golden outputs' inputs are in
memory: golden outputs, repairs, calibration (int8), prediction, trials, reasons. Held-out samples are counted apart. A
forward is one run of ONNX Runtime over each of the search samples. The two take turns; the ratio is of the minima.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from typing import Any, Dict, List

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import measure  # noqa: E402
import models  # noqa: E402

CASES = {"minilm_planted fp16": "minilm_planted", "minilm int8": "minilm"}
TARGET = 30


def search(program: pathlib.Path, folder: pathlib.Path, case: str, threads: int) -> Dict[str, Any]:
    """The figures that search_bench prints for programs."""
    command = [str(program), "--models", str(folder), "--case", case, "--threads", str(threads)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode != 0 or len(lines) != 1:
        raise SystemExit(f"{' '.join(command)}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    figures: Dict[str, Any] = json.loads(lines[0])
    return figures


def forward_seconds(session: Any, samples: List[Dict[str, Any]], count: int) -> float:
    """The fastest pass over all samples; the first pass does not count."""
    best = float("inf")
    for i in range(count + 1):
        start = time.perf_counter()
        for sample in samples:
            session.run(None, sample)
        if i > 0:
            best = min(best, time.perf_counter() - start)
    return best


def measure_case(options: Any, case: str, threads: int) -> Dict[str, Any]:
    import onnxruntime

    model = options.path / f"{CASES[case]}.onnx"
    samples = models.read_samples(options.path / f"{CASES[case]}.search.json")
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = threads
    session_options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), session_options, providers=["CPUExecutionProvider"])
    forward, runs = float("inf"), []
    for _ in range(2 if options.quick else options.rounds):
        forward = min(forward, forward_seconds(session, samples, 10))
        runs.append(search(options.program, options.path, case, threads))
    best = min(runs, key=lambda run: run["search"] + run["calibration"])
    seconds = best["search"] + best["calibration"]
    return {
        "search": case,
        "threads": threads,
        "kept": best["kept"],
        "evaluations": best["evaluations"],
        "search s": seconds,
        "of it calibration s": best["calibration"],
        "held-out s": min(run["held_out"] for run in runs),
        "onnxruntime forward s": forward,
        "search / forward": round(seconds / forward, 1),
        "target": f"<= {TARGET}",
    }


def main() -> None:
    parser = measure.parser(__doc__ or "")
    build = models.ROOT / "build" / "release" / "bin" / "search_bench"
    parser.add_argument("--program", type=pathlib.Path, default=build, help="search_bench")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="searches per row")
    options = parser.parse_args()
    rows = [measure_case(options, case, threads) for case in CASES for threads in options.threads]
    measure.report(rows, measure.environment(), options.output)


if __name__ == "__main__":
    main()
