"""Pictures in pairs: two noisy views of the same scene follow each other. Values are those of a camera, 0 to 255.

Used as `--data-loader-script data.py` (12 scenes) and `--data-loader-script data.py:others` (12 other ones).
"""

import numpy as np


def pairs(seed, scenes):
    random = np.random.RandomState(seed)
    y, x = np.mgrid[0:48, 0:48]
    for _ in range(scenes):
        scene = np.zeros((48, 48))
        for _ in range(6):
            row, column, size = random.uniform(0, 48, 2).tolist() + [random.uniform(3, 10)]
            scene += np.exp(-((x - column) ** 2 + (y - row) ** 2) / size**2)
        scene *= random.uniform(60, 255) / scene.max()
        for _ in range(2):
            view = np.clip(scene + 12 * random.randn(48, 48), 0, 255)
            yield {"picture": view[None, None].astype(np.float32)}


def load_data():
    return pairs(1, 12)


def others():
    return pairs(2, 12)
