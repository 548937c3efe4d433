// The neighborhood of a layer: who it reads, who reads it, some steps far.

const NODE = {
  width: 160,
  height: 40,
  across: 14,
  along: 46
};
const MOST = 120;

/** Rows within `steps` of a layer, each with its distance, nearest first; at most MOST. */
function neighborhood(layers, center, steps) {
  const distance = new Map([[center.row, 0]]);
  for (const next of ["inputs", "readers"]) {
    let ring = [center.row];
    for (let step = 1; step <= steps; ++step) {
      const found = [];
      for (const row of ring)
        for (const each of layers[row][next])
          if (!distance.has(each)) {
            distance.set(each, step);
            found.push(each);
          }
      ring = found;
    }
  }
  return [...distance.keys()].sort((a, b) => distance.get(a) - distance.get(b) || a - b).slice(0, MOST);
}

/** Ranks along the flow: longest paths, sources next to their first reader. */
function rankOf(layers, rows, inside) {
  const ordered = [...rows].sort((a, b) => a - b);
  const rank = new Map();
  for (const row of ordered)
    rank.set(
        row, Math.max(-1, ...layers[row].inputs.filter((each) => inside.has(each)).map((each) => rank.get(each))) + 1);
  for (const row of [...ordered].reverse()) {
    const readers = layers[row].readers.filter((each) => inside.has(each));
    if (readers.length) rank.set(row, Math.min(...readers.map((each) => rank.get(each))) - 1);
  }
  const lowest = Math.min(...rank.values());
  return new Map(ordered.map((row) => [row, rank.get(row) - lowest]));
}

/**
 * Where nodes stand, rows to {along, across}, and the edges: {from, to, by: the places that a long one passes}. Places
 * across follow those of the neighbors; a long edge has one of its own in each rank between, so that it passes no node.
 */
function layered(layers, rows) {
  const rank = rankOf(layers, rows, new Set(rows));
  const columns = [], before = new Map(), after = new Map(), edges = [];
  const put = (key, at) => {
    (columns[at] ??= []).push(key);
    before.set(key, []);
    after.set(key, []);
  };
  const join = (a, b) => {
    after.get(a).push(b);
    before.get(b).push(a);
  };
  for (const [row, at] of rank) put(row, at);
  for (const [row, at] of rank) {
    for (const input of layers[row].inputs.filter((each) => rank.has(each))) {
      const by = [];
      let last = input;
      for (let between = rank.get(input) + 1; between < at; ++between) {
        const key = `${input} ${row} ${between}`;
        put(key, between);
        join(last, key);
        by.push(last = key);
      }
      join(last, row);
      edges.push({from: input, to: row, by});
    }
  }
  const across = new Map();
  const number = (column) => column.forEach((key, i) => across.set(key, i - (column.length - 1) / 2));
  columns.forEach(number);
  for (let sweep = 0; sweep < 8; ++sweep) {
    const side = sweep % 2 ? after : before;
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      const middle = new Map(column.map((key) => {
        const near = side.get(key).map((each) => across.get(each));
        return [key, near.length ? near.reduce((sum, each) => sum + each, 0) / near.length : across.get(key)];
      }));
      column.sort((a, b) => middle.get(a) - middle.get(b));
      number(column);
    }
  }
  const places = new Map();
  columns.forEach((column, along) => column.forEach((key) => places.set(key, {along, across: across.get(key)})));
  return {places, edges};
}

const pen = document.createElement("canvas").getContext("2d");

/** The end of a text that takes at most `room` pixels of the labels' font. */
function endOf(text, room) {
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  const takes = (start) => pen.measureText(start ? `…${text.slice(start)}` : text).width;
  let start = 0;
  while (start < text.length && takes(start) > room) ++start;
  return start ? `…${text.slice(start)}` : text;
}

class Graph {
  constructor(place, answer) {
    this.answer = answer;
    this.layers = answer.layers;
    this.center = this.layers.find((layer) => layer.kept) ?? this.layers[0];
    this.steps = 2;
    this.title = make("b", {});
    const stepsField = select("Steps", ["1", "2", "3", "4", "6"], (value) => {
      this.steps = Number(value);
      this.show();
    });
    stepsField.querySelector("select").value = "2";
    const kept = this.layers.filter((layer) => layer.kept);
    const turn = (step) => () => {
      const at = kept.findIndex((layer) => layer.row >= this.center.row);
      const now = at < 0 ? kept.length : at;
      const next = step > 0 ? (kept[now] === this.center ? now + 1 : now) : now - 1;
      if (kept[next]) selection.choose(kept[next]);
    };
    this.svg = draw("svg", {class: "graph", role: "group", "aria-label": "Graph of the neighborhood"},
        draw("defs", {},
            draw("marker", {
              id: "arrow",
              viewBox: "0 0 8 8",
              refX: 7,
              refY: 4,
              markerWidth: 7,
              markerHeight: 7,
              orient: "auto-start-reverse"
            },
                draw("path", {d: "M0 0 8 4 0 8z", class: "arrow"}))));
    this.world = draw("g", {});
    this.svg.append(this.world);
    const control = (text, label, action) => button(text, action, {class: "small", "aria-label": label});
    place.append(
        make("div", {class: "line"}, make("p", {class: "status"}, this.title),
            make("span", {class: "exports"},
                kept.length > 1 ?
                    [
                      control("‹ Kept", "Previous kept layer", turn(-1)), control("Kept ›", "Next kept layer", turn(1))
                    ] :
                    null,
                stepsField, control("−", "Zoom out", () => this.zoom(0.8)),
                control("+", "Zoom in", () => this.zoom(1.25)),
                control("Fit", "Show all of the graph", () => this.fit()))),
        this.svg, this.note = make("p", {class: "hint"}));
    this.listen();
    selection.listeners.push((layer) => {
      this.center = layer;
      this.show();
    });
    keepDrawn(this.svg, () => this.show());
  }

