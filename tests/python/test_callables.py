"""Functions of the caller in a search, and Ctrl-C: metrics, progress, what they raise, other threads meanwhile."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from small_models import TASK

import ulpscope

CODE = ulpscope.ErrorCode


def test_a_function_as_metric(folder, samples):
    """As the built-in metric, which is judged by another implementation."""

    def relative(golden, candidate):
        assert sorted(golden) == sorted(candidate) == ["y"] and golden["y"].dtype == np.float32
        return {"y": np.linalg.norm(golden["y"] - candidate["y"]) / np.linalg.norm(golden["y"])}

    answer = ulpscope.search("m.onnx", samples, metric=relative, **TASK)
    builtin = ulpscope.search("m.onnx", samples, **TASK)
    assert answer.nodes_to_exclude == builtin.nodes_to_exclude
    assert (
        answer.error == pytest.approx(builtin.error, rel=1e-3)
        and answer.search.worst_sample == builtin.search.worst_sample
    )
    assert ulpscope.verify("m.onnx", answer, samples).error == pytest.approx(builtin.error, rel=1e-3)
    answer.save("a.json")
    with pytest.raises(ulpscope.Error, match="does not say its tolerance"):
        ulpscope.verify("m.onnx", ulpscope.Answer.load("a.json"), samples)


def test_a_function_whose_higher_values_are_better(folder, samples):
    def closeness(golden, candidate):
        return 1 - np.linalg.norm(golden["y"] - candidate["y"]) / np.linalg.norm(golden["y"])

    closeness.higher_is_better = True
    answer = ulpscope.search("m.onnx", samples, **{**TASK, "metric": closeness, "threshold": 0.998})
    assert answer.verdict == "found" and answer.nodes_to_exclude == ["Raise", "Lower"] and answer.error > 0.998


@pytest.mark.parametrize("result", [float("nan"), "much", {"z": 1.0}])
def test_functions_that_give_no_number(folder, samples, result):
    with pytest.raises(ulpscope.Error, match="expected a number") as caught:
        ulpscope.search("m.onnx", samples, metric=lambda golden, candidate: result, threshold={"y": 0.1})
    assert caught.value.code == CODE.SCRIPT


def test_what_callables_raise_comes_out_as_it_is(folder, samples):
    class Mine(Exception):
        pass

    mine = Mine("x")

    def fail(*_):
        raise mine

    for options in ({"progress": fail}, {"metric": fail}):
        with pytest.raises(Mine) as caught:
            ulpscope.search("m.onnx", samples, **{**TASK, **options})
        assert caught.value is mine
    with pytest.raises(Mine):
        ulpscope.calibrate("m.onnx", samples, progress=fail)
    answer = ulpscope.search("m.onnx", samples, progress=False, **TASK)
    with pytest.raises(Mine):
        ulpscope.verify("m.onnx", answer, samples, progress=fail)
    with pytest.raises(Mine):
        ulpscope.convert("m.onnx", answer, data=samples, progress=fail)


def test_progress_is_told(folder, samples):
    seen: list[ulpscope.Progress] = []
    ulpscope.search("m.onnx", samples, progress=seen.append, **TASK)
    assert len({each.stage for each in seen}) > 2 and seen[-1].trials > 0
    assert max(each.best for each in seen) >= 2


def test_progress_of_checks_is_told(folder, samples):
    answer = ulpscope.search("m.onnx", samples, progress=False, **TASK)
    seen: list[ulpscope.Progress] = []
    ulpscope.verify("m.onnx", answer, samples, progress=seen.append)
    assert {(each.stage, each.all) for each in seen} == {("judging samples", len(samples))} and seen[0].done == 0
    seen.clear()
    ulpscope.convert("m.onnx", answer, data=samples, progress=seen.append)
    assert {each.stage for each in seen} == {"converting"}


@pytest.mark.parametrize("trials", [0, 2])
def test_ctrl_c_keeps_the_best_answer(folder, samples, trials):
    def press(now):
        if now.trials >= trials:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        ulpscope.search("m.onnx", samples, progress=press, **TASK)
    assert isinstance(caught.value, ulpscope.SearchInterrupted)
    answer = caught.value.answer
    assert answer is not None and answer.verdict in ("unverified", "found")
    # Nobody waits for reasons from all samples.
    totals = [layer.reason.total for layer in answer.layers if layer.reason.total]
    assert (trials == 0 or totals) and max(totals, default=0) <= samples[0]["x"].size


def test_ctrl_c_in_a_metric(folder, samples):
    def press(golden, candidate):
        os.kill(os.getpid(), signal.SIGINT)
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        ulpscope.search("m.onnx", samples, metric=press, **TASK)


def test_ctrl_c_ends_calibrations_and_conversions(folder, samples):
    def data():
        yield samples[0]
        os.kill(os.getpid(), signal.SIGINT)
        yield samples[1]

    with pytest.raises(KeyboardInterrupt):
        ulpscope.calibrate("m.onnx", data())


def test_other_threads_run_meanwhile(folder, samples):
    """They count only while nobody holds the interpreter; no callable of this search lets go of it."""
    running, counted = threading.Event(), [0]

    def count():
        while not running.is_set():
            counted[0] += 1
            time.sleep(0)

    loaded = ulpscope.data.Source("m.onnx").load(ulpscope.native._core.ModelOptions())
    options = ulpscope.native._core.SearchOptions()
    options.criterion = ulpscope.criterion.make_criterion("rel-l2", 0.002)
    thread = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # Nobody is made to let go.
    try:
        thread.start()
        before, searches = counted[0], 0
        while counted[0] == before:  # A busy machine may not let the other thread run at once.
            assert (searches := searches + 1) < 1000
            ulpscope.native._core.search(loaded, samples * 40, options, None)
    finally:
        running.set()
        sys.setswitchinterval(interval)
        thread.join()
