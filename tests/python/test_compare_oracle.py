"""src/compare against NumPy and Polygraphy: random numbers, statistics, array text, files, and comparison logs."""

from __future__ import annotations

import base64
import io
import json
import pathlib
import re

import numpy as np
import pytest

polygraphy_json = pytest.importorskip("polygraphy.json")
from compare_support import cli, save  # noqa: E402, F401 (the fixture)
from polygraphy.comparator import Comparator, DataLoader, IterationResult, RunResults  # noqa: E402
from polygraphy.comparator import IndicesCompareFunc, SimpleCompareFunc  # noqa: E402
from polygraphy.common import TensorMetadata  # noqa: E402
from polygraphy.logger import G_LOGGER  # noqa: E402

FLOATS = [np.float16, np.float32, np.float64]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def load(path: pathlib.Path):
    G_LOGGER.module_severity = G_LOGGER.ERROR
    return polygraphy_json.load_json(str(path))


def sample_arrays() -> dict[str, np.ndarray]:
    """Arrays of every type, of sizes that reach every branch of the summation."""
    random = np.random.RandomState(7)
    arrays: dict[str, np.ndarray] = {}
    for dtype in FLOATS:
        name = np.dtype(dtype).name
        for size in [1, 2, 7, 8, 9, 100, 128, 129, 1000, 8192, 8193, 30011]:
            arrays[f"{name}_{size}"] = (random.standard_normal(size) * 3 + 1).astype(dtype)
        arrays[f"{name}_nan"] = np.array([1, np.nan, 3, np.nan], dtype)
        arrays[f"{name}_inf"] = np.array([1, np.inf, -3], dtype)
        arrays[f"{name}_shape"] = random.uniform(-1, 1, (3, 5, 7, 11)).astype(dtype)
        arrays[f"{name}_scalar"] = np.array(0.1, dtype)
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        name = np.dtype(dtype).name
        high = min(info.max, 2**40)
        for size in [1, 4, 131, 20000]:
            arrays[f"{name}_{size}"] = random.randint(max(info.min, -(2**40)), high, size, dtype=np.int64).astype(dtype)
    for size in [1, 5, 20000]:
        arrays[f"bool_{size}"] = random.randint(0, 2, size).astype(bool)
    return arrays


@pytest.mark.filterwarnings("ignore")
def test_statistics_are_numpys(cli, tmp_path: pathlib.Path) -> None:
    from polygraphy.comparator import util as comp_util

    arrays = sample_arrays()
    done = cli("statistics", save([arrays], tmp_path / "i.json"))
    assert done.returncode == 0, done.stdout
    lines = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in done.stdout.splitlines()}
    assert list(lines) == list(arrays)
    wrong = []
    for name, array in arrays.items():
        quantiles = array.astype(np.float64) if array.dtype == bool else array
        expected = [
            comp_util.compute_mean(array),
            comp_util.compute_std(array),
            comp_util.compute_variance(array),
            comp_util.compute_median(array),
            comp_util.compute_min(array),
            comp_util.compute_max(array),
            comp_util.compute_average_magnitude(array),
            np.quantile(quantiles, 0.9),
            np.quantile(quantiles, 0.99),
            np.quantile(quantiles, 0.123),
        ]
        for what, ours, theirs in zip("mean std var median min max avg p90 p99 q".split(), lines[name], expected):
            if not (ours == float(theirs) or (np.isnan(ours) and np.isnan(theirs))):
                wrong.append((name, what, ours, float(theirs)))
    assert not wrong


