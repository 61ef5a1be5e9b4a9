// A small curve of the last seven days without axes; the change beside it is its text.

import { svg } from "./dom.js";

const WIDTH = 100;
const HEIGHT = 24;
const MARGIN = 2;
// A smaller range is noise: it is drawn flat.
const LEAST_RANGE = 0.02;

/** The curve of a series: { times_ms, values }, from sinceMs to untilMs. */
export function sparkline({ times_ms: times, values }, sinceMs, untilMs) {
  const frame = { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" };
  if (values.length < 2) return svg("svg", frame);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const middle = (low + high) / 2;
  const half = Math.max((high - low) / 2, middle * LEAST_RANGE);
  const place = (time, value) => [
    ((time - sinceMs) / (untilMs - sinceMs)) * WIDTH,
    HEIGHT / 2 - ((value - middle) / half) * (HEIGHT / 2 - MARGIN),
  ].map((one) => one.toFixed(1)).join(",");
  return svg("svg", frame, svg("polyline", { points: times.map((time, index) => place(time, values[index])).join(" ") }));
}
