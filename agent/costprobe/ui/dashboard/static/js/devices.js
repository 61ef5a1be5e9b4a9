// The devices as a sortable table.

import { byId, el, show } from "./dom.js";
import { bytes, money, number, percent, span } from "./format.js";
import { SortableTable } from "./sortable.js";

const SENSOR_STALE_S = 120;

let shown = { devices: [], costs: new Map() };

const field = (name, key, unit, { digits = 3, column = key } = {}) => ({
  name, key: column, isNumber: true, value: ({ fields }) => fields[key],
  cell: ({ fields }) => (Number.isFinite(fields[key]) ? `${number(fields[key], digits)}${unit}` : "–"),
});

function throttled({ fields }) {
  const parts = [["thermal", fields.throttle_thermal_s], ["power", fields.throttle_power_s]].filter(([, value]) => value > 0);
  return parts.length ? el("span", { class: "warn" }, parts.map(([name]) => name).join(", ")) : "no";
}

const costOf = (device) => shown.costs.get(device.tags.device);
const isOld = (device) => device.age_s > SENSOR_STALE_S;

const table = new SortableTable("The newest reading of each device; choose a column to sort by it.", [
  { name: "Device", key: "device", value: ({ tags }) => tags.device, cell: ({ tags }) => tags.device },
  { name: "Model", key: "model", value: ({ tags }) => tags.model, cell: ({ tags }) => tags.model ?? "–" },
  field("Utilization", "util_pct", " %"),
  field("Power", "power_w", " W"),
  field("Limit", "power_limit_w", " W"),
  field("Temperature", "temp_c", " °C"),
  field("SM clock", "sm_clock_mhz", " MHz", { digits: 4 }),
  field("Memory clock", "mem_clock_mhz", " MHz", { digits: 4 }),
  {
    name: "Throttled", key: "throttled",
    value: ({ fields }) => ("throttle_thermal_s" in fields || "throttle_power_s" in fields
      ? (fields.throttle_thermal_s ?? 0) + (fields.throttle_power_s ?? 0) : null), cell: throttled,
  },
  {
    name: "Memory", key: "memory", isNumber: true,
    value: ({ fields }) => (fields.mem_total_bytes ? fields.mem_used_bytes / fields.mem_total_bytes : null),
    cell: ({ fields }) => (fields.mem_total_bytes ? `${bytes(fields.mem_used_bytes)} of ${bytes(fields.mem_total_bytes)}` : "–"),
  },
  {
    name: "Memory errors", key: "errors", isNumber: true, value: ({ fields }) => fields.ecc_uncorrected || null,
    cell: ({ fields }) => (fields.ecc_uncorrected ? el("span", { class: "bad" }, number(fields.ecc_uncorrected)) : "0"),
  },
  {
    name: "Price", key: "price", isNumber: true, value: ({ fields }) => fields.price_rate_per_h,
    cell: ({ fields, tags }) => (Number.isFinite(fields.price_rate_per_h) ? `${money(fields.price_rate_per_h, tags.currency)} / h` : "–"),
  },
  {
    name: "Cost, 24 h", key: "cost", isNumber: true, value: (device) => costOf(device)?.cost,
    cell: (device) => (costOf(device) ? el("data", { value: String(costOf(device).cost) }, money(costOf(device).cost, costOf(device).currency)) : "–"),
  },
  {
    name: "Share", key: "share", isNumber: true, value: (device) => costOf(device)?.share,
    cell: (device) => percent(costOf(device)?.share),
  },
  {
    name: "Last seen", key: "seen", isNumber: true, value: (device) => (isOld(device) ? device.age_s : null),
    cell: (device) => (isOld(device) ? el("strong", { class: "bad" }, `${span(device.age_s)} ago`) : "now"),
  },
], draw);

function draw() {
  const { devices } = shown;
  show(byId("devices"), devices.length === 0
    ? el("p", { class: "muted" }, "No device reading in the last 7 days.")
    : el("div", { class: "scroll card", tabindex: 0, role: "region", "aria-label": "Table of devices" },
      table.draw(devices, (device) => (isOld(device) ? "old" : null))));
}

/** Show the devices of `/api/now`. */
export function showDevices(now) {
  shown = { ...shown, devices: now.devices };
  draw();
}

/** Take the cost of each device from `/api/spend`. */
export function takeCosts({ allocations }) {
  const costs = allocations.flatMap(({ currency, cost: total, devices }) =>
    devices.map(({ device, cost }) => [device, { cost, currency, share: total > 0 ? cost / total : null }]));
  shown = { ...shown, costs: new Map(costs) };
  draw();
}
