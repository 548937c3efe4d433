// The whole network by depth, one lane for each question.

const LANES = [["precision", 36], ["effect", 84], ["time", 48], ["magnitude", 84]];
const GAP = 22, LEFT = 46, RIGHT = 8;

/** A vertical logarithmic scale with room for 0 and infinity at its ends. */
function logScale(values, shown, top, height) {
  const finite = [...values, ...shown].filter((value) => value > 0 && value < Infinity).map(Math.log10);
  let low = Math.min(...finite), high = Math.max(...finite);
  if (!finite.length) [low, high] = [-1, 0];
  const pad = Math.max(0.25, 0.06 * (high - low));
  [low, high] = [low - pad, high + pad];
  const place = (value) => {
    if (!(value < Infinity)) return top + 3;
    if (value <= 0) return top + height - 2;
    return top + height - 2 - (height - 8) * (Math.log10(value) - low) / (high - low);
  };
  const step = Math.max(1, Math.ceil((high - low) / 4));
  const ticks = [];
  for (let power = Math.floor(low); power <= high; ++power) {
    if (power % step === 0 && power >= low) ticks.push([10 ** power, raisedText(10, power)]);
    // Decades alone say little about a narrow range.
    if (high - low < 1.6)
      for (const digit of [2, 5])
        if (Math.log10(digit) + power > low && Math.log10(digit) + power < high)
          ticks.push([digit * 10 ** power, short(digit * 10 ** power)]);
  }
  return {place, ticks};
}

class Strip {
  constructor(place, answer, other) {
    this.answer = answer;
    this.other = other;
    this.layers = answer.layers;
    this.lanes = LANES.filter(([name]) => name === "precision" || this.layers.some((layer) => this.known(name, layer)));
    if (other) this.lanes.splice(1, 0, ["B", 36]);
    // From low to high: of these alone, each has a height that tells it from the next.
    const all = other ? [...this.layers, ...other.layers] : this.layers;
    this.present = PRECISIONS.filter((name) => all.some((layer) => layer.precision === name));
    this.slowest = Math.max(...this.layers.map((layer) => layer.time ?? 0), 1e-9);
    this.from = 0;
    this.to = this.layers.length;
    this.at = Math.max(0, this.layers.findIndex((layer) => layer.kept));
    this.height = this.lanes.reduce((sum, [, height]) => sum + height + GAP, 0) + 8;
    this.canvas = make("canvas", {
      tabindex: 0,
      role: "slider",
      "aria-label": "Layers of the network in their order",
      "aria-valuemin": 0,
      "aria-valuemax": this.layers.length - 1,
      class: "strip",
      style: `height:${this.height}px`,
    });
    this.told = make("p", {class: "told"});
    const zoom = (factor) => () => this.zoom(factor, this.at);
    const tools = make("div", {class: "line"}, this.legend(),
        make("span", {class: "exports"}, button("−", zoom(2), {class: "small", "aria-label": "Show more layers"}),
            button("+", zoom(0.5), {class: "small", "aria-label": "Show fewer layers"}),
            button("All", () => this.zoom(Infinity, this.at), {class: "small", "aria-label": "Show all layers"})));
    place.append(tools, this.canvas, this.told,
        make("p", {class: "hint keys"},
            "Arrow keys go from layer to layer, N and P to kept ones, + and − zoom, Enter chooses."));
    this.listen();
    selection.listeners.push((layer) => {
      this.at = layer.row;
      this.bring();
      this.draw();
    });
    keepDrawn(this.canvas, () => this.draw());
  }

  known(lane, layer) {
    return {effect: layer.effect, time: layer.time, magnitude: layer.magnitudes}[lane] !== null;
  }

  legend() {
    return make("span", {class: "legend"},
        this.present.map((name) => make("span", {}, make("i", {class: `mark ${name}`}), name)),
        make("span", {}, make("i", {class: "mark none"}), "no arithmetic"));
  }

