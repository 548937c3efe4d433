"""The page: what can be read without scripts, and the data of what scripts draw.

Numbers of answers go through float(): "inf", "-inf" and "nan" are texts there.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

Json = Dict[str, Any]

_VERDICTS = {
    "found": ("good", "Found"),
    "not-reachable": ("bad", "Not reachable"),
    "unverified": ("open", "Not finished"),
    "fails-held-out": ("bad", "Fails on held-out samples"),
}
# Why an answer may say nothing about single layers.
_NO_SENSITIVITIES = {
    "found": "No effects were predicted: the first trials passed, before single layers had to be looked at.",
    "not-reachable": "No effects were predicted: the tolerance is out of reach whatever is raised.",
    "unverified": "The search ended before the effects of layers were looked at.",
    "fails-held-out": "No effects were predicted: the first trials passed on the samples of the search.",
}
# Lists longer than this are folded.
_LISTED = 8
# Data beyond this many characters is compressed.
_PLAIN = 300_000
# One after the other, in one scope.
_SCRIPTS = ("data", "dom", "table", "layers", "strip", "graph", "trials", "compare", "main")


def short(value: float) -> str:
    """Three digits, as people read them."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.3g}"


def e(value: object) -> str:
    """Text as HTML."""
    return html.escape(str(value), quote=True)


def _breakable(value: str) -> str:
    """Text as HTML; paths may be broken after their slashes."""
    return e(value).replace("/", "/<wbr>")


_SHOWN = 5e-4  #: Of a sum: smaller parts are no digit of it.


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _share(value: float) -> str:
    return f"{short(100 * value)} %"


def _time(microseconds: float) -> str:
    for scale, unit in ((1e-6, "s"), (1e-3, "ms")):
        if microseconds * scale >= 1:
            return f"{short(scale * microseconds)} {unit}"
    return f"{short(microseconds)} µs"


def _used(judgement: Json) -> str:
    used = float(judgement["used"])
    return _share(used) if used < 10 else f"{short(used)}×"


def _asset(name: str) -> str:
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "assets")
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def shown_answer(answer: Json) -> Json:
    """An answer without what the page does not show: words for the command line, and scales of other tensors than those
    of its reasons."""
    shown = {**answer, "run_options": [], "criterion_options": [], "inputs": []}
    shown.pop("build", None)
    if answer["int8"]:
        named = {layer["reason"]["tensor"] for layer in answer["layers"]}
        scales = {name: scale for name, scale in answer["int8"]["scales"].items() if name in named}
        shown["int8"] = {**answer["int8"], "scales": scales}
    return shown


def _data(answers: Sequence[Json], precisions: List[Json], trial_command: str, typed: Optional[Json]) -> str:
    """The script element that the other scripts read (report.schema.json)."""
    document = {
        "format": "ulpscope-report",
        "version": 1,
        "answers": [{**each, "answer": shown_answer(each["answer"])} for each in answers],
        "precisions": precisions,
        "trial_command": trial_command,
        "typed": typed,
    }
    text = json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    if len(text) <= _PLAIN:
        # "<" could end the script.
        return f'<script type="application/json" id="data">{text.replace("<", chr(92) + "u003c")}</script>'
    packed = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return f'<script type="application/gzip;base64" id="data">{packed}</script>'


def report_page(
    server: Any,
    answer: str,
    source: str,
    precisions: List[Json],
    commands: List[Tuple[str, str]],
    trial_command: str,
    typed: Optional[Json],
    compare: Optional[Json],
) -> str:
    """The text of the page.

    ``answer``: the document of docs/formats.md, checked by the program. ``source``: the file it came from.
    ``precisions``: from low to high, their names and what they hold (report.schema.json).
    ``commands``: [title, command line]. ``trial_command``: without the trial's number at its end; empty for an answer
    that is in no file. ``typed``: ``path`` and ``casts`` of a typed model, or None. ``compare``: ``answer`` and
    ``source`` of another one, or None.
    """
    answers = [{"source": source, "answer": json.loads(answer)}]
    if compare is not None:
        answers.append({"source": compare["source"], "answer": json.loads(compare["answer"])})
    shown = answers[0]["answer"]
    sections = [
        _head(shown), _compare(answers), _network(shown), _layers(shown), _trials(shown), _outputs(shown),
        _repairs(shown), _casts(typed), _commands(commands), _about(shown, source),
    ]  # fmt: skip
    title = os.path.basename(shown["model"]["path"]) or "answer"
    body = "\n".join(section for section in sections if section)
    script = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="{e(shown["program"])}">\n'
        f"<title>{e(title)}: precision report</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f'{_data(answers, precisions, trial_command, typed)}\n<script>\n"use strict";\n(async () => {{\n'
        f"{script}}})();\n</script>\n</body>\n</html>\n"
    )


