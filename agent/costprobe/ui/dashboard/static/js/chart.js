// An accessible chart: lines, a slider with a readout for keyboard use, and a table of the values.

import { el, show, svg, table } from "./dom.js";
import { axisMoments, moment, number } from "./format.js";

const COLOURS = 8;
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const TABLE_ROWS = 400;
const HEIGHT = 280;
const LABEL_PX = 30;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dashOf = (index) => DASHES[Math.floor(index / COLOURS) % DASHES.length];

/** A chart in an element of the page; `draw` may be called repeatedly. */
export class Chart {
  constructor(place, name) {
    this.place = place;
    this.name = name;
    this.plot = null;
    this.hidden = new Set();
    this.data = null;
    this.shown = null;
    this.canvas = el("div", { class: "canvas", role: "img", "aria-label": name });
    this.legend = el("ul", { class: "legend" });
    this.readout = el("output", { class: "readout", for: `${place.id}-scrub` });
    this.scrub = el("input", {
      type: "range", id: `${place.id}-scrub`, min: 0, max: 0, step: 1,
      oninput: () => this.moveTo(Number(this.scrub.value)),
    });
    this.rows = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${name}, as a table` });
    this.details = el("details", {}, el("summary", {}, `${name}, as a table`), this.rows);
    this.details.addEventListener("toggle", () => this.fillTable());
    this.scrubBox = el("div", { class: "scrub" },
      el("label", { for: `${place.id}-scrub` }, "Step through"), this.scrub);
    this.empty = el("p", { class: "muted" }, "no data yet");
    place.replaceChildren(this.empty, this.canvas, this.legend, this.scrubBox, this.readout, this.details);
    new ResizeObserver(() => this.resize()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  /**
   * Draws series over a common axis.
   * data: { xs, series: [{ name, values, lows?, highs?, scale?, write }], marks, summary,
   *         writeX, labelX?, axes: [{ scale, label, write, side }], time, heads, table, none }
   */
  draw(data) {
    this.data = data;
    const isEmpty = data.series.length === 0;
    this.empty.hidden = !isEmpty;
    this.empty.textContent = data.none;
    for (const part of [this.canvas, this.legend, this.scrubBox, this.readout, this.details]) {
      part.hidden = isEmpty;
    }
    this.canvas.setAttribute("aria-label", `${this.name}: ${data.summary}`);
    this.scrub.max = Math.max(0, data.xs.length - 1);
    this.scrub.setAttribute("aria-valuetext", this.at(Number(this.scrub.value)));
    this.fillLegend();
    this.fillTable();
    this.redraw();
    // The readout keeps its time if it still exists, and is not announced again.
    if (this.shown && data.xs[this.shown.index] === this.shown.x) this.read(this.shown.index);
  }

  redraw() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.data || this.data.series.length === 0) return;
    const { xs, series } = this.data;
    this.plot = new uPlot(this.options(), [xs, ...series.map((one) => one.values)], this.canvas);
  }

  options() {
    const { series, axes, time, writeX, logX } = this.data;
    const grid = { stroke: colour("--grid"), width: 1 };
    const plain = { stroke: colour("--muted"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const scales = { x: { time, distr: logX ? 3 : 1, log: 2 } };
    for (const axis of axes) scales[axis.scale] = { range: axis.range };
    return {
      width: this.width(), height: HEIGHT, scales, legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      axes: [
        { ...plain, ...(time ? { values: (_, splits, at, space, step) => axisMoments(splits, step) } : this.ownAxis(writeX)) },
        ...axes.map((axis) => ({
          ...plain, scale: axis.scale, side: axis.side ?? 3, size: 84, label: axis.label,
          labelFont: "12px system-ui, sans-serif", labelSize: 18,
          ...(axis.side === 1 ? { grid: { show: false } } : {}),
          values: (_, splits) => splits.map((value) => axis.write(value)),
        })),
      ],
      series: [{}, ...series.map((one, index) => ({
        label: one.name, scale: one.scale ?? "y", show: !this.hidden.has(one.name),
        stroke: colour(`--s${index % COLOURS}`), dash: dashOf(index), width: 2, spanGaps: true,
        points: { show: one.values.filter((value) => value !== null).length < 80, size: 6 },
      }))],
      hooks: {
        draw: [(plot) => drawMarks(plot, this.data.marks ?? [])],
        setCursor: [(plot) => { if (plot.cursor.idx !== null) this.read(plot.cursor.idx); }],
      },
    };
  }

  /** An axis with a tick at each value, and a number where there is space. */
  ownAxis(writeX) {
    const roomy = (plot, splits) => {
      let right = -Infinity;
      return splits.map((value) => {
        const left = plot.valToPos(value, "x");
        if (left - right < LABEL_PX) return null;
        right = left;
        return value;
      });
    };
    return {
      label: this.data.labelX, labelFont: "12px system-ui, sans-serif", labelSize: 18,
      splits: () => this.data.xs, filter: roomy,
      values: (_, splits) => splits.map((value) => (value === null ? "" : writeX(value))),
    };
  }

  width() {
    return Math.max(240, this.place.clientWidth - 22);
  }

  resize() {
    if (this.plot && this.plot.width !== this.width()) {
      this.plot.setSize({ width: this.width(), height: HEIGHT });
    }
  }

  at(index) {
    const { xs, series, writeX, labelX } = this.data;
    if (xs[index] === undefined) return "";
    const values = series
      .filter((one) => !this.hidden.has(one.name) && one.values[index] !== null && one.values[index] !== undefined)
      .map((one) => `${one.name} ${one.write(one.values[index])}`);
    return [`${labelX ?? ""} ${writeX(xs[index])}`.trim(), ...values].join(" · ");
  }

  read(index) {
    this.shown = { index, x: this.data.xs[index] };
    const text = this.at(index);
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  moveTo(index) {
    this.read(index);
    this.scrub.setAttribute("aria-valuetext", this.at(index));
    if (!this.plot) return;
    const left = this.plot.valToPos(this.data.xs[index], "x");
    this.plot.setCursor({ left, top: 10 }, false);
  }

  fillLegend() {
    const lines = this.data.series.map((one, index) => el("li", {}, el("button", {
      type: "button",
      "aria-pressed": String(!this.hidden.has(one.name)),
      onclick: (pressed) => this.toggle(one.name, index, pressed.currentTarget),
    }, svg("svg", { "aria-hidden": "true", viewBox: "0 0 26 8" }, svg("line", {
      class: `c${index % COLOURS}`, x1: 0, x2: 26, y1: 4, y2: 4, "stroke-width": 3,
      "stroke-dasharray": dashOf(index).join(" ") || null,
    })), one.name)));
    // Buttons of unchanged names are kept, so that they keep the focus.
    if (this.legend.textContent !== this.data.series.map((one) => one.name).join("")) {
      this.legend.replaceChildren(...lines);
    }
  }

  toggle(name, index, button) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    const isShown = !this.hidden.has(name);
    button.setAttribute("aria-pressed", String(isShown));
    this.plot?.setSeries(index + 1, { show: isShown });
  }

  fillTable() {
    if (!this.details.open || !this.data) return;
    const rows = this.data.table();
    const left = rows.length - TABLE_ROWS;
    const note = left > 0 ? `the newest ${TABLE_ROWS} of ${rows.length} rows` : `${rows.length} rows`;
    show(this.rows, table(`${this.name}: ${note}`, this.data.heads, rows.slice(0, TABLE_ROWS)));
  }
}

function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.font = `bold ${11 * devicePixelRatio}px system-ui, sans-serif`;
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.x, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = colour(`--m-${mark.kind}`) || colour("--muted");
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(mark.letter, x + 3 * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
  }
  ctx.restore();
}

/** Series of a response of `/api/trend` on a common time axis in seconds. */
export function aligned(answer, factor) {
  const times = [...new Set(answer.series.flatMap((one) => one.times_ms))].sort((a, b) => a - b);
  const place = new Map(times.map((time, index) => [time, index]));
  const columns = answer.series.map((one) => {
    const values = new Array(times.length).fill(null);
    one.times_ms.forEach((time, index) => { values[place.get(time)] = one.values[index] * factor; });
    return values;
  });
  return { xs: times.map((time) => time / 1000), columns };
}

/** Rows of the table of a trend, newest first. */
export function trendRows(answer, names, write) {
  return answer.series
    .flatMap((one, index) => one.times_ms.map((time, at) => ({ time, at, one, name: names[index] })))
    .sort((a, b) => b.time - a.time)
    .map(({ time, at, one, name }) => [
      moment(time), name, write(one.values[at]),
      one.lows[at] === one.highs[at] ? "" : `${write(one.lows[at])} to ${write(one.highs[at])}`,
    ]);
}

export const plainNumber = (value) => number(value);
