// The page of a fleet: asks its server for figures, and places them. The server asks the database.

import { byId, el, show } from "../dom.js";
import { zone } from "../format.js";
import { content, legendOf, showTiles, tableOf } from "../place.js";
import { showRows } from "../units.js";
import { pathOf, readAddress, writeAddress } from "./address.js";
import { failed, took } from "./ages.js";
import { HeatMap } from "./heat.js";

const POLL_MS = 15_000;
// Until the first figures have come, the server's answers are of now.
const SOON_MS = 1000;
const ALL = "20000";
const SPEND_SHOWN = "12";
const UNITS_SHOWN = 7;
const OUTLIERS_SHOWN = 4;

let state = readAddress();
let timer = null;
let run = 0;
let isWholeSpend = false;
const heat = new HeatMap(select, () => change({ shown: state.shown ? "" : ALL }));
byId("zone").textContent = zone();

async function ask(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  const document = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(document.error ?? answer.statusText), { status: answer.status });
  return document;
}

function trouble(text) {
  const place = byId("trouble");
  if (place.textContent !== text) place.textContent = text;
  place.hidden = !text;
}

const waiting = (part, text = "Asking the database…") => (part.error ? "No answer yet." : text);
const lines = (texts) => texts.map((text) => el("p", {}, content(text)));
const wait = (id, part) => show(byId(id), el("p", { class: "muted" }, waiting(part)));

function drawFleet({ parts, timezone, tiles, change: banner, units, is_empty: isEmpty }) {
  byId("month-zone").textContent = timezone;
  document.body.classList.toggle("empty", isEmpty);
  showTiles(byId("spend-now"), tiles);
  byId("main").classList.toggle("asking", parts.now.age_s === null && !parts.now.error);
  byId("change").className = `change ${banner.kind}`;
  byId("change").hidden = isEmpty;
  show(byId("change"), el("p", {}, content([banner.text, ...banner.notes.flatMap((text) => [" ", text])])));
  if (units) showRows("units", units, { most: UNITS_SHOWN, kind: "units" });
  else wait("units", parts.units);
}

function drawSpend({ parts, spend }) {
  if (!spend?.rows.length) {
    if (spend) show(byId("spend"), lines([spend.none]));
    else wait("spend", parts.spend);
    return;
  }
  const whole = () => { isWholeSpend = true; load(); };
  show(byId("spend"), tableOf(spend), legendOf(spend.keys), spend.more ? el("button", { type: "button", class: "more", onclick: whole }, spend.more) : null);
}

function fillModels(models) {
  const place = byId("model");
  const names = [...new Set([...models, state.model])].filter(Boolean);
  if (place.options.length === names.length + 1) return;
  place.replaceChildren(el("option", { value: "" }, "all"), ...names.map((name) => el("option", { value: name }, name)));
  place.value = state.model;
}

function drawMap({ parts, map, outliers }) {
  if (map) fillModels(map.models);
  heat.draw(map, waiting(parts.map, "Comparing all GPUs with their peers: this takes some seconds…"));
  heat.mark(state.host, state.device);
  if (outliers) showRows("outliers", outliers, { most: OUTLIERS_SHOWN, isBoxed: true });
  else wait("outliers", parts.map);
}

function drawGpu({ parts, gpu }) {
  const words = parts.gpu?.age_s === null ? [waiting(parts.gpu, "Asking for its cost…")] : [];
  show(byId("gpu"), el("div", { class: "card" },
    el("h3", {}, el("span", {}, gpu.title), el("button", { type: "button", class: "expand", onclick: () => select("", "") }, "Close")),
    lines([...gpu.texts, ...words]), el("dl", {}, gpu.facts.map(([term, value]) => [el("dt", {}, term), el("dd", {}, content(value))]))));
}

const asked = () => {
  const { label, by, metric, order, group, model, shown, host, device } = state;
  const within = state.within && group;
  return [
    [pathOf("/api/fleet", { label, group, within }), drawFleet],
    [pathOf("/api/spend", { label, by, shown: isWholeSpend ? ALL : SPEND_SHOWN }), drawSpend],
    [pathOf("/api/map", { label, metric, order, group, within, model, shown }), drawMap],
    ...(host ? [[pathOf("/api/gpu", { host, device, label, group, within }), drawGpu]] : []),
  ];
};

async function load() {
  clearTimeout(timer);
  const own = ++run;
  let isSoon = false;
  try {
    const failures = [];
    await Promise.all(asked().map(async ([path, draw]) => {
      try {
        const answer = await ask(path);
        if (own !== run) return;
        isSoon ||= Object.values(answer.parts).some((part) => part.age_s === null && !part.error);
        took(answer.parts);
        draw(answer);
      } catch (error) {
        if (!error.status) throw error;
        failures.push(error.message);
      }
    }));
    if (own === run) trouble([...new Set(failures)].join("; "));
  } catch {
    if (own === run) failed({ problem: "server not reachable" });
  }
  if (own === run && document.visibilityState === "visible") timer = setTimeout(load, isSoon ? SOON_MS : POLL_MS);
}

function fillControls() {
  for (const name of ["label", "order", "group"]) byId(name).value = state[name];
  byId("filter-name").textContent = state.label;
  byId("within").checked = Boolean(state.within);
  byId("within").disabled = !state.group;
  const isLabel = state.by.startsWith("label:");
  byId("by").value = isLabel ? "label:" : state.by;
  byId("by-label-box").hidden = !isLabel && byId("by").value !== "label:";
  byId("by-label").value = isLabel ? state.by.slice("label:".length) : "";
  for (const radio of document.querySelectorAll("[name=metric]")) radio.checked = radio.value === state.metric;
  if (byId("model").value !== state.model && [...byId("model").options].some(({ value }) => value === state.model)) byId("model").value = state.model;
  if (!state.host) show(byId("gpu"));
  heat.mark(state.host, state.device);
}

function change(part) {
  state = { ...state, ...part };
  writeAddress(state);
  fillControls();
  load();
}

function select(host, device) {
  change({ host, device });
  if (host) byId("gpu").scrollIntoView({ block: "nearest" });
}

// A link to a GPU selects it on this page.
byId("main").addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='?']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const query = new URLSearchParams(link.search);
  select(query.get("host"), query.get("device"));
});
byId("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  change({ label: byId("label").value.trim() });
});
byId("by").addEventListener("change", () => {
  const by = byId("by").value;
  isWholeSpend = false;
  byId("by-label-box").hidden = by !== "label:";
  if (by === "label:") byId("by-label").focus();
  else change({ by });
});
byId("by-label").addEventListener("change", () => change({ by: `label:${byId("by-label").value.trim()}` }));
for (const name of ["order", "model"]) byId(name).addEventListener("change", () => change({ [name]: byId(name).value }));
byId("group").addEventListener("change", () => change({ group: byId("group").value.trim(), within: state.within && byId("group").value.trim() }));
byId("within").addEventListener("change", () => change({ within: byId("within").checked ? state.group : "" }));
for (const radio of document.querySelectorAll("[name=metric]")) radio.addEventListener("change", () => change({ metric: radio.value }));
window.addEventListener("popstate", () => {
  state = readAddress();
  fillControls();
  load();
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") load();
  else failed({ isPaused: true });
});
fillControls();
load();
