#!/usr/bin/env python3
"""Writes what a build computes as a list of digests; scripts/compare_commits.py compares two of them.

    PYTHONPATH=build/release/python python scripts/record_bits.py INPUTS RECORD.json

INPUTS is what scripts/bits_inputs.py wrote. Recorded are the outputs of all networks in all precisions, at all levels
of fusion, on the backends cpu and plain; scales of int8; typed models; answers and journals of searches. What differs
from run to run (times, paths) or from release to release (versions) is left out, and NaN counts as NaN, whatever its
bits. The instruction sets are those of the environment.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import logging
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx

import ulpscope
from bits_inputs import FUZZ, MODEL, Network, read, read_array, write_feeds
from ulpscope.native import _core

LEVELS = ("none", "pointwise", "full")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
BACKENDS = ("cpu", "plain")
PASSING = ("seconds", "program")  #: Of answers and trials: when, and by which release they were made.

#: Name: network, arguments of ulpscope.search.
SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "smallest": ("small/uneven", {"threshold": 0.002, "objective": "smallest", "fusion": "none"}),
    "fastest": ("small/uneven", {"threshold": 0.002, "fusion": "none"}),
    "cheapest in bf16": ("small/uneven", {"threshold": 0.02, "objective": "cheapest", "precisions": ["bf16"]}),
    "shrunk, one layer kept": ("small/uneven", {"threshold": 0.002, "shrink": True, "keep": ["Third"]}),
    "repaired": ("small/beyond_fp16", {"threshold": 0.01, "objective": "smallest"}),
    "without repairs": ("small/beyond_fp16", {"threshold": 0.01, "repair": False, "objective": "smallest"}),
    "int8 and fp16": ("small/masked_attention", {"threshold": 0.05, "precisions": ["int8", "fp16"]}),
    "smallest above int8": (
        "small/masked_attention",
        {"threshold": 0.05, "precisions": ["int8"], "objective": "smallest"},
    ),
    "fallback to bf16": ("small/masked_attention", {"threshold": 0.02, "fallback": ["bf16", "fp32"]}),
    "tolerances": ("truth/needs_constraints", {"atol": 0.01, "rtol": 0.001, "fusion": "none"}),
    "int8 of an encoder": ("truth/encoder4", {"threshold": 0.01, "precisions": ["int8"], "objective": "smallest"}),
    "tf32 of a normalization": ("truth/manual_norm", {"threshold": 0.0001, "precisions": ["tf32"]}),
    "not reachable": ("small/uneven", {"threshold": 1e-6, "fallback": ["bf16"]}),
}


def digest(data: bytes) -> str:
    """Short enough for a list that people read."""
    return hashlib.blake2b(data, digest_size=10).hexdigest()


def digest_of_outputs(outputs: Mapping[str, Any]) -> str:
    """Of names, types, shapes and bits."""
    parts = []
    for name, value in outputs.items():
        array = np.array(value)
        if array.dtype.kind not in "biuSUO":
            array[np.isnan(array)] = np.nan
        content = repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes()
        parts += [f"{name} {array.dtype} {array.shape}".encode(), content]
    return digest(b"\0".join(parts))


def digest_of_json(value: Any) -> str:
    """Of an answer, or the lines of a journal, without what differs from run to run."""
    return digest(json.dumps(_without_passing(value)).encode())


def _without_passing(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_passing(each) for key, each in value.items() if key not in PASSING}
        if "cost" in kept:
            kept["cost"] = kept["cost"][:2]  # the third are seconds
        return kept
    return [_without_passing(each) for each in value] if isinstance(value, list) else value


def digest_of_model(model: onnx.ModelProto) -> str:
    """Of a file without the version of who made it."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    copy.producer_version = ""
    return digest(copy.SerializeToString(deterministic=True))


