"""What a whole search costs, in forwards of ONNX Runtime in fp32 over the same samples, on as many threads.

A search (search_bench, the cases below) is everything after the model, its samples are in
memory: golden outputs, repairs, calibration (int8), prediction, trials, reasons. Held-out samples are counted apart. A
forward is one run of ONNX Runtime over each of the search samples. The two take turns; the ratio is of the minima.
The last column is peak memory (VmHWM): of the search's process, which has held-out samples and kept activations too
(--memory-limit, 1 GiB), over that of a process that runs one sample once.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from typing import Any, Dict, List, Tuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import measure  # noqa: E402
import models  # noqa: E402

#: Per row: the case of search_bench, its model, and more options.
CASES: Dict[str, Tuple[str, str, List[str]]] = {
    "minilm_planted fp16": ("minilm_planted fp16", "minilm_planted", []),
    "minilm int8": ("minilm int8", "minilm", []),
    "minilm int8 --no-repair": ("minilm int8", "minilm", ["--no-repair"]),
    "smollm2 fp16": ("smollm2 fp16", "smollm2", []),
}
TARGET = 30


def search(options: Any, case: str, threads: int, more: List[str]) -> Dict[str, Any]:
    """The figures that search_bench prints for programs."""
    command = [str(options.program), "--models", str(options.path), "--case", case, "--threads", str(threads), *more]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode != 0 or len(lines) != 1:
        raise SystemExit(f"{' '.join(command)}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    figures: Dict[str, Any] = json.loads(lines[0])
    return figures


def forward_peak(options: Any, case: str, threads: int) -> float:
    """MB of a search_bench process that only runs the model once."""
    return float(search(options, case, threads, ["--forward"])["peak"])


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

    selector, name, more = CASES[case]
    samples = models.read_samples(options.path / f"{name}.search.json")
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = threads
    session_options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(options.path / f"{name}.onnx"), session_options, providers=["CPUExecutionProvider"])
    forward, runs = float("inf"), []
    for _ in range(2 if options.quick else options.rounds):
        forward = min(forward, forward_seconds(session, samples, 10))
        runs.append(search(options, selector, threads, more))
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
        "peak / forward's": round(best["peak"] / forward_peak(options, selector, threads), 2),
    }


def main() -> None:
    parser = measure.parser(__doc__ or "")
    build = models.ROOT / "build" / "release" / "bin" / "search_bench"
    parser.add_argument("--program", type=pathlib.Path, default=build, help="search_bench")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="searches per row")
    options = parser.parse_args()
    rows = []
    for case, (_, name, _) in CASES.items():
        if not (options.path / f"{name}.onnx").exists():  # Large models are made by name only.
            print(f"{case}: left out, {name}.onnx is not there; try tests/models/make_models.py FOLDER {name}", file=sys.stderr)
            continue
        rows += [measure_case(options, case, threads) for threads in options.threads]
    measure.report(rows, measure.environment(), options.output)


if __name__ == "__main__":
    main()
