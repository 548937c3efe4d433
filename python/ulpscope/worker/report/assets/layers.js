// The table of layers, and the magnitudes behind a reason.

/** What is chosen in one place is shown in the others. */
const selection = {
  layer: null,
  listeners: [],
  choose(layer) {
    if (!layer || layer === this.layer) return;
    this.layer = layer;
    for (const listen of this.listeners) listen(layer);
  },
};

/** Of the type that a kept layer would have otherwise; null when it is unknown. */
function rangeOf(layer, answer) {
  const {low, tensor} = layer.kept.reason;
  const name = low ?? layer.low;
  const range = RANGES[name];
  if (!range?.scaled) return range ? {name, ...range} : null;
  const scale = answer.answer.int8?.scales[tensor];
  if (!(scale > 0)) return null;
  const step = Math.log2(scale), {smallest, normal, largest} = range;
  return {name, scaled: true, smallest: step + smallest, normal: step + normal, largest: step + largest};
}

/** Magnitudes of the tensor of a reason as bars, against the range of a type. Null where nothing was looked at. */
function histogram(layer, answer) {
  const {exponents, tensor} = layer.kept.reason;
  if (!exponents || !exponents.counts.some(Boolean)) return null;
  const {first, counts} = exponents;
  const range = rangeOf(layer, answer);
  let low = first - 2, high = first + counts.length + 2;
  if (range) {
    // All of a narrow type is shown, and a wide one as far as it is near.
    low = Math.min(low, Math.max(range.smallest - 2, low - 12));
    high = Math.max(high, Math.min(range.largest + 2, high + 12));
  }
  const width = 720, height = 170, left = 8, bottom = 26, top = 18;
  const x = (exponent) => left + (width - 2 * left) * (exponent - low) / (high - low);
  const tallest = Math.log10(Math.max(...counts)) + 0.5;
  const y = (count) => height - bottom - (height - bottom - top) * (Math.log10(count) + 0.5) / tallest;
  const fits = (exponent) => !range || (exponent + 1 > range.normal && exponent < range.largest);
  const marks = [];
  if (range) {
    const band = (from, to, opacity) => draw("rect", {
      x: x(Math.max(low, from)),
      y: top,
      width: Math.max(0, x(Math.min(high, to)) - x(Math.max(low, from))),
      height: height - bottom - top,
      class: "range",
      opacity
    });
    marks.push(band(range.normal, range.largest, 1), band(range.smallest, range.normal, 0.45));
    for (const [at, text, anchor] of [[range.largest, `${range.name} max`, "end"],
             [range.normal, `${range.name} ${range.scaled ? "½ step" : "min"}`, "start"]]) {
      if (at > low && at < high)
        marks.push(draw("line", {x1: x(at), x2: x(at), y1: top - 4, y2: height - bottom, class: "edge"}),
            draw("text", {x: x(at), y: top - 6, "text-anchor": anchor, class: "tick"}, text));
    }
  }
  const bars = counts.flatMap(
      (count, i) => (count ?
              [draw("rect", {
                x: x(first + i + 0.08),
                width: x(0.84) - x(0),
                y: y(count),
                height: height - bottom - y(count),
                class: fits(first + i) ? "inside" : "outside",
              },
                  draw("title", {}, `${plural(count, "value")} from 2^${first + i} to 2^${first + i + 1}`))] :
              []));
  const step = [1, 2, 4, 8, 16, 32, 64].find((each) => (high - low) / each <= 10) ?? 128;
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at < high - 0.3; at += step)
    ticks.push(draw("text", {x: x(at), y: height - 8, "text-anchor": "middle", class: "tick"}, raisedText(2, at)));
  const all = counts.reduce((sum, count) => sum + count, 0);
  const out = counts.reduce((sum, count, i) => sum + (fits(first + i) ? 0 : count), 0);
  const label = `Magnitudes of ${tensor}: ${plural(all, "value")} from 2^${first} to 2^${first + counts.length}` +
      (range ? `, ${plural(out, "value")} out of the range of ${range.name}` : "");
  return make("figure", {},
      draw("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "histogram"}, marks,
          bars, ticks),
      make("figcaption", {}, "Values by magnitude (heights are logarithmic)",
          range ? `, against the range of ${range.name}` : "", "."));
}

