// Series of very different sizes on one chart: a model's cost and a service's are worlds apart.

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
 * Columns as they are to be drawn: as amounts, or as the change from each one's own median.
 * scale: "amount", "change", or "auto", which takes amounts where they are of one size.
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
