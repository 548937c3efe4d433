// Making elements. Names of layers are untrusted: they become text and attributes, and never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on"))
      element.addEventListener(name.slice(2), value);
    else
      element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** An element: attributes, listeners ("onclick"), children (elements and texts). */
function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A name that may be broken after its slashes, dots and semicolons. */
function breakable(name) {
  return name.split(/(?<=[/.;])/).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]));
}

function button(text, onclick, attributes = {}) {
  return make("button", {type: "button", onclick, ...attributes}, text);
}

/** A labelled select. `options`: values, or pairs of value and text. */
function select(label, options, onchange) {
  const items = options.map((each) => (Array.isArray(each) ? each : [each, each]));
  const element = make(
      "select", {onchange: () => onchange(element.value)}, items.map(([value, text]) => make("option", {value}, text)));
  return make("label", {class: "field"}, make("span", {}, label), element);
}

/** Works from a file as well, where a browser may refuse the clipboard's own interface. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", {});
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function copyButton(text, label = "Copy") {
  const element = button(label, async () => {
    element.textContent = (await copy(typeof text === "function" ? text() : text)) ? "Copied" : "Press Ctrl-C";
    setTimeout(() => {
      element.textContent = label;
    }, 1500);
  }, {class: "copy"});
  return element;
}

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], {type}));
  make("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** RFC 4180. Empty for what is not known. */
function csv(columns, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll("\"", "\"\"")}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}

/** Buttons that save rows, which `rows` makes: objects with the same keys. */
function exportButtons(stem, what, rows) {
  const plain = (value) => (typeof value === "number" && !Number.isFinite(value) ? (Number.isNaN(value) ? "nan" :
                                                                                           value > 0    ? "inf" :
                                                                                                          "-inf") :
                                                                                   value);
  const records = () =>
      rows().map((row) => Object.fromEntries(Object.entries(row).map(([key, value]) => [key, plain(value)])));
  return make("span", {class: "exports"},
      button("CSV",
          () => {
            const all = records();
            const columns = Object.keys(all[0] ?? {});
            save(`${stem}.csv`, "text/csv", csv(columns, all.map((row) => columns.map((key) => row[key]))));
          },
          {class: "small", "aria-label": `Save ${what} as CSV`}),
      button("JSON", () => save(`${stem}.json`, "application/json", JSON.stringify(records(), null, 1)),
          {class: "small", "aria-label": `Save ${what} as JSON`}));
}

/** One choice of several; `onchange` gets its number. */
function choice(label, names, onchange) {
  const buttons = names.map((name, chosen) => button(name, () => {
    buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(i === chosen)));
    onchange(chosen);
  }, {"aria-pressed": String(chosen === 0)}));
  return make("div", {class: "switch", role: "group", "aria-label": label}, buttons);
}

/** Calls `redraw` when the element's width changes, and when the theme does: paper is light. */
function keepDrawn(element, redraw) {
  let width = -1;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    redraw();
  }).observe(element);
  for (const theme of ["(prefers-color-scheme: dark)", "print"]) matchMedia(theme).addEventListener("change", redraw);
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** "10⁻⁷", or the number itself where it is near 1. */
function raisedText(base, exponent) {
  if (base === 10 && exponent >= -1 && exponent <= 1) return short(10 ** exponent);
  return base + [...String(exponent)].map((digit) => (digit === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])).join("");
}
