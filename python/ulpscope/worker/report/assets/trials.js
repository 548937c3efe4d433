// Error of every trial against what it costs; a trial that is chosen shows its set.

const PLOT = {
  height: 300,
  left: 52,
  right: 14,
  top: 20,
  bottom: 44
};
const LISTED = 100;

class Trials {
  constructor(place, answer, other, command) {
    Object.assign(this, {answer, other, command, byTime: answer.hasTimes, chosen: null});
    this.svg = draw("svg", {
      class: "plot",
      tabindex: 0,
      role: "slider",
      "aria-label": "Trials, by their cost",
      "aria-valuemin": 0,
      "aria-valuemax": Math.max(0, answer.trials.length - 1),
      height: PLOT.height
    });
    this.panel = make("div", {class: "panel"});
    const axes = answer.hasTimes ? choice("Horizontal axis", ["Estimated time", "Share of multiply-adds"], (i) => {
      this.byTime = i === 0;
      this.show();
    }) : make("span", {});
    const exports = exportButtons("trials", "the trials", () => answer.trials.map((trial) => ({
      index: trial.index,
      kind: trial.kind,
      raised: answer.raised(trial.index).length,
      used: trial.used,
      value: trial.value,
      passed: trial.passed,
      time_us: trial.time,
      cost_share: trial.share,
      seconds: trial.seconds,
      worst_output: trial.worst,
      worst_sample: trial.sample,
      problem: trial.problem,
    })));
    place.append(make("div", {class: "line"}, axes, exports), this.legend(), this.svg, this.panel);
    this.listen();
    keepDrawn(this.svg, () => this.show());
    this.empty();
  }

