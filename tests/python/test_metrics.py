"""Metrics and shares of tolerances against NumPy's formulas, and `run`'s metrics against Polygraphy's."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

pytest.importorskip("polygraphy.json")
from compare_support import cli, save  # noqa: E402, F401 (the fixture)
from polygraphy.comparator import CosineSimilarityCompareFunc, IterationResult, L2CompareFunc  # noqa: E402
from polygraphy.comparator import PsnrCompareFunc, RunResults, SimpleCompareFunc, SnrCompareFunc  # noqa: E402
from polygraphy.logger import G_LOGGER  # noqa: E402

K, LEVEL = 3, 0.25


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def pairs() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Golden and candidate arrays of every type that outputs have, of sizes around the blocks of the sums."""
    random = np.random.RandomState(5)
    result = {}
    for dtype in [np.float16, np.float32, np.float64]:
        for shape in [(5,), (7,), (8, 9), (3, 5, 1000), (2, 40000), (4, 16384)]:
            golden = random.standard_normal(shape).astype(dtype)
            candidate = (golden + random.standard_normal(shape) * 10 ** random.uniform(-4, 0)).astype(dtype)
            result[f"{np.dtype(dtype).name}_{'x'.join(map(str, shape))}"] = (golden, candidate)
    for shape in [(10,), (20, 300)]:
        logits = random.standard_normal(shape) * 3
        result[f"probabilities_{len(shape)}"] = (
            softmax(logits).astype(np.float32),
            softmax(logits + random.standard_normal(shape) * 0.01).astype(np.float16).astype(np.float32),
        )
    for dtype in [np.int32, np.int64, np.uint8]:
        golden = random.randint(0, 100, (6, 7)).astype(dtype)
        result[np.dtype(dtype).name] = (golden, np.clip(golden + random.randint(-1, 2, (6, 7)), 0, 255).astype(dtype))
    result["bool"] = (random.rand(5, 50) > 0.5, random.rand(5, 50) > 0.5)
    result["column"] = (random.rand(9, 1).astype(np.float32), random.rand(9, 1).astype(np.float32))
    return result


def expected_metrics(golden: np.ndarray, candidate: np.ndarray) -> dict[str, float | str]:
    g, c = golden.astype(np.float64), candidate.astype(np.float64)
    rows_g, rows_c = g.reshape(-1, g.shape[-1]), c.reshape(-1, g.shape[-1])
    noise = np.sum((c - g) ** 2)
    values: dict[str, float | str] = {
        "rel-l2": np.linalg.norm(c - g) / np.linalg.norm(g),
        "rel-max": np.abs(c - g).max() / np.abs(g).max(),
        "one-minus-cos": 1 - np.sum(g * c) / (np.linalg.norm(g) * np.linalg.norm(c)),
        "psnr": 10 * np.log10(np.abs(g).max() ** 2 / np.mean((c - g) ** 2)),
        "snr": 10 * np.log10(np.sum(g**2) / noise),
        "iou": np.sum((g > LEVEL) & (c > LEVEL)) / np.sum((g > LEVEL) | (c > LEVEL)),
    }
    if (rows_g >= 0).all() and (abs(rows_g.sum(-1) - 1) <= 1e-3).all():
        p, q = rows_g, np.maximum(rows_c, 1e-12)
        p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    else:
        p, q = softmax(rows_g), softmax(rows_c)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / q), 0)
    values["kl"] = float(np.mean(np.sum(terms, -1)))
    top_g = np.argsort(-rows_g, axis=-1, kind="stable")[:, :K]
    top_c = np.argsort(-rows_c, axis=-1, kind="stable")[:, :K]
    values["top-k"] = float(np.mean([len(set(a) & set(b)) / K for a, b in zip(top_g, top_c)]))
    if rows_g.shape[-1] <= K:
        values["top-k"] = "refused"
    if rows_g.shape[-1] < 2:
        values["kl"] = "refused"
    return values


