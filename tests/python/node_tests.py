r"""Runs ONNX's own node tests (those of pip's onnx, made in memory) and counts them per operator.

Build what it needs and run it, in one command (B: any configured build folder):

    B=build/dev; cmake -DULPSCOPE_BUILD_PYTHON=ON $B && ninja -C $B ulpscope_python && \
      .venv/bin/python tests/python/node_tests.py --build $B

    -k PATTERN     only tests whose name or operator matches the regular expression (-k '^Softmax$', -k test_conv)
    --reference    the reference kernels alone, layer by layer; default: the engine
    -v             the message of every test that did not pass (always printed for 40 tests or fewer)

A test passes when all outputs have the expected type and shape, and values within its own tolerances. It is unsupported
when the model was refused as such (ErrorCode.UNSUPPORTED); everything else failed. Tests run in a child process: a
crash is a failed test.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import warnings
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS_PER_TEST = 60

Run = Callable[[bytes, Sequence[object]], Sequence[object]]


class Result(NamedTuple):
    name: str
    op: str
    outcome: str  # "passed", "failed" or "unsupported"
    message: str


def collect(pattern: str = "") -> list:
    """ONNX's test cases of the kind `node`, each with the name of the operator that it tests as `.op`."""
    warnings.simplefilter("ignore")
    from onnx.backend.test.loader import load_model_tests

    cases = load_model_tests(kind="node")
    ops = {case.name: case.model.graph.node[0].op_type for case in cases}
    for case in cases:
        # test_softmax_axis_0_expanded_ver18 has the function body of what test_softmax_axis_0 tests.
        case.op = ops.get(case.name.split("_expanded")[0], ops[case.name])
    chosen = re.compile(pattern)
    return [case for case in cases if chosen.search(case.name) or chosen.search(case.op)]


def to_array(value: object) -> object:
    """Values of the tests as arrays; sequences and optionals stay as they are."""
    import onnx
    from onnx import numpy_helper

    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, type(None))):
        return value
    return np.asarray(value)


def check(actual: object, expected: object, rtol: float, atol: float, where: str) -> None:
    """As ONNX's own runner compares."""
    if isinstance(expected, list):
        assert isinstance(actual, list) and len(actual) == len(expected), f"{where}: expected {len(expected)} elements"
        for i, (a, e) in enumerate(zip(actual, expected)):
            check(a, to_array(e), rtol, atol, f"{where}[{i}]")
        return
    assert isinstance(actual, np.ndarray), f"{where}: expected an array, got {type(actual).__name__}"
    assert actual.dtype == expected.dtype, f"{where}: expected type {expected.dtype}, got {actual.dtype}"
    assert actual.shape == expected.shape, f"{where}: expected shape {expected.shape}, got {actual.shape}"
    if expected.dtype == object:
        assert (actual == expected).all(), f"{where}: other strings"
        return
    if expected.dtype.name == "bfloat16":
        actual, expected, rtol = actual.astype(np.float32), expected.astype(np.float32), max(rtol, 2.0**-6)
    try:
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
    except AssertionError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise AssertionError(f"{where}: " + "; ".join(line.strip() for line in lines[:7])) from None


def run_case(case, run: Run) -> Result:
    """One test case with `run(model, inputs) -> outputs`."""
    from ulpscope import Error, ErrorCode

    try:
        model = case.model.SerializeToString()
        for inputs, expected in case.data_sets:
            outputs = run(model, [to_array(value) for value in inputs])
            assert len(outputs) == len(expected), f"expected {len(expected)} outputs, got {len(outputs)}"
            for i, (actual, wanted) in enumerate(zip(outputs, expected)):
                check(actual, to_array(wanted), case.rtol, case.atol, f"output {i}")
    except Error as error:
        unsupported = error.code == ErrorCode.UNSUPPORTED
        return Result(case.name, case.op, "unsupported" if unsupported else "failed", str(error))
    except Exception as error:  # whatever it is, it is this test's result
        return Result(case.name, case.op, "failed", f"{type(error).__name__}: {error}")
    return Result(case.name, case.op, "passed", "")


def run_all(cases: list, load: Callable[[], Run]) -> Iterator[Result]:
    """Runs the cases in a child process, and in another one after every crash. `load` is called in the child."""
    done = 0
    while done < len(cases):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                _serve(cases[done:], load, pipe)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            for line in pipe:
                yield Result(*json.loads(line))
                done += 1
        _, status = os.waitpid(child, 0)
        if done < len(cases):
            why = (
                f"took more than {SECONDS_PER_TEST} s"
                if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
                else f"the process ended with status {os.waitstatus_to_exitcode(status)}"
            )
            yield Result(cases[done].name, cases[done].op, "failed", why)
            done += 1


def _serve(cases: list, load: Callable[[], Run], pipe) -> None:
    run: Optional[Run] = None
    for case in cases:
        signal.alarm(SECONDS_PER_TEST)
        try:
            run = run or load()
            result = run_case(case, run)
        except Exception as error:  # no module, no backend
            result = Result(case.name, case.op, "failed", f"{type(error).__name__}: {error}")
        pipe.write(json.dumps(result) + "\n")
        pipe.flush()


def load_reference() -> Run:
    from ulpscope._core import reference_run

    return reference_run


def load_engine() -> Run:
    import onnx

    from ulpscope import backend

    return lambda model, inputs: backend.prepare(onnx.load_from_string(model), "CPU").run(inputs)


def newest_build() -> Optional[pathlib.Path]:
    modules = sorted(ROOT.glob("build/*/python/ulpscope/_core*.so"), key=lambda path: path.stat().st_mtime)
    return modules[-1].parents[2] if modules else None


def print_table(results: List[Result]) -> None:
    counts: Dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for result in results:
        counts[result.op][result.outcome] += 1
    print(f"{'operator':32} {'passed':>7} {'failed':>7} {'unsupported':>12}")
    for op in sorted(counts):
        count = counts[op]
        print(f"{op:32} {count['passed']:7} {count['failed']:7} {count['unsupported']:12}")


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="pattern", default="", metavar="PATTERN", help="tests or operators to run")
    parser.add_argument("--reference", action="store_true", help="the reference kernels alone")
    parser.add_argument("--build", type=pathlib.Path, help="the build folder; default: the one with the newest module")
    parser.add_argument("-v", "--verbose", action="store_true", help="print why tests did not pass")
    options = parser.parse_args(argv)
    build = options.build or newest_build()
    if build is None:
        print(
            "No build folder has the Python module; the first lines of this file tell how to build it.", file=sys.stderr
        )
        return 2
    sys.path.insert(0, str(build.resolve() / "python"))
    loads = subprocess.run(
        [sys.executable, "-c", "import ulpscope._core"], cwd=build / "python", capture_output=True, text=True
    )
    if loads.returncode != 0:
        print(f"The Python module of {build} does not load: {loads.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return 2
    cases = collect(options.pattern)
    results = list(run_all(cases, load_reference if options.reference else load_engine))
    if options.verbose or len(results) <= 40:
        for result in results:
            if result.outcome != "passed":
                print(f"{result.outcome.upper()} {result.name} ({result.op}): {result.message}")
    print_table(results)
    totals = collections.Counter(result.outcome for result in results)
    print(
        f"{totals['passed']} of {len(results)} node tests passed, {totals['failed']} failed, "
        f"{totals['unsupported']} unsupported"
    )
    return 0 if totals["failed"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
