"""Searches, converts, checks and reports."""

import numpy as np

import ulpscope

MODEL = "needs_constraints.onnx"


def make_samples(seed: int, count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    return [{"x": (1 + random.integers(0, 1024, (1, 1, 256, 256)) / 1024).astype(np.float32)} for _ in range(count)]


answer = ulpscope.search(MODEL, make_samples(1, 4), threshold=0.01, objective="smallest", fusion="none")
print(f"{answer.verdict}:", ", ".join(f"{layer.name} ({layer.reason.kind})" for layer in answer.layers))
typed, info = ulpscope.convert(MODEL, answer, data=make_samples(1, 2), out="typed.onnx")
print(f"{info.lowered} layer(s) lowered, error against float32 {info.error_vs_fp32}")
check = ulpscope.verify(MODEL, answer, make_samples(7, 3), runner="onnxruntime")
print("passed" if check.passed else "failed", "in", check.runner)
ulpscope.report(answer, "report.html", typed=typed)
