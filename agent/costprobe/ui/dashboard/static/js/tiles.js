// The figures of the first line of a page.

import { el } from "./dom.js";
import { changeSize, money, SPACE } from "./format.js";
import { barOf } from "./place.js";

export const exact = (value, text) => el("data", { value: String(value) }, text);

/** A figure under its name; data-tile is the name. */
export function tile(name, figure, ...notes) {
  return el("div", { class: "tile", "data-tile": name }, el("h2", {}, name), el("p", { class: "big" }, figure), notes);
}

export const note = (kind, ...content) => el("p", { class: `note-line ${kind}` }, content);

/** Spend and forecast against the amount, on one scale. */
function monthBar({ spent, amount, forecast }) {
  const most = Math.max(amount, spent, forecast ?? 0) * 1.02;
  const ahead = forecast === null ? [] : [["band", Math.max(0, forecast - spent) / most]];
  return barOf([[spent > amount ? "over" : "spent", spent / most], ...ahead, ["planned", amount / most]]);
}

/** Spend so far against the planned amount, with the forecast. */
export function monthTile({ month, currency }) {
  const { spent, amount, forecast, period } = month;
  const written = (value) => exact(value, money(value, currency));
  const expected = forecast === null ? "no forecast yet" : [amount !== null && spent > amount ? "exceeded; forecast " : "forecast ", exact(forecast, money(forecast, currency, 2))];
  if (amount === null) return tile(period, [written(spent), el("small", {}, " so far")], note("muted", expected, ", no budget"));
  const over = forecast !== null && forecast > amount;
  const kind = spent > amount ? "bad" : over ? "warn" : "muted";
  const words = over ? `, ${changeSize((forecast / amount - 1) * 100)} over` : forecast === null ? "" : ", within the budget";
  return tile(period, [written(spent), el("small", {}, ` of${SPACE}`, written(amount))], monthBar(month), note(kind, expected, words));
}