  legend() {
    const there = (heldOut, passed) =>
        this.answer.trials.some((trial) => trial.heldOut === heldOut && trial.passed === passed);
    const item = (mark, text) => make(
        "span", {}, draw("svg", {width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true"}, mark), text);
    const kinds = [
      [false, true, "passes"], [false, false, "fails"], [true, true, "held out, passes"],
      [true, false, "held out, fails"]
    ];
    return make("p", {class: "legend"},
        kinds.filter(([heldOut, passed]) => there(heldOut, passed)).map(([heldOut, passed,
          text]) => item(this.mark(0, 0, {heldOut, passed, used: 1}), text)),
        this.answer.trials.some((trial) => !(trial.used < Infinity)) ?
            item(this.mark(0, 0, {heldOut: false, passed: false, used: Infinity}), "not finite") :
            null,
        this.answer.hasResult ?
            item(this.star(0, 0, 7), this.answer.answer.verdict === "found" ? "the answer" : "best so far") :
            null,
        this.other?.hasResult ? item(this.square(0, 0), "the answer B") : null,
        this.curve().length ? item(draw("line", {x1: -7, x2: 7, y1: 0, y2: 0, class: "curve"}), "predicted") : null);
  }

  mark(x, y, trial) {
    const look = {class: `trial ${trial.passed ? "passes" : "fails"}`};
    if (!(trial.used < Infinity)) return draw("path", {d: `M${x} ${y - 5}L${x + 5} ${y + 4}H${x - 5}Z`, ...look});
    if (trial.heldOut) return draw("path", {d: `M${x} ${y - 6}L${x + 5} ${y}L${x} ${y + 6}L${x - 5} ${y}Z`, ...look});
    return draw("circle", {cx: x, cy: y, r: 4.2, ...look});
  }

  star(x, y, size) {
    const points = Array.from({length: 10}, (_, i) => {
      const r = i % 2 ? size * 0.45 : size, angle = Math.PI * (i / 5 - 0.5);
      return `${x + r * Math.cos(angle)},${y + r * Math.sin(angle)}`;
    });
    return draw("polygon", {points: points.join(" "), class: "star"});
  }

  square(x, y) {
    return draw("rect", {x: x - 5, y: y - 5, width: 10, height: 10, class: "star"});
  }

  /** The predicted curve; a line of one point is none. */
  curve() {
    if (!this.byTime) return [];
    const points = (this.answer.answer.curve ??
        []).map(([time, used, raised]) => ({x: number(time),
             used: number(used),
             raised})).filter(({used}) => used > 0 && used < Infinity);
    return points.length > 1 ? points : [];
  }

  own(answer) {
    const {time_us: time, cost_share: share, search, held_out: heldOut} = answer.answer;
    if (!answer.hasResult) return [];
    const x = number(this.byTime ? time.answer : share);
    return [{x, used: number(search.used)}, ...(heldOut ? [{x, used: number(heldOut.used), small: true}] : [])];
  }

  show() {
    const width = this.svg.clientWidth || 600;
    const {height, left, right, top, bottom} = PLOT;
    const points =
        this.answer.trials.map((trial) => ({trial, x: this.byTime ? trial.time : trial.share, used: trial.used}));
    const own = this.own(this.answer), others = this.other ? this.own(this.other).slice(0, 1) : [],
          curve = this.curve();
    const all = [...points, ...own, ...others, ...curve];
    const margin = number(this.answer.answer.margin);
    const y = logScale(all.map(({used}) => used), [1, margin], top, height - top - bottom);
    let low = Math.min(...all.map((point) => point.x)), high = Math.max(...all.map((point) => point.x));
    // Times that are nearly the same stay near each other, and ticks tell them apart.
    const pad = Math.max(0.04 * (high - low), (0.02 * Math.max(Math.abs(low), Math.abs(high)) - (high - low)) / 2) || 1;
    [low, high] = [Math.max(this.byTime ? -Infinity : -0.02, low - pad), high + pad];
    const x = (value) => left + (width - left - right) * (value - low) / (high - low);
    this.places = points.map((point) => ({...point, px: x(point.x), py: y.place(point.used)}))
                      .sort((a, b) => a.px - b.px || a.py - b.py);
    const parts = [];
    for (const [value, text] of y.ticks) {
      const at = y.place(value);
      parts.push(draw("line", {x1: left, x2: width - right, y1: at, y2: at, class: "grid"}),
          draw("text", {x: left - 6, y: at + 4, "text-anchor": "end", class: "tick"}, text));
    }
    parts.push(...this.axis(x, low, high, width));
    const labels = [];
    for (const [at, text] of [
             [1, "tolerance"], ...(margin > 0 && margin < 1 ? [[margin, `margin (${short(margin)} of it)`]] : [])]) {
      const py = y.place(at);
      parts.push(draw("line", {x1: left, x2: width - right, y1: py, y2: py, class: at === 1 ? "limit" : "limit soft"}));
      labels.push(draw("text", {x: width - right, y: py - 4, "text-anchor": "end", class: "tick above"}, text));
    }
    if (curve.length)
      parts.push(draw("polyline",
          {points: curve.map((point) => `${x(point.x)},${y.place(point.used)}`).join(" "), class: "curve"}));
    parts.push(...this.places.map(({px, py, trial}) => this.mark(px, py, trial)));
    parts.push(...others.map((point) => this.square(x(point.x), y.place(point.used))),
        ...own.map((point) => this.star(x(point.x), y.place(point.used), point.small ? 6 : 9)));
    this.ring = draw("circle", {r: 9, class: "ring", visibility: "hidden"});
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...parts, ...labels, this.ring);
    this.showRing();
  }

  axis(x, low, high, width) {
    const {height, bottom} = PLOT;
    const unit = this.byTime ? (high >= 1e6 ? [1e-6, "s"] : high >= 1e3 ? [1e-3, "ms"] : [1, "µs"]) : [100, "%"];
    const rough = (high - low) * unit[0] / (width < 600 ? 4 : 7), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    const parts = [];
    for (let i = Math.ceil(low * unit[0] / step); i * step <= high * unit[0]; ++i) {
      const at = x(i * step / unit[0]);
      parts.push(draw("line", {x1: at, x2: at, y1: height - bottom, y2: height - bottom + 5, class: "edge"}),
          draw("text", {x: at, y: height - bottom + 18, "text-anchor": "middle", class: "tick"},
              String(Number((i * step).toPrecision(6)))));
    }
    const title = this.byTime ? `estimated time on ${this.answer.answer.target} (${unit[1]})` :
                                "multiply-adds in higher precision (%)";
    parts.push(
        draw("line", {x1: PLOT.left, x2: width - PLOT.right, y1: height - bottom, y2: height - bottom, class: "edge"}),
        draw("text", {x: (PLOT.left + width) / 2, y: height - 6, "text-anchor": "middle", class: "tick"}, title),
        draw("text", {x: 4, y: 12, class: "tick"}, "error / tolerance"));
    return parts;
  }

  showRing() {
    const place = this.places?.find(({trial}) => trial === this.chosen);
    if (place)
      for (const [name, value] of [["cx", place.px], ["cy", place.py], ["visibility", "visible"]])
        this.ring.setAttribute(name, value);
  }

  listen() {
    const nearest = (event) => {
      const box = this.svg.getBoundingClientRect();
      const distance = ({px, py}) => Math.hypot(px - (event.clientX - box.left), py - (event.clientY - box.top));
      const best = this.places.reduce((a, b) => (a && distance(a) <= distance(b) ? a : b), null);
      return best && distance(best) < 24 ? best.trial : null;
    };
    this.svg.addEventListener("pointermove", (event) => this.svg.classList.toggle("near", nearest(event) !== null));
    this.svg.addEventListener("click", (event) => {
      const trial = nearest(event);
      if (trial) this.choose(trial);
    });
    this.svg.addEventListener("keydown", (event) => {
      const at = this.places.findIndex(({trial}) => trial === this.chosen);
      const moves = {
        ArrowRight: at + 1,
        ArrowUp: at + 1,
        ArrowLeft: at - 1,
        ArrowDown: at - 1,
        Home: 0,
        End: this.places.length - 1,
        PageUp: at + 20,
        PageDown: at - 20
      };
      if (!(event.key in moves) || !this.places.length) return;
      event.preventDefault();
      this.choose(this.places[Math.min(this.places.length - 1, Math.max(0, moves[event.key]))].trial);
    });
  }

  empty() {
    if (!this.answer.trials.length) return;
    this.panel.append(
        make("p", {class: "hint"},
            "Click on a point, or go through them with the arrow keys, for its layers and the command that gets them."),
        this.pick(0));
  }

  pick(index) {
    const input = make("input", {
      type: "number",
      min: 0,
      max: this.answer.trials.length - 1,
      value: index,
      onchange: () => {
        const trial = this.answer.trials[input.value];
        if (trial) this.choose(trial, true);
      }
    });
    return make("label", {class: "field"}, make("span", {}, "Trial"), input);
  }

  choose(trial, fromField = false) {
    this.chosen = trial;
    this.showRing();
    const raised = this.answer.raised(trial.index), chosen = this.answer.chosen(), set = new Map(raised);
    const more = raised.filter(([name, precision]) => chosen.get(name) !== precision),
          less = [...chosen].filter(([name]) => !set.has(name));
    const verdict = `${trial.passed ? "passes" : "fails"}: ${
        trial.used < 10 ? percent(trial.used) : `${short(trial.used)}×`} of the tolerance`;
    const facts = [
      ["What", `${trial.kind}${trial.repaired ? ", repaired" : ""}`], ["Error", `${short(trial.value)} (${verdict})`]
    ];
    if (trial.problem) facts.push(["Problem", trial.problem]);
    if (trial.worst) facts.push(["Worst", trial.sample >= 0 ? `${trial.worst}, sample ${trial.sample}` : trial.worst]);
    facts.push(
        [
          "Cost",
          [this.answer.hasTimes ? microseconds(trial.time) : "", `${percent(trial.share)} of the multiply-adds`]
              .filter(Boolean)
              .join(", ")
        ],
        ["Layers", `${raised.length.toLocaleString("en")} in higher precision`]);
    // An answer that is in no file is one of Python.
    const command = this.command ? `${this.command} ${trial.index}` : `answer.at(${trial.index})`;
    this.panel.replaceChildren(
        make("div", {class: "line"}, make("h3", {}, `Trial ${trial.index}`), this.pick(trial.index)),
        make("dl", {class: "facts"},
            facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
        make("div", {class: "sets"}, this.list("Not in the answer", more), this.list("Only in the answer", less),
            this.list("All of its layers", raised)),
        trial.kind === "repair" ?
            make("p", {class: "hint"}, "It tried repairs, not layers: no command takes its set.") :
            make("div", {class: "command"},
                make("div", {},
                    make("p", {},
                        this.command ? "Write the model with these layers" : "The answer with these layers, in Python"),
                    copyButton(command)),
                make("pre", {tabindex: 0}, make("code", {}, command))));
    this.svg.setAttribute("aria-valuenow", trial.index);
    this.svg.setAttribute("aria-valuetext", `trial ${trial.index}, ${verdict}, ${plural(raised.length, "layer")}`);
    if (fromField) this.panel.querySelector("input").focus({preventScroll: true});
  }

  list(title, pairs) {
    const go = (name) => button("", () => selection.choose(this.answer.byName.get(name)), {class: "link"});
    const items = pairs.slice(0, LISTED).map(([name, precision]) => {
      const link = go(name);
      link.append(...breakable(name));
      return make("li", {}, link, make("small", {}, ` ${precision}`));
    });
    const text = () => pairs.map(([name, precision]) => `${name}:${precision}`).join("\n");
    return make("details", {"data-set": title}, make("summary", {}, `${title} (${pairs.length.toLocaleString("en")})`),
        pairs.length ? copyButton(text, "Copy names") : null, make("ul", {}, items),
        pairs.length > LISTED ?
            make("p", {class: "hint"},
                `and ${(pairs.length - LISTED).toLocaleString("en")} more, which Copy names takes too`) :
            null);
  }
}
