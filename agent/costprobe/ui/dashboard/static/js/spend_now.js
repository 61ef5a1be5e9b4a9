// The first line: spend an hour and this month against the budget, idle share, power.

import { largestUses } from "./allocation.js";
import { byId, el, show, strip, svg } from "./dom.js";
import { changeSize, money, percent, plural, power } from "./format.js";

const exact = (value, text) => el("data", { value: String(value) }, text);
const TICK = 0.8;

function tile(name, figure, ...notes) {
  return el("div", { class: "tile", "data-tile": name }, el("h2", {}, name), el("p", { class: "big" }, figure), notes);
}

const note = (kind, ...content) => el("p", { class: `note-line ${kind}` }, content);

/** Spend and forecast against the amount, on one scale. */
function monthBar({ spent, amount, forecast }) {
  const most = Math.max(amount, spent, forecast ?? 0) * 1.02;
  const part = (kind, from, to) =>
    svg("rect", { class: kind, x: (from / most) * 100, y: 0, width: Math.max(0, ((to - from) / most) * 100), height: 10 });
  const tick = (most * TICK) / 100;
  return strip([
    part(spent > amount ? "over" : "spent", 0, spent),
    forecast === null ? [] : part("band", spent, forecast),
    part("planned", amount - tick / 2, amount + tick / 2),
  ].flat());
}

function monthTile({ month, currency }) {
  const { spent, amount, forecast, period } = month;
  const written = (value) => exact(value, money(value, currency));
  const expected = forecast === null ? "no forecast yet" : ["forecast ", written(forecast)];
  if (amount === null) return tile(period, [written(spent), el("small", {}, " so far")], note("muted", expected, ", no budget"));
  const over = forecast !== null && forecast > amount;
  const kind = spent > amount ? "bad" : over ? "warn" : "muted";
  const words = spent > amount ? `, exceeded by ${changeSize((spent / amount - 1) * 100)}`
    : over ? `, ${changeSize((forecast / amount - 1) * 100)} over` : forecast === null ? "" : ", within the budget";
  return tile(period, [written(spent), el("small", {}, " of ", written(amount))], monthBar(month), note(kind, expected, words));
}

function currencyTiles(one, allocation) {
  const { currency, cost_per_h: perHour, idle_share: idle } = one;
  const uses = allocation ? largestUses(allocation) : null;
  return [
    tile("Spend now", perHour === null ? "–" : [exact(perHour, money(perHour, currency)), el("small", {}, " an hour")],
      uses ?? note("muted", perHour === null ? "no reading in the last hour" : "hardware and electricity")),
    one.month ? monthTile(one) : tile("This month", "…", note("muted", "reading the hours so far")),
    tile("Idle", exact(idle ?? "", percent(idle)),
      note("muted", idle === null ? "utilization unknown" : `${money(perHour * idle, currency)} an hour unused`)),
  ];
}

/** Show the answer of `/api/overview`, and of the allocations of `/api/spend` those that are known. */
export function showSpendNow({ spending, power_w: watts }, devices, allocations) {
  const drawn = devices.filter((device) => Number.isFinite(device.fields.power_w)).length;
  const tiles = spending.length ? spending.map((one) => currencyTiles(one, allocations.find(({ currency }) => currency === one.currency)))
    : [tile("Spend now", "–", note("muted", "no device has a price: add a [[price]] section"))];
  show(byId("spend-now"), tiles,
    tile("Power", exact(watts ?? "", power(watts)), note("muted", watts === null ? "unknown" : `${drawn} of ${plural(devices.length, "device")}`)));
}
