"""The charts, as plotly's figures: plain dicts, since a page may have thousands of them and ``graph_objects`` is slow.
Colors are CSS variables (``var(--name)``), which the page replaces by those of the light or dark theme."""

from __future__ import annotations

import html
import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

INK, MUTED, GRID = "var(--ink)", "var(--muted)", "var(--grid)"
PASS, FAIL, KEPT, SHADE = "var(--pass)", "var(--fail)", "var(--fail)", "var(--shade)"

# Beyond this many points browsers draw faster on the GPU.
_MANY_POINTS = 4000
# Names of layers fit below an axis of so many.
_FEW_LAYERS = 10

Json = Dict[str, Any]


def number(value: Any) -> float:
    """A number of the answer: "inf", "-inf" and "nan" are texts there."""
    return float(value)


def short(value: float) -> str:
    """Three digits, as people read them."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.3g}"


def text(value: object, limit: int = 90) -> str:
    """For plotly, which reads some HTML; long names keep their ends."""
    plain = str(value)
    if len(plain) > limit:
        plain = plain[: limit // 3] + "…" + plain[-(limit - limit // 3 - 1) :]
    return html.escape(plain, quote=False)


def time_unit(microseconds: float) -> Tuple[float, str]:
    """What to multiply microseconds with, and the unit's name."""
    if microseconds >= 1e6:
        return 1e-6, "s"
    if microseconds >= 1e3:
        return 1e-3, "ms"
    return 1.0, "µs"


def _axis(title: str, **more: Any) -> Json:
    return {
        "title": {"text": title, "standoff": 10, "font": {"size": 13}},
        "tickfont": {"size": 12},
        "gridcolor": GRID,
        "linecolor": MUTED,
        "zerolinecolor": GRID,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": MUTED,
        "automargin": True,
        **more,
    }


def _figure(traces: Sequence[Json], height: int, **layout: Any) -> Json:
    return {
        "data": list(traces),
        "layout": {
            "height": height,
            "margin": {"l": 52, "r": 12, "t": 16, "b": 44},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": INK},
            "hoverlabel": {"bgcolor": "var(--raised)", "bordercolor": MUTED, "font": {"color": INK}, "align": "left"},
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "itemsizing": "constant"},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": MUTED, "activecolor": INK},
            "hovermode": "closest",
            **layout,
        },
    }


class _LogScale:
    """Where values stand on a logarithmic axis that also shows 0, infinity and NaN: at its ends."""

    def __init__(self, values: Sequence[float], shown: Sequence[float]) -> None:
        positive = [v for v in values if 0 < v < math.inf] + [v for v in shown if 0 < v < math.inf]
        low, high = math.log10(min(positive or [0.1])), math.log10(max(positive or [1]))
        step = max(0.25, 0.09 * (high - low))
        self.finite = (low - step, high + step)
        self.zeros = any(v <= 0 for v in values)
        self.infinities = any(not v < math.inf for v in values)
        self.bottom, self.top = 10 ** (low - step), 10 ** (high + step)
        self.range = [low - (1.7 if self.zeros else 1) * step, high + (1.7 if self.infinities else 1) * step]

    def place(self, value: float) -> float:
        if not value < math.inf:  # NaN as well
            return self.top
        return value if value > 0 else self.bottom

    def axis(self, title: str) -> Json:
        ticks = [(value, name) for value, name in _log_ticks(*self.finite) if self.bottom < value < self.top]
        ticks += [(self.top, "∞")] if self.infinities else []
        ticks += [(self.bottom, "0")] if self.zeros else []
        # Labels at the ends need their room.
        room = 0.05 * (self.range[1] - self.range[0])
        ends = [math.log10(at) for there, at in ((self.infinities, self.top), (self.zeros, self.bottom)) if there]
        kept = [(at, name) for at, name in ticks if name in "∞0" or all(abs(math.log10(at) - end) > room for end in ends)]
        return _axis(title, type="log", range=self.range, tickvals=[at for at, _ in kept], ticktext=[name for _, name in kept])


def _log_ticks(low: float, high: float) -> List[Tuple[float, str]]:
    """Values and labels between two powers of ten, not more than about eight."""
    every = max(1, math.ceil((high - low) / 8))
    if high - low < 1.6:
        digits = (1, 2, 5) if high - low > 0.5 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
        return [(digit * 10.0**p, short(digit * 10.0**p)) for p in range(math.floor(low), math.ceil(high)) for digit in digits]
    return [(10.0**p, _power(p)) for p in range(math.ceil(low), math.floor(high) + 1) if p % every == 0]


