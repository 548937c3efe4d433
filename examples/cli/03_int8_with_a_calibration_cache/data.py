"""Images of rectangles with noise: 24 to calibrate with, 16 others to search with, and 100 that nothing else sees.

Used as `--data-loader-script data.py:calibration`, `data.py:samples` and `data.py:unseen`.
"""

import numpy as np


def images(seed, count):
    random = np.random.RandomState(seed)
    for _ in range(count):
        image = 0.1 * random.randn(1, 3, 32, 32)
        for _ in range(4):
            top, left = random.randint(0, 24, 2)
            height, width = random.randint(4, 16, 2)
            image[0, :, top : top + height, left : left + width] += random.uniform(-1, 1, (3, 1, 1))
        yield {"image": image.astype(np.float32)}


def calibration():
    return images(1, 24)


def samples():
    return images(2, 16)


def unseen():
    return images(3, 100)