def _cell(label: str, content: str, style: str = "") -> str:
    """A cell that says what it is where there is no room for columns."""
    style = f' class="{style}"' if style else ""
    return f'<td data-label="{e(label)}"{style}><div>{content}</div></td>'


def _section(title: str, about: str, body: str, name: str = "") -> str:
    about = f'<p class="about">{about}</p>\n' if about else ""
    mark = f' id="{name}"' if name else ""
    return f"<section{mark}>\n<h2>{e(title)}</h2>\n{about}{body}\n</section>"


def _drawn(what: str) -> str:
    """Where scripts put something."""
    return f'<div class="drawn"></div><noscript><p class="empty">{what} needs scripts, which are turned off here.</p></noscript>'


def _has_result(answer: Json) -> bool:
    """Whether some trial stands behind the kept layers."""
    return bool(answer["search"]["outputs"]) or answer["verdict"] != "unverified"


def _head(answer: Json) -> str:
    tone, word = _VERDICTS[answer["verdict"]]
    model = answer["model"]["path"]
    lowered = ", ".join(answer["precisions"]) or "nothing"
    parts = [
        "<header>",
        f'<p class="kicker">Precision report · {e(lowered)}</p>',
        f"<h1>{e(os.path.basename(model) or model)}</h1>",
    ]
    if answer.get("lowest"):
        first, _, rest = answer["lowest"]["text"].partition("\n")
        parts.append(f'<p class="about">{e(first)}</p>')
        if rest:
            parts.append(f'<p class="about">{e(rest)}</p>')
    parts.append(f'<p class="verdict {tone}"><strong>{e(word)}</strong> {e(answer["message"])}</p>')
    if answer["verdict"] == "unverified":
        parts.append(
            '<p class="about">The search ended before its end: this page shows what was known then. The same '
            "<code>ulpscope precision search</code> with <code>--continue</code> goes on from its journal.</p>"
        )
    if _has_result(answer):
        parts.append(_tiles(answer))
    parts.append("</header>")
    return "\n".join(parts)


def _held_out_note(held: Json) -> str:
    passed = held["samples"] if float(held["used"]) <= 1 else held["passed"]
    return f"{passed} of {plural(held['samples'], 'sample')} pass" if passed else f"not all of {plural(held['samples'], 'sample')} pass"


def _tiles(answer: Json) -> str:
    count = len(answer["layers"])
    tiles = [("Layers kept higher", f"{count:,}", f"of {plural(answer['candidates'], 'candidate')}")]
    bits = answer.get("bits")
    if bits:
        tiles = [
            (
                "Bits per weight",
                f"{bits['per_weight']:.4g}",
                f"{bits['weights']:,} weights in {bits['bytes'] / 1e6:.1f} MB",
            )
        ]
    if answer["search"]["outputs"]:
        tiles.append(("Error, search samples", _used(answer["search"]), f"of the tolerance, {plural(answer['search']['samples'], 'sample')}"))
    held = answer["held_out"]
    if held:
        tiles.append(("Error, held-out samples", _used(held), _held_out_note(held)))
    else:
        tiles.append(("Held-out samples", "none", "known to hold on the search samples only"))
    tiles.append(("Multiply-adds kept higher", _share(float(answer["cost_share"])), "of those of the candidates"))
    time = answer["time_us"]
    if float(time["highest"]) > 0:
        tiles.append(
            (f"Estimated on {answer['target']}", _time(float(time["answer"])),
             f"all low {_time(float(time['lowest']))}, all high {_time(float(time['highest']))}")
        )  # fmt: skip
    items = "\n".join(f"<div><dt>{e(name)}</dt><dd><b>{e(value)}</b><span>{e(note)}</span></dd></div>" for name, value, note in tiles)
    return f'<dl class="tiles">\n{items}\n</dl>'


