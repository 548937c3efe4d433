"""`precision search` that ends before its end: killed, interrupted, out of time. What it leaves must be right."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from search_support import answer_of, comparable, key, masked_attention, relative_errors, save_inputs, trials_of

OPTIONS = ["--int8", "--fp16", "--metric", "rel-l2", "--threads", "1"]


class Search:
    """A search that can be started again and again."""

    def __init__(self, binary, folder, name, words):
        self.folder, self.name = folder, name
        self.words = [str(binary), "precision", "search", f"{name}.onnx", "--load-inputs", "in.json", "--hold-out", "held.json",
                      *OPTIONS, *words]

    @property
    def journal(self):
        return self.folder / f"{self.name}.fp16-int8.journal.jsonl"

    @property
    def answer_path(self):
        return self.folder / f"{self.name}.fp16-int8.answer.json"

    def answer(self):
        return answer_of(self.folder, self.answer_path.name)

    def trials(self):
        """Those whose line is whole."""
        return trials_of(self.journal) if self.journal.exists() else []

    def clean(self):
        for path in (self.journal, self.answer_path):
            path.unlink(missing_ok=True)

    def start(self, *more):
        environment = dict(os.environ)
        environment.setdefault("ULPSCOPE_PYTHON", sys.executable)
        return subprocess.Popen([*self.words, *more], cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def finish(self, *more, timeout=300):
        process = self.start(*more)
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out + err


def make_small(binary, folder):
    samples = masked_attention(folder / "small.onnx", blocks=5, n=96, width=96)
    save_inputs(folder / "in.json", samples[:4])
    save_inputs(folder / "held.json", samples[4:])
    return Search(binary, folder, "small", ["--threshold", "0.01", "--shrink"])


def make_minilm(binary, folder, models):
    shutil.copy(models / "minilm.onnx", folder / "minilm.onnx")
    iterations = json.loads((models / "minilm.search.json").read_text())
    held = json.loads((models / "minilm.held.json").read_text())
    (folder / "in.json").write_text(json.dumps(iterations[:2]))
    (folder / "held.json").write_text(json.dumps(held[:2]))
    return Search(binary, folder, "minilm", ["--threshold", "0.02", "--fusion", "full", "--shrink"])


@pytest.fixture
def small(binary, tmp_path):
    return make_small(binary, tmp_path)


@pytest.fixture
def minilm(binary, tmp_path, models):
    return make_minilm(binary, tmp_path, models)


def whole(search):
    """The uninterrupted search: its answer, number of trials, and seconds."""
    start = time.monotonic()
    code, text = search.finish()
    seconds = time.monotonic() - start
    assert code == 0, text
    return search.answer(), len(search.trials()), seconds


def killed_at_random(search, expected, count, seconds, chance, kills=3):
    """Kills the search at `kills` random moments, then lets it end; returns how often it was really killed."""
    search.clean()
    real = 0
    for attempt in range(kills):
        before = search.trials()
        process = search.start(*(["--continue"] if attempt else []))
        time.sleep(chance.uniform(0, seconds))
        process.kill()
        out, err = process.communicate(timeout=100)
        if process.returncode == -signal.SIGKILL:
            real += 1
        else:
            assert process.returncode == 0, out + err
        assert search.trials()[:len(before)] == before, "a finished trial was lost"
        if search.answer_path.exists():  # whole or not there
            assert search.answer()["format"] == "ulpscope-answer"
    finished = search.trials()
    code, text = search.finish("--continue")
    assert code == 0, text
    after = search.trials()
    assert after[:len(finished)] == finished
    assert len({key(trial) + (tuple(trial["repairs"]), trial["kind"]) for trial in after}) == len(after) == count
    assert comparable(search.answer()) == comparable(expected)
    return real


ROUNDS = int(os.environ.get("ULPSCOPE_KILL_ROUNDS", "8"))


def test_killed_at_any_moment(small):
    expected, count, seconds = whole(small)
    chance = random.Random(17)
    # How many of the kills come in time depends on the machine.
    assert sum(killed_at_random(small, expected, count, seconds, chance) for _ in range(ROUNDS)) >= 1


def test_minilm_killed_at_any_moment(minilm):
    expected, count, seconds = whole(minilm)
    chance = random.Random(23)
    assert sum(killed_at_random(minilm, expected, count, seconds, chance, kills=1) for _ in range(ROUNDS)) >= 1


def check_answer(answer, code):
    """Whatever ended the search, its answer must be true to itself."""
    assert answer["verdict"] in ("found", "not-reachable", "unverified", "fails-held-out")
    held = answer.get("held_out") or {}
    if answer["verdict"] == "found":
        assert held["passed"] == held["samples"] > 0
    assert code == (0 if answer["verdict"] == "found" else 1)


@pytest.mark.parametrize("limit", ["100ms", "300ms", "700ms", "1500ms", "3s", "5s"])
@pytest.mark.parametrize("which", ["small", "minilm"])
def test_time_limits(which, limit, binary, tmp_path, request):
    search = request.getfixturevalue(which)
    code, text = search.finish("--time-limit", limit)
    answer = search.answer()
    check_answer(answer, code)
    if answer["verdict"] != "found":
        assert "limit" in text, text
        return
    # What was found is what its command does, on the samples held out.
    for name, words in (("exact", ["--trt"]), ("low", answer["run_options"])):
        subprocess.run([str(binary), "run", f"{search.name}.onnx", *words, "--load-inputs", "held.json", "--save-outputs",
                        f"{name}.json"], cwd=tmp_path, capture_output=True, check=True)
    errors = relative_errors(tmp_path / "low.json", tmp_path / "exact.json")
    assert max(errors) <= float(search.words[search.words.index("--threshold") + 1]) and max(errors) > 0


def test_interrupted_at_any_moment(small):
    expected, _, seconds = whole(small)
    chance = random.Random(5)
    late = 0
    for _ in range(ROUNDS):
        small.clean()
        process = small.start()
        time.sleep(chance.uniform(0.05, seconds))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
        if process.returncode == -signal.SIGINT:  # before the program was ready for it
            continue
        assert process.returncode in (130, 0), out + err
        if process.returncode == 0:
            continue
        if not small.answer_path.exists():
            # Nothing was searched yet.
            assert not small.trials() and "Interrupted" in out + err, out + err
            continue
        late += 1
        answer = small.answer()
        assert answer["verdict"] in ("unverified", "found", "not-reachable")
        assert "Saving answer" in out, out + err
        # It says so, unless the search had just ended by itself.
        assert "Ctrl-C" in out or comparable(answer) == comparable(expected), out + err
    assert late >= 1


def chain(length=24, n=64):
    """Additions of 2000 and their reverse: many layers that matter."""
    nodes, value = [], "x"
    for i in range(length):
        nodes.append(helper.make_node("Add" if i % 2 == 0 else "Sub", [value, "c"], [f"t{i}"], name=f"layer_{i}"))
        value = f"t{i}"
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [n]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "chain", infos[:1], infos[1:],
                              [numpy_helper.from_array(np.full((1,), 2000, np.float32), "c")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


SLOW = """
import time
def metric(golden, candidate):
    time.sleep(0.3)
    return max(float(abs(g[k] - c[k]).max()) for g, c in zip(golden, candidate) for k in g)
