// What a chart's values are: amounts with their unit, or changes from a baseline in percent.

import { money, moneyOf, number, scaleWords } from "./format.js";

// A calm series fills the height of a chart only from this variation on.
const LEAST_SHARE = 0.02;
const LEAST_PCT = 2;
const PAD = 0.08;

const changes = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1, signDisplay: "exceptZero" });

/** A change in percent: "+8.4 %", "0 %". */
export const signed = (pct) => `${changes.format(pct)} %`;
const axisChange = (pct) => `${pct > 0 ? "+" : ""}${number(pct, 3)} %`;

// A unit price is written for 1, 1,000 or a million units, as core/money.py chooses it.
const PRICE_SCALES = [1, 1000, 1_000_000];
const PRICE_MIN = 0.1;

/** How many units an amount for one unit is written for. */
export const priceScale = (price) =>
  PRICE_SCALES.find((scale) => Math.abs(price) * scale >= PRICE_MIN) ?? 1_000_000;

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/**
 * How values of a field are written at a scale: its factor, the text of a number, and that with the unit.
 * price: an amount for one unit by which the scale of a unit price is chosen.
 */
function writing({ field, unit, currency }, price) {
  const { isMoney, factor } = moneyOf(field);
  if (!isMoney) {
    const plain = (value) => number(value);
    return { factor: 1, unit, plain, write: (value) => `${plain(value)} ${unit}`.trim(), brief: plain };
  }
  const scale = factor === 1 ? 1 : priceScale(price);
  const words = factor === 1 ? unit : `per ${scaleWords(scale, unit)}`;
  const plain = (value) => money(value, currency);
  return { factor: scale, unit: words, plain, write: (value) => `${plain(value)} ${words}`.trim(), brief: plain };
}

/**
 * Lines to draw of an answer of `/api/trend`, and their axis.
 * label: what the field is; unit: its unit, of a unit price in the singular
 */
export function scaled(answer, field, label, unit) {
  const currencies = new Set(answer.series.map((one) => one.tags.currency).filter(Boolean));
  const shared = { field, unit, currency: currencies.size === 1 ? [...currencies][0] : "" };
  if (answer.scale !== "change") {
    // One axis has one scale, by its largest series.
    const prices = answer.series.map((one) => one.base ?? median(one.values));
    const { factor, plain, write, brief, unit: words } = writing(shared, Math.max(0, ...prices));
    const of = (values) => values.map((value) => value * factor);
    return {
      lines: answer.series.map((one) => ({ values: of(one.values), lows: of(one.lows), highs: of(one.highs), write, brief })),
      axis: { label: factor === 1 ? label : `cost ${words}`, unit: words, write: plain, range: roomy },
    };
  }
  return {
    lines: answer.series.map(({ values, lows, highs, base }) => {
      const { factor, write } = writing(shared, base ?? 0);
      const text = (pct) => (base === null ? signed(pct) : `${write(base * (1 + pct / 100) * factor)} (${signed(pct)})`);
      return { values, lows, highs, brief: signed, write: text };
    }),
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