function layerDetail(layer, answer) {
  const {kept} = layer;
  const facts = [];
  const fact = (name, ...value) => facts.push(make("div", {}, make("dt", {}, name), make("dd", {}, ...value)));
  if (kept) {
    fact("Reason", kept.reason.text || kept.reason.kind);
    if (kept.reason.tensor) fact("Tensor", make("code", {}, breakable(kept.reason.tensor)));
    if (kept.reason.total)
      fact("Elements", `${kept.reason.count.toLocaleString("en")} of ${kept.reason.total.toLocaleString("en")}`);
    const nodes = kept.nodes.filter((node) => node !== layer.name);
    if (nodes.length) fact("Nodes", breakable(nodes.join(", ")));
  }
  if (layer.effect !== null)
    fact("Effect alone", `${short(layer.effect)} of the tolerance, ${layer.measured ? "measured" : "predicted"}`);
  const times = Object.entries(layer.times).sort(([a], [b]) => RANK[a] - RANK[b]);
  if (times.length) fact("Estimated", times.map(([name, time]) => `${microseconds(time)} in ${name}`).join(", "));
  if (layer.magnitudes)
    fact(
        "Writes", `magnitudes from ${raisedText(2, layer.magnitudes[0])} to ${raisedText(2, layer.magnitudes[1] + 1)}`);
  return make("div", {class: "inner"}, make("dl", {class: "facts"}, facts), kept ? histogram(layer, answer) : null);
}

/** The record of a layer in exported files. */
function layerRecord(layer) {
  const {kept} = layer;
  return {
    index: layer.row,
    name: layer.name,
    op: layer.op,
    block: layer.block,
    lowest: layer.low,
    precision: layer.precision,
    kept: Boolean(kept),
    follows: layer.follows,
    effect: layer.effect,
    measured: layer.measured,
    time_us: layer.time,
    smallest_exponent: layer.magnitudes?.[0] ?? null,
    largest_exponent: layer.magnitudes?.[1] ?? null,
    reason: kept?.reason.kind ?? null,
    tensor: kept?.reason.tensor ?? null,
    count: kept?.reason.count ?? null,
    total: kept?.reason.total ?? null,
    largest: kept ? number(kept.reason.largest) : null,
    share: layer.share,
    text: kept?.reason.text ?? null,
  };
}

const naturally = (values) => [...new Set(values)].sort((a, b) => a.localeCompare(b, "en", {numeric: true}));

function precisionCell(layer) {
  if (!layer.kept) return [layer.precision ?? "–"];
  return [layer.low ? `${layer.low} → ` : "", make("b", {}, layer.precision)];
}

function showLayers(place, answer) {
  const {layers} = answer;
  if (!layers.length) return;
  const kept = layers.filter((layer) => layer.kept);
  const counted = (values) =>
      naturally(values).map((value) => [value, `${value} (${values.filter((each) => each === value).length})`]);
  const kinds = [
    [kept.length, "kept", `Kept (${kept.length})`],
    [answer.following.size, "following", `Following (${answer.following.size})`],
    [layers.length, "", `All layers (${layers.length})`]
  ];
  const narrow = matchMedia("(max-width: 640px)").matches;
  const table = new Table(place, layers, {
    label: "layer",
    stem: "layers",
    size: narrow ? 5 : 10,
    text: (layer) => [layer.name, layer.op, layer.kept?.reason.kind ?? "", layer.kept?.reason.text ?? "",
        layer.kept?.reason.tensor ?? ""]
                         .join(" "),
    record: layerRecord,
    columns: [
      {
        title: "Layer",
        value: (layer) => layer.row,
        cell: (layer) => [make("span", {class: "name", title: layer.name}, breakable(layer.name)), make("small", {}, ` ${layer.op}`)]
      },
      {title: "Precision", value: (layer) => RANK[layer.precision] ?? null, cell: precisionCell},
      {
        title: "Reason",
        value: (layer) => layer.kept?.reason.kind ?? null,
        cell: (layer) => (layer.kept ? [make("span", {class: "kind"}, layer.kept.reason.kind)] :
                                       [layer.follows ? "follows others" : "–"])
      },
      {title: "Effect", numeric: true, value: (layer) => layer.effect, cell: (layer) => [short(layer.effect)]},
      {title: "Share of error", numeric: true, value: (layer) => layer.share, cell: (layer) => [percent(layer.share)]},
      {title: "Time", numeric: true, value: (layer) => layer.time, cell: (layer) => [microseconds(layer.time)]},
    ],
    filters: [
      {
        title: "Show",
        options: () => kinds.filter(([count, value]) => count || !value).map(([, value, text]) => [value, text]),
        shown: kept.length ? "kept" : "",
        has: (layer, value) => (value === "kept" ? layer.kept !== null : layer.follows)
      },
      {
        title: "Reason",
        all: "any",
        options: () => counted(kept.map((layer) => layer.kept.reason.kind)),
        has: (layer, value) => layer.kept?.reason.kind === value
      },
      {
        title: "Operator",
        all: "any",
        options: () => counted(layers.map((layer) => layer.op).filter(Boolean)),
        has: (layer, value) => layer.op === value
      },
      {
        title: "Block",
        all: "any",
        options: () =>
            naturally(layers.map((layer) => layer.block)).map((block) => [block || "(none)", block || "(none)"]),
        has: (layer, value) => (layer.block || "(none)") === value
      },
    ],
    detail: (layer) => layerDetail(layer, answer),
    onpick: (layer) => selection.choose(layer),
  });
  selection.listeners.push((layer) => table.reveal(layer));
}
