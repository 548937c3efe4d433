"""Answers and journals of searches, as they are easy to work with. The files say little twice (docs/formats.md)."""

from __future__ import annotations

from itertools import islice
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

Json = Dict[str, Any]


class RaisedLayers(Sequence[Tuple[str, str]]):
    """Pairs of name and precision, made when they are looked at: a search of a large network has millions."""

    def __init__(self, names: List[str], keys: List[str], marks: bytearray) -> None:
        # Per name the number of its precision among the keys, of which the first means none.
        self._names, self._keys, self._marks = names, keys, marks

    def __len__(self) -> int:
        return len(self._marks) - self._marks.count(0)

    def __iter__(self) -> Iterator[Tuple[str, str]]:
        return ((self._names[i], self._keys[mark]) for i, mark in enumerate(self._marks) if mark)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and key.start is None and key.step is None and (key.stop or 0) > 0:
            return list(islice(self, key.stop))
        return list(self)[key]


def _ranges(text: str) -> Iterator[Tuple[int, int]]:
    for part in text.split():
        first, _, last = part.partition("-")
        yield int(first), int(last or first) + 1


def expand_trials(trials: Iterable[Json], names: Sequence[str]) -> List[Json]:
    """Each with all that it leaves to earlier ones: ``raised`` (pairs), ``passed``, ``margin``, ``repairs``, ``joined``,
    ``validation``, ``error`` as ``search`` of the answer has it, and ``cost`` as ``cost_share``, ``time_us`` and ``seconds``."""
    table = list(names)
    keys = ["dropped"]
    sets: List[bytearray] = []
    state: Json = {"margin": 1.0, "repairs": [], "joined": 0, "validation": 0}
    result = []
    for trial in trials:
        table += trial.get("names", [])
        raised = trial["raised"]
        marks = bytearray(sets[raised["base"]]) if "base" in raised else bytearray()
        for key, ranges in raised.items():
            if key == "base":
                continue
            if key not in keys:
                keys.append(key)
            mark = keys.index(key)
            for first, end in _ranges(ranges):
                marks.extend(bytes(max(0, end - len(marks))))
                marks[first:end] = bytes([mark]) * (end - first)
        sets.append(marks)
        state = {key: trial.get(key, value) for key, value in state.items()}
        used, value = trial.get("used", "inf"), trial["value"]
        output, sample = trial.get("worst", [-1, -1])
        worst = table[output] if output >= 0 else ""
        rows = trial.get("outputs", [[output, used, value, sample]] if worst else [])
        error = {
            "used": used, "value": value, "worst_output": worst, "worst_sample": sample, "problem": trial.get("problem", ""),
            "outputs": [{"output": table[row[0]] if row[0] >= 0 else "", "used": row[1], "value": row[2], "sample": row[3]} for row in rows],
        }  # fmt: skip
        share, time_us, seconds = trial["cost"]
        result.append(
            {
                "kind": trial["kind"], "raised": RaisedLayers(table, keys, marks),
                "passed": float(used) <= float(state["margin"]), **state,
                "samples_passed": trial.get("samples_passed", -1), "sample_used": trial.get("sample_used", []), "error": error,
                "cost_share": share, "time_us": time_us, "seconds": seconds,
            }
        )  # fmt: skip
    return result


def expand_answer(answer: Json) -> Json:
    """The answer with ``trials`` as ``expand_trials`` has them, and ``sensitivities`` as a list of rows. Answers of version
    1 are so already."""
    if answer["version"] == 1:
        return answer
    columns = answer["sensitivities"]
    measured = set(columns["measured"])
    rows = [
        {"name": answer["names"][layer], "op": op, "effect": effect, "measured": i in measured}
        for i, (layer, op, effect) in enumerate(zip(columns["layer"], columns["op"], columns["effect"]))
    ]
    return {**answer, "sensitivities": rows, "trials": expand_trials(answer["trials"], answer["names"])}