def test_array_text_is_numpys(cli, tmp_path: pathlib.Path) -> None:
    random = np.random.RandomState(3)
    arrays = {}
    for dtype in FLOATS:
        name = np.dtype(dtype).name
        arrays[f"{name}_plain"] = random.uniform(-1, 1, (3, 4)).astype(dtype)
        arrays[f"{name}_long"] = random.uniform(-100, 100, 100).astype(dtype)
        arrays[f"{name}_deep"] = random.uniform(0, 2, (2, 3, 2, 8)).astype(dtype)
        arrays[f"{name}_wide"] = (random.uniform(0, 1, 30) ** 12).astype(dtype)
        arrays[f"{name}_whole"] = np.arange(12).reshape(3, 4).astype(dtype)
        arrays[f"{name}_special"] = np.array([np.nan, np.inf, -np.inf, 1.5, 0, -0.0], dtype)
        arrays[f"{name}_nans"] = np.array([np.nan, np.inf], dtype)
        arrays[f"{name}_exponent"] = np.array([1e-5, np.nan, -2.5, 60000], dtype)
        arrays[f"{name}_empty"] = np.zeros((2, 0), dtype)
        for i, value in enumerate([0.1, 1 / 3, 5, 0, 1e-5, 6e4, 1000, 2e-4, np.nan, -np.inf]):
            arrays[f"{name}_scalar{i}"] = np.array(value, dtype)
    arrays["double_large"] = np.array([1e300, -1e-300, 0.1])
    arrays["float_large"] = np.array([3.4e38, 1e20], np.float32)
    arrays["million"] = np.array([1e6, 999999.5], np.float32)
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        arrays[np.dtype(dtype).name] = np.array([[info.min, 0], [1, info.max]], dtype)
        arrays[np.dtype(dtype).name + "_scalar"] = np.array(info.max, dtype)
    arrays["bools"] = np.array([[True, False], [True, True]])
    arrays["all_true"] = np.ones(40, bool)
    arrays["bool_scalar"] = np.array(True)
    done = cli("text", save([arrays], tmp_path / "i.json"))
    expected = "".join(f"{name}\n{array!s}\n" for name, array in arrays.items())
    assert done.stdout.splitlines() == expected.splitlines()


def test_randint_is_numpys(cli, tmp_path: pathlib.Path) -> None:
    draws = []
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        name = np.dtype(dtype).name
        top = min(info.max, 2**62)
        for low, high in [(0, 2), (0, 101), (max(info.min, -50), 7), (max(info.min, -(2**62)), top), (3, 4), (0, 128)]:
            if high - 1 <= info.max:
                draws.append((name, low, high))
        if info.bits <= 32:
            draws.append((name, info.min, info.max + 1))
    draws += [
        ("int64", -(2**63), 2**63 - 1),
        ("int64", 0, 2**32),
        ("int64", 0, 2**32 + 1),
        ("bool", 0, 2),
        ("bool", 1, 2),
    ]
    arguments = [f"{name}:[{low},{high},{seed},1003]" for seed, (name, low, high) in enumerate(draws)]
    out = tmp_path / "o.json"
    done = cli("randint", out, "--draw", *arguments)
    assert done.returncode == 0, done.stdout
    ours = load(out)[0]
    assert len(ours) == len(draws)
    for seed, ((name, low, high), array) in enumerate(zip(draws, ours.values())):
        theirs = np.random.RandomState(seed).randint(low, high, 1003, dtype=np.dtype(name))
        assert array.dtype == theirs.dtype
        np.testing.assert_array_equal(array, theirs, err_msg=f"{name} {low} {high}")


@pytest.mark.parametrize(
    "ranges", [{}, {"": (1, 2)}, {"a": (-5, 5), "": (0, 10)}, {"a": (0, float("inf"))}, {"a": (float("-inf"), 0)}]
)
def test_generated_inputs_are_polygraphys(cli, tmp_path: pathlib.Path, ranges: dict) -> None:
    inputs = [
        ("a", np.float32, (2, 3, 5)),
        ("b", np.int64, (4, 5)),
        ("c", np.bool_, (33,)),
        ("d", np.float16, (100,)),
        ("e", np.int8, (7,)),
        ("f", np.uint8, (9,)),
        ("g", np.float64, ()),
        ("h", np.int32, (3,)),
    ]
    metadata = TensorMetadata()
    for name, dtype, shape in inputs:
        metadata.add(name, dtype, shape)
    G_LOGGER.module_severity = G_LOGGER.ERROR
    loader = DataLoader(seed=5, iterations=3, input_metadata=None, val_range=ranges or None)
    loader.input_metadata = metadata
    loader.user_input_metadata = {}
    out = tmp_path / "o.json"
    bindings = [f"{n}:{np.dtype(t).name}:[{','.join(map(str, s))}]" for n, t, s in inputs]
    arguments = [f"{n}:[{lo},{hi}]" if n else f"[{lo},{hi}]" for n, (lo, hi) in ranges.items()]
    options = ["--val-range", *arguments] if arguments else []
    done = cli("generate", out, "--seed", 5, "--iterations", 3, *options, "--bindings", *bindings)
    assert done.returncode == 0, done.stdout
    ours = load(out)
    assert len(ours) == 3
    for index, feed in enumerate(ours):
        for name, theirs in loader[index].items():
            assert feed[name].dtype == theirs.dtype and feed[name].shape == theirs.shape
            assert feed[name].tobytes() == theirs.tobytes(), (index, name)


