// Curves of the newest sweeps: latency and cost by batch size.

import { Chart } from "./chart.js";
import { byId, el } from "./dom.js";
import { moment, money, number, scaleWords, seriesNames } from "./format.js";
import { priceScale } from "./scale.js";

const sweep = new Chart(byId("sweep"), "Latency and cost by batch size");
let curves = [];

/** Show the answer of `/api/sweeps`. */
export function showSweeps(sweeps) {
  curves = sweeps.curves;
  const choice = byId("sweep-choice");
  const names = seriesNames(curves.map((curve) => curve.tags));
  if (Array.from(choice.options, (option) => option.textContent).join() !== names.join()) {
    choice.replaceChildren(...names.map((name, index) => el("option", { value: index }, name)));
  }
  byId("sweep-controls").hidden = names.length === 0;
  drawSweep();
}

function drawSweep() {
  const curve = curves[Number(byId("sweep-choice").value) || 0];
  const none = "No sweep is stored. Run: costprobe probe NAME --sweep";
  const points = curve?.points ?? [];
  const hasCost = points.length > 0 && points.every((point) => Number.isFinite(point.cost_per_inference));
  const currency = curve?.tags.currency;
  const scale = hasCost ? priceScale(Math.max(...points.map((point) => point.cost_per_inference))) : 1;
  const words = `cost per ${scaleWords(scale, "inference")}`;
  const ms = (value) => `${number(value)} ms`;
  const right = hasCost
    ? { name: words, write: (value) => money(value, currency), of: (point) => point.cost_per_inference * scale }
    : { name: "throughput, /s", write: number, of: (point) => point.throughput_per_s };
  const cheapest = points.find((point) => point.cheapest);
  const optional = (value, write) => (Number.isFinite(value) ? write(value) : "–");
  sweep.draw({
    xs: points.map((point) => point.batch), time: false, logX: true, labelX: "batch", writeX: String,
    series: points.length === 0 ? [] : [
      { name: "latency p50", values: points.map((point) => point.latency_p50_ms ?? null), write: ms },
      { name: right.name, values: points.map(right.of), write: right.write, scale: "right" }],
    axes: [{ scale: "y", label: "latency p50, ms", write: number },
      { scale: "right", label: right.name, write: right.write, side: 1 }],
    summary: cheapest ? `batch ${cheapest.batch} is the cheapest; measured ${moment(curve.time_ms)}`
      : curve ? `measured ${moment(curve.time_ms)}` : "none",
    heads: ["#Batch", "#Latency p50", "#Throughput", "#Energy", `#${words}`, "Note"],
    table: () => points.map((point) => [
      String(point.batch), optional(point.latency_p50_ms, ms), optional(point.throughput_per_s, (v) => `${number(v)} /s`),
      optional(point.energy_per_inference_j, (v) => `${number(v, 3)} J`),
      optional(point.cost_per_inference, (v) => money(v * scale, currency)), point.cheapest ? "cheapest" : ""]),
    none,
  });
}

byId("sweep-choice").addEventListener("change", drawSweep);
