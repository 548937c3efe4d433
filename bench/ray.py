"""How well a search spreads over the processes of a Ray cluster: seconds and efficiency from 1 to 4 of them, one core each.

Efficiency is seconds with one process / (seconds with n * n). Starting Ray and the processes is apart: it does not grow
with the search. What the search does by itself, reasons and the like, it does on as many threads. The speed of n processes cannot be more than the machine's cores allow: the second table says what these
give for n searches that have nothing to do with each other, which is the ceiling.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "python"))
from ray_cluster import Cluster  # noqa: E402

_STARTING = ("connecting to Ray", "starting workers")

_SEARCH = """
import sys, time, json, numpy as np, ulpscope
model, inputs, words = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
samples = [dict(x=each) for each in np.load(inputs)]
stage, began, starting = "", time.monotonic(), 0.0
def watch(progress):
    global stage, starting
    now = time.monotonic() - began
    if progress.stage in {starting_stages}:
        starting = now
    elif stage in {starting_stages}:
        starting = now
    stage = progress.stage
answer = ulpscope.search(model, samples, progress=watch, **words)
print(json.dumps(dict(seconds=time.monotonic() - began - starting, starting=starting, trials=len(answer.trials), kept=len(answer.layers))))
"""


def run(model: pathlib.Path, inputs: pathlib.Path, words: dict, environment: dict[str, str]) -> subprocess.Popen[str]:
    code = _SEARCH.replace("{starting_stages}", repr(_STARTING))
    return subprocess.Popen([sys.executable, "-c", code, str(model), str(inputs), json.dumps(words)], env=environment, stdout=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen[str]) -> dict:
    output, _ = process.communicate()
    if process.returncode != 0:
        raise SystemExit("the search failed")
    return json.loads(output.splitlines()[-1])


def make(folder: pathlib.Path, size: int, blocks: int, samples: int) -> tuple[pathlib.Path, pathlib.Path]:
    from test_ray import deep  # the network of the tests, larger

    model, inputs = folder / "m.onnx", folder / "in.npy"
    np.save(inputs, np.stack([each["x"] for each in deep(model, blocks, size, 256, samples)]))
    return model, inputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--size", type=int, default=768, help="columns of the products")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2, help="the least seconds of so many count")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    options = parser.parse_args()
    if options.quick:
        options.processes, options.size, options.blocks, options.samples, options.rounds = [1, 2], 256, 4, 8, 1
    import ulpscope

    package = {"PYTHONPATH": str(pathlib.Path(ulpscope.__file__).parents[1])}
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, ulpscope {ulpscope.__version__}")
    words = dict(threshold=0.002, objective="smallest", fusion="none", shrink=True, repair=False, threads=1)
    workers = {**package, "RAY_worker_niceness": "0"}  # else they wait for everything else that runs
    with tempfile.TemporaryDirectory() as name:
        model, inputs = make(pathlib.Path(name), options.size, options.blocks, options.samples)
        local = min((result_of(run(model, inputs, words, {**os.environ, **package})) for _ in range(options.rounds)), key=lambda each: each["seconds"])
        rows, ceilings = [], []
        for count in options.processes:
            with contextlib.closing(_Ended(Cluster(count, workers))) as ended:
                more = dict(words, ray=ended.cluster.address, ray_workers=count, threads=count)
                best = min((result_of(run(model, inputs, more, ended.cluster.environment)) for _ in range(options.rounds)), key=lambda each: each["seconds"])
            assert best["trials"] == local["trials"] and best["kept"] == local["kept"]
            began = time.monotonic()
            for process in [run(model, inputs, words, {**os.environ, **package}) for _ in range(count)]:
                result_of(process)
            ceilings.append(time.monotonic() - began)
            rows.append(best)
    one = rows[0]["seconds"] * options.processes[0]
    print(f"{local['trials']} trials of {options.samples} samples, {local['kept']} layers kept; in this process, one thread: {local['seconds']:.2f} s")
    print("\n| processes | search s | speed-up | efficiency | of what the cores give | starting s |\n|---|---|---|---|---|---|")
    for count, row, ceiling in zip(options.processes, rows, ceilings):
        speed = one / row["seconds"]
        possible = count * ceilings[0] / options.processes[0] / ceiling
        print(f"| {count} | {row['seconds']:.2f} | {speed:.2f} | {speed / count:.0%} | {speed / possible:.0%} | {row['starting']:.1f} |")


class _Ended:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def close(self) -> None:
        self.cluster.end()


if __name__ == "__main__":
    main()