def test_metrics_are_the_formulas(cli, tmp_path: pathlib.Path) -> None:
    arrays = pairs()
    golden = save([{name: pair[0] for name, pair in arrays.items()}], tmp_path / "g.json")
    candidate = save([{name: pair[1] for name, pair in arrays.items()}], tmp_path / "c.json")
    done = cli("metrics", golden, candidate, "--k", K, "--level", LEVEL)
    assert done.returncode == 0, done.stdout + done.stderr
    ours: dict[str, dict[str, str]] = {}
    for line in done.stdout.splitlines():
        name, metric, value = line.split()
        ours.setdefault(name, {})[metric] = value
    assert list(ours) == list(arrays)
    for name, (g, c) in arrays.items():
        expected = expected_metrics(g, c)
        assert set(expected) == set(ours[name])
        for metric, value in expected.items():
            if isinstance(value, str):
                assert ours[name][metric] == value, (name, metric)
            else:
                # NumPy's 1 - cos and its sum of signed terms lose digits: up to 5e-15 were seen.
                np.testing.assert_allclose(float(ours[name][metric]), value, rtol=1e-11, atol=2e-14, err_msg=f"{name} {metric}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("atol, rtol", [(1e-3, 1e-2), (0.1, 1e-6), (0.0, 0.5), (0.5, 0.0), (1e9, 1e9)])
def test_shares_of_tolerances_are_polygraphys_verdicts(cli, tmp_path: pathlib.Path, atol: float, rtol: float) -> None:
    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    arrays = {name: pair for name, pair in pairs().items() if name != "bool"}
    golden = save([{name: pair[0] for name, pair in arrays.items()}], tmp_path / "g.json")
    candidate = save([{name: pair[1] for name, pair in arrays.items()}], tmp_path / "c.json")
    for stat in ["elemwise", "mean", "median", "max"]:
        done = cli("tolerance", golden, candidate, "--atol", atol, "--rtol", rtol, "--stat", stat)
        assert done.returncode == 0, done.stdout
        shares = {line.split()[0]: float(line.split()[1]) for line in done.stdout.splitlines()}
        first = IterationResult({name: pair[1] for name, pair in arrays.items()}, 0.0, "a")
        second = IterationResult({name: pair[0] for name, pair in arrays.items()}, 0.0, "b")
        verdicts = SimpleCompareFunc(atol=atol, rtol=rtol, check_error_stat=stat)(first, second)
        assert {name: share <= 1 for name, share in shares.items()} == {name: bool(verdict) for name, verdict in verdicts.items()}
        if stat == "elemwise" and atol > 0 and rtol > 0:
            for name, (g, c) in arrays.items():
                if g.dtype == np.float64:
                    with np.errstate(divide="ignore", invalid="ignore"):
                        used = np.max(np.minimum(abs(c - g) / atol, abs(c - g) / np.where(g == 0, 2.0**-52, abs(g)) / rtol))
                    np.testing.assert_allclose(shares[name], used, rtol=1e-12, err_msg=name)


LABELS = {
    "l2": (L2CompareFunc, "L2 Norm", "l2_norm", [1e-5, 30.0]),
    "cosine_similarity": (CosineSimilarityCompareFunc, "Cosine Similarity", "cosine_similarity", [0.997, 0.5]),
    "psnr": (PsnrCompareFunc, "PSNR", "psnr", [30.0, 5.0]),
    "snr": (SnrCompareFunc, "SNR", "snr", [20.0, 3.0]),
}


@pytest.mark.parametrize("name", LABELS)
def test_metric_comparisons_are_polygraphys(cli, tmp_path: pathlib.Path, name: str) -> None:
    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    function, label, field, thresholds = LABELS[name]
    arrays = {key: pair for key, pair in pairs().items() if pair[0].dtype.kind == "f"}
    arrays["zeros"] = (np.zeros(4, np.float32), np.zeros(4, np.float32))
    arrays["first_zero"] = (np.ones(4, np.float32), np.zeros(4, np.float32))
    arrays["negative"] = (-np.ones(4, np.float32), -np.full(4, 1.25, np.float32))
    first = IterationResult({key: pair[1] for key, pair in arrays.items()}, 0.0, "a")
    second = IterationResult({key: pair[0] for key, pair in arrays.items()}, 0.0, "b")
    results = RunResults()
    results.append(("a", [first]))
    results.append(("b", [second]))
    path = save(results, tmp_path / "r.json")
    for threshold in thresholds:
        with np.errstate(divide="ignore"):
            theirs = function(threshold)(first, second)
        done = cli("compare", path, "--compare", name, f"--{name.replace('_', '-')}-threshold", threshold, "zeros:0.125", "nothing:1")
        assert f"Extra items in the {name}_threshold dictionary: {{'nothing'}}" in done.stdout
        lines = re.findall(rf"{label}: (\S+)(?: dB)? \((?:tolerance|min required): (\S+?)(?: dB)?\) \| (PASSED|FAILED)", done.stdout)
        assert len(lines) == len(arrays), done.stdout
        for (key, verdict), (value, limit, passed) in zip(theirs.items(), lines):
            # Polygraphy computes in float32 (a 0.0001 dB or so), prints five digits; values of 0 stay near it.
            np.testing.assert_allclose(float(value), getattr(verdict, field), rtol=2e-4, atol=2e-5, err_msg=key)
            if key != "zeros":
                assert float(limit) == pytest.approx(threshold)
                assert (passed == "PASSED") == bool(verdict), key
        assert done.returncode == int(any(passed == "FAILED" for _, _, passed in lines))


def test_combined_and_refused_comparisons(cli, tmp_path: pathlib.Path) -> None:
    results = RunResults()
    for runner, value in [("a", 1.0), ("b", 1.0625)]:
        results.append((runner, [IterationResult({"y": np.full(4, value, np.float32)}, 0.0, runner)]))
    path = save(results, tmp_path / "r.json")
    both = cli("compare", path, "--compare", "distance_metrics", "--l2-threshold", "1")
    assert both.returncode == 0 and "L2 Norm: 0.125 (tolerance: 1) | PASSED" in both.stdout
    assert "Cosine Similarity: 1 (min required: 0.997) | PASSED" in both.stdout
    quality = cli("compare", path, "--compare", "quality_metrics", "--psnr-threshold", "20")
    assert quality.returncode == 0, quality.stdout
    assert "PSNR: 24.082 dB (min required: 20 dB) | PASSED" in quality.stdout and "SNR: 24.082 dB" in quality.stdout
    refused = cli("compare", path, "--compare", "perceptual_metrics")
    assert refused.returncode == 1 and "LPIPS" in refused.stdout and "--compare-func-script" in refused.stdout
