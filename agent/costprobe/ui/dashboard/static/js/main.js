// The dashboard: fetches data, subscribes to live updates, and renders.

import { showBudgets } from "./budgets.js";
import { Chart } from "./chart.js";
import { byId, el, show, table } from "./dom.js";
import { moment, money, moneyOf, number, PER_THOUSAND, seriesNames } from "./format.js";
import { labelText, showCosts, showDevices, showHeader, showSpend, showWrong } from "./tiles.js";
import { Trend } from "./trend.js";

const RETRY_MS = 15000;
const SLOW_EVERY_MS = 60000;
const POLL_MS = 15000;

const state = {
  now: null, source: null, poll: null, timer: null, curves: [], slowDue: 0, isLoading: false,
};
const trend = new Trend(ask, (label) => { if (state.now) showCosts(state.now, label); });
const sweep = new Chart(byId("sweep"), "Latency and cost by batch size");

async function ask(path, signal) {
  const answer = await fetch(path, { headers: { accept: "application/json" }, signal });
  const document = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(document.error ?? answer.statusText), { status: answer.status });
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
    : { name: "throughput, /s", write: number, of: (point) => point.throughput_per_s };
  const cheapest = points.find((point) => point.cheapest);
  const optional = (value, write) => (Number.isFinite(value) ? write(value) : "–");
  sweep.draw({
    xs: points.map((point) => point.batch), time: false, logX: true, labelX: "batch", writeX: String,
    series: points.length === 0 ? [] : [
      { name: "latency p50", values: points.map((point) => point.latency_p50_ms ?? null), write: ms },
      { name: right.name, values: points.map(right.of), write: right.write, scale: "right" }],
    axes: [{ scale: "y", label: "latency p50, ms", write: number },
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

/** Load what changes slowly when it is due, one load at a time. */
function refresh(delay = Math.max(0, state.slowDue - Date.now())) {
  if (state.isLoading || (state.timer !== null && delay > 0)) return;
  clearTimeout(state.timer);
  state.timer = setTimeout(load, delay);
}

async function load() {
  state.timer = null;
  state.isLoading = true;
  try {
    if (Date.now() >= state.slowDue) await loadSlow();
    trouble(null);
  } catch (error) {
    trouble(error.message);
  } finally {
    state.isLoading = false;
  }
}

function take(now) {
  state.now = now;
  trend.take(now);
  showHeader(now);
  showWrong(now);
  showCosts(now, trend.state.label);
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
byId("sweep-choice").addEventListener("change", drawSweep);
listen();