def _power(exponent: int) -> str:
    return {-1: "0.1", 0: "1", 1: "10"}.get(exponent, f"10<sup>{exponent}</sup>")


def _level(at: float, name: str, dash: str) -> Tuple[Json, Json]:
    """A horizontal line on a logarithmic axis, and its label."""
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": at, "y1": at, "layer": "below",
            "line": {"color": MUTED, "width": 1.2, "dash": dash}}  # fmt: skip
    label = {"xref": "paper", "x": 1, "xanchor": "right", "yref": "y", "y": math.log10(at), "yanchor": "bottom",
             "text": name, "showarrow": False, "font": {"color": MUTED, "size": 12}}  # fmt: skip
    return line, label


def _levels(margin: float) -> Tuple[List[Json], List[Json]]:
    drawn = [_level(1.0, "tolerance", "solid")]
    if 0 < margin < 1:
        drawn.append(_level(margin, f"margin ({margin:g} of it)", "dot"))
    return [line for line, _ in drawn], [label for _, label in drawn]


def _markers(count: int, **trace: Any) -> Json:
    kind = "scattergl" if count > _MANY_POINTS else "scatter"
    return {"type": kind, "mode": "markers", "hovertemplate": "%{text}<extra></extra>", **trace}


def _groups(keys: Sequence[Tuple[bool, bool]], values: Sequence[float]) -> Dict[Tuple[bool, bool], List[List[int]]]:
    """Per key the indices of finite values, and of the others, which have their own marker."""
    groups: Dict[Tuple[bool, bool], List[List[int]]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, [[], []])[0 if values[i] < math.inf else 1].append(i)
    return groups


def trials_chart(answer: Json, against: str) -> Optional[Json]:
    """Error of every trial, and of the predicted curve, against estimated time ("time_us") or the share of multiply-adds
    ("cost_share")."""
    trials = answer["trials"]
    scale, unit = (100.0, "%") if against == "cost_share" else time_unit(number(answer["time_us"]["highest"]))
    places = [scale * number(trial[against]) for trial in trials]
    chosen = _chosen(answer, against, scale)
    if not trials and not chosen:
        return None
    errors = [number(trial["error"]["used"]) for trial in trials]
    margin = number(answer["margin"])
    curve = _curve(answer, scale) if against == "time_us" else []
    y = _LogScale(errors + [point[1] for point in [*chosen, *curve]], [1.0, margin])

    groups = _groups([(trial["kind"].startswith(("hold-out", "untouched")), bool(trial["passed"])) for trial in trials], errors)
    traces: List[Json] = []
    names = {
        (False, True): ("passes", "circle", PASS), (False, False): ("fails", "circle-open", FAIL),
        (True, True): ("held out, passes", "diamond", PASS), (True, False): ("held out, fails", "diamond-open", FAIL),
    }  # fmt: skip
    for group, (name, symbol, color) in names.items():
        for rows, form, suffix in zip(groups.get(group, [[], []]), (symbol, "triangle-up"), ("", ", not finite")):
            if rows:
                traces.append(
                    _markers(
                        len(trials),
                        x=[places[i] for i in rows],
                        y=[y.place(errors[i]) for i in rows],
                        name=name + suffix,
                        marker={"symbol": form, "size": 8, "color": color, "line": {"width": 1.5, "color": color}},
                        text=[_trial_text(trials[i]) for i in rows],
                    )
                )
    if curve:
        traces.append({"type": "scatter", "mode": "lines", "name": "predicted", "x": [point[0] for point in curve],
                       "y": [y.place(point[1]) for point in curve], "text": [point[2] for point in curve],
                       "hovertemplate": "%{text}<extra></extra>", "line": {"color": MUTED, "width": 1.5, "dash": "dash"}})  # fmt: skip
    for place, error, name, symbol, size in chosen:
        traces.append(
            _markers(
                1,
                x=[place],
                y=[y.place(error)],
                name=name,
                marker={"symbol": symbol, "size": size, "color": "var(--mark)", "line": {"width": 2, "color": INK}},
                text=[f"<b>{name}</b><br>error: {short(error)} of the tolerance"],
            )
        )
    shapes, notes = _levels(margin)
    title = "multiply-adds in higher precision (%)"
    if against == "time_us":
        title = f"estimated time on {text(answer['target'], 30)} ({unit})"
    return _figure(
        traces,
        400,
        shapes=shapes,
        annotations=notes,
        xaxis=_axis(title, zeroline=False),
        yaxis=y.axis("error / tolerance"),
    )


