// The trend: its controls, its state in the address, its data, and what of them is drawn.

import { aligned, trendRows } from "./aligned.js";
import { Chart } from "./chart.js";
import { byId, el, show, table } from "./dom.js";
import { moment, plural, seriesNames } from "./format.js";
import { letterOf, marksOf } from "./marks.js";
import { scaled } from "./scale.js";
import { TrendControls } from "./trend_controls.js";
import { isMoving, period, rangeWords, refreshMs, withRange } from "./trend_range.js";
import { readState, writeState } from "./url_state.js";

// More lines cannot be told apart; others are chosen in the legend.
const LINES_SHOWN = 8;
// Pause after a load, as a multiple of its duration, to limit CPU use on the host.
const REST_FACTOR = 20;
const RETRY_MS = 15000;
const SUMMARY_LINES = 8;
const FIRST = ["cost.cost_reference&basis=probe", "cost.cost_per_inference&basis=probe", "cost.cost_per_million_tokens_out",
  "cost.cost_per_inference&basis=serving", "probe.latency_p50_ms", "device.power_w"];
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
    // The first that the host has: cost at constant price of its probes, cost of a token or an inference of its services.
    const found = FIRST.find((value) => choices.fields.includes(value));
    if (!this.state.isFieldChosen && found) [this.state.field, this.state.basis = ""] = found.split("&basis=");
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

  async load(isSwitch) {
    clearTimeout(this.timer);
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    const begun = Date.now();
    const label = this.controls.fieldText();
    if (isSwitch) this.chart.load(`Loading ${label}…`);
    const span = new URLSearchParams(period(this.state));
    const path = `/api/trend?${this.query()}`;
    byId("trend-json").href = path;
    try {
      const [answer, events, incidents] = await Promise.all(
        [path, `/api/marks?${span}`, `/api/incidents?${span}`].map((one) => this.ask(one, request.signal)));
      if (request !== this.request) return;
      this.answer = answer;
      this.draw(label, marksOf(events.marks, incidents.incidents).filter((mark) => this.isMatching(mark)));
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

  /** Whether a mark is of the chosen device, model and label, or of all of them. */
  isMatching({ tags }) {
    return ["device", "probe", "service"].every((tag) => !this.state[tag] || !tags[tag] || tags[tag] === this.state[tag]);
  }

  draw(label, marks) {
    const { answer, state } = this;
    const names = lineNames(answer.series, state.group);
    const { lines, axis } = scaled(answer, state.field, label, this.controls.unit());
    const { xs, columns } = aligned(answer.series, lines);
    const key = `${this.query()}\n${names.join("\n")}`;
    if (this.chosen.key !== key) this.chosen = { key, lines: mostChanged(names, lines) };
    const shown = (state.lines ?? this.chosen.lines).filter((name) => names.includes(name));
    const words = rangeWords(state);
    this.showMarks(marks);
    this.chart.draw({
      xs, time: true, logX: false, range: [answer.since_ms / 1000, answer.until_ms / 1000],
      writeX: (seconds) => moment(seconds * 1000),
      series: lines.map((line, index) => ({
        name: names[index], ...line, ...columns[index], scale: "y",
        last: line.brief(line.values.at(-1)), isOutlier: answer.series[index].outlier,
      })),
      lines: shown.length ? shown : this.chosen.lines, first: this.chosen.lines,
      axes: [{ scale: "y", ...axis }], marks, unit: answer.scale === "change" ? "" : axis.unit ?? axis.label,
      note: notesOf(answer, names, this.chosen.lines, state).join(" "),
      summary: [`${label} over ${words}`, plural(marks.length, "mark"),
        ...lines.slice(0, SUMMARY_LINES).map((line, index) => `${names[index]} ${line.write(line.values.at(-1))}`)].join("; "),
      heads: ["Time", "Series", `#${label}`, "#Least to greatest"],
      table: () => trendRows(answer.series, lines, names),
      none: answer.without_base
        ? `No change to draw: no series has a median above 0 in the last ${answer.base_d} days.`
        : `No ${label} in ${words}${this.controls.filterWords(state)}.`,
    });
  }

  showMarks(marks) {
    byId("marks-box").hidden = marks.length === 0;
    byId("marks-count").textContent = String(marks.length);
    const rows = [...marks].reverse().map((mark) =>
      [moment(mark.x * 1000), `${letterOf(mark.kind)} ${mark.kind}`, mark.subject, mark.title, mark.details]);
    show(byId("marks"), table("The newest first", ["Time", "Kind", "Series", "Event", "Details"], rows));
  }
}

/** Distinct names of series or groups; a group says how many it is of. */
function lineNames(series, group) {
  const counted = { model: ["device", "devices"], device: ["model", "models"] }[group];
  const names = seriesNames(series.map((one) => one.tags));
  return series.map(({ members, tags }, index) => {
    const name = names[index] === "all" ? tags.model ?? "all" : names[index];
    if (series[index].outlier) return `${name}, outlier`;
    return counted && members > 1 ? `${name} (${members} ${counted[1]})` : name;
  });
}

/** The names of the lines that are shown at first: those that changed most from begin to end. */
function mostChanged(names, lines) {
  if (names.length <= LINES_SHOWN) return names;
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const changes = lines.map(({ values }, index) => {
    const tenth = Math.max(1, Math.floor(values.length / 10));
    const [first, last] = [mean(values.slice(0, tenth)), mean(values.slice(-tenth))];
    return { index, size: Math.abs(last - first) / (Math.abs(mean(values)) || 1) };
  });
  const chosen = changes.sort((a, b) => b.size - a.size).slice(0, LINES_SHOWN).map(({ index }) => index);
  return chosen.sort((a, b) => a - b).map((index) => names[index]);
}

function notesOf(answer, names, first, state) {
  const notes = [];
  if (first.length < names.length && !state.lines) {
    notes.push(`${first.length} of ${names.length} lines are shown, those that changed most; the legend has the others.`);
  }
  if (answer.left_out) notes.push(`${answer.left_out} more series are left out: filter by device or model.`);
  if (answer.without_base) {
    notes.push(`${answer.without_base} series without a median above 0 in the last ${answer.base_d} days are left out.`);
  }
  if (answer.scale === "change" && state.scale !== "change") {
    notes.push(state.group === "device" ? "Shown as change, because models of a device have different costs."
      : "Shown as change, because the amounts differ too much for one axis.");
  }
  const changed = answer.series.flatMap((one, index) => one.changes.map((change) => ({ ...change, name: names[index] })));
  const newest = changed.sort((a, b) => b.time_ms - a.time_ms)[0];
  if (newest) {
    const more = changed.length > 1 ? ` (${changed.length} changes of plan or label)` : "";
    notes.push(`${newest.name}: ${newest.tag} ${newest.before || "none"} to ${newest.after || "none"} on ${moment(newest.time_ms)}${more}.`);
  }
  if (answer.hourly) notes.push("Hours were read, evenly spaced.");
  return notes;
}
