// The first line: spend an hour and this month against the budget, idle share, power.

import { largestUses } from "./allocation.js";
import { byId, el, show } from "./dom.js";
import { money, percent, plural, power } from "./format.js";
import { exact, monthTile, note, tile } from "./tiles.js";

function currencyTiles(one, allocation) {
  const { currency, cost_per_h: perHour, idle_share: idle, assumed } = one;
  const uses = allocation ? largestUses(allocation) : null;
  return [
    tile("Spend now", perHour === null ? "–" : [exact(perHour, money(perHour, currency)), el("small", {}, ` an hour${assumed ? ", price assumed" : ""}`)],
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
