"""Latencies in float16 on a GPU, ulpscope beside what else runs networks there: peers.py FOLDER PROGRAM [NAME...]

FOLDER holds what make_networks.py exports, PROGRAM is gpu_latency. Peers: torch one operator after another, torch in
a CUDA graph, torch.compile (reduce-overhead, with --compile), ONNX Runtime with a CUDA graph where onnxruntime-gpu is
installed. A peer that is absent or fails is named below the table.

Every number is of events on the GPU, inputs being there. The sides run in turns: in each of --rounds rounds each peer
takes --times runs behind some that do not count, and gpu_latency starts once and gives the least of several. Cells
hold the least and, behind a slash, the median of the rounds' leasts, microseconds. Ratios are of the leasts.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import warnings
from importlib import metadata
from typing import Any, Callable, Optional

import numpy as np
import torch

import networks

SIDES = ("ulpscope", "eager", "graph", "compile", "onnxruntime")
Run = Callable[[], Any]


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:150] if text else ''}"


def microseconds(run: Run, times: int, stream: Optional[torch.cuda.Stream] = None) -> float:
    """The least of `times` runs, each between two events; five do not count."""
    least = float("inf")
    with torch.cuda.stream(stream or torch.cuda.current_stream()):
        for i in range(times + 5):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            if i >= 5:
                least = min(least, begin.elapsed_time(end) * 1e3)
    return least


def in_graph(run: Run) -> Run:
    """The launches of `run` as one recorded graph, behind three runs that are not recorded. It keeps the results."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()

    def replay() -> Any:
        graph.replay()
        return kept

    return replay


class Torch:
    """The network in float16 on the GPU, with its inputs there."""

    def __init__(self, built: networks.Built) -> None:
        images = built.kind.convolutional
        memory = {"memory_format": torch.channels_last} if images else {}
        self.network = built.network.half().cuda().to(**memory)
        self.inputs = []
        for value in built.inputs.values():
            value = value.cuda().half() if value.is_floating_point() else value.cuda()
            self.inputs.append(value.to(**memory) if images and value.dim() == 4 else value)

    def eager(self) -> Run:
        return lambda: self.network(*self.inputs)

    def graph(self) -> Run:
        return in_graph(lambda: self.network(*self.inputs))

    def compile(self) -> Run:
        compiled = torch.compile(self.network, mode="reduce-overhead")
        for _ in range(3):
            compiled(*self.inputs)
        return lambda: compiled(*self.inputs)


class OnnxRuntime:
    """The same network exported in float16; inputs and outputs stay on the GPU."""

    def __init__(self, torch_side: Torch, names: list[str]) -> None:
        import onnxruntime

        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise RuntimeError("onnxruntime without CUDAExecutionProvider; pip install onnxruntime-gpu")
        onnxruntime.set_default_logger_severity(3)
        self.stream = torch.cuda.Stream()
        # On the CPU, for the exporter; its constants would be on the GPU otherwise.
        network = torch_side.network.to("cpu", memory_format=torch.contiguous_format)
        inputs = [value.cpu().contiguous() for value in torch_side.inputs]
        program = torch.onnx.export(network, tuple(inputs), dynamo=True, verbose=False, input_names=names)
        assert program is not None
        network.cuda()
        options = {
            "enable_cuda_graph": "1", "prefer_nhwc": "1", "user_compute_stream": str(self.stream.cuda_stream),
        }  # fmt: skip
        self.session = onnxruntime.InferenceSession(
            program.model_proto.SerializeToString(), providers=[("CUDAExecutionProvider", options)]
        )
        used = self.session.get_providers()
        if used[0] != "CUDAExecutionProvider":
            raise RuntimeError(f"onnxruntime fell back to {used[0]}")
        self.binding, self.held = self.session.io_binding(), []
        for entry, value in zip(self.session.get_inputs(), (value.cuda().contiguous() for value in inputs)):
            self.held.append(value)
            self.binding.bind_input(
                entry.name,
                "cuda",
                0,
                np.float16 if value.is_floating_point() else np.int64,
                tuple(value.shape),
                value.data_ptr(),
            )
        for entry in self.session.get_outputs():
            value = torch.empty(tuple(entry.shape), dtype=torch.float16, device="cuda")
            self.held.append(value)
            self.binding.bind_output(entry.name, "cuda", 0, np.float16, tuple(value.shape), value.data_ptr())

    def run(self) -> Run:
        return lambda: self.session.run_with_iobinding(self.binding)