def _compare(answers: Sequence[Json]) -> str:
    if len(answers) == 1:
        return ""
    rows: List[Tuple[str, List[str]]] = []
    documents = [each["answer"] for each in answers]
    same_tolerance = len({(each["criterion"], float(each["margin"])) for each in documents}) == 1

    def add(name: str, tell: Any) -> None:
        rows.append((name, [str(tell(each)) for each in documents]))

    def estimate(a: Json) -> str:
        time = a["time_us"]
        return f"{_time(float(time['answer']))} on {a['target']}" if float(time["highest"]) > 0 else "–"

    add("Verdict", lambda a: _VERDICTS[a["verdict"]][1])
    add("Objective", lambda a: a.get("objective") or "–")
    add("Precisions", lambda a: ", ".join(a["precisions"]))
    add("Tolerance", lambda a: f"{a['criterion']}, at {short(float(a['margin']))} of it")
    add("Layers kept higher", lambda a: f"{len(a['layers']):,} of {a['candidates']:,}")
    add("Error, search samples", lambda a: _used(a["search"]) if a["search"]["outputs"] else "–")
    add("Error, held-out samples", lambda a: f"{_used(a['held_out'])}, {_held_out_note(a['held_out'])}" if a["held_out"] else "none")
    add("Multiply-adds kept higher", lambda a: _share(float(a["cost_share"])))
    add("Estimated time", estimate)
    add("Repairs", lambda a: len(a["repairs"]))
    add("Trials", lambda a: len(a["trials"]))
    heads = "".join(f"<th>{e(mark)}: {_breakable(each['source'])}</th>" for mark, each in zip("AB", answers))
    body = "".join(
        f"<tr><th scope='row'>{e(name)}</th>" + "".join(_cell(mark, e(cell)) for mark, cell in zip("AB", cells)) + "</tr>" for name, cells in rows
    )
    notes = [] if same_tolerance else ["Their tolerances differ, so shares of them do not compare."]
    if documents[0]["model"]["hash"] != documents[1]["model"]["hash"]:
        notes.append("They are for different files of a model: layers are matched by their names.")
    about = " ".join(["The page shows A; B is another answer.", *notes])
    table = f'<table class="facing"><thead><tr><td></td>{heads}</tr></thead><tbody>{body}</tbody></table>'
    return _section("Two answers", e(about), f'{table}<h3>Layers that differ</h3>{_drawn("The table")}', "compare")


def _network(answer: Json) -> str:
    parts = ["Every layer in network order: the precision that it computes in, what low precision does there alone (its effect, as a "
             "share of the tolerance), its estimated time, and the magnitudes that it writes."]  # fmt: skip
    parts += _sum_of_times(answer)
    if answer.get("network") is None:
        parts.append("This answer has no network of its own (an earlier release wrote it): only its candidates are known.")
    if not answer["sensitivities"]["layer"]:
        parts.append(_NO_SENSITIVITIES[answer["verdict"]])
    infinite = sum(1 for effect in answer["sensitivities"]["effect"] if not float(effect) < math.inf)
    if infinite:
        parts.append(f"{plural(infinite, 'effect')} at the top of the lane {'is' if infinite == 1 else 'are'} not finite.")
    return _section("Network", e(" ".join(parts)), _drawn("The picture"), "network")


def _sum_of_times(answer: Json) -> List[str]:
    """A sentence that makes the estimate of the layers' own times and of what is beside them."""
    network, time = answer.get("network"), answer["time_us"]
    if network is None or "casts" not in time:
        return []
    chosen = {layer["name"]: layer["precision"] for layer in answer["layers"]}
    names = answer["names"]
    layers = 0.0
    for row, (at, low) in enumerate(zip(network["layer"], network["precision"])):
        column = network["time_us"].get(chosen.get(names[at], low))
        layers += float(column[row]) if column and column[row] is not None else 0
    total, casts = float(time["answer"]), float(time["casts"])
    rest = total - layers - casts
    parts = [f"layers {_time(layers)}", f"{plural(time['cast_count'], 'cast')} {_time(casts)}"]
    if abs(rest) > _SHOWN * total:
        parts.append(f"fusion and types between neighbors {_time(rest) if rest > 0 else '-' + _time(-rest)}")
    return [f"The estimated {_time(total)} are: {', '.join(parts)}."]


def _layers(answer: Json) -> str:
    about = "Why layers need more than the lowest precision. A row opens to the magnitudes of the tensor that its reason names."
    if not _has_result(answer):
        about = "No set of layers is known to pass yet."
    elif not answer["layers"]:
        about = "None is kept: every layer may run in its lowest precision."
    return _section("Layers", e(about), _drawn("The table"), "layers") + "\n" + _section(
        "Neighborhood", "What the chosen layer reads, and what reads it.", _drawn("The graph"), "graph"
    )  # fmt: skip


def _trials(answer: Json) -> str:
    if not answer["trials"] and not answer["search"]["outputs"]:
        return _section("Error against cost", "", '<p class="empty">No trial was finished.</p>', "trials")
    about = (
        f"Each point is one run of the network over the samples with a set of layers in higher precision: "
        f"{plural(len(answer['trials']), 'trial')}. Tolerance: <code>{e(answer['criterion'])}</code>. Choose one for its set."
    )
    return _section("Error against cost", about, _drawn("The chart"), "trials")


