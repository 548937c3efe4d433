"""Child processes that carry graphs out. What they are at stands in memory that they share with their parent, so that a
crash, or a hang, names its graph; the rest of the batch goes on in the next child."""

from __future__ import annotations

import collections
import dataclasses
import gc
import json
import mmap
import os
import selectors
import signal
import struct
import sys
import time
import traceback
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from fuzz.checks import CRASHED, Failure, Way

from .recipes import Plan
from .stages import STAGES

SECONDS_WITHOUT_PROGRESS = 120
BROKEN = "smallscope failed"  #: A defect of this package.

#: What a process sees of the processor.
ISAS: Dict[str, Dict[str, str]] = {
    "baseline": {"ULPSCOPE_ISA": "baseline", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"ULPSCOPE_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "avx512": {"ULPSCOPE_ISA": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "native": {},
}


def available_isas() -> List[str]:
    """Those that this processor has, without "native"."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
    needs = {"baseline": set(), "avx2": {"avx2", "fma"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}
    return [isa for isa, needed in needs.items() if needed <= flags]


@dataclasses.dataclass
class Result:
    """What came of one graph."""

    plan: Plan
    isa: str
    failures: List[Failure]


@dataclasses.dataclass
class Batch:
    """Graphs that one process carries out, one after the other."""

    plans: Sequence[Plan]
    isa: str
    first: int = 0  #: Those before are done.


def _as_failure(fields: dict) -> Failure:
    """What dataclasses.asdict was given."""
    way = fields["way"]
    return Failure(**{**fields, "way": Way(**way) if way else None})


class _Child:
    """A process at work on a batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._place = mmap.mmap(-1, 8)
        self._place[:] = struct.pack("q", batch.first)  # That it ends at, if it does before it begins.
        self.readable, writable = os.pipe()
        sys.stdout.flush()
        gc.freeze()  # The child's garbage collector leaves what the parent knows of shapes alone.
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self.readable)
                self._work(os.fdopen(writable, "w", encoding="utf-8"))
                status = 0
            finally:
                os._exit(status)
        os.close(writable)
        self._text = b""
        self.heard = time.monotonic()
        self._seen = -1

    def _work(self, out) -> None:
        os.environ.update(ISAS[self.batch.isa])
        from . import judges

        for i in range(self.batch.first, len(self.batch.plans)):
            self._place[:] = struct.pack("q", i)
            plan = self.batch.plans[i]
            try:
                failures, counts = judges.failures_of(plan, STAGES[plan.stage].judges)
            except Exception:
                failures, counts = [Failure(BROKEN, traceback.format_exc()[-1500:])], {}
            event = {"at": i, "failures": [dataclasses.asdict(f) for f in failures], "counts": dict(counts)}
            out.write(json.dumps(event) + "\n")
            out.flush()

    @property
    def place(self) -> int:
        """The graph that it is at."""
        place = struct.unpack("q", self._place[:])[0]
        if place != self._seen:
            self._seen, self.heard = place, time.monotonic()
        return place

    def events(self) -> Tuple[List[dict], bool]:
        """What it has said since, and whether that was all."""
        data = os.read(self.readable, 1 << 16)
        self._text += data
        *lines, self._text = self._text.split(b"\n")
        return [json.loads(line) for line in lines], not data

    def end(self) -> int:
        """Its status, as os.waitpid has it."""
        os.close(self.readable)
        return os.waitpid(self.pid, 0)[1]


class Processes:
    """Runs batches in so many processes at a time."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self.counts: collections.Counter = collections.Counter()
        self.graphs: collections.Counter = collections.Counter()  #: Per stage.
        self.per_isa: collections.Counter = collections.Counter()

    def run(self, batches: Iterator[Batch]) -> Iterator[Result]:
        """The graphs at which something failed."""
        waiting: List[Batch] = []
        children: List[_Child] = []
        with selectors.DefaultSelector() as selector:
            while True:
                while len(children) < self._jobs:
                    batch = waiting.pop() if waiting else next(batches, None)
                    if batch is None:
                        break
                    child = _Child(batch)
                    children.append(child)
                    selector.register(child.readable, selectors.EVENT_READ, child)
                if not children:
                    return
                for key, _ in selector.select(1.0):
                    child = key.data
                    events, ended = child.events()
                    for event in events:
                        if result := self._result(child, event):
                            yield result
                    if ended:
                        selector.unregister(child.readable)
                        children.remove(child)
                        if crash := self._crash(child, waiting):
                            yield crash
                for child in children:
                    child.place  # noqa: B018  (looks at the clock)
                    if time.monotonic() - child.heard > SECONDS_WITHOUT_PROGRESS:
                        os.kill(child.pid, signal.SIGKILL)

    def _count(self, batch: Batch, plan: Plan) -> None:
        self.graphs[plan.stage] += 1
        self.per_isa[batch.isa] += 1

    def _result(self, child: _Child, event: dict) -> Optional[Result]:
        plan = child.batch.plans[event["at"]]
        self._count(child.batch, plan)
        self.counts.update(event["counts"])
        failures = [_as_failure(fields) for fields in event["failures"]]
        return Result(plan, child.batch.isa, failures) if failures else None

    def _crash(self, child: _Child, waiting: List[Batch]) -> Optional[Result]:
        place, status = child.place, child.end()
        if status == 0:
            return None
        batch = child.batch
        plan = batch.plans[place]
        self._count(batch, plan)
        if place + 1 < len(batch.plans):
            waiting.append(dataclasses.replace(batch, first=place + 1))
        if not os.WIFSIGNALED(status):
            return Result(plan, batch.isa, [Failure(BROKEN, f"the process ended with status {status >> 8}")])
        number = os.WTERMSIG(status)
        text = "hangs" if number == signal.SIGKILL else signal.Signals(number).name
        return Result(plan, batch.isa, [Failure(CRASHED, text)])