def example_results() -> RunResults:
    results = RunResults()
    outputs = {"y": np.ones((2, 2), np.float32), "scalar": np.array(3), "é:0": np.zeros((0, 3), np.int8)}
    for dtype in [*FLOATS, *INTEGERS, np.bool_]:
        outputs[np.dtype(dtype).name] = np.arange(6).reshape(2, 3).astype(dtype)
    first = IterationResult(outputs, runtime=0.00113, runner_name="a-N0")
    results.append(("a-N0", [first, IterationResult({"y": np.ones(1)}, runtime=1e-05, runner_name="a-N0")]))
    results.append(("empty", []))
    results.append(("f", [IterationResult({}, runtime=None, runner_name="f")]))
    return results


def test_results_are_written_byte_by_byte_as_polygraphy_does(cli, tmp_path: pathlib.Path) -> None:
    path = save(example_results(), tmp_path / "r.json")
    copy = tmp_path / "sub" / "copy.pkl"
    assert cli("copy-results", path, copy).returncode == 0
    assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "inputs", [[], [{}], [{"x": np.zeros((2, 0))}, {"x": np.ones(3, np.float16), "y": np.array(True)}]]
)
def test_inputs_are_written_byte_by_byte_as_polygraphy_does(cli, tmp_path: pathlib.Path, inputs: list) -> None:
    path = save(inputs, tmp_path / "i.json")
    assert cli("copy-inputs", path, tmp_path / "copy.json").returncode == 0
    assert (tmp_path / "copy.json").read_bytes() == path.read_bytes()


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version)
    return stream.getvalue()


def npz(array: np.ndarray, compressed: bool) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, first=array, second=np.zeros(3))
    return stream.getvalue()