def _curve(answer: Json, scale: float) -> List[Tuple[float, float, str]]:
    """The predicted curve of error against time; answers of earlier releases have none. A line of one point is none."""
    points = [(scale * number(time), number(used), int(raised)) for time, used, raised in answer.get("curve", [])]
    drawn = [(time, used, f"predicted with {raised} raised") for time, used, raised in points if 0 < used < math.inf]
    return drawn if len(drawn) > 1 else []


def _chosen(answer: Json, against: str, scale: float) -> List[Tuple[float, float, str, str, int]]:
    """The answer's own points; none where no trial stands behind it."""
    if not answer["search"]["outputs"]:
        return []
    place = scale * number(answer["time_us"]["answer"] if against == "time_us" else answer["cost_share"])
    found = answer["verdict"] == "found"
    points = [(place, number(answer["search"]["used"]), "answer" if found else "best so far", "star", 16)]
    if answer["held_out"]:
        points.append((place, number(answer["held_out"]["used"]), "the same, held out", "star-diamond", 13))
    return points


def _trial_text(trial: Json) -> str:
    raised = trial["raised"]
    error = trial["error"]
    scale, unit = time_unit(number(trial["time_us"]))
    names = "".join(f"<br>  {text(name, 50)}: {text(precision)}" for name, precision in raised[:6])
    more = f"<br>  and {len(raised) - 6} more" if len(raised) > 6 else ""
    lines = [
        f"<b>{len(raised)} layer{'' if len(raised) == 1 else 's'} in higher precision</b>{names}{more}",
        f"error: {short(number(error['used']))} of the tolerance (value {short(number(error['value']))})",
    ]
    if error["problem"]:
        lines.append(text(error["problem"]))
    if number(trial["time_us"]) > 0:
        lines.append(f"{short(scale * number(trial['time_us']))} {unit}, {short(100 * number(trial['cost_share']))} % of the multiply-adds")
    lines.append(f"trial: {text(trial['kind'])}{', repaired' if trial['repairs'] else ''}")
    return "<br>".join(lines)


def sensitivity_chart(answer: Json) -> Optional[Json]:
    """The predicted effect of every candidate, in network order."""
    rows = answer["sensitivities"]
    if not rows:
        return None
    kept = {layer["name"] for layer in answer["layers"]}
    effects = [number(row["effect"]) for row in rows]
    y = _LogScale(effects, [1.0])
    groups = _groups([(row["name"] in kept, bool(row["measured"])) for row in rows], effects)
    traces: List[Json] = []
    names = {
        (False, False): ("lowered", "circle", MUTED), (False, True): ("lowered, measured", "diamond", MUTED),
        (True, False): ("kept", "circle", KEPT), (True, True): ("kept, measured", "diamond", KEPT),
    }  # fmt: skip
    for (is_kept, measured), (name, symbol, color) in names.items():
        size = (9 if is_kept else 7) if len(rows) <= 300 else (8 if is_kept else 4)
        for indices, form, suffix in zip(groups.get((is_kept, measured), [[], []]), (symbol, "triangle-up"), ("", ", not finite")):
            if indices:
                traces.append(
                    _markers(
                        len(rows),
                        x=indices,
                        y=[y.place(effects[i]) for i in indices],
                        name=name + suffix,
                        marker={"symbol": form, "size": size + (2 if suffix else 0), "color": color, "opacity": 1 if is_kept else 0.75},
                        text=[_effect_text(rows[i], i, is_kept, measured) for i in indices],
                    )
                )
    ticks: Json = {"rangemode": "nonnegative"}
    if len(rows) <= _FEW_LAYERS:
        ticks = {"tickmode": "array", "tickvals": list(range(len(rows))), "ticktext": [text(row["name"], 16) for row in rows]}
    pad = max(0.5, 0.015 * len(rows))
    line, label = _level(1.0, "the whole tolerance", "solid")
    return _figure(
        traces,
        400,
        shapes=[line],
        annotations=[label],
        xaxis=_axis("candidate, in network order", range=[-pad, len(rows) - 1 + pad], zeroline=False, **ticks),
        yaxis=y.axis("effect alone / tolerance"),
    )


def _effect_text(row: Json, index: int, kept: bool, measured: bool) -> str:
    how = "measured" if measured else "predicted"
    return (
        f"<b>{text(row['name'])}</b> ({text(row['op'])})<br>candidate {index}, {'kept' if kept else 'lowered'}"
        f"<br>effect alone, {how}: {short(number(row['effect']))} of the tolerance"
    )


class Range:
    """What a type can hold, as powers of two: from ``smallest`` (with fewer bits below ``normal``) to ``largest``."""

    def __init__(self, name: str, smallest: float, normal: float, largest: float) -> None:
        self.name, self.smallest, self.normal, self.largest = name, smallest, normal, largest


