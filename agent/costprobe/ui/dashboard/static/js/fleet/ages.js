// The age of each part's figures, and what is wrong with them.

import { byId, el, show } from "../dom.js";
import { moment, span, zone } from "../format.js";

// Figures that are so many of their intervals old are stale.
const STALE_INTERVALS = 3;
const TICK_MS = 1000;

const parts = new Map();
const state = { problem: "", heardMs: null, isPaused: false };

const elapsedS = (sinceMs) => (performance.now() - sinceMs) / 1000;
const ageOf = ({ answer, takenMs }) => (answer.age_s === null ? null : answer.age_s + elapsedS(takenMs));

/** Whether figures are not those of now: [words, age in s, null if there are none yet]. */
function faultOf(part) {
  const { answer } = part;
  const age = ageOf(part);
  if (answer.error) return ["the database does not answer", age];
  return age !== null && age > STALE_INTERVALS * answer.every_s ? ["no new figures", age] : null;
}

function faultOfPage() {
  if (state.problem) return [state.problem, state.heardMs === null ? null : elapsedS(state.heardMs)];
  if (state.isPaused) return ["paused while hidden", elapsedS(state.heardMs)];
  if (!parts.size) return ["connecting", null];
  const faults = [...parts.values()].map(faultOf).filter(Boolean);
  return faults.sort((a, b) => (b[1] ?? Infinity) - (a[1] ?? Infinity))[0] ?? null;
}

const since = (age) => (age === null ? "no answer yet" : `last answered ${span(age)} ago`);

function drawPart(part) {
  const fault = faultOf(part);
  const { answer, places, line } = part;
  for (const place of places) byId(place).classList.toggle("stale", Boolean(fault));
  const words = [];
  if (fault) words.push(el("p", { class: "age bad" }, `${since(fault[1])}${answer.error ? `: ${answer.error}` : ""}`));
  if (answer.is_partial) words.push(el("p", { class: "age warn" }, `Partial: ${answer.problems.join("; ")}`));
  show(line, words);
}

function draw() {
  for (const part of parts.values()) drawPart(part);
  const fault = faultOfPage();
  const live = byId("live");
  const words = fault ? fault[0] : "live";
  if (live.textContent !== words) live.textContent = words;
  live.className = `state ${fault ? (fault[0] === "connecting" ? "muted" : "bad") : "good"}`;
  const seen = fault ? (fault[0] === "connecting" ? "" : since(fault[1])) : `${moment(Date.now()).slice(11, 16)} ${zone()}`;
  if (byId("seen").textContent !== seen) byId("seen").textContent = seen;
  document.body.classList.toggle("stale", Boolean(state.problem || state.isPaused));
}

/** Take the answer of a part; places are its elements, its first one gets a line on what is wrong. */
export function took(name, answer, places) {
  const line = parts.get(name)?.line ?? el("div", { class: "ages" });
  if (!line.isConnected) byId(places[0]).after(line);
  parts.set(name, { answer, places, line, takenMs: performance.now() });
  Object.assign(state, { problem: "", heardMs: performance.now(), isPaused: false });
  draw();
}

/** Take what is wrong with the connection: { problem, isPaused }. */
export function failed(change) {
  Object.assign(state, change);
  draw();
}

setInterval(draw, TICK_MS);
