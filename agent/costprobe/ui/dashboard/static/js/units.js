// The table of unit costs: a row for each model and service; those of its devices beneath it on demand, outliers at once.

import { byId, el, show } from "./dom.js";
import { content, tableOf } from "./place.js";

const ROWS_SHOWN = 12;
const open = new Set();
let isWhole = false;

/** Show `units` of `/api/now`. */
export function showUnits(units) {
  const { tree, rows } = units;
  const draw = () => showUnits(units);
  const flip = (set, key) => { if (!set.delete(key)) set.add(key); draw(); };
  const tops = tree.filter(({ of }) => of === null).length;
  let seen = 0;
  const row = (index) => {
    const { of, key, is_outlier: isOutlier } = tree[index];
    if (of === null) seen += 1;
    if (!isWhole && seen > ROWS_SHOWN) return null;
    if (of !== null) return open.has(of) || isOutlier ? { class: "member" } : null;
    if (key === null) return {};
    const count = tree.filter((one) => one.of === key).length;
    const isOpen = open.has(key);
    return { head: (cell) => el("th", { scope: "row" }, content(cell), " ",
      el("button", { type: "button", class: "expand", "aria-expanded": String(isOpen), onclick: () => flip(open, key) },
        `${count} devices`, el("span", { "aria-hidden": "true" }, isOpen ? " ▾" : " ▸"))) };
  };
  show(byId("units"), rows.length === 0 ? el("p", { class: "muted" }, content(units.none)) : [tableOf(units, { kind: "units", row }),
    tops > ROWS_SHOWN ? el("button", { type: "button", class: "more", "aria-expanded": String(isWhole), onclick: () => { isWhole = !isWhole; draw(); } },
      isWhole ? "Show fewer" : `Show ${tops - ROWS_SHOWN} more`) : null]);
}
