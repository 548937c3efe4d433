"""Fast kernels on random shapes, against ONNX Runtime and double arithmetic, with one thread and two."""

from __future__ import annotations

import json
import os

import pytest

import instruction_sets
from fuzz.run import worker
from fuzz.sweeps import SWEEPS
from limits import HANGS

COUNT = int(os.environ.get("ULPSCOPE_SWEEP_COUNT", "40"))


@pytest.mark.parametrize("instructions", instruction_sets.parameters())
@pytest.mark.parametrize("name", SWEEPS)
def test_sweep(name: str, instructions: str) -> None:
    process = worker(["sweep", name, str(COUNT)], instruction_sets.settings(instructions))
    out, errors = process.communicate(timeout=HANGS)
    events = [json.loads(line) for line in out.splitlines()]
    last = events[-1]["listing"] if events else "nothing"
    assert process.returncode == 0, f"status {process.returncode} at\n{last}\n{errors[-2000:]}"
    ended = [event for event in events if "end" in event]
    assert len(ended) == COUNT
    texts = [
        f"{failure['kind']}: {failure['text']} {failure['way']}\n{event['listing']}"
        for event in ended
        for failure in event["failures"]
    ]
    assert not texts, f"{len(texts)} failures, the first:\n" + "\n".join(texts[:3])
