#!/usr/bin/env python3
"""Random graphs at every fusion level, judged by ONNX Runtime and double arithmetic; failing ones are shrunk.

    python tests/fuzz/run.py --count 1000 --seed 0      the graphs of the seeds 0 ... 999
    python tests/fuzz/run.py --graph 417                one graph, printed

Finds ulpscope as Python does, else in the newest build folder. Exits 0 only if nothing is wrong, nothing crashed, no
defect of ulpscope was reported and at most one graph in a hundred was refused.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
from types import MappingProxyType
from typing import Dict, List, Mapping, Optional, Sequence

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
SECONDS_PER_GRAPH = 600  #: Until it is said to hang.
WORST_REFUSED = 0.01
REFUSED, CRASHED = "refused", "crashed"


def kind_of_way(way) -> str:
    """A way without the names of layers."""
    if way is None:
        return "while it was made"
    if hasattr(way, "kind"):
        return way.kind
    return f"{'mixed ' if way.layer_precisions else ''}{way.precision}, fusion {way.fusion}, against {way.against}"


def by_cause(failure) -> bool:
    """Its text tells failures apart; others, the way does."""
    from fuzz.checks import INTERNAL, ORACLE

    return bool(failure.what) or failure.kind in (INTERNAL, REFUSED, ORACLE)


@dataclasses.dataclass
class Summary:
    """What came of a run."""

    suite: str
    graphs: int = 0
    seconds: float = 0.0  #: Of all workers together.
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)  #: Of the checks.
    failures: Dict[int, List[dict]] = dataclasses.field(default_factory=dict)  #: Per seed.
    operators: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def count(self, kind: str) -> int:
        """The graphs that failed so."""
        return sum(any(f["kind"] == kind for f in failures) for failures in self.failures.values())

    @property
    def passed(self) -> bool:
        """Nothing failed, but for a few refusals."""
        others = sum(any(f["kind"] != REFUSED for f in failures) for failures in self.failures.values())
        return others == 0 and self.count(REFUSED) <= max(1, WORST_REFUSED * self.graphs)

    def text(self) -> str:
        """The totals, and the texts of refusals by cause."""
        from fuzz.checks import BITS, INTERNAL, ORACLE, WRONG
        from fuzz.worker import ENGINE, SUITES, as_failure

        kinds = (WRONG, CRASHED, BITS, INTERNAL, REFUSED, ORACLE)
        lines = [f"{self.graphs} graphs: " + ", ".join(f"{self.count(kind)} {kind}" for kind in kinds)]
        if self.suite == ENGINE:
            judged, unjudged = self.counts["judged"], self.counts["unjudged"]
            lines.append(f"  {judged} results in low precision judged by the oracle, {unjudged} outside of it")
        else:
            lines += [f"  {count} x {what}" for what, count in sorted(self.counts.items())]
        causes: Dict[str, List[int]] = collections.defaultdict(list)
        for seed, failures in sorted(self.failures.items()):
            for failure in (as_failure(SUITES[self.suite], fields) for fields in failures):
                what = failure.cause if by_cause(failure) else kind_of_way(failure.way)
                causes[f"{failure.kind}: {what}"].append(seed)
        for cause, seeds in sorted(causes.items(), key=lambda item: -len(item[1])):
            lines.append(f"  {len(seeds)} x {cause} (seeds {', '.join(map(str, seeds[:6]))})")
        return "\n".join(lines)


def environment() -> Dict[str, str]:
    """One in which workers find ulpscope: as it is, or with the newest build's package on the path."""
    result = dict(os.environ)
    # Memory that is not written before it is read has other values than zeros, and heap overruns end the process.
    result.setdefault("MALLOC_PERTURB_", "165")
    build = os.environ.get("ULPSCOPE_BUILD_DIR")
    modules = sorted(ROOT.glob("build/*/python/ulpscope/_core*.so"), key=lambda path: path.stat().st_mtime)
    package = f"{build}/python" if build else str(modules[-1].parents[1]) if modules else ""
    if package and (build or not result.get("PYTHONPATH")):
        result["PYTHONPATH"] = os.pathsep.join(filter(None, [package, result.get("PYTHONPATH", "")]))
    return result


def worker(arguments: Sequence[str], settings: Mapping[str, str] = MappingProxyType({})) -> subprocess.Popen:
    """Starts worker.py, with further variables in its environment."""
    command = [sys.executable, str(FOLDER / "worker.py"), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**environment(), **settings}, text=True,
        errors="replace",
    )  # fmt: skip


def _lines(process: subprocess.Popen) -> "queue.Queue[Optional[str]]":
    """The lines of a process as they come; None at their end."""
    lines: "queue.Queue[Optional[str]]" = queue.Queue()

    def pump() -> None:
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=pump, daemon=True).start()
    return lines


