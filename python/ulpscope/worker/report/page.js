"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("charts").textContent);
  const touch = matchMedia("(pointer: coarse)").matches;
  const drawn = new Set();

  /** A copy of a figure with colors in place of "var(--name)". */
  function colored(value, style) {
    if (typeof value === "string") {
      return value.startsWith("var(--") ? style.getPropertyValue(value.slice(4, -1)).trim() : value;
    }
    if (Array.isArray(value)) return value.map((each) => colored(each, style));
    if (value && typeof value === "object") {
      if ("bdata" in value) return { ...value };
      return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, colored(each, style)]));
    }
    return value;
  }

  function draw(place) {
    const figure = colored(figures[place.dataset.chart], getComputedStyle(document.documentElement));
    // Fingers scroll the page; the buttons of the chart zoom.
    if (touch) figure.layout.dragmode = false;
    // What was zoomed into stays so when the theme changes.
    figure.layout.uirevision = "same";
    const config = {
      responsive: true,
      displaylogo: false,
      // Small charts have nothing to zoom into.
      displayModeBar: figure.layout.height < 300 ? false : touch ? true : "hover",
      modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    };
    Plotly.react(place, figure.data, figure.layout, config);
    drawn.add(place);
  }

  // Charts are drawn when they come near, since a page may have hundreds.
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "400px 0px" });
  for (const place of document.querySelectorAll(".chart")) watch.observe(place);

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));

  for (const views of document.querySelectorAll(".views")) {
    const buttons = [...views.querySelectorAll(".switch button")];
    const bodies = [...views.querySelectorAll(".view")];
    buttons.forEach((button, chosen) => button.addEventListener("click", () => {
      buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(i === chosen)));
      bodies.forEach((each, i) => { each.hidden = i !== chosen; });
    }));
  }

  for (const button of document.querySelectorAll(".more")) {
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      button.closest("tbody").querySelector(".detail").hidden = !open;
    });
  }

  /** Works from a file as well, where a browser may refuse the clipboard's own interface. */
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const done = await copy(button.closest(".command").querySelector("code").textContent);
      button.textContent = done ? "Copied" : "Press Ctrl-C";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
})();
