// The page of a fleet: asks its server for figures, and renders them. The server asks the database.

import { byId, el } from "../dom.js";
import { zone } from "../format.js";
import { pathOf, readAddress, writeAddress } from "./address.js";
import { failed, took } from "./ages.js";
import { showDetail } from "./detail.js";
import { HeatMap } from "./heat.js";
import { showOutliers, showSpend, showUnits } from "./tables.js";
import { showChange, showTotals } from "./totals.js";

const POLL_MS = 15_000;
// Until the first figures have come, the server's answers are of now.
const SOON_MS = 1000;
const ALL = "20000";
const SPEND_SHOWN = "12";

let state = readAddress();
const answers = { fleet: null, spend: null, map: null, gpu: null };
let timer = null;
let run = 0;
let isWholeSpend = false;
const heat = new HeatMap(select, (isAll) => change({ shown: isAll ? ALL : "" }));
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

const outlierOf = () => answers.map?.figures?.outliers.find((one) => one.host === state.host && [null, state.device].includes(one.device));

function drawDetail() {
  const row = answers.map?.figures?.rows.find(({ host }) => host === state.host);
  showDetail({ ...state, row, outlier: outlierOf(), answer: answers.gpu, close: () => select("", "") });
  heat.mark(state.host, state.device);
}

function drawFleet() {
  const { fleet } = answers;
  took("now", fleet.now, ["spend-now"]);
  took("units", fleet.units, ["units-section"]);
  showTotals(fleet);
  showUnits(fleet.units);
  showChange(answers.map, fleet.units, (one) => select(one.host, one.device ?? ""));
}

function drawSpend() {
  took("spend", answers.spend, ["spend-section"]);
  showSpend(answers.spend, () => {
    isWholeSpend = true;
    load();
  });
}

function fillModels({ gpu_models: models }) {
  const place = byId("model");
  const names = [...new Set([...models, state.model])].filter(Boolean);
  if (place.options.length === names.length + 1) return;
  place.replaceChildren(el("option", { value: "" }, "all"), ...names.map((name) => el("option", { value: name }, name)));
  place.value = state.model;
}

function drawMap() {
  took("map", answers.map, ["map-section", "change", "outliers-section"]);
  if (answers.map.figures) fillModels(answers.map.figures);
  heat.draw(answers.map);
  showOutliers(answers.map, (one) => select(one.host, one.device ?? ""));
  showChange(answers.map, answers.fleet?.units, (one) => select(one.host, one.device ?? ""));
  drawDetail();
}

const asked = () => {
  const { label, by, metric, order, group, within, model, shown, host, device } = state;
  return [
    ["fleet", pathOf("/api/fleet", { label }), drawFleet],
    ["spend", pathOf("/api/spend", { label, by, shown: isWholeSpend ? ALL : SPEND_SHOWN }), drawSpend],
    ["map", pathOf("/api/map", { label, metric, order, group, within: within && group, model, shown }), drawMap],
    ...(host && device ? [["gpu", pathOf("/api/gpu", { host, device }), drawDetail]] : []),
  ];
};

const isWaiting = (answer) => [answer, ...Object.values(answer)].some((part) => part && typeof part === "object" && part.figures === null && !part.error);

async function load() {
  clearTimeout(timer);
  const own = ++run;
  let isSoon = false;
  try {
    const failures = [];
    await Promise.all(asked().map(async ([name, path, draw]) => {
      try {
        const answer = await ask(path);
        if (own !== run) return;
        answers[name] = answer;
        isSoon ||= isWaiting(answer);
        draw();
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
}

function change(part) {
  state = { ...state, ...part };
  writeAddress(state);
  fillControls();
  load();
}

function select(host, device) {
  answers.gpu = null;
  change({ host, device });
  drawDetail();
  if (host) byId("gpu").scrollIntoView({ block: "nearest" });
}

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
  answers.gpu = null;
  fillControls();
  load();
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") load();
  else failed({ isPaused: true });
});
fillControls();
load();
