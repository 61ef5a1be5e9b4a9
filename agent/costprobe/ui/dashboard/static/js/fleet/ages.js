// The age of the figures in each place of the page, and what is wrong with them.

import { byId, el, show } from "../dom.js";
import { moment, span, zone } from "../format.js";

// Figures that are so many of their intervals old are stale.
const STALE_INTERVALS = 3;
const TICK_MS = 1000;
// Where the figures of each part are shown; the first place gets a line on what is wrong.
const PLACES = {
  now: ["spend-now"], status: ["spend-now"], month: ["spend-now"], units: ["units-section"], groups: ["units-section"], spend: ["spend-section"],
  map: ["map-section", "change", "outliers-section"], gpu: ["gpu"],
};

const parts = new Map();
const lines = new Map();
const state = { problem: "", heardMs: null, isPaused: false };

const elapsedS = (sinceMs) => (performance.now() - sinceMs) / 1000;

/** Whether figures are not those of now: [words, age in s, null if there are none yet]. */
function faultOf({ age_s: answeredS, every_s: everyS, error, takenMs }) {
  const age = answeredS === null ? null : answeredS + elapsedS(takenMs);
  if (error) return ["the database does not answer", age];
  return age !== null && age > STALE_INTERVALS * everyS ? ["no new figures", age] : null;
}

function faultOfPage() {
  if (state.problem) return [state.problem, state.heardMs === null ? null : elapsedS(state.heardMs)];
  if (state.isPaused) return ["paused while hidden", elapsedS(state.heardMs)];
  if (!parts.size) return ["connecting", null];
  const faults = [...parts.values()].map(faultOf).filter(Boolean);
  return faults.sort((a, b) => (b[1] ?? Infinity) - (a[1] ?? Infinity))[0] ?? null;
}

const since = (age) => (age === null ? "no answer yet" : `last answered ${span(age)} ago`);

function wordsOf(part) {
  const fault = faultOf(part);
  return [
    ...(fault ? [["bad", `${since(fault[1])}${part.error ? `: ${part.error}` : ""}`]] : []),
    ...(part.problems.length ? [["warn", `Partial: ${part.problems.join("; ")}`]] : []),
  ];
}

function drawPlace(id) {
  const own = [...parts].filter(([name]) => PLACES[name].includes(id)).map(([, part]) => part);
  byId(id).classList.toggle("stale", own.some(faultOf));
  const firsts = [...parts].filter(([name]) => PLACES[name][0] === id);
  if (!firsts.length) return;
  if (!lines.has(id)) lines.set(id, el("div", { class: "ages" }));
  if (!lines.get(id).isConnected) byId(id).after(lines.get(id));
  const words = new Map(firsts.flatMap(([, part]) => wordsOf(part)).map(([kind, text]) => [text, kind]));
  show(lines.get(id), [...words].map(([text, kind]) => el("p", { class: `age ${kind}` }, text)));
}

function draw() {
  for (const id of new Set([...parts.keys()].flatMap((name) => PLACES[name]))) drawPlace(id);
  const fault = faultOfPage();
  const live = byId("live");
  const words = fault ? fault[0] : "live";
  if (live.textContent !== words) live.textContent = words;
  live.className = `state ${fault ? (fault[0] === "connecting" ? "muted" : "bad") : "good"}`;
  const seen = fault ? (fault[0] === "connecting" ? "" : since(fault[1])) : `${moment(Date.now()).slice(11, 16)} ${zone()}`;
  if (byId("seen").textContent !== seen) byId("seen").textContent = seen;
  document.body.classList.toggle("stale", Boolean(state.problem || state.isPaused));
}

/** Take `parts` of an answer. */
export function took(given) {
  for (const [name, part] of Object.entries(given)) parts.set(name, { ...part, takenMs: performance.now() });
  Object.assign(state, { problem: "", heardMs: performance.now(), isPaused: false });
  draw();
}

/** Take what is wrong with the connection: { problem, isPaused }. */
export function failed(change) {
  Object.assign(state, change);
  draw();
}

setInterval(draw, TICK_MS);
