"""Recordings like speech: vowels, hisses and pauses, with more or less noise. In every second one the pauses are
digital silence, as noise suppression and muted microphones leave it."""

import numpy as np

RATE, LENGTH = 16000, 144160


def vowel(rng, length):
    time = np.arange(length) / RATE
    pitch = rng.uniform(90, 250)
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(1, 4) * time))) / RATE
    formants = rng.uniform((300, 900, 2300), (900, 2300, 3200))
    harmonics = np.arange(1, 21)[:, None]
    loudness = (1 / (1 + ((harmonics * pitch - formants) / 120) ** 2)).sum(axis=1)
    return loudness @ np.sin(harmonics * phase)


def recording(seed):
    rng = np.random.default_rng(seed)
    sound = np.zeros(LENGTH)
    begin = 0
    while begin < LENGTH:
        whole = int(RATE * rng.uniform(0.06, 0.3))
        length = min(whole, LENGTH - begin)
        kind = rng.random()
        if kind < 0.85:
            part = vowel(rng, length) if kind < 0.65 else np.diff(rng.normal(size=length + 1))
            envelope = np.sin(np.pi * np.arange(length) / whole) ** 0.7
            sound[begin : begin + length] = part * envelope * rng.uniform(0.4, 1)
        begin += length
    pauses = sound == 0
    sound = sound / np.abs(sound).max() + rng.normal(size=LENGTH) * 10 ** rng.uniform(-4, -1)
    if seed % 2:
        sound[pauses] = 0
    return (sound / np.abs(sound).max() * rng.uniform(0.1, 0.95)).astype(np.float32)


def load_data():
    for seed in range(8):
        yield {"input_1": recording(seed)[None]}


def two():
    for seed in range(2):
        yield {"input_1": recording(seed)[None]}


def unseen(count=200):
    for seed in range(1000, 1000 + count):
        yield {"input_1": recording(seed)[None]}


def few_unseen():
    yield from unseen(4)
