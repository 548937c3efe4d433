"""Holds runs between tensors on a GPU against runs from NumPy to NumPy, bit for bit: check_device.py

Needs torch for CUDA, onnx and an installed ulpscope; CuPy and JAX are tried where they are installed. One line per
check; exits 1 when one does not hold.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":  # Help needs no GPU.
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402
import ulpscope  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

N = 64
CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


def model(kind: int = TensorProto.FLOAT16, batch: Any = "n", extra: tuple[str, ...] = ()) -> bytes:
    """x and a cache of that type -> y = softmax(x w) w, all = the cache with x, big = y > 0, count = indices."""
    random = np.random.default_rng(0)
    node = helper.make_node
    nodes = [
        node("Cast", ["x"], ["x32"], to=TensorProto.FLOAT), node("MatMul", ["x32", "w"], ["a"]),
        node("Softmax", ["a"], ["b"], axis=-1), node("MatMul", ["b", "w"], ["c"]), node("Cast", ["c"], ["y"], to=kind),
        node("Concat", ["cache", "x"], ["all"], axis=0), node("Greater", ["c", "zero"], ["big"]),
        node("ArgMax", ["c"], ["count"], axis=1, keepdims=0),
    ]  # fmt: skip
    if "cpu" in extra:  # What runs on the CPU.
        nodes += [node("TopK", ["c", "two"], ["best", "where"], axis=-1)]
    info = helper.make_tensor_value_info
    outputs = [info("y", kind, [batch, N]), info("all", kind, ["all", N]), info("big", TensorProto.BOOL, [batch, N]),
               info("count", TensorProto.INT64, [batch])]  # fmt: skip
    if "cpu" in extra:
        outputs += [info("where", TensorProto.INT64, [batch, 2])]
    weights = [
        numpy_helper.from_array(random.normal(0, N**-0.5, (N, N)).astype(np.float32), "w"),
        numpy_helper.from_array(np.float32(0), "zero"), numpy_helper.from_array(np.int64([2]), "two"),
    ]  # fmt: skip
    inputs = [info("x", kind, [batch, N]), info("cache", kind, ["past", N])]
    graph = helper.make_graph(nodes, "device", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def data(rows: int = 8, past: int = 5, kind: Any = np.float16, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {"x": random.normal(size=(rows, N)).astype(kind), "cache": random.normal(size=(past, N)).astype(kind)}


def cuda(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array).cuda() for name, array in arrays.items()}


def expect(results: Any, expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        got = results[name]
        got = got.cpu().numpy() if isinstance(got, torch.Tensor) else got.numpy() if hasattr(got, "numpy") else got
        assert got.dtype == value.dtype and got.shape == value.shape, (name, got.dtype, got.shape, value.shape)
        assert np.array_equal(got, value), f"{name}: {np.sum(got != value)} of {value.size} differ"


def engine(**options: Any) -> ulpscope.Engine:
    return ulpscope.Engine(model(**options), precision="fp16", backend="cuda")


@check
def every_way_has_the_bits_of_the_host() -> None:
    for kind, dtype in ((TensorProto.FLOAT16, np.float16), (TensorProto.FLOAT, np.float32)):
        made = engine(kind=kind)
        for rows, past in ((8, 5), (1, 0), (3, 7)):
            arrays = data(rows, past, dtype)
            expected = made.run(arrays)
            tensors = cuda(arrays)
            for _ in range(3):
                expect(made.run(tensors, outputs="device"), expected)
                expect(made.run(tensors), expected)
                expect(made.run(arrays, outputs="device"), expected)  # From the CPU.
            outputs = {
                name: torch.zeros(value.shape, dtype=torch.from_numpy(value).dtype, device="cuda")
                for name, value in expected.items()
            }
            assert made.run(tensors, outputs=outputs)["y"] is outputs["y"]
            expect(outputs, expected)


@check
def bound_runs_follow_the_stream() -> None:
    made = engine()
    arrays = [data(seed=seed) for seed in range(4)]
    expected = [made.run(each) for each in arrays]
    tensors = cuda(arrays[0])
    bound = made.bind(tensors)
    results = {name: torch.from_dlpack(each) for name, each in bound.outputs.items()}
    slow = torch.randn(4096, 4096, device="cuda")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            kept = []
            for each in arrays:
                fresh = {
                    name: torch.from_numpy(array).pin_memory().cuda(non_blocking=True) for name, array in each.items()
                }
                for _ in range(4):
                    slow = slow @ slow * 1e-3  # What the run has to wait for.
                for name, tensor in fresh.items():
                    tensors[name].copy_(tensor)
                bound.run()
                kept.append({name: tensor.clone() for name, tensor in results.items()})  # Behind the run.
                for tensor in tensors.values():
                    tensor.zero_()
            stream.synchronize()
        for got, want in zip(kept, expected):
            expect(got, want)


@check
def inputs_may_be_freed_at_once() -> None:
    made = engine()
    arrays = data(512, 300)
    expected = made.run(arrays)
    for _ in range(20):
        results = made.run(cuda(arrays), outputs="device")
        junk = [torch.full((512, N), 7.0, dtype=torch.float16, device="cuda") for _ in range(4)]  # In the freed memory.
        taken = {name: torch.from_dlpack(each) for name, each in results.items()}
        del results
        expect(taken, expected)
        del junk, taken


@check
def results_go_to_other_streams() -> None:
    made = engine()
    arrays = data(256, 9)
    expected = made.run(arrays)
    tensors = cuda(arrays)
    for _ in range(20):
        results = made.run(tensors, outputs="device")
        other = torch.cuda.Stream()
        with torch.cuda.stream(other):
            taken = {name: torch.from_dlpack(each).clone() for name, each in results.items()}
        del results
        made.run({name: tensor.flip(0) for name, tensor in tensors.items()}, outputs="device")
        other.synchronize()
        expect(taken, expected)


@check
def addresses_that_are_not_aligned() -> None:
    made = engine()
    arrays = data()
    expected = made.run(arrays)

    def odd(tensor: torch.Tensor) -> torch.Tensor:
        flat = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype, device="cuda")[1:]
        return flat.view(tensor.shape).copy_(tensor)

    tensors = {name: odd(tensor) for name, tensor in cuda(arrays).items()}
    outputs = {name: odd(torch.zeros_like(torch.from_numpy(value)).cuda()) for name, value in expected.items()}
    bound = made.bind(tensors, outputs)
    for _ in range(3):
        bound.run()
        expect(outputs, expected)
        for tensor in outputs.values():
            tensor.zero_()


@check
def caches_grow() -> None:
    made = engine()
    x, cache = cuda(data(1, 1)).values()
    host = data(1, 1)["cache"]
    for _ in range(12):
        results = made.run({"x": x, "cache": cache}, outputs="device")
        host = made.run({"x": x.cpu().numpy(), "cache": host})["all"]
        cache, x = torch.from_dlpack(results["all"]), torch.from_dlpack(results["y"])
        assert np.array_equal(cache.cpu().numpy(), host)


@check
def layers_on_the_cpu() -> None:
    made = engine(extra=("cpu",))
    arrays = data()
    expected = made.run(arrays)
    bound = made.bind(cuda(arrays))
    for _ in range(3):
        expect(bound.run(), expected)


@check
def every_wrong_tensor_has_its_message() -> None:
    made = engine(batch=8)
    arrays = data()
    good = cuda(arrays)
    out = {
        name: torch.zeros(value.shape, dtype=torch.from_numpy(value).dtype, device="cuda")
        for name, value in made.run(arrays).items()
    }

    def refused(words: str, inputs: Any = good, outputs: Any = "device", **options: Any) -> None:
        try:
            made.run(inputs, outputs=outputs, **options)
        except ulpscope.Error as error:
            assert words in str(error) and "\n" not in str(error), str(error)
            return
        raise AssertionError(f"no error: {words}")

    refused("input 'x': expected elements of type float16, got float32", {**good, "x": good["x"].float()})
    refused("input 'x': expected the shape (8, 64), got (4, 64)", {**good, "x": good["x"][:4]})
    refused("input 'x': expected elements in row-major order", {**good, "x": good["x"].t().contiguous().t()})
    refused(
        "output 'y': expected a tensor on CUDA device 0, where the engine computes, got one on the CPU",
        outputs={**out, "y": out["y"].cpu()},
    )
    refused("output 'y': expected elements of type float16, got float32", outputs={**out, "y": out["y"].float()})
    refused("output 'y': expected the shape (8, 64), got (7, 64)", outputs={**out, "y": out["y"][:7]})
    refused("output 'y': expected memory of its own, got some of input 'x''s", outputs={**out, "y": good["x"]})
    bound = made.bind(good, out)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        refused("stream: it is being recorded")
        try:
            bound.run()
            raise AssertionError("no error")
        except ulpscope.Error as error:
            assert "stream: it is being recorded" in str(error)
    try:
        ulpscope.Engine(model(), precision="fp16").run(good)
        raise AssertionError("no error")
    except ulpscope.Error as error:
        assert "expected a tensor on the CPU, where the engine computes, got one on CUDA device 0" in str(error)
    expect(made.run(good), made.run(arrays))


@check
def other_libraries() -> None:
    made = engine()
    arrays = data()
    expected = made.run(arrays)
    for library in ("cupy", "jax.numpy"):
        try:
            module = __import__(library, fromlist=["asarray"])
            if library == "jax.numpy":
                __import__("jax").config.update("jax_enable_x64", True)  # Results are int64, too.
            tensors = {name: module.asarray(array) for name, array in arrays.items()}
            if library == "jax.numpy" and not list(tensors["x"].devices())[0].platform.startswith(("gpu", "cuda")):
                raise ImportError("JAX without a GPU")
        except ImportError as error:
            print(f"       without {library}: {error}")
            continue
        results = made.run(tensors, outputs="device")
        expect(
            {
                name: np.asarray(module.from_dlpack(each).get() if library == "cupy" else module.from_dlpack(each))
                for name, each in results.items()
            },
            expected,
        )


def main() -> int:
    print(f"torch {torch.__version__}, ulpscope {ulpscope.__version__}, {torch.cuda.get_device_name()}", flush=True)
    failed = 0
    for each in CHECKS:
        try:
            each()
            print(f"ok     {each.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {each.__name__}\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
