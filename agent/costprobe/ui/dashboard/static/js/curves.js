// Curves of the newest sweeps: latency and cost by batch size, and of servers by load.

import { Chart } from "./chart.js";
import { byId, el } from "./dom.js";
import { moment, money, number, scaleWords, seriesNames } from "./format.js";
import { loadChart } from "./load_curve.js";
import { priceScale } from "./scale.js";

const sweep = new Chart(byId("sweep"), "Batch size and load");
// What is drawn, in the order of the choices.
let charts = [];

/** Show the answer of `/api/sweeps`. */
export function showSweeps({ curves, loads }) {
  charts = [...curves.map((curve) => () => batchChart(curve)), ...loads.map((curve) => () => loadChart(curve))];
  const choice = byId("sweep-choice");
  const names = [...seriesNames(curves.map((curve) => curve.tags)).map((name) => `${name}, batch size`),
    ...seriesNames(loads.map((curve) => curve.tags)).map((name) => `${name}, load`)];
  if (Array.from(choice.options, (option) => option.textContent).join() !== names.join()) {
    choice.replaceChildren(...names.map((name, index) => el("option", { value: index }, name)));
  }
  byId("sweep-controls").hidden = names.length === 0;
  drawSweep();
}

function batchChart(curve) {
  const { points } = curve;
  const { currency } = curve.tags;
  const hasCost = points.length > 0 && points.every((point) => Number.isFinite(point.cost_per_inference));
  const scale = hasCost ? priceScale(Math.max(...points.map((point) => point.cost_per_inference))) : 1;
  const words = `cost per ${scaleWords(scale, "inference")}`;
  const ms = (value) => `${number(value)} ms`;
  const right = hasCost
    ? { name: words, write: (value) => money(value, currency), of: (point) => point.cost_per_inference * scale }
    : { name: "throughput, /s", write: number, of: (point) => point.throughput_per_s };
  const cheapest = points.find((point) => point.cheapest);
  const optional = (value, write) => (Number.isFinite(value) ? write(value) : "–");
  return {
    xs: points.map((point) => point.batch), time: false, logX: true, labelX: "batch", writeX: String,
    series: [
      { name: "latency p50", values: points.map((point) => point.latency_p50_ms ?? null), write: ms },
      { name: right.name, values: points.map(right.of), write: right.write, scale: "right" }],
    axes: [{ scale: "y", label: "latency p50, ms", write: number },
      { scale: "right", label: right.name, write: right.write, side: 1 }],
    summary: `${cheapest ? `batch ${cheapest.batch} is the cheapest; ` : ""}measured ${moment(curve.time_ms)}`,
    heads: ["#Batch", "#Latency p50", "#Throughput", "#Energy", `#${words}`, "Note"],
    table: () => points.map((point) => [
      String(point.batch), optional(point.latency_p50_ms, ms), optional(point.throughput_per_s, (v) => `${number(v)} /s`),
      optional(point.energy_per_inference_j, (v) => `${number(v, 3)} J`),
      optional(point.cost_per_inference, (v) => money(v * scale, currency)), point.cheapest ? "cheapest" : ""]),
    none: "This sweep has no batch size.",
  };
}

function drawSweep() {
  const made = charts[Number(byId("sweep-choice").value) || 0]?.();
  if (made) sweep.draw(made);
  else sweep.say("No sweep is stored. Run: costprobe probe NAME --sweep, or of a server: costprobe probe NAME --load", false);
}

byId("sweep-choice").addEventListener("change", drawSweep);
