// How lines of an answer of `/api/trend` are drawn and written: amounts with their unit, or changes in percent.

import { amount, signed } from "./format.js";

// A calm series fills the height of a chart only from this variation on.
const LEAST_SHARE = 0.02;
const LEAST_PCT = 2;
const PAD = 0.08;

/** The line of a series: values to draw, a text with the unit, and one without. */
function lineOf(one, isChange) {
  const { values, lows, highs, base, amount: how } = one;
  const full = (value) => `${amount(value, how)} ${how.unit}`.trim();
  if (!isChange) {
    const of = (given) => given.map((value) => value * how.scale_samples);
    return { values: of(values), lows: of(lows), highs: of(highs), write: full, brief: (value) => amount(value, how) };
  }
  const write = (pct) => (base === null ? signed(pct) : `${full(base * (1 + pct / 100) * how.scale_samples)} (${signed(pct)})`);
  return { values, lows, highs, write, brief: signed };
}

/** Lines to draw of an answer, and their axis. */
export function scaled({ series, scale, axis: label, unit }) {
  const isChange = scale === "change";
  const how = series[0]?.amount ?? {};
  return {
    lines: series.map((one) => lineOf(one, isChange)),
    axis: { label, unit, write: isChange ? signed : (value) => amount(value, how), range: isChange ? roomyChange : roomy },
  };
}

function padded(low, high, least) {
  const middle = (low + high) / 2;
  const half = Math.max((high - low) * (0.5 + PAD), least / 2) || 0.5;
  return [middle - half, middle + half];
}

/** Range of an axis of amounts: an amount below zero is not shown if there is none. */
function roomy(plot, low, high) {
  if (low === null) return [0, 1];
  const [from, to] = padded(low, high, LEAST_SHARE * Math.max(Math.abs(low), Math.abs(high)));
  return [low >= 0 ? Math.max(0, from) : from, to];
}

function roomyChange(plot, low, high) {
  return low === null ? [-1, 1] : padded(low, high, LEAST_PCT);
}