def ours(program: pathlib.Path, model: pathlib.Path) -> float:
    """What gpu_latency says; raises RuntimeError with its words where that is no time."""
    done = subprocess.run([str(program), str(model), "fp16", "full"], capture_output=True, text=True, check=False)
    found = re.search(r" fp16 full: ([0-9.]+) us;", done.stdout)
    if done.returncode != 0 or not found:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}")[-300:])
    return float(found.group(1))


def prepare(built: networks.Built, compiles: bool, failures: dict[str, str]) -> dict[str, Callable[[int], float]]:
    """What measures each peer: `times` runs in, microseconds out."""
    sides: dict[str, Callable[[int], float]] = {}

    def attempt(name: str, make: Callable[[], Callable[[int], float]]) -> None:
        try:
            sides[name] = make()
        except Exception as error:  # A peer that fails does not keep the others.
            failures[name] = first_line(error)
            torch.cuda.synchronize()

    held = Torch(built)

    def onnxruntime() -> Callable[[int], float]:
        side = OnnxRuntime(Torch(networks.build(built.name)), list(built.inputs))
        return lambda times: microseconds(side.run(), times, side.stream)

    def of(run: Run) -> Callable[[int], float]:
        return lambda times: microseconds(run, times)

    attempt("eager", lambda: of(held.eager()))
    attempt("graph", lambda: of(held.graph()))
    if compiles:
        attempt("compile", lambda: of(held.compile()))
    attempt("onnxruntime", onnxruntime)
    return sides


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One network: the leasts of every round, by side, and why sides are missing."""
    failures: dict[str, str] = {}
    model = options.folder / f"{name}.onnx"
    built = networks.build(name)
    with torch.inference_mode():
        sides = prepare(built, options.compile, failures)
        sides["ulpscope"] = lambda times: ours(options.program, model)
        times: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side in list(sides):
                try:
                    times[side].append(sides[side](options.times))
                except Exception as error:
                    failures[side] = first_line(error)
                    del sides[side]
    torch.cuda.empty_cache()
    return {
        "name": name,
        "times": {side: taken for side, taken in times.items() if side in sides},
        "failures": failures,
    }


def row(result: dict[str, Any], sides: list[str]) -> dict[str, str]:
    """The table's row: least / median of a side, the best peer and how our time relates to its."""
    times = result["times"]
    cells = {"network": result["name"]}
    for side in sides:
        cells[side] = f"{min(times[side]):.1f} / {statistics.median(times[side]):.1f}" if side in times else "-"
    peers = {side: min(taken) for side, taken in times.items() if side != "ulpscope"}
    best = min(peers, key=peers.__getitem__) if peers else None
    cells["best peer"] = best or "-"
    cells["ours / best peer"] = f"{min(times['ulpscope']) / peers[best]:.2f}" if best and "ulpscope" in times else "-"
    return cells


def versions() -> dict[str, str]:
    found = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "python": platform.python_version(),
    }
    for package in ("onnxruntime-gpu", "nvidia-cudnn-cu13", "nvidia-cublas"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path, help="gpu_latency")
    parser.add_argument("names", nargs="*", help="beginnings of names (default: all)")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well: a minute more for each network")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=40, help="runs of a peer in each round")
    parser.add_argument("--json", type=pathlib.Path, help="write everything that was measured to this file, too")
    options = parser.parse_args()
    options.program = options.program.resolve()
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU")
    warnings.filterwarnings("ignore")
    where = versions()
    print(", ".join(f"{key} {value}" for key, value in where.items()) + "\n")
    sides = [side for side in SIDES if side != "compile" or options.compile]
    header = ["network", *sides, "best peer", "ours / best peer"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    results = []
    for name in networks.chosen(options.names, parser):
        results.append(compare(name, options))
        print("| " + " | ".join(row(results[-1], sides)[column] for column in header) + " |", flush=True)
        if options.json:
            options.json.write_text(json.dumps({"environment": where, "networks": results}, indent=1))
    notes = [f"{each['name']}, {side}: {reason}" for each in results for side, reason in each["failures"].items()]
    if notes:
        print("\nNot measured:\n" + "\n".join(f"- {note}" for note in notes))
    return 0 if all("ulpscope" in each["times"] for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
