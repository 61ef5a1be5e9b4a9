// The chart of a server under load: cost against the speed of one user, with its Pareto front.

import { joules, moment, money, number, scaleWords } from "./format.js";
import { priceScale } from "./scale.js";

const CHEAPEST_PX = 14;
const isKnown = (value) => Number.isFinite(value);
const ms = (value) => `${number(value)} ms`;
const perSecond = (value) => `${number(value)} /s`;
const optional = (value, write) => (isKnown(value) ? write(value) : "–");
// Columns of the table: tokens have times of their own, another response has its latency.
const COLUMNS = new Map([
  ["token", [
    ["Requests", "throughput_per_s", perSecond], ["Tokens out", "tokens_out_per_s", perSecond],
    ["TTFT p50", "ttft_p50_ms", ms], ["p90", "ttft_p90_ms", ms], ["TPOT p50", "tpot_p50_ms", ms], ["p90", "tpot_p90_ms", ms],
    ["Energy, M tokens out", "energy_per_million_tokens_out_j", joules],
  ]],
  ["request", [
    ["Requests", "throughput_per_s", perSecond], ["Latency p50", "latency_p50_ms", ms], ["p90", "latency_p90_ms", ms],
    ["Energy, request", "energy_per_inference_j", joules],
  ]],
]);
const VERDICTS = new Map([[true, "meets the SLO"], [false, "misses the SLO"]]);

/** What is drawn upwards: the cost of a unit, or without a price the throughput. */
function upwards(points, unit, currency) {
  if (!points.every((point) => isKnown(point.cost))) {
    const name = `${unit}s/s`;
    return { name, of: (point) => point.work_per_s, axis: number, write: (value) => `${number(value)} ${name}`, best: "has the most throughput" };
  }
  // The cost of tokens is that of a million already.
  const scale = unit === "token" ? 1 : priceScale(Math.max(...points.map((point) => point.cost)));
  const words = scaleWords(unit === "token" ? 1_000_000 : scale, unit);
  const axis = (value) => money(value, currency);
  return { name: `cost per ${words}`, of: (point) => (isKnown(point.cost) ? point.cost * scale : null), axis, write: (value) => `${axis(value)} per ${words}`, best: "costs least" };
}

function verdictOf(best, slo, speed, up) {
  const text = best ? `${best.load} ${up.best}: ${up.write(up.of(best))}, ${number(best.speed_per_s, 3)} ${speed}` : "no load is known to meet it";
  return slo ? `Within the SLO ${slo}: ${text}.` : best ? `Without an SLO, ${text}.` : "";
}

/** The data of `Chart.draw` for a load curve of `/api/sweeps`. */
export function loadChart({ points: all, slo, tags, time_ms: timeMs, unit }) {
  const points = all.filter((point) => isKnown(point.speed_per_s)).sort((a, b) => a.speed_per_s - b.speed_per_s);
  const up = upwards(points, unit, tags.currency);
  const speed = `${unit}s/s of a user`;
  const columns = [...COLUMNS.get(unit), ["Goodput", "goodput_per_s", perSecond]];
  const best = points.find((point) => point.cheapest);
  const line = (name, isMember, own) => ({
    name, values: points.map((point) => (isMember(point) ? up.of(point) : undefined)),
    write: (value, at) => `${up.write(value)}, ${points[at].load}`, ...own,
  });
  const series = [
    line("Pareto front", (point) => point.front, {}),
    line("other loads", (point) => !point.front, { isScatter: true }),
    line(slo ? "cheapest within the SLO" : "cheapest", (point) => point === best, { isScatter: true, pointPx: CHEAPEST_PX, last: best?.load }),
  ].filter(({ values }) => values.some(isKnown));
  const note = verdictOf(best, slo, speed, up);
  return {
    xs: points.map((point) => point.speed_per_s), time: false, logX: false, labelX: speed, writeX: (value) => number(value, 3),
    series, note, axes: [{ scale: "y", label: up.name, write: up.axis }],
    summary: `${note} Measured ${moment(timeMs)}`.trim(),
    heads: ["Load", `#${up.name}`, `#${speed}`, ...columns.map(([name]) => `#${name}`), "Note"],
    table: () => all.map((point) => [
      point.load, optional(up.of(point), up.axis), optional(point.speed_per_s, (value) => number(value, 3)),
      ...columns.map(([, field, write]) => optional(point[field], write)),
      [point.cheapest ? "cheapest" : point.front ? "front" : "", VERDICTS.get(point.meets_slo)].filter(Boolean).join(", ")]),
    none: "No load of this curve has a known speed.",
  };
}
