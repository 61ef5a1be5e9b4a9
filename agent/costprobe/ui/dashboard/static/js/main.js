// The dashboard: asks for the newest state every few seconds, and renders it.

import { showAllocation } from "./allocation.js";
import { showBudgets } from "./budgets.js";
import { labelText, showChange, showFiring } from "./change.js";
import { showSweeps } from "./curves.js";
import { showDevices, takeCosts } from "./devices.js";
import { byId, el, show, table } from "./dom.js";
import { localTimes, moment, zone } from "./format.js";
import { presentMs, update } from "./freshness.js";
import { Loading } from "./loading.js";
import { showParts } from "./parts.js";
import { showSpendNow } from "./spend_now.js";
import { Trend } from "./trend.js";
import { showUnits } from "./units.js";

const POLL_MS = 5000;
// An answer that takes longer is one of a server that is not reachable.
const ANSWER_MS = 30000;
// Intervals at which what the first screen and the rest show is loaded while rows arrive.
const OVERVIEW_EVERY_MS = 10000;
const REST_EVERY_MS = 60000;

const state = { now: null, overview: null, allocations: [], poll: null, run: 0 };
const trend = new Trend(ask, () => showCosts());
byId("zone").textContent = zone();

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

function showCosts() {
  if (state.overview) showUnits(state.overview, trend.state.label);
  if (state.now) showParts(state.now, trend.state.label, state.overview?.units ?? []);
}

function showSpend() {
  if (state.overview) showSpendNow(state.overview, state.now.devices, state.allocations);
}

const overview = new Loading(OVERVIEW_EVERY_MS, trouble, async () => {
  state.overview = await ask("/api/overview");
  showSpend();
  showChange(state.overview);
  showCosts();
});

// The first answer about budgets may need weeks of rows; the spend of the month and day follows from it.
async function loadSpend() {
  showBudgets(await ask("/api/budgets"));
  overview.hurry();
  const spend = await ask("/api/spend");
  state.allocations = spend.allocations;
  showSpend();
  showAllocation(spend);
  takeCosts(spend);
}

// Each is shown as it arrives.
const rest = new Loading(REST_EVERY_MS, trouble, () => Promise.all([
  loadSpend(),
  ask("/api/incidents?since=7d").then(showIncidents),
  ask("/api/sweeps").then(showSweeps)]));

function showIncidents(answer) {
  const text = (one, words) => localTimes(words ?? "", one.fired_ms, presentMs());
  const rows = answer.incidents.map((one) => [
    moment(one.fired_ms), one.resolved_ms === null ? "still firing" : moment(one.resolved_ms),
    one.severity, one.name, labelText(one.labels), text(one, one.summary), text(one, one.detail ?? one.cause)]);
  show(byId("incidents"), rows.length
    ? el("div", { class: "scroll card", tabindex: 0, role: "region", "aria-label": "Table of incidents" },
      table("The newest first", ["Fired", "Resolved", "Severity", "Rule", "Labels", "Summary", "Cause"], rows))
    : el("p", { class: "muted" }, "No incident in this period."));
}

function showHost({ daemon }) {
  byId("host").textContent = daemon.host ?? "";
  document.title = daemon.host ? `costprobe ${daemon.host}` : "costprobe";
  byId("daemon").textContent = daemon.version ? `Daemon ${daemon.version}, started ${moment(daemon.started_ms)}.` : "";
}

function take(now) {
  state.now = now;
  update({ now });
  trend.take(now);
  showHost(now);
  showFiring(now);
  showParts(now, trend.state.label, state.overview?.units ?? []);
  showDevices(now);
  overview.refresh();
  rest.refresh();
}

// A hidden page asks for nothing.
async function poll() {
  clearTimeout(state.poll);
  const run = ++state.run;
  if (document.visibilityState !== "visible") {
    update({ isPaused: true });
    return;
  }
  try {
    const now = await ask("/api/now", AbortSignal.timeout(ANSWER_MS));
    if (run !== state.run) return;
    take(now);
    trouble(null);
  } catch (error) {
    if (run !== state.run) return;
    if (error.status) trouble(error.message);
    update(error.status ? { problem: "no data" } : { isConnected: false });
  }
  state.poll = setTimeout(poll, POLL_MS);
}

document.addEventListener("visibilitychange", poll);
poll();