ARRAY = np.random.RandomState(1).uniform(-9, 9, (3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize(
    "data",
    [
        npy(ARRAY),
        npy(np.asfortranarray(ARRAY)),
        npy(ARRAY.astype(">f4")),
        npy(np.asfortranarray(ARRAY.astype(">f4"))),
        npy(ARRAY, (2, 0)),
        npy(ARRAY, (3, 0)),
        npz(ARRAY, False),
        npz(ARRAY, True),
    ],
    ids=["c", "fortran", "big-endian", "both", "v2", "v3", "stored", "deflated"],
)
@pytest.mark.parametrize("encoding", ["base64", "latin-1"])
@pytest.mark.parametrize("marker", ["new", "old"])
def test_older_forms_are_read(cli, tmp_path: pathlib.Path, data: bytes, encoding: str, marker: str) -> None:
    text = base64.b64encode(data).decode() if encoding == "base64" else data.decode("latin-1")

    def mark(obj: dict, name: str) -> dict:
        if marker == "new":
            return {**obj, "polygraphy_class": name}
        return {**obj, f"__polygraphy_encoded_{name}": "polygraphy_serialized_json_type"}

    array = mark({"array": text}, "ndarray")
    lazy = mark({"values": array}, "LazyNumpyArray")
    iteration = mark({"outputs": {"y": lazy, "bare": array}, "runtime": None, "runner_name": "r"}, "IterationResult")
    path = tmp_path / "old.json"
    path.write_text(json.dumps(mark({"lst": [["r", [iteration]]]}, "RunResults")))
    done = cli("copy-results", path, tmp_path / "new.json")
    assert done.returncode == 0, done.stdout
    outputs = load(tmp_path / "new.json")[0][1][0]
    for name in ["y", "bare"]:
        assert outputs[name].dtype == np.float32 and outputs[name].dtype.isnative
        np.testing.assert_array_equal(outputs[name], ARRAY)


# The lines of a comparison, in the form of Polygraphy 0.49, from those of the installed one.
def normalized(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        line = line.rstrip()
        line = re.sub(r"(\[.\]\s+(?:PASSED \| |FAILED \| )?)(?:simple|indices) \| ", r"\1", line)
        if re.fullmatch(r"\[.\]\s*(None)?", line) or "Iteration: " in line or "'colored' module" in line or not line:
            continue
        lines.append(line)
    return lines


def grouped(lines: list[str]) -> tuple[list[str], list[str]]:
    """Without indentation: the statistics of outputs (they move between releases), and all other lines."""
    statistics: list[str] = []
    others: list[str] = []
    target = others
    for line in lines:
        head = re.match(r"\[.\] ", line)
        body = (line[:4] if head else "") + line[4:].strip()
        if re.match(r"\[.\] \S+: \S+ \| Stats:", body):
            target = statistics
        elif head and not body[4:].startswith("----"):
            target = others
        target.append(body)
    return statistics, others


def polygraphy_log(capsys, results: RunResults, function) -> tuple[str, bool]:
    G_LOGGER.once_logged.clear()
    G_LOGGER.module_severity = G_LOGGER.INFO
    capsys.readouterr()
    passed = bool(Comparator.compare_accuracy(results, compare_func=function))
    return capsys.readouterr().out, passed


def check_same_log(cli, capsys, tmp_path, results: RunResults, function, *options: object, raw: bool = True) -> None:
    """`raw`: the statistics of outputs are those of the outputs as they were given, as in the installed release."""
    path = save(results, tmp_path / "results.json")
    text, passed = polygraphy_log(capsys, results, function)
    done = cli("compare", path, *options)
    assert done.stderr == ""
    ours, theirs = grouped(normalized(done.stdout)), grouped(normalized(text))
    assert not raw or ours[0] == theirs[0]
    assert ours[1] == theirs[1]
    assert done.returncode == (0 if passed else 1)


def pair(first: dict, second: dict) -> RunResults:
    results = RunResults()
    for name, outputs in [("first-N0", first), ("second-N0", second)]:
        results.append((name, [IterationResult(outputs, runtime=0.1, runner_name=name)]))
    return results


def comparisons() -> dict[str, tuple[dict, dict]]:
    random = np.random.RandomState(11)
    big = random.uniform(-3, 3, (4, 50, 60))
    cases: dict[str, tuple[dict, dict]] = {}
    for dtype in FLOATS:
        name = np.dtype(dtype).name
        cases[f"{name}_close"] = ({"y": big.astype(dtype)}, {"y": (big + 1e-7 * big).astype(dtype)})
        cases[f"{name}_far"] = ({"y": big.astype(dtype)}, {"y": (big * 1.1).astype(dtype)})
        cases[f"{name}_small"] = ({"y": np.array([1, 2.5, -3], dtype)}, {"y": np.array([1.5, 2.5, 0], dtype)})
        cases[f"{name}_nan"] = ({"y": np.array([1, np.nan], dtype)}, {"y": np.array([1, np.nan], dtype)})
        cases[f"{name}_inf"] = ({"y": np.array([1, np.inf, 2], dtype)}, {"y": np.array([1, np.inf, 3], dtype)})
        cases[f"{name}_scalar"] = ({"y": np.array(0.1, dtype)}, {"y": np.array(0.3, dtype)})
        cases[f"{name}_empty"] = ({"y": np.zeros((0, 3), dtype)}, {"y": np.zeros((0, 3), dtype)})
        cases[f"{name}_same"] = ({"y": np.full(200, 3, dtype)}, {"y": np.full(200, 3, dtype)})
    for dtype in INTEGERS:
        a = random.randint(0, 100, (5, 40)).astype(dtype)
        cases[np.dtype(dtype).name] = ({"y": a}, {"y": np.roll(a, 1)})
    flags = random.randint(0, 2, 300).astype(bool)
    cases["bool_same"] = ({"y": flags}, {"y": flags.copy()})
    cases["bool_differs"] = ({"y": flags}, {"y": ~flags})
    cases["mixed_floats"] = ({"y": big.astype(np.float16)}, {"y": big.astype(np.float32)})
    cases["mixed_double"] = ({"y": big.astype(np.float32)}, {"y": big})
    cases["float_integer"] = ({"y": np.arange(200, dtype=np.float32)}, {"y": np.arange(200, dtype=np.int32) + 1})
    cases["shapes_differ"] = ({"y": np.ones((2, 3)), "z": np.ones(2)}, {"y": np.ones((3, 2)), "z": np.ones(2)})
    cases["names_differ"] = ({"y": np.ones(3), "z": np.ones(2)}, {"prefix/Y": np.ones(3), "other": np.ones(2)})
    cases["several"] = ({"y": big, "z": -big}, {"z": -big, "y": big + 1})
    return cases


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stat", ["elemwise", "max", "mean", "median", "quantile"])
@pytest.mark.parametrize("case", sorted(comparisons()))
def test_comparison_log_is_polygraphys(cli, capsys, tmp_path: pathlib.Path, case: str, stat: str) -> None:
    first, second = comparisons()[case]
    if stat == "quantile" and any(a.dtype == bool for a in first.values()):
        pytest.skip("NumPy has no quantile of bool")
    function = SimpleCompareFunc(check_error_stat=stat, atol=0.2, rtol=1e-5, error_quantile=0.9)
    options = ["--check-error-stat", stat, "--atol", 0.2, "--error-quantile", 0.9]
    check_same_log(cli, capsys, tmp_path, pair(first, second), function, *options, raw=case != "shapes_differ")


def test_equal_infinities(cli, capsys, tmp_path: pathlib.Path) -> None:
    first, second = comparisons()["float32_inf"]
    function = SimpleCompareFunc(infinities_compare_equal=True)
    check_same_log(cli, capsys, tmp_path, pair(first, second), function, "--infinities-compare-equal")


def test_options_per_output(cli, capsys, tmp_path: pathlib.Path) -> None:
    first, second = comparisons()["several"]
    function = SimpleCompareFunc(atol={"y": 2.0, "": 1e-3}, check_error_stat={"z": "max", "": "mean"})
    options = ["--atol", "y:2", "1e-3", "--check-error-stat", "z:max", "mean"]
    check_same_log(cli, capsys, tmp_path, pair(first, second), function, *options)


def test_shapes_are_matched_on_request(cli, capsys, tmp_path: pathlib.Path) -> None:
    a = np.random.RandomState(0).uniform(0, 1, (2, 3, 4))
    results = pair({"y": a, "z": a}, {"y": np.transpose(a, (2, 0, 1)).copy(), "z": a.reshape(24)})
    check_same_log(cli, capsys, tmp_path, results, SimpleCompareFunc(check_shapes=False), "--no-shape-check", raw=False)


@pytest.mark.parametrize("tolerance", [0, 1, 2])
def test_indices(cli, capsys, tmp_path: pathlib.Path, tolerance: int) -> None:
    first = {"i": np.array([[0, 1, 2, 3], [3, 2, 1, 0]])}
    second = {"i": np.array([[1, 0, 2, 3], [1, 2, 3, 9]])}
    function = IndicesCompareFunc(index_tolerance=tolerance)
    path = save(pair(first, second), tmp_path / "results.json")
    text, passed = polygraphy_log(capsys, pair(first, second), function)
    done = cli("compare", path, "--compare", "indices", "--index-tolerance", tolerance)
    assert grouped(normalized(done.stdout)) == grouped(normalized(text))
    assert done.returncode == (0 if passed else 1)


@pytest.mark.filterwarnings("ignore")
def test_every_iteration_is_logged_in_full(cli, capsys, tmp_path: pathlib.Path) -> None:
    """As Polygraphy does: scripts read these lines."""
    random = np.random.RandomState(5)
    names = ["a-N0", "b-N0"]
    arrays = [[random.uniform(1, 2, 7).astype(np.float32) for _ in range(6)] for _ in names]
    arrays[1][4] = arrays[0][4] + np.float32(3)
    results = RunResults()
    for name, values in zip(names, arrays):
        results.append((name, [IterationResult({"y": value}, runtime=0.1, runner_name=name) for value in values]))
    check_same_log(cli, capsys, tmp_path, results, SimpleCompareFunc(atol=1.0, rtol=1e-5), "--atol", 1)


@pytest.mark.filterwarnings("ignore")
def test_validation(cli, capsys, tmp_path: pathlib.Path) -> None:
    outputs = {"ok": np.ones(3), "nan": np.array([1, np.nan]), "inf": np.array([1, np.inf]), "int": np.arange(3)}
    results = RunResults()
    results.append(("r-N0", [IterationResult(outputs, runtime=0.1, runner_name="r-N0")]))
    path = save(results, tmp_path / "results.json")
    G_LOGGER.once_logged.clear()
    G_LOGGER.module_severity = G_LOGGER.INFO
    capsys.readouterr()
    assert not Comparator.validate(results, check_inf=True, check_nan=True)
    theirs = normalized(capsys.readouterr().out)
    done = cli("validate", path)
    ours = [line for line in normalized(done.stdout) if "First non-finite output" not in line]
    assert len(normalized(done.stdout)) == len(ours) + 1
    assert ours == theirs
    assert done.returncode == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("spec", ["top-3", "top-2,axis=0", "top-100,axis=1"])
def test_top_k(cli, tmp_path: pathlib.Path, dtype: type, spec: str) -> None:
    from polygraphy.comparator import TopKPostprocessFunc

    array = np.random.RandomState(2).randint(-5, 5, (4, 6, 3)).astype(dtype)
    k, _, axis = spec[4:].partition(",axis=")
    results = pair({"y": array}, {"y": array})
    expected = TopKPostprocessFunc(k=(int(k), int(axis or -1)))(results[0][1][0])["y"]
    results.append(("expected", [IterationResult({"y": expected}, runtime=0.0, runner_name="expected")]))
    path = save(pair({"y": array}, {"y": array}), tmp_path / "a.json")
    theirs = save(pair({"z": expected}, {"z": expected}), tmp_path / "b.json")
    done = cli("compare", path, theirs, "--postprocess", f"y:{spec}", "--compare", "indices")
    assert done.returncode == 0, done.stdout
    assert f"'z' (dtype=int64, shape={expected.shape})" in done.stdout


def results_with(output: str) -> bytes:
    iteration = f'{{"outputs": {{"y": {output}}}, "polygraphy_class": "IterationResult"}}'
    return f'{{"lst": [["r", [{iteration}]]], "polygraphy_class": "RunResults"}}'.encode()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty"),
        (b"\x80\x04\x95", "pickle"),
        (b'{"lst": [', "line 1"),
        (b"[1, 2\n, oops]", "line 2, column 3"),
        (b"[]", "RunResults"),
        (b'{"a": 1, "polygraphy_class": "TacticReplayData"}', "TacticReplayData"),
        (b'{"polygraphy_class": "RunResults"}', "lst"),
        (b'{"lst": [["r", 3]], "polygraphy_class": "RunResults"}', "runner 0"),
        (results_with('{"array": "!", "polygraphy_class": "ndarray"}'), "output 'y'"),
        (results_with('{"tensor": "", "polygraphy_class": "Tensor"}'), "torch"),
    ],
)
def test_bad_files_are_explained(cli, tmp_path: pathlib.Path, content: bytes, expected: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    done = cli("compare", path)
    assert done.returncode == 1
    assert str(path) in done.stdout and expected in done.stdout


def test_a_missing_file_is_named(cli, tmp_path: pathlib.Path) -> None:
    done = cli("compare", tmp_path / "none.json")
    assert done.returncode == 1 and "none.json" in done.stdout
