"""The page around the charts."""

from __future__ import annotations

import html
import json
import os
from typing import Any, Dict, List, Optional, Tuple

from plotly.offline import get_plotlyjs

from . import charts
from .charts import number, short, time_unit

Json = Dict[str, Any]

_VERDICTS = {
    "found": ("good", "Found"),
    "not-reachable": ("bad", "Not reachable"),
    "unverified": ("open", "Not finished"),
    "fails-held-out": ("bad", "Fails on held-out samples"),
}
# Why an answer may say nothing about single layers.
_NO_SENSITIVITIES = {
    "found": "Not predicted: the first trials passed, before single layers had to be looked at.",
    "not-reachable": "Not predicted: the tolerance is out of reach whatever is raised.",
    "unverified": "The search ended before the layers were looked at.",
    "fails-held-out": "Not predicted: the first trials passed on the samples of the search.",
}
# Kept layers whose histograms are there without a click.
_OPEN_ROWS = 3
# Lists longer than this are folded.
_LISTED = 12


def e(value: object) -> str:
    """Text as HTML."""
    return html.escape(str(value), quote=True)


def _breakable(value: str) -> str:
    """Text as HTML; paths may be broken after their slashes."""
    return e(value).replace("/", "/<wbr>")


def _name(value: str) -> str:
    return f'<span class="name">{_breakable(value)}</span>'


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _share(value: float) -> str:
    return f"{short(100 * value)} %"


def _time(microseconds: float) -> str:
    scale, unit = time_unit(microseconds)
    return f"{short(scale * microseconds)} {unit}"


class _Charts:
    """Figures, which the page's script draws when they come into view."""

    def __init__(self) -> None:
        self.figures: Dict[str, Json] = {}

    def place(self, figure: Json, label: str) -> str:
        name = f"chart{len(self.figures)}"
        self.figures[name] = figure
        return (
            f'<div class="chart" role="img" aria-label="{e(label)}" data-chart="{name}" '
            f'style="min-height:{figure["layout"]["height"]}px"></div>'
        )

    def data(self) -> str:
        # "<" could end the script.
        return json.dumps(self.figures, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def page(answer: Json, source: str, commands: List[Tuple[str, str]], typed: Optional[Json]) -> str:
    """The whole document."""
    drawn = _Charts()
    sections = [
        _head(answer),
        _trials(answer, drawn),
        _sensitivities(answer, drawn),
        _kept(answer, drawn),
        _repairs(answer),
        _following(answer),
        _casts(typed),
        _outputs(answer),
        _commands(commands),
        _about(answer, source),
    ]
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "page.css"), encoding="utf-8") as file:
        style = file.read()
    with open(os.path.join(folder, "page.js"), encoding="utf-8") as file:
        script = file.read()
    title = os.path.basename(answer["model"]["path"]) or "answer"
    body = "\n".join(section for section in sections if section)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="{e(answer["program"])}">\n'
        f"<title>{e(title)}: precision report</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f'<script type="application/json" id="charts">{drawn.data()}</script>\n'
        f"<script>{get_plotlyjs()}</script>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _cell(label: str, content: str, style: str = "") -> str:
    """A cell that says what it is where there is no room for columns."""
    style = f' class="{style}"' if style else ""
    return f'<td data-label="{e(label)}"{style}><div>{content}</div></td>'


def _section(title: str, about: str, body: str) -> str:
    about = f'<p class="about">{about}</p>\n' if about else ""
    return f"<section>\n<h2>{e(title)}</h2>\n{about}{body}\n</section>"


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
        f'<p class="verdict {tone}"><strong>{e(word)}</strong> {e(answer["message"])}</p>',
    ]
    if answer["verdict"] == "unverified":
        parts.append(
            '<p class="about">The search ended before its end: this page shows what was known then. The same '
            "<code>ulpscope precision search</code> with <code>--continue</code> goes on from its journal.</p>"
        )
    if _has_result(answer):
        parts.append(_tiles(answer))
    parts.append("</header>")
    return "\n".join(parts)


def _tiles(answer: Json) -> str:
    count = len(answer["layers"])
    tiles = [("Layers kept higher", f"{count:,}", f"of {plural(answer['candidates'], 'candidate')}")]
    if answer["search"]["outputs"]:
        tiles.append(("Error, search samples", _used(answer["search"]), f"of the tolerance, {plural(answer['search']['samples'], 'sample')}"))
    held = answer["held_out"]
    if held:
        passed = held["samples"] if number(held["used"]) <= 1 else held["passed"]
        verdict = f"{passed} of {plural(held['samples'], 'sample')} pass" if passed else f"not all of {plural(held['samples'], 'sample')} pass"
        tiles.append(("Error, held-out samples", _used(held), verdict))
    else:
        tiles.append(("Held-out samples", "none", "known to hold on the search samples only"))
    tiles.append(("Multiply-adds kept higher", _share(number(answer["cost_share"])), "of those of the candidates"))
    time = answer["time_us"]
    if number(time["highest"]) > 0:
        tiles.append(
            (f"Estimated on {answer['target']}", _time(number(time["answer"])),
             f"all low {_time(number(time['lowest']))}, all high {_time(number(time['highest']))}")
        )  # fmt: skip
    items = "\n".join(f"<div><dt>{e(name)}</dt><dd><b>{e(value)}</b><span>{e(note)}</span></dd></div>" for name, value, note in tiles)
    return f'<dl class="tiles">\n{items}\n</dl>'


