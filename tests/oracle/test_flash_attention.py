"""The engine against the oracle where `--attention flash` holds: which groups it is about, and what they round."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import oracle
from oracle.networks import N, Network, R, build
from oracle.test_oracle import LEVELS, PRECISIONS


def attention(rows: int, keys: int, between: list = (), behind: list = (), spread: float = 1.0, **feeds) -> Network:
    """softmax(q k + mask) v, with layers between and behind; "p" becomes "z"."""
    nodes = [N("MatMul", ["q", "k"], ["s"]), N("Add", ["s", "mask"], ["u"]), N("Softmax", ["u"], ["w"]), *between]
    nodes += [N("MatMul", [nodes[-1].output[0], "v"], ["o"]), *behind]
    feed = {"q": R(2, rows, 8) * spread, "k": R(2, 8, keys), "mask": R(1, keys), "v": R(2, keys, 8)}
    return build(nodes, feed | feeds, {"c": np.float32(0.75)}, (nodes[-1].output[0],))


HIDDEN = np.where(np.arange(40) % 3 == 0, -np.inf, 0).astype(np.float32)[None]
FLASH = {
    "one group": attention(5, 40),
    "sharp rows": attention(5, 40, spread=6.0),
    "more keys": attention(3, 700),
    "masked keys": attention(5, 40, mask=HIDDEN),
    "rows without a score": attention(5, 40, mask=np.full((1, 40), -np.inf, np.float32)),
    "a score of infinity": attention(5, 40, mask=np.where(HIDDEN < 0, np.inf, 0).astype(np.float32)),
    "followers": attention(5, 40, behind=[N("Mul", ["o", "c"], ["r"]), N("Relu", ["r"], ["z"])]),
    "a layer between": attention(5, 40, between=[N("Mul", ["w", "c"], ["d"])]),
    "a movement between": attention(5, 40, between=[N("Identity", ["w"], ["d"])]),
    "one key": attention(5, 1),
    "a vector of values": attention(5, 40, v=R(40)),
    "values of more batches": attention(5, 40, v=R(3, 2, 40, 8)),
}


@pytest.mark.parametrize("name", FLASH)
def test_engine_by_the_rule_of_flash_attention(name):
    import ulpscope

    network = FLASH[name]
    for precision, level, backend in itertools.product(PRECISIONS, LEVELS, ("cpu", "plain")):
        outcomes = oracle.run(network.model, network.feed, precision, level, attention="flash")
        engine = ulpscope.Engine(
            network.model, precision=precision, fusion=level, attention="flash", backend=backend, threads=1
        )
        for output, actual in engine.run(network.feed).items():
            assert oracle.judge(outcomes[output], actual) is None, (precision, level, backend)


def test_the_rules_of_attention_differ_where_it_is_one_group_that_rounds():
    import ulpscope

    def run(network: Network, rule: str, precision: str = "fp16", level: str = "full") -> np.ndarray:
        engine = ulpscope.Engine(network.model, precision=precision, fusion=level, attention=rule, threads=1)
        return next(iter(engine.run(network.feed).values()))

    differ = {name for name, network in FLASH.items() if not np.array_equal(
        run(network, "flash"), run(network, "normalized"), equal_nan=True)}  # fmt: skip
    assert differ == {"one group", "sharp rows", "more keys", "masked keys", "followers", "values of more batches"}
    for level, precision in (("pointwise", "fp16"), ("none", "fp16"), ("full", "fp32")):
        same = [run(FLASH["one group"], rule, precision, level) for rule in ("flash", "normalized")]
        assert np.array_equal(*same), (level, precision)


def test_flash_attention_rounds_no_largest_exponential():
    # Three keys with the same score: 1/3 is no number of bf16, 1 is.
    nodes = [N("MatMul", ["q", "k"], ["s"]), N("Softmax", ["s"], ["p"]), N("MatMul", ["p", "v"], ["z"])]
    feed = {"q": np.zeros((1, 8), np.float32), "k": R(8, 3), "v": np.float32([[255], [255], [256]])}
    network = build(nodes, feed)
    results = {
        rule: oracle.run(network.model, feed, "bf16", "full", attention=rule)["z"].expected.item()
        for rule in ("normalized", "flash")
    }
    assert results == {"normalized": 256.0, "flash": 255.0}
