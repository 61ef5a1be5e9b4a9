// Series of `/api/trend` on one time axis, and as rows of a table.

import { moment } from "./format.js";

// A distance between two samples of more than this many of the ones beside it is a gap.
const GAP_STEPS = 5;

/** Times in ms in the middle of each gap of a series. */
function gapsOf(times) {
  const steps = times.slice(1).map((time, index) => time - times[index]);
  return steps.flatMap((step, index) => {
    const beside = Math.max(steps[index - 1] ?? 0, steps[index + 1] ?? 0);
    return beside > 0 && step > GAP_STEPS * beside ? [Math.round(times[index] + step / 2)] : [];
  });
}

/**
 * Columns over common times in seconds. A column has null at its gaps and undefined at the times of
 * other series, over which its line continues.
 */
export function aligned(series, lines) {
  const gaps = series.map((one) => gapsOf(one.times_ms));
  const times = [...new Set([...series.flatMap((one) => one.times_ms), ...gaps.flat()])].sort((a, b) => a - b);
  const place = new Map(times.map((time, index) => [time, index]));
  const column = (one, at, values) => {
    const placed = new Array(times.length).fill(undefined);
    for (const time of gaps[at]) placed[place.get(time)] = null;
    one.times_ms.forEach((time, index) => { placed[place.get(time)] = values[index]; });
    return placed;
  };
  return {
    xs: times.map((time) => time / 1000),
    columns: series.map((one, at) => ({ values: column(one, at, lines[at].values) })),
  };
}

/** Rows of the table of a trend, newest first. */
export function trendRows(series, lines, names) {
  return series
    .flatMap((one, index) => one.times_ms.map((time, at) => ({ time, at, index })))
    .sort((a, b) => b.time - a.time)
    .map(({ time, at, index }) => {
      const { values, lows, highs, write } = lines[index];
      return [moment(time), names[index], write(values[at]),
        lows[at] === highs[at] ? "" : `${write(lows[at])} to ${write(highs[at])}`];
    });
}
