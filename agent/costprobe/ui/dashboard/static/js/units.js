// A table of which the first rows are shown, more on demand; rows of members stand beneath their group.

import { byId, el, show } from "./dom.js";
import { boxed, content, tableOf } from "./place.js";

// By the place of a table: what of it is open.
const states = new Map();

/** Show a table of the server; `tree` has for each row the group that it is of, or the key and the name of its own members. */
export function showRows(id, given, { most, kind = null, isBoxed = false }) {
  const state = states.get(id) ?? { open: new Set(), isWhole: false };
  states.set(id, state);
  const { rows, none, tree = rows.map(() => ({ of: null, key: null })) } = given;
  const draw = () => showRows(id, given, { most, kind, isBoxed });
  const flip = (key) => { if (!state.open.delete(key)) state.open.add(key); draw(); };
  const tops = tree.filter(({ of }) => of === null).length;
  let seen = 0;
  const row = (index) => {
    const { of, key, is_outlier: isOutlier, members = "devices" } = tree[index];
    if (of === null) seen += 1;
    if (!state.isWhole && seen > most) return null;
    if (of !== null) return state.open.has(of) || isOutlier ? { class: "member" } : null;
    if (key === null) return {};
    const count = tree.filter((one) => one.of === key).length;
    const isOpen = state.open.has(key);
    return { head: (cell) => el("th", { scope: "row" }, content(cell), " ",
      el("button", { type: "button", class: "expand", "aria-expanded": String(isOpen), onclick: () => flip(key) },
        `${count} ${members}`, el("span", { "aria-hidden": "true" }, isOpen ? " ▾" : " ▸"))) };
  };
  const options = { kind, row };
  show(byId(id), rows.length === 0 ? el("p", { class: "muted" }, content(none)) : [isBoxed ? boxed(given, options) : tableOf(given, options),
    tops > most ? el("button", { type: "button", class: "more", "aria-expanded": String(state.isWhole), onclick: () => { state.isWhole = !state.isWhole; draw(); } },
      state.isWhole ? "Show fewer" : `Show ${tops - most} more`) : null]);
}
