// The dashboard: fetches data, subscribes to live updates, and renders.

import { showBudgets } from "./budgets.js";
import { aligned, Chart, plainNumber, trendRows } from "./chart.js";
import { byId, el, show, table } from "./dom.js";
import { moment, money, moneyOf, number, PER_THOUSAND, seriesNames } from "./format.js";
import { scaled } from "./scale.js";
import { labelText, showCosts, showDevices, showHeader, showSpend, showWrong } from "./tiles.js";

// A longer history changes more slowly and takes longer to read.
const HISTORY_EVERY_MS = { "1h": 5000, "6h": 10000, "24h": 15000, "7d": 60000, "30d": 300000, "90d": 600000 };
const HOUR_MS = 3_600_000;
const RANGE_MS = { "1h": HOUR_MS, "6h": 6 * HOUR_MS, "24h": 24 * HOUR_MS, "7d": 168 * HOUR_MS, "30d": 720 * HOUR_MS, "90d": 2160 * HOUR_MS };
// Pause after a load, as a multiple of its duration, to limit CPU use on the host.
const REST_FACTOR = 20;
const RETRY_MS = 15000;
const SLOW_EVERY_MS = 60000;
const POLL_MS = 15000;
const LETTERS = { drift: "D", anomaly: "A", price: "P", software: "S", fault: "F", annotation: "N" };

const state = {
  now: null, source: null, poll: null, timer: null, curves: [],
  historyDue: 0, slowDue: 0, isLoading: false, isStale: false,
};
const trend = new Chart(byId("trend"), "Trend");
const deviceTrend = new Chart(byId("device-trend"), "Devices over time");
const sweep = new Chart(byId("sweep"), "Latency and cost by batch size");

async function ask(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.error ?? answer.statusText);
  return document;
}

function trouble(text) {
  const place = byId("trouble");
  if (place.textContent !== (text ?? "")) place.textContent = text ?? "";
  place.hidden = !text;
}

function liveState(text, kind) {
  const place = byId("live");
  if (place.textContent !== text) place.textContent = text;
  place.className = `state ${kind}`;
}

const CHOICES = ["trend-field", "trend-scale", "device-field", "label"];
const range = () => document.querySelector("input[name=range]:checked").value;
// The time that an alert links to: the charts show the range around it.
const linkedMs = Math.min(Date.now(), Date.parse(new URLSearchParams(location.search).get("at") ?? ""));
const isLinked = Number.isFinite(linkedMs);
const rangeWords = () => (isLinked ? `${range()} around ${moment(linkedMs)}` : `the last ${range()}`);

/** The range as parameters of the API. */
function period() {
  if (!isLinked) return `since=${range()}`;
  const half = RANGE_MS[range()] / 2;
  const until = Math.min(Date.now(), linkedMs + half);
  return `since=${new Date(linkedMs - half).toISOString()}&until=${new Date(until).toISOString()}`;
}

const choice = () => [range(), ...CHOICES.map((id) => byId(id).value)].join();

/** Format and scale factor of the values of a field. */
function writing(field, answer) {
  const currencies = new Set(answer.series.map((one) => one.tags.currency).filter(Boolean));
  const currency = currencies.size === 1 ? [...currencies][0] : "";
  const { isMoney, factor } = moneyOf(field.split("&")[0]);
  return { factor, write: isMoney ? (value) => money(value, currency) : plainNumber };
}

function drawTrend(chart, field, label, answer, marks, scale) {
  const { factor, write } = writing(field, answer);
  const names = seriesNames(answer.series.map((one) => one.tags));
  const { xs, columns } = aligned(answer, factor);
  const { lines, axis } = scaled(columns, { scale, label, write });
  const last = answer.series.map((one, index) => `${names[index]} ${write(one.values.at(-1) * factor)}`);
  const notes = [`${label} over ${rangeWords()}`, `${marks.length} annotations`, ...last.slice(0, 8)];
  if (answer.left_out) notes.push(`${answer.left_out} series not shown`);
  if (answer.sampled) notes.push("sampled: evenly spaced rows were read");
  chart.draw({
    xs, time: true, logX: false, writeX: (seconds) => moment(seconds * 1000),
    series: lines.map((line, index) => ({ name: names[index], ...line })),
    axes: [{ scale: "y", ...axis }],
    marks, summary: notes.join("; "),
    heads: ["Time", "Series", `#${label}`, "#Least to greatest"],
    table: () => trendRows(answer, names, (value) => write(value * factor)),
    none: `No ${label} in ${rangeWords()}.`,
  });
}

