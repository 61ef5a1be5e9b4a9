// Curves of the newest sweeps: latency and cost by batch size, and of servers by load.

import { Chart } from "./chart.js";
import { byId, el } from "./dom.js";
import { amount, localTimes } from "./format.js";

const sweep = new Chart(byId("sweep"), "Batch size and load");
// What is drawn, in the order of the choices.
let charts = [];

/** Show the answer of `/api/sweeps`. */
export function showSweeps(found) {
  ({ charts } = found);
  const choice = byId("sweep-choice");
  const names = charts.map(({ name }) => name);
  if (choice.dataset.names !== names.join("\n")) {
    choice.dataset.names = names.join("\n");
    choice.replaceChildren(...names.map((name, index) => el("option", { value: index }, name)));
  }
  byId("sweep-controls").hidden = names.length === 0;
  drawSweep();
}

function drawSweep() {
  const given = charts[Number(byId("sweep-choice").value) || 0];
  if (!given) {
    sweep.say("No sweep is stored. Run: costprobe probe NAME --sweep, or of a server: costprobe probe NAME --load", false);
    return;
  }
  sweep.draw({
    ...given, time: false, logX: given.is_log_x, labelX: given.label_x, writeX: (value) => given.ticks[given.xs.indexOf(value)],
    // A line continues over the points that are not its own.
    series: given.series.map((one) => ({ ...one, values: one.values.map((value) => value ?? undefined), write: (_, at) => one.texts[at], isScatter: one.is_scatter, pointPx: one.size_px })),
    axes: given.axes.map((axis) => ({ ...axis, write: (value) => amount(value, axis) })),
    summary: localTimes(given.summary), table: () => given.table,
  });
}

byId("sweep-choice").addEventListener("change", drawSweep);