"""


@pytest.fixture
def start(binary, tmp_path):
    """Starts a slow search and waits until `trials` are in its journal."""
    onnx.save(chain(), tmp_path / "chain.onnx")
    (tmp_path / "slow.py").write_text(SLOW)
    words = [str(binary), "precision", "search", "chain.onnx", "--fp16", "--fusion", "none", "--metric-script", "slow.py",
             "--threshold", "0.2", "--shrink"]

    def call(*more, trials=2):
        environment = dict(os.environ)
        environment.setdefault("ULPSCOPE_PYTHON", sys.executable)
        process = subprocess.Popen([*words, *more], cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        journal = tmp_path / "chain.fp16.journal.jsonl"
        while process.poll() is None and trials is not None:
            if journal.exists() and journal.read_text().count("\n") > trials:
                break
            time.sleep(0.01)
        return process

    return call


def test_kill_and_continue(start, tmp_path):
    process = start(trials=None)
    assert process.wait(timeout=100) == 0, process.communicate()
    process.communicate()
    expected = answer_of(tmp_path, "chain.fp16.answer.json")
    count = len(trials_of(tmp_path / "chain.fp16.journal.jsonl"))
    assert count >= 4
    (tmp_path / "chain.fp16.journal.jsonl").unlink()
    (tmp_path / "chain.fp16.answer.json").unlink()
    process = start()
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=100) == -signal.SIGKILL
    process.communicate()
    finished = trials_of(tmp_path / "chain.fp16.journal.jsonl")
    assert 2 <= len(finished) < count
    process = start("--continue", trials=None)
    assert process.wait(timeout=100) == 0
    process.communicate()
    after = trials_of(tmp_path / "chain.fp16.journal.jsonl")
    assert after[:len(finished)] == finished
    assert len({key(trial) for trial in after}) == len(after) == count
    assert comparable(answer_of(tmp_path, "chain.fp16.answer.json")) == comparable(expected)


def test_interrupt_shows_the_best_so_far(start, tmp_path):
    process = start()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, (out, err)
    assert "Ctrl-C" in out and "Saving answer" in out
    assert len(trials_of(tmp_path / "chain.fp16.journal.jsonl")) >= 2
    assert answer_of(tmp_path, "chain.fp16.answer.json")["version"] == 2


def test_calibration_ends_with_its_share_of_the_time(run, tmp_path):
    """A limit that is over after the first sample: the others are left out, and there is an answer."""
    path = tmp_path / "m.onnx"
    masked_attention(path)
    inputs = [{i.name: np.random.default_rng(k).normal(size=[d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
               for i in onnx.load(path).graph.input} for k in range(5)]
    save_inputs(tmp_path / "in.json", inputs)
    words = ["precision", "search", "m.onnx", "--int8", "--load-inputs", "in.json", "--metric", "rel-l2", "--threshold", "0.1"]
    outcome = run(*words, "--time-limit", "0.0001ms", "--save-answer", "a.json")
    assert outcome.code == 1 and "stops at sample 1 for the time limit" in outcome.out, outcome
    assert "with 1 sample(s)" in outcome.out and json.loads((tmp_path / "a.json").read_text())["verdict"] == "unverified"
    assert "with 5 sample(s)" in run(*words).out