_RANGES = {
    "fp32": Range("fp32", -149, -126, 128),
    "tf32": Range("tf32", -136, -126, 128),
    "bf16": Range("bf16", -133, -126, 128),
    "fp16": Range("fp16", -24, -14, 16),
    "fp8": Range("fp8", -9, -6, math.log2(448)),
}


def range_of_layer(layer: Json, answer: Json) -> Optional[Range]:
    """Of the type that the layer would have otherwise; None when it is unknown."""
    low = layer["reason"].get("low")
    scale = ((answer["int8"] or {}).get("scales") or {}).get(layer["reason"]["tensor"])
    if low == "int8" or (low is None and "int8" in answer["precisions"]):
        if scale is None or not 0 < number(scale) < math.inf:
            return None
        step = math.log2(number(scale))
        return Range("int8", step - 1, step - 1, step + math.log2(127.5))
    if low is None:
        allowed = [name for name in ("fp8", "fp16", "bf16", "tf32") if name in answer["precisions"]]
        low = allowed[0] if allowed else None
    return _RANGES.get(low) if low else None


def exponents_chart(reason: Json, type_range: Optional[Range]) -> Optional[Json]:
    """Magnitudes of a tensor against the range of a type."""
    exponents = reason.get("exponents")
    if not exponents or not any(exponents["counts"]):
        return None
    first, counts = exponents["first"], exponents["counts"]
    bins = [first + i for i in range(len(counts))]
    low, high = first - 2.0, first + len(counts) + 2.0
    shapes: List[Json] = []
    notes: List[Json] = []
    if type_range:
        # All of a narrow type is shown, and a wide one as far as it is near.
        low = min(low, max(type_range.smallest - 2, low - 12))
        high = max(high, min(type_range.largest + 2, high + 12))
        band = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}, "fillcolor": SHADE}
        shapes.append({**band, "x0": max(low, type_range.normal), "x1": min(high, type_range.largest)})
        if type_range.smallest < type_range.normal and type_range.normal > low:
            shapes.append({**band, "x0": max(low, type_range.smallest), "x1": type_range.normal, "opacity": 0.45})
        edge = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": MUTED, "width": 1}}
        edges = [(type_range.largest, f"{type_range.name} max", "right"), (type_range.normal, _lower_edge(type_range), "left")]
        for at, label, side in edges:
            if low < at < high:
                shapes.append({**edge, "x0": at, "x1": at})
                notes.append({"xref": "x", "x": at, "yref": "paper", "y": 1, "yanchor": "bottom", "xanchor": side,
                              "text": label, "showarrow": False, "font": {"size": 11, "color": MUTED}})  # fmt: skip

    def fits(exponent: int) -> bool:
        return type_range is None or (exponent + 1 > type_range.normal and exponent < type_range.largest)

    traces: List[Json] = []
    for inside, name, color in ((True, "in range", PASS), (False, "out of range", FAIL)):
        rows = [i for i, exponent in enumerate(bins) if counts[i] and fits(exponent) == inside]
        if rows:
            traces.append(
                {
                    "type": "bar",
                    "x": [bins[i] + 0.5 for i in rows],
                    "y": [counts[i] for i in rows],
                    "width": 0.86,
                    "name": name,
                    "marker": {"color": color},
                    "text": [f"{counts[i]:,} values from 2<sup>{bins[i]}</sup> to 2<sup>{bins[i] + 1}</sup>" for i in rows],
                    "textposition": "none",
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 512) if (high - low) / s <= 9)
    ticks = [at for at in range(math.ceil(low), math.floor(high) + 1) if at % step == 0]
    top = math.log10(max(counts)) + 0.25
    heights = [(value, name) for value, name in _log_ticks(-0.4, max(top, 1.3)) if value >= 1]
    heights = heights[:: max(1, len(heights) // 4)]
    figure = _figure(
        traces,
        230,
        shapes=shapes,
        annotations=notes,
        showlegend=False,
        barmode="overlay",
        xaxis=_axis("magnitude", range=[low, high], tickvals=ticks, ticktext=[f"2<sup>{at}</sup>" for at in ticks], zeroline=False),
        yaxis=_axis("values", type="log", range=[-0.4, top], tickvals=[at for at, _ in heights], ticktext=[name for _, name in heights]),
    )
    figure["layout"]["margin"] = {"l": 48, "r": 8, "t": 24, "b": 40}
    figure["layout"]["xaxis"]["showgrid"] = False
    return figure


def _lower_edge(type_range: Range) -> str:
    return "int8 ½ step" if type_range.name == "int8" else f"{type_range.name} min"
