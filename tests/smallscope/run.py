#!/usr/bin/env python3
"""All small graphs of two and three operator forms, judged in every precision; see __init__.py.

    python tests/smallscope/run.py                     all of them
    python tests/smallscope/run.py --part 3/10         a tenth
    python tests/smallscope/run.py --stage triangles   one stage
    python tests/smallscope/run.py --graph 12345       one graph, printed, in this very process

Finds ulpscope as Python does, else in the newest build folder. Memory is poisoned, and glibc checks every block of it.
Exits 0 only if nothing is wrong, nothing crashed, no defect of ulpscope was reported and at most one graph in a hundred
was refused.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import glob
import itertools
import os
import pathlib
import sys
import time
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from fuzz.checks import BITS, CRASHED, INTERNAL, ORACLE, REFUSED, WRONG, Failure  # noqa: E402
from fuzz.run import WORST_REFUSED, environment  # noqa: E402
from smallscope.batches import BROKEN, ISAS, Batch, Processes, Result, available_isas  # noqa: E402
from smallscope.enumeration import Enumeration, plan_of  # noqa: E402
from smallscope.recipes import Plan  # noqa: E402
from smallscope.stages import STAGES, TOTAL  # noqa: E402

BATCH = 800
#: glibc checks blocks when they are freed, and fills them when they are allocated and freed.
MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.check=3:glibc.malloc.perturb=165", "MALLOC_PERTURB_": "165"}
KINDS = (WRONG, CRASHED, BITS, INTERNAL, REFUSED, ORACLE, BROKEN)


def checked_memory() -> Dict[str, str]:
    """An environment in which glibc checks memory; nothing where a sanitizer does, or where that library is missing."""
    libraries = sorted(glob.glob("/lib/*/libc_malloc_debug.so.0") + glob.glob("/lib64/libc_malloc_debug.so.0"))
    if not libraries or "san" in os.environ.get("LD_PRELOAD", ""):
        return {}
    return {**MALLOC, "LD_PRELOAD": ":".join(filter(None, [libraries[0], os.environ.get("LD_PRELOAD", "")]))}


def start_again() -> None:
    """Starts this program again with checked memory and `import ulpscope` ready."""
    if os.environ.get("ULPSCOPE_SMALLSCOPE") == "started":
        return
    settings = {
        **environment(),
        **checked_memory(),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "ULPSCOPE_SMALLSCOPE": "started",
    }
    os.execve(sys.executable, [sys.executable, *sys.argv], settings)


@dataclasses.dataclass
class Summary:
    """What came of a run."""

    processes: Processes
    seconds: float = 0.0
    busy: float = 0.0  #: Seconds of all processors together.
    unfit: int = 0  #: Combinations without a meaning on any shape.
    equivalent: int = 0
    results: List[Result] = dataclasses.field(default_factory=list)

    @property
    def graphs(self) -> int:
        return sum(self.processes.graphs.values())

    def count(self, kind: str) -> int:
        """The graphs that failed so."""
        return sum(any(f.kind == kind for f in result.failures) for result in self.results)

    @property
    def passed(self) -> bool:
        """Nothing failed, but for a few refusals."""
        others = sum(any(f.kind != REFUSED for f in result.failures) for result in self.results)
        return others == 0 and self.graphs > 0 and self.count(REFUSED) <= max(1, WORST_REFUSED * self.graphs)

    def text(self) -> str:
        """The totals, and the failures by cause."""
        lines = [f"{self.graphs} graphs: " + ", ".join(f"{self.count(kind)} {kind}" for kind in KINDS)]
        lines.append("  " + ", ".join(f"{count} {what}" for what, count in sorted(self.processes.counts.items())))
        per_stage = ", ".join(f"{name} {count}" for name, count in self.processes.graphs.items())
        per_isa = ", ".join(f"{isa} {count}" for isa, count in sorted(self.processes.per_isa.items()))
        skipped = [isa for isa in ISAS if isa != "native" and isa not in self.processes.per_isa]
        lines.append(f"  stages: {per_stage}")
        lines.append(f"  instruction sets: {per_isa}" + (f"; skipped: {', '.join(skipped)}" if skipped else ""))
        lines.append(f"  left out: {self.equivalent} equivalent graphs, {self.unfit} combinations that have no meaning")
        lines.append(
            f"  {self.seconds:.0f} s, {self.graphs / max(self.seconds, 1e-9):.0f} graphs a second; "
            f"{self.busy:.0f} s of processors, {self.graphs / max(self.busy, 1e-9):.0f} graphs a second of one"
        )
        causes: Dict[str, List[str]] = collections.defaultdict(list)
        for result in self.results:
            for failure in result.failures:
                causes[f"{failure.kind}: {_cause(failure)}"].append(str(result.plan.number))
        for cause, numbers in sorted(causes.items(), key=lambda item: -len(item[1])):
            lines.append(f"  {len(numbers)} x {cause} (graphs {', '.join(numbers[:6])})")
        return "\n".join(lines)


def _cause(failure: Failure) -> str:
    if failure.kind == ORACLE:
        return failure.cause.split(":")[0]
    if failure.kind in (REFUSED, INTERNAL):
        return failure.cause
    way = failure.way
    if way and way.against == "convert":
        return failure.cause
    return f"{way.precision}, fusion {way.fusion}, against {way.against}" if way else failure.text[-300:]


def _batches(plans: Iterator[Plan], isas: Sequence[str]) -> Iterator[Batch]:
    """Batches, on one instruction set after the other."""
    for isa in itertools.cycle(isas):
        chosen = list(itertools.islice(plans, BATCH))
        if not chosen:
            return
        yield Batch(chosen, isa)


def run(stages: Sequence[str], part: Tuple[int, int], isas: Sequence[str], jobs: int, listed: int) -> Summary:
    """Carries out one part of the stages; prints what fails."""
    start = time.monotonic()
    enumeration = Enumeration(stages, *part)
    summary = Summary(Processes(jobs))
    shown: collections.Counter = collections.Counter()
    first = part[0] % len(isas)  # Not always the same stages on the same one.
    for result in summary.processes.run(_batches(iter(enumeration), [*isas[first:], *isas[:first]])):
        summary.results.append(result)
        for failure in result.failures:
            cause = (failure.kind, _cause(failure))
            shown[cause] += 1
            if shown[cause] <= listed:
                print(
                    f"{failure.kind} [{result.isa}]: {result.plan}\n  {failure.text[:600]}\n  {failure.way or ''}",
                    flush=True,
                )
    summary.unfit, summary.equivalent = enumeration.unfit, enumeration.equivalent
    summary.seconds = time.monotonic() - start
    used = os.times()
    summary.busy = used.user + used.system + used.children_user + used.children_system
    return summary


def run_one(number: int, isa: str) -> int:
    """One graph, in this process."""
    plan = plan_of(number)
    if plan is None:
        print(f"graph {number}: its forms have no meaning on any shape")
        return 0
    print(plan)
    print(plan.graph().listing(), flush=True)
    os.environ.update(ISAS[isa])
    from smallscope import judges

    failures, counts = judges.failures_of(plan, STAGES[plan.stage].judges)
    for failure in failures:
        print(f"{failure.kind}: {failure.text}\n  {failure.way or ''}")
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if failures else 0


def _part(text: str) -> Tuple[int, int]:
    k, n = map(int, text.split("/"))
    if not 0 <= k < n:
        raise ValueError
    return k, n


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--part", type=_part, default=(0, 1), metavar="K/N", help="one graph in N; K, below N, says which"
    )
    parser.add_argument(
        "--stage", action="append", choices=list(STAGES), metavar="NAME", help="this stage; may be repeated"
    )
    parser.add_argument(
        "--isa",
        action="append",
        choices=list(ISAS),
        help="on this instruction set (default: in turn on all that the processor has)",
    )
    parser.add_argument("--graph", type=int, metavar="NUMBER", help=f"this one graph, below {TOTAL}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--listed", type=int, default=5, metavar="N", help="failures to print per cause (default 5)")
    parser.add_argument("--stages", action="store_true", help="print the stages and their sizes")
    options = parser.parse_args(argv)
    if options.stages:
        for stage in STAGES.values():
            print(f"{stage.name:28} {len(stage):8} from {stage.first}, judged by {', '.join(stage.judges)}")
        return 0
    start_again()
    if options.graph is not None:
        return run_one(options.graph, (options.isa or ["native"])[0])
    summary = run(
        options.stage or list(STAGES), options.part, options.isa or available_isas(), options.jobs, options.listed
    )
    print(summary.text())
    return 0 if summary.passed else 1


if __name__ == "__main__":
    sys.exit(main())
