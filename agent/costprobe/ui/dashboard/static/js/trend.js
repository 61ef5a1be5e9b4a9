// The trend: its controls, its state in the address, its data, and what of them is drawn.

import { aligned, trendRows } from "./aligned.js";
import { Chart } from "./chart.js";
import { byId, show } from "./dom.js";
import { localTimes, moment } from "./format.js";
import { tableOf } from "./place.js";
import { scaled } from "./scale.js";
import { TrendControls } from "./trend_controls.js";
import { isMoving, period, rangeWords, refreshMs, withRange } from "./trend_range.js";
import { readState, writeState } from "./url_state.js";

// Pause after a load, as a multiple of its duration, to limit CPU use on the host.
const REST_FACTOR = 20;
const RETRY_MS = 15000;
const SUMMARY_LINES = 8;
const SAME_LINES = new Set(["since", "until", "at", "scale"]);

export class Trend {
  /** ask(path, signal) requests a document of the API; onLabel(label) after a choice of a label. */
  constructor(ask, onLabel) {
    this.ask = ask;
    this.onLabel = onLabel;
    this.state = readState(location.search);
    this.controls = new TrendControls((change) => this.change(change));
    this.chart = new Chart(byId("trend"), "Trend", {
      onZoom: (from, to) => this.change(withRange(from * 1000, to * 1000)),
      onSelect: (lines) => this.select(lines),
      tools: this.controls.steps((from, to) => this.move(from, to)),
    });
    this.request = null;
    this.timer = null;
    this.answer = null;
    this.chosen = { key: "", lines: [] };
    this.controls.show(this.state);
    addEventListener("popstate", () => {
      this.state = readState(location.search);
      this.controls.show(this.state);
      this.onLabel(this.state.label);
      this.load(true);
    });
    document.addEventListener("visibilitychange", () => this.plan(0));
  }

  /** A choice of the user: a new entry of the history, and a new chart. */
  change(change) {
    // Lines have the same names in another range or scale.
    const isOther = Object.keys(change).some((name) => !SAME_LINES.has(name));
    this.state = { ...this.state, lines: isOther ? null : this.state.lines, ...change };
    writeState(this.state, true);
    this.controls.show(this.state);
    if ("label" in change) this.onLabel(this.state.label);
    this.load(true);
  }

  select(lines) {
    this.state = { ...this.state, lines };
    writeState(this.state, false);
  }

  /** Move the ends of the range by shares of its length. */
  move(from, to) {
    if (!this.answer) return;
    const { since_ms: since, until_ms: until } = this.answer;
    const length = until - since;
    this.change(withRange(since + from * length, until + to * length));
  }

  /** `choices` of `/api/now`: what can be chosen, and the first load. */
  take(choices) {
    const isFirst = !this.controls.choices;
    this.controls.fill(choices, this.state);
    if (!isFirst) return;
    if (!this.state.isFieldChosen && choices.first) [this.state.field, this.state.basis = ""] = choices.first.split("&basis=");
    this.controls.show(this.state);
    this.load(true);
  }

  plan(delay) {
    clearTimeout(this.timer);
    if (this.answer && !isMoving(this.state) && delay > RETRY_MS) return;
    if (document.visibilityState === "visible" && this.controls.choices) {
      this.timer = setTimeout(() => this.load(false), delay);
    }
  }

  query() {
    const { field, basis, device, probe, service, label, scale, group } = this.state;
    const isDevice = field.startsWith("device.");
    const chosen = { field, basis, device, ...(isDevice ? {} : { probe, service }), label, scale, group };
    const given = Object.entries(chosen).filter(([, value]) => value !== "");
    return new URLSearchParams([...given, ...Object.entries(period(this.state))]);
  }

  /** The parameters of the marks: those of the chosen device and model. */
  marked() {
    const { device, probe, service } = this.state;
    return new URLSearchParams([...Object.entries({ device, probe, service }).filter(([, value]) => value), ...Object.entries(period(this.state))]);
  }

  async load(isSwitch) {
    clearTimeout(this.timer);
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    const begun = Date.now();
    if (isSwitch) this.chart.load(`Loading ${this.controls.fieldText()}…`);
    const path = `/api/trend?${this.query()}`;
    byId("trend-json").href = path;
    try {
      const [answer, marks] = await Promise.all([path, `/api/marks?${this.marked()}`].map((one) => this.ask(one, request.signal)));
      if (request !== this.request) return;
      this.answer = answer;
      this.draw(marks);
      this.plan(Math.max(refreshMs(this.state), REST_FACTOR * (Date.now() - begun)));
    } catch (error) {
      if (request !== this.request) return;
      this.answer = null;
      const text = this.state.at ? error.message.replace(/^since:/, "at:") : error.message;
      this.chart.say(`The trend is not available: ${text}`, true);
      this.showMarks([]);
      if (error.status !== 400) this.plan(RETRY_MS);
    }
  }

  draw({ marks, table }) {
    const { answer, state } = this;
    const names = answer.series.map(({ name }) => name);
    const first = names.filter((_, index) => answer.series[index].is_first);
    const { lines, axis } = scaled(answer);
    const { xs, columns } = aligned(answer.series, lines);
    const key = `${this.query()}\n${names.join("\n")}`;
    if (this.chosen.key !== key) this.chosen = { key, lines: first };
    const shown = (state.lines ?? this.chosen.lines).filter((name) => names.includes(name));
    const words = rangeWords(state);
    const placed = marks.map((mark) => ({ ...mark, x: mark.time_ms / 1000, end: mark.end_ms && mark.end_ms / 1000 }));
    this.showMarks(placed, table);
    this.chart.draw({
      xs, time: true, logX: false, range: [answer.since_ms / 1000, answer.until_ms / 1000],
      writeX: (seconds) => moment(seconds * 1000),
      series: lines.map((line, index) => ({
        name: names[index], ...line, ...columns[index], scale: "y",
        last: line.brief(line.values.at(-1)), isOutlier: answer.series[index].outlier,
      })),
      lines: shown.length ? shown : this.chosen.lines, first: this.chosen.lines,
      axes: [{ scale: "y", ...axis }], marks: placed, unit: answer.unit,
      note: [...(state.lines ? [] : [answer.first_note]), ...answer.notes].filter(Boolean).map(localTimes).join(" "),
      summary: [`${answer.label} over ${words}`,
        ...lines.slice(0, SUMMARY_LINES).map((line, index) => `${names[index]} ${line.write(line.values.at(-1))}`)].join("; "),
      table: () => ({ heads: ["Time", "Series", `#${answer.label}`, "#Least to greatest"], rows: trendRows(answer.series, lines, names) }),
      none: answer.none.replace("{range}", words),
    });
  }

  showMarks(marks, table) {
    byId("marks-box").hidden = marks.length === 0;
    byId("marks-count").textContent = String(marks.length);
    show(byId("marks"), table ? tableOf(table) : null);
  }
}