function showMarks(answer) {
  byId("marks-count").textContent = String(answer.marks.length);
  const rows = [...answer.marks].reverse().map((mark) => [
    moment(mark.time_ms), `${LETTERS[mark.tags.kind] ?? "?"} ${mark.tags.kind}`,
    [mark.tags.device, mark.tags.probe ?? mark.tags.service].filter(Boolean).join(" "),
    mark.title ?? "", [mark.detail, mark.cause && `cause: ${mark.cause}`].filter(Boolean).join("; ")]);
  show(byId("marks"), rows.length
    ? table("The newest first", ["Time", "Kind", "Series", "Event", "Details"], rows)
    : el("p", { class: "muted" }, "No annotations in this period."));
}

const labelOf = (id) => byId(id).selectedOptions[0].textContent;

async function loadHistory() {
  const chosen = choice();
  const begun = Date.now();
  state.historyDue = begun + RETRY_MS;
  const [field, deviceField] = [byId("trend-field").value, byId("device-field").value];
  const query = (name) => `/api/trend?field=${name}&${period()}`;
  const label = byId("label").value;
  const trendQuery = query(field) + (label ? `&label=${encodeURIComponent(label)}` : "");
  byId("trend-json").href = trendQuery;
  const [costs, devices, marks] = await Promise.all([
    ask(trendQuery), ask(query(deviceField)), ask(`/api/marks?${period()}`)]);
  const lines = marks.marks.map((mark) => ({
    x: mark.time_ms / 1000, kind: mark.tags.kind, letter: LETTERS[mark.tags.kind] ?? "?" }));
  drawTrend(trend, field, labelOf("trend-field"), costs, lines, byId("trend-scale").value);
  drawTrend(deviceTrend, deviceField, labelOf("device-field"), devices, [], "amount");
  showMarks(marks);
  const rest = Math.max(HISTORY_EVERY_MS[range()], REST_FACTOR * (Date.now() - begun));
  // A changed selection is loaded at once.
  state.historyDue = choice() === chosen ? Date.now() + rest : 0;
}

async function loadSlow() {
  state.slowDue = Date.now() + RETRY_MS;
  // Each is shown as it arrives: the first budget query may read weeks of rows.
  await Promise.all([
    ask("/api/spend").then((spend) => showSpend(spend, state.now)),
    ask("/api/budgets").then(showBudgets),
    ask("/api/incidents?since=7d").then(showIncidents),
    ask("/api/sweeps").then(takeSweeps)]);
  state.slowDue = Date.now() + SLOW_EVERY_MS;
}

function takeSweeps(sweeps) {
  state.curves = sweeps.curves;
  const choice = byId("sweep-choice");
  const names = seriesNames(state.curves.map((curve) => curve.tags));
  if (Array.from(choice.options, (option) => option.textContent).join() !== names.join()) {
    choice.replaceChildren(...names.map((name, index) => el("option", { value: index }, name)));
  }
  byId("sweep-controls").hidden = names.length === 0;
  drawSweep();
}

function showIncidents(answer) {
  const rows = answer.incidents.map((one) => [
    moment(one.fired_ms), one.resolved_ms === null ? "still firing" : moment(one.resolved_ms),
    one.severity, one.name, labelText(one.labels), one.summary, one.detail ?? one.cause ?? ""]);
  show(byId("incidents"), rows.length
    ? table("The newest first", ["Fired", "Resolved", "Severity", "Rule", "Labels", "Summary", "Cause"], rows)
    : el("p", { class: "muted" }, "No incident in this period."));
}

