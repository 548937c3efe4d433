"""Estimated against measured times of whole networks, all in fp32, in fp16 and in int8 with made-up scales.

    estimates.py MODEL[@INPUT=DIMxDIM]... --save TIMES.json       measures on the GPU at hand, and estimates
    estimates.py MODEL[@INPUT=DIMxDIM]... --times TIMES.json      estimates alone: needs no GPU

Prints a line per network and precision, then what is left of the ratios: their median, and how many lie within 0.8 and
1.25; last, for how many networks the sign of what FP16 gains is right, of those where it is over 10 %. A network that
runs partly on the CPU has no time, "-". `--program` is bench's gpu_latency (ULPSCOPE_BUILD_BENCHMARKS).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
from typing import Mapping

Times = dict[str, float]
ROOT = pathlib.Path(__file__).resolve().parents[2]
LEAST, MOST, GAIN = 0.8, 1.25, 0.1


def times_of(model: str, options: argparse.Namespace) -> tuple[Times, Times]:
    """Measured and estimated microseconds by precision; nothing is measured where --times has it."""
    path, _, shapes = model.partition("@")
    command = [options.program, path, "estimates", "full", f"target={options.target}"]
    command += ["backend=none"] if options.times else []
    command += shapes.split("@") if shapes else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{path}: {done.stderr.strip()[-300:]}", file=sys.stderr)
    measured: Times = {}
    estimated: Times = {}
    for precision, time, estimate in re.findall(r"^(\w+) measured (\S+) estimated (\S+)$", done.stdout, re.MULTILINE):
        estimated[precision] = float(estimate)
        if time != "-":
            measured[precision] = float(time)
    return measured, estimated


def print_ratios(ratios: Mapping[str, list[float]]) -> None:
    for precision, each in ratios.items():
        within = sum(LEAST <= ratio <= MOST for ratio in each)
        print(f"{precision}: median {statistics.median(each):.2f}, {within} of {len(each)} within {LEAST} to {MOST}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL[@INPUT=DIMxDIM]")
    parser.add_argument("--target", default="h100")
    parser.add_argument("--times", type=pathlib.Path, help="what --save wrote; networks that it lacks are left out")
    parser.add_argument("--save", type=pathlib.Path, help="where measured times are kept, after every network")
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "bin" / "gpu_latency"))
    options = parser.parse_args()
    known: dict[str, Times] = json.loads(options.times.read_text()) if options.times else {}
    ratios: dict[str, list[float]] = {}
    right = judged = 0
    print(f"{'network':28} {'':5} {'measured':>9} {'estimated':>9}  ratio")
    for model in options.models:
        name = pathlib.Path(model.partition("@")[0]).stem
        if options.times and name not in known:
            continue
        measured, estimated = times_of(model, options)
        measured = known.setdefault(name, measured)
        if options.save:
            options.save.write_text(json.dumps(known, indent=1) + "\n")
        for precision, estimate in estimated.items():
            time = measured.get(precision)
            if time is None:
                print(f"{name:28} {precision:5} {'-':>9} {estimate:9.1f}")
                continue
            ratios.setdefault(precision, []).append(estimate / time)
            print(f"{name:28} {precision:5} {time:9.1f} {estimate:9.1f}  {estimate / time:5.2f}", flush=True)
        if {"fp32", "fp16"} <= measured.keys() & estimated.keys():
            gain = 1 - measured["fp16"] / measured["fp32"]
            if abs(gain) > GAIN:
                judged += 1
                right += (estimated["fp16"] < estimated["fp32"]) == (gain > 0)
    print_ratios(ratios)
    print(f"the sign of what fp16 gains is right in {right} of {judged}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