def _one_worker(seeds: range, summary: Summary, lock: threading.Lock, settings: Mapping[str, str]) -> None:
    """Runs the seeds, with a new process after each crash."""
    while len(seeds):
        process = worker(["run", summary.suite, str(seeds.start), str(seeds.stop), str(seeds.step)], settings)
        errors: List[str] = []
        drain = threading.Thread(target=lambda p=process: errors.append(p.stderr.read()), daemon=True)
        drain.start()
        lines, current, way, hangs = _lines(process), None, None, False
        while True:
            try:
                line = lines.get(timeout=SECONDS_PER_GRAPH)
            except queue.Empty:
                process.kill()
                hangs = True
                continue
            if line is None:
                break
            event = json.loads(line)
            if "way" in event:
                way = event["way"]
                continue
            if "begin" in event:
                current, way = event["begin"], None
                continue
            current = None
            with lock:
                summary.graphs += 1
                summary.seconds += event["seconds"]
                summary.counts.update(event["counts"])
                summary.operators.update(event["operators"])
                if event["failures"]:
                    summary.failures[event["end"]] = event["failures"]
        status = process.wait()
        drain.join()
        if current is None:
            if status != 0:
                raise RuntimeError(f"a worker ended between graphs, status {status}: {errors[0][-2000:]}")
            return
        if status > 0 and not hangs:
            raise RuntimeError(f"the fuzzer itself failed at seed {current}:\n{errors[0][-3000:]}")
        with lock:
            summary.graphs += 1
            text = "hangs" if hangs else f"signal {-status}"
            summary.failures[current] = [{"kind": CRASHED, "text": text, "way": way}]
        seeds = range(current + seeds.step, seeds.stop, seeds.step)


def run_graphs(
    first: int, count: int, jobs: int, suite: str = "engine", settings: Mapping[str, str] = MappingProxyType({})
) -> Summary:
    """Checks the graphs of `count` seeds in so many processes, with further variables in their environment."""
    summary, lock, broken = Summary(suite), threading.Lock(), []

    def work(job: int) -> None:
        try:
            _one_worker(range(first + job, first + count, jobs), summary, lock, settings)
        except Exception as error:
            broken.append(error)

    threads = [threading.Thread(target=work, args=(job,)) for job in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]
    return summary


def shrink_failure(
    seed: int, failure: dict, folder: pathlib.Path, seconds: float = 60.0, suite: str = "engine",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> str:  # fmt: skip
    """Shrinks the graph of a seed into the folder and returns its listing."""
    folder.mkdir(parents=True, exist_ok=True)
    process = worker(["shrink", suite, str(seed), str(folder), json.dumps(failure), str(seconds)], settings)
    out, errors = process.communicate()
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if not events:
        return f"could not be shrunk: {errors[-1500:]}"
    note = "" if events[-1]["alone"] else "(does not fail alone in a new process)\n"
    return note + events[-1]["listing"]


def shrunk_failures(summary: Summary, folder: pathlib.Path, settings: Mapping[str, str] = MappingProxyType({})) -> str:
    """The summary, with the graphs of the first three failed seeds shrunk."""
    texts = [summary.text()]
    for seed, failures in sorted(summary.failures.items())[:3]:
        texts.append(f"seed {seed}: {shrink_failure(seed, failures[0], folder, 20, summary.suite, settings)}")
    return "\n".join(texts)


def report(summary: Summary, folder: pathlib.Path, limit: int) -> None:
    """Prints the failures, the first of each cause shrunk."""
    from fuzz.worker import SUITES, as_failure

    seen: collections.Counter = collections.Counter()
    for seed, failures in sorted(summary.failures.items()):
        for fields in failures:
            failure = as_failure(SUITES[summary.suite], fields)
            text = ": ".join(filter(None, [failure.what, failure.text]))
            print(f"seed {seed} {failure.kind}: {text[:400]} [{failure.way}]")
            key = (failure.kind, failure.cause if by_cause(failure) else "")
            seen[key] += 1
            if seen[key] <= limit:
                print(shrink_failure(seed, fields, folder, suite=summary.suite), flush=True)


def main(argv: Optional[Sequence[str]] = None, suite: str = "engine", description: Optional[str] = __doc__) -> int:
    """The command line of a suite."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="how many graphs (default 500)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--graph", type=int, metavar="SEED", help="this one graph, printed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--shrink", type=int, default=5, metavar="N", help="failures to shrink per cause (default 5)")
    parser.add_argument("--output", type=pathlib.Path, help="folder for failing models (default: a temporary one)")
    options = parser.parse_args(argv)
    first, count = (options.graph, 1) if options.graph is not None else (options.seed, options.count)
    if options.graph is not None:
        from fuzz.worker import SUITES

        print(SUITES[suite].generate(options.graph).listing())
    summary = run_graphs(first, count, max(1, min(options.jobs, count)), suite)
    folder = options.output or pathlib.Path(tempfile.mkdtemp(prefix="ulpscope_fuzz_"))
    report(summary, folder, options.shrink)
    print(summary.text())
    print(f"{1000 * summary.seconds / max(1, summary.graphs):.0f} ms a graph", end="")
    print(f"; failing models in {folder}" if summary.failures else "")
    return 0 if summary.passed else 1


if __name__ == "__main__":
    sys.exit(main())
