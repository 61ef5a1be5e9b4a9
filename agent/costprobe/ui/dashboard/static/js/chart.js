// An accessible chart: lines with a tooltip, a slider that steps through them, and a table of the values.

import { colour, el, show } from "./dom.js";
import { Legend } from "./legend.js";
import { drawMarks, MarkStrip } from "./marks.js";
import { tableOf } from "./place.js";
import { chartOptions } from "./plot_options.js";
import { Tip } from "./tip.js";

const TABLE_ROWS = 400;
// Lines of the tooltip, below its head.
const TIP_LINES = 5;
const HEIGHT = 280;
// Most positions of the slider.
const STEPS = 200;
// A drag over fewer pixels is a click.
const DRAG_PX = 8;
// A sample further from the pointer than this share of the range is not its value.
const NEAR_SHARE = 0.04;

const isKnown = (value) => value !== null && value !== undefined;

/**
 * A chart in an element of the page; `draw` may be called repeatedly.
 * options: onZoom(from, to) after a drag, onSelect(names) after a choice of lines, tools: elements above
 */
export class Chart {
  constructor(place, name, { onZoom = null, onSelect = () => {}, tools = [] } = {}) {
    this.place = place;
    this.name = name;
    this.onZoom = onZoom;
    this.plot = null;
    this.data = null;
    this.canvas = el("div", { class: "canvas", role: "img", "aria-label": name });
    this.frame = el("div", { class: "frame" });
    this.tip = new Tip(this.frame);
    this.strip = new MarkStrip(this.tip);
    this.frame.prepend(this.strip.row, this.canvas);
    this.tools = el("div", { class: "tools" }, tools);
    this.legend = new Legend({
      onToggle: (names) => { this.redraw(); onSelect(names); },
      onEmphasis: (index) => this.plot?.setSeries(index === null ? null : index + 1, { focus: index !== null }),
    });
    this.scrub = el("input", {
      type: "range", id: `${place.id}-scrub`, min: 0, max: 0, step: 1,
      oninput: () => this.moveTo(Number(this.scrub.value)),
    });
    this.scrub.addEventListener("blur", () => this.tip.hide());
    this.scrub.addEventListener("keydown", (event) => { if (event.key === "Escape") this.tip.hide(); });
    this.scrubBox = el("div", { class: "scrub" },
      el("label", { for: `${place.id}-scrub` }, "Step through"), this.scrub);
    this.rows = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${name}, as a table` });
    this.details = el("details", {}, el("summary", {}, `${name}, as a table`), this.rows);
    this.details.addEventListener("toggle", () => this.fillTable());
    this.message = el("p", { class: "message muted", role: "status" });
    this.parts = [this.tools, this.frame, this.legend.box, this.scrubBox, this.details];
    place.replaceChildren(this.message, ...this.parts);
    this.say("Loading…", false);
    new ResizeObserver(() => this.resize()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.legend.refresh();
      this.redraw();
    });
  }

  /** A text instead of the chart; its controls are hidden with it. */
  say(text, isBad) {
    this.data = null;
    this.redraw();
    this.tell(text, isBad);
    for (const part of this.parts) part.hidden = true;
    this.place.removeAttribute("aria-busy");
  }

  /** A text above the chart; "" for none. */
  tell(text, isBad = false) {
    if (this.message.textContent !== text) this.message.textContent = text;
    this.message.className = `message ${isBad ? "bad" : "muted"}`;
    this.message.hidden = !text;
  }

  /** Another chart is being loaded: values of the present one are not shown any more. */
  load(text) {
    this.tell(text);
    this.tip.hide();
    this.place.setAttribute("aria-busy", "true");
    this.scrub.value = 0;
    this.scrub.removeAttribute("aria-valuetext");
    this.scrubBox.hidden = true;
  }

  /**
   * Draws series over a common axis.
   * data: { xs, series: [{ name, values, lows?, highs?, scale?, write, last? }], marks, summary, note, lines,
   *         writeX, labelX?, axes: [{ scale, label, write, side, range }], time, table, none }
   * lines: names of the shown lines, and `first` of those listed first; without them all.
   */
  draw(data) {
    if (data.series.length === 0) {
      this.say(data.none, false);
      return;
    }
    this.data = data;
    for (const part of this.parts) part.hidden = false;
    this.tools.hidden = this.tools.childElementCount === 0;
    this.place.removeAttribute("aria-busy");
    this.tell(data.note ?? "");
    this.canvas.setAttribute("aria-label", `${this.name}: ${data.summary}`);
    this.scrub.max = Math.min(STEPS, data.xs.length - 1);
    const names = data.series.map((one) => one.name);
    this.legend.fill(data.series, data.lines ?? names, data.first ?? names);
    this.scrub.setAttribute("aria-valuetext", this.at(this.indexOf(Number(this.scrub.value))));
    this.fillTable();
    this.redraw();
    if (document.activeElement === this.scrub && !this.tip.box.hidden) this.moveTo(Number(this.scrub.value));
  }

  redraw() {
    const { left = -1, top = 0 } = this.plot?.cursor ?? {};
    this.plot?.destroy();
    this.plot = null;
    this.strip.key = "";
    if (!this.data) return;
    const { xs, series } = this.data;
    const columns = series.map((one) => one.values);
    const options = chartOptions(this.data, this.legend, { width: this.width(), height: HEIGHT, isZoomable: this.onZoom !== null });
    options.hooks = {
      draw: [(plot) => this.mark(plot)],
      setCursor: [(plot) => this.point(plot)],
      setSelect: [(plot) => this.zoom(plot)],
    };
    this.plot = new uPlot(options, [xs, ...columns], this.canvas);
    // The tooltip under a resting pointer has the new values.
    if (left >= 0) this.plot.setCursor({ left, top });
  }

  mark(plot) {
    const marks = this.data?.marks ?? [];
    drawMarks(plot, marks, colour);
    this.strip.row.hidden = marks.length === 0;
    if (marks.length) this.strip.place(plot, marks);
  }

  zoom(plot) {
    const { left, width } = plot.select;
    if (width === 0) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (width >= DRAG_PX) this.onZoom?.(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  width() {
    return Math.max(240, this.place.clientWidth - 22);
  }

  resize() {
    if (this.plot && this.plot.width !== this.width()) {
      this.plot.setSize({ width: this.width(), height: HEIGHT });
    }
  }

  /** The index of the data of a position of the slider. */
  indexOf(position) {
    const last = this.data.xs.length - 1;
    return last > STEPS ? Math.round((position / STEPS) * last) : position;
  }

  /** The shown lines with their values at or near an index, the greatest first. */
  valuesAt(index) {
    const { xs, series } = this.data;
    const reach = (xs.at(-1) - xs[0]) * NEAR_SHARE;
    return series
      .filter((one) => this.legend.isShown(one.name))
      .map((one) => ({ one, ...nearest(one, xs, index, reach) }))
      .filter(({ value }) => isKnown(value))
      .sort((a, b) => b.value - a.value);
  }

  headAt(index) {
    const { xs, writeX, labelX } = this.data;
    return `${labelX ?? ""} ${writeX(xs[index])}`.trim();
  }

  at(index) {
    if (this.data.xs[index] === undefined) return "";
    const values = this.valuesAt(index).map(({ one, text }) => `${one.name} ${text}`);
    return [this.headAt(index), ...values].join(" · ");
  }

  point(plot) {
    const { idx, left, top } = plot.cursor;
    const isBusy = this.place.hasAttribute("aria-busy");
    if (!isKnown(idx) || left < 0 || isBusy) {
      // A pointer that leaves, as when the focus scrolls the page, does not hide the values of the slider.
      const isStepping = document.activeElement === this.scrub && !isBusy;
      if (!isStepping && !this.tip.box.classList.contains("still")) this.tip.hide();
      return;
    }
    const values = this.valuesAt(idx);
    const rest = values.length - TIP_LINES;
    // The unit once, in the head; outliers first.
    const rows = values.sort((a, b) => Number(b.one.isOutlier ?? false) - Number(a.one.isOutlier ?? false)).slice(0, TIP_LINES).map(({ one, brief }) => el("tr", {},
      el("td", {}, this.legend.swatch(one.name)), el("td", {}, one.name), el("td", { class: "n" }, brief)));
    if (rows.length === 0) {
      this.tip.hide();
      return;
    }
    const box = plot.over;
    const content = [el("p", { class: "muted" }, [this.headAt(idx), this.data.unit, rest > 0 ? `and ${rest} more` : ""].filter(Boolean).join(", ")), el("table", {}, el("tbody", {}, rows))];
    this.tip.show(box.offsetLeft + left, box.offsetTop + top, content, false);
  }

  moveTo(position) {
    if (!this.data) return;
    const index = this.indexOf(position);
    this.scrub.setAttribute("aria-valuetext", this.at(index));
    if (this.plot) this.plot.setCursor({ left: this.plot.valToPos(this.data.xs[index], "x"), top: 10 });
  }

  fillTable() {
    if (!this.details.open || !this.data) return;
    const { heads, rows } = this.data.table();
    const left = rows.length - TABLE_ROWS;
    const note = left > 0 ? `the newest ${TABLE_ROWS} of ${rows.length} rows` : `${rows.length} rows`;
    show(this.rows, tableOf({ caption: `${this.name}: ${note}`, heads, rows: rows.slice(0, TABLE_ROWS) }));
  }
}

/** The value of a series at an index or the nearest within a distance, and its text; empty in a gap. */
function nearest({ values, write, brief = write }, xs, index, reach) {
  const isNear = (at) => xs[at] !== undefined && Math.abs(xs[at] - xs[index]) <= reach;
  for (let step = 0; isNear(index - step) || isNear(index + step); step += 1) {
    const at = [index - step, index + step].find((one) => isNear(one) && values[one] !== undefined);
    if (at === undefined) continue;
    if (values[at] === null) return {};
    return { value: values[at], text: write(values[at], at), brief: brief(values[at], at) };
  }
  return {};
}
