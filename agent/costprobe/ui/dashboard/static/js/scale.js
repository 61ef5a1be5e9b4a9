// Series of very different magnitudes on one chart, such as costs of a model and of a service.

import { number } from "./format.js";

// Beyond this ratio the smaller series would be a flat line at the bottom.
const RATIO_MAX = 8;

function median(values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  const middle = Math.floor(known.length / 2);
  return known.length % 2 ? known[middle] : (known[middle - 1] + known[middle]) / 2;
}

const signed = (pct) => `${pct > 0 ? "+" : ""}${number(pct, 3)} %`;

/**
 * Columns to draw: as amounts, or as the change from the median of each column.
 * scale: "amount", "change", or "auto", which uses amounts if the magnitudes are similar.
 */
export function scaled(columns, { scale, label, write }) {
  const bases = columns.map(median);
  const isWide = Math.max(...bases) > RATIO_MAX * Math.min(...bases);
  const asChange = bases.length > 0 && bases.every((base) => base > 0)
    && (scale === "change" || (scale === "auto" && isWide));
  if (!asChange) return { lines: columns.map((values) => ({ values, write })), axis: { label, write } };
  const lines = columns.map((values, index) => ({
    values: values.map((value) => (value === null ? null : (value / bases[index] - 1) * 100)),
    write: (pct) => `${write(bases[index] * (1 + pct / 100))} (${signed(pct)})`,
  }));
  return { lines, axis: { label: "change from its median, %", write: signed } };
}