class Recorder:
    """Collects digests under names that say what was done with what."""

    def __init__(self, networks: list[Network], program: pathlib.Path, quick: bool) -> None:
        self.networks, self.program, self.quick = networks, program, quick
        self.record: dict[str, str] = {}

    def note(self, name: str, make: Callable[[], str]) -> None:
        """Refusals are results, too: their code counts, their words do not."""
        try:
            self.record[name] = make()
        except ulpscope.Error as error:
            self.record[name] = f"refused: {error.code.name}"
        except ulpscope.InternalError:
            self.record[name] = "internal error"

    def everything(self, searches: bool) -> dict[str, str]:
        """All digests by name, with those of searches or without."""
        for number, network in enumerate(self.networks):
            for precision, fusion, backend in self._ways(network, number):
                name = f"run {network.title} in {precision}, fusion {fusion}, on {backend}"
                self.note(name, lambda: self._run(network, precision, fusion, backend))
            self._int8(network)
            for precision in ("fp16", "bf16"):
                self.note(f"convert {network.title} to {precision}", lambda: self._convert(network, precision, None))
        known = {network.title: network for network in self.networks}
        for name, (title, arguments) in SEARCHES.items() if searches else ():
            self._search(name, known[title], arguments)
        return self.record

    def _ways(self, network: Network, number: int) -> Iterator[tuple[str, str, str]]:
        """All of them; of graphs and models, of which there are many or which take long, some."""
        if network.kind == MODEL:
            for way in ("fp32 full", "fp16 none", "fp16 full", "bf16 pointwise"):
                precision, fusion = way.split()
                yield precision, fusion, "cpu"
        elif network.kind == FUZZ or self.quick:
            for i, precision in enumerate(PRECISIONS):
                yield precision, LEVELS[(number + i) % len(LEVELS)], "cpu"
            yield PRECISIONS[number % len(PRECISIONS)], LEVELS[number // 4 % len(LEVELS)], "plain"
        else:
            yield from itertools.product(PRECISIONS, LEVELS, BACKENDS)

    def _run(self, network: Network, precision: str, fusion: str, backend: str) -> str:
        engine = ulpscope.Engine(network.model, precision=precision, fusion=fusion, backend=backend, threads=1)
        return digest(" ".join(digest_of_outputs(engine.run(feed)) for feed in network.feeds).encode())

    def _convert(self, network: Network, precision: str, scales: ulpscope.Calibration | None) -> str:
        typed, _ = ulpscope.convert(
            network.model, precision=precision, calibration=scales, data=network.feeds[:1], verify=False,
            progress=False, threads=1,
        )  # fmt: skip
        return digest_of_model(typed)

    def _int8(self, network: Network) -> None:
        scales: list[ulpscope.Calibration] = []

        def calibrate() -> str:
            scales.append(ulpscope.calibrate(network.model, network.feeds, progress=False, threads=1))
            return digest(json.dumps(sorted(scales[0].items())).encode())

        self.note(f"calibrate {network.title}", calibrate)
        if not scales:
            return
        self.note(f"convert {network.title} to int8", lambda: self._convert(network, "int8", scales[0]))
        if network.kind == FUZZ:
            return
        ways = [("none", "cpu"), ("pointwise", "cpu"), ("full", "cpu"), ("full", "plain")]
        for fusion, backend in ways[2:3] if network.kind == MODEL or self.quick else ways:
            name = f"run {network.title} in int8, fusion {fusion}, on {backend}"
            self.record[name] = self._run_int8(network, scales[0], fusion, backend)

    def _run_int8(self, network: Network, scales: ulpscope.Calibration, fusion: str, backend: str) -> str:
        """By the program: engines of the package compute in int8 for an answer alone."""
        folder = pathlib.Path(tempfile.mkdtemp(dir="."))
        (folder / "model.onnx").write_bytes(network.model)
        write_feeds(folder / "inputs.json", network.feeds)
        scales.save(folder / "scales.cache")
        words = "run model.onnx --trt --int8 --assume-lowest --calibration-cache scales.cache --load-inputs inputs.json"
        words += f" --save-outputs outputs.json --fusion {fusion} --backend {backend}"
        done = subprocess.run(
            [self.program, *words.split()], cwd=folder, capture_output=True, text=True, errors="replace"
        )
        if done.returncode != 0:
            return f"refused: exit code {done.returncode}"
        iterations = json.loads((folder / "outputs.json").read_text())["lst"][0][1]
        outputs = [
            {name: read_array(value["values"]) for name, value in each["outputs"].items()} for each in iterations
        ]
        return digest(" ".join(map(digest_of_outputs, outputs)).encode())

    def _search(self, name: str, network: Network, arguments: dict[str, Any]) -> None:
        journal = pathlib.Path(f"{name.replace(' ', '_')}.jsonl")

        def search() -> str:
            answer = ulpscope.search(
                network.model, network.feeds, journal=journal, progress=False, threads=1, **arguments
            )
            found = f"{answer.verdict}, {len(answer.layers)} layers, {len(answer.trials)} trials"
            return f"{digest_of_json(answer.to_dict())} ({found})"

        self.note(f"search '{name}' in {network.title}: answer", search)
        lines = journal.read_text().splitlines() if journal.exists() else []
        trials = [json.loads(line) for line in lines]
        self.record[f"search '{name}' in {network.title}: journal"] = digest_of_json(trials)


def times(networks: list[Network]) -> dict[str, float]:
    """Seconds, the least of some: of a run, of a first run with the engine before it, of a search, of a conversion."""
    known = {network.title: network for network in networks}
    task = {"threshold": 0.02, "precisions": ["int8", "fp16"], "progress": False}
    result = {}
    for title in ("truth/encoder4", "truth/residual_cnn", "truth/conv_bn_relu", "model/minilm"):
        if title not in known:
            continue
        network = known[title]
        feed = network.feeds[0]

        def plan() -> ulpscope.Engine:
            engine = ulpscope.Engine(network.model, precision="fp16")
            engine.run(feed)
            return engine

        engine = plan()
        result[f"forward {title}"] = _least(lambda: engine.run(feed), 20)
        result[f"plan {title}"] = _least(plan, 3)
        result[f"convert {title}"] = _least(
            lambda: ulpscope.convert(network.model, data=[feed], verify=False, progress=False), 3
        )
    searched = known["small/masked_attention"]
    result["search small/masked_attention"] = _least(lambda: ulpscope.search(searched.model, searched.feeds, **task), 1)
    return result


def _least(call: Callable[[], object], count: int) -> float:
    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(once() for _ in range(count))


def main() -> None:
    """Computes and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", type=pathlib.Path, metavar="INPUTS", help="what scripts/bits_inputs.py wrote")
    parser.add_argument("record", type=pathlib.Path, metavar="RECORD", help="the file to write")
    parser.add_argument("--quick", action="store_true", help="each network in fewer ways")
    parser.add_argument("--no-searches", action="store_true", help="for inputs that lack the networks of the searches")
    parser.add_argument("--times", action="store_true", help="write seconds in the place of digests")
    options = parser.parse_args()
    logging.getLogger("ulpscope").setLevel(logging.CRITICAL)
    networks, place = read(options.inputs), options.record.resolve()
    if options.times:
        place.write_text(json.dumps(times(networks)))
        return
    program = pathlib.Path(_core.__file__).resolve().parents[2] / "bin" / "ulpscope"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        made = Recorder(networks, program, options.quick).everything(not options.no_searches)
    place.write_text(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
