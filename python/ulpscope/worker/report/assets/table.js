// A table of many rows: searched, filtered, sorted and shown by the page.

/**
 * columns: {key, title, cell(row) -> nodes, value(row) -> what it sorts by (absent: it does not), numeric}
 * filters: {title, all, options(rows) -> values or pairs, has(row, value)}; `shown`: the value that holds at first
 * detail(row) -> an element below the row, or null. label: what the rows are ("layer"). text(row): what is searched.
 */
class Table {
  constructor(
      place, rows, {columns, filters = [], text, label, detail = null, record, stem, size = 10, onpick = null}) {
    Object.assign(this,
        {rows, columns, text, label, detail, onpick, size, filters, page: 0, query: "", sort: null, open: new Set()});
    this.texts = new Map(rows.map((row) => [row, text(row).toLowerCase()]));
    this.chosen = filters.map((filter) => filter.shown ?? "");
    this.status = make("p", {class: "status", role: "status"});
    this.heads = columns.map((column) => this.makeHead(column));
    this.body = make("tbody", {});
    const table = make("table", {class: "rows"}, make("thead", {}, make("tr", {}, this.heads)), this.body);
    this.pager = make("div", {class: "pager"});
    this.search = make("input", {
      type: "search",
      placeholder: "Names, reasons, …",
      oninput: () => {
        this.query = this.search.value.trim().toLowerCase();
        this.page = 0;
        this.show();
      },
    });
    this.selects = filters.map((filter, i) => select(filter.title, this.options(filter), (value) => {
      this.chosen[i] = value;
      this.page = 0;
      this.show();
    }));
    filters.forEach((filter, i) => {
      this.selects[i].querySelector("select").value = this.chosen[i];
    });
    const searchField = make("label", {class: "field wide"}, make("span", {}, "Search"), this.search);
    const exports = exportButtons(stem, `the ${label}s that are shown`, () => this.found.map(record));
    place.append(make("div", {class: "tools"}, searchField, this.selects),
        make("div", {class: "line"}, this.status, exports), table, this.pager);
    this.show();
    // Paper has no pages to turn: all that was found is printed, up to some hundreds.
    addEventListener("beforeprint", () => this.show(500));
    addEventListener("afterprint", () => this.show());
  }

  options(filter) {
    const values = filter.options(this.rows);
    return filter.all ? [["", filter.all], ...values.map((each) => (Array.isArray(each) ? each : [each, each]))] :
                        values;
  }

  makeHead(column) {
    const attributes = {scope: "col", class: column.numeric ? "num" : null};
    if (!column.value) return make("th", attributes, column.title);
    const head = make("th", {...attributes, "aria-sort": "none"}, button(column.title, () => {
      const down = this.sort?.column === column ? !this.sort.down : Boolean(column.numeric);
      this.sort = {column, down};
      this.page = 0;
      this.show();
    }));
    return head;
  }

  find() {
    const words = this.query.split(/\s+/).filter(Boolean);
    const active = this.filters.map((filter, i) => [filter, this.chosen[i]]).filter(([, value]) => value !== "");
    const found = this.rows.filter((row) => words.every((word) => this.texts.get(row).includes(word)) &&
            active.every(([filter, value]) => filter.has(row, value)));
    if (!this.sort) return found;
    const {column, down} = this.sort;
    const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
    return found.map((row) => [column.value(row), row])
        .sort(([a], [b]) => {
          // What is not known comes last either way.
          if (!known(a) || !known(b)) return known(b) - known(a);
          const order = typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a < b ? -1 : a > b ? 1 : 0;
          return down ? -order : order;
        })
        .map(([, row]) => row);
  }

  show(size = this.size) {
    this.found = this.find();
    const pages = Math.max(1, Math.ceil(this.found.length / size));
    this.page = Math.min(this.page, pages - 1);
    const from = size === this.size ? this.page * size : 0;
    const rows = this.found.slice(from, from + size);
    this.body.replaceChildren(...rows.flatMap((row) => this.makeRow(row)));
    if (!rows.length)
      this.body.append(
          make("tr", {}, make("td", {colspan: this.columns.length, class: "empty"}, `No ${this.label} fits.`)));
    this.status.textContent = this.found.length ?
        `${(from + 1).toLocaleString("en")}–${(from + rows.length).toLocaleString("en")} of ${
            plural(this.found.length, this.label)}` :
        `0 ${this.label}s`;
    this.heads.forEach((head, i) => {
      if (head.hasAttribute("aria-sort"))
        head.setAttribute("aria-sort",
            this.sort?.column === this.columns[i] ? (this.sort.down ? "descending" : "ascending") : "none");
    });
    this.showPager(pages);
  }

  showPager(pages) {
    const step = (name, text, page) => button(text, () => {
      this.page = page;
      this.show();
      const same = this.pager.querySelector(`[data-turn="${name}"]`);
      if (same && !same.disabled) same.focus({preventScroll: true});
    }, {
      "data-turn": name,
      class: "small",
      disabled: page < 0 || page >= pages || page === this.page,
      "aria-label": `${name} page`
    });
    this.pager.hidden = pages === 1;
    this.pager.replaceChildren(step("first", "«", 0), step("previous", "‹ Previous", this.page - 1),
        make("span", {}, `Page ${this.page + 1} of ${pages}`), step("next", "Next ›", this.page + 1),
        step("last", "»", pages - 1));
  }

  makeRow(row) {
    const open = this.open.has(row);
    const cells = this.columns.map((column, i) => {
      let content = column.cell(row);
      if (i === 0 && this.detail) {
        content = [
          button("", () => this.toggle(row), {class: "more", "aria-expanded": String(open)}), make("div", {}, content)
        ];
        content[0].setAttribute("aria-label", `Details of ${this.text(row)}`.slice(0, 120));
      }
      return make("td",
          {"data-label": i ? column.title : null,
            class: column.numeric ? "num" :
                i === 0           ? "first" :
                                    null},
          make("div", {}, content));
    });
    const line = make("tr", {class: row === this.current ? "current" : null}, cells);
    if (this.detail) {
      line.addEventListener("click", (event) => {
        if (!event.target.closest("button, a, input") && !getSelection().toString()) this.toggle(row);
      });
    }
    return open ? [line, make("tr", {class: "detail"}, make("td", {colspan: this.columns.length}, this.detail(row)))] :
                  [line];
  }

  toggle(row) {
    if (!this.open.delete(row)) this.open.add(row);
    const at = [...this.body.querySelectorAll(".more")].indexOf(document.activeElement);
    if (this.onpick) this.onpick(row);
    this.show();
    if (at >= 0) this.body.querySelectorAll(".more")[at]?.focus({preventScroll: true});
  }

  /** Turns to the page of a row, if the filters let it through. */
  reveal(row) {
    this.current = row;
    const at = this.found.indexOf(row);
    if (at >= 0) this.page = Math.floor(at / this.size);
    this.show();
  }
}
