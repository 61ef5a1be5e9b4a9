// The legend of a chart: a button for each line, which shows or hides it. Shown lines have distinct looks.

import { colour, el, svg } from "./dom.js";

const COLOURS = 8;
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

export class Legend {
  /** onToggle(names of the shown lines); onEmphasis(index of a line, or null). */
  constructor({ onToggle, onEmphasis }) {
    this.onToggle = onToggle;
    this.onEmphasis = onEmphasis;
    this.slots = new Map();
    this.shown = new Set();
    this.outliers = new Set();
    this.names = [];
    this.key = "";
    this.buttons = new Map();
    this.list = el("ul", { class: "legend" });
    this.others = el("ul", { class: "legend" });
    this.summary = el("summary", {});
    this.more = el("details", {}, this.summary, this.others);
    this.box = el("div", {}, this.list, this.more);
  }

  /**
   * Show the lines of a chart; `first` are listed before the others.
   * Buttons of unchanged names are kept, so that they keep the focus.
   */
  fill(series, shown, first) {
    this.shown = new Set(shown);
    this.outliers = new Set(series.filter((one) => one.isOutlier).map((one) => one.name));
    this.assign();
    const names = series.map((one) => one.name);
    const key = JSON.stringify([names, first]);
    if (key !== this.key) {
      this.key = key;
      this.names = names;
      const isFirst = new Set([...first, ...shown]);
      this.buttons = new Map(names.map((name, index) => [name, this.button(name, index)]));
      const items = names.map((name) => [name, el("li", {}, this.buttons.get(name))]);
      this.list.replaceChildren(...items.filter(([name]) => isFirst.has(name)).map(([, item]) => item));
      this.others.replaceChildren(...items.filter(([name]) => !isFirst.has(name)).map(([, item]) => item));
    }
    const count = this.others.childElementCount;
    this.more.hidden = count === 0;
    this.summary.textContent = `${count} more`;
    for (const { name, last } of series) this.buttons.get(name).querySelector("span").textContent = last ?? "";
    this.refresh();
  }

  button(name, index) {
    const made = el("button", { type: "button", onclick: () => this.toggle(name) },
      svg("svg", { "aria-hidden": "true" }), name, el("span", { class: "muted" }));
    const emphasise = () => { if (this.isShown(name)) this.onEmphasis(index); };
    for (const event of ["pointerenter", "focus"]) made.addEventListener(event, emphasise);
    for (const event of ["pointerleave", "blur"]) made.addEventListener(event, () => this.onEmphasis(null));
    return made;
  }

  toggle(name) {
    if (!this.shown.delete(name)) this.shown.add(name);
    this.assign();
    this.refresh();
    this.onToggle(this.names.filter((one) => this.shown.has(one)));
  }

  refresh() {
    for (const [name, button] of this.buttons) {
      button.setAttribute("aria-pressed", String(this.isShown(name)));
      button.querySelector("svg").replaceWith(this.swatch(name));
    }
  }

  isShown(name) {
    return this.shown.has(name);
  }

  /** Each shown line has a look of its own, which it keeps while it is shown. */
  assign() {
    for (const name of this.slots.keys()) if (!this.shown.has(name)) this.slots.delete(name);
    const used = new Set(this.slots.values());
    let free = 0;
    for (const name of this.shown) {
      if (this.slots.has(name)) continue;
      while (used.has(free)) free += 1;
      used.add(free);
      this.slots.set(name, free);
    }
  }

  variableOf(name) {
    if (this.outliers.has(name)) return "--bad";
    return `--s${(this.slots.get(name) ?? 0) % COLOURS}`;
  }

  dashOf(name) {
    const outlier = [...this.outliers].indexOf(name);
    if (outlier >= 0) return DASHES[outlier % DASHES.length];
    return DASHES[Math.floor((this.slots.get(name) ?? 0) / COLOURS) % DASHES.length];
  }

  /** The look of a line, in the colour that the plot has also where the page is grey. */
  swatch(name) {
    const box = svg("svg", { "aria-hidden": "true", viewBox: "0 0 26 8", class: "swatch" });
    if (!this.slots.has(name)) return box;
    const line = svg("line", { x1: 0, x2: 26, y1: 4, y2: 4, "stroke-width": 3, "stroke-dasharray": this.dashOf(name).join(" ") || null });
    line.style.stroke = colour(this.variableOf(name));
    box.append(line);
    return box;
  }
}
