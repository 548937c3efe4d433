// What the page is about: the document of schemas/report.schema.json, as rows that are easy to draw.

// From low to high, as the document lists them: their names,
const PRECISIONS = [];
// their places,
const RANK = {};
// and what they hold, as powers of two: with fewer bits below `normal`; `scaled`: times the scale of the tensor.
const RANGES = {};

/** The document. */
async function readDocument() {
  const report = JSON.parse(await documentText());
  for (const {name, ...range} of report.precisions) {
    RANK[name] = PRECISIONS.push(name) - 1;
    RANGES[name] = range;
  }
  return report;
}

/** Larger ones are packed. Throws where the browser cannot unpack. */
async function documentText() {
  const element = document.getElementById("data");
  if (element.type === "application/json") return element.textContent;
  if (typeof DecompressionStream === "undefined")
    throw new Error("This browser is too old for this page: it needs one of 2023 or later.");
  const bytes = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(unpacked).text();
}

/** A number of the document: JSON has no infinities. */
function number(value) {
  if (typeof value !== "string") return value;
  return {inf: Infinity, "-inf": -Infinity, nan: NaN}[value];
}

/** Three digits, as people read them. */
function short(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    const [digits, power] = value.toExponential(2).split("e");
    return `${Number(digits)}e${Number(power)}`;
  }
  return String(Number(value.toPrecision(3)));
}

const percent = (value) => (value === null ? "–" : `${short(100 * value)} %`);
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

function microseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return `${short(value / 1e6)} s`;
  if (value >= 1e3) return `${short(value / 1e3)} ms`;
  return value > 0 && value < 0.001 ? "< 0.001 µs" : `${short(value)} µs`;
}

/**
 * The part of a path up to its first numbered folder ("/encoder/layer.3"), or its first folder; empty for a bare name.
 */
function blockOf(name) {
  const parts = name.split("/");
  const folders = parts.slice(0, -1);
  for (let i = 0; i < folders.length; ++i) {
    if (/[._]?\d+$/.test(folders[i])) return folders.slice(0, i + 1).join("/");
  }
  const first = folders.findIndex((part) => part !== "");
  return first < 0 ? "" : folders.slice(0, first + 1).join("/");
}

/** Numbers such as "0-4 7", one call each range, the end left out. */
function eachRange(text, visit) {
  for (const part of text.split(" ")) {
    const [first, last] = part.split("-");
    visit(Number(first), Number(last ?? first) + 1);
  }
}

/** An answer with its layers in network order. */
class Answer {
  constructor({source, answer}) {
    this.source = source;
    this.answer = answer;
    this.names = answer.names.concat(...answer.trials.map((trial) => trial.names ?? []));
    this.kept = new Map(answer.layers.map((layer) => [layer.name, layer]));
    this.following = new Set(answer.following);
    this.layers = this.makeLayers();
    this.byName = new Map(this.layers.map((layer) => [layer.name, layer]));
    this.trials = this.makeTrials();
    this.sets = [];
  }

  makeLayers() {
    const {network, sensitivities} = this.answer;
    const effects = new Map(sensitivities.layer.map(
        (at, i) => [this.names[at], {op: sensitivities.op[i], effect: number(sensitivities.effect[i])}]));
    for (const row of sensitivities.measured) effects.get(this.names[sensitivities.layer[row]]).measured = true;
    const layers = [];
    const add = (name, op, rest) => {
      const found = effects.get(name);
      const kept = this.kept.get(name) ?? null;
      layers.push({
        row: layers.length,
        name,
        op: op || kept?.op || found?.op || "",
        block: blockOf(name),
        kept,
        follows: this.following.has(name),
        effect: found        ? found.effect :
            kept && !network ? number(kept.effect) :
                               null,
        measured: Boolean(found?.measured),
        inputs: [],
        readers: [],
        times: {},
        magnitudes: null,
        low: kept?.reason.low ?? null,
        ...rest,
      });
    };
    if (network) {
      network.layer.forEach((at, i) => {
        const times = {};
        for (const [precision, column] of Object.entries(network.time_us))
          if (column[i] !== null) times[precision] = number(column[i]);
        add(this.names[at], network.op[i],
            {low: network.precision[i], inputs: network.inputs[i], times, magnitudes: network.magnitudes[i]});
      });
      for (const layer of layers)
        for (const input of layer.inputs) layers[input].readers.push(layer.row);
    } else {
      const low = this.answer.precisions.length === 1 ? this.answer.precisions[0] : null;
      const others = this.answer.names.filter((name) => !effects.has(name) && this.kept.has(name));
      for (const name of [...effects.keys(), ...others]) add(name, "", {low: this.kept.get(name)?.reason.low ?? low});
    }
    const there = new Set(layers.map((layer) => layer.name));
    for (const name of [...this.kept.keys(), ...this.following])
      if (!there.has(name)) add(name, "", {});
    for (const layer of layers) {
      layer.precision = layer.kept ? layer.kept.precision : layer.low;
      layer.time = layer.times[layer.precision] ?? null;
      layer.share = layer.kept ? number(layer.kept.reason.share) : null;
    }
    return layers;
  }

  makeTrials() {
    let state = {margin: 1, repairs: []};
    return this.answer.trials.map((trial, index) => {
      state = {margin: trial.margin ?? state.margin, repairs: trial.repairs ?? state.repairs};
      const used = number(trial.used ?? "inf");
      const [share, time, seconds] = trial.cost.map(number);
      return {
        index,
        kind: trial.kind,
        used,
        value: number(trial.value),
        passed: used <= number(state.margin),
        repaired: state.repairs.length > 0,
        heldOut: /^(hold-out|untouched)/.test(trial.kind),
        problem: trial.problem ?? "",
        share,
        time,
        seconds,
        worst: this.names[trial.worst?.[0]] ?? "",
        sample: trial.worst?.[1] ?? -1,
      };
    });
  }

  /** Per name 0, or 1 + the rank of the precision that the trial raises it to. */
  marks(index) {
    const chain = [];
    for (let at = index; at !== undefined && !this.sets[at]; at = this.answer.trials[at].raised.base) chain.push(at);
    for (const at of chain.reverse()) {
      const {base, ...changes} = this.answer.trials[at].raised;
      const marks = base === undefined ? new Uint8Array(this.names.length) : this.sets[base].slice();
      for (const [precision, ranges] of Object.entries(changes)) {
        eachRange(ranges, (first, end) => marks.fill(precision === "dropped" ? 0 : 1 + RANK[precision], first, end));
      }
      this.sets[at] = marks;
    }
    return this.sets[index];
  }

  /** The layers that a trial raises: pairs of name and precision. */
  raised(index) {
    const pairs = [];
    this.marks(index).forEach((mark, at) => {
      if (mark) pairs.push([this.names[at], PRECISIONS[mark - 1]]);
    });
    return pairs;
  }

  /** What the answer raises; layers that stay so whatever is tried are in no trial's set. */
  chosen() {
    const fixed = ["requested", "singular"];
    return new Map(this.answer.layers.filter((layer) => !fixed.includes(layer.reason.kind))
                       .map((layer) => [layer.name, layer.precision]));
  }

  get hasResult() {
    return this.answer.search.outputs.length > 0;
  }
  get hasTimes() {
    return number(this.answer.time_us.highest) > 0;
  }
}