  listen() {
    const {canvas} = this;
    const layerAt = (event) => {
      const inner = canvas.clientWidth - LEFT - RIGHT;
      const share = (event.clientX - canvas.getBoundingClientRect().left - LEFT) / inner;
      return Math.min(this.to - 1, Math.max(this.from, Math.floor(this.from + share * (this.to - this.from))));
    };
    canvas.addEventListener("pointermove", (event) => {
      this.hover = this.nearest(layerAt(event));
      this.draw();
    });
    canvas.addEventListener("pointerleave", () => {
      this.hover = null;
      this.draw();
    });
    canvas.addEventListener("click", (event) => {
      this.at = this.nearest(layerAt(event));
      selection.choose(this.layers[this.at]);
      this.draw();
    });
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY))
        this.pan(Math.sign(event.deltaX) * 0.1);
      else
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, layerAt(event));
    }, {passive: false});
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const keptFrom = (step) => {
        for (let i = this.at + step; i >= 0 && i < this.layers.length; i += step)
          if (this.layers[i].kept) return i;
        return this.at;
      };
      const page = Math.max(1, Math.round((this.to - this.from) / 10));
      const moves = {
        ArrowRight: () => this.at + 1,
        ArrowUp: () => this.at + 1,
        ArrowLeft: () => this.at - 1,
        ArrowDown: () => this.at - 1,
        PageUp: () => this.at + page,
        PageDown: () => this.at - page,
        Home: () => 0,
        End: () => this.layers.length - 1,
        n: () => keptFrom(1),
        p: () => keptFrom(-1),
      };
      const others = {
        "+": () => this.zoom(0.5, this.at),
        "=": () => this.zoom(0.5, this.at),
        "-": () => this.zoom(2, this.at),
        0: () => this.zoom(Infinity, this.at),
        Enter: () => selection.choose(this.layers[this.at]),
      };
      if (moves[event.key])
        this.at = Math.min(this.layers.length - 1, Math.max(0, moves[event.key]()));
      else if (others[event.key])
        others[event.key]();
      else
        return;
      event.preventDefault();
      this.hover = null;
      this.bring();
      this.draw();
    });
  }

  /** Where layers are narrower than a pixel, the kept one nearby is meant. */
  nearest(at) {
    const reach = Math.floor(3 * (this.to - this.from) / Math.max(1, this.canvas.clientWidth));
    for (let i = 0; i <= reach; ++i)
      for (const each of [at - i, at + i])
        if (this.layers[each]?.kept) return each;
    return at;
  }

  zoom(factor, around) {
    const span =
        Math.min(this.layers.length, Math.max(Math.min(20, this.layers.length), (this.to - this.from) * factor));
    const share = (around - this.from) / (this.to - this.from);
    this.from = Math.max(0, Math.min(this.layers.length - span, Math.round(around - share * span)));
    this.to = this.from + Math.round(span);
    this.bring();
    this.draw();
  }

  pan(share) {
    const span = this.to - this.from;
    this.from = Math.max(0, Math.min(this.layers.length - span, Math.round(this.from + share * span)));
    this.to = this.from + span;
    this.draw();
  }

  /** Shows the cursor. */
  bring() {
    const span = this.to - this.from;
    if (this.at >= this.from && this.at < this.to) return;
    this.from = Math.max(0, Math.min(this.layers.length - span, Math.round(this.at - span / 2)));
    this.to = this.from + span;
  }

  draw() {
    const {canvas} = this;
    const width = canvas.clientWidth, scale = devicePixelRatio || 1;
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = this.height * scale;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "12px system-ui, sans-serif";
    this.inner = width - LEFT - RIGHT;
    this.palette = Object.fromEntries(
        [...PRECISIONS, "ink", "muted", "grid", "none", "shade", "fail", "mark"].map((name) => [name, color(name)]));
    let top = 4;
    const places = [];
    for (const [lane, height] of this.lanes) {
      context.fillStyle = this.palette.muted;
      context.textAlign = "left";
      context.fillText(this.title(lane), LEFT, top + 11);
      top += GAP - 6;
      this[`draw_${lane}`](context, top, height);
      places.push([top, height]);
      top += height + 6;
    }
    this.drawCursor(context, places);
    this.tell();
  }

  title(lane) {
    return {
      precision: this.other ? "Precision (A)" : "Precision",
      B: "Precision (B)",
      effect: "Effect alone / tolerance",
      magnitude: "Magnitudes written, in float32",
      time: `Estimated time on ${this.answer.answer.target}, up to ${microseconds(this.slowest)}`,
    }[lane];
  }

  x(row) {
    return LEFT + this.inner * (row - this.from) / (this.to - this.from);
  }

  /** Calls visit(left, width, layers) for each bar: a layer, or those of a pixel. */
  bars(visit) {
    const span = this.to - this.from, per = span / this.inner;
    if (per <= 1) {
      const gap = this.inner / span > 4 ? 1 : 0;
      for (let row = this.from; row < this.to; ++row)
        visit(this.x(row), Math.max(1, this.inner / span - gap), [this.layers[row]]);
      return;
    }
    for (let pixel = 0; pixel < this.inner; ++pixel) {
      const first = Math.floor(this.from + pixel * per),
            end = Math.max(first + 1, Math.floor(this.from + (pixel + 1) * per));
      visit(LEFT + pixel, 1, this.layers.slice(first, Math.min(end, this.to)));
    }
  }

  draw_precision(context, top, height) {
    this.drawPrecisions(context, top, height, (layer) => layer.precision);
  }
  draw_B(context, top, height) {
    this.drawPrecisions(context, top, height, (layer) => this.other.byName.get(layer.name)?.precision ?? null);
  }

  drawPrecisions(context, top, height, of) {
    const kept = [], steps = Math.max(1, this.present.length - 1);
    this.bars((left, width, layers) => {
      let most = null;
      for (const layer of layers)
        if (of(layer) && (most === null || RANK[of(layer)] > RANK[most])) most = of(layer);
      const tall = most === null ? 3 : height * (0.3 + 0.7 * this.present.indexOf(most) / steps);
      context.fillStyle = most === null ? this.palette.none : this.palette[most];
      // What is high stays visible among thousands.
      if (RANK[most] === PRECISIONS.length - 1 && width < 2) kept.push([left, tall]);
      context.fillRect(left, top + height - tall, width, tall);
    });
    for (const [left, tall] of kept) context.fillRect(left - 0.5, top + height - tall, 2, tall);
  }

  drawTicks(context, ticks, scale, top, height, unit) {
    context.textAlign = "right";
    for (const [value, text] of ticks) {
      const y = scale.place(value);
      context.fillStyle = this.palette.grid;
      context.fillRect(LEFT, y, this.inner, 1);
      context.fillStyle = this.palette.muted;
      if (y > top + 2 && y < top + height + 4) context.fillText(text, LEFT - 6, y + 4);
    }
  }

  draw_effect(context, top, height) {
    const known = this.layers.filter((layer) => layer.effect !== null);
    const scale = logScale(known.map((layer) => layer.effect), [1], top, height);
    this.drawTicks(context, scale.ticks, scale, top, height);
    context.fillStyle = this.palette.muted;
    context.fillRect(LEFT, scale.place(1), this.inner, 1.5);
    for (const raised of [false, true]) {
      this.bars((left, width, layers) => {
        for (const layer of layers) {
          if (layer.effect === null || Boolean(layer.kept) !== raised) continue;
          const y = scale.place(layer.effect), size = Math.min(5, Math.max(raised ? 3 : 1.5, width));
          context.fillStyle = raised ? this.palette.fail : this.palette.muted;
          context.beginPath();
          if (layer.effect < Infinity)
            context.arc(left + width / 2, y, size / 2 + 0.5, 0, 7);
          else
            context.moveTo(left + width / 2, y - 3), context.lineTo(left + width / 2 + 4, y + 4),
                context.lineTo(left + width / 2 - 4, y + 4);
          context.fill();
        }
      });
    }
  }

  draw_time(context, top, height) {
    context.fillStyle = this.palette.grid;
    context.fillRect(LEFT, top, this.inner, 1);
    context.fillRect(LEFT, top + height, this.inner, 1);
    this.bars((left, width, layers) => {
      const slowest = layers.reduce((a, b) => ((b.time ?? 0) > (a.time ?? 0) ? b : a));
      context.fillStyle = this.palette[slowest.precision ?? "none"];
      const tall = height * (slowest.time ?? 0) / this.slowest;
      context.fillRect(left, top + height - tall, width, tall);
    });
  }

  draw_magnitude(context, top, height) {
    const all = this.layers.filter((layer) => layer.magnitudes).map((layer) => layer.magnitudes);
    // A few masks of -FLT_MAX, and zeros nearly so, would leave no room for the others: they end at the lane's edge.
    const at = (values, share) => values.sort((a, b) => a - b)[Math.round(share * (values.length - 1))];
    const low = Math.max(-50, Math.min(at(all.map(([smallest]) => smallest), 0.03), -16)),
          high = Math.max(at(all.map(([, largest]) => largest + 1), 0.97) + 2, 18);
    const place = (exponent) => top + height - height * (Math.min(high, Math.max(low, exponent)) - low) / (high - low);
    const shown = RANGES[this.answer.answer.precisions.find((name) => RANGES[name] && !RANGES[name].scaled)];
    if (shown && shown.largest <= high) {
      context.fillStyle = this.palette.shade;
      context.fillRect(LEFT, place(shown.largest), this.inner, place(shown.normal) - place(shown.largest));
    }
    const ticks =
        [...new Set([low, 0, high, ...(shown && shown.largest <= high ? [shown.normal, shown.largest] : [])])];
    const spread =
        ticks.filter((tick, i) => ticks.every((each, k) => k >= i || Math.abs(place(each) - place(tick)) > 13));
    this.drawTicks(context, spread.map((tick) => [tick, raisedText(2, tick)]), {place}, top, height);
    this.bars((left, width, layers) => {
      const some = layers.filter((layer) => layer.magnitudes);
      if (!some.length) return;
      const from = Math.min(...some.map((layer) => layer.magnitudes[0])),
            to = Math.max(...some.map((layer) => layer.magnitudes[1] + 1));
      context.fillStyle = some.some((layer) => layer.kept) ? this.palette.fp32 : this.palette.fp16;
      context.fillRect(left, place(to), width, Math.max(1, place(from) - place(to)));
    });
  }

  /** In the lanes alone: titles stay legible. */
  drawCursor(context, places) {
    const line = (row, style) => {
      if (row < this.from || row >= this.to) return;
      context.fillStyle = style;
      for (const [top, height] of places)
        context.fillRect(Math.round(this.x(row + 0.5)) - 0.5, top - 2, 1.5, height + 4);
    };
    line(this.at, this.palette.ink);
    if (this.hover !== null && this.hover !== undefined) line(this.hover, this.palette.muted);
  }

  tell() {
    const layer = this.layers[this.hover ?? this.at];
    const parts = [
      layer.op,
      layer.kept ? `${layer.low ? `${layer.low} → ` : ""}${layer.precision}, kept: ${layer.kept.reason.kind}` :
                   layer.precision ?? "no arithmetic"
    ];
    if (layer.follows) parts.push("follows kept layers");
    if (layer.effect !== null) parts.push(`effect ${short(layer.effect)}`);
    if (layer.time !== null) parts.push(microseconds(layer.time));
    if (layer.magnitudes)
      parts.push(`${raisedText(2, layer.magnitudes[0])} to ${raisedText(2, layer.magnitudes[1] + 1)}`);
    const text = parts.filter(Boolean).join(" · ");
    this.told.replaceChildren(make("b", {}, breakable(layer.name)), ` ${text} `,
        make("small", {}, `${layer.row + 1} of ${this.layers.length}`));
    this.canvas.setAttribute("aria-valuenow", layer.row);
    this.canvas.setAttribute("aria-valuetext", `${layer.name}, ${text}`);
  }
}
