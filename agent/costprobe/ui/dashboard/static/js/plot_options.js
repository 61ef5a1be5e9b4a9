// Options of uPlot for a chart: axes and lines.

import { colour } from "./dom.js";
import { axisMoments } from "./format.js";

const FONT = "12px system-ui, sans-serif";
const LABEL_PX = 30;
const POINTS_MAX = 80;
const DIMMED = 0.2;

export function chartOptions(data, legend, { width, height, isZoomable }) {
  const { series, axes, time, logX } = data;
  const grid = { stroke: colour("--grid"), width: 1 };
  const plain = { stroke: colour("--muted"), grid, ticks: grid, font: FONT };
  const scales = { x: { time, distr: logX ? 3 : 1, log: 2, ...(data.range ? { range: () => data.range } : {}) } };
  for (const axis of axes) scales[axis.scale] = { range: axis.range };
  return {
    width, height, scales, legend: { show: false }, focus: { alpha: DIMMED },
    cursor: { y: false, drag: { x: isZoomable, y: false, setScale: false }, bind: { dblclick: () => null } },
    axes: [
      { ...plain, ...(time ? { values: (_, splits, at, space, step) => axisMoments(splits, step) } : ownAxis(data)) },
      ...axes.map((axis) => ({
        ...plain, scale: axis.scale, side: axis.side ?? 3, size: 84, label: axis.label,
        labelFont: FONT, labelSize: 18,
        ...(axis.side === 1 ? { grid: { show: false } } : {}),
        values: (_, splits) => splits.map((value) => axis.write(value)),
      })),
    ],
    series: [{}, ...series.map((one) => line(one, legend))],
  };
}

function line(one, legend) {
  const stroke = colour(legend.variableOf(one.name));
  const count = one.values.filter((value) => value !== null && value !== undefined).length;
  return {
    label: one.name, scale: one.scale ?? "y", show: legend.isShown(one.name),
    stroke, dash: legend.dashOf(one.name), width: one.isOutlier ? 1 : 2,
    points: { show: count < POINTS_MAX, size: one.pointPx ?? 6, fill: one.isScatter ? stroke : colour("--card") },
    ...(one.isScatter ? { paths: () => null } : {}),
  };
}

/** An axis with a tick at each value, and a number where there is space. */
function ownAxis({ xs, labelX, writeX }) {
  const roomy = (plot, splits) => {
    let right = -Infinity;
    return splits.map((value) => {
      const left = plot.valToPos(value, "x");
      if (left - right < LABEL_PX) return null;
      right = left;
      return value;
    });
  };
  return {
    label: labelX, labelFont: FONT, labelSize: 18, splits: () => xs, filter: roomy,
    values: (_, splits) => splits.map((value) => (value === null ? "" : writeX(value))),
  };
}
