// Whether the figures are live: the connection, the daemon, and the age of the newest reading.

import { byId } from "./dom.js";
import { moment, span, zone } from "./format.js";

// The daemon writes its status more often, and the sensor its readings.
const DAEMON_STALE_S = 45;
const SENSOR_STALE_S = 120;
const TICK_MS = 1000;

const state = { now: null, takenMs: 0, isConnected: false, isPaused: false, problem: "" };

const elapsedS = () => (state.now ? (performance.now() - state.takenMs) / 1000 : 0);

/** The present time in ms, by the clock of the host. */
const presentMs = () => (state.now ? state.now.time_ms + elapsedS() * 1000 : Date.now());

/** What is wrong with the figures: [words, seconds since they were right]; null if they are live. */
function fault() {
  const { now } = state;
  if (state.problem) return [state.problem, now ? elapsedS() : null];
  if (!now) return ["connecting", null];
  if (state.isPaused) return ["paused while hidden", elapsedS()];
  if (!state.isConnected) return ["server not reachable", elapsedS()];
  if (now.daemon.age_s === undefined) return [`daemon ${now.daemon.state}`, null];
  const daemonS = now.daemon.age_s + elapsedS();
  if (!now.daemon.running || daemonS > DAEMON_STALE_S) return ["daemon not running", daemonS];
  const readS = now.reading_age_s === null ? 0 : now.reading_age_s + elapsedS();
  return readS > SENSOR_STALE_S ? ["no new readings", readS] : null;
}

function draw() {
  const wrong = fault();
  const [words, ageS] = wrong ?? ["live", null];
  const live = byId("live");
  if (live.textContent !== words) live.textContent = words;
  live.className = `state ${wrong ? "bad" : "good"}`;
  const [day, clock] = moment(presentMs()).split(" ");
  const seen = wrong
    ? (ageS === null ? "" : `last seen ${span(ageS)} ago`)
    : `${clock.slice(0, 5)} ${zone()}`;
  const place = byId("seen");
  if (place.textContent !== seen) place.textContent = seen;
  place.title = wrong ? "" : day;
  document.body.classList.toggle("stale", Boolean(wrong));
  document.body.classList.toggle("blank", Boolean(state.problem) && !state.now);
}

/** Take a change of the connection: { isConnected, isPaused, problem } or a new document. */
export function update(change) {
  Object.assign(state, change);
  if (change.now) Object.assign(state, { takenMs: performance.now(), isConnected: true, isPaused: false, problem: "" });
  draw();
}

setInterval(draw, TICK_MS);
