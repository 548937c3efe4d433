#!/usr/bin/env python3
"""Writes the summary of a job of action.yml, and judges it: exits with the status of verify, or with 1 for a worse answer.

Needs nothing but Python's own library.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from typing import Any

SLOWER = 1.01  # estimated times that differ by less are the same
MOST_LAYERS = 100
WORDS = {2: "the command line does not fit", 3: "a defect of ulpscope", 4: "nothing could be judged; the log of the step says why"}


def read(path: str) -> Any:
    return json.loads(pathlib.Path(path).read_text())


def cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def number(value: Any, form: str = ".3g") -> str:
    return "not finite" if value is None or not math.isfinite(float(value)) else format(float(value), form)


def table(head: list[str], rows: list[list[Any]]) -> list[str]:
    return ["| " + " | ".join(map(cell, row)) + " |" for row in (head, ["---"] * len(head), *rows)] + [""]


def outputs_of(check: dict[str, Any]) -> list[str]:
    predicted = {each["output"]: each for each in check["predicted"]["outputs"]}
    rows = [
        [f"`{each['output']}`", number(each["value"]), number(each["used"]), number(predicted.get(each["output"], {}).get("used")), each["sample"]]
        for each in check["error"]["outputs"]
    ]
    return table(["output", "error", "share of the tolerance", "predicted share", "worst sample"], rows)


def layers_of(answer: dict[str, Any]) -> list[str]:
    rows = [[f"`{each['name']}`", each["op"], each["precision"], each["reason"]["text"]] for each in answer["layers"][:MOST_LAYERS]]
    more = len(answer["layers"]) - len(rows)
    return table(["layer", "operator", "kept in", "why"], rows) + ([f"and {more} more", ""] if more else [])


def curve_of(answer: dict[str, Any]) -> list[str]:
    """Error against time: a table, and a chart where it has more than one point."""
    points = sorted((float(time), float(used), layers) for time, used, layers in answer.get("curve") or [])
    if not points:
        return []
    lines = ["### Error against time", ""]
    drawn = [(time, used) for time, used, _ in points if math.isfinite(used)]
    if len(drawn) > 1:
        largest = max(2.0, 1.1 * min(4.0, max(used for _, used in drawn)))
        times, errors = (", ".join(f"{value:.4g}" for value in values) for values in ([x for x, _ in drawn], [min(y, largest) for _, y in drawn]))
        lines += ["```mermaid", "xychart-beta", f'  x-axis "estimated microseconds" [{times}]', f'  y-axis "share of the tolerance" 0 --> {largest:.3g}',
                  f"  line [{errors}]", f"  line [{', '.join(['1'] * len(drawn))}]", "```", ""]  # fmt: skip
    return lines + table(["estimated us", "share of the tolerance", "layers kept"], [[number(x, ".4g"), number(y), n] for x, y, n in points])


def worse(answer: dict[str, Any], baseline: dict[str, Any]) -> list[str]:
    """What is worse than in the baseline, in words."""
    if answer["verdict"] != "found" and baseline["verdict"] == "found":
        return [f"the verdict is '{answer['verdict']}', it was 'found'"]
    result = []
    new, old = len(answer["layers"]), len(baseline["layers"])
    if new > old:
        result.append(f"{new} layers are kept, there were {old}")
    if answer["target"] == baseline["target"]:
        time, before = (float(each["time_us"]["answer"]) for each in (answer, baseline))
        if time > SLOWER * before:
            result.append(f"it is estimated at {time:.4g} us on {answer['target']}, it was {before:.4g} us")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--answer", "--verify", "--status", "--summary", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--baseline", default="")
    options = parser.parse_args()
    status, check = int(options.status), None
    if status in (0, 1) and pathlib.Path(options.verify).exists():
        check = read(options.verify)
    answer = read(options.answer) if check else None
    problems = worse(answer, read(options.baseline)) if answer and options.baseline else []

    lines = ["## ulpscope verify", ""]
    if check and answer:
        verdict = "The answer holds" if check["passed"] else "The answer does not hold"
        lines += [f"**{verdict}** on {check['runner']}: {check['samples']} sample(s), {number(check['error']['used'])} {'of' if check['passed'] else 'times'} the tolerance.", ""]
        lines += [f"**Worse than the baseline**: {problem}." for problem in problems] + [""] * bool(problems)
        lines += [f"Model `{check['model']['path']}` ({check['model']['hash']}), {', '.join(answer['precisions'])}, target {answer['target']}: "
                  f"{len(answer['layers'])} of {answer['candidates']} layers kept.", "", *outputs_of(check)]  # fmt: skip
        lines += ["### Layers kept", "", *layers_of(answer)] if answer["layers"] else []
        lines += curve_of(answer)
    else:
        status = status or 4
        lines += [f"**Not judged** (exit status {status}): {WORDS.get(status, 'verify ended without a result')}.", ""]
    with open(options.summary, "a") as file:
        file.write("\n".join(lines) + "\n")
    if status == 0 and problems:
        status = 1
    with open(options.output, "a") as file:
        file.write(f"passed={str(status == 0).lower()}\nused={check['error']['used'] if check else ''}\n")
    for problem in problems:
        print(f"::error::ulpscope: worse than the baseline: {problem}")
    if status:
        print(f"::error::ulpscope: {WORDS.get(status, 'the answer does not hold' if not problems or not check or not check['passed'] else 'the answer is worse')}")
    return status


if __name__ == "__main__":
    sys.exit(main())
