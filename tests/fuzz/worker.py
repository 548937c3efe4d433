"""The process that carries graphs out, so that a crash ends it and nothing else. One line of JSON per event on stdout.

worker.py run SUITE FIRST STOP STEP                    the graphs of the seeds range(FIRST, STOP, STEP)
worker.py sweep NAME COUNT                             so many shapes of one kind of kernel
worker.py shrink SUITE SEED FOLDER FAILURE SECONDS     shrinks the graph of a seed that fails so (JSON), into FOLDER
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import select
import signal
import sys
import time
from typing import Any, Callable, Dict, NamedTuple, Optional

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from fuzz.checks import CRASHED, INTERNAL, ORACLE, REFUSED, Checks, Failure, Way  # noqa: E402
from fuzz.generator import generate  # noqa: E402
from fuzz.graph import Graph  # noqa: E402
from fuzz.pipeline_checks import PipelineChecks  # noqa: E402
from fuzz.steps import Step  # noqa: E402
from fuzz.stress import generate_for_pipeline  # noqa: E402

SECONDS_PER_TRIAL = 20


class Suite(NamedTuple):
    """What graphs go through."""

    generate: Callable[[int], Graph]
    checks: Callable[[Graph], Any]
    way: Callable[..., Any]


ENGINE, PIPELINE = "engine", "pipeline"
SUITES: Dict[str, Suite] = {
    ENGINE: Suite(generate, Checks, Way),
    PIPELINE: Suite(generate_for_pipeline, PipelineChecks, Step),
}


def say(**event: object) -> None:
    """Writes an event at once: what comes next may be a crash."""
    print(json.dumps(event), flush=True)


def run(suite: Suite, seeds: range) -> None:
    """Checks the graphs of the seeds."""
    for seed in seeds:
        say(begin=seed)
        start = time.monotonic()
        graph = suite.generate(seed)
        checks = suite.checks(graph)
        failures = [
            dataclasses.asdict(failure) for failure in checks.failures(lambda way: say(way=dataclasses.asdict(way)))
        ]
        say(
            end=seed,
            failures=failures,
            operators=sorted(graph.operators),
            seconds=time.monotonic() - start,
            counts=checks.counts,
        )


def sweep(name: str, count: int) -> None:
    """Checks one kind of kernel on `count` shapes: without and with fusion, with one thread and with two."""
    from fuzz.sweeps import SWEEPS, case

    ways = [Way("none"), Way("full"), Way("full", 2, against="threads")]
    for i in range(count):
        graph = case(SWEEPS[name], i)
        say(begin=i, listing=graph.listing())
        checks = Checks(graph)
        failures = [failure for failure in map(checks.check, ways) if failure]
        say(end=i, failures=[dataclasses.asdict(failure) for failure in failures], listing=graph.listing())


def as_failure(suite: Suite, fields: dict) -> Failure:
    """What dataclasses.asdict was given."""
    way = fields.get("way")
    return Failure(fields["kind"], fields["text"], suite.way(**way) if way else None, fields.get("what", ""))


def trial(suite: Suite, graph: Graph, failure: Failure) -> Optional[Failure]:
    """How a graph fails in the way of an earlier failure; crashes get three chances."""
    attempts = 3 if failure.kind == CRASHED else 1
    return next((found for found in (_trial(suite, graph, failure) for _ in range(attempts)) if found), None)


def _trial(suite: Suite, graph: Graph, failure: Failure) -> Optional[Failure]:
    """One such try, in a process of its own: the same failure, if there are several."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(readable)
            checks = suite.checks(graph)
            ways = [failure.way] if failure.way else checks.ways()
            all_found = (each for way in ways for each in checks.found(way))
            found = min(all_found, key=lambda f: (f.kind != failure.kind, f.cause != failure.cause), default=None)
            os.write(writable, json.dumps(dataclasses.asdict(found) if found else None).encode()[:60000])
            status = 0
        finally:
            os._exit(status)
    os.close(writable)
    ready, _, _ = select.select([readable], [], [], SECONDS_PER_TRIAL)
    text = os.read(readable, 65536) if ready else b""
    os.close(readable)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not ready or os.WIFSIGNALED(status):
        return Failure(CRASHED, "hangs" if not ready else signal.Signals(os.WTERMSIG(status)).name, failure.way)
    fields = json.loads(text) if text else None
    return as_failure(suite, fields) if fields else None


def shrink_seed(suite: Suite, seed: int, folder: pathlib.Path, failure: Failure, seconds: float) -> None:
    """Writes SEED_KIND.onnx, its inputs and a listing into the folder, as small as it gets."""
    import numpy as np

    from fuzz.shrink import shrink

    last = failure

    def fails(graph: Graph) -> bool:
        nonlocal last
        found = trial(suite, graph, failure)
        if found is None or found.kind != failure.kind:
            return False
        if (failure.what or failure.kind in (REFUSED, INTERNAL, ORACLE)) and found.cause != failure.cause:
            return False
        last = found
        return True

    graph = suite.generate(seed)
    alone = fails(graph)
    if alone:
        graph = shrink(graph, fails, seconds)
    stem = folder / f"{seed}_{failure.kind.replace(' ', '_')}"
    stem.with_suffix(".onnx").write_bytes(graph.model())
    for i, feed in enumerate(graph.feeds):
        np.savez(f"{stem}_{i}.npz", **feed)
    listing = f"{last.way}\n{last.text}\n{graph.listing()}\n"
    stem.with_suffix(".txt").write_text(listing)
    say(shrunk=seed, listing=listing, alone=alone, operators=[node.op_type for node in graph.nodes])


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(SUITES[sys.argv[2]], range(*map(int, sys.argv[3:6])))
    elif sys.argv[1] == "sweep":
        sweep(sys.argv[2], int(sys.argv[3]))
    else:
        chosen, seed, folder, failure, seconds = sys.argv[2:7]
        suite = SUITES[chosen]
        shrink_seed(suite, int(seed), pathlib.Path(folder), as_failure(suite, json.loads(failure)), float(seconds))
