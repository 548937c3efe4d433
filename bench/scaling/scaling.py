"""What a forward takes on 1, 2, 4, ... cores, measured on one.

The program runs with a stand-in for OpenMP (one_core.c) that runs the threads of each parallel region one after the other and
shows the time of the longest. So the table tells how evenly work is shared and which steps nobody shares; it leaves out what
cores do to each other (bandwidth, caches, clock rates, sleeping threads). Each region is taken to cost --region microseconds.
On a machine with the cores, use forward.py --threads 1 2 4 8 16.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Dict, List, Tuple

STEP = re.compile(r"^ +(\d+)  (\S*) +(\S*) +([\d.]+) +[\d.]+ +\S+ +\S+ +\S+ +(.*)$")

Steps = Dict[int, Tuple[str, str, float]]  # By number: the layer, the kernel, microseconds.


def build(folder: pathlib.Path) -> pathlib.Path:
    library = folder / "one_core.so"
    source = pathlib.Path(__file__).with_name("one_core.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def profile(library: pathlib.Path, program: str, model: pathlib.Path, threads: int, region: float) -> Steps:
    environment = dict(os.environ, LD_PRELOAD=str(library), SCALING_CORES=str(threads), SCALING_REGION_NS=str(int(1000 * region)))
    command = [program, "run", str(model), "--trt", "--fusion", "full", "--threads", str(threads), "--profile"]
    inputs = model.with_suffix(".npz")
    if inputs.exists():
        command += ["--load-inputs", str(inputs)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{model}, {threads} threads: {result.stderr.strip() or result.stdout.strip()}")
    found = (STEP.match(line) for line in result.stdout.splitlines())
    return {int(m[1]): (m[2], m[5], float(m[4])) for m in found if m}


def total(steps: Steps) -> float:
    return sum(microseconds for _, _, microseconds in steps.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path, help="ONNX files; NAME.npz beside one has its inputs")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="the first is compared with")
    parser.add_argument("--region", type=float, default=4.0, help="microseconds that a parallel region costs (default: 4)")
    parser.add_argument("--steps", type=int, default=0, help="also print so many steps that lose most with the most threads")
    parser.add_argument("--program", default="build/release/bin/ulpscope")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = build(pathlib.Path(folder))
        print("| model | " + " | ".join(f"{n} threads, ms" for n in options.threads) + " | speedup |")
        print("| --- |" + " ---: |" * (len(options.threads) + 1))
        for model in options.models:
            profiles: List[Steps] = [profile(library, options.program, model, n, options.region) for n in options.threads]
            times = [total(steps) for steps in profiles]
            cells = " | ".join(f"{1e-3 * t:.2f}" for t in times)
            print(f"| {model.stem} | {cells} | {times[0] / times[-1]:.1f} |", flush=True)
            share = options.threads[0] / options.threads[-1]
            lost = sorted(profiles[-1], key=lambda i: profiles[0][i][2] * share - profiles[-1][i][2])
            for i in lost[: options.steps]:
                layer, kernel, time = profiles[-1][i]
                print(f"#   {layer} ({kernel}): {profiles[0][i][2]:.0f} to {time:.0f} us", file=sys.stderr)


if __name__ == "__main__":
    main()
