// The dashboard: asks for what is now every few seconds, and places it.

import { showSweeps } from "./curves.js";
import { byId, el, show } from "./dom.js";
import { moment, setNow, zone } from "./format.js";
import { update } from "./freshness.js";
import { barOf, boxed, content, mapOf, showTiles } from "./place.js";
import { Trend } from "./trend.js";
import { showRows } from "./units.js";

const POLL_MS = 5000;
// An answer that takes longer is one of a server that is not reachable.
const ANSWER_MS = 30000;
// Interval at which the rest of the page is loaded while rows arrive.
const REST_EVERY_MS = 60000;
// Pause after a load, as a multiple of its duration, to limit CPU use on the host.
const REST_FACTOR = 20;
const FIRING_SHOWN = 4;
const UNITS_SHOWN = 12;

const state = { poll: null, run: 0, isLoading: false, dueMs: 0, sort: { by: "Device", isDown: false } };
const trend = new Trend(ask, () => poll());
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

const lines = (texts) => texts.map((text) => el("p", {}, content(text)));

function showChange({ kind, text, more }) {
  byId("change").className = `change ${kind}`;
  show(byId("change"), more.length
    ? el("details", { "data-key": "why" }, el("summary", {}, content(text)), lines(more)) : lines([text]));
}

function entry({ kind, title, text, more }) {
  const body = [el("strong", {}, content(title)), el("span", { class: "line" }, content(text))];
  return more.length ? el("details", { class: `note ${kind}`, "data-key": title }, el("summary", {}, body), lines(more))
    : el("div", { class: `note ${kind}` }, body);
}

function showFiring({ firing, notes }) {
  const entries = firing.map(entry);
  const rest = entries.slice(FIRING_SHOWN);
  show(byId("firing"), entries.length ? entries.slice(0, FIRING_SHOWN) : el("p", { class: "note good" }, "No alert is firing and no fault is active."),
    lines(notes), rest.length ? el("details", { "data-key": "rest" }, el("summary", {}, `${rest.length} more`), rest) : null);
}

function showDevices(devices, map) {
  const { sort } = state;
  const onSort = (by, isNumber) => {
    state.sort = { by, isDown: sort.by === by ? !sort.isDown : isNumber };
    showDevices(devices, map);
  };
  const seen = devices.heads.indexOf("#Last seen");
  const row = (index) => ({ class: seen > 0 && typeof devices.rows[index][seen] !== "string" ? "old" : null });
  const whole = boxed(devices, { sort, onSort, row });
  show(byId("devices"), map ? [mapOf(map), el("details", { "data-key": "devices" }, el("summary", {}, `${map.name}, as a table`), whole)] : whole);
}

function budgetCard({ name, scope, big, bar, state: [kind, words], facts, remarks, missing }) {
  return el("article", { class: "card", "data-budget": name },
    el("h3", {}, name), el("p", { class: "muted" }, scope), el("p", { class: "big" }, content(big)), barOf(bar),
    el("p", { class: `state ${kind}` }, words),
    el("dl", {}, facts.map(([term, value, key]) => [el("dt", { class: key && `key ${key}` }, term), el("dd", {}, content(value))])),
    remarks.length ? el("ul", { class: "remarks muted" }, remarks.map((text) => el("li", {}, text))) : null,
    missing.length ? el("details", { class: "remarks muted", "data-key": name },
      el("summary", {}, "Parts not included"), el("ul", { class: "remarks" }, missing.map((text) => el("li", {}, text)))) : null);
}

// The first answer about budgets may need weeks of rows; the spend of the month and of the day follow from it.
async function loadSpend() {
  const { budgets } = await ask("/api/budgets");
  show(byId("budgets"), budgets.length ? budgets.map(budgetCard)
    : el("p", { class: "muted" }, "No budget is set: add a [[budget]] section for a day, month, quarter or year."));
  poll();
  const { tables } = await ask("/api/spend");
  show(byId("spend"), tables.map((one) => boxed(one)));
}

// What is loaded now and then, one load at a time, each shown as it arrives; called with every answer about now.
async function loadRest() {
  if (state.isLoading || Date.now() < state.dueMs) return;
  state.isLoading = true;
  const begun = Date.now();
  try {
    await Promise.all([
      loadSpend(),
      ask("/api/incidents?since=7d").then((found) => show(byId("incidents"), boxed(found))),
      ask("/api/sweeps").then(showSweeps)]);
    state.dueMs = Date.now() + Math.max(REST_EVERY_MS, REST_FACTOR * (Date.now() - begun));
  } catch (error) {
    // A lost server is shown by the state of the connection.
    if (error.status) trouble(error.message);
    state.dueMs = Date.now() + POLL_MS;
  }
  state.isLoading = false;
}

function take(now) {
  const { daemon } = now;
  setNow(now.time_ms);
  update({ now });
  byId("host").textContent = daemon.host ?? "";
  document.title = daemon.host ? `costprobe ${daemon.host}` : "costprobe";
  byId("daemon").textContent = daemon.version ? `Daemon ${daemon.version}, started ${moment(daemon.started_ms)}.` : "";
  showTiles(byId("spend-now"), now.tiles);
  showChange(now.change);
  showRows("units", now.units, { most: UNITS_SHOWN, kind: "units" });
  showFiring(now);
  showDevices(now.devices, now.map);
  show(byId("parts"), boxed(now.parts));
  const isEmpty = now.units.rows.length === 0 && !trend.state.label;
  document.body.classList.toggle("empty", isEmpty);
  for (const [id, isKnown] of [["trend-title", now.choices.fields.length], ["devices-title", now.devices.rows.length]]) {
    byId(id).closest("section").hidden = isEmpty && !isKnown;
  }
  byId("change").hidden = isEmpty && now.change.kind === "calm";
  trend.take(now.choices);
  loadRest();
}

// A hidden page asks for nothing.
async function poll() {
  clearTimeout(state.poll);
  state.run += 1;
  const { run } = state;
  if (document.visibilityState !== "visible") {
    update({ isPaused: true });
    return;
  }
  try {
    const { label } = trend.state;
    const now = await ask(`/api/now${label ? `?${new URLSearchParams({ label })}` : ""}`, AbortSignal.timeout(ANSWER_MS));
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