def _folded(items: List[str], noun: str) -> str:
    """A list, folded where it is long."""
    body = "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"
    return body if len(items) <= _LISTED else f"<details><summary>{plural(len(items), noun)}</summary>{body}</details>"


def _repairs(answer: Json) -> str:
    if not answer["repairs"]:
        return ""
    items = []
    for repair in answer["repairs"]:
        note = f": {e(repair['text'])}" if repair["text"] else ""
        items.append(f'<span class="kind">{e(repair["kind"])}</span> <code>{_breakable(repair["name"])}</code>{note}')
    return _section("Repairs", "Changes that cost no precision, made before any layer was raised.", _folded(items, "repair"))


def _casts(typed: Optional[Json]) -> str:
    if typed is None:
        return ""
    casts = typed["casts"]
    about = f"{plural(len(casts), 'Cast node')} in <code>{e(typed['path'])}</code>, in network order."
    if any(cast["origin"] for cast in casts):
        added = sum(cast["origin"] == "added" for cast in casts)
        about = f"{about[:-1]}: {added} added, {len(casts) - added} of the source."
    return _section("Casts", about, _drawn("The table") if casts else "", "casts")


def _outputs(answer: Json) -> str:
    judged: Dict[str, List[str]] = {}
    columns = [("search", "Search samples")] + ([("held_out", "Held-out samples")] if answer["held_out"] else [])
    for column, (key, label) in enumerate(columns):
        for row in answer[key]["outputs"]:
            cells = judged.setdefault(row["output"], [_cell(name, "–", "num") for _, name in columns])
            bad = "" if float(row["used"]) <= 1 else ' <span class="kind">fails</span>'
            details = f"<small>value {e(short(float(row['value'])))}, sample {e(row['sample'])}</small>"
            cells[column] = _cell(label, f"{e(_used(row))}{bad}<br>{details}", "num")
    problems = [answer[key]["problem"] for key, _ in columns if answer[key]["problem"]]
    if not judged and not problems:
        return ""
    rows = "".join(f'<tr><td><span class="name">{_breakable(name)}</span></td>{"".join(cells)}</tr>' for name, cells in judged.items())
    head = "".join(f'<th class="num">{label}</th>' for _, label in columns)
    table = f"<table><thead><tr><th>Output</th>{head}</tr></thead><tbody>{rows}</tbody></table>" if judged else ""
    if len(judged) > _LISTED:
        table = f"<details><summary>{plural(len(judged), 'output')}</summary>{table}</details>"
    notes = "".join(f"<p>{e(problem)}</p>" for problem in problems)
    about = "The answer against the golden outputs: share of the tolerance that is used, at the worst sample of each output."
    return _section("Outputs", about, table + notes)


def _commands(commands: List[Tuple[str, str]]) -> str:
    blocks = "".join(
        f'<div class="command"><div><p>{e(title)}</p><button type="button" class="copy">Copy</button></div>'
        f'<pre tabindex="0"><code>{e(command)}</code></pre></div>'
        for title, command in commands
    )
    if not blocks:
        return ""
    return f'<section>\n<details class="folds" open><summary>To reproduce it</summary>{blocks}</details>\n</section>'


def _about(answer: Json, source: str) -> str:
    time = f"{plural(answer['evaluations'], 'evaluation')}"
    if answer["held_out_evaluations"]:
        time += f" and {answer['held_out_evaluations']:,} of the held-out samples"
    rows = [
        ("Model", answer["model"]["path"]),
        ("Its hash", answer["model"]["hash"]),
        ("Answer", source),
        ("Written by", answer["program"]),
        ("Allowed", ", ".join(answer["precisions"])),
        ("Fusion", answer["fusion"]),
        ("Tolerance", f"{answer['criterion']}, searched at {short(float(answer['margin']))} of it"),
        ("Objective", answer.get("objective")),
        ("Target", answer["target"]),
        ("Spent", f"{time} in {short(float(answer['seconds']))} s"),
    ]
    if answer["int8"] and answer["int8"]["calibration_cache"]:
        rows.append(("int8 scales", answer["int8"]["calibration_cache"]))
    items = "".join(f"<div><dt>{e(name)}</dt><dd>{e(value)}</dd></div>" for name, value in rows if value)
    return f'<section id="about">\n<details class="folds" open><summary>About</summary><dl class="facts">{items}</dl></details>\n</section>'
