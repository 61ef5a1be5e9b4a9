// The time range of the trend: a duration before now, an own range, or the time around an alert.

import { moment } from "./format.js";

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const LONGEST_MS = 366 * DAY_MS;
const SHORTEST_MS = MINUTE_MS;
const UNITS_MS = { h: 3_600_000, d: DAY_MS };
// A longer history changes more slowly and takes longer to read.
const REFRESHES = 5760;
const REFRESH_MS = [5000, 600_000];

const within = (value, [least, most]) => Math.min(Math.max(value, least), most);

/** A duration such as "24h" in ms; NaN for anything else. */
export function durationMs(text) {
  const found = /^(\d{1,5})([hd])$/.exec(text);
  return found ? Number(found[1]) * UNITS_MS[found[2]] : NaN;
}

/** Parameters `since` and `until` of the API. Malformed times are passed on: the server refuses them. */
export function period(state) {
  if (!state.at) return { since: state.since, ...(state.until ? { until: state.until } : {}) };
  const [at, length] = [Date.parse(state.at), durationMs(state.since)];
  if (!Number.isFinite(at) || !Number.isFinite(length)) return { since: state.at };
  const middle = Math.min(Date.now(), at);
  const iso = (ms) => new Date(ms).toISOString();
  return { since: iso(middle - length / 2), until: iso(Math.min(Date.now(), middle + length / 2)) };
}

const spaced = (duration) => (duration === "365d" ? "year" : duration.replace(/(\d)([hd])$/, "$1 $2"));

/** The range in words, after "in" or "over". */
export function rangeWords(state) {
  const at = (text) => (Number.isNaN(Date.parse(text)) ? text : moment(Date.parse(text)).slice(0, 16));
  if (state.at) return `${spaced(state.since)} around ${at(state.at)}`;
  if (!Number.isNaN(durationMs(state.since)) && !state.until) return `the last ${spaced(state.since)}`;
  return `${at(state.since)} to ${state.until ? at(state.until) : "now"}`;
}

/** Whether new rows can appear in the range. */
export const isMoving = (state) => !state.at && !state.until;

/** Pause between two loads of a range in ms. */
export const refreshMs = (state) => within((durationMs(state.since) || DAY_MS) / REFRESHES, REFRESH_MS);

/** The parts of the state for a range in ms, between its limits and not in the future. */
export function withRange(fromMs, untilMs) {
  const length = within(untilMs - fromMs, [SHORTEST_MS, LONGEST_MS]);
  const until = Math.min(Date.now(), (fromMs + untilMs) / 2 + length / 2);
  const iso = (ms) => new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");
  return { since: iso(until - length), until: iso(until), at: "" };
}
