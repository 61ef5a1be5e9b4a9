// What a chart's values are: amounts with their unit, or changes from a baseline in percent.

import { money, moneyOf, number } from "./format.js";

// A calm series fills the height of a chart only from this variation on.
const LEAST_SHARE = 0.02;
const LEAST_PCT = 2;
const PAD = 0.08;

const changes = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1, signDisplay: "exceptZero" });

/** A change in percent: "+8.4 %", "0 %". */
export const signed = (pct) => `${changes.format(pct)} %`;
const axisChange = (pct) => `${pct > 0 ? "+" : ""}${number(pct, 3)} %`;

/** How a field is written: factor of its values, its text with the unit, and its text at the axis. */
export function writing(field, unit, series) {
  const currencies = new Set(series.map((one) => one.tags.currency).filter(Boolean));
  const currency = currencies.size === 1 ? [...currencies][0] : "";
  const { isMoney, factor } = moneyOf(field);
  const plain = isMoney ? (value) => money(value, currency) : (value) => number(value);
  const write = (value) => (unit ? `${plain(value)} ${unit}` : plain(value));
  return { factor, plain, write, brief: isMoney ? plain : write };
}

/** Lines to draw of an answer of `/api/trend`, and their axis. */
export function scaled(answer, label, { factor, plain, write, brief }) {
  if (answer.scale !== "change") {
    const of = (values) => values.map((value) => value * factor);
    return {
      lines: answer.series.map((one) => ({
        values: of(one.values), lows: of(one.lows), highs: of(one.highs), write, brief,
      })),
      axis: { label, write: plain, range: roomy },
    };
  }
  return {
    lines: answer.series.map(({ values, lows, highs, base }) => ({
      values, lows, highs, brief: signed,
      write: (pct) => (base === null ? signed(pct) : `${write(base * (1 + pct / 100) * factor)} (${signed(pct)})`),
    })),
    axis: { label: `change from the median of ${answer.base_d} days, %`, write: axisChange, range: roomyChange },
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
