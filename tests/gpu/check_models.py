"""Holds whole networks on the GPU against the CPU: check_models.py PROGRAM MODEL.onnx...

PROGRAM is `ulpscope`; nothing but its command line and numpy is used. A MODEL.npz beside a model has its inputs (an
array each), or a MODEL.inputs.json several samples, as --save-inputs writes them; else the program makes them. For every
model, fp16 and bf16 and the fusion levels none and full, everything in the lowest precision:

- the outputs in fp32 lie within --fp32-limit of each other (relative L2), at both levels;
- the error of a precision against fp32, each on its own backend, is on the GPU what the CPU predicts: their ratio is
  within --low and --high. Roundings part with depth, so whole networks are compared by error, not by bits;
- the GPU gives the same bits in a second process.

One line per comparison; exits 1 when one does not hold or a run fails.
"""

from __future__ import annotations

import argparse
import base64
import concurrent.futures
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import NamedTuple

import numpy as np

Outputs = dict[str, np.ndarray]
# Errors below it, where nearly nothing is rounded, are not held against each other.
NO_ERROR = 1e-7


class RunFailed(RuntimeError):
    """What the program said."""


def decode(value: dict[str, object]) -> np.ndarray:
    return np.load(io.BytesIO(base64.b64decode(str(value["array"]))), allow_pickle=False)


def read_outputs(path: pathlib.Path) -> Outputs:
    """All iterations of the only runner of a file of --save-outputs, joined."""
    ((_, iterations),) = json.loads(path.read_text())["lst"]
    joined: dict[str, list[np.ndarray]] = {}
    for iteration in iterations:
        for name, value in iteration["outputs"].items():
            joined.setdefault(name, []).append(decode(value["values"]).ravel())
    return {name: np.concatenate(parts) for name, parts in joined.items()}


def distance(reference: Outputs, given: Outputs) -> float:
    """Relative L2 over the output where it is largest; infinite where one side is not finite and the other is."""
    worst = 0.0
    for name, right in reference.items():
        if right.dtype.kind != "f":
            continue
        a, b = right.astype(np.float64), given[name].astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        norm = float(np.linalg.norm(a[finite]))
        worst = max(worst, float(np.linalg.norm(a[finite] - b[finite])) / norm if norm > 0 else 0.0)
    return worst


def same_bits(a: Outputs, b: Outputs) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


_FP8 = ["--fp16", "--fp8"]
#: What asks for a precision, where its name does not say it.
FLAGS = {
    "fp32": [],
    "fp8": _FP8,
    "fp8-hopper": [*_FP8, "--accumulation", "hopper"],
    "fp8-hopper-fast": [*_FP8, "--accumulation", "hopper-fast"],
}


class Case(NamedTuple):
    model: pathlib.Path
    precision: str
    fusion: str


class Runner:
    """Runs the program; the inputs of a model are the same in every run."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path, seconds: float, attention: str) -> None:
        self.program, self.folder, self.seconds, self.attention = program, folder, seconds, attention

    def inputs(self, model: pathlib.Path) -> pathlib.Path:
        """The model's own, or those that a first run generates."""
        for beside in (model.with_suffix(".npz"), model.with_suffix(".inputs.json")):
            if beside.exists():
                return beside.resolve()
        path = self.folder / f"{model.stem}.inputs.json"
        if not path.exists():
            self.call([str(model), "--trt", "--backend", "cpu", "--save-inputs", str(path)])
        return path

    def call(self, words: list[str]) -> None:
        done = subprocess.run([str(self.program), "run", *words], capture_output=True, text=True, errors="replace",
                              timeout=self.seconds, check=False)  # fmt: skip
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise RunFailed(f"exit {done.returncode}: {lines[-1] if lines else 'no output'}")

    def outputs(self, case: Case, backend: str) -> Outputs:
        path = self.folder / "outputs.json"
        path.unlink(missing_ok=True)
        words = [str(case.model), "--trt", "--backend", backend, "--fusion", case.fusion, "--assume-lowest"]
        words += ["--attention", self.attention]
        words += FLAGS.get(case.precision, [f"--{case.precision}"])
        self.call([*words, "--load-inputs", str(self.inputs(case.model)), "--save-outputs", str(path)])
        return read_outputs(path)


class Report:
    """Prints what was compared, and counts; for several threads."""

    def __init__(self) -> None:
        self.held, self.failed, self.lock = 0, 0, threading.Lock()

    def say(self, holds: bool, case: Case, what: str) -> None:
        with self.lock:
            self.held, self.failed = self.held + holds, self.failed + (not holds)
            verdict = "ok    " if holds else "FAILED"
            print(f"{verdict} {case.model.stem} {case.precision} {case.fusion}: {what}", flush=True)


def check_model(model: pathlib.Path, options: argparse.Namespace, runner: Runner, report: Report) -> None:
    for fusion in options.fusion:
        case = Case(model, "fp32", fusion)
        cpu, gpu = runner.outputs(case, "cpu"), runner.outputs(case, options.backend)
        apart = distance(cpu, gpu)
        report.say(
            apart <= options.fp32_limit, case, f"{apart:.2e} between the backends, at most {options.fp32_limit:.0e}"
        )
        for precision in options.precisions:
            low = Case(model, precision, fusion)
            gpu_low = runner.outputs(low, options.backend)
            predicted, real = distance(cpu, runner.outputs(low, "cpu")), distance(gpu, gpu_low)
            ratio = real / predicted if predicted > 0 else 1.0
            holds = options.low <= ratio <= options.high or max(real, predicted) < NO_ERROR or predicted == real
            report.say(holds, low, f"error {real:.4e}, predicted {predicted:.4e}, ratio {ratio:.4f}")
            report.say(
                same_bits(gpu_low, runner.outputs(low, options.backend)), low, "the same bits in a second process"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument(
        "--backend", default="cuda", help="which is held against the CPU (plain: shows that this works)"
    )
    parser.add_argument("--precisions", nargs="+", default=["fp16", "bf16"])
    parser.add_argument("--fusion", nargs="+", default=["none", "full"])
    parser.add_argument("--attention", choices=("normalized", "flash"), default="normalized", help="the rule, on both")
    parser.add_argument("--fp32-limit", type=float, default=1e-5)
    parser.add_argument("--low", type=float, default=0.95, help="least ratio of real and predicted error")
    parser.add_argument("--high", type=float, default=1.05)
    parser.add_argument("--seconds", type=float, default=600, help="limit of one run of the program")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1), help="models at a time")
    options = parser.parse_args()
    if not options.program.exists():
        parser.error(f"{options.program}: no such file")
    report = Report()
    with tempfile.TemporaryDirectory() as folder:

        def check(index: int, model: pathlib.Path) -> None:
            own = pathlib.Path(folder) / str(index)  # Models may share a name.
            own.mkdir()
            runner = Runner(options.program.resolve(), own, options.seconds, options.attention)
            try:
                check_model(model, options, runner, report)
            except (RunFailed, subprocess.TimeoutExpired, OSError) as error:
                report.say(False, Case(model, "-", "-"), str(error))

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(check, range(len(options.models)), options.models))
    print(f"{report.held} held, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