function drawSweep() {
  const curve = state.curves[Number(byId("sweep-choice").value) || 0];
  const none = "No sweep is stored. Run: costprobe probe NAME --sweep";
  const points = curve?.points ?? [];
  const hasCost = points.length > 0 && points.every((point) => Number.isFinite(point.cost_per_inference));
  const currency = curve?.tags.currency;
  const ms = (value) => `${number(value)} ms`;
  const right = hasCost
    ? { name: "cost per 1,000", write: (value) => money(value, currency), of: (point) => point.cost_per_inference * PER_THOUSAND }
    : { name: "throughput, /s", write: plainNumber, of: (point) => point.throughput_per_s };
  const cheapest = points.find((point) => point.cheapest);
  const optional = (value, write) => (Number.isFinite(value) ? write(value) : "–");
  sweep.draw({
    xs: points.map((point) => point.batch), time: false, logX: true, labelX: "batch", writeX: String,
    series: points.length === 0 ? [] : [
      { name: "latency p50", values: points.map((point) => point.latency_p50_ms ?? null), write: ms },
      { name: right.name, values: points.map(right.of), write: right.write, scale: "right" }],
    axes: [{ scale: "y", label: "latency p50, ms", write: plainNumber },
      { scale: "right", label: right.name, write: right.write, side: 1 }],
    summary: cheapest ? `batch ${cheapest.batch} is the cheapest; measured ${moment(curve.time_ms)}`
      : curve ? `measured ${moment(curve.time_ms)}` : "none",
    heads: ["#Batch", "#Latency p50", "#Throughput", "#Energy", "#Cost per 1,000", "Note"],
    table: () => points.map((point) => [
      String(point.batch), optional(point.latency_p50_ms, ms), optional(point.throughput_per_s, (v) => `${number(v)} /s`),
      optional(point.energy_per_inference_j, (v) => `${number(v, 3)} J`),
      optional(point.cost_per_inference, (v) => money(v * PER_THOUSAND, currency)), point.cheapest ? "cheapest" : ""]),
    none,
  });
}

/** Load history when it is due, one load at a time. */
function refresh(delay = Math.max(0, Math.min(state.historyDue, state.slowDue) - Date.now())) {
  if (state.isLoading) {
    state.isStale = true;
    return;
  }
  if (state.timer !== null && delay > 0) return;
  clearTimeout(state.timer);
  state.timer = setTimeout(load, delay);
}

async function load() {
  state.timer = null;
  state.isLoading = true;
  state.isStale = false;
  try {
    if (Date.now() >= state.historyDue) await loadHistory();
    if (Date.now() >= state.slowDue) await loadSlow();
    trouble(null);
  } catch (error) {
    trouble(error.message);
  } finally {
    state.isLoading = false;
  }
  if (state.isStale) refresh();
}

/** A host without probes shows its services. */
function chooseField(now) {
  const isOf = (basis) => now.costs.some((cost) => cost.tags.basis === basis);
  if (!isOf("probe") && isOf("serving")) byId("trend-field").value = "cost.cost_per_inference&basis=serving";
}

/** The choice of a label; a chosen one stays while a row has it. */
function showLabels(now) {
  const place = byId("label");
  const labels = ["", ...Object.entries(now.labels).flatMap(([name, values]) => values.map((value) => `${name}=${value}`))];
  byId("label-controls").hidden = labels.length === 1;
  if (Array.from(place.options, (option) => option.value).join("\n") === labels.join("\n")) return;
  const chosen = place.value;
  place.replaceChildren(...labels.map((label) => el("option", { value: label }, label || "all")));
  place.value = labels.includes(chosen) ? chosen : "";
}

function take(now) {
  if (state.now === null) chooseField(now);
  state.now = now;
  showHeader(now);
  showWrong(now);
  showLabels(now);
  showCosts(now, byId("label").value);
  showDevices(now);
  refresh();
}

function listen() {
  if (state.source) return;
  const source = new EventSource("/api/live");
  state.source = source;
  source.addEventListener("open", () => liveState("live", "good"));
  source.addEventListener("now", (message) => take(JSON.parse(message.data)));
  source.addEventListener("trouble", (message) => trouble(JSON.parse(message.data).error));
  source.addEventListener("error", () => {
    liveState("not live, reconnecting", "warn");
    if (source.readyState !== EventSource.CLOSED) return;
    leave();
    state.poll = setTimeout(pollOnce, POLL_MS);
  });
}

async function pollOnce() {
  try {
    take(await ask("/api/now"));
  } catch (error) {
    trouble(error.message);
  }
  listen();
}

function leave() {
  state.source?.close();
  state.source = null;
  clearTimeout(state.poll);
}

// A hidden page does not subscribe to live updates.
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") {
    listen();
  } else {
    leave();
    liveState("paused while hidden", "warn");
  }
});
for (const id of [...CHOICES, "range"]) {
  byId(id).addEventListener("change", () => {
    state.historyDue = 0;
    refresh(0);
  });
}
byId("label").addEventListener("change", () => showCosts(state.now, byId("label").value));
if (isLinked) byId("range").append(el("a", { href: "/" }, `Around ${moment(linkedMs)}; show the present`));
byId("sweep-choice").addEventListener("change", drawSweep);
listen();
