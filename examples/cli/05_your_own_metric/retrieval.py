"""The share of pictures whose most similar picture is the other view of the same scene.

It needs all samples at once, so no tolerance for single outputs says the same. Used as `--metric-script retrieval.py`.
"""

import numpy as np


def metric(golden, candidate):
    vectors = np.concatenate([sample["embedding"] for sample in candidate]).astype(np.float64)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    partners = np.arange(len(vectors)) ^ 1  # 0 and 1, 2 and 3, ...
    return float(np.mean(similarity.argmax(axis=1) == partners))


metric.higher_is_better = True
