"""What tests of report pages share: answers on networks of many layers, the data of a page, and its controls."""

import base64
import gzip
import json
import math
import random
import re

KINDS = ["overflow", "underflow", "cancellation", "saturation", "resolution", "rounding", "measured", "requested"]
OPS = ["MatMul", "Add", "Softmax", "Mul", "LayerNormalization"]


def data_of(page):
    """The document that a page draws (schemas/report.schema.json)."""
    kind, text = re.search(r'<script type="application/(json|gzip;base64)" id="data">(.*?)</script>', page, re.S).groups()
    return json.loads(text if kind == "json" else gzip.decompress(base64.b64decode(text)))


def kept_layer(rng, j, name, op, effect):
    kind = KINDS[j % len(KINDS)]
    counts = [int(1e5 * math.exp(-((k - 12) / 5) ** 2)) for k in range(26)]
    tensor = name + "_output_0"
    reason = {"kind": kind, "tensor": tensor, "count": 1234 * j, "total": 123456 * (j + 1), "largest": 1.2e5, "share": rng.random() / 10,
              "text": f"{kind}: {1234 * j} values of '{tensor}' lie beyond fp16", "low": ["fp16", "bf16", "int8", None][j % 4],
              "exponents": {"first": -20 + 4 * (j % 7), "counts": counts}}
    if kind == "requested":
        reason.update(tensor="", count=0, total=0, low=None, exponents=None)
    return {"name": name, "op": op, "nodes": [name], "precision": "fp32", "effect": effect, "reason": reason}


def ranges(rows):
    return " ".join(map(str, rows))


def large_trials(rng, layers, count, outputs):
    """Each a little different from one before, as files have them; errors of 0, infinity and below."""
    trials, sizes = [], []
    for i in range(count):
        base = rng.randrange(i) if i % 40 else None
        changed = sorted(rng.sample(range(layers), min(layers, 40 if base is None else 12)))
        raised = {"fp32": ranges(changed)} if base is None else {"base": base, "fp32": ranges(changed[::2]), "dropped": ranges(changed[1::2])}
        sizes.append(40 if base is None else sizes[base] + rng.randrange(12))
        used = 0 if i == 3 else 10 ** rng.gauss(0.6 - sizes[-1] / 90, 0.2)
        trial = {"kind": "hold-out" if i % 10 == 9 else "search", "raised": raised, "used": used, "value": used / 100, "worst": [outputs, 0],
                 "cost": [round(sizes[-1] / layers, 5), round(2300 + 9 * sizes[-1] + rng.random(), 2), 0.25]}
        if i % 15 == 0:
            del trial["used"]
            trial["problem"] = "output 'y', sample 3: 2 NaN and 1 Inf where the golden output is finite"
        trials.append(trial)
    return trials


def large_answer(answer, layers=5000, kept=60, trials=1000, seed=1):
    """An answer (version 2) on a network of many layers: every kind of reason, effects of 0, infinity and NaN."""
    rng = random.Random(seed)
    ops = [OPS[i % len(OPS)] for i in range(layers)]
    names = [f"/encoder/layer.{i // 12}/attention/self/a_rather_long_name_of_a_layer/{ops[i]}_{i}" for i in range(layers)]
    rows = sorted(rng.sample(range(layers), kept))
    effects = [10 ** rng.gauss(-3, 1) for _ in names]
    effects[5:8] = [0, "nan", "inf"]
    for j, row in enumerate(rows):
        effects[row] = "inf" if j % 9 == 0 else 10 ** rng.gauss(-0.5, 0.3)
    low = [None if i % 13 == 4 else "fp16" for i in range(layers)]
    time = [None if i % 17 == 3 else round(10 ** rng.gauss(0, 1), 3) for i in range(layers)]
    answer.update(
        layers=[kept_layer(rng, j, names[row], ops[row], effects[row]) for j, row in enumerate(rows)], candidates=layers,
        names=[*names, "y"], sensitivities={"layer": list(range(layers)), "op": ops, "effect": effects, "measured": list(range(0, layers, 97))},
        network={"layer": list(range(layers)), "op": ops, "precision": low,
                 "inputs": [sorted({i - 1, *([i - rng.randrange(2, 12)] if i % 5 == 4 and i > 12 else [])}) if i else [] for i in range(layers)],
                 "time_us": {"fp16": [t and round(t / 2, 3) for t in time], "fp32": time},
                 "magnitudes": [None if i % 11 == 2 else [rng.randrange(-30, -4), rng.randrange(-4, 19)] for i in range(layers)]},
        following=[names[i] for i in range(1, layers, max(2, layers // 30)) if i not in rows],
        repairs=[{"kind": "clamp", "name": "/mask", "limit": 32752, "text": "magnitudes are limited to 32752"}],
        int8={"calibration_cache": "m.cache", "scales": {name + "_output_0": 0.05 for name in names}},
        message=f"{kept} of {layers} layers need more precision", trials=large_trials(rng, layers, trials, layers), sets={},
        time_us={"answer": 3100, "lowest": 2300, "highest": 4800, "casts": 123, "cast_count": 41}, curve=[[2300.0, "inf", 0], [2500.0, 3.0, 20], [3100.0, 0.4, 90], [4800.0, 0.0, layers]])
    answer["run_options"] = [*answer["run_options"], *(f"{layer['name']}:float32" for layer in answer["layers"])]
    return answer


def names(browser, place="layers"):
    return browser.evaluate(
        f"[...document.querySelectorAll('#{place} tbody tr:not(.detail) .name')].map((e) => e.textContent)"
    )


def status(browser, place="layers"):
    return browser.evaluate(f"document.querySelector('#{place} .status').textContent")


def choose(browser, label, value, place="layers"):
    browser.evaluate(f"""(() => {{
        const field = [...document.querySelectorAll('#{place} .field')]
            .find((e) => e.firstChild.textContent === {json.dumps(label)});
        const input = field.querySelector('select, input');
        input.value = {json.dumps(value)};
        input.dispatchEvent(new Event(input.tagName === 'SELECT' ? 'change' : 'input'));
    }})()""")


def kept_names(answer):
    return [layer["name"] for layer in answer["layers"]]


def press_button(browser, text, place="layers"):
    browser.evaluate(
        f"[...document.querySelectorAll('#{place} button')]"
        f".find((e) => e.textContent.includes({json.dumps(text)})).click()"
    )
