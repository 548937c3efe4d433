"""`precision search` that ends before its end: killed, interrupted, out of time. What it leaves must be right."""
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from search_support import answer_of, comparable, key, masked_attention, relative_errors, save_inputs, trials_of

OPTIONS = ["--int8", "--fp16", "--metric", "rel-l2", "--threads", "1"]


class Search:
    """A search that can be started again and again."""

    def __init__(self, binary, folder, name, words):
        self.folder, self.name, self.mode = folder, name, "fp16-int8"
        self.words = [str(binary), "precision", "search", f"{name}.onnx", "--load-inputs", "in.json", "--hold-out", "held.json",
                      *OPTIONS, *words]

    @property
    def journal(self):
        return self.folder / f"{self.name}.{self.mode}.journal.jsonl"

    @property
    def answer_path(self):
        return self.folder / f"{self.name}.{self.mode}.answer.json"

    def answer(self):
        return answer_of(self.folder, self.answer_path.name)

    def trials(self):
        """Those whose line is whole."""
        return trials_of(self.journal) if self.journal.exists() else []

    def clean(self):
        for path in (self.journal, self.answer_path):
            path.unlink(missing_ok=True)

    def run(self, *more, at=None):
        """`at`: a signal, how many reports of a stage to wait for, and its name: there the program gets the signal."""
        environment = dict(os.environ)
        environment.setdefault("ULPSCOPE_PYTHON", sys.executable)
        if at:
            environment["ULPSCOPE_SIGNAL_AT"] = f"{int(at[0])}:{at[1]}:{at[2]}"
        done = subprocess.run(
            [*self.words, *more], cwd=self.folder, env=environment, text=True, capture_output=True, check=False
        )
        return done.returncode, done.stdout + done.stderr


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
    """The uninterrupted search: its answer and number of trials."""
    code, text = search.run()
    assert code == 0, text
    return search.answer(), len(search.trials())


#: How often a stage has reported, and which, in the order of a search.
POINTS = [
    (1, "computing golden outputs"),
    (4, "computing golden outputs"),
    (1, "repairing constants"),
    (8, "repairing constants"),
    (5, "looking for regions to scale"),
    (1, "equalizing channels"),
    (1, "trying the lowest precisions everywhere"),
    (1, "predicting"),
    (5, "predicting"),
    (1, "searching"),
    (8, "searching"),
    (1, "checking held-out samples"),
    (3, "checking held-out samples"),
    (1, "shrinking"),
    (20, "shrinking"),
    (1, "weighing repairs"),
    (3, "weighing repairs"),
    (1, "checking untouched samples"),
    (1, "checking the sets of other objectives"),
]


def killed_at(search, expected, count, points):
    """Kills the search at each of these points in turn, as it goes on, then lets it end; returns how often it was
    killed."""
    search.clean()
    killed = 0
    for attempt, point in enumerate(points):
        before = search.trials()
        code, text = search.run(*(["--continue"] if attempt else []), at=(signal.SIGKILL, *point))
        # A search that goes on may have no use for a stage any more.
        assert code == -signal.SIGKILL or (attempt and code == 0), text
        killed += code != 0
        assert search.trials()[:len(before)] == before, "a finished trial was lost"
        if search.answer_path.exists():  # whole or not there
            assert search.answer()["format"] == "ulpscope-answer"
    finished = search.trials()
    code, text = search.run("--continue")
    assert code == 0, text
    after = search.trials()
    assert after[:len(finished)] == finished
    assert len({key(trial) + (tuple(trial["repairs"]), trial["kind"]) for trial in after}) == len(after) == count
    assert comparable(search.answer()) == comparable(expected)
    assert [path.name for path in search.folder.glob(".*")] == []
    return killed


def test_killed_at_any_moment(small):
    expected, count = whole(small)
    for point in POINTS[::2]:
        assert killed_at(small, expected, count, [point]) == 1, point
    assert killed_at(small, expected, count, POINTS) >= len(POINTS) // 2


def test_minilm_killed_at_any_moment(minilm):
    expected, count = whole(minilm)
    points = [(1, "predicting"), (2, "searching"), (3, "shrinking"), (1, "checking untouched samples")]
    assert killed_at(minilm, expected, count, points) >= 3


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
    code, text = search.run("--time-limit", limit)
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


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_at_any_moment(small, which):
    expected, _ = whole(small)
    late = 0
    for point in POINTS:
        small.clean()
        code, text = small.run(at=(which, *point))
        assert code == 130, (point, text)
        if not small.answer_path.exists():
            # Nothing was searched yet.
            assert not small.trials() and "Interrupted" in text, (point, text)
            continue
        late += 1
        answer = small.answer()
        assert answer["verdict"] in ("unverified", "found", "not-reachable")
        assert "Saving answer" in text, (point, text)
        # It says so, unless the search had just ended by itself.
        assert "Ctrl-C" in text or comparable(answer) == comparable(expected), (point, text)
    assert late >= 8


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


SCRIPT = """
def metric(golden, candidate):
    return max(float(abs(g[k] - c[k]).max()) for g, c in zip(golden, candidate) for k in g)
"""


class Chain(Search):
    """A search by a script's metric."""

    def __init__(self, binary, folder):
        onnx.save(chain(), folder / "chain.onnx")
        (folder / "metric.py").write_text(SCRIPT)
        self.folder, self.name, self.mode = folder, "chain", "fp16"
        self.words = [
            str(binary), "precision", "search", "chain.onnx", "--fp16", "--fusion", "none", "--metric-script",
            "metric.py", "--threshold", "0.2", "--shrink",
        ]  # fmt: skip


@pytest.fixture
def scripted(binary, tmp_path):
    return Chain(binary, tmp_path)


def test_kill_and_continue(scripted):
    expected, count = whole(scripted)
    assert count >= 4
    assert killed_at(scripted, expected, count, [(2, "searching")]) == 1
    scripted.clean()
    assert scripted.run(at=(signal.SIGKILL, 8, "searching"))[0] == -signal.SIGKILL
    assert 2 <= len(scripted.trials()) < count


def test_interrupt_shows_the_best_so_far(scripted):
    code, text = scripted.run(at=(signal.SIGINT, 6, "searching"))
    assert code == 130, text
    assert "Ctrl-C" in text and "Saving answer" in text
    assert len(scripted.trials()) >= 2
    assert scripted.answer()["version"] == 2


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
    assert "with 1 sample " in outcome.out and json.loads((tmp_path / "a.json").read_text())["verdict"] == "unverified"
    assert "with 5 samples " in run(*words).out