  listen() {
    const {svg} = this;
    let from = null;
    svg.addEventListener("wheel", (event) => {
      if (!svg.contains(document.activeElement) && !event.ctrlKey) return;
      event.preventDefault();
      const box = svg.getBoundingClientRect();
      this.zoom(event.deltaY > 0 ? 0.87 : 1.15, event.clientX - box.left, event.clientY - box.top);
    }, {passive: false});
    svg.addEventListener("pointerdown", (event) => {
      if (event.button === 0)
        from = {
          x: event.clientX - this.view.x,
          y: event.clientY - this.view.y,
          moved: false,
          start: [event.clientX, event.clientY]
        };
    });
    svg.addEventListener("pointermove", (event) => {
      if (!from) return;
      if (!from.moved && Math.hypot(event.clientX - from.start[0], event.clientY - from.start[1]) < 4) return;
      if (!from.moved) svg.setPointerCapture(event.pointerId);
      from.moved = true;
      this.move(event.clientX - from.x, event.clientY - from.y);
    });
    for (const end of ["pointerup", "pointercancel"])
      svg.addEventListener(end, () => {
        this.dragged = from?.moved ?? false;
        from = null;
      });
    svg.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const arrows = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
      if (arrows[event.key]) {
        const [dx, dy] = arrows[event.key];
        if (event.shiftKey)
          this.move(this.view.x - 60 * dx, this.view.y - 60 * dy);
        else
          this.step(dx, dy);
      } else if (event.key === "+" || event.key === "=")
        this.zoom(1.25);
      else if (event.key === "-")
        this.zoom(0.8);
      else if (event.key === "0")
        this.fit();
      else
        return;
      event.preventDefault();
    });
  }

  /** Goes to the node nearest in a direction. */
  step(dx, dy) {
    const row = Number(document.activeElement?.dataset?.row ?? this.center.row);
    const here = this.places.get(row) ?? this.places.get(this.center.row);
    let best = null, least = Infinity;
    for (const [each, {x, y}] of this.places) {
      const along = (x - here.x) * dx + (y - here.y) * dy,
            aside = Math.abs((x - here.x) * dy) + Math.abs((y - here.y) * dx);
      if (along > 1 && along + 2 * aside < least) [best, least] = [each, along + 2 * aside];
    }
    if (best !== null) this.focus(best);
  }

  focus(row) {
    for (const [each, node] of this.nodes) node.setAttribute("tabindex", each === row ? 0 : -1);
    this.nodes.get(row).focus({preventScroll: true});
    const {x, y} = this.places.get(row), {width, height} = this.size();
    const sx = this.view.x + this.view.scale * x, sy = this.view.y + this.view.scale * y;
    if (sx < 80 || sx > width - 80 || sy < 30 || sy > height - 30)
      this.move(width / 2 - this.view.scale * x, height / 2 - this.view.scale * y);
  }

  size() {
    return {width: this.svg.clientWidth || 600, height: this.svg.clientHeight || 300};
  }

  move(x, y) {
    this.view = {...this.view, x, y};
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${this.view.scale})`);
  }

  zoom(factor, x = this.size().width / 2, y = this.size().height / 2) {
    const scale = Math.min(4, Math.max(0.08, this.view.scale * factor)), change = scale / this.view.scale;
    this.view.scale = scale;
    this.move(x - change * (x - this.view.x), y - change * (y - this.view.y));
  }

  /** All of it, or the chosen layer in the middle where names could not be read. */
  fit() {
    const {width, height} = this.size();
    const xs = [...this.places.values()].map(({x}) => x), ys = [...this.places.values()].map(({y}) => y);
    const left = Math.min(...xs) - NODE.width / 2 - 12, right = Math.max(...xs) + NODE.width / 2 + 12;
    const top = Math.min(...ys) - NODE.height / 2 - 12, bottom = Math.max(...ys) + NODE.height / 2 + 12;
    const whole = Math.min(width / (right - left), height / (bottom - top), 1.15);
    const scale = Math.max(whole, 0.62);
    const {x, y} = this.places.get(this.center.row);
    this.view = {scale};
    const middle = (low, high, room, at) =>
        (scale * (high - low) <= room ? room / 2 - scale * (low + high) / 2 : room / 2 - scale * at);
    this.move(middle(left, right, width, x), middle(top, bottom, height, y));
  }

  show() {
    const rows = neighborhood(this.layers, this.center, this.steps);
    const {places, edges} = layered(this.layers, rows);
    const down = this.size().width < 600;
    const point = (key) => {
      const {along, across} = places.get(key);
      return down ? {x: across * (NODE.width + NODE.across), y: along * (NODE.height + 34)} :
                    {x: along * (NODE.width + NODE.along), y: across * (NODE.height + NODE.across)};
    };
    this.places = new Map(rows.map((row) => [row, point(row)]));
    const links = edges.map(
        ({from, to, by}) => this.edge([from, ...by, to].map(point), this.layers[from], this.layers[to], down));
    this.nodes = new Map(rows.map((row) => [row, this.node(this.layers[row])]));
    this.world.replaceChildren(...links, ...this.nodes.values());
    this.title.replaceChildren(...breakable(this.center.name));
    const more = rows.length === MOST ? ` Only the nearest ${MOST} layers are shown.` : "";
    const known = this.answer.answer.network ? "" : " This answer does not say what its layers read.";
    this.note.textContent =
        `Orange edges change precision. Choose a layer to go there; drag to move, + and − or the wheel zoom, arrow keys go from layer to layer.${
            more}${known}`;
    this.fit();
  }

  /** From the end of one node to the beginning of another, straight past those between. */
  edge(points, source, target, down) {
    const half = (down ? NODE.height : NODE.width) / 2;
    const bend = (down ? 34 : NODE.along) / 2 + 6;
    const ends = points.flatMap(({x, y}, i) => [i ? -half : null, i < points.length - 1 ? half : null]
                                                   .filter((side) => side !== null)
                                                   .map((side) => (down ? [x, y + side] : [x + side, y])));
    let path = `M${ends[0]}`;
    for (let i = 1; i < ends.length; i += 2) {
      const [a, b] = [ends[i - 1], ends[i]];
      const [c, d] = down ? [[a[0], a[1] + bend], [b[0], b[1] - bend]] : [[a[0] + bend, a[1]], [b[0] - bend, b[1]]];
      path += `C${c} ${d} ${b}`;
      if (i + 1 < ends.length) path += `L${ends[i + 1]}`;
    }
    const cast = source.precision && target.precision && source.precision !== target.precision;
    return draw("path", {d: path, class: cast ? "link cast" : "link", "marker-end": "url(#arrow)"});
  }

  node(layer) {
    const {x, y} = this.places.get(layer.row);
    const hidden = [...layer.inputs, ...layer.readers].filter((row) => !this.places.has(row)).length;
    const center = layer === this.center;
    const about = `${layer.name}, ${layer.op}, ${layer.precision ?? "no arithmetic"}${
        layer.kept ? `, kept: ${layer.kept.reason.kind}` : ""}`;
    const tail = layer.name.split("/").slice(-2).join("/");
    const op = layer.op.length > 16 ? `${layer.op.slice(0, 15)}…` : layer.op;
    const label = endOf(tail, NODE.width - 13 - (hidden ? 22 + 7 * `${hidden}`.length : 8));
    const choose = () => {
      if (this.dragged) return;
      selection.choose(layer);
      this.nodes.get(layer.row)?.focus({preventScroll: true});
    };
    return draw("g", {
      class: `node ${
          layer.kept        ? "kept" :
              layer.follows ? "follows" :
                              ""} ${center ? "center" : ""}`,
      transform: `translate(${x - NODE.width / 2} ${y - NODE.height / 2})`,
      tabindex: center ? 0 : -1,
      role: "button",
      "aria-label": about,
      "aria-current": center ? "true" : null,
      "data-row": layer.row,
      onclick: choose,
      onkeydown: (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          this.dragged = false;
          choose();
        }
      },
    },
        draw("title", {}, about), draw("rect", {width: NODE.width, height: NODE.height, rx: 6}),
        draw("rect", {width: 5, height: NODE.height, rx: 2, class: `side ${layer.precision ?? "none"}`}),
        draw("text", {x: 13, y: 16, class: "op"}, op),
        draw("text", {x: NODE.width - 8, y: 16, "text-anchor": "end", class: "type"}, layer.precision ?? ""),
        draw("text", {x: 13, y: 32, class: "label"}, label),
        hidden ? draw("text", {x: NODE.width - 8, y: 32, "text-anchor": "end", class: "type"}, `+${hidden}`) : null);
  }
}
