"""What the benchmarks share: interleaved timing, a line about the machine, and tables in three formats."""

from __future__ import annotations

import argparse
import csv
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from importlib import metadata
from typing import Any, Callable, Dict, List, Mapping, Sequence

import models


def interleave(
    calls: Mapping[str, Callable[[], Any]], seconds: float, rounds: int = 3, block: int = 10
) -> Dict[str, List[float]]:
    """Milliseconds per call: blocks of runs in turn until both `seconds` and `rounds` are over.

    The first three runs of a block do not count: the threads of the side before may still spin, and caches are its own.
    There are no pauses: threads that went to sleep may wake on one core, and stay there for a while.
    """
    times: Dict[str, List[float]] = {name: [] for name in calls}
    end, done = time.monotonic() + seconds, 0
    while done < rounds or time.monotonic() < end:
        for name, call in calls.items():
            for i in range(block + 3):
                start = time.perf_counter()
                call()
                if i >= 3:
                    times[name].append((time.perf_counter() - start) * 1e3)
        done += 1
    return times


def summary(times: Sequence[float]) -> Dict[str, float]:
    """Minimum, median and 90th percentile."""
    ordered = sorted(times)
    return {
        "min": ordered[0],
        "median": statistics.median(ordered),
        "p90": ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def environment(**more: Any) -> Dict[str, Any]:
    """The machine, versions and commit that figures belong to."""
    cpu = platform.processor()
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        lines = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = lines[0] if lines else cpu
    commit = subprocess.run(
        ["git", "-C", str(models.ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    versions = {name: _version(name) for name in ("onnxruntime", "onnx", "numpy", "onednn-cpu-gomp")}
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version for name, version in versions.items() if version != "unknown"},
        "commit": commit or "unknown",
        **more,
    }


def parser(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark in Python has."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--output", choices=("json", "csv", "md"), default="md", help="the format of the figures")
    result.add_argument("--path", type=pathlib.Path, default=models.ROOT / "build" / "models", help="folder of the models")
    result.add_argument("--quick", action="store_true", help="a few runs only: shows that everything works")
    return result


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def report(rows: List[Dict[str, Any]], where: Dict[str, Any], form: str) -> None:
    """Prints the rows, which have the same keys, and the environment."""
    if form == "json":
        print(json.dumps({"environment": where, "rows": rows}, indent=1))
        return
    line = ", ".join(f"{key} {value}" for key, value in where.items())
    if form == "csv":
        print(f"# {line}")
        writer = csv.DictWriter(sys.stdout, list(rows[0]))
        writer.writeheader()
        writer.writerows({key: _text(value) for key, value in row.items()} for row in rows)
        return
    print(f"{line}\n")
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(map(_text, row.values())) + " |")
