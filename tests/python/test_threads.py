"""One engine in several threads, and the same bits for every number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from networks import agrees, model_of, node, random, run
from onnx import TensorProto, helper

import ulpscope

WIDE_CONVOLUTION = (
    [node("Conv", ["x", "w"], ["z"], group=16, pads=[64, 64])],
    {"x": random(1, 64, 100)},
    {"w": random(64, 4, 128)},
)


def test_runs_in_other_threads_than_the_first() -> None:
    nodes, feed, weights = WIDE_CONVOLUTION
    engine, outputs = ulpscope.Engine(model_of(nodes, feed, weights), threads=1), []
    outputs.append(engine.run(feed)["z"])
    thread = threading.Thread(target=lambda: outputs.append(engine.run(feed)["z"]))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(*outputs)


def test_bodies_are_made_by_several_threads_at_once() -> None:
    def body(name: str):
        nodes = [node("MatMul", ["x", "w"], ["a" + name]), node("Relu", ["a" + name], ["b" + name])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("b" + name, TensorProto.FLOAT, None)])

    feeds = [{"x": random(n, 16), "c": np.array(True)} for n in range(1, 5)]
    nodes = [node("If", ["c"], ["y"], then_branch=body("t"), else_branch=body("e")), node("Tanh", ["y"], ["z"])]
    w = random(16, 16)
    model = model_of(nodes, feeds[0], {"w": w}, dynamic=["x"])
    for _ in range(200):
        engine, gate, outputs = ulpscope.Engine(model, threads=1), threading.Barrier(len(feeds)), {}

        def work(i: int, engine=engine, gate=gate, outputs=outputs) -> None:
            gate.wait()
            outputs[i] = engine.run(feeds[i])["z"]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(feeds))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, feed in enumerate(feeds):
            np.testing.assert_allclose(outputs[i], np.tanh(np.maximum(feed["x"] @ w, 0)), atol=1e-5)


@pytest.mark.parametrize("threads", [-1, 1025, 100000, 2**31, -(2**31) - 1])
@pytest.mark.parametrize("use", ["Engine", "search", "convert", "calibrate", "quantize", "measure_target", "verify"])
def test_numbers_that_no_machine_has_are_refused(use, threads, tmp_path) -> None:
    nodes, feed, weights = WIDE_CONVOLUTION
    model = model_of(nodes, feed, weights)
    uses = {
        "Engine": lambda n: ulpscope.Engine(model, threads=n),
        "search": lambda n: ulpscope.search(model, [feed], threads=n, progress=False),
        "convert": lambda n: ulpscope.convert(model, threads=n),
        "calibrate": lambda n: ulpscope.calibrate(model, [feed], threads=n, progress=False),
        "quantize": lambda n: ulpscope.quantize(model_input=model, calibration_data=[feed], threads=n),
        "measure_target": lambda n: ulpscope.measure_target(tmp_path / "t.json", threads=n, progress=False),
        "verify": lambda n: ulpscope.verify(model, answer, [feed], threads=n),
    }
    if use == "verify":
        answer = ulpscope.search(model, [feed], threshold=1, progress=False)
    with pytest.raises(ulpscope.Error, match=rf"threads: expected 0 \(one per core\) to 1024, got {threads}") as caught:
        uses[use](threads)
    assert caught.value.code == ulpscope.ErrorCode.INVALID_ARGUMENT
    with pytest.raises(ulpscope.Error, match=r"threads: expected a whole number of 64 bits, got 'many'"):
        uses[use]("many")


def convolution(op: str, x: tuple[int, ...], w: tuple[int, ...], **attributes):
    return [node(op, ["x", "w"], ["z"], **attributes)], {"x": random(*x)}, {"w": random(*w)}


THREADED = {
    "Gemm of a transposed vector": (
        [node("Gemm", ["x", "w"], ["z"], transA=1, transB=1)],
        {"x": random(2401, 1)},
        {"w": random(7, 2401)},
    ),
    "Gemm of a transposed matrix": (
        [node("Gemm", ["x", "w"], ["z"], transA=1)],
        {"x": random(4096, 15)},
        {"w": random(4096, 128)},
    ),
    "Conv of few rows": convolution("Conv", (1, 257, 5, 5), (16, 257, 5, 5), pads=[0, 3, 0, 2], strides=[2, 2]),
    "Conv to one row": convolution("Conv", (1, 192, 4, 4), (31, 192, 6, 6), pads=[2, 2, 2, 2], strides=[3, 3]),
    "Conv of a row": convolution("Conv", (1, 24, 4), (1, 24, 2), pads=[1, 0]),
    "Conv of a long row": convolution("Conv", (1, 32, 350), (96, 32, 25), strides=[3], pads=[22, 0]),
    "ConvTranspose to one channel": convolution("ConvTranspose", (1, 33, 1, 3), (33, 1, 1, 3)),
    "ConvTranspose of a row": convolution("ConvTranspose", (1, 7, 7), (7, 3, 3)),
    "ConvTranspose of a padded row": convolution("ConvTranspose", (1, 8, 14), (8, 8, 4), pads=[0, 1]),
    "ConvTranspose of a batch": convolution("ConvTranspose", (2, 6, 2), (6, 24, 2)),
    "ConvTranspose with strides": convolution(
        "ConvTranspose", (1, 240, 9, 9), (240, 1, 4, 4), pads=[1, 1, 1, 1], strides=[2, 2]
    ),
    "ConvTranspose of two groups": convolution(
        "ConvTranspose", (3, 8, 12, 29), (8, 12, 2, 4), pads=[1, 2, 1, 2], strides=[3, 1], group=2
    ),
}


@pytest.mark.parametrize("name", THREADED)
def test_bits_do_not_depend_on_threads(name: str) -> None:
    nodes, feed, weights = THREADED[name]
    model = model_of(nodes, feed, weights)
    expected = run(model, feed, threads=1)
    agrees(model, feed, levels=["full"])
    for threads in (2, 3, 4, 8):
        np.testing.assert_array_equal(run(model, feed, threads=threads), expected)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("seed", range(30))
def test_convolutions_of_any_shape(op: str, seed: int) -> None:
    """Every fast kernel against ONNX Runtime, and the same bits for every number of threads."""
    dice = np.random.default_rng(seed)
    dims, groups = int(dice.integers(1, 3)), int(dice.choice([1, 1, 1, 2, 4]))
    c_in, c_out = (groups * int(c) for c in dice.choice([1, 2, 3, 7, 8, 16, 17, 31, 32, 64, 96], 2))
    kernel, size = dice.integers(1, 6, dims), dice.integers(6, 30, dims)
    attributes = {
        "strides": [int(s) for s in dice.integers(1, 4, dims)],
        "pads": [int(p) for p in dice.integers(0, np.concatenate([kernel, kernel]))],
        "group": groups,
    }
    if op == "Conv":
        attributes["dilations"] = [int(d) for d in dice.integers(1, 3, dims)]
        size += 8
    shape = (c_out, c_in // groups, *kernel) if op == "Conv" else (c_in, c_out // groups, *kernel)
    feed, weights = {"x": random(int(dice.integers(1, 4)), c_in, *size)}, {"w": random(*shape), "b": random(c_out)}
    model = model_of([node(op, ["x", "w", "b"], ["z"], **attributes)], feed, weights)
    agrees(model, feed, levels=["full"])
    expected = run(model, feed, threads=1)
    for threads in (2, 3):
        np.testing.assert_array_equal(run(model, feed, threads=threads), expected, err_msg=f"{op} {shape} {attributes}")


@pytest.mark.skipif("ONEDNN_MAX_CPU_ISA" in os.environ, reason="this is that run")
def test_the_same_without_avx512() -> None:
    environment = dict(os.environ, ONEDNN_MAX_CPU_ISA="AVX2", ULPSCOPE_ISA="avx2")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