def _used(judgement: Json) -> str:
    used = number(judgement["used"])
    return _share(used) if used < 10 else f"{short(used)}×"


def _trials(answer: Json, drawn: _Charts) -> str:
    views = []
    by_share = charts.trials_chart(answer, "cost_share")
    if number(answer["time_us"]["highest"]) > 0:
        by_time = charts.trials_chart(answer, "time_us")
        if by_time:
            views.append(("Estimated time", drawn.place(by_time, "Error of all trials against estimated time")))
    if by_share:
        views.append(("Share of multiply-adds", drawn.place(by_share, "Error of all trials against multiply-adds in higher precision")))
    if not views:
        return _section("Error against cost", "", '<p class="empty">No trial was finished.</p>')
    about = (
        f"Each point is one run of the network over the samples with a set of layers in higher precision: "
        f"{plural(len(answer['trials']), 'trial')}. Tolerance: <code>{e(answer['criterion'])}</code>. "
        "Triangles at the top are errors that are not finite."
    )
    buttons = "".join(f'<button type="button" aria-pressed="{"false" if i else "true"}">{e(name)}</button>' for i, (name, _) in enumerate(views))
    bodies = "".join(f'<div class="view"{" hidden" if i else ""}>{body}</div>' for i, (_, body) in enumerate(views))
    switch = f'<div class="switch" role="group" aria-label="Horizontal axis">{buttons}</div>' if len(views) > 1 else ""
    return _section("Error against cost", about, f'<div class="views">{switch}{bodies}</div>')


def _sensitivities(answer: Json, drawn: _Charts) -> str:
    figure = charts.sensitivity_chart(answer)
    if figure is None:
        note = "No layer could be raised." if not answer["candidates"] else _NO_SENSITIVITIES[answer["verdict"]]
        return _section("Sensitivity of each layer", "", f'<p class="empty">{note}</p>')
    about = (
        "What the rounding of each layer alone does to the outputs, as a share of the tolerance. Drag over a part to zoom in, "
        "double-click to go back (on a touch screen: the buttons at the top right)."
    )
    infinite = sum(1 for row in answer["sensitivities"] if not number(row["effect"]) < float("inf"))
    if infinite:
        about += f" {plural(infinite, 'triangle')} at the top: {'its effect is' if infinite == 1 else 'their effects are'} not finite."
    return _section("Sensitivity of each layer", about, drawn.place(figure, "Effect of each candidate in network order"))


def _kept(answer: Json, drawn: _Charts) -> str:
    layers = answer["layers"]
    if not _has_result(answer):
        return _section("Kept layers", "", '<p class="empty">No set of layers is known to pass yet.</p>')
    if not layers:
        return _section("Kept layers", "", '<p class="empty">None: every layer may run in its lowest precision.</p>')
    rows = [_kept_row(layer, i, answer, drawn) for i, layer in enumerate(layers)]
    table = (
        '<table class="kept">\n<thead><tr><th>Layer</th><th>Precision</th><th>Reason</th><th class="num">Elements</th>'
        '<th class="num" title="predicted, of the squared error of the lowest precision">Share of error</th></tr></thead>\n'
        + "\n".join(rows)
        + "\n</table>"
    )
    about = (
        "Why each of them needs more than the lowest precision. The histograms count the magnitudes of the tensor that the "
        "reason names, over the samples, against the range of the type (shaded; paler where it has fewer bits)."
    )
    return _section("Kept layers", about, table)


def _kept_row(layer: Json, index: int, answer: Json, drawn: _Charts) -> str:
    reason = layer["reason"]
    low = reason.get("low")
    precision = f"{e(low)} → <b>{e(layer['precision'])}</b>" if low else f"<b>{e(layer['precision'])}</b>"
    kind = reason["kind"]
    why = reason["text"]
    for beginning in (f"{kind}: ", f"{kind} "):
        if why.startswith(beginning):
            why = why[len(beginning) :]
            break
    nodes = [node for node in layer["nodes"] if node != layer["name"]]
    about = e(layer["op"]) + (f" · nodes {e(', '.join(nodes))}" if nodes else "")
    elements = f"{reason['count']:,} <small>of {reason['total']:,}</small>" if reason["total"] else "–"
    figure = charts.exponents_chart(reason, charts.range_of_layer(layer, answer))
    name = _name(layer["name"])
    opened = index < _OPEN_ROWS
    if figure is not None:
        name = f'<button type="button" class="more" aria-expanded="{"true" if opened else "false"}">{name}</button>'
    tensor = f'<br><small>tensor <code>{e(reason["tensor"])}</code></small>' if reason["tensor"] and f"'{reason['tensor']}'" not in why else ""
    row = (
        f"<tbody><tr><td>{name}<small class='below'>{about}</small></td>"
        + _cell("Precision", precision)
        + _cell("Reason", f'<span class="kind">{e(kind)}</span> {_breakable(why)}{tensor}')
        + _cell("Elements", elements, "num")
        + _cell("Share of error", e(_share(number(reason["share"]))), "num")
        + "</tr>"
    )
    if figure is not None:
        chart = drawn.place(figure, f"Magnitudes of {reason['tensor']}")
        row += f'<tr class="detail"{"" if opened else " hidden"}><td colspan="5">{chart}</td></tr>'
    return row + "</tbody>"


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
        items.append(f'<span class="kind">{e(repair["kind"])}</span> <code>{e(repair["name"])}</code>{note}')
    return _section("Repairs", "Changes that cost no precision, made before any layer was raised.", _folded(items, "repair"))


