"""What `precision search` finds with a target that comes with the program, against what it finds after measuring.

    fastest.py MODEL... [--target h200] [--folder FOLDER]

For every network, in fp16 and rel-l2 at a share (--share) of the error of everything in fp16: the answer of `fastest`
by the target's estimates and the one by times that `target measure` took of the network, both timed on the GPU at hand
as sums of their steps, each the least of several runs. Prints a line per network: microseconds and layers kept of
both, the target's estimates of them, and the ratio of the first to the second time. --folder keeps targets and answers.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failed(Exception):
    """A command ended with another status than 0 or 1 (no answer)."""


class Network:
    """A network, and what is written about it."""

    def __init__(self, model: pathlib.Path, folder: pathlib.Path, program: str) -> None:
        self.model, self.program = model, program
        self.name = model.stem if model.stem != "net" else model.parent.name
        self.folder = folder

    def file(self, what: str) -> pathlib.Path:
        return self.folder / f"{self.name}.{what}.json"

    def ulpscope(self, *arguments: str) -> str:
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise Failed(f"{self.name}: {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-300:]}")
        return done.stdout

    def search(self, what: str, target: str, threshold: float) -> dict[str, Any]:
        answer = self.file(what)
        answer.unlink(missing_ok=True)
        self.ulpscope(
            "precision", "search", str(self.model), "--fp16", "--metric", "rel-l2", "--threshold", repr(threshold),
            "--target", target, "--backend", "cuda", "--save-answer", str(answer),
        )  # fmt: skip
        result: dict[str, Any] = json.loads(answer.read_text())
        return result

    def time_us(self, what: str) -> float:
        trace, answer = self.folder / "trace.json", str(self.file(what))
        trace.unlink(missing_ok=True)
        self.ulpscope("run", str(self.model), "--answer", answer, "--backend", "cuda", "--profile-trace", str(trace))
        return sum(float(step["dur"]) for step in json.loads(trace.read_text())["traceEvents"] if step["ph"] == "X")


def compare(network: Network, target: str, share: float) -> float:
    lowest = network.search("lowest", target, 1e9)["lowest"]["value"]
    measured = str(network.file("measured"))
    network.ulpscope("target", "measure", str(network.model), "--fp16", "--backend", "cuda", "-o", measured)
    times, text = [], ""
    for what, by in (("by_target", target), ("by_measured", measured)):
        answer = network.search(what, by, share * lowest)
        times.append(network.time_us(what))
        text += f"{times[-1]:9.1f} {len(answer['layers']):4d} of {answer['candidates']:4d}"
    ratio = times[0] / times[1]
    print(f"{network.name:24s}{text}  {ratio:.2f}", flush=True)
    return ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path, metavar="MODEL")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--share", type=float, default=0.6, help="of the error of everything in fp16 (default: 0.6)")
    parser.add_argument("--folder", type=pathlib.Path, help="where targets and answers are kept")
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "bin" / "ulpscope"))
    options = parser.parse_args()
    status = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for model in options.models:
            try:
                compare(Network(model, folder, options.program), options.target, options.share)
            except Failed as failure:
                print(failure, file=sys.stderr)
                status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
