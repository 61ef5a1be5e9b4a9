// A unit cost and its change, as cells of a table.

import { el } from "./dom.js";
import { changeSize, money, scaleWords } from "./format.js";

/** A change in percent with its direction in words: up is worse for costs. */
export function changeText(pct) {
  if (pct === null || pct === undefined) return el("span", { class: "muted" }, "–");
  if (Math.abs(pct) < 0.05) return el("span", { class: "muted" }, "0 %");
  const isUp = pct > 0;
  const kind = Math.abs(pct) < 1 ? "muted" : isUp ? "bad" : "good";
  return el("span", { class: kind },
    el("span", { "aria-hidden": "true" }, isUp ? "▲ " : "▼ "), el("span", { class: "unseen" }, isUp ? "up " : "down "),
    changeSize(pct));
}

/** The cost of as many units as it is written for. */
export function costCell(unit) {
  const { cost, scale_samples: scale, tags } = unit;
  return [el("data", { value: String(cost), class: "price" }, money(cost * scale, tags.currency)),
    el("small", {}, ` / ${scaleWords(scale, unit.unit)}`)];
}