def _following(answer: Json) -> str:
    if not answer["following"]:
        return ""
    about = "Movement layers without arithmetic of their own, which carry the higher precision of the kept ones."
    return _section("Layers that follow", about, _folded([f"<code>{e(name)}</code>" for name in answer["following"]], "layer"))


def _casts(typed: Optional[Json]) -> str:
    if typed is None:
        return ""
    casts = typed["casts"]
    about = f"{plural(len(casts), 'Cast node')} in <code>{e(typed['path'])}</code>, in network order."
    known = any(cast["origin"] for cast in casts)
    if known:
        added = sum(cast["origin"] == "added" for cast in casts)
        about = f"{about[:-1]}: {added} added, {len(casts) - added} of the source."
    if not casts:
        return _section("Casts", about, "")
    rows = []
    for cast in casts:
        readers = cast["readers"]
        shown = ", ".join(f"<code>{e(name)}</code>" for name in readers[:4])
        if len(readers) > 4:
            shown += f" and {len(readers) - 4} more"
        rows.append(
            f'<tr><td>{_name(cast["name"])}</td>'
            + (_cell("Origin", e(cast["origin"])) if known else "")
            + _cell("Types", f"{e(cast['from'])} → {e(cast['to'])}")
            + _cell("After", f"<code>{_breakable(cast['producer'])}</code>")
            + _cell("Before", shown)
            + "</tr>"
        )
    origin = "<th>Origin</th>" if known else ""
    head = f"<thead><tr><th>Cast</th>{origin}<th>Types</th><th>After</th><th>Before</th></tr></thead>"
    table = f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"
    if len(casts) > 2 * _LISTED:
        table = f"<details><summary>{plural(len(casts), 'Cast node')}</summary>{table}</details>"
    return _section("Casts", about, table)


def _outputs(answer: Json) -> str:
    judged: Dict[str, List[str]] = {}
    columns = [("search", "Search samples")] + ([("held_out", "Held-out samples")] if answer["held_out"] else [])
    for column, (key, label) in enumerate(columns):
        for row in answer[key]["outputs"]:
            cells = judged.setdefault(row["output"], [_cell(name, "–", "num") for _, name in columns])
            used = number(row["used"])
            bad = ' <span class="kind">fails</span>' if not used <= 1 else ""
            details = f"<small>value {e(short(number(row['value'])))}, sample {e(row['sample'])}</small>"
            cells[column] = _cell(label, f"{e(_used(row))}{bad}<br>{details}", "num")
    problems = [answer[key]["problem"] for key, _ in columns if answer[key]["problem"]]
    if not judged and not problems:
        return ""
    rows = "".join(f'<tr><td>{_name(name)}</td>{"".join(cells)}</tr>' for name, cells in judged.items())
    head = "".join(f'<th class="num">{label}</th>' for _, label in columns)
    table = f"<table><thead><tr><th>Output</th>{head}</tr></thead><tbody>{rows}</tbody></table>" if judged else ""
    notes = "".join(f"<p>{e(problem)}</p>" for problem in problems)
    about = "The answer against the golden outputs: share of the tolerance that is used, at the worst sample of each output."
    return _section("Outputs", about, table + notes)


def _commands(commands: List[Tuple[str, str]]) -> str:
    if not commands:
        return ""
    blocks = "".join(
        f'<div class="command"><div><p>{e(title)}</p><button type="button" class="copy">Copy</button></div>'
        f'<pre tabindex="0"><code>{e(command)}</code></pre></div>'
        for title, command in commands
    )
    return _section("To reproduce it", "", blocks)


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
        ("Tolerance", f"{answer['criterion']}, searched at {short(number(answer['margin']))} of it"),
        ("Target", answer["target"]),
        ("Spent", f"{time} in {short(number(answer['seconds']))} s"),
    ]
    if answer["int8"] and answer["int8"]["calibration_cache"]:
        rows.append(("int8 scales", answer["int8"]["calibration_cache"]))
    items = "".join(f"<div><dt>{e(name)}</dt><dd>{e(value)}</dd></div>" for name, value in rows if value)
    return _section("About", "", f'<dl class="facts">{items}</dl>')
