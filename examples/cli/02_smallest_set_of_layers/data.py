"""The samples, sequences of 16 vectors: 16 to search with, and 200 that the search never sees.

Used as `--data-loader-script data.py` and `--data-loader-script data.py:load_unseen`.
"""

import numpy as np


def sequences(seed, count):
    random = np.random.RandomState(seed)
    for _ in range(count):
        yield {"x": random.randn(1, 16, 32).astype(np.float32)}


def load_data():
    return sequences(1, 16)


def load_unseen():
    return sequences(2, 200)
